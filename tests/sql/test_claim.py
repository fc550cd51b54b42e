"""What happens when a runner has room for more work: sql/logic/claim."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import (
    CLIENTS,
    ERRORS,
    HOUR,
    MINUTE,
    SECOND,
    STATES,
    Sql,
    as_new,
)

pytestmark = pytest.mark.every_client

RUNNER_STOPPED = (
    "runner_stopped: this runner has stopped or was replaced by a later one; "
    "start a new runner"
)
INVALID_CLAIM = (
    "invalid_claim: an attempt is opened for a pending job by a living runner, "
    "through litejobs_claim"
)


def claimed_jobs(db: Sql, slots: int) -> list[int]:
    """The jobs of the attempts that were opened, in the order of their ids."""
    return [db.attempt(attempt).job_id for attempt in db.claim(slots)]


def test_a_claimed_job_is_processing_with_an_open_attempt(held: Sql) -> None:
    held.serve("a", timeout_ms=90 * SECOND)
    job = held.enqueue("a")
    held.wait(5 * SECOND)
    [number] = held.claim(4)
    row, attempt = held.job(job), held.attempt(number)
    assert (row.state, row.attempt_id) == ("processing", number)
    assert (row.starts, row.attempts) == (1, 1)
    assert (attempt.job_id, attempt.start_no, attempt.attempt) == (job, 1, 1)
    assert attempt.runner_id == held.runner
    assert attempt.claimed_at == held.now
    assert attempt.deadline_at == held.now + 90 * SECOND
    assert (attempt.finished_at, attempt.status, attempt.decision) == (None, None, None)
    assert held.moves(job)[-1] == ("pending", "processing", None)
    assert held.events(job)[-1] == "task.attempt.started"


def test_without_a_time_limit_there_is_no_deadline(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a")
    [attempt] = db.claim()
    assert db.attempt(attempt).deadline_at is None


def test_the_order_is_priority_then_how_long_due_then_id(db: Sql) -> None:
    db.serve("a")
    db.serve("b", queue="other")
    now = db.now
    plain = [
        db.enqueue("a", run_at=now - 500),
        db.enqueue("b", run_at=now - 500),
        db.enqueue("b", run_at=now - 600),
        db.enqueue("a", run_at=now - 400),
    ]
    low = db.enqueue("a", run_at=0, priority=-1)
    high = db.enqueue("b", run_at=now, priority=3)
    order = [high, plain[2], plain[0], plain[1], plain[3], low]
    assert [claimed_jobs(db, 1) for _ in range(7)] == [*([job] for job in order), []]


def test_a_claim_of_many_equals_as_many_claims_of_one(held: Sql) -> None:
    for task, queue in (("a", None), ("b", "q"), ("c", "r")):
        held.serve(task, queue=queue)
    held.execute("update litejobs_queue set paused = 1 where name = 'r'")
    now = held.now
    for number in range(30):
        task = "abc"[number % 3]
        held.enqueue(task, run_at=now - number * 7 % 11, priority=number * 5 % 3)
    held.execute("savepoint before")
    many = claimed_jobs(held, 12)
    held.execute("rollback to before")
    single = [job for _ in range(12) for job in claimed_jobs(held, 1)]
    assert many == single
    assert len(set(many)) == 12


# Few jobs in line beside many lanes ---------------------------------------------------


def serve_many(db: Sql) -> list[str]:
    """Tasks of all kinds in four queues, each with a lane, and nothing in line."""
    db.execute("update litejobs_runner set threads = 12")
    names = []
    for number in range(28):
        kinds: list[dict[str, Any]] = [
            {},
            {"concurrency_key": "key", "concurrency_limit": 2},
            {"concurrency_key": "api", "rate_count": 30, "rate_ms": 60_000},
            {"circuit": "{0}"},
        ]
        names.append(f"t{number}")
        db.serve(names[-1], queue=f"q{number % 4}", **kinds[number // 4 % 4])
        db.enqueue(names[-1], args='["c"]')
    db.execute("update litejobs_queue set max_running = 2 where name = 'q1'")
    db.execute(
        "update litejobs_queue set rate_count = 60, rate_ms = 60000 where name = 'q2'"
    )
    db.execute("update litejobs_job set state = 'cancelled' where state = 'pending'")
    return names


def few(db: Sql) -> int | None:
    """How many are in line, if a claim looks at each of them and not at the lanes."""
    jobs: int | None = db.value("select jobs from litejobs__few")
    return jobs


@pytest.mark.parametrize(
    "seed",
    [*range(3), *(pytest.param(each, marks=pytest.mark.torture) for each in (3, 4, 5))],
)
def test_few_beside_many_lanes_start_as_if_lanes_were_looked_at(
    held: Sql, seed: int
) -> None:
    chance = random.Random(seed)
    tasks = serve_many(held)
    seen = 0
    for _ in range(14):
        for _ in range(chance.randint(0, 5)):
            held.enqueue(
                chance.choice(tasks),
                args='["c"]',
                priority=chance.randint(0, 2),
                run_at=held.now - chance.randint(0, 3),
            )
        slots = chance.randint(1, 5)
        if few(held) is not None:
            assert few(held) == held.value("select count(*) from litejobs__ready")
            seen += 1
        held.execute("savepoint before")
        many = claimed_jobs(held, slots)
        held.execute("rollback to before")
        single = []
        for _ in range(slots):
            first = next(iter(held.column("select job_id from litejobs__next")), None)
            any_starts = held.value("select is_any from litejobs__startable")
            assert any_starts == (first is not None)
            taken = claimed_jobs(held, 1)
            assert taken == ([] if first is None else [first])
            single += taken
        held.execute("release before")
        assert many == single
        running = held.column(
            "select attempt_id from litejobs_job where state = 'processing'"
        )
        for attempt in chance.sample(running, chance.randint(0, len(running))):
            held.settle(attempt, chance.choice(["ok", "ok", "error"]))
        held.wait(chance.choice([0, 500, 2_000]))
        held.tick()
    assert seen > 4


@for_each(
    "change",
    [
        "update litejobs_queue set aging_ms = 1000 where name = 'q0'",
        "update litejobs_queue set retries = 'after_new' where name = 'q0'",
        "update litejobs_queue set keys = 'round_robin' where name = 'q0'",
        "update litejobs_job set expires_at = 0 where state = 'pending'",
    ],
)
def test_where_the_order_is_another_one_lanes_are_looked_at(
    db: Sql, change: str
) -> None:
    tasks = serve_many(db)
    db.enqueue(tasks[0])
    assert few(db) == 1
    db.execute(change)
    assert few(db) is None


def test_few_are_few_beside_the_lanes(db: Sql) -> None:
    tasks = serve_many(db)
    for count in range(14):
        assert few(db) == (count if 2 * count + 1 < len(tasks) else None)
        db.enqueue(tasks[count])
    assert few(db) is None


def test_no_lane_is_passed_over_for_few(db: Sql) -> None:
    """Beside four lanes, or where more is claimed ahead than there are threads."""
    for name in ("a", "b", "c", "d"):
        db.serve(name)
        db.enqueue(name)
    assert few(db) is None
    assert len(db.claim(4)) == 4
    tasks = serve_many(db)
    jobs = [db.enqueue(tasks[number]) for number in (0, 3, 2)]
    db.execute("update litejobs_runner set threads = 5")
    assert few(db) == 3
    # One thread is free: what no gate holds back is claimed ahead, and one with a rate
    # is not.
    assert claimed_jobs(db, 3) == jobs[:2]


@pytest.fixture
def five_beside_many(db: Sql) -> Sql:
    """So few jobs are in line that a claim looks at each of them."""
    for task in serve_many(db)[:5]:
        db.enqueue(task)
    assert few(db) == 5
    return db


@for_each(
    "slots, begun",
    [("'3'", 3), ("'0'", 0), ("-1", 0), ("null", 0), ("2.0", 2), ("'2.0'", 2)],
)
def test_slots_said_as_text_are_so_many_beside_many_lanes(
    five_beside_many: Sql, slots: str, begun: int
) -> None:
    """Some drivers bind all they are given as text, which is more than any number."""
    db = five_beside_many
    db.execute(
        f"insert into litejobs_claim (runner, slots) values ({db.runner}, {slots})"
    )
    assert db.value("select count(*) from litejobs_attempt") == begun


# What a claim may change besides.
KEPT = ("lane", "key", "queue", "circuit")


def fill_with_keys(db: Sql, chance: random.Random) -> None:
    """Jobs of some keys, of which tasks, people and jobs themselves say something."""
    key = {"concurrency_key": "of {0}"}
    limit = {"concurrency_limit": chance.choice([None, 1, 2, 5])}
    db.serve("one", **key, **limit)
    db.serve("two", **key, **chance.choice([limit, {"concurrency_limit": 2}]))
    db.serve("other", queue="other", **key, **limit)
    db.serve("rated", rate_count=3, rate_ms=MINUTE, rate_burst=2, **key)
    db.serve("tried", circuit="host {0}", **key)
    db.serve("free")
    db.serve("few", queue="few", **key)
    db.execute(
        "update litejobs_queue set max_running = ? where name = 'few'",
        (chance.randint(1, 3),),
    )
    rare = chance.sample(["other", "rated", "tried", "few"], 2)
    tasks = [*("one", "two", "free") * 2, *rare]
    keys = chance.randint(1, 9)
    for _ in range(chance.randint(10, 40)):
        options: dict[str, Any] = {}
        if chance.random() < 0.05:
            options["concurrency_limit"] = chance.randint(1, 4)
        if chance.random() < 0.1:
            options["expires_at"] = db.now + SECOND
        db.enqueue(
            chance.choice(tasks),
            args=f"[{chance.randint(1, keys)}]",
            run_at=db.now - chance.randint(0, 9),
            priority=chance.choice([0, 0, 1, 2, -1]),
            **options,
        )
    for column, values in (("max_running", (0, 1, 3)), ("rate_count", (1, 2))):
        if chance.random() < 0.5:
            db.execute(
                f"update litejobs_key set {column} = ? where key = ?",
                (chance.choice(values), f"of {chance.randint(1, keys)}"),
            )
    gone = f"of {chance.randint(1, 9)}"
    db.execute("delete from litejobs_key where key = ?", (gone,))
    db.wait(chance.choice([0, 2 * SECOND]))


@pytest.mark.parametrize(
    "seed",
    [
        *range(5),
        *(pytest.param(each, marks=pytest.mark.torture) for each in range(5, 30)),
    ],
)
def test_a_claim_of_many_keys_equals_as_many_claims_of_one(
    held: Sql, seed: int
) -> None:
    """With a thread for each slot; with fewer it takes the first of the same jobs."""
    chance = random.Random(seed)
    fill_with_keys(held, chance)
    for _ in range(4):
        slots = chance.randint(1, 25)
        held.execute("savepoint before")
        many = claimed_jobs(held, slots)
        left = [held.execute(f"select * from litejobs_{each}") for each in KEPT]
        held.execute("rollback to before")
        threads = chance.randint(0, 5)
        held.execute("update litejobs_runner set threads = ?", (threads,))
        ahead = claimed_jobs(held, slots)
        held.execute("rollback to before")
        single = [job for _ in range(slots) for job in claimed_jobs(held, 1)]
        held.execute("release before")
        assert many == single
        assert left == [held.execute(f"select * from litejobs_{each}") for each in KEPT]
        assert ahead == single[: len(ahead)]
        running = held.column(
            "select attempt_id from litejobs_job where state = 'processing'"
        )
        for attempt in chance.sample(running, chance.randint(0, len(running))):
            held.settle(attempt, chance.choice(["ok", "interrupted"]))
        held.wait(chance.choice([0, 20 * SECOND]))
        held.tick()


@pytest.mark.parametrize("state", [state for state in STATES if state != "pending"])
def test_only_a_job_in_line_is_claimed(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    assert db.claim(10) == []
    assert db.job(job).state == state


def test_a_job_of_a_paused_queue_waits_until_it_is_resumed(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a", queue="mail")
    free = db.enqueue("a", queue="other")
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    assert claimed_jobs(db, 5) == [free]
    db.execute("update litejobs_queue set paused = 0 where name = 'mail'")
    assert len(db.claim(5)) == 1


def test_a_job_of_an_unknown_task_waits_until_a_runner_has_it(db: Sql) -> None:
    db.start_runner()
    db.enqueue("a")
    assert db.claim(5) == []
    db.insert("litejobs_task", name="a")
    assert db.claim(5) == []
    db.execute("update litejobs_task set runner_id = ?", (db.runner,))
    assert len(db.claim(5)) == 1


def test_a_task_of_an_earlier_runner_is_not_claimed(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a")
    db.insert("litejobs_runner")
    db.runner += 1
    assert db.claim(5) == []


def test_no_slots_open_no_attempt(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a")
    assert db.claim(0) == []


def test_fewer_than_no_slots_open_no_attempt(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a")
    assert db.claim(-1) == []


def test_a_stopped_runner_is_refused(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a")
    db.query("stop_runner", runner=db.runner)
    claim = "insert into litejobs_claim (runner, slots) values (?, 1)"
    assert db.refused(claim, (db.runner,)) == RUNNER_STOPPED
    assert db.refused(claim, (99,)) == RUNNER_STOPPED
    assert db.refused(claim, (None,)) == RUNNER_STOPPED


def test_a_runner_that_was_replaced_is_refused(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a")
    replaced = db.runner
    db.start_runner()
    claim = "insert into litejobs_claim (runner, slots) values (?, 1)"
    assert db.refused(claim, (replaced,)) == RUNNER_STOPPED
    assert len(db.claim()) == 1


@for_each(
    "wrong",
    [
        {"job_id": 99},
        {"start_no": 2},
        {"start_no": 0},
        {"attempt": 2},
        {"attempt": 0},
        {"runner_id": 99},
        {"finished_at": 5},
        {"status": "ok"},
        {"decision": "complete"},
        {"ended": 5},
        {"id": 1},
        {"id": 2**53 + 1},
    ],
)
@for_each("how", ["insert", "insert or replace", "insert or ignore"])
def test_an_attempt_is_not_opened_past_the_rules(
    db: Sql, how: str, wrong: dict[str, Any]
) -> None:
    db.serve("a")
    db.job_in("completed")
    job = db.enqueue("a")
    row = {
        "job_id": job,
        "start_no": 1,
        "attempt": 1,
        "runner_id": db.runner,
        "claimed_at": 0,
        **wrong,
    }
    names = ", ".join(row)
    sentence = db.refused(
        f"{how} into litejobs_attempt ({names}) values ({', '.join('?' * len(row))})",
        tuple(row.values()),
    )
    assert sentence == INVALID_CLAIM
    assert db.column("select id from litejobs_attempt") == [1]


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_an_attempt_is_not_opened_by_a_runner_that_has_stopped(
    db: Sql, how: str
) -> None:
    db.serve("a")
    job, stopped = db.enqueue("a"), db.runner
    db.start_runner()
    sentence = db.refused(
        f"{how} into litejobs_attempt "
        "(job_id, start_no, attempt, runner_id, claimed_at) values (?, 1, 1, ?, 0)",
        (job, stopped),
    )
    assert sentence == INVALID_CLAIM
    assert db.job(job).state == "pending"
    assert db.content("litejobs_attempt") == []


def test_an_attempt_has_no_number_below_that_of_others(db: Sql) -> None:
    """Also if it is free: the log is in the order of the numbers."""
    db.serve("a")
    gone, _ = db.job_in("completed"), db.job_in("completed")
    db.execute("delete from litejobs_job where id = ?", (gone,))
    job = db.enqueue("a")
    row = "(id, job_id, start_no, attempt, runner_id, claimed_at)"
    opened = f"insert into litejobs_attempt {row} values (?, ?, 1, 1, ?, 0)"
    assert db.column("select id from litejobs_attempt") == [2]
    for number in (1, 2):
        assert db.refused(opened, (number, job, db.runner)) == INVALID_CLAIM
    db.execute(opened, (3, job, db.runner))
    assert db.job(job).attempt_id == 3


@pytest.mark.parametrize("state", [state for state in STATES if state != "pending"])
def test_an_attempt_is_not_opened_for_a_job_that_is_not_in_line(
    db: Sql, state: str
) -> None:
    db.serve("a")
    row = db.job(db.job_in(state))
    sentence = db.refused(
        "insert into litejobs_attempt "
        "(job_id, start_no, attempt, runner_id, claimed_at) values (?, ?, ?, ?, 0)",
        (row.id, row.starts + 1, row.attempts + 1, db.runner),
    )
    # Where one is open, the index of those is the first to refuse.
    taken = "UNIQUE constraint failed: litejobs_attempt.job_id"
    assert sentence == (taken if state == "processing" else INVALID_CLAIM)
    assert db.column("select max(start_no) from litejobs_attempt")[0] in (
        None,
        row.starts,
    )


def test_an_attempt_inserted_by_the_rules_is_a_claim(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a")
    db.insert(
        "litejobs_attempt",
        job_id=job,
        start_no=1,
        attempt=1,
        runner_id=db.runner,
        claimed_at=db.now,
    )
    assert db.job(job).state == "processing"


@pytest.fixture(scope="module")
def without_triggers() -> Iterator[dict[str, Sql]]:
    """Databases by client, made once: without triggers each has another schema."""
    made: dict[str, Sql] = {}
    yield made
    for db in made.values():
        db.connection.close()


@pytest.fixture
def unguarded(client_of_db: str, without_triggers: dict[str, Sql]) -> Iterator[Sql]:
    """A job in line and a runner, each the first one; any attempt may be inserted."""
    if client_of_db not in without_triggers:
        db = without_triggers[client_of_db] = CLIENTS[client_of_db]()
        db.serve("a")
        assert (db.enqueue("a"), db.runner) == (1, 1)
        db.execute("drop trigger litejobs_attempt_insert_guard")
        db.execute("drop trigger litejobs_attempt_insert_starts_job")
    with as_new(without_triggers[client_of_db]) as db:
        yield db


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"start_no": 1},
            (
                "UNIQUE constraint failed: litejobs_attempt.job_id, "
                "litejobs_attempt.start_no"
            ),
        ),
        ({}, "UNIQUE constraint failed: litejobs_attempt.job_id"),
        ({"start_no": 0}, "CHECK constraint failed: litejobs_attempt_numbers_positive"),
        ({"attempt": 0}, "CHECK constraint failed: litejobs_attempt_numbers_positive"),
        ({"status": "fine"}, "CHECK constraint failed: litejobs_attempt_status_known"),
        (
            {"decision": "wait", "status": "ok", "outcome": "{}"},
            "CHECK constraint failed: litejobs_attempt_decision_known",
        ),
        (
            {"outcome": "{", "status": "ok"},
            "CHECK constraint failed: litejobs_attempt_outcome_is_json",
        ),
        (
            {"status": "ok"},
            "CHECK constraint failed: litejobs_attempt_decided_in_order",
        ),
        (
            {"outcome": "{}"},
            "CHECK constraint failed: litejobs_attempt_decided_in_order",
        ),
        (
            {"decision": "retry"},
            "CHECK constraint failed: litejobs_attempt_decided_in_order",
        ),
        (
            {"will_retry": 1},
            "CHECK constraint failed: litejobs_attempt_decided_in_order",
        ),
        ({"id": 0}, "CHECK constraint failed: litejobs_attempt_id_positive"),
        (
            {"claimed_after": -1},
            "CHECK constraint failed: litejobs_attempt_logged_in_range",
        ),
        (
            {"claimed_after": 2**60 + 1},
            "CHECK constraint failed: litejobs_attempt_logged_in_range",
        ),
        ({"ended": 0}, "CHECK constraint failed: litejobs_attempt_logged_in_range"),
        (
            {"ended": 2**60 + 1},
            "CHECK constraint failed: litejobs_attempt_logged_in_range",
        ),
        (
            {"finished_at": 1},
            "CHECK constraint failed: litejobs_attempt_closed_is_decided",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_triggers_meet_first_the_constraints_refuse_too(
    unguarded: Sql, columns: dict[str, Any], message: str
) -> None:
    """Without the triggers, the table still keeps out what cannot be."""
    db = unguarded
    row = {"job_id": 1, "attempt": 1, "runner_id": 1, "claimed_at": 0}
    row["claimed_after"] = 1
    closed = {
        "finished_at": 1,
        "status": "ok",
        "decision": "complete",
        "will_retry": 0,
        "outcome": "{}",
    }
    first = closed if "start_no" in columns and "UNIQUE" in message else {}
    db.insert("litejobs_attempt", start_no=1, **row, **first)
    row = {"start_no": 2, **row, **columns}
    marks = ", ".join("?" * len(row))
    sentence = db.refused(
        f"insert into litejobs_attempt ({', '.join(row)}) values ({marks})",
        tuple(row.values()),
    )
    assert sentence == message


def test_a_job_with_an_endless_time_limit_does_not_hold_up_the_others(db: Sql) -> None:
    db.serve("a")
    with contextlib.suppress(*ERRORS):
        db.enqueue("a", timeout_ms=2**63 - 1)
    db.enqueue("a")
    assert db.claim(10) != []


@pytest.mark.parametrize("column", ["starts", "attempts", "crashes", "delayed_ms"])
def test_a_count_that_cannot_grow_does_not_hold_up_the_others(
    db: Sql, column: str
) -> None:
    db.serve("a", max_attempts=1_000_000_000)
    job = db.job_in("failed")
    with contextlib.suppress(*ERRORS):
        db.execute(f"update litejobs_job set {column} = {2**63 - 1}")
    db.execute("update litejobs_job set state = 'pending', run_at = 0")
    db.enqueue("a")
    opened = db.claim(10)
    assert opened != []
    db.start_runner()
    db.tick()
    assert {db.attempt(each).status for each in opened} == {"crashed"}
    assert getattr(db.job(job), column) < 2**62


def test_a_whole_row_is_not_born_in_the_lane_of_others(db: Sql) -> None:
    db.serve("a")
    db.enqueue("a", queue="mail", run_at=db.now + HOUR)
    db.enqueue("a", queue="other", run_at=db.now + HOUR)
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    with contextlib.suppress(*ERRORS):
        db.insert(
            "litejobs_job",
            task="a",
            queue="mail",
            lane_id=2,
            priority=0,
            run_at=0,
            created_at=0,
        )
        db.tick()
    assert db.claim(10) == []
    assert db.column("select id from litejobs_job where queue = 'mail'") == [1]


def test_a_job_stays_in_the_lane_of_its_queue_and_task(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a", queue="mail")
    other = db.job(db.enqueue("a", queue="other", run_at=db.now + HOUR)).lane_id
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    db.refused("update litejobs_job set lane_id = ? where id = ?", (other, job))
    assert db.claim(1) == []
