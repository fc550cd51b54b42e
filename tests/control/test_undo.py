"""Operations from Python: `jobs.operation`, `jobs.undo`, `jobs.operations`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

import litejobs
from litejobs import LiteJobs, Operation, Task, cron, every
from litejobs.errors import (
    ConfigurationError,
    ConstraintViolated,
    LiteJobsError,
    OperationNotFound,
)


@pytest.fixture
def clock() -> Iterator[Any]:
    with freeze_time("2026-01-05 08:00:00") as frozen:
        yield frozen


@pytest.fixture
def jobs(clock: Any) -> Iterator[LiteJobs]:
    with LiteJobs() as found:
        yield found


@pytest.fixture
def work(jobs: LiteJobs) -> Task[..., Any]:
    """A task that answers its argument, or fails if it is negative."""

    @jobs.task(max_attempts=1)
    def work(number: int = 0) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    return work


# An operation -------------------------------------------------------------------------


def test_operation_tells_what_was_done(jobs: LiteJobs, work: Task[..., Any]) -> None:
    job = work.enqueue()
    with jobs.operation("cancel", f"job {job.id}"):
        job.cancel()
    [operation] = jobs.operations()
    assert isinstance(operation, Operation)
    assert (operation.id, operation.name, operation.detail, operation.origin) == (
        1,
        "cancel",
        "job 1",
        "api",
    )
    assert (operation.state, operation.changes) == ("done", 1)
    assert (operation.in_the_way, operation.can_be_undone, operation.undone_at) == (
        None,
        True,
        None,
    )
    assert str(operation) == "cancel: job 1"


def test_undo_tells_which_operation(jobs: LiteJobs, work: Task[..., Any]) -> None:
    job = work.enqueue()
    with jobs.operation("cancel"):
        job.cancel()
    operation = jobs.undo()
    assert (operation.id, operation.state, str(operation)) == (1, "undone", "cancel")
    assert operation.undone_at is not None
    assert not operation.can_be_undone
    assert job.state == "pending"
    assert jobs.drain() == 1


def test_block_that_raises_stores_nothing(jobs: LiteJobs, work: Task[..., Any]) -> None:
    with pytest.raises(ZeroDivisionError), jobs.operation("enqueue"):
        work.enqueue()
        raise ZeroDivisionError
    assert jobs.operations() == []
    assert jobs.list() == []
    # Nor does a later operation belong to it.
    with jobs.operation("pause"):
        jobs.pause("mail")
    assert [each.name for each in jobs.operations()] == ["pause"]


def test_detail_may_be_said_in_the_end(jobs: LiteJobs, work: Task[..., Any]) -> None:
    for _ in range(3):
        work.enqueue(-1)
    jobs.drain()
    with jobs.operation("requeue") as operation:
        operation.detail = f"{len(jobs.requeue_all())} jobs"
    [found] = jobs.operations()
    assert (str(found), found.id, found.changes) == ("requeue: 3 jobs", operation.id, 3)
    with pytest.raises(AttributeError):
        operation.id = 7


def test_operation_within_an_operation_is_part_of_it(jobs: LiteJobs) -> None:
    with jobs.operation("outer") as outer:
        jobs.pause("a")
        with jobs.operation("inner") as inner:
            jobs.pause("b")
        assert inner is outer
        jobs.pause("c")
    assert [str(each) for each in jobs.operations()] == ["outer"]
    jobs.undo()
    assert not any(jobs.queues[name].paused for name in "abc")


def test_operation_within_a_transaction_is_stored_with_it(jobs: LiteJobs) -> None:
    with pytest.raises(ZeroDivisionError), jobs.transaction():
        with jobs.operation("pause"):
            jobs.pause("a")
        raise ZeroDivisionError
    assert jobs.operations() == []
    with jobs.transaction():
        jobs.pause("a")
        with jobs.operation("pause"):
            jobs.pause("b")
    jobs.undo()
    assert (jobs.queues["a"].paused, jobs.queues["b"].paused) == (True, False)


def test_operations_of_threads_are_apart(jobs: LiteJobs) -> None:
    def pause(name: str) -> None:
        with jobs.operation("pause", name):
            jobs.pause(name)

    threads = [threading.Thread(target=pause, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.detail: each.changes for each in jobs.operations()} == dict.fromkeys(
        "abcd", 1
    )


def test_two_objects_on_one_file_are_in_one_operation(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as one, LiteJobs(path) as other:
        with one.operation("both"), other.operation("inner"):
            one.pause("a")
            other.pause("b")
        assert [each.changes for each in other.operations()] == [2]


def test_operations_in_two_files_are_apart(tmp_path: Path) -> None:
    with LiteJobs(tmp_path / "1.db") as one, LiteJobs(tmp_path / "2.db") as other:
        with one.operation("one"):
            one.pause("a")
            with other.operation("other"):
                other.pause("b")
        assert [str(each) for each in one.operations()] == ["one"]
        assert [str(each) for each in other.operations()] == ["other"]


def test_operation_that_is_not_undoable_is_remembered(jobs: LiteJobs) -> None:
    with jobs.operation("purge", "12 jobs", undoable=False):
        pass
    [operation] = jobs.operations()
    assert operation.in_the_way == "what it deleted is not kept"
    with pytest.raises(ConstraintViolated, match="what it deleted is not kept") as told:
        jobs.undo()
    assert told.value.code == "operation_is_final"


@pytest.mark.parametrize("name", ["", None, 7, "x" * 201, "a\0b"])
def test_name_that_cannot_be_stored_is_refused(jobs: LiteJobs, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name="), jobs.operation(name):
        pass  # pragma: no cover - not reached


def test_detail_that_cannot_be_stored_is_refused(jobs: LiteJobs) -> None:
    with (
        pytest.raises(ConfigurationError, match="detail="),
        jobs.operation("x", "y" * 2001),
    ):
        pass  # pragma: no cover - not reached
    with (
        pytest.raises(ConfigurationError, match="detail="),
        jobs.operation("x") as operation,
    ):
        jobs.pause("q")
        operation.detail = ""
    assert not jobs.queues["q"].paused


def test_limit_of_the_list(jobs: LiteJobs) -> None:
    for name in "abc":
        with jobs.operation("pause", name):
            jobs.pause(name)
    assert [each.detail for each in jobs.operations(limit=2)] == ["c", "b"]
    with pytest.raises(ConfigurationError):
        jobs.operations(limit=-1)


def test_operations_are_among_the_events(jobs: LiteJobs) -> None:
    with jobs.operation("pause", "queue q"):
        jobs.pause("q")
    jobs.undo()
    assert [(each.name, each.subject) for each in jobs.log()] == [
        ("queue.paused", "queue q"),
        ("operation.done", "pause: queue q"),
        ("queue.open", "queue q"),
        ("operation.undone", "pause: queue q"),
    ]


def test_callbacks_do_not_hear_of_what_is_undone(
    jobs: LiteJobs, work: Task[..., Any]
) -> None:
    """A job that has ended again has not ended twice."""
    heard = []
    jobs.on("completed", lambda event: heard.append(event.job_id))
    job = work.enqueue()
    jobs.drain()
    with jobs.operation("requeue"):
        job.requeue()
    jobs.undo()
    assert job.result() == 0
    jobs.drain()
    assert heard == [job.id]


# What can be undone -------------------------------------------------------------------


def circuits(jobs: LiteJobs) -> None:
    jobs.circuits["c"].isolate("1h")


STEERING: dict[str, tuple[Callable[[LiteJobs], Any], Callable[[LiteJobs], Any]]] = {
    "pause": (lambda j: j.pause("q"), lambda j: j.queues["q"].paused),
    "queue": (
        lambda j: j.queues["q"].set(max_running=2, rate="3/1m", aging="1s"),
        lambda j: (j.queues["q"].max_running, j.queues["q"].rate),
    ),
    "key": (lambda j: j.keys["k"].set(max_running=2), lambda j: list(j.keys)),
    "fact": (lambda j: j.facts.__setitem__("f", True), lambda j: dict(j.facts)),
    "tier": (lambda j: j.tiers.set(-5, every="1m"), lambda j: list(j.tiers)),
    "isolate": (circuits, lambda j: j.circuits["c"].state),
    "add": (
        lambda j: j.schedules.create("n", "work", cron("0 9 * * *")),
        lambda j: list(j.schedules),
    ),
    "change": (
        lambda j: j.schedules.update("s", when=every("5m"), max_runs=3),
        lambda j: (j.schedules["s"].sentence, j.schedules["s"].max_runs),
    ),
    "pause a schedule": (
        lambda j: j.schedules.pause("s", "holidays"),
        lambda j: (j.schedules["s"].state, j.schedules["s"].next_at),
    ),
    "remove": (
        lambda j: j.schedules.remove("s"),
        lambda j: [(name, j.schedules[name].next_at) for name in j.schedules],
    ),
}


@pytest.mark.parametrize("what", STEERING)
def test_steering_is_undone(jobs: LiteJobs, what: str) -> None:
    change, look = STEERING[what]
    jobs.schedules.create("s", "work", cron("30 9 * * *"))
    before = look(jobs)
    with jobs.operation(what):
        change(jobs)
    assert look(jobs) != before
    jobs.undo()
    assert look(jobs) == before


def test_schedule_that_comes_back_goes_on_and_remembers(
    jobs: LiteJobs, work: Task[..., Any], clock: Any
) -> None:
    jobs.schedules.create("s", work, every("1h"))
    clock.tick(3600)
    assert jobs.drain() == 1
    with jobs.operation("remove"):
        jobs.schedules.remove("s")
    clock.tick(3600)
    assert jobs.drain() == 0
    jobs.undo()
    assert jobs.schedules["s"].runs == 1
    assert jobs.drain() == 0, "what came while it was away is let go"
    clock.tick(3600)
    assert jobs.drain() == 1
    states = [each.state for each in jobs.schedules["s"].occurrences()]
    assert states.count("fired") == 2


def test_schedule_whose_time_never_comes_is_restored_all_the_same(
    jobs: LiteJobs,
) -> None:
    jobs.schedules.create("s", "work", cron("0 9 * * *"))
    with jobs.transaction() as db:
        db.execute("update litejobs_schedule set expression = '0 0 31 2 *'")
    with jobs.operation("remove"):
        jobs.schedules.remove("s")
    jobs.undo()
    assert list(jobs.schedules) == ["s"]


# What cannot --------------------------------------------------------------------------


def test_there_is_no_such_operation(jobs: LiteJobs) -> None:
    with pytest.raises(OperationNotFound, match="no operation to undo in :memory:"):
        jobs.undo()
    for operation in (7, 0, -1, 2**70, True, "7"):
        with pytest.raises(
            OperationNotFound, match=f"no operation {operation!r} in :memory:"
        ):
            jobs.undo(operation)  # type: ignore[arg-type]


def test_undo_is_no_part_of_an_operation(jobs: LiteJobs) -> None:
    with jobs.operation("pause"):
        jobs.pause("q")
    with jobs.operation("other"), pytest.raises(LiteJobsError, match="not part of it"):
        jobs.undo()
    assert jobs.queues["q"].paused


def test_undo_of_an_undone_operation_is_refused(jobs: LiteJobs) -> None:
    with jobs.operation("pause"):
        jobs.pause("q")
    jobs.undo(1)
    with pytest.raises(ConstraintViolated, match="has been undone already") as told:
        jobs.undo(1)
    assert told.value.code == "operation_undone"


def test_what_is_in_the_way_is_named(jobs: LiteJobs, work: Task[..., Any]) -> None:
    some = [work.enqueue() for _ in range(6)]
    with jobs.operation("cancel", "6 jobs"):
        for job in some:
            job.cancel()
    for job in some[:5]:
        job.requeue()
    with pytest.raises(ConstraintViolated) as told:
        jobs.undo()
    assert told.value.code == "moved_on"
    assert str(told.value) == (
        "operation 1 (cancel: 6 jobs) cannot be undone: job 1 is pending now, job 2 is "
        "pending now, job 3 is pending now and 2 more; nothing was changed; put right "
        "by hand what should be otherwise, or name another operation"
    )
    assert jobs.operations()[0].in_the_way == "job 1 is pending now"
    assert some[5].state == "cancelled"


def test_refusal_of_the_applications_own_is_told(jobs: LiteJobs) -> None:
    jobs.facts["f"] = True
    with jobs.operation("fact"):
        del jobs.facts["f"]
    with jobs.transaction() as db:
        db.execute(
            "create temp trigger own before insert on litejobs_fact"
            " begin select raise(abort, 'not on sundays'); end"
        )
    with pytest.raises(ConstraintViolated, match="not on sundays"):
        jobs.undo()
    assert jobs.operations()[0].can_be_undone


def test_operations_of_other_clients_are_undone_too(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("work")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("begin immediate")
    db.execute("insert into litejobs_operation (name) values ('cancel all')")
    db.execute("update litejobs_job set state = 'cancelled'")
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")
    db.execute("commit")
    db.close()
    with LiteJobs(path) as jobs:
        assert [(str(each), each.origin) for each in jobs.operations()] == [
            ("cancel all", None)
        ]
        jobs.undo()
        assert jobs.get(1).state == "pending"


def test_runner_works_on_while_people_act_and_undo(tmp_path: Path) -> None:
    """What has been started is not taken back, what has not been never runs."""
    path = tmp_path / "jobs.db"
    ran = []
    with LiteJobs(path) as jobs, LiteJobs(path) as person:

        @jobs.task
        def work(number: int) -> None:
            ran.append(number)

        with jobs.running(threads=2) as runner:
            for number in range(30):
                with person.operation("enqueue"):
                    person.enqueue("work", [number])
                try:
                    operation = person.undo()
                except ConstraintViolated as error:
                    assert error.code == "moved_on"
                else:
                    assert person.get(number + 1).state == "cancelled"
                    assert operation.state == "undone"
            runner.wait_idle()
        states = {job.id - 1: job.state for job in jobs.list()}
        assert {n for n, state in states.items() if state == "completed"} == {*ran}
        assert set(states.values()) <= {"completed", "cancelled"}


def test_many_jobs_are_undone_at_once(jobs: LiteJobs, work: Task[..., Any]) -> None:
    with jobs.operation("enqueue"):
        jobs.enqueue_many(work.call(number) for number in range(300))
    assert jobs.undo().changes == 300
    assert jobs.counts() == {"cancelled": 300}


def test_operation_is_public() -> None:
    assert litejobs.Operation is Operation
