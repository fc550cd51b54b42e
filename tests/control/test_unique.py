"""One job per key, whoever asks: unique keys across processes and threads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs

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
