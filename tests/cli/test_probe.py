"""`litejobs doctor --probe`: one line and an exit code for who restarts programs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs._process.clock import RealTime
from litejobs._storage.runner_lock import RunnerLock
from tests.cli.calls import Cli, document
from tests.waiting import Times, eventually

ROOT = Path(__file__).parents[2]


def probed(db: Cli, *options: str) -> tuple[int, str]:
    """The exit code, and the line."""
    said = db("doctor", "--probe", *options)
    assert said.stderr == ""
    assert said.stdout.count("\n") == 1
    return said.exit_code, said.stdout.rstrip("\n")


@contextlib.contextmanager
def held(path: Path) -> Iterator[RunnerLock]:
    """This process holds the runner's lock."""
    lock = RunnerLock(path.resolve())
    assert lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


def write(path: Path, statement: str) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as db:
        db.execute(statement)


RUNNER = "insert into litejobs_runner (pid, host, threads) values (4711, 'kiosk', 4)"


def test_file_without_a_runner_is_not_well_unless_none_is_asked_for(
    db: Cli, path: Path
) -> None:
    assert probed(db) == (
        1,
        f"unhealthy: no process runs the jobs of {path}; start one: litejobs run "
        "app:jobs",
    )
    assert probed(db, "--no-runner") == (0, f"healthy: {path} can be used")


def test_runner_is_well_and_a_standby_beside_it(db: Cli, path: Path) -> None:
    well = f"healthy: process {os.getpid()} runs the jobs of {path}"
    with LiteJobs(path) as first, first.running():
        assert probed(db) == (0, well)
        with LiteJobs(path) as second, second.running() as standby:
            eventually(lambda: standby.role == "standby")
            assert probed(db) == (0, well)
        assert probed(db, "--due") == (
            0,
            f"healthy: runner 1 (process {os.getpid()}) runs the jobs of {path}, and "
            "has begun what is due",
        )
    assert probed(db)[0] == 1


def test_runner_that_is_gone_is_not_well(db: Cli, path: Path) -> None:
    write(path, RUNNER)
    assert probed(db) == (
        1,
        f"unhealthy: runner 1 (process 4711) of {path} is gone: it never stopped",
    )
    # Whoever only enqueues is not restarted for it.
    assert probed(db, "--no-runner")[0] == 0


def test_process_that_is_about_to_begin_is_well(db: Cli, path: Path) -> None:
    with held(path):
        assert probed(db)[0] == 0
        said = f"healthy: a process begins to run the jobs of {path}"
        assert probed(db, "--due") == (0, said)


def test_runner_that_leaves_what_is_due_for_ten_seconds_is_not_well(
    db: Cli, path: Path, times: Times
) -> None:
    """Its process lives, and its loop does not: nobody else has written meanwhile."""
    times(probe_pause=0.01)
    with freeze_time("2026-01-01T12:00:00Z") as clock, held(path):
        with LiteJobs(path) as jobs:
            jobs.enqueue("send", delay="1m")
        write(path, RUNNER)
        clock.move_to("2026-01-01T12:01:09Z")
        assert probed(db, "--due")[0] == 0
        clock.move_to("2026-01-01T12:01:11Z")
        assert probed(db)[0] == 0
        assert probed(db, "--due") == (
            1,
            "unhealthy: runner 1 counts as running, and what was due at "
            "2026-01-01T12:01:00Z has not been begun (process 4711)",
        )


@pytest.mark.skipif(os.name != "posix", reason="POSIX only")
def test_what_cannot_be_told_is_not_well(db: Cli, path: Path) -> None:
    lock = path.with_name(f"{path.name}.runner")
    lock.write_text("something else")
    code, said = probed(db)
    assert code == 1
    assert f"it cannot be told whether jobs of {path} are run: " in said


def test_file_that_cannot_be_used_is_one_line_and_not_well(
    cli: Cli, tmp_path: Path
) -> None:
    """Some take other codes than 0 and 1 for a mistake of their own."""
    for options in ([], ["--no-runner"], ["--due"]):
        missing = cli("--db", tmp_path / "a\x1b.db", "doctor", "--probe", *options)
        assert missing.exit_code == 1
        assert "a\\x1b.db does not exist; check the name" in missing.stdout
    strange = tmp_path / "strange.db"
    strange.write_bytes(b"no database" * 100)
    assert cli("--db", strange, "doctor", "--probe").exit_code == 1


def test_probe_as_json(db: Cli, path: Path) -> None:
    assert document(db("doctor", "--probe", "--no-runner", "--json")) == {
        "healthy": True,
        "sentence": f"{path} can be used",
    }


def test_use_that_makes_no_sense_is_refused(cli: Cli, db: Cli) -> None:
    assert cli("doctor", "--probe").exit_code == 2
    for option in ("--no-runner", "--due"):
        refused = db("doctor", option)
        assert refused.exit_code == 2
        assert f"{option} is for --probe; give both" in refused.stderr
    refused = db("doctor", "--probe", "--due", "--no-runner")
    assert refused.exit_code == 2
    assert "--due asks for a runner; leave --no-runner out" in refused.stderr


def test_probe_imports_little(path: Path) -> None:
    """It is asked every few seconds: within 1.5 times an empty program with apsw."""
    code = (
        "import sys\n"
        "from litejobs.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    print(*sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "--db", str(path), "doctor", "--probe"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert said[0] == "unhealthy:"  # the longer way
    too_many = ("_app", "_runner", "_control", "_storage.database", "cli.file.checks")
    assert [
        name
        for name in said
        for each in too_many
        if f"{name}.".startswith(f"litejobs.{each}.")
    ] == []
    assert not {"logging", "json", "asyncio"} & set(said)


def test_runner_that_takes_what_could_start_while_it_is_asked_is_well(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something may have let a job start this moment that has been due for long."""
    beside = f"{RUNNER}; update litejobs_runner set threads = 4"
    with freeze_time("2026-01-01T12:00:00Z") as clock, held(path):
        with LiteJobs(path) as jobs:
            jobs.enqueue("send")
        write(path, beside)
        serve = "insert into litejobs_task (name, runner_id) values ('send', 1)"
        write(path, serve)
        clock.move_to("2026-01-01T12:01:00Z")
        claim = "insert into litejobs_claim (runner, slots) values (1, 1)"
        asleep = iter([claim, None])

        def sleep(_: float) -> None:
            if said := next(asleep):
                write(path, said)

        monkeypatch.setattr(RealTime, "sleep", sleep)
        assert probed(db, "--due")[0] == 0
        settle = """insert into litejobs_settle values (1, '{"status": "ok"}')"""
        write(path, f"{settle}; insert into litejobs_job (task) values ('send')")
        clock.move_to("2026-01-01T12:02:00Z")
        code, said = probed(db, "--due")
        assert code == 1
        assert "job 2, which could start, has been due since" in said
