"""What happens when a task is registered, or a job is moved: sql/logic/tasks."""

from __future__ import annotations

from typing import Any

import pytest

from litejobs._definitions.columns import NEW_TASK, folded
from tests.sql.fixture import Sql, with_options

LIMITS = {
    "max_attempts": 9,
    "retryable": 0,
    "backoff": "linear",
    "delay_ms": 1_000,
    "factor": 3.0,
    "max_delay_ms": 50_000,
    "jitter": 0.5,
    "timeout_ms": 3_000,
    "max_crashes": 2,
    "intervals": "[1000,2000]",
    "retry_budget_ms": 60_000,
    "max_jumps": 4,
}


def without_times(db: Sql, job: int) -> dict[str, Any]:
    """The row of a job, but for what differs between any two."""
    row = vars(db.job(job))
    return {k: v for k, v in row.items() if k not in ("id", "created_at", "run_at")}


@pytest.mark.every_client
@pytest.mark.parametrize(
    "named",
    [{}, {"queue": "sms"}, {"priority": 3}, {"queue": "sms", "priority": 3, **LIMITS}],
    ids=["nothing", "queue", "priority", "everything"],
)
@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_jobs_that_were_there_first_are_as_those_that_come_later(
    db: Sql, how: str, named: dict[str, Any]
) -> None:
    runner = db.start_runner()
    early = db.enqueue("a", **named)
    other = db.enqueue("b")
    of_task = {"queue": "mail", "priority": 7, **LIMITS}
    db.insert("litejobs_task", how, name="a", runner_id=runner, **of_task)
    late = db.enqueue("a", **named)
    assert without_times(db, early) == without_times(db, late)
    assert db.job(early).given is None
    assert db.job(other).given is not None
    assert [db.attempt(each).job_id for each in db.claim(5)] == [early, late]


def test_a_task_without_defaults_leaves_the_general_ones(db: Sql) -> None:
    early = db.enqueue("a")
    db.insert("litejobs_task", name="a")
    assert without_times(db, early) == without_times(db, db.enqueue("a"))


def test_a_changed_default_is_for_jobs_to_come(db: Sql) -> None:
    db.serve("a", max_attempts=2)
    early = db.enqueue("a")
    db.execute("update litejobs_task set max_attempts = 5")
    assert db.job(early).max_attempts == 2
    assert db.job(db.enqueue("a")).max_attempts == 5


def test_declaring_the_same_again_writes_nothing(db: Sql) -> None:
    declaration = folded({**NEW_TASK, "name": "a", "queue": "q"})
    changes = []
    for max_attempts in (3, 3, 4):
        db.query("declare_task", **{**declaration, "max_attempts": max_attempts})
        changes.append(db.value("select changes()"))
    assert changes == [1, 0, 1]


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"name": ""}, "litejobs_task_name_length"),
        ({"name": "x" * 201}, "litejobs_task_name_length"),
        ({"queue": ""}, "litejobs_task_queue_length"),
        ({"queue": "x" * 201}, "litejobs_task_queue_length"),
        ({"max_attempts": -1}, "litejobs_task_max_attempts_in_range"),
        ({"retryable": 2}, "litejobs_task_retryable_is_flag"),
        ({"backoff": "fibonacci"}, "litejobs_spec_backoff_known"),
        ({"delay_ms": -1}, "litejobs_spec_delay_not_negative"),
        ({"factor": 0.99}, "litejobs_spec_factor_at_least_one"),
        ({"max_delay_ms": -1}, "litejobs_spec_max_delay_not_negative"),
        ({"crash_delay_ms": -1}, "litejobs_spec_crash_delay_not_negative"),
        ({"jitter": -0.01}, "litejobs_spec_jitter_is_fraction"),
        ({"jitter": 1.01}, "litejobs_spec_jitter_is_fraction"),
        ({"timeout_ms": 0}, "litejobs_spec_timeout_in_range"),
        ({"max_crashes": 0}, "litejobs_spec_max_crashes_in_range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_default_out_of_bounds_is_refused_by_its_constraint(
    db: Sql, columns: dict[str, Any], constraint: str
) -> None:
    columns = with_options({"name": "a", **columns})
    marks = ", ".join("?" * len(columns))
    sentence = db.refused(
        f"insert into litejobs_task ({', '.join(columns)}) values ({marks})",
        tuple(columns.values()),
    )
    assert sentence == f"CHECK constraint failed: {constraint}"


def test_a_task_whose_jobs_could_not_be_inserted_is_refused(db: Sql) -> None:
    assert "priority" in db.refused(
        "insert into litejobs_task (name, priority) values ('a', 1000001)"
    )


@pytest.mark.parametrize(
    ("sql", "constraint"),
    [
        ("insert into litejobs_queue (name) values ('')", "litejobs_queue_name_length"),
        (
            "insert into litejobs_queue (name, paused) values ('q', 2)",
            "litejobs_queue_paused_is_flag",
        ),
        ("update litejobs_meta set id = 2", "litejobs_meta_is_one_row"),
        (
            (
                "insert into litejobs_outbox_delivery (key, job_id, delivered_at) "
                "values ('', 1, 0)"
            ),
            "litejobs_outbox_delivery_key_length",
        ),
    ],
)
def test_the_small_tables_keep_out_what_cannot_be(
    db: Sql, sql: str, constraint: str
) -> None:
    assert db.refused(sql) == f"CHECK constraint failed: {constraint}"


# Moves --------------------------------------------------------------------------------


def test_a_job_moved_to_another_queue_changes_lanes(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a")
    before = db.job(job).lane_id
    db.execute("update litejobs_job set queue = 'mail'")
    after = db.job(job).lane_id
    assert after != before
    assert db.execute(
        "select queue, task from litejobs_lane where id = ?", (after,)
    ) == [("mail", "a")]
    assert db.column("select name from litejobs_queue order by name") == [
        "default",
        "mail",
    ]
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    assert db.claim() == []
    db.execute("update litejobs_job set queue = 'default'")
    assert db.job(job).lane_id == before
    assert len(db.claim()) == 1


def test_a_job_moved_to_another_task_changes_lanes(db: Sql) -> None:
    db.serve("b")
    job = db.enqueue("a")
    assert db.claim() == []
    db.execute("update litejobs_job set task = 'b'")
    assert [db.attempt(each).job_id for each in db.claim()] == [job]


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
def test_moving_leaves_the_other_lanes_and_queues_as_they_are(
    db: Sql, how: str
) -> None:
    db.serve("a")
    db.enqueue("a")
    stays = db.enqueue("a", queue="mail")
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    lane = db.job(stays).lane_id
    db.execute(f"{how} litejobs_job set queue = 'mail'")
    assert db.column("select lane_id from litejobs_job") == [lane, lane]
    assert db.execute("select paused from litejobs_queue where name = 'mail'") == [(1,)]


def test_a_move_to_where_it_is_makes_no_lane(db: Sql) -> None:
    db.enqueue("a")
    db.execute("update litejobs_job set queue = 'default', task = 'a'")
    assert len(db.content("litejobs_lane")) == 1


@pytest.mark.parametrize(("column", "value"), [("queue", "mine"), ("priority", 9)])
def test_what_a_person_changed_is_kept_when_the_task_is_registered(
    db: Sql, column: str, value: Any
) -> None:
    job = db.enqueue("a")
    db.execute(f"update litejobs_job set {column} = ?", (value,))
    db.insert("litejobs_task", name="a", queue="theirs", priority=1)
    assert getattr(db.job(job), column) == value


# Queues -------------------------------------------------------------------------------


def test_pausing_and_resuming_are_logged(db: Sql) -> None:
    db.enqueue("a", queue="mail")
    last = db.value("select max(id) from litejobs_event")
    for paused in (1, 1, 0):
        db.query("pause_queue", name="mail", paused=paused, origin="test")
    db.execute("update litejobs_queue set paused = 0")
    db.execute("update litejobs_queue set paused = 1")
    assert db.execute(
        "select name, subject, old_state, new_state, origin from litejobs_event "
        "where id > ?",
        (last,),
    ) == [
        ("queue.paused", "queue mail", "open", "paused", "test"),
        ("queue.open", "queue mail", "paused", "open", "test"),
        ("queue.paused", "queue mail", "open", "paused", "sql"),
    ]
    assert db.column("select origin from litejobs_queue") == [None]


@pytest.mark.every_client
@pytest.mark.parametrize("known", [False, True])
def test_pausing_by_an_insert_is_logged_too(db: Sql, known: bool) -> None:
    if known:
        db.enqueue("a", queue="mail")
    sql = (
        "insert or replace into litejobs_queue (name, paused, origin) "
        "values ('mail', 1, 'test')"
    )
    if known and db.value("pragma recursive_triggers"):
        # To such a client a row that is replaced is deleted first.
        assert db.refused(sql).startswith("immutable_queue: ")
        return
    db.execute(sql)
    assert ("queue.paused", "test") in db.execute(
        "select name, origin from litejobs_event"
    )
    assert db.execute("select origin from litejobs_queue where name = 'mail'") == [
        (None,)
    ]


# Its queue ----------------------------------------------------------------------------


def test_a_queue_is_paused_before_its_first_job(db: Sql) -> None:
    """By an update, which changes no row where there is none."""
    pause = "update litejobs_queue set paused = 1 where name = ? returning name"
    db.serve("send", queue="mail")
    db.serve("other")
    for queue in ("mail", "default"):
        assert db.execute(pause, (queue,)) == [(queue,)]
    jobs = [db.enqueue("send"), db.enqueue("other")]
    assert db.claim(9) == []
    assert {db.job(job).state for job in jobs} == {"pending"}
    # So it is where another queue is named later.
    db.execute("update litejobs_task set queue = 'letters' where name = 'send'")
    assert db.execute(pause, ("letters",)) == [("letters",)]
    db.enqueue("send")
    assert db.claim(9) == []


def test_a_queue_that_nothing_names_yet_is_paused_by_an_upsert(db: Sql) -> None:
    pause = (
        "insert into litejobs_queue (name, paused) values ('mail', ?) "
        "on conflict (name) do update set paused = excluded.paused"
    )
    db.execute(pause, (1,))
    db.serve("send", queue="mail")
    db.enqueue("send")
    assert db.claim(9) == []
    db.execute(pause, (0,))
    assert len(db.claim(9)) == 1
