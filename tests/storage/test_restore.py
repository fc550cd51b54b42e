"""Going back to a copy while others have the file open: `restore`, here and there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs, cron
from litejobs._process.identity import host_name
from litejobs._storage import restore as _restore
from litejobs._storage import runner_lock
from litejobs.errors import (
    ConfigurationError,
    CorruptDatabase,
    DatabaseBusy,
    DatabaseFull,
    FileRefused,
    LiteJobsError,
    NewerSchema,
    RunnerActive,
    TamperedSchema,
)
from tests.cli.calls import Cli, document
from tests.programs import Program
from tests.storage.children import in_child
from tests.waiting import LONG, Times, eventually

POSIX_ONLY = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of such a file, and of a copy."""
    folder = tmp_path_factory.mktemp("made")
    with LiteJobs(folder / "jobs.db") as jobs:
        jobs.enqueue("old")
        jobs.backup(folder / "copy.db")
        jobs.enqueue("new")
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A jobs file with two jobs, `old` and `new`; closed."""
    for name in ("copy.db", "jobs.db"):
        found = Path(shutil.copy(made / name, tmp_path))
    return found


@pytest.fixture
def copy(path: Path) -> Path:
    """What the file was when it had `old` alone."""
    return path.with_name("copy.db")


def tasks(path: str | Path) -> list[str]:
    """The tasks of the jobs in a sound file, in order."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        rows = db.execute("select task from litejobs_job order by id").fetchall()
    return [task for (task,) in rows]


def beside(path: Path) -> set[str]:
    """What lies beside the jobs file, but for what belongs to it."""
    usual = {path.name + each for each in ("", "-wal", "-shm", ".runner", ".reserve")}
    return {each.name for each in path.parent.iterdir()} - usual - {"copy.db"}


# What is there afterwards -------------------------------------------------------------


def test_the_file_is_what_the_copy_is_and_what_it_was_is_kept(
    path: Path, copy: Path
) -> None:
    before = copy.read_bytes()
    with LiteJobs(path) as jobs:
        kept = jobs.restore(copy)
        assert [each.task for each in jobs.list()] == ["old"]
        jobs.enqueue("newest")
    assert tasks(path) == ["old", "newest"]
    assert tasks(kept) == ["old", "new"]
    assert re.fullmatch(r"jobs\.db\.before-restore-\d{8}T\d{6}Z", Path(kept).name)
    assert beside(path) == {Path(kept).name}
    assert copy.read_bytes() == before
    if os.name == "posix":
        assert Path(kept).stat().st_mode & 0o777 == 0o600


def test_what_is_kept_can_be_restored_and_has_another_name_each_time(
    path: Path, copy: Path
) -> None:
    with LiteJobs(path) as jobs:
        kept = [jobs.restore(copy) for _ in range(3)]
        assert len(set(kept)) == 3
        jobs.restore(kept[0])
        assert sorted(each.task for each in jobs.list()) == ["new", "old"]


OTHER = """
import sys
from litejobs import LiteJobs
with LiteJobs(sys.argv[1]) as jobs:
    print(len(jobs.list()), flush=True)
    for line in sys.stdin:
        print(len(jobs.list()), flush=True)
        jobs.enqueue("other")
        print(len(jobs.list()), flush=True)
"""


@contextlib.contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipe = subprocess.PIPE
    with Program(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


def test_another_process_that_has_the_file_open_goes_on_with_what_is_there_now(
    path: Path, copy: Path
) -> None:
    with child(OTHER, path) as other, LiteJobs(path) as jobs:
        assert told(other) == "2"
        jobs.restore(copy)
        say(other)
        assert (told(other), told(other)) == ("1", "2")
        assert [each.task for each in jobs.list()] == ["other", "old"]


ENQUEUE = """
import sys
from litejobs import LiteJobs
with LiteJobs(sys.argv[1]) as jobs:
    for number in range(100_000):
        jobs.enqueue("more", [number])
        print(number, flush=True)
"""


def test_what_others_enqueue_meanwhile_is_kept_or_is_there(
    path: Path, copy: Path
) -> None:
    """Nobody writes between the last look at what is kept and the new content."""
    stored: set[int] = set()
    with child(ENQUEUE, path) as other, LiteJobs(path) as jobs:
        stored |= {int(told(other)) for _ in range(20)}
        kept = jobs.restore(copy)
        other.kill()
        assert other.stdout is not None
        stored |= {int(line) for line in other.stdout if line.endswith("\n")}
    found = set()
    for each in (kept, path):
        with contextlib.closing(apsw.Connection(str(each))) as db:
            rows = db.execute("select args from litejobs_job where task = 'more'")
            found |= {int(args.strip("[]")) for (args,) in rows}
    assert stored <= found


def test_what_the_code_declares_is_written_into_the_file_again(
    tmp_path: Path, copy: Path, path: Path
) -> None:
    heard: list[str] = []
    with LiteJobs(path, renames={"old": "work"}) as jobs:

        @jobs.schedule(cron("@daily"), name="nightly")
        @jobs.task
        def work() -> None: ...

        jobs.on("completed", lambda event: heard.append(event.task))
        jobs.drain()
        heard.clear()
        jobs.restore(copy)
        assert jobs.schedules["nightly"].next_at is not None
        assert jobs.drain() == 1
        assert heard == ["work"]


ENQUEUE_DECLARED = """
import sys
from litejobs import LiteJobs
with LiteJobs(sys.argv[1]) as jobs:
    @jobs.task(queue="slow", max_attempts=9, timeout=33)
    def work(number): ...
    work.enqueue(1)
    print("ready", flush=True)
    sys.stdin.readline()
    work.enqueue(2)
    with jobs.transaction():
        work.enqueue(3)
    print("done", flush=True)
"""


def test_jobs_of_a_process_that_goes_on_have_the_options_of_their_task(
    path: Path, copy: Path
) -> None:
    """Its tasks are in the file again before its next job is, though none runs it."""
    with child(ENQUEUE_DECLARED, path) as other, LiteJobs(path) as jobs:
        assert told(other) == "ready"
        jobs.restore(copy)
        say(other)
        assert told(other) == "done"
        rows = jobs.list()
        assert [(each.task, each.queue, each.max_attempts) for each in rows] == [
            *[("work", "slow", 9)] * 2,
            ("old", "default", 3),
        ]


def test_each_object_of_the_process_declares_its_tasks_again(
    path: Path, copy: Path
) -> None:
    with LiteJobs(path) as jobs, LiteJobs(path) as others:

        @others.task(queue="slow")
        def work() -> None: ...

        others.open()
        for _ in range(2):
            jobs.restore(copy)
            assert work.enqueue().snapshot().queue == "slow"


def test_what_is_rolled_back_after_a_restore_is_declared_the_next_time(
    path: Path, copy: Path
) -> None:
    with LiteJobs(path) as jobs, LiteJobs(path) as others:

        @others.task(queue="slow")
        def work() -> None: ...

        others.open()
        jobs.restore(copy)
        with pytest.raises(ZeroDivisionError), others.transaction():
            work.enqueue()
            raise ZeroDivisionError
        assert work.enqueue().snapshot().queue == "slow"


def test_pages_of_another_size_become_as_those_in_the_file(
    path: Path, copy: Path
) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("pragma page_size = 4096")
        db.execute("vacuum")
    with LiteJobs(path) as jobs:
        jobs.restore(copy)
    assert tasks(path) == ["old"]


@POSIX_ONLY
def test_after_a_fork_it_is_restored_all_the_same(path: Path, copy: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.open()
        assert in_child(lambda: 0) == 0
        jobs.restore(copy)
        assert [each.task for each in jobs.list()] == ["old"]


# Who may not --------------------------------------------------------------------------

RUN = """
import sys
from litejobs import LiteJobs
jobs = LiteJobs(sys.argv[1])
with jobs.running():
    print("runs", flush=True)
    sys.stdin.readline()
"""


def test_beside_a_living_runner_it_is_refused_with_its_process(
    path: Path, copy: Path, cli: Cli
) -> None:
    with child(RUN, path) as other:
        assert told(other) == "runs"
        said = f"process {other.pid} runs the jobs of {path}; stop it, restore, and "
        with LiteJobs(path) as jobs, pytest.raises(RunnerActive) as error:
            jobs.restore(copy)
        assert str(error.value).startswith(said)
        assert error.value.pid == other.pid
        shown = cli("--db", path, "restore", copy, "--yes")
        assert shown.exit_code == 1
        assert f"process {other.pid} runs the jobs" in shown.stderr
        say(other)
        assert other.wait(60) == 0
    assert tasks(path) == ["old", "new"]
    assert beside(path) == set()


def test_a_runner_of_the_same_object_is_another_runner(path: Path, copy: Path) -> None:
    with LiteJobs(path) as jobs:
        with jobs.running(), pytest.raises(RunnerActive) as error:
            jobs.restore(copy)
        assert error.value.pid == os.getpid()
        jobs.restore(copy)


def test_no_runner_begins_while_it_is_restored(path: Path, copy: Path) -> None:
    with (
        LiteJobs(path) as jobs,
        _restore.runner_lock(str(path), None),
        pytest.raises(RunnerActive),
    ):
        jobs.drain()


@pytest.mark.skipif(os.name != "posix", reason="a lock is of a handle on Windows")
@pytest.mark.parametrize("host", ["another", None])
def test_runner_that_has_lost_its_lock_takes_it_again_before_a_restore(
    path: Path,
    copy: Path,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    host: str | None,
) -> None:
    """Also one in another container, of which it cannot be asked whether it lives."""
    times(lost_patience=float(LONG))
    with LiteJobs(path) as jobs, jobs.transaction() as db:
        db.execute(
            "insert into litejobs_runner (pid, host) values (?, ?)",
            (os.getppid(), host or host_name()),
        )
    said: list[object] = []
    asked = threading.Event()

    def living_in(rows: Any) -> int:
        asked.set()
        return runner_lock.living_in(rows)

    monkeypatch.setattr(_restore, "living_in", living_in)

    def restore() -> None:
        with LiteJobs(path) as jobs:
            try:
                said.append(jobs.restore(copy))
            except RunnerActive as error:
                said.append(error.pid)

    thread = threading.Thread(target=restore)
    thread.start()
    assert asked.wait(LONG)
    lock = runner_lock.RunnerLock(path)
    try:
        eventually(lock.acquire)
        thread.join(LONG)
    finally:
        lock.release()
    assert said == [os.getppid()]


def test_it_is_refused_in_a_transaction_and_in_memory(path: Path, copy: Path) -> None:
    with (
        LiteJobs(path) as jobs,
        pytest.raises(LiteJobsError, match="inside a transaction"),
        jobs.transaction(),
    ):
        jobs.restore(copy)
    with pytest.raises(LiteJobsError, match="jobs in memory have no file to restore"):
        LiteJobs().restore(copy)
    assert tasks(path) == ["old", "new"]


def test_a_writer_that_does_not_end_is_waited_for_no_longer_than_asked(
    path: Path, copy: Path
) -> None:
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(contextlib.closing(apsw.Connection(str(path))))
        other.execute("begin immediate")
        writer = stack.enter_context(contextlib.closing(apsw.Connection(str(path))))
        new = stack.enter_context(_restore.staged(copy, str(path), writer))
        with pytest.raises(DatabaseBusy, match="kept the write lock"):
            _restore.replace(
                writer, new.connection, str(path), None, go_on=lambda _: False
            )
        other.execute("rollback")
    assert tasks(path) == ["old", "new"]
    assert beside(path) == set()


# What may not be restored -------------------------------------------------------------


def tampered(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("drop trigger litejobs_job_state_guard")


def with_a_trigger_of_our_name(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute(
            "create trigger litejobs_more after insert on litejobs_job "
            "begin delete from litejobs_job; end"
        )


def newer(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("pragma trusted_schema = 1")
        db.execute("update litejobs_meta set schema_version = 99")
        db.commit()


def of_others(copy: Path) -> None:
    copy.unlink()
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("create table orders (id)")


def damaged(copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    content[9_000:40_000] = b"\xff" * 31_000
    copy.write_bytes(content)


def text(copy: Path) -> None:
    copy.write_text("not a database, but a text that is long enough " * 50)


def in_utf16(copy: Path) -> None:
    copy.unlink()
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("pragma encoding = 'UTF-16le'")
        db.execute("create table x (y)")


NO_COPIES: list[tuple[Callable[[Path], Any], type[Exception], str]] = [
    (tampered, TamperedSchema, "litejobs_job_state_guard"),
    (with_a_trigger_of_our_name, TamperedSchema, "litejobs_more"),
    (newer, NewerSchema, "schema version 99"),
    (of_others, FileRefused, "holds no jobs tables"),
    (damaged, CorruptDatabase, "is damaged"),
    (text, CorruptDatabase, "is damaged (file is not a database)"),
    (in_utf16, FileRefused, "holds no jobs tables"),
    (Path.unlink, FileRefused, "does not exist"),
]


def test_a_copy_that_cannot_be_a_jobs_file_changes_nothing(
    made: Path, path: Path, copy: Path, cli: Cli
) -> None:
    with LiteJobs(path) as jobs:
        for change, error, said in NO_COPIES:
            shutil.copy(made / copy.name, copy)
            change(copy)
            with pytest.raises(error, match=re.escape(said)):
                jobs.restore(copy)
            shown = cli("--db", path, "restore", copy, "--yes")
            assert shown.exit_code == 1, change
            assert said in shown.stderr, change
            assert tasks(path) == ["old", "new"], change
            assert beside(path) == set(), change


@pytest.mark.skipif(sys.platform != "linux", reason="such a file is there on Linux")
def test_a_copy_on_a_disk_that_fails_is_not_taken_for_a_full_disk(path: Path) -> None:
    with LiteJobs(path) as jobs:
        with pytest.raises(FileRefused, match=r"/self/mem cannot be read \(disk I/O"):
            jobs.restore("/proc/self/mem")
        assert len(jobs.list()) == 2


def test_the_jobs_file_itself_and_its_parts_are_no_copies(path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("more")
        for name in (path, f"{path}-wal", path.parent / "." / path.name):
            with pytest.raises(FileRefused, match="the jobs file itself, or a part"):
                jobs.restore(name)


def test_another_encoding_than_that_of_the_file_is_refused(
    path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "utf16.db"
    with contextlib.closing(sqlite3.connect(other)) as db:
        db.execute("pragma encoding = 'UTF-16le'")
        db.execute("create table x (y)")
        db.execute("drop table x")
    LiteJobs(other).open().close()
    with LiteJobs(path) as jobs, pytest.raises(FileRefused, match="UTF-16le"):
        jobs.restore(other)


def test_tables_of_the_application_are_not_overwritten_by_the_way(
    path: Path, copy: Path, cli: Cli
) -> None:
    with LiteJobs(path) as jobs:
        with jobs.transaction() as db:
            for name in ("a", "b", "c", "d"):
                db.execute(f"create table {name} (x)")
        said = r"tables of the application \(a, b, c and 1 more\), and those would"
        with pytest.raises(ConfigurationError, match=said) as error:
            jobs.restore(copy)
        assert str(error.value).endswith("say overwrite_tables=True")
        shown = cli("--db", path, "restore", copy)
        assert "(a, b, c and 1 more), and those would become what" in shown.stderr
        assert shown.exit_code == 1
        assert tasks(path) == ["old", "new"]
        kept = jobs.restore(copy, overwrite_tables=True)
        with pytest.raises(ConfigurationError, match="tables of the application"):
            jobs.restore(kept)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert _restore.others(connection) == []


# From a shell -------------------------------------------------------------------------


def test_the_command_asks_and_says_where_the_content_from_before_is(
    path: Path, copy: Path, cli: Cli
) -> None:
    shown = cli("--db", path, "restore", copy)
    assert shown.exit_code == 1
    said = f"{path} becomes what {copy} is (1 job): say --yes, since nobody can be"
    assert said in shown.stderr
    shown = cli("--db", path, "restore", copy, "--yes")
    first, second = shown.stdout.splitlines()
    assert first == f"{path} is what {copy} is (1 job)"
    kept = second.removeprefix("what it was before is in ")
    assert (tasks(path), tasks(kept)) == (["old"], ["old", "new"])
    found = document(cli("--db", path, "restore", kept, "--yes", "--json"))["restore"]
    assert tasks(found.pop("kept")) == ["old"]
    assert found == {"path": str(path), "from": kept, "jobs": 2}
    assert "leave --immutable out" in cli("--immutable", "restore", copy).stderr


def test_a_file_that_is_not_there_comes_back(path: Path, copy: Path, cli: Cli) -> None:
    for each in ("", "-wal", "-shm"):
        Path(f"{path}{each}").unlink(missing_ok=True)
    found = document(cli("--db", path, "restore", copy, "--yes", "--json"))
    assert found["restore"]["kept"] is None
    assert tasks(path) == ["old"]
    assert LiteJobs(path).open().counts() == {"pending": 1}
    assert beside(path) == set()


@pytest.mark.parametrize("change", [tampered, damaged])
def test_a_file_that_no_application_can_use_is_restored_all_the_same(
    path: Path, copy: Path, cli: Cli, change: Callable[[Path], Any]
) -> None:
    change(path)
    broken = path.read_bytes()
    with pytest.raises(FileRefused):
        LiteJobs(path).open()
    found = document(cli("--db", path, "restore", copy, "--yes", "--json"))
    assert tasks(path) == ["old"]
    kept = Path(found["restore"]["kept"])
    assert len(kept.read_bytes()) == len(broken)
    assert LiteJobs(path).open().counts() == {"pending": 1}


@pytest.mark.parametrize(
    "damage",
    [
        lambda old: bytes(16) + old[16:],
        lambda old: b"x" * 100 + old[100:],
        lambda old: bytes(4096) + old[4096:],
        lambda old: old[:16] + bytes([0, 3]) + old[18:],
        lambda old: old[:16] + bytes([2, 0]) + old[18:],
        lambda old: old[:18] + bytes([9, 9]) + old[20:],
        lambda old: old[:18] + bytes([9, 2]) + old[20:],
        lambda old: old[:100] + b"x" * 3996 + old[4096:],
        lambda old: old[: len(old) // 2 + 77],
        lambda old: old[:50],
    ],
)
def test_a_file_that_is_damaged_where_it_begins_is_restored(
    path: Path, copy: Path, cli: Cli, damage: Callable[[bytes], bytes]
) -> None:
    """As doctor says; what it was before is kept, whatever it is."""
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    path.chmod(0o640)
    # Which version is to write it is not asked by who reads it.
    reads = damaged[18:20] == bytes([9, 2])
    assert reads or cli("--db", path, "doctor").exit_code != 0
    done = cli("--db", path, "restore", copy, "--yes")
    assert done.exit_code == 0, done.output
    assert tasks(path) == ["old"]
    assert path.stat().st_nlink == 1
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o640
    kept = re.findall(r"what it was before is in (.*)", done.stdout)
    assert len(kept) == 1
    assert Path(kept[0]).exists()
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 1}


def test_a_damaged_file_stays_where_there_is_no_room(
    path: Path, copy: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(damaged := bytes(4096) + path.read_bytes()[4096:])
    (wal := path.with_name("jobs.db-journal")).write_bytes(b"")

    def full(*_: Any, real: str | None, **__: Any) -> None:
        if real is None:
            raise DatabaseFull("no room")
        whole(*_, real=real, **__)

    whole = _restore.copy
    monkeypatch.setattr(_restore, "copy", full)
    done = cli("--db", path, "restore", copy, "--yes")
    assert (done.exit_code != 0, "no room" in done.output) == (True, True)
    assert path.read_bytes() == damaged
    assert wal.exists()
    assert [each for each in beside(path) if "before-restore" in each] == []


def test_a_database_of_others_and_a_text_are_not_written_over(
    path: Path, copy: Path, cli: Cli
) -> None:
    stranger = path.with_name("orders.db")
    with contextlib.closing(sqlite3.connect(stranger)) as db:
        db.execute("create table orders (id)")
    shown = cli("--db", stranger, "restore", copy, "--yes")
    assert shown.exit_code == 3
    assert "holds no jobs tables, but others (orders); check the name" in shown.stderr
    text(stranger)
    shown = cli("--db", stranger, "restore", copy, "--yes")
    assert shown.exit_code == 3
    assert "is not an SQLite database; move it away" in shown.stderr


def test_a_copy_beside_the_file_is_not_taken_for_the_jobs_file(
    path: Path, copy: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    document(cli("--db", path, "restore", copy, "--yes", "--json"))
    copy.unlink()
    monkeypatch.chdir(path.parent)
    assert cli("--db", "auto", "list").exit_code == 0


# When the process dies ----------------------------------------------------------------

DIE = """
import contextlib, os, signal, sys
import apsw
from litejobs._process.sizes import SIZES
from litejobs._storage import restore
path, copy, when = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

SIZES.copied_bytes = 1  # a page at a time
pages = 0

def told(done, of):
    if when == "begun" and done == 1 or when == "middle" and done == of // 2:
        die()
    if when == "last" and done == of - 1:
        die()

with contextlib.closing(apsw.Connection(path)) as writer:
    writer.pragma("cache_size", 10)  # most pages are in the log before the commit
    with restore.staged(copy, path, writer) as new, restore.runner_lock(path, writer):
        if when == "staged":
            die()

        @contextlib.contextmanager
        def reading():
            with contextlib.closing(apsw.Connection(path)) as old:
                yield old
            if when == "kept":
                die()

        restore.replace(writer, new.connection, path, reading, told=told)
        if when == "done":
            die()
"""


LIMITED = """
import resource, signal, sys
from litejobs.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv[1:] = ["--db", sys.argv[2], "restore", sys.argv[3], "--yes"]
main()
"""


@POSIX_ONLY
def test_without_room_the_file_is_as_it_was_and_it_is_said_what_is_left(
    path: Path, copy: Path
) -> None:
    """No room for the copy beside it, and then none for the log of the file."""
    with LiteJobs(copy) as jobs:
        jobs.enqueue_many([jobs.call("more", ["x" * 1_000])] * 1_000)
    size = copy.stat().st_size
    assert path.stat().st_size < size / 2
    for limit, what, left in ((size // 2, ".restore", 0), (size + 1, "jobs.db", 1)):
        ended = subprocess.run(
            [sys.executable, "-c", LIMITED, str(limit), str(path), str(copy)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ended.returncode == 1
        [line] = ended.stderr.splitlines()
        assert f"{what} could not be written (disk I/O error)" in line
        assert tasks(path) == ["old", "new"]
        kept = beside(path)
        assert len(kept) == left
        assert all(f"{name} is a copy" in line for name in kept)
        assert all(tasks(path.with_name(name)) == ["old", "new"] for name in kept)


@POSIX_ONLY
@pytest.mark.parametrize(
    "when",
    [
        *("staged", "kept", "last", "done"),
        *(pytest.param(n, marks=pytest.mark.torture) for n in ("begun", "middle")),
    ],
)
def test_whenever_the_process_dies_all_of_the_old_is_there_or_all_of_the_new(
    path: Path, copy: Path, when: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DIE, path, copy, when], check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 1 if when == "done" else 2}
        for name in ("old", "new"):
            jobs.task(name=name)(lambda: None)
        assert jobs.drain() == (1 if when == "done" else 2)
    kept = [each for each in beside(path) if ".before-restore-" in each]
    assert len(kept) == (when != "staged")
    for each in kept:
        assert tasks(path.parent / each) == ["old", "new"]
    assert [each for each in beside(path) if each.endswith(".restore")]
    with LiteJobs(path) as jobs:
        jobs.restore(copy)
    assert len(beside(path)) == len(kept) + 1  # the rest went


@POSIX_ONLY
def test_copies_of_killed_restores_go_and_those_of_living_ones_stay(
    path: Path, copy: Path
) -> None:
    part = path.with_name(f"{path.name}.0123abcd.restore.89abcdef.part")
    begun = path.with_name(
        f"{path.name}.before-restore-20260101T000000Z-2.0123abcd.part"
    )
    other = path.with_name(f"{path.name}.0123abcd.restored")
    fresh = path.with_name(f"{path.name}.0123abcd.restore")
    for each in (part, begun, other):
        # The first page comes last.
        each.write_bytes(bytes(4096) + copy.read_bytes()[4096:9000])
    fresh.write_bytes(b"")
    with contextlib.closing(apsw.Connection(str(path))) as reader:
        with _restore.staged(copy, str(path), reader):
            assert not part.exists()
            assert not begun.exists()
            [living] = beside(path) - {other.name, fresh.name} - with_log(beside(path))
            with _restore.staged(copy, str(path), reader) as new:
                # A process that has it open keeps it, also from another one.
                assert (path.parent / living).exists()
                assert new.jobs == 1
    assert beside(path) == {other.name, fresh.name}
    os.utime(fresh, (1, 1))
    with LiteJobs(path) as jobs:
        jobs.restore(copy)
    assert not fresh.exists()
    assert other.exists()


def with_log(names: set[str]) -> set[str]:
    """Those that SQLite has beside a database."""
    return {each for each in names if each.endswith(("-wal", "-shm"))}
