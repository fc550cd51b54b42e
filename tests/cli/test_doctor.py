"""`litejobs doctor`: is the file well, and what runs it?"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.metadata
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import click
import pytest
from click.testing import CliRunner, Result

import litejobs
from litejobs import LiteJobs, every
from litejobs._storage import readers, statements
from litejobs.cli import main
from litejobs.cli.file import checks
from litejobs.cli.file.unchecked import open_unchecked
from tests.cli.calls import Cli
from tests.programs import Program
from tests.waiting import Sizes, Times, eventually

POSIX_ONLY = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
ROOT = Path(litejobs.__file__).parents[1]


class Examined:
    """What `doctor --json` has said."""

    def __init__(self, result: Result) -> None:
        assert result.stdout.count("\n") == 1, result.output
        assert "Traceback" not in result.stderr
        self.code = result.exit_code
        self.document = json.loads(result.stdout)
        self.level = self.document["level"]
        self.checks = self.document["checks"]

    def of(self, level: str) -> dict[str, str]:
        """The checks of a level: their sentences."""
        return {
            each["check"]: each["sentence"]
            for each in self.checks
            if each["level"] == level
        }

    def remedy(self, check: str) -> str:
        """What helps."""
        [found] = [
            each["remedy"]
            for each in self.checks
            if each["check"] == check and each["level"] != "ok"
        ]
        return str(found)


@pytest.fixture
def doctor(cli: Cli, path: Path) -> Callable[..., Examined]:
    """Run `litejobs doctor --json` with that file."""
    return lambda *more: Examined(cli("--db", path, "doctor", "--json", *more))


@contextlib.contextmanager
def past_the_triggers(path: Path) -> Iterator[apsw.Connection]:
    """A connection whose writes are seen by no trigger."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        yield db


# A healthy file -----------------------------------------------------------------------


def test_all_is_well_with_a_new_file(doctor: Callable[..., Examined]) -> None:
    found = doctor()
    assert (found.code, found.level) == (0, "ok")
    assert list(found.of("ok")) == [
        *("versions", "permissions", "disk", "settings", "pages", "log", "schema"),
        *("runner", "clock", "rows", "retention", "references", "indexes"),
    ]
    assert found.document["file"]["schema_version"] == statements.current_version()
    assert found.document["file"]["journal_mode"] == "wal"
    assert found.document["versions"]["apsw"] == apsw.apsw_version()
    assert set(found.document["versions"]) == {
        *("litejobs", "python", "apsw", "sqlite", "cronsim", "tz", "tz_source")
    }


def test_each_check_is_a_line_and_each_remedy_another(cli: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("a")
    shown = cli("--db", path, "doctor")
    assert shown.exit_code == 0
    assert "ok       SQLite's full check finds nothing wrong\n" in shown.stdout
    noted = (
        "note     the runner is missing, and jobs in line wait for one: 1\n"
        "         -> start a runner: litejobs run MODULE:OBJECT\n"
    )
    assert noted in shown.stdout
    assert "\x1b" not in shown.stdout
    coloured = cli("--db", path, "--color", "always", "doctor").stdout
    assert "\x1b[32mok       \x1b[0m" in coloured


def test_the_quick_look_leaves_the_full_check_out(
    doctor: Callable[..., Examined],
) -> None:
    assert "indexes" not in doctor("--quick").of("ok")


def test_nothing_is_changed_in_the_file_or_beside_it(
    cli: Cli, path: Path, doctor: Callable[..., Examined]
) -> None:
    doctor()
    assert [each.name for each in path.parent.iterdir()] == ["jobs.db"]
    before = path.read_bytes()
    doctor()
    assert path.read_bytes() == before


def test_a_log_that_was_left_behind_stays(path: Path, cli: Cli, tmp_path: Path) -> None:
    """Whoever looks must not be the one who changes a file that is to be saved."""
    copies = tmp_path / "died"
    copies.mkdir()
    code = (
        "import os, sys; from litejobs import LiteJobs;"
        "jobs = LiteJobs(sys.argv[1]); jobs.enqueue('a'); os._exit(0)"
    )
    died = copies / "jobs.db"
    subprocess.run(
        [sys.executable, "-c", code, died],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    log = Path(f"{died}-wal")
    before = died.read_bytes(), log.read_bytes()
    assert len(before[1]) > 0
    found = Examined(cli("--db", died, "doctor", "--json"))
    assert found.of("note")["runner_missing"].endswith(": 1")
    assert (died.read_bytes(), log.read_bytes()) == before


def test_what_the_view_finds_is_a_check(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with LiteJobs(path) as jobs:
        job = jobs.enqueue("a")
    with past_the_triggers(path) as db:
        db.execute(
            "insert into litejobs_dependency (job_id, parent_id) values (?, 99)",
            (job.id,),
        )
    found = doctor()
    assert (found.code, found.level) == (1, "problem")
    [check] = [each for each in found.checks if each["check"] == "dependency_lost"]
    assert check == {
        "check": "dependency_lost",
        "level": "problem",
        "object": f"job {job.id}",
        "sentence": f"job {job.id} waits for a job or batch that is not there",
        "remedy": "delete the row in litejobs_dependency, or cancel the job",
    }


def test_hostile_names_are_escaped(cli: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(lambda: None, name="known")  # type: ignore[call-overload]
        with jobs.running():
            jobs.enqueue("\x1b[2Jboo\u202e")
            shown = cli("--db", path, "doctor", "--quick")
    assert "\x1b" not in shown.stdout
    assert r"warning  task \x1b[2Jboo\u202e is in the code of no living" in shown.stdout


# Runners ------------------------------------------------------------------------------


def test_a_runner_that_runs_is_well(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(lambda: None, name="a")  # type: ignore[call-overload]
        with jobs.running():
            found = doctor("--quick")
            assert jobs.enqueue("a").result(timeout=10) is None
            # The lock is asked for, and never taken.
            assert jobs._service.runner is not None
            assert jobs._service.runner._lock.confirm()
    assert f"runner 1 (process {os.getpid()} on " in found.of("ok")["runner"]
    assert found.document["file"]["runner_lock_held"] is True
    assert found.level == "ok"


def test_who_stands_by_is_named(path: Path, doctor: Callable[..., Examined]) -> None:
    """But not who has ended without a word, and is in the file still."""
    with LiteJobs(path) as first, LiteJobs(path) as second:
        with first.transaction() as db:
            db.execute("insert into litejobs_standby (pid) values (4711)")
        with first.running(threads=3):
            found = doctor("--quick")
            assert "standbys" not in found.of("ok")
            assert found.document["file"]["standbys"] == 0
            assert " has been running with 3 threads since " in found.of("ok")["runner"]
            with second.running():
                eventually(lambda: doctor("--quick").document["file"]["standbys"])
                said = doctor("--quick").of("ok")["standbys"]
    assert said.startswith(f"process {os.getpid()} (since ")
    assert said.endswith(") stands by, and takes over when the runner ends")


def test_a_runner_that_is_gone_is_found(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    code = (
        "import os, sys; from litejobs import LiteJobs; jobs = LiteJobs(sys.argv[1]);"
        "jobs.start(); print(os.getpid(), flush=True); os._exit(0)"
    )
    died = subprocess.run(
        [sys.executable, "-c", code, path],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = doctor("--quick")
    sentence = found.of("warning")["runner"]
    assert sentence.startswith(f"runner 1 (process {died.stdout.strip()} on ")
    assert sentence.endswith("is gone: its lock is free, and it never stopped")
    assert found.code == 0
    with LiteJobs(path) as jobs, jobs.running():
        pass
    assert doctor("--quick").level == "ok"


def test_a_lock_without_a_runner_is_noted(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    from litejobs._storage.runner_lock import RunnerLock

    lock = RunnerLock(os.path.realpath(path))
    assert lock.acquire()
    found = doctor("--quick")
    lock.release()
    assert "no runner is in the file" in found.of("note")["runner"]


# The log ------------------------------------------------------------------------------


@pytest.fixture
def little(sizes: Sizes) -> None:
    """A log of more than 64 kB is long."""
    sizes(wal_warning=2**16)


def grow(jobs: LiteJobs) -> None:
    with jobs.transaction() as db:
        db.execute("create table if not exists ballast (x)")
    for _ in range(8):
        with jobs.transaction() as db:
            db.execute("insert into ballast values (zeroblob(1048576))")


def test_a_long_log_that_a_read_holds_is_found(
    path: Path, doctor: Callable[..., Examined], little: None
) -> None:
    with LiteJobs(path) as jobs:
        jobs.open()
        with contextlib.closing(apsw.Connection(str(path))) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from litejobs_job").fetchall()
            grow(jobs)
            found = doctor("--quick")
    assert "pages are written back" in found.of("warning")["log"]
    assert found.remedy("log").startswith("close the cursors")
    assert found.document["file"]["log_size"] > 8 * 2**20


@LINUX_ONLY
def test_the_process_that_holds_the_log_is_named(
    path: Path, doctor: Callable[..., Examined], little: None
) -> None:
    code = (
        "import apsw, sys; db = apsw.Connection(sys.argv[1]); db.execute('begin');"
        "db.execute('select * from litejobs_job').fetchall(); print(flush=True);"
        "input()"
    )
    with LiteJobs(path) as jobs:
        jobs.open()
        with Program(
            [sys.executable, "-c", code, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()
            grow(jobs)
            found = doctor("--quick")
            comm = Path(f"/proc/{reader.pid}/comm").read_text().strip()
            reader.communicate(b"\n")
    assert found.of("warning")["log"].endswith(
        f"a read is open in process {reader.pid} ({comm})"
    )


def test_a_long_log_that_nobody_holds_is_found(
    path: Path, doctor: Callable[..., Examined], little: None
) -> None:
    with LiteJobs(path) as jobs:
        grow(jobs)
        with contextlib.closing(apsw.Connection(str(path))) as db:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        found = doctor("--quick")
    assert found.of("warning")["log"].endswith("all of it written back")


def test_only_open_reads_of_this_file_are_counted() -> None:
    lines = [
        "1: POSIX  ADVISORY  READ 11 fe:00:77 124 124",
        "2: POSIX  ADVISORY  READ 11 fe:00:77 128 128",
        "3: POSIX  ADVISORY  READ 12 fe:00:77 128 128",
        "4: POSIX  ADVISORY  READ 13 fe:00:78 124 124",
        "5: POSIX  ADVISORY  WRITE 14 fe:00:77 120 120",
        "6: POSIX  ADVISORY  READ 10 fe:00:77 127 127",
        f"7: POSIX  ADVISORY  READ {os.getpid()} fe:00:77 124 124",
        "8: OFDLCK ADVISORY  READ -1 fe:00:77 124 124",
        "9: FLOCK  ADVISORY  WRITE 15 fe:00:77 0 EOF",
        "9: -> POSIX  ADVISORY  READ 16 fe:00:77 124 124",
        "10: POSIX  ADVISORY  READ 17 fe:00:77 126 128",
        "11: POSIX  ADVISORY  READ 18 fe:00:77 123 EOF",
        "",
    ]
    reads_in = partial(
        readers.locks_in,
        device="fe:00",
        inode=77,
        kind="READ",
        which=readers.READ_LOCKS,
    )
    us = os.getpid()
    found = {(10, 127), (11, 124), (us, 124), (17, 126), (17, 127)}
    assert reads_in(lines) == found
    # Where the kernel calls the file system by another name, our own lock has it.
    lines.append(f"12: POSIX  ADVISORY  READ {us} fe:09:77 128 128")
    lines.append("13: POSIX  ADVISORY  READ 19 fe:09:77 123 123")
    assert reads_in(lines) == {(19, 123)}
    assert readers.reads_of("/there/is/no/such-shm") is None
    assert readers.lasting_reads("/there/is/no/such-shm") is None


# The file and the disk ----------------------------------------------------------------


@POSIX_ONLY
@pytest.mark.parametrize(
    ("mode", "level", "sentence"),
    [
        (0o644, "note", "other users may read the file (mode 0644)"),
        (0o666, "warning", "other users may change the file (mode 0666)"),
    ],
)
def test_rights_of_others_are_found(
    path: Path,
    doctor: Callable[..., Examined],
    mode: int,
    level: str,
    sentence: str,
) -> None:
    path.chmod(mode)
    found = doctor("--quick")
    assert found.of(level)["permissions"] == sentence
    assert found.remedy("permissions") == f"chmod 600 {os.path.realpath(path)}"


@POSIX_ONLY
def test_a_folder_in_which_all_may_write_is_found(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    path.parent.chmod(0o777)
    assert "every user may write in" in doctor("--quick").of("warning")["permissions"]
    path.parent.chmod(0o1777)
    assert "permissions" in doctor("--quick").of("ok")


@POSIX_ONLY
def test_a_second_name_is_found(path: Path, doctor: Callable[..., Examined]) -> None:
    os.link(path, path.parent / "other.db")
    assert "has 2 names" in doctor("--quick").of("warning")["permissions"]


@POSIX_ONLY
def test_a_file_of_somebody_else_is_noted(
    path: Path, doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.os, "geteuid", lambda: path.stat().st_uid + 1)
    assert "belongs to another user" in doctor("--quick").of("note")["permissions"]


def test_a_file_that_may_only_be_read_is_found(
    path: Path, doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_may_use", lambda _: False)
    found = doctor("--quick")
    assert "may not write to the file" in found.of("warning")["permissions"]


@pytest.mark.parametrize(
    ("free", "level"), [(2**30, "ok"), (2**27, "warning"), (2**20, "problem")]
)
def test_a_disk_that_is_nearly_full_is_found(
    path: Path,
    doctor: Callable[..., Examined],
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    level: str,
) -> None:
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage)
    found = doctor("--quick")
    assert " free on the disk (" in found.of(level)["disk"]
    assert found.code == (1 if level == "problem" else 0)


def test_a_network_file_system_is_a_problem(
    path: Path, doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litejobs._storage.files.filesystem_type", lambda _: "nfs4")
    found = doctor("--quick")
    assert "network file system (nfs4)" in found.of("problem")["disk"]
    assert found.code == 1


def test_much_unused_space_is_noted(
    path: Path, doctor: Callable[..., Examined], sizes: Sizes
) -> None:
    sizes(much_unused=2**20)
    with LiteJobs(path) as jobs:
        grow(jobs)
        with jobs.transaction() as db:
            db.execute("drop table ballast")
    found = doctor("--quick")
    assert "are unused pages" in found.of("note")["settings"]
    assert "given back while a runner is idle" in found.remedy("settings")
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "delete")
    connection.pragma("auto_vacuum", 0)
    connection.execute("vacuum")
    connection.close()
    with LiteJobs(path) as jobs:
        grow(jobs)
        with jobs.transaction() as db:
            db.execute("drop table ballast")
    assert "purge --older-than 30d --vacuum" in doctor("--quick").remedy("settings")


# Software and clocks ------------------------------------------------------------------


def test_an_old_sqlite_is_a_problem(
    doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    found = doctor("--quick")
    assert "SQLite 3.51.2 is too old" in found.of("problem")["versions"]


def test_a_missing_tz_database_is_found(
    doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "tzdata_version", lambda: "none")
    monkeypatch.setattr(checks.zoneinfo, "TZPATH", ())
    found = doctor("--quick")
    assert found.remedy("versions") == "install the package tzdata"
    assert found.document["versions"]["tz_source"] == "none"


def test_where_things_come_from_is_said(
    doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    (tmp_path / "zones").mkdir()
    (tmp_path / "zones" / "UTC").touch()
    monkeypatch.setattr(importlib.metadata, "version", unknown)
    monkeypatch.setattr(checks, "tzdata_version", lambda: "2026a")
    folders = (str(tmp_path / "none"), str(tmp_path / "zones"))
    monkeypatch.setattr(checks.zoneinfo, "TZPATH", folders)
    found = doctor("--quick").document["versions"]
    assert found["cronsim"] == "unknown"
    assert found["tz_source"] == str(tmp_path / "zones")
    monkeypatch.setattr(checks.zoneinfo, "TZPATH", ())
    assert doctor("--quick").document["versions"]["tz_source"] == "package tzdata"


def test_schedules_of_another_tz_database_are_noted(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(lambda: None, name="a")  # type: ignore[call-overload]
        jobs.schedules.create(
            "daily", "a", litejobs.cron("0 9 * * *", timezone="Europe/Berlin")
        )
        jobs.schedules.create("hourly", "a", every("1h"))
        jobs.drain()
        assert "zones" not in doctor("--quick").of("note")
        with jobs.transaction() as db:
            db.execute("update litejobs_schedule set tz_version = '1970a' where id = 1")
    assert (
        doctor("--quick")
        .of("note")["zones"]
        .startswith(
            "schedules in Europe/Berlin were planned with another tz database (1970a)"
        )
    )


def test_clocks_that_differ_are_found(
    path: Path, doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    shown = SimpleNamespace(
        datetime=SimpleNamespace(now=lambda _: later),
        timedelta=dt.timedelta,
        UTC=dt.UTC,
    )
    monkeypatch.setattr(checks, "dt", shown)
    found = doctor("--quick")
    assert "SQLite's clock and Python's are" in found.of("warning")["clock"]


# Files that are not as they should be -------------------------------------------------


def test_a_missing_file_cannot_be_used(path: Path, cli: Cli) -> None:
    found = Examined(cli("--db", path.parent / "no.db", "doctor", "--json"))
    assert found.code == 3
    assert found.of("problem")["file"].endswith("no.db does not exist")
    assert found.remedy("file") == "check the name"
    assert "versions" in found.of("ok")


@pytest.mark.parametrize(
    "content", [b"", b"x" * 5000, b"SQLite format 3\0" + bytes(99)]
)
def test_what_is_no_jobs_file_cannot_be_used(
    path: Path, doctor: Callable[..., Examined], content: bytes
) -> None:
    path.write_bytes(content)
    found = doctor()
    assert found.code == 3
    assert found.level == "problem"


def test_an_application_s_own_database_holds_no_jobs(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    path.unlink()
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create table orders (id)")
    found = doctor()
    assert found.code == 3
    assert found.of("problem")["schema"] == "the file holds no jobs tables"
    assert found.of("note")["settings"].startswith("the file has no write-ahead log")


@pytest.mark.parametrize(
    ("version", "code", "level"),
    [
        (statements.current_version() - 1, 3, "problem"),  # not as that was made
        (statements.current_version() + 1, 3, "problem"),
        (None, 3, "problem"),
        ("no table", 3, "problem"),
    ],
)
def test_a_file_of_another_version_is_looked_at_as_far_as_that_goes(
    path: Path,
    doctor: Callable[..., Examined],
    version: object,
    code: int,
    level: str,
) -> None:
    with past_the_triggers(path) as db:
        if version is None:
            db.execute("delete from litejobs_meta")
        elif version == "no table":
            db.execute("drop table litejobs_meta")
        else:
            db.execute("update litejobs_meta set schema_version = ?", (version,))
    found = doctor()
    assert (found.code, found.level) == (code, level)
    named = "dropped (litejobs_meta)" if version == "no table" else "version"
    assert named in found.of(level)["schema"]
    assert "indexes" in found.of("ok")
    assert "rows" not in found.of("ok")


def test_what_is_not_as_it_was_made_is_named(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("drop view litejobs_why")
        db.execute("create view litejobs_why as select 1")
        db.execute("drop trigger litejobs_tick_moves_on")
        db.execute("create table litejobs_mine (x)")
    found = doctor()
    assert found.code == 3
    assert found.of("problem")["schema"] == (
        "not as litejobs made it: litejobs_mine (added), litejobs_tick_moves_on "
        "(missing), litejobs_why (changed)"
    )
    # As far as it goes.
    assert "rows" in found.of("ok")


def drop_tables(path: Path, *kept: str) -> None:
    """As a migration tool does that compares the file with its own models."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        tables = [
            name
            for (name,) in db.execute(
                "select name from sqlite_master where type = 'table'"
            )
            if name.startswith("litejobs_") and name not in kept
        ]
        for name in tables:
            db.execute(f"drop table {name}")


def test_tables_that_another_tool_dropped_are_told_so(
    path: Path, doctor: Callable[..., Examined], cli: Cli
) -> None:
    """And `init` makes them again, where none is left; other tables are kept."""
    cli("--db", path, "enqueue", "send")
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create table orders (id integer primary key)")
        db.execute("insert into orders values (7)")
    drop_tables(path, "litejobs_meta", "litejobs_task")
    some = "some of the tables of litejobs were dropped (litejobs_attempt, "
    found = doctor()
    assert (found.code, found.level) == (3, "problem")
    assert found.of("problem")["schema"].startswith(some)
    for command in (["list"], ["init"], ["enqueue", "send"]):
        refused = cli("--db", path, *command)
        assert (refused.exit_code, some in refused.stderr) == (3, True), command

    drop_tables(path)
    gone = "the tables of litejobs were dropped (litejobs_attempt, "
    found = doctor()
    assert (found.code, found.level) == (3, "problem")
    assert found.of("problem")["schema"].startswith(gone)
    assert f"begin without jobs: litejobs --db {path} init;" in found.remedy("schema")
    for command in (["list"], ["enqueue", "send"]):
        refused = cli("--db", path, *command)
        assert (refused.exit_code, f"{path}: {gone}" in refused.stderr) == (3, True)

    assert cli("--db", path, "init").exit_code == 0
    assert cli("--db", path, "enqueue", "send").exit_code == 0
    assert doctor().level != "problem"
    with contextlib.closing(apsw.Connection(str(path))) as db:
        assert db.execute("select id from orders").fetchall() == [(7,)]


def test_views_that_lie_are_survived(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    lies = (
        "create view litejobs_doctor as select 1 as code, x'ff' as level, 'a' as "
        "object, cast(x'ff' as text) as sentence, 3 as remedy"
    )
    endless = (
        "create view litejobs_doctor as with recursive n(i) as (select 1 union all "
        "select i + 1 from n) select i as code, 1 as level, 1 as object, "
        "1 as sentence, 1 as remedy from n"
    )
    with contextlib.closing(apsw.Connection(str(path))) as db:
        for view in (lies, endless):
            db.execute("drop view litejobs_doctor")
            db.execute(view)
            # On a busy machine the looks before it take their time, too.
            for patience in ("0.2", "1", "5", "25"):
                asked = ["--timeout", patience, "--db", str(path), "doctor", "--json"]
                found = Examined(CliRunner().invoke(main, asked))
                assert found.code == 3
                if view is lies or "rows" in found.of("note"):
                    break
    assert found.of("note")["rows"] == "the look at rows took too long and was given up"


def test_file_whose_schema_could_not_be_read_is_not_well(cli: Cli, path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.pragma("writable_schema", True)
        db.execute("delete from sqlite_schema where tbl_name = 'litejobs_meta'")
        db.execute(
            "insert into sqlite_schema values ('view', 'litejobs_meta', "
            "'litejobs_meta', 0, 'create view litejobs_meta as with recursive n (i) as "
            "(select 1 union all select i + 1 from n) select 1 as id, 0 as "
            "installed_at, 0 as salt, count(*) as schema_version from n')"
        )
    found = Examined(cli("--timeout", "0.2", "--db", path, "doctor", "--json"))
    assert found.code == 3
    assert found.of("problem")["schema"] == (
        "the look at schema took too long and was given up"
    )
    assert "--timeout 5m" in found.remedy("schema")


def test_triggers_of_the_application_are_noted(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as db:
        db.execute(
            "create trigger mine after insert on litejobs_job begin select 1; end"
        )
    found = doctor("--quick")
    assert found.of("note")["schema"].endswith("mine on litejobs_job")
    assert found.code == 0


def test_a_row_without_the_one_that_it_names_is_found(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(lambda: None, name="a")  # type: ignore[call-overload]
        jobs.enqueue("a")
        jobs.drain()
    with past_the_triggers(path) as db:
        db.pragma("foreign_keys", False)
        db.execute("delete from litejobs_job")
    found = doctor("--quick")
    assert found.of("problem")["references"].endswith("litejobs_attempt (1)")
    assert found.code == 1


def test_rows_that_their_table_would_refuse_are_found(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("a")
    with past_the_triggers(path) as db:
        db.execute("create table mine (x check (x > 0))")
        db.pragma("ignore_check_constraints", True)
        db.execute("insert into mine values (0)")
        assert "mine" in doctor().of("note")["indexes"]
        db.execute("update litejobs_job set args = 'no JSON'")
    found = doctor()
    assert "litejobs_job" in found.of("warning")["indexes"]
    assert found.code == 0


def test_checks_that_call_what_only_the_application_has_are_left_out(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.create_scalar_function("mine", lambda _: 1, 1, deterministic=True)
        db.execute("create table other (x check (mine(x)))")
        db.execute("insert into other values (1)")
    assert "indexes" in doctor().of("ok")


def test_an_index_that_lacks_a_row_is_found(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create table mine (a, b); create index mine_of on mine (a)")
        db.execute("insert into mine values (1, 2)")
        db.pragma("writable_schema", True)
        db.execute(
            "update sqlite_schema set sql = 'create index mine_of on mine (b)' "
            "where name = 'mine_of'"
        )
    found = doctor()
    assert found.code == 1
    assert found.of("problem") == {
        "indexes": "the file is not sound: row 1 missing from index mine_of"
    }
    assert doctor("--quick").level == "ok"


def test_any_index_of_ours_that_is_damaged_is_found(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    """The quick check looks at the pages, and not whether they say what the rows do."""
    with LiteJobs(path) as jobs:
        for number in range(5):
            jobs.enqueue("a", queue=f"q{number}", unique_key=f"key {number}")
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", "delete")
        size = db.pragma("page_size")
        indexes = db.execute(
            "select name, rootpage from sqlite_schema "
            "where type = 'index' and tbl_name = 'litejobs_job'"
        ).fetchall()
    whole = path.read_bytes()
    seen = set()
    for name, page in indexes:
        damaged = bytearray(whole)
        if whole[page * size - 1] == 0:
            continue  # nothing is in it
        damaged[page * size - 1] ^= 1  # the end of its first entry, which is an id
        path.write_bytes(damaged)
        found = doctor()
        assert (found.code, found.level) == (1, "problem"), name
        assert f"missing from index {name}" in found.of("problem")["indexes"]
        assert "REINDEX" in found.remedy("indexes")
        assert doctor("--quick").code == 0
        seen.add(name)
    assert {"litejobs_job_ready", "litejobs_job_of_unique_key"} <= seen


def test_file_that_was_not_looked_at_to_its_end_is_not_called_sound(
    path: Path, cli: Cli
) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute(
            "create table mine (x); with recursive n (i) as (select 1 union all "
            "select i + 1 from n limit 300000) insert into mine select i from n;"
            "create index mine_of on mine (x)"
        )
    found = Examined(cli("--timeout", "0.001", "--db", path, "doctor", "--json"))
    for look in ("pages", "indexes"):
        assert f"the look at {look} took too long" in found.of("warning")[look]
        assert "--timeout 5m" in found.remedy(look)


def test_a_file_that_another_process_locks_is_said_to_be(
    path: Path, doctor: Callable[..., Examined], times: Times
) -> None:
    times(whole_lock_patience=0.01)
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", "delete")
        db.execute("begin exclusive")
        found = doctor()
        db.execute("rollback")
    assert found.level == "warning"
    assert "another process has locked the file" in " ".join(
        found.of("warning").values()
    )


def test_read_only_media_are_looked_at_with_an_option(
    path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Examined(cli("--db", path, "--immutable", "doctor", "--json"))
    assert "pages" in found.of("ok")


@pytest.mark.parametrize(
    ("error", "code", "level", "sentence"),
    [
        (apsw.CantOpenError("unable to open database file"), 3, "problem", "opened"),
        (apsw.CorruptError("malformed"), 3, "problem", "is damaged: malformed"),
        (apsw.BusyError("locked"), 0, "warning", "another process has locked the file"),
    ],
)
def test_a_file_that_cannot_be_opened_is_a_sentence(
    path: Path,
    doctor: Callable[..., Examined],
    monkeypatch: pytest.MonkeyPatch,
    error: apsw.Error,
    code: int,
    level: str,
    sentence: str,
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr("litejobs.cli.file.unchecked.only_read", fail)
    found = doctor()
    assert found.code == code
    assert sentence in found.of(level)["file"]
    assert found.remedy("file")


@pytest.mark.parametrize(
    "statement",
    [
        "delete from litejobs_job",
        "create temp table x (y)",
        "pragma journal_mode = delete",
        "pragma writable_schema = 1",
        "attach ':memory:' as other",
        "vacuum",
    ],
)
def test_whoever_looks_cannot_write(path: Path, statement: str) -> None:
    with click.Context(main) as context:
        context.params = {"immutable": False, "timeout": 1.0}
        with open_unchecked(str(path)) as file:
            assert file.setting("journal_mode") == "wal"
            with pytest.raises(apsw.Error, match=r"authoriz|readonly|attached"):
                file.connection.execute(statement).fetchall()


def test_a_look_that_fails_is_said_and_the_others_go_on(
    path: Path, doctor: Callable[..., Examined]
) -> None:
    with past_the_triggers(path) as db:
        db.pragma("ignore_check_constraints", True)
        db.execute("insert into litejobs_runner (started_at) values (null)")
    found = doctor("--quick")
    assert "the look at runner has failed" in found.of("warning")["runner"]
    assert "clock" in found.of("ok")


# Damage -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with something in every table that matters."""
    path = tmp_path_factory.mktemp("rich") / "jobs.db"
    jobs = LiteJobs(path)

    @jobs.task(max_attempts=2, concurrency_key="k:{x}")
    def work(x: int) -> int:
        return 1 // x

    jobs.schedules.create("s", "work", every("1h"), args=[1])
    parent = work.enqueue(1)
    work.using(after=[parent]).enqueue(2)
    for number in range(200):
        work.enqueue(number % 3)
    jobs.drain()
    work.enqueue(1)
    jobs.close()
    return path.read_bytes()


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The file with some bytes changed, a page wiped out, or cut short."""
    changed = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0:
        for _ in range(rng.choice((1, 4, 64))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        start = rng.randrange(len(changed) // 2048) * 2048
        changed[start : start + 2048] = rng.randbytes(2048)
    elif kind == 2:
        del changed[rng.randrange(len(changed)) :]
    elif kind == 3:  # where the schema is
        for _ in range(8):
            changed[rng.randrange(min(len(changed), 40 * 2048))] = rng.randrange(256)
    else:
        for _ in range(3):
            changed[rng.randrange(100)] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_is_a_sentence_and_a_code(
    cli: Cli, tmp_path: Path, rich: bytes, seed: int
) -> None:
    examine_damaged(cli, tmp_path, rich, seed)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(12, 300))
def test_more_damaged_files_are_sentences_and_codes(
    cli: Cli, tmp_path: Path, rich: bytes, seed: int
) -> None:
    examine_damaged(cli, tmp_path, rich, seed)


def examine_damaged(cli: Cli, tmp_path: Path, rich: bytes, seed: int) -> None:
    path = tmp_path / "jobs.db"
    content = damaged(random.Random(seed), rich)
    path.write_bytes(content)
    more = ["--json"] if seed % 2 else []
    result = cli("--timeout", "2s", "--db", path, "doctor", *more)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stderr == ""
    assert all(line.isprintable() for line in result.stdout.split("\n"))
    assert result.exit_code in {0, 1, 3}
    if more:
        found = Examined(result)
        assert (found.level == "problem") == (found.code != 0)
    else:
        assert ("\nproblem " in result.stdout) == (result.exit_code != 0)
