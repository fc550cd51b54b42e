"""A loop that settles asks what is due only when that may have changed.

Here the looks that reach the file are counted, and nothing depends on how long a test
takes: what was seen is made to do for a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, Retry
from litejobs._runner.loop import Agenda, Loop
from litejobs._runner.outlook import Outlook
from litejobs._storage.runner_lock import lock_of
from litejobs.testing import held_clock, hold_clock, release_clock
from tests.rows import for_each
from tests.waiting import LONG, Gate, Times, eventually

OK = '{"status":"ok","result":null}'
FAILED = '{"status":"error","error":{"type":"ValueError","types":["ValueError"]}}'


class Watched:
    """A loop that has begun on a file, and an outlook of it whose looks are counted."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.jobs = jobs
        database = jobs.open()._store.database
        self.lock = lock_of(database)
        assert self.lock.acquire()
        self.loop = Loop(database, 4)
        self.loop.begin(jobs._registry.registrations())
        self.outlook = Outlook(self.loop)
        self.looks = 0
        self.behind = 0  # milliseconds that the clock of the file seems to be late
        self.seen: dict[str, int] = {}  # what each look finds in place of what is so
        self._look = self.loop.look
        self.loop.look = self._counted  # type: ignore[method-assign]

    def _counted(self, *, settles: bool = False) -> Agenda:
        self.looks += 1
        seen = self._look(settles=settles)
        return seen._replace(now=seen.now - self.behind, **self.seen)

    def claimed(self, slots: int = 1) -> list[int]:
        """The attempts that a turn begins which nothing has ended before."""
        seen = self.outlook.look(settles=False)
        return self.turn(seen, [], slots)

    def settled(self, attempt: int, outcome: str, slots: int = 0) -> list[int]:
        """What begins where this attempt has ended."""
        seen = self.outlook.look(settles=True)
        return self.turn(seen, [(attempt, outcome)], slots)

    def turn(self, seen: Agenda, finished: Any, slots: int) -> list[int]:
        claimed = self.loop.turn(seen, finished, slots=slots)
        self.outlook.turned()
        return [each.attempt_id for each in claimed]


@pytest.fixture(autouse=True)
def patience(times: Times) -> None:
    """What was seen does for so long that no test is slower."""
    times(poll=LONG, turns_unseen=LONG, other_clock=LONG)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    """On the clock of the operating system, as in production."""
    release_clock()
    try:
        with LiteJobs(tmp_path / "jobs.db") as jobs:
            yield jobs
    finally:
        hold_clock()


@pytest.fixture
def watched(jobs: LiteJobs) -> Iterator[Watched]:
    jobs.task(name="work", retry=Retry.fixed(["1h", "1h"], jitter=0))(lambda: None)
    jobs.task(name="again", retry=Retry.constant(0, max_attempts=3, jitter=0))(
        lambda: None
    )
    watched = Watched(jobs)
    yield watched
    watched.lock.release()


def test_what_was_just_seen_does_for_turns_that_settle(watched: Watched) -> None:
    for _ in range(5):
        watched.jobs.enqueue("work")
    [attempt] = watched.claimed()
    for _ in range(4):
        [attempt] = watched.settled(attempt, OK, slots=1)
    assert watched.settled(attempt, OK, slots=1) == []
    assert watched.looks == 1
    assert watched.jobs.counts() == {"completed": 5}


def test_with_nothing_to_settle_it_looks(watched: Watched) -> None:
    watched.claimed()
    watched.claimed()
    assert watched.looks == 2


def test_where_others_have_written_it_looks(watched: Watched) -> None:
    watched.jobs.enqueue("work")
    [attempt] = watched.claimed()
    watched.outlook.written()
    watched.settled(attempt, OK)
    assert watched.looks == 2


def test_after_so_many_seconds_it_looks(watched: Watched, times: Times) -> None:
    watched.jobs.enqueue("work")
    times(turns_unseen=0.0)
    [attempt] = watched.claimed()
    watched.settled(attempt, OK)
    assert watched.looks == 2


def test_where_nobody_has_written_it_looks_after_a_poll(
    watched: Watched, times: Times
) -> None:
    times(poll=0.0)
    watched.outlook.look(settles=False)
    watched.outlook.look(settles=True)
    assert watched.looks == 2


def test_what_is_due_at_once_comes_in_line_by_the_next_turn(watched: Watched) -> None:
    """A retry that waits for no time is not overtaken by what would be claimed."""
    job = watched.jobs.tasks["again"].using(priority=1).enqueue()
    watched.jobs.enqueue("work")
    watched.jobs.enqueue("work")
    attempt, other = watched.claimed(2)
    assert watched.settled(attempt, FAILED, slots=1) == []
    watched.settled(other, OK, slots=1)
    assert watched.looks == 2
    assert job.snapshot().starts == 2


def test_what_is_due_by_time_is_looked_for(watched: Watched) -> None:
    """What waits for an instant that has come is not put off by what has ended."""
    watched.jobs.enqueue("work")
    [attempt] = watched.claimed()
    watched.seen = {"wait_ms": 0}
    watched.outlook.look(settles=False)
    watched.settled(attempt, OK)
    assert watched.looks == 3


@for_each(
    "seen",
    [
        {"alive": 0},
        {"hand_over": 1},
        {"suspects": 1},
        {"tick": 1},
        {"plan": 1},
        {"retain": 1},
        {"clock_went_back": 1},
    ],
)
def test_where_anything_was_to_be_done_it_looks(
    watched: Watched, seen: dict[str, int]
) -> None:
    watched.seen, watched.looks = seen, 0
    watched.outlook.look(settles=False)
    watched.outlook.look(settles=True)
    assert watched.looks == 2


@for_each("step_ms", [-3_600_000, 3_600_000])
def test_where_the_clock_was_set_it_looks(watched: Watched, step_ms: int) -> None:
    watched.behind, watched.looks = step_ms, 0
    watched.outlook.look(settles=False)
    watched.outlook.look(settles=True)
    assert watched.looks == 2


def test_on_a_held_clock_it_looks(tmp_path: Path) -> None:
    """A test may have moved it, and time does not pass by itself."""
    with held_clock(), LiteJobs(tmp_path / "held.db") as jobs:
        watched = Watched(jobs)
        watched.outlook.look(settles=False)
        watched.outlook.look(settles=True)
        assert watched.looks == 2
        watched.lock.release()


def test_a_runner_sees_what_threads_of_its_process_write(
    jobs: LiteJobs, gate: Gate
) -> None:
    """While its own turns would do for a minute: a delayed job comes when it is due."""

    @jobs.task
    def slow() -> None:
        gate()

    @jobs.task
    def quick() -> None: ...

    with jobs.running(threads=2, grace=LONG):
        slow.enqueue()
        assert gate.began.wait(LONG)
        soon = quick.using(delay="1ms").enqueue()
        assert soon.result(timeout=LONG) is None
        eventually(lambda: soon.state == "completed")
        gate.go.set()
