"""Many wait for one end, and are told some at a time."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import ERRORS, Sql, as_new, on_apsw
from tests.sql.test_dependency import (
    after_batch,
    batch_of,
    batch_state,
    cancel,
    child_of,
    end,
    ended_as,
    requeue,
    seal,
    state,
    wait_for,
)

AT_ONCE = 500
MANY = 2 * AT_ONCE + 10
TOLD_LATER = "what it waits for has ended; a runner tells those who wait in turn"


@pytest.fixture
def served(db: Sql) -> Sql:
    """One task, whose first failure is the last, in a living runner."""
    db.serve("a", max_attempts=1)
    return db


def many(db: Sql, parent: int | None, batch: int | None = None, **given: Any) -> int:
    """The first of MANY new jobs that wait for this one, or for this batch."""
    first = int(db.value("select max(id) + 1 from litejobs_job"))
    names = "".join(f", {name}" for name in given)
    marks = ", ?" * len(given)
    db.execute(
        "with recursive number (n) as "
        f"(select 1 union all select n + 1 from number where n < {MANY}) "
        f"insert into litejobs_job (task{names}) select 'a'{marks} from number",
        tuple(given.values()),
    )
    db.execute(
        "insert into litejobs_dependency (job_id, parent_id, batch_id) "
        "select id, ?, ? from litejobs_job where id >= ? order by id",
        (parent, batch, first),
    )
    return first


def counts(db: Sql, first: int) -> dict[str, int]:
    """How many of those from the first on are in which state."""
    return dict(
        db.execute(
            "select state, count(*) from litejobs_job where id >= ? group by state",
            (first,),
        )
    )


def left(db: Sql) -> int:
    """How many ends are not known to all who wait."""
    return int(db.value("select count(*) from litejobs_telling"))


def tell_all(db: Sql) -> int:
    """So many ticks later everybody knows."""
    ticks = 0
    while left(db):
        assert db.query("agenda", runner=db.runner, seen_at=0)[0].tick
        db.tick()
        ticks += 1
    assert (
        db.value("select count(*) from litejobs_dependency where pending_level <> 0")
        == 0
    )
    return ticks


def why(db: Sql, job: int) -> list[str]:
    """What keeps it from running."""
    return db.column("select detail from litejobs_why where job_id = ?", (job,))


def test_many_children_are_released_some_at_a_time_in_their_order(served: Sql) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "completed")
    assert counts(db, first) == {"pending": AT_ONCE, "blocked": MANY - AT_ONCE}
    last = first + MANY - 1
    assert why(db, last) == [TOLD_LATER]
    assert (
        db.execute("select * from litejobs_doctor where code like 'dependency%'") == []
    )
    assert tell_all(db) == 2
    assert counts(db, first) == {"pending": MANY}
    assert why(db, last) == ["it may run, and waits for its turn"]
    assert db.column(
        "select job_id from litejobs__transition "
        "where old_state = 'blocked' and new_state = 'pending' order by id"
    ) == list(range(first, last + 1))


def test_nobody_is_idle_while_some_are_not_told(served: Sql) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "completed")
    cancel(db, *range(first, first + AT_ONCE))

    def idle() -> int:
        [row] = db.query("idle", stands=0)
        return int(next(iter(vars(row).values())))

    assert not idle()
    tell_all(db)
    db.execute("update litejobs_job set state = 'cancelled' where state = 'pending'")
    assert idle()


def test_another_runner_goes_on_where_one_has_died(served: Sql) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "dead_lettered")
    db.tick()
    assert counts(db, first) == {"cancelled": 2 * AT_ONCE, "blocked": 10}
    db.start_runner()
    tell_all(db)
    assert counts(db, first) == {"cancelled": MANY}
    assert ended_as(db, first + MANY - 1) == ("cancelled", "parent_failed")


def test_few_are_told_at_once_while_many_are_told(served: Sql) -> None:
    db = served
    parent, other = db.enqueue("a"), db.enqueue("a")
    child = child_of(db, other)
    many(db, parent)
    end(db, parent, "completed")
    end(db, other, "completed")
    assert (left(db), state(db, child)) == (1, "pending")
    # Nor does a new one wait.
    assert state(db, child_of(db, parent)) == "pending"
    assert tell_all(db) == 2


def test_result_is_handed_on_although_the_parent_runs_again(served: Sql) -> None:
    """And fails: who waited for it when it succeeded does not hear of that."""
    db = served
    parent = db.enqueue("a")
    first = many(db, parent, prev_job_id=parent)
    last = first + MANY - 1
    end(db, parent, "completed", '"first"')
    requeue(db, parent)
    new = child_of(db, parent, prev_job_id=parent)
    end(db, parent, "dead_lettered")
    assert ended_as(db, new) == ("cancelled", "parent_failed")
    assert state(db, last) == "blocked"
    tell_all(db)
    assert counts(db, first) == {"pending": MANY, "cancelled": 1}
    assert db.column(
        "select distinct prev from litejobs_job where id between ? and ?", (first, last)
    ) == ['"first"']


def test_an_id_that_is_used_again_is_told_of_the_later_end(served: Sql) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    last = first + MANY - 1
    end(db, parent, "completed")
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (last,))
    db.execute("delete from litejobs_job where id = ?", (last,))
    requeue(db, parent)
    new = child_of(db, parent)
    tell_all(db)
    assert counts(db, first) == {"pending": MANY - 1, "blocked": 1}
    end(db, parent, "completed")
    assert state(db, new) == "pending"


def test_failure_that_is_put_right_meanwhile_is_told_to_nobody_else(
    served: Sql,
) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "dead_lettered")
    requeue(db, parent)
    # Those who had heard of it wait again.
    assert tell_all(db) < 2
    assert counts(db, first) == {"blocked": MANY}
    assert why(db, first + MANY - 1) == ["it waits for the end of another job"]
    end(db, parent, "completed")
    tell_all(db)
    assert counts(db, first) == {"pending": MANY}


def test_many_wait_again_some_at_a_time(served: Sql) -> None:
    """A runner that dies in between is followed by one that goes on."""
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "dead_lettered")
    tell_all(db)
    requeue(db, parent)
    assert counts(db, first) == {"blocked": AT_ONCE, "cancelled": MANY - AT_ONCE}
    assert why(db, first) == ["it waits for the end of another job"]
    assert db.column(
        "select remedy from litejobs__idle_reason where job_id = ?", (first + MANY - 1,)
    ) == ["let a runner pass on that what it waits for was requeued"]
    db.tick()
    db.start_runner()
    assert counts(db, first) == {"blocked": 2 * AT_ONCE, "cancelled": 10}
    assert tell_all(db) == 1
    assert counts(db, first) == {"blocked": MANY}
    assert db.execute("select * from litejobs_doctor where code like 'depend%'") == []


@pytest.mark.parametrize("how", ["completed", "dead_lettered", "cancelled"])
def test_end_comes_after_that_it_was_waited_for_again(served: Sql, how: str) -> None:
    """It ends before all who were cancelled for it wait again, or a person cancels."""
    db = served
    other = db.enqueue("a")
    many(db, other)
    end(db, other, "dead_lettered")
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "dead_lettered")
    tell_all(db)
    requeue(db, parent)
    child_of(db, parent)
    # The last who was put back comes first, and the end of the other has to wait.
    requeue(db, other)
    end(db, parent, how)
    assert db.execute("select * from litejobs_doctor where code like 'depend%'") == []
    tell_all(db)
    known = "pending" if how == "completed" else "cancelled"
    assert counts(db, first) == {known: MANY + 1}
    if how == "completed":
        return
    # And once more, before all who are left know what happened last.
    requeue(db, parent)
    db.tick()
    end(db, parent, "dead_lettered")
    requeue(db, parent)
    tell_all(db)
    assert counts(db, first) == {"blocked": MANY + 1}


@pytest.mark.parametrize("members", [False, True])
def test_many_below_one_that_waits_again_follow_later(
    served: Sql, members: bool
) -> None:
    db = served
    root = db.enqueue("a")
    grandchild = child_of(db, child_of(db, root))
    batch, *_ = batch_of(db)
    given = {"batch_id": batch} if members else {}
    first = many(db, grandchild, **given)
    last = many(db, None, batch) if members else many(db, first)
    seal(db, batch)
    end(db, root, "dead_lettered")
    tell_all(db)
    assert counts(db, root + 1) == {"cancelled": 2 * MANY + 2}
    requeue(db, root)
    assert counts(db, first) == {"cancelled": 2 * MANY}
    assert tell_all(db) > 4
    assert counts(db, root + 1) == {"blocked": 2 * MANY + 2}
    assert batch_state(db, batch) == ("sealed" if members else "succeeded")
    while counts(db, last) != {"pending": MANY}:
        for job in db.column("select id from litejobs_job where state = 'pending'"):
            end(db, job, "completed")
        tell_all(db)


def test_child_that_is_cancelled_meanwhile_stays_so(served: Sql) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    last = first + MANY - 1
    end(db, parent, "completed")
    cancel(db, last)
    tell_all(db)
    assert ended_as(db, last) == ("cancelled", None)
    assert counts(db, first) == {"pending": MANY - 1, "cancelled": 1}


def test_who_is_not_known_to_have_ended_is_not_deleted(served: Sql) -> None:
    db = served
    batch, parent = batch_of(db, members=1, sealed=True)
    first = many(db, parent)
    many(db, None, batch)
    end(db, parent, "completed")
    assert batch_state(db, batch) == "succeeded"
    for table, ended in (("job", parent), ("batch", batch)):
        sentence = db.refused(f"delete from litejobs_{table} where id = ?", (ended,))
        assert sentence.startswith("not_told: those that wait for this ")
    assert db.column("select id from litejobs__purgeable") == []
    assert why(db, first + 2 * MANY - 1) == [TOLD_LATER]
    assert tell_all(db) == 3
    assert counts(db, first) == {"pending": 2 * MANY}
    assert db.column("select id from litejobs__purgeable") == []
    db.execute("delete from litejobs_job where id = ?", (parent,))


def test_who_is_not_known_to_have_ended_stays_also_if_nobody_waits_any_more(
    served: Sql,
) -> None:
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)
    end(db, parent, "completed")
    db.execute("update litejobs_job set state = 'cancelled' where id >= ?", (first,))
    purgeable = "select id from litejobs__purgeable where id < ?"
    assert db.column(purgeable, (first,)) == []
    tell_all(db)
    assert db.column(purgeable, (first,)) == [parent]


@pytest.mark.parametrize("members", [False, True])
def test_many_below_one_that_is_cancelled_are_told_later(
    served: Sql, members: bool
) -> None:
    """Also where they are in a batch, which ends with the last, and is waited for."""
    db = served
    root = db.enqueue("a")
    child = child_of(db, root)
    grandchild = child_of(db, child)
    batch, *_ = batch_of(db)
    given = {"batch_id": batch} if members else {}
    first = many(db, grandchild, **given)
    after = after_batch(db, batch, on_parent_failure="run") if members else None
    seal(db, batch)
    end(db, root, "dead_lettered")
    assert state(db, child) == "cancelled"
    assert state(db, first) == "blocked"
    assert why(db, first + MANY - 1) != []
    assert tell_all(db) > 2
    states = counts(db, first)
    assert states.pop("cancelled") == MANY
    assert states == ({"pending": 1} if members else {})
    if after is not None:
        assert (batch_state(db, batch), state(db, after)) == ("failed", "pending")


@pytest.mark.parametrize("told", [0, 1, 9])
def test_what_ticks_tell_after_an_operation_is_undone_with_it(
    served: Sql, told: int
) -> None:
    """Those who are told later are no change of it, but follow from it both ways."""
    db = served
    parent = db.enqueue("a")
    first = many(db, parent)

    def operate(act: Any) -> None:
        db.insert("litejobs_operation", name="by hand")
        act(db, parent)
        db.execute("update litejobs_operation set state = 'done' where state = 'open'")
        for _ in range(told):
            db.tick()

    def undo() -> dict[str, int]:
        assert db.column("select in_the_way from litejobs_operation_report") == [None]
        db.execute("insert into litejobs_undo (operation) values (null)")
        tell_all(db)
        assert db.execute("select * from litejobs_doctor where code like 'dep%'") == []
        db.execute("delete from litejobs_operation")
        return counts(db, first)

    operate(cancel)
    heard = {0: AT_ONCE, 1: 2 * AT_ONCE, 9: MANY}[told]
    assert counts(db, first)["cancelled"] == heard
    assert undo() == {"blocked": MANY}
    assert (state(db, parent), left(db)) == ("pending", 0)
    end(db, parent, "dead_lettered")
    tell_all(db)
    operate(requeue)
    assert counts(db, first)["blocked"] == heard
    assert undo() == {"cancelled": MANY}
    assert state(db, parent) == "dead_lettered"
    # All of them come back with the next requeue.
    requeue(db, parent)
    tell_all(db)
    assert counts(db, first) == {"blocked": MANY}


@pytest.mark.parametrize("in_batch", [False, True])
def test_requeue_leaves_those_of_an_earlier_one_to_ticks(
    served: Sql, in_batch: bool
) -> None:
    """An operation undoes what is its own, and they wait again all the same."""
    db = served
    batch = batch_of(db)[0] if in_batch else None
    earlier, other = (db.enqueue("a", batch_id=batch) for _ in range(2))
    if batch is not None:
        seal(db, batch)
    first = many(db, None if in_batch else earlier, batch)
    child = child_of(db, other)
    for each in (earlier, other):
        end(db, each, "dead_lettered")
    tell_all(db)
    requeue(db, earlier)
    known = {"blocked": AT_ONCE, "cancelled": MANY - AT_ONCE + 1}
    assert counts(db, first) == known
    db.insert("litejobs_operation", name="by hand")
    requeue(db, other)
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")
    assert state(db, child) == "blocked"
    assert db.value("select count(*) from litejobs_change where kind = 'job'") == 2
    db.execute("insert into litejobs_undo (operation) values (null)")
    assert counts(db, first) == known
    tell_all(db)
    assert counts(db, first) == {"blocked": MANY, "cancelled": 1}


@pytest.mark.every_client
def test_order_of_telling_is_not_changed(served: Sql) -> None:
    db = served
    parent = db.enqueue("a")
    many(db, parent)
    end(db, parent, "completed")
    assert "invalid_telling" in db.refused("update litejobs_telling set id = id + 1")
    assert "invalid_telling" in db.refused(
        "insert or replace into litejobs_telling "
        "(id, parent_state, told_id, last_id) values (1, 'completed', 0, 0)"
    )


# However many are told at once --------------------------------------------------------


@functools.cache
def told_by(most: int) -> Sql:
    """A file in which so many hear of an end at once: one for all lives."""
    db = on_apsw(traced=False)
    db.execute("drop view litejobs__notified_at_once")
    db.execute(f"create view litejobs__notified_at_once as select {most} as most")
    return db


def levels_below(db: Sql, *widths: int) -> int:
    """A job with so many children, each of which has so many, and so on."""
    root = db.enqueue("a")
    level = [root]
    for width in widths:
        level = [child_of(db, parent) for parent in level for _ in range(width)]
    return root


@for_each("widths", [(2, 6), (1, 3, 4), (5, 1, 1)])
@for_each("ticks", [0, 1, 2, 3, 5, 8])
def test_who_waits_again_hears_that_a_job_far_above_failed_once_more(
    widths: tuple[int, ...], ticks: int
) -> None:
    """Also while ticks still have those below to put back: none is waited for."""
    with as_new(told_by(3)) as db:
        db.serve("a", max_attempts=1)
        root = levels_below(db, *widths)
        below = len(db.column("select id from litejobs_job")) - 1
        for how in ("dead_lettered", "cancelled", "dead_lettered"):
            end(db, root, how)
            tell_all(db)
            assert counts(db, root + 1) == {"cancelled": below}
            requeue(db, root)
            for _ in range(ticks):
                db.tick()
        tell_all(db)
        assert counts(db, root + 1) == {"blocked": below}


def test_who_was_cancelled_before_hearing_of_a_failure_is_no_news_of_it() -> None:
    """Those who wait for it hear of it once, and of all that ends later."""
    with as_new(told_by(3)) as db:
        db.serve("a", max_attempts=1)
        parent = levels_below(db, 3)
        *_, last = [child_of(db, parent, on_parent_failure="block") for _ in range(3)]
        for _ in range(9):
            child_of(db, last)
        end(db, parent, "dead_lettered")
        cancel(db, last)
        tell_all(db)
        assert counts(db, last) == {"cancelled": 10}
        assert counts(db, parent + 4) == {"blocked": 2, "cancelled": 10}


@for_each("how", ["completed", "dead_lettered", "cancelled"])
@for_each("ticks", [0, 1, 9])
def test_batch_may_end_once_more_before_all_wait_for_it_again(
    how: str, ticks: int
) -> None:
    with as_new(told_by(3)) as db:
        db.serve("a", max_attempts=1)
        batch, member = batch_of(db, members=1, sealed=True)
        for _ in range(10):
            after_batch(db, batch)
        end(db, member, "dead_lettered")
        tell_all(db)
        assert counts(db, member + 1) == {"cancelled": 10}
        requeue(db, member)
        for _ in range(ticks):
            db.tick()
        end(db, member, how)
        tell_all(db)
        known = "pending" if how == "completed" else "cancelled"
        assert counts(db, member + 1) == {known: 10}


@for_each("widths", [(2, 6), (1, 3, 4), (5, 1, 1)])
@for_each("ticks", [0, 1, 2, 3, 5, 8])
def test_what_ticks_told_those_far_below_is_undone_with_the_operation(
    widths: tuple[int, ...], ticks: int
) -> None:
    """Also where each of them has few who wait for it."""
    with as_new(told_by(3)) as db:
        db.serve("a", max_attempts=1)
        root = levels_below(db, *widths)
        below = len(db.column("select id from litejobs_job")) - 1
        for act, before in ((cancel, "blocked"), (requeue, "cancelled")):
            db.insert("litejobs_operation", name="by hand")
            act(db, root)
            db.execute(
                "update litejobs_operation set state = 'done' where state = 'open'"
            )
            for _ in range(ticks):
                db.tick()
            db.execute("insert into litejobs_undo (operation) values (null)")
            tell_all(db)
            assert counts(db, root + 1) == {before: below}
            db.execute("delete from litejobs_operation")
            if act is cancel:
                end(db, root, "dead_lettered")
                tell_all(db)


def again(db: Sql, chance: random.Random) -> None:
    """One that could not go on is put back in line; all know it, or not yet."""
    failed = db.column(
        "select id from litejobs_job where stopped_by is not 'parent_failed' "
        "and (state = 'dead_lettered' or state = 'cancelled') order by id"
    )
    if not failed:
        return
    job = chance.choice(failed)
    known, cancelled = chance.random() < 0.5, chance.random() < 0.3
    try:
        requeue(db, job)
    except ERRORS:
        return
    if known:
        tell_all(db)
    if cancelled:
        cancel(db, job)
        tell_all(db)


def life(db: Sql, chance: random.Random) -> list[tuple[Any, ...]]:
    """What becomes of jobs that wait for one another in all ways, whoever fails."""
    db.serve("a", max_attempts=1)
    batches = [batch_of(db)[0] for _ in range(2)]
    jobs: list[int] = []
    for _ in range(14):
        job = db.enqueue(
            "a",
            on_parent_failure=chance.choice([None, "cancel", "cancel", "run", "block"]),
            on_parent_success=chance.choice([None, None, None, "cancel"]),
            batch_id=chance.choice([None, None, *batches]),
        )
        for parent in chance.sample(jobs, min(len(jobs), chance.randrange(4))):
            wait_for(db, job, parent)
        jobs.append(job)
    for batch in batches:
        jobs += [
            after_batch(db, batch, on_parent_failure=chance.choice([None, "run"]))
            for _ in range(chance.randrange(4))
        ]
        seal(db, batch)
        tell_all(db)
    while ready := db.column(
        "select id from litejobs_job where state = 'pending' order by id"
    ):
        job = chance.choice(ready)
        end(
            db,
            job,
            chance.choice(["completed", "completed", "dead_lettered", "cancelled"]),
        )
        tell_all(db)
        if chance.random() < 0.4:
            # What has failed is put back in line, or a person has second thoughts.
            again(db, chance)
    return db.execute("select id, state, stopped_by from litejobs_job order by id") + (
        db.execute("select id, state, 0 from litejobs_batch order by id")
    )


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(each, marks=[] if each in range(20, 30) else pytest.mark.torture)
        for each in range(40)
    ],
)
def test_jobs_end_the_same_however_many_are_told_at_once(seed: int) -> None:
    ends = []
    for most in (500, 3, 1):
        with as_new(told_by(most)) as db:
            ends.append(life(db, random.Random(seed)))
    assert ends[0] == ends[1] == ends[2]
