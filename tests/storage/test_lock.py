"""One runner per file, whatever becomes of its process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import freezegun
import pytest

import litejobs
from litejobs import LiteJobs
from litejobs._process import fork_guard
from litejobs._storage import byte_locks
from litejobs._storage.runner_lock import (
    MemoryLock,
    RunnerLock,
    runner_lives,
    runner_process,
)
from litejobs.errors import (
    FileRefused,
    ForkedProcess,
    NotADatabase,
    ReadOnlyDatabase,
    RunnerActive,
)
from tests.programs import exit_code_of
from tests.storage.children import begun, in_child

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

HOLD = """
import subprocess, sys
from litejobs._storage.runner_lock import RunnerLock
lock = RunnerLock(sys.argv[1])
print(lock.acquire(), flush=True)
helper = None
for line in sys.stdin:
    if line == "helper\\n":
        # Started after the lock was taken, and ends only when its input does.
        helper = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
        print(helper.pid, flush=True)
    elif line == "release\\n":
        lock.release()
        print(lock.held, flush=True)
"""


class Holder:
    """Another process that has the lock."""

    def __init__(self, database: Path) -> None:
        root = Path(litejobs.__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(database)],
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.acquired = self.read() == "True"

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path)) / "jobs.db"


@pytest.fixture
def lock(database: Path) -> Iterator[RunnerLock]:
    lock = RunnerLock(database)
    yield lock
    lock.release()


@pytest.fixture
def holder(database: Path) -> Iterator[Holder]:
    holder = Holder(database)
    yield holder
    holder.end()


def test_lock_is_held_from_acquire_to_release(lock: RunnerLock) -> None:
    assert not lock.held
    assert lock.acquire()
    assert lock.held
    assert lock.acquire()
    lock.release()
    assert not lock.held
    lock.release()


def test_whether_a_runner_lives_is_asked_without_taking_the_lock(
    lock: RunnerLock, database: Path, holder: Holder
) -> None:
    assert holder.acquired
    assert runner_lives(database) is True
    assert not lock.acquire()
    holder.end()
    assert runner_lives(database) is False
    assert lock.acquire()
    assert runner_lives(database) is True  # also where it is this process
    assert lock.confirm()
    lock.release()
    assert lock.path is not None
    lock.path.unlink()
    assert runner_lives(database) is False
    assert not lock.path.exists()
    lock.path.mkdir()
    assert runner_lives(database) is None  # what cannot be told is not said


@linux
def test_system_names_the_process_that_has_the_lock(
    lock: RunnerLock, database: Path, holder: Holder
) -> None:
    assert lock.path is not None
    file = byte_locks.opened(lock.path)
    assert file is not None
    assert file.holder(0) == holder.process.pid
    assert file.holder(1) is None
    assert file.take(1, lock)
    assert file.holder(1) == os.getpid()
    holder.end()
    assert file.holder(0) is None
    file.give_back(1, lock)
    file.close_if_free()


def test_byte_is_asked_for_where_the_system_does_not_tell(
    lock: RunnerLock,
    database: Path,
    holder: Holder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "sunos5")
    assert runner_lives(database) is True
    holder.end()
    assert runner_lives(database) is False
    assert lock.acquire()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes among files")
def test_whether_a_runner_lives_is_not_asked_of_a_pipe(
    lock: RunnerLock, database: Path
) -> None:
    assert lock.acquire()
    lock.release()
    assert lock.path is not None
    lock.path.unlink()
    os.mkfifo(lock.path, 0o444)
    assert runner_lives(database) is None


def test_lock_file_is_empty_private_and_left_in_place(lock: RunnerLock) -> None:
    assert lock.path is not None
    assert lock.acquire()
    assert lock.path.name == "jobs.db.runner"
    assert lock.path.stat().st_size == 0
    if os.name == "posix":
        assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
    lock.release()
    assert lock.path.stat().st_size == 0
    assert list(lock.path.parent.iterdir()) == [lock.path]


def test_second_lock_in_the_same_process_is_refused(
    lock: RunnerLock, database: Path
) -> None:
    second = RunnerLock(database)
    assert lock.acquire()
    assert not second.acquire()
    assert not second.held
    assert lock.confirm()
    lock.release()
    assert second.acquire()
    assert not lock.acquire()
    second.release()


def test_second_process_is_refused_until_the_first_releases(
    holder: Holder, lock: RunnerLock, database: Path
) -> None:
    assert holder.acquired
    assert not lock.acquire()
    assert holder.ask("release") == "False"
    assert lock.acquire()
    late = Holder(database)
    assert not late.acquired
    late.end()


def test_killed_holder_frees_the_lock_at_once(holder: Holder, lock: RunnerLock) -> None:
    assert not lock.acquire()
    holder.process.kill()
    holder.process.wait()
    assert lock.acquire()


@posix
def test_helper_of_a_killed_holder_does_not_keep_the_lock(
    holder: Holder, lock: RunnerLock
) -> None:
    helper = int(holder.ask("helper"))
    holder.process.kill()
    holder.process.wait()
    os.kill(helper, 0)  # it lives on
    assert lock.acquire()
    os.kill(helper, signal.SIGKILL)


@posix
def test_suspended_holder_keeps_the_lock(holder: Holder, lock: RunnerLock) -> None:
    holder.process.send_signal(signal.SIGSTOP)
    os.waitpid(holder.process.pid, os.WUNTRACED)
    assert not lock.acquire()
    holder.process.send_signal(signal.SIGCONT)
    assert not lock.acquire()


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_neither_has_nor_frees_the_lock(
    lock: RunnerLock, database: Path
) -> None:
    assert lock.acquire()

    def refused() -> bool:
        assert not lock.held
        lock.release()
        for action in (lock.acquire, lock.confirm, lock.wait):
            with pytest.raises(ForkedProcess, match="belongs to process"):
                action()
        return True

    def closed_by_force() -> bool:
        os.closerange(3, 1024)
        return True

    for action in (refused, closed_by_force):
        assert in_child(action) == 1
        late = Holder(database)
        assert not late.acquired
        late.end()
    assert lock.held


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_waits_for_its_parents_lock_and_gets_it(
    lock: RunnerLock, database: Path
) -> None:
    ready, tell = os.pipe()
    assert lock.acquire()

    def action() -> bool:
        mine = RunnerLock(database)
        refused = not mine.acquire() and runner_lives(database) is True
        os.write(tell, b"x")
        return refused and mine.wait(timeout=60)

    child = begun(action)
    os.close(tell)
    assert os.read(ready, 1) == b"x"
    assert lock.confirm()
    lock.release()
    assert exit_code_of(child) == 1
    assert lock.acquire()
    os.close(ready)


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_lock_of_a_dead_parent_is_free_though_its_child_lives(
    lock: RunnerLock, database: Path
) -> None:
    """The child is a fork, with the descriptor still open."""
    ready, tell = os.pipe()
    end, keep = os.pipe()

    def parent() -> int:
        assert RunnerLock(database).acquire()
        if os.fork() == 0:
            os.close(keep)
            os.write(tell, b"x")
            os.read(end, 1)
            os._exit(0)
        return 1

    assert in_child(parent) == 1
    os.close(tell)
    assert os.read(ready, 1) == b"x"
    assert lock.acquire()
    for descriptor in (ready, end, keep):
        os.close(descriptor)


def test_lock_of_another_process_is_not_released(lock: RunnerLock) -> None:
    assert lock.acquire()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_guard, "_forks", fork_guard._forks + 1)
        assert not lock.held
        lock.release()
    assert lock.held


def test_database_in_memory_needs_no_lock() -> None:
    first, second = RunnerLock(":memory:"), RunnerLock(":memory:")
    assert first.path is None
    assert first.acquire()
    assert second.acquire()
    assert first.confirm()
    first.release()
    assert not first.held
    assert not first.confirm()
    assert not Path(":memory:.runner").exists()


# Standby


def test_standby_takes_over_from_a_killed_holder(
    holder: Holder, lock: RunnerLock
) -> None:
    asked = 0

    def kill_it_then() -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            holder.process.kill()
            holder.process.wait()
        return False

    assert lock.wait(kill_it_then)
    assert asked == 2


def test_standby_gives_up_when_told_to(database: Path, lock: RunnerLock) -> None:
    other = RunnerLock(database)
    assert other.acquire()
    stop = threading.Event()
    waiting = threading.Thread(target=lambda: answers.append(lock.wait(stop)))
    answers: list[bool] = []
    waiting.start()
    stop.set()
    waiting.join()
    assert answers == [False]
    assert not lock.wait(lambda: True)
    other.release()
    assert not lock.wait(stop)
    assert not lock.held


def test_standby_of_a_memory_file_gives_up_when_told_to() -> None:
    """The runner may have ended at the same moment."""
    runs = threading.Lock()
    lock = MemoryLock(runs)
    stop = threading.Event()
    stop.set()
    assert not lock.wait(stop)
    assert not lock.wait(lambda: True)
    assert not runs.locked()
    assert lock.wait(lambda: False, timeout=0)
    assert runs.locked()
    assert not MemoryLock(runs).wait(timeout=0)


def test_timeout_passes_under_a_held_clock(database: Path, lock: RunnerLock) -> None:
    other = RunnerLock(database)
    assert other.acquire()
    with freezegun.freeze_time("2030-01-01"):
        assert not lock.wait(timeout=0)
        assert not lock.wait(timeout=0.25)
        other.release()
        assert lock.wait(timeout=0)


# A lock that was lost


@linux
def test_copied_lock_file_is_locked_again(lock: RunnerLock, database: Path) -> None:
    """To copy a file is to close it, which drops this process's locks on it."""
    assert lock.acquire()
    assert lock.path is not None
    lock.path.read_bytes()
    assert lock.confirm()
    late = Holder(database)
    assert not late.acquired
    late.end()


@linux
def test_lock_lost_to_another_process_is_admitted(
    lock: RunnerLock, database: Path
) -> None:
    assert lock.acquire()
    assert lock.path is not None
    lock.path.read_bytes()
    late = Holder(database)
    assert late.acquired
    assert lock.held
    assert not lock.confirm()
    assert not lock.held
    assert not lock.confirm()
    late.end()
    assert lock.acquire()


@posix
def test_deleted_lock_file_is_made_and_locked_again(
    lock: RunnerLock, database: Path
) -> None:
    assert lock.acquire()
    assert lock.path is not None
    lock.path.unlink()
    assert lock.confirm()
    assert lock.path.exists()
    late = Holder(database)
    assert not late.acquired
    late.end()


# What is refused


def test_lock_file_with_something_in_it_is_refused(
    lock: RunnerLock, database: Path
) -> None:
    content = b"the only copy of a thesis " * 100
    database.with_name("jobs.db.runner").write_bytes(content)
    with pytest.raises(NotADatabase, match=r"jobs\.db\.runner should be the empty"):
        lock.acquire()
    assert database.with_name("jobs.db.runner").read_bytes() == content
    assert not lock.held


@posix
def test_link_in_place_of_the_lock_file_is_refused(
    lock: RunnerLock, database: Path
) -> None:
    target = database.with_name("precious")
    target.touch()
    database.with_name("jobs.db.runner").symlink_to(target)
    with pytest.raises(FileRefused, match=r"jobs\.db\.runner cannot be locked"):
        lock.acquire()


def test_missing_folder_is_refused(database: Path) -> None:
    with pytest.raises(ReadOnlyDatabase, match=r"jobs\.db\.runner cannot be made"):
        RunnerLock(database.with_name("nowhere") / "jobs.db").acquire()


@posix
def test_lock_file_that_cannot_be_written_is_refused() -> None:
    """SQLite opens it for reading and turns "exclusive" into a plain read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        runner = Path(name) / "jobs.db.runner"
        runner.touch()
        runner.chmod(0o444)
        lock = RunnerLock(os.path.realpath(Path(name) / "jobs.db"))
        root = os.geteuid() == 0
        if root:  # root may write all the same
            os.seteuid(65534)
        try:
            with pytest.raises(ReadOnlyDatabase, match=r"runner cannot be written by"):
                lock.acquire()
        finally:
            if root:
                os.seteuid(0)
        assert not lock.held


def test_drain_beside_a_runner_that_is_not_in_the_file_yet_says_so(
    database: Path, lock: RunnerLock
) -> None:
    assert lock.acquire()
    with closing(LiteJobs(database)) as jobs, pytest.raises(RunnerActive) as caught:
        jobs.drain()
    assert str(caught.value).startswith("another process runs the jobs of ")
    assert caught.value.pid is None


def test_lock_file_that_a_thread_uses_is_not_closed_by_another(
    database: Path,
) -> None:
    lock_file = f"{database}.runner"
    with byte_locks.using(lock_file) as file:
        assert file is not None
        # Another thread asks whether a runner lives, and has no more use for it.
        assert runner_process(database) is None
        with byte_locks.using(lock_file) as other:
            assert other is file
        assert file.take(1, "mine")
        assert file.holder(1) == os.getpid()
        file.give_back(1, "mine")
    with pytest.raises(FileRefused, match="closed this moment"):
        file.take(1, "mine")
