"""`litejobs schema`: the SQL of the file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import apsw
import pytest

from litejobs._storage import statements
from tests.cli.calls import Cli


def objects(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(
        connection.execute(
            "select type, name from sqlite_schema where name glob 'litejobs_*' "
            "and sql is not null"
        ).fetchall()
    )


def test_it_can_be_read_by_another_client(cli: Cli, path: Path) -> None:
    """In the order in which it is printed; what it makes takes a job."""
    for options in ((), ("--db", path)):
        shown = cli(*options, "schema")
        assert shown.exit_code == 0, shown.output
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            db.executescript(shown.stdout)
            assert len(objects(db)) > 100
            db.execute("insert into litejobs_job (task) values ('a')")
            with contextlib.closing(sqlite3.connect(path)) as original:
                assert objects(db) == objects(original)


def test_the_package_and_a_new_file_say_the_same(cli: Cli, path: Path) -> None:
    assert cli("schema").stdout == cli("--db", path, "schema").stdout


@pytest.mark.parametrize(
    ("what", "kinds"),
    [
        ("tables", {"table", "index"}),
        ("views", {"view"}),
        ("triggers", {"trigger"}),
        ("all", {"table", "index", "view", "trigger"}),
    ],
)
def test_only_what_is_asked_for_is_printed(
    cli: Cli, what: str, kinds: set[str]
) -> None:
    document = json.loads(cli("schema", "--what", what, "--json").stdout)
    found = document["schema"]
    assert {each["type"] for each in found} == kinds
    assert all(set(each) == {"type", "name", "sql"} for each in found)


def test_one_object_is_printed_by_its_name(cli: Cli, path: Path) -> None:
    shown = cli("--db", path, "schema", "litejobs_clock")
    assert shown.stdout.startswith("CREATE VIEW litejobs_clock as\n")
    assert shown.stdout.endswith(" as now;\n\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("litejobs_jab",),
            "litejobs has no object 'litejobs_jab'; did you mean litejobs_job?",
        ),
        (
            ("x", "--what", "views"),
            "litejobs has no view 'x'; leave NAME out to see them all",
        ),
        (
            ("litejobs_job", "--what", "views"),
            "litejobs_job is none of the views of litejobs; leave --what out",
        ),
    ],
)
def test_an_unknown_name_is_refused(
    cli: Cli, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = cli("schema", *arguments)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == f"Error: {sentence}\n"


def test_a_file_without_jobs_has_nothing_to_print(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    refused = cli("--db", tmp_path / "empty.db", "schema")
    assert refused.exit_code == 1
    assert refused.stderr.endswith("empty.db has no objects of litejobs\n")


def test_a_file_that_cannot_be_read_is_refused(cli: Cli, path: Path) -> None:
    assert cli("--db", path.parent / "no.db", "schema").exit_code == 3
    path.write_bytes(b"x" * 5000)
    refused = cli("--db", path, "schema")
    assert refused.exit_code == 3
    assert refused.stderr.endswith("name another file, or move it away\n")


def test_a_file_of_another_version_is_printed_as_it_is(cli: Cli, path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("update litejobs_meta set schema_version = 1")
        db.execute("drop view litejobs_why; create view litejobs_why as select 1")
    shown = cli("--db", path, "schema", "litejobs_why")
    assert shown.stdout == "CREATE VIEW litejobs_why as select 1;\n\n"


def test_hostile_text_is_escaped(cli: Cli, path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute('create view litejobs_mine as select 1 as "\x1b[2J\u202e"')
    shown = cli("--db", path, "schema", "litejobs_mine").stdout
    assert shown == ('CREATE VIEW litejobs_mine as select 1 as "\\x1b[2J\\u202e";\n\n')


MARK = "select 'done'"


def retold(path: Path, text: str) -> None:
    """An object whose text in the file is this, as SQLite reads it up to its end."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create view litejobs_mine as select 1 as one")
        db.execute("create view litejobs_then as select ' */; select ''done''; --'")
        db.execute("create table mine (a)")
        db.execute(
            "create trigger litejobs_trigger after insert on mine begin select 1; end"
        )
        kind = "trigger" if " trigger " in text else "view"
        name = {"trigger": "litejobs_trigger", "view": "litejobs_mine"}[kind]
        db.pragma("writable_schema", True)
        db.execute("update sqlite_schema set sql = ? where name = ?", (text, name))


@pytest.mark.parametrize(
    "text",
    [
        f"create view litejobs_mine as select 1 as one; {MARK}",
        f"create view litejobs_mine as select 1 as one;\n.print {MARK}\n",
        f"create view litejobs_mine as select ';' as one -- it's\n; {MARK}",
        f"create view litejobs_mine as select 1 as one\0; {MARK}",
        "create view litejobs_mine as select 1 as one /*",
        "create trigger litejobs_trigger after insert on mine begin select 1; end"
        f"; {MARK}; end",
    ],
)
def test_what_is_behind_the_end_of_a_statement_is_not_printed(
    cli: Cli, path: Path, text: str
) -> None:
    """A shell that is given what is printed would do that, too."""
    retold(path, text)
    shown = cli("--db", path, "schema")
    assert "select 'done'" not in shown.stdout
    if "\0" in text:
        one = cli("--db", path, "schema", "litejobs_mine").stdout
        assert one == "create view litejobs_mine as select 1 as one;\n\n"
    else:
        # SQLite itself does not read it.
        assert (shown.exit_code, shown.stdout) == (3, "")


@pytest.mark.parametrize(
    "text",
    [
        "create view litejobs_mine as select ';' as one",
        "create view litejobs_mine as select 1 as one -- it's; not so",
        'create view litejobs_mine as select 1 as "; x" /* ; */',
        "create trigger litejobs_trigger after insert on mine begin\n"
        "select case when ';' = '; end' then 1 end; -- ; end\nselect 1; /**/\nEND",
    ],
)
def test_text_that_is_one_statement_is_printed_so(
    cli: Cli, path: Path, text: str
) -> None:
    retold(path, text)
    name = "litejobs_trigger" if "trigger" in text else "litejobs_mine"
    shown = cli("--db", path, "schema", name).stdout
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript("create table mine (a);" + shown)
        found = db.execute("select name from sqlite_schema where type <> 'table'")
        assert found.fetchall() == [(name,)]


def test_it_prints_all_that_is_ours(cli: Cli) -> None:
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        statements.create(db)
        names = {name for _, name, _ in statements.objects(db)}
    document = json.loads(cli("schema", "--json").stdout)
    assert {each["name"] for each in document["schema"]} == names


def test_what_clients_may_say_and_ask_comes_first(cli: Cli) -> None:
    document = json.loads(cli("schema", "--what", "views", "--json").stdout)
    names = [each["name"] for each in document["schema"]]
    assert names == sorted(
        names, key=lambda name: (name.startswith("litejobs__"), name)
    )
    assert names[-1].startswith("litejobs__")
    assert not names[0].startswith("litejobs__")
