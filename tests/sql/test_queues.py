"""A runner that runs the jobs of some queues alone, by plain SQL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from litejobs._storage.statements import queries
from tests.sql.fixture import CLAIMABLE, HOUR, MINUTE, SECOND, WAITING, Sql
from tests.sql.test_gates import claimed

UNSERVED = "queue_unserved"


def choose(db: Sql, *queues: Any) -> None:
    """The living runner runs these queues alone from now on; none given, all."""
    db.execute(
        "update litejobs_runner set queues = ? where stopped_at is null",
        (json.dumps(queues) if queues else None,),
    )


def test_only_jobs_of_its_queues_are_given_to_a_runner(db: Sql) -> None:
    db.serve("a")
    choose(db, "mail", "bulk")
    other, mail, bulk = (db.enqueue(queue=each) for each in ("other", "mail", "bulk"))
    assert claimed(db) == [mail, bulk]
    assert db.blocks(other) == [UNSERVED]
    assert db.job(other).state == "pending"


def test_why_names_the_queue_and_the_way_out(db: Sql) -> None:
    db.serve("a")
    choose(db, "mail")
    job = db.enqueue(queue="bulk")
    assert db.execute(
        "select code, detail, object, until_at, remedy from litejobs_why "
        "where job_id = ?",
        (job,),
    ) == [
        (
            UNSERVED,
            "the runner does not run the jobs of its queue",
            "queue bulk",
            None,
            "start the runner with this queue among its queues, or without any to run "
            "all",
        )
    ]


@pytest.mark.parametrize("state", WAITING)
def test_a_queue_that_is_not_run_is_named_for_whatever_waits(
    db: Sql, state: str
) -> None:
    db.serve("a")
    job = db.job_in(state, queue="bulk")
    choose(db, "mail")
    assert UNSERVED in db.blocks(job)
    choose(db, "mail", "bulk")
    assert UNSERVED not in db.blocks(job)


def test_queues_that_are_paused_too_have_both_reasons(db: Sql) -> None:
    db.serve("a")
    choose(db, "mail")
    job = db.enqueue(queue="bulk")
    db.execute("update litejobs_queue set paused = 1 where name = 'bulk'")
    assert db.blocks(job) == ["queue_paused", UNSERVED]


def test_a_queue_that_is_new_is_not_run_unless_it_is_named(db: Sql) -> None:
    db.serve("a")
    choose(db, "later")
    stranger = db.enqueue(queue="stranger")
    expected = db.enqueue(queue="later")
    assert db.blocks(stranger) == [UNSERVED]
    assert claimed(db) == [expected]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_the_next_runner_runs_all_again(db: Sql, stopped: bool) -> None:
    db.serve("a")
    choose(db, "mail")
    job = db.enqueue(queue="bulk")
    if stopped:
        db.execute("update litejobs_runner set stopped_at = 1")
        # Nobody runs anything, and that is said.
        assert db.blocks(job) == ["unknown_task"]
    db.start_runner()
    assert db.blocks(job) == []
    assert claimed(db) == [job]


def test_a_runner_of_a_plain_client_may_name_its_queues_as_it_begins(db: Sql) -> None:
    db.execute("""insert into litejobs_runner (queues) values ('["mail"]')""")
    db.runner = db.value("select max(id) from litejobs_runner")
    db.serve("a")
    job, mail = db.enqueue(queue="bulk"), db.enqueue(queue="mail")
    assert claimed(db) == [mail]
    assert db.blocks(job) == [UNSERVED]


def test_a_runner_may_take_a_queue_in_addition_while_it_lives(db: Sql) -> None:
    db.serve("a")
    choose(db, "mail")
    job = db.enqueue(queue="bulk")
    assert claimed(db) == []
    choose(db, "mail", "bulk")
    assert claimed(db) == [job]
    choose(db)
    assert claimed(db) == []
    assert db.blocks(db.enqueue(queue="third")) == []


def test_a_job_that_runs_goes_on_when_its_queue_is_left_out(db: Sql) -> None:
    db.serve("a", delay_ms=0, jitter=0.0)
    job = db.enqueue(queue="bulk")
    [attempt] = db.claim()
    choose(db, "mail")
    db.settle(attempt, "error")
    assert db.job(job).state == "failed"
    db.tick()
    # Its retry waits, in line.
    assert db.job(job).state == "pending"
    assert db.blocks(job) == [UNSERVED]
    assert claimed(db) == []


def test_a_tick_puts_jobs_in_line_that_are_not_run(held: Sql) -> None:
    held.serve("a")
    choose(held, "mail")
    job = held.enqueue(queue="bulk", run_at=held.now + MINUTE)
    assert held.blocks(job) == ["due", UNSERVED]
    held.wait(MINUTE)
    held.tick()
    assert held.job(job).state == "pending"
    assert held.blocks(job) == [UNSERVED]


def test_jobs_that_are_not_run_still_expire(held: Sql) -> None:
    held.serve("a")
    choose(held, "mail")
    job = held.enqueue(queue="bulk", expires_at=held.now + SECOND)
    held.wait(SECOND)
    held.tick()
    assert held.job(job).state == "cancelled"
    assert held.job(job).stopped_by == "expired"


def test_a_loop_has_nothing_to_do_for_jobs_that_it_does_not_run(held: Sql) -> None:
    held.serve("a", concurrency_key="{0}", circuit="c")
    for queue in ("bulk", "paced"):
        held.enqueue(queue=queue, args='["x"]')
        held.enqueue("a", queue=queue, args='["y"]', priority=5)
    held.execute("update litejobs_queue set rate_count = 1 where name = 'paced'")
    choose(held, "mail")
    held.tick()
    assert claimed(held) == []
    [agenda] = held.query("agenda", runner=held.runner, seen_at=0)
    assert (agenda.tick, agenda.claim, agenda.wait_ms) == (0, 0, 24 * HOUR)
    [idle] = held.execute(queries()["idle"], {"stands": 0})
    assert idle == (1,)
    # Nor does it miss what it runs.
    job = held.enqueue(queue="mail")
    [agenda] = held.query("agenda", runner=held.runner, seen_at=0)
    assert agenda.claim == 1
    assert claimed(held) == [job]


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_a_claim_of_many_passes_by_what_is_not_run(db: Sql, gated: bool) -> None:
    """Jobs that are claimed many at a time, and those that are claimed one by one."""
    db.serve("a", **({"concurrency_key": "{0}"} if gated else {}))
    choose(db, "mail")
    wanted = []
    for number in range(6):
        db.enqueue(queue="bulk", args=f'["{number}"]', priority=9)
        wanted.append(db.enqueue(queue="mail", args=f'["{number}"]'))
    assert claimed(db, 4) == wanted[:4]
    assert claimed(db) == wanted[4:]


def test_claimable_is_what_has_no_block(db: Sql) -> None:
    db.serve("a")
    choose(db, "mail")
    mail = db.enqueue(queue="mail")
    db.enqueue(queue="bulk")
    assert db.column(f"select job_id from {CLAIMABLE}") == [mail]


def test_a_tier_closes_when_only_jobs_are_left_that_are_not_run(held: Sql) -> None:
    held.serve("a")
    held.insert("litejobs_tier", min_priority=0, every_ms=MINUTE)
    first, _ = held.enqueue(queue="mail"), held.enqueue(queue="bulk")
    choose(held, "mail")
    assert claimed(held) == [first]
    second = held.enqueue(queue="mail")
    assert held.blocks(second) == ["tier"]


def test_an_unfinished_list_of_queues_is_refused(db: Sql) -> None:
    db.serve("a")
    for text in ("mail", "[", "[]", "{}", '"mail"', "1", ""):
        words = db.refused("update litejobs_runner set queues = ?", (text,))
        assert "litejobs_runner_queues_are_a_list" in words, text


def test_what_is_no_name_in_the_list_names_no_queue(db: Sql) -> None:
    """Whoever wrote it: a job that waits has its reason."""
    db.serve("a")
    db.execute("""update litejobs_runner set queues = '[null, {"mail": 1}, 7]'""")
    job = db.enqueue(queue="mail")
    assert claimed(db) == []
    assert db.blocks(job) == [UNSERVED]
    assert claimed(db, 1) == []


def test_queues_are_told_apart_by_each_letter(db: Sql) -> None:
    db.serve("a")
    choose(db, "Mail", "é\U0001f600,'\"")
    other, same = db.enqueue(queue="mail"), db.enqueue(queue="é\U0001f600,'\"")
    assert claimed(db) == [same]
    assert db.blocks(other) == [UNSERVED]
