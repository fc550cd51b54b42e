"""An exception at any line of ours strands nothing: no turn, no lock, no job.

The lines around the writer's turn are tried one by one; so are those of the loop, of
handing out and of the threads that run tasks.
"""

from __future__ import annotations

import abc
import contextlib
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import litejobs
from litejobs import Job, LiteJobs, Retry, TaskError
from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.interrupts import shielded
from litejobs._runner import attempt, execution, loop, polling, pool, turns
from litejobs._runner import runner as _runner
from litejobs._storage import database as _database
from litejobs._storage import group_commit, refusals, rows, writer_lock
from litejobs.errors import DatabaseBusy, OutcomeUnknown
from tests.runner.linefaults import Lines, Struck, StruckHard, Visit, code_of
from tests.storage.test_group_commit import Crowd, arguments
from tests.waiting import Times

LONG = 30.0  # seconds after which what has not happened never will
MANY = 10_000  # lines, more than there are

WRITING = code_of(
    writer_lock,
    # The file, layer by layer.
    *(each for each in _database.Database.__mro__ if each not in {abc.ABC, object}),
    rows.savepoint,
    refusals.translating,
    group_commit,
    shielded,
)


def run_in_thread(work: Callable[[], Any]) -> Any:
    """What *work* returns, in a thread that no trace function follows."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(work()), daemon=True)
    thread.start()
    thread.join(LONG)
    assert told, "it hangs"
    return told[0]


def check_free(jobs: LiteJobs) -> None:
    """The turn is free, nobody is in line, and others can write."""
    database = jobs._store.database
    turn = database._turn

    def look() -> tuple[Any, ...]:
        # From elsewhere: a lock of one's own is not an obstacle to oneself.
        free = turn.mutex.acquire(timeout=LONG)
        if free:
            turn.mutex.release()
        return free, turn.owner, list(turn.waiting), set(turn.asking)

    assert run_in_thread(look) == (True, None, [], set())
    assert database._writing is False
    job = run_in_thread(lambda: jobs.enqueue("note", {"n": "after"}))
    assert job.state == "pending"


# Around the writer's turn -------------------------------------------------------------


def alone(jobs: LiteJobs) -> None:
    jobs.enqueue("note", {"n": "mine"})


def in_a_block(jobs: LiteJobs) -> None:
    with jobs.transaction():
        jobs.enqueue("note", {"n": "mine"})


def in_a_block_in_a_block(jobs: LiteJobs) -> None:
    with jobs.transaction(), jobs._store.database.transaction():
        jobs.enqueue("note", {"n": "mine"})


def in_a_block_that_fails(jobs: LiteJobs) -> None:
    with jobs.transaction():
        jobs.enqueue("note", {"n": "never"})
        raise ZeroDivisionError


def look_for_commits(jobs: LiteJobs) -> None:
    jobs._store.database.look_for_others()


def read(jobs: LiteJobs) -> None:
    jobs._store.database.run("now")


def cut_the_log(jobs: LiteJobs) -> None:
    jobs._store.database.cut_log()


def impatient(jobs: LiteJobs) -> None:
    """Nobody else has the turn, so there is nothing to wait for."""
    with jobs._store.database.transaction(0.001) as db:
        db.execute("select 1")


WRITES = [
    alone,
    in_a_block,
    in_a_block_in_a_block,
    in_a_block_that_fails,
    look_for_commits,
    read,
    cut_the_log,
    impatient,
]


# Every third line, others in a file than in memory; in the long form all.
TRIED = [
    pytest.param(":memory:", Struck, range(1, MANY, 3), id=":memory:-Struck"),
    pytest.param("jobs.db", StruckHard, range(2, MANY, 3), id="jobs.db-StruckHard"),
    *(
        pytest.param(
            *(name, error, range(1, MANY)),
            id=f"{name}-{error.__name__}-all",
            marks=pytest.mark.torture,
        )
        for name in (":memory:", "jobs.db")
        for error in (Struck, StruckHard)
    ),
]


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Callable[[str], LiteJobs]]:
    """Makes jobs in memory, or in a file of this name."""
    with contextlib.ExitStack() as stack:

        def make(name: str) -> LiteJobs:
            jobs = LiteJobs(name if name == ":memory:" else tmp_path / name)
            stack.callback(jobs.close)
            return jobs.open()

        yield make


@pytest.mark.parametrize("write", WRITES, ids=lambda each: each.__name__)
@pytest.mark.parametrize(("name", "error", "tried"), TRIED)
def test_exception_at_any_line_of_a_write_leaves_the_turn_free(
    named: Callable[[str], LiteJobs],
    name: str,
    write: Callable[[LiteJobs], None],
    error: type[BaseException],
    tried: range,
) -> None:
    jobs = named(name)
    struck: list[Visit] = []
    for at in tried:
        before = arguments(jobs)
        lines = Lines(WRITING, error=error, at=at)
        [told] = run_in_thread(
            lambda lines=lines: [lines.during(lambda: write(jobs))]  # type: ignore[misc]
        )
        with noting(lines):
            check_free(jobs)
            now = arguments(jobs)
            new = [now[number] for number in now.keys() - before.keys()]
            new.remove("after")
            assert new in ([], ["mine"])
            if told is None and write in {alone, in_a_block, in_a_block_in_a_block}:
                assert new == ["mine"]
        if lines.struck is None:
            break
        assert told is not None, lines.struck
        struck.append(lines.struck)
    assert len(struck) * tried.step > (20 if told is None and write is alone else 1)


@contextlib.contextmanager
def noting(lines: Lines) -> Iterator[None]:
    """An assertion that fails says at which line the exception was raised."""
    try:
        yield
    except AssertionError as wrong:
        wrong.add_note(f"after an exception at {lines.struck}")
        raise


@pytest.mark.parametrize(("name", "error", "tried"), TRIED)
def test_exception_at_any_line_of_who_writes_for_others_lies_to_nobody(
    named: Callable[[str], LiteJobs],
    name: str,
    error: type[BaseException],
    tried: range,
) -> None:
    """While it waits, while it writes for those behind it, and while it goes."""
    jobs = named(name)
    note = jobs.task(name="note")(lambda n: None)
    note.enqueue("first")
    turn = jobs._store.database._turn
    struck: list[Visit] = []
    for at in tried:
        before = arguments(jobs)
        crowd = Crowd(jobs)
        lines = Lines(WRITING, error=error, at=at)
        told: list[Any] = []

        def work(lines: Lines = lines, told: list[Any] = told) -> None:
            told.append(lines.during(lambda: note.enqueue(0)))

        victim = threading.Thread(target=work, daemon=True)
        with turn:
            victim.start()
            while victim.is_alive() and not turn.waiting:
                pass
            crowd.join_line(*(lambda n=n: note.enqueue(n) for n in (1, 2, 3)))
        with noting(lines):
            victim.join(LONG)
            assert not victim.is_alive()
            others = crowd.done()
            new = {
                number: value
                for number, value in arguments(jobs).items()
                if number not in before
            }
            stored = sorted(new.values())
            # Those who wait are told what has become of theirs, and it is stored once.
            assert len(set(stored)) == len(stored)
            for n, each in enumerate(others, 1):
                if isinstance(each, OutcomeUnknown):
                    continue
                assert new[each.id] == n
            if not isinstance(told[0], error):
                assert new[told[0].id] == 0
            check_free(jobs)
        if lines.struck is None:
            break
        struck.append(lines.struck)
    together = {each.function for each in struck}
    assert {"Writing._commit_together", "FairLock.take", "answer"} <= together


@pytest.mark.parametrize(("name", "error", "tried"), TRIED)
def test_exception_at_any_line_of_a_wait_that_is_given_up_leaves_the_line(
    named: Callable[[str], LiteJobs],
    name: str,
    error: type[BaseException],
    tried: range,
) -> None:
    jobs = named(name)
    turn = jobs._store.database._turn
    struck: list[Visit] = []
    for at in tried:
        lines = Lines(WRITING, error=error, at=at)
        with turn:
            told = run_in_thread(
                lambda lines=lines: lines.during(lambda: impatient(jobs))  # type: ignore[misc]
            )
        with noting(lines):
            assert isinstance(told, (error, DatabaseBusy))
            check_free(jobs)
        if lines.struck is None:
            break
        struck.append(lines.struck)
    assert "FairLock.leave" in {each.function for each in struck}


# The loop, the hand-out and the threads -----------------------------------------------

RUNNING = (
    WRITING
    | code_of(
        _runner.Runner,
        turns.Turns,
        attempt.Running,
        polling.Polling,
        loop,
        pool.DaemonPool,
        pool.WorkItem,
        pool.WakeUp,
        pool._run,
        pool._give_up,
        pool._disarm,
        log,
    )
    | code_of(execution)
) - code_of(_runner.Runner.health.fget, _runner.Runner.stop)  # type: ignore[attr-defined]
DELICATE = {"Loop.turn", "Turns._turn", "Turns._hand_out", "WorkItem.tell", "_run"}
OURS = frozenset({"litejobs-loop", "litejobs-worker"})


@pytest.fixture
def hasty(times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a runner waits for when all is well, or after an error, comes soon.

    And a loop that dies, in the line that is to keep it alive, does so in silence.
    """
    usual = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if not issubclass(died.exc_type, (Struck, StruckHard)):
            usual(died)

    monkeypatch.setattr(threading, "excepthook", hook)
    # What was lost in an earlier test is not a problem any more.
    log.debug("said")
    times(
        first_pause=0.001,
        longest_wait=0.05,
        poll=0.002,
        prefetch_patience=0.05,
        cancel_patience=LONG,
        lock_pause=0.01,
    )


class Life:
    """A runner from its start to its stop, with jobs of all kinds."""

    def __init__(self) -> None:
        self.jobs = LiteJobs(":memory:")
        self.starts: Counter[tuple[int, int]] = Counter()
        again = Retry.constant(0, max_attempts=9)

        @self.jobs.task(retry=again)
        def good() -> str:
            self._start()
            litejobs.current().progress(0.5)
            return "done"

        @self.jobs.task(retry=again)
        def flaky() -> None:
            if self._start() == 1:
                raise ZeroDivisionError

        @self.jobs.task(retry=again)
        def bad() -> None:
            self._start()
            raise TaskError("BAD", retryable=False)

        @self.jobs.task(retry=again)
        def patient() -> None:
            self._start()
            current = litejobs.current()
            began.set()
            current.wait(LONG)
            current.check()

        @self.jobs.task(retry=again)
        def settling() -> None:
            self._start()
            with litejobs.current().transaction():
                pass

        self._began = began = threading.Event()
        self.has_died = False
        self.ends = {
            good: "completed",
            flaky: "completed",
            bad: "dead_lettered",
            settling: "completed",
            patient: "cancelled",
        }

    def _start(self) -> int:
        current = litejobs.current()
        self.starts[current.job_id, current.start_no] += 1
        return current.attempt

    def live(self, lines: Lines) -> None:
        """All jobs end as they should, whatever *lines* raises in between."""
        with lines, contextlib.closing(self.jobs):
            lines.armed = True
            runner = self.jobs.start(threads=2, grace=LONG)
            try:
                mine = {task.enqueue(): end for task, end in self.ends.items()}
                mine |= {self.jobs.enqueue("good"): "completed" for _ in range(3)}
                waits = next(job for job, end in mine.items() if end == "cancelled")
                self._await(runner, mine, waits)
                # Nobody else has to wait either.
                assert run_in_thread(lambda: self.jobs.enqueue("note"))
            finally:
                runner.request_stop()
                # In its grace period, and a little more; then it counts as stopped.
                assert any(runner.wait_stopped(LONG) for _ in range(3))
                lines.armed = False
            self.jobs.stop()
            check_free(self.jobs)
            # Where the loop has died, in the line that is to keep it alive, the next
            # runner finds what it has left.
            waits.cancel()
            assert self.jobs.drain() == 0 or self.has_died
            assert [job.state for job in mine] == list(mine.values())
            assert set(self.starts.values()) == {1}
            # Not here: who has its connection keeps it from the next life, which would
            # prepare all statements again.
            self._check_stopped()

    def _check_stopped(self) -> None:
        """No runner has been left as one that runs."""
        with self.jobs.reader() as db:
            running = "select 1 from litejobs_runner where stopped_at is null"
            assert db.execute(running).fetchall() == []

    def _await(
        self, runner: _runner.Runner, mine: dict[Job[Any], str], waits: Job[Any]
    ) -> None:
        """The jobs have ended as they should, or the health says why not."""
        until = RealTime.monotonic() + LONG
        asked, pause = False, threading.Event()
        while left := [job.id for job, end in mine.items() if job.state != end]:
            pause.wait(0.001)
            asked = asked or (self._began.wait(0.001) and waits.cancel())
            if not runner.health["running"]:
                assert runner.health["problem"] is not None
                self.has_died = True
                return
            assert RealTime.monotonic() < until, (left, runner.health)


def visits() -> list[Visit]:
    """The lines that a runner's life comes to, each in its first two visits.

    Which ones depends a little on who comes first, so several lives are looked at.
    """
    seen: dict[Visit, None] = {}
    for _ in range(3):
        lines = Lines(RUNNING, roles=OURS, leaving=False)
        Life().live(lines)
        seen |= dict.fromkeys(each for each in lines.seen if each.nth <= 2)
    return list(seen)


def try_each(chosen: list[tuple[Visit, type[BaseException]]]) -> int:
    """How many of these lines were reached when an exception waited there."""
    reached = 0
    for visit, error in chosen:
        lines = Lines(RUNNING, error=error, visit=visit, roles=OURS, leaving=False)
        with noting(lines):
            Life().live(lines)
        reached += lines.struck is not None
    return reached


@pytest.mark.usefixtures("hasty")
def test_exception_at_a_line_of_a_runner_strands_no_job() -> None:
    """A few lines, always the same ones as long as their functions are."""
    first: dict[str, int] = {}
    for each in (all_of_them := visits()):
        first[each.function] = min(each.line, first.get(each.function, each.line))
    chosen = []
    for each in all_of_them:
        place = f"{each.role} {each.function} {each.line - first[each.function]}"
        lot = zlib.crc32(f"{place} {each.nth}".encode())
        if lot % (18 if each.function in DELICATE else 240) == 0:
            chosen.append((each, (Struck, StruckHard)[lot // 720 % 2]))
    assert len(chosen) > 10
    assert try_each(chosen) > len(chosen) / 2


@pytest.mark.torture
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("error", [Struck, StruckHard])
def test_exception_at_each_line_of_a_runner_strands_no_job(
    error: type[BaseException],
) -> None:
    chosen = [(each, error) for each in visits()]
    assert len(chosen) > 1000
    assert try_each(chosen) > len(chosen) * 0.9
