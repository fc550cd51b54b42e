"""What a job was before somebody changed it, and that nobody changes that."""

from __future__ import annotations

import json

import pytest

from tests.rows import for_each
from tests.sql.fixture import (
    HOUR,
    MINUTE,
    SECOND,
    Sql,
    is_code,
    lent,
    machine_steps,
)

NEVER = "immutable_log: what happened is never changed"
WITH_JOB = "immutable_log: lines of the log go only with their job"


def mark(db: Sql) -> int:
    number: int = db.value("select births + claims + others from litejobs__mark")
    return number


def past(db: Sql, log_id: int, column: str) -> list[object]:
    return db.column(
        f"select {column} from litejobs_job_past where log_id = ? order by id",
        (log_id,),
    )


def told(db: Sql, job: int) -> list[tuple[object, ...]]:
    return db.execute(
        "select subject, origin from litejobs_event "
        "where job_id = ? and name = 'task.changed' order by id",
        (job,),
    )


@pytest.mark.every_client
def test_what_a_person_changes_is_told_and_what_was_there_kept(db: Sql) -> None:
    job = db.enqueue("a", priority=1)
    before = mark(db)
    db.execute(
        "update litejobs_job set priority = 5, queue = 'mail', max_attempts = 9, "
        "retryable = 0"
    )
    assert told(db, job) == [
        (
            "queue default -> mail, priority 1 -> 5, max_attempts default -> 9, "
            "retryable default -> 0",
            "sql",
        )
    ]
    assert past(db, before, "queue") == ["default"]
    assert past(db, before, "priority") == [1]
    assert past(db, before, "max_attempts") == [3]
    assert past(db, before, "max_retries") == [2]
    after = mark(db)
    assert past(db, after, "priority") == [5]
    db.execute("update litejobs_job set retryable = null, max_attempts = null")
    assert past(db, after, "max_retries") == [0]
    assert told(db, job)[1][0] == "max_attempts 9 -> default, retryable 0 -> default"


def test_what_stays_as_it_is_is_not_told(held: Sql) -> None:
    job = held.enqueue("a", run_at=held.now + HOUR)
    held.execute("update litejobs_job set priority = priority, run_at = run_at")
    held.execute(
        "update litejobs_job set args = args, unique_key = unique_key, "
        "options = '{\"timeout_ms\": null}', on_parent_failure = null"
    )
    assert told(held, job) == []


@for_each(
    "change, subject",
    [
        ("args = '[\"secret\"]'", "args replaced"),
        ("options = '{\"timeout_ms\": 5}'", "timeout_ms none -> 5"),
        (
            'options = \'{"max_crashes": 2, "jitter": 0.5}\'',
            "jitter none -> 0.5, max_crashes none -> 2",
        ),
        (
            "concurrency_key = 'k', concurrency_limit = 2",
            "concurrency_key none -> k, concurrency_limit none -> 2",
        ),
        ("circuit = 'net'", "circuit none -> net"),
        ('requires = \'["b", "a"]\'', 'requires none -> ["a","b"]'),
        ("unique_key = 'k'", "unique_key none -> k"),
        ("unique_for_ms = 7, on_conflict = 'raise'", None),
        ("expires_at = 1767229200000", "expires none -> 2026-01-01T01:00:00.000Z"),
        ("on_parent_failure = 'run'", "on_parent_failure none -> run"),
        ("on_parent_success = 'cancel'", "on_parent_success none -> cancel"),
    ],
)
def test_whatever_is_said_otherwise_is_told(
    held: Sql, change: str, subject: str | None
) -> None:
    held.serve("a")
    job = held.enqueue("a")
    held.execute(f"update litejobs_job set {change}, origin = 'me'")
    expected = subject or "unique_for_ms none -> 7, on_conflict none -> raise"
    assert told(held, job) == [(expected, "me")]
    held.execute(f"update litejobs_job set {change}")
    assert len(told(held, job)) == 1
    assert held.job(job).origin is None
    # Nothing of it is in the way of the rest of its life.
    assert held.execute("select * from litejobs_replay_difference") == []


def test_what_a_job_gets_from_its_task_is_not_told(held: Sql) -> None:
    job = held.enqueue("late", args="{}")
    held.serve("late", timeout_ms=5, circuit="net", concurrency_key="k")
    assert held.job(job).circuit == "net"
    assert told(held, job) == []


def test_another_time_is_told_and_the_one_before_kept(held: Sql) -> None:
    first = held.now + HOUR
    job = held.enqueue("a", run_at=first)
    before = mark(held)
    held.execute("update litejobs_job set run_at = run_at + ?", (MINUTE,))
    assert told(held, job) == [
        ("due 2026-01-01T01:00:00.000Z -> 2026-01-01T01:01:00.000Z", "sql")
    ]
    assert past(held, before, "run_at") == [first]
    assert past(held, mark(held), "run_at") == [first + MINUTE]


def test_the_first_time_of_a_job_outlives_its_retries(held: Sql) -> None:
    held.serve("a", delay_ms=MINUTE, jitter=0.0)
    first = held.now + HOUR
    job = held.enqueue("a", run_at=first)
    born = mark(held)
    held.wait(2 * HOUR)
    held.tick()
    failed = []
    for _ in range(2):
        held.fail(job)
        failed.append((mark(held), held.job(job).run_at))
        held.wait(HOUR)
        held.tick()
    assert past(held, born, "run_at") == [first]
    for log_id, run_at in failed:
        assert past(held, log_id, "run_at") == [run_at]
        assert past(held, log_id, "next_retry_at") == [run_at]
    assert told(held, job) == []


def test_what_is_due_at_once_leaves_nothing_behind(held: Sql) -> None:
    """That is nearly every job: its row says it all."""
    held.serve("a")
    job = held.enqueue("a")
    held.fail(job)
    held.fail(held.enqueue("a"), "ok")
    held.enqueue("a", run_at=held.now + HOUR)
    assert held.execute("select * from litejobs_before_image") == []


def test_a_rule_that_moves_a_job_is_named(held: Sql) -> None:
    held.serve("a")
    rule = {"action": "retry", "queue": "slow", "priority": -1, "when": [is_code(7)]}
    held.add_policy(rule)
    job = held.enqueue("a")
    attempt = held.begin(job)
    before = mark(held)
    held.settle(attempt, "error", ',"code":7')
    assert told(held, job) == [("queue default -> slow, priority 0 -> -1", "rule 1")]
    assert held.job(job).origin is None
    assert past(held, before, "queue") == ["default"]
    # The next time nothing changes by it.
    held.settle(held.begin(job), "error", ',"code":7')
    assert len(told(held, job)) == 1
    assert held.job(job).origin is None


def test_a_job_that_is_put_off_again_and_again_is_remembered_each_minute(
    held: Sql,
) -> None:
    held.serve("a")
    for _ in range(30):
        for how in ("debounce", "replace"):
            held.insert(
                "litejobs_job",
                task="a",
                unique_key="u",
                on_conflict=how,
                run_at=held.now + HOUR,
                priority=len(told(held, 1)),
            )
        held.wait(5 * SECOND)
    assert 2 <= len(told(held, 1)) <= 6
    assert {origin for _, origin in told(held, 1)} == {"unique_key"}
    assert held.job(1).origin is None


def test_a_clock_that_goes_back_is_named_where_it_moves_a_wait(held: Sql) -> None:
    held.serve("a", delay_ms=HOUR, jitter=0.0)
    job = held.enqueue("a")
    held.fail(job)
    held.tick()
    before, run_at = mark(held), held.job(job).run_at
    held.wait(-10 * MINUTE)
    held.tick()
    assert held.job(job).run_at == run_at - 10 * MINUTE
    assert [origin for _, origin in told(held, job)] == ["clock"]
    assert past(held, before, "run_at") == [run_at]


def test_a_task_that_is_renamed_is_told_of_its_waiting_jobs(held: Sql) -> None:
    job = held.enqueue("old")
    before = mark(held)
    held.insert("litejobs_rename", old_name="old", new_name="new")
    assert told(held, job) == [("task old -> new", "code")]
    assert past(held, before, "task") == ["old"]
    assert held.job(job).origin is None


def test_what_a_job_gets_with_its_task_it_has_had_from_the_first(held: Sql) -> None:
    job = held.enqueue("later")
    before = mark(held)
    held.serve("later", queue="mail", priority=4, max_attempts=7)
    assert told(held, job) == []
    assert past(held, before, "queue") == ["mail"]
    assert past(held, before, "max_attempts") == [7]


def test_counts_that_a_person_takes_back_are_told(held: Sql) -> None:
    held.serve("a", max_attempts=5)
    job = held.enqueue("a")
    held.fail(job)
    before = mark(held)
    held.execute("update litejobs_job set attempts = 0")
    assert told(held, job) == [("attempts 1 -> 0", "sql")]
    assert past(held, before, "attempt_count") == [1]
    held.fail(job)
    assert past(held, before, "attempt_count") == [1]


def test_what_a_person_sets_of_other_counts_is_told_and_is_no_difference(
    held: Sql,
) -> None:
    """In a statement of its own, with the attempts, before a move, and taken back."""
    held.serve("a", max_attempts=9, delay_ms=MINUTE, jitter=0.0)
    job = held.enqueue("a")
    held.fail(job)
    held.wait(MINUTE)
    held.tick()
    held.fail(job, "crashed")
    counts = "attempt_count", "crashes", "delayed_ms", "jumps"

    def known(log_id: int) -> list[object]:
        return [past(held, log_id, each)[0] for each in counts]

    def differences() -> list[object]:
        return held.column("select sentence from litejobs_replay_difference")

    seen = [(mark(held), known(mark(held)))]
    assert seen[0][1][:2] == [2, 1]
    assert differences() == []
    for sql in (
        "update litejobs_job set crashes = 0, delayed_ms = 5",
        "update litejobs_job set attempts = 0, crashes = 3, delayed_ms = 0, jumps = 2",
        "update litejobs_job set jumps = 0, state = 'pending'",
        "update litejobs_job set crashes = crashes, jumps = jumps",
        "update litejobs_job set crashes = 1",
    ):
        held.execute(sql)
        assert held.execute(
            f"select attempts, {', '.join(counts[1:])} from litejobs_job"
        ) == [tuple(known(mark(held)))]
        assert differences() == []
        seen.append((mark(held), known(mark(held))))
    assert [known(log_id) for log_id, _ in seen] == [row for _, row in seen]
    assert [each[0] for each in told(held, job)] == [
        f"crashes 1 -> 0, delayed_ms {seen[0][1][2]} -> 5",
        "crashes 0 -> 3, delayed_ms 5 -> 0, jumps 0 -> 2",
        "attempts 2 -> 0",
        "jumps 2 -> 0",
        "crashes 3 -> 1",
    ]
    held.fail(job)
    held.execute("update litejobs_job set state = 'cancelled'")
    held.execute("update litejobs_job set state = 'pending'")
    assert [known(log_id) for log_id, _ in seen] == [row for _, row in seen]
    assert differences() == []


def test_a_requeue_keeps_how_it_had_ended(held: Sql) -> None:
    held.serve("a")
    job = held.job_in("dead_lettered")
    ended, before = held.job(job).finished_at, mark(held)
    held.wait(HOUR)
    held.execute("update litejobs_job set state = 'pending'")
    held.execute("update litejobs_job set state = 'cancelled'")
    columns = "state, finished_at, stopped_by, attempt_count, cancel_requested"
    sql = f"select {columns} from litejobs_job_past where log_id = ?"
    assert held.execute(sql, (before,)) == [
        ("dead_lettered", ended, "max_attempts", 1, 0)
    ]
    assert held.execute(sql, (mark(held),)) == [("cancelled", held.now, None, 0, 1)]
    assert told(held, job) == []


def test_a_job_that_is_run_now_was_due_later(held: Sql) -> None:
    first = held.now + HOUR
    job = held.enqueue("a", run_at=first)
    before = mark(held)
    held.execute("update litejobs_job set state = 'pending'")
    assert past(held, before, "run_at") == [first]
    assert past(held, mark(held), "run_at") == [held.now]
    assert told(held, job) == []


def test_what_is_changed_in_an_operation_does_not_keep_it_from_being_undone(
    held: Sql,
) -> None:
    held.serve("a")
    parent, child = held.enqueue("a"), held.enqueue("a")
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    held.insert("litejobs_operation", name="tidy up")
    held.execute("update litejobs_job set priority = 5 where id = ?", (child,))
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (parent,))
    held.execute("update litejobs_operation set state = 'done'")
    assert held.job(child).state == "cancelled"
    held.execute("insert into litejobs_undo (operation) values (1)")
    assert held.job(child).state == "blocked"
    # It stays as it was set.
    assert held.job(child).priority == 5
    assert told(held, child) == [("priority 0 -> 5", "sql")]


@pytest.mark.every_client
def test_what_was_kept_stays_as_it_is_until_its_job_goes(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a")
    db.execute("update litejobs_job set priority = 3")
    [(log_id, image)] = db.execute("select log_id, image from litejobs_before_image")
    assert json.loads(image)["priority"] == 0
    table = "litejobs_before_image"
    assert db.refused(f"update {table} set image = '{{}}'") == NEVER
    for how in ("insert", "insert or replace", "insert or ignore"):
        sql = f"{how} into {table} (job_id, log_id, image) values (?, ?, '{{}}')"
        assert db.refused(sql, (job, log_id)) == NEVER
    assert db.refused(f"delete from {table}") == WITH_JOB
    sql = f"insert into {table} (job_id, log_id, image) values (99, 1, 'no')"
    assert "litejobs_before_image_is_json" in db.refused(sql)
    db.execute("update litejobs_job set state = 'cancelled'")
    db.execute("delete from litejobs_job")
    assert db.execute(f"select * from {table}") == []


@pytest.fixture
def few_and_many() -> list[Sql]:
    """In one database 20 jobs have failed, in another 400."""
    found = []
    for jobs in (20, 400):
        db = lent()
        db.serve("a")
        for _ in range(jobs):
            db.enqueue("a")
        for attempt in db.claim(jobs):
            db.settle(attempt, "error")
        found.append(db)
    return found


@for_each(
    "sql, most",
    [
        ("select * from litejobs_job_past where log_id = ? and id = 7", 1_000),
        ("select * from litejobs_attempt_past where log_id = ? and job_id = 7", 200),
        (
            "select * from litejobs_job_past where log_id = ? order by id desc limit 5",
            4_000,
        ),
        (
            "select * from litejobs_replay_difference "
            "where ? > 0 and job_id > 5 and job_id <= 10",
            3_400,
        ),
        ("select log_id from litejobs_moment where at > 0 and at = ? + 4e12", 100),
    ],
)
def test_a_part_of_the_past_costs_no_more_where_there_is_much(
    few_and_many: list[Sql], sql: str, most: int
) -> None:
    few, many = (machine_steps(db, sql, (mark(db),)) for db in few_and_many)
    assert 0 < few <= most
    assert many <= few + 60


@pytest.mark.every_client
def test_an_instant_is_the_last_number_at_which_the_clock_showed_it(db: Sql) -> None:
    sql = "select log_id from litejobs_moment where at = ?"
    assert db.execute(sql, (db.now + HOUR,)) == [(0,)]
    db.enqueue("a")
    db.enqueue("a")
    assert db.execute(sql, (db.now + HOUR,)) == [(2,)]
    assert db.execute(sql, (0,)) == [(0,)]
    assert db.execute("select * from litejobs_job_past where log_id = 0") == []
    assert db.execute("select * from litejobs_moment") == []
    assert db.execute("select * from litejobs_job_past") == []
