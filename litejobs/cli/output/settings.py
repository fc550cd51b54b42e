"""Rows of settings as they are printed, and rates as they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED

if TYPE_CHECKING:
    from litejobs._storage.store import Source
    from litejobs.cli.file.reader import Rows

Row = Mapping[str, Any]


def rows_of(file: Source, query: str, **parameters: object) -> Rows:
    """The rows as JSON has them: instants are datetimes, flags are true or false."""
    found = []
    for row in file.rows(query, parameters):
        shown = printing.moments(row)
        shown.pop("known", None)
        for name in row:
            if name in {"paused", "value", "holds_normal"}:
                shown[name] = bool(row[name])
            elif name.endswith("at_least"):
                del shown[name]  # all were counted
        found.append(shown)
    return found


def show_all(
    context: click.Context,
    what: str,
    rows: Sequence[Row],
    line: Callable[[Row], Mapping[str, object]],
    *,
    as_json: bool,
    limit: int | None = None,
) -> None:
    """All rows, a line each; if there is none, that is said, and the exit code is 1."""
    if as_json:
        printing.document({f"{what}s": rows})
    elif rows:
        lines = [line(row) for row in rows]
        printing.table(tuple(lines[0]), (tuple(each.values()) for each in lines))
        if len(rows) == limit:
            printing.remark(f"there may be more: --after {rows[-1]['name']}")
    else:
        printing.remark(f"there is no {what}")
    if not rows:
        context.exit(REFUSED)


def show_one(
    what: str,
    row: Row,
    line: Callable[[Row], Mapping[str, object]],
    *,
    as_json: bool,
) -> None:
    """What was changed, as it is now."""
    if as_json:
        printing.document({what: row})
    else:
        shown = line(row)
        printing.table(tuple(shown), [tuple(shown.values())])


def rate_of(rate: Any, burst: int | None) -> Any:
    """What `--rate` and `--burst` say together; `...` if it is nothing."""
    if burst is None:
        return rate
    if not isinstance(rate, str):
        raise click.UsageError("--burst belongs to a rate; give --rate as well")
    from datetime import timedelta

    from litejobs._definitions.gates import Rate

    given = Rate.of(rate)
    return Rate(given.count, timedelta(milliseconds=given.per_ms), burst)


def rate_text(row: Row) -> str | None:
    """The rate of a row, as `--rate` and `--burst` take it."""
    if row["rate_count"] is None or row["rate_ms"] is None:
        return None
    text = f"{row['rate_count']}/{duration_shown(row['rate_ms'])}"
    burst = row["rate_burst"]
    return text if burst in {None, 1} else f"{text} burst {burst}"


def duration_shown(ms: int | None) -> str | None:
    """A duration as options take it."""
    from litejobs._definitions.milliseconds import duration_text

    return None if ms is None else duration_text(ms).replace(" ", "")
