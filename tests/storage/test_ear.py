"""Whoever listens hears of commits: those of this process, and those of others."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._storage import change_hints
from litejobs._storage.ear import Ear, ear_of
from litejobs.errors import ResultTimeout
from litejobs.testing import hold_clock, release_clock
from tests.programs import Program
from tests.waiting import LONG, Times, eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    jobs = LiteJobs(tmp_path / "jobs.db")
    yield jobs.open()
    jobs.close()


OTHER = """
import sys
from litejobs import LiteJobs
for line in sys.stdin:
    with LiteJobs(line[:-1]) as jobs:
        jobs.enqueue("work")
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def other() -> Iterator[Callable[[str | os.PathLike[str]], None]]:
    """Another process enqueues a job in the file, and closes it."""
    with Program(
        [sys.executable, "-c", OTHER],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def enqueue(path: str | os.PathLike[str]) -> None:
            stdin.write(f"{os.fspath(path)}\n")
            stdin.flush()
            assert stdout.readline() == "done\n"

        yield enqueue
        stdin.close()
    assert process.returncode == 0


def elsewhere(path: str | os.PathLike[str], program: str) -> None:
    """Another process does this to the file, and is gone."""
    prologue = f"from litejobs import LiteJobs\njobs = LiteJobs({str(path)!r})\n"
    subprocess.run(
        [sys.executable, "-c", prologue + textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=LONG,
        check=True,
    )


def threads() -> set[str]:
    return {
        each.name
        for each in threading.enumerate()
        if each.name in {"litejobs-ear", "litejobs-notify"}
    }


def ear_on(jobs: LiteJobs) -> Ear:
    return ear_of(jobs._store.database)


def settled(jobs: LiteJobs) -> None:
    """The ear has looked since it began, and hears nothing of before."""
    eventually(lambda: ear_on(jobs)._seen is not None)


@pytest.mark.parametrize("told", [True, False], ids=["told", "looking"])
@pytest.mark.parametrize("held", [True, False], ids=["held", "running"])
def test_a_commit_of_another_process_is_heard(
    empty_file: Path,
    tmp_path: Path,
    other: Callable[[str | os.PathLike[str]], None],
    told: bool,
    held: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether or not the system tells of it, and whatever the clock does."""
    if not told:
        monkeypatch.setattr(change_hints, "watch", lambda *_, **__: None)
    if not held:
        release_clock()
    try:
        with LiteJobs(shutil.copy(empty_file, tmp_path)) as jobs:
            heard = threading.Event()
            ear_on(jobs).add(heard.set)
            settled(jobs)
            for _ in range(3):
                heard.clear()
                other(jobs.path)
                assert heard.wait(LONG)
            ear_on(jobs).remove(heard.set)
    finally:
        if not held:
            hold_clock()


class _Disk(apsw.VFS):
    """A disk that is told when to have stored something."""

    def __init__(self) -> None:
        super().__init__("slow", "")
        self.goes_on, self.is_asked = threading.Event(), threading.Event()
        self.goes_on.set()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(
        self, disk: _Disk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:
        self._disk.is_asked.set()
        self._disk.goes_on.wait(LONG)
        super().xSync(flags)


def test_a_commit_that_is_long_on_its_way_to_the_disk_is_heard(
    tmp_path: Path, times: Times
) -> None:
    """It can be seen long after the system has told that it was written."""
    times(safe_poll=10.0 * LONG)
    release_clock()
    disk = _Disk()
    try:
        with LiteJobs(tmp_path / "jobs.db") as jobs:
            heard = threading.Event()
            ear = ear_on(jobs)
            ear.add(heard.set)
            settled(jobs)
            other = apsw.Connection(jobs.path, vfs="slow")
            other.pragma("synchronous", "full")

            def write() -> None:
                other.execute("insert into litejobs_job (task) values ('work')")

            def is_told_of_them() -> bool:
                write()
                return ear._watch is None or ear._is_proved

            eventually(is_told_of_them)
            eventually(lambda: ear._watch is None or ear._watch._listens)
            times(hint_holds=0.0)
            disk.goes_on.clear()
            disk.is_asked.clear()
            writing = threading.Thread(target=write)
            writing.start()
            assert disk.is_asked.wait(LONG)
            eventually(
                lambda: ear._watch is None or (ear._hinted_at and ear._watch._listens)
            )
            heard.clear()
            disk.goes_on.set()
            assert heard.wait(LONG)
            writing.join(LONG)
            ear.remove(heard.set)
            other.close()
    finally:
        disk.goes_on.set()
        disk.unregister()
        hold_clock()


def test_a_commit_of_this_process_is_heard_at_once(jobs: LiteJobs) -> None:
    heard: list[int] = []

    def listener() -> None:
        heard.append(threading.get_ident())

    ear_on(jobs).add(listener)
    jobs.enqueue("work")
    assert threading.get_ident() in heard
    ear_on(jobs).remove(listener)
    before = list(heard)
    jobs.enqueue("work")
    assert heard == before


def test_its_threads_end_when_nobody_listens_any_more(
    jobs: LiteJobs, times: Times
) -> None:
    times(ear_patience=0.001)
    assert threads() == set()
    listener = threading.Event().set
    for _ in range(3):
        ear_on(jobs).add(listener)
        assert "litejobs-ear" in threads()
        ear_on(jobs).remove(listener)
        eventually(lambda: threads() == set())


def test_who_listens_hears_that_the_file_is_closed(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    heard = threading.Event()
    ear_on(jobs).add(heard.set)
    jobs.close()
    assert heard.is_set()
    assert threads() == set()


def test_a_database_in_memory_needs_no_thread(jobs: LiteJobs) -> None:
    with LiteJobs(":memory:") as memory:
        heard = threading.Event()
        ear_on(memory).add(heard.set)
        assert threads() == set()
        memory.enqueue("work")
        assert heard.is_set()


def test_a_look_that_fails_is_heard_and_looks_go_on(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = threading.Event()
    ear_on(jobs).add(heard.set)
    settled(jobs)
    broken = threading.Event()
    reader = type(jobs._store.database).reader

    def failing(self: object, **given: object) -> object:
        if threading.current_thread().name == "litejobs-ear" and not broken.is_set():
            broken.set()
            raise OSError("the disk is gone")
        return reader(self, **given)

    monkeypatch.setattr(type(jobs._store.database), "reader", failing)
    heard.clear()
    assert broken.wait(LONG)
    assert heard.wait(LONG)
    heard.clear()
    elsewhere(jobs.path, "jobs.enqueue('work')")
    assert heard.wait(LONG)
    ear_on(jobs).remove(heard.set)


def test_a_result_of_another_process_is_heard_of(jobs: LiteJobs, times: Times) -> None:
    """By the ear, and not by a look of the one who waits."""
    times(without_ear=0.0, safe_poll=10.0 * LONG)
    job = jobs.enqueue("double", [21])
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(job.result(LONG)))
    waiting.start()
    eventually(lambda: "litejobs-ear" in threads())
    elsewhere(
        jobs.path,
        """
        @jobs.task
        def double(n): return 2 * n

        jobs.drain()
        """,
    )
    waiting.join(LONG)
    assert found == [42]


def test_a_result_that_does_not_come_is_not_waited_for_longer(
    jobs: LiteJobs, times: Times
) -> None:
    """However often others commit meanwhile."""
    times(without_ear=0.0)
    job = jobs.enqueue("nobody runs it")
    over = threading.Event()

    def others() -> None:
        while not over.is_set():
            jobs.enqueue("other")

    busy = threading.Thread(target=others)
    busy.start()
    try:
        with pytest.raises(ResultTimeout, match=r"still pending after 0\.05 s"):
            job.result(0.05)
    finally:
        over.set()
        busy.join()


def test_a_job_that_runs_here_is_waited_for_without_a_thread(jobs: LiteJobs) -> None:
    @jobs.task
    def double(number: int) -> int:
        return 2 * number

    before = threads()
    with jobs.running(threads=1):
        assert double.enqueue(21).result(LONG) == 42
    gc.collect()
    assert threads() - before <= {"litejobs-notify"}
