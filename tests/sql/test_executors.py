"""Who runs where: executors have rows, slots and lanes of their own."""

from __future__ import annotations

import datetime as dt
import random

import apsw
import pytest

from tests.sql.fixture import ERRORS, MINUTE, SECOND, Sql, lent, steps_of

EXECUTOR = "select executor from litejobs_lane where task = ? order by id"


def on_cpu(db: Sql, slots: int = 2) -> None:
    """Tasks a (in threads) and b (on the executor cpu) are served."""
    db.serve("a")
    db.serve("b")
    db.register("cpu", slots)
    db.execute("update litejobs_task set executor = 'cpu' where name = 'b'")


def sentences(db: Sql, job: int) -> list[str]:
    return db.column("select detail from litejobs_block where job_id = ?", (job,))


def instant(at_ms: int) -> str:
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


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
    assert db.claim_room(5, cpu=2) == [first, third, urgent, second]
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
    # A key, by which they are claimed one by one.
    db.execute(
        "update litejobs_task set concurrency_key = 'k', concurrency_limit = 9"
        " where name = 'b'"
    )
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


def test_of_all_that_may_begin_the_first_does(db: Sql) -> None:
    on_cpu(db)
    far, near = db.enqueue("b"), db.enqueue("a", priority=1)
    assert db.claim_room(1, most=1, cpu=1) == [near]
    assert db.claim_room(1, most=1, cpu=1) == [far]


def test_as_many_as_have_room_begin_at_once_in_the_order_of_the_line(db: Sql) -> None:
    on_cpu(db, slots=3)
    db.serve("c", queue="q")
    db.register("gpu", 1)
    db.execute("update litejobs_task set executor = 'cpu' where name = 'c'")
    db.serve("d")
    db.execute("update litejobs_task set executor = 'gpu' where name = 'd'")
    expired = db.enqueue("b", priority=9, expires_at=db.now + 1)
    low, other, first = db.enqueue("b"), db.enqueue("c"), db.enqueue("c", priority=2)
    gpu = [db.enqueue("d"), db.enqueue("d", priority=1)]
    last = db.enqueue("b")
    db.wait(1)
    # An expired one holds back those behind it in its lane until the tick.
    db.tick()
    assert db.job(expired).state == "cancelled"
    assert db.claim_room(0, cpu=3, gpu=1) == [first, gpu[1], low, other]
    end(db, low)
    assert db.claim_room(0, cpu=1, gpu=0) == [last]


def test_who_is_held_back_alone_is_claimed_alone(db: Sql) -> None:
    """A key of one executor holds up no other, and no job without it."""
    on_cpu(db, slots=4)
    db.serve("c")
    db.register("gpu", 4)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'c'")
    keyed = [db.enqueue("b", concurrency_key="x") for _ in range(2)]
    free = [db.enqueue("b") for _ in range(2)]
    gpu = [db.enqueue("c") for _ in range(5)]
    claimed = db.claim_room(0, cpu=4, gpu=4)
    assert claimed == [*gpu[:4], keyed[0], *free]
    assert codes(db, keyed[1]) == ["key_full"]
    assert codes(db, gpu[4]) == ["executor_full"]


@pytest.mark.every_client
def test_numbers_that_no_runner_would_say_begin_no_more(db: Sql) -> None:
    on_cpu(db)
    db.serve("c")
    db.register("gpu", 2)
    db.execute(
        "update litejobs_task set executor = 'gpu', concurrency_key = 'k'"
        " where name = 'c'"
    )
    far, keyed = db.enqueue("b"), db.enqueue("c", priority=1)
    assert db.claim_room(0, most=-1, cpu=2, gpu=2) == []
    assert db.claim_room(-9, most=-1, cpu=2, gpu=2) == []
    # Threads that are fewer than none take nothing from executors.
    assert db.claim_room(-9, most=1, cpu=2, gpu=2) == [keyed]
    told = "insert into litejobs__claim_room (runner, slots, executors, most)"
    db.execute(f"{told} values (?, null, '{{\"cpu\": 2}}', 1.5)", (db.runner,))
    assert db.job(far).state == "processing"


def test_what_a_claim_costs_does_not_grow_with_the_line(db: Sql) -> None:
    """Nor with the room of an executor or with its lanes, but with what begins."""
    on_cpu(db)
    db.serve("c")
    db.register("gpu", 10_000)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'c'")
    far = db.enqueue("b")
    db.enqueue("c")

    def claims(most: int, **room: int) -> int:
        def claim() -> None:
            db.claim_room(0, most=most, **room)

        db.execute("savepoint before")
        claim()  # It is prepared.
        db.execute("rollback to before")
        steps = steps_of(db, claim)
        db.execute("rollback to before")
        return steps

    alone = claims(1, cpu=0, gpu=10_000), claims(256, cpu=2, gpu=0)
    db.execute(
        "with recursive many (n) as ("
        " select 1 union all select n + 1 from many where n < 1000)"
        " insert into litejobs_job (task, concurrency_key)"
        " select 'c', null from many union all select 'b', 'k' || n from many"
    )
    db.execute(
        "update litejobs_job set state = 'cancelled' where concurrency_key is not null"
    )
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (far,))
    db.enqueue("b")
    crowded = claims(1, cpu=0, gpu=10_000), claims(256, cpu=2, gpu=0)
    assert crowded[0] < 2 * alone[0]
    assert crowded[1] < 2 * alone[1]


def test_who_waits_for_a_thread_holds_up_no_executor(db: Sql) -> None:
    """Where no thread is free those of executors begin at once, however many may."""
    on_cpu(db, slots=400)
    for _ in range(40):
        db.enqueue("b")
    db.execute("savepoint before")
    claimed = []
    free = steps_of(db, lambda: claimed.append(db.claim_room(0, most=30, cpu=400)))
    db.execute("rollback to before")
    waits = db.enqueue("a", priority=9)
    held = steps_of(db, lambda: claimed.append(db.claim_room(0, most=30, cpu=400)))
    assert claimed[0] == claimed[1]
    assert len(claimed[0]) == 30
    assert db.job(waits).state == "pending"
    assert held < 1.5 * free


def test_room_for_which_nothing_is_found_stays(db: Sql) -> None:
    on_cpu(db, slots=4)
    job = db.enqueue("b", concurrency_key="x")
    assert db.claim_room(0, cpu=4) == [job]
    later = db.enqueue("b", concurrency_key="y")
    assert db.claim_room(2, cpu=3) == [later]


def test_a_tier_of_threads_closes_where_no_thread_is_free(db: Sql) -> None:
    on_cpu(db)
    db.insert("litejobs_tier", queue="q", min_priority=0, every_ms=MINUTE, at_most=2)
    db.serve("c", queue="q")
    db.enqueue("c")
    assert len(db.claim_room(1, cpu=2)) == 1
    db.execute("update litejobs_tier set taken = 1")
    assert db.claim_room(0, cpu=2) == []
    assert db.value("select taken from litejobs_tier") == 2


STARTS = (
    "select attempt.job_id, coalesce(placement.executor, '')"
    " from litejobs_attempt as attempt"
    " left join litejobs_placement as placement"
    " on placement.attempt_id = attempt.id where attempt.id > ?"
)


def _one_by_one(db: Sql, slots: int, room: dict[str, int]) -> set[tuple[int, str]]:
    """What starts if each job is claimed on its own."""
    started: set[tuple[int, str]] = set()
    left = dict(room)
    while True:
        last = db.value("select coalesce(max(id), 0) from litejobs_attempt")
        db.claim_room(slots, most=1, **left)
        new = db.execute(STARTS, (last,))
        if not new:
            return started
        [(job, executor)] = new
        started.add((job, executor))
        if executor:
            left[executor] -= 1
        else:
            slots -= 1


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(each, marks=pytest.mark.torture) for each in (2, 3))]
)
def test_many_at_once_are_those_that_start_one_by_one(db: Sql, seed: int) -> None:
    """Whatever holds some of them back: limits, rates, tiers, pauses, an order."""
    chosen = random.Random(seed)
    db.execute("update litejobs_runner set threads = 3")
    db.register("cpu", 4)
    db.register("gpu", 2)
    executors = (None, "cpu", "cpu", "gpu", "gpu", None)
    for number, (task, executor) in enumerate(zip("abcdef", executors, strict=True)):
        db.serve(task, queue=f"q{number % 3}", max_attempts=9)
        if executor is not None:
            named = (executor, task)
            db.execute("update litejobs_task set executor = ? where name = ?", named)
    for number in range(3):
        db.execute(
            "insert or ignore into litejobs_queue (name) values (?)", (f"q{number}",)
        )
    queues = (
        ("max_running", (None, 2, 3)),
        ("rate_count", (None, 2)),
        ("aging_ms", (None, MINUTE)),
        ("keys", ("in_order", "round_robin")),
        ("retries", ("in_order", "after_new")),
        ("paused", (0, 0, 0, 1)),
    )
    seen = 0
    for step in range(160):
        move = chosen.randrange(9)
        if move <= 2:
            for _ in range(3):
                db.enqueue(
                    chosen.choice("abcdef"),
                    priority=chosen.randint(0, 2),
                    run_at=db.now + chosen.choice((-5, 0, 0, SECOND)),
                    **chosen.choice(
                        [{}, {}, {"concurrency_key": "x", "concurrency_limit": 2}]
                    ),
                )
        elif move == 3 and step > 40:
            column, values = chosen.choice(queues)
            db.execute(
                f"update litejobs_queue set {column} = ? where name = ?",
                (chosen.choice(values), f"q{chosen.randrange(4)}"),
            )
        elif move <= 6:
            for attempt in db.column(
                "select id from litejobs_attempt where finished_at is null"
            ):
                if chosen.randrange(3):
                    db.settle(attempt, "ok")
        elif step > 80 and not db.value("select count(*) from litejobs_tier"):
            db.insert(
                "litejobs_tier", queue="q1", min_priority=1, every_ms=MINUTE, at_most=2
            )
        else:
            db.wait(chosen.choice((1, SECOND)))
        db.tick()
        running = dict(
            db.execute(
                "select coalesce(executor, ''), count(*) from litejobs_assignment"
                " group by 1"
            )
        )
        room = {"cpu": 4 - running.get("cpu", 0), "gpu": 2 - running.get("gpu", 0)}
        slots = 3 - running.get("", 0)
        db.execute("savepoint before")
        alone = _one_by_one(db, slots, room)
        db.execute("rollback to before")
        last = db.value("select coalesce(max(id), 0) from litejobs_attempt")
        db.claim_room(slots, **room)
        together = set(db.execute(STARTS, (last,)))
        db.execute("release before")
        assert together == alone, (seed, step)
        seen += len(together)
    assert seen > 30


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
    since = db.now
    db.wait(SECOND)
    # To say so again changes nothing of since when.
    db.query("executor_away", name="cpu", away=1)
    assert db.value("select away_at from litejobs_executor") == since
    sentence = f"executor cpu is away since {instant(since)}"
    assert sentences(db, job) == [sentence]
    [row] = db.rows("select code, detail, remedy from litejobs_waiting")
    assert (row.code, row.detail) == ("executor_away", sentence)
    found = dict(db.execute("select code, sentence from litejobs_health"))
    assert found["executor_away"] == f"{sentence}, and its jobs wait"
    assert db.claim_room(1, cpu=2) == []
    db.query("executor_away", name="cpu", away=0)
    assert "executor_away" not in dict(
        db.execute("select code, sentence from litejobs_health")
    )
    assert db.claim_room(1, cpu=2) == [job]


def test_what_waits_for_an_executor_is_left_by_who_waits_for_the_rest(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("b")
    db.query("executor_away", name="cpu", away=1)
    [told] = db.query("idle", stands=0)
    assert tuple(vars(told).values()) == (1,)


def test_executors_of_a_runner_that_is_over_are_nobodys(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    db.start_runner()
    assert codes(db, job) == ["no_executor"]
    db.query("forget_executors", runner=db.runner, names="[]")
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


def test_coroutines_are_of_asyncio_where_nothing_else_is_named(db: Sql) -> None:
    db.execute("insert into litejobs_task (name, executor) values ('a', 'asyncio')")
    db.execute("insert into litejobs_task (name, executor) values ('b', 'cpu')")
    db.enqueue("a", queue="x")
    db.enqueue("a", queue="y", concurrency_key="k")
    db.enqueue("b", queue="x")
    assert db.column(EXECUTOR, "a") == ["asyncio", "asyncio", "asyncio"]
    db.execute("update litejobs_queue set executor = 'q' where name = 'x'")
    assert db.column(EXECUTOR, "a") == ["q", "asyncio", "asyncio"]
    # Also of a lane that is new.
    db.enqueue("a", queue="x", concurrency_key="k")
    of_x = "select distinct executor from litejobs_lane where queue = 'x'"
    assert db.column(of_x + " and task = 'a'") == ["q"]
    assert db.column(EXECUTOR, "b") == ["cpu"]
    db.execute("update litejobs_queue set executor = null where name = 'x'")
    assert set(db.column(EXECUTOR, "a")) == {"asyncio"}


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
    assert tuple(vars(told).values())[2] == 0
    assert db.claim_room(1, cpu=2) == []


@pytest.mark.every_client
def test_who_says_nothing_of_threads_has_none(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("a")
    job = db.enqueue("b")
    for _ in range(2):
        db.execute(
            "insert into litejobs__claim_room (runner, executors) values (?, ?)",
            (db.runner, '{"cpu": 1}'),
        )
    running = "select id from litejobs_job where state = 'processing'"
    assert db.column(running) == [job]


@pytest.mark.parametrize("room", ["", "[1]", '{"cpu": "two"}', '{"cpu": 1.5}'])
def test_room_that_is_none_is_refused(db: Sql, room: str) -> None:
    on_cpu(db)
    with pytest.raises(ERRORS, match="invalid_room"):
        db.execute(
            "insert into litejobs__claim_room (runner, slots, executors)"
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
        (
            "update litejobs_executor set away_at = -1",
            "litejobs_executor_away_at_in_range",
        ),
        (
            "update litejobs_executor set clean_up_ms = -1",
            "litejobs_executor_clean_up_in_range",
        ),
        (
            "update litejobs_executor set held = 2000001",
            "litejobs_executor_held_in_range",
        ),
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
    assert constraint in db.refused(statement)


def test_the_room_of_each_is_what_a_runner_compares_with_its_own(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("b")
    [told] = db.query("executors_agenda")
    assert tuple(vars(told).values()) == (b'{"cpu":2}', b'{"cpu":2}', 1)
    db.claim_room(0, cpu=2)
    [told] = db.query("executors_agenda")
    assert tuple(vars(told).values()) == (b'{"cpu":2}', b'{"cpu":1}', 0)


def test_an_assignment_says_for_which_executor_it_is(db: Sql) -> None:
    on_cpu(db)
    db.enqueue("a")
    db.enqueue("b")
    db.claim_room(1, cpu=1)
    found = db.column("select executor from litejobs_assignment order by attempt_id")
    assert found == ["cpu", None]
    placed = db.query("placed", after=0, runner=db.runner)
    assert [each.executor for each in placed] == ["cpu"]


def test_what_a_runner_lacks_is_told_when_it_begins(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'a'")
    db.execute("insert into litejobs_queue (name, executor) values ('q', 'gpu')")
    db.execute("update litejobs_task set runner_id = ?", (db.runner,))
    rows = db.query("executors_missing", runner=db.runner)
    assert [tuple(vars(each).values()) for each in rows] == [("gpu", "task a, queue q")]


# Where each attempt runs --------------------------------------------------------------


@pytest.mark.every_client
def test_an_attempt_keeps_the_executor_for_which_it_was_claimed(db: Sql) -> None:
    on_cpu(db, slots=1)
    near, far = db.enqueue("a"), db.enqueue("b")
    assert db.claim_room(1, cpu=1) == [far, near]
    # From now on the task runs elsewhere, and what is open stays where it is.
    db.execute("update litejobs_task set executor = 'gpu' where name = 'b'")
    db.register("gpu", 1)
    next_one = db.enqueue("b")
    assert db.claim_room(0, cpu=0, gpu=1) == [next_one]
    found = "select job_id, executor from litejobs_attempt_report order by id"
    assert db.execute(found) == [(far, "cpu"), (near, None), (next_one, "gpu")]
    end(db, far)
    assert db.execute(found)[0] == (far, "cpu")
    reported = "select executor from litejobs_job_report order by id"
    assert db.column(reported) == [None, "gpu", "gpu"]


def test_who_runs_it_is_told_while_it_runs(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    db.claim_room(0, cpu=2)
    attempt = db.job(job).attempt_id
    report = "select worker, memory_bytes from litejobs_attempt_report"

    def tell(worker: str | None, memory: int | None) -> list[tuple[object, ...]]:
        told = {"worker": worker, "memory_bytes": memory}
        db.query("record_worker", attempt=attempt, **told)
        return db.execute(report)

    assert tell("process 7", None) == [("process 7", None)]
    assert tell("process 7", 4096) == [("process 7", 4096)]
    assert tell(None, 1024) == [("process 7", 4096)]
    assert tell("p" * 300, 5000) == [("p" * 200, 5000)]
    end(db, job)
    # What is told of one that is closed comes too late.
    assert tell("process 8", 9999) == [("p" * 200, 5000)]
    [running] = [db.query("watch_running", limit=9)]
    assert running == []


@pytest.mark.every_client
@pytest.mark.parametrize(
    "statement",
    [
        "insert into litejobs_placement (attempt_id, executor) values (1, 'gpu')",
        "insert or replace into litejobs_placement (attempt_id, executor)"
        " values (2, 'gpu')",
        "insert into litejobs_placement (attempt_id, executor) values (99, 'gpu')",
        "update litejobs_placement set executor = 'gpu'",
        "update litejobs_placement set attempt_id = 99",
        "update or replace litejobs_placement set attempt_id = 99",
        "delete from litejobs_placement",
    ],
)
def test_where_an_attempt_runs_is_not_changed_by_anybody(
    db: Sql, statement: str
) -> None:
    on_cpu(db)
    done, job = db.enqueue("a"), db.enqueue("b")
    db.claim(1)
    end(db, done)
    db.claim_room(0, cpu=1)
    with pytest.raises(ERRORS, match="immutable_placement"):
        db.execute(statement)
    assert db.execute("select attempt_id, executor from litejobs_placement") == [
        (db.job(job).attempt_id, "cpu")
    ]


def test_what_a_closed_attempt_ran_on_does_not_change(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    db.claim_room(0, cpu=1)
    end(db, job)
    with pytest.raises(ERRORS, match="immutable_placement"):
        db.execute("update litejobs_placement set worker = 'another'")


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("worker = printf('%201d', 1)", "litejobs_placement_worker_length"),
        ("memory_bytes = -1", "litejobs_placement_memory_positive"),
        ("is_late = 2", "litejobs_placement_is_late_boolean"),
    ],
)
def test_a_worker_that_cannot_be_is_refused(
    db: Sql, change: str, constraint: str
) -> None:
    on_cpu(db)
    db.enqueue("b")
    db.claim_room(0, cpu=1)
    assert constraint in db.refused(f"update litejobs_placement set {change}")


def test_an_executor_without_a_name_runs_nothing(db: Sql) -> None:
    db.serve("a")
    db.enqueue()
    [attempt] = db.claim(1)
    assert "litejobs_placement_executor_length" in db.refused(
        "insert into litejobs_placement (attempt_id, executor) values (?, '')",
        (attempt,),
    )


@pytest.mark.every_client
def test_with_a_job_goes_where_it_ran(db: Sql) -> None:
    on_cpu(db)
    first, second = db.enqueue("b"), db.enqueue("b")
    db.claim_room(0, cpu=2)
    end(db, first)
    db.execute("delete from litejobs_job where id = ?", (first,))
    assert db.column("select attempt_id from litejobs_placement") == [
        db.job(second).attempt_id
    ]


# Several processes --------------------------------------------------------------------


def take_over(db: Sql) -> None:
    """Another runner begins that has the same tasks."""
    db.start_runner()
    db.execute("update litejobs_task set runner_id = ?", (db.runner,))


@pytest.mark.every_client
def test_a_runner_that_takes_over_has_its_own_executors(db: Sql) -> None:
    on_cpu(db, slots=1)
    first, second = db.enqueue("b"), db.enqueue("b")
    assert db.claim_room(0, cpu=1) == [first]
    # Its process has died without a word, and a standby takes over that has another.
    assert codes(db, second) == ["executor_full"]
    before = db.runner
    take_over(db)
    db.register("gpu", 2)
    db.query("forget_executors", runner=db.runner, names='["gpu"]')
    db.tick()
    assert db.attempt(db.job(first).attempt_id).status == "crashed"
    assert codes(db, second) == ["no_executor"]
    assert db.claim_room(1, gpu=2, cpu=1) == []
    # It has the same one, with more slots, and none of them is taken any more.
    db.register("cpu", 2)
    assert codes(db, second) == []
    assert db.claim_room(1, gpu=2, cpu=2) == [second]
    with pytest.raises(ERRORS, match="runner_stopped"):
        db.execute(
            "insert into litejobs__claim_room (runner, slots, executors)"
            " values (?, 1, '{\"cpu\": 1}')",
            (before,),
        )


def test_where_no_runner_lives_that_is_why_and_no_executor_is_blamed(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    db.execute("update litejobs_task set executor = 'gpu' where name = 'b'")
    db.query("stop_runner", runner=db.runner)
    why = "select code from litejobs_why where job_id = ?"
    assert db.column(why, (job,)) == ["no_runner"]
    assert db.column("select code from litejobs_waiting") == ["no_runner"]


def test_executors_of_a_runner_that_was_forgotten_are_nobodys(db: Sql) -> None:
    on_cpu(db)
    job = db.enqueue("b")
    for _ in range(102):
        take_over(db)
    assert db.value("select count(*) from litejobs_runner where id = 2") == 0
    assert codes(db, job) == ["no_executor"]
    assert db.claim_room(1, cpu=2) == []


def test_a_standby_that_has_it_is_named(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'b'")
    db.execute("update litejobs_runner set pid = 17")
    db.insert("litejobs_standby", pid=18, executors='["gpu", "x"]')
    job = db.enqueue("b")
    said = "process 18 has it, but stands by while process"
    for query in (
        f"select remedy from litejobs_why where job_id = {job}",
        "select remedy from litejobs_waiting where code = 'no_executor'",
        "select remedy from litejobs_doctor where code = 'executor_unknown'",
    ):
        [remedy] = db.column(query)
        assert remedy.startswith(said)
    # Of one that nobody names nothing is said.
    unserved = db.query("unserved", id=1)
    assert [(each.kind, each.name) for each in unserved] == [("executor", "gpu")]
    db.execute("delete from litejobs_standby")
    [found] = db.rows("select * from litejobs_doctor where code = 'executor_unknown'")
    assert found.sentence == (
        "executor gpu is not one of the living runner, and jobs in line wait for it: 1"
    )
    assert "LiteJobs(executors=...)" in found.remedy


def test_a_queue_that_names_it_is_reason_enough_to_name_a_standby(db: Sql) -> None:
    on_cpu(db)
    db.execute("insert into litejobs_queue (name, executor) values ('q', 'gpu')")
    db.insert("litejobs_standby", pid=18, executors='["gpu"]')
    assert [each.name for each in db.query("unserved", id=1)] == ["gpu"]


# Room ---------------------------------------------------------------------------------


@pytest.mark.every_client
def test_more_room_than_can_be_is_cut(db: Sql) -> None:
    on_cpu(db)
    jobs = [db.enqueue("b") for _ in range(3)]
    assert db.claim_room(0, cpu=2**60) == jobs
    assert codes(db, db.enqueue("b")) == []
    assert db.claim_room(0, cpu=-(2**60)) == []
    assert codes(db, 4) == ["executor_full"]


def test_what_another_client_has_written_is_put_right_by_the_next_claim(
    db: Sql,
) -> None:
    on_cpu(db)
    first, second = db.enqueue("b"), db.enqueue("b")
    db.execute("update litejobs_executor set held = 2, slots = 50")
    assert db.claim_room(0, cpu=1) == [first]
    # Somebody has put in one that the runner does not have: nothing begins on it.
    db.register("gpu", 4)
    db.execute("update litejobs_task set executor = 'gpu' where name = 'b'")
    assert db.claim_room(0, cpu=1) == []
    assert codes(db, second) == ["executor_full"]
    db.query("forget_executors", runner=db.runner, names='["cpu"]')
    assert codes(db, second) == ["no_executor"]
    db.execute("delete from litejobs_executor")
    assert db.claim_room(1, cpu=2) == []


def test_more_may_be_taken_than_there_are_now(db: Sql) -> None:
    on_cpu(db, slots=3)
    for _ in range(3):
        db.enqueue("b")
    db.claim_room(0, cpu=3)
    db.register("cpu", 1)
    late = db.enqueue("b")
    assert db.claim_room(0, cpu=0) == []
    assert sentences(db, late) == ["executor cpu is full: 3 of 1"]


def test_a_job_of_an_executor_waits_for_no_thread(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_runner set threads = 1")
    db.enqueue("a")
    db.claim(1)
    near, far = db.enqueue("a"), db.enqueue("b")
    why = "select code from litejobs_why where job_id = ?"
    assert (db.column(why, (near,)), db.column(why, (far,))) == (["no_slot"], ["turn"])
    assert db.claim_room(0, cpu=1) == [far]
    # And what runs there takes none.
    end(db, 1)
    assert db.column(why, (near,)) == ["turn"]


def test_the_time_of_threads_is_not_used_by_what_runs_elsewhere(db: Sql) -> None:
    on_cpu(db)
    db.execute("update litejobs_runner set threads = 1")
    db.enqueue("a")
    db.enqueue("b")
    db.claim_room(1, cpu=1)
    db.wait(10 * SECOND)
    [row] = db.rows("select busy_ms, capacity_ms from litejobs_measures")
    assert (row.busy_ms, row.capacity_ms) == (10 * SECOND, 10 * SECOND)


def steps(others: int) -> list[int]:
    """What enqueue, claim and settle take, beside so many lanes with executors."""
    db = lent()
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


# Slots that are lent ----------------------------------------------------------------

LEND = "insert into litejobs__lend (runner, job) values (?, ?)"


def test_a_job_starts_in_a_slot_that_is_lent_whatever_is_before_it(db: Sql) -> None:
    on_cpu(db, slots=1)
    db.enqueue("a", priority=9)
    here, taken, apart = db.enqueue("a"), db.enqueue("b"), db.enqueue("b")
    assert db.claim_room(0, cpu=1) == [taken]
    assert codes(db, apart) == ["executor_full"]
    for job in (here, apart, apart):
        db.execute(LEND, (db.runner, job))
    assert [db.job(job).state for job in (here, apart)] == ["processing"] * 2
    assert db.column("select executor from litejobs_placement order by attempt_id") == [
        "cpu",
        "cpu",
    ]
    assert db.column("select room from litejobs__executor_gate") == [-1]


def test_what_is_held_back_by_anything_else_gets_no_slot_that_is_lent(db: Sql) -> None:
    on_cpu(db, slots=1)
    first, second = db.enqueue("a", queue="one"), db.enqueue("a", queue="one")
    later = db.enqueue("a", run_at=db.now + MINUTE)
    db.execute("update litejobs_queue set max_running = 1 where name = 'one'")
    for job in (first, second, later):
        db.execute(LEND, (db.runner, job))
    states = [db.job(job).state for job in (first, second, later)]
    assert states == ["processing", "pending", "scheduled"]
    db.execute("update litejobs_queue set max_running = null where name = 'one'")
    db.execute("insert or replace into litejobs_space (id, disk_full_at) values (1, 1)")
    db.execute(LEND, (db.runner, second))
    assert db.job(second).state == "pending"


def test_what_starts_in_a_slot_that_is_lent_uses_up_a_tier(db: Sql) -> None:
    db.serve("a")
    db.execute(
        "insert into litejobs_tier (queue, min_priority, at_most, every_ms) "
        "values ('', 1, 5, 60000)"
    )
    job = db.enqueue("a", priority=1)
    db.execute(LEND, (db.runner, job))
    # Nothing more can start of it, so the next one waits for its time.
    assert db.column("select taken from litejobs_tier") == [5]
