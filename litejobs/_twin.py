"""What would happen: a copy of a few rows in memory, to be failed without consequences.

The twin has the schema, triggers and views of every jobs file, and the clock of the one
it was copied from. So what it answers was decided by the very statements that decide
for the real jobs: no delay, no limit and no rule is worked out a second time here. The
file itself is only read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import apsw
import attrs

from litejobs import _sql
from litejobs._database import fetched
from litejobs._job import check_limit
from litejobs._loop import record_policy
from litejobs._sql import queries
from litejobs._time import instant_ms, read_instant
from litejobs.errors import ConfigurationError, JobNotFound

if TYPE_CHECKING:
    import datetime as dt

    from litejobs._app import LiteJobs
    from litejobs._database import Database
    from litejobs._policy import Policy

SOME_ERROR = json.dumps(
    {
        "status": "error",
        "error": {
            "type": "Exception",
            "types": ["Exception", "BaseException"],
            "code": None,
            "message": "",
        },
    }
)
"""How an attempt fails in a forecast if the job has not failed yet."""

# What is copied for a task, before the rows of the jobs themselves.
_OF_TASK = (
    ("litejobs_meta", "twin_meta"),
    ("litejobs_runner", "twin_runner"),
    ("litejobs_task", "twin_task"),
    ("litejobs_step", "twin_steps"),
    ("litejobs_policy", "twin_policies"),
    ("litejobs_rule", "twin_rules"),
    ("litejobs_condition", "twin_conditions"),
    ("litejobs_rule_change", "twin_changes"),
)

_DECIDING = {
    "litejobs_settle_closes_attempt",
    "litejobs_settle_by_rules_stores_status",
    "litejobs_attempt_status_decides",
    "litejobs_decide_decides",
    "litejobs_attempt_close_moves_job",
    "litejobs_close_follows",
    "litejobs_follow_moves_job",
    "litejobs_report_is_judged",
    "litejobs_finding_counts",
    "litejobs_circuit_update_follows",
    "litejobs_reopen_parks",
}

_OPENING = (
    *("twin_hire", "twin_dismiss", "twin_know", "twin_serve"),
    *("twin_queue", "twin_lane"),
)

Rows = Sequence[Sequence[Any]]


@attrs.frozen(kw_only=True)
class PlannedAttempt:
    """One attempt of a forecast: when it is due, and what follows if it fails.

    `delay_ms` is the wait until the next one, in ms, jitter and cap included.
    """

    attempt: int
    step: str | None
    at: dt.datetime
    decision: str
    delay_ms: int | None
    stopped_by: str | None


@attrs.frozen(kw_only=True)
class Forecast:
    """The attempts that a job still has if each one fails, the next one first.

    `ends` is the state of the job after the last of them, and `stopped_by` why it is:
    dead_lettered, or what a rule says; pending where another step follows. Both are
    None if there were more attempts than were asked for.
    """

    attempts: list[PlannedAttempt]
    ends: str | None
    stopped_by: str | None


@attrs.frozen(kw_only=True)
class Difference:
    """A past attempt about which another policy would have decided differently.

    Each of `before` and `after` has decision, action, stopped_by, next_step and
    delay_ms.
    """

    attempt_id: int
    job_id: int
    attempt: int
    step: str | None
    before: dict[str, Any]
    after: dict[str, Any]


@attrs.frozen(kw_only=True)
class Backtest:
    """What another policy would have made of past attempts: how many, and which."""

    attempts: int
    differences: list[Difference]


def forecast(jobs: LiteJobs, job_id: int, outcome: str | None, limit: int) -> Forecast:
    """See `Job.forecast`; *outcome* is a document."""
    check_limit(limit)
    database = jobs._database_now()
    with _Twin(database) as twin:
        # In one transaction, so that all rows are of one moment.
        with database.reader() as reader, reader:
            twin.copy_job(reader, job_id, jobs.path)
        return twin.fail_on(job_id, outcome, limit)


def backtest(
    jobs: LiteJobs,
    policy: Policy,
    *,
    task: str,
    step: str,
    since: dt.datetime | None,
    limit: int,
) -> Backtest:
    """See `Policy.backtest`; *step* is "" for the whole task."""
    check_limit(limit)
    database = jobs._database_now()
    parameters = {
        "task": task,
        "since": None if since is None else instant_ms(since, name="since"),
        "limit": limit,
    }
    with _Twin(database) as twin:
        with database.reader() as reader, reader:
            twin.copy_task(reader, {"task": task})
            past = fetched(reader, queries()["twin_past_attempts"], parameters)[1]
        if not past and not twin.knows(task):
            raise ConfigurationError(
                f"task={task!r} is not known in {jobs.path}; name one that has had jobs"
            )
        twin.judge_by(task, step, policy)
        return twin.replay(past)


class _Twin:
    """A database in memory like the one of *database*, at first without any rows."""

    def __init__(self, database: Database) -> None:
        self._db = database.in_memory()
        self._was = "{}"

    def __enter__(self) -> Self:
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        _sql.create_in_memory(self._db)
        self._set_triggers(on=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def copy_job(self, reader: apsw.Connection, job_id: int, path: str) -> None:
        """The job, its task, and those of its attempts that a forecast looks at."""
        job = {"id": job_id}
        found = fetched(reader, queries()["twin_job"], job)[1]
        if not found:
            raise JobNotFound(f"there is no job {job_id!r} in {path}")
        self.copy_task(reader, {"job": job_id})
        self.insert("litejobs_job", found)
        kept = fetched(reader, queries()["twin_last_attempts"], job)[1]
        self.insert("litejobs_attempt", kept)

    def copy_task(self, reader: apsw.Connection, of: dict[str, Any]) -> None:
        """What belongs to the task named by *of*, or to the task of a job."""
        parameters = {"task": None, "job": None} | of
        for table, query in _OF_TASK:
            self.insert(table, fetched(reader, queries()[query], parameters)[1])

    def insert(self, table: str, rows: Rows) -> None:
        """Rows as they were read, whatever the triggers would say of them."""
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"insert into {table} values ({marks})", rows)  # noqa: S608 - ours

    def fail_on(self, job_id: int, outcome: str | None, limit: int) -> Forecast:
        """The job fails, again and again, until something else follows."""
        known = queries()
        job = {"id": job_id}
        for opening in _OPENING:
            self._db.execute(known[opening])
        self._set_triggers(on=True)
        # First, since a blocked job may have a time of its own to wait for.
        self._db.execute(known["twin_unblock"], job)
        start: Any = self._db.execute(known["twin_start"], job).fetchone()
        at, passed, runner, last = start
        document = outcome or last or SOME_ERROR
        planned: list[PlannedAttempt] = []
        ended = self._come_due(job, passed, runner)
        while ended is None and len(planned) < limit:
            self._db.execute(known["claim"], {"runner": runner, "slots": 1})
            attempt = self._db.execute(known["twin_attempt"], job).get
            if attempt is None:
                ended = self._db.execute(known["twin_blocked"], job).fetchone()
                break
            number, step, decision, delay_ms, stopped_by, again, state = self._settle(
                attempt, document
            )
            planned.append(
                PlannedAttempt(
                    attempt=number,
                    step=step,
                    at=read_instant(at),  # type: ignore[arg-type]
                    decision=decision,
                    delay_ms=delay_ms,
                    stopped_by=stopped_by,
                )
            )
            at += delay_ms or 0
            ended = (
                self._come_due(job, delay_ms, runner) if again else (state, stopped_by)
            )
        ends, stopped_by = ended or (None, None)
        return Forecast(attempts=planned, ends=ends, stopped_by=stopped_by)

    def _come_due(self, job: dict[str, int], passed: int | None, runner: int) -> Any:
        """Its next attempt may begin; if it may not, the state it ends in, and why."""
        known = queries()
        self._db.execute(known["twin_due"], job | {"passed": passed or 0})
        if passed is not None:
            self._db.execute(known["tick"], {"runner": runner, "seen_at": None})
        return self._db.execute(known["twin_end"], job).fetchone()

    def _settle(self, attempt: int, document: str) -> Any:
        known = queries()
        try:
            self._db.execute(known["settle"], (attempt, document))
        except apsw.ConstraintError as error:
            raise ConfigurationError(f"outcome={document:.80}: {error}") from None
        return self._db.execute(known["twin_decided"], {"attempt": attempt}).fetchone()

    def knows(self, task: str) -> bool:
        """Whether there is such a task in the file."""
        parameters = {"task": task, "job": None}
        return bool(self._db.execute(queries()["twin_task"], parameters).fetchall())

    def judge_by(self, task: str, step: str, policy: Policy) -> None:
        """The policy is in force for the task, or for that step of it."""
        known = queries()
        self._was = self._db.execute(known["twin_was"]).get or self._was
        self._set_triggers(on=True)
        number = record_policy(self._db, task, step, policy)
        limits = policy.limits.columns() if policy.limits is not None else {}
        self._db.execute(
            known["twin_limits"],
            {
                "limits": json.dumps(limits),
                "policy": number,
                "most": policy.max_attempts,
            },
        )

    def replay(self, past: Rows) -> Backtest:
        """Each attempt of the past ends again as it did, and is decided anew.

        Of each job one attempt at a time, since a job has one open attempt: first all
        the first ones, then all the second ones, and so on.
        """
        known = queries()
        rounds: dict[int, list[Sequence[Any]]] = {}
        for row in past:
            rounds.setdefault(row[0], []).append(row)
        differences = []
        self._leave_only(_DECIDING)
        for _, rows in sorted(rounds.items()):
            self._db.execute(known["twin_clear_attempts"])
            self._db.execute(known["twin_clear_jobs"])
            for row in rows:
                job = {"row": row[1], "was": self._was}
                self._db.execute(known["twin_put_job"], job)
                self._db.execute(known["twin_put_attempt"], {"row": row[1]})
            for row in rows:
                self._db.execute(known["settle"], (row[2], row[3]))
            after = {
                line[0]: json.loads(line[1])
                for line in self._db.execute(known["twin_decisions"])
            }
            differences += list(_differing(rows, after))
        differences.sort(key=lambda each: each.attempt_id)
        return Backtest(attempts=len(past), differences=differences)

    def _leave_only(self, triggers: set[str]) -> None:
        """The others are gone: they would refuse jobs that have a past."""
        for kind, name in self._db.execute(queries()["our_logic"]).fetchall():
            if kind == "trigger" and str(name) not in triggers:
                self._db.execute(f"drop trigger {name}")

    def _set_triggers(self, *, on: bool) -> None:
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(on))


def _differing(rows: Rows, after: dict[int, Any]) -> Iterable[Difference]:
    for row in rows:
        was = json.loads(row[1])
        before, now = json.loads(row[4]), after[row[2]]
        if before != now:
            yield Difference(
                attempt_id=row[2],
                job_id=was["id"],
                attempt=was["attempts"],
                step=was["step"],
                before=before,
                after=now,
            )
