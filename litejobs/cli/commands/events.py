"""The log: what happened to the jobs, and what people did.

With `--json`:

    events                        {"events": [EVENT, …]}, the newest last
    events --follow               EVENT, one document on a line for each; where some
                                  were deleted before they were read, {"name":
                                  "events.lost", "after": the last move that was read,
                                  "until": the last one of which events are missing,
                                  "tasks": […]}
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs.cli import printing
from litejobs.cli.failure import REFUSED
from litejobs.cli.file.opening import reading
from litejobs.cli.file.reader import Reader
from litejobs.cli.input.types import EVENT, JOB_ID, Count, Since
from litejobs.cli.output.jobs import found_job

Row = Mapping[str, Any]

LINES = 3  # events that one move of a job can be
LOOK_EVERY = 0.1  # seconds
ALL = 2**62  # no limit on the lines of the log

LOST = "events.lost"
NAME_WIDTH, JOB_WIDTH, TASK_WIDTH = 22, 6, 12

_GLOB = frozenset("*?[")
EVALUATED, FAILED_ATTEMPT = "policy.task.evaluated", "task.attempt.failed"
COLOURS = {
    "task.done": "green",
    "task.failed": "red",
    "task.cancelled": "bright_black",
    "task.attempt.started": "cyan",
    "task.attempt.done": "green",
    FAILED_ATTEMPT: "yellow",
    EVALUATED: "bright_black",
}
"""Of the events that have one, whoever did them."""


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db events
  litejobs --db app.db events 42
  litejobs --db app.db events --name task.failed --name 'queue.*' --since 1d
  litejobs --db app.db events --follow
  litejobs --db app.db events --follow --limit 0 --json | jq .name""",
    help="""Show what happened, the newest last; of one job, or of all.

    With --follow and --json each event is a document on a line of its own. Without
    --follow the exit code is 1 if there is nothing. What is followed is one file: when
    it is deleted or replaced, that is said, and the exit code is 3.
    """,
)
@click.argument("job_id", metavar="[ID]", type=JOB_ID, required=False)
@click.option(
    "--since", type=Since(), help="Only what happened since then, as 1h or an instant."
)
@click.option(
    "--name",
    "names",
    type=EVENT,
    multiple=True,
    metavar="NAME",
    help="Only events of this name, as task.failed or 'task.*'; several times for "
    "several.",
)
@click.option(
    "--limit",
    type=Count(0, 2**31),
    default=50,
    show_default=True,
    help="How many of the newest; with --follow, to begin with.",
)
@click.option(
    "--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C."
)
@printing.json_option
@click.pass_context
def events(
    context: click.Context,
    /,
    *,
    job_id: int | None,
    since: tuple[bool, int] | None,
    names: Sequence[str],
    limit: int,
    follow: bool,
    as_json: bool,
) -> None:
    with reading() as file:
        if job_id is not None:
            found_job(file, job_id)
        which = {
            "job_id": job_id,
            "since": Since.in_ms(since, file),
            "names": json.dumps(names) if names else None,
        }
        last = file.value("last_event")
        found = _newest(file, last, limit, which)
        now = printing.at_ms(file.now_ms())
        if follow:
            with contextlib.suppress(KeyboardInterrupt):
                _print(found, now, as_json=as_json)
                for lost, each in _news(file, last, which):
                    now = printing.at_ms(file.now_ms())
                    _print_lost(lost, as_json=as_json)
                    _print(each, now, as_json=as_json)
            return
        gone = _gone_since(file, which)
        slip = None if found else _slip(file, names)
    if as_json:
        printing.document({"events": found})
    elif found:
        _show(found, now)
        if len(found) == limit:
            printing.remark(f"there may be older ones: --limit {2 * limit}")
    else:
        printing.remark(slip or "no event matches")
    if gone and not as_json:
        printing.remark(gone)
    if not found:
        context.exit(REFUSED)


# Reading ------------------------------------------------------------------------------


def _slip(file: Reader, names: Sequence[str]) -> str | None:
    """What is to be said of the first of the names that no event can have."""
    from litejobs.cli.input.known_names import is_known, note

    for name in names:
        if _GLOB.isdisjoint(name) and not is_known(file, "event", name):
            otherwise = "; names are such as task.failed, or 'task.*'"
            return f"there is no event {name}{note(file, 'event', name) or otherwise}"
    return None


def _newest(file: Reader, last: int, limit: int, which: Row) -> list[dict[str, Any]]:
    """The newest events up to this move, the oldest of them first.

    Where few match, the log is searched part by part, each in a reading of its own.
    """
    since = which["since"]
    first = 1
    if since is not None:
        [window] = file.rows("stats_window", since=since, ago=None, most=ALL)
        first = window["first_id"]
    found: list[dict[str, Any]] = []
    while last >= first and len(found) < limit:
        begin = first
        if which["job_id"] is None:
            begin = max(first, last - SIZES.searched_moves + 1)
        found += _events(file, begin, last, limit - len(found), which)
        last = begin - 1
    return found[::-1]


def _gone_since(file: Reader, which: Row) -> str | None:
    """What is to be said where not all that happened since then is there any more."""
    if which["since"] is None or which["job_id"] is not None:
        return None
    rows = file.rows("horizons", since=which["since"])
    if not rows:
        return None
    tasks = ", ".join(row["task"] or "no job" for row in rows)
    until = printing.cell(printing.at_ms(max(row["at"] for row in rows)))
    return (
        f"not all is there of what happened until {until}: jobs or attempts were "
        f"deleted ({tasks})"
    )


def _news(
    file: Reader, last: int, which: Row
) -> Iterator[tuple[Row | None, list[dict[str, Any]]]]:
    """What happens after this move, as it happens, until nobody reads any more.

    Before it what was deleted meanwhile, as one document, or None.

    Moves are stored in the order of their ids, since only one client writes at a time;
    so what comes has a higher one, and nothing is missed or told twice. No reading is
    open in between.

    Raises:
        FileRefused: Another file has its name now, or none.
    """
    real = os.path.realpath(file.path)
    first = os.stat(real)
    check_at, most = 0.0, SIZES.followed_moves
    said = 0
    while True:
        newest = file.value("last_event")
        while last < newest:
            until = min(newest, last + most)
            found = _events(file, last + 1, until, LINES * most, which)
            lost = None if which["job_id"] is not None else _lost(file, max(last, said))
            said = said if lost is None else lost["until"]
            last = until
            if found or lost:
                yield lost, found[::-1]
        if time.monotonic() >= check_at:
            _check_same(file, real, first)
            check_at = time.monotonic() + TIMES.same_file_pause
        if not _wait():
            return


def _lost(file: Reader, after: int) -> Row | None:
    """Which events after this move were deleted before they were read, if any were."""
    rows = file.rows("lost_events", after=after, task=None)
    if not rows:
        return None
    return {
        "name": LOST,
        "after": after,
        "until": max(row["log_id"] for row in rows),
        "tasks": [row["task"] for row in rows],
    }


def _check_same(file: Reader, real: str, first: os.stat_result) -> None:
    try:
        same = os.path.samestat(os.stat(real), first)
    except OSError:
        same = False
    if not same:
        from litejobs.errors import FileRefused

        raise FileRefused(
            f"{file.path} was deleted or replaced by another file; follow it anew"
        )


def _events(
    file: Reader, first: int, last: int, limit: int, which: Row
) -> list[dict[str, Any]]:
    """The newest events of these moves, the newest first."""
    part = {**which, "limit": limit}
    if which["job_id"] is None:
        query = "look_events"
        part |= file.rows("log_span", after=first - 1, last=last, limit=None)[0]
    else:
        query = "look_events_of_job"
        part |= {"first_id": first, "last_id": last}
    return [printing.moments(row) for row in file.rows(query, part)]


def _wait() -> bool:
    """A while has passed, and the other end of a pipe has not been closed."""
    poll = getattr(select, "poll", None)  # not on Windows
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        poll = None
    if poll is None:
        time.sleep(LOOK_EVERY)
        return True
    watch = poll()
    watch.register(output, 0)
    seen = watch.poll(LOOK_EVERY * 1000)
    if any(each & (select.POLLERR | select.POLLHUP) for _, each in seen):
        return False
    if seen:
        time.sleep(LOOK_EVERY)  # it is nothing that can be watched
    return True


# Showing ------------------------------------------------------------------------------


def _show(rows: Sequence[Row], now: dt.datetime) -> None:
    printing.table(
        ("at", "event", "job", "task", "note"),
        (
            (
                _at(row["at"], now),
                printing.styled(row["name"], _colour(row)),
                row["job_id"],
                row["task"],
                _note(row),
            )
            for row in rows
        ),
    )


def _print(rows: Sequence[Row], now: dt.datetime, *, as_json: bool) -> None:
    """Print each event on a line, in columns that the next ones will have as well."""
    if as_json:
        for row in rows:
            printing.document(row)
    elif rows:
        colours = printing.coloured()
        lines = "\n".join(_line(row, now, colours=colours) for row in rows)
        click.echo(lines, color=colours)


def _print_lost(lost: Row | None, *, as_json: bool) -> None:
    if lost is None:
        return
    if as_json:
        printing.document(lost)
        return
    tasks = ", ".join(each or "no job" for each in lost["tasks"])
    printing.remark(
        f"not all is there of the moves {lost['after'] + 1} to {lost['until']}: jobs "
        f"or attempts were deleted before this could read of them ({tasks})"
    )


def _line(row: Row, now: dt.datetime, *, colours: bool) -> str:
    name = _padded(row["name"], NAME_WIDTH)
    line = printing.GAP.join(
        (
            _at(row["at"], now),
            click.style(name, fg=_colour(row)) if colours else name,
            f"{printing.cell(row['job_id']):>{JOB_WIDTH}}",
            _padded(row["task"], TASK_WIDTH),
            printing.cell(_note(row)),
        )
    )
    return line.rstrip()


def _padded(value: object, columns: int) -> str:
    text = printing.cell(value)
    return text + " " * (columns - printing.width(text))


def _at(at: dt.datetime, now: dt.datetime) -> str:
    """The time; on a terminal without the date if that is today's."""
    text, today = printing.cell(at), printing.cell(now)
    if printing.on_terminal() and text[:10] == today[:10]:
        return text[11:19]
    return text


def _colour(row: Row) -> str | None:
    """Of what the event means: well, badly, in between, or done by a person."""
    name = row["name"]
    if row["origin"] is not None:
        return "magenta"
    return COLOURS.get(name, "yellow" if row["subject"] is not None else None)


def _note(row: Row) -> str | None:
    """What else is known: of what, why, and who did it."""
    name = row["name"]
    error = row["error_type"], row["error"]
    said = (
        row["subject"],
        ": ".join(text for text in error if text is not None) or None,
        row["step"] and f"step {row['step']}",
        row["decision"] if name == EVALUATED else None,
        row["stopped_by"] if name != FAILED_ATTEMPT else None,
        row["origin"] and f"by {row['origin']}",
    )
    return ", ".join(filter(None, said)) or None
