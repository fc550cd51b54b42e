"""A small program with jobs: what it has done is printed, a line for each step."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import multiprocessing
import os
import sys
import time
import zoneinfo
from pathlib import Path

import work

from litejobs import LiteJobs
from litejobs.errors import FileRefused


def main() -> None:
    began = time.monotonic()
    with work.jobs.running(threads=2):
        print("double", work.double.enqueue(21).result(timeout=60))
        first = time.monotonic() - began
        print("retry", work.second_time.enqueue().result(timeout=60))
        job = work.fails.using(max_attempts=1).enqueue()
        while job.state != "dead_lettered":
            time.sleep(0.01)
        print("frames", str(job.attempts[0].outcome).count("File "))
        print("cron", work.jobs.schedules.run_now("report").result(timeout=60) > "000")
        [coming] = work.jobs.schedules.upcoming(1)
        print("upcoming", coming.at.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")).hour)
        other = work.process.enqueue().result(timeout=60)
        print("process", other not in (os.getpid(), os.getppid()))
    versions = [importlib.metadata.version(name) for name in ("litejobs", "cronsim")]
    print("versions", len(versions))
    from litejobs.cli import main as command

    try:
        command(["--db", "app.db", "list", "--limit", "1"])
    except SystemExit as end:
        print("command", end.code)
    for name in ("inotify_simple", "tzdata"):
        if importlib.util.find_spec(name) is not None:
            print("extra", name)
    try:
        LiteJobs(Path(__file__).with_name("beside.db")).open().close()
    except FileRefused as error:
        if "deleted when it ends" in str(error):
            print("beside refused")
    print("first job after", first, file=sys.stderr)


if __name__ == "__main__":
    multiprocessing.freeze_support()
    main()
