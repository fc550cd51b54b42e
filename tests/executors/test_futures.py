"""Tasks run on executors of `concurrent.futures`, in slots that are counted."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, current
from litejobs.errors import ConfigurationError
from litejobs.executors import Futures
from tests.executors import tasks
from tests.waiting import Times, eventually

SPAWN = multiprocessing.get_context("spawn")


class ByHand(Executor):
    """Runs what it is given when the test says so, in the thread of the test."""

    def __init__(self) -> None:
        self.line: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.was_shut = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.line.append((future, lambda: fn(*args, **kwargs)))
        return future

    def begin(self) -> tuple[Future[Any], Callable[[], Any]]:
        """The first in line runs; what ends it is the test's."""
        future, run = self.line.pop(0)
        assert future.set_running_or_notify_cancel()
        return future, run

    def run(self) -> None:
        future, run = self.begin()
        future.set_result(run())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.was_shut = True


class AtOnce(ByHand):
    """Begins all that it is given, and ends it when the test says so."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        future.set_running_or_notify_cancel()
        return future


class Locked(ByHand):
    """Breaks within the lock of its other methods, as pools of processes since 3.12."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self.lock:
            return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self.lock:
            super().shutdown(wait, cancel_futures=cancel_futures)

    def breaks(self, held: threading.Event | None = None) -> None:
        """As it is held, what it does at its end takes until then."""
        with self.lock:
            while self.line:
                self.begin()[0].set_exception(BrokenExecutor("one of it has died"))
            if held is not None:
                assert held.wait(60)


class OneTold(ProcessPoolExecutor):
    """A pool of processes that has none, and tells of one future alone."""

    def __init__(self) -> None:
        super().__init__(1)
        self.line: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        del fn, args, kwargs
        self.line.append(Future())
        return self.line[-1]


class Farm:
    """An object with an executor `far` that a test drives by hand."""

    def __init__(self, slots: int) -> None:
        self.made: list[ByHand] = []
        self.jobs = LiteJobs(
            ":memory:", executors={"far": Futures(self._make, slots=slots)}
        )
        self.job = self.jobs.task(name="where", executor="far", max_crashes=5)(
            tasks.where.function
        )
        self.near = self.jobs.task(name="near")(lambda: "near")

    def _make(self) -> ByHand:
        self.made.append(ByHand())
        return self.made[-1]

    @property
    def far(self) -> ByHand:
        return self.made[-1]


@pytest.fixture
def farm() -> Iterator[Farm]:
    farm = Farm(2)
    yield farm
    farm.jobs.stop(grace=0)
    farm.jobs.close()


def why(job: Any) -> list[str]:
    return [each.code for each in job.why()]


def test_as_many_run_as_there_are_slots_and_threads_go_on(farm: Farm) -> None:
    found = [farm.job.enqueue(number) for number in range(3)]
    farm.jobs.start(threads=1)
    eventually(lambda: len(farm.far.line) == 2)
    assert farm.near.enqueue().result(timeout=60) == "near"
    assert [each.state for each in found] == ["processing", "processing", "pending"]
    assert [(each.code, each.detail) for each in found[2].why()] == [
        ("executor_full", "executor far is full: 2 of 2")
    ]
    farm.far.run()
    assert found[0].result(timeout=60) == [os.getpid(), 0, found[0].id]
    eventually(lambda: len(farm.far.line) == 2)
    farm.far.run()
    farm.far.run()
    assert found[2].result(timeout=60)[1] == 2


def test_an_executor_that_breaks_is_made_anew_and_its_attempts_have_crashed(
    farm: Farm,
) -> None:
    first, second = farm.job.enqueue(1), farm.job.enqueue(2)
    farm.jobs.start(threads=1)
    eventually(lambda: len(farm.far.line) == 2)
    broken = farm.far
    for _ in range(2):
        future, _ = broken.begin()
        future.set_exception(BrokenExecutor("one of it has died"))
    eventually(lambda: [first.state, second.state] == ["failed", "failed"])
    eventually(lambda: len(farm.made) == 2 and broken.was_shut)
    attempt = first.attempts[-1]
    assert attempt.status == "crashed"
    assert attempt.outcome is not None
    assert "has died" in attempt.outcome["error"]["message"]
    first.run_now()
    eventually(lambda: farm.far.line)
    farm.far.run()
    assert first.result(timeout=60)[1] == 1


def test_an_executor_may_break_within_its_own_lock(tmp_path: Path) -> None:
    """Nor does the runner wait for that lock, or a factory that ends the one before."""
    made: list[Locked] = []

    def make() -> Locked:
        made.append(Locked())
        return made[-1]

    held = threading.Event()
    executors = {"far": Futures(make, slots=2)}
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:
        task = jobs.task(name="where", executor="far", max_crashes=1)(
            tasks.where.function
        )
        found = [task.enqueue(number) for number in range(2)]
        jobs.start(threads=1)
        eventually(lambda: len(made[0].line) == 2)
        breaking = threading.Thread(target=made[0].breaks, args=(held,))
        breaking.start()
        eventually(lambda: {each.state for each in found} == {"dead_lettered"})
        found = [task.enqueue(number) for number in range(2)]
        eventually(lambda: len(made) == 2 and len(made[1].line) == 2)
        assert not made[0].was_shut
        for each in found:
            made[1].run()
            each.result(timeout=60)
        held.set()
        breaking.join()
        eventually(lambda: made[0].was_shut)


def test_a_factory_may_end_what_it_made_before(farm: Farm) -> None:
    def make() -> Locked:
        if made:
            made[-1].shutdown()
        made.append(Locked())
        return made[-1]

    made: list[Locked] = []
    farm.jobs.add_executor("near", Futures(make, slots=1))
    task = farm.jobs.task(name="listens", executor="near")(tasks.listens.function)
    first = task.enqueue()
    farm.jobs.start(threads=1)
    eventually(lambda: made and made[0].line)
    made[0].breaks()
    eventually(lambda: first.state == "failed")
    first.run_now()
    eventually(lambda: len(made) == 2 and made[1].line)
    made[1].run()
    assert first.result(timeout=60) == "not told"


def test_all_that_a_pool_of_processes_ran_have_crashed_with_it(tmp_path: Path) -> None:
    """In Python 3.11 it tells of none after one that was cancelled."""
    made: list[OneTold] = []

    def make() -> OneTold:
        made.append(OneTold())
        return made[-1]

    executors = {"far": Futures(make, slots=2)}
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:
        task = jobs.task(name="where", executor="far")(tasks.where.function)
        found = [task.enqueue(number) for number in range(2)]
        jobs.start(threads=1)
        eventually(lambda: len(made[0].line) == 2)
        made[0].line[0].set_exception(BrokenExecutor("one of it has died"))
        eventually(lambda: [each.state for each in found] == ["failed", "failed"])
        assert found[1].attempts[-1].status == "crashed"


def test_threads_that_cannot_begin_are_made_anew(tmp_path: Path) -> None:
    """A pool of threads breaks within its lock, too, if its initializer fails."""
    fails = [True]

    def begin() -> None:
        if fails.pop() if fails else False:
            raise ValueError("not the first time")

    executors = {
        "io": Futures(lambda: ThreadPoolExecutor(1, initializer=begin), slots=1)
    }
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:
        job = jobs.task(name="abs", executor="io")(abs).enqueue(-1)
        jobs.start(threads=1)
        eventually(lambda: job.state in {"failed", "completed"})
        if job.state == "failed":
            assert job.attempts[-1].status == "crashed"
            job.run_now()
        assert job.result(timeout=60) == 1


def test_what_cannot_be_ended_takes_its_slot_until_it_ends(
    farm: Farm, times: Times
) -> None:
    times(cancel_patience=0.0, stuck_patience=0.0)
    jobs = [farm.job.enqueue(number) for number in range(3)]
    farm.jobs.start(threads=1)
    eventually(lambda: len(farm.far.line) == 2)
    future, run = farm.far.begin()
    jobs[0].cancel()
    eventually(lambda: jobs[0].state == "cancelled")
    eventually(lambda: farm.jobs.health()["stuck"] == ["far"])
    assert "take its slots" in " ".join(farm.jobs.health()["problems"])
    assert why(jobs[2]) == ["executor_full"]
    assert jobs[2].state == "pending"
    future.set_result(run())
    # What it brings in the end changes nothing, but there is room.
    eventually(lambda: jobs[2].state == "processing")
    assert jobs[0].state == "cancelled"
    assert farm.jobs.health()["stuck"] == []
    farm.far.run()
    farm.far.run()
    jobs[2].result(timeout=60)


def test_what_is_out_of_time_has_timed_out_and_goes_on(
    tmp_path: Path, times: Times
) -> None:
    times(cancel_patience=0.0, stuck_patience=0.0)
    far = AtOnce()
    jobs = LiteJobs(
        tmp_path / "app.db", executors={"far": Futures(lambda: far, slots=1)}
    )
    job = jobs.task(name="die", executor="far", timeout=0.05, max_attempts=1)(
        tasks.die.function
    ).enqueue()
    with jobs:
        jobs.start(threads=1)
        eventually(lambda: job.state == "dead_lettered")
        assert job.attempts[-1].status == "timeout"
        eventually(lambda: jobs.health()["stuck"] == ["far"])
        [(future, _)] = far.line
        future.set_result(None)
        eventually(lambda: jobs.health()["stuck"] == [])


def test_one_that_has_not_begun_can_be_cancelled(farm: Farm, times: Times) -> None:
    times(cancel_patience=0.0)
    job, other = farm.job.enqueue(1), farm.job.enqueue(2)
    farm.jobs.start(threads=1)
    eventually(lambda: len(farm.far.line) == 2)
    job.cancel()
    eventually(lambda: job.state == "cancelled")
    assert farm.far.line[0][0].cancelled()
    assert farm.jobs.health()["stuck"] == []
    farm.far.line.pop(0)
    farm.far.run()
    other.result(timeout=60)


def test_when_the_runner_stops_what_runs_is_given_back(farm: Farm) -> None:
    job = farm.job.enqueue(1)
    farm.jobs.start(threads=1)
    eventually(lambda: farm.far.line)
    farm.far.begin()
    farm.jobs.stop(grace=0)
    assert job.state == "pending"
    assert job.attempts[-1].status == "interrupted"
    assert farm.far.was_shut
    farm.jobs.start(threads=1)
    eventually(lambda: len(farm.made) == 2 and farm.far.line)
    farm.far.run()
    assert job.result(timeout=60)[1] == 1


def test_one_can_be_added_while_the_runner_runs(farm: Farm) -> None:
    farm.jobs.start(threads=1)
    late = farm.jobs.task(name="halfway", executor="late", max_attempts=1)(
        tasks.halfway.function
    )
    job = late.enqueue()
    eventually(lambda: why(job) == ["no_executor"])
    farm.jobs.add_executor("late", Futures(lambda: ThreadPoolExecutor(1), slots=1))
    eventually(lambda: job.state == "dead_lettered")
    assert job.progress == 0.5


def test_tasks_of_a_thread_pool_need_not_be_imported(tmp_path: Path) -> None:
    jobs = LiteJobs(
        tmp_path / "app.db",
        executors={"io": Futures(lambda: ThreadPoolExecutor(2, "io"), slots=2)},
    )

    @jobs.task(executor="io")
    def name() -> str:
        return threading.current_thread().name

    with jobs:
        job = name.enqueue()
        jobs.start(threads=1)
        assert job.result(timeout=60).startswith("io")


def test_in_the_calling_thread_an_executor_is_a_name() -> None:
    farm = Farm(1)
    with farm.jobs:
        first, second = farm.job.enqueue(1), farm.job.enqueue(2)
        assert farm.jobs.drain() == 2
        assert first.result()[0] == second.result()[0] == os.getpid()
        assert farm.made == []
        with farm.jobs.inline():
            assert farm.job.enqueue(3).result()[1] == 3


def test_processes_run_tasks_that_they_import(tmp_path: Path) -> None:
    def make() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=SPAWN)

    jobs = LiteJobs(tmp_path / "app.db", executors={"cpu": Futures(make, slots=1)})
    where, halfway, die, write = (
        jobs.task(name=each.name, executor="cpu", max_attempts=1)(each.function)
        for each in (tasks.where, tasks.halfway, tasks.die, tasks.write)
    )
    flow = jobs.flow(
        "chained", [("first", tasks.first), ("second", tasks.second)], executor="cpu"
    )
    with jobs:
        with jobs.transaction() as connection:
            connection.execute("create table note (number)")
        jobs.start(threads=1)
        there, number, job_id = (job := where.enqueue(7)).result(timeout=120)
        assert there != os.getpid()
        [attempt] = job.attempts
        assert (attempt.executor, attempt.worker) == ("cpu", f"process {there}")
        if sys.platform != "win32":
            assert attempt.memory_bytes > 2**20
        assert (number, job_id) == (7, job.id)
        assert flow.enqueue(text="in").result(timeout=120) == f"in {there} {there}"
        bad = halfway.enqueue()
        eventually(lambda: bad.state == "dead_lettered")
        assert bad.progress == 0.5
        stored = write.enqueue()
        assert stored.result(timeout=120) == "stored"
        with jobs.reader() as reader:
            assert reader.execute("select count(*) from note").get == 1
        killed = die.enqueue()
        eventually(lambda: killed.state == "dead_lettered")
        assert killed.attempts[-1].status == "crashed"
        assert where.enqueue(8).result(timeout=120)[0] not in {os.getpid(), there}


def test_a_task_that_no_other_process_can_import_is_refused(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "app.db", executors={"far": Futures(ByHand, slots=1)})

    @jobs.task(executor="far")
    def within() -> None: ...

    with jobs, pytest.raises(ConfigurationError, match="at the top of a module"):
        jobs.start()
    assert jobs.health()["role"] in {"none", "stopped"}


def test_one_that_a_queue_sends_there_ends_with_the_reason(farm: Farm) -> None:
    farm.jobs.queues["far"].set(executor="far")
    job = farm.jobs.task(name="lambda", queue="far")(lambda: 1).enqueue()
    assert farm.jobs.queues["far"].executor == "far"
    farm.jobs.start(threads=1)
    eventually(lambda: job.state == "dead_lettered")
    outcome = job.attempts[-1].outcome
    assert outcome is not None
    assert outcome["error"]["code"] == "executor_refused"


def no_executor() -> object:
    return object()


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda: Futures(ThreadPoolExecutor(1), slots=1), "cannot be made anew"),
        (lambda: Futures(ThreadPoolExecutor, slots=0), "slots=0 run nothing"),
        (lambda: Futures(ThreadPoolExecutor, slots=10**7), "too many"),
        (lambda: LiteJobs(executors={"x": ThreadPoolExecutor}), "give one of"),  # type: ignore[dict-item]
        (lambda: LiteJobs(executors=[1]), "give a dict"),  # type: ignore[arg-type]
        (lambda: LiteJobs(executors={"": Futures(ByHand, slots=1)}), "executor"),
        (lambda: LiteJobs().task(executor="")(no_executor), "executor"),
    ],
)
def test_what_cannot_work_is_refused(give: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        give()


def test_a_name_is_one_executors(farm: Farm) -> None:
    with pytest.raises(ConfigurationError, match="registered already"):
        farm.jobs.add_executor("far", Futures(ByHand, slots=1))


def test_a_factory_that_makes_something_else_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    given = {"x": Futures(no_executor, slots=1)}  # type: ignore[arg-type]
    jobs = LiteJobs(tmp_path / "app.db", executors=given)
    with jobs, pytest.raises(ConfigurationError, match="let it return"):
        jobs.start()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there are none")
def test_interpreters_are_refused(tmp_path: Path) -> None:
    """They cannot import apsw: nothing would run there."""
    from concurrent.futures import InterpreterPoolExecutor

    with pytest.raises(ConfigurationError, match="take Processes"):
        Futures(InterpreterPoolExecutor, slots=1)
    executors = {"x": Futures(lambda: InterpreterPoolExecutor(1), slots=1)}
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:
        with pytest.raises(ConfigurationError, match="cannot import apsw"):
            jobs.start()
        assert jobs.health()["role"] in {"none", "stopped"}


def test_a_factory_that_makes_the_same_one_again_is_refused(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    executors = {"x": Futures(lambda: pool, slots=1)}
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:
        jobs.start()
        jobs.stop()
        with pytest.raises(ConfigurationError, match="makes the same executor again"):
            jobs.start()


def test_one_that_somebody_has_shut_down_is_made_anew(tmp_path: Path) -> None:
    made: list[ThreadPoolExecutor] = []

    def make() -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(1))
        return made[-1]

    executors = {"x": Futures(make, slots=1)}
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:
        task = jobs.task(executor="x")(abs)
        jobs.start()
        assert task.enqueue(-1).result(timeout=60) == 1
        made[0].shutdown()
        job = task.enqueue(-2)
        assert job.result(timeout=60) == 2
        assert [each.status for each in job.attempts] == ["ok"]


def test_current_is_the_job_that_runs_there(farm: Farm) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(current().job_id)

    farm.jobs.add_executor("io", Futures(lambda: ThreadPoolExecutor(1), slots=1))
    job = farm.jobs.task(executor="io")(look).enqueue()
    farm.jobs.start(threads=1)
    job.result(timeout=60)
    assert seen == [job.id]
