"""Who runs where: executors have rows, slots and lanes of their own."""

from __future__ import annotations

import apsw
import pytest

from tests.sql.fixture import ERRORS, Sql, on_apsw

EXECUTOR = "select executor from litejobs_lane where task = ? order by id"


def on_cpu(db: Sql, slots: int = 2) -> None:
    """Tasks a (in threads) and b (on the executor cpu) are served."""
    db.serve("a")
    db.serve("b")
    db.register("cpu", slots)
    db.execute("update litejobs_task set executor = 'cpu' where name = 'b'")


def sentences(db: Sql, job: int) -> list[str]:
    return db.column("select detail from litejobs_block where job_id = ?", (job,))


def codes(db: Sql, job: int) -> list[str]:
    return db.column("select code from litejobs_block where job_id = ?", (job,))


def end(db: Sql, job: int) -> None:
    attempt = db.job(job).attempt_id
    db.execute(
        "insert into litejobs_settle (attempt, outcome) values (?, ?)",
        (attempt, '{"status": "ok"}'),
    )


@pytest.mark.every_client
def test_a_claim_without_room_on_executors_leaves_their_jobs_alone(db: Sql) -> None:
    on_cpu(db)
    far, near = db.enqueue("b"), db.enqueue("a")
    assert len(db.claim(5)) == 1
    assert db.job(near).state == "processing"
    assert db.job(far).state == "pending"
    assert codes(db, far) == []


@pytest.mark.every_client
def test_each_is_given_what_it_has_room_for_in_the_order_of_the_line(db: Sql) -> None:
    on_cpu(db)
    first, second = db.enqueue("b"), db.enqueue("a")
    third, fourth = db.enqueue("b"), db.enqueue("b")
    urgent = db.enqueue("a", priority=5)
    assert db.claim_room(5, cpu=2) == [urgent, first, second, third]
    assert codes(db, fourth) == ["executor_full"]
    assert sentences(db, fourth) == ["executor cpu is full: 2 of 2"]


def test_a_full_executor_holds_back_its_own_jobs_alone(db: Sql) -> None:
    on_cpu(db, slots=1)
    db.enqueue("b")
    held, free = db.enqueue("b"), db.enqueue("a")
    assert len(db.claim_room(0, cpu=1)) == 1
    assert db.claim_room(3, cpu=0) == [free]
    assert codes(db, held) == ["executor_full"]


def test_where_no_thread_is_free_executors_go_on(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("a")
    far = db.enqueue("b")
    assert db.claim_room(0, cpu=2) == [far]


def test_what_runs_on_an_executor_takes_no_thread(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_runner set threads = 1")
    # A rate is used up one by one, and no job of it is claimed ahead.
    db.execute(
        "update litejobs_task set concurrency_key = 'k', rate_count = 5"
        " where name = 'a'"
    )
    db.enqueue("b")
    assert len(db.claim_room(0, cpu=2)) == 1
    gated = db.enqueue("a")
    [agenda] = db.query("agenda", runner=db.runner, seen_at=0)
    assert agenda.claim
    assert db.claim_room(1, cpu=1) == [gated]


def test_no_more_begin_than_threads_are_free_beside_an_executor(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_runner set threads = 1")
    first, second = db.enqueue("a"), db.enqueue("a")
    far = db.enqueue("b")
    assert db.claim_room(5, cpu=1) == [first, far]
    # Now nothing can start on an executor, and threads are claimed ahead of.
    assert db.claim_room(4, cpu=0) == [second]


def test_so_many_begin_in_all_as_is_said(db: Sql) -> None:
    on_cpu(db)
    first, second = db.enqueue("b"), db.enqueue("a")
    assert db.claim_room(3, most=1, cpu=2) == [first]
    assert db.claim_room(3, most=0, cpu=1) == []
    assert db.claim_room(3, most=1, cpu=0) == [second]


def test_room_is_what_the_runner_says_and_not_what_attempts_do(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    # A task of before cannot be ended, and takes both slots.
    assert db.claim_room(1, cpu=0) == []
    assert sentences(db, job) == ["executor cpu is full: 2 of 2"]
    assert db.claim_room(1, cpu=1) == [job]


def test_of_an_executor_that_is_not_told_nothing_begins(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    assert db.claim_room(1) == []
    assert codes(db, job) == ["executor_full"]


def test_a_slot_is_free_again_when_the_attempt_has_ended(db: Sql) -> None:
    on_cpu(db, slots=1)
    first, second = db.enqueue("b"), db.enqueue("b")
    assert db.claim_room(0, cpu=1) == [first]
    end(db, first)
    assert codes(db, second) == []
    assert db.claim_room(0, cpu=1) == [second]


@pytest.mark.every_client
def test_without_a_runner_that_has_it_a_job_says_so(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'b'")
    job = db.enqueue("b")
    assert codes(db, job) == ["no_executor"]
    assert db.claim_room(1, cpu=2) == []
    waiting = db.rows("select code, object, jobs from litejobs_waiting")
    assert [(each.code, each.object, each.jobs) for each in waiting] == [
        ("no_executor", "executor gpu", 1)
    ]


def test_who_waits_for_a_full_executor_is_counted_with_its_sentence(db: Sql) -> None:
    on_cpu(db, slots=1)
    for _ in range(3):
        db.enqueue("b")
    db.claim_room(0, cpu=1)
    [row] = db.rows("select code, detail, jobs from litejobs_waiting")
    assert (row.code, row.detail, row.jobs) == (
        *("executor_full", "executor cpu is full: 1 of 1"),
        2,
    )


def test_an_executor_that_is_away_begins_nothing(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    db.query("executor_away", name="cpu", away=1)
    assert codes(db, job) == ["executor_away"]
    assert db.claim_room(1, cpu=2) == []
    db.query("executor_away", name="cpu", away=0)
    assert db.claim_room(1, cpu=2) == [job]


def test_executors_of_a_runner_that_is_over_are_nobodys(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    db.start_runner()
    assert codes(db, job) == ["no_executor"]
    db.query("forget_executors", runner=db.runner)
    assert db.value("select count(*) from litejobs_executor") == 0
    assert codes(db, job) == ["no_executor"]


def test_a_queue_names_one_for_tasks_that_name_none(db: Sql) -> None:
    on_cpu(db)
    db.register("gpu", 1)
    a, b = db.enqueue("a", queue="images"), db.enqueue("b", queue="images")
    db.execute("update litejobs_queue set executor = 'gpu' where name = 'images'")
    assert (db.column(EXECUTOR, "a"), db.column(EXECUTOR, "b")) == (["gpu"], ["cpu"])
    assert db.claim(5) == []
    assert db.claim_room(1, cpu=1, gpu=1) == [a, b]


@pytest.mark.every_client
def test_lanes_follow_their_task_and_their_queue(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("b", queue="x", concurrency_key="k")
    assert db.column(EXECUTOR, "b") == ["cpu", "cpu"]
    db.execute("update litejobs_task set executor = null where name = 'b'")
    assert db.column(EXECUTOR, "b") == ["", ""]
    db.execute("update litejobs_queue set executor = 'q' where name = 'x'")
    assert db.column(EXECUTOR, "b") == ["q", "q"]
    db.execute(
        "insert or replace into litejobs_task (name, executor) values ('b', 't')"
    )
    assert db.column(EXECUTOR, "b") == ["t", "t"]
    db.execute("delete from litejobs_task where name = 'b'")
    assert db.column(EXECUTOR, "b") == ["q", "q"]
    db.execute("update litejobs_queue set executor = null where name = 'x'")
    assert db.column(EXECUTOR, "b") == ["", ""]


def test_jobs_of_a_key_wait_on_their_executor_as_others(db: Sql) -> None:
    on_cpu(db, slots=3)
    db.execute("update litejobs_task set concurrency_limit = 1 where name = 'b'")
    first = db.enqueue("b", concurrency_key="x")
    second, other = (
        db.enqueue("b", concurrency_key="x"),
        db.enqueue("b", concurrency_key="y"),
    )
    assert db.claim_room(0, cpu=3) == [first, other]
    assert codes(db, second) == ["key_full"]


def test_a_tier_closes_when_nothing_of_an_executor_can_start_either(db: Sql) -> None:
    on_cpu(db)
    db.execute(
        "insert into litejobs_tier (queue, min_priority, every_ms, at_most)"
        " values ('default', 0, 60000, 9)"
    )
    for _ in range(3):
        db.enqueue("b")
    assert len(db.claim_room(0, cpu=2)) == 2
    assert db.value("select taken from litejobs_tier") == 9


def test_nothing_begins_while_the_disk_is_full(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("b")
    db.execute("insert or replace into litejobs_space (id, disk_full_at) values (1, 1)")
    [told] = db.query("executors_agenda")
    assert tuple(vars(told).values())[1] == 0
    assert db.claim_room(1, cpu=2) == []


@pytest.mark.parametrize("room", ["", "[1]", '{"cpu": "two"}', '{"cpu": 1.5}'])
def test_room_that_is_none_is_refused(db: Sql, room: str) -> None:
    on_cpu(db)
    with pytest.raises(ERRORS, match="invalid_room"):
        db.execute(
            "insert into litejobs_claim_room (runner, slots, executors)"
            " values (?, 1, ?)",
            (db.runner, room),
        )


def test_a_runner_that_has_stopped_is_told_so(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_runner set stopped_at = 1")
    with pytest.raises(ERRORS, match="runner_stopped"):
        db.claim_room(1, cpu=1)


def test_nobody_gives_a_lane_another_executor(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("b")
    with pytest.raises(ERRORS, match="immutable_lane"):
        db.execute("update litejobs_lane set executor = 'gpu'")
    with pytest.raises(ERRORS, match="immutable_lane"):
        db.execute(
            "insert into litejobs_lane (queue, task, requires) values"
            " ('default', 'b', '[\"x\"]')"
        )


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (
            "insert into litejobs_executor (name, slots, runner_id) values ('', 1, 1)",
            "litejobs_executor_name_length",
        ),
        (
            "insert into litejobs_executor (name, slots, runner_id) values ('x', 0, 1)",
            "litejobs_executor_slots_in_range",
        ),
        ("update litejobs_executor set away = 2", "litejobs_executor_away_is_flag"),
        (
            "update litejobs_task set executor = ''",
            "litejobs_task_executor_length",
        ),
        (
            "insert into litejobs_queue (name, executor) values ('q', '')",
            "litejobs_queue_executor_length",
        ),
    ],
)
def test_a_bad_row_is_refused(db: Sql, statement: str, constraint: str) -> None:
    on_cpu(db)
    with pytest.raises(ERRORS, match=constraint):
        db.execute(statement)


def test_the_room_of_each_is_what_a_runner_compares_with_its_own(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("b")
    [told] = db.query("executors_agenda")
    assert tuple(vars(told).values()) == ('{"cpu":2}', 1)
    db.claim_room(0, cpu=2)
    [told] = db.query("executors_agenda")
    assert tuple(vars(told).values()) == ('{"cpu":1}', 0)


def test_an_assignment_says_for_which_executor_it_is(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("a")
    db.enqueue("b")
    db.claim_room(1, cpu=1)
    found = db.column("select executor from litejobs_assignment order by attempt_id")
    assert found == [None, "cpu"]
    placed = db.query("placed", after=0, runner=db.runner)
    assert [each.executor for each in placed] == ["cpu"]


def test_what_a_runner_lacks_is_told_when_it_begins(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'a'")
    db.execute("insert into litejobs_queue (name, executor) values ('q', 'gpu')")
    db.execute("update litejobs_task set runner_id = ?", (db.runner,))
    rows = db.query("executors_missing", runner=db.runner)
    assert [tuple(vars(each).values()) for each in rows] == [("gpu", "task a, queue q")]


def steps(others: int) -> list[int]:
    """What enqueue, claim and settle take, beside so many lanes with executors."""
    db = on_apsw(traced=False)
    on_cpu(db)
    for number in range(others):
        db.serve(f"b{number}")
        db.execute(
            "update litejobs_task set executor = 'cpu' where name = ?", (f"b{number}",)
        )
        db.enqueue(f"b{number}")
    warm = db.enqueue("a")
    assert len(db.claim(1)) == 1
    end(db, warm)
    counted: list[int] = []
    db.connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    job = db.enqueue("a")
    db.execute("insert into litejobs_claim (runner, slots) values (?, 1)", (db.runner,))
    db.connection.trace_v2(0, None)
    assert db.job(job).state == "processing"
    return counted


def test_a_claim_for_threads_takes_no_step_for_jobs_of_executors() -> None:
    assert steps(30) == steps(0)
