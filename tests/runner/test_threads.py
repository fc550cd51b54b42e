"""The pool's threads survive everything; interrupts hit their function or nothing."""

from __future__ import annotations

import atexit
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from litejobs._process import interrupts
from litejobs._process.interrupts import shielded
from litejobs._process.program_end import Guardian
from litejobs._runner import pool as _pool
from litejobs._runner.pool import DaemonPool, WakeUp, WorkItem
from litejobs.errors import ForkedProcess, TaskCancelled, TaskTimeout
from tests.programs import exit_code_of
from tests.runner.pools import Pool, Submitted

ROOT = Path(__file__).parents[2]
LONG = 30  # seconds: how long a test waits for what must happen; never used up

MakePool = Callable[..., Pool]


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    """Pools that are shut down at the end of the test."""
    made: list[Pool] = []

    def make(threads: int, **options: int) -> Pool:
        made.append(Pool(threads, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.shutdown_within(LONG)
        assert not [each.name for each in _threads_of(pool) if each.is_alive()]


def _threads_of(pool: DaemonPool) -> list[threading.Thread]:
    return [worker.thread for worker in tuple(pool._workers)]


class Gate:
    """A function that waits in C until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        self.began.set()
        assert self.go.wait(LONG)
        return "let go"


def run_all(
    pool: DaemonPool, function: Callable[[Any], Any], values: Sequence[Any]
) -> list[Submitted]:
    futures = [Submitted() for _ in values]
    items = [future.item for future in futures]
    pool.run_all(function, zip(items, values, strict=True))
    return futures


def spin(began: threading.Event) -> None:
    began.set()
    while True:
        pass


# What goes in comes out -----------------------------------------------------------


def test_function_gets_its_arguments_and_its_result_comes_back(
    make_pool: MakePool,
) -> None:
    pool = make_pool(2)
    assert pool.submit(divmod, 17, 5).result(LONG) == (3, 2)
    assert pool.submit(int, "ff", base=16).result(LONG) == 255


def test_batch_runs_in_the_order_it_was_given(make_pool: MakePool) -> None:
    order: list[int] = []
    futures = run_all(make_pool(1), order.append, range(100))
    wait(futures, LONG)
    assert order == list(range(100))


def test_empty_batch_starts_no_thread(make_pool: MakePool) -> None:
    pool = make_pool(4)
    pool.run_all(print, [])
    assert _threads_of(pool) == []


def test_threads_are_daemons_and_no_more_than_asked_for(make_pool: MakePool) -> None:
    pool = make_pool(3)
    gates = [Gate() for _ in range(3)]
    held = [pool.submit(gate) for gate in gates]
    late = pool.submit(threading.get_ident)
    for gate in gates:
        assert gate.began.wait(LONG)
    threads = _threads_of(pool)
    assert len(threads) == 3
    assert all(thread.daemon for thread in threads)
    assert (late.running(), late.done()) == (False, False)
    for gate in gates:
        gate.go.set()
    assert [future.result(LONG) for future in held] == ["let go"] * 3
    assert late.result(LONG) in [thread.ident for thread in threads]


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_ends_up_in_the_future_and_the_thread_goes_on(
    make_pool: MakePool, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    pool = make_pool(1)
    assert pool.submit(fail).exception(LONG) is error
    assert pool.submit(len, "abc").result(LONG) == 3
    assert len(_threads_of(pool)) == 1


def test_cancelled_future_is_never_run(make_pool: MakePool) -> None:
    pool = make_pool(1)
    gate, ran = Gate(), []
    pool.submit(gate)
    assert gate.began.wait(LONG)
    waiting = pool.submit(ran.append, 1)
    assert waiting.cancel()
    gate.go.set()
    assert pool.submit(len, "ab").result(LONG) == 2
    assert ran == []
    with pytest.raises(CancelledError):
        waiting.result(0)


def test_idle_thread_keeps_nothing_of_what_it_ran(make_pool: MakePool) -> None:
    freed = threading.Event()

    class Large:
        def __del__(self) -> None:
            freed.set()

    pool = make_pool(1)
    pool.submit(id, Large())
    assert freed.wait(LONG)


def test_pool_without_any_thread_says_so_and_keeps_nothing_in_line(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = make_pool(2)
    ran: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(ran.append, 1)
    assert pool.submit(len, "ab").result(LONG) == 2
    assert ran == []


def test_pool_goes_on_with_the_threads_it_could_start(
    make_pool: MakePool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = make_pool(4)
    pool.submit(len, "a").result(LONG)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        futures = run_all(pool, len, ["ab", "abc"])
    assert [future.result(LONG) for future in futures] == [2, 3]
    assert "goes on with 1: can't start new thread" in caplog.text


# Work items --------------------------------------------------------------------------


def test_work_item_tells_what_the_function_returned_or_raised(
    make_pool: MakePool,
) -> None:
    returned, raised = run_all(make_pool(1), int, ["17", "no"])
    assert returned.result(LONG) == 17
    assert isinstance(raised.exception(LONG), ValueError)


def test_work_item_waits_until_it_is_begun_and_is_done_when_it_is_told() -> None:
    seen: list[tuple[object, bool]] = []
    item = WorkItem(lambda whose, told: seen.append((whose, told.done())), "mine")
    assert (item.is_waiting(), item.done()) == (True, False)
    assert item.begin()
    assert (item.is_waiting(), item.done(), seen) == (False, False, [])
    item.set_result(5)
    assert (item.is_waiting(), item.done(), item.result()) == (False, True, 5)
    assert seen == [("mine", True)]


def test_work_item_that_was_begun_cannot_be_cancelled() -> None:
    seen: list[object] = []
    item = WorkItem(lambda whose, _: seen.append(whose), "mine")
    assert item.begin()
    assert item.cancel() is False
    assert (item.cancelled(), item.done(), seen) == (False, False, [])


def test_cancelled_work_item_is_told_once_and_never_begun() -> None:
    seen: list[bool] = []
    item = WorkItem(lambda _, told: seen.append(told.cancelled()), None)
    assert item.cancel()
    assert item.cancel()
    assert item.begin() is False
    assert (item.done(), item.is_waiting(), seen) == (True, False, [True])


def test_work_item_that_could_not_be_told_can_be_told_again() -> None:
    seen: list[object] = []

    def told(whose: object, item: WorkItem) -> None:
        seen.append(whose)
        if len(seen) == 1:
            raise MemoryError

    item = WorkItem(told, "mine")
    assert not item.is_untold()
    assert item.cancel()
    assert (item.done(), item.is_untold()) == (True, True)
    item.tell()
    item.tell()
    assert (item.is_untold(), seen) == (False, ["mine", "mine"])


def test_work_item_is_begun_or_cancelled_and_never_both() -> None:
    """Two threads want each of them, in opposite orders, so that they meet once."""
    items = [WorkItem(lambda *_: None, None) for _ in range(20_000)]
    begun: list[bool] = []
    barrier = threading.Barrier(2)

    def begin() -> None:
        barrier.wait(LONG)
        begun.extend([each.begin() for each in items])

    thread = threading.Thread(target=begin)
    thread.start()
    barrier.wait(LONG)
    cancelled = [each.cancel() for each in reversed(items)][::-1]
    thread.join(LONG)
    assert [not each for each in cancelled] == begun


def test_who_cannot_be_told_is_logged_and_the_thread_goes_on(
    make_pool: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(whose: object, item: WorkItem) -> None:
        raise SystemExit(str(whose))

    pool = make_pool(1)
    pool.run_all(len, [(WorkItem(refuse, "nobody"), "ab")])
    assert pool.submit(len, "abc").result(LONG) == 3
    assert "what comes of a job could not be told" in caplog.text


def test_work_item_that_is_over_leaves_no_circle_behind() -> None:
    """Or else every job would wait for the collector."""

    class Job:
        def __init__(self) -> None:
            self.item = WorkItem(lambda *_: None, self)

    done, dropped = Job(), Job()
    assert done.item.begin()
    done.item.set_result(None)
    assert dropped.item.cancel()
    left = [weakref.ref(done), weakref.ref(dropped)]
    gc.disable()
    try:
        del done, dropped
        assert [each() for each in left] == [None, None]
    finally:
        gc.enable()


# Interrupts -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TaskTimeout, KeyboardInterrupt])
def test_interrupt_ends_a_busy_function_and_not_its_thread(
    make_pool: MakePool, kind: type[BaseException]
) -> None:
    pool = make_pool(1)
    began = threading.Event()
    future = pool.submit(spin, began)
    assert began.wait(LONG)
    assert pool.interrupt(future.item, kind)
    assert isinstance(future.exception(LONG), kind)
    assert pool.submit(len, "ab").result(LONG) == 2
    assert len(_threads_of(pool)) == 1


needs_python = pytest.mark.skipif(
    sys.version_info < (3, 12) and sys.gettrace() is not None,
    reason="CPython 3.11 runs no traced code while an interrupt waits for a C call",
)


@needs_python
def test_interrupt_waits_for_a_call_that_blocks_in_c(make_pool: MakePool) -> None:
    pool = make_pool(1)
    gate = Gate()
    future = pool.submit(gate)
    assert gate.began.wait(LONG)
    assert pool.interrupt(future.item, TaskTimeout)
    assert not future.done()
    gate.go.set()
    assert isinstance(future.exception(LONG), TaskTimeout)


@needs_python
def test_only_what_runs_now_is_interrupted_and_only_once(make_pool: MakePool) -> None:
    pool = make_pool(1)
    gate = Gate()
    done = pool.submit(len, "ab")
    running, waiting = pool.submit(gate), pool.submit(len, "abc")
    assert gate.began.wait(LONG)
    stranger = Submitted()
    for future in (done, waiting, stranger):
        assert pool.interrupt(future.item, TaskTimeout) is False
    assert pool.interrupt(running.item, TaskTimeout) is True
    assert pool.interrupt(running.item, TaskCancelled) is False
    gate.go.set()
    assert isinstance(running.exception(LONG), TaskTimeout)
    assert waiting.result(LONG) == 3


def test_shielded_block_is_ended_before_the_interrupt_arrives(
    make_pool: MakePool,
) -> None:
    pool = make_pool(1)
    gate, reached = Gate(), []

    def work() -> None:
        with shielded():
            with shielded():
                gate()
            reached.append("end of the block")
        reached.append("too far")

    future = pool.submit(work)
    assert gate.began.wait(LONG)
    assert pool.interrupt(future.item, TaskTimeout)
    gate.go.set()
    assert isinstance(future.exception(LONG), TaskTimeout)
    assert reached == ["end of the block"]
    # Nothing of it is left for the next function.
    began = threading.Event()
    busy = pool.submit(spin, began)
    assert began.wait(LONG)
    assert pool.interrupt(busy.item, TaskCancelled)
    assert isinstance(busy.exception(LONG), TaskCancelled)


def test_shield_outside_of_a_pool_does_nothing() -> None:
    with pytest.raises(ValueError, match="as it is"), shielded():
        raise ValueError("as it is")


def _hammer(pool: Pool, functions: list[Callable[[], int]], rounds: int) -> None:
    """Interrupts at random moments: each function gives its number or is interrupted.

    The one thread must live on, and whatever ends without an interrupt of its own
    shows that none was delivered to the wrong function.
    """
    interrupted: set[Submitted] = set()
    seen: Counter[str] = Counter()
    for start in range(rounds):
        futures = [pool.submit(function) for function in functions]
        for number, future in enumerate(futures):
            for _ in range((start * 7 + number * 13) % 11):
                pass
            if pool.interrupt(future.item, TaskCancelled):
                interrupted.add(future)
        wait(futures, LONG)
        for number, future in enumerate(futures):
            assert future.done(), "a future was lost"
            error = future.exception(0)
            if error is None:
                assert future.result(0) == number
                seen["result"] += 1
            else:
                assert isinstance(error, TaskCancelled)
                assert future in interrupted, "the interrupt was meant for another"
                seen["interrupted"] += 1
    assert seen.total() == rounds * len(functions)
    assert seen["result"]
    assert len(_threads_of(pool)) == 1, "the thread died"


def test_interrupts_at_random_moments_hit_their_function_or_nothing(
    make_pool: MakePool,
) -> None:
    def count(number: int, times: int) -> int:
        for _ in range(times):
            pass
        return number

    functions = [partial(count, number, number * 40) for number in range(20)]
    pool = make_pool(1)
    _hammer(pool, functions, rounds=100)

    # Those that came too late leave nothing behind that is still to arrive: CPython
    # 3.11 would run no traced code any more, so that a debugger or coverage hangs.
    calls: list[str] = []

    def traced() -> None:
        before = sys.gettrace()
        sys.settrace(lambda frame, *_: calls.append(frame.f_code.co_name))
        count(1, 1)
        sys.settrace(before)

    pool.submit(traced).result(LONG)
    assert calls == ["count"]


@pytest.mark.torture
def test_two_hundred_thousand_interrupts_lose_nothing(make_pool: MakePool) -> None:
    def count(number: int) -> int:
        for _ in range(number * 30):
            pass
        return number

    functions = [partial(count, number) for number in range(20)]
    _hammer(make_pool(1), functions, rounds=10_000)


def test_interrupt_at_each_step_of_the_pools_own_code_loses_nothing(
    make_pool: MakePool,
) -> None:
    """From the moment a function can be interrupted until it no longer can.

    Random moments rarely fall there, so a trace function raises in the interrupt's
    place, before each line in turn. Going back to the line of a `with` to leave it is
    no such moment: the interpreter looks for interrupts when the lock is free again.
    """
    pool = make_pool(1)
    ident = pool.submit(threading.get_ident).result(LONG)

    def function() -> str:
        return "ran"

    def run_interrupted_at(step: int) -> tuple[bool, BaseException | None]:
        left, line, fired, over = step, 0, False, False

        def trace(frame: FrameType, event: str, _: object) -> object:
            nonlocal left, line, fired, over
            code, own = frame.f_code, frame
            if code is _pool._disarm.__code__ and frame.f_back is not None:
                own = frame.f_back
            elif code is not _pool._run.__code__:
                return None
            given = own.f_locals.get("given")
            if getattr(given, "func", None) is not function or over:
                return None
            back, line = event == "line" and frame.f_lineno < line, frame.f_lineno
            worker = interrupts.worker_of[ident]
            if event in {"call", "line"} and not back and worker.item:
                left -= 1
                if left == 0:
                    fired = over = True
                    raise TaskTimeout
            over = own is not frame and event == "return"
            return trace

        pool.submit(sys.settrace, trace).result(LONG)
        future = pool.submit(function)
        error = future.exception(LONG)
        pool.submit(sys.settrace, None).result(LONG)
        return fired, error

    outcomes: list[str] = []
    fired = True
    while fired:
        fired, error = run_interrupted_at(len(outcomes) + 1)
        outcomes.append("ran" if error is None else type(error).__name__)
        assert pool.submit(threading.get_ident).result(LONG) == ident
    # Before the function, after it, and while it is disarmed; in the last run not at
    # all.
    assert outcomes[0] == "TaskTimeout"
    assert outcomes[-3:] == ["ran"] * 3
    assert set(outcomes) == {"ran", "TaskTimeout"}


# Stuck threads --------------------------------------------------------------------


def test_stuck_thread_gives_its_slot_away_and_ends_when_it_comes_back(
    make_pool: MakePool,
) -> None:
    pool = make_pool(1)
    gate = Gate()
    future = pool.submit(gate)
    assert gate.began.wait(LONG)
    stuck = _threads_of(pool)[0]
    assert pool.replace_stuck(future.item) is True
    assert pool.replace_stuck(future.item) is False
    assert pool.stuck == [stuck.name]
    assert pool.submit(len, "ab").result(LONG) == 2
    gate.go.set()
    assert future.result(LONG) == "let go"
    stuck.join(LONG)
    assert not stuck.is_alive()
    assert pool.stuck == []
    assert len(_threads_of(pool)) == 1


def test_no_more_than_the_spare_threads_are_replaced(make_pool: MakePool) -> None:
    pool = make_pool(1, spare=2)
    gates = [Gate() for _ in range(3)]
    answers = []
    for gate in gates:
        future = pool.submit(gate)
        assert gate.began.wait(LONG)
        answers.append(pool.replace_stuck(future.item))
    assert answers == [True, True, False]
    assert len(pool.stuck) == 2
    for gate in gates:
        gate.go.set()


def test_only_what_runs_can_be_stuck(make_pool: MakePool) -> None:
    pool = make_pool(1)
    done = pool.submit(len, "ab")
    done.result(LONG)
    assert pool.replace_stuck(done.item) is False
    assert pool.stuck == []


def test_slot_is_kept_when_no_other_thread_can_be_started(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = make_pool(1)
    gate = Gate()
    future = pool.submit(gate)
    assert gate.began.wait(LONG)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert pool.replace_stuck(future.item) is False
    assert pool.stuck == []
    gate.go.set()
    assert pool.submit(len, "ab").result(LONG) == 2


# The end --------------------------------------------------------------------------


def test_shutdown_finishes_what_is_in_line(make_pool: MakePool) -> None:
    pool = make_pool(2)
    order: list[int] = []
    run_all(pool, order.append, range(50))
    pool.shutdown()
    for thread in _threads_of(pool):
        thread.join(LONG)
    assert sorted(order) == list(range(50))
    assert _threads_of(pool) == []
    with pytest.raises(RuntimeError, match="was shut down; make a new one"):
        pool.submit(len, "ab")
    pool.shutdown()


def test_shutdown_can_cancel_what_has_not_begun(make_pool: MakePool) -> None:
    pool = make_pool(1)
    gate = Gate()
    running = pool.submit(gate)
    assert gate.began.wait(LONG)
    waiting = run_all(pool, len, ["a", "b"])
    pool.shutdown(cancel=True)
    # Those who wait for the futures are told, too.
    assert wait(waiting, LONG).not_done == set()
    assert all(future.cancelled() for future in waiting)
    gate.go.set()
    assert running.result(LONG) == "let go"


def test_bounded_shutdown_leaves_a_function_that_does_not_end(
    make_pool: MakePool,
) -> None:
    pool = make_pool(3)
    gates = [Gate() for _ in range(3)]
    for gate in gates:
        pool.submit(gate)
        assert gate.began.wait(LONG)
    pool.shutdown_within(0)
    assert len(_threads_of(pool)) == 3
    for gate in gates:
        gate.go.set()


def test_function_may_shut_its_own_pool_down(make_pool: MakePool) -> None:
    pool = make_pool(1)
    assert pool.submit(pool.shutdown).result(LONG) is None
    pool = make_pool(1)
    assert pool.submit(pool.shutdown_within, LONG).result(LONG) is None


def test_stuck_thread_is_not_replaced_after_a_shutdown(make_pool: MakePool) -> None:
    """Nobody would ever tell the new one to end."""
    pool = make_pool(1)
    gate = Gate()
    future = pool.submit(gate)
    assert gate.began.wait(LONG)
    pool.shutdown()
    assert pool.replace_stuck(future.item) is False
    gate.go.set()


def test_submitting_while_another_thread_shuts_down_runs_or_refuses(
    make_pool: MakePool,
) -> None:
    for _ in range(50):
        pool = make_pool(1)
        taken: list[Submitted] = []
        pool.submit(len, "").result(LONG)

        def submit(pool: Pool = pool, taken: list[Submitted] = taken) -> None:
            try:
                while True:
                    taken.append(pool.submit(len, "ab"))
            except RuntimeError:
                pass

        thread = threading.Thread(target=submit)
        thread.start()
        while not taken:
            pass
        pool.shutdown()
        thread.join(LONG)
        assert [future.result(LONG) for future in taken] == [2] * len(taken)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_child_refuses_the_pool_of_its_parent() -> None:
    program = textwrap.dedent("""
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from litejobs._process.program_end import guardian
        from tests.runner.pools import Pool

        pool = Pool(1)
        pool.submit(len, "ab").result()
        child = os.fork()
        if not child:
            try:
                pool.submit(len, "ab")
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
                os._exit(7 if said.startswith("ForkedProcess: pool") else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        assert pool.submit(len, "abc").result() == 3
        sys.exit(os.waitstatus_to_exitcode(status))
    """)
    assert _run(program).returncode == 7


def test_pool_of_another_process_names_both(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 4711)
        with pytest.raises(ForkedProcess, match="this is process 4711"):
            pool.submit(len, "ab")


# WakeUp and guardian ----------------------------------------------------------------


def test_wake_up_wakes_once_however_often_it_rang() -> None:
    wake = WakeUp()
    assert wake.is_set() is False
    wake.set()
    wake.set()
    assert wake.is_set() is True
    assert wake.wait(0) is True
    assert wake.wait(0) is False
    wake.set()
    wake.clear()
    wake.clear()
    assert not wake.is_set()


def test_wake_up_ends_a_wait_in_another_thread(make_pool: MakePool) -> None:
    wake = WakeUp()
    waiting = make_pool(1).submit(wake.wait, LONG)
    wake.set()
    assert waiting.result(LONG) is True


def test_guardian_asks_all_runners_before_it_waits_for_any() -> None:
    """Otherwise their grace periods would add up."""
    program = textwrap.dedent("""
        import threading
        from litejobs._process.program_end import Guardian

        class Runner:
            def __init__(self, name):
                self.name = name
                self.asked = threading.Event()
            def request_stop(self):
                print("asked", self.name, flush=True)
                self.asked.set()
                if self.name == "broken":
                    raise RuntimeError("no")
            def stop(self):
                assert all(each.asked.is_set() for each in runners)
                print("stopped", self.name, flush=True)
                if self.name == "broken":
                    raise RuntimeError("no")

        runners = [Runner("broken"), Runner("first"), Runner("second")]
        guardian = Guardian()
        gone = Runner("gone")
        guardian.watch(gone)
        for runner in runners:
            guardian.watch(runner)
        guardian.unwatch(gone)
        guardian.unwatch(gone)
        print("main ends", flush=True)
    """)
    done = _run(program)
    assert done.returncode == 0
    assert done.stdout.split("\n")[:-1] == [
        "main ends",
        *("asked broken", "asked first", "asked second"),
        *("stopped broken", "stopped first", "stopped second"),
    ]
    assert done.stderr.count("could not be stopped") == 2


class Watched:
    """What has nothing to stop."""

    def request_stop(self) -> None: ...
    def stop(self) -> None: ...


def test_guardian_that_comes_late_is_called_at_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the main thread has ended, nothing can be called at its end any more."""

    def refuse(function: Callable[[], object]) -> None:
        raise RuntimeError("can't register atexit after shutdown")

    called: list[object] = []
    monkeypatch.setattr(threading, "_register_atexit", refuse)
    monkeypatch.setattr(atexit, "register", called.append)
    guardian = Guardian()
    guardian.watch(Watched())
    guardian.watch(Watched())
    assert called == [guardian.stop_all]


def test_guardian_is_called_at_exit_where_it_cannot_be_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[object] = []
    monkeypatch.delattr(threading, "_register_atexit")
    monkeypatch.setattr(atexit, "register", called.append)
    guardian = Guardian()
    guardian.watch(Watched())
    assert called == [guardian.stop_all]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_does_not_mistake_a_new_thread_for_a_worker(
    make_pool: MakePool,
) -> None:
    """A new thread may be given the number of one that the parent had."""
    pool = make_pool(2)
    assert pool.submit(interrupts.can_be_interrupted).result(LONG)
    assert not interrupts.can_be_interrupted()

    def fork() -> int:
        child = os.fork()
        if child == 0:
            known = {threading.get_ident()} == set(interrupts.worker_of)
            os._exit(0 if known else 1)
        return exit_code_of(child)

    assert pool.submit(fork).result(LONG) == 0
    child = os.fork()
    if child == 0:
        os._exit(len(interrupts.worker_of))
    assert exit_code_of(child) == 0
