"""See and set what holds jobs back: queues, keys, circuits, facts and tiers.

With `--json`:

    queues, keys, circuits,
    facts, tiers                  {"queues": [QUEUE, …]} and so on; "waiting" of a
                                   queue is all that is neither running nor ended
    queues set and the like       {"queue": QUEUE}, as it is afterwards
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import reading, stored
from litejobs.cli.file.operation import recorded
from litejobs.cli.input.types import (
    CIRCUIT,
    EXECUTOR,
    FACT,
    KEY,
    QUEUE,
    Count,
    Duration,
    Setting,
    Whole,
)
from litejobs.cli.output.screen import COUNTS, counts_of
from litejobs.cli.output.settings import (
    Row,
    duration_shown,
    rate_of,
    rate_text,
    rows_of,
    show_all,
    show_one,
)

if TYPE_CHECKING:
    from litejobs import LiteJobs
    from litejobs._storage.store import Source

_LIMIT = click.option(
    "--limit",
    type=Count(1, 2**31),
    default=100,
    show_default=True,
    help="How many at most.",
)
_AFTER = click.option(
    "--after", metavar="NAME", default="", help="Only those behind it: the next page."
)
_MAX_RUNNING = click.option(
    "--max-running",
    type=Setting(Whole()),
    metavar="NUMBER",
    default=...,
    help="How many may run at once, or 'none'.",
)
_RATE = click.option(
    "--rate",
    type=Setting(click.STRING),
    metavar="RATE",
    default=...,
    help="How many may start in a time, as 10/1m, or 'none'.",
)
_BURST = click.option(
    "--burst",
    type=Whole(),
    help="With --rate, how many may start at once after a pause; late starts are made "
    "up for within it, so beyond 50/1s give what is due in 50 ms.",
)
_MIN_PRIORITY = click.option(
    "--min-priority", type=Whole(), required=True, help="Its lowest priority."
)
_QUEUE_OF_TIER = click.option(
    "--queue",
    type=QUEUE,
    metavar="QUEUE",
    help="Of this queue alone; else of all that have no tiers of their own.",
)


def _group(
    name: str, told: str, *examples: str
) -> Callable[[Callable[..., Any]], click.Group]:
    """A command that lists, and has others that set."""
    lines = "".join(f"\n  litejobs --db app.db {name}{line}" for line in examples)
    return click.group(
        name, invoke_without_command=True, help=told, epilog=f"\b\nExamples:{lines}"
    )


# Queues -------------------------------------------------------------------------------


@_group(
    "queues",
    """List the queues and what is in them, or set one.

    WAITING is in line, LATER waits for its time or for others, RUNNING runs or was
    claimed and runs next, RETRIES have failed and are tried again, DEAD have failed for
    good. The exit code is 1 if there is none.
    """,
    "",
    " set mail --max-running 4 --rate 10/1m",
)
@printing.json_option
@click.pass_context
def queues(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = rows_of(file, "list_queues", name=None, most=-1, limit=-1)
        show_all(context, "queue", rows, _queue_line, as_json=as_json)


@queues.command(
    "set",
    epilog="""\b
Examples:
  litejobs --db app.db queues set mail --max-running 4 --rate 10/1m
  litejobs --db app.db queues set mail --rate none --retries after_new
  litejobs --db app.db queues set bulk --aging 10m --keys round_robin""",
    help="Change what is named of a queue, and nothing else.",
)
@click.argument("name", metavar="QUEUE", type=QUEUE)
@_MAX_RUNNING
@_RATE
@_BURST
@click.option(
    "--retries",
    type=Setting(click.Choice(["in_order", "after_new"]), optional=False),
    metavar="[in_order|after_new]",
    default=...,
    help="Whether retries keep their place, or let new jobs pass.",
)
@click.option(
    "--aging",
    type=Setting(Duration()),
    metavar="DURATION",
    default=...,
    help="A job gains one priority each time it has waited so long; or 'none'.",
)
@click.option(
    "--keys",
    type=Setting(click.Choice(["in_order", "round_robin"]), optional=False),
    metavar="[in_order|round_robin]",
    default=...,
    help="Whether concurrency keys take turns within a priority.",
)
@click.option(
    "--executor",
    type=Setting(EXECUTOR),
    metavar="NAME",
    default=...,
    help="Where jobs run whose task names none; or 'none' for the runner's threads.",
)
@printing.json_option
def set_queue(
    *, name: str, rate: Any, burst: int | None, as_json: bool, **options: Any
) -> None:
    with recorded("set", f"queue {name}") as jobs:
        new = _is_new(jobs, "queue", name)
        jobs.queues[name].set(rate=rate_of(rate, burst), **options)
    # Counting may take a while: others are not to wait for it.
    with reading() as file:
        [row] = rows_of(file, "list_queues", name=name, most=-1, limit=-1)
    show_one("queue", row, _queue_line, as_json=as_json)
    _remark_new(new, "no job has been in a queue {}, and it was made now")


@queues.command(
    "remove",
    epilog="\b\nExamples:\n  litejobs --db app.db queues remove mial",
    help="""Remove a queue that has no jobs, not even some that have ended.

    Nor may a task or a schedule name it, or a tier be its own.
    """,
)
@click.argument("name", metavar="QUEUE", type=QUEUE)
@printing.json_option
def remove_queue(*, name: str, as_json: bool) -> None:
    from litejobs.errors import Refused

    with recorded("remove", f"queue {name}") as jobs:
        [row] = rows_of(stored(jobs), "read_queue", name=name)
        try:
            jobs.queues[name].remove()
        except Refused as error:
            raise Failure(str(error)) from None
    if as_json:
        printing.document({"queue": row})
    else:
        printing.say(f"queue {name} was removed")


def _queue_line(row: Row) -> dict[str, object]:
    return {
        "name": row["name"],
        "paused": row["paused"],
        **dict(zip(COUNTS, counts_of(row), strict=True)),
        "at most": row["max_running"],
        "rate": rate_text(row),
        "retried": row["retries"],
        "aging": duration_shown(row["aging_ms"]),
        "keys": row["keys"],
        "executor": row["executor"],
    }


# Keys ---------------------------------------------------------------------------------


@_group(
    "keys",
    """List the concurrency keys and the limits set by hand, or set one.

    Where there is a dash, the task of the job says how many. The exit code is 1 if
    there is none.
    """,
    "",
    " set host:example.com --max-running 2",
)
@_LIMIT
@_AFTER
@printing.json_option
@click.pass_context
def keys(context: click.Context, /, *, limit: int, after: str, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = rows_of(file, "list_keys", after=after, limit=limit)
        show_all(context, "key", rows, _key_line, as_json=as_json, limit=limit)


@keys.command(
    "set",
    epilog="""\b
Examples:
  litejobs --db app.db keys set host:example.com --max-running 2 --rate 5/s
  litejobs --db app.db keys set host:example.com --max-running none""",
    help="Limit the jobs of a key, whatever their tasks say.",
)
@click.argument("name", metavar="KEY", type=KEY)
@_MAX_RUNNING
@_RATE
@_BURST
@printing.json_option
def set_key(
    *, name: str, rate: Any, burst: int | None, as_json: bool, **options: Any
) -> None:
    with recorded("set", f"key {name}") as jobs:
        new = _is_new(jobs, "key", name)
        jobs.keys[name].set(rate=rate_of(rate, burst), **options)
        [row] = rows_of(stored(jobs), "read_key", name=name)
    show_one("key", row, _key_line, as_json=as_json)
    _remark_new(new, "no job has had a key {}, and it was limited now")


@keys.command(
    "remove",
    epilog="\b\nExamples:\n  litejobs --db app.db keys remove host:a",
    help="Forget what was set by hand for a key: the tasks of its jobs say how many.",
)
@click.argument("name", metavar="KEY", type=KEY)
@printing.json_option
def remove_key(*, name: str, as_json: bool) -> None:
    with recorded("remove", f"key {name}") as jobs:
        [row] = rows_of(stored(jobs), "read_key", name=name)
        if not jobs.keys[name].remove():
            raise Failure(f"nothing was set for a key {name}; nothing was changed")
    if as_json:
        printing.document({"key": row})
    else:
        printing.say(f"key {name} has no limits set by hand")


def _key_line(row: Row) -> dict[str, object]:
    return {
        "name": row["name"],
        "running": row["running"],
        "at most": row["max_running"],
        "rate": rate_text(row),
    }


# Circuits -----------------------------------------------------------------------------


@_group(
    "circuits",
    """List the circuits and how they stand, or reset or open one.

    The exit code is 1 if there is none.
    """,
    "",
    " reset host:example.com",
    " open host:example.com --for 2h",
)
@_LIMIT
@_AFTER
@printing.json_option
@click.pass_context
def circuits(
    context: click.Context, /, *, limit: int, after: str, as_json: bool
) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = rows_of(file, "list_circuits", after=after, limit=limit)
            now = _now(file)
        line = functools.partial(_circuit_line, now)
        show_all(context, "circuit", rows, line, as_json=as_json, limit=limit)


@circuits.command(
    epilog="\b\nExamples:\n  litejobs --db app.db circuits reset host:example.com",
    help="Close a circuit, and forget its failures.",
)
@click.argument("name", metavar="CIRCUIT", type=CIRCUIT)
@printing.json_option
def reset(*, name: str, as_json: bool) -> None:
    with recorded("reset", f"circuit {name}") as jobs:
        refused = not jobs.circuits[name].reset()
        [row] = rows_of(stored(jobs), "read_circuit", name=name)
        now = _now(stored(jobs))
    if refused:
        raise Failure(f"circuit {name} is closed, without failures; nothing to reset")
    _show_circuit(row, now, as_json=as_json)


@circuits.command(
    "open",
    epilog="""\b
Examples:
  litejobs --db app.db circuits open host:example.com
  litejobs --db app.db circuits open host:example.com --for 2h""",
    help="Start no further job of a circuit; those that run go on.",
)
@click.argument("name", metavar="CIRCUIT", type=CIRCUIT)
@click.option(
    "--for", "duration", type=Duration(), help="For so long; else until it is reset."
)
@printing.json_option
def isolate(*, name: str, duration: Any, as_json: bool) -> None:
    with recorded("open", f"circuit {name}") as jobs:
        new = _is_new(jobs, "circuit", name)
        jobs.circuits[name].isolate(duration)
        [row] = rows_of(stored(jobs), "read_circuit", name=name)
        now = _now(stored(jobs))
    _show_circuit(row, now, as_json=as_json)
    _remark_new(new, "no job has had a circuit {}, and it was made now")


def _show_circuit(row: Row, now: dt.datetime, *, as_json: bool) -> None:
    line = functools.partial(_circuit_line, now)
    show_one("circuit", row, line, as_json=as_json)


def _circuit_line(now: dt.datetime, row: Row) -> dict[str, object]:
    return {
        "name": row["name"],
        "state": row["state"],
        "failures": row["failures"],
        "opens": row["opens"],
        "opened": _when(row["opened_at"], now),
        "until": _when(row["open_until"], now),
        "probe": row["probe_attempt_id"],
    }


# Facts --------------------------------------------------------------------------------


@_group(
    "facts",
    """List what is so at the moment, or set it.

    The exit code is 1 if there is none.
    """,
    "",
    " set online false",
    " remove online",
)
@printing.json_option
@click.pass_context
def facts(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = rows_of(file, "list_facts")
        show_all(context, "fact", rows, dict, as_json=as_json)


@facts.command(
    "set",
    epilog="\b\nExamples:\n  litejobs --db app.db facts set online false",
    help="Say that it is so, or that it is not.",
)
@click.argument("name", metavar="FACT", type=FACT)
@click.argument("value", metavar="true|false", type=click.BOOL)
@printing.json_option
def set_fact(*, name: str, value: bool, as_json: bool) -> None:
    with recorded("set", f"fact {name} to {value}") as jobs:
        new = _is_new(jobs, "fact", name)
        jobs.facts[name] = value
    show_one("fact", {"name": name, "value": value}, dict, as_json=as_json)
    _remark_new(new, "no job requires a fact {}, and it was stated now")


@facts.command(
    epilog="\b\nExamples:\n  litejobs --db app.db facts remove online",
    help="Forget a fact: it is not so any more.",
)
@click.argument("name", metavar="FACT", type=FACT)
@printing.json_option
def remove(*, name: str, as_json: bool) -> None:
    with recorded("remove", f"fact {name}") as jobs:
        value = jobs.facts.pop(name, None)
    if value is None:
        raise Failure(f"there is no fact {name!r}; nothing was changed")
    show_one("fact", {"name": name, "value": None}, dict, as_json=as_json)


# Tiers --------------------------------------------------------------------------------


_TIERS = (
    " set --min-priority -100 --every 30s --at-most 10",
    " set --min-priority 0 --every 1ms",
)


@_group(
    "tiers",
    """List the priorities that start only once in a while, or set one.

    A tier ends where the next one begins. WAITING is what is in line in it. The exit
    code is 1 if there is none.
    """,
    "",
    *_TIERS,
)
@printing.json_option
@click.pass_context
def tiers(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = rows_of(file, "look_tiers")
            now = _now(file)
        line = functools.partial(_tier_line, now)
        show_all(context, "tier", rows, line, as_json=as_json)


@tiers.command(
    "set",
    epilog="""\b
Examples:
  litejobs --db app.db tiers set --min-priority -100 --every 30s --at-most 10
  litejobs --db app.db tiers set --min-priority 0 --every 1ms
  litejobs --db app.db tiers set --min-priority -9 --every 1h --queue bulk""",
    help="""Let jobs from a priority on start only every so often.

    That is up to the next tier: with one below 0 alone, jobs of priority 0 wait as
    well. One from 0 on, every 1ms, lets those start at any time.
    """,
)
@_MIN_PRIORITY
@click.option("--every", type=Duration(), required=True, help="How often, as 30s.")
@click.option("--at-most", type=Whole(), help="How many each time; else all that wait.")
@_QUEUE_OF_TIER
@printing.json_option
def set_tier(*, as_json: bool, **options: Any) -> None:
    with recorded("set", _tier_text(options)) as jobs:
        jobs.tiers.set(**options)
    # Counting may take a while: others are not to wait for it.
    with reading() as file:
        rows, now = rows_of(file, "look_tiers"), _now(file)
    place = {name: options[name] for name in ("queue", "min_priority")}
    [row] = (row for row in rows if place.items() <= row.items())
    show_one("tier", row, functools.partial(_tier_line, now), as_json=as_json)
    if row["holds_normal"]:
        printing.remark(
            "it holds back jobs of priority 0 and more, too; let those start at any "
            "time with: litejobs tiers set --min-priority 0 --every 1ms"
            + (f" --queue {row['queue']}" if row["queue"] is not None else "")
        )


@tiers.command(
    "remove",
    epilog="\b\nExamples:\n  litejobs --db app.db tiers remove --min-priority -100",
    help="Let these jobs start at any time again.",
)
@_MIN_PRIORITY
@_QUEUE_OF_TIER
@printing.json_option
def remove_tier(*, as_json: bool, **options: Any) -> None:
    with recorded("remove", _tier_text(options)) as jobs:
        try:
            jobs.tiers.remove(**options)
        except KeyError:
            raise Failure("there is no such tier; nothing was changed") from None
    show_one("tier", options, dict, as_json=as_json)


def _tier_text(options: Row) -> str:
    text = f"tier from priority {options['min_priority']}"
    return text if options["queue"] is None else f"{text} of queue {options['queue']}"


def _tier_line(now: dt.datetime, row: Row) -> dict[str, object]:
    return {
        "queue": row["queue"],
        "min priority": row["min_priority"],
        "every": duration_shown(row["every_ms"]),
        "at most": row["at_most"],
        "waiting": row["waiting"],
        "taken": row["taken"],
        "next": _when(row["next_at"], now),
    }


# Instants and names -------------------------------------------------------------------


def _now(file: Source) -> dt.datetime:
    """What the clock of the file shows."""
    [row] = file.rows("now")
    return printing.at_ms(row["now"])


def _when(at: Any, now: dt.datetime) -> Any:
    """As people say it, on a terminal; what is not an instant, as it is."""
    return printing.when(at, now) if isinstance(at, dt.datetime) else at


def _is_new(jobs: LiteJobs, kind: str, name: str) -> tuple[str, str] | None:
    """The kind and the name; None if the file knows it."""
    from litejobs.cli.input.known_names import is_known

    return None if is_known(stored(jobs), kind, name) else (kind, name)


def _remark_new(new: tuple[str, str] | None, sentence: str) -> None:
    if new is not None:
        from litejobs.cli.input.known_names import suggestion_for

        kind, name = new
        printing.remark(sentence.format(name) + suggestion_for(kind, name))
