"""Does SQLite find its way through our statements by their indexes?

A trigger's body is planned as part of the statement that fires it, and its plan is not
shown. So each statement of each body is planned by itself, with parameters in the place
of `new` and `old`, as SQLite treats them.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from litejobs._storage import statements as _statements
from tests.rows import for_each
from tests.sql.fixture import (
    ERRORS,
    Sql,
    as_new,
    at,
    condition,
    is_code,
    machine_steps,
    on_apsw,
    on_sqlite3,
    trigger_body,
    trigger_sources,
    trigger_when,
)

# What runs all the time while there is work, and grows with no table.
HOT_QUERIES = (
    "agenda",
    "assignments",
    "attempt_is_open",
    "claim",
    "enqueue_job",
    "find_by_unique_key",
    "given_up_after_success",
    "idle",
    "is_any_policy",
    "job_outcome",
    "new_transitions",
    "planning",
    "record_plan",
    "report_progress",
    "settle",
    "settled",
    "signals",
    "tick",
)
# Set off only by a clock that goes back, by a person who tidies up, renames a task or
# sets the order or the tiers of a queue, or undoes an operation, and when a policy is
# written.
COLD_TRIGGERS = (
    *("litejobs__clock_back_looks_again", "litejobs_lane_delete_guard"),
    "litejobs_queue_delete_guard",
    *("litejobs_rule_delete_guard", "litejobs_condition_insert_guard"),
    *(
        "litejobs_rule_change_insert_guard",
        "litejobs_queue_update_of_retries_changes_lanes",
    ),
    *("litejobs_rename_insert_renames_jobs", "litejobs_rename_update_renames_jobs"),
    *("litejobs_tier_insert_changes_lanes", "litejobs_tier_update_changes_lanes"),
    *("litejobs_tier_delete_changes_lanes", "litejobs_queue_insert_is_logged"),
    "litejobs_undo_begins",
)

# Replaced policies stay in the file, so they and what belongs to them grow too.
BIG = (
    "litejobs_job",
    "litejobs_attempt",
    "litejobs_line",
    "litejobs_step",
    "litejobs_policy",
    "litejobs_rule",
    "litejobs_condition",
    "litejobs_rule_change",
    "litejobs_schedule",
    "litejobs_occurrence",
    "litejobs_operation",
    "litejobs_change",
)

# What may be built aside, because it is a handful of rows however large the file is:
# the distinct priorities of what waits, one row for each change that a rule makes, what
# is planned for one schedule; and when the clock goes back, all schedules are.
# So are the rows of a question that has a few sides, and the pieces of a template.
FEW = {
    "litejobs__go_on_moves_jobs": {"MATERIALIZE priorities"},
    # As many rows as the number of the attempt has bits.
    "litejobs__apply_policy_decides": {"MATERIALIZE power"},
    "litejobs__find_rule_stores_it": {"MATERIALIZE result"},
    "litejobs__record_plan_makes_rows": {"MATERIALIZE before"},
    "litejobs__clock_set_back_plans_anew": {"SCAN litejobs_schedule"},
    # A row for each that says how long jobs are kept; the last job of a step; one row;
    # and, each hour, what people did in a month.
    "litejobs__count_newest_counts": {"MATERIALIZE newest"},
    "litejobs__retain_jobs_deletes": {"MATERIALIZE last"},
    "litejobs__retain_file_deletes": {"MATERIALIZE last"},
    "litejobs__watch_clock_judges": {"MATERIALIZE litejobs_clock"},
    "litejobs__retain_operations_deletes": {"SCAN operation"},
}
HANDFULS = ("priorities", "these", "below", "walk", "option")


@pytest.fixture(params=["apsw", "sqlite3"], scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """Two clients, which have other versions of the planner."""
    return str(request.param)


@pytest.fixture(scope="module")
def client(kind: str) -> Iterator[Sql]:
    """A database whose planner is to be asked.

    One for all tests, which only ask. Without foreign keys, because their checks are
    planned too, though they are passed over while nothing violates them; what is really
    done is counted further below.
    """
    db = asked(kind)
    yield db
    db.connection.close()


@pytest.fixture(scope="module")
def idle(kind: str) -> Iterator[Sql]:
    """The same, in which triggers do nothing; `triggers_of` it says what they did.

    What a statement sets off is not shown in its plan, and to prepare all that costs
    twenty times as much.
    """
    db = asked(kind)
    for name, source in triggers_of(db).items():
        head = re.split(r"\n(?:when |begin\n)", source, maxsplit=1)[0]
        db.execute(f"drop trigger {name}")
        db.execute(f"{head}\nbegin\n    select 1;\nend")
    yield db
    db.connection.close()


def asked(kind: str) -> Sql:
    if kind == "apsw":
        return on_apsw(traced=False, foreign_keys=False)
    return on_sqlite3()


def plan(db: Sql, sql: str) -> list[str]:
    """The lines of SQLite's plan, indented by what they belong to.

    It is the same however often one database is asked: each trigger is by two tests.
    """
    known: dict[str, list[str]] = vars(db).setdefault("plans", {})
    if sql not in known:
        known[sql] = _planned(db, sql)
    return known[sql]


def _planned(db: Sql, sql: str) -> list[str]:
    names: Any = defaultdict(lambda: None)
    marks = re.sub(r"'[^']*'", "", sql).count("?")
    if marks:
        names = (None,) * marks
    elif isinstance(db.connection, sqlite3.Connection):
        names = dict.fromkeys(re.findall(r":(\w+)", sql))
    depth: dict[int, int] = {}
    lines = []
    for number, parent, _, detail in db.execute(f"explain query plan {sql}", names):
        depth[number] = depth.get(parent, -1) + 1
        lines.append("  " * depth[number] + detail)
    return lines


def triggers_of(db: Sql) -> dict[str, str]:
    """Those of a database that is only asked; read once."""
    known: dict[str, str] = vars(db).setdefault("triggers", {})
    return known or (known.update(trigger_sources(db.connection)) or known)


def as_statements(source: str) -> list[str]:
    """The `when` and the body of a trigger as statements that can be planned."""
    when = trigger_when(source)
    statements = ([f"select 1 where {when}"] if when else []) + trigger_body(source)
    return [
        re.sub(
            r"\b(new|old)\.(\w+)",
            r":\1_\2",
            re.sub(
                r"raise\s*\(\s*(abort\s*,\s*'[^']*'|ignore)\s*\)", "null", statement
            ),
        )
        for statement in statements
    ]


def aliases_of_big_tables(sql: str) -> set[str]:
    """The names under which the tables that grow appear in the plan of a statement."""
    names = set(BIG)
    for table in BIG:
        names.update(re.findall(rf"\b{table} as (\w+)", sql))
    for view in views().keys() & re.findall(r"\w+", sql):
        names |= aliases_in_view(view)
    return names


@functools.cache
def aliases_in_view(name: str) -> set[str]:
    return aliases_of_big_tables(views()[name])


@functools.cache
def views() -> dict[str, str]:
    return {
        name: text
        for script in _statements.logic()
        for name, text in re.findall(r"create view (\w+) as(.*?);", script, re.DOTALL)
    }


def faults(db: Sql, sql: str) -> list[str]:
    """Lines of the plan that build something aside, or walk through a whole table."""
    big = aliases_of_big_tables(sql)
    found = []
    for line in plan(db, sql):
        words = line.split()
        walks = words[0] == "SCAN" and words[1] in big and "USING" not in words
        builds = "MATERIALIZE" in words and words[-1] not in HANDFULS
        if builds or "AUTOMATIC" in words or walks:
            found.append(line.strip())
    return found


# Those that ask tables which only `analyze` makes are run in another test.
@for_each(
    "name",
    sorted(
        name for name, sql in _statements.queries().items() if " sqlite_stat" not in sql
    ),
)
def test_every_query_compiles(client: Sql, name: str) -> None:
    plan(client, _statements.queries()[name])


@for_each("name", sorted(trigger_sources(on_apsw(traced=False).connection)))
def test_every_trigger_compiles(idle: Sql, name: str) -> None:
    for statement in as_statements(triggers_of(idle)[name]):
        plan(idle, statement)


@pytest.mark.torture
@for_each("name", sorted(trigger_sources(on_apsw(traced=False).connection)))
def test_every_trigger_compiles_with_all_that_it_sets_off(
    client: Sql, idle: Sql, name: str
) -> None:
    """And that makes no difference to its plan."""
    for statement in as_statements(triggers_of(client)[name]):
        assert plan(client, statement) == plan(idle, statement)


@for_each(
    "name",
    [
        each.removeprefix("create view ")
        for script in _statements.logic()
        for each in re.findall(r"create view \w+", script)
    ],
)
def test_every_view_compiles(client: Sql, name: str) -> None:
    plan(client, f"select * from {name}")


@for_each("name", HOT_QUERIES)
def test_a_hot_query_walks_through_no_table(client: Sql, name: str) -> None:
    assert faults(client, _statements.queries()[name]) == []


@for_each(
    "name",
    [
        each
        for each in sorted(trigger_sources(on_apsw(traced=False).connection))
        if each not in COLD_TRIGGERS
    ],
)
def test_a_trigger_walks_through_no_table(idle: Sql, name: str) -> None:
    statements = as_statements(triggers_of(idle)[name])
    found = [fault for each in statements for fault in faults(idle, each)]
    assert [fault for fault in found if fault not in FEW.get(name, set())] == []


@pytest.mark.parametrize(
    ("question", "indexes"),
    [
        (
            "select rule_id from litejobs__match "
            "where attempt_id = :attempt and policy_id = :policy",
            [
                "SEARCH policy USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH rule USING INDEX sqlite_autoindex_litejobs_rule_1 (policy_id",
                "SEARCH litejobs_condition USING PRIMARY KEY (rule_id=?)",
            ],
        ),
        (
            "select policy_id from litejobs__judge where attempt_id = :attempt",
            [
                "SEARCH policy USING INDEX litejobs_policy_in_force (task=?",
                "SEARCH own USING INDEX litejobs_policy_in_force (task=? AND step=?",
            ],
        ),
        (
            "select * from litejobs__verdict where attempt_id = :attempt",
            [
                "SEARCH attempt USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH rule USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH later USING INDEX sqlite_autoindex_litejobs_step_2 (task=?",
            ],
        ),
        (
            "select * from litejobs__written where attempt_id = :attempt",
            ["SEARCH change USING PRIMARY KEY (rule_id=?)"],
        ),
    ],
    ids=["match", "judge", "verdict", "written"],
)
def test_a_policy_is_asked_by_its_indexes(
    client: Sql, question: str, indexes: list[str]
) -> None:
    assert faults(client, question) == []
    lines = [line.strip() for line in plan(client, question)]
    for index in indexes:
        assert any(line.startswith(index) for line in lines), (index, lines)
    assert not any("MATERIALIZE" in line or "AUTOMATIC" in line for line in lines)


def test_the_claim_finds_the_first_jobs_of_a_lane_in_their_order(idle: Sql) -> None:
    source = triggers_of(idle)["litejobs__claim_ungated_takes_many"]
    [insert] = [
        each
        for each in as_statements(source)
        if each.startswith("insert into litejobs_attempt")
    ]
    lines = [line.strip() for line in plan(idle, insert)]
    assert "SEARCH ready USING INDEX litejobs_job_ready (lane_id=?)" in [
        line.replace("COVERING ", "") for line in lines
    ]
    # What is sorted are the few of each lane; the jobs of a lane come sorted.
    inside = lines[lines.index(next(line for line in lines if " ready " in line)) :]
    assert not any("TEMP B-TREE" in line for line in inside[:1])
    assert sum("TEMP B-TREE" in line for line in lines) <= 1


def test_the_tick_finds_what_is_due_by_its_index(idle: Sql) -> None:
    sources = triggers_of(idle)
    lines = [
        line.strip()
        for name in (
            "litejobs__end_attempts_settles_them",
            "litejobs__go_on_moves_jobs",
        )
        for each in as_statements(sources[name])
        for line in plan(idle, each)
    ]
    assert any(
        line.startswith("SEARCH first USING")
        and "litejobs_job_waiting (priority=? AND run_at<?)" in line
        for line in lines
    )
    assert any("litejobs_attempt_deadline" in line for line in lines)


@for_each(
    "name",
    [
        "litejobs__ticked_fires",
        "litejobs__fire_decides",
        "litejobs__fire_all_fires",
        "litejobs__fire_too_late_counts_out",
        "litejobs__fire_unless_decides",
        "litejobs__fire_behind_waits",
        "litejobs__fire_no_more_ends_it",
        "litejobs__fire_one_makes_job",
    ],
)
def test_a_schedule_fires_without_a_walk_through_its_ledger(
    idle: Sql, name: str
) -> None:
    """One that fires each ten seconds has sixty thousand rows there in a week."""
    source = triggers_of(idle)[name]
    lines = [line for each in as_statements(source) for line in plan(idle, each)]
    found = [line for line in lines if "PRIMARY KEY (schedule_id=?" in line]
    assert [line for line in found if "(schedule_id=? AND at=?" not in line] == []


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("list_ended_badly", "litejobs_job_ended_badly"),
        ("look_jobs_ended_badly", "litejobs_job_ended_badly"),
        ("find_jobs", "litejobs_job_ended_badly"),
        ("find_jobs", "litejobs_job_waiting"),
        ("look_jobs_running", "litejobs_attempt_one_open"),
        ("find_by_unique_key", "litejobs_job_of_unique_key"),
        ("list_job_events", "litejobs_line_of_job"),
        ("list_job_events", "sqlite_autoindex_litejobs_attempt_1"),
        ("list_job_events", "SEARCH litejobs_job USING INTEGER PRIMARY KEY"),
        ("list_attempts", "sqlite_autoindex_litejobs_attempt_1"),
        ("list_events", "litejobs_job_event"),
        ("list_events", "litejobs_attempt_event_begun"),
        ("list_events", "litejobs_attempt_event_left_job"),
        ("list_events", "litejobs_line_event"),
    ],
)
def test_a_question_is_answered_by_its_index(
    client: Sql, query: str, index: str
) -> None:
    assert index in "\n".join(plan(client, _statements.queries()[query]))


def test_the_log_is_read_on_from_where_one_was(client: Sql) -> None:
    for query in ("look_events", "new_transitions", "export_events"):
        assert faults(client, _statements.queries()[query]) == [], query
        lines = [line.strip() for line in plan(client, _statements.queries()[query])]
        for where in (
            "litejobs_job USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
            "litejobs_attempt USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
            "litejobs_attempt USING INDEX litejobs_attempt_ended (ended>? AND ended<?)",
            "line USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        ):
            assert [line for line in lines if line.endswith(where)], query


def test_the_faults_are_found() -> None:
    """The test of the tests: plans that must not pass."""
    db = on_apsw(traced=False)
    assert faults(db, "select * from litejobs_job as j where j.progress = 1") == [
        "SCAN j"
    ]
    assert faults(db, "select * from litejobs_attempt") == ["SCAN litejobs_attempt"]
    assert faults(db, "select * from litejobs_job where id = 1") == []
    bad = "select * from litejobs_job as a, litejobs_job as b where a.step = b.step"
    assert any("AUTOMATIC" in fault for fault in faults(db, bad))
    with pytest.raises(ERRORS):
        plan(db, "select nothing from litejobs_job")
    assert issubclass(apsw.SQLError, ERRORS)


# What is done -------------------------------------------------------------------------

STATEMENTS = {
    "enqueue a bare row": "insert into litejobs_job (task) values ('a')",
    "enqueue into a new lane": "insert into litejobs_job (task) values ('new')",
    "enqueue a unique row": (
        "insert into litejobs_job (task, unique_key) values ('a', 'k')"
    ),
    "claim": "insert into litejobs_claim (runner, slots) values (1, 1)",
    "settle a success": (
        "insert into litejobs_settle (attempt, outcome)"
        """ select id, '{"status":"ok"}' from litejobs_attempt"""
        " where finished_at is null"
    ),
    "settle a failure": (
        "insert into litejobs_settle (attempt, outcome)"
        """ select id, '{"status":"error"}' from litejobs_attempt"""
        " where finished_at is null"
    ),
    "settle by a rule": (
        "insert into litejobs_settle (attempt, outcome)"
        """ select id, '{"status":"error","code":7}' from litejobs_attempt"""
        " where finished_at is null"
    ),
    "tick": "insert into litejobs_tick (runner) values (1)",
    "agenda": _statements.queries()["agenda"],
    "idle": _statements.queries()["idle"],
    "assignments": _statements.queries()["assignments"],
    "run now": "update litejobs_job set state = 'pending' where id = 1",
    "cancel": "update litejobs_job set cancel_requested_at = 5 where id = 1",
    "requeue": _statements.queries()["requeue_job"],
    "requeue some": _statements.queries()["requeue_jobs"],
    "ask how it does": _statements.queries()["health"],
    "ask what is due": _statements.queries()["oldest_due"],
    "ask why": _statements.queries()["explain_job"].replace(":id", "1"),
}


RULE = {
    "action": "jump",
    "next_step": "two",
    "when": [is_code(7), condition(at("outcome.error.type"), negated=1)],
    "changes": [
        {
            "target": "ctx",
            "path": "$.x",
            "source": "attempt",
            "plus": "1",
        }
    ],
}


@pytest.fixture(scope="module")
def one() -> Iterator[Sql]:
    """A database for all that is counted, which is undone: so all is prepared once."""
    db = on_apsw(traced=False)
    yield db
    db.connection.close()


def steps(db: Sql, statement: str, history: int) -> int:
    """How many steps SQLite's machine takes, with so much in the file.

    *history* jobs have failed for good, as many wait for a far day, as many are in line
    in a queue that is paused.
    """
    db.serve("a", jitter=0.0)
    if statement == "settle by a rule":
        # As many policies were replaced, and as many are of other tasks and steps.
        db.add_steps("one", "two")
        for number in range(history):
            db.add_policy(RULE, RULE)
            db.add_policy(RULE, task=f"b{number}")
            db.add_policy(RULE, step=f"s{number}")
    db.execute("insert into litejobs_job (task, run_at) values ('a', 9999999999999)")
    numbers = (
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?)"
    )
    jobs = f"{numbers} insert into litejobs_job (task, max_attempts, run_at, queue)"
    db.execute(f"{jobs} select 'a', 1, 0, 'default' from n", (history,))
    db.claim(history)
    db.execute(STATEMENTS["settle a failure"])
    db.execute(f"{jobs} select 'a', 1, 9999999999999, 'default' from n", (history,))
    db.execute(f"{jobs} select 'a', 1, 0, 'paused' from n", (history,))
    db.execute("update litejobs_queue set paused = 1 where name = 'paused'")
    db.enqueue("a")
    if statement.startswith("settle"):
        db.claim(1)
    if statement.startswith("requeue"):
        # As many were cancelled because of a job that is waited for again.
        db.execute(
            f"{numbers} insert into litejobs_job (task) select 'b' from n", (history,)
        )
        db.execute("insert into litejobs_job (task) values ('c')")
        db.execute(
            "insert into litejobs_dependency (job_id, parent_id) "
            "select child.id, parent.id "
            "from litejobs_job as child cross join litejobs_job as parent "
            "where child.task = 'b' and parent.task = 'c'"
        )
        db.execute("update litejobs_job set state = 'cancelled' where task = 'b'")
    last = db.value("select seq from sqlite_sequence where name = 'litejobs_attempt'")
    told = {"stands": 0, "runner": 1, "seen_at": 0, "after": last}
    job = db.value("select min(id) from litejobs_job where state = 'cancelled'")
    told |= {"id": job, "ids": f"[{job}]", "states": '["cancelled"]', "origin": None}
    return machine_steps(db, STATEMENTS[statement], told)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_work_of_a_statement_does_not_grow_with_the_file(
    one: Sql, statement: str
) -> None:
    with as_new(one) as db:
        few = steps(db, statement, 5)
    with as_new(one) as db:
        many = steps(db, statement, 400)
    assert few > 0
    assert many <= few + 60


def steps_beside(db: Sql, closed: str, lanes: int) -> int:
    """How many steps a claim takes beside so many lanes that are closed like this."""
    db.serve("a", concurrency_key="{0}", circuit="{0}", concurrency_limit=9)
    for name in range(lanes):
        db.enqueue(args=f'["{name}"]')
    if closed == "key":
        db.execute(
            "update litejobs_key set rate_count = 1, rate_ms = 9999999, "
            "rate_next_us = (select now from litejobs_clock) * 1000 + 1000000000"
        )
        db.execute("update litejobs_key set rate_burst = 1")
    elif closed == "circuit":
        db.execute("update litejobs_circuit set state = 'open'")
    else:
        assert len(db.claim(lanes)) == lanes
    assert db.claim(5) == []
    job = db.enqueue(args='["open"]')
    steps = machine_steps(db, STATEMENTS["claim"])
    assert db.job(job).state == "processing"
    return steps


@pytest.mark.parametrize("closed", ["key", "circuit", "empty"])
def test_a_claim_passes_by_lanes_that_are_parked_or_empty(
    one: Sql, closed: str
) -> None:
    with as_new(one) as db:
        few = steps_beside(db, closed, 5)
    with as_new(one) as db:
        many = steps_beside(db, closed, 200)
    assert few > 0
    assert many <= few + 60


def steps_beside_empty(db: Sql, statement: str, lanes: int, in_line: int) -> int:
    """How many steps it takes where so many tasks have had a job that has ended."""
    for number in range(lanes):
        db.serve(f"a{number}")
        db.enqueue(f"a{number}")
    assert len(db.claim(lanes)) == lanes
    db.execute(
        "insert into litejobs_settle (attempt, outcome)"
        """ select id, '{"status":"ok"}' from litejobs_attempt"""
    )
    for _ in range(in_line):
        db.enqueue(f"a{lanes - 1}")
    last = db.value("select seq from sqlite_sequence where name = 'litejobs_attempt'")
    told = {"stands": 0, "runner": 1, "seen_at": 0, "after": last}
    return machine_steps(db, STATEMENTS[statement], told)


def few_and_many(one: Sql, statement: str, in_line: int) -> list[int]:
    """The same beside 5 tasks, and beside 105."""
    counted = []
    for lanes in (5, 105):
        with as_new(one) as db:
            counted.append(steps_beside_empty(db, statement, lanes, in_line))
    return counted


def test_no_lane_is_looked_at_while_nothing_is_in_line(one: Sql) -> None:
    few, many = few_and_many(one, "agenda", 0)
    assert 0 < many <= few


def test_of_an_empty_lane_no_gate_is_asked(one: Sql) -> None:
    """It is looked whether it has a job, and no more: that takes some 20 steps."""
    few, many = few_and_many(one, "agenda", 20)
    assert few < many <= few + 100 * 30


@pytest.mark.parametrize("statement", ["agenda", "claim"])
def test_where_few_are_in_line_no_empty_lane_is_looked_at(
    one: Sql, statement: str
) -> None:
    few, many = few_and_many(one, statement, 1)
    assert 0 < many <= few
