"""One job per key, whoever asks: unique keys across processes and threads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from litejobs import LiteJobs

PROCESSES = 4
THREADS = 16
KEYS = 12

# Sixteen threads ask for jobs of few keys, again and again, all at once; what
# each was handed is printed.
ASKS = """
import json, sys, threading
from litejobs import LiteJobs
from litejobs.errors import JobExists

path, number, threads, keys, how = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
jobs = LiteJobs(path).open()
got = []
print("ready", flush=True)
sys.stdin.readline()
begin = threading.Barrier(threads)

def ask(thread):
    begin.wait()
    for key in range(keys):
        try:
            job = jobs.enqueue(
                "work", [number, thread], unique_key=f"k{key}", on_conflict=how
            )
            got.append([key, job.id, 1])
        except JobExists as error:
            got.append([key, error.job_id, 0])

asking = [threading.Thread(target=ask, args=(each,)) for each in range(threads)]
for each in asking: each.start()
for each in asking: each.join()
print(json.dumps(got))
jobs.close()
"""


@pytest.mark.parametrize("how", ["ignore", "replace", "debounce", "raise"])
def test_four_processes_of_sixteen_threads_make_one_job_of_each_key(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path).open()
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", ASKS, str(path)),
                *map(str, (number, THREADS, KEYS)),
                how,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    got = []
    for child in children:
        printed, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        got += json.loads(printed)
    assert len(got) == PROCESSES * THREADS * KEYS
    with jobs.reader() as db:
        rows = dict(db.execute("select unique_key, id from litejobs_job").fetchall())
        count = db.execute("select count(*) from litejobs_job").get
    jobs.close()
    assert count == KEYS
    assert {(f"k{key}", job) for key, job, _ in got} == set(rows.items())
    if how == "raise":
        made = Counter(key for key, _, new in got if new)
        assert made == dict.fromkeys(range(KEYS), 1)


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
