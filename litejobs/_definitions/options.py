"""What can be said of tasks, jobs and schedules: each option once, with all of it.

An option is a key of the TypedDicts below: its type is for users and their type
checker, its `Option` says how a value is checked and which columns it becomes. Calls
take them as `**options`, and they travel as that mapping until they are columns: for a
job in the order of the statement that enqueues it, for a task and a schedule by name.

This module does without `from __future__ import annotations`: what stands beside the
types is read.
"""

import datetime as dt
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    TypedDict,
    TypeVar,
    get_args,
)

from litejobs._definitions.calls import BatchHandle, JobHandle, Parents
from litejobs._definitions.checks import (
    MOST,
    check_count,
    check_max_attempts,
    check_name,
    check_priority,
    check_word,
    did_you_mean,
    shown,
    some_time,
    whole,
)
from litejobs._definitions.gates import (
    Circuit,
    Rate,
    batch_id,
    check_template,
    facts_text,
    parents_of,
)
from litejobs._definitions.milliseconds import duration_ms, instant_ms
from litejobs._definitions.other_words import option_here, unit_here
from litejobs._definitions.policy import Duration, Policy, Retry
from litejobs._definitions.retention import Kept, KeptState, kept_of_task
from litejobs.errors import ConfigurationError

_F = TypeVar("_F", bound=Callable[..., Any])

OnConflict = Literal["ignore", "replace", "debounce", "raise"]
OnOwnConflict = Literal["ignore", "replace", "debounce"]
OnParentFailure = Literal["cancel", "run", "block"]
Misfire = Literal["one", "all", "skip"]
Overlap = Literal["allow", "skip", "queue", "cancel_running"]

_LONGEST_JITTER_MS = 366 * 86_400_000


class Option:
    """How an option is checked, which columns it is, and what `help()` says of it.

    `read` gives the value of the column, or one for each of several. None is as if
    nothing had been said: then the `default` is stored, unless one is `needed`. Those
    of a specification (`in_spec`) have no column in the row of a task, a job or a
    schedule, and are given to it as one JSON document.
    """

    __slots__ = ("about", "columns", "default", "in_spec", "needed", "read")

    def __init__(
        self,
        read: Callable[[str, Any], Any],
        columns: str,
        about: str,
        default: Any = None,
        *,
        needed: bool = False,
        in_spec: bool = False,
    ) -> None:
        self.read = read
        self.columns = tuple(columns.split())
        self.about = about
        self.default = default
        self.needed = needed
        self.in_spec = in_spec


# How values are checked ---------------------------------------------------------------


def _name(what: str, value: Any) -> str:
    check_name(what, value)
    return str(value)


def _priority(_: str, value: Any) -> int:
    check_priority(value)
    return int(value)


def _attempts(what: str, value: Any) -> int:
    check_max_attempts(value, what)
    return int(value)


def _retries(what: str, value: Any) -> tuple[()]:
    check_count(what, value, 0, "0 (no retry)", MOST - 1)
    return ()


def _flag(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what}={shown(value)} is neither True nor False")
    return value


def _whole(least: int, most: int = MOST) -> Callable[[str, Any], int]:
    return lambda what, value: whole(what, value, least, most)


def _duration(what: str, value: Any) -> int:
    return duration_ms(value, name=what)


def _jitter(what: str, value: Any) -> int:
    ms = duration_ms(value, name=what)
    if ms > _LONGEST_JITTER_MS:
        raise ConfigurationError(
            f"{what}={shown(value)} is out of range; give up to 366 days"
        )
    return ms


def _instant(what: str, value: Any) -> int:
    return instant_ms(value, name=what)


def _word(words: Any) -> Callable[[str, Any], str]:
    def read(what: str, value: Any) -> str:
        check_word(what, value, get_args(words))
        return str(value)

    return read


def _template(what: str, value: Any) -> str:
    check_template(what, value)
    return str(value)


def _facts(_: str, value: Any) -> str:
    return facts_text(value)


def _facts_if_any(_: str, value: Any) -> str | None:
    text = facts_text(value)
    return None if text == "[]" else text


def _rate(_: str, value: Any) -> tuple[int, int, int]:
    rate = Rate.of(value)
    return rate.count, rate.per_ms, rate.burst


def _circuit(_: str, value: Any) -> Circuit:
    return Circuit.of(value)


def _retry(_: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Retry):
        raise ConfigurationError(
            f"retry={value!r} is not a policy; give Retry.exponential(…), "
            "Retry.linear(…), Retry.constant(…) or Retry.never()"
        )
    columns = value.columns()
    return tuple(columns[name] for name in _OF_RETRY.split())


def _policy(_: str, value: Any) -> tuple[()]:
    if not isinstance(value, Policy):
        raise ConfigurationError(
            f"policy={value!r:.80} is not a policy; give litejobs.Policy([...], "
            "otherwise=...) or Policy.from_dict(...)"
        )
    return ()


def _batch(_: str, value: Any) -> int | None:
    return batch_id(value)


def _parents(_: str, value: Any) -> Parents:
    return parents_of(value)


# What a retry says, whether or not it says how often.
_OF_RETRY = "backoff delay_ms factor max_delay_ms jitter intervals retry_budget_ms"


# The options --------------------------------------------------------------------------


class _Options(TypedDict, total=False):
    """What can be said of a task, of a job, and of the jobs of a schedule."""

    queue: Annotated[
        str | None, Option(_name, "queue", "where it waits, else 'default'")
    ]
    priority: Annotated[
        int | None, Option(_priority, "priority", "higher runs first; else 0")
    ]
    max_attempts: Annotated[
        int | None,
        Option(_attempts, "max_attempts", "counts the first as well; else 3"),
    ]
    retries: Annotated[
        int | None, Option(_retries, "", "those after the first attempt; else 2")
    ]
    retryable: Annotated[
        bool | None, Option(_flag, "retryable", "False for one attempt alone")
    ]
    retry: Annotated[
        Retry | None,
        Option(_retry, _OF_RETRY, "limits and waits, in one value", in_spec=True),
    ]
    timeout: Annotated[
        Duration | None,
        Option(some_time, "timeout_ms", "for each attempt; else none", in_spec=True),
    ]
    max_crashes: Annotated[
        int | None,
        Option(
            _whole(1), "max_crashes", "how often it may kill the process", in_spec=True
        ),
    ]
    crash_delay: Annotated[
        Duration | None,
        Option(
            *(_duration, "crash_delay_ms", "after its first crash; else 1 s"),
            in_spec=True,
        ),
    ]
    concurrency_limit: Annotated[
        int | None,
        Option(_whole(1), "concurrency_limit", "how many of one key run at once"),
    ]
    expires_in: Annotated[
        Duration | None,
        Option(some_time, "expires_in_ms", "cancelled if it waits so long"),
    ]


class TaskOptions(_Options, total=False):
    """What can be said of a task; see `LiteJobs.task`."""

    policy: Annotated[
        Policy | None, Option(_policy, "", "rules for how an attempt may end")
    ]
    concurrency_key: Annotated[
        str | None, Option(_template, "concurrency_key", "jobs of one key share limits")
    ]
    rate: Annotated[
        Rate | str | None,
        Option(_rate, "rate_count rate_ms rate_burst", "starts of one key, as 10/1m"),
    ]
    circuit: Annotated[
        Circuit | str | None, Option(_circuit, "circuit", "holds them back if it fails")
    ]
    require: Annotated[
        Sequence[str] | None,
        Option(_facts_if_any, "requires", "facts that have to hold"),
    ]
    executor: Annotated[
        str | None, Option(_name, "executor", "where they run; else in threads")
    ]
    keep: Annotated[
        Duration | Mapping[KeptState, Duration | Kept | None] | None,
        Option(kept_of_task, "retention", "so long after their end; 0 is not at all"),
    ]


class FlowOptions(TaskOptions, total=False):
    """What can be said of a flow; see `LiteJobs.flow`."""

    max_jumps: Annotated[
        int | None,
        Option(
            _whole(0), "max_jumps", "by rules, in one run; else 10,000", in_spec=True
        ),
    ]


class _JobOptions(_Options, total=False):
    """What can be said of a job, and of the jobs of a schedule."""

    concurrency_key: Annotated[
        str | None, Option(_template, "concurrency_key", "in place of the task's")
    ]
    circuit: Annotated[
        str | None, Option(_template, "circuit", "in place of the task's")
    ]
    require: Annotated[
        Sequence[str] | None,
        Option(_facts, "requires", "in place of the task's"),
    ]
    unique_key: Annotated[
        str | None, Option(_template, "unique_key", "of one unfinished job only")
    ]
    unique_for: Annotated[
        Duration | None, Option(some_time, "unique_for_ms", "after completion, too")
    ]


class JobOptions(_JobOptions, total=False):
    """What can be said of a job; see `Task.using`."""

    delay: Annotated[
        Duration | None, Option(_duration, "wait_ms", "so long from now", default=0)
    ]
    run_at: Annotated[
        dt.datetime | None, Option(_instant, "run_at", "an aware datetime to wait for")
    ]
    on_conflict: Annotated[
        OnConflict | None,
        Option(_word(OnConflict), "on_conflict", "ignore, replace, debounce, raise"),
    ]
    expires_at: Annotated[
        dt.datetime | None, Option(_instant, "expires_at", "cancelled if it waits then")
    ]
    batch: Annotated[BatchHandle | None, Option(_batch, "batch_id", "the one it joins")]
    after: Annotated[
        Sequence[JobHandle | BatchHandle | int] | None,
        Option(_parents, "after", "jobs and batches to wait for", default=()),
    ]
    on_parent_failure: Annotated[
        OnParentFailure | None,
        Option(_word(OnParentFailure), "on_parent_failure", "cancel, run, block"),
    ]


class ScheduleOptions(_JobOptions, total=False):
    """What can be said of a schedule and of its jobs; see `LiteJobs.schedule`."""

    on_conflict: Annotated[
        OnOwnConflict | None,
        Option(_word(OnOwnConflict), "on_conflict", "ignore, replace, debounce"),
    ]
    misfire: Annotated[
        Misfire, Option(_word(Misfire), "misfire", "one, all, skip", "one", needed=True)
    ]
    misfire_limit: Annotated[
        int | None,
        Option(_whole(1, 1000), "misfire_limit", "how many, with all", default=100),
    ]
    grace: Annotated[
        Duration | None,
        Option(_duration, "misfire_grace_ms", "by how much a run may be late"),
    ]
    overlap: Annotated[
        Overlap,
        Option(
            _word(Overlap),
            *("overlap", "allow, skip, queue, cancel_running", "allow"),
            needed=True,
        ),
    ]
    max_waiting: Annotated[
        int | None,
        Option(_whole(1, 1000), "max_waiting", "how many, with queue", default=1),
    ]
    jitter: Annotated[
        Duration | None,
        Option(_jitter, "jitter_ms", "up to so much later", default=0),
    ]
    start_at: Annotated[
        dt.datetime | None, Option(_instant, "start_at", "there are none before")
    ]
    end_at: Annotated[
        dt.datetime | None, Option(_instant, "end_at", "there are none after")
    ]
    max_runs: Annotated[
        int | None, Option(_whole(1), "max_runs", "how many jobs at most")
    ]


# A table of each, by the names of the options -----------------------------------------

Table = dict[str, Option]


def _table(options: Any) -> Table:
    return {
        name: hint.__metadata__[0] for name, hint in options.__annotations__.items()
    }


TASK = _table(TaskOptions)
FLOW = _table(FlowOptions)
JOB = _table(JobOptions)
SCHEDULE = _table(ScheduleOptions)

# The columns of a specification, in which a task, a job or a schedule has none.
IN_SPEC = frozenset(
    column for each in FLOW.values() if each.in_spec for column in each.columns
)


# How they are told to users ----------------------------------------------------------


def listed(options: Any) -> Callable[[_F], _F]:
    """Return a decorator that lists the options of this TypedDict in the docstring."""

    def decorate(function: _F) -> _F:
        if function.__doc__ is not None:  # as it is with -OO
            text, raises, rest = inspect.cleandoc(function.__doc__).partition(
                "\n\nRaises:"
            )
            lines = [f"    {name}: {each.about}" for name, each in table.items()]
            text = "\n".join([text, "", "Options:", *lines])
            function.__doc__ = text + raises + rest
        return function

    table = _table(options)
    return decorate


def option_of_jobs(name: str, table: Table) -> str | None:
    """Return how jobs are told what others say with *name*, where tasks are not."""
    known = name if name in JOB and name not in table else option_here(name, JOB)
    if known is None or table is JOB:
        return None
    return f"said of a job, with task.using({known.rstrip('=')}=…).enqueue(…)"


def check_names(what: str, options: Mapping[str, Any], table: Table) -> None:
    """Refuse the keyword that no option has, as a call of the function *what* does."""
    for name in options:
        if name not in table:
            here = option_here(name, table) or option_of_jobs(name, table)
            if here is not None:
                raise TypeError(
                    f"{what} got an unexpected keyword argument {name!r}; here that "
                    f"is {here}{unit_here(name)}"
                )
            raise TypeError(
                f"{what} got an unexpected keyword argument {name!r}; "
                f"{did_you_mean(name, table)}see help() for those that it takes"
            )
