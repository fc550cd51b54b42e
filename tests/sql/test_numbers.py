"""Numbers as clients hand them in: as numbers, with a point, or as texts.

Many drivers bind all numbers as texts, or write whole ones with a point into JSON.
Whole numbers are taken however they come. What asks for something is refused if another
thing stands in a number's place; an outcome has happened, and is stored in any case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import MINUTE, SECOND, Sql

PLAN = (
    "insert into litejobs_plan (schedule_id, revision, after_at, to_at, fate, "
    "missed_count, instants, exhausted) values (?, ?, ?, ?, ?, ?, ?, ?)"
)
HOURS = 7200
AS: dict[str, Callable[[int], Any]] = {"texts": str, "reals": float, "numbers": int}
NO_NUMBERS = ('"soon"', '""', '"7 apples"', "true", "[7]", '{"s": 7}', '"0x7"')
NO_WHOLE = ("abc", "", 1.5, "1.5", b"1", "1 job", "0x1", float("inf"))


@pytest.mark.every_client
def test_a_number_in_json_is_read_from_a_text_too(db: Sql) -> None:
    expected = {
        "7": (7, 7),
        '"7"': (7, 7),
        "7.0": (7.0, 7),
        '"-7.0"': (-7, -7),
        '" 7 "': (7, 7),
        '"1.7e+12"': (1_700_000_000_000, 1_700_000_000_000),
        "0.25": (0.25, None),
        '"0.25"': (0.25, None),
        '"9007199254740993"': (2**53 + 1, 2**53 + 1),
        "1e300": (1e300, None),
        '"1e999"': (None, None),
        "9223372036854775808": (2.0**63, None),
        "null": (None, None),
        **dict.fromkeys(NO_NUMBERS, (None, None)),
        '"Infinity"': (None, None),
    }
    read = "select number, whole from litejobs__json_number where document = ?"
    found = {each: db.execute(read, (f"[{each}]",))[0] for each in expected}
    assert found == expected


# What asks ----------------------------------------------------------------------------


def ask(db: Sql) -> tuple[Any, ...]:
    """What a calendar is asked: schedule, revision, after_at, to_at, fate."""
    return db.execute(
        "select schedule_id, revision, after_at, to_at, fate from litejobs_planning"
    )[0]


def standing(db: Sql) -> tuple[Any, ...]:
    """What is planned of the schedule, and from when on more is."""
    instants = db.column("select at from litejobs_occurrence where state = 'planned'")
    return (
        instants,
        *db.execute("select planned_until, replan_at from litejobs_schedule")[0],
    )


@for_each("inside", AS)
@for_each("bound", AS)
def test_a_plan_is_taken_however_its_numbers_come(
    db: Sql, bound: str, inside: str
) -> None:
    db.serve("a")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)
    *numbers, fate = ask(db)
    schedule, revision, after, to = map(AS[bound], numbers)
    instants = [numbers[2] + MINUTE * n for n in range(1, 17)]
    said = json.dumps([AS[inside](each) for each in instants])
    zero = AS[bound](0)
    db.execute(PLAN, (schedule, revision, after, to, fate, zero, said, zero))
    assert standing(db) == (instants, instants[-1], instants[-8])


def test_a_plan_with_an_instant_that_is_none_is_refused_whole(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)
    asked = ask(db)
    good = asked[2] + MINUTE
    before = standing(db)
    lists = [f"[{good}, {each}]" for each in (*NO_NUMBERS, "null", f"{good}.5")]
    for instants in (*lists, "{", "7", "{}", '"[]"', ""):
        words = db.refused(PLAN, (*asked, 0, instants, 0))
        assert words.startswith("invalid_plan: instants is a JSON array"), instants
    whole = [*asked, 0, f"[{good}]", 0]
    for place in (0, 1, 2, 3, 5, 7):
        for each in NO_WHOLE:
            row = [*whole]
            row[place] = each
            assert db.refused(PLAN, row).startswith("invalid_plan: schedule_id, "), row
    assert standing(db) == before
    db.execute(PLAN, whole)
    assert standing(db)[0] == [good]


@pytest.mark.every_client
def test_options_are_taken_as_texts_and_are_the_same_then(db: Sql) -> None:
    numbers = {"delay_ms": 7000, "factor": 2.5, "jitter": 0.5, "max_crashes": 4}
    texts = {name: str(each) for name, each in numbers.items()}
    db.serve("a", options=json.dumps({**numbers, "intervals": [1000, 2000]}))
    job = db.enqueue(
        options=json.dumps({**texts, "timeout_ms": "3e4", "intervals": ["1000", 2e3]})
    )
    text = {**numbers, "intervals": [1000, 2000], "timeout_ms": 30_000}
    assert (
        json.loads(
            db.value("select options from litejobs_job_spec where job_id = ?", (job,))
        )
        == text
    )
    db.execute(
        "update litejobs_job set options = ? where id = ?", ('{"jitter": "0"}', job)
    )
    assert (
        db.value(
            "select options ->> 'jitter' from litejobs_job_spec where job_id = ?",
            (job,),
        )
        == 0.0
    )
    db.insert("litejobs_policy", task="a")
    rule = db.add_rule(1, position=1, action="snooze", delay_ms="9000")
    assert db.column(
        "select delay_ms from litejobs_spec as spec "
        "join litejobs_rule as rule on rule.spec_id = spec.id where rule.id = ?",
        (rule,),
    ) == [9000]


def test_an_option_that_is_no_number_is_refused_by_its_name(db: Sql) -> None:
    db.serve("a")
    names = db.column("select name from litejobs__option where name <> 'backoff'")
    insert = "insert into litejobs_job (task, options) values ('a', ?)"
    for name in names:
        for each in (*NO_NUMBERS, "1e999", "-1e999"):
            value = f"[1000, {each}]" if name == "intervals" else each
            words = db.refused(insert, (f'{{"{name}": {value}}}',))
            assert words.startswith(f"invalid_options: {name} is a"), (name, value)
            assert words.endswith("; correct it")
        if name not in ("factor", "jitter", "intervals"):
            assert f"{name} is a whole number" in db.refused(
                insert, (f'{{"{name}": "7.5"}}',)
            )
    assert db.column("select count(*) from litejobs_job") == [0]


@pytest.mark.every_client
def test_commands_take_whole_numbers_alone(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)
    runner = db.runner
    commands = {
        f"insert into litejobs_claim (runner, slots) values ({runner}, ?)": "slots",
        f"insert into litejobs_tick (runner, seen_at) values ({runner}, ?)": "seen_at",
        f"insert into litejobs_tick (runner, bytes) values ({runner}, ?)": "bytes",
        "insert into litejobs_tick (runner, bytes, free_bytes) "
        f"values ({runner}, 1, ?)": "free_bytes",
        "insert into litejobs_backfill (schedule_id, at) values (1, ?)": "at is an",
        "insert into litejobs_run_now (schedule_id) values (?)": "no schedule",
        "insert into litejobs_undo (operation) values (?)": "no such operation",
        "insert into litejobs_settle (attempt, outcome) "
        """values (?, '{"status": "ok"}')""": "attempt is the number",
    }
    for command, words in commands.items():
        for each in NO_WHOLE:
            assert words in db.refused(command, (each,)), (command, each)
    db.enqueue("a")
    db.execute(
        "insert into litejobs_claim (runner, slots) values (?, ?)", (str(runner), "2.0")
    )
    assert db.column("select state from litejobs_job") == ["processing"]
    db.execute(
        "insert into litejobs_settle (attempt, outcome) values (?, ?)",
        ("1", '{"status": "ok"}'),
    )
    assert db.column("select state from litejobs_job") == ["completed"]


# What has happened --------------------------------------------------------------------


def test_what_a_server_asks_for_is_heard_as_a_text_too(held: Sql) -> None:
    held.serve("a", jitter=0.0)
    for said in ("7200", '"7200"', '"7200.0"', "7200.0", '" 7.2e3 "'):
        job = held.enqueue("a")
        attempt = held.begin(job)
        held.settle(attempt, "error", f', "retry_after": {said}')
        assert held.attempt(attempt).delay_ms == HOURS * SECOND, said
        assert "task.outcome_unread" not in held.events(job)


def test_a_number_that_cannot_be_read_counts_as_not_said_and_the_log_has_it(
    held: Sql,
) -> None:
    held.serve("a", jitter=0.0)
    for name in ("retry_after", "ran_ms", "retryable"):
        for said in NO_NUMBERS:
            if name == "retryable" and said == "true":
                continue
            job = held.enqueue("a")
            attempt = held.begin(job)
            held.wait(SECOND)
            held.settle(attempt, "error", f', "{name}": {said}')
            row = held.attempt(attempt)
            assert json.loads(row.outcome)[name] == json.loads(said)
            assert (row.decision, row.delay_ms, row.started_at) == (
                *("retry", MINUTE),
                None,
            ), (name, said)
            [subject] = held.column(
                "select subject from litejobs_event "
                "where job_id = ? and name = 'task.outcome_unread'",
                (job,),
            )
            kept = said.replace(" ", "") if said.startswith("{") else said
            assert subject in (f"{name} {said}", f"{name} {kept}", f"{name} [7]")


def test_that_an_attempt_is_not_to_be_retried_is_heard_as_a_text_too(held: Sql) -> None:
    held.serve("a")
    for said in ("false", "0", '"0"', '"0.0"'):
        job = held.enqueue("a")
        attempt = held.begin(job)
        held.settle(attempt, "error", f', "retryable": {said}')
        assert held.job(job).state == "dead_lettered", said
        assert held.attempt(attempt).stopped_by == "not_retryable"


def test_how_long_an_attempt_ran_is_read_alike_when_it_went_well(held: Sql) -> None:
    held.serve("a")
    for said, ran in {
        **dict.fromkeys(("400", '"400"', "400.9", '"4e2"'), 400),
        **dict.fromkeys(("null", '"4 s"', "[400]", "true"), 0),
    }.items():
        job = held.enqueue("a")
        attempt = held.begin(job)
        held.wait(SECOND)
        held.settle(attempt, "ok", f', "ran_ms": {said}')
        row = held.attempt(attempt)
        assert (row.decision, row.finished_at - row.started_at) == ("complete", ran)
        unread = ran == 0 and said != "null"
        assert ("task.outcome_unread" in held.events(job)) == unread, said
