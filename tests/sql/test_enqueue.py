"""What happens when a job is asked for: sql/logic/enqueue, and the checks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from litejobs._definitions import columns as _columns
from litejobs._storage import statements
from tests.rows import for_each, in_turn
from tests.sql.fixture import (
    CLIENTS,
    FINISHED,
    HOUR,
    STATES,
    WAITING,
    Sql,
    with_options,
)

pytestmark = pytest.mark.every_client

# Those of the columns that a task gives to its jobs which an insert may name as well.
DEFAULTS = {
    "queue": ("mail", "sms"),
    "priority": (7, 8),
    "max_attempts": (9, 10),
    "retryable": (0, 1),
    "backoff": ("linear", "none"),
    "delay_ms": (1_000, 2_000),
    "factor": (3.0, 4.0),
    "max_delay_ms": (50_000, 60_000),
    "jitter": (0.5, 0.0),
    "timeout_ms": (3_000, 4_000),
    "max_crashes": (2, 5),
}


# A bare row ---------------------------------------------------------------------------


def test_a_bare_row_of_a_known_task_is_completed(db: Sql) -> None:
    db.serve("a")
    before = db.now
    job = db.job(db.enqueue("a", args='{"to":"x"}'))
    assert (job.state, job.queue, job.priority) == ("pending", "default", 0)
    assert before <= job.created_at <= db.now
    assert job.run_at == job.created_at
    assert (job.starts, job.attempts, job.crashes, job.delayed_ms) == (0, 0, 0, 0)
    assert (job.attempt_id, job.finished_at, job.given) == (None, None, None)
    assert {name: getattr(job, name) for name in DEFAULTS if name != "queue"} == {
        name: 0 if name == "priority" else None for name in DEFAULTS if name != "queue"
    }
    assert db.execute("select id, queue, task from litejobs_lane") == [
        (job.lane_id, "default", "a")
    ]
    assert db.execute("select name, paused from litejobs_queue") == [("default", 0)]


def test_arguments_are_an_empty_array_unless_given(db: Sql) -> None:
    assert db.job(db.enqueue("a")).args == "[]"


def test_a_bare_row_takes_the_defaults_of_its_task(db: Sql) -> None:
    db.serve("a", **{name: of_task for name, (of_task, _) in DEFAULTS.items()})
    job = db.job(db.enqueue("a"))
    for name, (of_task, _) in DEFAULTS.items():
        assert getattr(job, name) == of_task, name


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_the_insert_names_goes_before_the_task(db: Sql, name: str) -> None:
    db.serve("a", **{each: of_task for each, (of_task, _) in DEFAULTS.items()})
    job = db.job(db.enqueue("a", **{name: DEFAULTS[name][1]}))
    for each, (of_task, of_job) in DEFAULTS.items():
        assert getattr(job, each) == (of_job if each == name else of_task), each


def test_what_was_given_is_kept_while_the_task_is_unknown(db: Sql) -> None:
    given = [
        db.job(db.enqueue("nobody")).given,
        db.job(db.enqueue("nobody", queue="q", priority=3)).given,
    ]
    assert [json.loads(each) for each in given] == [
        {"queue": None, "priority": None},
        {"queue": "q", "priority": 3},
    ]


def test_jobs_of_one_queue_and_task_share_a_lane(db: Sql) -> None:
    db.serve("a")
    db.serve("b")
    jobs = [
        db.enqueue("a"),
        db.enqueue("a"),
        db.enqueue("b"),
        db.enqueue("a", queue="q"),
    ]
    lanes = [db.job(job).lane_id for job in jobs]
    assert lanes[0] == lanes[1]
    assert len(set(lanes)) == 3


def test_a_job_for_later_is_scheduled(held: Sql) -> None:
    states = {
        wait: held.job(held.enqueue("a", run_at=held.now + wait)).state
        for wait in (-HOUR, 0, 1, HOUR)
    }
    assert states == {-HOUR: "pending", 0: "pending", 1: "scheduled", HOUR: "scheduled"}


def test_the_first_line_of_the_log_is_that_it_was_enqueued(db: Sql) -> None:
    job = db.enqueue("a")
    later = db.enqueue("a", run_at=db.now + HOUR)
    assert db.moves(job) == [(None, "pending", None)]
    assert db.moves(later) == [(None, "scheduled", None)]
    assert db.events(job) == ["task.enqueued"]
    at = db.value("select at from litejobs__transition where job_id = ?", (job,))
    assert at == db.job(job).created_at


# A whole row --------------------------------------------------------------------------


@pytest.mark.parametrize("task_is_known", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "q", "priority": 5, "unique_key": "k", "on_conflict": "ignore"},
        {"max_attempts": 2, "retryable": True, "max_crashes": 4, "timeout": 9},
        {"delay": 3600},
    ],
    ids=["nothing", "place", "limits", "delay"],
)
def test_a_row_of_the_api_equals_a_bare_row(
    db: Sql, options: dict[str, Any], task_is_known: bool
) -> None:
    if task_is_known:
        db.serve("a", **{name: of_task for name, (of_task, _) in DEFAULTS.items()})
        # So that the lane exists and the API can write a whole row.
        db.enqueue("a")
        db.enqueue("a", queue="q")
    given, _ = _columns.parameters_of(options)
    columns = dict(zip(_columns.order(), given, strict=True))
    [whole] = db.query("enqueue_job", task="a", args='{"x":1}', **columns)
    in_api = db.job(whole.id)
    db.execute("update litejobs_job set unique_key = null where id = ?", (whole.id,))
    bare_columns = {
        name: value
        for name, value in columns.items()
        if value is not None and name != "wait_ms"
    }
    if columns["wait_ms"]:
        bare_columns["run_at"] = db.now + columns["wait_ms"]
    bare = db.job(db.enqueue("a", args='{"x":1}', **bare_columns))
    times = {"id", "created_at", "run_at"}
    # That its key was taken from the first one is in the log, before the second.
    for each in (bare, in_api):
        each.birth %= 4
    assert {k: v for k, v in vars(bare).items() if k not in times} == {
        k: v for k, v in vars(in_api).items() if k not in times
    }
    assert bare.run_at - bare.created_at == pytest.approx(
        in_api.run_at - in_api.created_at, abs=1000
    )
    assert db.moves(whole.id)[0] == db.moves(bare.id)[0]


def test_a_whole_row_may_be_born_pending(held: Sql) -> None:
    held.serve("a")
    lane = held.job(held.enqueue("a")).lane_id
    whole = {"queue": "default", "lane_id": lane, "priority": 0, "state": "pending"}
    job = held.enqueue("a", run_at=held.now, created_at=held.now, **whole)
    assert held.moves(job) == [(None, "pending", None)]
    assert held.claim(2) == [1, 2]


SCHEDULED_FIRST = (
    "invalid_birth: a new job is scheduled, and goes in line when it is due; "
    "leave the state out and set run_at"
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"created_at": None},
        {"run_at": 10**13},
        *(
            {"state": state}
            for state in STATES
            if state not in ("scheduled", "pending")
        ),
    ],
    ids=str,
)
def test_a_row_that_could_not_be_in_line_yet_is_not_born_so(
    held: Sql, wrong: dict[str, Any]
) -> None:
    lane = held.job(held.enqueue("a")).lane_id
    whole = {"queue": "default", "lane_id": lane, "priority": 0, "state": "pending"}
    columns = {"run_at": held.now, "created_at": held.now, **whole, **wrong}
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    sentence = held.refused(
        f"insert into litejobs_job (task, {names}) values ('a', {marks})",
        tuple(columns.values()),
    )
    assert sentence == SCHEDULED_FIRST


@pytest.mark.parametrize("wrong", [{"queue": "other"}, {"lane_id": 99}], ids=str)
@pytest.mark.parametrize("state", ["scheduled", "pending"])
def test_a_whole_row_names_the_lane_of_its_queue_and_task(
    held: Sql, state: str, wrong: dict[str, Any]
) -> None:
    lane = held.job(held.enqueue("a")).lane_id
    whole = {"queue": "default", "lane_id": lane, "priority": 0, "state": state}
    columns = {"run_at": held.now, "created_at": held.now, **whole, **wrong}
    sentence = held.refused(
        f"insert into litejobs_job (task, {', '.join(columns)}) "
        f"values ('a', {', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    assert sentence == (
        "invalid_birth: the lane is that of the queue and the task; leave lane_id out"
    )


@pytest.mark.parametrize("name", ["enqueue_job", "enqueue_alike"])
def test_a_job_of_a_renamed_task_has_nothing_of_the_old_one(
    held: Sql, name: str
) -> None:
    held.serve("a", max_attempts=9, retryable=0, expires_in_ms=HOUR)
    held.enqueue("a")
    held.serve("b")
    held.insert("litejobs_rename", old_name="a", new_name="b")
    args = '["[1]"]' if name == "enqueue_alike" else "[1]"
    given = dict.fromkeys(re.findall(r":(\w+)", statements.queries()[name]))
    [row] = held.query(name, **given | {"task": "a", "args": args, "wait_ms": 0})
    job = held.job(row.id)
    assert (job.task, job.max_attempts, job.retryable, job.expires_at) == (
        *("b", None, None),
        None,
    )


def test_options_that_take_back_those_of_the_task_do_so_at_a_replacement(
    held: Sql,
) -> None:
    """Of a row that came whole, no number of options means that it has none."""
    held.serve("a", timeout_ms=3_000)
    held.enqueue("a", options='{"timeout_ms":null}')
    given = dict.fromkeys(
        re.findall(r":(\w+)", statements.queries()["enqueue_job"])
    ) | {"task": "a", "args": "[1]", "wait_ms": HOUR, "unique_key": "k"}
    [row] = held.query("enqueue_job", **given)
    assert held.job(row.id).timeout_ms == 3_000
    again = {"options": '{"timeout_ms":null}', "on_conflict": "replace"}
    assert held.query("enqueue_job", **given | again) == []
    assert held.job(row.id).timeout_ms is None


KEYED = {"concurrency_key": "api", "concurrency_limit": 2, "circuit": "server"}
WRONG_LANE = (
    "invalid_birth: the lane is that of the queue and the task; leave lane_id out"
)


def test_a_whole_row_may_name_a_lane_with_its_key_and_its_circuit(held: Sql) -> None:
    held.serve("a")
    first = held.job(held.enqueue("a", **KEYED))
    whole = {"queue": "default", "lane_id": first.lane_id, "state": "pending"}
    columns = {"run_at": held.now, "created_at": held.now, "priority": 1, **whole}
    job = held.enqueue("a", **KEYED, **columns)
    assert held.moves(job) == [(None, "pending", None)]
    assert held.value("select head_id from litejobs_lane where base_id") == job
    assert [held.attempt(each).job_id for each in held.claim(2)] == [job, first.id]
    assert held.execute("select * from litejobs_doctor") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency_key": "other"},
        {"concurrency_key": None},
        {"concurrency_limit": 3},
        {"concurrency_limit": None},
        {"circuit": "other"},
        {"circuit": None},
        {"requires": '["wifi"]'},
    ],
    ids=str,
)
def test_a_whole_row_has_the_key_and_the_circuit_of_its_lane(
    held: Sql, wrong: dict[str, Any]
) -> None:
    held.serve("a")
    for key in ("api", "other"):
        held.enqueue("a", **KEYED | {"concurrency_key": key})
        held.enqueue("a", **KEYED | {"circuit": key})
    lane = held.job(1).lane_id
    whole = {"queue": "default", "lane_id": lane, "priority": 0, "state": "pending"}
    columns = {"run_at": held.now, "created_at": held.now, **whole, **KEYED, **wrong}
    sentence = held.refused(
        f"insert into litejobs_job (task, {', '.join(columns)}) "
        f"values ('a', {', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    assert sentence == WRONG_LANE


@pytest.mark.parametrize("gone", ["litejobs_key", "litejobs_circuit"])
def test_a_whole_row_has_a_key_and_a_circuit_that_are_there(
    held: Sql, gone: str
) -> None:
    held.serve("a")
    lane = held.job(held.enqueue("a", **KEYED)).lane_id
    held.execute("pragma foreign_keys = off")
    held.execute(f"delete from {gone}")
    assert held.value(f"select count(*) from {gone}") == 0
    whole = {"queue": "default", "lane_id": lane, "priority": 0, "state": "pending"}
    columns = {"run_at": held.now, "created_at": held.now, **whole, **KEYED}
    sentence = held.refused(
        f"insert into litejobs_job (task, {', '.join(columns)}) "
        f"values ('a', {', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    assert sentence == WRONG_LANE


# Refusals -----------------------------------------------------------------------------


HISTORY = (
    "starts",
    "attempts",
    "crashes",
    "delayed_ms",
    "jumps",
    "attempt_id",
    "prev_attempt_id",
    "finished_at",
    "cancel_requested_at",
    "retry_budget_expires_at",
    "stopped_by",
    "prev_not_stored",
    "given",
    "progress",
)
BIRTHS = ("insert", "insert or replace", "insert or ignore")


@for_each("number, history", enumerate(HISTORY))
def test_a_new_job_has_no_history(
    db: Sql, client_of_db: str, number: int, history: str
) -> None:
    """Each client says it in one way, and the next one in another."""
    turn = number + [*CLIENTS].index(client_of_db)
    no_history(db, BIRTHS[turn % len(BIRTHS)], history)


@pytest.mark.torture
@for_each("history", HISTORY)
@for_each("how", BIRTHS)
def test_a_new_job_has_no_history_in_any_way(db: Sql, how: str, history: str) -> None:
    no_history(db, how, history)


def no_history(db: Sql, how: str, history: str) -> None:
    sentence = db.refused(f"{how} into litejobs_job (task, {history}) values ('a', 1)")
    assert sentence == (
        "invalid_birth: a new job has no history; leave out starts, attempts, crashes, "
        "delayed_ms, jumps, attempt_id, prev_attempt_id, finished_at, "
        "cancel_requested_at, retry_budget_expires_at, stopped_by, origin, prev, "
        "prev_not_stored, given and progress"
    )
    assert db.execute("select * from litejobs_job") == []


OVER = ("insert", "insert or replace", "insert or ignore", "insert or fail", "replace")


@for_each("how, state", in_turn(OVER, STATES))
def test_an_id_that_is_taken_is_refused(db: Sql, how: str, state: str) -> None:
    refuses_an_id_that_is_taken(db, how, state)


@pytest.mark.torture
@for_each("state", STATES)
@for_each("how", OVER)
def test_an_id_that_is_taken_is_refused_in_any_way(
    db: Sql, how: str, state: str
) -> None:
    refuses_an_id_that_is_taken(db, how, state)


def refuses_an_id_that_is_taken(db: Sql, how: str, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    before = db.content("litejobs_job")
    sentence = db.refused(f"{how} into litejobs_job (id, task) values (?, 'b')", (job,))
    assert sentence == "duplicate_job: a job with this id exists; leave the id out"
    assert db.content("litejobs_job") == before


@for_each(
    "columns, constraint",
    [
        ({"task": ""}, "litejobs_job_task_length"),
        ({"task": "x" * 201}, "litejobs_job_task_length"),
        ({"queue": ""}, "litejobs_job_queue_length"),
        ({"queue": "x" * 201}, "litejobs_job_queue_length"),
        ({"args": "{"}, "litejobs_job_args_are_json"),
        ({"args": "1"}, "litejobs_job_args_are_json"),
        ({"args": '"x"'}, "litejobs_job_args_are_json"),
        ({"args": "null"}, "litejobs_job_args_are_json"),
        ({"args": '["' + "x" * 1_048_576 + '"]'}, "litejobs_job_args_size"),
        ({"args": '["' + "é" * 524_288 + '"]'}, "litejobs_job_args_size"),
        ({"ctx": "{"}, "litejobs_job_ctx_is_json"),
        ({"iter": "{"}, "litejobs_job_iter_is_json"),
        ({"run_at": -1}, "litejobs_job_run_at_in_range"),
        ({"run_at": 253_402_300_800_000}, "litejobs_job_run_at_in_range"),
        ({"priority": 1_000_001}, "litejobs_job_priority_in_range"),
        ({"priority": -1_000_001}, "litejobs_job_priority_in_range"),
        ({"max_attempts": -1}, "litejobs_job_max_attempts_in_range"),
        ({"retryable": 2}, "litejobs_job_retryable_is_flag"),
        ({"backoff": "fibonacci"}, "litejobs_spec_backoff_known"),
        ({"delay_ms": -1}, "litejobs_spec_delay_not_negative"),
        ({"factor": 0.99}, "litejobs_spec_factor_at_least_one"),
        ({"max_delay_ms": -1}, "litejobs_spec_max_delay_not_negative"),
        ({"crash_delay_ms": -1}, "litejobs_spec_crash_delay_not_negative"),
        ({"jitter": -0.01}, "litejobs_spec_jitter_is_fraction"),
        ({"jitter": 1.01}, "litejobs_spec_jitter_is_fraction"),
        ({"timeout_ms": 0}, "litejobs_spec_timeout_in_range"),
        ({"max_crashes": 0}, "litejobs_spec_max_crashes_in_range"),
        ({"unique_key": ""}, "litejobs_job_unique_key_length"),
        ({"unique_key": "x" * 501}, "litejobs_job_unique_key_length"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_constraint(
    db: Sql, columns: dict[str, Any], constraint: str
) -> None:
    columns = with_options({"task": "a", **columns})
    marks = ", ".join("?" * len(columns))
    sentence = db.refused(
        f"insert into litejobs_job ({', '.join(columns)}) values ({marks})",
        tuple(columns.values()),
    )
    assert sentence == f"CHECK constraint failed: {constraint}"
    assert db.execute("select * from litejobs_job, litejobs__transition") == []


@pytest.mark.parametrize(
    "value", ["args, task) values ('[]' || ?, 'a')", "task) values ('a' || ?)"]
)
def test_nothing_is_hidden_behind_a_nul(db: Sql, value: str) -> None:
    hidden = "\0" + "x" * 2_000_000
    db.refused(f"insert into litejobs_job ({value}", (hidden,))


@pytest.mark.parametrize(
    ("assignment", "constraint"),
    [
        ("starts = starts, attempts = -1", "litejobs_job_counts_not_negative"),
        ("crashes = -1", "litejobs_job_counts_not_negative"),
        ("delayed_ms = -1", "litejobs_job_counts_not_negative"),
        ("attempts = 9007199254740993", "litejobs_job_counts_in_range"),
        ("crashes = 1000000001", "litejobs_job_counts_in_range"),
        ("delayed_ms = 9007199254740993", "litejobs_job_counts_in_range"),
        (
            "state = 'cancelled', finished_at = -1",
            "litejobs_job_instants_in_range",
        ),
        ("progress = 1.01", "litejobs_job_progress_is_fraction"),
        ("progress = -0.01", "litejobs_job_progress_is_fraction"),
        ("queue = null", "litejobs_job_created_at_comes_from_the_database"),
        ("priority = null", "litejobs_job_created_at_comes_from_the_database"),
        ("run_at = null", "litejobs_job_created_at_comes_from_the_database"),
    ],
)
def test_an_update_out_of_bounds_is_refused_by_its_constraint(
    db: Sql, assignment: str, constraint: str
) -> None:
    db.enqueue("a")
    sentence = db.refused(f"update litejobs_job set {assignment}")
    assert sentence == f"CHECK constraint failed: {constraint}"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("args", b"[]"),
        ("run_at", 1.5),
        ("priority", "x"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(db: Sql, column: str, value: Any) -> None:
    columns = {"task": "a", column: value}
    marks = ", ".join("?" * len(columns))
    sentence = db.refused(
        f"insert into litejobs_job ({', '.join(columns)}) values ({marks})",
        tuple(columns.values()),
    )
    assert f"litejobs_job.{column}" in sentence


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("task", "x" * 200),
        ("queue", "x" * 200),
        ("args", "{}"),
        ("args", '["' + "x" * 1_048_572 + '"]'),
        ("args", '["' + "é" * 524_286 + '"]'),
        ("run_at", 0),
        ("run_at", 253_402_300_799_999),
        ("priority", 1_000_000),
        ("priority", -1_000_000),
        ("max_attempts", 0),
        ("factor", 1.0),
        ("delay_ms", 0),
        ("max_delay_ms", 0),
        ("jitter", 0.0),
        ("jitter", 1.0),
        ("timeout_ms", 1),
        ("unique_key", "x" * 500),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_the_bounds_themselves_are_allowed(db: Sql, column: str, value: Any) -> None:
    job = db.enqueue(**{"task": "a", column: value})
    assert getattr(db.job(job), column) == value


def test_what_the_triggers_meet_first_the_constraints_refuse_too(db: Sql) -> None:
    """Without the triggers, the table still keeps out what cannot be."""
    db.enqueue("a", unique_key="k")
    for trigger in (
        "litejobs_job_insert_guard",
        "litejobs_job_state_guard",
        "litejobs_lane_insert_guard",
    ):
        db.execute(f"drop trigger {trigger}")
    assert {
        sql: db.refused(sql)
        for sql in ("insert into litejobs_lane (queue, task) values ('default', 'a')",)
    } == {
        "insert into litejobs_lane (queue, task) values ('default', 'a')": (
            "UNIQUE constraint failed: litejobs_lane.queue, litejobs_lane.task, "
            "litejobs_lane.requires, litejobs_lane.tier_id, litejobs_lane.retries, "
            "litejobs_lane.concurrency_key, litejobs_lane.concurrency_limit, "
            "litejobs_lane.circuit, litejobs_lane.misfit"
        ),
    }


# Unique keys --------------------------------------------------------------------------


UNFINISHED = (*WAITING, "processing")


@for_each("how, state", in_turn(OVER, UNFINISHED))
def test_a_second_unfinished_job_of_a_key_is_dropped(
    db: Sql, how: str, state: str
) -> None:
    drops_a_second_unfinished_job(db, how, state)


@pytest.mark.torture
@for_each("state", UNFINISHED)
@for_each("how", OVER)
def test_a_second_unfinished_job_of_a_key_is_dropped_in_any_way(
    db: Sql, how: str, state: str
) -> None:
    drops_a_second_unfinished_job(db, how, state)


def drops_a_second_unfinished_job(db: Sql, how: str, state: str) -> None:
    db.serve("a")
    job = db.job_in(state, unique_key="k")
    before = db.content("litejobs_job")
    db.insert("litejobs_job", how, task="a", unique_key="k", on_conflict="ignore")
    assert db.content("litejobs_job") == before
    [found] = db.query("find_by_unique_key", unique_key="k")
    assert found.job_id == job


@pytest.mark.parametrize("state", FINISHED)
def test_a_key_is_free_again_when_its_job_has_ended(db: Sql, state: str) -> None:
    db.serve("a")
    first = db.job_in(state, unique_key="k")
    second = db.enqueue("a", unique_key="k")
    assert second > first
    [found] = db.query("find_by_unique_key", unique_key="k")
    assert found.job_id == second


def test_a_dropped_insert_does_not_stop_the_others_of_its_statement(db: Sql) -> None:
    db.enqueue("a", unique_key="k2")
    db.execute(
        "insert into litejobs_job (task, unique_key, on_conflict) "
        "select 'a', value, iif(value is null, null, 'ignore') "
        """from json_each('["k1", "k2", "k3", "k3", null]')"""
    )
    keys = db.column("select unique_key from litejobs_job order by id")
    assert keys == ["k2", "k1", "k3", None]


def test_a_taken_key_refuses_the_whole_of_its_statement(db: Sql) -> None:
    db.enqueue("a", unique_key="k2")
    for how in ("insert", "insert or replace", "insert or ignore", "insert or fail"):
        sentence = db.refused(
            f"{how} into litejobs_job (task, unique_key) "
            "values ('a', 'k1'), ('a', 'k2'), ('a', 'k3')"
        )
        assert sentence.startswith("unique_key_taken: ")
        assert db.column("select unique_key from litejobs_job") == ["k2"]


# From a trigger of the application ----------------------------------------------------


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_an_application_trigger_enqueues_whatever_its_statement_says(
    db: Sql, how: str
) -> None:
    """The `or replace` of the outer statement reaches into every trigger below it."""
    db.serve("send")
    db.execute("create table orders (id integer primary key, total integer)")
    db.execute(
        "create trigger order_is_confirmed after insert on orders begin "
        "insert into litejobs_job (task, args, unique_key) "
        "values ('send', json_object('order', new.id), 'order ' || new.id); end"
    )
    for order in (1, 2, 3):
        db.execute(f"{how} into orders values (?, 5)", (order,))
    lanes = db.execute("select * from litejobs_lane")
    db.execute(f"{how} into orders select 4, 5")
    assert db.execute("select * from litejobs_lane") == lanes
    assert db.execute(
        "select args, state, unique_key from litejobs_job order by id"
    ) == [(f'{{"order":{n}}}', "pending", f"order {n}") for n in (1, 2, 3, 4)]
    assert len(db.claim(10)) == 4


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_an_application_trigger_that_does_not_say_ignore_refuses_its_row(
    db: Sql, how: str
) -> None:
    """One that does keeps the row, and the job that there is."""
    db.serve("send")
    for table, said in (("orders", "null"), ("bills", "'ignore'")):
        db.execute(f"create table {table} (id integer primary key, customer text)")
        db.execute(
            f"create trigger {table}_are_sent after insert on {table} begin "
            "insert into litejobs_job (task, unique_key, on_conflict) "
            f"values ('send', '{table} of ' || new.customer, {said}); end"
        )
        db.execute(f"{how} into {table} values (1, 'Ann')")
    sentence = db.refused(f"{how} into orders values (2, 'Bob'), (3, 'Ann')")
    assert sentence.startswith("unique_key_taken: ")
    db.execute(f"{how} into bills values (2, 'Bob'), (3, 'Ann')")
    assert db.column("select id from orders") == [1]
    assert db.column("select id from bills") == [1, 2, 3]
    assert db.column("select unique_key from litejobs_job order by id") == [
        *("orders of Ann", "bills of Ann", "bills of Bob")
    ]


def test_replacing_an_application_row_keeps_its_job(db: Sql) -> None:
    db.serve("send")
    db.execute("create table orders (id integer primary key, total integer)")
    db.execute(
        "create trigger order_is_confirmed after insert on orders begin "
        "insert into litejobs_job (task, unique_key, on_conflict) "
        "values ('send', new.id, 'ignore'); end"
    )
    for total in (1, 2):
        db.execute("insert or replace into orders values (1, ?)", (total,))
    assert db.column("select id from litejobs_job") == [1]


# Strange ids --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_an_id_below_one_is_refused(db: Sql, number: int) -> None:
    """In a trigger before an insert, an id of -1 stands for one that was left out."""
    values = f"into litejobs_job (id, task) values ({number}, 'a')"
    for how in ("insert", "insert or replace"):
        sentence = db.refused(f"{how} {values}")
        assert sentence == "CHECK constraint failed: litejobs_job_id_positive"
    db.execute(f"insert or ignore {values}")
    assert db.content("litejobs_job") == []
    assert db.enqueue("a") == 1


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_an_id_that_leaves_no_room_for_others_is_refused(db: Sql, how: str) -> None:
    insert = f"{how} into litejobs_job (id, task) values (?, 'a')"
    for number in (2**53 + 1, 2**63 - 1):
        assert db.refused(insert, (number,)) == (
            "invalid_birth: an id above 2^53 would leave no room for others; "
            "leave the id out"
        )
    assert db.enqueue("a") == 1
