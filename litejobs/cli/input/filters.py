"""Which jobs are meant: the same options for every command that takes many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from litejobs.cli import printing
from litejobs.cli.file.reader import Reader
from litejobs.cli.input.types import QUEUE, REASON, TASK, Since, States, flattened

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_TEXT = 200  # characters of a text in the title of an operation

_OPTIONS = (
    click.option(
        "--state",
        "states",
        type=States(),
        multiple=True,
        callback=flattened,
        metavar="STATE",
        help="Only jobs in this state; several with commas between them.",
    ),
    click.option(
        "--queue", type=QUEUE, metavar="QUEUE", help="Only jobs of this queue."
    ),
    click.option("--task", type=TASK, metavar="TASK", help="Only jobs of this task."),
    click.option(
        "--stopped-by",
        type=REASON,
        metavar="REASON",
        help="Only jobs that were stopped by this, as max_attempts or rule_fail.",
    ),
    click.option(
        "--since",
        type=Since(),
        help="Only jobs that were asked for, or have ended, since then: 1h or an "
        "instant.",
    ),
    click.option(
        "--text",
        help="Only jobs with this in their task, arguments, unique key or last error.",
    ),
)
NAMES = ("states", "queue", "task", "stopped_by", "since", "text")


def filter_options(command: F) -> F:
    """The options that say which jobs are meant."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was said with them, of all that was said; empty if nothing was."""
    return {name: options[name] for name in NAMES if options[name] not in (None, ())}


def states_json(states: Iterable[str]) -> str | None:
    """A JSON list of them, None for all."""
    names = tuple(states)
    if not names:
        return None
    import json

    return json.dumps(names)


def resolve(filters: Mapping[str, Any], file: Reader) -> dict[str, Any]:
    """The parameters of the statements that choose jobs; *states* are still names."""
    given = {name: filters.get(name) for name in NAMES}
    return given | {
        "states": tuple(dict.fromkeys(given["states"] or ())),
        "since": Since.in_ms(given["since"], file),
    }


def in_words(given: Mapping[str, Any]) -> str:
    """`dead_lettered, task send, since 2026-01-01T12:00:00Z`, for people."""
    words = list(given["states"])
    for name, value in (
        ("task", given["task"]),
        ("queue", given["queue"]),
        ("stopped by", given["stopped_by"]),
        ("since", given["since"]),
        ("text", given["text"]),
    ):
        if value is not None:
            shown = printing.moment(printing.at_ms(value)) if name == "since" else value
            words.append(f"{name} {shown if name != 'text' else _quoted(shown)}")
    return ", ".join(words)


def no_match(file: Reader, given: Mapping[str, Any]) -> str:
    """Why nothing matches: a name that is not there, or nothing in particular."""
    from litejobs.cli.input.known_names import unknown

    names = {name: given[name] for name in ("task", "queue")}
    return unknown(file, **names) or "no job matches"


def _quoted(text: str) -> str:
    cut = f"{text[:LONGEST_TEXT]}…" if len(text) > LONGEST_TEXT else text
    return f"'{cut}'"
