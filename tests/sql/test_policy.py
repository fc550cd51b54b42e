"""Which rule decides, and what is kept of rules: policies as any client writes them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import (
    ERRORS,
    MINUTE,
    SECOND,
    Operand,
    Sql,
    at,
    condition,
    is_code,
    literal,
    on_apsw,
    with_options,
)

HOWS = ("insert", "insert or replace", "insert or ignore")
UPDATES = ("update", "update or replace", "update or ignore")
CHANGE = {"target": "ctx", "path": "$.x", "source": "literal", "value": "1"}


def ended(db: Sql, task: str = "a", status: str = "error", **members: Any) -> Any:
    """The attempt of a new job of the task that ended with this outcome."""
    if not db.value("select count(*) from litejobs_task where name = ?", (task,)):
        db.serve(task, jitter=0.0)
    attempt = db.begin(db.enqueue(task, priority=9))
    more = "".join(f",{json.dumps(k)}:{json.dumps(v)}" for k, v in members.items())
    db.settle(attempt, status, more)
    return db.attempt(attempt)


def policy_lines(db: Sql) -> list[tuple[Any, ...]]:
    """What the log says of policies."""
    return db.execute(
        "select name, subject, job_id from litejobs_event "
        "where name glob 'policy.[ir]*' order by id"
    )


# Written by hand ----------------------------------------------------------------------

BY_HAND = """
insert into litejobs_policy (task, otherwise) values ('fetch', 'fail');
insert into litejobs_rule (policy_id, position, action, attempts, options)
select id, 1, 'retry', 10, '{"backoff": "linear", "delay_ms": 2000}'
from litejobs_policy where task = 'fetch';
insert into litejobs_condition
    (rule_id, term, position, source, path, op, other_source, other_value)
select id, 1, 1, 'outcome', '$.http.status', 'in', 'literal', '[429, 503]'
from litejobs_rule;
insert into litejobs_rule (policy_id, position, action)
select id, 2, 'cancel' from litejobs_policy where task = 'fetch';
insert into litejobs_condition
    (rule_id, term, position, source, value, op, other_source, other_path,
     other_lowered)
select id, 1, 1, 'literal', '"gone"', 'in', 'outcome', '$.error.message', 1
from litejobs_rule where position = 2;
"""


def test_a_policy_in_plain_sql_decides(db: Sql) -> None:
    db.serve("fetch", jitter=0.0, max_attempts=10)
    for statement in BY_HAND.split(";\n"):
        if statement.strip():
            db.execute(statement)
    again = ended(db, "fetch", http={"status": 503})
    assert (again.action, again.decision, again.delay_ms) == ("retry", "retry", 2000)
    gone = ended(db, "fetch", error={"message": "It is GONE for good"})
    assert (gone.action, gone.decision) == ("cancel", "cancel")
    other = ended(db, "fetch", http={"status": 404})
    assert (other.action, other.decision, other.stopped_by) == (
        "fail",
        "dead_letter",
        "no_rule",
    )
    assert [again.rule_id, gone.rule_id, other.rule_id] == [1, 2, None]
    [told] = db.query("list_attempts", id=again.job_id)
    assert (told.rule_position, told.action) == (1, "retry")
    assert db.job(gone.job_id).state == "cancelled"
    assert ended(db, "fetch", "ok").decision == "complete"


# Matching -----------------------------------------------------------------------------

OUTCOME: dict[str, Any] = {
    "zero": 0,
    "one": 1,
    "half": 0.5,
    "minus": -2,
    "big": 2**53,
    "text": "Time OUT",
    "empty": "",
    "digits": "1",
    "yes": True,
    "no": False,
    "null": None,
    "list": [1, "Two", None, 0.5, True, [1]],
    "none": [],
    "map": {"Key": 1, "": 2},
    "bare": {},
    "umlaut": "ÄÖ ab",
    "odd key": {"a.b": [10, 20]},
    "other": {"one": 1, "text": "time out"},
}


def of(path: str) -> Operand:
    """At a path of OUTCOME."""
    return Operand("outcome", f"$.{path}")


HOLDS: list[tuple[Operand, str, Operand | None]] = [
    (of("one"), "eq", literal(1)),
    (of("one"), "eq", literal(1.0)),
    (of("text"), "eq", literal("Time OUT")),
    (of("text").lowered, "eq", literal("time out")),
    (of("text").lowered, "eq", literal("TIME out").lowered),
    (of("null"), "eq", literal(None)),
    (of("missing"), "eq", literal(None)),
    (of("missing.deeper"), "eq", of("null")),
    (of("yes"), "eq", literal(True)),
    (of("no"), "eq", literal(False)),
    (of("one"), "eq", of("other.one")),
    (of("text").lowered, "eq", of("other.text")),
    (of('"odd key"."a.b"[0]'), "eq", literal(10)),
    (of('"odd key"."a.b"[#-1]'), "eq", literal(20)),
    (literal("error"), "eq", at("outcome.status")),
    (at("attempt"), "eq", literal(1)),
    (at("step"), "eq", literal(None)),
    (at("ctx.page"), "eq", literal(None)),
    (at("iter.page"), "eq", literal(None)),
    (of("zero"), "lt", literal(0.5)),
    (of("minus"), "lt", of("zero")),
    (of("half"), "le", literal(0.5)),
    (of("one"), "gt", of("half")),
    (of("big"), "ge", literal(2**53)),
    (of("text"), "lt", literal("a")),
    (of("digits"), "ge", literal("1")),
    (of("text").lowered, "gt", literal("TIME").lowered),
    (of("one"), "in", of("list")),
    (literal("Two"), "in", of("list")),
    (literal("two"), "in", of("list").lowered),
    (literal("TWO").lowered, "in", of("list").lowered),
    (of("null"), "in", of("list")),
    (of("half"), "in", of("list")),
    (of("one"), "in", literal([3, 2, 1])),
    (literal("Key"), "in", of("map")),
    (literal("key"), "in", of("map").lowered),
    (literal(""), "in", of("map")),
    (literal("OUT"), "in", of("text")),
    (literal("out"), "in", of("text").lowered),
    (literal(""), "in", of("text")),
    (of("empty"), "in", of("empty")),
    (literal("1"), "in", of("digits")),
    (literal("Ä"), "in", of("umlaut")),
    (literal("Ä"), "in", of("umlaut").lowered),
    (of("one"), "truthy", None),
    (of("half"), "truthy", None),
    (of("minus"), "truthy", None),
    (of("text"), "truthy", None),
    (of("digits"), "truthy", None),
    (of("yes"), "truthy", None),
    (of("list"), "truthy", None),
    (of("map"), "truthy", None),
    (at("outcome"), "truthy", None),
    (at("attempt"), "truthy", None),
]
FAILS: list[tuple[Operand, str, Operand | None]] = [
    (of("one"), "eq", literal("1")),
    (of("digits"), "eq", literal(1)),
    (of("one"), "eq", literal(2)),
    (of("text"), "eq", literal("time out")),
    (of("text"), "eq", literal("time out").lowered),
    (of("umlaut").lowered, "eq", literal("äö ab")),
    (of("zero"), "eq", literal(None)),
    (of("empty"), "eq", literal(None)),
    (of("missing"), "eq", literal(0)),
    (of("text.deeper"), "eq", literal("Time OUT")),
    *(
        (of(path), op, literal(right))
        for op in ("lt", "le", "gt", "ge")
        for path, right in [
            ("missing", 500),
            ("null", 0),
            ("digits", 1),
            ("one", "1"),
            ("list", 1),
            ("one", None),
        ]
    ),
    (of("one"), "lt", literal(1)),
    (of("one"), "gt", literal(1)),
    (literal("two"), "in", of("list")),
    (literal("1"), "in", of("list")),
    (of("missing"), "in", literal([1, "x"])),
    (literal(1), "in", of("missing")),
    (literal(1), "in", of("null")),
    (literal(1), "in", of("one")),
    (literal("x"), "in", of("none")),
    (literal("key"), "in", of("map")),
    (literal(1), "in", of("map")),
    (literal("x"), "in", of("bare")),
    (literal("out"), "in", of("text")),
    (literal(1), "in", of("digits")),
    (literal("ä"), "in", of("umlaut").lowered),
    (literal(None), "in", of("text")),
    (of("zero"), "truthy", None),
    (of("empty"), "truthy", None),
    (of("no"), "truthy", None),
    (of("null"), "truthy", None),
    (of("none"), "truthy", None),
    (of("bare"), "truthy", None),
    (of("missing"), "truthy", None),
    (of("text.deeper"), "truthy", None),
    (at("ctx"), "truthy", None),
    (at("step"), "truthy", None),
    (literal(0), "truthy", None),
]


@for_each(
    "case, holds",
    [
        (case, holds)
        for cases, holds in ((HOLDS, True), (FAILS, False))
        for case in cases
    ],
)
def test_a_condition_holds_or_does_not_and_its_negation_is_the_opposite(
    db: Sql, case: tuple[Operand, str, Operand | None], holds: bool
) -> None:
    """Also where something is missing: negating is not turning the operator round."""
    for task, negated in (("a", 0), ("b", 1)):
        when = [condition(*case, negated=negated)]
        db.add_policy({"action": "cancel", "when": when}, task=task)
        found = ended(db, task, **OUTCOME)
        assert (found.action == "cancel") == (holds != bool(negated))
        assert (found.rule_id is not None) == (holds != bool(negated))


def test_a_term_holds_with_all_its_conditions_and_a_rule_with_any_term(db: Sql) -> None:
    one, two, three = (
        condition(at(f"outcome.{name}"), "truthy") for name in ("x", "y", "z")
    )
    db.add_policy({"action": "cancel", "when": [[one, two], [three]]})
    for outcome, expected in [
        ({}, "fail"),
        ({"x": 1}, "fail"),
        ({"y": 1}, "fail"),
        ({"x": 1, "y": 1}, "cancel"),
        ({"z": 1}, "cancel"),
        ({"x": 1, "z": 1}, "cancel"),
        ({"x": 0, "y": 1, "z": 0}, "fail"),
    ]:
        assert ended(db, **outcome).action == expected, outcome


def test_the_number_of_the_attempt_can_be_asked_for(db: Sql) -> None:
    db.serve("a", max_attempts=9)
    third = [condition(at("attempt"), "ge", literal(3))]
    db.add_policy({"action": "cancel", "when": third}, otherwise="retry")
    job = db.enqueue("a")
    assert [db.fail(job).action for _ in range(3)] == ["retry", "retry", "cancel"]


# Which rule ---------------------------------------------------------------------------


def test_the_first_rule_by_position_decides_whichever_was_written_first(
    db: Sql,
) -> None:
    policy = db.add_policy()
    x, y = condition(at("outcome.x")), condition(at("outcome.y"))
    db.add_rule(policy, position=30, action="break")
    db.add_rule(policy, position=20, action="cancel", when=[y])
    first = db.add_rule(policy, position=3, action="fail", when=[x])
    found = ended(db, x=1, y=1)
    assert (found.action, found.rule_id) == ("fail", first)
    assert found.stopped_by == "rule_fail"
    assert ended(db, y=1).action == "cancel"
    assert ended(db).action == "break"


def test_the_policy_of_a_step_takes_the_place_of_that_of_the_task(db: Sql) -> None:
    db.serve("a")
    db.add_steps("one", "two")
    db.add_policy({"action": "break", "when": [is_code(1)]}, otherwise="continue")
    db.add_policy({"action": "cancel", "when": [is_code(2)]}, step="one")
    assert ended(db, code=2).action == "cancel"
    # That of the task is not asked, not even where that of the step says nothing.
    assert ended(db, code=1).stopped_by == "no_rule"
    job = db.enqueue("a", priority=9)
    assert db.fail(job, "ok").next_step == "two"
    attempt = db.begin(job)
    db.settle(attempt, "error", ',"code":1')
    assert (db.attempt(attempt).step, db.attempt(attempt).action) == ("two", "break")


def test_once_the_policy_of_a_step_is_gone_that_of_the_task_counts(db: Sql) -> None:
    db.serve("a")
    db.add_steps("one")
    db.add_policy({"action": "break"})
    db.add_policy({"action": "cancel"}, step="one")
    db.query("drop_policy", task="a", step="one")
    assert ended(db).action == "break"
    assert policy_lines(db)[-1] == ("policy.replaced", "policy of a.one", None)


@pytest.mark.parametrize(
    ("otherwise", "decision", "stopped_by"),
    [
        ("fail", "dead_letter", "no_rule"),
        ("continue", "complete", None),
        ("retry", "retry", None),
    ],
)
@pytest.mark.parametrize("status", ["error", "timeout"])
def test_what_no_rule_speaks_of_goes_as_the_policy_says_otherwise(
    db: Sql, status: str, otherwise: str, decision: str, stopped_by: str | None
) -> None:
    db.add_policy({"action": "cancel", "when": [is_code(1)]}, otherwise=otherwise)
    found = ended(db, status=status, code=2)
    assert (found.rule_id, found.action) == (None, otherwise)
    assert (found.decision, found.stopped_by) == (decision, stopped_by)
    assert ended(db, status="ok", code=2).decision == "complete"
    assert ended(db, status="ok", code=1).decision == "cancel"


def test_otherwise_retry_keeps_to_the_limits_of_the_job(db: Sql) -> None:
    db.serve("a", max_attempts=2)
    db.add_policy(otherwise="retry")
    job = db.enqueue("a")
    assert [db.fail(job).stopped_by for _ in range(2)] == [None, "max_attempts"]


@pytest.mark.parametrize("status", ["interrupted", "cancelled"])
def test_what_did_not_end_by_itself_is_put_to_no_rule(db: Sql, status: str) -> None:
    db.add_policy({"action": "break"}, otherwise="continue")
    found = ended(db, status=status)
    assert (found.rule_id, found.action) == (None, None)
    assert found.decision in ("interrupt", "cancel")


# Crashes ------------------------------------------------------------------------------


@pytest.mark.parametrize("otherwise", ["fail", "continue", "retry"])
@pytest.mark.parametrize("action", ["continue", "break", "fail", "cancel"])
def test_a_crash_is_never_swallowed_by_a_rule_that_does_not_name_it(
    db: Sql, action: str, otherwise: str
) -> None:
    db.add_policy({"action": action}, otherwise=otherwise)
    found = ended(db, status="crashed")
    assert (found.rule_id, found.action, found.decision) == (None, "retry", "retry")
    job = found.job_id
    db.fail(job, "crashed")
    assert db.fail(job, "crashed").stopped_by == "max_crashes"
    assert db.job(job).state == "dead_lettered"


@pytest.mark.parametrize(
    ("action", "decision"),
    [
        ("continue", "complete"),
        ("break", "complete"),
        ("fail", "dead_letter"),
        ("cancel", "cancel"),
        ("retry", "retry"),
        ("snooze", "snooze"),
    ],
)
def test_a_crash_is_decided_by_a_rule_that_names_it(
    db: Sql, action: str, decision: str
) -> None:
    crashed = condition(at("outcome.status"), "eq", literal("crashed"))
    db.add_policy(
        {"action": "break", "when": [condition(at("outcome.status"))]},
        {"action": action, "on_crash": 1, "when": [crashed]},
    )
    found = ended(db, status="crashed")
    assert (found.action, found.decision) == (action, decision)
    assert found.rule_id == 2
    assert ended(db, status="error").rule_id == 1


@pytest.mark.parametrize("action", ["retry", "snooze"])
def test_a_job_that_kills_its_process_ends_also_by_a_rule(db: Sql, action: str) -> None:
    db.serve("a", max_attempts=99)
    db.add_policy({"action": action, "on_crash": 1})
    job = db.enqueue("a")
    decided = [db.fail(job, "crashed").decision for _ in range(3)]
    assert decided == [action, action, "dead_letter"]
    assert db.job(job).stopped_by == "max_crashes"


# Limits of rules ----------------------------------------------------------------------


def delays(db: Sql, attempts: int, rule: dict[str, Any], **limits: Any) -> list[float]:
    """Seconds planned after each of so many failures that the rule decided."""
    limits = {"jitter": 0.0, "max_attempts": 99, **limits}
    db.serve("a", **limits)
    db.add_policy({"action": "retry", **rule})
    job = db.enqueue("a")
    return [db.fail(job).delay_ms / SECOND for _ in range(attempts)]


@pytest.mark.parametrize(
    ("rule", "limits", "expected"),
    [
        ({}, {}, [60, 120, 240]),
        ({"delay_ms": 1000}, {}, [1, 2, 4]),
        ({"backoff": "linear"}, {"delay_ms": 2000}, [2, 4, 6]),
        ({"backoff": "none", "delay_ms": 500}, {"backoff": "linear"}, [0.5] * 3),
        ({"factor": 3.0, "delay_ms": 1000}, {"factor": 5.0}, [1, 3, 9]),
        ({"delay_ms": 1000}, {"factor": 5.0}, [1, 5, 25]),
        ({"max_delay_ms": 90_000}, {"max_delay_ms": 70_000}, [60, 90, 90]),
        ({}, {"max_delay_ms": 70_000}, [60, 70, 70]),
        ({"intervals": "[1000,5000]"}, {}, [1, 5, 5]),
        ({"intervals": "[1000,5000]"}, {"intervals": "[7000]"}, [1, 5, 5]),
        ({}, {"intervals": "[7000,8000]"}, [7, 8, 8]),
        ({"delay_ms": 1000}, {"intervals": "[7000]"}, [1, 2, 4]),
        ({"backoff": "linear"}, {"intervals": "[7000]"}, [60, 120, 180]),
        ({"intervals": "[0,9000]", "max_delay_ms": 4000}, {}, [0, 4, 4]),
        ({"intervals": '["x",null,-5,1e300]'}, {}, [0, 0, 0, 86_400, 86_400]),
        ({"delay_ms": 0}, {}, [0, 0, 0]),
    ],
    ids=str,
)
def test_a_rule_has_a_backoff_of_its_own_or_that_of_the_job(
    db: Sql, rule: dict[str, Any], limits: dict[str, Any], expected: list[float]
) -> None:
    assert delays(db, len(expected), rule, **limits) == expected


def test_a_rule_has_a_jitter_of_its_own(db: Sql) -> None:
    db.serve("a")
    db.add_policy({"action": "retry", "jitter": 0.0, "when": [is_code(1)]})
    assert [ended(db, code=1).delay_ms for _ in range(5)] == [MINUTE] * 5
    db.add_policy({"action": "retry", "jitter": 1.0, "when": [is_code(1)]})
    wide = [ended(db, code=1).delay_ms for _ in range(20)]
    assert min(wide) < 45_000
    assert max(wide) > 75_000


def test_the_attempts_of_a_rule_are_those_of_the_job_while_it_decides(db: Sql) -> None:
    db.serve("a", max_attempts=4)
    db.add_policy(
        {"action": "retry", "attempts": 2, "when": [is_code(1)]},
        {"action": "retry", "attempts": 9, "when": [is_code(2)]},
    )
    assert ended(db, code=1).stopped_by is None
    job = db.enqueue("a", priority=10)
    found = []
    for code in (2, 2, 1):
        attempt = db.begin(job)
        db.settle(attempt, "error", f',"code":{code}')
        found.append(db.attempt(attempt).stopped_by)
    assert found == [None, None, "rule_attempts"]
    job = db.enqueue("a", priority=10)
    for _ in range(4):
        attempt = db.begin(job)
        db.settle(attempt, "error", ',"code":2')
    assert db.job(job).stopped_by == "max_attempts"


@pytest.mark.parametrize(
    ("asked", "planned"),
    [
        (5, 60_000),
        (90, 90_000),
        (90.5, 90_500),
        (1e9, 86_400_000),
        (-5, 60_000),
        ("90", 90_000),
        ("soon", 60_000),
        (None, 60_000),
        (True, 60_000),
        ([90], 60_000),
    ],
)
@pytest.mark.parametrize("action", ["retry", "snooze"])
def test_what_the_server_asked_for_is_not_undercut(
    db: Sql, action: str, asked: Any, planned: int
) -> None:
    db.add_policy({"action": action, "jitter": 0.0})
    found = ended(db, retry_after=asked)
    assert (found.base_delay_ms, found.delay_ms) == (60_000, planned)


# Replacing ----------------------------------------------------------------------------


@pytest.mark.every_client
@pytest.mark.parametrize("how", HOWS)
def test_a_new_policy_takes_the_place_of_the_old_one_which_is_kept(
    db: Sql, how: str
) -> None:
    old = db.add_policy({"action": "break", "when": [is_code(1)], "changes": [CHANGE]})
    decided = ended(db, code=1)
    before = [
        db.content(each)
        for each in ("litejobs_rule", "litejobs_condition", "litejobs_rule_change")
    ]
    db.insert("litejobs_policy", how, task="a", otherwise="fail")
    new = db.value("select max(id) from litejobs_policy")
    db.add_rule(new, position=1, action="cancel")
    rows = db.rows("select * from litejobs_policy order by id")
    assert [(row.id, row.replaced_at is None) for row in rows] == [
        (old, False),
        (new, True),
    ]
    assert rows[0].created_at <= rows[1].created_at == rows[0].replaced_at
    kept = [
        db.content(each)
        for each in ("litejobs_rule", "litejobs_condition", "litejobs_rule_change")
    ]
    assert [each[:1] for each in kept] == before
    assert ended(db, code=1).action == "cancel"
    [row] = db.query("list_attempts", id=decided.job_id)
    assert (row.rule_id, row.rule_position, row.action) == (1, 1, "break")
    assert policy_lines(db) == [
        ("policy.in_force", "policy of a", None),
        ("policy.replaced", "policy of a", None),
        ("policy.in_force", "policy of a", None),
    ]


def test_policies_of_other_tasks_and_steps_stay_in_force(db: Sql) -> None:
    for task, step in (("a", ""), ("b", ""), ("a", "one"), ("a", "two"), ("a", "one")):
        db.add_policy(task=task, step=step)
    assert db.execute(
        "select task, step from litejobs_policy where replaced_at is null order by id"
    ) == [("a", ""), ("b", ""), ("a", "two"), ("a", "one")]
    assert [row.step for row in db.query("policies_in_force", task="a")] == [
        "",
        "one",
        "two",
    ]


def test_a_task_can_do_without_its_policy_again(db: Sql) -> None:
    db.add_policy({"action": "break"})
    assert ended(db).decision == "complete"
    db.execute("update litejobs_policy set replaced_at = 5")
    assert ended(db).decision == "retry"
    assert policy_lines(db)[-1] == ("policy.replaced", "policy of a", None)


def test_a_policy_that_is_past_when_it_is_written_replaces_none(db: Sql) -> None:
    db.add_policy({"action": "break"})
    lines = policy_lines(db)
    db.insert("litejobs_policy", task="a", created_at=1, replaced_at=2)
    assert ended(db).decision == "complete"
    assert policy_lines(db) == lines
    assert db.execute("select created_at, replaced_at from litejobs_policy")[1] == (
        1,
        2,
    )


def test_a_job_under_way_follows_the_new_rules_and_keeps_its_limits(db: Sql) -> None:
    db.serve("a", max_attempts=2)
    db.add_policy({"action": "retry"})
    job = db.enqueue("a")
    assert db.fail(job).decision == "retry"
    db.execute("update litejobs_task set max_attempts = 9")
    db.add_policy(
        {"action": "snooze", "when": [condition(at("attempt"), "eq", literal(2))]}
    )
    assert db.fail(job).action == "snooze"
    db.add_policy({"action": "retry"})
    assert db.fail(job).stopped_by == "max_attempts"


# Guards -------------------------------------------------------------------------------

NEVER = "immutable_policy: "
POLICY_NEVER = (
    "immutable_policy: a policy never changes; insert another one, which replaces it, "
    "or set replaced_at to do without"
)


@pytest.fixture
def ruled(db: Sql) -> Sql:
    """A replaced policy and one in force, each with all that belongs to one."""
    for _ in range(2):
        db.add_policy({"action": "break", "when": [is_code(1)], "changes": [CHANGE]})
    return db


def columns_of(table: str) -> list[str]:
    return on_apsw(traced=False).column(
        "select name from pragma_table_info(?)", (table,)
    )


@pytest.mark.every_client
@for_each(
    "table, column",
    [
        (table, column)
        for table in ("litejobs_rule", "litejobs_condition", "litejobs_rule_change")
        for column in columns_of(table)
    ],
)
@for_each("how", UPDATES)
def test_no_column_of_a_rule_or_of_what_belongs_to_it_changes(
    ruled: Sql, how: str, table: str, column: str
) -> None:
    before = ruled.content(table)
    for value in (column, "7"):
        sentence = ruled.refused(f"{how} {table} set {column} = {value}")
        assert sentence.startswith(NEVER)
        assert sentence.endswith(
            "never changes; insert another policy, which replaces it"
        )
    assert ruled.content(table) == before


@pytest.mark.every_client
@for_each("how", UPDATES)
@for_each(
    "assignment",
    [
        "id = 77",
        "id = 1",
        "rowid = 77",
        "task = 'b'",
        "step = 'x'",
        "otherwise = 'retry'",
        "source = '{}'",
        "source = '[]', replaced_at = 5",
        "created_at = 5",
        "created_at = null",
    ],
)
def test_no_column_of_a_policy_changes(ruled: Sql, how: str, assignment: str) -> None:
    before = ruled.content("litejobs_policy")
    sql = f"{how} litejobs_policy set {assignment} where replaced_at is null"
    assert ruled.refused(sql) == POLICY_NEVER
    assert ruled.content("litejobs_policy") == before


def test_a_policy_that_stays_in_force_is_not_logged_again(ruled: Sql) -> None:
    before = ruled.content("litejobs_policy"), policy_lines(ruled)
    ruled.execute("update litejobs_policy set replaced_at = null where id = 2")
    assert (ruled.content("litejobs_policy"), policy_lines(ruled)) == before


@pytest.mark.every_client
@pytest.mark.parametrize("value", ["null", "5", "replaced_at"])
@pytest.mark.parametrize("how", UPDATES)
def test_a_replaced_policy_comes_not_back(ruled: Sql, how: str, value: str) -> None:
    sql = f"{how} litejobs_policy set replaced_at = {value} where id = 1"
    assert ruled.refused(sql) == POLICY_NEVER


@pytest.mark.every_client
@for_each("how", [*HOWS, "replace"])
@for_each(
    "table, columns",
    [
        ("litejobs_policy", {"id": 1, "task": "a"}),
        ("litejobs_policy", {"id": 2, "task": "other"}),
        ("litejobs_rule", {"id": 1, "policy_id": 2, "position": 9, "action": "fail"}),
        ("litejobs_rule", {"policy_id": 2, "position": 1, "action": "fail"}),
        (
            "litejobs_condition",
            {"rule_id": 2, "term": 0, "position": 0, "source": "ctx", "op": "truthy"},
        ),
        ("litejobs_rule_change", {"rule_id": 2, "position": 1, **CHANGE}),
    ],
)
def test_nothing_of_a_policy_is_written_over(
    ruled: Sql, table: str, columns: dict[str, Any], how: str
) -> None:
    before = ruled.content(table)
    marks = ", ".join("?" * len(columns))
    sentence = ruled.refused(
        f"{how} into {table} ({', '.join(columns)}) values ({marks})",
        tuple(columns.values()),
    )
    assert sentence.startswith(NEVER)
    assert ruled.content(table) == before


def test_what_is_in_force_is_not_deleted(ruled: Sql) -> None:
    assert ruled.refused("delete from litejobs_rule where policy_id = 2") == (
        "immutable_policy: a rule of a policy in force, or one that an attempt names, "
        "is not deleted; insert another policy, which replaces it"
    )
    for policy in (1, 2):
        sql = f"delete from litejobs_policy where id = {policy}"
        assert ruled.refused(sql) == (
            "immutable_policy: a policy in force, or one with rules, is not deleted; "
            "set replaced_at"
        )


@pytest.mark.parametrize("table", ["litejobs_condition", "litejobs_rule_change"])
def test_what_belongs_to_a_rule_in_force_is_not_deleted(ruled: Sql, table: str) -> None:
    """A rule that lost its conditions would decide everything."""
    before = ruled.content(table)
    assert ruled.refused(f"delete from {table} where rule_id = 2").startswith(NEVER)
    assert ruled.content(table) == before


def test_a_replaced_policy_that_decided_nothing_can_go(ruled: Sql) -> None:
    for table in ("litejobs_condition", "litejobs_rule_change"):
        ruled.execute(f"delete from {table} where rule_id = 1")
    ruled.execute("delete from litejobs_rule where policy_id = 1")
    ruled.execute("delete from litejobs_policy where id = 1")
    assert ruled.column("select id from litejobs_policy") == [2]


def test_a_rule_that_an_attempt_names_is_kept(ruled: Sql) -> None:
    decided = ended(ruled, code=1)
    ruled.execute("update litejobs_policy set replaced_at = 5 where id = 2")
    for table in ("litejobs_condition", "litejobs_rule_change"):
        ruled.execute(f"delete from {table} where rule_id = 2")
    assert ruled.refused("delete from litejobs_rule where id = 2").startswith(NEVER)
    [row] = ruled.query("list_attempts", id=decided.job_id)
    assert (row.rule_id, row.rule_position) == (2, 1)


def test_the_number_of_a_deleted_policy_is_not_used_again(ruled: Sql) -> None:
    ruled.execute("update litejobs_policy set replaced_at = 5 where id = 2")
    for table in ("condition", "rule_change", "rule", "policy"):
        ruled.execute(f"delete from litejobs_{table}")
    assert ruled.add_policy({"action": "fail"}) == 3
    assert ruled.column("select id from litejobs_rule") == [3]


# Constraints --------------------------------------------------------------------------

RULE = {"policy_id": 1, "position": 5, "action": "retry"}
LOOK = {"rule_id": 1, "term": 5, "position": 1, "source": "outcome", "op": "truthy"}
SET = {"rule_id": 1, "position": 5, **CHANGE}
LONG = "x" * 201


@for_each(
    "table, columns, constraint",
    [
        ("task", {"name": "t", "intervals": "{}"}, "intervals_are_a_list"),
        ("task", {"name": "t", "intervals": "[]"}, "intervals_are_a_list"),
        ("task", {"name": "t", "intervals": "["}, "intervals_are_a_list"),
        ("task", {"name": "t", "retry_budget_ms": -1}, "retry_budget_in_range"),
        ("task", {"name": "t", "retry_budget_ms": 2**60}, "retry_budget_in_range"),
        ("task", {"name": "t", "max_jumps": -1}, "max_jumps_in_range"),
        ("job", {"task": "t", "intervals": "5"}, "intervals_are_a_list"),
        ("job", {"task": "t", "intervals": "[]"}, "intervals_are_a_list"),
        ("job", {"task": "t", "retry_budget_ms": -1}, "retry_budget_in_range"),
        ("job", {"task": "t", "max_jumps": 2**40}, "max_jumps_in_range"),
        ("queue", {"name": "q", "origin": LONG}, "origin_length"),
        ("step", {"task": "a", "position": 0, "label": "x"}, "position_positive"),
        ("step", {"task": "a", "position": 1, "label": ""}, "label_length"),
        ("step", {"task": "a", "position": 1, "label": LONG}, "label_length"),
        ("policy", {"task": ""}, "task_length"),
        ("policy", {"task": LONG}, "task_length"),
        ("policy", {"task": "a", "otherwise": "break"}, "otherwise_known"),
        ("policy", {"task": "a", "source": "{"}, "source_is_json"),
        ("rule", {**RULE, "action": "explode"}, "action_known"),
        ("rule", {**RULE, "on_crash": 2}, "on_crash_is_flag"),
        ("rule", {**RULE, "action": "jump"}, "jump_has_target"),
        ("rule", {**RULE, "next_step": "one"}, "jump_has_target"),
        ("rule", {**RULE, "attempts": 0}, "attempts_in_range"),
        ("rule", {**RULE, "backoff": "fixed"}, "backoff_known"),
        ("rule", {**RULE, "delay_ms": -1}, "delay_not_negative"),
        ("rule", {**RULE, "factor": 0.5}, "factor_at_least_one"),
        ("rule", {**RULE, "max_delay_ms": -1}, "max_delay_not_negative"),
        ("rule", {**RULE, "jitter": 1.5}, "jitter_is_fraction"),
        ("rule", {**RULE, "intervals": "[]"}, "intervals_are_a_list"),
        ("rule", {**RULE, "intervals": "x"}, "intervals_are_a_list"),
        ("rule", {**RULE, "queue": ""}, "queue_length"),
        ("rule", {**RULE, "priority": 2**40}, "priority_in_range"),
        ("condition", {**LOOK, "source": "env"}, "source_known"),
        (
            "condition",
            {**LOOK, "op": "eq", "other_source": "env"},
            "other_source_known",
        ),
        ("condition", {**LOOK, "op": "like"}, "op_known"),
        ("condition", {**LOOK, "op": "eq"}, "has_two_sides"),
        ("condition", {**LOOK, "other_source": "ctx"}, "has_two_sides"),
        ("condition", {**LOOK, "source": "literal"}, "literals_are_json"),
        ("condition", {**LOOK, "value": "1"}, "literals_are_json"),
        (
            "condition",
            {**LOOK, "source": "literal", "value": "{"},
            "literals_are_json",
        ),
        (
            "condition",
            {**LOOK, "op": "eq", "other_source": "literal"},
            "literals_are_json",
        ),
        ("condition", {**LOOK, "negated": 2}, "flags_are_flags"),
        ("condition", {**LOOK, "lowered": -1}, "flags_are_flags"),
        ("condition", {**LOOK, "other_lowered": 2}, "flags_are_flags"),
        ("rule_change", {**SET, "target": "outcome"}, "target_known"),
        ("rule_change", {**SET, "source": "step", "value": None}, "source_known"),
        ("rule_change", {**SET, "path": "$"}, "path_is_of_a_member"),
        ("rule_change", {**SET, "path": "$[0]"}, "path_is_of_a_member"),
        ("rule_change", {**SET, "value": None}, "literals_are_json"),
        ("rule_change", {**SET, "value": "{"}, "literals_are_json"),
        ("rule_change", {**SET, "source": "ctx"}, "literals_are_json"),
        ("rule_change", {**SET, "plus": '"1"'}, "plus_is_number"),
        ("rule_change", {**SET, "plus": "x"}, "plus_is_number"),
    ],
)
def test_what_cannot_be_is_refused_by_its_constraint(
    db: Sql, table: str, columns: dict[str, Any], constraint: str
) -> None:
    db.add_policy({"action": "break", "when": [is_code(1)], "changes": [CHANGE]})
    row = with_options(columns)
    marks = ", ".join("?" * len(row))
    sentence = db.refused(
        f"insert into litejobs_{table} ({', '.join(row)}) values ({marks})",
        tuple(row.values()),
    )
    table = "spec" if "options" in row else table
    assert sentence == f"CHECK constraint failed: litejobs_{table}_{constraint}"


@pytest.mark.parametrize(
    ("column", "value", "constraint"),
    [
        ("origin", "", "origin_length"),
        ("retry_budget_expires_at", -1, "retry_budget_instant"),
        ("retry_budget_expires_at", 2**62, "retry_budget_instant"),
    ],
)
def test_what_cannot_become_of_a_job_is_refused_by_its_constraint(
    db: Sql, column: str, value: Any, constraint: str
) -> None:
    db.enqueue("a")
    sentence = db.refused(f"update litejobs_job set {column} = ?", (value,))
    assert sentence == f"CHECK constraint failed: litejobs_job_{constraint}"


@pytest.mark.every_client
@pytest.mark.parametrize("clause", ["insert", "insert or ignore", "insert or replace"])
def test_a_policy_that_is_refused_replaces_none(db: Sql, clause: str) -> None:
    db.add_policy({"action": "break"})
    with contextlib.suppress(*ERRORS):
        db.execute(
            f"{clause} into litejobs_policy (task, otherwise) values ('a', 'bogus')"
        )
    assert db.column("select replaced_at from litejobs_policy") == [None]


@for_each(
    "path",
    [
        "",
        "x",
        "$.",
        '$."a',
        "outcome.x",
        "$.a[x]",
        "$.a[1",
        "$.a[1x]",
        "$.a[]",
        "$.a..b",
        "$.a.",
        "$.a.[1]",
        "$[#]",
    ],
)
@for_each(
    "table, columns",
    [
        ("condition", {**LOOK, "path": None}),
        ("condition", {**LOOK, "op": "eq", "other_source": "ctx", "other_path": None}),
        ("rule_change", {**SET, "source": "ctx", "value": None, "source_path": None}),
        ("rule_change", {**SET, "path": None}),
    ],
)
def test_a_path_that_sqlite_cannot_read_is_refused(
    db: Sql, table: str, columns: dict[str, Any], path: str
) -> None:
    """Stored, it would fail each settle that asks the rule."""
    db.add_policy({"action": "break"})
    names = [
        name for name in columns if name.endswith("path") and columns[name] is None
    ]
    columns = columns | dict.fromkeys(names, path)
    marks = ", ".join("?" * len(columns))
    sentence = db.refused(
        f"insert into litejobs_{table} ({', '.join(columns)}) values ({marks})",
        tuple(columns.values()),
    )
    assert "path" in sentence
    assert db.content(f"litejobs_{table}") == []


def test_two_steps_do_not_share_a_label_or_a_place(db: Sql) -> None:
    db.add_steps("one", "two")
    for position, label in ((3, "one"), (2, "three")):
        assert "UNIQUE constraint failed: litejobs_step" in db.refused(
            "insert into litejobs_step (task, position, label) values ('a', ?, ?)",
            (position, label),
        )


def test_a_job_does_not_jump_less_than_never(db: Sql) -> None:
    db.enqueue("a")
    assert db.refused("update litejobs_job set jumps = -1") == (
        "CHECK constraint failed: litejobs_job_jumps_not_negative"
    )


def test_without_the_triggers_the_indexes_keep_one_rule_and_one_policy(db: Sql) -> None:
    db.add_policy({"action": "break"})
    db.execute("drop trigger litejobs_rule_insert_guard")
    db.execute("drop trigger litejobs_policy_insert_replaces")
    assert "litejobs_rule.policy_id, litejobs_rule.position" in db.refused(
        "insert into litejobs_rule (policy_id, position, action) values (1, 1, 'fail')"
    )
    assert "litejobs_policy.task, litejobs_policy.step" in db.refused(
        "insert into litejobs_policy (task) values ('a')"
    )
