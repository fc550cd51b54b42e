"""A copy of the file while it is in use: `jobs.backup`, and `litejobs backup`."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

import litejobs
from litejobs import LiteJobs
from litejobs._storage import backup as _backup
from litejobs.cli.commands import backup as command
from litejobs.errors import (
    CorruptDatabase,
    DatabaseFull,
    FileRefused,
    LiteJobsError,
)
from tests.cli.calls import Cli

POSIX_ONLY = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where copies go."""
    made = tmp_path / "copies"
    made.mkdir()
    return made


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def fill(jobs: LiteJobs, megabytes: int = 4) -> None:
    """The file has so much in it that a copy takes several steps."""
    with jobs.transaction() as db:
        db.execute("create table if not exists ballast (x)")
        for _ in range(megabytes):
            db.execute("insert into ballast values (zeroblob(1048576))")


# What a copy is -----------------------------------------------------------------------


def test_a_copy_has_all_that_the_file_has(file_jobs: LiteJobs, folder: Path) -> None:
    @file_jobs.task
    def work(x: int) -> int:
        return x

    with file_jobs.transaction() as db:
        db.execute("create table orders (id integer primary key, item text)")
        db.execute("insert into orders values (1, 'chair')")
    done, waiting = work.enqueue(1), work.using(delay="1h").enqueue(2)
    file_jobs.drain()
    file_jobs.backup(folder / "copy.db")
    assert names(folder) == ["copy.db"]

    copied = LiteJobs(folder / "copy.db")
    assert copied.get(done.id).state == "completed"
    assert copied.get(waiting.id).state == "scheduled"
    with copied.transaction() as db:
        assert db.execute("select item from orders").get == "chair"
    copied.close()


def test_a_copy_is_one_plain_file_of_its_owner(
    file_jobs: LiteJobs, folder: Path
) -> None:
    file_jobs.enqueue("a")
    before = os.umask(0)
    try:
        file_jobs.backup(folder / "copy.db")
    finally:
        os.umask(before)
    copy = folder / "copy.db"
    if os.name == "posix":
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    # Bytes 18 and 19 are 2 where there is a write-ahead log.
    assert copy.read_bytes()[18:20] == b"\x01\x01"
    with contextlib.closing(sqlite3.connect(copy)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("select count(*) from litejobs_job").fetchall() == [(1,)]
    assert names(folder) == ["copy.db"]


def test_what_ran_is_a_crash_for_the_runner_of_the_copy(
    file_jobs: LiteJobs, folder: Path
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @file_jobs.task
    def work() -> None:
        begun.set()
        may_end.wait(10)

    job = work.enqueue()
    with file_jobs.running(threads=1):
        assert begun.wait(10)
        file_jobs.backup(folder / "copy.db")
        may_end.set()
        job.result(timeout=10)
    copied = LiteJobs(folder / "copy.db")
    copied.task(lambda: None, name="work")  # type: ignore[call-overload]
    assert copied.get(job.id).state == "processing"
    copied.drain()
    assert copied.get(job.id).state == "failed"
    assert [each.status for each in copied.get(job.id).attempts] == ["crashed"]
    copied.close()


def test_jobs_in_memory_are_copied_into_a_file(jobs: LiteJobs, folder: Path) -> None:
    job = jobs.enqueue("a", {"x": 1})
    jobs.backup(folder / "copy.db")
    copied = LiteJobs(folder / "copy.db")
    assert copied.get(job.id).snapshot().args == {"x": 1}
    copied.close()
    assert jobs.enqueue("a").state == "pending"


# While the application goes on --------------------------------------------------------


def test_jobs_are_enqueued_and_run_in_the_midst_of_a_copy(
    file_jobs: LiteJobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are not in it: it is as the file was when it began."""

    @file_jobs.task
    def work(x: int) -> int:
        return x

    fill(file_jobs)
    work.enqueue(0)
    results = []

    def told(done: int, pages: int) -> None:
        assert 0 < done <= pages
        results.append(work.enqueue(len(results)).result(timeout=10))

    with file_jobs.running(threads=1) as runner:
        assert runner.wait_idle(10)
        with file_jobs._store.database.reader() as source:
            _backup.copy(
                source, folder / "c.db", real=file_jobs.path, overwrite=False, told=told
            )
    assert results == list(range(len(results)))
    assert len(results) >= 4
    copied = LiteJobs(folder / "c.db")
    assert copied.counts() == {"completed": 1}
    copied.close()
    assert file_jobs.counts() == {"completed": 1 + len(results)}


def test_the_log_can_be_cut_again_after_a_copy(
    file_jobs: LiteJobs, folder: Path
) -> None:
    fill(file_jobs)
    file_jobs.backup(folder / "copy.db")
    file_jobs._store.database.keep_house(idle=True)
    assert Path(f"{file_jobs.path}-wal").stat().st_size == 0


def test_a_copy_is_refused_inside_a_transaction(
    file_jobs: LiteJobs, folder: Path
) -> None:
    with (
        file_jobs.transaction(),
        pytest.raises(LiteJobsError, match="call it after the block"),
    ):
        file_jobs.backup(folder / "copy.db")
    assert names(folder) == []


# Where it may not go ------------------------------------------------------------------


def refused(jobs: LiteJobs, target: object, *, overwrite: bool = False) -> str:
    with pytest.raises(FileRefused) as caught:
        jobs.backup(target, overwrite=overwrite)  # type: ignore[arg-type]
    return str(caught.value)


def test_what_exists_is_replaced_only_if_that_is_wanted(
    file_jobs: LiteJobs, folder: Path
) -> None:
    copy = folder / "copy.db"
    copy.write_text("precious")
    assert "exists already" in refused(file_jobs, copy)
    assert copy.read_text() == "precious"
    file_jobs.backup(copy, overwrite=True)
    assert copy.read_bytes()[:15] == b"SQLite format 3"
    assert names(folder) == ["copy.db"]


def test_the_file_itself_is_never_the_target(
    file_jobs: LiteJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = file_jobs.enqueue("a")
    path = Path(file_jobs.path)
    monkeypatch.chdir(path.parent)
    targets = [path, path.name, f"./{path.name}", path.parent / "x" / ".." / path.name]
    (path.parent / "x").mkdir()
    if os.name == "posix":
        (path.parent / "soft").symlink_to(path)
        targets.append(path.parent / "soft")
    for target in targets:
        sentence = refused(file_jobs, target, overwrite=True)
        assert "the jobs file itself; give another name" in sentence
    for end in ("-wal", "-shm", "-journal", ".runner"):
        sentence = refused(file_jobs, f"{path}{end}", overwrite=True)
        assert "a part of it; give another name" in sentence
    assert file_jobs.get(job.id).state == "pending"


@POSIX_ONLY
def test_another_name_of_the_same_file_is_not_the_target(
    tmp_path: Path, folder: Path
) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    jobs.open()
    os.link(tmp_path / "jobs.db", folder / "hard.db")
    assert "the jobs file itself" in refused(jobs, folder / "hard.db", overwrite=True)
    jobs.close()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("", "does not name a file"),
        (":memory:", "does not name a file"),
        ("file:x", "looks like a URI"),
        (".", "is a folder; give the name of a file"),
        ("nowhere/copy.db", "nowhere does not exist; make it"),
    ],
)
def test_what_is_no_file_is_refused(
    file_jobs: LiteJobs,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(folder)
    assert sentence in refused(file_jobs, target, overwrite=True)
    assert names(folder) == []


@POSIX_ONLY
def test_a_link_that_leads_nowhere_is_refused(
    file_jobs: LiteJobs, folder: Path
) -> None:
    (folder / "copy.db").symlink_to(folder / "gone")
    assert "leads nowhere" in refused(file_jobs, folder / "copy.db")
    os.mkfifo(folder / "pipe")
    assert "is a pipe" in refused(file_jobs, folder / "pipe", overwrite=True)


@pytest.mark.parametrize("end", ["-wal", "-journal", "-shm"])
def test_a_log_of_another_database_beside_the_target_is_refused(
    file_jobs: LiteJobs, folder: Path, end: str
) -> None:
    """SQLite would play it into the copy."""
    (folder / f"copy.db{end}").write_bytes(b"x")
    assert "belongs to another database" in refused(file_jobs, folder / "copy.db")
    assert names(folder) == [f"copy.db{end}"]


# When it fails ------------------------------------------------------------------------


def test_nothing_is_left_if_the_disk_is_too_small(
    file_jobs: LiteJobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=2**30, used=2**30 - 4096, free=4096)
    monkeypatch.setattr(_backup.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DatabaseFull, match=r"needs 1 MB, and 0 MB are free"):
        file_jobs.backup(folder / "copy.db")
    assert names(folder) == []


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (apsw.FullError("database or disk is full"), DatabaseFull),
        (apsw.IOError("disk I/O error"), DatabaseFull),
        (OSError(errno.ENOSPC, "No space left on device"), DatabaseFull),
        (OSError(errno.EACCES, "Permission denied"), FileRefused),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_nothing_is_left_if_it_fails_in_the_midst(
    file_jobs: LiteJobs, folder: Path, error: BaseException, raised: type[BaseException]
) -> None:
    fill(file_jobs)

    def told(done: int, _: int) -> None:
        assert len(names(folder)) >= 1
        raise error

    with (
        pytest.raises(raised),
        file_jobs._store.database.reader() as source,
    ):
        _backup.copy(
            source, folder / "c.db", real=file_jobs.path, overwrite=False, told=told
        )
    assert names(folder) == []
    file_jobs.backup(folder / "c.db")
    assert names(folder) == ["c.db"]


def test_a_damaged_file_is_not_copied(tmp_path: Path, folder: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    jobs.open()
    fill(jobs)
    jobs.close()
    data = bytearray((tmp_path / "jobs.db").read_bytes())
    data[3 * 2048 : 9 * 2048] = b"\xff" * (6 * 2048)
    (tmp_path / "jobs.db").write_bytes(data)
    with contextlib.closing(apsw.Connection(str(tmp_path / "jobs.db"))) as source:
        with pytest.raises(CorruptDatabase, match="no copy of it was kept"):
            _backup.copy(
                source,
                folder / "copy.db",
                real=str(tmp_path / "jobs.db"),
                overwrite=False,
            )
    assert names(folder) == []


def test_a_damage_that_only_a_check_finds_keeps_the_copy_from_its_name(
    cli: Cli, tmp_path: Path, folder: Path
) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        fill(jobs, 1)
        with jobs.transaction() as db:
            page = db.execute(
                "select rootpage from sqlite_schema where name = 'ballast'"
            ).get
    data = bytearray(path.read_bytes())
    data[(page - 1) * 2048] = 77
    path.write_bytes(data)
    done = cli("--db", path, "backup", folder / "copy.db")
    assert done.exit_code == 3
    assert "so no copy of it was kept" in done.stderr
    assert names(folder) == []


def test_a_file_that_is_slow_on_purpose_is_given_up(
    cli: Cli, path: Path, folder: Path
) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("drop table litejobs_meta")
        db.execute(
            "create view litejobs_meta as with recursive n(i) as (select 0 union all "
            "select i + 2 from n) select i as id, i as schema_version from n"
        )
    done = cli("--timeout", "0.1s", "--db", path, "backup", folder / "copy.db")
    assert done.exit_code == 3
    assert "took too long and was given up" in done.stderr
    assert names(folder) == []


def test_what_came_under_the_name_meanwhile_is_not_replaced(
    file_jobs: LiteJobs, folder: Path
) -> None:
    copy = folder / "copy.db"

    def told(*_: int) -> None:
        copy.write_text("precious")

    with (
        pytest.raises(FileRefused, match="could not be written"),
        file_jobs._store.database.reader() as source,
    ):
        _backup.copy(source, copy, real=file_jobs.path, overwrite=False, told=told)
    assert copy.read_text() == "precious"
    assert names(folder) == ["copy.db"]


@POSIX_ONLY
@pytest.mark.parametrize("taken", [False, True])
def test_a_file_system_without_links_does_as_well(
    file_jobs: LiteJobs, folder: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    copy = folder / "copy.db"

    def link(*_: object) -> None:
        if taken:
            copy.write_text("precious")
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(_backup.os, "link", link)
    if taken:
        assert "could not be written" in refused(file_jobs, copy)
        assert copy.read_text() == "precious"
    else:
        file_jobs.backup(copy)
    assert names(folder) == ["copy.db"]


@POSIX_ONLY
def test_a_folder_may_be_written_and_not_read(
    file_jobs: LiteJobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def open_(name: str, flags: int, *rest: int) -> int:
        if Path(name) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real_open(name, flags, *rest)

    monkeypatch.setattr(_backup.os, "open", open_)
    file_jobs.backup(folder / "copy.db")
    assert names(folder) == ["copy.db"]


KILLED = """
import os, sys
from litejobs import LiteJobs
from litejobs._storage import backup as _backup
jobs = LiteJobs(sys.argv[1])
def told(done, pages):
    os._exit(9)
with jobs._store.database.reader() as source:
    _backup.copy(source, sys.argv[2], real=jobs.path, overwrite=False, told=told)
"""


def test_a_process_that_dies_leaves_nothing_under_the_name(
    tmp_path: Path, folder: Path
) -> None:
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        fill(jobs)
    root = Path(litejobs.__file__).parents[1]
    died = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "jobs.db", folder / "copy.db"],
        env=os.environ | {"PYTHONPATH": str(root)},
        check=False,
    )
    assert died.returncode == 9
    [left] = names(folder)
    assert left.startswith("copy.db.")
    assert left.endswith(".part")
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        jobs.backup(folder / "copy.db")
        assert names(folder) == ["copy.db", left]
        os.utime(folder / left, (1, 1))
        jobs.backup(folder / "copy.db", overwrite=True)
    assert names(folder) == ["copy.db"]


# The command --------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A jobs file with a job, closed."""
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        jobs.enqueue("a")
    return tmp_path / "jobs.db"


def test_backup_copies_the_file(cli: Cli, path: Path, folder: Path) -> None:
    done = cli("--db", path, "backup", folder / "copy.db")
    assert done.exit_code == 0, done.output
    size = (folder / "copy.db").stat().st_size / 1e6
    copy = folder / "copy.db"
    assert done.stdout == f"{copy} is a copy of {path} ({size:.1f} MB)\n"
    with LiteJobs(copy) as copied:
        assert copied.counts() == {"pending": 1}
    assert names(path.parent) == ["copies", "jobs.db"]


@POSIX_ONLY
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_part_of_a_copy(
    cli: Cli, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(signal, name)

    def killed(*_: object) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(_backup, "_copy_pages", killed)
    ended = cli("--db", path, "backup", folder / "copy.db")
    assert ended.exit_code == 128 + number
    assert names(folder) == []


@POSIX_ONLY
def test_backup_does_without_an_error_stream(path: Path, folder: Path) -> None:
    command_line = f"{sys.executable} -m litejobs --db {path} backup {folder}/copy.db"
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {command_line} 2>&-"],
        env=os.environ | {"PYTHONPATH": str(Path(litejobs.__file__).parents[1])},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "is a copy of" in done.stdout


def test_backup_says_in_json_what_it_has_made(
    cli: Cli, path: Path, folder: Path
) -> None:
    import json

    done = cli("--db", path, "backup", folder / "copy.db", "--json")
    assert json.loads(done.stdout) == {
        "backup": {
            "path": str(folder / "copy.db"),
            "size": (folder / "copy.db").stat().st_size,
            "schema_version": litejobs._storage.statements.current_version(),
        }
    }


def test_backup_replaces_a_file_only_with_its_option(
    cli: Cli, path: Path, folder: Path
) -> None:
    copy = folder / "copy.db"
    copy.write_text("precious")
    done = cli("--db", path, "backup", copy)
    assert done.exit_code == 1
    sentence = f"Error: {copy} exists already; give another name, or --overwrite\n"
    assert done.stderr == sentence
    assert cli("--db", path, "backup", copy, "--overwrite").exit_code == 0
    assert cli("--db", path, "backup", path, "--overwrite").exit_code == 1


def test_backup_copies_a_file_of_another_version(
    cli: Cli, path: Path, folder: Path
) -> None:
    """Before it is upgraded, say."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        db.execute("update litejobs_meta set schema_version = 2")
    done = cli("--db", path, "backup", folder / "copy.db", "--json")
    assert '"schema_version": 2' in done.stdout
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("drop table litejobs_meta")
    done = cli("--db", path, "backup", folder / "copy.db", "--json", "--overwrite")
    assert '"schema_version": null' in done.stdout


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.unlink(), "does not exist; check the name"),
        (lambda path: path.write_bytes(b""), "holds no jobs tables"),
        (lambda path: path.write_bytes(b"x" * 5000), "is not an SQLite database"),
        (
            lambda path: path.write_bytes(
                path.read_bytes()[:6144] + b"\xff" * 8192 + path.read_bytes()[14336:]
            ),
            "is damaged",
        ),
    ],
)
def test_backup_refuses_what_holds_no_sound_jobs(
    cli: Cli, path: Path, folder: Path, make: Callable[[Path], Any], sentence: str
) -> None:
    make(path)
    done = cli("--db", path, "backup", folder / "copy.db")
    assert done.exit_code == 3
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(folder) == []


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    yield ours, theirs
    for each in (ours, theirs):
        with contextlib.suppress(OSError):
            os.close(each)


@POSIX_ONLY
def test_backup_shows_a_person_how_far_it_is(
    path: Path, folder: Path, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    root = Path(litejobs.__file__).parents[1]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "litejobs", "--db", path, "backup"),
            folder / "copy.db",
        ],
        env=os.environ | {"PYTHONPATH": str(root), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert b"copying" in os.read(ours, 10_000)


def test_the_bar_reaches_its_end(
    cli: Cli, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(command, "sys", SimpleNamespace(stderr=stream))
    assert cli("--db", path, "backup", folder / "copy.db").exit_code == 0
    assert "100%" in stream.getvalue()
