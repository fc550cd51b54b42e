"""Look at jobs: as they are, as they stood then, and if that is what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import attrs

from litejobs._control.job import Job, found
from litejobs._process.sizes import SIZES

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from litejobs._control.records import JobSnapshot
    from litejobs._storage.store import Source, Store
    from litejobs._values.states import State
    from litejobs.errors import EventsLost

# Named here, since inside the class `list` is a method.
Snapshots = list["JobSnapshot"]
Differences = list["Difference"]


@attrs.frozen(kw_only=True)
class Difference:
    """Where a job begins to be another one than what is recorded of it.

    `event_id` is the number of the first event (`LogLine.id`) that does not follow from
    those before it, or else the last event of the job, which is where its row should
    stand; `at` is when that was. `job_id` is None where the counts of the file differ.
    `str()` of it is a sentence.
    """

    job_id: int | None
    event_id: int | None
    at: dt.datetime | None
    code: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@attrs.frozen(kw_only=True)
class Moment:
    """An instant that has passed, and up to which number the log had come then."""

    at: int
    log_id: int
    installed_at: int

    @property
    def event_id(self) -> int:
        """The last line that there was, or one before the next."""
        return self.log_id * 4 + 3


class Past:
    """The part of `LiteJobs` that looks at jobs, also as they stood then."""

    _store: Store

    @overload
    def get(self, job_id: int) -> Job[Any]: ...
    @overload
    def get(self, job_id: int, *, at: dt.datetime) -> JobSnapshot: ...
    def get(self, job_id: int, *, at: dt.datetime | None = None) -> Any:
        """Return the job with this id; *at* an instant, a snapshot of how it stood.

        See `list` for what a snapshot of the past knows.

        Raises:
            JobNotFound: There is none, or none any more, or there was none yet.
            EventsLost: Attempts that it had then were deleted since.
            ConfigurationError: The instant lies ahead.
        """
        if at is None:
            return found(self._store, job_id)
        return past_snapshot(self._store, job_id, at)

    def list(
        self,
        *,
        state: State | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: int | None = None,
        limit: int = 100,
        at: dt.datetime | None = None,
        partial: bool = False,
    ) -> Snapshots:
        """List snapshots of jobs, newest first; *before* an id, for the next page.

        With *at*, an aware datetime, as they stood then: in which state and queue, with
        which attempts and limits, due when. Where the clock was put back, that is when
        it last showed this instant. Arguments, unique keys and retry budgets are those
        of today, and `ctx`, `iter` and `progress` are None where something has happened
        to the job since.

        Jobs that were deleted since are missing, and those whose attempts of then
        were. Where some of these (of the *task*, if
        one is given) had not even ended then, what is left is listed only if it is
        asked for with *partial*.

        Raises:
            EventsLost: Unfinished jobs of then were deleted since.
            ConfigurationError: The instant lies ahead.
        """
        from litejobs._control.looking import snapshots

        if at is not None:
            asked = {"queue": queue, "task": task, "before": before, "limit": limit}
            return past_snapshots(self._store, at, state, asked, partial=partial)
        return snapshots(
            self._store,
            state=state,
            queue=queue,
            task=task,
            before=before,
            limit=limit,
        )

    def replay(self, *, limit: int = 1000) -> Differences:
        """Work out each job anew from what is recorded of it, and list the differences.

        Its moves, its attempts and how they ended, one after the other, have to lead
        from its birth to its row: of each job the first that does not follow is told,
        in a healthy file none. Of what was deleted nothing is left to compare. Only
        read, 2,000 jobs at a time, until there are *limit* differences.
        """
        from litejobs._definitions.checks import check_limit

        check_limit(limit)
        return [difference_of(row) for row in replayed(self._store, limit)]


def replayed(source: Source, limit: int) -> Iterator[dict[str, Any]]:
    """The rows of the differences, at most so many; those of the whole file first."""
    left = limit
    for row in source.rows("replay_counts", {})[:left]:
        left -= 1
        yield row
    after, most = 0, SIZES.replayed_jobs
    while left:
        [span] = source.rows("replay_span", {"after": after, "most": most})
        last = span["last"]
        # The last span is open: what names a job that is not there belongs to it.
        given = {"after": after, "last": last, "limit": left}
        for row in source.rows("replay_jobs", given):
            left -= 1
            yield {name: row[name] for name in _FIELDS}
        if last is None:
            return
        after = last


_FIELDS = ("job_id", "event_id", "at", "code", "sentence")


def difference_of(row: dict[str, Any]) -> Difference:
    """The difference of such a row."""
    from litejobs._definitions.milliseconds import read_instant

    return Difference(**row | {"at": read_instant(row["at"])})


# As it was ----------------------------------------------------------------------------


def moment_of(source: Source, at_ms: int) -> Moment:
    """Where the log stood at this instant.

    Raises:
        ConfigurationError: It lies ahead.
    """
    [row] = source.rows("moment", {"at": at_ms})
    if row["is_ahead"]:
        from litejobs.errors import ConfigurationError

        raise ConfigurationError(
            f"{shown_instant(at_ms)} lies ahead, and nothing is recorded of it; what "
            "would happen until then is told by litejobs simulate, and of one job by "
            "job.forecast()"
        )
    return Moment(at=at_ms, log_id=row["log_id"], installed_at=row["installed_at"])


def past_snapshots(
    store: Store,
    at: dt.datetime,
    state: State | None,
    asked: dict[str, Any],
    *,
    partial: bool,
) -> Snapshots:
    """See `Past.list`."""
    from litejobs._control.looking import check_state
    from litejobs._control.records import snapshot_of
    from litejobs._definitions.checks import check_limit
    from litejobs._definitions.milliseconds import instant_ms

    check_limit(asked["limit"])
    check_state(state)
    moment = moment_of(store, instant_ms(at, name="at"))
    states = None if state is None else f'["{state}"]'
    given = dict.fromkeys(("stopped_by", "since", "text")) | asked
    given |= {"log_id": moment.log_id, "states": states}
    rows = store.rows("list_past_jobs", given)
    # Last, so that nothing can go between the two.
    error = None if partial else lost(store, moment, asked["task"])
    if error is not None:
        raise error
    return [snapshot_of(row) for row in rows]


def past_snapshot(store: Store, job_id: int, at: dt.datetime) -> JobSnapshot:
    """See `Past.get`."""
    from litejobs._control.records import snapshot_of
    from litejobs._definitions.milliseconds import instant_ms

    moment = moment_of(store, instant_ms(at, name="at"))
    rows = store.rows("get_past_job", {"log_id": moment.log_id, "id": job_id})
    if not rows:
        raise not_yet(store, job_id, moment)
    return snapshot_of(rows[0])


def not_yet(source: Source, job_id: int, moment: Moment) -> Exception:
    """The exception for a job that there is not, was not yet, or is not remembered."""
    from litejobs._control.missing import no_job
    from litejobs.errors import EventsLost, JobNotFound

    rows = source.rows("get_job", {"id": job_id})
    if not rows:
        return no_job(source, job_id)
    for row in source.rows("attempts_gone", {"id": job_id}):
        if moment.log_id <= row["log_id"] and moment.at >= rows[0]["created_at"]:
            return EventsLost(
                f"how job {job_id} stood at {shown_instant(moment.at)} is not known "
                f"any more: {row['gone']} older attempts of it were deleted, since the "
                "newest ones alone are kept (keep_attempts); ask for an instant from "
                f"{shown_instant(row['since_at'])} on",
                moment.event_id,
                row["log_id"] * 4 + 3,
                (row["task"],),
            )
    return JobNotFound(
        f"there was no job {job_id} yet at {shown_instant(moment.at)}: it was asked "
        f"for at {shown_instant(rows[0]['created_at'])}"
    )


def lost(source: Source, moment: Moment, task: str | None) -> EventsLost | None:
    """The exception where jobs were deleted that had not ended then; else None."""
    given = {"log_id": moment.log_id, "task": task}
    gone = [row for row in source.rows("past_horizon", given) if row["unfinished"]]
    if not gone:
        return None
    from litejobs.errors import EventsLost

    tasks = tuple(row["task"] for row in gone)
    until = max(row["log_id"] for row in gone) * 4 + 3
    return EventsLost(
        f"not all is there any more of how it stood at {shown_instant(moment.at)}: "
        f"{gone_in_words(gone)}; ask for a later instant, or with partial=True for "
        "what is left",
        moment.event_id,
        until,
        tasks,
    )


def gone_in_words(gone: list[dict[str, Any]]) -> str:
    """Of which tasks jobs or attempts were deleted, and up to when they had ended."""
    named = [f"task {row['task']}" for row in gone if row["task"]]
    if len(named) < len(gone):
        named.append("tasks that nobody has registered, or no job at all")
    until = shown_instant(max(row["at"] for row in gone))
    which = ", ".join(named)
    return f"jobs or attempts that had ended up to {until} were deleted ({which})"


def shown_instant(ms: int) -> str:
    """As people write it, in UTC."""
    from litejobs._definitions.milliseconds import from_ms

    at = from_ms(ms)
    precision = "milliseconds" if at.microsecond else "seconds"
    return at.isoformat(timespec=precision).replace("+00:00", "Z")
