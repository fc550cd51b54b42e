"""Tasks run on a cluster of Dask, each attempt once, whatever is lost meanwhile."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs.errors import ConfigurationError, JobDeadLettered
from litejobs.executors import Dask
from tests.executors import clusters, dask_tasks
from tests.executors.clusters import AGES, Cluster, in_the_end
from tests.libraries import needs
from tests.programs import Program
from tests.waiting import Times

pytestmark = [
    needs("distributed"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed"),
]

ROOT = Path(__file__).resolve().parents[2]

Make = Callable[..., LiteJobs]


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests that leave it as it was: two workers."""
    with clusters.running(tmp_path_factory.mktemp("dask"), 2) as cluster:
        cluster.wait_for_workers(2)
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one worker, for a test that kills."""
    with clusters.running(tmp_path, 1) as cluster:
        cluster.wait_for_workers(1)
        yield cluster


@pytest.fixture
def make(tmp_path: Path, times: Times) -> Iterator[Make]:
    """Make a started object with an executor `dask` and the tasks of the module."""
    made = []
    times(
        cancel_patience=0.05, connect_patience=AGES, first_pause=0.05, longest_pause=0.2
    )

    def started(dask: Dask, urgent: Dask | None = None, **options: Any) -> LiteJobs:
        jobs = LiteJobs(tmp_path / "app.db", executors={"dask": dask})
        options = {"max_attempts": 5, "crash_delay": 0} | options
        if urgent is not None:
            jobs.add_executor("urgent", urgent)
        for name, task in dask_tasks.jobs.tasks.items():
            where = "urgent" if name == "urgent" and urgent is not None else "dask"
            jobs.task(name=name, executor=where, **options)(task.function)

        @jobs.task(name="here")
        def here() -> int:
            return os.getpid()

        jobs.start(threads=1)
        made.append(jobs)
        return jobs

    yield started
    for jobs in made:
        jobs.stop(grace=0)
        jobs.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where tasks write down that they begin and end."""
    return tmp_path / "ledger"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for which tasks wait."""
    return tmp_path / "gate"


def read(ledger: Path) -> list[list[str]]:
    """What tasks have written down: a word, their job, attempt and process."""
    if not ledger.exists():
        return []
    return [line.split() for line in ledger.read_text(encoding="utf-8").splitlines()]


def count(ledger: Path, word: str) -> Counter[int]:
    """How often each attempt was begun, or has ended."""
    return Counter(int(attempt) for said, _, attempt, _ in read(ledger) if said == word)


def each_began_once(ledger: Path, *jobs: Any) -> None:
    """Each attempt of these jobs that was not given back was begun, once."""
    attempts = [each for job in jobs for each in job.attempts]
    attempts = [each.id for each in attempts if each.status != "interrupted"]
    assert count(ledger, "begins") == dict.fromkeys(attempts, 1)


def result(jobs: LiteJobs, name: str, *args: Any) -> Any:
    return jobs.tasks[name].enqueue(*args).result(timeout=AGES)


def reason(job: Any) -> str:
    """Why it has failed for good."""
    with pytest.raises(JobDeadLettered):
        job.result(timeout=AGES)
    return str(job.attempts[-1].outcome["error"]["message"])


def test_a_task_runs_in_a_worker_as_it_would_here(
    lasting: Cluster, make: Make, ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("tests.of.dask").setLevel(logging.INFO)
    dask = Dask(lasting.address)
    jobs = make(dask)
    first = jobs.tasks["entered"].enqueue(str(ledger))
    pid = first.result(timeout=AGES)
    assert pid in {each.pid for each in lasting.workers}
    each_began_once(ledger, first)
    attempt = first.attempts[-1]
    assert str(attempt.worker).startswith("tcp://127.0.0.1:")
    assert str(attempt.worker).endswith(f" (process {pid})")
    assert attempt.executor == "dask"
    assert (attempt.memory_bytes or 0) > 2**20
    assert result(jobs, "address").startswith("tcp://127.0.0.1:")
    assert result(jobs, "begin") == "elsewhere"
    assert reason(jobs.tasks["write"].using(max_attempts=1).enqueue()) == (
        "current().transaction() is not for a task of Dask, whose worker may be on "
        "another machine; return the result, and write in a task without executor"
    )
    with caplog.at_level(logging.DEBUG):
        assert result(jobs, "say") is None
    [record] = [each for each in caplog.records if each.name == "tests.of.dask"]
    assert record.getMessage() == "this is wanted"
    assert record.process in {each.pid for each in lasting.workers}
    assert (record.levelname, record.number) == ("INFO", 7)  # type: ignore[attr-defined]
    assert "ValueError: a reason" in str(record.exc_text)
    # As many slots as the workers have threads.
    assert dask.slots == 2


def test_progress_comes_back_and_a_cancel_reaches_the_task(
    lasting: Cluster, make: Make, ledger: Path, gate: Path, tmp_path: Path
) -> None:
    jobs = make(Dask(lasting.address))
    held = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: held.progress)
    assert held.progress == 0.5
    other = jobs.tasks["loop"].enqueue(str(tmp_path / "left"))
    in_the_end(lambda: other.progress)
    other.cancel()
    in_the_end(lambda: other.state == "cancelled")
    in_the_end((tmp_path / "left").exists)
    assert (tmp_path / "left").read_text(encoding="utf-8") == "TaskCancelled"
    late = jobs.tasks["loop"].using(timeout=1, max_attempts=1)
    job = late.enqueue(str(tmp_path / "late"))
    assert reason(job) == "the time limit has passed"
    in_the_end((tmp_path / "late").exists)
    assert (tmp_path / "late").read_text(encoding="utf-8") == "TaskTimeout"
    gate.touch()
    assert held.result(timeout=AGES) is False


def test_what_waits_for_a_worker_and_is_cancelled_does_not_begin(
    cluster: Cluster, make: Make, ledger: Path, gate: Path
) -> None:
    jobs = make(Dask(cluster.address, slots=2))
    first = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: first.progress)
    second = jobs.tasks["entered"].enqueue(str(ledger))
    in_the_end(lambda: second.state == "processing")
    second.cancel()
    in_the_end(lambda: second.state == "cancelled")
    gate.touch()
    assert first.result(timeout=AGES) is False
    assert result(jobs, "address")
    each_began_once(ledger, first)


def test_what_cannot_be_ended_takes_its_slot_until_its_worker_ends(
    cluster: Cluster, make: Make, times: Times
) -> None:
    times(stuck_patience=0.05)
    jobs = make(Dask(cluster.address))
    sleeps = jobs.tasks["sleep"].enqueue()
    in_the_end(lambda: sleeps.progress)
    sleeps.cancel()
    in_the_end(lambda: sleeps.state == "cancelled")
    in_the_end(lambda: jobs.health()["stuck"])
    waits = jobs.tasks["address"].enqueue()
    assert [each.code for each in waits.why()] == ["executor_full"]
    cluster.kill_worker()
    cluster.start_worker()
    waits.result(timeout=AGES)
    assert jobs.health()["stuck"] == []


def test_a_worker_that_dies_is_a_crash_of_its_attempt(
    cluster: Cluster, make: Make, ledger: Path
) -> None:
    cluster.start_worker()
    cluster.start_worker()
    cluster.wait_for_workers(3)
    jobs = make(Dask(cluster.address), max_crashes=2)
    left = jobs.tasks["leave"].enqueue(str(ledger))
    assert reason(left).startswith("worker tcp://127.0.0.1:")
    assert reason(left).endswith(" of Dask, which ran it, was lost")
    assert [each.outcome["status"] for each in left.attempts] == ["crashed"] * 2
    # Dask itself would have tried three times more, each time.
    each_began_once(ledger, left)
    assert result(jobs, "entered", str(ledger))


def test_a_lost_scheduler_is_a_crash_and_jobs_wait_until_it_is_back(
    cluster: Cluster, make: Make, ledger: Path, gate: Path
) -> None:
    jobs = make(Dask(cluster.address))
    held = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: held.progress)
    cluster.kill_scheduler()
    in_the_end(lambda: held.state != "processing")
    assert held.attempts[-1].outcome["error"]["message"] == (
        f"the scheduler of Dask at {cluster.address} was lost"
    )
    in_the_end(lambda: jobs.health()["problems"])
    [problem] = jobs.health()["problems"]
    assert problem.startswith("executor dask is away since ")
    in_the_end(lambda: any("is away since" in each.detail for each in held.why()))
    assert result(jobs, "here") == os.getpid()
    gate.touch()
    cluster.start_scheduler()
    cluster.start_worker()
    assert held.result(timeout=AGES) is False
    assert held.attempts[-1].attempt == 2
    assert jobs.health()["problems"] == []
    each_began_once(ledger, held)
    assert count(ledger, "ends") == {held.attempts[-1].id: 1}


def test_jobs_wait_for_a_scheduler_that_is_not_there_yet(
    tmp_path: Path, make: Make, ledger: Path, times: Times
) -> None:
    times(connect_patience=1)
    with clusters.running(tmp_path, 0) as cluster:
        cluster.kill_scheduler()
        jobs = make(Dask(cluster.address))
        job = jobs.tasks["entered"].enqueue(str(ledger))
        in_the_end(lambda: jobs.health()["problems"])
        assert result(jobs, "here") == os.getpid()
        assert job.state == "pending"
        times(connect_patience=AGES)
        cluster.start_scheduler()
        cluster.start_worker()
        assert job.result(timeout=AGES)
        # It may have been given back before, when none could be reached.
        *earlier, last = job.attempts
        assert {each.status for each in earlier} <= {"interrupted"}
        assert (last.status, last.attempt) == ("ok", 1)
        assert count(ledger, "begins") == {last.id: 1}


def test_jobs_wait_for_a_scheduler_of_another_version(
    tmp_path: Path, make: Make, ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would not understand: the connection was lost, and with it all jobs."""
    other = tmp_path / "other.py"
    text = "import litejobs._executors.dask.words as w; vars(w).update(FENCE='another')"
    other.write_text(text, encoding="utf-8")
    with clusters.running(tmp_path, 0) as cluster:
        cluster.kill_scheduler()
        cluster.start_scheduler("--preload", str(other))
        jobs = make(Dask(cluster.address))
        job = jobs.tasks["entered"].enqueue(str(ledger))
        in_the_end(lambda: jobs.health()["problems"])
        assert "its scheduler has another version of litejobs (another" in caplog.text
        cluster.kill_scheduler()
        cluster.start_scheduler()
        cluster.start_worker()
        assert job.result(timeout=AGES)
        *earlier, _ = job.attempts
        assert {each.status for each in earlier} <= {"interrupted"}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_scheduler_that_stands_still_is_away_until_it_goes_on(
    cluster: Cluster, make: Make, ledger: Path, gate: Path, times: Times, when: str
) -> None:
    """Its kernel takes what it is sent, and accepts connections."""
    times(silence_patience=1, ask_pause=0.05, connect_patience=1)
    if when == "before":
        cluster.suspend_scheduler()
    jobs = make(Dask(cluster.address))
    times(silence_patience=1, connect_patience=1)
    held = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    if when == "meanwhile":
        in_the_end(lambda: held.progress)
        cluster.suspend_scheduler()
    in_the_end(lambda: jobs.health()["problems"])
    [problem] = jobs.health()["problems"]
    assert problem.startswith("executor dask is away since ")
    waits = jobs.tasks["entered"].enqueue(str(ledger))
    in_the_end(lambda: any("is away since" in each.detail for each in waits.why()))
    assert result(jobs, "here") == os.getpid()
    times(silence_patience=AGES, connect_patience=AGES)
    cluster.resume_scheduler()
    gate.touch()
    assert held.result(timeout=AGES) is False
    assert waits.result(timeout=AGES)
    assert jobs.health()["problems"] == []
    assert [each.status for each in held.attempts][-1] == "ok"
    assert "crashed" not in [each.status for each in held.attempts]
    each_began_once(ledger, held, waits)


def test_what_somebody_else_cancels_does_not_go_on_beside_its_retry(
    cluster: Cluster, make: Make, ledger: Path, gate: Path
) -> None:
    from distributed import Client, Future

    def tasks_of(dask_scheduler: Any) -> list[str]:
        return list(dask_scheduler.tasks)

    jobs = make(Dask(cluster.address))
    held = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: held.progress)
    with Client(cluster.address, set_as_default=False, timeout=AGES) as client:
        [key] = client.run_on_scheduler(tasks_of)
        client.cancel([Future(key, client)], force=True)
        in_the_end(lambda: len(held.attempts) == 2)
        # There is one thread: the first was interrupted there.
        in_the_end(lambda: len(count(ledger, "begins")) == 2)
    gate.touch()
    assert held.result(timeout=AGES) is False
    assert [each.status for each in held.attempts] == ["crashed", "ok"]
    each_began_once(ledger, held)
    assert count(ledger, "ends") == {held.attempts[-1].id: 1}


def test_what_fails_in_a_connection_crashes_what_is_on_it(
    lasting: Cluster,
    make: Make,
    ledger: Path,
    gate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from litejobs._executors.dask.link import Link

    jobs = make(Dask(lasting.address))
    held = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: held.progress)
    looks = Link.look

    async def fails(self: Any) -> None:
        monkeypatch.setattr(Link, "look", looks)
        raise ValueError("nobody has thought of this")

    monkeypatch.setattr(Link, "look", fails)
    in_the_end(lambda: len(held.attempts) == 2)
    gate.touch()
    assert held.result(timeout=AGES) is False
    assert held.attempts[0].status == "crashed"
    each_began_once(ledger, held)


def test_a_worker_that_is_retired_takes_its_attempt_along(
    cluster: Cluster, make: Make, ledger: Path, gate: Path
) -> None:
    """Dask would begin it again elsewhere, as often as it is retired."""
    from distributed import Client

    jobs = make(Dask(cluster.address))
    held = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: held.progress)
    cluster.start_worker()
    cluster.wait_for_workers(2)
    worker = str(held.attempts[-1].worker).partition(" ")[0]
    with Client(cluster.address, set_as_default=False, timeout=AGES) as client:
        client.retire_workers([worker])
    in_the_end(lambda: len(held.attempts) == 2)
    gate.touch()
    assert held.result(timeout=AGES) is False
    assert held.attempts[0].status == "crashed"
    each_began_once(ledger, held)


def test_what_a_killed_runner_has_begun_ends_and_is_begun_again(
    cluster: Cluster, make: Make, ledger: Path, gate: Path, tmp_path: Path
) -> None:
    program = f"""
import sys, threading
from litejobs import LiteJobs
from litejobs.executors import Dask
from tests.executors import dask_tasks

if __name__ == "__main__":
    dask = Dask({cluster.address!r})
    jobs = LiteJobs({str(tmp_path / "app.db")!r}, executors={{"dask": dask}})
    held = jobs.task(name="held", executor="dask")(dask_tasks.held.function)
    held.enqueue({str(ledger)!r}, {str(gate)!r})
    jobs.start(threads=1)
    threading.Event().wait()
"""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", program]
    with Program(command, env={**os.environ, "PYTHONPATH": path}) as runner:
        in_the_end(lambda: count(ledger, "begins"))
        runner.kill()
    jobs = make(Dask(cluster.address))
    held = jobs.get(1)
    in_the_end(lambda: len(held.attempts) == 2)
    # There is one thread: the first was interrupted there, or this would not begin.
    in_the_end(lambda: len(count(ledger, "begins")) == 2)
    gate.touch()
    assert held.result(timeout=AGES) is False
    each_began_once(ledger, held)
    assert count(ledger, "ends") == {held.attempts[-1].id: 1}


def test_a_client_or_a_cluster_may_be_given(
    lasting: Cluster, make: Make, ledger: Path
) -> None:
    from distributed import Client

    with Client(lasting.address, set_as_default=False, timeout=AGES) as client:
        jobs = make(Dask(client))
        job = jobs.tasks["entered"].enqueue(str(ledger))
        job.result(timeout=AGES)
    # What it tells was its address.
    other = jobs.tasks["entered"].enqueue(str(ledger))
    other.result(timeout=AGES)
    each_began_once(ledger, job, other)


def pool_threads() -> list[str]:
    """Those of workers in this process."""
    names = [each.name for each in threading.enumerate()]
    return [each for each in names if each.startswith("litejobs-dask-")]


def test_a_cluster_of_this_process_logs_once_and_leaves_no_thread(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, processes=False, dashboard_address=":0", threads_per_worker=2
    ) as cluster:
        jobs = make(Dask(cluster))
        with caplog.at_level(logging.INFO, "tests.of.dask"):
            result(jobs, "say")
        assert len([e for e in caplog.records if e.name == "tests.of.dask"]) == 1
        assert pool_threads()
        jobs.stop(grace=0)
    in_the_end(lambda: not pool_threads())


def test_what_cannot_be_meant_is_refused(make: Make) -> None:
    for given in (5, None, "", " tcp://a:1"):
        with pytest.raises(ConfigurationError, match="names no cluster; give the"):
            Dask(given)
    with pytest.raises(ConfigurationError, match=r"resources=\{'GPU': 0\} are not"):
        Dask("tcp://127.0.0.1:1", resources={"GPU": 0})
    with pytest.raises(ConfigurationError, match="priority='high' is not a number"):
        Dask("tcp://127.0.0.1:1", priority="high")  # type: ignore[arg-type]
    for priority in (float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="is not a number; give 10"):
            Dask("tcp://127.0.0.1:1", priority=priority)
    with pytest.raises(ConfigurationError, match=r"resources=\{'GPU': inf\} are not"):
        Dask("tcp://127.0.0.1:1", resources={"GPU": float("inf")})
    with pytest.raises(ConfigurationError, match="slots=0 run nothing"):
        Dask("tcp://127.0.0.1:1", slots=0)
    jobs = LiteJobs(executors={"dask": Dask("tcp://127.0.0.1:1")})
    with pytest.raises(ConfigurationError, match="at the top of a module"):
        jobs.task(executor="dask")(lambda: None)


def test_slots_follow_the_threads_until_they_are_set(
    cluster: Cluster, make: Make, ledger: Path
) -> None:
    dask = Dask(cluster.address)
    jobs = make(dask)
    cluster.start_worker()
    in_the_end(lambda: dask.slots == 2)
    dask.slots = 7
    cluster.start_worker()
    cluster.wait_for_workers(3)
    # What the scheduler says of its threads comes before what it says of this.
    result(jobs, "entered", str(ledger))
    assert dask.slots == 7


def test_resources_and_priority_are_passed_on(
    cluster: Cluster, make: Make, ledger: Path, gate: Path
) -> None:
    from distributed import Client

    def tasks_of(dask_scheduler: Any) -> int:
        return len(dask_scheduler.tasks)

    apt = cluster.start_worker("--resources", "GPU=1")
    cluster.wait_for_workers(2)
    gpu = {"GPU": 1.0}
    urgent = Dask(cluster.address, resources=gpu, priority=10)
    jobs = make(Dask(cluster.address, resources=gpu, slots=3), urgent)
    first = jobs.tasks["held"].enqueue(str(ledger), str(gate))
    in_the_end(lambda: first.progress)
    later = jobs.tasks["entered"].enqueue(str(ledger))
    in_the_end(lambda: later.state == "processing")
    sooner = jobs.tasks["urgent"].enqueue(str(ledger))
    in_the_end(lambda: sooner.state == "processing")
    with Client(cluster.address, set_as_default=False, timeout=AGES) as client:
        # Both are there, before the worker has room.
        in_the_end(lambda: client.run_on_scheduler(tasks_of) == 3)
    gate.touch()
    assert {later.result(timeout=AGES), sooner.result(timeout=AGES)} == {apt.pid}
    order = [int(job) for word, job, *_ in read(ledger) if word == "begins"]
    assert order == [first.id, sooner.id, later.id]


# Whatever is killed meanwhile ----------------------------------------------------


def ordeal(
    jobs: LiteJobs,
    cluster: Cluster,
    ledger: Path,
    *,
    number: int,
    kills: str,
) -> None:
    """So many jobs end, each attempt begun once, while *kills* happens.

    Of that each letter is one kill: `w` of a worker, `s` of the scheduler, after which
    the killed are started again. They are spread over the time in which the jobs begin.
    """
    asked = [
        jobs.tasks["entered"].enqueue(str(ledger), 0.05 * (1 + each % 3))
        for each in range(number)
    ]
    workers = len(cluster.workers)
    for turn, kill in enumerate(kills):
        least = number * (turn + 1) // (len(kills) + 2)
        in_the_end(lambda least=least: len(count(ledger, "ends")) >= least)
        if kill == "w":
            in_the_end(lambda: cluster.busy(read(ledger)) is not None)
            cluster.kill_worker(cluster.busy(read(ledger)) or 0)
            cluster.start_worker()
        else:
            cluster.kill_scheduler()
            cluster.start_scheduler()
            # Those that had this one end by themselves.
            for _ in range(workers):
                cluster.start_worker()
    for job in asked:
        job.result(timeout=AGES)
    assert judge(ledger, asked)


def judge(ledger: Path, asked: list[Any]) -> set[int]:
    """By what the tasks themselves have written down; attempts that have crashed."""
    begun, ended = count(ledger, "begins"), count(ledger, "ends")
    assert set(begun.values()) == {1}
    assert set(ended.values()) == {1}
    attempts = {each.id: each for job in asked for each in job.attempts}
    assert begun.keys() <= attempts.keys()
    crashed = {each.id for each in attempts.values() if each.status == "crashed"}
    for job in asked:
        *earlier, last = job.attempts
        assert last.status == "ok"
        assert last.id in ended
        # One may have ended just when it was lost; what it said came to nobody.
        for each in earlier:
            assert each.id in crashed or each.id not in begun
    return crashed


def test_jobs_end_while_workers_and_the_scheduler_are_killed(
    tmp_path: Path, make: Make, ledger: Path
) -> None:
    with clusters.running(tmp_path, 2) as cluster:
        jobs = make(Dask(cluster.address), max_crashes=100)
        ordeal(jobs, cluster, ledger, number=30, kills="ws")


def test_short_jobs_which_do_not_ask_begin_once_while_workers_are_killed(
    tmp_path: Path, make: Make, ledger: Path
) -> None:
    with clusters.running(tmp_path, 2) as cluster:
        jobs = make(Dask(cluster.address, slots=40), max_crashes=100)
        with jobs.transaction():
            asked = [
                jobs.tasks["entered"].enqueue(str(ledger), 0.001 * (each % 3))
                for each in range(120)
            ]
        for least in (30, 60, 90):
            in_the_end(lambda least=least: len(count(ledger, "ends")) >= least)
            cluster.kill_worker()
            cluster.start_worker()
        for job in asked:
            job.result(timeout=AGES)
        judge(ledger, asked)


@pytest.mark.torture
def test_200_jobs_end_while_workers_and_the_scheduler_are_killed(
    tmp_path: Path, make: Make, ledger: Path
) -> None:
    with clusters.running(tmp_path, 3) as cluster:
        jobs = make(Dask(cluster.address, slots=6), max_crashes=100)
        ordeal(jobs, cluster, ledger, number=200, kills="wswwswws")
