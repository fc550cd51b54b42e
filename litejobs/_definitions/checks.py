"""What values that callers give may be: each rule once, each refusal one sentence.

Every check raises `ConfigurationError`, whose message names the argument, the value and
what is allowed. None passes where it leaves the choice to something else.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import Any, TypeGuard

from litejobs._definitions.milliseconds import duration_ms
from litejobs._values.durations import MAX_DURATION_MS
from litejobs.errors import ConfigurationError

NAME_LENGTH = 200  # characters of a task's, queue's, schedule's or operation's name
RESERVED = "litejobs."  # before the names of tasks that are our own
KEY_LENGTH = 500  # characters of a key, unique or of concurrency, and of a circuit
MOST = 1_000_000_000  # what is counted, at most
LARGEST_ID = 2**63 - 1
PRIORITY_LIMIT = 1_000_000
LONGEST_WAIT = min(MAX_DURATION_MS / 1000, threading.TIMEOUT_MAX)  # seconds
_SHOWN = 80  # characters of a value in a message


# Numbers ------------------------------------------------------------------------------


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Whether it is a whole number from *least* to *most*; True and False are not."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and least <= value <= most
    )


def whole(name: str, value: object, least: int, most: int = MOST) -> int:
    """Return the whole number from *least* to *most*, or refuse the value."""
    if not is_whole(value, least, most):
        raise ConfigurationError(
            f"{name}={shown(value)} is out of range; give a whole number from {least} "
            f"to {most}"
        )
    return value


def check_count(name: str, value: object, least: int, meaning: str, most: int) -> None:
    """Refuse what is not a count; *meaning* says what the *least* number means."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(
            f"{name}={shown(value)} is not a whole number; give {least} or more"
        )
    if not least <= value <= most:
        raise ConfigurationError(
            f"{name}={shown(value)} is out of range; give {meaning} to {most}"
        )


def check_max_attempts(value: int | None, name: str = "max_attempts") -> None:
    """Refuse what is not a number of attempts: a whole number from 1 to 10^9."""
    if value is not None:
        check_count(name, value, 1, "1 (no retry)", MOST)


def check_number(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is not a number from *low* to *high*."""
    if value is None:
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not low <= value <= high
    ):
        raise ConfigurationError(
            f"{name}={shown(value)} is out of range; give a number from {low} to {high}"
        )


def seconds_to_wait(name: str, value: Any) -> float:
    """Return a time to wait in seconds, which may be 0, less or infinite.

    Raises:
        ConfigurationError: It is not a duration, nor such a number.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value != value:  # noqa: PLR0124 - what is not a number
            raise ConfigurationError(
                f"{name}={shown(value)} is not a time to wait; give a number of seconds"
            )
        return min(value, LONGEST_WAIT)
    return min(duration_ms(value, name=name) / 1000, LONGEST_WAIT)


def grace_seconds(value: Any) -> float:
    """Return how long tasks have to end, in seconds; infinity is as long as they take.

    Raises:
        ConfigurationError: It is not a duration.
    """
    if value == math.inf and isinstance(value, float):
        return LONGEST_WAIT
    return min(duration_ms(value, name="grace") / 1000, LONGEST_WAIT)


def check_priority(value: int | None) -> None:
    """Refuse what is not a priority."""
    if value is not None and not is_whole(value, -PRIORITY_LIMIT, PRIORITY_LIMIT):
        raise ConfigurationError(
            f"priority={value!r} is out of range; give a whole number from "
            f"-{PRIORITY_LIMIT} to {PRIORITY_LIMIT}, higher runs first"
        )


def check_limit(limit: int) -> None:
    """Refuse what is not a number of rows to list."""
    if not is_whole(limit, 1, LARGEST_ID):
        raise ConfigurationError(f"limit={limit!r} is out of range; give 1 or more")


# Durations ----------------------------------------------------------------------------


def some_time(name: str, value: Any) -> int:
    """Return a duration in milliseconds that is more than 0, or refuse it."""
    ms = duration_ms(value, name=name)
    if ms == 0:
        raise ConfigurationError(
            f"{name}={shown(value)} leaves no time; give more than 0"
        )
    return ms


def milliseconds(
    name: str, given: Any, given_ms: int | None, name_ms: str | None = None
) -> int | None:
    """Return a duration in milliseconds, whichever of the two was given."""
    name_ms = name_ms or f"{name}_ms"
    if given is not None and given_ms is not None:
        raise ConfigurationError(
            f"{name}={shown(given)} and {name_ms}={shown(given_ms)} say the same "
            "thing; give one of them"
        )
    if given_ms is not None:
        check_count(name_ms, given_ms, 0, "0", MAX_DURATION_MS)
        return given_ms
    if isinstance(given, (list, tuple)):
        raise ConfigurationError(
            f"{name}={shown(given)} is a list, and one duration is needed here; for "
            "a delay of its own before each retry give Retry.fixed([…]), or "
            "backoff='fixed' in a rule"
        )
    return None if given is None else duration_ms(given, name=name)


# Texts --------------------------------------------------------------------------------


def check_text(what: str, value: str | None, most: int) -> None:
    """Refuse what is not a text of 1 to *most* characters that can be stored."""
    if value is None:
        return
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ConfigurationError(
            f"{what}={value!r:.80} does not fit; give a text of 1 to {most} characters"
        )
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigurationError(
            f"{what}={value!r:.80} has a NUL or half of a surrogate pair in it; leave "
            "it out"
        )


def check_name(what: str, value: str | None) -> None:
    """Refuse what is not the name of a task, a queue or a schedule."""
    check_text(what, value, NAME_LENGTH)


def check_not_reserved(name: object) -> None:
    """Refuse the name of a task that is litejobs' own."""
    if isinstance(name, str) and name.startswith(RESERVED):
        raise ConfigurationError(
            f"task {shown(name)}: names that begin with {RESERVED!r} are those of "
            "litejobs' own tasks; choose another"
        )


def name_text(what: str, value: object) -> str:
    """Return the text, or refuse what is not one; how long it may be is not asked."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what}={shown(value)} is not a name; give a text")
    return value


def is_name(value: object, longest: int = NAME_LENGTH) -> bool:
    """Whether anything in the file can have this name."""
    try:
        check_text("name", name_text("name", value), longest)
    except ConfigurationError:
        return False
    return True


def check_word(name: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse what is none of the words *allowed*, and name the nearest one."""
    words = list(allowed)
    if isinstance(value, str) and value in words:
        return
    raise ConfigurationError(
        f"{name}={shown(value)} is unknown; {did_you_mean(value, words)}"
        f"give {listed(words)}"
    )


# Messages -----------------------------------------------------------------------------


def shown(value: object) -> str:
    """Return the value as a message shows it, however large or broken it is."""
    try:
        text = repr(value)
    except Exception:  # very long integers, and objects that cannot print themselves
        return f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def did_you_mean(value: object, words: Iterable[str]) -> str:
    """Return a question that names the nearest of *words*, or nothing."""
    import difflib

    near = difflib.get_close_matches(shown(value).strip("'").lower(), list(words), 1)
    return f"did you mean {near[0]!r}? " if near else ""


def listed(words: Iterable[str]) -> str:
    """Return `a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def names_of_queues(queues: Iterable[str]) -> list[str]:
    """The names of the queues that a runner is to run, each once.

    Raises:
        ConfigurationError: There is none, or one is not a name of a queue.
    """
    if isinstance(queues, str):
        raise ConfigurationError(
            f"queues={queues!r:.80} is one text; give a list of names: [{queues!r:.80}]"
        )
    try:
        names = list(dict.fromkeys(queues))
    except TypeError:
        raise ConfigurationError(
            f"queues={queues!r:.80} is not a list of names; give one, as ['mail', "
            "'bulk']"
        ) from None
    if not names:
        raise ConfigurationError(
            "queues=[] runs nothing; name the queues to run, or leave it out to run all"
        )
    for name in names:
        if name is None:
            raise ConfigurationError(
                "queues=[None] names no queue; leave None out, as ['mail', 'bulk']"
            )
        check_name("queue", name)
    return names
