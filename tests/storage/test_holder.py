"""Who waits for the file is told who keeps it, as far as that is known."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from litejobs import LiteJobs, Runner
from litejobs._storage import readers
from litejobs._storage.lock_holder import holder_elsewhere, holder_here
from litejobs._storage.writer_lock import HANDING_OVER, Waiter
from litejobs.errors import DatabaseBusy
from tests.programs import Program
from tests.waiting import Times, eventually

LONG = 60.0
SHORT = 0.01


class Importer:
    """A thread that keeps a transaction open until it is told to end it."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.jobs = jobs
        self.began, self.on, self.go = (threading.Event() for _ in range(3))

    def import_orders(self) -> None:
        with self.jobs.transaction():
            self.began.set()
            self.on.wait(LONG)
            self.go.wait(LONG)

    def import_in_coroutine(self) -> None:
        async def read_orders() -> None:
            self.import_orders()

        asyncio.run(read_orders())

    @contextlib.contextmanager
    def at_work(self, *, coroutine: bool = False) -> Iterator[None]:
        target = self.import_in_coroutine if coroutine else self.import_orders
        thread = threading.Thread(target=target, name="orders\x1b[2J")
        thread.start()
        try:
            assert self.began.wait(LONG)
            yield
        finally:
            self.on.set()
            self.go.set()
            thread.join()


@pytest.mark.parametrize("coroutine", [False, True])
def test_thread_that_keeps_the_file_is_named(jobs: LiteJobs, coroutine: bool) -> None:
    database = jobs.open()._store.database
    with (
        Importer(jobs).at_work(coroutine=coroutine),
        pytest.raises(DatabaseBusy) as raised,
        database.transaction(SHORT),
    ):
        raise AssertionError("never comes here")
    text = str(raised.value)
    assert "has kept" in text
    assert f"for {SHORT:g} s: thread 'orders\\x1b[2J'" in text
    assert (", coroutine " in text) is coroutine
    assert ("read_orders holds it" in text) is coroutine
    assert " holds it, in Importer.import_orders (test_holder.py, line " in text
    assert text.endswith(
        "; keep jobs.transaction() blocks short, and give enqueue_many() a chunk"
    )


def test_who_is_gone_is_not_named() -> None:
    assert holder_here(None) == "it is over now"
    assert holder_here((HANDING_OVER, Waiter(None, None))) == "it is over now"
    assert holder_here((-7, None)) == "a thread holds it"


def test_function_of_a_library_is_named_where_there_is_no_other() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(LONG,), name="waits")
    thread.start()
    try:
        assert thread.ident is not None
        told = holder_here((thread.ident, None))
        assert told.startswith("thread 'waits' holds it, in ")
        assert " (threading.py, line " in told
    finally:
        go.set()
        thread.join()


def test_only_who_writes_to_this_file_has_its_write_lock() -> None:
    lines = [
        "1: POSIX  ADVISORY  READ 11 fe:00:77 124 124",
        "2: POSIX  ADVISORY  WRITE 12 fe:00:77 121 121",
        "3: POSIX  ADVISORY  WRITE 13 fe:00:78 120 120",
        "4: POSIX  ADVISORY  WRITE 14 fe:00:77 120 120",
    ]

    def found() -> readers.Reads:
        return readers.locks_in(lines, "fe:00", 77, "WRITE", readers.WRITE_LOCK)

    assert found() == {(14, 120)}
    lines.append(f"5: POSIX  ADVISORY  READ {os.getpid()} fe:09:77 128 128")
    lines.append("6: POSIX  ADVISORY  WRITE 19 fe:09:77 120 122")
    assert found() == {(19, 120)}
    assert readers.write_of("/there/is/no/such-shm") is None
    assert holder_elsewhere("/there/is/no/such") == "another connection"


def test_process_that_keeps_the_file_is_named(tmp_path: Path, times: Times) -> None:
    times(busy_timeout=0.05)
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)
    jobs.open()
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
        "c.execute('begin immediate'); print('held', flush=True); sys.stdin.read()"
    )
    with Program(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(DatabaseBusy) as raised:
            jobs.enqueue("note")
        holder.communicate()
    who = f"process {holder.pid} (" if sys.platform == "linux" else "another connection"
    assert str(raised.value).startswith(who)
    assert f" kept the write lock of {path} for too long (" in str(raised.value)
    assert jobs.enqueue("note").state == "pending"
    jobs.close()


def assert_told_once(said: list[str]) -> None:
    """Each time until it goes on: on a busy machine, looks of others are waited for."""
    said = [each for each in said if "the runner " in each]
    waits = "the runner waits for the jobs file: a transaction of this process"
    goes_on = "the runner goes on after: a transaction of this process"
    assert [each.startswith(waits) for each in said] == [True, False] * (len(said) // 2)
    assert all(each.startswith(goes_on) for each in said[1::2])
    assert said


def test_runner_says_whom_it_waits_for(
    tmp_path: Path, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and not at each try, although whoever it is goes on from line to line."""
    times(turn_patience=SHORT)
    caplog.set_level(logging.WARNING, logger="litejobs")
    runs, go = threading.Event(), threading.Event()
    jobs = LiteJobs(tmp_path / "jobs.db")

    @jobs.task
    def work() -> None:
        runs.set()
        go.wait(LONG)

    importer = Importer(jobs)
    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert runs.wait(LONG)
        with importer.at_work():
            go.set()
            eventually(lambda: " import_orders (" in problem(runner))
            first = problem(runner)
            importer.on.set()
            eventually(lambda: " import_orders (" in problem(runner) != first)
        job.result(LONG)
        eventually(lambda: runner.health["problem"] is None)
    jobs.close()
    said = [record.getMessage() for record in caplog.records]
    assert_told_once(said)


def test_runner_that_is_idle_says_it_once_too(
    tmp_path: Path, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    times(turn_patience=SHORT)
    caplog.set_level(logging.WARNING, logger="litejobs")
    jobs = LiteJobs(tmp_path / "jobs.db")
    importer = Importer(jobs)
    with jobs.running(threads=1) as runner:
        eventually(lambda: runner._waits)
        with importer.at_work():
            eventually(lambda: " import_orders (" in problem(runner))
            first = problem(runner)
            importer.on.set()
            eventually(lambda: " import_orders (" in problem(runner) != first)
        eventually(lambda: runner.health["problem"] is None)
    jobs.close()
    assert_told_once([record.getMessage() for record in caplog.records])


def problem(runner: Runner) -> str:
    """What keeps it from its work."""
    return str(runner.health["problem"]).replace("Importer.", " ")
