"""Time that goes on in a copy, from one instant at which anything happens to the next.

What a loop says to a file is said to the copy, in the same order (`Loop.turn`): what
has ended, what the calendar answers, that time has passed, and that there is room. All
that follows is decided by the triggers of the copy. Here is known how attempts end, and
which instant comes next: that is asked (`agenda`), or the end of an attempt that runs.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import attrs

from litejobs._definitions.checks import did_you_mean
from litejobs._definitions.milliseconds import from_ms
from litejobs._process.clock import RealTime
from litejobs._process.sizes import SIZES
from litejobs._schedules import planner
from litejobs._schedules.plans import PLANNED_AT_ONCE, record_plan
from litejobs._simulation.attempts import Ending, Endings, simulated_attempt
from litejobs._storage.rows import savepoint
from litejobs._storage.statements import queries
from litejobs._tasks import outcome as outcomes
from litejobs._values.blocks import block
from litejobs.errors import ConfigurationError, LiteJobsError, TaskCancelled

if TYPE_CHECKING:
    from litejobs._simulation.copies import Copy

THREADS = 8  # where no runner lives that has said how many it has
TOLD_EVERY = 0.1  # seconds of real time
LONGEST_STEP = (
    10  # in powers of 2, ms: where something stays due that nothing is done of
)
TURNS_AT_ONCE = 64  # in a transaction: each page is kept once for a rollback

Told = Callable[[float, int], None]
"""Is called with which part of the time is over, and how many attempts began."""

Without = Mapping[str, Sequence[str]]
"""Names of queues, tasks and schedules: what is as if it were not there."""


@attrs.frozen(kw_only=True)
class Begun:
    """What a copy has before its time goes on, as what reads it later is told.

    `is_new` says that the runner begins with it, since none lives.
    """

    runner: int
    is_new: bool
    threads: int
    start: int
    until: int
    after_job: int
    after_attempt: int
    after_id: int
    open_attempts: list[int]
    depths: dict[str, int]
    notes: list[str]


@attrs.frozen(kw_only=True)
class Went:
    """How far it went: up to which instant, and how many attempts began."""

    reached: int
    attempts: int


def begin(
    copy: Copy,
    *,
    until: int,
    threads: int | None,
    runner_lives: bool,
    without: Without,
) -> Begun:
    """There is a runner, and all that is not to be there is not.

    With *runner_lives* a process runs the jobs of the file, and goes on to do so.
    """
    db, known = copy.connection, queries()
    notes = list(copy.left_out)
    with _transaction(db):
        found: list[Any] = db.execute(known["simulated_open"]).fetchall()
        open_attempts = [int(row[0]) for row in found]
        if db.execute(known["simulated_disk"]).fetchall():
            notes.append("there is room for all: the limits of the disk do not count")
        _leave_out(db, without)
        living: list[Any] = db.execute(known["living_runner"]).fetchall()
        is_new = not (living and runner_lives)
        if not is_new:
            runner = int(living[0][0])
            threads = threads or living[0][4] or THREADS
            room = {"runner": runner, "threads": threads}
            db.execute(known["simulated_room"], room)
        else:
            threads = threads or THREADS
            runner = _start_runner(db, threads)
            notes.append(
                "nobody runs the jobs of this file: a runner is taken to begin now, "
                "with the tasks of the last one"
            )
        if without.get("tasks"):
            db.execute(
                known["simulated_without_tasks"],
                {"tasks": json.dumps(list(without["tasks"]))},
            )
        mark = db.execute(known["simulated_mark"]).fetchone()
        rows: Any = db.execute(known["simulated_depths"]).fetchall()
        depths: dict[str, int] = dict(rows)
    after_job, after_attempt, after_id = mark or (0, 0, 0)
    return Begun(
        runner=runner,
        is_new=is_new,
        threads=threads,
        start=copy.began_ms,
        until=until,
        after_job=after_job,
        after_attempt=after_attempt,
        after_id=after_id,
        open_attempts=open_attempts,
        depths=depths,
        notes=notes,
    )


def _start_runner(db: apsw.Connection, threads: int) -> int:
    """A process begins that is like the last one; what that had open has crashed."""
    known = queries()
    given = {"pid": None, "host": None, "threads": threads, "token": "simulation"}
    runner = int(db.execute(known["start_runner"], given | {"code_at": None}).get)
    this = {"runner": runner}
    db.execute(known["simulated_queues"], this)
    db.execute(known["simulated_serve"], this)
    db.execute(known["simulated_adopt_executors"], this)
    return runner


def _leave_out(db: apsw.Connection, without: Without) -> None:
    if not any(without.values()):
        return
    known = queries()
    names: dict[str, list[str]] = {"queues": [], "tasks": [], "schedules": []}
    for kind, name in db.execute(known["simulated_names"]):
        names[f"{kind}s"].append(name)
    for kind, given in without.items():
        for name in given:
            if name not in names[kind]:
                raise ConfigurationError(
                    f"without names the {kind[:-1]} {name!r:.80}, which the file does "
                    f"not have; {did_you_mean(name, names[kind])}see what it has: "
                    f"litejobs {kind}"
                )
    chosen = {kind: json.dumps(list(without.get(kind, ()))) for kind in names}
    for statement in _LEAVING_OUT:
        db.execute(known[statement], chosen)


_LEAVING_OUT = (
    "simulated_without_schedules",
    "simulated_without_jobs",
    "simulated_without_queues",
)


class Agenda(NamedTuple):
    """What there is to do now, and from when on, as `simulated_agenda` has it."""

    tick: int
    claim: int
    wait_ms: int
    plan: int
    tick_at: int
    claim_at: int
    plan_at: int


class Engine:
    """Drives a copy from now to `begun.until`."""

    def __init__(self, copy: Copy, begun: Begun, endings: Endings) -> None:
        self._db = copy.connection
        self._execute = copy.connection.cursor().execute  # the rows of one at a time
        self._clock = copy.clock
        self._begun = begun
        self._endings = endings
        self._after = 0
        self._attempts = 0
        self._wait_ms = self._idle = self._quiet_until = 0
        self._in_vain = False  # the last claim found nothing that may start
        self._known: Agenda | None = None  # of now, and nothing was done since
        self._foreseen: Agenda | None = None  # of then, and nothing was done since
        self._ends: list[tuple[int, int]] = []
        self._running: dict[int, str] = {}
        self._slots: dict[str, int] = {}
        self._placed: dict[int, str] = {}  # those that run on executors
        self._with_arguments = endings.wants_arguments
        self._turns = 0
        # A statement that ours refuse has done nothing; theirs may stop half-way.
        self._apart = savepoint if copy.has_triggers else contextlib.nullcontext

    def run(self, most: int, told: Told) -> Went:
        """All that happens until then, or until *most* attempts have begun.

        Raises:
            LiteJobsError: Something refuses what is to happen, or it goes round in a
                circle at one instant.
        """
        self._take_over()
        try:
            return self._go_on(most, told)
        finally:
            # What was written is kept by then, or not wanted any more.
            if self._db.in_transaction:
                self._db.execute("rollback")

    def _go_on(self, most: int, told: Told) -> Went:
        begun, clock = self._begun, self._clock
        said_at = RealTime.monotonic()
        span = max(1, begun.until - begun.start)
        while True:
            try:
                self._instant(most)
            except apsw.Error as error:
                raise LiteJobsError(
                    f"the simulation has come to {_text(clock.now_ms)}, where it was "
                    f"refused to go on: {error}; if a trigger of the application does "
                    "so, it would do so then"
                ) from error
            if self._attempts >= most:
                self._keep()
                return Went(reached=clock.now_ms, attempts=self._attempts)
            following = self._following()
            if following > begun.until:
                self._keep()
                clock.now_ms = begun.until
                return Went(reached=begun.until, attempts=self._attempts)
            clock.now_ms = following
            if RealTime.monotonic() - said_at > TOLD_EVERY:
                said_at = RealTime.monotonic()
                told((following - begun.start) / span, self._attempts)

    def _take_over(self) -> None:
        """What the runner has open goes on; what others have left, a tick finds.

        As in `Loop.begin`. Beside a runner that lives nothing is left, and what has
        become due since it last looked comes after what has ended meanwhile; but a
        clock that was put back since is noticed before.
        """
        db, known = self._db, queries()
        with _transaction(db):
            runner = {"runner": self._begun.runner}
            self._slots = dict(db.execute(known["simulated_executors"], runner))
            self._begin(self._given())
            seen_at = db.execute(known["simulated_seen"], runner).get
            asked = runner | {"seen_at": seen_at}
            agenda: Any = db.execute(known["agenda"], asked).fetchone()
            went_back, is_due = agenda[1], agenda[5]
            if not (went_back or is_due) and self._begun.is_new:
                is_due = db.execute(known["is_anything_left"], runner).get
            if went_back or (is_due and self._begun.is_new):
                db.execute(known["tick"], asked)
            self._notice_ends()

    def _instant(self, most: int) -> None:
        """All that happens at the instant that the clock shows."""
        for turn in range(SIZES.simulated_turns):
            finished = self._finished()
            slots = self._slots_left()
            agenda: Agenda | None = None
            if finished and self._clock.now_ms < self._quiet_until:
                # Nothing else is due yet, as the last agenda had it.
                tick, claim, plan = 0, 1, 0
            else:
                agenda = self._known or self._as_foreseen(finished)
                agenda = agenda or self._agenda(slots)
                tick, claim, plan = agenda.tick, agenda.claim, agenda.plan
            apart = bool(self._slots) and self._has_room_apart()
            if agenda and not (
                finished or tick or plan or (claim and slots > 0) or apart
            ):
                self._idle = 0 if turn else self._idle + 1
                self._wait_ms = agenda.wait_ms or 2 ** min(self._idle, LONGEST_STEP)
                self._quiet_until = self._clock.now_ms + agenda.wait_ms
                self._foreseen, self._known = agenda, None
                return
            self._foreseen = self._known = None
            plans = self._plans() if plan else []
            if not self._turns:
                self._db.execute("begin immediate")
            self._turns += 1
            self._turn(finished, plans, tick=tick, slots=slots)
            # Whoever has a constraint that is looked at in the end hears of it now.
            if self._turns >= TURNS_AT_ONCE or self._db.status(_UNMET)[0]:
                self._keep()
            if self._attempts >= most:
                return
        raise LiteJobsError(
            f"the simulation does not get on at {_text(self._clock.now_ms)}: there is "
            "always more to do at that instant; do retries or snoozes wait for no "
            "time, with tasks that take none?"
        )

    def _keep(self) -> None:
        """What was written is stored: nobody else looks, so that is done seldom."""
        if self._turns:
            self._turns = 0
            self._db.execute("commit")

    def _turn(
        self,
        finished: Mapping[int, str],
        plans: Iterable[dict[str, Any]],
        *,
        tick: int,
        slots: int,
    ) -> None:
        execute, known, is_due = self._execute, queries(), False
        most: int | None = None
        if finished:
            self._settle(finished)
        for plan in plans:
            record_plan(self._db, plan)
        if tick:
            self._tick()
        elif finished:
            # Asked in any case, and if nothing can begin there is nothing new. As in
            # `Loop.turn`, what is due comes in line first; then a tick is due, too.
            agenda = self._agenda(slots)
            is_due = bool(agenda.tick) and execute(known["is_anything_due"]).get
            if is_due or not agenda.claim or slots <= 0:
                self._known, slots = agenda, 0
            most = agenda.claim
        if self._slots and not is_due and self._has_room_apart():
            self._known = None
            self._claim_apart(slots)
        elif slots > 0:
            if most is None:
                asked = "simulated_candidates" if self._in_vain else "simulated_ready"
                most = execute(known[asked], (slots,)).get
            slots = most
        if slots > 0:
            given = {"runner": self._begun.runner, "slots": slots}
            execute(known["claim"], given)
            rows = self._given()
            self._in_vain = not rows
            self._attempts += len(rows)
            self._begin(rows)
        if tick and self._running:
            self._notice_ends()

    def _slots_left(self) -> int:
        """How many threads are free."""
        left = self._begun.threads - len(self._running)
        if self._placed:
            left += len(self._placed.keys() & self._running.keys())
        return left

    def _has_room_apart(self) -> bool:
        """Whether a job may start on an executor."""
        [(_, _, may_start)] = self._execute(queries()["executors_agenda"])
        return bool(may_start)

    def _claim_apart(self, slots: int) -> None:
        """As many as there is room for, in threads and on executors."""
        taken = list(map(self._placed.get, self._running))
        room = {name: most - taken.count(name) for name, most in self._slots.items()}
        given = {"runner": self._begun.runner, "slots": max(0, slots), "most": None}
        told = given | {"executors": json.dumps(room)}
        self._execute(queries()["claim_room"], told)
        rows = self._given()
        self._attempts += len(rows)
        self._begin(rows)

    # What is said to the copy -----------------------------------------------------

    def _agenda(self, slots: int) -> Agenda:
        [row] = self._execute(queries()["simulated_agenda"], (slots,))
        return Agenda._make(row)

    def _as_foreseen(self, finished: Mapping[int, str]) -> Agenda | None:
        """What the last agenda says of now, if nothing has happened since it was asked.

        Jobs for which a rate or a tier has room now are to be looked at.
        """
        foreseen, now = self._foreseen, self._clock.now_ms
        if foreseen is None or self._slots:
            return None
        tick, plan = now >= foreseen.tick_at, now >= foreseen.plan_at
        if not (finished or tick or plan):
            return None
        return foreseen._replace(tick=tick, plan=plan)

    def _tick(self) -> None:
        given = {"runner": self._begun.runner, "seen_at": self._clock.now_ms}
        self._execute(queries()["tick"], given)

    def _plans(self) -> list[dict[str, Any]]:
        """What the calendar answers, however long that takes."""
        rows = self._execute(queries()["planning"], {"limit": PLANNED_AT_ONCE})
        requests = [planner.Request._make(row) for row in rows.fetchall()]
        return [planner.plan(each).parameters() for each in requests]

    def _settle(self, finished: Mapping[int, str]) -> None:
        many = ",".join(f'"{attempt}":{each}' for attempt, each in finished.items())
        try:
            with self._apart(self._db):
                self._execute(queries()["settle_many"], (f"{{{many}}}",))
        except (apsw.ConstraintError, apsw.SQLError):
            for attempt, document in finished.items():
                self._settle_one(attempt, document)

    def _settle_one(self, attempt: int, document: str) -> None:
        try:
            self._execute(queries()["settle"], (attempt, document))
        except apsw.ConstraintError as error:
            refused = outcomes.not_retryable(
                "bad_outcome", f"its outcome was refused: {error}"
            )
            self._execute(queries()["settle"], (attempt, refused))

    # What runs --------------------------------------------------------------------

    def _given(self) -> list[Any]:
        given = {"after": self._after, "runner": self._begun.runner}
        return self._execute(queries()["simulated_assignments"], given).fetchall()

    def _begin(self, rows: list[Any]) -> None:
        if rows and self._slots:
            asked = {"runner": self._begun.runner, "after": self._after}
            self._placed |= dict(self._execute(queries()["placed"], asked))
        for row in rows:
            attempt, claimed_at, deadline_at = row[0], row[7], row[8]
            self._after = attempt
            begun = simulated_attempt(row, with_arguments=self._with_arguments)
            has_run_ms = max(0, self._clock.now_ms - claimed_at)
            ending = self._endings.of(begun, has_run_ms)
            self._running[attempt] = ending.document
            ends_at = max(self._clock.now_ms, claimed_at + ending.ran_ms)
            if not _is_timed_out(ending, ends_at, deadline_at):
                heapq.heappush(self._ends, (ends_at, attempt))

    def _finished(self) -> dict[int, str]:
        """Those whose time is over, in the order in which they end."""
        found: dict[int, str] = {}
        while self._ends and self._ends[0][0] <= self._clock.now_ms:
            attempt = heapq.heappop(self._ends)[1]
            document = self._running.pop(attempt, None)
            self._placed.pop(attempt, None)
            if document is not None:
                found[attempt] = document
        return found

    def _notice_ends(self) -> None:
        """What a tick has closed runs no more, and what is to be cancelled ends now."""
        asked = {"attempts": f"[{','.join(map(str, self._running))}]"}
        cancelled: dict[int, str] = {}
        for attempt, is_open, _ in self._execute(queries()["signals"], asked):
            del self._running[attempt]
            if is_open:
                cancelled[attempt] = _CANCELLED
        if cancelled:
            self._settle(cancelled)

    def _following(self) -> int:
        """The next instant at which anything happens."""
        now = self._clock.now_ms
        while self._ends and self._ends[0][1] not in self._running:
            heapq.heappop(self._ends)
        following = now + self._wait_ms
        return min(following, self._ends[0][0]) if self._ends else following


_UNMET = apsw.SQLITE_DBSTATUS_DEFERRED_FKS
_CANCELLED = outcomes.of_error(TaskCancelled("the job was cancelled"), 0)


def _is_timed_out(ending: Ending, ends_at: int, deadline_at: int | None) -> bool:
    """Whether it runs until a tick ends it, since its time is over before."""
    if deadline_at is None:
        return False
    return ends_at > deadline_at or ending.status == "timeout"


def _text(ms: int) -> str:
    return from_ms(ms).isoformat(timespec="milliseconds")


@block
def _transaction(db: apsw.Connection) -> Iterator[None]:
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise
    db.execute("commit")
