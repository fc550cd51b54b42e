"""A file becomes today's in one transaction, or stays exactly as it was."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import litejobs
from litejobs import LiteJobs, _sql
from litejobs.errors import NewerSchema, TamperedSchema

ROOT = Path(litejobs.__file__).parents[1]
SCHEMAS = sorted((ROOT / "tests" / "schemas").glob("*.sql"))

# Views and triggers of some older version, as they are found beside its tables: one
# that exists to this day, and others that do not. `orders` belongs to the application,
# which has a trigger of its own on it.
OLD_LOGIC = """
create view litejobs_clock as select 0 as now;
create view litejobs_old_view as select * from litejobs_job;
create trigger litejobs_old_thing after insert on litejobs_job
begin
    select raise(abort, 'old_thing: should be gone');
end;
create trigger litejobs_old_command instead of insert on litejobs_old_view
begin
    select 1;
end;
create table orders (id integer primary key);
create trigger litejobs_old_guest after insert on orders
begin
    select raise(abort, 'old_guest: should be gone');
end;
create trigger orders_are_sent after insert on orders
begin
    insert into litejobs_job (task, args) values ('send', json_array(new.id));
end;
"""

OLD_ROWS = """
insert into litejobs_meta (id, schema_version, installed_at, salt)
values (1, :version, 1000, 77);
insert into litejobs_queue (name, paused) values ('mail', 1);
insert into litejobs_task (name, queue, max_attempts) values ('send', 'mail', 9);
insert into litejobs_lane (id, queue, task) values (1, 'mail', 'send');
insert into litejobs_runner (token, pid, started_at, seen_at) values ('t', 1, 1, 1);
insert into litejobs_job (
    id, task, queue, lane_id, priority, run_at, created_at, state, attempt_id, starts,
    attempts, finished_at, args
)
values
    (5, 'send', 'mail', 1, 0, 1000, 1000, 'pending', null, 0, 0, null, '["é"]'),
    (9, 'send', 'mail', 1, 3, 1000, 1000, 'completed', 1, 1, 1, 3000, '{"to":"x"}');
insert into litejobs_attempt (
    job_id, start_no, attempt, runner_id, claimed_at, started_at, finished_at, status,
    decision, will_retry, outcome
)
values (9, 1, 1, 1, 2000, 2000, 3000, 'ok', 'complete', 0, '{"status":"ok"}');
insert into litejobs_transition (at, job_id, new_state) values (1000, 5, 'pending');
"""


@contextlib.contextmanager
def opened(path: Path) -> Any:
    """A connection that knows nothing of litejobs, its work all in the one file."""
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("journal_mode", "wal")
        yield connection
    finally:
        connection.close()


def make_old(path: Path, schema: Path) -> None:
    with opened(path) as db, db:
        db.execute(schema.read_text(encoding="utf-8"))
        db.execute(OLD_ROWS, {"version": int(schema.stem)})
        db.execute(OLD_LOGIC)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of the first version, with jobs in it."""
    path = tmp_path / "old.db"
    make_old(path, SCHEMAS[0])
    return path


@pytest.fixture
def today(tmp_path: Path) -> Path:
    """A file of this version, with a job in it."""
    path = tmp_path / "today.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("send")
    return path


def schema_of(path: Path) -> list[Any]:
    with opened(path) as db:
        return db.execute("select type, name, sql from sqlite_schema").fetchall()


def contents(path: Path) -> dict[str, Any]:
    """All rows of all tables, by column, so that columns may be added."""
    with opened(path) as db:
        tables = db.execute(
            "select name from sqlite_schema where type = 'table' order by name"
        )
        found = {}
        for (table,) in tables.fetchall():
            names = [row[1] for row in db.execute(f"pragma table_info ({table})")]
            rows = db.execute(f"select * from {table} order by 1").fetchall()
            found[table] = [dict(zip(names, row, strict=True)) for row in rows]
        return found


def columns(path: Path) -> dict[str, Any]:
    """Name, type, not null, default and key of each column of ours, in order."""
    with opened(path) as db:
        tables = db.execute(
            "select name from sqlite_schema where type = 'table'"
            " and name glob 'litejobs_*'"
        )
        return {
            table: db.execute(f"pragma table_info ({table})").fetchall()
            for (table,) in tables.fetchall()
        }


def refused_untouched(path: Path, kind: type[Exception], sentence: str) -> None:
    before = path.read_bytes()
    with pytest.raises(kind, match=sentence):
        LiteJobs(path).open()
    assert path.read_bytes() == before
    assert {each.name for each in path.parent.iterdir()} == {path.name}


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# An older file


def test_there_is_a_migration_and_an_old_schema_for_every_version() -> None:
    versions = list(range(1, _sql.SCHEMA_VERSION))
    assert [int(path.stem) for path in SCHEMAS] == versions
    texts = [path.read_text(encoding="utf-8") for path in SCHEMAS]
    changed = [
        version + 1
        for version, old, new in zip(
            versions, texts, [*texts[1:], _sql.schema()], strict=True
        )
        if old != new
    ]
    assert [number for number, _ in _sql.migrations(0)] == changed


def test_another_logic_has_another_version() -> None:
    """Or files of those who have this version are refused as tampered with.

    When this fails: has the version been handed out? Then raise SCHEMA_VERSION and put
    the tables as they were into tests/schemas. Write both into the file in any case.
    """
    logic = _sql.expected_fingerprint().encode()
    known = (ROOT / "tests" / "schemas" / "fingerprint.txt").read_text(encoding="utf-8")
    now = f"{_sql.SCHEMA_VERSION} {hashlib.sha256(logic).hexdigest()}\n"
    assert known == now


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_old_file_becomes_exactly_what_a_new_one_is(
    tmp_path: Path, today: Path, schema: Path
) -> None:
    old = tmp_path / "old.db"
    make_old(old, schema)
    LiteJobs(old).open().close()
    with opened(old) as db:
        assert _sql.fingerprint(_sql.objects(db)) == _sql.expected_fingerprint()
        version = db.execute("select schema_version from litejobs_meta").get
        assert version == _sql.SCHEMA_VERSION
        assert db.execute("pragma integrity_check").get == "ok"
        assert db.execute("pragma foreign_key_check").get is None
    assert columns(old) == columns(today)


def test_upgrade_keeps_every_row(old: Path) -> None:
    before = contents(old)
    LiteJobs(old).open().close()
    after = contents(old)
    before["litejobs_meta"][0]["schema_version"] = _sql.SCHEMA_VERSION
    for table, rows in before.items():
        kept = [
            {name: new[name] for name in row}
            for row, new in zip(rows, after[table], strict=True)
        ]
        assert kept == rows, table


def test_upgrade_leaves_what_is_the_applications(old: Path) -> None:
    with LiteJobs(old) as jobs:
        with jobs.transaction() as db:
            db.execute("insert into orders (id) values (7)")
        [job, *_] = jobs.list()
        assert (job.id, job.args, job.max_attempts) == (10, [7], 9)


def test_upgraded_file_runs_its_jobs(old: Path) -> None:
    with LiteJobs(old) as jobs:
        sent = []

        @jobs.task(name="send", queue="mail")
        def send(to: str) -> None:
            sent.append(to)

        assert jobs.drain() == 0, "its queue is still paused"
        jobs.resume("mail")
        assert jobs.drain() == 1
        assert sent == ["é"]


@pytest.mark.parametrize("schema", SCHEMAS[:3], ids=lambda path: path.stem)
def test_job_that_waited_for_nothing_goes_on_after_the_upgrade(
    tmp_path: Path, schema: Path
) -> None:
    """Before a job could wait for another, only a person made it blocked."""
    old = tmp_path / "old.db"
    make_old(old, schema)
    with opened(old) as db:
        db.execute("update litejobs_queue set paused = 0")
        db.execute("update litejobs_job set state = 'blocked' where id = 5")
    with LiteJobs(old) as jobs:
        assert jobs.get(5).state == "scheduled"
        line = jobs.events(job_id=5)[-1]
        assert (line.old_state, line.new_state) == ("blocked", "scheduled")

        @jobs.task(name="send", queue="mail")
        def send(to: str) -> None:
            pass

        assert jobs.drain() == 1
        assert jobs.get(5).state == "completed"


def test_failing_migration_leaves_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = schema_of(old), contents(old), old.read_bytes()
    real = _sql.migrations

    def failing(after: int) -> list[tuple[int, str]]:
        return [*real(after), (99, "create table litejobs_half (x); insert into no;")]

    with monkeypatch.context() as patch:
        patch.setattr(_sql, "migrations", failing)
        with pytest.raises(apsw.SQLError):
            LiteJobs(old).open()
    assert (schema_of(old), contents(old), old.read_bytes()) == before
    LiteJobs(old).open().close()
    assert "litejobs_outbox_delivery" in contents(old)


@pytest.mark.parametrize(
    ("stray", "named"),
    [
        ("create table litejobs_stray (x integer) strict", "litejobs_stray"),
        ("alter table litejobs_runner add column stray text", "litejobs_runner"),
        ("drop index litejobs_attempt_deadline", "litejobs_attempt_deadline"),
        (
            "alter table litejobs_job drop constraint litejobs_job_args_size",
            "litejobs_job",
        ),
    ],
)
def test_migration_that_ends_elsewhere_leaves_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch, stray: str, named: str
) -> None:
    """What is there after an upgrade is compared with what should be, too."""
    before = schema_of(old), contents(old), old.read_bytes()
    real = _sql.migrations

    def straying(after: int) -> list[tuple[int, str]]:
        return [*real(after), (99, stray)]

    with monkeypatch.context() as patch:
        patch.setattr(_sql, "migrations", straying)
        with pytest.raises(TamperedSchema, match=f"{named} is not as litejobs made it"):
            LiteJobs(old).open()
    assert (schema_of(old), contents(old), old.read_bytes()) == before


def test_migration_that_is_missing_leaves_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables are missed by the views and triggers, or else by the comparison."""
    before = schema_of(old), contents(old), old.read_bytes()
    for number, _ in _sql.migrations(1):
        remaining = [each for each in _sql.migrations(1) if each[0] != number]
        with monkeypatch.context() as patch:
            patch.setattr(_sql, "migrations", lambda after, some=remaining: some)
            with pytest.raises((TamperedSchema, apsw.SQLError)):
                LiteJobs(old).open()
        assert (schema_of(old), contents(old), old.read_bytes()) == before


DIE = """
import os, sys
from litejobs import LiteJobs, _sql

step = int(sys.argv[2])
real = _sql.logic

def logic():
    for number, script in enumerate(real()):
        if number == step:
            os._exit(9)
        yield script

_sql.expected_fingerprint()
_sql.logic = logic
LiteJobs(sys.argv[1]).open()
"""


def test_process_that_dies_in_the_upgrade_leaves_the_old_file(old: Path) -> None:
    before = schema_of(old), contents(old)
    for step in (0, 4):
        with python(DIE, old, step) as process:
            _, errors = process.communicate()
        assert (process.returncode, errors) == (9, "")
        assert (schema_of(old), contents(old)) == before
    LiteJobs(old).open().close()
    assert "litejobs_outbox_delivery" in contents(old)


@pytest.mark.parametrize(
    "change",
    [
        "alter table litejobs_job add column more text",
        "drop index litejobs_job_ready",
        "create table litejobs_more (x)",
    ],
)
def test_old_file_with_other_tables_than_it_had_is_refused_untouched(
    old: Path, change: str
) -> None:
    with opened(old) as db:
        db.execute(change)
    refused_untouched(old, TamperedSchema, "is not as litejobs made it")


# Newer, or not as it was


def test_newer_file_is_refused_untouched(today: Path) -> None:
    newer = _sql.SCHEMA_VERSION + 1
    with opened(today) as db:
        db.execute("update litejobs_meta set schema_version = ?", (newer,))
        db.execute("create table litejobs_of_tomorrow (x)")
    sentence = f"has schema version {newer}, this litejobs knows {newer - 1};"
    refused_untouched(today, NewerSchema, sentence)


def test_process_is_told_when_another_upgrades_its_file(today: Path) -> None:
    with LiteJobs(today) as jobs:
        with opened(today) as db:
            db.execute("create table the_applications_own (x)")
        jobs.enqueue("send")
        with opened(today) as db:
            db.execute("update litejobs_meta set schema_version = 99")
            db.execute("create table litejobs_of_tomorrow (x)")
        with pytest.raises(NewerSchema, match="has schema version 99"):
            jobs.enqueue("send")
        assert len(jobs.list()) == 2


def object_text(name: str) -> Callable[[apsw.Connection], str]:
    def read(db: apsw.Connection) -> str:
        return str(
            db.execute("select sql from sqlite_schema where name = ?", (name,)).get
        )

    return read


def change_trigger(db: apsw.Connection) -> None:
    text = object_text("litejobs_job_state_guard")(db)
    db.execute("drop trigger litejobs_job_state_guard")
    db.execute(text.replace("new.state is not old.state", "new.state < old.state", 1))


def change_view(db: apsw.Connection) -> None:
    db.execute(
        "drop view litejobs_clock; create view litejobs_clock as select 5 as now"
    )


def loosen_check(db: apsw.Connection) -> None:
    """What nobody does by accident: the text of a table edited in place."""
    db.pragma("writable_schema", True)
    db.execute(
        "update sqlite_schema set sql = "
        "replace(sql, 'max_attempts between 0', 'max_attempts between -1')"
        " where name = 'litejobs_job'"
    )
    db.pragma("writable_schema", False)


ADD_TRIGGER = """
create trigger litejobs_more after insert on litejobs_job begin select 1; end
"""


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (change_trigger, "litejobs_job_state_guard"),
        (change_view, "litejobs_clock"),
        (loosen_check, "litejobs_job"),
        ("create view litejobs_more as select 1", "litejobs_more"),
        ("create table litejobs_more (x)", "litejobs_more"),
        (ADD_TRIGGER, "litejobs_more"),
        ("alter table litejobs_job add column more text", "litejobs_job"),
        ("alter table litejobs_job rename column step to label", "litejobs_assignment"),
        ("alter table litejobs_runner rename to litejobs_walker", "litejobs_"),
        ("delete from litejobs_meta", "no version of them"),
        ("drop table litejobs_meta", "no version of them"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_tampered_file_is_refused_untouched(
    today: Path, change: str | Callable[[apsw.Connection], None], named: str
) -> None:
    with opened(today) as db:
        if callable(change):
            change(db)
        else:
            # As another program would find it: triggers are not asked first.
            db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            db.execute("pragma legacy_alter_table = 1")
            db.execute(change)
    refused_untouched(today, TamperedSchema, named)


def test_any_one_of_our_objects_that_is_missing_is_noticed(today: Path) -> None:
    with opened(today) as db:
        objects = [
            (kind, name)
            for kind, name, _ in _sql.objects(db)
            if kind in {"trigger", "view", "index"}
        ]
        assert len(objects) > 300
        for kind, name in objects:
            db.execute("begin")
            db.execute(f"drop {kind} {name}")
            assert not _sql.is_as_made(db), name
            db.execute("rollback")
        assert _sql.is_as_made(db)


@pytest.mark.parametrize("kind", ["trigger", "view", "index"])
def test_file_without_one_of_our_objects_is_refused_untouched(
    today: Path, kind: str
) -> None:
    with opened(today) as db:
        for each, name, _ in _sql.objects(db):
            if each == kind:
                db.execute(f"drop {kind} {name}")
                break
    refused_untouched(today, TamperedSchema, f"{name}.* is not as litejobs made it")


def test_process_is_told_when_its_file_is_tampered_with(today: Path) -> None:
    with LiteJobs(today) as jobs:
        with opened(today) as db:
            db.execute("drop trigger litejobs_job_state_guard")
        with pytest.raises(TamperedSchema, match="litejobs_job_state_guard"):
            jobs.enqueue("send")
        assert len(jobs.list()) == 1


def test_layout_and_comments_are_no_tampering(today: Path) -> None:
    """SQLite's shell keeps the text of a script, and others may reformat it."""
    with opened(today) as db:
        text = object_text("litejobs_job_ready")(db)
        db.execute("drop index litejobs_job_ready")
        db.execute(text.replace("\n", "  -- a comment\n\n\t"))
    LiteJobs(today).open().close()


# All at once

OPEN = """
import sys
from litejobs import LiteJobs

print("ready", flush=True)
sys.stdin.readline()
with LiteJobs(sys.argv[1]) as jobs:
    jobs.enqueue("send")
"""


def open_at_once(path: Path, count: int) -> list[str]:
    """What each of *count* processes complained of."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(python(OPEN, path)) for _ in range(count)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.communicate()[1] for process in processes]


def test_eight_processes_make_one_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert open_at_once(path, 8) == [""] * 8
    with LiteJobs(path) as jobs:
        assert len(jobs.list()) == 8


def test_four_processes_upgrade_one_old_file(old: Path) -> None:
    assert open_at_once(old, 4) == [""] * 4
    with LiteJobs(old) as jobs:
        assert len(jobs.list()) == 6
