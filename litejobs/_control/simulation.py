"""What would happen: a copy of a few rows in memory, to be failed without consequences.

The simulation has the schema, triggers and views of every jobs file, and the clock of
the one it was copied from. So what it answers was decided by the very statements that
decide for the real jobs: no delay, no limit and no rule is worked out a second time
here. The file itself is only read.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import apsw
import attrs

from litejobs._control.missing import no_job_in
from litejobs._definitions.checks import check_limit
from litejobs._definitions.milliseconds import instant_ms, read_instant
from litejobs._definitions.policy_rows import record_policy
from litejobs._storage import in_memory, statements
from litejobs._storage.connections import STATEMENTS
from litejobs._storage.files import MEMORY
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.statements import queries
from litejobs._values.blocks import block
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    import datetime as dt

    from litejobs._definitions.policy import Policy
    from litejobs._storage.store import Readable

SOME_ERROR = json.dumps(
    {
        "status": "error",
        "error": {
            "type": "Exception",
            "module": "builtins",
            "types": ["Exception", "BaseException"],
            "code": None,
            "message": "",
        },
    }
)
"""How an attempt fails in a forecast if the job has not failed yet."""

ALONE = "policy"
"""The only task beside which a policy is looked at by itself."""

# What is copied for a task, before the rows of the jobs themselves.
_OF_TASK = (
    ("litejobs_meta", "simulation_meta"),
    ("litejobs_runner", "simulation_runner"),
    ("litejobs_spec", "simulation_specs"),
    ("litejobs_task", "simulation_task"),
    ("litejobs_step", "simulation_steps"),
    ("litejobs_policy", "simulation_policies"),
    ("litejobs_rule", "simulation_rules"),
    ("litejobs_condition", "simulation_conditions"),
    ("litejobs_rule_change", "simulation_changes"),
)

_DECIDING = {
    "litejobs__specify_finds_or_makes",
    "litejobs_settle_closes_attempt",
    "litejobs__settle_other_stores_status",
    "litejobs_attempt_status_decides",
    "litejobs__apply_policy_decides",
    "litejobs__put_to_rules_finds_one",
    "litejobs__find_rule_stores_it",
    "litejobs_attempt_close_moves_job",
    "litejobs__close_attempt_moves_on",
    "litejobs__move_job_stores_state",
    "litejobs__does_not_fit_holds_it",
    "litejobs__hold_remembers_signature",
    "litejobs__circuit_outcome_is_judged",
    "litejobs__circuit_count_may_open",
    "litejobs_circuit_update_follows",
    "litejobs__reopen_parks",
    "litejobs__transition_insert_is_a_line",
    "litejobs_line_insert_counts",
}

_OPENING = (
    *("simulation_hire", "simulation_dismiss", "simulation_free", "simulation_know"),
    *("simulation_serve", "simulation_queue", "simulation_lane"),
)

Rows = Sequence[Sequence[Any]]
Limited = Callable[[apsw.Connection], object]


def _without_limits(_: apsw.Connection) -> None:
    """What is done on it may take as long as it takes."""


@attrs.frozen(kw_only=True)
class PlannedAttempt:
    """One attempt of a forecast: when it is due, and what follows if it fails.

    `delay_ms` is the wait until the next one, in ms, jitter and `max_delay` included.
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
    """What another policy would have made of past attempts: how many, and which.

    `limits_set_aside`: the task names limits of its own, and they did not count.
    `summary` has the differences by what was decided before and after, with how many
    attempts and jobs, and the medians of the delays; its `kind` is decision, longer,
    shorter (the same decision after another delay) or reason.

    Of the time that was asked for nothing up to `horizon_at` is decided again, since
    jobs of the task were deleted that ended then; None if all is there.
    """

    attempts: int
    differences: list[Difference]
    limits_set_aside: bool = False
    summary: list[dict[str, Any]] = attrs.field(factory=list)
    horizon_at: dt.datetime | None = None


def forecast(
    source: Readable, job_id: int, outcome: str | None, limit: int
) -> Forecast:
    """See `Job.forecast`; *outcome* is a document."""
    return _forecast(_file_of(source), job_id, outcome, limit)


def forecast_from(
    connection: apsw.Connection,
    job_id: int,
    path: str,
    outcome: str | None = None,
    limit: int = 100,
    *,
    limited: Limited = _without_limits,
) -> Forecast:
    """See `Job.forecast`; of the file to which *connection* is open.

    Nothing but reads is done on it, in one short transaction, or in the one that has
    been begun on it. *path* is for messages. *limited* is told the connection to the
    copy in memory, which may be made to take long by what is in the file.
    """
    file = _file_read_by(connection, path, limited)
    return _forecast(file, job_id, outcome, limit)


def backtest(
    source: Readable,
    policy: Policy,
    *,
    task: str,
    step: str,
    since: dt.datetime | None,
    limit: int,
    keep_limits: bool,
) -> Backtest:
    """See `Policy.backtest`; *step* is "" for the whole task."""
    past = _Past(
        task=task, step=step, since=since, limit=limit, keep_limits=keep_limits
    )
    return _backtest(_file_of(source), policy, past)


def backtest_from(
    connection: apsw.Connection,
    path: str,
    policy: Policy,
    *,
    task: str,
    step: str = "",
    since: dt.datetime | None = None,
    limit: int = 10_000,
    keep_limits: bool = False,
    limited: Limited = _without_limits,
) -> Backtest:
    """See `Policy.backtest`; of the file to which *connection* is open.

    *step* is "" for the whole task. The connection, *path* and *limited* are as in
    `forecast_from`.
    """
    past = _Past(
        task=task, step=step, since=since, limit=limit, keep_limits=keep_limits
    )
    return _backtest(_file_read_by(connection, path, limited), policy, past)


def judge_by(
    db: apsw.Connection,
    task: str,
    step: str,
    policy: Policy,
    *,
    keep_limits: bool = False,
) -> bool:
    """In a copy, the policy is in force for the task, or for that step of it.

    Whether the task has limits of its own that do not count any more.
    """
    known, of = queries(), {"task": task}
    before = db.execute(known["simulation_most"], of).get
    record_policy(db, task, step, policy)
    # A step's policy has no limits: there is one set of them for all steps.
    limits = policy.limits if not step else None
    columns = {} if limits is None else limits.columns()
    if limits is None and not (keep_limits or step):
        columns["jitter"] = policy.default_jitter
    given = of | {
        "limits": json.dumps(columns),
        "keep": keep_limits or bool(step),
        "most_before": before,
    }
    set_aside = db.execute(known["simulation_set_aside"], given).get
    most = {"most": db.execute(known["simulation_most"], of).get}
    db.execute(known["simulation_limits"], given | most)
    return bool(set_aside)


@block
def policy_in_memory(policy: Policy) -> Iterator[apsw.Connection]:
    """The policy and its limits are those of the task ALONE, which nobody runs."""
    with _Simulation.on(apsw.Connection(MEMORY)) as simulation:
        simulation.make_task(ALONE)
        simulation.judge_by(ALONE, "", policy)
        yield simulation.connection


@attrs.frozen(kw_only=True)
class _File:
    """What is copied from: how it is read, and through which VFS, which has its clock.

    `limited` is told each connection to a copy.
    """

    path: str
    reading: Callable[[], contextlib.AbstractContextManager[apsw.Connection]]
    vfs: str
    limited: Limited = _without_limits

    def in_memory(self) -> apsw.Connection:
        """An empty database with the same clock."""
        memory = apsw.Connection(MEMORY, vfs=self.vfs, statementcachesize=STATEMENTS)
        self.limited(memory)
        return memory

    @block
    def simulation(self) -> Iterator[_Simulation]:
        """One on a database that may have been used before, which is quicker."""
        held = in_memory.is_held(self.vfs)
        if held is None:
            with _Simulation.on(self.in_memory()) as simulation:
                yield simulation
            return
        with in_memory.scratch(held=held, statements=STATEMENTS) as scratch:
            self.limited(scratch.connection)
            yield _Simulation(scratch.connection, scratch.filling, scratch.filled)


def _file_of(source: Readable) -> _File:
    with source.reader() as connection:
        vfs = connection.open_vfs
    return _File(path=source.path, reading=source.reader, vfs=vfs)


def _file_read_by(connection: apsw.Connection, path: str, limited: Limited) -> _File:
    return _File(
        path=path,
        reading=lambda: contextlib.nullcontext(connection),
        vfs=connection.open_vfs,
        limited=limited,
    )


@attrs.frozen(kw_only=True)
class _Past:
    """Which attempts are decided again, and for which step the policy would be."""

    task: str
    step: str
    since: dt.datetime | None
    limit: int
    keep_limits: bool


def _forecast(file: _File, job_id: int, outcome: str | None, limit: int) -> Forecast:
    check_limit(limit)
    with file.simulation() as simulation:
        with file.reading() as reader, _one_moment(reader):
            simulation.copy_job(reader, job_id, file.path)
        return simulation.fail_on(job_id, outcome, limit)


def _backtest(file: _File, policy: Policy, past: _Past) -> Backtest:
    check_limit(past.limit)
    parameters = {
        "task": past.task,
        "since": None if past.since is None else instant_ms(past.since, name="since"),
        "limit": past.limit,
    }
    with _Simulation.on(file.in_memory()) as simulation:
        with file.reading() as reader, _one_moment(reader):
            simulation.copy_task(reader, {"task": past.task})
            rows = fetch_lossy(
                reader, queries()["simulation_past_attempts"], parameters
            )[1]
            given = {"task": past.task, "since": parameters["since"]}
            horizon = reader.execute(queries()["simulation_horizon"], given).get
        if not rows and not simulation.knows(past.task):
            raise ConfigurationError(
                f"task={past.task!r} is not known in {file.path}; name one that has "
                "had jobs"
            )
        set_aside = simulation.judge_by(
            past.task, past.step, policy, keep_limits=past.keep_limits
        )
        differences = simulation.replay(rows)
        return Backtest(
            attempts=len(rows),
            differences=differences,
            limits_set_aside=set_aside,
            summary=simulation.summary(differences),
            horizon_at=read_instant(horizon),
        )


@block
def _one_moment(reader: apsw.Connection) -> Iterator[None]:
    """All rows that are read in the block are of one moment.

    A transaction and no savepoint, which a connection for reads alone may refuse.
    """
    if reader.in_transaction:
        yield
        return
    reader.execute("begin")
    try:
        yield
    finally:
        if reader.in_transaction:
            reader.execute("rollback")


class _Simulation:
    """A database in memory that is like each file of ours, at first without any rows.

    They are put in by *filling*, until *filled* is called; from then on, triggers act.
    """

    def __init__(
        self,
        memory: apsw.Connection,
        filling: apsw.Connection,
        filled: Callable[[], object],
    ) -> None:
        self._db = memory
        self._filling = filling
        self._filled = filled

    @classmethod
    @block
    def on(cls, memory: apsw.Connection) -> Iterator[Self]:
        """One on this connection, which is closed after the block."""
        with contextlib.closing(memory):
            memory.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            statements.create_in_memory(memory)

            def set_checks(*, on: bool) -> None:
                memory.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(on))
                memory.pragma("ignore_check_constraints", not on)

            set_checks(on=False)
            yield cls(memory, memory, functools.partial(set_checks, on=True))

    def copy_job(self, reader: apsw.Connection, job_id: int, path: str) -> None:
        """The job, its task, and those of its attempts that a forecast looks at."""
        job = {"id": job_id}
        found = fetch_lossy(reader, queries()["simulation_job"], job)[1]
        if not found:
            raise no_job_in(reader, path, job_id)
        self.copy_task(reader, {"job": job_id})
        self.insert("litejobs_job", found)
        kept = fetch_lossy(reader, queries()["simulation_last_attempts"], job)[1]
        self.insert("litejobs_attempt", kept)

    def copy_task(self, reader: apsw.Connection, of: dict[str, Any]) -> None:
        """What belongs to the task named by *of*, or to the task of a job."""
        parameters = {"task": None, "job": None} | of
        for table, query in _OF_TASK:
            self.insert(table, fetch_lossy(reader, queries()[query], parameters)[1])

    def insert(self, table: str, rows: Rows) -> None:
        """Rows as they were read, whatever triggers and checks would say of them.

        Another client may have switched the checks off; a row that they dislike can be
        looked at all the same.
        """
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            into = f"insert into {statements.quoted(table)} values ({marks})"  # noqa: S608 - names that are quoted
            self._filling.executemany(into, rows)

    def fail_on(self, job_id: int, outcome: str | None, limit: int) -> Forecast:
        """The job fails, again and again, until something else follows."""
        known = queries()
        job = {"id": job_id}
        for opening in _OPENING:
            self._filling.execute(known[opening])
        self._filled()
        # First, since a blocked job may have a time of its own to wait for.
        self._db.execute(known["simulation_unblock"], job)
        start: Any = self._db.execute(known["simulation_start"], job).fetchone()
        at, passed, runner, last = start
        document = outcome or last or SOME_ERROR
        planned: list[PlannedAttempt] = []
        ended = self._come_due(job, passed, runner)
        while ended is None and len(planned) < limit:
            self._db.execute(known["claim"], {"runner": runner, "slots": 1})
            attempt = self._db.execute(known["simulation_attempt"], job).get
            if attempt is None:
                ended = self._db.execute(known["simulation_blocked"], job).fetchone()
                break
            decided = self._settle(attempt, document, at)
            number, step, decision, delay_ms, stopped_by, again, state, following = (
                decided
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
            at = following
            ended = (
                self._come_due(job, delay_ms, runner) if again else (state, stopped_by)
            )
        ends, stopped_by = ended or (None, None)
        return Forecast(attempts=planned, ends=ends, stopped_by=stopped_by)

    def _come_due(self, job: dict[str, int], passed: int | None, runner: int) -> Any:
        """Its next attempt may begin; if it may not, the state it ends in, and why."""
        known = queries()
        self._db.execute(known["simulation_due"], job | {"passed": passed or 0})
        if passed is not None:
            self._db.execute(known["tick"], {"runner": runner, "seen_at": None})
        return self._db.execute(known["simulation_end"], job).fetchone()

    def _settle(self, attempt: int, document: str, at: int) -> Any:
        known = queries()
        try:
            self._db.execute(known["settle"], (attempt, document))
        except apsw.ConstraintError as error:
            raise ConfigurationError(f"outcome={document:.80}: {error}") from None
        given = {"attempt": attempt, "at": at}
        return self._db.execute(known["simulation_decided"], given).fetchone()

    @property
    def connection(self) -> apsw.Connection:
        """To read from until the simulation is closed."""
        return self._db

    def make_task(self, name: str) -> None:
        """There is a task, and nothing else is known of it."""
        self._db.execute(queries()["policy_checked"], {"task": name})

    def knows(self, task: str) -> bool:
        """Whether there is such a task in the file."""
        parameters = {"task": task, "job": None}
        return bool(
            self._db.execute(queries()["simulation_task"], parameters).fetchall()
        )

    def judge_by(
        self, task: str, step: str, policy: Policy, *, keep_limits: bool = False
    ) -> bool:
        """The policy is in force for the task, or for that step of it.

        Whether the task has limits of its own that do not count any more.
        """
        self._filled()
        return judge_by(self._db, task, step, policy, keep_limits=keep_limits)

    def replay(self, past: Rows) -> list[Difference]:
        """Each attempt of the past ends again as it did, and is decided anew.

        Of each job one attempt at a time, since a job has one open attempt: first all
        the first ones, then all the second ones, and so on.
        """
        known = queries()
        rounds: dict[int, list[Sequence[Any]]] = {}
        for row in past:
            rounds.setdefault(row[0], []).append(row)
        differences: list[Difference] = []
        self._leave_only(_DECIDING)
        for _, rows in sorted(rounds.items()):
            self._db.execute(known["simulation_clear_attempts"])
            self._db.execute(known["simulation_clear_jobs"])
            for row in rows:
                job = {"row": row[1], "was": row[5]}
                self._db.execute(known["simulation_put_job"], job)
                self._db.execute(known["simulation_put_attempt"], {"row": row[1]})
            self._db.execute(known["simulation_specify"])
            self._db.execute(known["simulation_take_over"])
            for row in rows:
                self._db.execute(known["settle"], (row[2], row[3]))
            after = {
                line[0]: json.loads(line[1])
                for line in self._db.execute(known["simulation_decisions"])
            }
            differences += list(_differing(rows, after))
        differences.sort(key=lambda each: each.attempt_id)
        return differences

    def summary(self, differences: list[Difference]) -> list[dict[str, Any]]:
        """The differences by what was decided before and after."""
        given = {
            "differences": json.dumps([attrs.asdict(each) for each in differences])
        }
        names, rows = fetch_lossy(self._db, queries()["simulation_summary"], given)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _leave_only(self, triggers: set[str]) -> None:
        """The others are gone: they would refuse jobs that have a past."""
        for kind, name in self._db.execute(queries()["our_logic"]).fetchall():
            if kind == "trigger" and str(name) not in triggers:
                self._db.execute("drop trigger " + statements.quoted(str(name)))


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
