"""Each cause that keeps jobs from being run is seen by every process until its end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._runner.vital_watch import VitalWatch
from litejobs._storage import byte_locks, vital_signs
from litejobs._storage.reserve import Reserve
from litejobs._storage.runner_lock import RunnerLock
from litejobs.cli import main
from litejobs.errors import translated
from litejobs.testing import hold_clock, release_clock
from tests.cli.calls import runner as command_line
from tests.programs import Program
from tests.runner.test_health import grow, needs_python, read_elsewhere
from tests.waiting import LONG, Gate, Sizes, Times, eventually

ROOT = Path(__file__).parents[2]

OBSERVER = """
    import json, sys
    from litejobs import LiteJobs
    from click.testing import CliRunner
    from litejobs._process.timing import TIMES
    from litejobs.cli import main

    TIMES.probe_pause = 0.02
    path = jobs = None

    def probe(*options):
        words = ["--db", path, "doctor", "--probe", "--json", *options]
        said = json.loads(CliRunner().invoke(main, words).stdout)
        return said["healthy"], said["sentence"]

    for line in sys.stdin:
        asked, sought = json.loads(line)
        if asked != path:
            if jobs is not None:
                jobs.close()
            path = asked
            jobs = LiteJobs(path)
        health = jobs.health()
        codes = [each["code"] for each in health["causes"]]
        found = {"healthy": health["healthy"], "codes": codes}
        # The command is asked where that may be what is sought.
        if sought in codes or not (sought or codes):
            found |= {"probe": probe(), "due": probe("--due")}
        print(json.dumps(found), flush=True)
"""


class Observer:
    """Another process that asks how the jobs of a file do."""

    def __init__(self, process: subprocess.Popen[str], path: str) -> None:
        self._process = process
        self._path = path

    def _look(self, sought: str | None) -> dict[str, Any]:
        """What it finds now, where this cause is sought, or that there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps([self._path, sought])}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def sees(self, code: str) -> bool:
        """Whether that is what keeps jobs from being run, for each who is asked."""
        found = self._look(code)
        if code not in found["codes"]:
            return False
        is_healthy, words = found["probe"]
        return (
            not (found["healthy"] or is_healthy or found["due"][0])
            and vital_signs.CAUSES.get(code, "") in words
        )

    def sees_nothing(self) -> bool:
        """Whether all is well, for each who is asked."""
        found = self._look(None)
        return bool(
            found["healthy"]
            and found["codes"] == []
            and found["probe"][0]
            and found["due"][0]
        )


@pytest.fixture(scope="module")
def observing() -> Iterator[subprocess.Popen[str]]:
    """One process for all tests: it asks about the file that it is told of."""
    with Program(
        [sys.executable, "-c", _dedented(OBSERVER)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def observer(file_jobs: LiteJobs, observing: subprocess.Popen[str]) -> Observer:
    file_jobs.open()
    return Observer(observing, os.fspath(file_jobs.path))


@pytest.fixture(autouse=True)
def eager(times: Times, sizes: Sizes) -> None:
    """The runner looks after its file all the time, and waits for little."""
    times(lock_pause=0.0, sign_pause=0.01, first_pause=0.02, longest_pause=0.02)
    times(cancel_patience=0.02, stuck_patience=0.02)
    sizes(wal_limit=2**19, wal_warning=2**19)


# So that the loop waits for its next transaction, and not before, for a look.
SELDOM = dict.fromkeys(("brisk_poll", "held_poll", "poll"), float(LONG))

Cause = Callable[..., contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def _transaction_is_long(jobs: LiteJobs, gate: Gate, **_: Any) -> Iterator[None]:
    with jobs.transaction():
        gate.go.set()
        yield


@contextlib.contextmanager
def _other_client_writes(jobs: LiteJobs, gate: Gate, **_: Any) -> Iterator[None]:
    # It was opened to wait for 5 s.
    jobs._store.database._writer.set_busy_timeout(20)
    other = apsw.Connection(jobs.path)
    other.execute("begin immediate")
    gate.go.set()
    yield
    other.execute("rollback")
    other.close()


@contextlib.contextmanager
def _disk_is_full(jobs: LiteJobs, gate: Gate, **_: Any) -> Iterator[None]:
    writer = jobs._store.database._writer
    before = writer.pragma("max_page_count")
    with jobs.transaction():
        writer.pragma("max_page_count", 1)  # as many as there are
    gate.go.set()
    yield
    with jobs.transaction():
        writer.pragma("max_page_count", before)


@contextlib.contextmanager
def _no_room_is_left(
    jobs: LiteJobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Nothing was written since, and nothing refused."""
    gate.go.set()
    with monkeypatch.context() as patched:
        patched.setattr(Reserve, "has_no_room", lambda self: True)
        yield


@contextlib.contextmanager
def _file_cannot_be_read(
    jobs: LiteJobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    assert jobs._service.runner is not None
    loop = jobs._service.runner._loop

    def fails(*_: Any, **__: Any) -> Any:
        raise translated(apsw.exception_for(apsw.SQLITE_IOERR_READ))

    with monkeypatch.context() as patched:
        patched.setattr(loop, "look", fails)
        gate.go.set()
        yield
    # The room that is kept for a full disk was not spent, and jobs are not refused.
    reserve = jobs._store.database._reserve
    assert reserve.size() == reserve.wanted
    with jobs.reader() as db:
        assert db.execute("select disk_full_at from litejobs_space").get is None


@contextlib.contextmanager
def _read_stays_open(jobs: LiteJobs, gate: Gate, **_: Any) -> Iterator[None]:
    with read_elsewhere(jobs.path):
        grow(jobs)
        gate.go.set()
        yield


@contextlib.contextmanager
def _file_has_two_names(jobs: LiteJobs, gate: Gate, **_: Any) -> Iterator[None]:
    gate.go.set()
    other = Path(jobs.path).with_name("other.db")
    other.hardlink_to(jobs.path)
    yield
    other.unlink()


@contextlib.contextmanager
def _loop_meets_a_bug(
    jobs: LiteJobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    assert jobs._service.runner is not None
    loop = jobs._service.runner._loop

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(loop, "turn", fails)
    gate.go.set()
    yield
    monkeypatch.setattr(loop, "turn", type(loop).turn.__get__(loop))


@pytest.mark.parametrize(
    ("code", "cause", "patience"),
    [
        ("loop_held_up", _transaction_is_long, {"late": 0.02, **SELDOM}),
        ("file_busy", _transaction_is_long, {"turn_patience": 0.02}),
        ("file_busy", _other_client_writes, {}),
        ("disk_full", _disk_is_full, {}),
        ("disk_full", _no_room_is_left, {}),
        ("disk_fails", _file_cannot_be_read, {}),
        ("log_pinned", _read_stays_open, {}),
        ("file_unsafe", _file_has_two_names, {}),
        ("loop_fails", _loop_meets_a_bug, {}),
    ],
    ids=[
        *("held_up", "own_transaction", "others", "full", "no_room", "fails"),
        *("log", "names", "bug"),
    ],
)
def test_cause_is_seen_until_its_end(
    file_jobs: LiteJobs,
    observer: Observer,
    gate: Gate,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    cause: Cause,
    patience: dict[str, float],
) -> None:
    jobs = file_jobs

    @jobs.task
    def work() -> str:
        gate()
        return "x" * 60_000  # it needs pages

    with jobs.running(threads=1) as runner:
        work.enqueue()
        assert gate.began.wait(60)
        eventually(observer.sees_nothing)
        assert jobs.health()["healthy"]
        times(**patience)
        with cause(jobs, gate, **_only(cause, monkeypatch=monkeypatch)):
            eventually(lambda: observer.sees(code))
            assert code in runner.causes()
        eventually(observer.sees_nothing)
        assert jobs.health()["causes"] == []
        assert runner.wait_idle(60)
    assert jobs.counts() == {"completed": 1}


@needs_python
def test_threads_that_are_stuck_are_seen_until_they_come_back(
    clock: Any, file_jobs: LiteJobs, gate: Gate
) -> None:
    jobs = file_jobs
    began = threading.Semaphore(0)

    @jobs.task(timeout="10s", max_attempts=1)
    def hangs() -> None:
        began.release()
        gate()

    with jobs.running(threads=2):
        for _ in range(5):
            jobs.enqueue_many([hangs.call(), hangs.call()])
            assert began.acquire(timeout=60)
            assert began.acquire(timeout=60)
            clock.tick(10)
            # That some are stuck, and others have taken their places, is a warning.
            eventually(lambda: codes(jobs) == ["threads_stuck"])
        eventually(lambda: jobs.health()["healthy"] is False)
        shown = [["threads_stuck"], []]
        eventually(lambda: vital_signs.causes_shown(jobs.path) == shown[0])
        gate.go.set()
        eventually(lambda: codes(jobs) == [])
        eventually(lambda: vital_signs.causes_shown(jobs.path) == shown[1])


def codes(jobs: LiteJobs) -> list[str]:
    """What the causes are that this process knows."""
    return [each["code"] for each in jobs.health()["causes"]]


RUNNER = """
    import sys
    from litejobs import LiteJobs

    jobs = LiteJobs(sys.argv[1])

    @jobs.task
    def work():
        pass

    jobs.start()
    print(flush=True)
    sys.stdin.read()
    jobs.stop()
"""


@contextlib.contextmanager
def runner_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process runs the jobs."""
    with Program(
        [sys.executable, "-c", _dedented(RUNNER), os.fspath(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
            process.communicate(timeout=LONG)
        finally:
            process.kill()  # it may be suspended


def test_threads_that_do_not_wake_up_are_seen_until_they_do(
    file_jobs: LiteJobs,
    observer: Observer,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a library has put queues in the place of Python's."""
    awake = threading.Event()

    class Deaf(queue.SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert awake.wait(60)
            return super().get(block, timeout)

    monkeypatch.setattr(queue, "SimpleQueue", Deaf)

    @file_jobs.task
    def work() -> None: ...

    times(begin_patience=0.3)
    with file_jobs.running(threads=1) as runner:
        work.enqueue()
        eventually(lambda: observer.sees("threads_asleep"))
        health = file_jobs.health()
        assert not health["healthy"]
        assert "no thread begins" in " ".join(health["problems"])
        awake.set()
        eventually(observer.sees_nothing)
        assert runner.wait_idle(60)
    assert file_jobs.counts() == {"completed": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux shows processes")
def test_process_that_is_suspended_is_seen_until_it_goes_on(
    file_jobs: LiteJobs, observer: Observer
) -> None:
    with runner_elsewhere(Path(file_jobs.path)) as process:
        eventually(observer.sees_nothing)
        os.kill(process.pid, signal.SIGSTOP)
        eventually(lambda: observer.sees("runner_suspended"))
        os.kill(process.pid, signal.SIGCONT)
        eventually(observer.sees_nothing)


HELD = """
    import ctypes, logging, sys
    from litejobs import LiteJobs

    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    jobs = LiteJobs(sys.argv[1])
    with jobs.running():
        print("runs", flush=True)
        # It keeps the interpreter, until a byte comes.
        ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
        sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="by a function of the C library")
def test_interpreter_that_a_library_keeps_is_seen_until_it_comes_back(
    file_jobs: LiteJobs, times: Times
) -> None:
    path = file_jobs.open().path
    with Program(
        [sys.executable, "-c", _dedented(HELD), path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            times(late=2.0, probe_pause=0.02)
            eventually(lambda: codes(file_jobs) == ["interpreter_held"])
            # The process itself says nothing of less than nine seconds.
            times(late=10.5)
            eventually(lambda: codes(file_jobs) == ["interpreter_held"])
            process.stdin.write("x")
            process.stdin.flush()
            eventually(lambda: codes(file_jobs) == [])
            said, _ = process.communicate("", timeout=LONG)
            assert "this process has run no Python" in said
        finally:
            process.kill()


def test_room_is_lacking_only_where_the_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(str(tmp_path / "jobs.db"))
    told = os.statvfs(tmp_path)
    assert not reserve.has_no_room()

    def says(**values: int) -> None:
        names = ("f_blocks", "f_bavail", "f_bfree", "f_frsize")
        found = {name: getattr(told, name) for name in names} | values
        monkeypatch.setattr(os, "statvfs", lambda _: types.SimpleNamespace(**found))

    says(f_bavail=3, f_bfree=3, f_frsize=4096)
    assert reserve.has_no_room()
    # What is for the superuser alone is room for that one.
    says(f_bavail=3, f_bfree=1000, f_frsize=4096)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert reserve.has_no_room()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not reserve.has_no_room()
    # Some file systems do not say it.
    says(f_blocks=0, f_bavail=0, f_bfree=0)
    assert not reserve.has_no_room()

    def fails(_: str) -> None:
        raise OSError

    monkeypatch.setattr(os, "statvfs", fails)
    assert not reserve.has_no_room()


def test_runner_that_is_gone_is_seen_until_there_is_another(
    file_jobs: LiteJobs, observer: Observer
) -> None:
    assert codes(file_jobs) == ["runner_missing"]
    with runner_elsewhere(Path(file_jobs.path)) as process:
        assert file_jobs.health()["healthy"]
        assert file_jobs.health()["role"] == "none"
        process.kill()
    eventually(lambda: observer.sees("runner_missing"))
    with file_jobs.running():
        eventually(observer.sees_nothing)


@pytest.mark.parametrize("how", ["health", "probe"])
def test_a_runner_is_not_missed_while_another_takes_its_place(
    file_jobs: LiteJobs, times: Times, how: str
) -> None:
    """For a moment nobody holds the lock, here for up to two seconds."""
    times(successor_patience=float(LONG), standby_pause=float(LONG))
    first, second = LiteJobs(file_jobs.path), LiteJobs(file_jobs.path)
    first.start()
    second.start()
    eventually(lambda: file_jobs.open()._store.run("standbys"))
    first.stop()
    if how == "health":
        assert codes(file_jobs) == []
    else:
        words = ["--db", os.fspath(file_jobs.path), "doctor", "--probe"]
        assert command_line().invoke(main, words).exit_code == 0
    first.close()
    second.close()


def test_a_standby_that_does_not_take_its_place_counts_for_nothing(
    file_jobs: LiteJobs, times: Times
) -> None:
    """It may be suspended."""
    times(successor_patience=0.0)
    with file_jobs.transaction() as db:
        db.execute("insert into litejobs_standby (pid, tasks) values (1, '[]')")
    owner = object()
    file = byte_locks.opened(f"{file_jobs.path}.runner")
    assert file is not None
    assert file.take(1, owner)
    assert codes(file_jobs) == ["runner_missing"]
    file.give_back(1, owner)
    file.close_if_free()


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """In the block this process may do what any user may, and not all."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="others tell less")
def test_another_user_is_told_that_jobs_are_run_or_that_he_may_not_know() -> None:
    folder = Path(tempfile.mkdtemp())
    path = folder / "jobs.db"
    folder.chmod(0o755)
    jobs = LiteJobs(path).open()
    with runner_elsewhere(path):
        eventually(lambda: codes(jobs) == [])
        jobs.close()
        for each in folder.iterdir():
            each.chmod(0o666)
        lock = folder / "jobs.db.runner"
        with LiteJobs(path).open() as looked:
            lock.chmod(0o444)
            with another_user():
                assert codes(looked) == []
            lock.chmod(0)
            with another_user():
                [cause] = looked.health()["causes"]
            lock.chmod(0o600)
        assert cause["code"] == "runner_unknown"
        assert cause["sentence"].startswith("it cannot be told whether jobs are run: ")
        assert cause["remedy"] == "change its permissions or run the jobs as its owner"
    shutil.rmtree(folder)


@pytest.fixture
def free_clock() -> Iterator[None]:
    """The plugin holds the clock, which makes every runner look all the time."""
    release_clock()
    yield
    hold_clock()


def test_file_is_looked_after_in_time_while_nothing_happens(
    free_clock: None, file_jobs: LiteJobs, times: Times
) -> None:
    times(lock_pause=0.5, longest_wait=3600.0)
    with file_jobs.running() as runner:
        assert runner.wait_idle(60)
        other = Path(file_jobs.path).with_name("other.db")
        other.hardlink_to(file_jobs.path)
        eventually(lambda: codes(file_jobs) == ["file_unsafe"])
        other.unlink()
        eventually(lambda: codes(file_jobs) == [])


def test_standby_that_cannot_begin_counts_for_nothing(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LiteJobs(file_jobs.path)
    with other.running():
        waiting = file_jobs.start()
        eventually(lambda: waiting.role == "standby")
        assert file_jobs.health()["healthy"]

        def fails() -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(waiting, "_begin_life", fails)
    eventually(lambda: codes(file_jobs) == ["runner_missing"])
    monkeypatch.undo()
    eventually(lambda: codes(file_jobs) == [])
    eventually(lambda: waiting.role == "runner")
    file_jobs.stop()
    other.close()


def test_what_keeps_the_memory_to_itself_is_not_waited_for_without_an_end(
    times: Times,
) -> None:
    times(turn_patience=0.02, late=60.0)
    jobs = LiteJobs(":memory:")
    jobs.open()
    found: list[dict[str, Any]] = []
    with jobs.transaction():
        asked = threading.Thread(target=lambda: found.append(jobs.health()))
        asked.start()
        asked.join(60)
        assert not asked.is_alive()
        # Its own transaction is not an obstacle.
        assert codes(jobs) == ["runner_missing"]
    assert [each["code"] for each in found[0]["causes"]] == [
        "runner_missing",
        "file_unreadable",
    ]
    jobs.close()


def test_what_is_shown_ends_with_the_process(file_jobs: LiteJobs) -> None:
    signs = vital_signs.VitalSigns(file_jobs.open().path)
    assert vital_signs.causes_shown(file_jobs.path) == []
    signs.show({"disk_full", "loop_held_up"})
    assert vital_signs.causes_shown(file_jobs.path) == ["loop_held_up", "disk_full"]
    signs.show({"disk_full"})
    assert vital_signs.causes_shown(file_jobs.path) == ["disk_full"]
    signs.close()
    assert vital_signs.causes_shown(file_jobs.path) == []
    # Nobody can look into the memory of another process.
    vital_signs.VitalSigns(":memory:").show({"disk_full"})


def test_a_look_that_hangs_does_not_keep_the_runner_from_its_end(
    file_jobs: LiteJobs, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk does not answer, say; what is shown ends when it does."""
    times(close_patience=0.01)
    gate = Gate()

    def look() -> list[str]:
        gate()
        return ["disk_full"]

    watch = VitalWatch(file_jobs.open().path, look)
    watch.start()
    assert gate.began.wait(LONG)
    watch.stop()
    assert "has not come back within 0.01 s" in caplog.text
    gate.go.set()
    watch._thread.join(LONG)
    assert vital_signs.causes_shown(file_jobs.path) == []


def test_what_is_shown_is_shown_again_in_a_lock_file_that_was_made_anew(
    file_jobs: LiteJobs,
) -> None:
    path = file_jobs.open().path
    lock, signs = RunnerLock(path), vital_signs.VitalSigns(path)
    assert lock.acquire()
    signs.show({"disk_full"})
    for shown in ({"disk_full"}, {"file_busy"}, set(), {"loop_fails"}):
        Path(f"{path}.runner").unlink()
        assert lock.confirm()
        signs.show(shown)
        assert set(vital_signs.causes_shown(path)) == shown
    signs.close()
    lock.release()


@pytest.mark.skipif(sys.platform == "win32", reason="locks belong to handles there")
def test_what_is_shown_is_shown_again_after_the_locks_were_lost(
    file_jobs: LiteJobs,
) -> None:
    path = file_jobs.open().path
    signs = vital_signs.VitalSigns(path)
    signs.show({"disk_full"})
    assert shown_elsewhere(path) == ["disk_full"]
    # As a copy of the folder would: POSIX drops the locks of the process.
    Path(f"{path}.runner").read_bytes()
    assert shown_elsewhere(path) == []
    signs.show({"disk_full"})
    assert shown_elsewhere(path) == ["disk_full"]
    signs.close()


def shown_elsewhere(path: str) -> list[str]:
    """What another process sees."""
    program = (
        "import sys; from litejobs._storage.vital_signs import causes_shown; "
        "print(*causes_shown(sys.argv[1]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


def test_job_that_has_been_due_longest_is_told_with_what_holds_it_back(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.task(queue="slow")
    def work() -> None:
        pass

    assert jobs.health()["oldest_due"] is None
    first = work.enqueue()
    clock.tick(60)
    work.enqueue()
    jobs.queues["slow"].pause()
    oldest = jobs.health()["oldest_due"]
    assert oldest is not None
    assert (oldest["job"], oldest["task"], oldest["queue"], oldest["due_at"]) == (
        *(first.id, "work", "slow"),
        "2026-01-01T00:00:00+00:00",
    )
    assert "queue_paused" in [each["code"] for each in oldest["why"]]
    jobs.queues["slow"].resume()
    jobs.drain()
    assert jobs.health()["oldest_due"] is None


def test_a_file_that_is_not_there_is_not_made_to_ask_how_it_does(
    tmp_path: Path,
) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    assert codes(jobs) == ["runner_missing"]
    assert not (tmp_path / "jobs.db").exists()
    (tmp_path / "jobs.db").write_text("this is not a database, and long enough")
    assert "file_unreadable" in codes(jobs)


def _only(cause: Cause, **given: Any) -> dict[str, Any]:
    """What this cause asks for."""
    asking = (_loop_meets_a_bug, _no_room_is_left, _file_cannot_be_read)
    return given if cause in asking else {}


def _dedented(program: str) -> str:
    return "\n".join(line[4:] for line in program.splitlines())
