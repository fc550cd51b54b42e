"""Options as one row: said as JSON, checked, merged, and gone with the last of them."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest

from litejobs._definitions.options import IN_SPEC
from litejobs._storage import statements
from tests.rows import for_each
from tests.sql.fixture import ERRORS, SECOND, Sql, lent, tables

# One value of each option, and others that it cannot have.
SAID: dict[str, Any] = {
    "backoff": "linear",
    "delay_ms": 1000,
    "factor": 3.0,
    "max_delay_ms": 50_000,
    "jitter": 0.5,
    "intervals": [1000, 2000],
    "retry_budget_ms": 60_000,
    "timeout_ms": 3000,
    "max_crashes": 2,
    "max_jumps": 4,
    "crash_delay_ms": 5,
}
WRONG: dict[str, list[Any]] = {
    "backoff": ["odd", 5, True, ["linear"]],
    "delay_ms": [-1, "x", 1.5, True, 10**30],
    "factor": [0.99, "x", False],
    "max_delay_ms": [-1, "1s", [1]],
    "jitter": [-0.1, 1.1, "half"],
    "intervals": [[], {}, "x", 7],
    "retry_budget_ms": [-1, 2**53 + 1, "1h"],
    "timeout_ms": [0, 3_155_760_000_001, "30s", True],
    "max_crashes": [0, 10**9 + 1, "x"],
    "max_jumps": [-1, 10**9 + 1, {}],
    "crash_delay_ms": [-1, "x"],
}
# What has options, and how one of it is made and found.
OWNERS = {
    "job": {"task": "a"},
    "task": {"name": "mine"},
    "schedule": {"name": "s", "task": "a", "every_ms": SECOND},
    "rule": {"policy_id": 1, "position": 1, "action": "retry"},
}


def options_of(db: Sql, owner: str) -> dict[str, Any]:
    """What the newest of it says."""
    which = "name = 'mine'" if owner == "task" else "id = (select max(id) from own)"
    [[text, left]] = db.execute(
        f"with own as (select * from litejobs_{owner}) "
        "select spec.text, own.options from own "
        f"left join litejobs_spec as spec on spec.id = own.spec_id where own.{which}"
    )
    assert left is None
    return {} if text is None else json.loads(text)


def everything(db: Sql) -> dict[str, Any]:
    """All rows of all tables."""
    return {table: db.content(table) for table in tables(db)}


def say(db: Sql, owner: str, options: str, how: str = "insert") -> None:
    """One more of it says this."""
    db.insert(f"litejobs_{owner}", how, options=options, **OWNERS[owner])


@pytest.fixture
def ready(db: Sql) -> Sql:
    """A database with a task and a policy."""
    db.serve("a")
    db.insert("litejobs_policy", task="a")
    return db


def test_each_option_is_tried_here(db: Sql) -> None:
    columns = db.column("select name from pragma_table_info('litejobs_spec')")
    assert columns == ["id", "text", *SAID]
    assert db.column("select name from litejobs__option") == [*SAID]
    assert {*SAID} == {*WRONG} == IN_SPEC


@pytest.mark.parametrize("owner", OWNERS)
def test_what_is_said_as_json_is_taken_over(ready: Sql, owner: str) -> None:
    say(ready, owner, json.dumps(SAID))
    assert options_of(ready, owner) == SAID
    [row] = ready.execute(f"select {', '.join(SAID)} from litejobs_spec")
    stored = dict(zip(SAID, row, strict=True))
    assert {**stored, "intervals": json.loads(stored["intervals"])} == SAID


@pytest.mark.parametrize("owner", OWNERS)
def test_the_same_options_are_one_row_in_whatever_words(ready: Sql, owner: str) -> None:
    words = [
        '{"timeout_ms":5,"delay_ms":7}',
        '{ "delay_ms" : 7, "timeout_ms": 5 }',
        '{"timeout_ms":5.0,"delay_ms":7,"jitter":null}',
    ]
    found = set()
    for number, each in enumerate(words):
        other = {"rule": "position", "task": "name", "schedule": "name"}.get(owner)
        row = {**OWNERS[owner], "options": each}
        ready.insert(f"litejobs_{owner}", **row | ({other: number} if other else {}))
        found |= {*ready.column(f"select max(spec_id) from litejobs_{owner}")}
    assert len(found) == 1
    assert ready.column("select text from litejobs_spec") == [
        '{"delay_ms":7,"timeout_ms":5}'
    ]


@pytest.mark.parametrize("owner", OWNERS)
def test_who_says_nothing_has_no_row(ready: Sql, owner: str) -> None:
    say(ready, owner, '{"timeout_ms": null}')
    assert options_of(ready, owner) == {}
    assert ready.execute("select * from litejobs_spec") == []


@pytest.mark.every_client
@for_each("name", SAID)
def test_an_option_that_cannot_be_is_refused_by_its_name(ready: Sql, name: str) -> None:
    # That others could be said, of the same, is nothing to this one.
    ready.insert("litejobs__specify", base_id=0, said=json.dumps({name: SAID[name]}))
    before = everything(ready)
    hows = ("insert", "insert or replace", "insert or ignore")
    for how, owner, value in itertools.product(hows, OWNERS, WRONG[name]):
        with pytest.raises(ERRORS) as refused:
            say(ready, owner, json.dumps({name: value}), how)
        text = str(refused.value)
        if how == "insert or ignore" and "invalid_options: an option" in text:
            continue
        short = f"litejobs_spec_{name.removesuffix('_ms')}"
        assert name in text or short in text, (how, owner, value)
    assert everything(ready) == before


@for_each("owner", OWNERS)
@for_each(
    "options, sentence",
    [
        ('{"timeout": 5}', "invalid_options: there is no such option"),
        ('{"timeout": null}', "invalid_options: there is no such option"),
        ('{"id": 5}', "invalid_options: there is no such option"),
        ('{"queue": "x"}', "invalid_options: there is no such option"),
        ("[]", "invalid_options: options are a JSON object"),
        ("7", "invalid_options: options are a JSON object"),
        ("{", "invalid_options: options are a JSON object"),
        ("", "invalid_options: options are a JSON object"),
        ("{}" + " " * 65_535, "invalid_options: options are a JSON object"),
        ("{}\0", "invalid_options: options are a JSON object"),
    ],
)
def test_what_is_no_option_is_refused(
    ready: Sql, owner: str, options: str, sentence: str
) -> None:
    with pytest.raises(ERRORS, match=sentence):
        say(ready, owner, options)


# Merged -------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["job", "task", "schedule"])
def test_an_update_changes_what_it_names(ready: Sql, owner: str) -> None:
    say(ready, owner, '{"timeout_ms": 5, "delay_ms": 7}')
    change = f"update litejobs_{owner} set options = ?"
    ready.execute(change, ('{"timeout_ms": null, "max_crashes": 9}',))
    assert options_of(ready, owner) == {"delay_ms": 7, "max_crashes": 9}
    with pytest.raises(ERRORS, match="max_crashes_in_range"):
        ready.execute(change, ('{"max_crashes": 0}',))
    ready.execute(change, (None,))
    assert options_of(ready, owner) == {"delay_ms": 7, "max_crashes": 9}


def test_a_job_has_what_its_task_says_and_it_says_itself(db: Sql) -> None:
    db.serve("a", timeout_ms=5, intervals=[1], jitter=0.5)
    for own, expected in (
        ("{}", {"timeout_ms": 5, "intervals": [1], "jitter": 0.5}),
        ('{"delay_ms": 7}', {"timeout_ms": 5, "delay_ms": 7, "jitter": 0.5}),
        ('{"backoff": "none"}', {"timeout_ms": 5, "backoff": "none", "jitter": 0.5}),
        ('{"timeout_ms": null}', {"intervals": [1], "jitter": 0.5}),
        (
            '{"delay_ms": 7, "intervals": [9]}',
            {"timeout_ms": 5, "delay_ms": 7, "intervals": [9], "jitter": 0.5},
        ),
    ):
        say(db, "job", own)
        assert options_of(db, "job") == expected
        shown = db.column("select options from litejobs_job_spec order by job_id")
        assert json.loads(shown[-1]) == expected


def test_a_deploy_changes_no_limits_of_waiting_jobs(db: Sql) -> None:
    db.serve("a", timeout_ms=5)
    early = db.enqueue("a")
    db.execute("""update litejobs_task set options = '{"timeout_ms": 9}'""")
    assert db.job(early).timeout_ms == 5
    assert db.job(db.enqueue("a")).timeout_ms == 9


def test_a_job_of_an_unknown_task_keeps_what_it_says(db: Sql) -> None:
    own = db.enqueue("a", timeout_ms=5, delay_ms=1)
    plain = db.enqueue("a")
    db.insert("litejobs_task", name="a", timeout_ms=9, intervals=[7], max_crashes=4)
    row = db.job(own)
    assert (row.timeout_ms, row.delay_ms, row.intervals) == (5, 1, None)
    assert (row.max_crashes, db.job(plain).max_crashes) == (4, 4)
    assert db.job(plain).intervals == "[7]"


def test_the_row_of_an_insert_is_that_of_the_job(db: Sql) -> None:
    db.serve("a")
    [[first]] = db.execute(
        "insert into litejobs_job (task, options) values ('a', ?) returning id",
        ('{"timeout_ms": 5}',),
    )
    assert db.value("select last_insert_rowid()") == first == 1


def test_an_undo_takes_back_the_options_that_were_changed(held: Sql) -> None:
    """What else somebody says of them in between stays."""
    held.start_runner()
    say(held, "schedule", '{"timeout_ms": 1, "intervals": [5]}')
    change = "update litejobs_schedule set options = ?"
    held.insert("litejobs_operation", name="change")
    held.execute(change, ('{"timeout_ms": 2, "delay_ms": 7}',))
    held.execute("update litejobs_operation set state = 'done'")
    assert options_of(held, "schedule") == {"timeout_ms": 2, "delay_ms": 7}
    held.execute(change, ('{"max_crashes": 9}',))
    held.insert("litejobs_undo", operation=None)
    assert options_of(held, "schedule") == {
        "timeout_ms": 1,
        "intervals": [5],
        "max_crashes": 9,
    }


def test_a_removed_schedule_comes_back_with_its_options(held: Sql) -> None:
    held.start_runner()
    say(held, "schedule", '{"timeout_ms": 1, "intervals": [5]}')
    held.insert("litejobs_operation", name="remove")
    held.execute("delete from litejobs_schedule")
    held.execute("update litejobs_operation set state = 'done'")
    held.tick()
    assert texts(held) == []
    held.insert("litejobs_undo", operation=None)
    assert options_of(held, "schedule") == {"timeout_ms": 1, "intervals": [5]}


# Kept by the database -----------------------------------------------------------------


@pytest.mark.every_client
@for_each(
    "statement, code",
    [
        ("update litejobs_spec set timeout_ms = 9", "immutable_spec"),
        ("update litejobs_spec set text = '{}'", "immutable_spec"),
        ("update or replace litejobs_spec set id = 77", "immutable_spec"),
        ("update or replace litejobs_spec set rowid = 77", "immutable_spec"),
        ("insert or replace into litejobs_spec (id) values (1)", "immutable_spec"),
        ("insert into litejobs_spec (id, text) values (9, '{}')", "immutable_spec"),
        ("delete from litejobs_spec", "immutable_spec"),
        ("update litejobs_wording set spec_id = null", "immutable_spec"),
        (
            "insert or replace into litejobs_wording (base_id, said) "
            "select base_id, said from litejobs_wording",
            "immutable_spec",
        ),
        (
            "insert into litejobs_wording values (0, '{\"timeout_ms\":8}', 99)",
            "immutable_spec",
        ),
        (
            "insert into litejobs_wording select 0, '{\"timeout_ms\":8}', id "
            "from litejobs_spec limit 1",
            "immutable_spec",
        ),
        (
            "insert into litejobs_wording select id, '{\"max_jumps\":8}', id "
            "from litejobs_spec limit 1",
            "immutable_spec",
        ),
        (
            "insert into litejobs_wording values (0, '{\"timeout_ms\":8}', null)",
            "immutable_spec",
        ),
        ("insert into litejobs_wording values (0, '{', null)", "immutable_spec"),
        (
            "insert into litejobs__specify (base_id, said) values (99, '{}')",
            "immutable_spec",
        ),
        ("update litejobs_job set spec_id = 99", "unknown_spec"),
        ("insert into litejobs_job (task, spec_id) values ('a', 1)", "invalid_birth"),
        (
            "insert into litejobs_job (task, queue, lane_id, priority, run_at, "
            "created_at, spec_id) values ('a', 'default', 1, 0, 0, 0, 99)",
            "invalid_birth",
        ),
        (
            "insert into litejobs_job (task, queue, lane_id, priority, run_at, "
            "created_at, options) values ('a', 'default', 1, 0, 0, 0, '{}')",
            "invalid_birth",
        ),
        ("update litejobs_task set spec_id = 99", "unknown_spec"),
        ("insert into litejobs_task (name, spec_id) values ('x', 99)", "unknown_spec"),
        ("update litejobs_schedule set spec_id = 99", "unknown_spec"),
        (
            "insert into litejobs_schedule (name, task, every_ms, spec_id) "
            "values ('x', 'a', 1000, 99)",
            "unknown_spec",
        ),
        (
            "insert into litejobs_rule (policy_id, position, action, spec_id) "
            "values (1, 9, 'retry', -1)",
            "unknown_spec",
        ),
        ("update litejobs_rule set options = '{}'", "immutable_policy"),
        ("update litejobs_rule set spec_id = null", "immutable_policy"),
    ],
)
def test_options_are_kept_by_the_database(
    ready: Sql, statement: str, code: str
) -> None:
    for owner in OWNERS:
        say(ready, owner, '{"timeout_ms": 5}')
    before = everything(ready)
    with pytest.raises(ERRORS, match=code):
        ready.execute(statement)
    assert everything(ready) == before


def test_words_of_others_lead_to_nothing_else(db: Sql) -> None:
    """Also to half a row; to what they say they may."""
    db.execute("insert into litejobs_spec (id, timeout_ms) values (7, 5)")
    add = "insert into litejobs_wording values (0, ?, ?)"
    with pytest.raises(ERRORS, match="immutable_spec"):
        db.execute(add, ('{"timeout_ms": 9}', 7))
    db.execute(add, ('{"max_crashes": null}', None))
    job = db.enqueue("a", options='{"timeout_ms": 9}')
    options = "select options from litejobs_job_spec where job_id = ?"
    assert db.value(options, (job,)) == '{"timeout_ms":9}'


def test_half_a_row_says_nothing_and_goes(db: Sql) -> None:
    """A row that another client makes has no text, and one is not given to it."""
    db.execute("insert into litejobs_spec (id, timeout_ms) values (7, 5)")
    with pytest.raises(ERRORS, match="immutable_spec"):
        db.execute("""update litejobs_spec set timeout_ms = 9, text = '{"a":1}'""")
    db.enqueue("a", max_crashes=5)
    assert db.column("select text from litejobs_spec") == ['{"max_crashes":5}']


def test_a_snooze_takes_time(ready: Sql) -> None:
    rule = {"policy_id": 1, "position": 1, "action": "snooze"}
    with pytest.raises(ERRORS, match="invalid_rule: a snooze takes time"):
        ready.insert("litejobs_rule", **rule, delay_ms=0)
    ready.insert("litejobs_rule", **rule, delay_ms=1)


# What goes ----------------------------------------------------------------------------


def texts(db: Sql) -> list[str]:
    """The options that there are."""
    return db.column("select text from litejobs_spec order by text")


def test_options_of_jobs_go_with_the_last_one_that_has_them(held: Sql) -> None:
    held.serve("a", timeout_ms=1)
    jobs = [held.job_in("completed", max_crashes=each) for each in (7, 7, 8)]
    kept = ['{"timeout_ms":1,"max_crashes":8}', '{"timeout_ms":1}']
    assert texts(held) == ['{"timeout_ms":1,"max_crashes":7}', *kept]
    held.execute("delete from litejobs_job where id = ?", (jobs[0],))
    held.tick()
    assert len(texts(held)) == 3
    held.execute("delete from litejobs_job where id = ?", (jobs[1],))
    assert len(texts(held)) == 3
    held.tick()
    assert texts(held) == kept
    named = "select distinct spec_id from litejobs_wording order by 1"
    assert held.column(named) == held.column("select id from litejobs_spec order by 1")
    held.execute("""update litejobs_job set options = '{"max_crashes": 9}'""")
    held.tick()
    assert texts(held) == ['{"timeout_ms":1,"max_crashes":9}', '{"timeout_ms":1}']


def test_an_attempt_names_the_options_that_decided_it_as_long_as_it_is_there(
    held: Sql,
) -> None:
    held.serve("a", jitter=0.0)
    job = held.enqueue("a", delay_ms=5_000, max_attempts=3)
    other = held.enqueue("a")
    held.settle(held.begin(job), "error")
    held.settle(held.begin(other), "ok")
    later = "update litejobs_job set options = ? where id = ?"
    held.execute(later, ('{"delay_ms":9000}', job))
    held.tick()
    held.wait(5_000)
    held.settle(held.begin(job), "error")
    decided = """
        select attempt.base_delay_ms, spec.text
        from litejobs_attempt as attempt
        left join litejobs_spec as spec on spec.id = attempt.spec_id
        where attempt.job_id = ? order by attempt.id
    """
    assert held.execute(decided, (job,)) == [
        (5_000, '{"delay_ms":5000,"jitter":0.0}'),
        (18_000, '{"delay_ms":9000,"jitter":0.0}'),
    ]
    # Plain success is decided by none.
    assert held.execute(decided, (other,)) == [(None, None)]
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    held.execute("delete from litejobs_job where id = ?", (job,))
    held.tick()
    assert texts(held) == ['{"jitter":0.0}']


def test_options_of_a_task_stay(held: Sql) -> None:
    held.serve("a", timeout_ms=1)
    job = held.job_in("completed")
    held.execute("""update litejobs_task set options = '{"timeout_ms": 2}'""")
    held.execute("delete from litejobs_job where id = ?", (job,))
    held.tick()
    assert texts(held) == ['{"timeout_ms":1}', '{"timeout_ms":2}']
    assert held.value("select max(id) from litejobs_spec") < 0


def test_options_of_a_schedule_go_with_it(held: Sql) -> None:
    held.start_runner()
    say(held, "schedule", '{"timeout_ms": 1}')
    held.execute("""update litejobs_schedule set options = '{"timeout_ms": 2}'""")
    held.tick()
    assert texts(held) == ['{"timeout_ms":2}']
    held.execute("delete from litejobs_schedule")
    held.tick()
    assert texts(held) == []
    assert held.execute("select * from litejobs_wording") == []


def test_what_a_job_says_as_its_task_does_stays_while_the_task_has_it(
    held: Sql,
) -> None:
    """The job was first: its number is above zero."""
    held.serve("b")
    early = held.job_in("completed", task="b", timeout_ms=1)
    held.serve("a", timeout_ms=1)
    held.execute("delete from litejobs_job where id = ?", (early,))
    held.tick()
    assert texts(held) == ['{"timeout_ms":1}']
    assert held.job(held.enqueue("a")).timeout_ms == 1


def test_a_purge_finds_what_was_never_noted(held: Sql) -> None:
    held.execute("insert into litejobs__specify (base_id, said) values (0, ?)", (SEEN,))
    nothing = {"before_at": 0, "task": None, "queue": None, "last_line": 0}
    found = held.execute(statements.queries()["find_leftovers"], nothing)
    assert found == [("spec", "1")]


SEEN = '{"timeout_ms":1}'


def test_a_sentence_of_options_is_the_same_in_each_order() -> None:
    """What is merged twice is as if it had been merged once."""
    db = lent()
    db.serve("a")
    job = db.enqueue("a", timeout_ms=5)
    other = db.enqueue("a", max_crashes=3)
    change = "update litejobs_job set options = ? where id = ?"
    db.execute(change, ('{"max_crashes":3}', job))
    db.execute(change, ('{"timeout_ms":5}', other))
    assert db.job(job).spec_id == db.job(other).spec_id


@pytest.mark.every_client
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("how", ["or abort", "or fail", "or ignore", "or replace"])
def test_wrong_options_leave_nothing_half_made(db: Sql, owner: str, how: str) -> None:
    """`or fail` keeps what was done before a constraint failed."""
    db.execute("insert into litejobs_policy (task) values ('x')")
    db.insert("litejobs_task", name="a")
    before = db.content(f"litejobs_{owner}")
    with contextlib.suppress(*ERRORS):
        db.insert(
            f"litejobs_{owner}",
            f"insert {how}",
            **OWNERS[owner],
            options='{"backoff":"odd"}',
        )
    assert db.content(f"litejobs_{owner}") == before


@pytest.mark.every_client
@pytest.mark.parametrize("owner", ["job", "task", "schedule"])
@pytest.mark.parametrize("how", ["or abort", "or fail", "or ignore", "or replace"])
def test_options_that_are_set_wrongly_stay(db: Sql, owner: str, how: str) -> None:
    db.insert(f"litejobs_{owner}", **OWNERS[owner], options='{"timeout_ms":5}')
    before = db.content(f"litejobs_{owner}")
    with contextlib.suppress(*ERRORS):
        db.execute(f"""update {how} litejobs_{owner} set options = '{{"jitter":7}}'""")
    assert db.content(f"litejobs_{owner}") == before
    assert options_of(db, owner) == {"timeout_ms": 5}
