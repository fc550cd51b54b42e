"""kill -9 at any moment: nothing that was acknowledged is lost, nothing runs twice.

A child runs jobs and writes each start and end into a ledger, another one enqueues and
writes each acknowledged id into a second one; both are killed, again and again, at
moments that a seed chooses. Each failure names the seed and the round.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from litejobs import LiteJobs
from litejobs._storage import statements

HERE = Path(__file__).parent
PROGRAMS = HERE / "killprograms"


class Child:
    """A program of the folder, which says when it is ready and waits for its line."""

    def __init__(self, name: str, database: Path, ledger: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / name), str(database), str(ledger)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def go(self, line: str) -> None:
        """The child does its work from now on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        """The child is gone, without a chance to say anything."""
        self.process.kill()
        self.end()

    def end(self) -> int:
        """The exit status, when the child has ended."""
        status = self.process.wait(120)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return status


def lines(ledger: Path) -> list[str]:
    """Whole lines: the last one may be cut by a kill before its fsync."""
    return ledger.read_text().split("\n")[:-1] if ledger.exists() else []


def kill_rounds(folder: Path, rounds: int, seed: int) -> None:
    """Both programs are killed *rounds* times, then all jobs are run to their end."""
    chance = random.Random(seed)
    database, starts, asked = (folder / name for name in ("jobs.db", "ran", "asked"))
    pause = threading.Event()
    for number in range(rounds):
        runner = Child("runner.py", database, starts)
        enqueuer = Child("enqueuer.py", database, asked)
        runner.go("run")
        before = len(lines(asked))
        enqueuer.go(str(number * 1_000_000))
        for _ in range(3000):
            if len(lines(asked)) > before or pause.wait(0.01):
                break
        pause.wait(chance.uniform(0.0, 0.13))
        victims = [runner, enqueuer]
        chance.shuffle(victims)
        for victim in victims:
            victim.kill()
            pause.wait(chance.choice((0, 0.01)))
    last = Child("runner.py", database, starts)
    last.go("finish")
    assert last.end() == 0, f"seed {seed}"
    check(database, lines(starts), lines(asked), f"seed {seed}")


def check(database: Path, ran: list[str], asked: list[str], seed: str) -> None:
    """The file and the two ledgers agree."""
    jobs = LiteJobs(database).open()
    with jobs.reader() as db:
        states = dict(db.execute("select id, state from litejobs_job"))
        attempts = db.execute(
            "select id, job_id, start_no, status, decision from litejobs_attempt "
            "order by job_id, start_no"
        ).fetchall()
        assert db.execute("pragma integrity_check").get == "ok"
    jobs.close()
    acknowledged = [int(line) for line in asked]
    assert len(acknowledged) == len(set(acknowledged)), seed
    lost = [job for job in acknowledged if job not in states]
    assert lost == [], f"{seed}: acknowledged jobs are lost"
    assert set(states.values()) == {"completed"}, seed
    started = Counter(line.split()[2] for line in ran if line.startswith("start"))
    ended = Counter(line.split()[1] for line in ran if line.startswith("end"))
    assert [each for each, times in started.items() if times > 1] == [], seed
    by_job: dict[int, list[tuple[int, str]]] = {}
    known = set()
    for number, job, start_no, status, _ in attempts:
        known.add(str(number))
        by_job.setdefault(job, []).append((start_no, status))
    assert set(started) <= known, f"{seed}: a start that the file does not know"
    for job, history in by_job.items():
        assert [start_no for start_no, _ in history] == list(
            range(1, len(history) + 1)
        ), f"{seed}: job {job}"
        statuses = [status for _, status in history]
        assert statuses[-1] == "ok", f"{seed}: job {job}"
        assert statuses.count("ok") == 1, f"{seed}: job {job}"
        # It ended as often as it is said to have, or once more for each crash that
        # came between its end and the commit of it.
        assert 1 <= ended[str(job)] <= 1 + statuses.count("crashed"), f"{seed}: {job}"


def test_nothing_is_lost_or_doubled_by_kills(tmp_path: Path) -> None:
    kill_rounds(tmp_path, 3, seed=1)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_doubled_by_500_kills(tmp_path: Path, seed: int) -> None:
    kill_rounds(tmp_path, 50, seed)


STATEMENTS = ["enqueue_job", "claim", "settle_many", "tick", "assignments", "commit"]
# Each statement has run or not; between them is the commit, which is tried both ways.
AT_LEAST = {
    *(("before", each) for each in ("enqueue_job", "tick", "commit")),
    *(("after", each) for each in ("claim", "assignments", "settle_many", "commit")),
}


@pytest.mark.parametrize(
    ("moment", "statement"),
    [
        pytest.param(
            *each,
            marks=[] if each in AT_LEAST else pytest.mark.torture,
            id="-".join(each),
        )
        for each in itertools.product(["before", "after"], STATEMENTS)
    ],
)
def test_process_that_ends_at_a_statement_leaves_all_or_nothing(
    empty_file: Path, tmp_path: Path, statement: str, moment: str
) -> None:
    """It dies before or after the statement; the next process finds the truth."""
    path = shutil.copy(empty_file, tmp_path / "jobs.db")
    sql = statement if statement == "commit" else statements.queries()[statement]
    program = f"""
import os, sys
from litejobs import LiteJobs, Retry
from litejobs._storage import statements
jobs = LiteJobs({str(path)!r})

@jobs.task(retry=Retry.constant(0, max_attempts=9), max_crashes=9, crash_delay=0)
def work(n):
    if n == 0:
        raise ValueError

for n in (0, 1, 1):
    work.enqueue(n)
print("acknowledged", flush=True)
with jobs.transaction() as db:
    pass
seen = []

def trace(cursor, text, bindings):
    if {moment!r} == "after" and seen:
        os._exit(9)
    if text.strip() == {sql!r}.strip():
        seen.append(text)
        if {moment!r} == "before":
            os._exit(9)
    return True

db.exec_trace = trace
work.enqueue(1)
jobs.drain()
print("survived")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        check=False,
    )
    assert (done.returncode, done.stdout) == (9, "acknowledged\n"), done.stderr
    jobs = LiteJobs(path)
    jobs.task(name="work")(lambda n: n)
    jobs.open()
    for job in jobs.list():
        opened = [
            each for each in jobs.get(job.id).attempts if each.finished_at is None
        ]
        assert len(opened) == (job.state == "processing")
    assert 3 <= len(jobs.list()) <= 4
    for _ in range(3):
        jobs.drain()
        for job in jobs.list(state="failed"):
            jobs.get(job.id).run_now()
    assert set(jobs.counts()) == {"completed"}
    for job in jobs.list():
        statuses = [each.status for each in jobs.get(job.id).attempts]
        assert statuses[-1] == "ok"
        assert set(statuses[:-1]) <= {"crashed", "error"}
    jobs.close()
