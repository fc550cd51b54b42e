"""SQLite's 'now' is Python's now while the clock is held, and real time otherwise."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pathlib
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points

import apsw
import freezegun
import pytest
import time_machine

import litejobs
from litejobs import testing
from litejobs._process import clock
from litejobs.errors import ConfigurationError
from litejobs.testing import plugin

pytest_plugins = ["pytester"]

NOW_MS = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
READ_CLOCK = f"select {NOW_MS}"
START_OF_1970 = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)
NOON = dt.datetime(2031, 7, 14, 12, 0, 0, 123456, tzinfo=dt.UTC)
NOON_MS = 1941796800123

Move = Callable[[float], object]
OpenDatabase = Callable[[], apsw.Connection]


@contextlib.contextmanager
def freezegun_at(instant: dt.datetime) -> Iterator[Move]:
    with freezegun.freeze_time(instant) as frozen:
        yield frozen.tick


@contextlib.contextmanager
def time_machine_at(instant: dt.datetime) -> Iterator[Move]:
    with time_machine.travel(instant, tick=False) as traveller:
        yield traveller.shift


@pytest.fixture(params=[freezegun_at, time_machine_at], ids=["freezegun", "machine"])
def at(request: pytest.FixtureRequest) -> Callable:
    """Hold Python's clock at an instant; yields what moves it by seconds."""
    return request.param


@pytest.fixture
def held() -> Iterator[None]:
    with testing.held_clock():
        yield


@pytest.fixture
def not_held() -> Iterator[None]:
    """No hold at all, not even the session's own."""
    holds = 0
    while testing.clock_is_held():
        testing.release_clock()
        holds += 1
    yield
    assert not testing.clock_is_held()
    for _ in range(holds):
        testing.hold_clock()


@pytest.fixture(params=["file", "memory"])
def open_database(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[OpenDatabase]:
    """Open a database as litejobs does: with the VFS of the moment; files in WAL."""
    path = str(tmp_path / "jobs.db") if request.param == "file" else ":memory:"
    opened: list[apsw.Connection] = []

    def open_one() -> apsw.Connection:
        db = apsw.Connection(path, vfs=clock.vfs_name())
        opened.append(db)
        db.set_busy_timeout(30_000)
        if request.param == "file":
            assert db.pragma("journal_mode", "wal") == "wal"
        return db

    yield open_one
    for db in opened:
        db.close()


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "jobs.db")


def milliseconds(instant: dt.datetime) -> int:
    return (instant - START_OF_1970) // MILLISECOND


def in_every_worker(pool: ThreadPoolExecutor, workers: int, work: Callable) -> list:
    """The answers of *work* from each of the pool's threads."""
    together = threading.Barrier(workers)

    def wait_then_work() -> object:
        together.wait(timeout=30)
        return work()

    futures = [pool.submit(wait_then_work) for _ in range(workers)]
    return [future.result(timeout=30) for future in futures]


def test_held_clock_is_pythons_now_to_the_millisecond(held, at, open_database):
    db = open_database()
    with at(NOON):
        assert db.execute(READ_CLOCK).get == NOON_MS


def test_a_tick_of_60_seconds_moves_sqlite_by_exactly_60000_ms(held, at, open_database):
    db = open_database()
    with at(NOON) as move:
        before = db.execute(READ_CLOCK).get
        move(60)
        assert db.execute(READ_CLOCK).get == before + 60_000


def test_threads_that_lived_before_the_freeze_obey_it(held, at, open_database):
    mine = open_database()
    with ThreadPoolExecutor(4) as pool:
        connections = in_every_worker(pool, 4, open_database)
        free = iter(connections)

        def read() -> object:
            return next(free).execute(READ_CLOCK).get

        with at(NOON) as move:
            assert in_every_worker(pool, 4, read) == [NOON_MS] * 4
            assert mine.execute(READ_CLOCK).get == NOON_MS
            move(60)
            free = iter(connections)
            assert in_every_worker(pool, 4, read) == [NOON_MS + 60_000] * 4
            assert mine.execute(READ_CLOCK).get == NOON_MS + 60_000


def test_a_pool_thread_that_reads_with_nothing_in_between_obeys_too(
    held, at, open_database
):
    """freezegun looks a few frames up the stack and exempts what `threading` calls."""
    db = open_database()
    with at(NOON), ThreadPoolExecutor(1) as pool:
        row = pool.submit(db.execute, READ_CLOCK)
        assert row.result(timeout=30).get == NOON_MS


def clocked_tables(db: apsw.Connection) -> None:
    """Three places that read the clock: a default, a view, a trigger by the view."""
    for statement in (
        f"create view clock as select {NOW_MS} as now",
        f"create table job (id integer primary key, at integer default ({NOW_MS}))",
        "create table log (job_id, at)",
        """create trigger job_logged after insert on job begin
            insert into log select new.id, now from clock; end""",
    ):
        db.execute(statement)


def test_default_view_and_trigger_move_together(held, at, open_database):
    db = open_database()
    clocked_tables(db)
    with at(NOON) as move:
        db.execute("insert into job default values")
        move(60)
        db.execute("insert into job default values")
        assert db.execute("select now from clock").get == NOON_MS + 60_000
    both = [NOON_MS, NOON_MS + 60_000]
    assert [at for (at,) in db.execute("select at from job order by id")] == both
    assert [at for (at,) in db.execute("select at from log order by job_id")] == both


def test_a_statement_asks_python_once_and_all_its_rows_share_the_answer(
    held, open_database
):
    """The frozen clock moves by a second each time it is read."""
    db = open_database()
    clocked_tables(db)
    with freezegun.freeze_time(NOON, auto_tick_seconds=1):
        db.execute("insert into job (id) values (1), (2), (3)")
        db.execute("insert into job (id) values (4)")
    first, second = NOON_MS, NOON_MS + 1000
    expected = [first, first, first, second]
    assert [at for (at,) in db.execute("select at from job order by id")] == expected
    assert [at for (at,) in db.execute("select at from log order by job_id")] == (
        expected
    )


def random_instants(count: int) -> list[dt.datetime]:
    chance = random.Random(20)
    span = milliseconds(dt.datetime(2200, 1, 1, tzinfo=dt.UTC))
    return [
        START_OF_1970
        + dt.timedelta(
            milliseconds=chance.randrange(span), microseconds=chance.randrange(1000)
        )
        for _ in range(count)
    ]


def test_2000_instants_from_1970_to_2199_are_exact_with_freezegun(held, open_database):
    db = open_database()
    with freezegun.freeze_time(NOON) as frozen:
        for instant in random_instants(2000):
            frozen.move_to(instant)
            assert db.execute(READ_CLOCK).get == milliseconds(instant), instant


def test_2000_instants_from_1970_to_2199_are_exact_with_time_machine(
    held, open_database
):
    """time-machine takes its destination as a float, so ask Python where it arrived."""
    db = open_database()
    with time_machine.travel(NOON, tick=False) as traveller:
        for instant in random_instants(2000):
            traveller.move_to(instant)
            arrived = dt.datetime.now(dt.UTC)
            assert abs(arrived - instant) < MILLISECOND
            assert db.execute(READ_CLOCK).get == milliseconds(arrived), instant


def test_held_clock_without_a_freeze_follows_real_time(held, open_database):
    db = open_database()
    before = milliseconds(dt.datetime.now(dt.UTC))
    now = db.execute(READ_CLOCK).get
    assert before <= now <= milliseconds(dt.datetime.now(dt.UTC))


def test_sqlites_own_words_for_now_are_held_too(held, at, open_database):
    db = open_database()
    with at(NOON):
        assert db.execute("select current_timestamp").get == "2031-07-14 12:00:00"
        assert db.execute("select unixepoch()").get == NOON_MS // 1000


def test_old_way_to_ask_gives_the_same_instant_in_days(at):
    vfs = clock.ClockVFS.__new__(clock.ClockVFS)
    with at(dt.datetime(2000, 1, 1, 18, tzinfo=dt.UTC)):
        assert vfs.xCurrentTime() == 2451545.25


def test_attached_and_copied_files_work_through_the_held_clock(held, at, file):
    db = apsw.Connection(file, vfs=clock.vfs_name())
    clocked_tables(db)
    with at(NOON):
        db.execute("insert into job default values")
        db.execute("vacuum into ?", (f"{file}.copy",))
        db.execute("attach ? as copy", (f"{file}.copy",))
        db.execute("insert into copy.job default values")
        assert db.execute("select at from copy.job").fetchall() == [(NOON_MS,)] * 2
    db.close()


def test_without_a_hold_sqlites_default_vfs_is_used(not_held, open_database):
    assert clock.vfs_name() is None
    assert open_database().open_vfs != clock.CLOCK_VFS


def test_without_a_hold_python_is_not_asked(not_held, open_database):
    """The frozen clock would move by a second if it were read."""
    db = open_database()
    with freezegun.freeze_time(NOON, auto_tick_seconds=1):
        assert db.execute(READ_CLOCK).get < NOON_MS
        assert milliseconds(dt.datetime.now(dt.UTC)) == NOON_MS


def test_open_database_keeps_the_clock_it_was_opened_with(not_held, at, open_database):
    unheld = open_database()
    with testing.held_clock():
        held = open_database()
    with at(NOON):
        assert held.execute(READ_CLOCK).get == NOON_MS
        assert unheld.execute(READ_CLOCK).get != NOON_MS


def test_the_vfs_is_registered_once_even_by_many_threads():
    with ThreadPoolExecutor(8) as pool:
        names = in_every_worker(pool, 8, clock.ensure_clock_vfs)
    assert set(names) == {"litejobs-clock"}
    assert apsw.vfs_names().count("litejobs-clock") == 1


def test_the_vfs_takes_paths_as_long_as_the_default_does():
    clock.ensure_clock_vfs()
    longest = {vfs["zName"]: vfs["mxPathname"] for vfs in apsw.vfs_details()}
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        assert longest[clock.CLOCK_VFS] == longest[db.open_vfs]


def test_holds_are_counted(not_held):
    testing.hold_clock()
    with testing.held_clock():
        assert testing.clock_is_held()
    assert testing.clock_is_held()
    testing.release_clock()
    assert not testing.clock_is_held()


def test_a_hold_is_given_back_when_its_block_raises(not_held):
    with pytest.raises(LookupError), testing.held_clock():
        raise LookupError
    assert not testing.clock_is_held()


def test_holds_by_many_threads_all_count(not_held):
    def hold_often() -> None:
        for _ in range(200):
            testing.hold_clock()

    with ThreadPoolExecutor(8) as pool:
        in_every_worker(pool, 8, hold_often)
    for _ in range(8 * 200):
        testing.release_clock()
    assert not testing.clock_is_held()


def test_releasing_what_is_not_held_is_refused(not_held):
    with pytest.raises(ConfigurationError, match=r"once for each hold_clock\(\)"):
        testing.release_clock()
    assert not testing.clock_is_held()


def test_an_exception_in_the_clock_reaches_the_statement(held, open_database):
    """A clock that runs out of instants raises, and the transaction is undone."""
    db = open_database()
    clocked_tables(db)
    with freezegun.freeze_time("9999-12-31 23:59:59", auto_tick_seconds=1):
        with pytest.raises(OverflowError, match="date value out of range"):
            db.execute(READ_CLOCK)
        with pytest.raises(OverflowError, match="date value out of range"), db:
            db.execute("insert into job default values")
    assert db.execute("select count(*) from job").get == 0
    assert db.execute(READ_CLOCK).get > 0


def test_held_and_real_connections_share_one_wal_file(not_held, at, file):
    real = apsw.Connection(file, vfs=clock.vfs_name())
    with testing.held_clock():
        held = apsw.Connection(file, vfs=clock.vfs_name())
    assert real.pragma("journal_mode", "wal") == "wal"
    clocked_tables(real)
    with at(NOON):
        held.execute("insert into job (id) values (1)")
        real.execute("insert into job (id) values (2)")
    for db in (held, real):
        rows = db.execute("select id, at = ? from job order by id", (NOON_MS,))
        assert rows.fetchall() == [(1, 1), (2, 0)]
    for writer, other in ((held, real), (real, held)):
        with writer:
            writer.execute("delete from log")
            with pytest.raises(apsw.BusyError):
                other.execute("begin immediate")
            assert other.execute("select count(*) from job").get == 2
    assert held.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
    for db in (held, real):
        assert db.pragma("integrity_check") == "ok"
        db.close()


def test_held_and_real_connections_write_at_the_same_time_and_lose_nothing(file):
    with contextlib.closing(apsw.Connection(file)) as db:
        db.pragma("journal_mode", "wal")
        db.execute("create table counter (n)")
        db.execute("insert into counter values (0)")
    vfss = iter([None, clock.ensure_clock_vfs(), None, clock.ensure_clock_vfs()])

    def count_to_25() -> None:
        with contextlib.closing(apsw.Connection(file, vfs=next(vfss))) as db:
            db.set_busy_timeout(30_000)
            db.pragma("synchronous", "off")
            for _ in range(25):
                db.execute("begin immediate")
                db.execute("update counter set n = n + 1")
                db.execute("commit")

    with ThreadPoolExecutor(4) as pool:
        in_every_worker(pool, 4, count_to_25)
    with contextlib.closing(apsw.Connection(file)) as db:
        assert db.execute("select n from counter").get == 100
        assert db.pragma("integrity_check") == "ok"


def test_waiting_for_a_lock_sleeps_in_python(held, file):
    """Only Python's own sleep lets the thread run that holds the lock."""
    writer = apsw.Connection(file)
    waiter = apsw.Connection(file, vfs=clock.vfs_name())
    waiter.set_busy_timeout(2)
    called = []
    writer.execute("begin immediate")
    sys.setprofile(lambda _, event, what: called.append((event, what)))
    try:
        with pytest.raises(apsw.BusyError):
            waiter.execute("begin immediate")
    finally:
        sys.setprofile(None)
    assert ("c_call", clock.sleep) in called
    waiter.close()
    writer.close()


def test_a_process_that_leaves_held_databases_open_ends_cleanly(tmp_path):
    program = """if True:
        import apsw, threading
        from litejobs._process import clock
        clock.hold_clock()
        left_open = [
            apsw.Connection(name, vfs=clock.vfs_name())
            for name in (":memory:", "left.db")
        ]
        ready = threading.Event()
        def ask_for_ever():
            while True:
                left_open[1].execute("select julianday('now')").get
                ready.set()
        threading.Thread(target=ask_for_ever, daemon=True).start()
        ready.wait()
        print(left_open[0].execute("select julianday('now') > 2460000").get)
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def environment() -> dict[str, str]:
    """This process's, where `import litejobs` finds the package under test."""
    root = str(pathlib.Path(litejobs.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


# The pytest plugin.

HELD_STORY = f"""
    import datetime
    import apsw, freezegun
    from litejobs._process import clock

    def test_now():
        db = apsw.Connection(":memory:", vfs=clock.vfs_name())
        with freezegun.freeze_time("2031-07-14 12:00:00.123456"):
            assert db.execute({READ_CLOCK!r}).get == {NOON_MS}
"""
REAL_STORY = HELD_STORY.replace("get ==", "get <")
LOAD = ("-p", plugin.__name__)


def test_plugin_holds_the_clock_for_the_session_and_gives_it_back(not_held, pytester):
    pytester.makepyfile(HELD_STORY)
    pytester.runpytest_inprocess(*LOAD).assert_outcomes(passed=1)
    assert not testing.clock_is_held()


def test_plugin_leaves_the_clock_alone_where_the_ini_option_says_so(not_held, pytester):
    pytester.makeini("[pytest]\nlitejobs_clock = real")
    pytester.makepyfile(REAL_STORY)
    pytester.runpytest_inprocess(*LOAD, "--strict-config").assert_outcomes(passed=1)
    assert not testing.clock_is_held()


def test_plugin_refuses_an_unknown_clock(not_held, pytester):
    pytester.makeini("[pytest]\nlitejobs_clock = frozen")
    run = pytester.runpytest_inprocess(*LOAD)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(
        ["ERROR: the ini option litejobs_clock is 'frozen'; write 'held' *or 'real'."]
    )
    assert not testing.clock_is_held()


def test_plugin_gives_back_its_own_hold_only(pytester):
    with testing.held_clock():
        pytester.makepyfile(HELD_STORY)
        pytester.runpytest_inprocess(*LOAD).assert_outcomes(passed=1)
        assert testing.clock_is_held()


@pytest.fixture
def installed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """A folder of tests where the plugin is installed as an entry point."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    metadata = pytester.mkdir("installed_litejobs-1.dist-info")
    (metadata / "METADATA").write_text("Name: installed-litejobs\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        f"[pytest11]\nlitejobs = {plugin.__name__}\n"
    )
    return pytester


# Ours is loaded by itself, and no other one: those take most of the time.
NO_OTHERS = [
    f"-pno:{each.name}"
    for each in entry_points(group="pytest11")
    if each.name != "litejobs"
]


def test_installed_plugin_is_loaded_by_itself(installed):
    installed.makepyfile(HELD_STORY)
    run = installed.runpytest_subprocess("-W", "error", *NO_OTHERS)
    run.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "story"),
    [
        (("-p", "litejobs"), HELD_STORY),
        (LOAD, HELD_STORY),
        (("-p", "no:litejobs"), REAL_STORY),
    ],
    ids=["by its name", "also by its module", "left out"],
)
def test_installed_plugin_may_be_named(not_held, installed, arguments, story):
    installed.syspathinsert()
    installed.makepyfile(story)
    run = installed.runpytest_inprocess("-W", "error", *NO_OTHERS, *arguments)
    run.assert_outcomes(passed=1)


def test_installed_plugin_may_be_named_in_a_conftest_too(not_held, installed):
    installed.syspathinsert()
    installed.makeconftest(f"pytest_plugins = ['{plugin.__name__}']")
    installed.makepyfile(HELD_STORY)
    run = installed.runpytest_inprocess("-W", "error", *NO_OTHERS)
    run.assert_outcomes(passed=1)
