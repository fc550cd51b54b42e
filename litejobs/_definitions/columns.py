"""From options to columns: checked beside each other, in the order of a statement."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import shown
from litejobs._definitions.options import FLOW, IN_SPEC, JOB, SCHEDULE, Table
from litejobs._definitions.policy import warn_of_one_attempt
from litejobs._storage.statements import query
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._definitions.calls import Parents

Columns = dict[str, Any]

# What is stored where nothing is said. No option names the last of a task or a job.
NEW_TASK = {
    **{column: each.default for each in FLOW.values() for column in each.columns},
    "parameters": None,
}
NEW_SCHEDULE = {
    column: each.default for each in SCHEDULE.values() for column in each.columns
}
_NEW_JOB = {
    **{column: each.default for each in JOB.values() for column in each.columns},
    "on_parent_success": None,
    "prev_job_id": None,
}


def columns_of(table: Table, options: Mapping[str, Any]) -> Columns:
    """Return the columns that these *options* name, and no others, checked.

    Raises:
        ConfigurationError: A value cannot work, or not beside another one.
    """
    found: Columns = {}
    for name, option in table.items():
        if name not in options:
            continue
        value = options[name]
        if value is None and not option.needed:
            found.update(dict.fromkeys(option.columns, option.default))
        elif len(option.columns) == 1:
            found[option.columns[0]] = option.read(name, value)
        else:
            found.update(zip(option.columns, option.read(name, value), strict=True))
    _say_how_often(found, options)
    return found


def _say_how_often(found: Columns, options: Mapping[str, Any]) -> None:
    """Put into the columns what `retries` and `retry` say of it; only one may."""
    if options.get("retries") is not None:
        if found.get("max_attempts") is not None:
            raise ConfigurationError(
                f"retries={options['retries']} and max_attempts="
                f"{found['max_attempts']} both say how often; give one of them "
                "(max_attempts counts the first attempt as well)"
            )
        found["max_attempts"] = options["retries"] + 1
    if "retry" in options:
        retry = options["retry"]
        allowed = None if retry is None else retry.max_attempts
        if None not in (allowed, found.get("max_attempts")):
            raise ConfigurationError(
                f"{_how_often(found, options)} and retry with max_attempts="
                f"{allowed} both say how often; give one of them"
            )
        for name in ("max_attempts", "retryable"):
            # None takes back what an earlier retry may have said.
            said = None if retry is None else getattr(retry, name)
            if found.get(name) is None and (retry is None or said is not None):
                found[name] = said
    warn_of_one_attempt(found.get("retryable"), found.get("max_attempts"))


def _how_often(found: Columns, options: Mapping[str, Any]) -> str:
    said = options.get("retries")
    if said is not None:
        return f"retries={said}"
    return f"max_attempts={found['max_attempts']}"


def of_job(options: Mapping[str, Any], table: Table = JOB) -> Columns:
    """Return the columns of a job, or of a schedule's jobs, that the options name.

    Raises:
        ConfigurationError: A value cannot work, or needs another one beside it.
    """
    _check_times(options)
    found = columns_of(table, options)
    retry = options.get("retry")
    if retry is not None and retry.on is not None:
        raise ConfigurationError(
            "retry with on= is a policy, which belongs to the task and not to one "
            "of its jobs; give it to @jobs.task(...)"
        )
    if options.get("unique_key") is None:
        for name in ("on_conflict", "unique_for"):
            value = options.get(name)
            if value is not None:
                raise ConfigurationError(
                    f"{name}={shown(value)} has no effect without a unique_key; give "
                    "one"
                )
    on_failure = options.get("on_parent_failure")
    if on_failure is not None and options.get("after") is None:
        raise ConfigurationError(
            f"on_parent_failure={on_failure!r} has no effect without "
            "after; give the jobs that this one waits for"
        )
    return found


def _check_times(options: Mapping[str, Any]) -> None:
    delay, run_at = options.get("delay"), options.get("run_at")
    if delay is not None and run_at is not None:
        raise ConfigurationError(
            f"delay={delay!r} and run_at={run_at} both say when; give one of them"
        )
    expires_in, expires_at = options.get("expires_in"), options.get("expires_at")
    if expires_in is not None and expires_at is not None:
        raise ConfigurationError(
            f"expires_in={shown(expires_in)} and expires_at={expires_at!r} both say "
            "until when; give one of them"
        )


# What has no column -------------------------------------------------------------------


def folded(columns: Mapping[str, Any]) -> Columns:
    """Return the columns with those of a specification as one document, `options`.

    Its members come in the order of the columns, since the file knows it by its words.
    """
    row = {name: value for name, value in columns.items() if name not in IN_SPEC}
    said = {
        name: value
        for name, value in columns.items()
        if name in IN_SPEC and value is not None
    }
    row["options"] = json.dumps(said, separators=(",", ":")) if said else None
    return row


# The parameters of a job --------------------------------------------------------------


@functools.cache
def order() -> tuple[str, ...]:
    """Return the columns as the statement that enqueues a job names them.

    Its task and its arguments come before them. As a tuple they are bound in four
    fifths of the time that a mapping takes.
    """
    names = re.findall(r":(\w+)", query("enqueue_job"))
    return tuple(dict.fromkeys(names))[2:]


@functools.cache
def place(column: str) -> int:
    """Return where this column stands among them."""
    return order().index(column)


def parameters(**columns: Any) -> tuple[Any, ...]:
    """Return these columns in that order, and for all others what is stored else."""
    row = folded(_NEW_JOB | columns)
    return tuple([row[name] for name in order()])


@functools.cache
def no_options() -> tuple[Any, ...]:
    """Return the parameters of a job of which nothing is said."""
    return parameters()


def parameters_of(options: Mapping[str, Any]) -> tuple[tuple[Any, ...], Parents]:
    """Return the parameters of a job with these options, and what it waits for.

    Raises:
        ConfigurationError: As `of_job`.
    """
    if not options:
        return no_options(), ()
    columns = of_job(options)
    after = columns.pop("after", ())
    return parameters(**columns), after


def changed(given: tuple[Any, ...], **columns: Any) -> tuple[Any, ...]:
    """Return the parameters *given* with other values in these columns."""
    options = list(given)
    for name, value in columns.items():
        options[place(name)] = value
    return tuple(options)
