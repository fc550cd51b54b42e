"""A file that is meant to last: no look at it goes on for ever, nor is deaf."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import click
import pytest

from litejobs import LiteJobs
from litejobs._storage import statements as _statements
from litejobs.cli import main
from litejobs.cli.file import opening, untrusted
from litejobs.cli.file import reader as _reader
from litejobs.cli.file import watchdog as _watchdog
from litejobs.cli.file.watchdog import Watchdog
from tests.cli.calls import Cli
from tests.cli.test_cli import ENVIRONMENT, POSIX_ONLY
from tests.cli.test_watch import END, Pty
from tests.waiting import Times

# What looks, and at what job; a job that is there for all that want one.
LOOKS = [
    *(["list"], ["list", "--text", "x"], ["list", "--json"], ["show", "1"]),
    *(["why", "1"], ["events"], ["events", "--json"], ["stats"], ["stats", "--json"]),
    *(["watch", "--once"], ["queues"], ["keys"], ["circuits"], ["facts"], ["tiers"]),
    *(["schedules"], ["policy", "show"], ["export"], ["export", "--what", "events"]),
    *(["export", "--what", "attempts"], ["doctor"], ["doctor", "--quick"], ["schema"]),
]
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
GUARD = 60  # seconds after which a test gives up

# Hours of work within one step: the operands are a column's, and nothing in it jumps.
LONG = " + ".join(["instr(args, ctx || n)"] * 900)


@pytest.fixture
def used(path: Path) -> Path:
    """A file with a job of each kind that a look meets."""
    with LiteJobs(path) as jobs:
        jobs.task(lambda: 1 / 0, name="a")
        jobs.enqueue("a")
        jobs.drain()
        jobs.enqueue("a")
    return path


def rewritten(db: apsw.Connection, view: str, select: str) -> None:
    """The view has its columns, each of which is *select*, a scalar."""
    columns = [row[1] for row in db.execute(f"pragma table_info({view})")]
    db.execute(f"drop view {view}")
    values = ", ".join(f"({select}) as {column}" for column in columns)
    db.execute(f"create view {view} as select {values}")


def endless(path: Path, view: str) -> None:
    """A look at this view takes one step that lasts, under a name that is allowed."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create table mine (args, ctx, n)")
        db.execute("insert into mine values (?, ?, 1)", ("a" * 600_000, "a" * 300_000))
        step = f"select {LONG} as x from mine"
        rewritten(db, view, f"with chosen as ({step}) select x from chosen")


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begin `python -m litejobs ARGUMENTS…`; it does not outlive the test."""
    begun = []

    def begin(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "litejobs", *map(str, arguments)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield begin
    for each in begun:
        each.kill()
        each.communicate()


def works(process: subprocess.Popen[str]) -> None:
    """It has said that the file is strange, and has worked for a while since."""
    assert process.stderr is not None
    assert "not as litejobs made them" in process.stderr.readline()
    before = ticks(process.pid)
    deadline = time.monotonic() + GUARD
    while ticks(process.pid) < before + 30:
        assert process.poll() is None
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


def ticks(pid: int) -> int:
    """How much time it has had, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# A process of its own -----------------------------------------------------------------


def test_step_that_does_not_end_ends_the_process(used: Path, program: Any) -> None:
    endless(used, "litejobs_job_report")
    process = program("--db", used, "--timeout", "200ms", "list")
    out, err = process.communicate(timeout=GUARD)
    assert process.returncode == 3
    assert out == ""
    assert err.splitlines()[-1] == (
        f"Error: reading {used} took longer than 0.2 s and was given up; ask for less, "
        "or give it more time: litejobs --timeout 1m …"
    )


@LINUX_ONLY
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 1, "\nAborted!\n"), (signal.SIGTERM, 128 + 15, "")],
    ids=["SIGINT", "SIGTERM"],
)
def test_step_that_does_not_end_is_ended_by_a_signal(
    used: Path, program: Any, number: int, code: int, said: str
) -> None:
    """Of these `export` handles SIGTERM, to leave no half of a file behind."""
    endless(used, "litejobs_job_report")
    process = program("--db", used, "--timeout", "1h", "export")
    works(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=GUARD)
    assert (process.returncode, out, err) == (code, "", said)


@POSIX_ONLY
def test_screen_is_given_back_by_a_process_that_is_ended(path: Path) -> None:
    """The file becomes hostile when the screen is there."""
    arguments = ("-m", "litejobs", "--db", path, "--timeout", "300ms")
    with Pty(*arguments, "watch", "--interval", "100ms") as screen:
        screen.until("q quit")
        assert not screen.is_as_before()
        endless(path, "litejobs_upcoming")
        assert screen.ended() == 3
        assert "was given up; ask for less" in screen.seen.rpartition(END)[2]
        assert screen.is_as_before()


def test_of_what_is_said_last_nothing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream may be closed, and a terminal may have gone."""
    said: list[str] = []

    def fail() -> None:
        raise OSError

    with _watchdog.restoring(lambda: said.append("restored")):
        with _watchdog.restoring(fail):
            monkeypatch.setattr(sys, "__stdout__", None)
            monkeypatch.setattr(sys, "__stderr__", None)
            _watchdog._say_last("Aborted!")
    assert said == ["restored"]
    _watchdog._say_last("Aborted!")
    assert said == ["restored"]


# The watchdog -------------------------------------------------------------------------

ENDLESS = (
    "with recursive n (i) as (select 1 union all select i + 1 from n) "
    "select max(i) from n"
)


def watchdogs() -> list[str]:
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name == "litejobs-watchdog"]


def test_look_that_hears_an_interrupt_is_interrupted() -> None:
    connection = apsw.Connection(":memory:")
    with Watchdog(0.01, "it took long") as watchdog:
        watchdog.connection = connection
        for _ in range(2):
            watchdog.begin()
            with pytest.raises(apsw.InterruptError):
                connection.execute(ENDLESS).fetchall()
            watchdog.end()
        # What is not a look takes as long as it takes.
        watchdog.end()
        counted = ENDLESS.replace("from n)", "from n limit 300000)")
        assert connection.execute(counted).get == 300_000
    assert watchdogs() == []


def test_look_in_a_thread_is_interrupted_by_a_signal() -> None:
    """Python tells the main thread of it alone, and the look is in another one."""
    connection, heard = apsw.Connection(":memory:"), threading.Event()

    def look() -> None:
        watchdog.begin()
        with contextlib.suppress(apsw.InterruptError):
            connection.execute(ENDLESS).fetchall()
            return
        watchdog.end()
        heard.set()

    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with Watchdog(3600.0, "it took long") as watchdog:
            watchdog.connection = connection
            thread = threading.Thread(target=look, daemon=True)
            thread.start()
            while not heard.wait(0.1):
                signal.raise_signal(signal.SIGINT)
            thread.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_goes_on_in_python_is_not_taken_for_deaf(
    monkeypatch: pytest.MonkeyPatch,
    times: Times,
) -> None:
    """There may be much to do beside what SQLite does: the process does not end."""
    interrupted, ended = threading.Semaphore(0), threading.Event()
    places: Iterator[int] = itertools.count()

    class Connection:
        def interrupt(self) -> None:
            interrupted.release()

    monkeypatch.setattr(_watchdog, "is_alone", lambda: True)
    times(interrupt_patience=0.0001, interrupt_pause=0.001)
    monkeypatch.setattr(Watchdog, "_place", lambda self: next(places))
    monkeypatch.setattr(Watchdog, "_end_process", lambda self: ended.set())
    with Watchdog(0.01, "it took long") as watchdog:
        watchdog.connection = Connection()  # type: ignore[assignment]
        watchdog.begin()
        for _ in range(20):
            assert interrupted.acquire(timeout=GUARD)
        assert not ended.is_set()
        # From now on it is in one call, which does not come back.
        places = itertools.repeat(0)
        assert ended.wait(GUARD)
        watchdog.end()


def test_each_statement_can_have_the_time_of_a_look() -> None:
    connection = apsw.Connection(":memory:")
    reader = _reader.Reader(":memory:", connection, timeout=5)
    before = reader._watchdog._until
    reader.limit_each(connection)
    connection.execute("select 1")
    assert reader._watchdog._until > before


def test_nothing_is_left_of_it(db: Cli) -> None:
    assert db("list").exit_code == 1
    assert watchdogs() == []
    if os.name == "posix":
        assert signal.set_wakeup_fd(-1) == -1


@POSIX_ONLY
def test_who_listens_to_signals_already_goes_on_listening(db: Cli) -> None:
    """An event loop, say, in whose process a command is run."""
    near, far = os.pipe()
    os.set_blocking(far, False)
    signal.set_wakeup_fd(far)
    try:
        assert db("list").exit_code == 1
    finally:
        assert signal.set_wakeup_fd(-1) == far
        os.close(near)
        os.close(far)


def test_command_in_a_thread_has_its_time_as_well(db: Cli) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(db("queues").exit_code))
    thread.start()
    thread.join()
    assert codes == [1]


def test_file_is_left_to_a_thread_that_does_not_hear_that_it_is_to_end(
    path: Path,
) -> None:
    context = click.Context(main)
    context.params |= {"db": str(path), "immutable": False, "timeout": 5.0}
    with context, opening.reading() as file:
        thread = threading.Thread(target=file._watchdog.begin)
        thread.start()
        thread.join()
    assert file.connection.execute("select 1").get == 1
    file.connection.close()


# With care ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with a job, in which every view but the clock calls like()."""
    path = tmp_path_factory.mktemp("strange") / "jobs.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("a")
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("begin")
        views = "select name from sqlite_schema where type = 'view'"
        for (view,) in db.execute(views).fetchall():
            if view != "litejobs_clock":
                quadratic = "like(hex(zeroblob(99)), hex(zeroblob(99)))"
                rewritten(db, str(view), f"select {quadratic}")
        db.execute("commit")
    return path.read_bytes()


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_no_look_calls_what_may_take_for_ever(
    db: Cli, path: Path, strange: bytes, arguments: list[str]
) -> None:
    path.write_bytes(strange)
    found = db(*arguments)
    assert found.exit_code in {0, 1, 3}
    if found.exit_code == 3 and arguments[0] != "doctor":
        assert "in it is not as litejobs made it, and calls like()" in found.stderr
        assert "see litejobs doctor, and restore the file" in found.stderr
    if arguments[0] in {"list", "show", "why", "stats", "doctor"}:
        assert found.exit_code == 3


def test_doctor_looks_as_far_as_that_goes(db: Cli, used: Path) -> None:
    with contextlib.closing(apsw.Connection(str(used))) as file:
        select = "select replace(1, 2, 3) || instr(1, 2)"
        rewritten(file, "litejobs_doctor", select)
    found = db("doctor")
    assert found.exit_code == 3
    assert "not as litejobs made it: litejobs_doctor (changed)" in found.stdout
    assert "the look at rows has failed: not authorized to use function: instr" in (
        found.stdout
    )
    assert "the write-ahead log has" in found.stdout


def test_column_that_is_worked_out_is_not_looked_at(db: Cli, used: Path) -> None:
    """Nobody is asked about the functions that it calls."""
    with contextlib.closing(apsw.Connection(str(used))) as file:
        file.execute("alter table litejobs_job add column x int as (instr(args, ctx))")
    found = db("list")
    assert found.exit_code == 3
    assert "its table litejobs_job computes x, which may take for ever" in found.stderr


def test_value_that_litejobs_would_not_have_stored_is_not_looked_at(
    db: Cli, used: Path
) -> None:
    size = untrusted.LONGEST_TEXT
    with contextlib.closing(apsw.Connection(str(used))) as file:
        file.execute("create table litejobs_mine (x)")
        file.pragma("ignore_check_constraints", True)
        file.execute("update litejobs_task set concurrency_key = ?", ("k" * size,))
        assert db("policy", "show").exit_code == 0
        file.execute("update litejobs_job set unique_key = ?||id", ("k" * size,))
    found = db("list")
    assert found.exit_code == 3
    assert "holds a value of more than 2.25 MB" in found.stderr


def test_what_litejobs_has_stored_is_looked_at_with_care_too(
    db: Cli, path: Path
) -> None:
    large = "x" * (2**20 - 40)
    with LiteJobs(path) as jobs:
        jobs.task(lambda text: {"text": text[:-10]}, name="a")
        jobs.enqueue("a", [large])
        jobs.drain()
    with contextlib.closing(apsw.Connection(str(path))) as file:
        file.execute("create table litejobs_mine (x)")
    for arguments in (["list", "--json"], ["show", "1", "--json"], ["export"]):
        assert large[:-10] in db(*arguments).stdout


def functions() -> list[str]:
    connection = apsw.Connection(":memory:")
    return [
        name
        for (name,) in connection.execute(
            "select distinct name from pragma_function_list order by name"
        )
    ]


def test_functions_of_sqlite_that_are_not_known_to_be_quick_are_refused() -> None:
    careful = untrusted.Careful(lambda *_: apsw.SQLITE_OK)
    asked = lambda name, place: careful(  # noqa: E731 - two words in a set
        apsw.SQLITE_FUNCTION, None, name, "main", place
    )
    refused = {name for name in functions() if asked(name, "a_view")}
    assert refused.isdisjoint(untrusted.LINEAR)
    assert refused >= {
        *("instr", "replace", "like", "glob", "trim", "ltrim", "rtrim", "unhex"),
        *("printf", "format", "json_patch", "json_remove", "json_set", "concat"),
    }
    # What a statement of ours calls by itself was asked for by the person.
    assert not any(asked(name, None) for name in functions())


def called(statements: Iterable[str]) -> set[tuple[str, str]]:
    """The functions that these call beyond the quick ones, and in which view."""
    db = apsw.Connection(":memory:")
    _statements.create(db)
    found = set()

    def note(operation: int, _: object, name: Any, __: object, place: Any) -> int:
        if operation == apsw.SQLITE_FUNCTION and place is not None:
            found.add((str(name), str(place)))
        return apsw.SQLITE_OK

    db.authorizer = note
    for statement in statements:
        with contextlib.suppress(apsw.BindingsError):
            db.execute(f"explain {statement}")
    return {(name, place) for name, place in found if name not in untrusted.LINEAR}


def test_our_own_views_call_nothing_else() -> None:
    """In files that somebody has changed elsewhere, they can be looked at."""
    reads = ("select", "with", "values")
    asked = [
        each
        for each in _statements.queries().values()
        if each.startswith(reads) and "from sqlite_stat" not in each  # see `analyze`
    ]
    assert len(asked) > 150
    assert called(asked) == untrusted.OURS
