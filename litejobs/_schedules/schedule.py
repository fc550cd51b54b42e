"""A schedule: what is said of it, as columns, and what is read back from the file.

Everything here is a checked value. What becomes of an instant is decided in SQL.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from litejobs._definitions.arguments import encode_arguments, together
from litejobs._definitions.checks import (
    check_limit,
    check_name,
    check_word,
    name_text,
    shown,
)
from litejobs._definitions.columns import NEW_SCHEDULE, of_job
from litejobs._definitions.milliseconds import read_instant
from litejobs._definitions.options import (
    SCHEDULE,
    Misfire,
    Overlap,
    ScheduleOptions,
)
from litejobs._schedules.cron import Cron, Every, from_row
from litejobs._values.text import json_or_text
from litejobs.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    from litejobs._storage.store import Source
    from litejobs._tasks.task import Task

ScheduleState = Literal["active", "paused", "ended", "unplanned"]
OccurrenceState = Literal["planned", "fired", "late", "coalesced", "skipped"]

_OVERLAP_OF_ONE = ("allow", "skip", None)
_STATES = ("planned", "fired", "late", "coalesced", "skipped")


class ScheduleChanges(ScheduleOptions, total=False):
    """What can be changed of a schedule; see `LiteJobs.schedule`."""

    when: Cron | Every
    task: Task[..., Any] | str
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None


# What is said, as columns -------------------------------------------------------------


def columns_of(said: Mapping[str, Any], timezone: str = "UTC") -> dict[str, Any]:
    """The columns that this says something about, and no others, checked.

    Names are those of `ScheduleChanges` but for the task and its arguments. *timezone*
    counts for a cron expression that was given none.

    Raises:
        ConfigurationError: A value cannot work; the message says what is allowed.
    """
    options = dict(said)
    for name in said:
        check_word("option", name, ["when", *SCHEDULE])
    found = _when(options.pop("when"), timezone) if "when" in said else {}
    found |= of_job(options, SCHEDULE)
    if "unique_key" in options and options["unique_key"] is None:
        found |= {"on_conflict": None, "unique_for_ms": None}
    return found


def row_of(name: str, task: str, args: str, columns: Mapping[str, Any]) -> Any:
    """All columns of a new schedule; what was not said is as it is by default."""
    check_name("schedule", name_text("name", name))
    row = {"name": name, "task": task, "args": args} | NEW_SCHEDULE | dict(columns)
    check_together(row)
    return row


def declared_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same as the code declares it: with all that it says, as one text."""
    return {**row, "declared": as_text(row)}


def as_text(row: Mapping[str, Any]) -> str:
    """What a schedule says, as the file is told it: one text for one meaning."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def said_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the schedule says, from the row of `schedule_definition`."""
    [row] = rows
    said: dict[str, Any] = json.loads(row["said"])
    return said


def check_together(row: Mapping[str, Any]) -> None:
    """Refuse what cannot work together: an end before the start, one key for two."""
    if row["unique_key"] is not None and row["overlap"] not in _OVERLAP_OF_ONE:
        raise ConfigurationError(
            f"overlap={row['overlap']!r} lets one job wait for another, and with "
            f"unique_key={shown(row['unique_key'])} there is only one; leave one of "
            "them out"
        )
    start, end = row["start_at"], row["end_at"]
    if None not in (start, end) and end < start:
        raise ConfigurationError(
            f"end_at={shown_at(end)} lies before start_at={shown_at(start)}; give "
            "a later end, or leave one of them out"
        )


def check_keys(task: Task[..., Any] | str, row: Mapping[str, Any]) -> None:
    """Refuse keys that ask for arguments which the task, if it is known, has not."""
    if not isinstance(task, str):
        task.check_keys(row)


def arguments_text(
    task: Task[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> str:
    """The arguments of each job as JSON, bound to the task's signature if it is known.

    Raises:
        ArgumentError: They do not fit the task or are not JSON.
    """
    if isinstance(args, (str, bytes, Mapping)) or not isinstance(args, Sequence):
        raise ArgumentError(
            f"args={shown(args)} is not a list; give positional arguments as a list or "
            "tuple, and named ones as kwargs"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(f"kwargs={shown(kwargs)} is not a mapping; give a dict")
    if not isinstance(task, str):
        return task.bind(tuple(args), dict(kwargs or {}))
    return encode_arguments(task, together(args, kwargs or {}))


def _when(when: object, timezone: str) -> dict[str, Any]:
    if not isinstance(when, (Cron, Every)):
        raise ConfigurationError(
            f"when={shown(when)} is not a time; give cron('0 9 * * MON-FRI', "
            "timezone='Europe/Berlin') or every('90s')"
        )
    if isinstance(when, Cron):
        when = when.in_zone(timezone)
    if not when.instants(-1, 1):
        written = when.expression if isinstance(when, Cron) else when
        raise ConfigurationError(
            f"{written!r:.200} never comes: no year has such a date; correct it"
        )
    row = when.row()
    del row["kind"]
    return dict(row)


def shown_at(ms: int) -> str:
    """The instant as messages show it: 2026-01-05T08:00:00Z."""
    at = read_instant(ms)
    return "" if at is None else at.isoformat().replace("+00:00", "Z")


# What is read back --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Occurrence:
    """One instant of a schedule, and what has become of it.

    It was to run at `due_at`, which is `at` or, with jitter, later. `state` is planned,
    fired (with its job), late, coalesced (into the one at `into_at`) or skipped, for
    the `reason`. A missed stretch is one of them: from `at` to `last_at`, of `count`
    instants.
    """

    at: dt.datetime
    due_at: dt.datetime
    state: OccurrenceState
    reason: str | None
    job_id: int | None
    into_at: dt.datetime | None
    last_at: dt.datetime | None
    count: int


@attrs.frozen(kw_only=True)
class Upcoming:
    """What a schedule will do: it is due at `due_at`, for the instant `at`."""

    at: dt.datetime
    due_at: dt.datetime
    schedule: str
    task: str
    queue: str | None
    timezone: str | None
    sentence: str | None


@attrs.frozen(kw_only=True)
class Schedule:
    """A schedule at one moment. Instants are aware datetimes in UTC.

    `when` is None if the file has something that cannot be read as a time. `reason`
    says why it is paused. The last instant that was decided is `last_at`, with its
    `last_state` and, if it was fired, `last_job_id`. `runs` counts its jobs, `max_runs`
    is how many it may have. `declared` ones come from code, `edited` ones were changed
    by a person since, and the code of `vanished` ones has them no more.
    """

    id: int
    name: str
    task: str
    args: Any
    when: Cron | Every | None
    timezone: str | None
    sentence: str | None
    state: ScheduleState
    reason: str | None
    next_at: dt.datetime | None
    next_due_at: dt.datetime | None
    last_at: dt.datetime | None
    last_state: OccurrenceState | None
    last_reason: str | None
    last_job_id: int | None
    runs: int
    start_at: dt.datetime | None
    end_at: dt.datetime | None
    max_runs: int | None
    jitter_ms: int
    misfire: Misfire
    grace_ms: int | None
    misfire_limit: int
    overlap: Overlap
    max_waiting: int
    declared: bool
    edited: bool
    vanished: bool
    created_at: dt.datetime | None
    _source: Source = attrs.field(eq=False, repr=False)

    def occurrences(
        self, limit: int = 20, *, state: OccurrenceState | None = None
    ) -> list[Occurrence]:
        """List what has become of its instants, the newest first; up to *limit*.

        Those in this *state*; if none is given, all but those that are still planned.
        """
        check_limit(limit)
        if state is not None:
            check_word("state", state, _STATES)
        parameters = {"schedule_id": self.id, "state": state, "limit": limit}
        return [
            Occurrence(**_with_instants(row))
            for row in self._source.rows("list_occurrences", parameters)
        ]


def schedule_of(row: Mapping[str, Any], source: Source) -> Schedule:
    """The schedule of a row of `read_schedule`."""
    values = _with_instants(row)
    values["args"] = json_or_text(values["args"])
    values["when"] = when_of(row)
    for name in ("expression", "every_ms", "anchor_ms"):
        del values[name]
    values["declared"] = bool(values.pop("is_declared"))
    for name in ("edited", "vanished"):
        values[name] = bool(values[name])
    return Schedule(**values, source=source)


def upcoming_of(row: Mapping[str, Any]) -> Upcoming:
    """The value of a row of litejobs_upcoming."""
    return Upcoming(**_with_instants(row))


def when_of(row: Mapping[str, Any]) -> Cron | Every | None:
    """When the schedule of a row runs; None if that cannot be read."""
    kind = "every" if row["expression"] is None else "cron"
    try:
        return from_row(
            kind,
            row["expression"],
            row["timezone"],
            row["every_ms"],
            row["anchor_ms"],
        )
    except ConfigurationError:
        return None


def changed_when(
    row: Mapping[str, Any] | None,
    expression: str | None,
    timezone: str | None,
    every: Every | None,
) -> Cron | Every | None:
    """What is named of the time, in which what the *row* says goes on.

    A new expression keeps the zone, a new zone the expression, and a new interval the
    instant from which it is counted. None if there is a zone alone.
    """
    known = row or {"expression": None, "timezone": None, "anchor_ms": None}
    if every is not None:
        return attrs.evolve(every, anchor_ms=known["anchor_ms"])
    expression = known["expression"] if expression is None else expression
    timezone = known["timezone"] if timezone is None else timezone
    if expression is None:
        return None
    return Cron(expression, "UTC" if timezone is None else timezone)


def _with_instants(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: read_instant(value) if name == "at" or name.endswith("_at") else value
        for name, value in row.items()
    }
