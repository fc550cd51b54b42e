"""What do the SQL, the drivers and the limits of other readers find in the file?

Many bind numbers as text, and some parse the text of views by themselves.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from tests.libraries import needs
from tests.sql.fixture import CLIENTS, HOUR, Sql, as_new

# The public views that tell something, and are not there to be inserted into.
VIEWS = """
    select name from sqlite_schema
    where type = 'view' and name glob 'litejobs_[a-z]*' and name not in (
        select tbl_name from sqlite_schema
        where type = 'trigger' and sql glob '*instead of insert*'
    )
    order by name
"""
# They are asked with an argument, as in `where at = ?`, which is handed on as it is.
ASKED = ("litejobs_attempt_past", "litejobs_job_past", "litejobs_moment")


@pytest.fixture(params=["apsw", "sqlite3"])
def filled(request: pytest.FixtureRequest, clients: dict[str, Sql]) -> Iterator[Sql]:
    """A database with something of everything, as two versions of SQLite see it."""
    with as_new(clients[request.param]) as db:
        fill(db)
        yield db


def fill(db: Sql) -> None:
    """What has a name is called 7, so that text is compared with numbers, too."""
    db.serve("7")
    db.insert("litejobs_queue", name="7", max_running=9)
    db.insert("litejobs_retention", kind="completed", task="7", age_ms=9 * HOUR)
    db.insert("litejobs_circuit", name="7")
    times = dict.fromkeys(("made_at", "seen_at", "since_at"), db.now)
    db.insert("litejobs_cursor", name="7", log_id=0, **times)
    db.insert("litejobs_tier", queue="7", min_priority=5, every_ms=HOUR, at_most=9)
    db.insert("litejobs_schedule", name="7", task="7", every_ms=HOUR)
    db.execute(
        "insert into litejobs_plan "
        "(schedule_id, revision, after_at, to_at, fate, instants, exhausted) "
        "select schedule_id, revision, after_at, to_at, fate, "
        "json_array(after_at + 3600000), 0 from litejobs_planning"
    )
    db.insert("litejobs_schedule", name="8", task="7", every_ms=HOUR)
    db.insert("litejobs_operation", name="7", detail="7")
    db.execute("update litejobs_operation set state = 'done'")
    for state in ("completed", "failed", "dead_lettered", "cancelled", "blocked"):
        db.job_in(state, task="7", queue="7", args='["7"]')
    db.enqueue("7", concurrency_key="7", unique_key="7", run_at=db.now + HOUR)
    db.job_in("processing", task="7")
    db.job_in("pending", task="7", queue="7")


def test_each_column_of_a_public_view_has_an_affinity(filled: Sql) -> None:
    """Without one `= '7'` finds no 7, and `> '7'` is true of no number."""
    without = []
    for view in filled.column(VIEWS):
        filled.execute(f"create temp table columns as select * from {view} limit 0")
        found = filled.execute("select name, type from pragma_table_info('columns')")
        filled.execute("drop table temp.columns")
        without += [f"{view}.{column}" for column, kind in found if kind == ""]
    assert without == []


def test_each_column_of_a_public_view_answers_to_text_and_to_numbers(
    filled: Sql,
) -> None:
    """What is compared is an expression, so it has no affinity, as what is bound."""
    seen, faults = set(), []
    for view in filled.column(VIEWS):
        if view in ASKED:
            continue
        columns = filled.column(f"select name from pragma_table_info('{view}')")
        sums = [f"sum({each})" for column in columns for each in compared(column)]
        [found] = filled.execute(f"select {', '.join(sums)} from {view}")
        pairs = zip(sums[::2], found[::2], found[1::2], strict=True)
        faults += [f"{view}: {each}" for each, one, two in pairs if one != two]
        seen |= {view} if any(found) else set()
        if view == "litejobs_event":  # a union: in a `where` each part is asked alone
            for column in columns:
                counts = [
                    filled.value(f"select count(*) from {view} where {each}")
                    for each in compared(column)
                ]
                faults += [column] * (counts[::2] != counts[1::2])
    assert faults == []
    assert len(seen) > 15


def compared(column: str) -> tuple[str, ...]:
    """In pairs, what is true of as many values if the column has an affinity."""
    number = f"typeof({column}) in ('integer', 'real')"
    return (
        *(number, f"{number} and {column} > (({column} - 1) || '')"),
        *(number, f"{number} and {column} >= {column} + 0.0"),
        *(f"{column} = '7'", f"{column} = 3 + 4"),
    )


def test_readers_go_on_behind_the_last_event_that_they_have_seen(filled: Sql) -> None:
    ids = filled.column("select id from litejobs_event order by id")
    assert len(ids) > 20
    asked = "select id from litejobs_event where id > ? order by id limit 3"
    last: Any = "0"
    found: list[int] = []
    while rows := filled.column(asked, (last,)):
        found += rows
        last = str(rows[-1])
    assert found == ids
    for each in ids:
        assert filled.column(f"select id from litejobs_event where id = '{each}'") == [
            each
        ]


def test_a_look_up_by_id_and_reading_on_from_one_search_an_index(filled: Sql) -> None:
    """And sort nothing. What hangs on each row found is not looked at here."""
    asked = [
        view
        for view in filled.column(VIEWS)
        if view not in ASKED
        and "id" in filled.column(f"select name from pragma_table_info('{view}')")
    ]
    assert len(asked) == 5
    steps = {}
    for view in asked:
        for sql in (
            f"select * from {view} where id = ?1",
            f"select * from {view} where id > ?1 order by id limit 10",
            f"select * from {view} where id > '7' order by id limit 10",
        ):
            rows = filled.execute(f"explain query plan {sql}", (7,) * ("?" in sql))
            steps[sql] = outermost(rows)
    found = {
        sql: [step for step in plan if not step.startswith("SEARCH ")]
        for sql, plan in steps.items()
    }
    assert {sql: plan for sql, plan in found.items() if plan} == {}
    assert all(steps.values())


def test_the_last_event_is_found_without_a_look_at_the_others(filled: Sql) -> None:
    newest = "select id from litejobs_event order by id desc limit 1"
    steps = outermost(filled.execute(f"explain query plan {newest}"))
    assert len(steps) == 6
    assert all(" INDEX litejobs_" in step for step in steps)


# Of a union.
PARTS = (
    *("MERGE (UNION ALL)", "LEFT", "RIGHT"),
    *("COMPOUND QUERY", "LEFT-MOST SUBQUERY", "UNION ALL"),
)


def outermost(rows: list[tuple[Any, ...]]) -> list[str]:
    """The steps of a plan that belong to no subquery, but to parts of a union."""
    within = {0}
    steps = []
    for number, parent, _, step in rows:
        if parent not in within:
            continue
        if (
            step.split(" ")[0] in ("MERGE", "LEFT", "RIGHT", "COMPOUND", "UNION")
            or step == "LEFT-MOST SUBQUERY"
        ):
            within.add(number)
        elif "SCALAR SUBQUERY" not in step:
            steps.append(step)
    return steps


# Limits -------------------------------------------------------------------------------

# What SQLite's page on untrusted input advises; and, where that is too little, what the
# file needs. The page for SQL clients says the same.
ADVISED = {
    "LENGTH": 1_000_000,
    "SQL_LENGTH": 100_000,
    "COLUMN": 100,
    "VDBE_OP": 25_000,
    "LIKE_PATTERN_LENGTH": 50,
    "VARIABLE_NUMBER": 10,
    "ATTACHED": 0,
}
NEEDED = {
    "EXPR_DEPTH": 600,
    "COMPOUND_SELECT": 25,
    "FUNCTION_ARG": 70,
    "TRIGGER_DEPTH": 20,
}


def test_a_client_may_set_limits(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    LiteJobs(path).open().close()
    connection = apsw.Connection(str(path))
    for name, limit in (ADVISED | NEEDED).items():
        connection.limit(getattr(apsw, f"SQLITE_LIMIT_{name}"), limit)
    say_what_is_ordinary(Sql(connection))
    connection.close()


def test_a_client_may_have_columns_named_in_full() -> None:
    """These pragmas say what `*` stands for within views and triggers, too."""
    db = CLIENTS["sqlite3"]()
    db.execute("pragma full_column_names = 1")
    db.execute("pragma short_column_names = 0")
    say_what_is_ordinary(db)
    stored = "select sql from sqlite_schema where type in ('view', 'trigger')"
    stars = r"\bselect\s+\*|\w\.\*|,\s*\*\s*,"
    assert [text for text in db.column(stored) if re.search(stars, text)] == []
    db.connection.close()


def say_what_is_ordinary(db: Sql) -> None:
    db.execute("insert into litejobs_runner (pid) values (1)")
    db.execute("insert into litejobs_task (name, runner_id) values ('a', 1)")
    db.execute("insert into litejobs_job (task, unique_key) values ('a', 'k')")
    db.execute(
        "insert into litejobs_job (task, unique_key, on_conflict, priority) "
        "values ('a', 'k', 'replace', 7)"
    )
    db.execute("insert into litejobs_claim (runner, slots) values (1, 1)")
    db.execute(
        "insert into litejobs_settle (attempt, outcome) "
        """values (1, '{"status": "error"}')"""
    )
    db.execute("insert into litejobs_tick (runner) values (1)")
    job = "select state || ' ' || priority from litejobs_job"
    assert db.value(job) == "failed 7"
    assert [db.execute(f"select * from {view} limit 1") for view in db.column(VIEWS)]


# Libraries that read the text of views ------------------------------------------------


# Unions that it works out itself, since there is nothing in them that only SQLite has.
OF_ITS_OWN = ("litejobs_circuit_report", "litejobs_key_report")


def test_public_views_are_plain(clients: dict[str, Sql]) -> None:
    """DuckDB reads none that has one of these: see the decisions."""
    db = clients["apsw"]
    for view in db.column(VIEWS):
        text = db.value("select sql from sqlite_schema where name = ?", (view,))
        words = "glob|indexed by|having" + "|union" * (view not in OF_ITS_OWN)
        assert re.findall(rf"\b(?:{words})\b", text) == [], view
        assert not re.search(r"cross join \w+ as \w+\s+on\b", text), view
        assert not re.search(r"(?<!\bas )(?<![.\w])at,", text), view


def test_a_table_without_rowid_has_its_primary_key_alone(
    clients: dict[str, Sql],
) -> None:
    """Turso cannot open a file with a unique constraint in one."""
    found = """
        select each.name from pragma_table_list as each
        cross join pragma_index_list(each.name) as keys
        where each.schema = 'main' and each.wr and keys.origin = 'u'
    """
    assert clients["apsw"].column(found) == []


@pytest.mark.clients
@needs("duckdb")
@needs("duckdb_extension_sqlite_scanner")
def test_duckdb_reads_public_views_and_writes_tables(tmp_path: Path) -> None:
    """It has SQLite 3.38.1, the oldest that can read the file, within."""
    duckdb = importlib.import_module("duckdb")
    path, views = filled_file(tmp_path)
    duck = duckdb.connect()
    scanner = importlib.import_module("duckdb_extension_sqlite_scanner")
    [extension] = Path(next(iter(scanner.__path__))).glob("**/*.duckdb_extension")
    duck.execute(f"load '{extension}'")
    duck.execute(f"attach '{path}' as jobs (type sqlite)")
    listed = duck.execute("select count(*) from information_schema.tables").fetchone()
    assert listed[0] > 300
    for view, rows in views.items():
        [[count]] = duck.execute(f"select count(*) from jobs.{view}").fetchall()
        assert count == rows, view
    for table, change in WRITTEN.items():
        duck.execute(f"update jobs.{table} set {change}")
    duck.execute("delete from jobs.litejobs_fact")
    duck.close()
    db = Sql(apsw.Connection(str(path)))
    assert db.value("select paused from litejobs_queue where name = '7'") == 1
    assert db.value("select count(*) from litejobs_fact") == 0
    db.connection.close()


@pytest.mark.clients
@needs("adbc_driver_sqlite")
@needs("pyarrow")
def test_adbc_reads_public_views(tmp_path: Path) -> None:
    dbapi = importlib.import_module("adbc_driver_sqlite.dbapi")
    path, views = filled_file(tmp_path)
    with dbapi.connect(str(path)) as connection, connection.cursor() as cursor:
        for view, rows in views.items():
            cursor.execute(f"select * from {view}")
            assert cursor.fetch_arrow_table().num_rows == rows, view
        cursor.execute("select id from litejobs_event where id > ?", ("4",))
        assert min(cursor.fetch_arrow_table()["id"].to_pylist()) > 4
        cursor.execute("update litejobs_queue set paused = 1 where name = '7'")
        connection.commit()


# What each of these is set to, in tables whose rows clients change.
WRITTEN = {
    "litejobs_queue": "paused = 1",
    "litejobs_task": "max_attempts = 9",
    "litejobs_key": "max_running = 9",
    "litejobs_circuit": "state = state",
    "litejobs_retention": "age_ms = age_ms",
    "litejobs_cursor": "log_id = 0",
    "litejobs_schedule": "paused = 1",
    "litejobs_tier": "at_most = 8",
    "litejobs_fact": "value = 0",
    "litejobs_job": "priority = 1 where state = 'pending'",
}


def filled_file(folder: Path) -> tuple[Path, dict[str, int]]:
    """A file with something of everything, and how many rows each public view has."""
    path = folder / "jobs.db"
    LiteJobs(path).open().close()
    db = Sql(apsw.Connection(str(path)))
    fill(db)
    db.insert("litejobs_fact", name="7", value=1)
    counted = {
        view: db.value(f"select count(*) from {view}")
        for view in db.column(VIEWS)
        if view not in ASKED
    }
    db.connection.close()
    return path, counted
