"""Does a runner wake when a gate ends by itself? Each gate is closed here, in a story.

What a loop sleeps until is in litejobs_agenda. A gate whose end is not there stays shut
for as long as nothing else happens, and no other test need notice: so each code of
litejobs__reason has its story here, and either it has an instant, for which a runner
wakes, or stands below with those who end it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.models import kinds
from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, Sql

Story = Callable[[Sql], int]

STORIES: dict[str, Story] = {}
"""By the code of the gate: what closes it, and which job waits behind it alone."""

# Gates that no instant ends, and who does.
ENDS_BY_SOMEBODY = {
    "dependency": "the job that it waits for",
    "attempts_used": "whoever changes its limits",
    "queue_paused": "whoever resumes the queue",
    "queue_unserved": "whoever starts a runner of this queue",
    "queue_full": "a job of the queue that ends",
    "unknown_task": "whoever starts a runner with the task",
    "fact": "the application that says that it is so",
    "key_full": "a job with the key that ends",
    "arguments_do_not_fit": "whoever starts a runner whose code takes them",
    "circuit_probing": "the job that is the probe",
    "no_executor": "whoever starts a runner that has it",
    "executor_away": "the runner, when it can be reached again",
    "executor_full": "a job on the executor that ends",
    # It is the job that ends, for which a runner wakes, too: sql/test_gates.py
    "expired": "the tick, which cancels it",
}


def story(close: Story) -> Story:
    STORIES[close.__name__] = close
    return close


@story
def due(db: Sql) -> int:
    db.serve("a")
    return db.enqueue(run_at=db.now + MINUTE)


@story
def dependency(db: Sql) -> int:
    db.serve("a")
    return db.job_in("blocked")


@story
def attempts_used(db: Sql) -> int:
    db.serve("a")
    job = db.enqueue()
    db.settle(db.begin(job), "interrupted")
    db.execute("update litejobs_job set attempts = 1, max_attempts = 1")
    return job


@story
def expired(db: Sql) -> int:
    db.serve("a")
    job = db.enqueue(expires_at=db.now + MINUTE)
    db.wait(MINUTE)
    return job


@story
def queue_paused(db: Sql) -> int:
    db.serve("a")
    job = db.enqueue(queue="mail")
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    return job


@story
def queue_unserved(db: Sql) -> int:
    db.serve("a")
    db.query("choose_queues", runner=db.runner, queues='["other"]')
    return db.enqueue(queue="mail")


@story
def queue_full(db: Sql) -> int:
    db.serve("a")
    db.insert("litejobs_queue", name="mail", max_running=1)
    db.job_in("processing", queue="mail")
    return db.enqueue(queue="mail")


@story
def queue_rate(db: Sql) -> int:
    db.serve("a")
    db.insert("litejobs_queue", name="mail", rate_count=1, rate_ms=MINUTE)
    db.job_in("completed", queue="mail")
    return db.enqueue(queue="mail")


@story
def unknown_task(db: Sql) -> int:
    db.serve("a")
    return db.enqueue("b")


@story
def fact(db: Sql) -> int:
    db.serve("a")
    return db.enqueue(requires='["online"]')


@story
def tier(db: Sql) -> int:
    db.serve("a")
    db.insert("litejobs_tier", min_priority=0, every_ms=MINUTE, at_most=1)
    db.job_in("completed")
    return db.enqueue()


@story
def key_full(db: Sql) -> int:
    db.serve("a", concurrency_key="k")
    db.job_in("processing")
    return db.enqueue()


@story
def key_rate(db: Sql) -> int:
    db.serve("a", concurrency_key="k", rate_count=1, rate_ms=MINUTE)
    db.job_in("completed")
    return db.enqueue()


def on_executor(db: Sql, slots: int = 1) -> int:
    db.serve("a")
    db.register("cpu", slots)
    db.execute("update litejobs_task set executor = 'cpu' where name = 'a'")
    return db.enqueue()


@story
def no_executor(db: Sql) -> int:
    job = on_executor(db)
    db.execute("delete from litejobs_executor")
    return job


@story
def executor_away(db: Sql) -> int:
    job = on_executor(db)
    db.execute("update litejobs_executor set away_at = 1")
    return job


@story
def executor_full(db: Sql) -> int:
    job = on_executor(db)
    second = db.enqueue()
    assert db.claim_room(0, cpu=1) == [job]
    return second


@story
def arguments_do_not_fit(db: Sql) -> int:
    db.serve("a")
    job = db.enqueue()
    said = ',"error":{"code":"arguments_do_not_fit"}'
    db.settle(db.begin(job), "interrupted", said)
    return job


@story
def circuit_open(db: Sql) -> int:
    db.serve("a", circuit="c")
    db.insert("litejobs_breaker", task="a", threshold=1, cooldown_ms=MINUTE)
    db.job_in("dead_lettered")
    return db.enqueue()


@story
def circuit_probing(db: Sql) -> int:
    job = circuit_open(db)
    db.wait(MINUTE)
    db.tick()
    db.job_in("processing")
    return job


def until(db: Sql, job: int) -> dict[str, int | None]:
    """What holds the job back, and until when."""
    return dict(
        db.execute("select code, until_at from litejobs_block where job_id = ?", (job,))
    )


def instants(db: Sql) -> list[int]:
    """When a loop wakes, as long as nothing else happens."""
    [row] = db.rows("select * from litejobs_agenda")
    return [each for name, each in vars(row).items() if name != "now" and each]


def rest(db: Sql) -> int:
    """The runner has done all that there is to do now, and sleeps: for how many ms?"""
    for _ in range(20):
        db.tick()
        db.claim(10)
        [asked] = db.query("agenda", runner=db.runner, seen_at=0)
        if asked.wait_ms and not asked.tick:
            return int(asked.wait_ms)
    raise AssertionError(f"there is always something to do: {asked}")


def test_each_gate_has_a_story() -> None:
    missing = kinds.blocks() - STORIES.keys()
    assert not missing, f"no story closes {', '.join(sorted(missing))}"
    assert kinds.blocks() == STORIES.keys()
    assert ENDS_BY_SOMEBODY.keys() < STORIES.keys()


@pytest.mark.parametrize("gate", STORIES)
def test_a_gate_ends_at_an_instant_or_by_somebody(held: Sql, gate: str) -> None:
    job = STORIES[gate](held)
    found = until(held, job)
    assert found.keys() == {gate}
    if gate in ENDS_BY_SOMEBODY:
        assert found[gate] is None, f"{gate} ends by itself, at {found[gate]}"
    else:
        assert found[gate] == held.now + MINUTE, (
            f"{gate} has no instant in litejobs_block: write it into its last case; "
            "or, if no instant ends it, say in ENDS_BY_SOMEBODY who does"
        )
    shown = dict(held.execute("select code, until_at from litejobs_waiting"))
    assert shown[gate] == found[gate], (
        f"until_at of {gate} in litejobs_waiting is not that of litejobs_block"
    )


@pytest.mark.parametrize("gate", sorted(STORIES.keys() - ENDS_BY_SOMEBODY))
def test_a_runner_wakes_when_a_gate_has_ended_by_itself(held: Sql, gate: str) -> None:
    job = STORIES[gate](held)
    end = held.now + MINUTE
    assert end in instants(held), f"{gate} ends at {end}, which is not in the agenda"
    assert rest(held) == end - held.now, (
        f"no runner wakes when {gate} ends: see wait_ms of queries/loop.sql"
    )
    assert held.job(job).state != "processing"
    held.wait(end - 1 - held.now)
    assert rest(held) == 1
    assert held.job(job).state != "processing"
    held.wait(1)
    [asked] = held.query("agenda", runner=held.runner, seen_at=0)
    assert asked.tick or asked.claim, f"{gate} has ended, and nothing is to be done"
    rest(held)
    assert held.job(job).state == "processing"


@pytest.mark.parametrize("gate", sorted(ENDS_BY_SOMEBODY.keys() - {"expired"}))
def test_a_runner_sleeps_while_somebody_else_has_to_end_a_gate(
    held: Sql, gate: str
) -> None:
    job = STORIES[gate](held)
    assert rest(held) == DAY
    held.wait(HOUR + SECOND)
    assert rest(held) == DAY
    assert until(held, job).keys() == {gate}
