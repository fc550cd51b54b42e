"""One job per key, whoever asks: unique keys across processes and threads."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litejobs import Job, LiteJobs, every

PROCESSES = 4
THREADS = 16
HOW = ("ignore", "replace", "debounce", "raise")

# Sixteen threads ask for jobs of few keys, again and again, all at once, in each way
# that there is; what each was handed is printed.
ASKS = """
import json, sys, threading
from litejobs import LiteJobs
from litejobs.errors import JobExists

path, number, threads, keys = sys.argv[1], *map(int, sys.argv[2:5])
jobs = LiteJobs(path).open()
begin = threading.Barrier(threads)

def ask(thread):
    begin.wait()
    for key in range(keys):
        try:
            job = jobs.enqueue(
                "work", [number, thread], unique_key=f"{how} {key}", on_conflict=how
            )
            got.append([key, job.id, 1])
        except JobExists as error:
            got.append([key, error.job_id, 0])

for how in sys.argv[5:]:
    got = []
    print("ready", flush=True)
    sys.stdin.readline()
    asking = [threading.Thread(target=ask, args=(each,)) for each in range(threads)]
    for each in asking: each.start()
    for each in asking: each.join()
    print(json.dumps(got), flush=True)
jobs.close()
"""


@pytest.mark.parametrize("keys", [4, pytest.param(12, marks=pytest.mark.torture)])
def test_four_processes_of_sixteen_threads_make_one_job_of_each_key(
    empty_file: Path, tmp_path: Path, keys: int
) -> None:
    path = shutil.copy(empty_file, tmp_path / "jobs.db")
    jobs = LiteJobs(path).open()
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", ASKS, str(path)),
                *map(str, (number, THREADS, keys)),
                *HOW,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    answers: dict[str, list[Any]] = {}
    for how in HOW:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        answers[how] = []
        for child in children:
            assert child.stdout is not None
            answers[how] += json.loads(child.stdout.readline())
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    with jobs.reader() as db:
        rows = dict(db.execute("select unique_key, id from litejobs_job").fetchall())
        count = db.execute("select count(*) from litejobs_job").get
    jobs.close()
    assert count == len(HOW) * keys
    given = set()
    for how, got in answers.items():
        assert len(got) == PROCESSES * THREADS * keys, how
        given |= {(f"{how} {key}", job) for key, job, _ in got}
    assert given == set(rows.items())
    made = Counter(key for key, _, new in answers["raise"] if new)
    assert made == dict.fromkeys(range(keys), 1)


def test_what_is_replaced_has_the_options_of_the_new_one(jobs: LiteJobs) -> None:
    """Also where task, lane and options are known, and all is said in one row."""

    @jobs.task
    def sync(n: int) -> None: ...

    sync.using(timeout=4).enqueue(0)
    first = sync.using(unique_key="k", delay="1h").enqueue(1)
    later = {"unique_key": "k", "on_conflict": "replace", "delay": "1h"}
    for options, timeout_ms in (({"timeout": 4}, 4_000), ({}, None)):
        assert sync.using(**later, **options).enqueue(2).id == first.id
        with jobs.reader() as db:
            said = db.execute(
                "select options ->> '$.timeout_ms' from litejobs_job_spec "
                "where job_id = ?",
                (first.id,),
            ).get
        assert said == timeout_ms


# What is told of it -------------------------------------------------------------------


def enqueue_in_a_coroutine(jobs: LiteJobs, **options: Any) -> Job[None]:
    return asyncio.run(jobs.tasks["sync"].using(**options).aenqueue())


def enqueue_by_name_in_a_coroutine(jobs: LiteJobs, **options: Any) -> Job[None]:
    return asyncio.run(jobs.aenqueue("sync", **options))


def enqueue_beside_others(jobs: LiteJobs, **options: Any) -> Job[None]:
    async def ask() -> Job[None]:
        task = jobs.tasks["sync"]
        asked = task.aenqueue(), task.using(**options).aenqueue(), task.aenqueue()
        first, job, last = await asyncio.gather(*asked)
        assert first.is_new
        assert last.is_new
        return job

    return asyncio.run(ask())


def enqueue_in_a_transaction(jobs: LiteJobs, **options: Any) -> Job[None]:
    async def ask() -> Job[None]:
        async with jobs.atransaction():
            return await jobs.tasks["sync"].using(**options).aenqueue()

    return asyncio.run(ask())


def enqueue_in_a_chain(jobs: LiteJobs, **options: Any) -> Job[None]:
    task = jobs.tasks["sync"]
    first, job = jobs.enqueue_chain([task.call(), task.using(**options).call()])
    assert first.is_new
    return job


def run_its_schedule(jobs: LiteJobs, **options: Any) -> Job[None]:
    if "s" not in jobs.schedules:
        jobs.schedules.create("s", "sync", every("1d"), **options)
    return jobs.schedules.run_now("s")


WAYS: dict[str, Callable[..., Job[None]]] = {
    "using": lambda jobs, **options: jobs.tasks["sync"].using(**options).enqueue(),
    "by name": lambda jobs, **options: jobs.enqueue("sync", **options),
    "in a coroutine": enqueue_in_a_coroutine,
    "by name in a coroutine": enqueue_by_name_in_a_coroutine,
    "beside others": enqueue_beside_others,
    "in a transaction": enqueue_in_a_transaction,
    "in a chain": enqueue_in_a_chain,
    "then": lambda jobs, **options: jobs.enqueue("sync").then(
        jobs.tasks["sync"].using(**options)
    ),
    "by a schedule": run_its_schedule,
}


@pytest.mark.parametrize("way", WAYS)
def test_who_asks_is_told_whether_the_job_is_new(jobs: LiteJobs, way: str) -> None:
    jobs.task(lambda: None, name="sync")
    ask = WAYS[way]
    first = ask(jobs, unique_key="k")
    assert first.is_new
    again = ask(jobs, unique_key="k")
    assert (again, again.is_new) == (first, False)
    first.cancel()
    assert ask(jobs, unique_key="k").is_new
    assert not jobs.get(first.id).is_new


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_has_outlived_its_time_is_not_handed_back(
    jobs: LiteJobs, way: str, clock: Any
) -> None:
    jobs.task(lambda: None, name="sync")
    ask = WAYS[way]
    old = ask(jobs, unique_key="k", expires_in="1h")
    clock.tick(dt.timedelta(hours=1))
    new = ask(jobs, unique_key="k", expires_in="1h")
    assert new.is_new
    assert (old.state, new.state in {"pending", "blocked"}) == ("cancelled", True)


@pytest.mark.parametrize("on_conflict", ["ignore", "replace", "debounce"])
def test_a_task_that_asks_for_itself_is_told_that_nothing_was_stored(
    jobs: LiteJobs, on_conflict: str
) -> None:
    answers = []

    @jobs.task
    def poll() -> None:
        answers.append(poll.using(unique_key="poll", on_conflict=on_conflict).enqueue())

    job = poll.using(unique_key="poll").enqueue()
    assert jobs.drain() == 1
    assert [(each, each.is_new) for each in answers] == [(job, False)]


@pytest.mark.parametrize("chunk", [None, 2])
def test_of_many_it_is_told_which_are_new(jobs: LiteJobs, chunk: int | None) -> None:
    sync = jobs.task(lambda: None, name="sync")
    there = sync.using(unique_key="b").enqueue()
    calls = [sync.call()] + [sync.using(unique_key=key).call() for key in "abca"]
    ids = jobs.enqueue_many([*calls, sync.call()], chunk=chunk)
    assert ids[2] == there.id
    assert ids[4] == ids[1]
    assert ids.is_new == [True, True, False, True, False, True]
    with jobs.batch() as batch:
        assert batch.enqueue_many([sync.using(unique_key="d").call()] * 2).is_new == [
            True,
            False,
        ]
    assert asyncio.run(jobs.aenqueue_many(calls)).is_new == [True] + 4 * [False]
