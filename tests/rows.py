"""Many rows in one test, which has its fixtures made once, and names all that fail."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tests.sql.fixture import Sql


def for_each(names: str, rows: Iterable[Any]) -> Callable[..., Any]:
    """Call the test with each of these rows in place of some of its arguments.

    As `pytest.mark.parametrize` does, except that all rows are one test: it fails once,
    with every row that fails and why. Two of them give each pair. What a row does to a
    database is taken back before the next one begins.
    """
    listed = [name.strip() for name in names.split(",")]
    given = [_row(listed, row) for row in rows]
    if not given:
        raise ValueError(f"no rows of {names}")

    def tested(test: Callable[..., None]) -> Callable[..., None]:
        function, inner = getattr(test, "_rows", (test, [{}]))
        pairs = [row | other for row in given for other in inner]

        @functools.wraps(function)
        def all_rows(**fixtures: Any) -> None:
            failed: list[str] = []
            first: Exception | None = None
            for row in pairs:
                try:
                    with _as_before(fixtures.values()):
                        function(**fixtures, **row)
                except Exception as error:
                    first = first or error
                    failed.append(f"{_named(row)}: {type(error).__name__}: {error}")
            if failed:
                said = "\n\n".join([f"{len(failed)} of {len(pairs)} rows:", *failed])
                raise AssertionError(said) from first

        # What is left for pytest to give.
        asked = inspect.signature(function)
        rest = [x for x in asked.parameters.values() if x.name not in pairs[0]]
        told = {"__signature__": asked.replace(parameters=rest)}
        all_rows.__dict__.update(told, _rows=(function, pairs))
        return all_rows

    return tested


def in_turn(hows: Sequence[str], whats: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each with the first of these ways, and with another; those take turns."""
    first, *others = hows
    return [
        (how, what)
        for number, what in enumerate(whats)
        for how in (first, others[number % len(others)])
    ]


def _row(names: list[str], row: Any) -> dict[str, Any]:
    return dict(zip(names, (row,) if len(names) == 1 else row, strict=True))


def _named(row: dict[str, Any]) -> str:
    shown = {
        name: getattr(value, "__name__", None) or repr(value)
        for name, value in row.items()
    }
    return ", ".join(f"{name} {text:.200}" for name, text in shown.items())


@contextlib.contextmanager
def _as_before(fixtures: Iterable[Any]) -> Iterator[None]:
    """Databases, and the time in them, are again as they were."""
    with contextlib.ExitStack() as stack:
        for fixture in fixtures:
            if isinstance(fixture, Sql):
                stack.enter_context(_unchanged(fixture))
        yield


@contextlib.contextmanager
def _unchanged(db: Sql) -> Iterator[None]:
    mine = dict(vars(db))
    now = dt.datetime.now(dt.UTC)
    db.execute("savepoint row")
    try:
        yield
    finally:
        db.execute("rollback to row")
        db.execute("release row")
        vars(db).update(mine)
        if db.clock is not None:
            db.clock.move_to(now)
