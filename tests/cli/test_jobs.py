"""Looking by command line: what is found, how it is shown, and what it may do."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import attrs
import click
import pytest
from click.testing import Result
from freezegun import freeze_time

from litejobs import Attempt, JobSnapshot, LiteJobs, Retry
from litejobs._storage import statements
from litejobs.cli import failure, main, printing
from litejobs.cli.commands import jobs as _jobs
from litejobs.cli.file import opening, reader
from litejobs.cli.input.types import Since
from litejobs.cli.output.jobs import ATTEMPT_FIELDS, JOB_FIELDS
from tests.cli.calls import Cli, Copied, document
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
KEPT_OPEN = pytest.mark.usefixtures("kept_open")


@pytest.fixture
def five(file_of_five: Path, path: Path, copied: Copied) -> Path:
    """1 completed, 2 dead-lettered, 3 due in an hour, 4 in five minutes, 5 now."""
    assert copied(file_of_five) == path
    return path


@pytest.fixture(scope="session")
def file_of_five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    path = tmp_path_factory.mktemp("five") / "jobs.db"
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(path) as jobs:

        @jobs.task
        def good() -> int:
            return 1

        @jobs.task(retry=Retry.fixed([60], jitter=0))
        def bad() -> None:
            raise TimeoutError("no answer from HOST")

        good.using(priority=1).enqueue()
        clock.tick(1)
        bad.enqueue()
        jobs.drain()
        clock.tick(61)
        jobs.drain()
        jobs.enqueue("late", ["three"], delay="1h")
        jobs.enqueue("soon", ["Four"], delay="5m", priority=7)
        jobs.enqueue("now", {"to": "ann@example.com"}, unique_key="key-5")
    return path


def ids(result: Result) -> list[int]:
    return [job["id"] for job in document(result)["jobs"]]


# Which ones, and in which order -------------------------------------------------------


@KEPT_OPEN
@for_each(
    "filters, expected",
    [
        (["--state", "completed"], [1]),
        (["--state", "dead_lettered"], [2]),
        (["--state", "scheduled", "--state", "completed"], [4, 3, 1]),
        (["--text", "host"], [2]),
        (["--text", "TIMEOUTERROR"], [2]),
        (["--text", "ANN@"], [5]),
        (["--text", "key-5"], [5]),
        (["--text", "%"], []),
        (["--text", "our", "--task", "soon"], [4]),
        # It was asked for before, and ended since.
        (["--since", "2026-01-01T12:01:00Z"], [5, 4, 3, 2]),
        (["--since", "30s"], [5, 4, 3, 2]),
        (["--since", "18s"], [5, 4, 3, 2]),
        (["--since", "17s"], []),
        (["--since", "30000d", "--state", "completed,dead_lettered"], [2, 1]),
        (["--stopped-by", "max_attempts"], [2]),
        (["--stopped-by", "not_retryable", "--since", "1h"], []),
        (["--since", "1h"], [5, 4, 3, 2, 1]),
        (["--sort", "due"], [1, 2, 5, 4, 3]),
        (["--sort", "due", "--reverse"], [3, 4, 5, 2, 1]),
        (["--sort", "finished"], [2, 1]),
        (["--sort", "priority"], [4, 1, 2, 3, 5]),
        (["--sort", "priority", "--state", "scheduled"], [4, 3]),
    ],
)
def test_list_finds_and_sorts(
    db: Cli, five: Path, filters: list[str], expected: list[int]
) -> None:
    with freeze_time("2026-01-01T12:01:20Z"):
        found = db("list", "--json", *filters)
    if expected:
        assert ids(found) == expected
    else:
        assert (found.exit_code, json.loads(found.stdout)) == (
            1,
            {"jobs": [], "next": None},
        )


@KEPT_OPEN
@for_each("order", [[], ["--sort", "due"], ["--sort", "priority"]])
@for_each("back", [[], ["--reverse"]])
def test_pages_by_key_show_each_job_once(
    db: Cli, five: Path, order: list[str], back: list[str]
) -> None:
    whole = ids(db("list", "--json", *order, *back)) if order or not back else None
    if whole is None:
        refused = db("list", "--reverse", "--before", 3)
        assert refused.exit_code == 2
        assert "--after" in refused.stderr
        return
    seen: list[int] = []
    page: list[str] = []
    while True:
        shown = db("list", "--limit", 2, *order, *back, *page)
        lines = shown.stdout.splitlines()[1:]
        seen += [int(line.split()[0]) for line in lines]
        if not shown.stderr.startswith("there may be more: "):
            break
        page = shown.stderr.removeprefix("there may be more: ").split()
    assert seen == whole
    assert sorted(seen) == [1, 2, 3, 4, 5]


@KEPT_OPEN
def test_id_reversed_is_the_oldest_first(db: Cli, five: Path) -> None:
    assert ids(db("list", "--json", "--reverse")) == [1, 2, 3, 4, 5]
    shown = db("list", "--reverse", "--limit", 3)
    assert shown.stderr == "there may be more: --after 3:3\n"
    for order in (["--reverse"], ["--sort", "due"], ["--sort", "priority"], []):
        page = json.loads(db("list", "--json", "--limit", 2, *order).stdout)
        option = "--after" if order else "--before"
        rest = db("list", "--json", "--limit", 4, *order, option, page["next"])
        assert sorted(ids(rest) + [job["id"] for job in page["jobs"]]) == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert json.loads(rest.stdout)["next"] is None
    assert ids(db("list", "--json", "--reverse", "--after", "3:3")) == [4, 5]


@KEPT_OPEN
@for_each("cursor", ["x", "1", "1:2:3", "1:0", f"{2**63}:1", "1:"])
def test_place_that_no_page_has_said_is_wrong_usage(
    db: Cli, five: Path, cursor: str
) -> None:
    refused = db("list", "--sort", "due", "--after", cursor)
    assert refused.exit_code == 2
    assert "is not a place in a list" in refused.stderr
    assert db("list", "--after", "1:1").exit_code == 2


@KEPT_OPEN
def test_running_jobs_are_found_by_their_open_attempts(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        for _ in range(3):
            connection.execute("insert into litejobs_job (task) values ('send')")
        connection.execute(
            "insert into litejobs_task (name, runner_id) values ('send', 1);"
            "insert into litejobs_runner (id, threads) values (1, 2);"
            "insert into litejobs_claim (runner, slots) values (1, 2)"
        )
    assert ids(db("list", "--state", "processing", "--json")) == [2, 1]
    assert ids(db("list", "--state", "processing", "--before", 2, "--json")) == [1]
    assert ids(db("list", "--state", "pending", "--json")) == [3]


def test_fields_are_those_of_the_api() -> None:
    assert tuple(each.name for each in attrs.fields(JobSnapshot)) == JOB_FIELDS
    assert tuple(each.name for each in attrs.fields(Attempt)) == ATTEMPT_FIELDS


# One job ------------------------------------------------------------------------------


@KEPT_OPEN
def test_show_tells_what_comes_if_all_fails(db: Cli, path: Path) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        with LiteJobs(path) as jobs:

            @jobs.task(retry=Retry.exponential("60s", max_attempts=3, jitter=0))
            def send() -> None: ...

            send.enqueue()
        shown = db("show", 1)
        forecast = document(db("show", 1, "--json"))["forecast"]
    assert [each["at"] for each in forecast["attempts"]] == [
        "2026-01-01T12:00:00.000Z",
        "2026-01-01T12:01:00.000Z",
        "2026-01-01T12:03:00.000Z",
    ]
    assert (forecast["ends"], forecast["stopped_by"]) == (
        "dead_lettered",
        "max_attempts",
    )
    assert "if every further attempt fails" in shown.stdout
    assert "then it is dead_lettered (max_attempts)" in shown.stdout
    # Values that are not set are left out for people.
    assert "\nunique_key" not in shown.stdout


def test_show_has_no_forecast_of_what_has_ended(db: Cli, five: Path) -> None:
    assert document(db("show", 1, "--json"))["forecast"] is None
    assert "if every further" not in db("show", 2).stdout


@KEPT_OPEN
def test_show_names_parents_and_children(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        parent = jobs.enqueue("fetch")
        jobs.enqueue("index", after=[parent])
    shown = document(db("show", 1, "--json"))
    assert shown["parents"] == []
    assert shown["children"] == [{"id": 2, "task": "index", "state": "blocked"}]
    shown = document(db("show", 2, "--json"))
    assert shown["parents"] == [
        {"id": 1, "batch_id": None, "task": "fetch", "state": "pending"}
    ]
    assert "waits for" in db("show", 2).stdout


@KEPT_OPEN
def test_several_jobs_are_told_of_one_after_the_other(db: Cli, five: Path) -> None:
    one, two = (document(db("show", each, "--json")) for each in (1, 2))
    assert document(db("show", 1, 2, 1, "--json")) == {"jobs": [one, two]}
    assert document(db("why", 2, 1, "--json")) == {
        "jobs": [document(db("why", each, "--json")) for each in (2, 1)]
    }
    said = db("why", 1, 2).stdout
    assert said.index("job 1 (good)") < said.index("job 2 (bad)")
    assert db("show", 1, 99).exit_code == 1


@KEPT_OPEN
def test_flags_and_documents_are_such_in_all_columns(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        retry = Retry.fixed([1, 2])
        task = jobs.task(name="send", retry=retry, require=["net"])(lambda: None)
        task.enqueue()
        jobs.enqueue("unknown", queue="mail")
    job = document(db("show", 1, "--json"))["job"]
    assert (job["requires"], job["cancel_requested"]) == (["net"], False)
    assert document(db("show", 2, "--json"))["job"]["given"]["queue"] == "mail"


@KEPT_OPEN
def test_forecast_begins_when_what_holds_the_job_is_over(db: Cli, path: Path) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        with LiteJobs(path) as jobs:

            @jobs.task(retry=Retry.fixed(["60s"], jitter=0))
            def send() -> None: ...

            jobs.queues["default"].set(rate="1/1h")
            send.enqueue()
            jobs.drain()
            send.enqueue()
            with jobs.transaction() as connection:
                connection.execute("insert into litejobs_runner (pid) values (1)")
                connection.execute("update litejobs_task set runner_id = 2")
        found = document(db("show", 2, "--json"))["forecast"]
        assert [each["at"] for each in found["attempts"]] == [
            "2026-01-01T13:00:00.000Z",
            "2026-01-01T13:01:00.000Z",
        ]
        assert found["held_by"] == []
        db("pause", "default")
        shown = db("show", 2)
    held = "nobody knows when it can start: its queue is paused (queue default)\n"
    assert held in shown.stdout
    assert "TRY  NOT BEFORE" in shown.stdout


@KEPT_OPEN
def test_runner_that_is_gone_without_a_word_is_said_first(db: Cli, path: Path) -> None:
    test_running_jobs_are_found_by_their_open_attempts(db, path)
    for job_id in (1, 3):
        said = db("why", job_id).stdout.splitlines()
        gone = "  its runner is gone without a word (runner 1): start a runner"
        assert said[1:] == [gone]
        assert _jobs.GONE in db("show", job_id).stdout.splitlines()[1]
        found = document(db("show", job_id, "--json"))
        assert (found["runner_gone"], found["why"][0]["code"]) == (True, "runner_gone")
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute("update litejobs_runner set stopped_at = started_at")
    assert document(db("why", 1, "--json"))["runner_gone"] is False


@KEPT_OPEN
def test_list_says_what_became_of_jobs_that_have_said_nothing(
    db: Cli, path: Path
) -> None:
    with LiteJobs(path) as jobs:
        parent = jobs.enqueue("send", delay="1h")
        jobs.enqueue("after", after=[parent])
        parent.cancel()
        jobs.enqueue("slip")

        @jobs.task(max_attempts=1)
        def silent() -> None:
            raise OSError

        silent.enqueue()
        jobs.drain()
        with jobs.transaction() as connection:
            connection.execute("insert into litejobs_runner (threads) values (2)")
    notes = [line.split("  ")[-1] for line in db("list").stdout.splitlines()[1:]]
    assert notes == [
        "OSError",
        "no living runner has its task",
        "one that it waited for has failed",
        "-",
    ]


# What people get to see ---------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "on_terminal", lambda: True)
    monkeypatch.setattr(printing, "terminal_columns", lambda: 80)
    monkeypatch.delenv("NO_COLOR", raising=False)


@KEPT_OPEN
def test_terminal_says_when_as_people_do(db: Cli, five: Path, terminal: None) -> None:
    with freeze_time("2026-01-01T12:01:20Z"):
        lines = db("--color", "never", "list").stdout.splitlines()
    due = [line[39:50].strip() for line in lines]
    assert [line.split()[0] for line in lines] == ["ID", "5", "4", "3", "2", "1"]
    head, *due = due
    assert head == "DUE/ENDED"
    assert due == ["18 s ago", "in 4 min", "in 59 min", "18 s ago", "1 min ago"]


@KEPT_OPEN
def test_states_have_colours_where_they_are_wanted(
    db: Cli, five: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def colours(*options: str) -> bool:
        return "\x1b[31m" in db(*options, "list").stdout  # red, of dead_lettered

    assert colours("--color", "always")
    assert not colours("--color", "never")
    monkeypatch.setattr(printing, "on_terminal", lambda: False)
    assert not colours()
    assert colours("--color", "always")


def test_no_color_is_honoured(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with click.Context(main) as context:
        context.params["color"] = "auto"
        assert printing.coloured()
        monkeypatch.setenv("NO_COLOR", "1")
        assert not printing.coloured()
        monkeypatch.setenv("NO_COLOR", "")
        assert printing.coloured()
        context.params["color"] = "always"
        monkeypatch.setenv("NO_COLOR", "1")
        assert printing.coloured()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone is set by tzset")
def test_instants_are_in_the_zone_of_the_machine(
    cli: Cli, five: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITEJOBS_UTC")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        shown = cli("--db", five, "list", "--state", "completed").stdout
        in_utc = cli("--db", five, "--utc", "list", "--state", "completed").stdout
        for_programs = cli("--db", five, "list", "--state", "completed", "--json")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "  ENDED  " in shown
    assert "2026-01-01T13:00:01+01:00" in shown
    assert "2026-01-01T12:00:01Z" in in_utc
    (job,) = document(for_programs)["jobs"]
    assert job["run_at"] == "2026-01-01T12:00:00.000Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.9, "now"),
        (1, "in 1 s"),
        (59.9, "in 59 s"),
        (60, "in 1 min"),
        (-240, "4 min ago"),
        (3_600, "in 1 h"),
        (3_660, "in 1 h 1 min"),
        (-86_399, "23 h 59 min ago"),
        (86_400, "in 1 d"),
        (90_000, "in 1 d 1 h"),
        (8_640_000, "in 100 d"),
    ],
)
def test_spans_are_told_as_people_tell_them(seconds: float, text: str) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert printing.relative(now + dt.timedelta(seconds=seconds), now) == text


# The file -----------------------------------------------------------------------------


def test_only_file_of_the_folder_is_found_when_asked(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    none = cli("--db", "auto", "list")
    assert none.exit_code == 3
    assert "no file in" in none.stderr
    (tmp_path / "notes.txt").write_text("not a database")
    connection = sqlite3.connect(tmp_path / "places.db")
    connection.execute("create table place (name text)")
    connection.close()
    LiteJobs(tmp_path / "app.db").open().close()
    assert cli("--db", "auto", "enqueue", "send").exit_code == 0
    assert ids(cli("--db", "auto", "list", "--json")) == [1]
    LiteJobs(tmp_path / "other.db").open().close()
    both = cli("--db", "auto", "list")
    assert both.exit_code == 3
    assert "2 files in" in both.stderr
    assert "app.db, other.db" in both.stderr


def test_altered_file_is_shown_with_a_warning_and_not_written(
    db: Cli, five: Path
) -> None:
    connection = sqlite3.connect(five)
    connection.execute("drop trigger litejobs_job_state_guard")
    connection.commit()
    connection.close()
    shown = db("list")
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == 6
    assert shown.stderr.startswith("warning: tables, views or triggers of")
    refused = db("enqueue", "send")
    assert refused.exit_code == 3
    assert "litejobs_job_state_guard" in refused.stderr


@pytest.fixture
def file(cli: Cli, five: Path) -> Iterator[reader.Reader]:
    context = click.Context(main)
    context.params |= {"db": str(five), "immutable": False, "timeout": 5.0}
    with context, opening.reading() as found:
        yield found


@for_each(
    "statement",
    [
        "insert into litejobs_fact values ('online', 1, null)",
        "update litejobs_job set priority = 1",
        "delete from litejobs_job",
        "drop table litejobs_job",
        "create table stolen (id)",
        "create temp table kept (id)",
        "attach 'other.db' as other",
        "pragma query_only = 0",
        "pragma journal_mode = delete",
        "pragma wal_checkpoint",
        "pragma data_version = 1",
        "pragma user_version",
        "select 1; delete from litejobs_job",
        "vacuum",
        "reindex",
        "insert into litejobs_settle (attempt, outcome) values (1, '{}')",
    ],
)
def test_reader_refuses_all_but_reading(file: reader.Reader, statement: str) -> None:
    with pytest.raises(apsw.Error):
        file.connection.execute(statement).fetchall()
    assert file.value("count_states") == "completed"


def test_reader_notices_the_commits_of_others(file: reader.Reader, five: Path) -> None:
    before = file.changes()
    assert file.changes() == before
    with LiteJobs(five) as jobs:
        jobs.enqueue("x")
    assert file.changes() != before


def test_look_that_takes_too_long_is_given_up(
    cli: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = (
        "with recursive n (i) as (select 1 union all select i + 1 from n)"
        " select max(i) from n"
    )
    monkeypatch.setitem(statements.queries(), "look_jobs", endless)
    shown = cli("--db", path, "--timeout", "100ms", "list")
    assert shown.exit_code == 3
    assert "took longer than 0.1 s and was given up" in shown.stderr


@for_each("value", ["0", "-1", "x", "0s", "nan"])
def test_timeout_that_is_none_is_wrong_usage(cli: Cli, path: Path, value: str) -> None:
    assert cli("--db", path, "--timeout", value, "list").exit_code == 2


def test_value_larger_than_any_of_ours_is_refused(db: Cli, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("pragma ignore_check_constraints = 1")
    connection.execute(
        "insert into litejobs_fact values (replace(hex(zeroblob(8500000)), '0', 'a'),"
        " 1, null)"
    )
    connection.commit()
    connection.close()
    shown = db("facts")
    assert shown.exit_code == 3
    assert "holds a value of more than 16 MB" in shown.stderr


def test_reader_is_not_in_the_way_of_the_log(five: Path) -> None:
    """Between two readings nothing of the log is held: it can be cut."""
    context = click.Context(main)
    context.params |= {"db": str(five), "immutable": False, "timeout": 5.0}
    with LiteJobs(five) as jobs, context, opening.reading() as file:
        assert len(file.rows("count_states")) == 4
        with jobs.transaction() as connection:
            connection.execute("insert into litejobs_job (task) values ('x')")
        assert file.value("count_states") is not None
        with jobs._store.database.reader():
            pass
        writer = jobs._store.database._writer
        busy, *_ = writer.execute("pragma wal_checkpoint(truncate)").fetchone()
        assert busy == 0


def test_file_on_read_only_media_is_shown_when_asked(cli: Cli, five: Path) -> None:
    """No log and no shared memory can be made beside it."""
    if os.name != "posix" or os.geteuid() == 0:
        pytest.skip("needs a user who is not allowed everything")
    five.parent.chmod(0o500)
    five.chmod(0o400)
    try:
        refused = cli("--db", five, "list")
        shown = cli("--db", five, "--immutable", "list", "--json")
    finally:
        five.parent.chmod(0o700)
        five.chmod(0o600)
    assert refused.exit_code == 3
    assert "--immutable" in refused.stderr
    assert ids(shown) == [5, 4, 3, 2, 1]


def test_immutable_reads_and_never_writes(cli: Cli, five: Path) -> None:
    before = (five.read_bytes(), sorted(five.parent.iterdir()))
    assert ids(cli("--db", five, "--immutable", "list", "--json")) == [5, 4, 3, 2, 1]
    assert (five.read_bytes(), sorted(five.parent.iterdir())) == before
    refused = cli("--db", five, "--immutable", "enqueue", "send")
    assert refused.exit_code == 2
    assert "leave --immutable out" in refused.stderr


def test_since_is_by_the_clock_of_the_file(five: Path) -> None:
    context = click.Context(main)
    context.params |= {"db": str(five), "immutable": False, "timeout": 5.0}
    with freeze_time("2026-01-01T12:00:00Z"), context, opening.reading() as file:
        noon = 1_767_268_800_000
        since = Since()
        hour = since.convert("1h", None, None)
        assert Since.in_ms(hour, file) == noon - 3_600_000
        given = since.convert("2026-01-01T13:00+01:00", None, None)
        assert Since.in_ms(given, file) == noon
        assert Since.in_ms(None, file) is None


def test_list_loads_neither_the_api_nor_its_libraries(five: Path) -> None:
    code = (
        "import sys; from litejobs.cli import main\n"
        "try: main(['--db', sys.argv[1], 'list'])\n"
        "except SystemExit: pass\n"
        "names = ('attr', 'asyncio', 'pathlib', 'logging', 'json', 'hashlib',"
        " 'litejobs._app', 'litejobs._storage.database',"
        " 'litejobs.cli.commands.schedules')\n"
        "print([n for n in names if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(five)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_write_waits_for_its_turn_and_says_so(cli: Cli, five: Path) -> None:
    """Another process has begun to write, and goes on only when it is told."""
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('begin immediate'); print('begun', flush=True);"
        "sys.stdin.readline(); db.execute('commit')"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, five],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "begun\n"
        command = subprocess.Popen(
            [sys.executable, "-m", "litejobs", "--db", five, "pause", "default"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with command:
            assert command.stderr is not None
            said = command.stderr.readline()
            assert said == f"waiting: another process is writing to {five} …\n"
            # Looking is not kept waiting.
            assert cli("--db", five, "list").exit_code == 0
            other.stdin.write("go on\n")
            other.stdin.flush()
            out, err = command.communicate(timeout=60)
    assert (out, err, command.returncode) == ("queue default is paused\n", "", 0)


# What attackers have found ------------------------------------------------------------


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "XST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_look_leaves_the_log_of_an_application_that_died(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    left = tmp_path / "left.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("send")
        for end in ("", "-wal"):  # as a kill leaves them
            shutil.copy(f"{path}{end}", f"{left}{end}")
    before = Path(f"{left}-wal").read_bytes(), left.read_bytes()
    assert before[0]
    assert cli("--db", left, "list").exit_code == 0
    log = Path(f"{left}-wal")
    assert (log.read_bytes() if log.exists() else b"", left.read_bytes()) == before


@pytest.mark.skipif(sys.platform == "win32", reason="time zones of POSIX")
@pytest.mark.usefixtures("tokyo")
def test_last_instant_is_shown_east_of_greenwich(
    cli: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITEJOBS_UTC")
    connection = sqlite3.connect(path)
    connection.execute(
        "insert into litejobs_job (task, run_at) values ('send', 253402300799000)"
    )
    connection.commit()
    connection.close()
    assert cli("--db", path, "list").exit_code == 0


def test_bulk_requeue_of_nothing_has_the_shape_of_one_of_many(
    cli: Cli, path: Path
) -> None:
    shown = cli("--db", path, "requeue", "--state", "completed", "--yes", "--json")
    assert json.loads(shown.stdout) == {"requeued": 0}


def test_job_with_an_infinite_number_is_shown(cli: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("send")
    connection = sqlite3.connect(path)
    connection.execute("pragma ignore_check_constraints = 1")
    connection.execute("update litejobs_job set progress = 9e999")
    connection.commit()
    connection.close()
    shown = cli("--db", path, "show", "1", "--json")
    assert shown.exit_code == 0, shown.stderr


def test_version_in_a_view_is_not_read(cli: Cli, path: Path) -> None:
    """It could be one without an end."""
    connection = apsw.Connection(str(path))
    connection.pragma("writable_schema", 1)
    connection.execute("delete from sqlite_schema where tbl_name = 'litejobs_meta'")
    connection.execute(
        "insert into sqlite_schema values ('view', 'litejobs_meta', 'litejobs_meta', 0,"
        " 'create view litejobs_meta as with recursive c (x) as (select 1 union all"
        " select x + 1 from c) select 1 as id, count(*) as schema_version from c')"
    )
    connection.close()
    for command in (["list"], ["pause", "mail"], ["init"]):
        refused = cli("--db", path, *command)
        assert refused.exit_code == 3
        assert "no version of them" in refused.stderr


def test_clock_that_shows_no_time_is_said(cli: Cli, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("drop view litejobs_clock")
    connection.execute("create view litejobs_clock as select 'noon' as now")
    connection.commit()
    connection.close()
    shown = cli("--db", path, "list")
    assert shown.exit_code == 3
    assert "has a clock that shows no time" in shown.stderr


@KEPT_OPEN
def test_show_has_the_last_of_many_attempts(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:

        @jobs.task(retry=Retry.constant(0, max_attempts=5))
        def bad() -> None:
            raise OSError("no")

        bad.enqueue()
        jobs.drain()
    shown = db("show", 1, "--limit", 2)
    assert "of 5 attempts the last 2: see --limit" in shown.stderr
    assert "the last 2 of what happened" in shown.stderr
    found = document(db("show", 1, "--limit", 2, "--json"))
    assert [each["attempt"] for each in found["attempts"]] == [4, 5]
    assert [each["name"] for each in found["events"]][-1] == "task.failed"


def test_traceback_of_debug_is_not_obeyed_by_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = ValueError("a\x1b[31mb\nc")
    failure._show_traceback(ValueError, error, None)
    assert capsys.readouterr().err == "ValueError: a\\x1b[31mb\nc\n"


def test_closed_input_is_one_where_nobody_can_be_asked(path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("send").cancel()
    code = (
        "import sys; sys.stdin = None; from litejobs.cli import main;"
        f"main(['--db', {str(path)!r}, 'purge', '--all'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert "say --yes" in done.stderr
