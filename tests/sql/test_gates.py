"""What holds jobs back, and who of the others is next: gates by plain SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import time_machine

from tests.rows import for_each
from tests.sql.fixture import (
    DAY,
    FINISHED,
    HOUR,
    MINUTE,
    SECOND,
    SEEN,
    START,
    WAITING,
    Sql,
    lent,
    on_apsw,
    steps_of,
    trigger_sources,
)
from tests.sql.test_schedule import add, plan

Pace = Callable[..., None]


def why(db: Sql, job: int) -> list[tuple[str, str, int | None]]:
    """The blocks of a job: code, object, until when."""
    rows = db.execute(
        "select code, object, until_at from litejobs_block where job_id = ? "
        "order by code",
        (job,),
    )
    explained = db.execute(
        "select code, object, until_at from litejobs_why where job_id = ? "
        "and detail is not null and remedy is not null order by code",
        (job,),
    )
    assert [row for row in explained if row[0] in {each[0] for each in rows}] == rows
    return [tuple(row) for row in rows]  # type: ignore[misc]


def answer(db: Sql, job: int) -> tuple[str, str]:
    """What is said of a job that nothing holds back: code and object."""
    [row] = db.rows("select * from litejobs_why where job_id = ?", (job,))
    assert None not in (row.detail, row.remedy)
    return row.code, row.object


def claimed(db: Sql, slots: int = 10) -> list[int]:
    """The jobs that a claim of so many slots takes, in its order."""
    return [db.attempt(each).job_id for each in db.claim(slots)]


def finish(db: Sql, job: int, status: str = "ok") -> None:
    """The job's running attempt ends."""
    db.settle(db.job(job).attempt_id, status)


def assert_taken_in_a_minute(held: Sql, job: int) -> None:
    """The rate of its key holds it back until then, and the agenda has that instant."""
    assert claimed(held) == []
    [agenda] = held.rows("select next_key_at from litejobs_agenda")
    assert agenda.next_key_at == held.now + MINUTE
    held.clock.shift(60)
    held.tick()
    assert claimed(held) == [job]


def kill(db: Sql) -> None:
    """The process dies, and another one begins."""
    db.start_runner()
    db.tick()


def change(db: Sql, table: str, key: str, name: Any, **columns: Any) -> None:
    """One row of settings is changed by a person."""
    sets = ", ".join(f"{each} = ?" for each in columns)
    db.execute(f"update {table} set {sets} where {key} = ?", (*columns.values(), name))


def queue(db: Sql, name: str = "default", **columns: Any) -> None:
    """The queue is set so, whether or not it exists."""
    if not db.value("select count(*) from litejobs_queue where name = ?", (name,)):
        db.insert("litejobs_queue", name=name)
    change(db, "litejobs_queue", "name", name, **columns)


def key(db: Sql, name: str, **columns: Any) -> None:
    """The key is set so, whether or not it exists."""
    if not db.value("select count(*) from litejobs_key where key = ?", (name,)):
        db.insert("litejobs_key", key=name)
    change(db, "litejobs_key", "key", name, **columns)


def tier(db: Sql, min_priority: int, every_ms: int, **columns: Any) -> None:
    """A tier begins."""
    db.insert("litejobs_tier", min_priority=min_priority, every_ms=every_ms, **columns)


def set_fact(db: Sql, name: str, value: int) -> None:
    """It is so, or it is not."""
    db.execute(
        "insert into litejobs_fact (name, value) values (?, ?) "
        "on conflict (name) do update set value = excluded.value",
        (name, value),
    )


def args(**members: Any) -> str:
    """Arguments as JSON."""
    return json.dumps(members)


# The whole line -----------------------------------------------------------------------


def test_a_job_that_nothing_holds_back_waits_for_a_runner_a_slot_or_its_turn(
    db: Sql,
) -> None:
    db.serve("a")
    db.execute("update litejobs_runner set threads = 1")
    first, second = db.enqueue(), db.enqueue()
    assert answer(db, first) == ("turn", "runner 1")
    assert claimed(db, 1) == [first]
    assert answer(db, first) == ("running", f"attempt {db.job(first).attempt_id}")
    assert answer(db, second) == ("no_slot", "runner 1")
    finish(db, first)
    assert answer(db, first) == ("ended", f"job {first}")
    assert answer(db, second) == ("turn", "runner 1")


def test_gates_are_asked_once_for_each_job_that_they_hold_back() -> None:
    """And not again for each reason that there can be: that took 3,100 steps a job."""
    db = on_apsw(traced=False)
    db.serve("a")
    for _ in range(100):
        db.enqueue()
    db.execute("update litejobs_queue set paused = 1, max_running = 0")
    seen: list[Any] = []
    look = "select job_id, code from litejobs_block"
    hundreds = steps_of(db, lambda: seen.extend(db.execute(look)))
    assert seen == [
        (job, code) for job in range(1, 101) for code in ("queue_paused", "queue_full")
    ]
    assert hundreds < 1_000


def test_to_say_why_costs_the_same_however_many_wait(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("nobody's")
    ask = "select * from litejobs_why where job_id = ?"
    costs = []
    for number in (10, 1000):
        db.execute(
            "with recursive number (n) as "
            "(select 1 union all select n + 1 from number where n < ?) "
            "insert into litejobs_job (task, queue) "
            "select iif(n % 2, 'a', 'b'), iif(n % 3, 'one', 'two') from number",
            (number,),
        )
        costs += [
            steps_of(db, lambda each=each: db.execute(ask, (each,)))
            for each in (job, job + 1, job + number)
        ]
    assert max(costs[3:]) <= max(costs[:3]) + 3


def test_without_a_runner_that_is_said(db: Sql) -> None:
    db.serve("a")
    job, stranger = db.enqueue(), db.enqueue("nobody's")
    db.execute("update litejobs_runner set stopped_at = 1")
    said = "select code, object from litejobs_why where job_id = ?"
    assert db.blocks(job) == ["unknown_task"]
    assert db.execute(said, (job,)) == [("no_runner", "task a")]
    assert db.execute(said, (stranger,)) == [("unknown_task", "task nobody's")]


@pytest.mark.parametrize("state", FINISHED)
def test_an_ended_job_has_ended(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    assert answer(db, job) == ("ended", f"job {job}")


def test_an_ended_job_says_how_it_came_to_that(held: Sql) -> None:
    def said(job: int) -> tuple[str, str]:
        [row] = held.rows("select * from litejobs_why where job_id = ?", (job,))
        assert row.code == "ended"
        return row.detail, row.object

    held.serve("a")
    done, thrown = held.job_in("completed"), held.job_in("cancelled")
    stale = held.enqueue(expires_at=held.now + 1, priority=-9)
    parent, alone = held.enqueue(max_attempts=1), held.enqueue(retryable=0)
    child = held.enqueue()
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    for attempt in held.claim(2):
        held.settle(attempt, "error", ',"error":{"type":"OSError","message":"no"}')
    held.clock.shift(1)
    held.tick()
    assert said(done) == ("it has done its work", f"job {done}")
    assert said(thrown) == ("it was cancelled", f"job {thrown}")
    assert said(parent) == (
        "it failed for good: all its attempts are used (OSError)",
        f"job {parent}",
    )
    assert said(alone)[0] == (
        "it failed for good: what failed is not to be retried (OSError)"
    )
    because = "it was cancelled because one that it waited for has failed"
    assert said(child) == (because, f"job {parent}")
    assert said(stale)[0] == (
        "it was cancelled because it was not worth running any more"
    )


def test_a_job_that_does_not_stop_is_said_to_have_been_asked(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("processing")
    db.execute("update litejobs_job set cancel_requested_at = ?", (db.now,))
    [row] = db.rows("select * from litejobs_why where job_id = ?", (job,))
    assert row.code == "running"
    assert row.detail == "it was asked to stop, and an attempt of it is still running"
    assert "cancel the job" not in row.remedy


@pytest.mark.parametrize("state", WAITING)
def test_every_closed_gate_is_named_for_whatever_waits(db: Sql, state: str) -> None:
    db.serve("a", concurrency_key="k", circuit="c", requires='["online"]')
    set_fact(db, "online", 1)
    job = db.job_in(state)
    set_fact(db, "online", 0)
    change(db, "litejobs_circuit", "name", "c", state="open")
    queue(db, paused=1, max_running=0)
    key(db, "k", max_running=0)
    waits = {"scheduled": ["due"], "failed": ["due"], "blocked": ["dependency"]}
    assert [code for code, _, _ in why(db, job)] == sorted(
        [
            *("circuit_open", "fact", "key_full", "queue_full", "queue_paused"),
            *waits.get(state, []),
        ]
    )


# Queues -------------------------------------------------------------------------------


def test_a_paused_queue_is_named_until_it_is_resumed(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue(queue="mail")
    queue(db, "mail", paused=1)
    assert why(db, job) == [("queue_paused", "queue mail", None)]
    assert claimed(db) == []
    queue(db, "mail", paused=0)
    assert claimed(db) == [job]


def test_a_claim_of_ten_takes_as_many_as_the_queue_may_run(db: Sql) -> None:
    db.serve("a")
    db.serve("b")
    queue(db, max_running=3)
    jobs = [db.enqueue("a" if number % 2 else "b") for number in range(6)]
    assert claimed(db) == jobs[:3]
    assert why(db, jobs[3]) == [("queue_full", "queue default", None)]
    assert claimed(db) == []
    finish(db, jobs[1], "error")
    assert claimed(db) == [jobs[3]]


def test_other_queues_run_on_beside_a_full_one(db: Sql) -> None:
    db.serve("a")
    queue(db, "slow", max_running=1)
    slow = [db.enqueue(queue="slow", priority=5) for _ in range(3)]
    fast = [db.enqueue() for _ in range(3)]
    assert claimed(db) == [slow[0], *fast]


def test_nothing_runs_in_a_queue_that_may_run_nothing(db: Sql) -> None:
    db.serve("a")
    queue(db, max_running=0)
    job = db.enqueue()
    assert claimed(db) == []
    queue(db, max_running=None)
    assert claimed(db) == [job]


def test_a_limit_lowered_below_what_runs_ends_nothing(db: Sql) -> None:
    db.serve("a")
    queue(db, max_running=4)
    jobs = [db.enqueue() for _ in range(6)]
    assert claimed(db) == jobs[:4]
    queue(db, max_running=1)
    for job in jobs[:3]:
        finish(db, job)
        assert claimed(db) == []
    finish(db, jobs[3])
    assert claimed(db) == [jobs[4]]


def test_what_a_dead_process_ran_does_not_fill_its_queue(held: Sql) -> None:
    held.serve("a", crash_delay_ms=0)
    queue(held, max_running=2)
    jobs = [held.enqueue() for _ in range(3)]
    assert claimed(held) == jobs[:2]
    kill(held)
    held.tick()
    assert claimed(held) == jobs[:2]
    assert why(held, jobs[2]) == [("queue_full", "queue default", None)]


# Rates --------------------------------------------------------------------------------


def test_a_rate_says_when_the_next_job_may_start(held: Sql) -> None:
    held.serve("a")
    queue(held, rate_count=2, rate_ms=SECOND)
    first, second = held.enqueue(), held.enqueue()
    start = held.now
    assert claimed(held) == [first]
    assert why(held, second) == [("queue_rate", "queue default", start + 500)]
    [agenda] = held.rows("select * from litejobs_agenda")
    assert agenda.next_queue_at == start + 500
    held.wait(499)
    assert claimed(held) == []
    held.wait(1)
    assert claimed(held) == [second]


def test_a_burst_starts_at_once_and_is_saved_up_again(held: Sql) -> None:
    held.serve("a")
    queue(held, rate_count=1, rate_ms=SECOND, rate_burst=3)
    jobs = [held.enqueue() for _ in range(20)]
    assert claimed(held) == jobs[:3]
    assert claimed(held) == []
    held.wait(SECOND)
    assert claimed(held) == jobs[3:4]
    held.wait(2 * SECOND)
    assert claimed(held) == jobs[4:6]
    held.wait(HOUR)
    assert claimed(held) == jobs[6:9]


@pytest.fixture(params=["queue", "key"])
def paced(request: pytest.FixtureRequest) -> Iterator[tuple[Sql, Pace]]:
    """A database of its own, and what sets the rate of its queue, or of its key."""
    with time_machine.travel(START, tick=False) as clock:
        db = lent(clock=clock)
        db.serve("a", concurrency_key="k", max_attempts=1000, delay_ms=0)
        key(db, "k", max_running=1000)

        def pace(**columns: Any) -> None:
            if request.param == "queue":
                queue(db, **columns)
            else:
                key(db, "k", **columns)

        yield db, pace


def test_seven_a_second_are_seven_hundred_in_a_hundred_seconds(
    paced: tuple[Sql, Pace],
) -> None:
    db, pace = paced
    pace(rate_count=7, rate_ms=SECOND)
    db.execute(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 800)"
        " insert into litejobs_job (task) select 'a' from n"
    )
    end, starts = db.now + 100 * SECOND, 0
    while db.now < end:
        starts += len(db.claim(10))
        [agenda] = db.rows("select * from litejobs_agenda")
        until = agenda.next_queue_at or agenda.next_key_at
        assert until > db.now
        db.wait(until - db.now)
    assert abs(starts - 700) <= 1


def test_a_rate_is_never_exceeded_whatever_happens_to_clock_and_process(
    paced: tuple[Sql, Pace],
) -> None:
    """Over 1,000 seconds of real time, with restarts, kills and a clock put back."""
    db, pace = paced
    pace(rate_count=3, rate_ms=10 * SECOND, rate_burst=2)
    for _ in range(60):
        db.enqueue()
    starts: list[int] = []
    for second in range(1000):
        if second % 37 == 5:
            db.start_runner()
        if second % 53 == 7:
            db.wait(-(second % 7) * 20 * SECOND - 700)
        db.tick()
        for attempt in db.claim(10):
            starts.append(second)
            if second % 3:
                db.settle(attempt, "error")
        db.wait(SECOND)
    assert 250 < len(starts) <= 301
    for begin in starts:
        inside = sum(begin <= each < begin + 10 for each in starts)
        assert inside <= 3 + 2 - 1


def test_a_rate_counts_what_a_dead_process_started(held: Sql) -> None:
    held.serve("a", crash_delay_ms=0)
    queue(held, rate_count=1, rate_ms=MINUTE)
    jobs = [held.enqueue(), held.enqueue()]
    assert claimed(held) == jobs[:1]
    kill(held)
    held.tick()
    assert claimed(held) == []
    held.wait(MINUTE)
    held.tick()
    assert claimed(held) == jobs[:1]


def test_a_clock_that_is_put_back_does_not_stop_a_rate(held: Sql) -> None:
    held.serve("a", concurrency_key="k", concurrency_limit=9)
    queue(held, rate_count=1, rate_ms=MINUTE)
    key(held, "k", rate_count=1, rate_ms=MINUTE)
    jobs = [held.enqueue() for _ in range(2)]
    assert claimed(held) == jobs[:1]
    held.wait(-HOUR)
    assert claimed(held) == []
    held.tick()
    assert claimed(held) == []
    assert why(held, jobs[1]) == [
        ("key_rate", "key k", held.now + MINUTE),
        ("queue_rate", "queue default", held.now + MINUTE),
    ]
    held.wait(MINUTE)
    held.tick()
    assert claimed(held) == jobs[1:]


def test_a_rate_that_is_lifted_holds_nothing_back(held: Sql) -> None:
    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=HOUR)
    queue(held, rate_count=1, rate_ms=HOUR)
    jobs = [held.enqueue() for _ in range(4)]
    assert claimed(held) == jobs[:1]
    queue(held, rate_count=None)
    assert [code for code, _, _ in why(held, jobs[1])] == ["key_rate"]
    assert claimed(held) == []
    key(held, "k", rate_count=60, rate_ms=MINUTE, rate_next_us=0)
    assert claimed(held) == [jobs[1]]
    change(held, "litejobs_task", "name", "a", rate_count=None)
    key(held, "k", rate_count=None, max_running=9)
    assert claimed(held) == jobs[2:]


# Keys ---------------------------------------------------------------------------------

TEMPLATES = [
    ("host:{host}", {"host": "x"}, "host:x"),
    ("host:{host}", {"port": 1}, "host:"),
    ("{host}", {"port": 1}, "{host}"),
    ("{host}{host}", {"host": "ab"}, "abab"),
    ("{url.host}/{n}", {"url": {"host": "h"}, "n": 7}, "h/7"),
    ("{flag}-{none}", {"flag": True, "none": None}, "1-"),
    ("{0}:{1}", ["a", "b"], "a:b"),
    ("{host}", ["a"], "{host}"),
    ("plain", {}, "plain"),
    ("{h}", {"h": "{h}"}, "{h}"),
    ("{h}", {"h": "x" * 600}, "x" * 500),
]


@pytest.mark.parametrize(("template", "values", "name"), TEMPLATES)
def test_a_template_is_filled_with_the_arguments_of_a_bare_row(
    db: Sql, template: str, values: Any, name: str
) -> None:
    db.serve("a", concurrency_key=template, circuit=f"c {template}")
    job = db.job(db.enqueue(args=json.dumps(values)))
    assert job.concurrency_key == name
    circuit = name if "{" not in name or values == {"h": "{h}"} else ""
    assert job.circuit == f"c {circuit}"[:500]


@pytest.mark.parametrize(
    "template", ["{", "}", "a{b", "a}b{", "{}", '{a"b}', "{a\\b}", "{a}}"]
)
def test_a_template_that_cannot_be_filled_is_refused(db: Sql, template: str) -> None:
    db.serve("b")
    for column in ("concurrency_key", "circuit"):
        sentence = (
            "invalid_template: a key has {names} of arguments in it, and a brace "
            "itself twice; correct it"
        )
        insert = f"insert into litejobs_task (name, {column}) values ('x', ?)"
        update = f"update litejobs_task set {column} = ? where name = 'b'"
        assert db.refused(insert, (template,)) == sentence
        assert db.refused(update, (template,)) == sentence
        db.execute(update, ("host:{host}",))


def test_what_the_insert_names_counts_before_the_task(db: Sql) -> None:
    db.serve("a", concurrency_key="t", circuit="t", requires='["t"]', expires_in_ms=5)
    job = db.job(
        db.enqueue(
            concurrency_key="own",
            circuit="own",
            requires='["b", "a", "b"]',
            expires_at=9_999_999_999_999,
        )
    )
    assert (job.concurrency_key, job.circuit) == ("own", "own")
    assert (job.requires, job.expires_at) == ('["a","b"]', 9_999_999_999_999)


def test_a_key_lets_one_job_run_at_a_time(db: Sql) -> None:
    db.serve("a", concurrency_key="host:{host}")
    jobs = [db.enqueue(args=args(host="xxy"[number])) for number in range(3)]
    assert claimed(db) == [jobs[0], jobs[2]]
    assert why(db, jobs[1]) == [("key_full", "key host:x", None)]
    finish(db, jobs[0])
    assert claimed(db) == [jobs[1]]


def test_a_claim_of_ten_takes_as_many_of_a_key_as_may_run(db: Sql) -> None:
    db.serve("a", concurrency_key="k", concurrency_limit=3)
    jobs = [db.enqueue() for _ in range(9)]
    assert claimed(db) == jobs[:3]
    key(db, "k", max_running=5)
    assert claimed(db) == jobs[3:5]
    key(db, "k", max_running=2)
    for job in jobs[:3]:
        finish(db, job)
        assert claimed(db) == []
    finish(db, jobs[3])
    assert claimed(db) == [jobs[5]]


def test_two_tasks_of_two_queues_share_a_key(db: Sql) -> None:
    db.serve("a", concurrency_key="k", concurrency_limit=2)
    db.serve("b", concurrency_key="{k}", concurrency_limit=3, queue="mail")
    jobs = [db.enqueue("ab"[n % 2], args=args(k="k"), priority=-n) for n in range(6)]
    # The third of the key is the last that b allows; a allows only two.
    assert claimed(db) == [jobs[0], jobs[1], jobs[3]]
    assert why(db, jobs[2]) == [("key_full", "key k", None)]
    finish(db, jobs[0])
    assert claimed(db) == [jobs[5]]


def test_the_limit_of_a_job_is_its_own(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    jobs = [db.enqueue(concurrency_limit=2) for _ in range(3)]
    assert claimed(db) == jobs[:2]
    db.execute("update litejobs_job set concurrency_limit = 3")
    assert claimed(db) == jobs[2:]


def test_a_rate_of_a_task_is_that_of_its_key_and_limits_nothing_else(held: Sql) -> None:
    held.serve("a", concurrency_key="{k}", rate_count=1, rate_ms=MINUTE, rate_burst=2)
    x = [held.enqueue(args=args(k="x")) for _ in range(4)]
    y = [held.enqueue(args=args(k="y")) for _ in range(2)]
    start = held.now
    assert claimed(held) == [*x[:2], *y]
    assert why(held, x[2]) == [("key_rate", "key x", start + MINUTE)]
    held.wait(MINUTE)
    assert claimed(held) == [x[2]]
    assert why(held, x[3]) == [("key_rate", "key x", start + 2 * MINUTE)]
    assert held.rows("select * from litejobs_agenda")[0].next_key_at == (
        start + 2 * MINUTE
    )
    change(held, "litejobs_task", "name", "a", rate_burst=3)
    assert claimed(held) == [x[3]]


def test_the_rate_of_a_key_by_hand_counts_for_all_its_tasks(held: Sql) -> None:
    held.serve("a", concurrency_key="k", concurrency_limit=9)
    held.serve("b", concurrency_key="k", concurrency_limit=9, rate_count=1, rate_ms=9)
    key(held, "k", rate_count=2, rate_ms=MINUTE)
    jobs = [held.enqueue("ab"[n % 2]) for n in range(3)]
    assert claimed(held) == jobs[:1]
    held.wait(MINUTE // 2)
    held.tick()
    assert claimed(held) == jobs[1:2]
    key(held, "k", rate_burst=2)
    assert claimed(held) == jobs[2:]


def test_what_runs_of_a_key_counts_after_a_kill_too(db: Sql) -> None:
    db.serve("a", concurrency_key="k", delay_ms=MINUTE)
    jobs = [db.enqueue() for _ in range(2)]
    assert claimed(db) == jobs[:1]
    db.start_runner()
    assert claimed(db) == []
    db.tick()
    assert claimed(db) == jobs[1:]


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["insert or replace", "delete"])
def test_a_key_written_anew_does_not_leave_its_jobs_behind(held: Sql, how: str) -> None:
    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=HOUR)
    jobs = [held.enqueue() for _ in range(2)]
    assert claimed(held) == jobs[:1]
    assert claimed(held) == []
    if how == "delete":
        held.execute("delete from litejobs_key where key = 'k'")
    else:
        held.insert("litejobs_key", how, key="k", rate_count=1, rate_ms=MINUTE)
    held.wait(HOUR)
    held.tick()
    assert why(held, jobs[1]) == []
    assert claimed(held) == jobs[1:]


def test_a_key_has_no_rate_from_a_task_that_is_gone(held: Sql) -> None:
    """Or the loop would wake to look at it."""

    def wait() -> int:
        [agenda] = held.query("agenda", runner=held.runner, seen_at=0)
        return int(agenda.wait_ms)

    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=HOUR)
    jobs = [held.enqueue("a"), held.enqueue("a")]
    assert claimed(held) == jobs[:1]
    finish(held, jobs[0])
    assert wait() == HOUR
    held.execute("delete from litejobs_task where name = 'a'")
    assert wait() == DAY
    assert answer(held, jobs[1])[0] == "unknown_task"


def test_a_job_that_is_given_another_key_waits_for_that_one(db: Sql) -> None:
    db.serve("a", concurrency_key="x")
    jobs = [db.enqueue() for _ in range(3)]
    assert claimed(db) == jobs[:1]
    change(db, "litejobs_job", "id", jobs[1], concurrency_key="y")
    assert claimed(db) == jobs[1:2]
    change(db, "litejobs_job", "id", jobs[2], concurrency_key="y")
    assert why(db, jobs[2]) == [("key_full", "key y", None)]
    change(db, "litejobs_job", "id", jobs[2], concurrency_key=None)
    assert claimed(db) == jobs[2:]


@pytest.mark.parametrize("left", ["concurrency_key", "circuit"])
@pytest.mark.parametrize(
    "leaves",
    ["state = 'cancelled'", "state = 'scheduled', run_at = run_at + 3600000"],
)
def test_who_leaves_line_and_key_at_once_leaves_the_next_one_in_line(
    db: Sql, left: str, leaves: str
) -> None:
    db.serve("a")
    first, second = (db.enqueue("a", **{left: "k"}) for _ in "12")
    db.execute(
        f"update litejobs_job set {leaves}, {left} = null where id = ?", (first,)
    )
    [attempt] = db.claim(2)
    assert db.attempt(attempt).job_id == second


# Before the task is known, and under another name -------------------------------------

GATES = {
    "queue": "mail",
    "priority": 3,
    "concurrency_key": "host:{host}",
    "circuit": "c:{host}",
    "requires": '["online"]',
    "expires_in_ms": HOUR,
}


def gates_of(db: Sql, job: int) -> tuple[Any, ...]:
    """Where the job is held back."""
    row = db.job(job)
    [lane] = db.rows("select * from litejobs_lane where id = ?", (row.lane_id,))
    columns = ("queue", "task", "concurrency_key", "circuit", "requires")
    of_job = tuple(getattr(row, each) for each in columns)
    assert tuple(getattr(lane, each) for each in columns) == of_job
    assert lane.base_id is not None
    return (*of_job, row.priority, row.expires_at - row.created_at, row.given)


FILLED = ("mail", "a", "host:x", "c:x", '["online"]', 3, HOUR, None)


@pytest.mark.parametrize("state", WAITING)
def test_jobs_that_came_before_their_task_get_its_gates(held: Sql, state: str) -> None:
    columns: dict[str, Any] = {"args": args(host="x")}
    if state == "failed":
        held.serve("other")
        job = held.job_in("failed", task="other", **columns)
        change(held, "litejobs_job", "id", job, task="a")
        assert held.job(job).state == "failed"
        return
    job = (
        held.enqueue(run_at=held.now + MINUTE, **columns)
        if state == "scheduled"
        else held.enqueue(**columns)
    )
    if state == "blocked":
        held.block(job)
    assert held.job(job).state == state
    held.serve("a", **GATES)
    expected = list(FILLED)
    if state == "scheduled":
        expected[6] = HOUR + MINUTE
    assert gates_of(held, job) == tuple(expected)


def test_an_unknown_task_holds_back_until_a_runner_has_it(db: Sql) -> None:
    db.start_runner()
    job = db.enqueue("later", args=args(host="x"))
    assert why(db, job) == [("unknown_task", "task later", None)]
    assert claimed(db) == []
    db.serve("later", concurrency_key="{host}")
    assert claimed(db) == [job]
    assert db.job(job).concurrency_key == "x"


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_waiting_jobs_follow_a_task_that_is_renamed(db: Sql, how: str) -> None:
    db.serve("a", **GATES)
    db.serve("old")
    unknown = db.enqueue("older", args=args(host="x"))
    waiting = db.enqueue("old", args=args(host="x"), priority=9)
    [running] = claimed(db, 1)
    assert running == waiting
    ended = db.enqueue("old")
    change(db, "litejobs_job", "id", ended, state="cancelled")
    db.insert("litejobs_rename", how, old_name="older", new_name="a")
    db.insert("litejobs_rename", how, old_name="old", new_name="a")
    assert gates_of(db, unknown) == FILLED
    assert [db.job(each).task for each in (running, ended)] == ["a", "old"]
    later = db.enqueue("old", args=args(host="x"))
    assert gates_of(db, later) == FILLED
    finish(db, running)
    assert db.job(running).state == "completed"


def test_a_job_that_is_requeued_goes_by_the_name_of_today(db: Sql) -> None:
    db.add_steps("one", task="old")
    db.serve("old")
    job, never = db.enqueue("old"), db.enqueue("older", args=args(host="x"))
    assert claimed(db) == [job]
    finish(db, job)
    change(db, "litejobs_job", "id", never, state="cancelled")
    db.add_steps("first", "one")
    db.serve("a", **GATES)
    db.insert("litejobs_rename", old_name="old", new_name="a")
    db.insert("litejobs_rename", old_name="older", new_name="a")
    assert [db.job(each).task for each in (job, never)] == ["old", "older"]
    for each in (job, never):
        change(db, "litejobs_job", "id", each, state="pending")
    assert [(db.job(each).task, db.job(each).step) for each in (job, never)] == [
        ("a", "first"),
        ("a", "first"),
    ]
    assert gates_of(db, never) == FILLED
    assert why(db, job) == []
    assert claimed(db) == [job]


def test_names_lead_to_the_name_of_today(db: Sql) -> None:
    for old, new in (("a", "b"), ("b", "c"), ("d", "a")):
        db.insert("litejobs_rename", old_name=old, new_name=new)
    # The last one says that `a` is a name of today.
    assert db.content("litejobs_rename") == [("b", "c"), ("d", "a")]


def test_a_rename_of_a_rename_is_followed_to_its_end(db: Sql) -> None:
    db.serve("c", **GATES)
    db.insert("litejobs_rename", old_name="a", new_name="b")
    first = db.enqueue("a")
    assert db.job(first).task == "b"
    db.insert("litejobs_rename", old_name="b", new_name="c")
    second = db.enqueue("a")
    assert [db.job(each).task for each in (first, second)] == ["c", "c"]


def test_a_rename_that_is_taken_back_leads_back(db: Sql) -> None:
    db.serve("a")
    db.serve("b")
    db.insert("litejobs_rename", old_name="a", new_name="b")
    job = db.enqueue("a")
    db.insert("litejobs_rename", old_name="b", new_name="a")
    assert db.content("litejobs_rename") == [("b", "a")]
    assert db.job(job).task == "a"
    assert db.job(db.enqueue("b")).task == "a"


def test_a_rename_that_is_changed_is_followed(db: Sql) -> None:
    db.serve("c", **GATES)
    db.insert("litejobs_rename", old_name="a", new_name="b")
    db.insert("litejobs_rename", old_name="c", new_name="d")
    db.execute("update litejobs_rename set new_name = 'b' where old_name = 'a'")
    job = db.enqueue("b")
    db.execute("update litejobs_rename set new_name = 'c' where old_name = 'a'")
    assert db.job(job).task == "b"
    assert db.job(db.enqueue("a")).task == "c"
    assert db.content("litejobs_rename") == [("a", "c")]


def test_jobs_of_an_old_name_wait_in_its_lane_no_longer(db: Sql) -> None:
    db.serve("b", concurrency_key="k")
    jobs = [db.enqueue("a", args=args(host="x")) for _ in range(3)]
    assert claimed(db) == []
    db.insert("litejobs_rename", old_name="a", new_name="b")
    assert claimed(db) == jobs[:1]
    assert why(db, jobs[1]) == [("key_full", "key k", None)]


# Facts --------------------------------------------------------------------------------


def test_a_job_waits_for_all_its_facts(db: Sql) -> None:
    db.serve("a", requires='["on_mains", "online"]')
    job = db.enqueue()
    assert why(db, job) == [("fact", "fact on_mains, fact online", None)]
    set_fact(db, "online", 1)
    assert why(db, job) == [("fact", "fact on_mains", None)]
    set_fact(db, "on_mains", 0)
    assert claimed(db) == []
    set_fact(db, "on_mains", 1)
    db.execute("delete from litejobs_fact where name = 'online'")
    assert why(db, job) == [("fact", "fact online", None)]
    set_fact(db, "online", 1)
    assert claimed(db) == [job]


def test_a_running_job_runs_on_when_a_fact_is_so_no_more(db: Sql) -> None:
    db.serve("a", requires='["online"]', delay_ms=0)
    set_fact(db, "online", 1)
    job = db.enqueue()
    assert claimed(db) == [job]
    set_fact(db, "online", 0)
    finish(db, job, "error")
    db.tick()
    assert why(db, job) == [("fact", "fact online", None)]
    assert claimed(db) == []
    set_fact(db, "online", 1)
    assert claimed(db) == [job]


@pytest.mark.every_client
def test_facts_are_logged_when_they_change(db: Sql) -> None:
    set_fact(db, "online", 1)
    set_fact(db, "online", 1)
    set_fact(db, "online", 0)
    db.insert("litejobs_fact", "insert or replace", name="online", value=1, origin="me")
    assert db.execute(
        "select name, subject, old_state, origin from litejobs_event order by id"
    ) == [
        ("fact.true", "fact online", None, "sql"),
        ("fact.false", "fact online", "true", "sql"),
        ("fact.true", "fact online", None, "me"),
    ]
    assert db.content("litejobs_fact") == [("online", 1, None)]


def test_equal_facts_share_a_lane_in_whatever_order_they_are_named(db: Sql) -> None:
    db.serve("a")
    jobs = [
        db.enqueue(requires=each) for each in ('["x","y"]', '["y", "x", "y"]', "[]")
    ]
    bare = db.enqueue()
    lanes = [db.job(each).lane_id for each in (*jobs, bare)]
    assert lanes[0] == lanes[1] != lanes[2] == lanes[3]
    change(db, "litejobs_job", "id", bare, requires='["y","x"]')
    assert db.job(bare).requires == '["x","y"]'
    assert db.job(bare).lane_id == lanes[0]
    change(db, "litejobs_job", "id", bare, requires=None)
    assert db.job(bare).lane_id == lanes[2]


def test_what_can_never_be_so_is_named_all_the_same(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue(requires="[null, 1]")
    assert why(db, job) == [("fact", "fact null, fact 1", None)]
    assert claimed(db) == []


# Tiers --------------------------------------------------------------------------------


def test_a_tier_starts_together_what_is_waiting_and_then_none_for_a_while(
    held: Sql,
) -> None:
    held.serve("a")
    tier(held, 0, 2 * SECOND)
    tier(held, -10, 30 * SECOND)
    low = [held.enqueue(priority=-5) for _ in range(3)]
    high = held.enqueue(priority=5)
    start = held.now
    assert claimed(held) == [high, *low]
    more, urgent = held.enqueue(priority=-10), held.enqueue(priority=0)
    assert why(held, more) == [("tier", "tier -10", start + 30 * SECOND)]
    assert why(held, urgent) == [("tier", "tier 0", start + 2 * SECOND)]
    assert claimed(held) == []
    [agenda] = held.rows("select * from litejobs_agenda")
    assert agenda.next_tier_at == start + 2 * SECOND
    held.wait(2 * SECOND)
    assert claimed(held) == [urgent]
    held.wait(28 * SECOND)
    assert claimed(held) == [more]


def test_a_tier_lets_start_at_most_so_many(held: Sql) -> None:
    held.serve("a")
    tier(held, 0, 3 * SECOND, at_most=2)
    jobs = [held.enqueue() for _ in range(5)]
    below = held.enqueue(priority=-1)
    assert claimed(held) == [*jobs[:2], below]
    assert claimed(held) == []
    held.wait(3 * SECOND)
    assert claimed(held, 1) == jobs[2:3]
    assert claimed(held) == jobs[3:4]
    held.wait(3 * SECOND)
    assert claimed(held) == jobs[4:]


def test_a_tier_stays_open_while_there_is_no_slot_for_what_is_waiting(
    held: Sql,
) -> None:
    held.serve("a")
    tier(held, 0, MINUTE)
    jobs = [held.enqueue() for _ in range(3)]
    assert claimed(held, 2) == jobs[:2]
    held.wait(SECOND)
    assert claimed(held, 2) == jobs[2:]
    late = held.enqueue()
    assert why(held, late) == [("tier", "tier 0", held.now + MINUTE - SECOND)]
    held.wait(MINUTE - SECOND)
    assert claimed(held) == [late]


def test_a_tier_is_through_though_something_waits_for_a_key(held: Sql) -> None:
    held.serve("a")
    held.serve("b", concurrency_key="one", concurrency_limit=1)
    tier(held, 0, MINUTE)
    first, second = held.enqueue("b"), held.enqueue("b")
    assert claimed(held, 2) == [first]
    late = held.enqueue()
    assert why(held, late) == [("tier", "tier 0", held.now + MINUTE)]
    assert claimed(held) == []
    held.wait(MINUTE)
    held.tick()
    assert claimed(held, 2) == [late]
    assert held.blocks(second) == ["key_full", "tier"]


def test_a_whole_row_is_not_born_past_its_tier(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue()
    columns = "task, queue, lane_id, priority, run_at, state, created_at"
    whole = (
        f"insert into litejobs_job ({columns}) "
        f"select {columns} from litejobs_job where id = {job}"
    )
    held.execute(whole)
    tier(held, 0, HOUR)
    held.execute("update litejobs_tier set min_priority = 5")
    assert held.refused(whole) == (
        "invalid_birth: the lane is that of the queue and the task; leave lane_id out"
    )


def test_a_queue_with_tiers_of_its_own_is_in_no_other(held: Sql) -> None:
    held.serve("a")
    tier(held, 0, HOUR, at_most=1)
    tier(held, 5, MINUTE, at_most=1, queue="mail")
    general = [held.enqueue() for _ in range(2)]
    free = [held.enqueue(queue="mail") for _ in range(2)]
    mail = [held.enqueue(queue="mail", priority=5) for _ in range(2)]
    assert claimed(held) == [mail[0], general[0], *free]
    assert why(held, general[1]) == [("tier", "tier 0", held.now + HOUR)]
    assert why(held, mail[1]) == [("tier", "tier 5 of queue mail", held.now + MINUTE)]


def test_another_priority_is_another_tier(held: Sql) -> None:
    held.serve("a")
    tier(held, 0, HOUR, at_most=1)
    tier(held, -10, MINUTE, at_most=1)
    jobs = [held.enqueue() for _ in range(2)]
    assert claimed(held) == jobs[:1]
    change(held, "litejobs_job", "id", jobs[1], priority=-3)
    assert claimed(held) == jobs[1:]
    last = held.enqueue(priority=-3)
    assert why(held, last) == [("tier", "tier -10", held.now + MINUTE)]
    change(held, "litejobs_job", "id", last, priority=-11)
    assert claimed(held) == [last]


def test_jobs_follow_tiers_that_change_and_end(held: Sql) -> None:
    held.serve("a", concurrency_key="{k}")
    jobs = [held.enqueue(args=args(k=n)) for n in range(4)]
    tier(held, 0, HOUR, at_most=1)
    assert claimed(held) == jobs[:1]
    held.execute("update litejobs_tier set at_most = 2")
    assert claimed(held) == jobs[1:2]
    held.execute("update litejobs_tier set every_ms = 1")
    assert claimed(held) == []
    held.execute("update litejobs_tier set min_priority = 1")
    assert claimed(held, 1) == jobs[2:3]
    held.execute("update litejobs_tier set min_priority = 0")
    assert [code for code, _, _ in why(held, jobs[3])] == ["tier"]
    held.execute("update litejobs_tier set queue = 'mail'")
    assert why(held, jobs[3]) == []
    held.execute("update litejobs_tier set queue = ''")
    held.execute("delete from litejobs_tier")
    assert claimed(held) == jobs[3:]


def test_a_tier_is_closed_as_long_as_before_when_the_clock_is_put_back(
    held: Sql,
) -> None:
    held.serve("a")
    tier(held, 0, MINUTE)
    first = held.enqueue()
    assert claimed(held) == [first]
    job = held.enqueue()
    held.wait(-HOUR)
    held.tick()
    assert why(held, job) == [("tier", "tier 0", held.now + MINUTE)]
    held.start_runner()
    held.wait(MINUTE)
    held.tick()
    assert claimed(held, 1) == [job]


# Expiry -------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["tick", "claim"])
@pytest.mark.parametrize("state", WAITING)
def test_a_waiting_job_that_is_not_worth_running_is_cancelled(
    held: Sql, state: str, by: str
) -> None:
    held.serve("a", delay_ms=10 * MINUTE)
    job = held.job_in(state, expires_at=held.now + MINUTE)
    assert held.rows("select * from litejobs_agenda")[0].next_expires_at == (
        held.now + MINUTE
    )
    held.wait(MINUTE - 1)
    held.tick()
    assert held.job(job).state == state
    held.wait(1)
    assert ("expired", f"job {job}", None) in why(held, job)
    if by == "tick":
        held.tick()
    else:
        assert claimed(held) == []
    row = held.job(job)
    assert (row.state, row.stopped_by) == ("cancelled", "expired")
    assert row.finished_at == held.now
    assert held.moves(job)[-1] == (state, "cancelled", "expired")
    assert held.events(job)[-1] == "task.cancelled"


def test_a_requeued_job_that_had_expired_runs(held: Sql) -> None:
    held.serve("a", expires_in_ms=MINUTE)
    job = held.enqueue()
    held.wait(HOUR)
    held.tick()
    assert held.job(job).stopped_by == "expired"
    change(held, "litejobs_job", "id", job, state="pending")
    row = held.job(job)
    assert (row.state, row.expires_at, row.stopped_by) == ("pending", None, None)
    held.tick()
    assert claimed(held) == [job]


def test_a_running_job_does_not_expire_but_its_retry_does(held: Sql) -> None:
    held.serve("a", expires_in_ms=MINUTE, delay_ms=0)
    job = held.enqueue()
    assert claimed(held) == [job]
    held.wait(HOUR)
    held.tick()
    assert held.job(job).state == "processing"
    finish(held, job, "error")
    held.tick()
    assert held.job(job).stopped_by == "expired"


def test_the_time_of_a_job_to_expire_counts_from_when_it_is_due(held: Sql) -> None:
    held.serve("a", expires_in_ms=MINUTE)
    now = held.now
    assert held.job(held.enqueue()).expires_at == now + MINUTE
    assert held.job(held.enqueue(run_at=now - 5)).expires_at == now + MINUTE
    late = held.enqueue(run_at=now + HOUR)
    assert held.job(late).expires_at == now + HOUR + MINUTE
    far = held.enqueue(run_at=253_402_300_799_999)
    assert held.job(far).expires_at == 253_402_300_799_999


def test_what_has_expired_does_not_hide_what_has_not(held: Sql) -> None:
    held.serve("a")
    for _ in range(600):
        held.enqueue(expires_at=held.now + 1)
    job = held.enqueue()
    held.wait(1)
    held.tick()
    held.tick()
    assert claimed(held) == [job]


# The order ----------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 10])
def test_waiting_long_counts_as_much_as_priority_where_jobs_age(
    held: Sql, slots: int
) -> None:
    held.serve("a")
    held.serve("b", concurrency_key="{k}")
    queue(held, aging_ms=MINUTE)
    old = held.enqueue("b", args=args(k="x"))
    held.wait(90 * SECOND)
    other = held.enqueue("b", args=args(k="y"))
    first, second = held.enqueue(priority=2), held.enqueue(priority=1)
    assert [claimed(held, slots) for _ in range(4 if slots == 1 else 1)] == (
        [[first], [old], [second], [other]]
        if slots == 1
        else [[first, old, second, other]]
    )


def test_a_queue_that_begins_to_age_finds_its_first_jobs_anew(held: Sql) -> None:
    held.serve("b", concurrency_key="k")
    old = held.enqueue("b")
    held.wait(HOUR)
    new = held.enqueue("b", priority=1)
    queue(held, aging_ms=MINUTE)
    assert claimed(held) == [old]
    queue(held, aging_ms=None)
    finish(held, old)
    again = held.enqueue("b", priority=2)
    assert claimed(held) == [again]
    finish(held, again)
    assert claimed(held) == [new]


def test_between_queues_age_counts_too(held: Sql) -> None:
    held.serve("a")
    queue(held, "mail", aging_ms=MINUTE)
    old = held.enqueue(queue="mail")
    held.wait(90 * SECOND)
    jobs = [held.enqueue(priority=n) for n in range(3)]
    assert claimed(held) == [jobs[2], old, jobs[1], jobs[0]]


@pytest.mark.parametrize("keyed", [False, True])
def test_retries_yield_to_fresh_jobs_of_the_same_priority(
    held: Sql, keyed: bool
) -> None:
    columns = {"concurrency_key": "{k}"} if keyed else {}
    held.serve("a", delay_ms=0, **columns)
    held.serve("b")
    queue(held, retries="after_new")
    retry = held.enqueue(args=args(k=1))
    assert claimed(held) == [retry]
    finish(held, retry, "error")
    held.wait(SECOND)
    held.tick()
    fresh = [held.enqueue("ab"[n % 2], args=args(k=n + 2)) for n in range(3)]
    lower = held.enqueue(args=args(k=9), priority=-1)
    assert claimed(held) == [*fresh, retry, lower]


def test_retries_in_line_follow_what_their_queue_says(held: Sql) -> None:
    held.serve("a", delay_ms=0)
    jobs = [held.enqueue() for _ in range(2)]
    assert claimed(held) == jobs
    for job in jobs:
        finish(held, job, "error")
    held.wait(SECOND)
    held.tick()
    fresh = held.enqueue()
    queue(held, retries="after_new")
    assert claimed(held, 1) == [fresh]
    queue(held, retries="in_order")
    later = held.enqueue()
    assert claimed(held) == [*jobs, later]


def test_a_requeued_job_is_fresh(held: Sql) -> None:
    held.serve("a", delay_ms=0, max_attempts=2)
    queue(held, retries="after_new")
    job = held.enqueue()
    for _ in range(2):
        held.tick()
        assert claimed(held) == [job]
        finish(held, job, "error")
    assert held.job(job).state == "dead_lettered"
    change(held, "litejobs_job", "id", job, state="pending")
    held.wait(1)
    fresh = held.enqueue()
    assert claimed(held) == [job, fresh]


def test_keys_take_turns(db: Sql) -> None:
    db.serve("a", concurrency_key="{k}", concurrency_limit=9)
    queue(db, keys="round_robin")
    jobs = {
        name: [db.enqueue(args=args(k=name)) for _ in range(count)]
        for name, count in (("x", 4), ("y", 2), ("z", 1))
    }
    x, y, z = jobs["x"], jobs["y"], jobs["z"]
    assert claimed(db, 2) == [x[0], y[0]]
    assert claimed(db) == [z[0], x[1], y[1], x[2], x[3]]
    assert claimed(db) == []
    urgent = db.enqueue(args=args(k="x"), priority=1)
    fair = db.enqueue(args=args(k="y"))
    assert claimed(db) == [urgent, fair]


def test_a_key_has_one_turn_for_all_its_tasks(db: Sql) -> None:
    for task in ("a", "b"):
        db.serve(task, concurrency_key="{k}", concurrency_limit=9)
    queue(db, keys="round_robin")
    y = [db.enqueue("a", args=args(k="y")) for _ in range(2)]
    x = db.enqueue("a", args=args(k="x"))
    assert claimed(db, 2) == [y[0], x]
    late = db.enqueue("b", args=args(k="x"))
    assert claimed(db) == [y[1], late]


def test_turns_end_when_the_queue_says_so(db: Sql) -> None:
    db.serve("a", concurrency_key="{k}", concurrency_limit=9)
    queue(db, keys="round_robin")
    x = [db.enqueue(args=args(k="x")) for _ in range(4)]
    y = [db.enqueue(args=args(k="y")) for _ in range(2)]
    assert claimed(db, 1) == x[:1]
    queue(db, keys="in_order")
    assert claimed(db, 2) == x[1:3]
    queue(db, keys="round_robin")
    assert claimed(db) == [x[3], y[0], y[1]]


# Settings -----------------------------------------------------------------------------

SETTINGS = {
    "litejobs_queue": ("paused", "aging_ms", "keys", "retries", "rate_count"),
    "litejobs_key": ("max_running", "rate_count", "rate_ms", "rate_next_us"),
    "litejobs_task": ("rate_count", "rate_burst", "concurrency_key", "circuit"),
    "litejobs_tier": ("queue", "min_priority", "every_ms", "at_most"),
    "litejobs_fact": ("value",),
    "litejobs_circuit": ("state", "open_until", "probe_attempt_id"),
    "litejobs_rename": ("new_name",),
    "litejobs_job": ("priority", "queue", "requires", "concurrency_key", "circuit"),
}


@pytest.mark.every_client
def test_settings_that_are_set_as_they_are_change_nothing(db: Sql) -> None:
    db.serve("a", concurrency_key="{k}", circuit="{k}", rate_count=1, rate_ms=HOUR)
    queue(db, rate_count=9, rate_burst=9, keys="round_robin", aging_ms=MINUTE)
    queue(db, retries="after_new")
    tier(db, 0, HOUR)
    set_fact(db, "online", 1)
    db.insert("litejobs_rename", old_name="old", new_name="new")
    for number in range(6):
        db.enqueue(args=args(k=number % 3), requires='["online"]')
    [first, _] = db.claim(2)
    db.settle(first)
    change(db, "litejobs_circuit", "name", "1", state="open")
    tables = [*SETTINGS, "litejobs_lane", "litejobs__transition"]
    before = [db.content(each) for each in tables]
    for table, columns in SETTINGS.items():
        sets = ", ".join(f"{each} = {each}" for each in columns)
        db.execute(f"update {table} set {sets}")
        # The same by what is written seldom.
        db.execute(f"update or replace {table} set {sets}")
    assert [db.content(each) for each in tables] == before


def test_a_key_that_nothing_waits_for_can_be_deleted(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    job = db.enqueue()
    db.execute("delete from litejobs_key")
    assert claimed(db) == [job]
    assert db.column("select key from litejobs_key") == ["k"]


def test_first_job_is_kept_for_a_lane_below_another_alone(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    db.serve("b")
    job = db.enqueue()
    db.enqueue("b")
    found = "select base_id is null, head_id from litejobs_lane order by task, base_id"
    before = db.execute(found)
    assert before == [(1, None), (0, job), (1, None)]
    db.execute("insert into litejobs__find_head (lane) select id from litejobs_lane")
    assert db.execute(found) == before


def story(db: Sql) -> dict[str, list[tuple[Any, ...]]]:
    """What has become of jobs that were held back, changed, ended and requeued."""
    db.serve("a", concurrency_key="{k}", circuit="c", delay_ms=0, max_attempts=2)
    queue(db, retries="after_new", keys="round_robin")
    add(db, SECOND, args=args(k="s"), overlap="queue")
    jobs = [db.enqueue(args=args(k=n % 3)) for n in range(12)]
    db.execute(
        "insert into litejobs_dependency (job_id, parent_id) values (?, ?), (?, ?)",
        (jobs[10], jobs[0], jobs[11], jobs[1]),
    )
    for turn in range(6):
        for number, attempt in enumerate(db.claim(4)):
            db.settle(attempt, "ok" if (turn + number) % 3 else "error")
        db.insert("litejobs_tick", runner=db.runner, bytes=1_000 + turn, free_bytes=0)
        plan(db)
        change(db, "litejobs_job", "id", jobs[turn + 3], priority=turn % 2)
        if turn == 1:
            tier(db, 1, SECOND, at_most=1)
        if turn == 2:
            db.execute(
                "update litejobs_job set state = 'pending' where state glob 'd*'"
            )
        if turn == 3:
            db.wait(-HOUR)
        if turn == 4:
            ended = db.value("select min(id) from litejobs_job where state glob 'c*d'")
            db.execute("delete from litejobs_job where id = ?", (ended,))
            db.start_runner()
        change(db, "litejobs_job", "id", jobs[9], requires='["y", "x"]', priority=7)
        db.wait(SECOND)
    db.execute(
        "update litejobs_job set state = 'pending' "
        "where state in ('dead_lettered', 'cancelled', 'completed') and id % 2"
    )
    named = ["job", "attempt", "dependency", "key", "circuit", "tier", "queue"]
    named += ["schedule", "occurrence", "space", "runner"]
    told = {
        each: db.content(f"litejobs_{each}", ("lane_id", "token")) for each in named
    }
    # Lanes are numbered in the order in which they are made.
    told["lane"] = db.execute(
        "select job.id, lane.queue, lane.requires, lane.tier_id, lane.retries, "
        "lane.concurrency_key, lane.circuit, lane.turn, lane.parked, lane.head_id, "
        "lane.head_priority, lane.head_at "
        "from litejobs_job as job join litejobs_lane as lane on lane.id = job.lane_id "
        "order by job.id"
    )
    return told


@pytest.mark.parametrize("recursive", [False, True])
def test_the_order_in_which_triggers_were_made_makes_no_difference(
    recursive: bool,
) -> None:
    """SQLite promises none; it runs those first that were made last."""
    told = []
    for turned in (False, True):
        with time_machine.travel(START, tick=False) as clock:
            db = on_apsw(clock=clock, recursive_triggers=recursive, traced=False)
            triggers = trigger_sources(db.connection)
            for name, source in sorted(triggers.items(), reverse=turned):
                db.execute(f"drop trigger {name}")
                db.execute(source)
            told.append(story(db))
            db.connection.close()
    assert told[0] == told[1]
    states = {row[2] for row in told[0]["job"]}
    assert states >= {"pending", "completed"}
    assert told[0]["space"]
    assert len(told[0]["occurrence"]) > 1


# What is refused ----------------------------------------------------------------------


@for_each(
    "table, columns, constraint",
    [
        ("queue", {"max_running": -1}, "max_running_in_range"),
        ("queue", {"rate_count": 0}, "rate_count_in_range"),
        ("queue", {"rate_ms": 0}, "rate_ms_in_range"),
        ("queue", {"rate_burst": 0}, "rate_burst_in_range"),
        ("queue", {"rate_next_us": -1}, "rate_next_in_range"),
        ("queue", {"retries": "first"}, "retries_known"),
        ("queue", {"aging_ms": 0}, "aging_in_range"),
        ("queue", {"keys": "fair"}, "keys_known"),
        ("key", {"max_running": -1}, "max_running_in_range"),
        ("key", {"rate_count": 0}, "rate_count_in_range"),
        ("key", {"rate_ms": 31_622_400_001}, "rate_ms_in_range"),
        ("key", {"rate_burst": 1_000_001}, "rate_burst_in_range"),
        ("key", {"rate_next_us": -1}, "rate_next_in_range"),
        ("key", {"key": ""}, "length"),
        ("task", {"concurrency_key": ""}, "concurrency_key_length"),
        ("task", {"concurrency_limit": 0}, "concurrency_limit_in_range"),
        ("task", {"rate_count": 0}, "rate_count_in_range"),
        ("task", {"rate_ms": 0}, "rate_ms_in_range"),
        ("task", {"rate_burst": 0}, "rate_burst_in_range"),
        ("task", {"circuit": ""}, "circuit_length"),
        ("task", {"requires": "{}"}, "requires_is_a_list"),
        ("task", {"requires": "no"}, "requires_is_a_list"),
        ("task", {"expires_in_ms": 0}, "expires_in_range"),
        ("job", {"concurrency_key": "x" * 501}, "concurrency_key_length"),
        ("job", {"concurrency_limit": 0}, "concurrency_limit_in_range"),
        ("job", {"circuit": ""}, "circuit_length"),
        ("job", {"requires": "1"}, "requires_is_a_list"),
        ("job", {"expires_at": -1}, "expires_at_in_range"),
        ("fact", {"name": ""}, "name_length"),
        ("fact", {"value": 2}, "value_is_flag"),
        ("fact", {"origin": ""}, "origin_length"),
        ("tier", {"id": 0}, "id_positive"),
        ("tier", {"queue": "x" * 201}, "queue_length"),
        ("tier", {"min_priority": 1_000_001}, "min_priority_in_range"),
        ("tier", {"every_ms": 0}, "every_in_range"),
        ("tier", {"at_most": 0}, "at_most_in_range"),
        ("tier", {"taken": -1}, "window_in_range"),
        ("rename", {"new_name": "old"}, "is_to_another"),
        ("rename", {"new_name": ""}, "length"),
    ],
)
def test_what_a_gate_cannot_be_is_refused(
    db: Sql, table: str, columns: dict[str, Any], constraint: str
) -> None:
    needed = {
        "queue": {"name": "q"},
        "key": {"key": "k"},
        "task": {"name": "t"},
        "job": {"task": "t"},
        "fact": {"name": "f", "value": 1},
        "tier": {"min_priority": 0, "every_ms": 1},
        "rename": {"old_name": "old", "new_name": "new"},
    }
    row = {**needed[table], **columns}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    assert db.refused(
        f"insert into litejobs_{table} ({names}) values ({marks})", tuple(row.values())
    ) == (f"CHECK constraint failed: litejobs_{table}_{constraint}")


def test_a_tier_stands_once(db: Sql) -> None:
    tier(db, 0, 1)
    SEEN.refused.add("litejobs_tier_unique")
    assert "litejobs_tier.queue, litejobs_tier.min_priority" in db.refused(
        "insert into litejobs_tier (min_priority, every_ms) values (0, 2)"
    )


def test_what_uses_up_a_rate_is_not_claimed_ahead_of_the_threads(db: Sql) -> None:
    """Attempts that no thread has begun may be given back: they would have used it."""
    db.serve("plain")
    db.serve("a", concurrency_key="k", rate_count=100, rate_burst=100)
    db.execute("update litejobs_runner set threads = 2")
    for _ in range(3):
        db.enqueue("a", priority=1)
    plain = [db.enqueue("plain", priority=2) for _ in range(1)]
    later = [db.enqueue("plain") for _ in range(3)]
    taken = claimed(db, 10)
    assert taken[:1] == plain
    assert len(taken) == 2
    [agenda] = db.query("agenda", runner=db.runner, seen_at=0)
    assert (agenda.claim, claimed(db, 10)) == (0, [])
    finish(db, plain[0])
    [agenda] = db.query("agenda", runner=db.runner, seen_at=0)
    assert agenda.claim == 1
    assert len(claimed(db, 10)) == 1
    for _ in range(3):
        for job in db.column("select id from litejobs_job where state = 'processing'"):
            finish(db, job)
        claimed(db, 10)
    assert [db.job(each).starts for each in later] == [1, 1, 1]


@pytest.mark.parametrize(
    "options",
    [{"circuit": "host"}, {"rate_count": 100, "rate_burst": 100}, {"queue": "turns"}],
    ids=lambda options: next(iter(options)),
)
def test_of_a_key_what_uses_up_more_than_its_limit_is_not_claimed_ahead(
    db: Sql, options: dict[str, Any]
) -> None:
    """What is of a plain way, and comes before it, is."""
    db.serve("a", concurrency_key="k{0}")
    db.serve("b", concurrency_key="k{0}", **options)
    db.execute("update litejobs_runner set threads = 2")
    db.insert("litejobs_queue", "insert or replace", name="turns", keys="round_robin")
    first = [db.enqueue("a", args=f"[{n}]") for n in range(4)]
    between = [db.enqueue("b", args=f"[{n}]") for n in range(4, 8)]
    later = [db.enqueue("a", args=f"[{n}]") for n in range(8, 12)]
    assert claimed(db, 20) == first
    for threads, taken in ((4, []), (5, between[:1]), (20, between[1:] + later)):
        db.execute("update litejobs_runner set threads = ?", (threads,))
        [agenda] = db.query("agenda", runner=db.runner, seen_at=0)
        assert (agenda.claim, claimed(db, 20)) == (bool(taken), taken)


def test_a_key_with_a_rate_by_hand_ends_what_is_claimed_ahead(db: Sql) -> None:
    """Others of its task before it are; it and those behind it wait for a thread."""
    db.serve("a", concurrency_key="k{0}")
    db.execute("update litejobs_runner set threads = 1")
    jobs = [db.enqueue(args=f"[{key}]") for key in (0, 1, 2, 2, 3)]
    db.execute(
        "update litejobs_key set rate_count = 1, rate_ms = 3600000 where key = 'k2'"
    )
    assert claimed(db, 20) == jobs[:2]
    db.execute("update litejobs_runner set threads = 4")
    assert claimed(db, 20) == [jobs[2], jobs[4]]


def test_many_jobs_of_a_key_leave_the_slots_to_those_of_others(db: Sql) -> None:
    db.serve("a", concurrency_key="k{0}")
    db.execute("update litejobs_runner set threads = 0")
    jobs = [db.enqueue(args=f"[{n // 9}]") for n in range(36)]
    assert claimed(db, 3) == [jobs[0], jobs[9], jobs[18]]
    assert claimed(db, 3) == [jobs[27]]


def test_jobs_with_a_key_are_claimed_ahead_as_its_limit_says(db: Sql) -> None:
    """All lanes of a key together: also those of another task, or another queue."""
    db.serve("a", concurrency_key="k{0}", concurrency_limit=2)
    db.serve("b", concurrency_key="k{0}", concurrency_limit=2, queue="q")
    db.execute("update litejobs_runner set threads = 1")
    jobs = [db.enqueue(task, args=f"[{key}]") for task in "abab" for key in range(3)]
    assert claimed(db, 20) == jobs[:6]
    [agenda] = db.query("agenda", runner=db.runner, seen_at=0)
    assert (agenda.claim, claimed(db, 20)) == (0, [])
    finish(db, jobs[1])
    finish(db, jobs[4], "interrupted")
    [agenda] = db.query("agenda", runner=db.runner, seen_at=0)
    assert agenda.claim == 1
    assert claimed(db, 20) == [jobs[4], jobs[7]]
    assert claimed(db, 20) == []


def test_a_key_whose_lanes_differ_in_their_limits_is_claimed_one_by_one(
    db: Sql,
) -> None:
    """How many of it may start depends on which of them has."""
    db.serve("a", concurrency_key="k")
    db.serve("b", concurrency_key="k", concurrency_limit=3)
    jobs = [db.enqueue(task) for task in "abab"]
    assert claimed(db, 20) == [jobs[0], jobs[1], jobs[3]]
    for job in (jobs[0], jobs[1], jobs[3]):
        finish(db, job)
    jobs += [db.enqueue("b", concurrency_limit=1), db.enqueue("b")]
    db.execute("update litejobs_runner set threads = 0")
    assert claimed(db, 20) == []
    db.execute("update litejobs_key set max_running = 2")
    assert claimed(db, 20) == [jobs[2], jobs[4]]


def test_what_was_claimed_ahead_and_is_given_back_leaves_all_as_it_was(
    db: Sql,
) -> None:
    db.serve("a", concurrency_key="k{0}", concurrency_limit=2)
    db.execute("update litejobs_runner set threads = 1")
    jobs = [db.enqueue(args=f"[{n % 4}]", priority=n % 3) for n in range(16)]
    kept = (
        "select * from litejobs_lane order by id",
        "select * from litejobs_key order by key",
        "select * from litejobs_queue",
        "select id, state, lane_id, priority, run_at, attempts, crashes, delayed_ms "
        "from litejobs_job order by id",
    )
    before = [db.execute(each) for each in kept]
    taken = claimed(db, 20)
    assert len(taken) == 8
    for job in taken:
        finish(db, job, "interrupted")
    assert [db.execute(each) for each in kept] == before
    assert claimed(db, 20) == taken
    assert {db.job(job).state for job in set(jobs) - set(taken)} == {"pending"}


def test_a_limit_that_was_lowered_counts_what_was_claimed_ahead(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    db.execute("update litejobs_runner set threads = 1")
    jobs = [db.enqueue() for _ in range(5)]
    db.execute("update litejobs_key set max_running = 3")
    assert claimed(db, 20) == jobs[:3]
    db.execute("update litejobs_key set max_running = 2")
    for job, status, taken in (
        (jobs[2], "interrupted", []),
        (jobs[0], "ok", [jobs[2]]),
        (jobs[1], "ok", [jobs[3]]),
    ):
        finish(db, job, status)
        assert claimed(db, 20) == taken
    db.execute("update litejobs_key set max_running = 0")
    finish(db, jobs[2])
    assert claimed(db, 20) == []
    db.execute("update litejobs_key set max_running = null")
    assert claimed(db, 20) == []
    finish(db, jobs[3])
    assert claimed(db, 20) == [jobs[4]]


def test_jobs_with_a_key_that_were_claimed_ahead_of_a_crash_run_again(
    held: Sql,
) -> None:
    """Each is as it was but for the crash, and its key is not taken for ever."""
    held.serve("a", concurrency_key="k{0}", crash_delay_ms=0)
    held.execute("update litejobs_runner set threads = 1")
    jobs = [held.enqueue(args=f"[{n % 3}]") for n in range(6)]
    assert claimed(held, 20) == jobs[:3]
    kill(held)
    held.tick()
    assert [held.job(job).crashes for job in jobs] == [1, 1, 1, 0, 0, 0]
    [agenda] = held.query("agenda", runner=held.runner, seen_at=0)
    assert (agenda.suspects, agenda.claim) == (1, 1)
    assert claimed(held, 20) == jobs[:3]


def test_jobs_with_a_key_that_were_claimed_ahead_can_be_cancelled_and_paused(
    db: Sql,
) -> None:
    db.serve("a", concurrency_key="k{0}")
    db.execute("update litejobs_runner set threads = 1")
    jobs = [db.enqueue(args=f"[{n % 3}]") for n in range(6)]
    assert claimed(db, 20) == jobs[:3]
    db.execute("update litejobs_queue set paused = 1")
    db.execute(
        "update litejobs_job set cancel_requested_at = 1 where id = ?", (jobs[1],)
    )
    finish(db, jobs[0], "interrupted")
    finish(db, jobs[1], "interrupted")
    assert db.job(jobs[1]).state == "cancelled"
    assert claimed(db, 20) == []
    db.execute("update litejobs_queue set paused = 0")
    assert claimed(db, 20) == [jobs[0], jobs[4]]
    db.execute("update litejobs_job set state = 'pending' where id = ?", (jobs[1],))
    assert claimed(db, 20) == []
    finish(db, jobs[4])
    assert claimed(db, 20) == [jobs[1]]


def test_a_lane_that_opens_before_its_keys_other_lanes_is_looked_at_in_time(
    held: Sql,
) -> None:
    rate = {"concurrency_key": "k", "rate_ms": MINUTE}
    held.serve("slow", rate_count=1, **rate)
    held.serve("fast", rate_count=2, rate_burst=2, **rate)
    held.enqueue("slow")
    [first] = claimed(held, 1)
    finish(held, first)
    job = held.enqueue("fast")
    assert why(held, job) == [("key_rate", "key k", held.now + 30 * SECOND)]
    held.clock.shift(30)
    assert held.blocks(job) == []
    assert claimed(held, 1) == [job]


def test_a_rate_that_is_closed_by_a_row_that_is_written_anew_is_waited_for(
    held: Sql,
) -> None:
    held.serve("a", concurrency_key="k")
    job = held.enqueue()
    held.execute(
        "insert or replace into litejobs_key (key, rate_count, rate_ms, rate_next_us)"
        " values ('k', 1, 60000, ?)",
        ((held.now + MINUTE) * 1000,),
    )
    assert_taken_in_a_minute(held, job)


def test_a_key_that_nothing_waits_for_wakes_nobody(held: Sql) -> None:
    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=MINUTE)
    first, second = held.enqueue(), held.enqueue()
    [attempt] = held.claim()
    assert held.attempt(attempt).job_id == first
    held.settle(attempt)
    wakes = "select closed_until from litejobs_key"
    assert held.value(wakes) == held.now + MINUTE
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (second,))
    held.clock.shift(20)
    held.tick()
    assert held.value(wakes) == held.now + 40 * SECOND
    held.clock.shift(40)
    held.tick()
    assert held.value(wakes) is None
    third = held.enqueue()
    assert claimed(held, 1) == [third]
    assert held.value(wakes) is None
    held.clock.shift(20)
    fourth = held.enqueue()
    assert held.value(wakes) == held.now + 40 * SECOND
    assert claimed(held, 1) == []
    held.clock.shift(40)
    held.tick()
    finish(held, third)
    assert claimed(held, 1) == [fourth]


@pytest.mark.parametrize("on_parent_failure", [None, "cancel", "run", "block"])
def test_whoever_waits_for_another_says_so(
    db: Sql, on_parent_failure: str | None
) -> None:
    db.serve("a")
    parent = db.enqueue()
    job = db.enqueue(on_parent_failure=on_parent_failure)
    db.insert("litejobs_dependency", job_id=job, parent_id=parent)
    db.execute("insert into litejobs_batch default values")
    db.insert("litejobs_dependency", job_id=job, batch_id=1)
    assert sorted(why(db, job), key=str) == [
        ("dependency", "batch 1", None),
        ("dependency", f"job {parent}", None),
    ]
