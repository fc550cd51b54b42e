"""litejobs notices a second SQLite library on its file, and its own fork."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import litejobs
from litejobs._process import fork_guard
from litejobs._storage import process_guard
from litejobs.errors import FileRefused, ForkedProcess, SharedFile
from tests.storage.children import RAISED, in_child

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

pytestmark = posix

ROWS = "select group_concat(x) from (select x from t order by x)"


def open_database(path: Path) -> apsw.Connection:
    """A connection such as litejobs has: in WAL mode, and it has read."""
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute("create table if not exists t (x); insert into t values (1)")
    return db


def run(program: str, *arguments: object) -> str:
    """What another process prints."""
    root = Path(litejobs.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def check_writable(path: str | os.PathLike[str]) -> None:
    """What the beginning and the end of each write ask of an open file."""
    protection = process_guard._watched.get(os.fspath(path))
    if protection is not None:
        protection.check()


def unheard_open(path: Path, flags: int) -> int:
    """A descriptor made in C, as any other library would, without an audit event."""
    descriptor = ctypes.CDLL(None).open(os.fsencode(path), flags)
    assert descriptor >= 0
    return int(descriptor)


def unheard_close(descriptor: int) -> None:
    assert ctypes.CDLL(None).close(descriptor) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path)) / "jobs.db"


@pytest.fixture
def db(path: Path) -> Iterator[apsw.Connection]:
    db = open_database(path)
    process_guard.protect(path)
    yield db
    process_guard.unprotect(path)
    db.close()


# Before the file is opened


def test_file_open_in_sqlite3_is_refused_before_it_is_touched(path: Path) -> None:
    stranger = sqlite3.connect(path)
    with pytest.raises(SharedFile, match="a jobs file of its own; or enqueue through"):
        process_guard.check_not_shared(path)
    stranger.close()
    process_guard.check_not_shared(path)


def test_file_open_for_copying_is_refused(path: Path) -> None:
    path.touch()
    with path.open("rb"), pytest.raises(SharedFile, match=r"jobs\.db is open in this"):
        process_guard.check_not_shared(path)


def test_missing_file_is_nobodys(path: Path) -> None:
    process_guard.check_not_shared(path)
    assert not path.exists()


def test_connections_of_the_same_library_are_welcome(path: Path) -> None:
    """The application may use apsw, and SQLite keep descriptors of closed ones."""
    mine = open_database(path)
    closed = open_database(path)
    closed.close()
    process_guard.check_not_shared(path)
    process_guard.protect(path)
    process_guard.unprotect(path)
    mine.close()


def test_connect_that_was_heard_decides_between_both(path: Path) -> None:
    process_guard.watch_connects()
    mine = open_database(path)
    stranger = sqlite3.connect(os.fsencode(path))
    with pytest.raises(SharedFile):
        process_guard.check_not_shared(path)
    stranger.close()
    mine.close()
    process_guard.check_not_shared(path)


def test_unheard_stranger_is_found_once_the_file_is_open(path: Path) -> None:
    """Beside connections of apsw, only an open file lets the two be told apart."""
    mine = open_database(path)
    stranger = unheard_open(path, os.O_RDWR)
    process_guard.check_not_shared(path)
    with pytest.raises(SharedFile):
        process_guard.protect(path)
    check_writable(path)  # it is not watched, since nothing was opened
    unheard_close(stranger)
    mine.close()


# While the file is open


def test_undisturbed_file_may_be_written(db: apsw.Connection, path: Path) -> None:
    check_writable(path)
    process_guard.recheck(path)


def test_unwatched_file_is_not_looked_at(path: Path) -> None:
    process_guard._hear("open", (str(path), "r", 0))
    check_writable(path)
    process_guard.recheck(path)
    process_guard.unprotect(path)


@pytest.mark.parametrize(
    "name",
    [
        str,
        os.fsencode,
        Path,
        lambda path: f"file:{path}?mode=rw",
        lambda path: f"file://{path}",
        os.path.relpath,
    ],
)
def test_later_connect_is_let_through_and_the_next_write_refused(
    db: apsw.Connection, path: Path, name: Callable[[Path], str]
) -> None:
    given = name(path)
    stranger = sqlite3.connect(given, uri=str(given).startswith("file:"))
    with pytest.raises(SharedFile, match="is open in this process outside"):
        check_writable(path)
    assert stranger.execute("select x from t").fetchall() == [(1,)]
    stranger.close()


def test_connect_through_another_name_is_noticed(
    db: apsw.Connection, path: Path
) -> None:
    other = path.with_name("other.db")
    other.symlink_to(path)
    stranger = sqlite3.connect(other)
    with pytest.raises(SharedFile):
        check_writable(path)
    stranger.close()


def test_connect_to_another_file_is_nothing(db: apsw.Connection, path: Path) -> None:
    for name in (":memory:", "", path.with_name("other.db")):
        sqlite3.connect(name).close()
        check_writable(path)
    process_guard.recheck(path)


@linux
def test_connect_that_fails_is_nothing(db: apsw.Connection, path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(f"file:{path}?mode=none", uri=True)
    check_writable(path)


@pytest.mark.parametrize("beside", ["", "-shm"])
@linux
def test_copied_file_refuses_the_next_write(
    db: apsw.Connection, path: Path, beside: str
) -> None:
    """The copy is closed already, and the locks of this process went with it."""
    Path(f"{path}{beside}").read_bytes()
    with pytest.raises(SharedFile, match="was opened and closed in this process"):
        check_writable(path)


@linux
def test_lost_locks_are_seen_without_an_event(db: apsw.Connection, path: Path) -> None:
    unheard_close(unheard_open(path, os.O_RDONLY))
    check_writable(path)
    with pytest.raises(SharedFile, match="was opened and closed in this process"):
        process_guard.recheck(path)
    with pytest.raises(SharedFile, match="was opened and closed in this process"):
        check_writable(path)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_RDONLY])
def test_descriptor_of_an_unheard_library_is_seen(
    db: apsw.Connection, path: Path, flags: int
) -> None:
    stranger = unheard_open(path, flags)
    with pytest.raises(SharedFile, match="is open in this process outside"):
        process_guard.recheck(path)
    unheard_close(stranger)


def test_finding_stays_and_is_logged_once(
    db: apsw.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing the stranger makes it worse: that is when our locks go."""
    unconcerned = open_database(path.with_name("other.db"))
    protection = process_guard.protect(path)
    assert protection.reason == ""
    stranger = sqlite3.connect(path)
    stranger.execute("select x from t").fetchall()
    for _ in range(3):
        with pytest.raises(SharedFile) as caught:
            check_writable(path)
    stranger.close()
    with pytest.raises(SharedFile):
        process_guard.recheck(path)
    assert protection.reason == str(caught.value)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    no_checkpoint = apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE
    assert db.config(no_checkpoint, -1) == 1
    assert unconcerned.config(no_checkpoint, -1) == 0
    unconcerned.close()


def test_own_connections_may_come_and_go(db: apsw.Connection, path: Path) -> None:
    """SQLite keeps their descriptors, which are counted out and do not pile up."""
    read_only = apsw.SQLITE_OPEN_READONLY
    for _ in range(3):
        first, second = (open_database(path) for _ in range(2))
        third = apsw.Connection(str(path), flags=read_only)
        process_guard.recheck(path)
        first.close()
        process_guard.recheck(path)
        with process_guard.expected_open(path):
            second.close()
            third.close()
        process_guard.recheck(path)
    key = process_guard._key(path)
    assert key is not None
    before = len(process_guard._descriptors(key))
    for _ in range(5):
        process_guard.recheck(path)
    assert len(process_guard._descriptors(key)) == before == 4


def test_stranger_is_found_among_kept_descriptors(
    db: apsw.Connection, path: Path
) -> None:
    others = [open_database(path) for _ in range(3)]
    for other in others:
        other.close()
    process_guard.recheck(path)
    stranger = unheard_open(path, os.O_RDWR)
    with pytest.raises(SharedFile):
        process_guard.recheck(path)
    unheard_close(stranger)


@pytest.mark.parametrize("known", [True, False])
def test_connection_busy_in_another_thread_is_ours(
    db: apsw.Connection, path: Path, known: bool
) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> int:
        inside.set()
        leave.wait()
        return 1

    busy = open_database(path)
    busy.create_scalar_function("hold", hold)
    if known:
        process_guard.recheck(path)
    thread = threading.Thread(target=lambda: busy.execute("select hold()").fetchall())
    thread.start()
    inside.wait()
    process_guard.recheck(path)
    stranger = sqlite3.connect(path)
    if known:
        with pytest.raises(SharedFile):
            check_writable(path)
    leave.set()
    thread.join()
    with pytest.raises(SharedFile):
        process_guard.recheck(path)
    stranger.close()
    busy.close()


def test_file_that_was_replaced_is_not_written(db: apsw.Connection, path: Path) -> None:
    """What is stored in a deleted file is lost."""
    path.rename(path.with_name("old.db"))
    with pytest.raises(FileRefused, match="was moved, deleted or replaced"):
        process_guard.recheck(path)
    path.touch()
    with pytest.raises(FileRefused, match="was moved, deleted or replaced"):
        check_writable(path)


def test_missing_file_cannot_be_protected(path: Path) -> None:
    with pytest.raises(FileRefused, match="does not exist"):
        process_guard.protect(path)


# The damage, and the way back

STRANGER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
other.execute("insert into t values (?)", (int(sys.argv[2]),))
other.commit()
other.close()
"""

APPLICATION = (
    """
import apsw, contextlib, os, pathlib, sqlite3, subprocess, sys
from litejobs._storage import process_guard
from litejobs.errors import SharedFile

path, guarded = pathlib.Path(sys.argv[1]), sys.argv[2] == "True"
acknowledged = []

def another_process_writes(x):
    subprocess.run([sys.executable, "-c", sys.argv[3], str(path), str(x)], check=True)
    acknowledged.append(x)

def opened():
    process_guard.check_not_shared(path)
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute("create table if not exists t (x)")
    if guarded:
        process_guard.protect(path)
    return db

def write(x):
    if guarded:
        process_guard._watched[str(path)].check()
    db.execute("insert into t values (?)", (x,))
    acknowledged.append(x)

db = opened()
write(1)
# The application has a look at the file.
with contextlib.closing(sqlite3.connect(path)) as look:
    look.execute("select x from t").fetchall()
for x in (2, 4, 6):
    try:
        write(x)
    except SharedFile:
        # The way back: close everything, while others may be writing, and open again.
        another_process_writes(100)
        process_guard.unprotect(path)
        db.close()
        db = opened()
        write(x)
    another_process_writes(x + 1)
db.close()
db = apsw.Connection(str(path))
stored = [x for x, in db.execute("select x from t")]
print(sorted(set(acknowledged) - set(stored)), len(stored) - len(set(stored)))
""",
    STRANGER,
)


@linux
def test_acknowledged_rows_vanish_without_the_guard(path: Path) -> None:
    """If this fails, SQLite has learnt to live with it, and the guard can go."""
    program, stranger = APPLICATION
    assert run(program, path, False, stranger) != "[] 0"


def test_nothing_vanishes_with_the_guard(path: Path) -> None:
    program, stranger = APPLICATION
    assert run(program, path, True, stranger) == "[] 0"


# Where the system tells less


@pytest.fixture
def silent_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not show its locks, such as that of macOS."""
    monkeypatch.setattr(process_guard, "locks_held", lambda key: None)


@pytest.mark.usefixtures("silent_kernel")
def test_event_is_enough_where_locks_cannot_be_seen(path: Path) -> None:
    for disturb in (
        lambda: sqlite3.connect(path).close(),
        path.read_bytes,
    ):
        db = open_database(path)
        process_guard.protect(path)
        check_writable(path)
        disturb()
        with pytest.raises(SharedFile, match="was opened and closed"):
            check_writable(path)
        process_guard.unprotect(path)
        db.close()


def test_descriptors_are_found_without_a_list_of_them(
    db: apsw.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str) -> list[str]:
        raise FileNotFoundError(folder)

    key = process_guard._key(path)
    assert key is not None
    listed = sorted(process_guard._descriptors(key))
    assert listed
    monkeypatch.setattr(os, "listdir", refuse)
    assert process_guard._descriptors(key) == listed
    process_guard.recheck(path)


@linux
def test_locks_that_cannot_be_asked_for_are_not_missed(
    db: apsw.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = process_guard._key(path)
    assert key is not None
    assert process_guard.locks_held(key) is True

    def refuse(file: Path) -> bytes:
        raise OSError(24, "Too many open files", str(file))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert process_guard.locks_held(key) is None
    process_guard.recheck(path)


@linux
def test_locks_are_found_behind_whichever_descriptor(tmp_path: Path) -> None:
    """Linux shows a lock with the descriptor through which it was taken.

    That is the first one that SQLite has opened, and not the one of lowest number: a
    socket may have been closed since, whose number a reader has got.
    """
    with contextlib.ExitStack() as stack:
        pipe = os.pipe()
        stack.callback(os.close, pipe[1])
        jobs = stack.enter_context(litejobs.LiteJobs(tmp_path / "jobs.db").open())
        os.close(pipe[0])
        with jobs.reader() as reader:
            assert reader.execute("select count(*) from litejobs_job").get == 0
            key = process_guard._key(jobs.path)
            assert key is not None
            assert pipe[0] in process_guard._descriptors(key)
            assert process_guard.locks_held(key) is True
            process_guard.recheck(jobs.path)


def test_locks_of_a_file_that_is_not_open_cannot_be_told(path: Path) -> None:
    path.touch()
    key = process_guard._key(path)
    assert key is not None
    assert process_guard.locks_held(key) is None


def test_descriptors_closed_meanwhile_are_passed_over(path: Path) -> None:
    path.touch()
    key = process_guard._key(path)
    assert key is not None
    closed = os.open(path, os.O_RDONLY)
    assert process_guard._is(closed, key)
    assert not process_guard._writable(closed)
    os.close(closed)
    assert not process_guard._is(closed, key)
    assert process_guard._writable(closed)


def test_connection_closed_meanwhile_has_no_files(path: Path) -> None:
    db = open_database(path)
    key = process_guard._key(path)
    assert key is not None
    assert process_guard._opened(db, key) == [(key, True)]
    db.close()
    assert process_guard._opened(db, key) == []


def test_count_that_cannot_be_made_finds_no_stranger(path: Path) -> None:
    """Without a descriptor left to try with, that is; the next look is soon enough."""
    missing = path.with_name("nowhere") / "jobs.db"
    assert process_guard._not_kept(missing, (0, 0), True, 1) == 0


def test_on_windows_nothing_is_watched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There locks belong to a handle, and any number of libraries may be used."""
    monkeypatch.setattr(sys, "platform", "win32")
    stranger = sqlite3.connect(path)
    process_guard.check_not_shared(path)
    db = open_database(path)
    process_guard.protect(path).look()
    process_guard.unprotect(path)
    stranger.close()
    db.close()


# The audit hook. Coverage cannot see into a hook, so it is also called by hand.


def test_hook_never_raises_but_has_the_file_looked_at(
    db: apsw.Connection, path: Path
) -> None:
    protection = process_guard.protect(path)
    process_guard._hear("sqlite3.connect", ())
    assert protection.disturbed.startswith("sqlite3.connect: IndexError")
    check_writable(path)
    with pytest.raises(TypeError):
        sqlite3.connect(object())  # type: ignore[call-overload]
    assert "object" in protection.disturbed
    process_guard._hear("open", (3, "r", 0))
    process_guard._hear("import", ("os",))
    check_writable(path)
    assert protection.disturbed == ""


def test_look_before_the_connect_is_done_is_not_the_last(
    db: apsw.Connection, path: Path
) -> None:
    """The event comes before the file is open; a second one follows it."""
    protection = process_guard.protect(path)
    process_guard._hear("sqlite3.connect", (str(path),))
    if sys.platform == "linux":
        check_writable(path)
    protection.disturbed = ""
    process_guard._hear("sqlite3.connect/handle", (object(),))
    assert protection.disturbed == "sqlite3.connect"
    protection.disturbed = ""
    process_guard._hear("sqlite3.connect/handle", (object(),))
    assert protection.disturbed == ""


def test_hook_hears_the_file_and_its_shared_memory_opened(
    db: apsw.Connection, path: Path
) -> None:
    protection = process_guard.protect(path)
    for name, heard in ((path, "open"), (f"{path}-shm", "open"), (path.parent, "")):
        protection.disturbed = ""
        process_guard._hear("open", (os.fspath(name), "r", 0))
        assert protection.disturbed == heard
    protection.disturbed = ""


def test_hook_hears_a_connect_by_uri_and_passes_over_others(
    db: apsw.Connection, path: Path
) -> None:
    protection = process_guard.protect(path)
    other = path.with_name("other.db")
    for name, heard in (
        (f"file:{path.parent}/jobs%2Edb?mode=ro#top", "sqlite3.connect"),
        (other.as_uri(), ""),
    ):
        protection.disturbed = ""
        process_guard._hear("sqlite3.connect", (name,))
        assert protection.disturbed == heard
    protection.disturbed = ""


def test_names_connected_to_are_forgotten_in_the_end() -> None:
    for number in range(1000):
        process_guard._hear("sqlite3.connect", (f"file-{number}.db",))
    assert len(process_guard._connected) == 256
    assert str(process_guard._connected[-1]).endswith("file-999.db")


def test_hook_is_installed_once(path: Path) -> None:
    program = """
import sys
from litejobs._storage import process_guard
hooks = []
sys.addaudithook = hooks.append
for _ in range(3):
    process_guard.watch_connects()
print(len(hooks))
"""
    assert run(program) == "1"


# Fork


@forks
def test_forked_child_is_refused_and_the_parent_is_not() -> None:
    guard = fork_guard.ForkGuard("the jobs file a.db")
    parent = os.getpid()

    def refused() -> None:
        assert guard.is_stale()
        with pytest.raises(ForkedProcess) as caught:
            guard.check()
        assert str(caught.value) == (
            f"the jobs file a.db belongs to process {parent}, which forked process"
            f" {os.getpid()}; make a new one here, or start processes with the"
            " 'spawn' method"
        )
        fork_guard.ForkGuard().check()
        assert in_child(guard.check) == RAISED

    assert in_child(refused) == 0
    guard.check()
    assert not guard.is_stale()


@forks
def test_forked_child_watches_nothing_of_its_parent(
    db: apsw.Connection, path: Path
) -> None:
    def watches_nothing() -> None:
        with sqlite3.connect(path.with_name("other.db")):
            assert process_guard._watched == {}
        process_guard.recheck(path)

    with (
        process_guard._accounting,
        process_guard._changing,
    ):  # held by nobody in the child
        assert in_child(lambda: process_guard.unprotect(path)) == 0
    assert in_child(watches_nothing) == 0
    assert list(process_guard._watched) == [str(path)]


def test_guard_is_stale_once_a_fork_is_counted() -> None:
    guard = fork_guard.ForkGuard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_guard, "_forks", fork_guard._forks + 1)
        assert guard.is_stale()
        with pytest.raises(ForkedProcess, match="this object belongs to process"):
            guard.check()
    assert not guard.is_stale()


@forks
def test_child_is_told_by_its_number_where_no_page_tells_it() -> None:
    told = fork_guard._SameNumber()

    def is_told() -> None:
        assert not told[0]
        told[0] = 1
        assert told[0]

    assert in_child(is_told) == 0
    assert told[0]
