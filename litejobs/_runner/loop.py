"""The few things the loop says to the database, and what it hears back.

Nothing is decided here: the loop says that time has passed, that attempts have ended
and that it has room; what follows from that is in `sql/`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from litejobs._process import log
from litejobs._process.clock import RealTime, stands
from litejobs._process.identity import host_name, process_token
from litejobs._process.timing import TIMES
from litejobs._runner.decisions import Decision, log_decision
from litejobs._runner.declarations import declare, declare_schedules
from litejobs._schedules.plans import (
    PLANNED_AT_ONCE,
    answers,
    record_plan,
    replan_zones,
)
from litejobs._storage.rows import fetch_lossy, savepoint
from litejobs._storage.statements import queries
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import Assignment, Raised
from litejobs._values.states import ANY_JOB

if TYPE_CHECKING:
    from litejobs._definitions.registration import Registration
    from litejobs._storage.database import Database

SETTLED_AT_ONCE = 2**18
"""Characters of outcomes."""

MOST_NAMED = 5  # tasks in one line of the log
MOST_AT_ONCE = 256  # attempts of a claim with executors
BEGINS_AGAIN = (
    "this runner was stopped or replaced in the file by another client, and begins "
    "again: only the process that holds the lock runs jobs"
)
_OK = '{"status":"ok"'  # how a document of ours begins that reports success

Finished = tuple[int, str]
Rows = list[Any]


class Agenda(NamedTuple):
    """What there is to do. `wait_ms` is the time until something else becomes due.

    `alive` is 0 if the file says that this runner was stopped or replaced. A standby
    asks for its place if `hand_over` is 1, or 2, if for good. `suspects`
    is 1 while jobs are in line that were running when a process died; `plan` is 1 if
    the calendar is asked for the next instants of schedules, and `retain` if something
    may have been kept long enough, which is not in `wait_ms`. `apart` is 1 if a job may
    start on an executor, `slots` and `room` what the file has of each of them.
    """

    now: int
    clock_went_back: int
    alive: int
    hand_over: int | None
    suspects: int
    tick: int
    claim: int
    wait_ms: int
    plan: int
    retain: int
    apart: int = 0
    room: Mapping[str, int] = {}
    slots: Mapping[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing begins now, and no time is to be told to pass."""
        return not (
            self.tick
            or self.claim
            or self.apart
            or self.plan
            or self.retain
            or self.clock_went_back
        )

    def put_off(self, seconds: float) -> Agenda:
        """The same, but for what begins or passes time: that is not to be done now."""
        return self._replace(
            clock_went_back=0,
            tick=0,
            claim=0,
            apart=0,
            plan=0,
            retain=0,
            wait_ms=int(seconds * 1000),
        )


class Progress(NamedTuple):
    """What a task reports of its job, as the parameters of the statement."""

    id: int
    attempt: int
    fraction: float
    message: str | None


class WorkerNews(NamedTuple):
    """Who runs an attempt on an executor, as the parameters of the statement."""

    attempt: int
    worker: str | None
    memory_bytes: int | None


class StuckWait(NamedTuple):
    """A task waits for a job that *object* holds back until the task ends."""

    waiter_id: int
    waiter_task: str
    job_id: int  # or 0, for events of whichever job
    task: str | None
    object: str | None


class Loop:
    """One life of a runner, as the database sees it: begin, look and turn, end.

    With *queues* it is given jobs of these alone. The newest source of its tasks was
    changed at *code_at*, in milliseconds. It has *executors* with so many slots, which
    are mere names where all that is claimed *runs_here*, in the calling thread;
    *clean_up* tells how many milliseconds each leaves to what is out of time.
    """

    def __init__(
        self,
        database: Database,
        threads: int,
        queues: Sequence[str] | None = None,
        *,
        code_at: int | None = None,
        executors: Mapping[str, int] | None = None,
        clean_up: Callable[[], Mapping[str, int]] = dict,
        runs_here: bool = False,
    ) -> None:
        self._clean_up = clean_up
        self.executors = dict(executors or {})
        self._runs_here = runs_here
        self.placed: dict[int, str] = {}
        """On which executor attempts are to run, of those that were claimed last."""
        self._code_at = code_at
        self._database = database
        self._threads = threads
        self._queues = None if queues is None else json.dumps(queues)
        self.runner = 0
        self.after = 0
        """The attempt up to which all that were claimed were given out."""
        self.found_due = False
        """Whether something was due after what the last turn has settled."""
        self._seen_at = 0
        self._told_at = RealTime.since_boot()
        self._unsaid: dict[int, None] = {}
        self._decided: Rows = []

    def begin(
        self,
        declarations: Sequence[Registration],
        serving: Collection[str] | None = None,
    ) -> int:
        """A new runner begins, with these tasks; those before it are over.

        Of these tasks it runs those in *serving*, or all. Returns how many attempts
        those before had open. One that has begun before goes on with what it runs.
        """
        before = self.runner, self.after
        try:
            return self._begin(declarations, serving)
        except BaseException:
            self.runner, self.after = before
            raise

    def _begin(
        self,
        declarations: Sequence[Registration],
        serving: Collection[str] | None,
    ) -> int:
        served = [
            each for each in declarations if serving is None or each.name in serving
        ]
        begins_again = self.runner > 0
        with self._database.transaction() as db:
            declare(db, declarations)
            if not begins_again:
                self.after = db.execute(queries()["last_attempt"]).get
            self.runner = db.execute(
                queries()["start_runner"],
                {
                    "pid": os.getpid(),
                    "host": host_name(),
                    "threads": self._threads,
                    "token": process_token(),
                    "code_at": self._code_at,
                },
            ).get
            if begins_again:
                db.execute(queries()["keep_attempts"], {"runner": self.runner})
            asked = {"runner": self.runner}
            left_open = int(db.execute(queries()["count_open_attempts"], asked).get)
            unknown = self._choose_queues(db)
            self._register_executors(db)
            self.serve(db, {each.name: each.signature for each in served})
            declare_schedules(db, declarations, self.runner)
            replan_zones(db)
            decided = self._first_tick(db)
            news = fetch_lossy(db, queries()["schedule_drift"], None)[1]
            # Who runs some tasks alone knows of the others.
            missing = []
            if serving is None:
                missing = self._database.run("tasks_missing", {"runner": self.runner})
            misfits = self._database.run("tasks_misfit", {"runner": self.runner})
            lacking = self._database.run("executors_missing", {"runner": self.runner})
        for name in unknown:
            log.warning(
                "the runner is to run queue %r, which no job and no task has named so "
                "far; check the name",
                name,
            )
        _log_all(decided)
        _log_schedules(news, declarations)
        self._log_missing(missing)
        for name, users in lacking:
            log.warning(
                "this runner has no executor %r, which these name: %s; their jobs wait "
                "for one that has it: LiteJobs(executors={%r: …})",
                *(name, users, name),
            )
        for task, jobs in misfits:
            log.warning(
                "jobs in line of %s are held, since their arguments do not fit its "
                "code: %d; they wait for code that takes them (see litejobs doctor)",
                *(task, jobs),
            )
        return left_open

    def _first_tick(self, db: apsw.Connection) -> Rows:
        """Orphans of the runners before are settled before the first claim.

        Where neither they nor time have left anything to do, nothing is said: a tick
        reaches nearly all that the database can do, and takes long to prepare.
        """
        asked = {"runner": self.runner, "seen_at": 0}
        agenda = Agenda(*fetch_lossy(db, queries()["agenda"], asked)[1][0])
        if not agenda.tick and not db.execute(queries()["is_anything_left"], asked).get:
            return []
        return _tick(db, {"runner": self.runner, "seen_at": None})

    def retention_told(self, db: apsw.Connection) -> str | None:
        """How long what is kept: once, when a file has its first runner, to be said."""
        if not db.execute(queries()["tell_retention"]).fetchall():
            return None
        return str(db.execute(queries()["retention_told"]).get)

    def _log_missing(self, rows: Rows) -> None:
        """A task may have been renamed: its jobs would wait, and nobody would know."""
        if rows:
            named = [f"{task} ({jobs})" for task, jobs in rows[:MOST_NAMED]]
            more = len(rows) - len(named)
            log.warning(
                "jobs in line of tasks that this runner does not have: %s%s; they wait "
                'for code that has them, or for their new name: renames={"%s": …}',
                ", ".join(named),
                f" and {more} more tasks" if more else "",
                rows[0][0],
            )

    def news(self) -> tuple[Rows, Rows, Rows, Rows]:
        """What in the file may not be as it is meant to be.

        Schedules that are invalid, all schedules, tasks and queues nobody knows.
        """
        runner, queues = {"runner": self.runner}, {"queues": self._queues}
        run = self._database.look
        return (
            run("schedules_invalid"),
            run("schedule_drift"),
            run("tasks_waiting", runner),
            run("unknown_queues", queues) if self._queues is not None else [],
        )

    def _choose_queues(self, db: apsw.Connection) -> list[str]:
        """Only jobs of these queues may be claimed by this runner; the new names."""
        if self._queues is None:
            return []
        queues_given = {"queues": self._queues}
        db.execute(queries()["choose_queues"], queues_given | {"runner": self.runner})
        return [row[0] for row in db.execute(queries()["unknown_queues"], queues_given)]

    def _register_executors(self, db: apsw.Connection) -> None:
        clean_up = self._clean_up()
        for name, slots in self.executors.items():
            named = {
                "name": name,
                "slots": slots,
                "runner": self.runner,
                "clean_up_ms": clean_up.get(name, 0),
            }
            db.execute(queries()["register_executor"], named)
        names = json.dumps(list(self.executors))
        given = {"runner": self.runner, "names": names}
        db.execute(queries()["forget_executors"], given)

    def register_executors(self, slots: Mapping[str, int]) -> None:
        """The runner has these executors now."""
        self.executors = dict(slots)
        with self._database.transaction(TIMES.turn_patience) as db:
            self._register_executors(db)

    def put_executors_back(self) -> bool:
        """Whether those that the file has are others than those of this runner."""
        [(slots, _, _)] = self._database.look("executors_agenda")
        if _numbers_of(slots) == self.executors:
            return False
        self.register_executors(self.executors)
        return True

    def tell_reach(self, away: Mapping[str, bool]) -> None:
        """These executors cannot be reached any more, or can be again."""
        with self._database.transaction(TIMES.turn_patience) as db:
            for name, is_away in away.items():
                named = {"name": name, "away": is_away}
                db.execute(queries()["executor_away"], named)

    def serve(self, db: apsw.Connection, tasks: Mapping[str, str | None]) -> None:
        """Jobs of these tasks may be claimed by this runner, if they fit its code.

        The tasks are given by name, with their signatures.
        """
        db.executemany(
            queries()["serve_task"],
            [{"name": name, "runner": self.runner} for name in tasks],
        )
        db.executemany(
            queries()["sign_task"],
            [
                {"name": name, "signature": signature}
                for name, signature in tasks.items()
            ],
        )

    def put_back(self, declarations: Sequence[Registration]) -> None:
        """The tasks are in the file again, as this runner's."""
        with self._database.transaction(TIMES.turn_patience) as db:
            declare(db, declarations)
            self.serve(db, {each.name: each.signature for each in declarations})
            declare_schedules(db, declarations, self.runner)

    def look(self, *, settles: bool = False) -> Agenda:
        """What there is to do, without writing anything.

        Where something is to be settled a turn comes in any case, which claims for
        executors, too: whether there is anything for them is not asked then.
        """
        parameters = {"runner": self.runner, "seen_at": self._seen_at}
        asked: list[tuple[str, Any]] = [("agenda", parameters)]
        if self.executors and not settles:
            asked.append(("executors_agenda", ()))
        [row], *apart = self._database.look_at(*asked)
        agenda = Agenda(*row)
        if not agenda.clock_went_back:
            self._seen_at = agenda.now
        for [(slots, room, is_any)] in apart:
            agenda = agenda._replace(
                apart=is_any, slots=_numbers_of(slots), room=_numbers_of(room)
            )
        # Of a runner that is over no word is heard but how attempts have ended.
        return agenda if agenda.alive else agenda.put_off(TIMES.held_poll)

    def turn(
        self,
        agenda: Agenda,
        finished: Sequence[Finished] = (),
        *,
        slots: int = 0,
        progress: Sequence[Progress] = (),
        room: Mapping[str, int] | None = None,
        most: int | None = None,
        workers: Sequence[WorkerNews] = (),
        lent: Iterable[int] = (),
    ) -> list[Assignment]:
        """In one transaction: settle what has ended, tick, claim; the new attempts.

        The jobs in *lent* are claimed first, each in the slot of a task that waits.

        With *room* on executors they are claimed for these, too, and at most so many in
        all; `placed` says which.

        What was decided is to be logged afterwards, by `say_decisions`: the new
        attempts are open in the file now, and have to be given to threads first.

        Raises:
            LiteJobsError: Nothing was stored, or it is not known whether it was; call
                again with the same *finished*, what was stored already is recognised.
        """
        known = queries()
        if finished:
            self._database.may_be_killed("settle")
        tick = {"runner": self.runner, "seen_at": self._seen_at}
        decided: Rows = []
        plans = self._plans() if agenda.plan else []
        self.found_due = False
        with self._database.transaction(TIMES.turn_patience, keeps_schema=True) as db:
            if agenda.clock_went_back:
                # Before settling: waits that are planned now must not be moved back.
                decided = _tick(db, tick)
            for report in progress:
                db.execute(known["report_progress"], report._asdict())
            for news in workers:
                db.execute(known["record_worker"], news._asdict())
            if finished:
                self._unsaid |= dict.fromkeys(self._to_be_said(db, finished))
                _settle(db, finished)
                self._unsaid |= dict.fromkeys(_given_up(db, finished))
            for plan in plans:
                record_plan(db, plan)
            if agenda.tick and not agenda.clock_went_back:
                decided = _tick(db, tick)
            elif finished and db.execute(known["is_anything_due"]).get:
                # A retry that waits for no time comes in line by the next tick, which
                # is at once. It is not overtaken by what would be claimed now. Rules
                # may also retry what went well.
                self.found_due = True
                slots, room = 0, None
            for job in lent:
                db.execute(known["lend"], {"runner": self.runner, "job": job})
            rows = self._claim(db, slots, room, most)
        if agenda.clock_went_back:
            self._seen_at = agenda.now
        new = [Assignment._make(row) for row in rows]
        if new:
            self._database.may_be_killed("claim")
        self._decided += decided
        if new:
            self.after = new[-1].attempt_id
        return new

    def _claim(
        self,
        db: apsw.Connection,
        slots: int,
        room: Mapping[str, int] | None,
        most: int | None,
    ) -> Rows:
        known = queries()
        if room is not None:
            if most is None or most > MOST_AT_ONCE:
                # An executor may have very many slots, and others want to write, too.
                most = MOST_AT_ONCE
            told = {"slots": slots, "executors": json.dumps(room), "most": most}
            db.execute(known["claim_room"], {"runner": self.runner} | told)
        elif slots > 0:
            db.execute(known["claim"], {"runner": self.runner, "slots": slots})
        asked = {"after": self.after, "runner": self.runner}
        rows: Rows = db.execute(known["assignments"], asked).fetchall()
        self.placed = {}
        if rows and self.executors:
            self.placed = dict(db.execute(known["placed"], asked))
            for attempt in self.placed if self._runs_here else ():
                here = WorkerNews(attempt, "the calling thread", None)
                db.execute(known["record_worker"], here._asdict())
        return rows

    def claim_in(
        self, execute: Callable[..., Any], slots: int, after: int
    ) -> list[Assignment]:
        """In a transaction of somebody else: attempts that nothing has to come before.

        Those above *after* that are open. Where time has to pass first, or this runner
        is over, there are none: that is for `turn`.
        """
        known = queries()
        asked = {"runner": self.runner, "seen_at": self._seen_at}
        agenda = Agenda(*execute(known["agenda"], asked).fetchone())
        if not (agenda.alive and agenda.claim) or agenda.tick or agenda.plan:
            return []
        execute(known["claim"], {"runner": self.runner, "slots": slots})
        asked = {"after": max(self.after, after), "runner": self.runner}
        return [Assignment._make(row) for row in execute(known["assignments"], asked)]

    def _plans(self) -> list[dict[str, Any]]:
        """What the calendar answers: for a few schedules, so that no job waits long."""
        return answers(self._database.look("planning", {"limit": PLANNED_AT_ONCE}))

    @property
    def clock_is_held(self) -> bool:
        """Whether the clock is one that a test has set."""
        return self._database.clock_is_held

    def retain(self, most: int) -> float:
        """Of what was kept long enough, so much goes; seconds that it took to do it.

        How long the disk takes to store that is not in them.
        """
        told_at = RealTime.since_boot()
        with self._database.transaction(TIMES.turn_patience) as db:
            began = RealTime.monotonic()
            db.execute(queries()["retain"], self._ran(told_at) | {"most": most})
            seconds = RealTime.monotonic() - began
        self._told_at = told_at
        return seconds

    def _ran(self, told_at: float) -> dict[str, Any]:
        """How long it has run since the file was last told.

        What a step that failed has told was not stored: the next one tells it again.
        """
        return {
            "ran_ms": int((told_at - self._told_at) * 1000),
            "process": f"{process_token()} {self.runner}",
            "is_held": self._database.clock_is_held,
            "read_ms": int(told_at * 1000),
        }

    def waited_for(
        self, waits: Sequence[tuple[int, int]], room: Mapping[str, int]
    ) -> tuple[dict[int, str], list[StuckWait]]:
        """Of these *waits* (an attempt and a job): what to start, and what cannot end.

        In so much *room* by executor, the jobs that are to start, each with that of
        its own.
        """
        waits_for_any = any(job == ANY_JOB for _, job in waits)
        line = self._database.look("first_in_line") if waits_for_any else ()
        told = {
            "waits": json.dumps(waits),
            "line": json.dumps([job for (job,) in line]),
            "room": json.dumps(room),
            "runner": self.runner,
        }
        lent, stuck = {}, []
        for what, job, executor, *others in self._database.look("waited_for", told):
            if what == "start":
                lent[job] = executor
            else:
                waiter, waiter_task, task, held_by = others
                stuck.append(StuckWait(waiter, waiter_task, job, task, held_by))
        return lent, stuck

    def is_idle(self) -> bool:
        """Whether all that is due is done."""
        return bool(self._database.look("idle", idle_for(self._database))[0][0])

    def is_any_unended(self, jobs: Sequence[int]) -> bool:
        """Whether one of *jobs* is there that has not ended."""
        if not jobs:
            return False
        asked = {"jobs": json.dumps(jobs)}
        return bool(self._database.look("is_any_unended", asked)[0][0])

    def signals(self, attempts: Iterable[int]) -> list[tuple[int, bool, str | None]]:
        """Those of *attempts* that are closed or to be cancelled: id, open, status."""
        return [
            (attempt, bool(is_open), status)
            for attempt, is_open, status in self._database.look(
                "signals", {"attempts": json.dumps(list(attempts))}
            )
        ]

    def record_stuck_threads(self, threads: int) -> None:
        """So many tasks go on after a time limit or a cancel, and cannot be ended."""
        with self._database.transaction(TIMES.turn_patience) as db:
            stuck = {"runner": self.runner, "stuck": threads}
            db.execute(queries()["record_stuck"], stuck)

    def end(self) -> None:
        """The runner has stopped; what it still has open is an orphan."""
        if not self.runner:
            return  # it has not begun
        with self._database.transaction() as db:
            db.execute(queries()["watch_clock"], self._ran(RealTime.since_boot()))
            db.execute(queries()["stop_runner"], {"runner": self.runner})

    def _to_be_said(
        self, db: apsw.Connection, finished: Sequence[Finished]
    ) -> list[int]:
        """Attempts about which something is decided now; successes only if asked for.

        Those that are closed already are not: what was decided about an attempt that
        was out of time has been said, and what it brings in the end changes nothing.
        """
        if not log.is_enabled(log.ERROR):
            return []
        everything = log.is_enabled(log.INFO)
        ended = [
            attempt
            for attempt, outcome in finished
            if everything or not outcome.startswith(_OK)
        ]
        if not ended:
            return []
        asked = {"attempts": json.dumps(ended)}
        closed = {
            attempt
            for attempt, is_open, _ in db.execute(queries()["signals"], asked)
            if not is_open
        }
        return [attempt for attempt in ended if attempt not in closed]

    def say_decisions(self, raised: Mapping[int, Raised] = {}) -> None:
        """What was decided since this was last called is in the log.

        With what tasks have *raised*, by attempt, where this process has heard it.
        """
        attempts, self._unsaid = list(self._unsaid), {}
        decided, self._decided = self._decided, []
        if attempts:
            self._say_settled(attempts, raised)
        _log_all(decided)

    def say_settled_by_task(self, attempt: int) -> None:
        """What an attempt has settled itself, by `Current.transaction`."""
        if log.is_enabled(log.INFO):
            self._say_settled([attempt], {})

    def _say_settled(self, attempts: list[int], raised: Mapping[int, Raised]) -> None:
        asked = {
            "attempts": json.dumps(attempts),
            "all": log.is_enabled(log.INFO),
            "failed": log.is_enabled(log.WARNING),
            "traces": log.wants_tracebacks(),
        }
        try:
            rows = self._database.look("settled", asked)
        except Exception:
            # All is stored, and the loop goes on.
            log.exception("what became of %d attempts is not logged", len(attempts))
        else:
            _log_all(rows, raised)


def idle_for(database: Database) -> dict[str, Any]:
    """The parameters of `idle`: where the clock stands no rate comes to its end."""
    return {"stands": database.clock_is_held and stands()}


def _numbers_of(document: bytes) -> dict[str, int]:
    found: dict[str, int] = json.loads(document.decode(errors="replace"))
    return found


def _tick(db: apsw.Connection, parameters: dict[str, Any]) -> Rows:
    """Time has passed; what was decided of attempts, to be logged after the commit."""
    known = queries()
    if not log.is_enabled(log.ERROR):
        db.execute(known["tick"], parameters)
        return []
    last = {
        "after": db.execute(known["last_event"]).get,
        "traces": log.wants_tracebacks(),
    }
    db.execute(known["tick"], parameters)
    # Text of another client may not be UTF-8; that must not undo the tick.
    return fetch_lossy(db, known["decided_by_tick"], last)[1]


def _given_up(db: apsw.Connection, finished: Sequence[Finished]) -> list[int]:
    """Those that went well, and a rule has given up their jobs for it.

    Where everything is logged they are known already.
    """
    known = queries()
    if not db.execute(known["is_any_policy"]).get or not log.is_enabled(log.ERROR):
        return []
    well = [attempt for attempt, outcome in finished if outcome.startswith(_OK)]
    asked = {"attempts": json.dumps(well)}
    return [row[0] for row in db.execute(known["given_up_after_success"], asked)]


def _log_all(rows: Rows, raised: Mapping[int, Raised] = {}) -> None:
    for row in rows:
        decision = Decision._make(row)
        log_decision(decision, raised.get(decision.attempt_id))


def _log_schedules(news: Rows, declarations: Iterable[Registration]) -> None:
    """A line for each schedule that is not as the code of this runner has it."""
    ours = {row["name"] for task in declarations for row in task.schedules}
    for name, is_declared, edited, vanished in news:
        if vanished:
            log.warning(
                "schedule %r is not in the code any more; it still runs; pause or "
                "remove it",
                name,
            )
        elif name in ours and (edited or not is_declared):
            log.warning(
                "schedule %r is not as the code says, since a person %s it; remove it "
                "to have it from the code at the next start",
                *(name, "changed" if is_declared else "made"),
            )


def _settle(db: apsw.Connection, finished: Sequence[Finished]) -> None:
    """All of them; one whose document is refused ends as a failure saying so."""
    # One alone by the same statement: another would be prepared, and kept, for it.
    try:
        # A savepoint, so that none is settled twice below.
        with savepoint(db) if len(finished) > 1 else contextlib.nullcontext():
            for many in _lists(finished):
                db.execute(queries()["settle_many"], (many,))
    except (apsw.ConstraintError, apsw.SQLError):
        for attempt, outcome in finished:
            _settle_one(db, attempt, outcome)


def _lists(finished: Sequence[Finished]) -> Iterator[str]:
    """Objects of outcomes by attempt, none much longer than need be.

    With one statement for all, the interpreter is given away and waited for once, not
    once for each of them.
    """
    members: list[str] = []
    size = 0
    for attempt, outcome in finished:
        members.append(f'"{attempt}":{outcome}')
        size += len(outcome)
        if size > SETTLED_AT_ONCE:
            yield f"{{{','.join(members)}}}"
            members.clear()
            size = 0
    if members:
        yield f"{{{','.join(members)}}}"


def _settle_one(db: apsw.Connection, attempt: int, outcome: str) -> None:
    try:
        db.execute(queries()["settle"], (attempt, outcome))
    except apsw.ConstraintError as error:
        document = outcomes.not_retryable(
            "bad_outcome", f"its outcome was refused: {error}"
        )
        db.execute(queries()["settle"], (attempt, document))
