"""Tasks that wait for other jobs: their slots are lent, and what goes round is said."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litejobs import Job, LiteJobs, current
from litejobs._executors import worker
from litejobs._storage import vital_signs
from litejobs._tasks.current import attempt_of_caller
from litejobs.errors import (
    JobDeadLettered,
    LiteJobsError,
    ResultTimeout,
)
from litejobs.executors import Handle, Processes, TaskExecutor, Work
from litejobs.testing import perform, running_as
from tests.executors import process_tasks
from tests.waiting import Times, eventually

LONG = 60  # seconds: how long a test waits for what must happen; never used up


def said_of(jobs: LiteJobs) -> list[str]:
    """What health says of tasks that wait."""
    problems: list[str] = jobs.health()["problems"]
    return [each for each in problems if "wait for jobs" in each]


def codes(jobs: LiteJobs) -> list[str]:
    return [each["code"] for each in jobs.health()["causes"]]


class Busy:
    """Counts how many are within it at once."""

    def __init__(self) -> None:
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


# Slots are lent -------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_parents_that_take_all_threads_get_their_results(
    file_jobs: LiteJobs, threads: int
) -> None:
    jobs = file_jobs
    busy = Busy()

    @jobs.task
    def child(number: int) -> int:
        with busy:
            return number

    @jobs.task
    def parent(number: int) -> Any:
        return child.enqueue(number).result()

    parents = [parent.enqueue(number) for number in range(10)]
    with jobs.running(threads=threads) as runner:
        assert [each.result(LONG) for each in parents] == list(range(10))
        assert busy.most <= threads
        assert codes(jobs) == said_of(jobs) == []
        # What was lent has ended.
        assert runner.wait_idle(LONG)
        eventually(lambda: runner._pool.standing() == len(runner._pool._workers))


def test_a_slot_is_lent_again_and_again_in_one_task(file_jobs: LiteJobs) -> None:
    child = file_jobs.task(name="child")(lambda number: number)

    @file_jobs.task
    def parent() -> list[Any]:
        asked = [child.enqueue(number) for number in range(30)]
        return [each.result() for each in asked]

    with file_jobs.running(threads=1):
        assert parent.enqueue().result(LONG) == list(range(30))


def test_what_a_waiting_task_needs_comes_before_the_line(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    seen: list[str] = []
    asked, go = threading.Event(), threading.Event()

    @jobs.task
    def note(name: str) -> str:
        seen.append(name)
        return name

    @jobs.task
    def parent() -> Any:
        asked.set()
        go.wait(LONG)
        return note.enqueue("child").result()

    with jobs.running(threads=1) as runner:
        job = parent.enqueue()
        assert asked.wait(LONG)
        jobs.enqueue_many([note.call("before"), note.call("before, too")])
        go.set()
        assert job.result(LONG) == "child"
        assert runner.wait_idle(LONG)
    assert seen == ["child", "before", "before, too"]


def test_first_link_of_a_chain_gets_the_slot_of_who_waits_for_the_last(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    add = jobs.task(name="add")(lambda n, prev=None: n + (prev or 0))

    @jobs.task
    def parent() -> Any:
        return jobs.enqueue_chain([add.call(1), add.call(2), add.call(3)])[-1].result()

    with jobs.running(threads=1):
        assert parent.enqueue().result(LONG) == 6


def test_members_of_a_batch_get_the_slot_of_who_waits_for_its_callback(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    note = jobs.task(name="note")(lambda: None)
    done = jobs.task(name="done")(lambda: "all")

    @jobs.task
    def parent() -> Any:
        with jobs.batch() as batch:
            batch.enqueue_many([note.call(), note.call()])
            last = batch.on_complete(done.call())
        return last.result()

    with jobs.running(threads=1):
        assert parent.enqueue().result(LONG) == "all"


def test_a_task_that_reads_the_events_of_a_job_lends_its_slot(
    file_jobs: LiteJobs,
) -> None:
    child = file_jobs.task(name="child")(lambda: None)

    @file_jobs.task
    def parent() -> list[str]:
        return [each.name for each in child.enqueue().events("completed")]

    with file_jobs.running(threads=1):
        assert parent.enqueue().result(LONG) == ["completed"]


def reads_until_it_is_over(jobs: LiteJobs) -> Any:
    """A task that hears of the end of another job among the events of all."""
    child = jobs.task(name="child")(lambda: None)

    @jobs.task
    def reads() -> str:
        with jobs.events("completed") as stream:
            job = child.enqueue()
            return next(each.name for each in stream if each.job_id == job.id)

    return reads


@pytest.mark.parametrize("before", [0, 2])
def test_a_task_that_reads_the_events_of_all_jobs_lends_its_slot_to_what_is_in_line(
    file_jobs: LiteJobs, before: int
) -> None:
    """One after the other, since it may wait for whichever of them."""
    reads = reads_until_it_is_over(file_jobs)
    first = reads.enqueue()
    for _ in range(before):
        file_jobs.enqueue("child")
    with file_jobs.running(threads=1):
        assert first.result(LONG) == "completed"


def test_readers_of_all_events_that_take_all_threads_are_said_while_jobs_are_in_line(
    file_jobs: LiteJobs, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """Once; and not while a thread is free, or nothing is in line."""
    times(safe_poll=0.05, sign_pause=0.05)
    jobs = file_jobs
    child = jobs.task(name="child")(lambda: None)
    pumps: list[Any] = []

    @jobs.task
    def pump() -> None:
        with jobs.events("completed") as stream:
            pumps.append(stream)
            list(stream)

    with jobs.running(threads=2, lend=0):
        pump.enqueue()
        eventually(lambda: pumps)
        assert child.enqueue().result(LONG) is None
        pump.enqueue()
        eventually(lambda: len(pumps) == 2)
        threading.Event().wait(0.2)
        assert said_of(jobs) == []
        last = child.enqueue()
        eventually(lambda: said_of(jobs))
        assert "(pump) for events of whichever job" in said_of(jobs)[0]
        eventually(lambda: codes(jobs) == ["tasks_wait"])
        threading.Event().wait(0.2)
        assert caplog.text.count("tasks wait for jobs") == 1
        pumps[0].close()
        assert last.result(LONG) is None
        eventually(lambda: said_of(jobs) == [])
        pumps[1].close()


def test_a_task_in_a_drain_may_read_events_that_others_make(
    file_jobs: LiteJobs,
) -> None:
    @file_jobs.task
    def reads() -> str:
        with file_jobs.events("pending") as stream:
            thread = threading.Thread(target=reads.enqueue)
            thread.start()
            name = next(iter(stream)).name
            thread.join()
            return name

    job = reads.enqueue()
    assert file_jobs.step() == job
    assert job.result() == "pending"


def test_grandchildren_run_as_deep_as_threads_are_lent(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task
    def nested(depth: int) -> int:
        return 1 + nested.enqueue(depth - 1).result() if depth else 0

    with jobs.running(threads=2, lend=5):
        assert nested.enqueue(5).result(LONG) == 5


def test_coroutines_lend_their_slots(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task
    async def child(number: int) -> int:
        await asyncio.sleep(0)
        return number

    @jobs.task
    async def parent(number: int) -> Any:
        asked = [await child.aenqueue(number), await child.aenqueue(number + 1)]
        return await asyncio.gather(*asked)

    parents = [parent.enqueue(number) for number in range(6)]
    with jobs.running(threads=1, concurrency=2):
        found = [each.result(LONG) for each in parents]
    assert found == [[number, number + 1] for number in range(6)]


def test_coroutine_that_awaits_a_plain_task_and_the_other_way_round(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    plain = jobs.task(name="plain")(lambda: "plain")

    @jobs.task
    async def coroutine() -> Any:
        return await (await plain.aenqueue())

    @jobs.task
    def parent() -> Any:
        return coroutine.enqueue().result()

    parents = [parent.enqueue() for _ in range(4)]
    with jobs.running(threads=1, concurrency=1):
        assert [each.result(LONG) for each in parents] == ["plain"] * 4


def test_slots_of_threads_are_lent_while_time_is_advanced(
    clock: Any, file_jobs: LiteJobs
) -> None:
    del clock
    child = file_jobs.task(name="child")(lambda: 1)
    parent = file_jobs.task(name="parent")(lambda: child.enqueue().result())
    with file_jobs.running(threads=1):
        job = parent.enqueue()
        file_jobs.advance("1s")
        assert job.state == "completed"


# What goes round is said ----------------------------------------------------------


def test_parents_without_end_are_said_with_their_names(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = file_jobs

    @jobs.task(max_attempts=1)
    def nested(depth: int) -> int:
        return 1 + nested.enqueue(depth - 1).result() if depth else 0

    with jobs.running(threads=1, grace=0) as runner:
        nested.enqueue(2)
        eventually(lambda: said_of(jobs))
        [said] = said_of(jobs)
        assert "job 1 (nested) for job 2 (nested); job 2 (nested) for job 3" in said
        assert jobs.health()["problem"] == said
        assert codes(jobs) == ["tasks_wait"]
        eventually(lambda: vital_signs.causes_shown(jobs.path) == ["tasks_wait"])
        assert runner.gets_on  # to start the program anew does not help
        assert [each for each in caplog.messages if "tasks wait for jobs" in each]
        # A way out is seen.
        jobs.get(3).cancel()
        eventually(lambda: not said_of(jobs))
        eventually(lambda: codes(jobs) == [])
    assert jobs.get(2).state == "dead_lettered"


def test_no_slot_is_lent_where_none_is_to_be(file_jobs: LiteJobs) -> None:
    child = file_jobs.task(name="child")(lambda: 1)
    parent = file_jobs.task(name="parent")(lambda: child.enqueue().result())
    with file_jobs.running(threads=1, lend=0, grace=0):
        parent.enqueue()
        eventually(lambda: said_of(file_jobs))
        assert "which waits for threads" in said_of(file_jobs)[0]


def test_result_raises_after_its_timeout_and_nothing_is_said_any_more(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    child = jobs.task(name="child")(lambda: 1)

    @jobs.task(max_attempts=1)
    def parent() -> str:
        with pytest.raises(ResultTimeout):
            child.enqueue().result(timeout=0.5)
        return "went on"

    with jobs.running(threads=1, lend=0) as runner:
        assert parent.enqueue().result(LONG) == "went on"
        assert runner.wait_idle(LONG)
        eventually(lambda: codes(jobs) == said_of(jobs) == [])


@pytest.mark.parametrize("limit", ["queue", "key"])
def test_parent_and_child_under_one_limit_are_said(
    file_jobs: LiteJobs, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A waiting parent counts; it is told though other jobs go on."""
    jobs = file_jobs
    options: Any = {"queue": "one"} if limit == "queue" else {"concurrency_key": "one"}
    jobs.queues["one"].set(max_running=1)

    @jobs.task(**options)
    def child() -> None: ...

    @jobs.task(**options)
    def parent() -> None:
        child.enqueue().result()

    other = jobs.task(name="other")(lambda: 1)
    with jobs.running(threads=3, grace=0):
        parent.enqueue()
        eventually(lambda: said_of(jobs))
        expected = f"job 1 (parent) for job 2 (child), which waits for {limit} one"
        assert expected in said_of(jobs)[0]
        assert [each for each in caplog.messages if expected in each]
        assert other.enqueue().result(LONG) == 1
        assert codes(jobs) == ["tasks_wait"]
        if limit == "queue":
            jobs.queues["one"].set(max_running=2)
        else:
            jobs.keys["one"].set(max_running=2)
        eventually(lambda: jobs.get(1).state == "completed")
        eventually(lambda: codes(jobs) == said_of(jobs) == [])


def test_a_limit_that_is_held_for_a_while_is_not_said(
    file_jobs: LiteJobs, times: Times
) -> None:
    """Its holder waits for a job that runs, and ends after that."""
    times(sign_pause=0.01)
    jobs = file_jobs
    jobs.queues["one"].set(max_running=1)
    began, go = threading.Event(), threading.Event()

    @jobs.task
    def works() -> None:
        began.set()
        go.wait(LONG)

    @jobs.task(queue="one")
    def holds() -> None:
        works.enqueue().result()

    @jobs.task
    def waits() -> None:
        holds.enqueue().result()

    with jobs.running(threads=2) as runner:
        holds.enqueue()
        assert began.wait(LONG)
        last = waits.enqueue()
        eventually(lambda: len(runner._parents._waiting) == 2)
        looked_at = runner._parents._looked_at
        eventually(lambda: runner._parents._looked_at > looked_at + 0.05)
        assert said_of(jobs) == []
        go.set()
        last.result(LONG)


def test_a_child_that_waits_for_its_parent_is_said(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    child = jobs.task(name="child")(lambda: 1)

    @jobs.task
    def parent() -> Any:
        return child.using(after=[current().job_id]).enqueue().result()

    with jobs.running(threads=2, grace=0):
        parent.enqueue()
        eventually(lambda: said_of(jobs))
        assert "job 2 (child), which waits for job 1" in said_of(jobs)[0]


def test_a_member_that_waits_for_the_callback_of_its_batch_is_said(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    done = jobs.task(name="done")(lambda: "all")
    asked: list[Any] = []
    enqueued = threading.Event()

    @jobs.task
    def member() -> Any:
        enqueued.wait(LONG)
        return asked[0].result()

    with jobs.running(threads=2, grace=0):
        with jobs.batch() as batch:
            batch.enqueue(member.call())
            asked.append(batch.on_complete(done.call()))
        enqueued.set()
        eventually(lambda: said_of(jobs))
        assert "(done), which waits for batch 1" in said_of(jobs)[0]


def test_threads_that_wait_for_what_is_far_away_are_said_where_others_want_them(
    clock: Any, file_jobs: LiteJobs
) -> None:
    del clock
    jobs = file_jobs
    later = jobs.task(name="later")(lambda: 1)
    other = jobs.task(name="other")(lambda: 2)

    @jobs.task
    def parent() -> Any:
        return later.using(delay="1h").enqueue().result()

    with jobs.running(threads=1, grace=0) as runner:
        parent.enqueue()
        eventually(lambda: runner._parents._looked_at > 0)
        assert said_of(jobs) == []  # nobody else is there
        job = other.enqueue()
        eventually(lambda: said_of(jobs))
        assert "job 1 (parent) for job 2 (later)" in said_of(jobs)[0]
        jobs.get(2).run_now()
        assert job.result(LONG) == 2


def test_coroutines_that_wait_in_circles_are_said(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task
    async def nested(depth: int) -> Any:
        return await (await nested.aenqueue(depth - 1)) if depth else 0

    with jobs.running(concurrency=1, grace=0):
        nested.enqueue(2)
        eventually(lambda: said_of(jobs))
        assert "job 3 (nested), which waits for executor asyncio" in said_of(jobs)[0]


# In processes ---------------------------------------------------------------------


def in_processes(file_jobs: LiteJobs, cpu: TaskExecutor) -> LiteJobs:
    """Another object on that file, with an executor and the task that waits there."""
    jobs = LiteJobs(file_jobs.path, executors={"cpu": cpu})
    jobs.task(name="nested", executor="cpu")(process_tasks.nested.function)
    return jobs


def test_tasks_in_processes_keep_their_slots_and_that_is_said(
    file_jobs: LiteJobs,
) -> None:
    jobs = in_processes(file_jobs, Processes(2))
    nested = jobs.tasks["nested"]
    with contextlib.closing(jobs), jobs.running(grace=0):
        assert nested.enqueue(jobs.path, 1).result(LONG) == 1
        nested.enqueue(jobs.path, 2)
        eventually(lambda: said_of(jobs))
        [said] = said_of(jobs)
        assert "job 4 (nested) for job 5 (nested), which waits for executor cpu" in said
        jobs.get(5).cancel()
        eventually(lambda: not said_of(jobs))


class Apart(TaskExecutor):
    """Runs tasks as a worker does that can tell nothing while it runs them."""

    def start(self) -> None: ...

    def submit(self, work: Work) -> Handle:
        payload = work.payload()
        begin = threading.Thread(
            target=lambda: work.answer(worker.run(payload)), daemon=True
        )
        begin.start()
        return Handle()

    def close(self, grace: float) -> None: ...


def test_what_cannot_tell_the_runner_says_it_itself(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = in_processes(file_jobs, Apart(1))
    with contextlib.closing(jobs), jobs.running(grace=0):
        jobs.tasks["nested"].enqueue(jobs.path, 1)
        expected = "job 1 (nested) waits for job 2 (nested), for which executor 'cpu'"
        eventually(lambda: [each for each in caplog.messages if expected in each])
        jobs.get(2).cancel()
        eventually(lambda: jobs.get(1).state in {"failed", "dead_lettered"})


# What can never end is refused ----------------------------------------------------


def test_a_task_cannot_wait_for_its_own_job(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task(max_attempts=1)
    def waits() -> Any:
        return jobs.get(current().job_id).result()

    with jobs.running(), pytest.raises(JobDeadLettered, match="cannot wait for itself"):
        waits.enqueue().result(LONG)


@pytest.mark.parametrize("way", ["drain", "inline", "perform"])
def test_where_one_job_runs_after_the_other_none_waits_for_another(
    file_jobs: LiteJobs, way: str
) -> None:
    jobs = file_jobs
    child = jobs.task(name="child")(lambda: 1)

    @jobs.task(max_attempts=1)
    def parent() -> Any:
        return child.using(delay="1s").enqueue().result()

    if way == "perform":
        with pytest.raises(LiteJobsError, match="while job 1"):
            perform(parent)
        return
    if way == "drain":
        parent.enqueue()
        jobs.drain()
    else:
        with jobs.inline():
            parent.enqueue()
    job = jobs.get(1)
    assert job.state == "dead_lettered"
    with pytest.raises(JobDeadLettered, match="job 2 cannot run while job 1"):
        job.result(0)


def test_a_task_cannot_wait_until_nothing_runs(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task(max_attempts=1)
    def waits() -> Any:
        runner = jobs._service.runner
        assert runner is not None
        assert runner.wait_idle(0) is False  # a look
        return runner.wait_idle()

    with jobs.running(), pytest.raises(JobDeadLettered, match="wait for itself"):
        waits.enqueue().result(LONG)


# An end in between ----------------------------------------------------------------


def test_a_waiting_task_is_interrupted_by_its_time_limit(
    clock: Any, file_jobs: LiteJobs
) -> None:
    jobs = file_jobs
    later = jobs.task(name="later")(lambda: 1)
    other = jobs.task(name="other")(lambda: 2)

    @jobs.task(timeout="10s", max_attempts=1)
    def parent() -> Any:
        return later.using(delay="1h").enqueue().result()

    with jobs.running(threads=1) as runner:
        job = parent.enqueue()
        eventually(lambda: runner._parents._waiting)
        clock.tick(11)
        with pytest.raises(JobDeadLettered, match="TaskTimeout"):
            job.result(LONG)
        assert other.enqueue().result(LONG) == 2
        eventually(lambda: not runner._parents._waiting)
        assert runner.health["stuck"] == []


def test_a_stop_gives_a_waiting_task_back_after_the_grace(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    later = jobs.task(name="later")(lambda: 1)
    parent = jobs.task(name="parent")(
        lambda: later.using(delay="1h").enqueue().result()
    )
    with jobs.running(threads=1, grace=0.05) as runner:
        job = parent.enqueue()
        eventually(lambda: runner._parents._waiting)
    assert job.state in {"pending", "failed"}
    assert job.attempts[0].status == "interrupted"


def test_who_waits_with_a_stop_gets_what_runs_already(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    began, go = threading.Event(), threading.Event()

    @jobs.task
    def child() -> int:
        began.set()
        go.wait(LONG)
        return 1

    @jobs.task
    def parent() -> Any:
        return child.enqueue().result()

    with jobs.running(threads=1, grace=LONG) as runner:
        job = parent.enqueue()
        assert began.wait(LONG)
        runner.request_stop()
        go.set()
    assert job.state == "completed"
    assert job.result(0) == 1


def test_who_stands_in_for_a_task_waits_as_any_caller(file_jobs: LiteJobs) -> None:
    child = file_jobs.task(name="child")(lambda: 1)
    with file_jobs.running(), running_as(job_id=7):
        assert child.enqueue().result(LONG) == 1


def test_lend_is_a_number_of_threads(file_jobs: LiteJobs) -> None:
    for wrong in (-1, True, "2"):
        with pytest.raises(LiteJobsError, match="lend="):
            file_jobs.start(lend=wrong)  # type: ignore[arg-type]


# Ways to wait that are not seen as such -----------------------------------------------


def by_threads(jobs: LiteJobs, job: Job[int]) -> int:
    del jobs
    with concurrent.futures.ThreadPoolExecutor() as threads:
        return sum(threads.map(lambda each: each.result(), [job, job]))


def by_a_loop_in_a_thread(jobs: LiteJobs, job: Job[int]) -> int:
    del jobs

    async def wait() -> int:
        return await job + await job.aresult()

    with concurrent.futures.ThreadPoolExecutor() as threads:
        return threads.submit(lambda: asyncio.run(wait())).result()


def by_its_state(jobs: LiteJobs, job: Job[int]) -> int:
    del jobs
    while job.state != "completed":
        time.sleep(0.01)
    return 2 * job.result()


def by_looking_it_up(jobs: LiteJobs, job: Job[int]) -> int:
    while jobs.get(job.id).snapshot().finished_at is None:
        time.sleep(0.01)
    return 2 * job.result()


def by_asking_for_it(jobs: LiteJobs, job: Job[int]) -> int:
    del jobs
    while True:
        with contextlib.suppress(ResultTimeout):
            return 2 * job.result(timeout=0)
        time.sleep(0.01)


def by_looking_in_a_thread(jobs: LiteJobs, job: Job[int]) -> int:
    with concurrent.futures.ThreadPoolExecutor() as threads:
        return threads.submit(by_its_state, jobs, job).result()


def by_events_without_waiting(jobs: LiteJobs, job: Job[int]) -> int:
    with jobs.events("completed") as stream:
        while (event := stream.poll()) is None or event.job_id != job.id:
            time.sleep(0.01)
    return 2 * job.result()


@pytest.mark.parametrize(
    "wait",
    [
        by_threads,
        by_a_loop_in_a_thread,
        by_its_state,
        by_looking_it_up,
        by_asking_for_it,
        by_looking_in_a_thread,
        by_events_without_waiting,
    ],
)
def test_however_a_task_waits_its_slot_is_lent(
    file_jobs: LiteJobs, wait: Callable[[LiteJobs, Job[int]], int]
) -> None:
    """By threads of its own, or since it looks again and again."""
    jobs = file_jobs
    child = jobs.task(name="child")(lambda: 1)
    parent = jobs.task(name="parent")(lambda: wait(jobs, child.enqueue()))
    with jobs.running(threads=1) as runner:
        assert parent.enqueue().result(LONG) == 2
        assert codes(jobs) == said_of(jobs) == []
        assert runner.wait_idle(LONG)


def test_who_looks_for_ever_at_what_cannot_begin_is_told(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    child = jobs.task(name="child")(lambda: 1)

    @jobs.task(name="parent")
    def parent() -> None:
        job = child.enqueue()
        while not current().wait(0.01):
            assert job.state == "pending"

    with jobs.running(threads=1, lend=0, grace=0):
        parent.enqueue()
        eventually(lambda: said_of(jobs))
        assert "job 1 (parent) for job 2 (child)" in said_of(jobs)[0]
        assert codes(jobs) == ["tasks_wait"]


def test_who_looks_now_and_then_does_not_wait(
    file_jobs: LiteJobs, times: Times
) -> None:
    jobs = file_jobs
    jobs.pause("later")
    child = jobs.task(name="child", queue="later")(lambda: 1)
    seen: list[list[int]] = []

    @jobs.task
    def parent() -> None:
        context = attempt_of_caller.get()
        job, own = child.enqueue(), jobs.get(context.job_id)
        for _ in range(3):
            seen.append(context.awaited())
            assert job.state == "pending"
            assert own.state == "processing"
        seen.append(context.awaited())
        times(polls_within=0.0)
        seen.append(context.awaited())

    with jobs.running(threads=1):
        parent.enqueue().result(LONG)
    assert seen == [[], [], [], [2], []]


def test_who_looks_at_jobs_of_another_file_waits_for_none_of_this_one(
    file_jobs: LiteJobs, tmp_path: Path
) -> None:
    """There their numbers are those of other jobs."""
    with LiteJobs(tmp_path / "other.db") as others:
        other = others.task(name="other")(lambda: None)

        @file_jobs.task
        def parent() -> list[int]:
            job = other.enqueue()
            while job.id <= attempt_of_caller.get().job_id:
                job = other.enqueue()
            with others.events() as stream:
                for _ in range(9):
                    assert job.state == "pending"
                    assert stream.poll() is None
            return attempt_of_caller.get().awaited()

        with file_jobs.running(threads=1):
            assert parent.enqueue().result(LONG) == []


def test_handles_that_a_task_hands_on_wait_for_themselves(file_jobs: LiteJobs) -> None:
    """Its own job's, too."""
    jobs = file_jobs
    handles: queue.SimpleQueue[Job[Any]] = queue.SimpleQueue()
    go = threading.Event()
    child = jobs.task(name="child")(lambda: 1)

    @jobs.task
    def parent() -> int:
        handles.put(child.enqueue())
        handles.put(jobs.get(current().job_id))
        go.wait(LONG)
        return 2

    with jobs.running(threads=1):
        parent.enqueue()
        assert handles.get().result(LONG) == 1
        own = handles.get()
        threading.Timer(0.01, go.set).start()
        assert own.result(LONG) == 2
