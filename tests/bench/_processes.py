"""What it costs to have litejobs at all: to import it, and a runner with nothing to do.

Where the interpreter's own state matters, each measurement is a fresh process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from tests.bench import _bare
from tests.bench._figures import Bar, Durability, Figure, Measured, Sizes, Workload
from tests.bench._hearing import NOTIFIED, polling_alone
from tests.bench._subject import PATIENCE, THREADS, new_path, on_file
from tests.bench._wear import COUNTED, written

ROOT = Path(__file__).resolve().parents[2]
LOOK = 0.05  # seconds between two looks of the reference
LEAST = 0.1  # MB; what grew by less has not grown

IMPORT = """
import time
begun = time.perf_counter()
{statement}
print(time.perf_counter() - begun)
"""
# To import litejobs, and to have what a program needs of it.
OURS = {"import": "import litejobs", "LiteJobs": "from litejobs import LiteJobs"}
BARE = "import apsw, attrs"


def ask_python(*arguments: str) -> str:
    """What a fresh interpreter printed that can import litejobs and these benchmarks.

    Raises:
        CalledProcessError: It failed; its message is above.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.getenv("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def importing(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Each in a fresh interpreter, whose own start is not counted."""
    return {name: _imported(statement) for name, statement in OURS.items()}


def bare_importing(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """What is imported in any case."""
    return dict.fromkeys(OURS, _imported(BARE))


def _imported(statement: str) -> float:
    """For how many ms a fresh interpreter executes that."""
    return float(ask_python("-c", IMPORT.format(statement=statement))) * 1000


def compiled(folder: Path, sizes: Sizes) -> None:
    """The bytecode of all that is imported is there."""
    for statement in (*OURS.values(), BARE):
        _imported(statement)


# An idle runner -----------------------------------------------------------------------


def idle(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A runner that has run a job, and since then for some seconds none.

    The second figure says how many of three signs of a write there were: a version seen
    by another connection, the file, and its log. The third is what the kernel counts.
    """
    with new_path(folder) as path, on_file(path, durability) as subject:
        with (
            subject.jobs.running(threads=THREADS) as runner,
            subject.jobs.reader() as db,
        ):
            subject.mark.enqueue()
            subject._wait_started()
            runner.wait_idle(PATIENCE)
            time.sleep(sizes.idle / 4)
            return _idled(db, path, sizes)


def idle_standby(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A process that stands by, while another one runs the jobs and has none."""
    with (
        new_path(folder) as path,
        _idling(path, durability),
        on_file(path, durability) as subject,
        subject.jobs.running(threads=THREADS) as runner,
        subject.jobs.reader() as db,
    ):
        time.sleep(max(0.5, sizes.idle / 4))
        if runner.role != "standby":
            raise RuntimeError(f"it does not stand by: {runner.role}")
        return _idled(db, path, sizes)


def _idled(db: apsw.Connection, path: Path, sizes: Sizes) -> Measured:
    before, counted = _signs(db, path), _written()
    used = _used(lambda: time.sleep(sizes.idle))
    written, after = _written() - counted, _signs(db, path)
    return {
        "cpu": used,
        "writes": sum(old != new for old, new in zip(before, after, strict=True)),
        **({"written": written} if COUNTED else {}),
    }


def _written() -> int:
    return written() if COUNTED else 0


@contextlib.contextmanager
def _idling(path: Path, durability: Durability) -> Iterator[None]:
    """Another process has a runner with nothing to do."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench._processes", str(path), durability],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "running\n":
            raise RuntimeError("the runner has not begun")
        yield
    finally:
        process.kill()
        process.communicate()


def run(path: str, durability: Durability) -> None:
    """The other process: until its input ends."""
    with on_file(Path(path), durability) as subject, subject.jobs.running():
        print("running", flush=True)
        sys.stdin.read()


def idle_by_polling(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same without notification."""
    with polling_alone():
        return idle(folder, durability, sizes)


def bare_idle(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A thread that asks for the version of the data, twenty times a second."""
    done = threading.Event()
    with (
        new_path(folder) as path,
        contextlib.closing(_bare.connect(path, durability)) as connection,
    ):

        def look() -> None:
            while not done.wait(LOOK):
                _bare.version(connection)

        thread = threading.Thread(target=look)
        thread.start()
        used = _used(lambda: time.sleep(sizes.idle))
        done.set()
        thread.join()
    return {"cpu": used, "writes": 0, **({"written": 0} if COUNTED else {})}


def _used(action: Callable[[], None]) -> float:
    """How much of a core this process used meanwhile, per mille."""
    begun, cpu = time.perf_counter(), time.process_time()
    action()
    seconds = time.perf_counter() - begun
    # A clock as coarse as on Windows may not have moved.
    return max(time.process_time() - cpu, 1e-6) / seconds * 1000


def _signs(db: apsw.Connection, path: Path) -> list[object]:
    signs: list[object] = [_bare.version(db)]
    for each in (path, path.with_name(f"{path.name}-wal")):
        found = each.stat() if each.exists() else None
        signs.append(found and (found.st_size, found.st_mtime_ns))
    return signs


# Memory -------------------------------------------------------------------------------


def _remembered(
    program: str, folder: Path, durability: Durability, jobs: int
) -> Measured:
    with new_path(folder) as path:
        arguments = (program, str(path), durability, str(jobs))
        measured: Measured = json.loads(
            ask_python("-m", "tests.bench._small", *arguments)
        )
    return {name: max(value, LEAST) for name, value in measured.items()}


def memory(program: str) -> Callable[[Path, Durability, Sizes], Measured]:
    """What this small program has when it idles."""
    return lambda folder, durability, _: _remembered(program, folder, durability, 0)


def growth(program: str) -> Callable[[Path, Durability, Sizes], Measured]:
    """By how much this small program grows while it drains."""
    return lambda folder, durability, sizes: _remembered(
        program, folder, durability, sizes.memory
    )


# The workloads ------------------------------------------------------------------------


WRITTEN = (
    (Figure(name="written", unit="bytes", bars=(Bar(of="value", limit=0),)),)
    if COUNTED
    else ()
)


def idling(
    name: str,
    says: str,
    measure: Callable[[Path, Durability, Sizes], Measured],
    limit: float,
) -> Workload:
    """A runner with nothing to do, that may use so much per mille of a core."""
    return Workload(
        name=name,
        says=says,
        figures=(
            Figure(
                name="cpu", unit="‰ of a core", bars=(Bar(of="value", limit=limit),)
            ),
            Figure(name="writes", unit="signs", bars=(Bar(of="value", limit=0),)),
            *WRITTEN,
        ),
        subject=measure,
        reference=bare_idle,
        reference_is="bare, 20 looks/s",
        durabilities=("full",),
    )


PROCESSES = (
    idling("idle", "a runner with nothing to do", idle, 2 if NOTIFIED else 3),
    idling("idle-polling", "the same without notification", idle_by_polling, 3),
    idling("idle-standby", "a standby beside it", idle_standby, 3),
    Workload(
        name="import",
        says="import litejobs, in fresh interpreters",
        figures=tuple(
            Figure(name=name, unit="ms", bars=(Bar(of="ratio", limit=0.5),))
            for name in OURS
        ),
        subject=importing,
        reference=bare_importing,
        reference_is="apsw, attrs",
        pairs=5,
        durabilities=("full",),
        prepare=compiled,
    ),
    Workload(
        name="memory",
        says="the memory of a small program with an idle runner",
        figures=(Figure(name="idle", unit="MB", bars=(Bar(of="value", limit=40),)),),
        subject=memory("litejobs"),
        reference=memory("bare"),
        durabilities=("full",),
    ),
    Workload(
        name="memory-drain",
        says="by how much it grows while it drains a million jobs",
        figures=(Figure(name="growth", unit="MB", bars=(Bar(of="value", limit=4),)),),
        subject=growth("litejobs"),
        reference=growth("bare"),
        most_rounds=1,
        durabilities=("full",),
    ),
)

if __name__ == "__main__":
    run(*sys.argv[1:])  # type: ignore[arg-type]
