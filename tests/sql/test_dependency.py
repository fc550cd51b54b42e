"""Jobs that wait for others, and batches: sql/logic/dependencies."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import time_machine

from tests.rows import for_each
from tests.sql.fixture import (
    ERRORS,
    FINISHED,
    HOUR,
    SECOND,
    SEEN,
    START,
    STATES,
    WAITING,
    Sql,
    on_apsw,
    steps_of,
)

ENDS = ("completed", "dead_lettered", "cancelled")
BAD = ("dead_lettered", "cancelled", "failed")

INVALID_DEPENDENCY = (
    "invalid_dependency: parent_state and pending_level are kept by the database; "
    "leave them out"
)
BEGUN = "invalid_dependency: only a job that has not begun to run can wait for others"
UNKNOWN_PARENT = (
    "unknown_parent: there is no such job or batch to wait for; give the id of one "
    "that is in the file"
)
CYCLE = (
    "dependency_cycle: that job waits for this one already, or for its batch; leave "
    "one of the two out"
)
IMMUTABLE = (
    "immutable_dependency: a dependency does not change; delete it, or insert another"
)
UNFINISHED = (
    "parents_unfinished: this job waits for others that have not ended; wait for "
    "them, or delete its rows in litejobs_dependency"
)
CAN_WAIT = UNFINISHED.replace(
    "wait for them", "set its state to blocked to have it wait for them"
)
NEW_BATCH = "invalid_batch: a new batch is open and empty; leave out all but its name"
BATCH_ENDS = (
    "invalid_batch: a batch is sealed once, and then ends when its jobs have; set its "
    "state to sealed"
)
BATCH_KEPT = (
    "invalid_batch: a batch that has not ended is not deleted; seal it, and cancel its "
    "jobs"
)
UNKNOWN_BATCH = (
    "unknown_batch: there is no such batch, or it has ended already; leave batch_id out"
)

ADD = "insert into litejobs_dependency (job_id, parent_id) values (?, ?)"


def wait_for(db: Sql, job: int, *parents: int) -> None:
    """The job waits for these others."""
    for parent in parents:
        db.execute(ADD, (job, parent))


def wait_for_batch(db: Sql, job: int, *batches: int) -> None:
    """The job waits for these batches."""
    for batch in batches:
        db.insert("litejobs_dependency", job_id=job, batch_id=batch)


def child_of(db: Sql, *parents: int, **columns: Any) -> int:
    """A job that waits for these others."""
    job = db.enqueue("a", **columns)
    wait_for(db, job, *parents)
    return job


def after_batch(db: Sql, *batches: int, **columns: Any) -> int:
    """A job that waits for these batches."""
    job = db.enqueue("a", **columns)
    wait_for_batch(db, job, *batches)
    return job


def batch_of(db: Sql, *, members: int = 0, sealed: bool = False) -> tuple[int, ...]:
    """A new batch, and so many jobs of it."""
    db.execute("insert into litejobs_batch default values")
    batch = int(db.value("select max(id) from litejobs_batch"))
    jobs = [db.enqueue("a", batch_id=batch) for _ in range(members)]
    if sealed:
        seal(db, batch)
    return (batch, *jobs)


def seal(db: Sql, batch: int) -> None:
    """No more jobs are to come, says its owner."""
    db.execute("update litejobs_batch set state = 'sealed' where id = ?", (batch,))


def begin(db: Sql, job: int) -> int:
    """The job, which is in line, is claimed before all others; its attempt."""
    db.execute(
        "update litejobs_job "
        "set priority = 1 + (select max(priority) from litejobs_job) where id = ?",
        (job,),
    )
    return db.begin(job)


def end(db: Sql, job: int, how: str, result: str = "null") -> None:
    """The job, which is in line, ends like this."""
    if how == "cancelled":
        cancel(db, job)
    else:
        attempt = begin(db, job)
        status = "ok" if how == "completed" else "error"
        db.settle(attempt, status, f',"result":{result}')
    assert state(db, job) == how


def cancel(db: Sql, *jobs: int) -> None:
    """All of them are cancelled, in one statement."""
    marks = ", ".join("?" * len(jobs))
    db.execute(
        f"update litejobs_job set state = 'cancelled' where id in ({marks})", jobs
    )


def requeue(db: Sql, job: int) -> None:
    """The job, which has ended, is put back in line."""
    db.execute("update litejobs_job set state = 'pending' where id = ?", (job,))


def state(db: Sql, job: int) -> str:
    """The job is …"""
    return str(db.value("select state from litejobs_job where id = ?", (job,)))


def states(db: Sql, *jobs: int) -> list[str]:
    """The jobs are …"""
    return [state(db, job) for job in jobs]


def batch_state(db: Sql, batch: int) -> str:
    """The batch is …"""
    return str(db.value("select state from litejobs_batch where id = ?", (batch,)))


def ended_as(db: Sql, job: int) -> tuple[str, str | None]:
    """The state of the job, and what stopped it."""
    row = db.job(job)
    return row.state, row.stopped_by


def parent_states(db: Sql, job: int) -> list[str | None]:
    """How the parents of the job have ended, in the order of its dependencies."""
    return db.column(
        "select parent_state from litejobs_dependency where job_id = ? order by id",
        (job,),
    )


def log_of(db: Sql) -> list[tuple[Any, ...]]:
    """Who moved, from where, to where, in the order of the log."""
    return db.execute(
        "select coalesce(subject, job_id), old_state, new_state, note "
        "from litejobs__transition order by id"
    )


def everything(db: Sql) -> list[list[tuple[Any, ...]]]:
    """All that refused statements leave as it is."""
    return [
        db.content(table)
        for table in (
            "litejobs_job",
            "litejobs_dependency",
            "litejobs_batch",
            "litejobs__transition",
        )
    ]


@pytest.fixture
def served(db: Sql) -> Iterator[Sql]:
    """One task, whose first failure is the last, in a living runner; no news left."""
    db.serve("a", max_attempts=1)
    yield db
    assert (
        db.value("select count(*) from litejobs_dependency where pending_level <> 0")
        == 0
    )


@pytest.fixture
def timed(held: Sql) -> Iterator[Sql]:
    """The same on a held clock."""
    held.serve("a", max_attempts=1)
    yield held
    assert (
        held.value("select count(*) from litejobs_dependency where pending_level <> 0")
        == 0
    )


# What the ends of parents do ----------------------------------------------------------


def follows(
    failure: str | None, success: str | None, ends: Iterable[str]
) -> tuple[str, str | None]:
    """What becomes of a child when all its parents have ended."""
    failed = any(each != "completed" for each in ends)
    if failed and failure in (None, "cancel"):
        return "cancelled", "parent_failed"
    if failed and failure == "block":
        return "blocked", None
    if not failed and success == "cancel":
        return "cancelled", "parents_succeeded"
    return "pending", None


@pytest.mark.parametrize("failure", [None, "cancel", "run", "block"])
@pytest.mark.parametrize("success", [None, "run", "cancel"])
def test_all_ways_in_which_two_parents_end(
    served: Sql, failure: str | None, success: str | None
) -> None:
    ways = {"on_parent_failure": failure, "on_parent_success": success}
    for pair in itertools.product(ENDS, repeat=2):
        one, two = served.enqueue("a"), served.enqueue("a")
        child = child_of(served, one, two, **ways)
        grandchild = child_of(served, child, on_parent_failure="block")
        end(served, one, pair[0])
        early = pair[0] != "completed" and failure in (None, "cancel")
        assert state(served, child) == ("cancelled" if early else "blocked")
        end(served, two, pair[1])
        expected = follows(failure, success, pair)
        assert ended_as(served, child) == expected, pair
        assert state(served, grandchild) == "blocked"
        ended = expected[0] == "cancelled"
        assert parent_states(served, grandchild) == ["cancelled" if ended else None]
        row = served.job(child)
        assert (row.finished_at is not None) == ended
        assert row.cancel_requested_at is None
        cancel(served, grandchild, *([] if ended else [child]))


@pytest.mark.parametrize("failure", [None, "cancel", "run", "block"])
@pytest.mark.parametrize("success", [None, "run", "cancel"])
def test_parents_that_ended_before_do_the_same(
    served: Sql, failure: str | None, success: str | None
) -> None:
    ways = {"on_parent_failure": failure, "on_parent_success": success}
    parents = {each: served.job_in(each) for each in ENDS}
    others = {each: served.job_in(each) for each in ENDS}
    for pair in itertools.product(ENDS, repeat=2):
        child = child_of(served, parents[pair[0]], **ways)
        alone = follows(failure, success, pair[:1])
        assert ended_as(served, child) == alone, pair
        wait_for(served, child, others[pair[1]])
        # One that was cancelled by the first needs no second.
        expected = alone if alone[1] else follows(failure, success, pair)
        assert ended_as(served, child) == expected, pair
        assert parent_states(served, child) == list(pair[: 1 if alone[1] else 2])
        if expected[0] != "cancelled":
            cancel(served, child)


@pytest.mark.parametrize("failure", [None, "cancel", "run", "block"])
@pytest.mark.parametrize("success", [None, "run", "cancel"])
def test_one_parent_ended_before_and_one_ends_later(
    served: Sql, failure: str | None, success: str | None
) -> None:
    ways = {"on_parent_failure": failure, "on_parent_success": success}
    before = {each: served.job_in(each) for each in ENDS}
    for pair in itertools.product(ENDS, repeat=2):
        later = served.enqueue("a")
        child = child_of(served, later, before[pair[0]], **ways)
        early = pair[0] != "completed" and failure in (None, "cancel")
        assert state(served, child) == ("cancelled" if early else "blocked")
        end(served, later, pair[1])
        assert ended_as(served, child) == follows(failure, success, pair), pair
        if state(served, child) != "cancelled":
            cancel(served, child)


@for_each("failure", [None, "cancel", "run", "block"])
@for_each("success", [None, "run", "cancel"])
@for_each("before", [False, True])
def test_all_ways_in_which_a_batch_ends(
    served: Sql, failure: str | None, success: str | None, *, before: bool
) -> None:
    ways = {"on_parent_failure": failure, "on_parent_success": success}
    for pair in itertools.product(ENDS, repeat=2):
        batch, one, two = batch_of(served, members=2, sealed=True)
        if before:
            end(served, one, pair[0])
            end(served, two, pair[1])
        child = after_batch(served, batch, **ways)
        if not before:
            end(served, one, pair[0])
            assert state(served, child) == "blocked"
            end(served, two, pair[1])
        failed = pair != ("completed", "completed")
        assert batch_state(served, batch) == ("failed" if failed else "succeeded")
        assert ended_as(served, child) == follows(failure, success, pair), pair
        if state(served, child) != "cancelled":
            cancel(served, child)


def test_a_parent_that_will_be_tried_again_has_not_ended(timed: Sql) -> None:
    parent = timed.enqueue("a", max_attempts=2, delay_ms=SECOND, jitter=0.0)
    child = child_of(timed, parent)
    timed.fail(parent)
    assert states(timed, parent, child) == ["failed", "blocked"]
    timed.wait(SECOND)
    timed.tick()
    end(timed, parent, "dead_lettered")
    assert ended_as(timed, child) == ("cancelled", "parent_failed")


def test_an_interrupted_parent_has_not_ended(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    served.fail(parent, "interrupted")
    assert states(served, parent, child) == ["pending", "blocked"]
    assert parent_states(served, child) == [None]
    end(served, parent, "completed")
    assert state(served, child) == "pending"


def test_a_parent_whose_process_died_ends_at_the_next_tick(served: Sql) -> None:
    parent = served.enqueue("a", max_crashes=1)
    child = child_of(served, parent)
    begin(served, parent)
    served.start_runner()
    assert state(served, child) == "blocked"
    served.tick()
    assert states(served, parent, child) == ["dead_lettered", "cancelled"]


def test_a_running_parent_that_is_asked_to_end_has_not_ended(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    attempt = begin(served, parent)
    served.execute(
        "update litejobs_job set cancel_requested_at = 1 where id = ?", (parent,)
    )
    assert state(served, child) == "blocked"
    served.settle(attempt, "cancelled")
    assert states(served, parent, child) == ["cancelled", "cancelled"]


def test_a_child_that_is_released_waits_for_its_time(timed: Sql) -> None:
    parent = timed.enqueue("a")
    child = child_of(timed, parent, run_at=timed.now + HOUR)
    end(timed, parent, "completed")
    assert state(timed, child) == "scheduled"
    timed.wait(HOUR)
    timed.tick()
    assert timed.moves(child) == [
        (None, "scheduled", None),
        ("scheduled", "blocked", None),
        ("blocked", "scheduled", None),
        ("scheduled", "pending", None),
    ]


def test_time_alone_does_not_release_a_child(timed: Sql) -> None:
    child = child_of(timed, timed.enqueue("a"), run_at=timed.now + SECOND)
    timed.wait(HOUR)
    timed.tick()
    assert state(timed, child) == "blocked"
    assert timed.claim(9) == [1]


def test_a_waiting_job_says_for_what_it_waits(served: Sql) -> None:
    done, late = served.job_in("completed"), served.enqueue("a")
    failed = served.job_in("dead_lettered")
    batch, member = batch_of(served, members=1, sealed=True)
    child = child_of(served, late, done, failed, on_parent_failure="block")
    wait_for_batch(served, child, batch)

    def blocks() -> list[tuple[Any, ...]]:
        return served.execute(
            "select object, detail from litejobs_block "
            "where job_id = ? and code = 'dependency' order by 1",
            (child,),
        )

    open_batch = ("batch 1", "it waits for the end of a batch")
    bad_job = (f"job {failed}", "a job that it waits for has failed")
    late_job = (f"job {late}", "it waits for the end of another job")
    assert blocks() == [open_batch, *sorted([bad_job, late_job])]
    end(served, member, "cancelled")
    end(served, late, "completed")
    assert blocks() == [("batch 1", "a batch that it waits for has failed"), bad_job]


# Many parents, many children ----------------------------------------------------------


def test_the_last_of_many_parents_releases(served: Sql) -> None:
    parents = [served.enqueue("a") for _ in range(20)]
    child = child_of(served, *parents)
    for parent in parents:
        assert state(served, child) == "blocked"
        end(served, parent, "completed")
    assert state(served, child) == "pending"
    assert len(served.moves(child)) == 3


def test_many_children_are_released_in_the_order_of_their_ids(served: Sql) -> None:
    parent = served.enqueue("a")
    children = [child_of(served, parent) for _ in range(20)]
    end(served, parent, "completed")
    released = served.column(
        "select job_id from litejobs__transition "
        "where old_state = 'blocked' and new_state = 'pending' order by id"
    )
    assert released == children


def test_a_diamond_joins_again(served: Sql) -> None:
    top = served.enqueue("a")
    left, right = child_of(served, top), child_of(served, top)
    bottom = child_of(served, left, right)
    end(served, top, "completed")
    end(served, right, "completed")
    assert states(served, left, bottom) == ["pending", "blocked"]
    end(served, left, "completed")
    assert state(served, bottom) == "pending"


@pytest.mark.parametrize("failure", ["cancel", "run", "block"])
def test_a_diamond_whose_top_fails(served: Sql, failure: str) -> None:
    top = served.enqueue("a")
    left, right = child_of(served, top), child_of(served, top)
    bottom = child_of(served, left, right, on_parent_failure=failure)
    end(served, top, "dead_lettered")
    assert states(served, left, right) == ["cancelled", "cancelled"]
    assert ended_as(served, bottom) == follows(failure, None, ["cancelled"] * 2)
    assert len(served.moves(bottom)) == (2 if failure == "block" else 3)


def test_a_child_hears_of_a_near_and_a_far_parent(served: Sql) -> None:
    """The far one is cancelled three levels later than the near one has ended."""
    top = served.enqueue("a")
    far = top
    for _ in range(3):
        far = child_of(served, far)
    end_ways = {"on_parent_failure": "run", "on_parent_success": "cancel"}
    child = child_of(served, top, far, **end_ways)
    end(served, top, "cancelled")
    assert state(served, child) == "pending"
    assert parent_states(served, child) == ["cancelled", "cancelled"]


def story_of_a_long_chain(db: Sql) -> None:
    first = db.enqueue("a")
    chain = [first]
    for _ in range(50):
        chain.append(child_of(db, chain[-1]))
    last = child_of(db, chain[-1], on_parent_failure="run")
    end(db, first, "dead_lettered")
    assert set(states(db, *chain[1:])) == {"cancelled"}
    assert state(db, last) == "pending"
    cancelled = db.column(
        "select job_id from litejobs__transition where new_state = 'cancelled' "
        "order by id"
    )
    assert cancelled == chain[1:]


def test_a_long_chain_is_cancelled_in_one_statement(served: Sql) -> None:
    story_of_a_long_chain(served)


def test_a_very_long_chain_is_cancelled_in_one_statement(served: Sql) -> None:
    served.execute(
        "with recursive number (n) as "
        "(select 1 union all select n + 1 from number where n < 600) "
        "insert into litejobs_job (task) select 'a' from number"
    )
    served.execute(
        "insert into litejobs_dependency (job_id, parent_id) "
        "select id, id - 1 from litejobs_job where id > 1"
    )
    cancel(served, 1)
    assert served.execute("select state, count(*) from litejobs_job group by 1") == [
        ("cancelled", 600)
    ]


def story_of_many_ways(db: Sql) -> None:
    """Layers, each job of which waits for all of the layer before."""
    layer = [db.enqueue("a")]
    jobs = [*layer]
    for _ in range(6):
        layer = [child_of(db, *reversed(layer)) for _ in range(4)]
        jobs += layer
    last = child_of(db, *jobs, on_parent_failure="run")
    end(db, jobs[0], "dead_lettered")
    assert set(states(db, *jobs[1:])) == {"cancelled"}
    assert state(db, last) == "pending"


def story_of_batches_in_batches(db: Sql) -> None:
    """The last job of each batch is doomed by the end of the batch within it."""
    inner, member = batch_of(db, members=1, sealed=True)
    jobs, batches = [member], [inner]
    for _ in range(20):
        outer, _other = batch_of(db, members=1)
        end(db, _other, "completed")
        jobs.append(after_batch(db, batches[-1], batch_id=outer))
        seal(db, outer)
        batches.append(outer)
    last = after_batch(
        db, batches[-1], on_parent_failure="run", on_parent_success="cancel"
    )
    end(db, member, "dead_lettered")
    assert set(states(db, *jobs[1:])) == {"cancelled"}
    assert {batch_state(db, each) for each in batches} == {"failed"}
    assert state(db, last) == "pending"
    order = db.column(
        "select coalesce(subject, job_id) from litejobs__transition "
        "where new_state = 'failed' and subject is not null order by id"
    )
    assert order == [f"batch {each}" for each in batches]


def story_of_a_bulk_cancel(db: Sql) -> None:
    """Parents and children alike, in one update that comes to both."""
    jobs = [db.enqueue("a")]
    for _ in range(9):
        jobs.append(child_of(db, jobs[-1]))
    batch, *members = batch_of(db, members=3, sealed=True)
    told = after_batch(db, batch, on_parent_failure="run")
    lonely = db.enqueue("a")
    late = child_of(db, lonely, on_parent_failure="run")
    cancel(db, *jobs[::2], *members, lonely)
    assert set(states(db, *jobs, *members, lonely)) == {"cancelled"}
    assert states(db, told, late) == ["pending", "pending"]
    assert batch_state(db, batch) == "failed"
    ends = db.column("select job_id from litejobs__transition where old_state <> ''")
    assert len([each for each in ends if each in jobs]) == 10 + 9


def lattice(db: Sql, number: int) -> list[int]:
    """So many jobs, each of which waits for the two before."""
    jobs = [db.enqueue("a")]
    for _ in range(number - 1):
        jobs.append(child_of(db, *jobs[-2:]))
    return jobs


def story_of_a_lattice(db: Sql) -> None:
    """One job is reached in many ways, some of which do not take it down."""
    first, *others = jobs = lattice(db, 20)
    by_success = child_of(db, first, jobs[-1], on_parent_success="cancel")
    kept = child_of(db, jobs[3], by_success, jobs[-1], on_parent_failure="run")
    batch, member = batch_of(db, members=1)
    wait_for(db, member, kept, jobs[9])
    after = after_batch(db, batch)
    last = child_of(db, after, first, on_parent_failure="run")
    seal(db, batch)
    end(db, first, "dead_lettered")
    assert set(states(db, *others, by_success, member, after)) == {"cancelled"}
    assert states(db, kept, last) == ["pending", "pending"]
    assert db.column("select state from litejobs_batch") == ["failed"]
    assert (
        db.column("select id from litejobs_dependency where pending_level <> 0") == []
    )


STORIES = (
    story_of_a_long_chain,
    story_of_many_ways,
    story_of_batches_in_batches,
    story_of_a_bulk_cancel,
    story_of_a_lattice,
)


@pytest.fixture(scope="module")
def both() -> Iterator[list[Sql]]:
    """Without and with recursive triggers; nobody looks on, which takes time."""
    opened = [
        on_apsw(recursive_triggers=recursive, traced=False)
        for recursive in (False, True)
    ]
    yield opened
    for db in opened:
        db.connection.close()


def left_by(story: Any, both: list[Sql]) -> list[Any]:
    """What the story leaves behind without and with recursive triggers."""
    left = []
    for each in both:
        each.execute("savepoint story")
        try:
            with time_machine.travel(START, tick=False):
                db = Sql(each.connection)
                db.serve("a", max_attempts=1)
                story(db)
                left.append((log_of(db), everything(db)))
        finally:
            each.execute("rollback to story")
            each.execute("release story")
    return left


@pytest.mark.parametrize("story", STORIES)
def test_recursive_triggers_change_nothing(both: list[Sql], story: Any) -> None:
    """The log, line by line, and all rows are the same."""
    without, recursive = left_by(story, both)
    assert len(without[0]) > 20
    assert without == recursive


@pytest.mark.parametrize("story", STORIES)
def test_stories_of_every_client(served: Sql, story: Any) -> None:
    story(served)


def test_a_bulk_cancel_of_everything(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    lower = served.enqueue("a")
    wait_for(served, lower, child)
    batch, member = batch_of(served, members=1, sealed=True)
    after = after_batch(served, batch)
    served.execute("update litejobs_job set state = 'cancelled'")
    assert set(states(served, parent, child, lower, member, after)) == {"cancelled"}
    assert ended_as(served, lower) == ("cancelled", "parent_failed")
    ends = served.column(
        "select job_id from litejobs__transition where new_state = 'cancelled'"
    )
    assert sorted(ends) == [parent, child, lower, member, after]


def test_children_that_are_cancelled_before_their_parents(served: Sql) -> None:
    child, parent = served.enqueue("a"), served.enqueue("a")
    wait_for(served, child, parent)
    served.execute("update litejobs_job set state = 'cancelled'")
    assert ended_as(served, child) == ("cancelled", None)
    assert parent_states(served, child) == ["cancelled"]


def test_a_trigger_of_the_application_may_add_jobs_while_others_are_cancelled(
    served: Sql,
) -> None:
    served.execute(
        "create trigger mine after update of state on litejobs_job "
        "when new.state = 'cancelled' begin "
        "insert into litejobs_job (task, on_parent_failure) values ('a', 'run'); "
        "insert into litejobs_dependency (job_id, parent_id) "
        "select max(id), new.id from litejobs_job; end"
    )
    chain = [served.enqueue("a")]
    for _ in range(3):
        chain.append(child_of(served, chain[-1]))
    end(served, chain[0], "dead_lettered")
    assert states(served, *chain[1:]) == ["cancelled"] * 3
    added = served.execute(
        "select job_id, parent_id, state from litejobs_dependency as dependency "
        "join litejobs_job as job on job.id = job_id where job_id > ?",
        (chain[-1],),
    )
    assert [row[1:] for row in added] == [(each, "pending") for each in chain[1:]]


# What an end costs --------------------------------------------------------------------


def work_of(db: Sql, job: int) -> int:
    """How many hundreds of SQLite's own steps it takes to settle the job as done."""
    attempt = begin(db, job)
    return steps_of(db, lambda: db.settle(attempt))


def among(db: Sql, number: int, kind: str) -> int:
    """What the end of one of so many costs, when half of the others have ended."""
    batch, *_ = batch_of(db)
    first = db.enqueue("a")
    db.execute(
        "with recursive number (n) as "
        "(select 1 union all select n + 1 from number where n < ?) "
        "insert into litejobs_job (task, batch_id) select 'a', ? from number",
        (number, batch if kind == "member" else None),
    )
    if kind == "parent":
        waiting = db.enqueue("a")
        db.execute(
            "insert into litejobs_dependency (job_id, parent_id) "
            "select ?, id from litejobs_job where id < ?",
            (waiting, waiting),
        )
    elif kind == "member":
        waiting = after_batch(db, batch)
        seal(db, batch)
    else:
        db.execute(
            "insert into litejobs_dependency (job_id, parent_id) "
            "select id, ? from litejobs_job where id > ?",
            (first, first),
        )
        waiting = after_batch(db, batch)
    end(db, first, "completed")
    while db.execute("select 1 from litejobs_telling"):
        db.tick()
    for attempt in db.claim(number // 2):
        db.settle(attempt)
    cost = work_of(db, first + number - 2)
    assert state(db, waiting) == "blocked"
    return cost


@pytest.mark.parametrize("kind", ["parent", "member", "child"])
def test_an_end_costs_the_same_among_many(both: list[Sql], kind: str) -> None:
    """Of the parents of a job, the members of a batch, the children of one parent."""
    costs: list[int] = []
    for number in (50, 800):
        left_by(lambda db, number=number: costs.append(among(db, number, kind)), both)
    assert max(costs[2:]) <= min(costs[:2]) + 5


def test_a_failure_costs_each_job_the_same_however_many_ways_lead_to_it(
    both: list[Sql],
) -> None:
    costs: list[float] = []

    def fall(db: Sql, number: int) -> None:
        jobs = lattice(db, number)
        steps = steps_of(db, lambda: cancel(db, jobs[0]))
        assert set(states(db, *jobs)) == {"cancelled"}
        costs.append(steps / number)

    for number in (50, 400):
        left_by(lambda db, number=number: fall(db, number), both)
    assert max(costs[2:]) < 1.5 * min(costs[:2])


def test_a_failure_is_told_once_to_those_who_wait_for_a_batch(
    both: list[Sql],
) -> None:
    """Many members are cancelled, and many jobs wait for their batch."""
    costs: list[float] = []

    def fall(db: Sql, number: int) -> None:
        first = db.enqueue("a")
        batch, *members = batch_of(db, members=number)
        for member in members:
            wait_for(db, member, first)
        waiting = [after_batch(db, batch) for _ in range(number)]
        seal(db, batch)
        steps = steps_of(db, lambda: cancel(db, first))
        assert set(states(db, *members, *waiting)) == {"cancelled"}
        costs.append(steps / number)

    for number in (25, 200):
        left_by(lambda db, number=number: fall(db, number), both)
    assert max(costs[2:]) < 1.5 * min(costs[:2])


# Expiry -------------------------------------------------------------------------------


def test_an_expired_parent_has_failed(timed: Sql) -> None:
    parent = timed.enqueue("a", expires_at=timed.now + HOUR)
    child, goes_on = (
        child_of(timed, parent, on_parent_failure=how) for how in ("cancel", "run")
    )
    timed.wait(HOUR)
    timed.tick()
    assert ended_as(timed, parent) == ("cancelled", "expired")
    assert ended_as(timed, child) == ("cancelled", "parent_failed")
    assert state(timed, goes_on) == "pending"


def test_a_blocked_child_expires_and_its_children_hear_of_it(timed: Sql) -> None:
    parent = timed.enqueue("a")
    child = child_of(timed, parent, expires_at=timed.now + HOUR)
    grandchild = child_of(timed, child)
    timed.wait(HOUR)
    timed.tick()
    assert state(timed, parent) == "pending"
    assert ended_as(timed, child) == ("cancelled", "expired")
    assert ended_as(timed, grandchild) == ("cancelled", "parent_failed")


def test_parent_and_children_expire_at_one_tick(timed: Sql) -> None:
    """The tick comes to jobs that the end of their parent has cancelled already."""
    parent = timed.enqueue("a", expires_at=timed.now + HOUR)
    chain = [parent]
    for _ in range(3):
        chain.append(child_of(timed, chain[-1], expires_at=timed.now + HOUR))
    first = timed.enqueue("a", expires_at=timed.now + HOUR)
    wait_for(timed, first, timed.enqueue("a", expires_at=timed.now + HOUR))
    timed.wait(HOUR)
    timed.tick()
    assert [ended_as(timed, each) for each in chain] == [
        ("cancelled", "expired"),
        *[("cancelled", "parent_failed")] * 3,
    ]
    assert ended_as(timed, first) == ("cancelled", "expired")
    assert {timed.job(each).finished_at for each in chain} == {timed.now}


def test_an_expired_member_fails_its_batch(timed: Sql) -> None:
    batch, member = batch_of(timed, members=1)
    timed.execute("update litejobs_job set expires_at = ?", (timed.now + HOUR,))
    seal(timed, batch)
    told = after_batch(timed, batch, on_parent_failure="run")
    timed.wait(HOUR)
    timed.tick()
    assert batch_state(timed, batch) == "failed"
    assert states(timed, member, told) == ["cancelled", "pending"]


# Results are handed on ----------------------------------------------------------------


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("result", ["5", '{"x":[1]}', "null", '"text"'])
def test_the_result_of_a_parent_is_given_to_its_child(
    served: Sql, result: str, *, before: bool
) -> None:
    parent = served.enqueue("a")
    if before:
        end(served, parent, "completed", result)
    other = served.enqueue("a")
    child = served.enqueue("a", prev_job_id=parent)
    bystander = child_of(served, other)
    wait_for(served, child, parent, other)
    if not before:
        assert served.job(child).prev is None
        end(served, parent, "completed", result)
    assert served.job(child).prev == result
    end(served, other, "completed", "77")
    assert served.job(child).prev == result
    assert served.job(bystander).prev is None
    attempt = begin(served, child)
    given = "select prev from litejobs_assignment where attempt_id = ?"
    assert served.value(given, (attempt,)) == result


@pytest.mark.parametrize("before", [False, True])
def test_that_a_result_is_not_stored_is_handed_on_too(
    served: Sql, *, before: bool
) -> None:
    """Also where the parent is gone, or runs again, when the child begins."""
    lost = '{"type":"date"}'
    parent = served.enqueue("a")
    child = served.enqueue("a", prev_job_id=parent)
    if not before:
        wait_for(served, child, parent)
    served.settle(begin(served, parent), "ok", f',"result_not_stored":{lost}')
    if before:
        wait_for(served, child, parent)
    row = served.job(child)
    assert (row.prev, row.prev_not_stored) == (None, lost)
    requeue(served, parent)
    attempt = begin(served, child)
    given = "select prev, prev_not_stored from litejobs_assignment where attempt_id = ?"
    assert served.execute(given, (attempt,)) == [(None, lost)]


def test_a_parent_that_has_a_result_next_time_hands_on_that(served: Sql) -> None:
    parent = served.enqueue("a")
    child = served.enqueue("a", prev_job_id=parent, on_parent_failure="block")
    wait_for(served, child, parent)
    end(served, parent, "dead_lettered")
    requeue(served, parent)
    served.settle(begin(served, parent), "ok", ',"result_not_stored":{"type":"x"}')
    assert served.job(child).prev_not_stored == '{"type":"x"}'
    requeue(served, parent)
    served.execute("update litejobs_dependency set parent_state = null")
    end(served, parent, "completed", "2")
    row = served.job(child)
    assert (row.prev, row.prev_not_stored) == ("2", None)


@pytest.mark.parametrize("how", ["dead_lettered", "cancelled"])
@pytest.mark.parametrize("before", [False, True])
def test_a_parent_that_fails_hands_on_nothing(
    served: Sql, how: str, *, before: bool
) -> None:
    parent = served.enqueue("a")
    if before:
        end(served, parent, how, "5")
    child = served.enqueue("a", prev_job_id=parent, on_parent_failure="run")
    wait_for(served, child, parent)
    if not before:
        end(served, parent, how, "5")
    assert (state(served, child), served.job(child).prev) == ("pending", None)


def test_a_result_goes_only_to_those_that_wait_for_it(served: Sql) -> None:
    parent = served.enqueue("a")
    stranger = served.enqueue("a", prev_job_id=parent)
    end(served, parent, "completed", "5")
    assert served.job(stranger).prev is None


def test_a_requeued_parent_hands_on_what_it_returns_then(served: Sql) -> None:
    parent = served.enqueue("a")
    child = served.enqueue("a", prev_job_id=parent, on_parent_failure="block")
    wait_for(served, child, parent)
    end(served, parent, "dead_lettered", "1")
    requeue(served, parent)
    end(served, parent, "completed", "2")
    assert (state(served, child), served.job(child).prev) == ("pending", "2")


# Requeueing and purging ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["dead_lettered", "cancelled"])
def test_a_blocked_child_waits_for_its_requeued_parent(served: Sql, how: str) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent, on_parent_failure="block")
    for _ in range(2):
        end(served, parent, how)
        assert (state(served, child), parent_states(served, child)) == (
            "blocked",
            [how],
        )
        assert (
            served.refused(
                "update litejobs_job set state = 'pending' where id = ?", (child,)
            )
            == UNFINISHED
        )
        requeue(served, parent)
        assert parent_states(served, child) == [None]
    end(served, parent, "completed")
    assert state(served, child) == "pending"


def test_a_child_that_was_released_does_not_wait_for_a_requeued_parent(
    served: Sql,
) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent, on_parent_failure="run")
    end(served, parent, "dead_lettered")
    requeue(served, parent)
    assert (state(served, child), parent_states(served, child)) == (
        "pending",
        ["dead_lettered"],
    )
    end(served, parent, "completed")
    assert state(served, child) == "pending"


def test_a_requeued_completed_parent_has_ended_all_the_same(served: Sql) -> None:
    parent, other = served.enqueue("a"), served.enqueue("a")
    child = child_of(served, parent, other)
    end(served, parent, "completed")
    requeue(served, parent)
    end(served, other, "completed")
    assert state(served, child) == "pending"


def test_a_cancelled_child_is_not_requeued_while_parents_are_unfinished(
    served: Sql,
) -> None:
    bad, late = served.enqueue("a"), served.enqueue("a")
    child = child_of(served, bad, late)
    end(served, bad, "dead_lettered")
    move = "update litejobs_job set state = 'pending' where id = ?"
    assert served.refused(move, (child,)) == UNFINISHED
    end(served, late, "completed")
    requeue(served, child)
    assert ended_as(served, child) == ("pending", None)
    end(served, child, "completed")


@pytest.mark.parametrize("how", ["dead_lettered", "cancelled"])
def test_a_cancelled_child_waits_for_its_requeued_parent(served: Sql, how: str) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    move = "update litejobs_job set state = 'pending' where id = ?"
    for _ in range(2):
        end(served, parent, how)
        assert ended_as(served, child) == ("cancelled", "parent_failed")
        requeue(served, parent)
        assert parent_states(served, child) == [None]
        assert ended_as(served, child) == ("blocked", None)
        assert served.refused(move, (child,)) == UNFINISHED
    end(served, parent, "completed")
    assert state(served, child) == "pending"


@pytest.mark.every_client
def test_a_mended_chain_goes_on_link_by_link(timed: Sql) -> None:
    first = timed.enqueue("a")
    chain = [first]
    for _ in range(3):
        chain.append(child_of(timed, chain[-1], expires_at=timed.now + 2 * HOUR))
    end(timed, first, "dead_lettered")
    assert {ended_as(timed, job) for job in chain[1:]} == {
        ("cancelled", "parent_failed")
    }
    timed.wait(3 * HOUR)
    timed.execute(
        "update litejobs_job set state = 'pending', origin = 'me' where id = ?",
        (first,),
    )
    assert states(timed, *chain) == ["pending", "blocked", "blocked", "blocked"]
    again = timed.execute(
        "select job_id, name, old_state, new_state, origin from litejobs_event "
        "where name = 'task.requeued' order by id"
    )
    # Which of the two that one statement fires comes first is not said.
    assert sorted(again) == [
        (first, "task.requeued", "dead_lettered", "pending", "me"),
        *((job, "task.requeued", "cancelled", "blocked", "me") for job in chain[1:]),
    ]
    timed.tick()
    for job in chain:
        assert state(timed, job) == "pending"
        row = timed.job(job)
        assert (row.finished_at, row.expires_at, row.origin) == (None, None, None)
        end(timed, job, "completed")


def test_a_child_waits_again_when_all_that_failed_are_in_line(served: Sql) -> None:
    bad, worse, good = (served.enqueue("a") for _ in range(3))
    child = child_of(served, bad, worse, good)
    lower = child_of(served, child, bad)
    end(served, good, "completed")
    end(served, bad, "dead_lettered")
    end(served, worse, "cancelled")
    requeue(served, bad)
    assert states(served, child, lower) == ["cancelled", "cancelled"]
    requeue(served, worse)
    assert states(served, child, lower) == ["blocked", "blocked"]
    end(served, bad, "completed")
    assert state(served, child) == "blocked"
    end(served, worse, "completed")
    assert states(served, child, lower) == ["pending", "blocked"]
    end(served, child, "completed")
    assert state(served, lower) == "pending"


def test_who_was_cancelled_for_something_else_stays_so(served: Sql) -> None:
    parent = served.enqueue("a")
    by_hand, handler = (
        child_of(served, parent),
        child_of(served, parent, on_parent_success="cancel"),
    )
    gone, released = (
        child_of(served, parent),
        child_of(served, parent, on_parent_failure="run"),
    )
    below = child_of(served, by_hand)
    cancel(served, by_hand)
    end(served, parent, "dead_lettered")
    served.execute("delete from litejobs_job where id = ?", (gone,))
    requeue(served, parent)
    assert [ended_as(served, job) for job in (by_hand, below)] == [
        ("cancelled", None),
        ("cancelled", "parent_failed"),
    ]
    assert states(served, handler, released) == ["blocked", "pending"]
    end(served, parent, "completed")
    assert ended_as(served, handler) == ("cancelled", "parents_succeeded")
    requeue(served, parent)
    assert ended_as(served, handler) == ("cancelled", "parents_succeeded")


def test_a_child_whose_key_another_has_by_now_stays_cancelled(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent, unique_key="k")
    lower = child_of(served, child)
    end(served, parent, "dead_lettered")
    twin = child_of(served, parent, unique_key="k")
    assert ended_as(served, twin) == ("cancelled", "parent_failed")
    other = served.enqueue("a", unique_key="k")
    requeue(served, parent)
    assert states(served, child, lower, twin) == ["cancelled"] * 3
    blocked = "update litejobs_job set state = 'blocked' where id = ?"
    assert served.refused(blocked, (child,)).startswith("unique_key_taken: ")
    end(served, other, "cancelled")
    end(served, parent, "dead_lettered")
    requeue(served, parent)
    # The first of two that have one key.
    assert states(served, child, lower, twin) == ["blocked", "blocked", "cancelled"]


@pytest.mark.every_client
def test_a_child_that_was_cancelled_by_hand_is_put_back_to_wait(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    lower = child_of(served, child)
    cancel(served, child)
    pending, blocked = (
        f"update litejobs_job set state = '{each}' where id = ?"
        for each in ("pending", "blocked")
    )
    assert served.refused(pending, (child,)) == CAN_WAIT
    served.execute(blocked, (child,))
    assert states(served, child, lower) == ["blocked", "blocked"]
    end(served, parent, "completed")
    end(served, child, "completed")
    assert state(served, lower) == "pending"
    # What waits for nothing cannot be set to wait.
    end(served, lower, "cancelled")
    assert served.refused(blocked, (lower,)).startswith("invalid_transition: ")


def test_a_child_with_a_parent_that_stays_failed_cannot_wait(served: Sql) -> None:
    bad, other = served.enqueue("a"), served.enqueue("a")
    child = child_of(served, bad, other)
    end(served, bad, "dead_lettered")
    blocked = "update litejobs_job set state = 'blocked' where id = ?"
    assert served.refused(blocked, (child,)).startswith("invalid_transition: ")
    served.execute(
        "update litejobs_job set on_parent_failure = 'run' where id = ?", (child,)
    )
    served.execute(blocked, (child,))
    end(served, other, "completed")
    assert state(served, child) == "pending"


@pytest.mark.every_client
def test_a_failed_batch_goes_on_with_what_is_put_back(timed: Sql) -> None:
    batch, one, two = batch_of(timed, members=2)
    three = child_of(timed, one, batch_id=batch)
    seal(timed, batch)
    done = after_batch(timed, batch)
    after = child_of(timed, done)
    failure = after_batch(
        timed, batch, on_parent_failure="run", on_parent_success="cancel"
    )
    end(timed, one, "dead_lettered")
    assert states(timed, three, done, after, failure) == [
        "cancelled",
        "blocked",
        "blocked",
        "blocked",
    ]
    end(timed, two, "completed")
    assert batch_state(timed, batch) == "failed"
    assert states(timed, done, after, failure) == ["cancelled", "cancelled", "pending"]
    requeue(timed, one)
    assert timed.content("litejobs_batch")[0][-2:] == (None, 0)
    assert batch_state(timed, batch) == "sealed"
    assert states(timed, three, done, after, failure) == [
        "blocked",
        "blocked",
        "blocked",
        "pending",
    ]
    end(timed, one, "completed")
    end(timed, three, "completed")
    assert batch_state(timed, batch) == "succeeded"
    assert states(timed, done, after, failure) == ["pending", "blocked", "pending"]
    names = "select name from litejobs_event where name like 'batch.%' order by id"
    assert timed.column(names) == ["batch.failed", "batch.resumed", "batch.succeeded"]


def test_a_batch_of_which_a_failure_was_deleted_fails_again(served: Sql) -> None:
    batch, one, two = batch_of(served, members=2, sealed=True)
    end(served, one, "dead_lettered")
    end(served, two, "dead_lettered")
    served.execute("delete from litejobs_job where id = ?", (two,))
    requeue(served, one)
    assert batch_state(served, batch) == "sealed"
    end(served, one, "completed")
    assert batch_state(served, batch) == "failed"


def test_batches_within_batches_go_on(served: Sql) -> None:
    inner, one = batch_of(served, members=1, sealed=True)
    outer, *_ = batch_of(served)
    callback = after_batch(served, inner, batch_id=outer)
    seal(served, outer)
    last = after_batch(served, outer)
    end(served, one, "dead_lettered")
    assert [batch_state(served, each) for each in (inner, outer)] == ["failed"] * 2
    requeue(served, one)
    assert [batch_state(served, each) for each in (inner, outer)] == ["sealed"] * 2
    assert states(served, one, callback, last) == ["pending", "blocked", "blocked"]
    for job in (one, callback, last):
        assert state(served, job) == "pending"
        end(served, job, "completed")
    assert [batch_state(served, each) for each in (inner, outer)] == ["succeeded"] * 2


def test_of_many_those_who_have_not_heard_wait_on(served: Sql) -> None:
    parent = served.enqueue("a")
    children = [child_of(served, parent) for _ in range(520)]
    lower = child_of(served, children[0])
    end(served, parent, "dead_lettered")
    assert states(served, children[0], children[-1]) == ["cancelled", "blocked"]
    requeue(served, parent)
    assert {*states(served, *children, lower)} == {"blocked"}
    assert served.value("select count(*) from litejobs_telling") == 0
    end(served, parent, "completed")
    served.tick()
    assert {*states(served, *children)} == {"pending"}
    assert state(served, lower) == "blocked"


def test_a_cycle_through_a_batch_that_may_go_on_is_refused(served: Sql) -> None:
    batch, one = batch_of(served, members=1)
    first = served.enqueue("a")
    two = child_of(served, first, batch_id=batch, unique_key="k")
    seal(served, batch)
    after = after_batch(served, batch)
    end(served, one, "dead_lettered")
    end(served, first, "cancelled")
    assert batch_state(served, batch) == "failed"
    key = served.enqueue("a", unique_key="k")
    requeue(served, first)
    assert states(served, two, after) == ["cancelled", "cancelled"]
    assert served.refused(ADD, (first, after)) == CYCLE
    cancel(served, key)


def test_parents_are_purged_when_they_have_ended(served: Sql) -> None:
    bad, late = served.enqueue("a"), served.enqueue("a")
    child = child_of(served, bad, late, on_parent_failure="block")
    end(served, bad, "dead_lettered")
    end(served, late, "completed")
    served.execute("delete from litejobs_job where id in (?, ?)", (bad, late))
    assert (state(served, child), parent_states(served, child)) == (
        "blocked",
        ["dead_lettered", "completed"],
    )
    served.execute("delete from litejobs_dependency where parent_id = ?", (bad,))
    assert state(served, child) == "pending"


def test_with_a_child_its_dependencies_are_purged(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    end(served, parent, "dead_lettered")
    served.execute("delete from litejobs_job where id = ?", (child,))
    assert served.content("litejobs_dependency") == []


# Dependencies that are deleted, or taken in another way -------------------------------


def test_a_job_goes_on_when_it_waits_for_nothing_any_more(timed: Sql) -> None:
    one, two = timed.enqueue("a"), timed.enqueue("a")
    now, later = (
        child_of(timed, one, two, run_at=timed.now + each) for each in (0, HOUR)
    )
    timed.execute("delete from litejobs_dependency where parent_id = ?", (one,))
    assert states(timed, now, later) == ["blocked", "blocked"]
    timed.execute("delete from litejobs_dependency where parent_id = ?", (two,))
    assert states(timed, now, later) == ["pending", "scheduled"]


def test_one_that_is_blocked_by_a_failure_goes_on_without_it(served: Sql) -> None:
    bad, good, late = (served.enqueue("a") for _ in range(3))
    child = child_of(served, bad, good, late, on_parent_failure="block")
    end(served, bad, "dead_lettered")
    end(served, good, "completed")
    served.execute("delete from litejobs_dependency where parent_id = ?", (late,))
    assert state(served, child) == "blocked"
    served.execute("delete from litejobs_dependency where parent_id = ?", (good,))
    assert state(served, child) == "blocked"
    served.execute("delete from litejobs_dependency where parent_id = ?", (bad,))
    assert state(served, child) == "pending"


def test_one_for_failures_ends_when_those_that_are_left_have_succeeded(
    served: Sql,
) -> None:
    good, late = served.enqueue("a"), served.enqueue("a")
    child = child_of(
        served, good, late, on_parent_failure="run", on_parent_success="cancel"
    )
    grandchild = child_of(served, child)
    end(served, good, "completed")
    served.execute("delete from litejobs_dependency where parent_id = ?", (late,))
    assert ended_as(served, child) == ("cancelled", "parents_succeeded")
    assert ended_as(served, grandchild) == ("cancelled", "parent_failed")


def test_one_for_failures_runs_when_nothing_is_left_to_wait_for(served: Sql) -> None:
    late = served.enqueue("a")
    child = child_of(served, late, on_parent_success="cancel")
    served.execute("delete from litejobs_dependency")
    assert state(served, child) == "pending"


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("on_parent_failure", "run", ("pending", None)),
        ("on_parent_failure", "cancel", ("cancelled", "parent_failed")),
        ("on_parent_failure", None, ("cancelled", "parent_failed")),
        ("on_parent_failure", "block", ("blocked", None)),
        ("on_parent_success", "cancel", ("blocked", None)),
    ],
)
def test_a_blocked_job_is_to_take_failures_in_another_way(
    served: Sql, column: str, value: str | None, expected: tuple[str, str | None]
) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent, on_parent_failure="block")
    grandchild = child_of(served, child, on_parent_failure="run")
    end(served, parent, "dead_lettered")
    served.execute(f"update litejobs_job set {column} = ? where id = ?", (value, child))
    assert ended_as(served, child) == expected
    released = "pending" if expected[0] == "cancelled" else "blocked"
    assert state(served, grandchild) == released


@pytest.mark.parametrize("now", STATES)
def test_only_blocked_jobs_are_looked_at_again(served: Sql, now: str) -> None:
    job = served.job_in(now, max_attempts=2 if now == "failed" else 1)
    for column in ("on_parent_failure", "on_parent_success"):
        served.execute(
            f"update litejobs_job set {column} = 'cancel' where id = ?", (job,)
        )
    assert state(served, job) == now


# Batches ------------------------------------------------------------------------------


def test_an_empty_batch_ends_when_it_is_sealed(timed: Sql) -> None:
    (batch,) = batch_of(timed)
    told = after_batch(timed, batch)
    timed.wait(HOUR)
    assert (batch_state(timed, batch), state(timed, told)) == ("open", "blocked")
    seal(timed, batch)
    assert (batch_state(timed, batch), state(timed, told)) == ("succeeded", "pending")
    row = timed.rows("select * from litejobs_batch")[0]
    assert (row.created_at, row.finished_at) == (timed.now - HOUR, timed.now)
    assert log_of(timed)[-2:] == [
        ("batch 1", "sealed", "succeeded", "batch"),
        (told, "blocked", "pending", None),
    ]


def test_a_batch_that_is_inserted_sealed_is_empty(served: Sql) -> None:
    served.execute("insert into litejobs_batch (name, state) values ('x', 'sealed')")
    row = served.rows("select * from litejobs_batch")[0]
    assert (row.name, row.state) == ("x", "succeeded")
    assert row.finished_at == row.created_at


def test_a_batch_that_is_sealed_late_ends_at_once(served: Sql) -> None:
    for ends, expected in (
        (["completed", "completed"], "succeeded"),
        (["completed", "dead_lettered"], "failed"),
        (["cancelled", "completed"], "failed"),
    ):
        batch, *members = batch_of(served, members=2)
        told = after_batch(served, batch, on_parent_failure="block")
        for member, how in zip(members, ends, strict=True):
            end(served, member, how)
        assert (batch_state(served, batch), state(served, told)) == ("open", "blocked")
        seal(served, batch)
        assert batch_state(served, batch) == expected
        released = "pending" if expected == "succeeded" else "blocked"
        assert state(served, told) == released
        cancel(served, told)


def test_a_sealed_batch_with_unfinished_jobs_goes_on(served: Sql) -> None:
    batch, one, two = batch_of(served, members=2)
    end(served, one, "dead_lettered")
    seal(served, batch)
    assert batch_state(served, batch) == "sealed"
    served.execute("update litejobs_batch set state = 'sealed', name = 'again'")
    requeue(served, one)
    end(served, one, "completed")
    end(served, two, "completed")
    assert batch_state(served, batch) == "succeeded"


@pytest.mark.every_client
def test_jobs_are_added_while_a_batch_runs_and_not_after_its_end(served: Sql) -> None:
    batch, one = batch_of(served, members=1, sealed=True)
    attempt = begin(served, one)
    two = served.enqueue("a", batch_id=batch)
    served.settle(attempt)
    assert batch_state(served, batch) == "sealed"
    end(served, two, "completed")
    assert batch_state(served, batch) == "succeeded"
    add = "insert into litejobs_job (task, batch_id) values ('a', ?)"
    for how in ("insert", "insert or ignore", "insert or replace"):
        text = add.replace("insert", how)
        assert served.refused(text, (batch,)) == UNKNOWN_BATCH
        assert served.refused(text, (batch + 1,)) == UNKNOWN_BATCH


def test_a_blocked_member_is_unfinished(served: Sql) -> None:
    batch, one = batch_of(served, members=1)
    two = child_of(served, one, batch_id=batch)
    seal(served, batch)
    end(served, one, "completed")
    assert (batch_state(served, batch), state(served, two)) == ("sealed", "pending")
    end(served, two, "completed")
    assert batch_state(served, batch) == "succeeded"


def test_a_failed_member_takes_the_last_one_and_the_batch_with_it(served: Sql) -> None:
    batch, one = batch_of(served, members=1)
    two = child_of(served, one, batch_id=batch)
    seal(served, batch)
    end(served, one, "dead_lettered")
    assert (batch_state(served, batch), state(served, two)) == ("failed", "cancelled")


def test_the_callback_of_a_batch_is_a_member_of_another(served: Sql) -> None:
    """The inner batch ends because its last member is doomed; the outer one with it."""
    inner, one = batch_of(served, members=1)
    doomed = child_of(served, one, batch_id=inner)
    seal(served, inner)
    outer, other = batch_of(served, members=1)
    callback = after_batch(served, inner, batch_id=outer)
    seal(served, outer)
    on_failure = after_batch(
        served, outer, on_parent_failure="run", on_parent_success="cancel"
    )
    on_success = after_batch(served, outer)
    end(served, other, "completed")
    assert batch_state(served, outer) == "sealed"
    end(served, one, "dead_lettered")
    assert states(served, doomed, callback) == ["cancelled", "cancelled"]
    assert [batch_state(served, each) for each in (inner, outer)] == ["failed"] * 2
    assert state(served, on_failure) == "pending"
    assert ended_as(served, on_success) == ("cancelled", "parent_failed")


def test_the_callbacks_of_a_batch_that_succeeds(served: Sql) -> None:
    batch, one = batch_of(served, members=1, sealed=True)
    failure = after_batch(
        served, batch, on_parent_failure="run", on_parent_success="cancel"
    )
    after_failure = child_of(served, failure, on_parent_failure="run")
    complete = after_batch(served, batch, on_parent_failure="run")
    end(served, one, "completed")
    assert ended_as(served, failure) == ("cancelled", "parents_succeeded")
    assert states(served, after_failure, complete) == ["pending", "pending"]


def test_members_that_are_purged_are_not_forgotten(served: Sql) -> None:
    for how, expected in (("completed", "succeeded"), ("cancelled", "failed")):
        batch, one, two = batch_of(served, members=2, sealed=True)
        end(served, one, how)
        served.execute("delete from litejobs_job where id = ?", (one,))
        assert batch_state(served, batch) == "sealed"
        end(served, two, "completed")
        assert batch_state(served, batch) == expected


def test_all_members_may_be_purged_before_it_is_sealed(served: Sql) -> None:
    batch, one = batch_of(served, members=1)
    end(served, one, "dead_lettered")
    served.execute("delete from litejobs_job where id = ?", (one,))
    seal(served, batch)
    assert batch_state(served, batch) == "failed"


def test_a_batch_ends_once(timed: Sql) -> None:
    batch, one, two = batch_of(timed, members=2, sealed=True)
    end(timed, one, "completed")
    end(timed, two, "dead_lettered")
    before = timed.content("litejobs_batch"), log_of(timed)
    timed.wait(HOUR)
    timed.execute("update litejobs_batch set state = 'failed'")
    assert (timed.content("litejobs_batch"), log_of(timed)) == before
    requeue(timed, one)
    end(timed, one, "dead_lettered")
    assert timed.content("litejobs_batch") == before[0]
    told = after_batch(timed, batch, on_parent_failure="block")
    assert parent_states(timed, told) == ["failed"]


def test_a_batch_is_deleted_when_it_has_ended(served: Sql) -> None:
    batch, one = batch_of(served, members=1)
    told = after_batch(served, batch, on_parent_failure="block")
    text = "delete from litejobs_batch where id = ?"
    assert served.refused(text, (batch,)) == BATCH_KEPT
    seal(served, batch)
    assert served.refused(text, (batch,)) == BATCH_KEPT
    end(served, one, "dead_lettered")
    served.execute(text, (batch,))
    assert (state(served, told), parent_states(served, told)) == ("blocked", ["failed"])
    requeue(served, one)
    end(served, one, "completed")


# What is refused ----------------------------------------------------------------------

INSERTS = ("insert", "insert or ignore", "insert or replace", "insert or fail")
UPDATES = ("update", "update or ignore", "update or replace", "update or rollback")


@pytest.mark.every_client
@pytest.mark.parametrize("how", INSERTS)
def test_cycles_of_jobs_are_refused(served: Sql, how: str) -> None:
    add = ADD.replace("insert", how)
    jobs = [served.enqueue("a")]
    assert served.refused(add, (jobs[0], jobs[0])) == CYCLE
    for _ in range(30):
        jobs.append(child_of(served, jobs[-1]))
        served.execute("savepoint here")
        for first in {0, len(jobs) // 2}:
            assert served.refused(add, (jobs[first], jobs[-1])) == CYCLE
        served.execute("release here")
    assert len(served.content("litejobs_dependency")) == 30
    # The other way round there are many ways, and no cycle.
    wait_for(served, jobs[-1], *jobs[:-2])


def test_cycles_through_batches_are_refused(served: Sql) -> None:
    batch, member = batch_of(served, members=1)
    add = "insert into litejobs_dependency (job_id, batch_id) values (?, ?)"
    assert served.refused(add, (member, batch)) == CYCLE
    callback = after_batch(served, batch)
    later = child_of(served, callback)
    assert served.refused(ADD, (member, callback)) == CYCLE
    assert served.refused(ADD, (member, later)) == CYCLE
    new = served.enqueue("a", batch_id=batch)
    assert served.refused(ADD, (new, later)) == CYCLE
    outer, *_ = batch_of(served)
    nested = after_batch(served, batch, batch_id=outer)
    after_outer = after_batch(served, outer)
    assert served.refused(add, (member, outer)) == CYCLE
    assert served.refused(ADD, (member, after_outer)) == CYCLE
    assert served.refused(ADD, (callback, callback)) == CYCLE
    parent = served.enqueue("a")
    wait_for(served, member, parent)
    assert served.refused(add, (parent, batch)) == CYCLE
    assert served.refused(add, (parent, outer)) == CYCLE
    assert served.refused(ADD, (parent, nested)) == CYCLE
    # Siblings may wait for each other, and the callbacks too.
    wait_for(served, new, member)
    wait_for(served, after_outer, callback, later, nested, new)


def test_a_cycle_through_a_failed_parent_is_refused(served: Sql) -> None:
    """Requeued it would wait for what waits for it."""
    top = served.enqueue("a")
    parent = child_of(served, top)
    child = child_of(served, parent, on_parent_failure="block")
    cancel(served, parent)
    assert served.refused(ADD, (top, child)) == CYCLE


@pytest.mark.every_client
@pytest.mark.parametrize("how", INSERTS)
def test_unknown_parents_are_refused(served: Sql, how: str) -> None:
    job = served.enqueue("a")
    text = f"{how} into litejobs_dependency (job_id, parent_id, batch_id)"
    for values in (f"({job}, 77, null)", f"({job}, null, 77)"):
        assert served.refused(f"{text} values {values}") == UNKNOWN_PARENT
    assert served.refused(f"{text} values (77, {job}, null)") == BEGUN
    # Also for one that another parent has cancelled already, and waits no more.
    parent = served.job_in("cancelled")
    child = child_of(served, parent)
    assert ended_as(served, child) == ("cancelled", "parent_failed")
    for values in (f"({child}, 77, null)", f"({child}, null, 77)"):
        assert served.refused(f"{text} values {values}") == UNKNOWN_PARENT
    served.execute(f"{text} values ({child}, {job}, null)")


def test_a_dependency_has_one_parent(served: Sql) -> None:
    job, parent = served.enqueue("a"), served.enqueue("a")
    (batch,) = batch_of(served)
    text = "insert into litejobs_dependency (job_id, parent_id, batch_id) values "
    for values in (f"({job}, {parent}, {batch})", f"({job}, null, null)"):
        words = served.refused(text + values)
        assert "litejobs_dependency_has_one_parent" in words
    assert state(served, job) == "pending"


@pytest.mark.parametrize("now", STATES)
def test_only_a_job_that_has_not_begun_can_wait(served: Sql, now: str) -> None:
    job = served.job_in(now, max_attempts=2 if now == "failed" else 1)
    parent = served.enqueue("a")
    if now in ("scheduled", "pending", "blocked"):
        wait_for(served, job, parent)
        assert state(served, job) == "blocked"
    else:
        assert served.refused(ADD, (job, parent)) == BEGUN


def test_a_job_that_was_interrupted_has_begun(served: Sql) -> None:
    job, parent = served.enqueue("a"), served.enqueue("a")
    served.settle(begin(served, job), "interrupted")
    assert state(served, job) == "pending"
    assert served.refused(ADD, (job, parent)) == BEGUN


def test_what_a_parent_has_cancelled_needs_no_others(served: Sql) -> None:
    bad, late = served.job_in("dead_lettered"), served.enqueue("a")
    child = child_of(served, bad, late)
    assert state(served, child) == "cancelled"
    assert parent_states(served, child) == ["dead_lettered"]


@pytest.mark.every_client
@pytest.mark.parametrize("how", INSERTS)
def test_a_dependency_that_is_there_is_not_made_again(served: Sql, how: str) -> None:
    parent = served.enqueue("a")
    (batch,) = batch_of(served)
    child = child_of(served, parent)
    wait_for_batch(served, child, batch)
    before = everything(served)
    text = f"{how} into litejobs_dependency (job_id, parent_id, batch_id) values "
    served.execute(f"{text} ({child}, {parent}, null), ({child}, null, {batch})")
    served.execute(f"{text} ({child}, {parent}, null)")
    assert everything(served) == before


@pytest.mark.every_client
@pytest.mark.parametrize("how", INSERTS)
def test_a_dependency_is_not_inserted_with_its_end(served: Sql, how: str) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    other = served.enqueue("a")
    before = everything(served)
    for columns, values in (
        ("parent_state", "'completed'"),
        ("parent_state", "'nonsense'"),
        ("pending_level", "1"),
        ("pending_level", "-1"),
        ("id", "1"),
    ):
        assert (
            served.refused(
                f"{how} into litejobs_dependency (job_id, parent_id, {columns}) "
                f"values ({other}, {parent}, {values})"
            )
            == INVALID_DEPENDENCY
        )
    assert everything(served) == before
    assert state(served, child) == "blocked"


@pytest.mark.every_client
@pytest.mark.parametrize("how", UPDATES)
def test_a_dependency_does_not_change(served: Sql, how: str) -> None:
    parent, failed = served.enqueue("a"), served.job_in("dead_lettered")
    other = served.enqueue("a")
    purged = served.job_in("dead_lettered")
    batch, *_ = batch_of(served)
    (ended,) = batch_of(served, sealed=True)
    child = child_of(served, parent, failed, purged, on_parent_failure="block")
    wait_for_batch(served, child, batch, ended)
    served.execute("delete from litejobs_job where id = ?", (purged,))
    before = everything(served)
    for change in (
        "id = id + 100",
        "id = 3 - id",
        f"job_id = {other}",
        f"parent_id = {other}",
        "parent_id = null",
        "batch_id = 77",
        "parent_state = 'completed'",
        "parent_state = 'succeeded'",
        "parent_state = 'pending'",
        "parent_state = case when parent_state is null then 'cancelled' end",
        (
            "parent_state = iif(parent_state is null, 'completed', null), "
            "pending_level = 2"
        ),
        "pending_level = 1",
        "pending_level = 2",
        "pending_level = -1",
        "pending_level = 3",
    ):
        text = f"{how} litejobs_dependency set {change}"
        assert served.refused(text) == IMMUTABLE, change
        for row in served.column("select id from litejobs_dependency"):
            try:
                served.execute(f"{text} where id = ?", (row,))
            except ERRORS as error:
                assert IMMUTABLE in str(error)
    assert everything(served) == before
    served.execute("update litejobs_dependency set job_id = job_id, pending_level = 0")
    assert everything(served) == before


@pytest.mark.every_client
@pytest.mark.parametrize("how", UPDATES)
def test_a_batch_is_not_written_to(served: Sql, how: str) -> None:
    empty, *_ = batch_of(served)
    running, one = batch_of(served, members=1, sealed=True)
    succeeded, *_ = batch_of(served, sealed=True)
    failed, two = batch_of(served, members=1, sealed=True)
    cancel(served, two)
    before = everything(served)
    changes: dict[int, tuple[str, ...]] = {
        empty: ("state = 'succeeded'", "state = 'failed'"),
        running: ("state = 'succeeded'", "state = 'failed'", "state = 'open'"),
        succeeded: (
            "state = 'failed'",
            "state = 'open'",
            "state = 'sealed'",
            "finished_at = null",
            "purged_failures = 1",
        ),
        failed: (
            "state = 'succeeded'",
            "state = 'open'",
            "state = 'sealed'",
            "state = 'sealed', finished_at = null",
        ),
    }
    always = (
        "id = id + 100",
        "id = 1 + id % 4",
        "created_at = 5",
        "created_at = null",
        "finished_at = 5",
        "purged_failures = 7",
        "purged_failures = -1",
        "state = 'nonsense'",
        "state = 'sealed', finished_at = 5",
    )
    for batch, its in changes.items():
        for change in (*its, *always):
            # To prepare it costs more than to try it.
            text = f"{how} litejobs_batch set {change} where id = ?"
            assert served.refused(text, (batch,)) == BATCH_ENDS, (batch, change)
    assert state(served, one) == "pending"
    assert everything(served) == before


@pytest.mark.every_client
@pytest.mark.parametrize("how", INSERTS)
def test_a_batch_is_inserted_open_and_empty(served: Sql, how: str) -> None:
    batch, *_ = batch_of(served)
    for columns, values in (
        ("id", str(batch)),
        ("id", "9007199254740993"),
        ("state", "'succeeded'"),
        ("state", "'failed'"),
        ("state", "'nonsense'"),
        ("created_at", "5"),
        ("finished_at", "5"),
        ("purged_failures", "1"),
    ):
        text = f"{how} into litejobs_batch ({columns}) values ({values})"
        assert served.refused(text) == NEW_BATCH
    served.execute(f"{how} into litejobs_batch (id, name) values (50, 'mine')")
    assert batch_state(served, 50) == "open"


@pytest.mark.every_client
@pytest.mark.parametrize("column", ["batch_id", "prev_job_id"])
@pytest.mark.parametrize("how", UPDATES)
def test_a_job_stays_in_its_batch_and_behind_its_parent(
    served: Sql, how: str, column: str
) -> None:
    batch, member = batch_of(served, members=1)
    job = served.enqueue("a", prev_job_id=member)
    for row in (job, member):
        words = served.refused(
            f"{how} litejobs_job set {column} = coalesce({column}, 0) + 5 "
            f"where id = {row}"
        )
        assert words.startswith("immutable_job: ")
    seal(served, batch)
    assert batch_state(served, batch) == "sealed"


def test_a_job_is_not_born_with_the_result_of_another(served: Sql) -> None:
    words = served.refused("insert into litejobs_job (task, prev) values ('a', '5')")
    assert words.startswith("invalid_birth: ")


def test_nobody_else_passes_news_on(served: Sql) -> None:
    parent = served.enqueue("a")
    child = child_of(served, parent)
    batch, _member = batch_of(served, members=1, sealed=True)
    after_batch(served, batch)
    before = everything(served)
    served.execute(
        "insert into litejobs__notify_dependents (parent) values (?)", (parent,)
    )
    served.execute("insert into litejobs__notify_level (level) values (1), (2)")
    assert served.refused(
        "insert into litejobs__ended (job) values (?)", (parent,)
    ) == (IMMUTABLE)
    served.execute("insert into litejobs__ended (job) values (?), (77)", (child,))
    assert everything(served) == before


@pytest.mark.every_client
def test_what_is_blocked_is_not_set_free_by_hand(served: Sql) -> None:
    child = child_of(served, served.enqueue("a"))
    for new in ("pending", "scheduled"):
        for how in UPDATES:
            text = f"{how} litejobs_job set state = '{new}' where id = {child}"
            assert served.refused(text) == UNFINISHED


@pytest.mark.parametrize("old", [*WAITING, *FINISHED])
def test_nothing_is_blocked_that_waits_for_nothing(served: Sql, old: str) -> None:
    job = served.job_in(old, max_attempts=2 if old == "failed" else 1)
    if old == "blocked":
        return
    words = served.refused(
        "update litejobs_job set state = 'blocked' where id = ?", (job,)
    )
    assert words.startswith("invalid_transition: ")


def test_constraints_stand_behind_the_guards(served: Sql) -> None:
    job, parent = served.enqueue("a"), served.enqueue("a")
    (batch,) = batch_of(served)
    wait_for(served, job, parent)
    wait_for_batch(served, job, batch)
    for column in ("on_parent_failure", "on_parent_success"):
        words = served.refused(f"update litejobs_job set {column} = 'sometimes'")
        assert f"litejobs_job_{column}_known" in words
    words = served.refused("update litejobs_job set prev = '{'")
    assert "litejobs_job_prev_is_json" in words
    words = served.refused("update litejobs_job set prev_not_stored = '{'")
    assert "litejobs_job_prev_not_stored_is_json" in words
    words = served.refused("update litejobs_batch set name = ''")
    assert "litejobs_batch_name_length" in words
    served.execute("drop trigger litejobs_batch_update_guard")
    words = served.refused("update litejobs_batch set state = 'nonsense'")
    assert "litejobs_batch_state_known" in words
    served.execute("drop trigger litejobs_dependency_insert_guard")
    assert served.refused(ADD, (job, parent)) == (
        "UNIQUE constraint failed: litejobs_dependency.job_id, "
        "litejobs_dependency.parent_id"
    )
    add = "insert into litejobs_dependency (job_id, batch_id) values (?, ?)"
    assert served.refused(add, (job, batch)) == (
        "UNIQUE constraint failed: litejobs_dependency.job_id, "
        "litejobs_dependency.batch_id"
    )
    SEEN.refused |= {"litejobs_dependency_unique", "litejobs_dependency_batch_unique"}


# Random lives -------------------------------------------------------------------------


@dataclass
class Member:
    """What the model knows of a job."""

    failure: str | None
    success: str | None
    batch: int | None
    state: str = "pending"
    stopped_by: str | None = None
    begun: bool = False


@dataclass
class Pool:
    """What the model knows of a batch."""

    state: str = "open"
    purged: bool = False


@dataclass
class Model:
    """Jobs that wait for each other, in the plainest way that can be thought of."""

    jobs: dict[int, Member] = field(default_factory=dict)
    batches: dict[int, Pool] = field(default_factory=dict)
    # (job, "job" or "batch", parent): how the parent has ended.
    edges: dict[tuple[int, str, int], str | None] = field(default_factory=dict)
    # Requeued by hand although a parent has failed: whether that counts again when they
    # are to wait for others is not asked here.
    overruled: set[int] = field(default_factory=set)

    def of(self, job: int) -> list[str | None]:
        """How the parents of the job have ended."""
        return [how for edge, how in self.edges.items() if edge[0] == job]

    def decide(self, job: int) -> None:
        """What follows for a blocked job from its parents."""
        row, ends = self.jobs[job], self.of(job)
        if row.state != "blocked":
            return
        failed = any(each in BAD for each in ends)
        if failed and row.failure in (None, "cancel"):
            self.finish(job, "cancelled", "parent_failed")
        elif None in ends or (failed and row.failure == "block"):
            return
        elif ends and not failed and row.success == "cancel":
            self.finish(job, "cancelled", "parents_succeeded")
        else:
            row.state = "pending"

    def finish(self, job: int, how: str, stopped_by: str | None = None) -> None:
        """The job ends, and whoever waits for it hears of it."""
        row = self.jobs[job]
        row.state, row.stopped_by = how, stopped_by
        self.tell("job", job, how)
        self.look_at_batch(row.batch)

    def look_at_batch(self, batch: int | None) -> None:
        """A sealed batch ends when its jobs have."""
        if batch is None or self.batches[batch].state != "sealed":
            return
        states = [each.state for each in self.jobs.values() if each.batch == batch]
        if all(each in FINISHED for each in states):
            pool = self.batches[batch]
            failed = pool.purged or any(each != "completed" for each in states)
            pool.state = "failed" if failed else "succeeded"
            self.tell("batch", batch, pool.state)

    def tell(self, kind: str, parent: int, how: str) -> None:
        """All who wait for the parent are told, and then what follows is done."""
        heard = [
            edge
            for edge, known in self.edges.items()
            if edge[1:] == (kind, parent) and known is None
        ]
        for edge in heard:
            self.edges[edge] = how
        for edge in heard:
            self.decide(edge[0])

    def can_wait(self, job: int) -> bool:
        """It waits for something, and nothing of it has ended as it is not to."""
        ends = self.of(job)
        doomed = any(each in BAD for each in ends)
        return None in ends and not (
            doomed and self.jobs[job].failure in (None, "cancel")
        )

    def wait_again(self, job: int) -> None:
        """It had failed, and is waited for again; and who was cancelled for it."""
        parents = [("job", job)]
        batch = self.jobs[job].batch
        if batch is not None and self.batches[batch].state == "failed":
            self.batches[batch].state = "sealed"
            parents.append(("batch", batch))
        heard = []
        for edge, how in self.edges.items():
            child = self.jobs[edge[0]]
            waits = child.state == "blocked" or child.stopped_by == "parent_failed"
            if edge[1:] in parents and how and waits:
                self.edges[edge] = None
                heard.append(edge[0])
        for each in heard:
            child = self.jobs[each]
            if child.stopped_by == "parent_failed" and self.can_wait(each):
                child.state, child.stopped_by = "blocked", None
                self.wait_again(each)

    def waits_for(self, job: int) -> set[tuple[str, int]]:
        """All that the job waits for, near and far."""
        found: set[tuple[str, int]] = set()
        todo = [("job", job)]
        while todo:
            kind, number = todo.pop()
            if kind == "job":
                more = [edge[1:] for edge in self.edges if edge[0] == number]
            else:
                more = [
                    ("job", each)
                    for each, row in self.jobs.items()
                    if row.batch == number
                ]
            todo += [each for each in more if each not in found]
            found |= {*more}
        return found

    def depend(self, job: int, kind: str, parent: int) -> str | None:
        """A dependency is inserted; the words of its refusal."""
        row = self.jobs.get(job)
        doomed = ("parent_failed", "parents_succeeded")
        if (job, kind, parent) in self.edges:
            return None
        target = self.jobs.get(parent) if kind == "job" else self.batches.get(parent)
        if target is None:
            return UNKNOWN_PARENT
        if row and row.stopped_by in doomed:
            return None
        if row is None or row.begun or row.state not in ("pending", "blocked"):
            return BEGUN
        # Also if the batch has ended: its jobs can be requeued.
        self.edges[job, kind, parent] = None
        if ("job", job) in self.waits_for(job):
            del self.edges[job, kind, parent]
            return CYCLE
        ended = target.state in (*FINISHED, "succeeded", "failed")
        self.edges[job, kind, parent] = target.state if ended else None
        fine = target.state in ("completed", "succeeded") or row.failure == "run"
        if row.state == "pending" and not (ended and fine and row.success != "cancel"):
            row.state = "blocked"
        self.decide(job)
        return None


class Life:
    """The same things happen to a database and to the model."""

    def __init__(self, db: Sql, dice: random.Random) -> None:
        self.db, self.dice, self.model = db, dice, Model()

    def refused_or_done(self, words: str | None, sql: str, *values: Any) -> None:
        """The database does it, or refuses it in these words."""
        if words is None:
            self.db.execute(sql, values)
        else:
            assert self.db.refused(sql, values) == words

    def step(self) -> None:
        """Something happens, and both agree."""
        deeds = (
            *(self.insert,) * 5,
            *(self.depend,) * 8,
            *(self.run,) * 7,
            *(self.forget, self.change) * 2,
            self.open_batch,
            self.seal,
            self.cancel,
            self.cancel_many,
            self.requeue,
            self.purge,
            self.forget,
            self.change,
        )
        self.dice.choice(deeds)()
        assert self.stored() == self.expected()

    def stored(self) -> Any:
        """What the database says."""
        return (
            self.db.execute("select id, state, stopped_by from litejobs_job"),
            self.db.execute("select id, state from litejobs_batch"),
            sorted(
                self.db.execute(
                    "select job_id, iif(batch_id is null, 'job', 'batch'), "
                    "coalesce(parent_id, batch_id), coalesce(parent_state, ''), "
                    "pending_level "
                    "from litejobs_dependency"
                )
            ),
        )

    def expected(self) -> Any:
        """What the model says."""
        model = self.model
        return (
            [(job, row.state, row.stopped_by) for job, row in model.jobs.items()],
            [(batch, row.state) for batch, row in model.batches.items()],
            sorted((*edge, how or "", 0) for edge, how in model.edges.items()),
        )

    def any_job(self) -> int:
        """One of the jobs, rather a late one; or none."""
        jobs = list(self.model.jobs) or [77_777]
        return self.dice.choice(self.dice.choice((jobs, jobs[-12:])))

    def any_batch(self) -> int:
        """One of the batches, rather a late one; or none."""
        return self.dice.choice([*self.model.batches][-4:] or [77_777])

    def insert(self) -> None:
        failure = self.dice.choice((None, "cancel", "run", "block"))
        success = self.dice.choice((None, None, "run", "cancel"))
        batch = self.any_batch() if self.dice.random() < 0.5 else None
        pool = self.model.batches.get(batch or 0)
        words = None
        if batch is not None and (not pool or pool.state in ("succeeded", "failed")):
            words = UNKNOWN_BATCH
        self.refused_or_done(
            words,
            "insert into litejobs_job "
            "(task, on_parent_failure, on_parent_success, batch_id) "
            "values ('a', ?, ?, ?)",
            failure,
            success,
            batch,
        )
        if words is None:
            job = self.db.value("select max(id) from litejobs_job")
            self.model.jobs[job] = Member(failure, success, batch)
            for _ in range(self.dice.randrange(3)):
                self.depend(job)

    def depend(self, job: int = 0) -> None:
        kind = self.dice.choice(("job", "job", "batch"))
        parent = self.any_job() if kind == "job" else self.any_batch()
        job = job or self.any_job()
        if job in self.model.overruled:
            return
        words = self.model.depend(job, kind, parent)
        column = "parent_id" if kind == "job" else "batch_id"
        self.refused_or_done(
            words,
            f"insert into litejobs_dependency (job_id, {column}) values (?, ?)",
            job,
            parent,
        )

    def run(self) -> None:
        for attempt in self.db.claim(self.dice.randrange(1, 3)):
            job = self.db.attempt(attempt).job_id
            row = self.model.jobs[job]
            assert row.state == "pending"
            row.begun, row.state = True, "processing"
        opened = self.db.execute(
            "select id, job_id from litejobs_attempt where finished_at is null"
        )
        for attempt, job in opened:
            status = self.dice.choice(
                ("ok", "ok", "error", "cancelled", "interrupted", "")
            )
            if not status:
                continue
            self.db.settle(attempt, status)
            if status == "interrupted":
                self.model.jobs[job].state = "pending"
                continue
            how = {"ok": "completed", "error": "dead_lettered"}
            self.model.finish(job, how.get(status, "cancelled"))
            self.model.jobs[job].stopped_by = self.db.job(job).stopped_by

    def open_batch(self) -> None:
        self.db.execute("insert into litejobs_batch default values")
        batch = self.db.value("select max(id) from litejobs_batch")
        self.model.batches[batch] = Pool()

    def seal(self) -> None:
        batch = self.any_batch()
        pool = self.model.batches.get(batch, Pool("sealed"))
        ended = pool.state in ("succeeded", "failed")
        self.refused_or_done(
            BATCH_ENDS if ended else None,
            "update litejobs_batch set state = 'sealed' where id = ?",
            batch,
        )
        if pool.state == "open":
            pool.state = "sealed"
            self.model.look_at_batch(batch)

    def cancel(self) -> None:
        job = self.any_job()
        row = self.model.jobs.get(job)
        if row and row.state in WAITING:
            cancel(self.db, job)
            self.model.finish(job, "cancelled")

    def cancel_many(self) -> None:
        jobs = sorted(
            job
            for job, row in self.model.jobs.items()
            if row.state in WAITING and self.dice.random() < 0.2
        )
        cancel(self.db, *jobs)
        for job in jobs:
            if self.model.jobs[job].state in WAITING:
                self.model.finish(job, "cancelled")

    def requeue(self) -> None:
        job = self.any_job()
        row = self.model.jobs.get(job)
        if row is None or row.state not in FINISHED:
            return
        words = UNFINISHED if None in self.model.of(job) else None
        sql = "update litejobs_job set state = 'pending' where id = ?"
        waits = row.state == "cancelled" and self.model.can_wait(job)
        self.refused_or_done(CAN_WAIT if waits else words, sql, job)
        if waits:
            self.db.execute(sql.replace("pending", "blocked"), (job,))
        if words is None or waits:
            failed = row.state != "completed"
            row.state, row.stopped_by = "blocked" if waits else "pending", None
            if failed:
                self.model.wait_again(job)
            if any(each in BAD for each in self.model.of(job)):
                self.model.overruled.add(job)

    def purge(self) -> None:
        job = self.any_job()
        row = self.model.jobs.get(job)
        if row is None or row.state not in FINISHED:
            return
        self.db.execute("delete from litejobs_job where id = ?", (job,))
        del self.model.jobs[job]
        edges = self.model.edges
        self.model.edges = {edge: edges[edge] for edge in edges if edge[0] != job}
        if row.batch is not None and row.state != "completed":
            self.model.batches[row.batch].purged = True

    def forget(self) -> None:
        if self.model.edges:
            job, kind, parent = self.dice.choice([*self.model.edges])
            column = "parent_id" if kind == "job" else "batch_id"
            self.db.execute(
                f"delete from litejobs_dependency where job_id = ? and {column} = ?",
                (job, parent),
            )
            del self.model.edges[job, kind, parent]
            if None not in self.model.of(job):
                self.model.decide(job)

    def change(self) -> None:
        job = self.any_job()
        row = self.model.jobs.get(job)
        if row is not None:
            row.failure = self.dice.choice((None, "cancel", "run", "block"))
            self.db.execute(
                "update litejobs_job set on_parent_failure = ? where id = ?",
                (row.failure, job),
            )
            self.model.decide(job)


@pytest.mark.parametrize("seed", range(15))
def test_random_lives_follow_the_model(both: list[Sql], seed: int) -> None:
    """100 steps of 15 lives with either kind of triggers, which leave the same log."""

    def story(db: Sql) -> None:
        life = Life(db, random.Random(seed))
        for _ in range(100):
            life.step()

    without, recursive = left_by(story, both)
    assert without == recursive
