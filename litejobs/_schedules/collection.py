"""The schedules of the file: made, changed, paused, run by hand and made up for.

Each change is one transaction, or part of the caller's, and is planned in it, so that
the next instants are known when it is over. Python does the calendar; what is due,
missed or left out is decided in SQL.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from litejobs._control.job import Job
from litejobs._control.rows import Rows
from litejobs._definitions.arguments import parted
from litejobs._definitions.checks import (
    check_limit,
    check_name,
    check_text,
    did_you_mean,
    is_name,
    shown,
)
from litejobs._definitions.milliseconds import instant_ms
from litejobs._definitions.options import ScheduleOptions, listed
from litejobs._schedules import planner
from litejobs._schedules.plans import plan_now
from litejobs._schedules.schedule import (
    Schedule,
    ScheduleChanges,
    Upcoming,
    arguments_text,
    as_text,
    check_keys,
    check_together,
    columns_of,
    declared_row,
    row_of,
    said_of,
    schedule_of,
    shown_at,
    upcoming_of,
)
from litejobs._storage.statements import queries
from litejobs._tasks.task import AsyncTask, Task, name_of, new_task
from litejobs.errors import (
    ArgumentError,
    ConfigurationError,
    ScheduleExists,
    ScheduleNotFound,
)

if TYPE_CHECKING:
    import apsw

    from litejobs._schedules.cron import Cron, Every
    from litejobs._storage.store import Source, Store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_REASON_LENGTH = 2000

# Named here, since inside the class `list` is a method.
Found = list[Schedule]
Coming = list[Upcoming]
Jobs = list[Job[Any]]
Instants = list[int]


class ScheduleDecorator(Protocol):
    """What `@jobs.schedule(...)` returns: for a task, a plain or an async function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, task: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Schedules(Rows, Mapping[str, Schedule]):
    """The schedules by name: `jobs.schedules["report"].next_at`.

    What is read is a snapshot, a `Schedule`. A schedule that the code declares and a
    person changes here stays as that person wants it.
    """

    __slots__ = ("_tasks", "_timezone")

    def __init__(
        self, store: Store, tasks: Mapping[str, Task[..., Any]], timezone: str
    ) -> None:
        super().__init__(store)
        self._tasks = tasks
        self._timezone = timezone

    def __repr__(self) -> str:
        return "<litejobs schedules>"

    # Looking ----------------------------------------------------------------------

    def __getitem__(self, name: str) -> Schedule:
        """Return the schedule of this name, as it is now.

        Raises:
            ScheduleNotFound: There is none.
        """
        if is_name(name):
            for row in self._read("read_schedule", name=name):
                return schedule_of(row, self._store)
        raise self._not_found(name)

    @overload
    def get(self, name: str, /) -> Schedule | None: ...
    @overload
    def get(self, name: str, /, default: Schedule | T) -> Schedule | T: ...
    def get(self, name: str, /, default: Any = None) -> Any:
        """Return the schedule of this name if there is one, else *default*."""
        try:
            return self[name]
        except ScheduleNotFound:
            return default

    def __contains__(self, name: object) -> bool:
        return is_name(name) and bool(self._read("find_schedule", name=name))

    def __iter__(self) -> Iterator[str]:
        return iter([row["name"] for row in self._read("schedule_names")])

    def __len__(self) -> int:
        return len(self._read("schedule_names"))

    def list(self) -> Found:
        """List all schedules as they are now, by name."""
        return [
            schedule_of(row, self._store)
            for row in self._read("read_schedule", name=None)
        ]

    def upcoming(self, limit: int = 10) -> Coming:
        """List what schedules will do next, as far as it is planned; soonest first."""
        check_limit(limit)
        return [upcoming_of(row) for row in self._read("list_upcoming", limit=limit)]

    # Changing ---------------------------------------------------------------------

    @listed(ScheduleOptions)
    def create(
        self,
        name: str,
        task: Task[..., Any] | str,
        when: Cron | Every,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Store and plan a schedule, which a runner runs from now on.

        *task* may be the name of one that is registered elsewhere; its arguments are
        then stored as they are given. All else is as in `LiteJobs.schedule`.

        Raises:
            ScheduleExists: Another schedule has the name.
            ConfigurationError: A value cannot work, or the time never comes.
            ArgumentError: The arguments do not fit the task or are not JSON.
        """
        columns = columns_of({"when": when, **options}, self._timezone)
        known = self._task(task)
        text = arguments_text(known, args, kwargs)
        row = row_of(name, _name(known), text, columns)
        check_keys(known, row)
        with self._store.transaction() as db:
            if name in self:
                raise ScheduleExists(
                    f"there is a schedule {name!r} already; give another name, or "
                    "change that one"
                )
            self._write("write_schedule", id=None, said=as_text(row))
            plan_now(db, self._id(db, name))
            return self[name]

    @listed(ScheduleOptions)
    def update(self, name: str, **changes: Unpack[ScheduleChanges]) -> Schedule:
        """Change what is named here, and nothing else, and plan the schedule anew.

        Names and values are those of `create`; None is as if it had not been said.
        Either of *args* and *kwargs* takes the place of all arguments. A schedule that
        the code declares is from now on as it is here, whatever the code says.

        Raises:
            ScheduleNotFound: There is no schedule of this name.
            ConfigurationError: A value cannot work; nothing was changed.
            ArgumentError: The arguments do not fit the task or are not JSON.
        """
        said: dict[str, Any] = dict(changes)
        task = said.pop("task", None)
        given: dict[str, Any] = {
            part: said.pop(part) for part in ("args", "kwargs") if part in said
        }
        with self._store.transaction() as db:
            schedule_id = self._id(db, name)
            known = said_of(self._read("schedule_definition", name=name))
            row = known | _changed_columns(said, known, self._timezone)
            if task is not None or given:
                task = self._task(row["task"] if task is None else task)
                if not given:
                    given = _as_given(row["args"])
                row["task"] = _name(task)
                row["args"] = arguments_text(
                    task, given.get("args", ()), given.get("kwargs")
                )
            check_together(row)
            check_keys(self._task(row["task"]), row)
            if row != known:
                self._write("write_schedule", id=schedule_id, said=as_text(row))
                plan_now(db, schedule_id)
            return self[name]

    def pause(self, name: str, reason: str | None = None) -> None:
        """Pause the schedule: its instants are skipped until it is resumed.

        *reason* is for people, up to 2,000 characters; one that is paused already keeps
        its own if none is given.

        Raises:
            ScheduleNotFound: There is no schedule of this name.
        """
        check_text("reason", reason, _REASON_LENGTH)
        self._say("pause_schedule", name, reason=reason)

    def resume(self, name: str) -> None:
        """Resume the schedule, from its next instant on.

        Raises:
            ScheduleNotFound: There is no schedule of this name.
            ConfigurationError: It still cannot be planned; it stays paused.
        """
        self._say("resume_schedule", name)

    def remove(self, name: str) -> None:
        """Remove the schedule; the jobs that it has made stay.

        Raises:
            ScheduleNotFound: There is no schedule of this name.
            ConstraintViolated: A runner has it in its code and would make it again.
        """
        with self._store.transaction() as db:
            self._id(db, name)
            self._write("set_schedule_origin", name=name)
            self._write("remove_schedule", name=name)

    def run_now(self, name: str) -> Job[Any]:
        """Enqueue a job of the schedule, besides those of its own times.

        Unless overlap is "allow", it waits for the schedule's unfinished jobs. If
        another job has the schedule's unique key, that one is handed back.

        Raises:
            ScheduleNotFound: There is no schedule of this name.
        """
        with self._store.transaction() as db:
            which = {"schedule_id": self._id(db, name)}
            last = {"last_job": db.execute(queries()["last_job"]).get}
            self._write("run_schedule_now", **which)
            job_id: int = db.execute(queries()["job_by_hand"], which | last).get
            return Job(self._store, job_id, job_id > last["last_job"])

    def backfill(
        self, name: str, start: dt.datetime, end: dt.datetime, limit: int = 1000
    ) -> Jobs:
        """Enqueue what the schedule missed from *start* to *end*; return the new jobs.

        One job for each instant of that time, both ends included, that has none yet;
        so a second call finds nothing to do, unless the first was undone. Both are
        aware datetimes of the past. What lies before the schedule's `start_at`, or
        after its `end_at`, is none of its.

        Raises:
            ScheduleNotFound: There is no schedule of this name.
            ConfigurationError: There are more than *limit* of them, it is not over
                yet, or what the schedule did then has been deleted, so that nobody
                knows; nothing was stored.
        """
        with self._store.transaction() as db:
            schedule_id = self._id(db, name)
            instants = missing(
                self._store, schedule_id, name=name, start=start, end=end, limit=limit
            )
            which = {"schedule_id": schedule_id, "origin": self._store.origin}
            db.executemany(
                queries()["backfill"], [which | {"at": at} for at in instants]
            )
            found: list[Any] = db.execute(
                queries()["backfilled_jobs"], which | {"instants": json.dumps(instants)}
            ).fetchall()
            return [Job(self._store, job_id, True) for (job_id,) in found]

    # ------------------------------------------------------------------------------

    def _say(self, query: str, name: str, **parameters: Any) -> None:
        """The statement is committed, and what follows from it is planned."""
        with self._store.transaction() as db:
            schedule_id = self._id(db, name)
            self._write(query, name=name, **parameters)
            plan_now(db, schedule_id)

    def _id(self, db: apsw.Connection, name: str) -> int:
        if is_name(name):
            found = db.execute(queries()["find_schedule"], {"name": name}).get
            if found is not None:
                return int(found)
        raise self._not_found(name)

    def _not_found(self, name: object) -> ScheduleNotFound:
        names = [row["name"] for row in self._read("schedule_names")]
        return ScheduleNotFound(
            f"there is no schedule {shown(name)} in {self._store.path}; "
            f"{did_you_mean(name, names)}see the list of schedules"
        )

    def _task(self, task: object) -> Task[..., Any] | str:
        """The task if it is known here, else its name."""
        if isinstance(task, Task):
            return own_task(self._store, task)
        if not isinstance(task, str):
            raise ConfigurationError(
                f"task={shown(task)} is not a task; give one of this object, or the "
                "name of one"
            )
        check_name("task", task)
        return self._tasks.get(task, task)


def missing(
    source: Source,
    schedule_id: int,
    *,
    name: str,
    start: dt.datetime,
    end: dt.datetime,
    limit: int,
) -> Instants:
    """The instants of that time that have no job yet: those that `backfill` fires.

    *source* reads rows as LiteJobs does. The planner counts those that it does not
    list, however many there are.

    Raises:
        ConfigurationError: As `Schedules.backfill`.
    """
    first, last = instant_ms(start, name="start"), instant_ms(end, name="end")
    check_limit(limit)
    _check_past(source.rows("now", {})[0]["now"], first, last)
    which = {"schedule_id": schedule_id}
    span = {"start_at": first, "end_at": last}
    fired = {row["at"] for row in source.rows("fired_instants", which | span)}
    [terms] = source.rows(
        "planning_terms", which | {"first_at": first, "last_at": last}
    )
    request = planner.Request(**terms, keep=limit + len(fired), wanted=0)
    answer = planner.plan(request)
    if answer.problem is not None:
        raise ConfigurationError(f"schedule {name!r}: {answer.problem}")
    kept = json.loads(answer.instants)
    found = [at for at in kept if at not in fired]
    if answer.missed_count or len(found) > limit:
        count = len(found) + (answer.missed_count or 0)
        raise ConfigurationError(
            f"schedule {name!r} has {count} instants without a job from "
            f"{shown_at(first)} to {shown_at(last)}, and limit={limit}; give a "
            "shorter time or a higher limit"
        )
    asked = which | {"instants": json.dumps(found)}
    for row in source.rows("unknown_instants", asked):
        raise ConfigurationError(
            f"schedule {name!r} may have run at {shown_at(row['at'])}: its jobs and "
            f"its ledger until {shown_at(row['until_at'])} have been deleted; give a "
            "start after that"
        )
    return found


def task_of(store: Store, given: object) -> Task[Any, Any]:
    """The task itself, or one of the function, which is not registered yet."""
    if isinstance(given, Task):
        return own_task(store, given)
    if not callable(given):
        raise ConfigurationError(
            f"{given!r:.80} cannot be scheduled; decorate a function or a task, "
            "and give options such as queue= to jobs.schedule(…)"
        )
    return new_task(store, given, name_of(given))


def declaration_of(
    task: Task[Any, Any],
    name: str | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    columns: Mapping[str, Any],
) -> dict[str, Any]:
    """The row of a schedule that code declares; its name is the task's if not given."""
    chosen = task.name if name is None else name
    text = arguments_text(task, args, kwargs)
    row = row_of(chosen, task.name, text, columns)
    check_keys(task, row)
    return declared_row(row)


def own_task(store: Store, task: Task[..., Any]) -> Task[..., Any]:
    """The same task.

    Raises:
        ConfigurationError: It is one of another `LiteJobs` object.
    """
    if task.store is not store:
        raise ConfigurationError(
            f"{task!r} is a task of {task.store!r} and not of {store!r}; register its "
            "function here, or give its name to jobs.schedules.create(…)"
        )
    return task


def _changed_columns(
    said: dict[str, Any], row: Mapping[str, Any], timezone: str
) -> dict[str, Any]:
    """The columns that *said* changes in the row of a schedule."""
    speaks_of_key = said.keys() & {"on_conflict", "unique_for"}
    if speaks_of_key and "unique_key" not in said:
        said = {**said, "unique_key": row["unique_key"]}
    return columns_of(said, timezone)


def _as_given(args: str) -> dict[str, Any]:
    """Stored arguments as they could be given again."""
    try:
        found = json.loads(args)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the stored arguments cannot be read ({error}); give args or kwargs"
        ) from error
    places, names = parted(found)
    return {"args": places, "kwargs": names}


def _name(task: Task[..., Any] | str) -> str:
    return task if isinstance(task, str) else task.name


def _check_past(now: int, first: int, last: int) -> None:
    if last < first:
        raise ConfigurationError(
            f"end={shown_at(last)} lies before start={shown_at(first)}; give them in "
            "order"
        )
    if last > now:
        raise ConfigurationError(
            f"end={shown_at(last)} is not over yet; give a time that has passed, what "
            "comes runs by itself"
        )
