"""How much is written to the disk for a job: what wears out flash.

The kernel counts it for each process (Linux, `write_bytes` of /proc/self/io): a page of
a file counts when it becomes dirty, and again when it does so after it was written
back. With durability "full" each commit writes back what it has put into the log, so
this is what the disk is given, by pages of 4 KiB, but for what the file system adds of
its own (its journal), and for what the disk does with it. The last checkpoint, when the
file is closed, is counted as well. On a disk in memory nothing is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import _bare
from tests.bench._figures import Durability, Figure, Measured, Sizes, Workload
from tests.bench._subject import PATIENCE, THREADS, new_path, on_file

COUNTED = sys.platform == "linux"


def written() -> int:
    """How many bytes this process has given to disks so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def wear(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Jobs that do nothing, each alone (from call to settled), and then all at once.

    Half of them are for the tables to fill. History is kept.
    """
    count = sizes.wear
    with new_path(folder) as path:
        with (
            on_file(path, durability) as subject,
            subject.jobs.running(threads=THREADS) as runner,
        ):
            subject.enqueue(count)
            runner.wait_idle(PATIENCE)
        with on_file(path, durability) as subject:
            before = written()
            with subject.jobs.running(threads=THREADS) as runner:
                for number in range(count):
                    subject.nothing.enqueue(number)
                    runner.wait_idle(PATIENCE)
            subject.jobs.close()
            alone = written() - before
        with on_file(path, durability) as subject:
            before = written()
            subject.enqueue(count)
            with subject.jobs.running(threads=THREADS) as runner:
                runner.wait_idle(PATIENCE)
            subject.jobs.close()
            together = written() - before
    return _per_job(count, alone, together)


def bare_wear(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same with bare rows: each inserted, claimed and done in its own commits."""
    count = sizes.wear
    with new_path(folder) as path:
        connection = _bare.connect(path, durability)
        _bare.insert_all(connection, map(_bare.row, range(count)))
        _bare.drain(connection)
        connection.close()
        connection = _bare.connect(path, durability)
        before = written()
        for number in range(count):
            _bare.insert_each(connection, [_bare.row(number)])
            _bare.drain(connection)
        connection.close()
        alone = written() - before
        connection = _bare.connect(path, durability)
        before = written()
        _bare.insert_all(connection, map(_bare.row, range(count)))
        _bare.drain(connection)
        connection.close()
        together = written() - before
    return _per_job(count, alone, together)


def _per_job(count: int, alone: int, together: int) -> Measured:
    """In KB; a disk in memory has none."""
    return {"alone": alone / count / 1000, "together": together / count / 1000}


WEAR = (
    Workload(
        name="wear",
        says="what is written to the disk for a no-op job, alone and among many",
        figures=(
            Figure(name="alone", unit="KB/job"),
            Figure(name="together", unit="KB/job"),
        ),
        subject=wear,
        reference=bare_wear,
    ),
)
