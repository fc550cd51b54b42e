"""What the terminal, a pipe or a program gets to see.

For people: aligned tables, instants to the second, in the zone of this machine or, with
`--utc`, in UTC. Text from the file is escaped, so that a job's name or error cannot
move the cursor, colour the screen, write the clipboard or turn the reading direction.
On a terminal long cells are cut, states have colours, and instants are given as people
say them ("in 4 min"); a pipe gets cells whole, instants in full, and no styling.

For programs, with `--json`: one document on one line, in ASCII. It is an object whose
keys name what is in it; the module of each command says which there are.

Keys are the names of columns. Instants (`*_at`, `*_until`, and `at` of an event) are
ISO 8601 in UTC with milliseconds, durations (`*_ms`) milliseconds. Keys may be added,
but are never renamed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import click

from litejobs._values import text as texts

GAP = "  "  # between columns
LONGEST_CELL = 40  # columns of one cell on a terminal; the last one takes what is left
LONGEST_VALUE = 2_000  # characters of one value in a list of values, everywhere

COLOURS = {
    "processing": "cyan",
    "completed": "green",
    "failed": "yellow",
    "dead_lettered": "red",
    "blocked": "magenta",
    "cancelled": "bright_black",
}
"""Of the states that have one."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MINUTE, HOUR, DAY = 60, 3_600, 86_400  # seconds

F = TypeVar("F", bound=Callable[..., Any])

_WIDE = frozenset({"W", "F"})
_NO_WIDTH = frozenset({"Mn", "Me"})


def json_option(command: F) -> F:
    """The option `--json`, alike for every command."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document instead."
    )
    return option(command)


def prepare_streams() -> None:
    """A character that the output cannot encode is escaped instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# Text ---------------------------------------------------------------------------------

escaped = texts.escaped


def width(text: str) -> int:
    """How many columns of a terminal the *escaped* text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0
        if unicodedata.category(char) in _NO_WIDTH
        else 2
        if unicodedata.east_asian_width(char) in _WIDE
        else 1
        for char in text
    )


def instant(at: dt.datetime, precision: str = "seconds") -> str:
    """ISO 8601 in UTC: to the second for people, to the millisecond for programs."""
    return at.astimezone(dt.UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def at_ms(ms: int) -> dt.datetime:
    """The instant of so many milliseconds since 1970 UTC."""
    return EPOCH + dt.timedelta(milliseconds=ms)


def moment(at: dt.datetime) -> str:
    """An instant for people: to the second, in the zone of this machine or in UTC."""
    try:
        local = at.astimezone(dt.UTC if _given("utc") else None)
    except (OverflowError, OSError, ValueError):
        local = at.astimezone(dt.UTC)  # near the ends of what a calendar has
    return local.isoformat(timespec="seconds").replace("+00:00", "Z")


def when(at: dt.datetime | None, now: dt.datetime) -> str | None:
    """An instant as people say it, on a terminal; in full elsewhere."""
    if at is None or not on_terminal():
        return None if at is None else moment(at)
    return relative(at, now)


def relative(at: dt.datetime, now: dt.datetime) -> str:
    """`in 4 min`, `3 h ago`; with two units where one is coarse."""
    seconds = (at - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = span(abs(seconds))
    return f"in {text}" if seconds > 0 else f"{text} ago"


def span(seconds: float) -> str:
    """`4 min`, `2 d 3 h`: how long, as people say it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    big, small, names = (
        (HOUR, MINUTE, ("h", "min")) if whole < DAY else (DAY, HOUR, ("d", "h"))
    )
    rest = whole % big // small
    text = f"{whole // big} {names[0]}"
    return f"{text} {rest} {names[1]}" if rest else text


def size(amount: float) -> str:
    """`12.3 MB`: an amount of bytes as people say it, in thousands."""
    value, unit = float(amount), "bytes"
    for bigger in ("kB", "MB", "GB", "TB"):
        if value < 1_000:  # noqa: PLR2004 - thousands
            break
        value, unit = value / 1_000, bigger
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def on_terminal() -> bool:
    """Whether a person reads along."""
    # None where the stream was closed before the program began.
    return sys.stdout is not None and sys.stdout.isatty()


def terminal_columns() -> int:
    """How wide the terminal is; 80 where it does not say."""
    import shutil

    return shutil.get_terminal_size().columns


def coloured() -> bool:
    """Whether the output is to have colours, as `--color` and NO_COLOR say."""
    wanted = _given("color")
    if wanted in {"always", "never"}:
        return bool(wanted == "always")
    return on_terminal() and not os.environ.get("NO_COLOR")


def _given(option: str) -> Any:
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_root().params.get(option)


class styled(str):  # noqa: N801 - a text that knows its colour
    """The text of a cell with a colour: what it says is escaped like any other."""

    __slots__ = ("bold", "fg")

    fg: str | None
    bold: bool

    def __new__(cls, text: str, fg: str | None = None, *, bold: bool = False) -> Self:
        """*fg* is the name of a colour as click has it."""
        made = super().__new__(cls, text)
        made.fg, made.bold = fg, bold
        return made


def state(name: str) -> str:
    """The name of a state in its colour."""
    return styled(name, COLOURS.get(name))


def cell(value: object) -> str:
    """Return a value as people read it, escaped; nothing is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return moment(value)
    if isinstance(value, (dict, list)):
        import json

        return escaped(json.dumps(storable(value), ensure_ascii=False))
    return escaped(str(value))


def say(sentence: str) -> None:
    """One line on the output."""
    click.echo(escaped(sentence))


def remark(sentence: str) -> None:
    """One line beside the output, for the person and not for the pipe."""
    click.echo(escaped(sentence), err=True)


# Tables -------------------------------------------------------------------------------


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print the rows in aligned columns below their titles; numbers to the right."""
    values = [tuple(row) for row in rows]
    if not values:
        click.echo("none")
        return
    lines = [tuple(map(cell, row)) for row in values]
    fits = on_terminal()
    if fits:
        lines = [
            (*(cut(c, LONGEST_CELL) for c in line[:-1]), line[-1]) for line in lines
        ]
    headings = tuple(title.upper() for title in titles)
    widths = [max(map(width, column)) for column in zip(headings, *lines, strict=True)]
    numeric = [
        any(_is_number(value) for value in column)
        and all(value is None or _is_number(value) for value in column)
        for column in zip(*values, strict=True)
    ]
    room = terminal_columns() if fits else None
    colours = coloured()
    title = functools.partial(styled, bold=True)
    for line, row in zip(
        (headings, *lines), (map(title, headings), *values), strict=True
    ):
        padded = []
        for text, columns, is_number in zip(line, widths, numeric, strict=True):
            padding = " " * (columns - width(text))
            padded.append(padding + text if is_number else text + padding)
        whole = GAP.join(padded).rstrip()
        shown = whole if room is None else cut(whole, room)
        parts, start = [], 0
        for text, value in zip(padded, row, strict=True):
            part = shown[start : start + len(text)]
            parts.append(painted(part, value) if colours and part else part)
            start += len(text) + len(GAP)
        shown = GAP.join(parts).rstrip() if colours else shown
        click.echo(shown, color=colours)


def values(pairs: Mapping[str, object]) -> None:
    """Print names and values, one to a line."""
    names = max(map(width, map(escaped, pairs)))
    for name, value in pairs.items():
        text = cell(value)
        if len(text) > LONGEST_VALUE:
            more = f"… [cut: {len(text)} characters in all, see --json]"
            text = text[:LONGEST_VALUE] + more
        click.echo(f"{escaped(name):<{names}}  {text}")


def section(title: str) -> None:
    """An empty line and a title."""
    colours = coloured()
    click.echo(
        f"\n{click.style(title, bold=True) if colours else title}", color=colours
    )


def painted(text: str, value: object) -> str:
    """The cell in the colour of what it shows."""
    if not isinstance(value, styled) or not (value.fg or value.bold):
        return text
    return click.style(text, fg=value.fg, bold=value.bold or None)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cut(text: str, columns: int) -> str:
    """Return as much of the text as there is room for; `…` says that there is more."""
    if width(text) <= columns:
        return text
    room = columns - 1
    for index, char in enumerate(text):
        room -= width(char)
        if room < 0:
            return text[:index] + "…"
    return text  # pragma: no cover - it was wider than the room


# JSON ---------------------------------------------------------------------------------


def document(content: Mapping[str, object]) -> None:
    """Print the content as JSON on one line, in ASCII without control characters."""
    click.echo(json_text(content))


def json_text(content: object) -> str:
    """JSON on one line, in ASCII without control characters.

    Instants are texts to the millisecond; so are numbers that JSON does not have.
    """
    import json

    try:
        text = json.dumps(content, default=_plain, ensure_ascii=True, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(content), default=_plain, ensure_ascii=True)
    # DEL is ASCII and legal in JSON, and a control character all the same.
    return text.replace("\x7f", "\\u007f")


def storable(value: Any) -> Any:
    """Return what another client stored as JSON; as text where JSON has no word for it.

    SQLite takes 1e999 for JSON, which Python reads as infinity, and more depth than
    Python can write.
    """
    import json

    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(value)
    except RecursionError:
        return "[nested too deep to show]"
    return value


def moments(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the file with its instants as datetimes, where they can be."""
    shown = dict(row)
    for name, value in row.items():
        if isinstance(value, int) and (
            name == "at" or name.endswith(("_at", "_until"))
        ):
            with contextlib.suppress(OverflowError):
                shown[name] = at_ms(value)
    return shown


def _finite(value: Any) -> Any:
    """The value with texts in place of numbers that JSON does not have."""
    if isinstance(value, float) and value - value != 0:  # infinite, or none
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def _plain(value: object) -> str:
    if isinstance(value, dt.datetime):
        return instant(value, "milliseconds")
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    raise TypeError(type(value).__name__)
