"""A small program of its own, whose memory is looked at: litejobs, or bare apsw.

    python -m tests.bench._small PROGRAM FILE DURABILITY JOBS

Prints, as JSON, the MB that it has when it idles after a hundred jobs, and the MB by
which it has grown after so many more, counted from when a tenth of them were done: by
then the caches of SQLite are full.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.bench._resident import resident

FIRST = 100
CHUNK = 50_000
THREADS = 4
PATIENCE = 600.0  # seconds for a chunk


def of_litejobs(path: str, durability: Any, count: int) -> dict[str, float]:
    """An application with one task."""
    from litejobs import LiteJobs

    jobs = LiteJobs(path, durability=durability)

    @jobs.task
    def nothing(number: int) -> None: ...

    with jobs.running(threads=THREADS) as runner:

        def run(first: int, last: int) -> None:
            jobs.enqueue_many(nothing.call(number) for number in range(first, last))
            if not runner.wait_idle(PATIENCE):
                raise RuntimeError("the jobs have not run")

        measured = _measured(run, count)
    done = jobs.counts().get("completed", 0)
    jobs.close()
    if done != FIRST + count:
        raise RuntimeError(f"{done} of {FIRST + count} jobs were completed")
    return measured


def of_bare(path: str, durability: Any, count: int) -> dict[str, float]:
    """The bare table, in one thread."""
    from pathlib import Path

    from tests.bench import _bare

    connection = _bare.connect(Path(path), durability)

    def run(first: int, last: int) -> None:
        _bare.insert_all(connection, map(_bare.row, range(first, last)))
        _bare.drain(connection)

    measured = _measured(run, count)
    connection.close()
    return measured


def _measured(run: Callable[[int, int], None], count: int) -> dict[str, float]:
    run(0, FIRST)
    time.sleep(0.2)
    idle = resident()
    warm = count // 10
    at = base = 0
    while at < count:
        until = min(at + CHUNK, count if at >= warm else warm)
        run(at, until)
        at = until
        if at == warm:
            base = resident()
    return {"idle": idle / 1e6, "growth": (resident() - base) / 1e6 if count else 0}


PROGRAMS = {"litejobs": of_litejobs, "bare": of_bare}


def main(program: str, path: str, durability: str, count: str) -> None:
    """The figures are printed."""
    print(json.dumps(PROGRAMS[program](path, durability, int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
