"""How a runner hears of commits of other processes: told, or by looking."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import select
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._process.timing import TIMES
from litejobs._runner import polling
from litejobs._runner.runner import Runner
from litejobs._storage import change_hints
from litejobs._storage.change_hints import Watch
from litejobs.testing import hold_clock, release_clock
from tests.programs import exit_code_of
from tests.runner.runners import runner_of
from tests.waiting import Gate, Times, eventually

ROOT = Path(__file__).parents[2]
LONG = 30.0  # seconds: how long a test waits for what must happen; never used up

needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="the library is for Linux"
)


@pytest.fixture(autouse=True)
def real_clock() -> Iterator[None]:
    """While the clock is held nothing is watched: looks are as frequent as can be."""
    release_clock()
    yield
    hold_clock()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    jobs = LiteJobs(tmp_path / "jobs.db")

    @jobs.task
    def double(number: int) -> int:
        return 2 * number

    yield jobs
    jobs.close()


@pytest.fixture
def never_looks(times: Times) -> None:
    """The runner looks for commits after a hint, and else not before the test fails."""
    never = 10 * LONG
    times(
        listening=0.0,
        longest_wait=never,
        poll=never,
        safe_poll=never,
        brisk_poll=never,
    )


class Other:
    """Another process, with the standard library's sqlite3: one script per line."""

    PROGRAM = """
    import sqlite3, sys
    db = None
    for line in sys.stdin:
        db = db or sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
        if line == "close\\n":
            db.close()
            db = None
        else:
            db.execute(line).fetchall()
        print("done", flush=True)
    """

    def __init__(self, path: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(self.PROGRAM), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self, statement: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def inserts(self, number: int) -> None:
        self.says(
            f"insert into litejobs_job (task, args) values ('double', '[{number}]')"
        )

    def ends(self) -> None:
        self._process.communicate(timeout=LONG)


@pytest.fixture
def other(jobs: LiteJobs) -> Iterator[Other]:
    jobs.open()
    other = Other(jobs.path)
    yield other
    other.ends()


def listens(runner: Runner) -> bool:
    """It has had nothing to do for a while, and no event of its own is on its way."""
    watch = runner._polling.watch
    return (
        watch is not None
        and watch._listens
        and not select.select([watch._events], [], [], 0)[0]
        and polling.RealTime.monotonic() - runner._polling.active_at > 0.02
    )


def program(text: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


# Being told -----------------------------------------------------------------------


@needs_linux
def test_job_that_another_process_inserts_runs_without_a_look(
    jobs: LiteJobs, other: Other, never_looks: None
) -> None:
    with jobs.running(threads=1) as runner:
        for number in range(5):
            eventually(lambda: listens(runner))
            other.inserts(number)
            job = number + 1
            eventually(lambda job=job: jobs.get(job).state == "completed")
    assert [jobs.get(job).result(LONG) for job in range(1, 6)] == [0, 2, 4, 6, 8]


@needs_linux
def test_commit_is_heard_after_others_have_emptied_the_log_and_left(
    jobs: LiteJobs, other: Other, never_looks: None
) -> None:
    with jobs.running(threads=1) as runner:
        eventually(lambda: listens(runner))
        other.says("pragma wal_checkpoint(truncate)")
        other.says("close")
        eventually(lambda: listens(runner))
        other.inserts(21)
        eventually(lambda: jobs.get(1).state == "completed")


@needs_linux
def test_cancellation_by_another_process_is_heard_by_what_runs(
    jobs: LiteJobs, other: Other, never_looks: None
) -> None:
    began, heard = threading.Event(), threading.Event()

    @jobs.task
    def long() -> None:
        began.set()
        import litejobs

        if litejobs.current().wait(LONG):
            heard.set()

    with jobs.running(threads=1) as runner:
        long.enqueue()
        assert began.wait(LONG)
        eventually(lambda: listens(runner))
        other.says("update litejobs_job set cancel_requested_at = 1 where id = 1")
        assert heard.wait(LONG)


@needs_linux
def test_idle_runner_that_listens_writes_nothing(
    jobs: LiteJobs, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(listening=0.0)
    times(safe_poll=0.002)
    jobs.open()
    reader = apsw.Connection(jobs.path)
    looks: list[bool] = []
    look = polling.Polling.look

    def noted(self: polling.Polling) -> bool:
        looks.append(look(self))
        return looks[-1]

    monkeypatch.setattr(polling.Polling, "look", noted)

    def written() -> tuple[object, ...]:
        files = [Path(f"{jobs.path}{end}").stat() for end in ("", "-wal")]
        version = reader.pragma("data_version")
        return version, *((each.st_mtime_ns, each.st_size) for each in files)

    # Its first read is an event, where it is root's: SQLite gives the log an owner.
    written()
    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(LONG)
        # What is there at its first look is news to it.
        eventually(lambda: runner._polling.active_at)
        eventually(lambda: listens(runner))
        before, number = written(), len(looks)
        eventually(lambda: len(looks) > number + 5)
        assert written() == before
        assert listens(runner)
    assert written() != before
    reader.close()


# The watch by itself --------------------------------------------------------------


class WakeUp:
    def __init__(self) -> None:
        self.rung = threading.Semaphore(0)

    def __call__(self) -> None:
        self.rung.release()

    def rings(self) -> bool:
        return self.rung.acquire(timeout=LONG)

    def has_rung(self) -> bool:
        return self.rung.acquire(blocking=False)


@pytest.fixture
def bell() -> WakeUp:
    return WakeUp()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "folder" / "log"
    file.parent.mkdir()
    file.touch()
    return file


@pytest.fixture
def watch(file: Path, bell: WakeUp) -> Iterator[Watch]:
    """A watch that has seen that it hears."""
    watch = Watch(str(file), bell)
    file.write_text("a first event")
    assert watch.listen()
    yield watch
    watch.close()


def append(file: Path) -> None:
    with file.open("a") as text:
        text.write("more")


@needs_linux
def test_each_call_of_listen_is_answered_once(
    watch: Watch, file: Path, bell: WakeUp
) -> None:
    """Whatever is written meanwhile, no call is forgotten."""
    for _ in range(300):
        assert watch.listen()
        append(file)
        assert bell.rings()
        assert watch.has_heard()
        append(file)
        assert not watch.has_heard()
        assert not bell.has_rung()


@needs_linux
def test_what_was_written_before_is_passed_over(
    watch: Watch, file: Path, bell: WakeUp
) -> None:
    append(file)
    assert bell.rings()
    eventually(lambda: watch._rests)
    append(file)
    assert watch.listen()
    assert watch._events.read(timeout=0) == []
    assert not bell.has_rung()
    append(file)
    assert bell.rings()


@needs_linux
def test_other_files_of_the_folder_are_not_heard(
    watch: Watch, file: Path, bell: WakeUp
) -> None:
    for number in range(100):
        append(file.with_name(f"other{number % 3}"))
    assert watch._listens
    append(file)
    assert bell.rings()
    assert not bell.has_rung()


@needs_linux
def test_file_that_was_deleted_and_made_anew_is_watched_again(
    watch: Watch, file: Path, bell: WakeUp
) -> None:
    file.unlink()
    assert bell.rings()
    assert not watch.listen()
    file.touch()
    assert watch.listen()
    append(file)
    assert bell.rings()


@needs_linux
def test_file_that_another_one_has_replaced_is_let_go(
    watch: Watch, file: Path, bell: WakeUp
) -> None:
    with file.open("a") as old:
        file.rename(file.with_name("old"))
        assert bell.rings()
        file.touch()
        eventually(lambda: watch._rests)
        assert watch.listen()
        old.write("nobody listens")
        old.flush()
        assert watch._listens
        append(file)
        assert bell.rings()
        assert not bell.has_rung()


@needs_linux
def test_folder_that_was_renamed_or_deleted_is_no_error(
    watch: Watch, file: Path, bell: WakeUp, caplog: pytest.LogCaptureFixture
) -> None:
    moved = file.parent.rename(file.parent.with_name("moved"))
    append(moved / file.name)
    assert bell.rings()
    assert not watch.listen()
    file.parent.mkdir()
    append(file)
    assert watch.listen()
    file.unlink()
    file.parent.rmdir()
    assert bell.rings()
    assert not watch.listen()
    assert caplog.records == []


@needs_linux
def test_close_ends_the_thread_whether_it_rests_or_listens(
    file: Path, bell: WakeUp
) -> None:
    for rests in (True, False):
        watch = Watch(str(file), bell)
        append(file)
        assert watch.listen()
        if rests:
            append(file)
            assert bell.rings()
            eventually(lambda watch=watch: watch._rests)
        watch.close()
        watch.close()
        assert watch._thread is not None
        assert not watch._thread.is_alive()
        assert watch._events.closed
        assert not watch.listen()
        append(file)
        assert not bell.has_rung()


@needs_linux
def test_events_that_cannot_be_read_any_more_end_it(
    watch: Watch, file: Path, bell: WakeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(timeout: int) -> None:
        raise OSError(errno.EIO, "no more events")

    append(file)
    assert bell.rings()
    eventually(lambda: watch._rests)
    monkeypatch.setattr(watch._events, "read", fails)
    assert not watch.listen()
    assert not watch.listen()
    assert watch._thread is not None
    assert not watch._thread.is_alive()


@needs_linux
def test_thread_that_fails_ends_and_takes_the_watch_with_it(
    watch: Watch, file: Path, bell: WakeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_changed", lambda: 1 / 0)
    append(file)
    assert watch._thread is not None
    watch._thread.join(LONG)
    assert watch._events.closed
    assert not watch.listen()


# Not being told -------------------------------------------------------------------


def _refused(*_: object) -> None:
    raise OSError(errno.ENOSPC, "inotify watch limit reached")


def _is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, change_hints.LIBRARY, None)


def _has_no_watches_left(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip(change_hints.LIBRARY)
    monkeypatch.setattr(library.INotify, "add_watch", _refused)


def _has_no_instances_left(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip(change_hints.LIBRARY)
    monkeypatch.setattr(library, "INotify", _refused)


def _is_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, change_hints.LIBRARY, threading)


@pytest.mark.parametrize(
    "library",
    [
        _is_missing,
        _has_no_watches_left,
        _has_no_instances_left,
        _is_another_library,
    ],
)
def test_runner_that_cannot_be_told_looks_for_commits(
    jobs: LiteJobs,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    library: Callable[[pytest.MonkeyPatch], None],
) -> None:
    library(monkeypatch)
    with jobs.running(threads=1) as runner:
        assert runner._polling.watch is None
        assert runner.wait_idle(LONG)
        other.inserts(21)
        assert jobs.get(1).result(LONG) == 42
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


@needs_linux
def test_file_system_that_tells_nothing_is_recognised_at_the_start(
    file: Path, bell: WakeUp, caplog: pytest.LogCaptureFixture
) -> None:
    """The runner has written by then; here nobody has."""
    caplog.set_level(logging.DEBUG, "litejobs")
    watch = Watch(str(file), bell)
    assert not watch.listen()
    assert not watch.listen()
    assert watch._events.closed
    assert watch._thread is None
    assert [each.message for each in caplog.records] == [
        "commits of other processes are looked for: "
        f"no event came when {file} was written to"
    ]


@needs_linux
def test_hint_that_is_lost_costs_time_and_nothing_else(
    jobs: LiteJobs, other: Other, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(listening=0.0)
    times(safe_poll=0.01)
    monkeypatch.setattr(
        change_hints, "watch", lambda path, _: Watch(f"{path}-wal", lambda: None)
    )
    with jobs.running(threads=1) as runner:
        eventually(lambda: listens(runner))
        other.inserts(21)
        assert jobs.get(1).result(LONG) == 42


def test_nothing_is_watched_while_the_clock_is_held_or_in_memory(
    tmp_path: Path,
) -> None:
    memory = LiteJobs(":memory:")
    with memory.running(threads=1) as runner:
        assert runner._polling.watch is None
    memory.close()
    hold_clock()
    held = LiteJobs(tmp_path / "held.db")
    with held.running(threads=1) as runner:
        assert runner._polling.watch is None
        assert runner._polling.pause(runs=False, has_room=True) == TIMES.held_poll
    held.close()
    release_clock()


class Standstill:
    """Real time, for a loop that is asked what it would do at an instant."""

    @staticmethod
    def monotonic() -> float:
        return 0.0


def test_looks_become_rarer_with_the_time_that_has_passed(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = runner_of(jobs, threads=1, grace=1)._polling
    monkeypatch.setattr(polling, "RealTime", Standstill)

    def pause(quiet: float, *, runs: bool = False, has_room: bool = True) -> float:
        looks.active_at = -quiet
        return looks.pause(runs=runs, has_room=has_room)

    assert pause(0) == TIMES.brisk_poll
    assert 0.05 <= pause(0.2) < TIMES.idle_poll
    assert pause(1000) == TIMES.idle_poll
    # While another job could begin, nobody has to wait for it.
    assert pause(polling.BRISK / 2) == TIMES.brisk_poll
    assert pause(polling.BRISK / 2, runs=True, has_room=False) == TIMES.poll
    assert pause(1000, runs=True) == TIMES.poll


def test_looks_are_brisk_only_where_others_have_committed(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.open()
    now = [1000.0]
    monkeypatch.setattr(Standstill, "monotonic", lambda: now[0])
    monkeypatch.setattr(polling, "RealTime", Standstill)
    looks = runner_of(jobs, threads=1, grace=1)._polling
    assert looks.look()

    def pause_after_turn(*, runs: bool = True) -> float:
        looks.reset_after_turn()
        return looks.pause(runs=runs, has_room=True)

    # What this process writes it need not look for.
    now[0] += polling.BRISK
    jobs.enqueue("double", [1])
    assert not looks.look()
    assert pause_after_turn() == TIMES.poll
    assert pause_after_turn(runs=False) == TIMES.listening
    with contextlib.closing(apsw.Connection(jobs.path)) as other:
        other.execute("insert into litejobs_job (task, args) values ('double', '[1]')")
    assert looks.look()
    assert looks.pause(runs=True, has_room=True) == TIMES.brisk_poll
    now[0] += polling.BRISK / 2
    assert pause_after_turn() == TIMES.brisk_poll
    now[0] += polling.BRISK / 2
    assert pause_after_turn() == TIMES.poll


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_commit_of_others_while_the_file_is_closed_for_a_fork_is_seen(
    jobs: LiteJobs,
) -> None:
    """A connection that is opened anew counts from the same number."""
    database = jobs.open()._store.database

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert exit_code_of(child) == 0

    fork()
    database.look_for_others()
    for _ in range(2):
        seen = database.others_seen
        fork()
        with contextlib.closing(apsw.Connection(jobs.path)) as other:
            other.execute("insert into litejobs_job (task) values ('double')")
        assert database.look_for_others() > seen


def test_what_is_begun_while_the_loop_waits_has_it_look_as_often_as_any(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    jobs.task(gate, name="wait")
    asked: list[bool] = []
    pause = polling.Polling.pause

    def noted(self: polling.Polling, *, runs: bool, has_room: bool) -> float:
        asked.append(runs)
        return pause(self, runs=runs, has_room=has_room)

    monkeypatch.setattr(polling.Polling, "pause", noted)
    with jobs.running(threads=2) as runner:
        jobs.enqueue("double", [1])  # a thread is there then, and takes the next one
        assert runner.wait_idle(LONG)
        number = len(asked)
        eventually(lambda: len(asked) > number)
        jobs.enqueue("wait")
        eventually(lambda: runner._running)
        number = len(asked)
        eventually(lambda: len(asked) > number)
        assert asked[number]
        gate.go.set()


def test_what_runs_on_an_executor_leaves_its_room_to_threads(jobs: LiteJobs) -> None:
    runner = runner_of(jobs, threads=1, grace=1)
    running: dict[int, Any] = runner._running
    assert runner._has_any_room()
    running[1] = SimpleNamespace(takes_thread=False)
    assert runner._has_any_room()
    running[2] = SimpleNamespace(takes_thread=True)
    assert not runner._has_any_room()
    running.clear()


def test_commits_of_others_are_seen_by_who_writes_or_looks(jobs: LiteJobs) -> None:
    database = jobs.open()._store.database
    enqueue = "insert into litejobs_job (task, args) values ('double', '[1]')"
    seen = database.others_seen

    def look() -> None:
        thread = threading.Thread(target=database.look, args=("now",))
        thread.start()
        thread.join()

    def in_a_block() -> None:
        with jobs.transaction():
            pass

    ways: dict[str, Callable[[], object]] = {
        "an enqueue": lambda: jobs.enqueue("double", [1]),
        "a block": in_a_block,
        "a look of the loop": look,
        "a look for it": database.look_for_others,
    }
    with contextlib.closing(apsw.Connection(jobs.path)) as other:
        for way, seeing in ways.items():
            seeing()
            assert database.others_seen == seen, way
            other.execute(enqueue)
            assert database.others_seen == seen, way
            seeing()
            assert database.others_seen == seen + 1, way
            seen += 1


@needs_linux
def test_runner_listens_soon_and_looks_as_often_after_a_hint(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(jobs, threads=1, grace=1)
    monkeypatch.setattr(polling, "RealTime", Standstill)
    runner._polling.listen()
    with jobs.transaction():
        jobs.enqueue("double", [1])
    # Much sooner than looks would become rarer without it.
    assert 0 < TIMES.listening < polling.BRISK / 4
    runner._polling.active_at = -polling.BRISK / 2
    pause = functools.partial(runner._polling.pause, runs=False, has_room=True)
    assert TIMES.brisk_poll < pause() < TIMES.idle_poll
    assert runner._polling.watch._listens
    runner._polling.reset(polling.HINT_POLL)
    assert pause() == polling.HINT_POLL
    runner._polling.close()


@needs_linux
def test_runner_that_is_told_looks_now_and_then_all_the_same(jobs: LiteJobs) -> None:
    runner = runner_of(jobs, threads=1, grace=1)
    runner._polling.listen()
    with jobs.transaction():
        jobs.enqueue("double", [1])
    runner._polling.active_at = polling.RealTime.monotonic() - 1000
    pause = functools.partial(runner._polling.pause, has_room=True)
    assert pause(runs=False) == TIMES.safe_poll
    assert pause(runs=True) == TIMES.poll
    runner._polling.close()
    assert pause(runs=False) == TIMES.idle_poll


# Beginning and ending -------------------------------------------------------------


@needs_linux
def test_runners_that_start_and_stop_leave_no_thread_and_no_descriptor(
    jobs: LiteJobs, times: Times
) -> None:
    times(listening=0.0)

    def left() -> tuple[int, list[str]]:
        threads = [each.name for each in threading.enumerate()]
        return len(list(Path("/proc/self/fd").iterdir())), sorted(threads)

    found = []
    for _ in range(10):
        with jobs.running(threads=1) as runner:
            eventually(lambda: listens(runner))
        eventually(lambda: "litejobs-worker" not in str(left()))
        found.append(left())
    assert found == [found[0]] * 10
    assert "litejobs-notify" not in found[0][1]


@needs_linux
def test_runner_that_cannot_begin_leaves_no_descriptor(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Runner) -> None:
        raise OSError("no beginning")

    jobs.open()
    monkeypatch.setattr(Runner, "_begin_life", fails)
    before = None
    for _ in range(3):
        with pytest.raises(OSError, match="no beginning"):
            jobs.start(threads=1)
        now = len(list(Path("/proc/self/fd").iterdir()))
        assert before in {None, now}
        before = now


@needs_linux
def test_program_ends_while_its_runner_listens(tmp_path: Path) -> None:
    done = program(
        """
        import sys, threading
        from litejobs import LiteJobs
        from litejobs._process.timing import TIMES
        TIMES.listening = 0.0
        jobs = LiteJobs(sys.argv[1])
        jobs.start(threads=1)
        while not jobs._service.runner._polling.watch._listens:
            threading.Event().wait(0.01)
        print("listens")
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "listens\n", "")


@needs_linux
def test_child_of_a_fork_has_a_watch_of_its_own(tmp_path: Path) -> None:
    done = program(
        """
        import os, sys, threading, warnings
        warnings.simplefilter("error", ResourceWarning)
        from litejobs import LiteJobs
        from litejobs._process.timing import TIMES
        TIMES.listening = 0.0

        def listens(jobs):
            while not jobs._service.runner._polling.watch._listens:
                threading.Event().wait(0.01)
            return jobs

        def begin(path):
            jobs = LiteJobs(path)
            jobs.task(name="double")(lambda number: 2 * number)
            jobs.start(threads=1)
            return listens(jobs)

        jobs = begin(sys.argv[1])
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if not child:
            theirs = begin(sys.argv[1] + "2")
            print(theirs.enqueue("double", [21]).result(30), flush=True)
            theirs.close()
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
        # What it has heard of itself meanwhile, it listens behind.
        print(listens(jobs).enqueue("double", [1]).result(30))
        jobs.close()
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n0\n2\n", "")


def test_nothing_of_it_is_imported_before_a_runner_runs(tmp_path: Path) -> None:
    done = program(
        """
        import sys
        from litejobs import LiteJobs
        jobs = LiteJobs(sys.argv[1])
        jobs.enqueue("later")
        jobs.close()
        print({"inotify_simple", "litejobs._storage.change_hints"} & set(sys.modules))
        """,
        tmp_path / "jobs.db",
    )
    assert done.stdout == "set()\n", done.stderr
