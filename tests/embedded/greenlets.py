"""A program whose threads, or parts of Python, a library has replaced."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

WORK = """
import os, time
from litejobs import LiteJobs, Retry, every
from litejobs.executors import Processes
jobs = LiteJobs(os.environ["JOBS_DB"], executors={"apart": Processes(1)})
tries, ticks = [], []
@jobs.task
def add(one: int, other: int) -> int:
    time.sleep(0.3)
    return one + other
@jobs.task(retry=Retry.fixed([1], jitter=0))
def second_time() -> int:
    tries.append(1)
    if len(tries) < 2:
        raise ValueError("not yet")
    return len(tries)
@jobs.schedule(every("1s"))
def tick() -> None:
    ticks.append(1)
@jobs.task(executor="apart")
def where() -> int:
    return os.getpid()
@jobs.task
async def awaits() -> str:
    import asyncio
    await asyncio.sleep(0.01)
    return "awaited"
"""

MAIN = """
import importlib, json, os, sys, time
library, order, threads = sys.argv[1:]
def patch():
    if library == "gevent":
        from gevent import monkey
        monkey.patch_all(**({} if threads == "all" else {"thread": False}))
    else:
        import eventlet
        eventlet.monkey_patch(**({} if threads == "all" else {"thread": False}))
if order == "before":
    patch()
import work
if order == "after":
    patch()
spawn = importlib.import_module(library).spawn
beats, found = [], {}
def beat():
    while True:
        beats.append(1)
        time.sleep(0.01)
def program():
    jobs = work.jobs
    jobs.start(threads=2)
    before = len(beats)
    found["sum"] = work.add.enqueue(1, 2).result(timeout=60)
    found["beats"] = len(beats) - before
    found["tries"] = work.second_time.enqueue().result(timeout=60)
    found["apart"] = work.where.enqueue().result(timeout=60) != os.getpid()
    found["awaited"] = work.awaits.enqueue().result(timeout=60)
    until = time.monotonic() + 60
    while not work.ticks and time.monotonic() < until:
        time.sleep(0.05)
    found["ticked"] = bool(work.ticks)
    found["healthy"] = jobs.health()["healthy"]
    begun = time.monotonic()
    jobs.stop()
    found["stopped"] = time.monotonic() - begun < 30
spawn(beat)
running = spawn(program)
running.get() if library == "gevent" else running.wait()
print(json.dumps(found))
"""


class Program:
    """It runs in the folder, and ends by itself."""

    def __init__(self, python: Path, folder: Path, *arguments: str) -> None:
        folder.mkdir()
        (folder / "work.py").write_text(WORK, "utf-8")
        (folder / "main.py").write_text(MAIN, "utf-8")
        environment = os.environ | {
            "JOBS_DB": str(folder / "app.db"),
            "PYTHONPATH": str(folder),
        }
        self.process = subprocess.Popen(
            [python, "-W", "ignore", "main.py", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def found(self) -> dict[str, Any]:
        """What it has printed; it may take a while on a busy machine."""
        out, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, out
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found


def check_each_way(python: Path, folder: Path, library: str) -> None:
    """All work, whichever parts were replaced, before litejobs is imported or after.

    Where threads are greenlets, others go on while one waits for a job.
    """
    ways = [
        (order, threads)
        for order in ("before", "after")
        for threads in ("all", "no threads")
    ]
    programs = [
        Program(python, folder / f"{order} {threads}", library, order, threads)
        for order, threads in ways
    ]
    try:
        for way, program in zip(ways, programs, strict=True):
            found = program.found()
            beats = found.pop("beats")
            assert found == {
                "sum": 3,
                "tries": 2,
                "apart": True,
                "awaited": "awaited",
                "ticked": True,
                "healthy": True,
                "stopped": True,
            }, way
            assert beats > 2 or way[1] != "all", way
    finally:
        for program in programs:
            program.process.kill()
            program.process.communicate()
