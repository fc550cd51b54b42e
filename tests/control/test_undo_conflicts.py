"""What others have done since is in the way of undoing an operation, and stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._storage import statements
from tests.sql.fixture import DAY, HOUR, Sql, on_apsw
from tests.sql.test_operations import recorded, undo

LONG = 20.0


def undone(db: Sql) -> bool:
    """Whether the last operation could be undone."""
    try:
        undo(db)
    except apsw.ConstraintError as error:
        assert str(error).removeprefix("ConstraintError: ").split(":")[0] in (
            "moved_on",
            "operation_not_recorded",
        )
        return False
    return True


@pytest.mark.parametrize("what", ["enqueue", "requeue"])
def test_undo_cancels_no_job_that_somebody_has_asked_for_since(
    held: Sql, what: str
) -> None:
    held.serve()
    parent = None if what == "enqueue" else held.job_in("dead_lettered")
    with recorded(held):
        if parent is None:
            parent = held.enqueue()
        else:
            held.execute("update litejobs_job set state = 'pending'")
    child = held.enqueue()
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    undone(held)
    assert held.job(child).state == "blocked"


def test_undo_starts_no_job_that_is_for_the_case_of_failure(held: Sql) -> None:
    held.serve()
    with recorded(held):
        parent = held.enqueue()
    child = held.enqueue(on_parent_failure="run")
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    undone(held)
    assert held.job(child).state == "blocked"


def test_undo_fails_no_batch_that_was_sealed_since(held: Sql) -> None:
    held.serve()
    held.execute("insert into litejobs_batch default values")
    other = held.enqueue(batch_id=1, priority=1)
    with recorded(held):
        held.enqueue(batch_id=1)
    held.execute("update litejobs_batch set state = 'sealed'")
    undone(held)
    for _ in range(2):
        for attempt in held.claim():
            held.settle(attempt)
    assert held.job(other).state == "completed"
    assert held.value("select state from litejobs_batch") == "succeeded"


def test_job_of_a_batch_that_has_ended_stays_cancelled_though_the_clock_went_back(
    held: Sql,
) -> None:
    held.serve()
    held.execute("insert into litejobs_batch default values")
    for _ in range(2):
        held.enqueue(batch_id=1)
    held.execute("update litejobs_batch set state = 'sealed'")
    with recorded(held):
        held.execute("update litejobs_job set state = 'cancelled' where id = 1")
    held.wait(-HOUR)
    held.tick()
    held.settle(held.claim()[0])
    assert held.value("select state from litejobs_batch") == "failed"
    assert not undone(held)


def steps_of(db: Sql, what: Callable[[], Any]) -> int:
    """How many steps the virtual machine makes for it."""
    found: list[int] = []

    def note(event: dict[str, Any]) -> None:
        found.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    db.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    what()
    db.connection.trace_v2(0, None)
    return sum(found)


@pytest.mark.parametrize("query", ["read_operation", "list_operations"])
def test_looking_at_one_operation_costs_the_same_after_many(query: str) -> None:
    db = on_apsw(traced=False)
    db.serve()
    sql = statements.queries()[query]
    given = {"id": 1} if query == "read_operation" else {"limit": 1}
    costs = []
    for _ in range(2):
        for number in range(60):
            with recorded(db):
                db.insert("litejobs_fact", name=f"f{number}x{len(costs)}", value=1)
        db.execute(sql, given)
        costs.append(steps_of(db, lambda: db.execute(sql, given)))
    db.connection.close()
    assert costs[1] < costs[0] * 1.5


def test_queue_that_a_task_names_is_not_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with LiteJobs() as jobs:

        @jobs.task(queue="mail")
        def send() -> None:
            pass

        with (
            caplog.at_level(logging.WARNING, "litejobs"),
            jobs.running(threads=1, queues=["mail"]) as runner,
        ):
            send.enqueue()
            assert runner.wait_idle(LONG)
    assert caplog.messages == []


def test_operation_of_a_later_time_is_not_undone_before_the_clock_is_there_again(
    held: Sql,
) -> None:
    """What waited has been put earlier with the clock; what was recorded has not."""
    held.serve()
    job = held.job_in("failed")
    with recorded(held):
        held.execute("update litejobs_job set state = 'cancelled'")
    held.wait(-DAY)
    held.tick()
    assert not undone(held)
    assert held.job(job).state == "cancelled"
    held.wait(DAY)
    held.tick()
    assert undone(held)
    assert held.job(job).state == "failed"


def test_purge_forgets_the_operations_of_that_time() -> None:
    with LiteJobs() as jobs:
        with jobs.operation("cancel"):
            jobs.enqueue("x").cancel()
        with jobs.operation("set"):
            jobs.facts["online"] = True
        jobs.purge(older_than=None)
        assert [operation.name for operation in jobs.operations()] == ["purge"]
        assert (
            jobs._store.rows("operation_changes", {"operations": "[1, 2]", "limit": 9})
            == []
        )
