"""The pool's threads survive everything, and the process ends in time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import Counter
from concurrent.futures import Future, wait
from pathlib import Path
from typing import NamedTuple

import pytest

from litejobs import _pool
from litejobs._pool import DaemonPool, Guardian
from litejobs.errors import (
    Closed,
    ConfigurationError,
    ForkedProcess,
    TaskCancelled,
    TaskInterrupt,
    TaskStopped,
    TaskTimeout,
)

ROOT = Path(__file__).parent.parent
GENEROUS = 20  # seconds: how long a test waits for what must happen; never used up


@pytest.fixture
def make_pool(monkeypatch):
    """Makes pools that are shut down at the end; no thread may print a traceback."""
    pools = []
    loud = []
    monkeypatch.setattr(threading, "excepthook", loud.append)

    def make(threads=1, **options):
        pools.append(DaemonPool(threads, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown_within(0)
    assert loud == []


class Held:
    """A function that says when it has begun, and ends when told."""

    def __init__(self, result=None):
        self.begun = threading.Event()
        self.free = threading.Event()
        self.result = result
        self.thread = None

    def __call__(self):
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.free.wait(GENEROUS)
        return self.result


def spin(begun):
    """Runs Python code until something is raised in here."""
    begun.set()
    while True:
        pass


def names_of(pool, count):
    """The names of *count* threads of the pool, held at the same time."""
    barrier = threading.Barrier(count + 1)

    def meet():
        barrier.wait(GENEROUS)
        return threading.current_thread().name

    futures = [pool.submit(meet) for _ in range(count)]
    barrier.wait(GENEROUS)
    return {future.result(GENEROUS) for future in futures}


# Running --------------------------------------------------------------------------


def test_a_function_gets_its_arguments_and_its_result_comes_back(make_pool):
    pool = make_pool(2)
    assert pool.submit(divmod, 7, 2).result(GENEROUS) == (3, 1)
    assert pool.submit(dict, a=1).result(GENEROUS) == {"a": 1}
    assert list(pool.map(abs, [-1, 2, -3])) == [1, 2, 3]


def test_a_batch_runs_in_the_order_it_was_given(make_pool):
    seen = []
    futures = make_pool(1).submit_all(seen.append, [(n,) for n in range(100)])
    wait(futures, timeout=GENEROUS)
    assert seen == list(range(100))


def test_an_empty_batch_starts_nothing(make_pool):
    pool = make_pool(2)
    assert pool.submit_all(print, []) == []
    assert len(pool._workers) == 0


def test_threads_are_daemons_started_when_needed_and_reused(make_pool):
    pool = make_pool(3, name="hand")
    assert len(pool._workers) == 0
    held = [Held(), Held(), Held()]
    for count, function in enumerate(held, 1):
        pool.submit(function)
        assert function.begun.wait(GENEROUS)
        assert len(pool._workers) == count
    assert {function.thread.name for function in held} == {"hand-1", "hand-2", "hand-3"}
    assert all(function.thread.daemon for function in held)
    for function in held:
        function.free.set()
    wait(pool.submit_all(int, [()] * 200), timeout=GENEROUS)
    assert names_of(pool, 3) == {"hand-1", "hand-2", "hand-3"}


def test_more_work_than_threads_waits_in_line(make_pool):
    pool = make_pool(1)
    first = Held()
    pool.submit(first)
    second = pool.submit(str, 2)
    assert first.begun.wait(GENEROUS)
    assert not second.running()
    assert not second.done()
    first.free.set()
    assert second.result(GENEROUS) == "2"


@pytest.mark.parametrize("threads", [0, -1])
def test_a_pool_without_threads_is_refused(threads):
    with pytest.raises(ConfigurationError, match=f"a pool of {threads} threads runs"):
        DaemonPool(threads)


def test_a_negative_number_of_spare_threads_is_refused():
    with pytest.raises(ConfigurationError, match="spare=-1 is not a number of threads"):
        DaemonPool(1, spare=-1)


@pytest.mark.parametrize(
    "error",
    [
        ValueError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        TaskTimeout,
        MemoryError,
    ],
)
def test_whatever_is_raised_ends_up_in_the_future_and_the_thread_goes_on(
    make_pool, error
):
    pool = make_pool(1)

    def fail():
        raise error("no")

    failed = pool.submit(fail)
    assert type(failed.exception(GENEROUS)) is error
    assert str(failed.exception()) == "no"
    assert names_of(pool, 1) == {"litejobs-worker-1"}


def test_a_callback_that_exits_harms_neither_the_thread_nor_the_outcome(
    make_pool, caplog
):
    pool = make_pool(1)
    held = Held("done")
    future = pool.submit(held)
    future.add_done_callback(lambda _: sys.exit(3))
    held.free.set()
    assert future.result(GENEROUS) == "done"
    assert names_of(pool, 1) == {"litejobs-worker-1"}
    assert "litejobs-worker-1 could not complete" in caplog.text


def test_a_future_that_somebody_else_completed_harms_nothing(make_pool, caplog):
    pool = make_pool(1)
    held = Held()
    future = pool.submit(held)
    assert held.begun.wait(GENEROUS)
    future.set_result("mine")
    held.free.set()
    assert names_of(pool, 1) == {"litejobs-worker-1"}
    assert future.result() == "mine"
    assert "litejobs-worker-1 could not complete" in caplog.text


def test_a_cancelled_future_is_never_run(make_pool):
    pool = make_pool(1)
    held = Held()
    pool.submit(held)
    ran = []
    future = pool.submit(ran.append, 1)
    assert future.cancel()
    held.free.set()
    assert names_of(pool, 1) == {"litejobs-worker-1"}
    assert ran == []


def test_a_thread_in_wait_keeps_neither_arguments_nor_errors(make_pool):
    """Reference counts alone must free them: the collector may run late or never."""

    class Large:
        pass

    def fail(argument):
        raise ValueError

    pool = make_pool(1)
    gc.disable()
    try:
        argument = Large()
        traces = [weakref.ref(argument)]
        for function in (id, fail):
            future = pool.submit(function, argument)
            wait([future], timeout=GENEROUS)
            traces.append(weakref.ref(future))
        names_of(pool, 1)  # the thread has put the work before out of its hands
        del argument, future
        assert [trace() for trace in traces] == [None, None, None]
    finally:
        gc.enable()


def test_no_thread_at_all_is_told_to_the_caller_and_nothing_stays_in_line(
    make_pool, monkeypatch, caplog
):
    pool = make_pool(2)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="has no thread and can start none"):
            pool.submit(int)
    assert "cannot start a thread: can't start new thread" in caplog.text
    assert pool.submit(int).result(GENEROUS) == 0
    assert pool.shutdown_within(GENEROUS) == []


def test_a_pool_goes_on_with_the_threads_it_could_start(make_pool, monkeypatch):
    pool = make_pool(2)
    held = Held()
    pool.submit(held)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        second = pool.submit(int)
    held.free.set()
    assert second.result(GENEROUS) == 0
    assert len(names_of(pool, 2)) == 2


# Interrupting ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TaskTimeout, TaskCancelled, KeyboardInterrupt])
def test_an_interrupt_ends_a_busy_function_and_not_the_thread(make_pool, kind):
    pool = make_pool(1)
    begun = threading.Event()
    future = pool.submit(spin, begun)
    assert begun.wait(GENEROUS)
    assert pool.interrupt(future, kind)
    assert type(future.exception(GENEROUS)) is kind
    assert names_of(pool, 1) == {"litejobs-worker-1"}
    assert not any(worker.armed for worker in pool._workers)


def test_a_function_that_swallowed_an_interrupt_can_be_interrupted_again(make_pool):
    pool = make_pool(1)
    begun, swallowed = threading.Event(), threading.Event()

    def stubborn():
        try:
            spin(begun)
        except TaskCancelled:
            spin(swallowed)

    future = pool.submit(stubborn)
    assert begun.wait(GENEROUS)
    assert pool.interrupt(future, TaskCancelled)
    assert swallowed.wait(GENEROUS)
    assert pool.interrupt(future, TaskStopped)
    assert type(future.exception(GENEROUS)) is TaskStopped


def test_an_interrupt_waits_for_a_call_that_blocks_in_c(make_pool):
    pool = make_pool(1)
    begun, gate = threading.Event(), threading.Lock()
    gate.acquire()

    def blocked():
        begun.set()
        try:
            gate.acquire()
        except TaskTimeout:
            return "caught"

    future = pool.submit(blocked)
    assert begun.wait(GENEROUS)
    assert pool.interrupt(future, TaskTimeout)
    gate.release()
    assert future.result(GENEROUS) == "caught"
    assert names_of(pool, 1) == {"litejobs-worker-1"}


def test_only_a_running_future_of_this_pool_can_be_interrupted(make_pool):
    pool, other = make_pool(1), make_pool(1)
    held = Held("fine")
    running, waiting = pool.submit(held), pool.submit(int)
    assert held.begun.wait(GENEROUS)
    assert not pool.interrupt(waiting, TaskTimeout)
    assert not pool.interrupt(Future(), TaskTimeout)
    assert not other.interrupt(running, TaskTimeout)
    held.free.set()
    assert running.result(GENEROUS) == "fine"
    assert waiting.result(GENEROUS) == 0
    assert not pool.interrupt(running, TaskTimeout)


@pytest.mark.parametrize("kind", [TaskTimeout(), int, None, "TaskTimeout"])
def test_only_exception_classes_can_be_raised_in_a_thread(make_pool, kind):
    with pytest.raises(TypeError, match="needs an exception class, not"):
        make_pool(1).interrupt(Future(), kind)


def test_interrupts_at_random_moments_hit_their_function_or_nothing(make_pool):
    """Two threads send interrupts to whatever runs, as fast as they can.

    Short functions give the interpreter away at their very end, where an interrupt is
    most likely to come too late; a few run until they are hit. Each future ends, with
    its own result or with an interrupt that was sent to it, and both workers survive.
    """
    pool = make_pool(2)
    sent: Counter[Future] = Counter()
    over = threading.Event()
    here = Path.cwd()

    def work(n):
        while n == 19:
            pass
        for _ in range(n * 20):
            pass
        if n % 3 == 0:
            raise FileNotFoundError(here.stat(), n)
        return here.stat() and n

    def annoy():
        while not over.is_set():
            for worker in list(pool._workers):
                future = worker.future
                if future is not None and pool.interrupt(future, TaskCancelled):
                    sent[future] += 1

    annoyers = [threading.Thread(target=annoy, daemon=True) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    everything = []
    try:
        for annoyer in annoyers:
            annoyer.start()
        for _ in range(50):
            batch = pool.submit_all(work, [(n,) for n in range(20)])
            assert not wait(batch, timeout=GENEROUS).not_done, "a future was lost"
            everything += enumerate(batch)
    finally:
        over.set()
        sys.setswitchinterval(interval)
    for annoyer in annoyers:
        annoyer.join()
    hits = 0
    for n, future in everything:
        error = future.exception()
        if isinstance(error, TaskInterrupt):
            assert sent[future] > 0
            hits += 1
        elif n % 3 == 0:
            assert error.args[1] == n
        else:
            assert future.result() == n
    assert hits >= 50
    assert names_of(pool, 2) == {"litejobs-worker-1", "litejobs-worker-2"}


@pytest.mark.parametrize("moment", ["after _perform", "in _close_window", "closed"])
def test_an_interrupt_that_arrives_in_the_loop_leaves_the_outcome_alone(
    make_pool, monkeypatch, moment
):
    """The worst moments, made certain: it was sent just before the function ended."""
    sent = []

    def send(worker):
        if not sent:
            sent.append(worker.future)
            worker.armed = True
            _pool._raise_in_thread(worker.ident, ctypes.py_object(TaskTimeout))

    perform, close = _pool._Worker._perform, _pool._Worker._close_window

    def late_perform(worker):
        perform(worker)
        if moment == "after _perform":
            send(worker)

    def late_close(worker):
        if moment == "in _close_window":
            send(worker)
        close(worker)
        if moment == "closed" and not sent:
            sent.append(worker.work[0])
            raise TaskTimeout

    monkeypatch.setattr(_pool._Worker, "_perform", late_perform)
    monkeypatch.setattr(_pool._Worker, "_close_window", late_close)
    pool = make_pool(1)
    futures = pool.submit_all(abs, [(-n,) for n in range(5)])
    assert [future.result(GENEROUS) for future in futures] == [0, 1, 2, 3, 4]
    assert sent == futures[:1]
    assert names_of(pool, 1) == {"litejobs-worker-1"}


# Stuck threads --------------------------------------------------------------------


def test_a_stuck_thread_gives_its_slot_to_another_and_ends_when_it_comes_back(
    make_pool,
):
    pool = make_pool(1)
    held = Held("late")
    future = pool.submit(held)
    waiting = pool.submit(str, "next")
    assert held.begun.wait(GENEROUS)
    assert pool.stuck == []
    before = time.monotonic()
    assert pool.replace_stuck(future)
    assert waiting.result(GENEROUS) == "next"
    [(name, since)] = pool.stuck
    assert name == "litejobs-worker-1"
    assert before <= since <= time.monotonic()
    held.free.set()
    assert future.result(GENEROUS) == "late"
    held.thread.join(GENEROUS)
    assert not held.thread.is_alive()
    assert pool.stuck == []
    assert names_of(pool, 1) == {"litejobs-worker-2"}


def test_the_number_of_slots_stays_the_same(make_pool):
    pool = make_pool(2)
    held = [Held(), Held()]
    futures = [pool.submit(function) for function in held]
    assert all(function.begun.wait(GENEROUS) for function in held)
    assert all(pool.replace_stuck(future) for future in futures)
    assert {name for name, _ in pool.stuck} == {
        "litejobs-worker-1",
        "litejobs-worker-2",
    }
    assert names_of(pool, 2) == {"litejobs-worker-3", "litejobs-worker-4"}
    for function in held:
        function.free.set()
        function.thread.join(GENEROUS)
    wait(pool.submit_all(int, [()] * 50), timeout=GENEROUS)
    assert names_of(pool, 2) == {"litejobs-worker-3", "litejobs-worker-4"}


def test_no_more_than_the_spare_threads_are_replaced_at_once(make_pool):
    pool = make_pool(1, spare=1)
    first, second = Held(), Held()
    one = pool.submit(first)
    assert first.begun.wait(GENEROUS)
    assert pool.replace_stuck(one)
    assert pool.replace_stuck(one), "asking again changes nothing"
    assert len(pool.stuck) == 1
    two = pool.submit(second)
    assert second.begun.wait(GENEROUS)
    assert not pool.replace_stuck(two)
    first.free.set()
    first.thread.join(GENEROUS)
    assert pool.replace_stuck(two), "the spare thread is free again"
    second.free.set()


def test_only_a_running_future_can_be_stuck(make_pool):
    pool = make_pool(1)
    held = Held()
    running, waiting = pool.submit(held), pool.submit(int)
    assert held.begun.wait(GENEROUS)
    assert not pool.replace_stuck(waiting)
    assert not pool.replace_stuck(Future())
    held.free.set()
    wait([running, waiting], timeout=GENEROUS)
    assert not pool.replace_stuck(running)
    assert pool.stuck == []


def test_a_stuck_thread_can_still_be_interrupted(make_pool):
    pool = make_pool(1)
    begun = threading.Event()
    future = pool.submit(spin, begun)
    assert begun.wait(GENEROUS)
    assert pool.replace_stuck(future)
    assert pool.interrupt(future, TaskStopped)
    assert type(future.exception(GENEROUS)) is TaskStopped


def test_a_thread_keeps_its_slot_when_no_other_can_be_started(
    make_pool, monkeypatch, caplog
):
    pool = make_pool(1)
    held = Held()
    future = pool.submit(held)
    assert held.begun.wait(GENEROUS)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not pool.replace_stuck(future)
    assert pool.stuck == []
    assert "cannot start a thread" in caplog.text
    held.free.set()
    assert names_of(pool, 1) == {"litejobs-worker-1"}


def test_a_thread_that_comes_back_while_its_replacement_fails_keeps_its_slot(
    make_pool, monkeypatch
):
    pool = make_pool(1)
    held = Held("back")
    future = pool.submit(held)
    assert held.begun.wait(GENEROUS)

    def refuse(thread):
        held.free.set()
        assert future.result(GENEROUS) == "back"
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not pool.replace_stuck(future)
    assert names_of(pool, 1) == {"litejobs-worker-1"}


# Shutting down --------------------------------------------------------------------


def test_shutdown_finishes_what_is_in_line_and_ends_the_threads(make_pool):
    pool = make_pool(2)
    held = Held()
    pool.submit(held)
    futures = pool.submit_all(str, [(n,) for n in range(20)])
    workers = list(pool._workers)
    held.free.set()
    pool.shutdown()
    assert [future.result(0) for future in futures] == [str(n) for n in range(20)]
    assert not any(worker.is_alive() for worker in workers)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="was shut down and takes no more work"):
        pool.submit(int)


def test_leaving_a_with_block_waits_for_the_work(make_pool):
    with make_pool(1) as pool:
        future = pool.submit(int, "5")
    assert future.result(0) == 5


def test_a_pool_that_never_ran_anything_shuts_down_at_once(make_pool):
    pool = make_pool(1)
    pool.shutdown()
    assert pool._ended.is_set()
    assert pool.shutdown_within(GENEROUS) == []


def test_shutdown_can_cancel_what_has_not_started(make_pool):
    pool = make_pool(1)
    held = Held("ran")
    running = pool.submit(held)
    waiting = pool.submit_all(int, [()] * 3)
    told = []
    waiting[0].add_done_callback(lambda future: told.append(pool.stuck))
    assert held.begun.wait(GENEROUS)
    pool.shutdown(wait=False, cancel_futures=True)
    assert told == [[]], "a callback may ask the pool"
    assert all(future.cancelled() for future in waiting)
    assert not wait(waiting, timeout=GENEROUS).not_done
    held.free.set()
    assert running.result(GENEROUS) == "ran"


def test_a_function_may_shut_its_own_pool_down(make_pool):
    pool = make_pool(1)
    assert pool.submit(lambda: pool.shutdown() or "done").result(GENEROUS) == "done"


def test_a_bounded_shutdown_returns_what_still_runs(make_pool):
    pool = make_pool(3)
    held, stuck = Held(), Held()
    quick = pool.submit(int)
    running, replaced = pool.submit(held), pool.submit(stuck)
    assert held.begun.wait(GENEROUS)
    assert stuck.begun.wait(GENEROUS)
    assert quick.result(GENEROUS) == 0
    assert pool.replace_stuck(replaced)
    assert set(pool.shutdown_within(0.01)) == {running, replaced}
    held.free.set()
    stuck.free.set()
    assert pool.shutdown_within(GENEROUS) == []
    assert running.done()
    assert replaced.done()


def test_a_bounded_shutdown_cancels_the_line_unless_told_otherwise(make_pool):
    for cancel in (True, False):
        pool = make_pool(1)
        held = Held()
        running, waiting = pool.submit(held), pool.submit(int)
        assert held.begun.wait(GENEROUS)
        left = pool.shutdown_within(0, cancel_futures=cancel)
        assert waiting.cancelled() == cancel
        assert set(left) == ({running} if cancel else {running, waiting})
        held.free.set()
        assert pool.shutdown_within(math.inf) == []
        assert waiting.cancelled() or waiting.result() == 0


def test_a_bounded_shutdown_counts_callbacks_as_part_of_the_work(make_pool):
    pool = make_pool(1)
    held = Held()
    future = pool.submit(held)
    assert held.begun.wait(GENEROUS)
    entered, leave = threading.Event(), threading.Event()

    def callback(_):
        entered.set()
        leave.wait(GENEROUS)

    future.add_done_callback(callback)
    held.free.set()
    assert entered.wait(GENEROUS)
    assert pool.shutdown_within(0) == [future]
    leave.set()
    assert pool.shutdown_within(GENEROUS) == []


def test_submitting_while_another_thread_shuts_down_runs_or_refuses(make_pool):
    """Nothing that was accepted stays in line for ever."""
    for _ in range(100):
        pool = make_pool(2)
        accepted = []
        start = threading.Barrier(2)

        def hand_in(pool=pool, accepted=accepted, start=start):
            start.wait(GENEROUS)
            with contextlib.suppress(RuntimeError):
                while True:
                    accepted.append(pool.submit(int))

        thread = threading.Thread(target=hand_in)
        thread.start()
        start.wait(GENEROUS)
        pool.shutdown()
        thread.join(GENEROUS)
        assert all(future.done() for future in accepted)


def test_a_pool_is_of_no_use_in_another_process(make_pool, monkeypatch):
    pool = make_pool(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ForkedProcess, match=r"this is process -1; make a new pool"):
            pool.submit(int)
        pool.shutdown()
        assert pool.shutdown_within(0) == []
    assert pool.submit(int).result(GENEROUS) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_refuses_the_pool_of_its_parent():
    program = """
        pool = DaemonPool(1)
        pool.submit(int).result()
        child = os.fork()
        if not child:
            for use in (
                lambda: pool.submit(int),
                lambda: pool.submit_all(int, [()]),
                lambda: pool.interrupt(None, KeyError),
                lambda: pool.replace_stuck(None),
            ):
                try:
                    use()
                except ForkedProcess as error:
                    assert "make a new pool after the fork" in str(error)
                else:
                    os._exit(1)
            pool.shutdown()
            assert pool.shutdown_within(1) == []
            own = DaemonPool(1)
            assert own.submit(int).result() == 0
            guardian.watch(lambda grace: os._exit(42), 1)
            sys.exit(0)
        print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ended = finish(launch(program))
    assert "child ended with 42" in ended.stdout
    assert ended.code == 0


# The guardian ---------------------------------------------------------------------


@pytest.fixture
def guard():
    guardian = Guardian()
    yield guardian
    for stop in list(guardian._watched):
        guardian.unwatch(stop)


def test_the_guardian_has_a_thread_only_while_something_is_watched(guard):
    def stop_one(grace):
        raise AssertionError

    def stop_two(grace):
        raise AssertionError

    for _ in range(2):
        guard.watch(stop_one, 1)
        guard.watch(stop_two, 1)
        thread = guard._thread
        watches = list(guard._watched.values())
        assert not thread.daemon
        guard.unwatch(stop_one)
        assert thread.is_alive()
        guard.unwatch(stop_two)
        for ended in (thread, *watches):
            ended.join(GENEROUS)
            assert not ended.is_alive()


def test_a_callback_is_watched_once_with_its_latest_grace(guard):
    def stop(grace):
        raise AssertionError

    guard.watch(stop, 1)
    guard.watch(stop, 2)
    [watch] = guard._watched.values()
    assert watch.grace == 2
    guard.unwatch(stop)
    guard.unwatch(stop)
    assert guard._watched == {}


def test_a_bound_method_can_be_unwatched(guard):
    held = Held()
    guard.watch(held.__call__, 1)
    guard.unwatch(held.__call__)
    assert guard._watched == {}


@pytest.mark.parametrize("grace", [-1, math.inf, math.nan])
def test_a_grace_period_that_cannot_be_kept_is_refused(guard, grace):
    with pytest.raises(ConfigurationError, match=f"a grace period of {grace} seconds"):
        guard.watch(print, grace)
    assert guard._thread is None


def test_callbacks_are_called_at_once_with_their_grace_and_none_twice(guard, caplog):
    """The end of the main thread, without ending it."""
    together = threading.Barrier(2)
    called = []

    def stop_one(grace):
        together.wait(GENEROUS)
        called.append(("one", grace))
        guard.unwatch(stop_one)

    def stop_two(grace):
        together.wait(GENEROUS)
        called.append(("two", grace))
        raise SystemExit

    guard.watch(stop_one, 5)
    guard.watch(stop_two, 6)
    thread = guard._thread
    guard._note_main_ended()
    thread.join(GENEROUS)
    assert not thread.is_alive()
    assert sorted(called) == [("one", 5), ("two", 6)]
    assert "stop_two" in caplog.text
    assert "failed while the process was ending" in caplog.text
    with pytest.raises(Closed, match="the main thread has ended"):
        guard.watch(stop_one, 1)


def test_a_callback_that_does_not_return_is_left_behind(guard, caplog):
    held = Held()
    guard._margin = 0.01
    guard.watch(lambda grace: held(), 0)
    thread = guard._thread
    guard._note_main_ended()
    thread.join(GENEROUS)
    assert not thread.is_alive()
    assert "has not returned after a grace period of 0 s" in caplog.text
    held.free.set()


def test_when_no_thread_can_be_started_nothing_is_watched(guard, monkeypatch):
    start = threading.Thread.start
    for refused in ("litejobs-guardian", "litejobs-guardian-stop"):

        def refuse(thread, refused=refused):
            if thread.name == refused:
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                guard.watch(print, 1)
        assert guard._watched == {}
        if guard._thread is not None:
            guard._thread.join(GENEROUS)
    assert guard._thread is None


# The end of the process -----------------------------------------------------------

PREAMBLE = """
import os, signal, sys, threading
from litejobs._pool import DaemonPool, guardian
from litejobs.errors import Closed, ForkedProcess

signal.signal(signal.SIGINT, signal.default_int_handler)
pool = DaemonPool(2)
begun = threading.Event()

def stop(grace):
    left = pool.shutdown_within(grace)
    print("stopped with", len(left), "left", flush=True)
    guardian.unwatch(stop)

def wait_for_ever():
    begun.set()
    threading.Event().wait()

def spin():
    begun.set()
    while True:
        pass
"""

JOBS = {
    "idle": "pool.submit(int).result()",
    "waits for ever": "pool.submit(wait_for_ever); begun.wait()",
    "spins for ever": "pool.submit(spin); begun.wait()",
}

ENDS = {
    "returns": ("", 0),
    "exits": ("sys.exit(3)", 3),
    "fails": ("raise ValueError('main')", 1),
    "is interrupted": (
        "signal.raise_signal(signal.SIGINT)",
        0xC000013A if os.name == "nt" else -signal.SIGINT,
    ),
}


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


def launch(program):
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """How the process ended; one that does not end fails the test."""
    try:
        stdout, stderr = process.communicate(timeout=GENEROUS)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        pytest.fail(f"the process did not end; it wrote {stdout!r} and {stderr!r}")
    return Ended(process.returncode, stdout, stderr)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("end", ENDS)
def test_the_process_ends_in_time_with_its_own_exit_code(end, job):
    statement, code = ENDS[end]
    ended = finish(launch(f"guardian.watch(stop, 0.2)\n{JOBS[job]}\n{statement}\n"))
    left = 0 if job == "idle" else 1
    assert ended.stdout == f"stopped with {left} left\n"
    assert ended.code == code
    if end in ("returns", "exits"):
        assert ended.stderr == ""


@pytest.mark.parametrize("end", ["returns", "exits"])
def test_the_process_ends_when_the_runner_was_closed_before(end):
    statement, code = ENDS[end]
    ended = finish(launch(f"guardian.watch(stop, 60)\nstop(1)\n{statement}\n"))
    assert ended == (code, "stopped with 0 left\n", "")


def test_the_process_ends_when_the_pool_is_not_watched():
    ended = finish(launch(JOBS["spins for ever"]))
    assert ended == (0, "", "")


def test_exit_in_a_job_ends_the_job_only():
    program = """
        guardian.watch(stop, 1)
        assert type(pool.submit(sys.exit, 9).exception()) is SystemExit
        print("goes on", flush=True)
    """
    ended = finish(launch(program))
    assert ended == (0, "goes on\nstopped with 0 left\n", "")


@pytest.mark.parametrize("who", ["pool.submit(os._exit, 7).result()", "os._exit(7)"])
def test_a_hard_exit_ends_the_process_at_once(who):
    assert finish(launch(f"guardian.watch(stop, 60)\n{who}\n")) == (7, "", "")


def test_a_callback_that_hangs_does_not_keep_the_process():
    ended = finish(launch("guardian.watch(lambda grace: wait_for_ever(), 0.2)"))
    assert ended.code == 0
    assert "has not returned after a grace period of 0.2 s" in ended.stderr


def test_graces_of_several_runners_run_at_the_same_time():
    program = """
        together = threading.Barrier(3)
        for n in range(3):
            guardian.watch(lambda grace, n=n: together.wait() and None, 60)
    """
    assert finish(launch(program)) == (0, "", "")


def test_a_standard_thread_pool_that_waits_for_a_job_does_not_keep_the_process():
    """Its own exit hook would join that thread before anything else happened."""
    program = """
        answered = threading.Event()
        guardian.watch(lambda grace: answered.set(), 0.2)

        from concurrent.futures import ThreadPoolExecutor

        pool.submit(wait_for_ever)
        begun.wait()
        ThreadPoolExecutor(1).submit(answered.wait)
    """
    assert finish(launch(program)) == (0, "", "")


def test_a_runner_cannot_be_started_after_the_main_thread_has_ended():
    program = """
        def late():
            threading.main_thread().join()
            try:
                guardian.watch(stop, 1)
            except Closed as error:
                print(error, flush=True)

        threading.Thread(target=late).start()
    """
    ended = finish(launch(program))
    assert ended.code == 0
    assert ended.stdout.startswith("the main thread has ended and the process is about")


def test_the_main_thread_is_joined_where_there_is_no_exit_hook():
    program = """
        del threading._register_atexit
        guardian.watch(stop, 0.2)
        pool.submit(spin)
        begun.wait()
    """
    assert finish(launch(program)) == (0, "stopped with 1 left\n", "")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends SIGINT to a whole console")
def test_a_second_interrupt_ends_the_process_at_once():
    program = """
        def stop_slowly(grace):
            print("stopping", flush=True)
            wait_for_ever()

        guardian.watch(stop_slowly, 1000)
        signal.raise_signal(signal.SIGINT)
    """
    process = launch(program)
    assert process.stdout.readline() == "stopping\n"
    # Again and again: CPython misses a signal that comes just before a lock is taken.
    for _ in range(GENEROUS):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
            break
    assert finish(process).code == -signal.SIGINT
