"""What a test sees of the SQL: triggers that acted, views that were read, constraints
that refused; and triggers that were asked, which have a question mark.

SQLite's trace names each trigger that is asked, whether or not its `when` lets it act,
and shows each statement, those of the triggers too. Its log names a constraint that
refuses, whatever becomes of the error.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import apsw

from tests.mutations import sources

_seen: set[str] = set()
_NAME = re.compile(r"\blitejobs_\w+")
_REFUSAL = re.compile(r"(?:(CHECK)|UNIQUE) constraint failed: ([\w., ]+)")


def watch() -> None:
    """From now on, all connections of this process."""
    apsw.connection_hooks.append(_trace)


def taken() -> list[str]:
    """The objects since the last time."""
    names = sorted(_seen)
    _seen.clear()
    return names


def _trace(connection: apsw.Connection) -> None:
    connection.trace_v2(apsw.SQLITE_TRACE_STMT, _Tracer(), id="seen")


class _Tracer:
    def __init__(self) -> None:
        self._asked = ""

    def __call__(self, event: dict[str, Any]) -> None:
        text = event["sql"]
        asked, self._asked = self._asked, ""
        if event["trigger"] and text.startswith("TRIGGER "):
            self._asked = text.removeprefix("TRIGGER ")
            _seen.add(f"{self._asked}?")
            _seen.update(_condition(self._asked))
            return
        if asked and event["trigger"] and " ".join(text.split()) in _body(asked):
            _seen.add(asked)
        _seen.update(_views_in(text))


@functools.cache
def _body(trigger: str) -> frozenset[str]:
    place = sources.places().get(trigger)
    body = sources.source(place).partition("\nbegin\n")[2] if place else ""
    # A semicolon inside a string belongs to the string.
    return frozenset(
        " ".join(x.split()) for x in re.findall(r"(?:'[^']*'|[^';])+", body)
    )


@functools.cache
def _condition(trigger: str) -> frozenset[str]:
    place = sources.places().get(trigger)
    return _views_in(sources.source(place).partition("\nbegin\n")[0] if place else "")


@functools.lru_cache(10_000)
def _views_in(text: str) -> frozenset[str]:
    places = sources.places()
    names = set(_NAME.findall(text))
    return frozenset(x for x in names if x in places and places[x].kind == "view")


def log(code: int, message: str) -> None:
    """What SQLite has to say."""
    found = _REFUSAL.search(message)
    if found is None:
        return
    check, what = found.groups()
    if check:
        _seen.add(what)
        return
    columns = re.findall(r"(\w+)\.(\w+)", what)
    key = ", ".join(column for _, column in columns)
    _seen.update(
        name
        for name, table in sources.constraints().items()
        if table == columns[0][0]
        and re.search(
            rf"unique \(\s*{key}\s*\)", " ".join(sources.text_of(name).split())
        )
    )
