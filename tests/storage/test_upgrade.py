"""A file becomes today's in one transaction, or stays exactly as it was.

Older files are made by the code as it is; the newer code that upgrades them has a
schema that comes after today's (`tests/schemas/tomorrow.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

import litejobs
from litejobs import LiteJobs, Retry, every
from litejobs._storage import statements
from litejobs.cli import main
from litejobs.errors import FileRefused, NewerSchema, TamperedSchema
from tests.rows import for_each
from tests.schemas import books, tomorrow
from tests.waiting import LONG

ROOT = Path(litejobs.__file__).parents[1]

# The application's own: tables, and triggers on them and on ours.
APPLICATION = """
create table orders (id integer primary key, note text);
create view orders_of_jobs as select * from litejobs_job join orders;
create trigger orders_are_sent after insert on orders
begin
    insert into litejobs_job (task, args) values ('send', json_array(new.note));
end;
create table heard (what text);
create trigger jobs_are_heard after update on litejobs_job
begin
    insert into heard values (new.task || ' ' || old.priority || ' ' || new.priority);
end;
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


@pytest.fixture
def newer(old: Path, next_sql: Path) -> Iterator[None]:
    """Once there is an old file, the code of this process is the newer one."""
    with tomorrow.instead(next_sql):
        yield


def make_old(path: Path) -> None:
    """A file of today with jobs in most states, and an application's own tables."""
    with LiteJobs(path) as jobs:

        @jobs.task(name="send", queue="mail", max_attempts=9)
        def send(to: str) -> str:
            return to

        @jobs.task(name="fail", retry=Retry(max_attempts=2))
        def fail() -> None:
            raise ValueError("no")

        jobs.schedules.create("hourly", "send", every("1h"), args=["x"])
        send.enqueue("x")
        fail.enqueue()
        jobs.enqueue("cancelled").cancel()
        jobs.drain()
        jobs.pause("mail")
        send.enqueue("é")
        send.using(delay="1h").enqueue("later")
    with opened(path) as db:
        db.execute(APPLICATION)


@pytest.fixture(scope="session")
def made_old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "old.db"
    make_old(path)
    return path


@pytest.fixture
def old(made_old: Path, tmp_path: Path) -> Path:
    """A file of the version before."""
    return Path(shutil.copy(made_old, tmp_path))


@pytest.fixture(scope="session")
def upgraded(
    made_old: Path, next_sql: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the newer code has made of that file; to be read."""
    path = Path(shutil.copy(made_old, tmp_path_factory.mktemp("upgraded")))
    with tomorrow.instead(next_sql):
        LiteJobs(path).open().close()
    return path


@pytest.fixture(scope="session")
def made_today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "today.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("send")
    return path


@pytest.fixture
def today(made_today: Path, tmp_path: Path) -> Path:
    """A file of this version, with a job in it."""
    return Path(shutil.copy(made_today, tmp_path))


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
    """Nobody can open the file, and it stays what it was, byte for byte."""
    before = path.read_bytes(), sorted(path.parent.iterdir())
    with pytest.raises(kind, match=sentence) as refused:
        LiteJobs(path).open()
    assert type(refused.value) is kind
    assert str(refused.value).isprintable()
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == before


def python(
    program: str, *arguments: object, sql: Path | None = None
) -> subprocess.Popen[str]:
    """A program, whose `sql/` is that folder if one is given."""
    if sql is not None:
        program = f"""
from litejobs._storage import statements
for each in vars(statements).values():
    if hasattr(each, "cache_clear"):
        each.cache_clear()
statements._folder = lambda: {str(sql)!r}
{program}"""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# The books ----------------------------------------------------------------------------


def test_objects_are_those_that_were_written_down() -> None:
    """Or files of those who have this version are refused as tampered with.

    When this fails: python -m tests.schemas freeze
    """
    today = statements.current_version()
    assert statements.versions()[today] == books._of_today()
    assert list(statements.versions()) == list(range(1, today + 1))


def test_new_file_holds_what_each_statement_would_have_made(tmp_path: Path) -> None:
    """In an empty file, views and triggers are written as text: the same text.

    Their order there is the one in which they take the fewest pages.
    """
    stored = "select type, name, tbl_name, rootpage = 0, sql from sqlite_schema"
    one, other, shared = (
        apsw.Connection(str(tmp_path / name)) for name in ("one", "other", "shared")
    )
    statements.create(one)
    statements.create_first(other)
    made = one.execute(stored).fetchall()
    assert sorted(map(repr, other.execute(stored))) == sorted(map(repr, made))
    assert not other.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, -1)
    assert other.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    # And in a file that an application has already.
    shared.execute("create table mine (a); create view ours as select a from mine")
    with LiteJobs(tmp_path / "shared") as jobs:
        jobs.open()
    assert shared.execute(stored).fetchall()[2:] == made


def test_released_versions_stay_what_they_were() -> None:
    released = books.released()
    today = statements.current_version()
    assert set(released) >= statements.versions().keys() - {today}
    for version, path in released.items():
        with contextlib.closing(apsw.Connection(":memory:")) as db:
            db.execute(path.read_text(encoding="utf-8"))
            assert statements.is_as_made(db, version), f"{path}: git checkout it"


def test_file_of_each_released_version_becomes_what_a_new_one_is() -> None:
    for version, path in books.released().items():
        books.check_upgrade(path, version)


def test_migrations_lead_to_versions_that_there_are() -> None:
    numbers = [number for number, _ in statements.migrations(0)]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(statements.versions()) - {1}


@pytest.fixture
def draft(tmp_path: Path) -> Iterator[Path]:
    """The code of this process has a `sql/` of its own that one can write to."""
    sql = tmp_path / "sql"
    shutil.copytree(statements.directory(), sql)
    (tmp_path / "copies").mkdir()
    with tomorrow.instead(sql):
        yield sql


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy of today's version, as a release would keep it."""
    folder = tmp_path_factory.mktemp("copies")
    books.release(folder)
    [copy] = folder.iterdir()
    return copy


def add(draft: Path, name: str, text: str) -> None:
    path = draft / name
    path.parent.mkdir(exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(before + text, encoding="utf-8")


VIEW = "\n-- A view.\ncreate view litejobs_more as select 1 as one;\n"
TABLE = "\n-- A table.\ncreate table litejobs_more (x integer) strict;\n"
MIGRATION = f"migrations/{tomorrow.VERSION:04}_more.sql"


def frozen(draft: Path) -> str:
    return books.freeze(draft.parent / "copies")


def test_freeze_rewrites_a_version_that_nobody_has(draft: Path) -> None:
    before = statements.versions()
    assert frozen(draft) == f"version {tomorrow.TODAY} is as it was"
    add(draft, "logic/tick/views.sql", VIEW)
    assert frozen(draft).startswith(f"version {tomorrow.TODAY} is ")
    assert list(statements.versions()) == list(before)
    assert statements.versions() != before
    assert frozen(draft) == f"version {tomorrow.TODAY} is as it was"


def test_freeze_writes_what_a_merge_has_left(draft: Path) -> None:
    books_of_both = "<<<<<<< one\n1 a b\n=======\n1 c d\n>>>>>>> other\n"
    (draft / "versions.txt").write_text(books_of_both)
    statements.versions.cache_clear()
    frozen(draft)
    statements.versions.cache_clear()
    assert statements.versions() == {1: books._of_today()}


def test_freeze_begins_a_version_after_a_release(draft: Path) -> None:
    books.release(draft.parent / "copies")
    before = statements.versions()
    assert frozen(draft) == f"version {tomorrow.TODAY} is as it was"
    add(draft, "logic/tick/views.sql", VIEW)
    assert frozen(draft).startswith(f"version {tomorrow.VERSION} is ")
    assert statements.versions() == before | {tomorrow.VERSION: books._of_today()}
    # Until that is released, too.
    add(draft, "logic/tick/views.sql", VIEW.replace("more", "still_more"))
    assert frozen(draft).startswith(f"version {tomorrow.VERSION} is ")
    assert len(statements.versions()) == len(before) + 1


def test_release_is_of_what_was_frozen(draft: Path) -> None:
    add(draft, "logic/tick/views.sql", VIEW)
    with pytest.raises(books.Unlike, match="freeze comes first"):
        books.release(draft.parent / "copies")
    assert not list((draft.parent / "copies").iterdir())


FACT = ("schema/gate.sql", "    value integer not null,", "    more text,\n")
ADD = "alter table litejobs_fact add column more text;"


@pytest.mark.parametrize(
    ("change", "migration", "sentences"),
    [
        (
            # A column that is not the last one.
            lambda text: text.replace(
                "    value integer not null,\n    origin text constraint litejobs_fact",
                "    more text,\n    value integer not null,\n"
                "    origin text constraint litejobs_fact",
            ),
            "alter table litejobs_fact add column more text;",
            [
                "litejobs_fact\n",
                "  upgraded: value integer not null,origin text constraint",
                "  new:      more text,value integer not null,origin text",
                "a new column is the last column",
            ],
        ),
        (
            # A constraint that was changed where it stood.
            lambda text: text.replace(
                "litejobs_fact_value_is_flag check (value in (0, 1))",
                "litejobs_fact_value_is_flag check (value in (0, 1, 2))",
            ).replace(
                "litejobs_fact_name_length check (length(name) between 1 and 200)",
                "litejobs_fact_name_length check (length(name) between 1 and 300)",
            ),
            "alter table litejobs_fact drop constraint litejobs_fact_value_is_flag;"
            "alter table litejobs_fact add constraint litejobs_fact_value_is_flag "
            "check (value in (0, 1, 2));",
            [
                "  upgraded: name)between 1 and 200)",
                "  new:      name)between 1 and 300)",
                "changed or added is the last constraint",
            ],
        ),
        (
            lambda text: text + TABLE,
            None,
            [
                "litejobs_more\n  upgraded: (is not there)\n"
                "  new:      CREATE TABLE litejobs_more(x integer)strict",
                "Migrations are in sql/migrations",
            ],
        ),
        (
            lambda text: text + "\n",
            TABLE,
            [
                "  upgraded: CREATE TABLE litejobs_more(x integer)strict\n"
                "  new:      (is not there)"
            ],
        ),
        (lambda text: text, "insert into nowhere values (1);", ["no such table"]),
    ],
    ids=["column", "constraint", "no migration", "no table", "fails"],
)
def test_freeze_shows_where_an_old_file_would_become_another(
    draft: Path,
    released: Path,
    change: Callable[[str], str],
    migration: str | None,
    sentences: list[str],
) -> None:
    shutil.copy(released, draft.parent / "copies")
    before = (draft / "versions.txt").read_text()
    add(draft, "logic/tick/views.sql", VIEW.replace("more", "a_new_version"))
    schema = draft / "schema" / "gate.sql"
    schema.write_text(change(schema.read_text("utf-8")), "utf-8")
    if migration is not None:
        add(draft, MIGRATION, migration)
    with pytest.raises(books.Unlike) as unlike:
        frozen(draft)
    for sentence in sentences:
        assert sentence in str(unlike.value)
    assert (draft / "versions.txt").read_text() == before


# An older file ------------------------------------------------------------------------


@pytest.mark.usefixtures("newer")
def test_old_file_becomes_exactly_what_a_new_one_is(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    LiteJobs(new).open().close()
    LiteJobs(old).open().close()
    with opened(old) as db:
        assert statements.is_as_made(db)
        version = db.execute("select schema_version from litejobs_meta").get
        assert version == tomorrow.VERSION
        assert db.execute("pragma integrity_check").get == "ok"
        assert db.execute("pragma foreign_key_check").get is None
        with opened(new) as other:
            made = statements.objects(other)
        assert statements.objects(db) != made, "alter table lays texts out anew"
        assert books.first_difference(statements.objects(db), made) is None
    assert columns(old) == columns(new)
    # And is opened again, which finds nothing to do.
    before = old.read_bytes()
    with LiteJobs(old) as jobs:
        assert jobs.list()
    assert old.read_bytes() == before


def test_upgrade_keeps_every_row(old: Path, upgraded: Path) -> None:
    before, after = contents(old), contents(upgraded)
    before["litejobs_meta"][0]["schema_version"] = tomorrow.VERSION
    # It has been moved, and knows that.
    before["litejobs_meta"][0]["path"] = str(upgraded)
    for row in before["litejobs_job"]:
        if (row["task"], row["state"]) == ("send", "pending"):
            row["priority"] = 7  # as the migration says
    assert {row["state"] for row in before["litejobs_job"]} == {
        *("pending", "scheduled", "completed", "cancelled", "failed")
    }
    assert [row["colour"] for row in after["litejobs_runner"]] == ["green"]
    for table, rows in before.items():
        kept = [
            {name: new[name] for name in row}
            for row, new in zip(rows, after[table], strict=True)
        ]
        assert kept == rows, table


@pytest.mark.usefixtures("newer")
def test_upgrade_leaves_what_is_the_applications(old: Path) -> None:
    own = "name glob 'orders*' or name glob '*hear*'"
    asked = f"select type, name, sql from sqlite_schema where {own}"
    with opened(old) as db:
        before = db.execute(asked).fetchall()
        assert len(before) == 5
    with LiteJobs(old) as jobs:
        with jobs.transaction() as db:
            assert db.execute(asked).fetchall() == before
            assert db.execute("select * from heard").fetchall() == []
            db.execute("insert into orders (note) values ('y')")
        [job, *_] = jobs.list()
        assert (job.task, job.args, job.max_attempts) == ("send", ["y"], 9)
        jobs.get(job.id).cancel()
        with jobs.transaction() as db:
            assert db.execute("select count(*) from heard").get > 0


def test_nobody_hears_of_what_a_migration_does(old: Path, upgraded: Path) -> None:
    """Neither our triggers nor the application's: nothing happens to the job."""
    before, after = contents(old), contents(upgraded)
    assert {row["priority"] for row in after["litejobs_job"]} == {0, 7}
    for table in ("heard", "litejobs_line", "litejobs_lane"):
        assert after[table] == before[table]


def test_old_views_and_triggers_are_gone_and_new_ones_are_there(
    old: Path, upgraded: Path
) -> None:
    before = {name for _, name, _ in schema_of(old)}
    after = {name for _, name, _ in schema_of(upgraded)}
    assert before - after == {tomorrow.OLD_VIEW, tomorrow.OLD_TRIGGER}
    assert after - before == {
        *(tomorrow.NEW_VIEW, tomorrow.NEW_TRIGGER),
        *("litejobs_day", "litejobs_day_of_name"),
    }
    with (
        opened(upgraded) as db,
        pytest.raises(apsw.ConstraintError, match="one of sch"),
    ):
        db.execute("update litejobs_job set state = 'strange'")


@pytest.mark.usefixtures("newer")
def test_upgraded_file_runs_its_jobs(old: Path) -> None:
    with LiteJobs(old) as jobs:
        sent = []

        @jobs.task(name="send", queue="mail")
        def send(to: str) -> None:
            sent.append(to)

        assert jobs.drain() == 0, "its queue is still paused"
        assert "queue_paused" in str(jobs.get(jobs.list(state="pending")[0].id).why())
        jobs.resume("mail")
        assert jobs.drain() == 1
        assert sent == ["é"]


@contextlib.contextmanager
def migrating(*scripts: str, real: bool = True) -> Iterator[None]:
    """The migration has these at its end, or instead of what it says."""
    found = statements.migrations(0) if real else []
    more = [(tomorrow.VERSION, each) for each in scripts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "migrations", lambda after: [*found, *more])
        yield


@pytest.mark.usefixtures("newer")
def test_failing_migration_leaves_the_old_file(old: Path) -> None:
    sentence = (
        f"cannot be upgraded from schema version {tomorrow.TODAY} to "
        f"{tomorrow.VERSION} \\(no such table: no\\) and was left as it was; "
    )
    with migrating("create table litejobs_half (x); insert into no values (1);"):
        refused_untouched(old, FileRefused, sentence)
    LiteJobs(old).open().close()
    assert "litejobs_day" in contents(old)


@pytest.mark.usefixtures("newer")
@for_each(
    "stray, named",
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
    old: Path, stray: str, named: str
) -> None:
    """What is there after an upgrade is compared with what should be, too."""
    with migrating(stray):
        refused_untouched(old, TamperedSchema, f"{named} is not as litejobs made it")


@pytest.mark.usefixtures("newer")
def test_migration_that_is_missing_leaves_the_old_file(old: Path) -> None:
    with migrating(real=False):
        refused_untouched(old, TamperedSchema, "is not as litejobs made it")


@pytest.mark.usefixtures("newer")
def test_view_of_the_application_in_the_way_leaves_the_old_file(old: Path) -> None:
    """ALTER TABLE reads every view when a name changes, and ours are gone just then."""
    with opened(old) as db:
        db.execute(f"create view orders_held as select * from {tomorrow.OLD_VIEW}")
    with migrating("alter table litejobs_day rename column name to title"):
        refused_untouched(old, FileRefused, "cannot be upgraded .* view orders_held")


DIE = """
import os, sys
from litejobs import LiteJobs
from litejobs._storage import statements

step = int(sys.argv[2])
real = statements.logic

def logic():
    for number, script in enumerate(real()):
        if number == step:
            os._exit(9)
        yield script

statements.changes([])
statements.logic = logic
LiteJobs(sys.argv[1]).open()
"""


def test_process_that_dies_in_the_upgrade_leaves_the_old_file(
    old: Path, next_sql: Path
) -> None:
    before = schema_of(old), contents(old)
    for step in (0, 4):
        with python(DIE, old, step, sql=next_sql) as process:
            _, errors = process.communicate(timeout=LONG)
        assert (process.returncode, errors) == (9, "")
        assert (schema_of(old), contents(old)) == before
    with tomorrow.instead(next_sql):
        LiteJobs(old).open().close()
    assert "litejobs_day" in contents(old)


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize(
    "change",
    [
        "alter table litejobs_job add column more text",
        "drop index litejobs_job_ready",
        "create table litejobs_more (x)",
        "create table LiteJobs_more (x)",
        "create view litejobs_more as select 1",
        "drop view litejobs_why",
        "drop trigger litejobs_job_state_guard",
        "create trigger litejobs_guest after insert on orders begin select 1; end",
        "create index litejobs_more on orders (id)",
        "drop view litejobs_clock; create view litejobs_clock as select 0 as now",
    ],
)
def test_old_file_with_other_objects_than_it_had_is_refused_untouched(
    old: Path, change: str
) -> None:
    with opened(old) as db:
        db.execute(change)
    sentence = (
        f"has schema version {tomorrow.TODAY}, and its tables, views or triggers named "
        "litejobs_… are not those of that version"
    )
    refused_untouched(old, TamperedSchema, sentence)


@pytest.mark.usefixtures("newer")
def test_old_file_with_another_layout_is_upgraded(old: Path) -> None:
    with opened(old) as db:
        for name in (tomorrow.OLD_VIEW, "litejobs_job_ready"):
            kind, text = db.execute(
                "select type, sql from sqlite_schema where name = ?", (name,)
            ).get
            db.execute(f"drop {kind} {name}")
            db.execute(text.replace("\n", "  -- it's a comment\r\n\t/* 'and */ "))
    LiteJobs(old).open().close()
    assert "litejobs_day" in contents(old)


@pytest.mark.usefixtures("newer")
def test_file_that_changes_before_the_lock_is_had_is_looked_at_again(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found before is of a moment ago."""
    from litejobs._storage import schema as _schema

    real = _schema._use_wal

    def meanwhile(connection: apsw.Connection, path: str) -> None:
        real(connection, path)
        with opened(old) as db:
            db.execute("create view litejobs_more as select 1")

    monkeypatch.setattr(_schema, "_use_wal", meanwhile)
    before = contents(old)
    with pytest.raises(TamperedSchema, match="are not those of that version"):
        LiteJobs(old).open()
    assert contents(old) == before


@pytest.mark.usefixtures("newer")
def test_command_line_says_what_it_finds_and_upgrades_by_init_alone(old: Path) -> None:
    def run(*command: str) -> Any:
        return CliRunner().invoke(main, ["--db", str(old), *command])

    before = old.read_bytes()
    shown = run("doctor")
    assert shown.exit_code == 0
    assert (
        f"note     the file has schema version {tomorrow.TODAY}, this litejobs has "
        f"{tomorrow.VERSION}\n         -> it is upgraded when"
    ) in shown.stdout
    refused = run("list")
    assert refused.exit_code == 3
    assert f"has schema version {tomorrow.TODAY}, this litejobs" in refused.stderr
    assert refused.stderr.endswith(" init\n")
    assert old.read_bytes() == before
    assert run("init").stdout == (
        f"{old} was upgraded (schema version {tomorrow.TODAY} to {tomorrow.VERSION})\n"
    )
    assert run("list").exit_code == 0
    assert f"schema version {tomorrow.VERSION}, as it was made" in run("doctor").stdout


# Newer, or not as it was ------------------------------------------------------------


def test_newer_file_is_refused_untouched(today: Path) -> None:
    newer = statements.current_version() + 1
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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "update litejobs_meta set schema_version = 0",
            "has schema version 0 now, .* an older file has taken its place; restart",
        ),
        (
            "drop table litejobs_meta",
            r"were dropped \(litejobs_meta\); restore a backup",
        ),
    ],
)
def test_process_is_told_that_its_file_is_an_older_one(
    today: Path, change: str, sentence: str
) -> None:
    with LiteJobs(today) as jobs:
        jobs.enqueue("send")
        with opened(today) as db:
            db.execute("drop trigger if exists litejobs_meta_update_guard")
            db.execute(change)
        with pytest.raises(FileRefused, match=sentence) as caught:
            jobs.enqueue("send")
        assert not isinstance(caught.value, NewerSchema)


def test_process_is_told_that_its_file_has_lost_its_tables(
    today: Path, tmp_path: Path
) -> None:
    """Its pages were replaced by those of another database, as `.restore` does it."""
    with contextlib.closing(apsw.Connection(str(tmp_path / "other.db"))) as other:
        with opened(today) as db:
            other.pragma("page_size", db.pragma("page_size"))
        other.execute("create table theirs (x)")
        with LiteJobs(today) as jobs:
            jobs.enqueue("send")
            with opened(today) as db, db.backup("main", other, "main") as backup:
                backup.step()
            with pytest.raises(FileRefused, match="has no jobs tables any more; put"):
                jobs.enqueue("send")


def object_text(name: str) -> Callable[[apsw.Connection], str]:
    def read(db: apsw.Connection) -> str:
        return str(
            db.execute("select sql from sqlite_schema where name = ?", (name,)).get
        )

    return read


def change_trigger(db: apsw.Connection) -> None:
    text = object_text("litejobs_job_state_guard")(db)
    db.execute("drop trigger litejobs_job_state_guard")
    db.execute(
        text.replace("new.state is not 'processing'", "new.state < 'processing'", 1)
    )


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
        ("drop table litejobs_meta", "some of the tables of litejobs were dropped"),
        ("drop table litejobs_job", "some of the tables of litejobs were dropped"),
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


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.torture)])
def test_any_one_of_our_objects_that_is_missing_is_noticed(
    today: Path, step: int
) -> None:
    with opened(today) as db:
        objects = [
            (kind, name)
            for kind, name, _ in statements.objects(db)
            if kind in {"trigger", "view", "index"}
        ]
        assert len(objects) > 300
        # As `drop` does it, but SQLite does not read the others anew each time.
        db.pragma("writable_schema", True)
        for kind, name in sorted(objects)[::step]:
            db.execute("begin")
            db.execute(
                "delete from sqlite_schema where (type, name) = (?, ?)", (kind, name)
            )
            assert db.changes() == 1
            assert not statements.is_as_made(db), name
            db.execute("rollback")
        assert statements.is_as_made(db)


@pytest.mark.parametrize("kind", ["trigger", "view", "index"])
def test_file_without_one_of_our_objects_is_refused_untouched(
    today: Path, kind: str
) -> None:
    with opened(today) as db:
        for each, name, _ in statements.objects(db):
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


# All at once --------------------------------------------------------------------------

OPEN = """
import sys
from litejobs import LiteJobs

print("ready", flush=True)
sys.stdin.readline()
with LiteJobs(sys.argv[1]) as jobs:
    jobs.enqueue("send")
"""


def open_at_once(path: Path, count: int, sql: Path | None = None) -> list[str]:
    """What each of *count* processes complained of."""
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(python(OPEN, path, sql=sql)) for _ in range(count)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.communicate(timeout=LONG)[1] for process in processes]


@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.torture)])
def test_many_processes_make_one_new_file(tmp_path: Path, count: int) -> None:
    path = tmp_path / "new.db"
    assert open_at_once(path, count) == [""] * count
    with LiteJobs(path) as jobs:
        assert len(jobs.list()) == count


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.torture)])
def test_several_processes_upgrade_one_old_file(
    old: Path, next_sql: Path, count: int
) -> None:
    before = len(contents(old)["litejobs_job"])
    assert open_at_once(old, count, next_sql) == [""] * count
    with tomorrow.instead(next_sql), LiteJobs(old) as jobs:
        assert len(jobs.list()) == before + count


def test_process_of_the_version_before_is_told_when_its_file_is_upgraded(
    today: Path, next_sql: Path
) -> None:
    with LiteJobs(today) as jobs:
        jobs.enqueue("send")
        assert open_at_once(today, 1, next_sql) == [""]
        with pytest.raises(NewerSchema, match=f"schema version {tomorrow.VERSION}"):
            jobs.enqueue("send")
        assert len(jobs.list()) == 3
