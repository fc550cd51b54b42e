"""What counts as waiting, while a test's clock stands, and for how long."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs._process.clock import clock_is_held, hold_clock, release_clock
from litejobs._runner import in_step
from litejobs._runner.in_step import InStep
from litejobs._storage.waited_for import WaitedFor
from litejobs.errors import ResultTimeout
from litejobs.testing import isolated, standing_clock
from tests.waiting import LONG, Gate, Times, eventually

pytestmark = pytest.mark.usefixtures("no_threads_left")

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FOREVER = float("inf")


@pytest.fixture
def app() -> Iterator[LiteJobs]:
    """An object that is isolated, on a clock that stands still."""
    with standing_clock(START), isolated():
        yield LiteJobs("app.db")


class _Seconds:
    """Real time in the hands of a test, and what other threads have had of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.ran = self.starved = 0.0
        monkeypatch.setattr(in_step, "RealTime", self)
        monkeypatch.setattr(
            in_step, "ran_and_busy_s", lambda: (self.ran, self.ran + self.starved)
        )

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> _Seconds:
    return _Seconds(monkeypatch)


def looks_until_over(
    patience: Any,
    seconds: _Seconds,
    each: float,
    *,
    ran: float = 0.0,
    starved: float = 0.0,
) -> int | None:
    """How many looks it takes, at so many seconds from each other; None for no end."""
    for looks in range(10_000):
        if patience.is_over((1,)):
            return looks
        seconds.now += each
        seconds.ran += ran
        seconds.starved += starved
    return None


def test_who_has_nothing_to_do_seems_to_wait_soon(seconds: _Seconds) -> None:
    patience = in_step._Patience(lambda: False)
    assert looks_until_over(patience, seconds, 0.01) in (20, 21)
    # What it waits for is another thing.
    assert not patience.is_over((2,))


def test_who_looks_again_and_again_seems_to_wait_at_last(seconds: _Seconds) -> None:
    """Several threads that spin, too, though they use more time than there is."""
    patience = in_step._Patience(lambda: False)
    looks = looks_until_over(patience, seconds, 0.01, ran=0.01, starved=0.03)
    assert looks in (200, 201)


def test_who_waits_for_a_processor_does_not_wait_for_us(seconds: _Seconds) -> None:
    """However long it takes: at a lower priority, on a busy machine, say."""
    patience = in_step._Patience(lambda: False)
    assert looks_until_over(patience, seconds, 0.01, starved=0.01) is None


def test_who_always_writes_seems_to_wait_at_last(seconds: _Seconds) -> None:
    """But not who waits for its disk: nothing could be claimed meanwhile."""
    patience = in_step._Patience(lambda: True)
    assert looks_until_over(patience, seconds, 0.01, ran=0.01) in (200, 201)
    patience = in_step._Patience(lambda: True)
    assert looks_until_over(patience, seconds, 0.01) is None


def test_what_passes_between_two_looks_hardly_counts(seconds: _Seconds) -> None:
    patience = in_step._Patience(lambda: False)
    assert not patience.is_over((1,))
    seconds.now += 1.0
    assert not patience.is_over((1,))


def test_who_reads_in_memory_does_not_write(app: LiteJobs) -> None:
    database = app._store.database
    with app.reader() as db:
        db.execute("select 1").fetchall()
        assert not database.has_writer()
    with app.transaction():
        assert database.has_writer()
    assert not database.has_writer()


def test_after_each_step_of_the_test_there_is_time_anew(
    seconds: _Seconds,
) -> None:
    """It has waited for a job, or moved the clock: what follows may take its time."""
    with standing_clock(START) as clock, isolated():
        app = LiteJobs("app.db")
        app.task(name="note")(lambda: None)
        with app.running() as runner:
            step = InStep(
                app._store.database, runner._loop, app._service._companions.notifier
            )

            def held_back() -> bool:
                return step.holds_back((), settles=False, asked=False)

            def let_pass() -> None:
                for _ in range(1000):
                    if not held_back():
                        return
                    seconds.now += 0.01
                raise AssertionError("it is held back for ever")

            let_pass()
            assert not held_back()
            clock.move("1h")
            assert held_back()
            let_pass()
            step.wrote()
            assert held_back()
            let_pass()
            job = app.enqueue("note")
            assert job.result(LONG) is None
            assert held_back()
            let_pass()
            # A look at what has ended is not a step.
            assert job.result(timeout=0) is None
            assert not held_back()


def test_a_look_is_not_a_wait(app: LiteJobs, times: Times) -> None:
    times(in_step_patience=FOREVER)
    app.task(name="note")(lambda: None)
    with app.running() as runner:
        for _ in range(100):
            job = app.enqueue("note")
            with pytest.raises(ResultTimeout):
                job.result(timeout=0)
            assert not runner.wait_idle(0)
    assert app.counts() == {"pending": 100}


def test_a_wait_that_has_run_out_is_over(
    app: LiteJobs, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(in_step_patience=FOREVER)
    gate = Gate()
    app.task(name="gate")(gate)
    app.task(name="note")(lambda: None)
    with app.running() as runner:
        first = app.enqueue("gate")
        while not gate.began.is_set():
            assert not runner.wait_idle(0.01)
        assert not runner.wait_idle(0.01)
        second = app.enqueue("note")
        gate.go.set()
        eventually(lambda: first.state == "completed")
        look, looks = runner._loop.look, []

        def counted(**how: Any) -> Any:
            looks.append(1)
            return look(**how)

        monkeypatch.setattr(runner._loop, "look", counted)
        eventually(lambda: len(looks) > 5)
        assert second.state == "pending"
        assert second.result(LONG) is None


def test_callbacks_are_not_the_test(app: LiteJobs, times: Times) -> None:
    """What they enqueue takes no time from a test that waits in a way of its own."""
    times(in_step_patience=FOREVER)
    app.task(name="note")(lambda: None)
    app.task(name="other")(lambda: None)
    with app.running() as runner:
        app.enqueue("note")
        before = runner._in_step._writes
        assert before > 0
        app.on("completed", lambda event: event.task == "note" and app.enqueue("other"))
        assert runner.wait_idle(LONG)
        assert app.counts() == {"completed": 2}
        assert runner._in_step._writes == before


def test_a_file_on_real_time_is_not_concerned(times: Times) -> None:
    """It was opened before the clock was held: its jobs go on as in production."""
    times(in_step_patience=FOREVER)
    holds = 0
    while clock_is_held():
        release_clock()
        holds += 1
    try:
        with isolated(clock="real"):
            app = LiteJobs("app.db")
            app.task(name="note")(lambda: None)
            with app.running(), standing_clock(START):
                job = app.enqueue("note")
                eventually(lambda: job.state == "completed")
    finally:
        for _ in range(holds):
            hold_clock()


def test_a_runner_may_end_while_somebody_rests() -> None:
    waited_for = WaitedFor()
    answers = iter([False, False, True])
    waited_for.resting = lambda: lambda: next(answers)
    rests = waited_for.rests()
    assert next(rests) > 0
    waited_for.resting = None
    assert len(list(rests)) == 1
    assert list(waited_for.rests()) == []


def test_nobody_waits_after_an_exception() -> None:
    waited_for = WaitedFor()
    with contextlib.suppress(KeyboardInterrupt):
        with waited_for.job(7):
            assert waited_for.ids() == (7,)
            raise KeyboardInterrupt
    assert waited_for.ids() == ()
    assert waited_for.ended == 0


def test_a_run_in_the_foreground_waits(app: LiteJobs, times: Times) -> None:
    times(in_step_patience=FOREVER)
    app.task(name="note")(lambda: None)
    for _ in range(3):
        app.enqueue("note")
    app.run_forever(until_empty=True)
    assert app.counts() == {"completed": 3}
