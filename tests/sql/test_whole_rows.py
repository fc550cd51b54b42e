"""Rows as object mappers write them: whole, NULL for what is not said, read before.

Django, SQLAlchemy, TypeORM, Sequelize and Knex name all columns of a row that they
insert or update. So NULL for a column that has a default is not said, an update that
changes nothing does nothing, and one that was read before a job moved is refused.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import ERRORS, HOUR, Sql, tables

# What each table asks for, of those that clients write.
ASKED: dict[str, dict[str, Any]] = {
    "batch": {},
    "breaker": {"task": "a"},
    "circuit": {"name": "c"},
    "condition": {
        "rule_id": 1,
        "term": 1,
        "position": 1,
        "source": "ctx",
        "op": "truthy",
    },
    "cursor": {"name": "me", "log_id": 0, "made_at": 1, "seen_at": 1},
    "dependency": {"job_id": 2, "parent_id": 1},
    "executor": {"name": "e", "slots": 3, "runner_id": 1},
    "fact": {"name": "net", "value": 1},
    "job": {"task": "a"},
    "key": {"key": "k"},
    "operation": {"name": "o"},
    "outbox_delivery": {"key": "k", "job_id": 1, "delivered_at": 1},
    "policy": {"task": "a"},
    "purge": {"states": '["completed"]'},
    "queue": {"name": "q"},
    "rename": {"old_name": "o", "new_name": "n"},
    "retention": {"kind": "file"},
    "rule": {"policy_id": 1, "position": 2, "action": "fail"},
    "rule_change": {
        "rule_id": 1,
        "position": 1,
        "target": "ctx",
        "path": "$.a",
        "source": "ctx",
    },
    "runner": {},
    "schedule": {"name": "s", "task": "a", "every_ms": 60_000},
    "step": {"task": "a", "position": 1, "label": "one"},
    "task": {"name": "b"},
    "tier": {"min_priority": 5, "every_ms": 1000},
}
# What differs between two rows in any case, and what means the same where it is NULL.
OTHERWISE = {("runner", "token"), ("purge", "name")}
OTHERWISE |= {("queue", "retries"), ("queue", "keys")}
REPLACED = "null_refused: with an or clause SQLite drops a row that has NULL"
NAMED = "litejobs_null.is_refused_with_an_or_clause_give_it_or_leave_it_out"


def columns_of(db: Sql, table: str) -> list[str]:
    return db.column("select name from pragma_table_info(?)", (table,))


def keys_of(db: Sql, table: str) -> list[str]:
    select = "select name from pragma_table_info(?) where pk order by pk"
    return db.column(select, (table,))


def read(db: Sql, table: str, where: str = "1") -> list[dict[str, Any]]:
    names = columns_of(db, table)
    return [
        dict(zip(names, row, strict=True))
        for row in db.execute(f"select {', '.join(names)} from {table} where {where}")
    ]


def insert(db: Sql, how: str, table: str, row: dict[str, Any]) -> None:
    if not row:
        db.execute(f"{how} into {table} default values")
        return
    marks = ", ".join("?" * len(row))
    db.execute(
        f"{how} into {table} ({', '.join(row)}) values ({marks})", tuple(row.values())
    )


@contextlib.contextmanager
def taken_back(db: Sql) -> Any:
    db.execute("savepoint taken_back")
    try:
        yield
    finally:
        db.execute("rollback to taken_back")
        db.execute("release taken_back")


def inserted(db: Sql, how: str, table: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row that this insert has made, which is taken back."""
    name = table.removeprefix("litejobs_")
    keys = keys_of(db, table)
    with taken_back(db):
        before = [[row[key] for key in keys] for row in read(db, table)]
        insert(db, how, table, row)
        rows = read(db, table)
    [new] = [row for row in rows if [row[key] for key in keys] not in before]
    return {each: new[each] for each in new if (name, each) not in OTHERWISE}


def some_jobs(db: Sql) -> None:
    """Two jobs in line, and a rule."""
    db.serve("a")
    db.enqueue("a")
    db.enqueue("a")
    db.execute("insert into litejobs_policy (task) values ('other')")
    db.execute(
        "insert into litejobs_rule (policy_id, position, action) values (1, 1, 'fail')"
    )


# Inserts ------------------------------------------------------------------------------


def test_null_for_what_has_a_default_is_not_said(held: Sql) -> None:
    """With an `or` clause, too, the row is stored, or refused in words."""
    some_jobs(held)
    held.execute("delete from litejobs_retention where kind = 'file'")
    for name, asked in ASKED.items():
        table = f"litejobs_{name}"
        whole = {**dict.fromkeys(columns_of(held, table)), **asked}
        bare = inserted(held, "insert", table, asked)
        assert inserted(held, "insert", table, whole) == bare, name
        assert inserted(held, "insert or replace", table, whole) == bare, name
        for clause in ("or ignore", "or abort", "or fail"):
            with taken_back(held):
                try:
                    made = inserted(held, f"insert {clause}", table, whole)
                except ERRORS as error:
                    said = REPLACED if clause == "or ignore" else NAMED
                    assert said in str(error), (name, clause)
                    assert name != "job"
                else:
                    assert made == bare, (name, clause)
        assert held.value("select count(*) from litejobs_null") == 0


def test_a_row_that_lacks_what_has_no_default_is_never_dropped(held: Sql) -> None:
    """`or ignore` would, without a word, whatever kind of constraint refuses it."""
    some_jobs(held)
    for name, asked in ASKED.items():
        table = f"litejobs_{name}"
        for column in asked:
            row = {**dict.fromkeys(columns_of(held, table)), **asked, column: None}
            for given in (row, {**asked, column: None}):
                for how in ("insert", "insert or ignore", "insert or abort"):
                    with taken_back(held), pytest.raises(ERRORS):
                        insert(held, how, table, given)


def test_all_tables_with_defaults_are_those_of_clients_or_kept(db: Sql) -> None:
    """What is kept by the database alone takes no NULL; all else is tried above."""
    strict, replacing = set(), set()
    for table in tables(db):
        source = db.value("select sql from sqlite_schema where name = ?", (table,))
        name = table.removeprefix("litejobs_")
        if "not null default" in " ".join(source.split()):
            strict.add(name)
        if "on conflict replace default" in " ".join(source.split()):
            replacing.add(name)
    assert strict == {
        *("carried", "clock_watch", "lane", "meta", "occurrence", "placement"),
        *("retaining", "space", "standby"),
    }
    assert replacing - {"null"} <= set(ASKED)
    assert not strict & set(ASKED)


def test_a_whole_row_with_a_taken_key_is_met_as_a_bare_one(db: Sql) -> None:
    """Its arguments that are not said are none, also where its key names one."""
    db.serve("a", parameters='{"places": ["x"], "defaults": {"x": 7}}')
    whole = dict.fromkeys(columns_of(db, "litejobs_job"))
    row = {**whole, "task": "a", "unique_key": "k-{x}", "on_conflict": "ignore"}
    insert(db, "insert or ignore", "litejobs_job", row)
    insert(db, "insert", "litejobs_job", row)
    insert(db, "insert", "litejobs_job", {**row, "on_conflict": "replace"})
    assert db.execute("select unique_key, args, state from litejobs_job") == [
        ("k-7", "[]", "pending")
    ]


@for_each(
    "given",
    [{"task": None}, {"created_at": 1}, {"task": "a", "created_at": 1, "starts": None}],
)
def test_a_row_that_lacks_what_it_needs_is_refused_by_any_insert(
    db: Sql, given: dict[str, Any]
) -> None:
    """`or ignore` would drop it without a word."""
    row = {"task": "a", **given}
    marks = ", ".join("?" * len(row))
    for how in ("insert", "insert or ignore", "insert or replace"):
        sentence = db.refused(
            f"{how} into litejobs_job ({', '.join(row)}) values ({marks})",
            tuple(row.values()),
        )
        assert sentence.startswith("invalid_birth: a new job names its task"), how


@pytest.mark.parametrize("column", ["starts", "attempts", "crashes", "jumps"])
def test_a_count_of_a_job_is_never_set_to_null(db: Sql, column: str) -> None:
    db.enqueue("a")
    sentence = db.refused(f"update litejobs_job set {column} = null")
    assert sentence == "CHECK constraint failed: litejobs_job_counts_are_numbers"


@pytest.mark.parametrize("column", ["args", "misfire", "overlap"])
def test_a_word_of_a_schedule_is_never_set_to_null(db: Sql, column: str) -> None:
    insert(db, "insert", "litejobs_schedule", ASKED["schedule"])
    sentence = db.refused(f"update litejobs_schedule set {column} = null")
    constraint = "args_are_json" if column == "args" else "is_whole"
    assert sentence == f"CHECK constraint failed: litejobs_schedule_{constraint}"


# Updates ------------------------------------------------------------------------------


def written(table: str, row: dict[str, Any], keys: list[str]) -> tuple[str, Any]:
    """The update that writes this whole row back, and its values."""
    names = ", ".join(f"{name} = ?" for name in row if name not in keys)
    where = " and ".join(f"{key} = ?" for key in keys)
    values = [value for name, value in row.items() if name not in keys]
    return (
        f"update {table} set {names} where {where}",
        (*values, *(row[key] for key in keys)),
    )


def a_full_file(db: Sql) -> None:
    """Rows of all kinds, jobs in all states among them."""
    db.execute("insert into litejobs_fact (name, value) values ('net', 1)")
    some_jobs(db)
    for state in ("scheduled", "pending", "processing", "failed", "completed"):
        db.job_in(state)
        db.job_in(state, concurrency_key=state, circuit="c", requires='["net"]')
    db.job_in("cancelled", unique_key="u")
    db.job_in("dead_lettered")
    db.enqueue("unknown")
    # To write to a purge says that it goes on.
    there = {"circuit", "condition", "fact", "job", "operation", "purge", "runner"}
    for name in ASKED.keys() - there:
        row = ASKED[name] | ({"task": "a"} if name == "retention" else {})
        if name == "retention":
            row["kind"] = "completed"
        insert(db, "insert", f"litejobs_{name}", row)
    db.execute("update litejobs_queue set rate_count = 5, aging_ms = 1000")


def test_a_whole_row_that_is_written_back_unchanged_does_nothing(held: Sql) -> None:
    """Nothing else changes, no event tells of it, and no operation remembers it."""
    a_full_file(held)
    held.wait(1000)
    refused = set()
    for recording in (False, True):
        if recording:
            held.execute("insert into litejobs_operation (name) values ('by hand')")
        before = {table: held.content(table) for table in tables(held)}
        for table in tables(held):
            keys = keys_of(held, table)
            for row in read(held, table):
                if len(row) == len(keys):
                    continue
                changes = held.value("select total_changes()")
                try:
                    held.execute(*written(table, row, keys))
                except ERRORS:
                    refused.add(table.removeprefix("litejobs_"))
                    continue
                done = held.value("select total_changes()") - changes
                assert done == 1, (table, row)
        for table, rows in before.items():
            assert held.content(table) == rows, table
    # What happened, and what was decided by, is not written at all.
    assert refused == {
        *("attempt", "before_image", "line", "rule", "rule_change"),
    }


HOUR_LATER = "update litejobs_job set state = 'scheduled', run_at = run_at + 3600000"
CANCEL = "update litejobs_job set state = 'cancelled'"
REQUEUE = "update litejobs_job set state = 'pending'"
CLAIM = "insert into litejobs_claim (runner, slots) values (1, 1)"
SETTLE = (
    "insert into litejobs_settle (attempt, outcome) "
    'select max(id), \'{"status":"%s"}\' from litejobs_attempt'
)
DONE, FAILED = SETTLE % "ok", SETTLE % "error"
JOB = "insert into litejobs_job (task) values ('a')"
KEPT = "immutable_job: "
MOVED = "invalid_transition: "
STALE = [
    # What was there, what happened after the row was read, what is said of it then.
    ([JOB], [CLAIM], MOVED),
    ([JOB], [CLAIM, DONE], KEPT),
    ([JOB], [CLAIM, FAILED], KEPT),
    ([JOB], [CLAIM, FAILED, REQUEUE], KEPT),
    ([JOB], [CLAIM, SETTLE % "interrupted"], KEPT),
    ([JOB], [CANCEL], KEPT),
    ([JOB, CLAIM], [DONE], MOVED),
    ([JOB, CLAIM], [FAILED], MOVED),
    ([JOB, CLAIM], [FAILED, REQUEUE, CLAIM], KEPT),
    ([JOB, CLAIM], ["update litejobs_job set cancel_requested_at = 1"], "cancel_req"),
    ([JOB, CLAIM, FAILED], [REQUEUE], MOVED),
    ([JOB, CLAIM, FAILED], [CANCEL], MOVED),
    ([JOB, CLAIM, DONE], [REQUEUE], MOVED),
    ([JOB, CLAIM, DONE], [REQUEUE, CLAIM], MOVED),
    ([JOB, CLAIM, DONE], [REQUEUE, CLAIM, DONE], KEPT),
    ([JOB, HOUR_LATER], [CANCEL], MOVED),
    ([JOB, HOUR_LATER], [REQUEUE, CLAIM], MOVED),
    ([JOB, CANCEL], [REQUEUE], KEPT),
    ([JOB, CANCEL], [REQUEUE, CLAIM], MOVED),
    ([JOB, CANCEL], [REQUEUE, CLAIM, DONE], MOVED),
    # In another lane, though nothing else of it has changed.
    ([JOB], ["insert into litejobs_tier (min_priority, every_ms) values (0, 9)"], KEPT),
    # Its task is known now, or is called otherwise, or what it waited for has ended.
    (
        [JOB.replace("'a'", "'new'")],
        ["insert into litejobs_task (name, queue) values ('new', 'other')"],
        KEPT,
    ),
    (
        [JOB.replace("'a'", "'new'")],
        ["insert into litejobs_rename (old_name, new_name) values ('new', 'a')"],
        KEPT,
    ),
    (
        [JOB, JOB, "insert into litejobs_dependency (job_id, parent_id) values (1, 2)"],
        [CLAIM, DONE],
        MOVED,
    ),
]


@for_each("before, after, sentence", STALE)
@for_each("more", [{}, {"max_attempts": 9, "priority": 3}])
def test_a_job_that_was_read_before_it_moved_is_not_written_back(
    held: Sql, before: list[str], after: list[str], sentence: str, more: dict[str, Any]
) -> None:
    held.serve("a")
    said = [each + " where id = 1" * each.startswith("update") for each in before]
    for each in said:
        held.execute(each)
    [row] = read(held, "litejobs_job", "id = 1")
    held.wait(10)
    for each in after:
        held.execute(each + " where id = 1" * each.startswith("update"))
    held.wait(10)
    now = {table: held.content(table) for table in tables(held)}
    statement, values = written("litejobs_job", row | more, ["id"])
    for how in ("update", "update or ignore", "update or replace"):
        how_said = statement.replace("update", how, 1)
        assert held.refused(how_said, values).startswith(sentence)
    assert now == {table: held.content(table) for table in tables(held)}


def test_a_stale_row_takes_back_what_people_have_set_and_says_so(db: Sql) -> None:
    """Which of two that set the same is right, no file can know."""
    db.serve("a")
    job = db.enqueue("a")
    [row] = read(db, "litejobs_job")
    db.execute("update litejobs_job set queue = 'other', priority = 5")
    db.execute(*written("litejobs_job", row, ["id"]))
    assert read(db, "litejobs_job") == [row]
    assert db.claim() == [1]
    assert db.job(job).state == "processing"


def test_a_job_that_is_given_an_old_name_of_its_task_has_the_new_one(db: Sql) -> None:
    db.serve("a")
    db.execute("insert into litejobs_rename (old_name, new_name) values ('old', 'a')")
    job = db.enqueue("a")
    db.execute("update litejobs_job set task = 'old'")
    assert db.job(job).task == "a"
    assert db.claim() == [1]


def test_a_row_as_it_was_before_its_insert_is_not_written_over_it(db: Sql) -> None:
    """Who creates an object and saves it again knows nothing of what was filled in."""
    db.serve("a")
    for table, asked in (
        ("litejobs_job", {"task": "a"}),
        ("litejobs_schedule", {"name": "s", "task": "a", "every_ms": 60_000}),
    ):
        whole = {**dict.fromkeys(columns_of(db, table)), **asked}
        insert(db, "insert", table, whole)
        before = db.content(table)
        sentence = db.refused(*written(table, whole | {"id": 1, "priority": 7}, ["id"]))
        assert re.search(r"read (it|the row) again", sentence)
        assert db.content(table) == before
    for table in ("litejobs_queue", "litejobs_task"):
        whole = {**dict.fromkeys(columns_of(db, table)), "name": "x"}
        insert(db, "insert", table, whole)
        before = db.content(table)
        db.execute(*written(table, whole, ["name"]))
        assert db.content(table) == before


# What is kept by the database, of other rows ------------------------------------------


def test_a_schedule_that_was_read_before_it_was_planned_is_not_written_back(
    held: Sql,
) -> None:
    """Instants would be planned once more, or counted as if they had not been."""
    held.serve("a")
    held.execute(
        "insert into litejobs_schedule (name, task, every_ms, end_at) "
        f"select 's', 'a', 60000, now + {HOUR} from litejobs_clock"
    )
    steps = (
        "insert into litejobs_plan "
        "(schedule_id, revision, after_at, to_at, fate, instants) "
        "select schedule_id, revision, after_at, to_at, fate, "
        "json_array(after_at + 60000, after_at + 120000) from litejobs_planning",
        "insert into litejobs_tick (runner) values (1)",
        "update litejobs_schedule set paused = 1",
        "update litejobs_schedule set paused = 0",
    )
    for step in steps:
        [row] = read(held, "litejobs_schedule")
        held.wait(61_000)
        held.execute(step)
        now = held.content("litejobs_schedule")
        assert read(held, "litejobs_schedule") != [row], step
        statement, values = written("litejobs_schedule", row, ["id"])
        assert held.refused(statement, values).startswith("stale_schedule: "), step
        assert held.content("litejobs_schedule") == now
    assert held.value("select runs from litejobs_schedule") > 0


def test_a_task_stays_with_the_runner_that_lives(db: Sql) -> None:
    db.serve("a")
    [row] = read(db, "litejobs_task")
    db.start_runner()
    sentence = db.refused(*written("litejobs_task", row, ["name"]))
    assert sentence.startswith("stale_task: a living runner has this task")
    row |= {"runner_id": db.runner, "priority": 3}
    db.execute(*written("litejobs_task", row, ["name"]))
    assert read(db, "litejobs_task") == [row]


def test_null_does_not_pass_what_an_update_may_not_change(db: Sql) -> None:
    """SQLite puts the default in its place, after it was asked whether that may be."""
    db.serve("a")
    db.execute("insert into litejobs_circuit (name) values ('c')")
    db.execute("insert into litejobs_batch (state) values ('open')")
    db.execute("update litejobs_batch set state = 'sealed'")
    db.execute("insert into litejobs_policy (task, otherwise) values ('a', 'fail')")
    db.execute("insert into litejobs_operation (name, undoable) values ('o', 0)")
    first, second = db.enqueue("a"), db.enqueue("a")
    db.execute(
        "insert into litejobs_dependency (job_id, parent_id) values (?, ?)",
        (second, first),
    )
    for table, columns in (
        ("batch", ("state", "purged_failures")),
        ("policy", ("step", "otherwise", "purpose")),
        ("operation", ("state", "undoable")),
        ("dependency", ("pending_level",)),
        ("runner", ("token",)),
        ("circuit", ("state",)),
    ):
        for column in columns:
            sentence = db.refused(f"update litejobs_{table} set {column} = null")
            assert re.match(r"(invalid|immutable|unknown)_\w+: ", sentence), (
                table,
                column,
            )


def test_null_for_the_words_of_a_queue_are_those_of_any_queue(db: Sql) -> None:
    """Retries stay in order, and keys take no turns, as if the words were there."""
    db.serve("a")
    db.execute("update litejobs_queue set retries = 'after_new', keys = 'round_robin'")
    first = db.enqueue("a", queue="q")
    db.execute("update litejobs_queue set retries = null, keys = null")
    second = db.enqueue("a", queue="q")
    db.fail(first)
    db.execute("update litejobs_job set state = 'pending' where id = ?", (first,))
    assert db.value("select count(distinct lane_id) from litejobs_job") == 1
    db.claim(1)
    assert {db.job(first).state, db.job(second).state} == {"processing", "pending"}
