"""How large a file is, and what becomes of the room that nothing uses any more."""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._definitions.file_size import bytes_of
from litejobs._process.sizes import SIZES
from litejobs._storage import database, statements
from litejobs._storage.reserve import BESIDES, FIRST, LAST, Reserve
from litejobs.cli import main
from litejobs.errors import ConfigurationError, DatabaseFull, FileFull
from tests.cli.calls import runner as command_line
from tests.waiting import LONG, Gate, Times, eventually

INCREMENTAL = 2
KEPT = 262_144  # bytes of unused pages that are not given back, or a sixteenth


def setting(path: Path, name: str) -> int:
    """What a pragma says of a file that nobody of this process has open."""
    connection = apsw.Connection(str(path))
    try:
        return int(connection.pragma(name))
    finally:
        connection.close()


@pytest.fixture(scope="session")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of which most is unused, closed; to be copied."""
    path = tmp_path_factory.mktemp("unused") / "jobs.db"
    filled(path).close()
    return path


@pytest.fixture
def unused_jobs(unused: Path, tmp_path: Path) -> LiteJobs:
    """A copy of it, opened."""
    return LiteJobs(shutil.copy(unused, tmp_path)).open()


def filled(path: Path, count: int = 300) -> LiteJobs:
    """A file of which most is unused, since its jobs have ended and were deleted."""
    jobs = LiteJobs(path)

    @jobs.task
    def note(text: str) -> None: ...

    jobs.enqueue_many(note.call("x" * 5_000) for _ in range(count))
    jobs.drain()
    assert jobs.purge(older_than=None) == count
    return jobs


def test_unused_pages_can_be_given_back_in_files_that_litejobs_makes(
    tmp_path: Path,
) -> None:
    LiteJobs(tmp_path / "jobs.db").open().close()
    assert setting(tmp_path / "jobs.db", "auto_vacuum") == INCREMENTAL


def test_file_of_an_application_keeps_its_pages_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = apsw.Connection(str(path))
    connection.execute("create table own (value)")
    connection.close()
    jobs = filled(path, count=200)
    unused = jobs._store.database._writer.pragma("freelist_count")
    assert unused > 200
    assert not jobs._store.database.give_back_pages()
    assert jobs._store.database._writer.pragma("freelist_count") == unused
    jobs.close()
    assert setting(path, "auto_vacuum") == 0


def test_unused_pages_are_given_back_bit_by_bit(unused_jobs: LiteJobs) -> None:
    jobs = unused_jobs
    path = Path(jobs.path)
    database = jobs._store.database
    before = path.stat().st_size
    pages = [database._writer.pragma("page_count")]
    while database.give_back_pages():
        pages.append(database._writer.pragma("page_count"))
    steps = [many - few for many, few in itertools.pairwise(pages)]
    assert max(steps) <= SIZES.given_back_pages + 1  # a page of their map goes, too
    assert len(steps) > 10
    # What comes next finds some, and the file on the disk is as small as it says.
    unused = database._writer.pragma("freelist_count") * 2048
    assert KEPT - 2048 <= unused <= KEPT
    assert path.stat().st_size == pages[-1] * 2048 < before / 2
    # And that is all: nothing more is written.
    log = path.with_name("jobs.db-wal")
    assert log.stat().st_size == 0
    assert not database.give_back_pages()
    assert log.stat().st_size == 0
    assert database._writer.pragma("integrity_check") == "ok"
    jobs.close()


def test_idle_runner_gives_unused_pages_back(
    unused_jobs: LiteJobs, times: Times
) -> None:
    times(lock_pause=0.0, give_back_pause=0.0)
    jobs = unused_jobs
    path = Path(jobs.path)
    before = path.stat().st_size
    with jobs.running():
        eventually(lambda: path.stat().st_size < before / 2)
    jobs.close()


def test_pages_wait_while_others_read_or_write(
    unused_jobs: LiteJobs, times: Times
) -> None:
    times(busy_timeout=0.0)
    jobs = unused_jobs
    path = Path(jobs.path)
    database = jobs._store.database
    pages = database._writer.pragma("page_count")
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    assert not database.give_back_pages()  # there are more, for another time
    assert database._writer.pragma("page_count") == pages
    other.execute("rollback")
    assert database.give_back_pages()
    assert database._writer.pragma("page_count") < pages
    held = other.execute("select 1 from litejobs_meta union all select 2")
    while database.give_back_pages():
        pass
    size = path.stat().st_size
    assert size > database._writer.pragma("page_count") * 2048
    held.close()
    other.close()
    assert not database.give_back_pages()
    assert path.stat().st_size == database._writer.pragma("page_count") * 2048
    jobs.close()


def test_jobs_in_memory_have_nothing_to_give_back(jobs: LiteJobs) -> None:
    assert not jobs.open()._store.database.give_back_pages()


@pytest.mark.parametrize("vacuum", [False, True])
def test_copies_of_a_file_give_back_what_they_do_not_use(
    unused_jobs: LiteJobs, empty_file: Path, tmp_path: Path, vacuum: bool
) -> None:
    """A backup, what is restored from it, and a file that was written anew."""
    jobs = unused_jobs
    jobs.purge(older_than=None, vacuum=vacuum)
    jobs.backup(tmp_path / "copy.db")
    jobs.close()
    shutil.copy(empty_file, tmp_path / "other.db")
    LiteJobs(tmp_path / "new.db").restore(tmp_path / "copy.db")
    LiteJobs(tmp_path / "other.db").restore(tmp_path / "copy.db")
    for name in ("jobs", "copy", "new", "other"):
        path = tmp_path / f"{name}.db"
        assert setting(path, "auto_vacuum") == INCREMENTAL, name
        with LiteJobs(path) as again:
            database = again.open()._store.database
            while database.give_back_pages():
                pass
            assert database._writer.pragma("integrity_check") == "ok"


def test_other_programs_hear_that_pages_can_be_moved_where_a_copy_comes(
    unused: Path, tmp_path: Path
) -> None:
    """They have the file open, in which pages stay, while one is put in that moves."""
    path = tmp_path / "jobs.db"
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", 2048)
    connection.execute("create table own (value)")
    shutil.copy(unused, tmp_path / "copy.db")
    jobs = LiteJobs(path).open()
    connection.execute("select * from own").fetchall()
    jobs.restore(tmp_path / "copy.db", overwrite_tables=True)
    connection.execute("create table other (value)")
    connection.execute("insert into other values (randomblob(50000))")
    assert connection.pragma("integrity_check") == "ok"
    assert connection.pragma("auto_vacuum") == INCREMENTAL
    while jobs._store.database.give_back_pages():
        pass
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    jobs.close()


# A full disk --------------------------------------------------------------------------


@pytest.fixture
def disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch, times: Times) -> Path:
    """A disk of 5 MB; a runner looks after its file all the time."""
    # Through the VFS with the held clock, Python would hear of what SQLite keeps quiet.
    monkeypatch.setattr(database.clock, "clock_is_held", lambda: False)
    times(lock_pause=0.0, first_pause=0.01, longest_pause=0.01)
    return small_disk


def fill_up(disk: Path) -> Path:
    """Another program fills the disk, to its last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**16, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass
    assert shutil.disk_usage(disk).free == 0
    return filler


@functools.cache
def with_jobs() -> bytes:
    """A jobs file with 200 jobs that have ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.db")
        with LiteJobs(path) as jobs:
            note = jobs.task(name="note")(lambda text: None)
            jobs.enqueue_many(note.call("x" * 500) for _ in range(200))
            assert jobs.drain() == 200
        return path.read_bytes()


class App:
    """An application on that disk. A runner has been there, so there is a reserve."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        (disk / "jobs.db").write_bytes(with_jobs())
        self.jobs = LiteJobs(disk / "jobs.db")
        self.gate = Gate()
        self.note = self.jobs.task(name="note")(lambda text: None)
        self.wait = self.jobs.task(name="wait")(self.gate)
        with self.jobs.running() as runner:
            assert runner.wait_idle(60)
        assert self.jobs._store.database.cut_log()

    @property
    def reserve(self) -> int:
        """Bytes."""
        return (self.disk / "jobs.db.reserve").stat().st_size

    def refused(self) -> bool:
        """Whether a new job is refused, in this sentence."""
        try:
            self.note.enqueue("y").cancel()
        except DatabaseFull as error:
            return str(error).startswith("disk_full: the disk of the jobs file is full")
        return False

    def is_sound(self) -> bool:
        """Nothing is broken."""
        with self.jobs.reader() as db:
            return bool(db.pragma("integrity_check") == "ok")


def test_what_runs_when_the_disk_is_full_is_settled(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(disk)
    with app.jobs.running() as runner:
        running = app.wait.enqueue()
        assert app.gate.began.wait(60)
        filler = fill_up(disk)
        app.gate.go.set()
        eventually(lambda: running.state == "completed")
        assert app.reserve == LAST
        # What is left of it is for more of that, and for room to be made.
        assert app.refused()
        assert "is full: what runs is settled" in "".join(runner.health["problems"])
        filler.unlink()
        eventually(lambda: not runner.health["problems"])
        assert app.reserve == Reserve(str(disk / "jobs.db")).wanted
        last = app.note.enqueue("z")
        eventually(lambda: last.state == "completed")
    said = [each.getMessage() for each in caplog.records]
    assert sum(each.endswith("has room again") for each in said) == 1
    assert app.is_sound()
    app.jobs.close()


def test_nothing_is_begun_while_the_disk_is_full(disk: Path) -> None:
    app = App(disk)
    waiting = app.note.enqueue("x" * 500)
    assert app.jobs._store.database.cut_log()
    filler = fill_up(disk)
    assert app.jobs._store.database.spend_reserve()
    assert app.jobs.drain() == 0
    with app.jobs.running() as runner:
        eventually(lambda: runner.health["problems"])
        assert runner.health["role"] == "runner"
        assert waiting.state == "pending"
        filler.unlink()
        eventually(lambda: waiting.state == "completed")
    app.jobs.close()


@pytest.mark.parametrize("most", [1, 500], ids=["one by one", "500 at once"])
def test_full_disk_can_be_purged(disk: Path, most: int) -> None:
    """Who fills it is litejobs itself: much of it is in the log alone."""
    app = App(disk)
    for some in (most, 1):
        with pytest.raises(DatabaseFull):
            while True:
                app.jobs.enqueue_many(app.note.call("x" * 500) for _ in range(some))
    waiting = app.jobs.counts()["pending"]
    assert app.jobs.purge(older_than=None) == 200
    assert app.jobs.counts() == {"pending": waiting}
    assert app.is_sound()
    # There is room again, and room is kept again.
    assert app.reserve > 0
    assert not app.refused()
    app.jobs.close()


def test_full_disk_can_be_purged_by_command_line(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has the file open: SQLite would make files beside it to open it."""
    app = App(disk)
    app.note.enqueue("x")
    app.jobs.close()
    filler = fill_up(disk)
    called = command_line()
    path = str(disk / "jobs.db")
    kept = app.reserve
    assert kept == Reserve(path).wanted
    for look in (
        ["list"],
        ["show", "1"],
        ["stats"],
        ["purge", "--all", "--dry-run"],
        ["doctor", "--quick"],
    ):
        looked = called.invoke(main, ["--db", path, *look])
        assert "200" in looked.stdout or "note" in looked.stdout, looked.stderr
        # What was lent for that is back.
        assert app.reserve == kept
        assert shutil.disk_usage(disk).free == 0
    purged = called.invoke(main, ["--db", path, "purge", "--all", "--yes"])
    assert (purged.exit_code, purged.stdout) == (0, "200 jobs deleted\n")
    assert "is full: what runs is settled" in caplog.text
    assert called.invoke(main, ["--db", path, "list"]).exit_code == 0
    filler.unlink()
    # Nothing is to be purged any more, but there is room.
    again = called.invoke(main, ["--db", path, "purge", "--all", "--yes"])
    assert again.stderr.startswith("no job matches")
    with LiteJobs(path) as jobs, jobs.running() as runner:
        eventually(lambda: app.reserve > 0 and "full" not in str(runner.health))
        assert jobs.enqueue("note").state == "pending"


def test_runner_begins_on_a_full_disk_and_what_has_crashed_is_settled(
    disk: Path,
) -> None:
    app = App(disk)
    with app.jobs.transaction() as db:
        db.execute("insert into litejobs_runner (pid) values (1)")
        db.execute("insert into litejobs_job (task) values ('wait')")
        runner = db.execute("select max(id) from litejobs_runner").get
        db.execute("update litejobs_task set runner_id = ?", (runner,))
        db.execute("insert into litejobs_claim values (?, 1)", (runner,))
    assert app.jobs.counts()["processing"] == 1
    assert app.jobs._store.database.cut_log()
    app.gate.go.set()
    filler = fill_up(disk)
    with app.jobs.running():
        eventually(lambda: app.jobs.counts().get("pending") == 1)
        assert app.reserve == LAST
        filler.unlink()
        eventually(lambda: app.jobs.counts() == {"completed": 201})
    app.jobs.close()


def test_without_a_reserve_a_full_disk_is_only_told(disk: Path) -> None:
    """There was no room for one when the runner began."""
    jobs = LiteJobs(disk / "jobs.db")
    note = jobs.task(name="note")(lambda text: None)
    jobs.open()
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - 400_000))
    with jobs.running() as runner:
        assert runner.wait_idle(60)
        assert not (disk / "jobs.db.reserve").exists()
    filler.unlink()
    fill_up(disk)
    with pytest.raises(DatabaseFull, match="make room"):
        while True:
            note.enqueue("x" * 500)
    assert not jobs._store.database.spend_reserve()
    filler.unlink()
    note.enqueue("y")
    jobs.close()


def test_where_nothing_is_kept_a_look_at_a_full_disk_says_what_to_do(
    disk: Path,
) -> None:
    app = App(disk)
    app.jobs.close()
    (disk / "jobs.db.reserve").unlink()
    fill_up(disk)
    called = command_line()
    path = str(disk / "jobs.db")
    for look, code in (("list", 1), ("doctor", 3)):
        looked = called.invoke(main, ["--db", path, look])
        assert looked.exit_code == code
        said = looked.stdout + looked.stderr
        assert "its disk is full or failing" in said
        assert "make room there" in said
    looked = called.invoke(main, ["--db", path, "--immutable", "list"])
    assert looked.exit_code == 0


def test_what_is_lent_for_a_look_is_not_put_back_where_somebody_has_taken_the_rest(
    tmp_path: Path,
) -> None:
    reserve = Reserve(str(tmp_path / "jobs.db"))
    assert reserve.fill()
    with reserve.lent() as lends:
        assert lends
        assert reserve.size() == reserve.wanted - FIRST
        reserve.spend()
    assert reserve.size() == 0
    # And more than half of it is kept for those who purge.
    with reserve.lent() as lends:
        assert not lends


@pytest.mark.parametrize("how", ["limit", "task", "standby"])
def test_program_starts_on_a_full_disk_while_another_has_the_file_open(
    disk: Path, how: str
) -> None:
    """It has something to write before it can settle anything."""
    app = App(disk)
    app.jobs.close()
    other = apsw.Connection(str(disk / "jobs.db"))
    other.execute("select count(*) from litejobs_job").fetchall()
    filler = fill_up(disk)
    jobs = LiteJobs(disk / "jobs.db", max_size="1TB" if how == "limit" else None)
    if how != "limit":
        jobs.task(name="new")(lambda: None)
    if how == "standby":
        jobs.open()
    with jobs.running() as runner:
        eventually(lambda: "is full: what runs" in "".join(runner.health["problems"]))
        filler.unlink()
        eventually(lambda: not runner.health["problems"])
    assert not jobs._store.run("crowded")
    jobs.close()
    other.close()


def die_at_truncation(path: str, number: int) -> None:
    """In a process of its own, which makes room to open the file."""
    seen = 0

    def watch(event: str, _: tuple[object, ...]) -> None:
        nonlocal seen
        if event != "os.truncate":
            return
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    LiteJobs(path).open()


@pytest.mark.parametrize("number", [1, 2])
def test_process_that_dies_while_it_makes_room_leaves_some_or_says_so(
    disk: Path, number: int
) -> None:
    app = App(disk)
    app.jobs.close()
    kept = app.reserve
    filler = fill_up(disk)
    context = multiprocessing.get_context("spawn")
    path = str(disk / "jobs.db")
    process = context.Process(target=die_at_truncation, args=(path, number))
    process.start()
    process.join(LONG)
    assert process.exitcode == -signal.SIGKILL
    assert kept - app.reserve == (0, FIRST)[number - 1]
    called = command_line()
    purged = called.invoke(main, ["--db", path, "purge", "--all", "--yes"])
    assert (purged.exit_code, purged.stdout) == (0, "200 jobs deleted\n")
    filler.unlink()
    with LiteJobs(path) as jobs, jobs.running() as runner:
        eventually(lambda: not runner.health["problems"])
        assert app.reserve == kept


def test_what_was_not_stored_does_not_keep_its_room_in_the_log(disk: Path) -> None:
    """Who fills the disk is litejobs itself, and nothing is kept any more."""
    app = App(disk)
    (disk / "jobs.db.reserve").unlink()
    app.note.enqueue("x" * 500)
    log = disk / "jobs.db-wal"
    before = log.stat().st_size
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - 300_000))
    with pytest.raises(DatabaseFull):
        app.jobs.enqueue_many(app.note.call("x" * 500) for _ in range(2000))
    assert shutil.disk_usage(disk).free == 0
    # So there was no room for anything: not to copy the log, nor for a purge.
    assert app.jobs.purge(older_than=None) == 200
    assert log.stat().st_size <= before
    assert shutil.disk_usage(disk).free > 200_000
    assert app.is_sound()
    filler.unlink()
    app.jobs.close()


def test_purge_that_finds_no_room_on_its_way_takes_what_is_kept(disk: Path) -> None:
    """There seemed to be enough when it began."""
    app = App(disk)
    kept = app.reserve
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - BESIDES - 8192))
    other = apsw.Connection(str(disk / "jobs.db"))
    reads = other.execute("select id from litejobs_job")
    next(reads)  # so that the log can only grow
    assert app.jobs.purge(older_than=None) == 200
    reads.close()
    other.close()
    filler.unlink()
    assert not app.refused()
    assert app.reserve == kept
    assert app.is_sound()
    app.jobs.close()


def test_many_that_end_at_once_are_settled_few_by_few(disk: Path) -> None:
    """All of them would not find room together."""
    results = 40
    app = App(disk)
    release = threading.Event()
    began = threading.Semaphore(0)

    def work(number: int) -> str:
        began.release()
        assert release.wait(LONG)
        return "r" * 15_000

    task = app.jobs.task(name="work")(work)
    with app.jobs.running(threads=results):
        jobs = [task.enqueue(number) for number in range(results)]
        for _ in jobs:
            assert began.acquire(timeout=LONG)
        filler = fill_up(disk)
        release.set()
        eventually(lambda: app.jobs.counts().get("completed", 0) > 205)
        filler.unlink()
        eventually(lambda: app.jobs.counts() == {"completed": 200 + results})
    app.jobs.close()


def test_disk_is_full_no_longer_than_it_is_though_no_runner_looks(
    disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("other_disk") / "copy.db"
    app = App(disk)
    filler = fill_up(disk)
    assert app.jobs._store.database.spend_reserve()
    assert app.refused()
    app.jobs.backup(copy)
    filler.unlink()
    # Whoever is refused looks for room himself.
    assert app.note.enqueue("x").state == "pending"
    filler = fill_up(disk)
    assert app.jobs._store.database.spend_reserve()
    filler.unlink()
    with app.jobs.transaction(), pytest.raises(DatabaseFull):
        app.note.enqueue("x")
    with pytest.raises(DatabaseFull), app.jobs.transaction():
        app.note.enqueue("x")
    with app.jobs.transaction():
        assert app.note.enqueue("x").state == "pending"
    # Or opens it, on another disk, say.
    filler = fill_up(disk)
    assert app.jobs._store.database.spend_reserve()
    filler.unlink()
    app.jobs.close()
    for path in (disk / "jobs.db", copy):
        with LiteJobs(path).open() as jobs:
            assert not jobs._store.run("crowded")


@pytest.mark.parametrize("what", ["folder", "link", "text", "twice"])
def test_what_is_no_reserve_is_left_as_it_is(
    disk: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Something else has its name: the runner runs, and says so."""
    jobs = LiteJobs(disk / "jobs.db")
    note = jobs.task(name="note")(lambda text: None)
    name = disk / "jobs.db.reserve"
    precious = disk / "precious"
    precious.write_bytes(bytes(2**16) if what == "twice" else b"precious" * 10_000)
    before = precious.read_bytes()
    if what == "folder":
        name.mkdir()
    elif what == "link":
        name.symlink_to(precious)
    else:
        name.hardlink_to(precious)
        if what == "text":
            precious.unlink()
            precious = name
    with jobs.running() as runner:
        note.enqueue("x")
        assert runner.wait_idle(60)
        [problem] = runner.health["problems"]
        assert problem.startswith("no room can be kept for a full disk: ")
        assert problem.endswith("; move it away")
        assert runner.health["problem"] == problem
        # It is full, and has room again, as without a reserve.
        filler = fill_up(disk)
        assert not jobs._store.database.spend_reserve()
        # To say so takes some room in the log.
        os.truncate(filler, filler.stat().st_size - 2**16)
        with jobs.transaction() as db:
            db.execute(statements.query("say_disk_is_full"), (1,))
        filler.unlink()
        eventually(lambda: not jobs._store.run("crowded"))
        if what == "folder":
            name.rmdir()
        else:
            assert precious.read_bytes() == before
            name.unlink()
        eventually(lambda: not runner.health["problems"])
    said = [each.getMessage() for each in caplog.records]
    assert said.count(problem) == 1
    jobs.close()


def test_runner_runs_where_no_file_can_be_made_any_more(tmp_path: Path) -> None:
    """A disk may be full of files, and have room in those that are there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=5", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        jobs = LiteJobs(disk / "jobs.db")
        note = jobs.task(name="note")(lambda: None)
        with jobs.running() as runner:
            note.enqueue()
            assert runner.wait_idle(60)
            assert "no room can be kept" in runner.health["problem"]
        assert jobs.counts() == {"completed": 1}
        jobs.close()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_reserve_is_a_file_of_its_own(tmp_path: Path) -> None:
    reserve = Reserve(str(tmp_path / "jobs.db"))
    assert not reserve.is_needed()
    assert not reserve.spend()
    other = tmp_path / "other"
    other.write_text("precious")
    link = tmp_path / "jobs.db.reserve"
    link.symlink_to(other)
    # There is room, but it cannot be kept.
    assert reserve.fill()
    assert reserve.obstacle is not None
    assert reserve.size() == 0
    assert not reserve.spend()
    assert other.read_text() == "precious"
    link.unlink()
    assert reserve.fill()
    assert reserve.obstacle is None
    assert reserve.fill()
    assert link.stat().st_size == reserve.wanted
    assert link.stat().st_blocks * 512 >= reserve.wanted
    assert reserve.spend()
    assert link.stat().st_size == 0
    assert Reserve(str(tmp_path / "nowhere" / "jobs.db")).wanted > 4_000_000
    assert not Reserve(str(tmp_path / "nowhere" / "jobs.db")).fill()


def test_jobs_in_memory_have_no_reserve(jobs: LiteJobs) -> None:
    database = jobs.open()._store.database
    database.keep_reserve()
    assert not database.spend_reserve()
    with database.making_room():
        pass
    assert not Path(":memory:.reserve").exists()


# A file that is as large as it may be -------------------------------------------------


def test_file_takes_no_new_job_when_it_is_as_large_as_it_may_be(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db", max_size="2MB")
    note = jobs.task(name="note")(lambda text: None)
    with jobs.running() as runner:
        with pytest.raises(FileFull, match="as large as max_size says") as raised:
            while True:
                note.enqueue("x" * 5_000)
                assert runner.wait_idle(60)
        assert raised.value.code == "file_full"
        assert jobs._store.database._writer.pragma("page_count") * 2048 > 1_900_000
        # What was purged is room for others, before it is given back.
        assert jobs.purge(older_than=None) > 100
        eventually(lambda: not is_refused(note))
    jobs.close()
    assert (tmp_path / "jobs.db").stat().st_size < 2_500_000


def is_refused(note: Any) -> bool:
    """Whether a new job is, since the file is full."""
    try:
        note.enqueue("y")
    except FileFull:
        return True
    return False


def test_file_stays_as_small_as_it_is_to_be_without_a_runner(
    tmp_path: Path, times: Times
) -> None:
    """Whoever stores something looks, too."""
    times(size_pause=0.0)
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path, max_size="2MB")
    note = jobs.task(name="note")(lambda text: None)
    with pytest.raises(FileFull):
        for _ in range(2000):
            note.enqueue("x" * 5_000)
    assert path.stat().st_size < 2_100_000
    with jobs.transaction() as db:
        db.execute("update litejobs_job set state = 'cancelled'")
    # And there is room again for who asks, as soon as some was made.
    assert jobs.purge(older_than=None) > 100
    assert not is_refused(note)
    jobs.close()
    with LiteJobs(path) as jobs:
        jobs.enqueue("note")


def test_room_that_was_made_by_command_line_is_known_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path, max_size="2MB") as jobs:
        note = jobs.task(name="note")(lambda text: None)
        with jobs.running() as runner, pytest.raises(FileFull):
            while True:
                note.enqueue("x" * 5_000)
                assert runner.wait_idle(60)
    purged = command_line().invoke(main, ["--db", str(path), "purge", "--all", "--yes"])
    assert purged.exit_code == 0
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as client:
        client.execute("insert into litejobs_job (task) values ('note')")


def test_rows_of_an_outbox_wait_while_the_file_is_full(tmp_path: Path) -> None:
    """That is not their fault, so they are not marked; nor are others that can go."""
    jobs = LiteJobs(tmp_path / "jobs.db", max_size="1TB")
    jobs.task(name="note")(lambda: None)
    box = jobs.outbox(lambda: sqlite3.connect(tmp_path / "app.db"))
    app = sqlite3.connect(tmp_path / "app.db")
    box.create(app)
    jobs.enqueue("note", unique_key="one")
    rows = [("note", None), ("note", "one")]
    app.executemany(
        "insert into litejobs_outbox (task, unique_key) values (?, ?)", rows
    )
    app.commit()
    with jobs.transaction() as db:
        db.execute("update litejobs_space set max_bytes = 1")
    with pytest.raises(FileFull):
        box.deliver()
    left = app.execute("select unique_key, error from litejobs_outbox").fetchall()
    assert left == [(None, None)]
    with jobs.transaction() as db:
        db.execute("update litejobs_space set max_bytes = null")
    assert box.deliver() == 1
    assert app.execute("select * from litejobs_outbox").fetchall() == []
    assert jobs.counts() == {"pending": 2}
    app.close()
    jobs.close()


def test_limit_is_known_before_a_runner_begins(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    LiteJobs(path).open().close()
    with LiteJobs(path, max_size=100_000) as jobs:
        with pytest.raises(FileFull):
            jobs.enqueue("note")
    # The file goes on knowing it, until it is told otherwise.
    with LiteJobs(path) as jobs, pytest.raises(FileFull):
        jobs.enqueue("note")
    with LiteJobs(path, max_size=0) as jobs:
        assert jobs.enqueue("note").state == "pending"


def test_limit_counts_tables_of_the_application_only_if_it_is_meant_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "app.db"
    connection = apsw.Connection(str(path))
    connection.execute("create table orders (id)")
    connection.close()
    with pytest.raises(ConfigurationError, match=r"tables of the application .*orders"):
        LiteJobs(path, max_size="1GB").open()
    with LiteJobs(path, max_size=0) as jobs:
        jobs.enqueue("note")
    with LiteJobs(path, max_size=1, max_size_shared=True) as jobs:
        with pytest.raises(FileFull):
            jobs.enqueue("note")


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (0, 0),
        (1, 1),
        ("1", 1),
        ("500MB", 500_000_000),
        (" 1.5 GiB ", 3 * 2**29),
        ("10kb", 10_000),
        ("2TB", 2 * 10**12),
        (2**60, 2**60),
    ],
)
def test_sizes_are_written_as_people_write_them(given: Any, size: int) -> None:
    assert bytes_of(given, name="max_size") == size


@pytest.mark.parametrize(
    "given",
    [
        *(-1, 1.5, True, 2**60 + 1, b"1", "", "MB", "1 XB", "1e3MB", "-1MB", "1.2.3"),
        *("²MB", "2000000TB", "9" * 400, "0.5", "0.0001KB"),
    ],
)
def test_what_is_no_size_is_refused_when_it_is_said(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"max_size=.* is not a size; give"):
        LiteJobs(max_size=given)


# A new file ---------------------------------------------------------------------------


def test_text_of_a_new_file_is_that_of_the_sql_with_little_layout(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs, jobs.reader() as db:
        found = {name: text for _, name, text in statements.objects(db)}
    trigger = found["litejobs__disk_is_kept"].splitlines()
    assert trigger[2:4] == ["begin", " insert into litejobs_space (id)"]
    assert trigger[-1] == "end"
    assert path.stat().st_size < 955_000


def test_new_file_on_a_small_disk_is_not_in_the_log_alone(disk: Path) -> None:
    with LiteJobs(disk / "jobs.db").open():
        assert (disk / "jobs.db").stat().st_size > 500_000
        assert (disk / "jobs.db-wal").stat().st_size < 20_000
