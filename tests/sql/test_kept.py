"""What is kept of jobs that have ended, whatever their age: by plain SQL."""

from __future__ import annotations

import json

import pytest

from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, START_MS, Sql
from tests.sql.test_dependency import (
    after_batch,
    batch_of,
    cancel,
    child_of,
    end,
    seal,
    state,
)
from tests.sql.test_schedule import add, begin, finish, fired, go, ledger


@pytest.fixture
def served(held: Sql) -> Sql:
    """A runner has the task."""
    held.serve("a")
    return held


def may_go(db: Sql) -> list[int]:
    """The jobs that may be deleted because they are old."""
    return db.column("select id from litejobs__purgeable where not is_last order by id")


# What belongs to something unfinished ------------------------------------------------


@pytest.mark.parametrize("how", ["completed", "dead_lettered", "cancelled"])
def test_a_parent_stays_until_the_last_of_its_children_has_ended(
    served: Sql, how: str
) -> None:
    db = served
    parent, other = db.enqueue(max_attempts=1), db.enqueue()
    given = {"on_parent_failure": "run"}
    children = [child_of(db, parent, **given) for _ in range(2)]
    end(db, parent, how)
    end(db, other, "completed")
    assert may_go(db) == [other]
    end(db, children[0], "completed")
    assert may_go(db) == [other, children[0]]
    cancel(db, children[1])
    assert may_go(db) == [parent, other, *children]


def test_a_parent_of_a_job_that_waits_for_good_stays(served: Sql) -> None:
    db = served
    parent = db.enqueue(max_attempts=1)
    child = child_of(db, parent, on_parent_failure="block")
    end(db, parent, "dead_lettered")
    assert state(db, child) == "blocked"
    assert may_go(db) == []


def test_members_of_a_batch_stay_until_it_has_ended(served: Sql) -> None:
    db = served
    batch, first, second = batch_of(db, members=2)
    _, other = batch_of(db, members=1, sealed=True)
    end(db, first, "completed")
    end(db, other, "completed")
    assert may_go(db) == [other]
    seal(db, batch)
    assert may_go(db) == [other]
    end(db, second, "completed")
    assert may_go(db) == [first, second, other]


def test_members_of_a_batch_stay_while_a_job_that_waited_for_it_has_not_ended(
    served: Sql,
) -> None:
    """It reads their results."""
    db = served
    batch, member = batch_of(db, members=1, sealed=True)
    callback = after_batch(db, batch)
    end(db, member, "completed")
    assert state(db, callback) == "pending"
    assert may_go(db) == []
    end(db, callback, "completed")
    assert may_go(db) == [member, callback]


def test_the_job_of_the_last_instant_of_a_schedule_goes_by_hand_alone(
    served: Sql,
) -> None:
    """What became of it is asked for until there is a later one."""
    db = served
    db.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR)
    first, second = fired_now(db), fired_now(db)
    assert db.column("select id from litejobs__purgeable order by id") == [
        first,
        second,
    ]
    assert may_go(db) == [first]
    db.execute("delete from litejobs_schedule")
    assert may_go(db) == [first, second]


def fired_now(db: Sql) -> int:
    """A person runs the schedule; the job, which has ended well."""
    db.execute("insert into litejobs_run_now (schedule_id) values (1)")
    job = int(db.value("select max(id) from litejobs_job"))
    end(db, job, "completed")
    return job


# Unique keys of jobs that have gone ---------------------------------------------------


def windows(db: Sql) -> list[tuple[str, int, int]]:
    """The keys that hold though their jobs have gone: key, job, until when."""
    return [
        tuple(row)
        for row in db.execute(
            "select unique_key, job_id, until_at from litejobs_unique_window "
            "order by unique_key"
        )
    ]


def done(db: Sql, key: str = "k", **columns: int) -> int:
    """A completed job that keeps its key for a while, and has been deleted."""
    job = db.job_in("completed", unique_key=key, **{"unique_for_ms": HOUR, **columns})
    db.execute("delete from litejobs_job where id = ?", (job,))
    return job


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_a_key_holds_off_others_though_its_job_has_gone(served: Sql, how: str) -> None:
    db = served
    job = done(db)
    assert windows(db) == [("k", job, db.now + HOUR)]
    db.wait(HOUR - 1)
    for said in ("ignore", "replace", "debounce"):
        db.insert("litejobs_job", how, task="a", unique_key="k", on_conflict=said)
    assert db.column("select id from litejobs_job") == []
    [found] = db.query("find_by_unique_key", unique_key="k")
    assert found.job_id == job
    for said in ("null", "'raise'"):
        assert db.refused(
            f"{how} into litejobs_job (task, unique_key, on_conflict) "
            f"values ('a', 'k', {said})"
        ).startswith("unique_key_taken: ")
    db.wait(1)
    assert db.query("find_by_unique_key", unique_key="k") == []
    db.insert("litejobs_job", how, task="a", unique_key="k")
    assert db.column("select unique_key from litejobs_job") == ["k"]


@pytest.mark.parametrize("ended", ["dead_lettered", "cancelled"])
def test_a_key_whose_job_was_not_completed_leaves_nothing(
    served: Sql, ended: str
) -> None:
    db = served
    job = db.job_in(ended, unique_key="k", unique_for_ms=HOUR)
    db.execute("delete from litejobs_job where id = ?", (job,))
    plain = db.job_in("completed", unique_key="k")
    db.execute("delete from litejobs_job where id = ?", (plain,))
    over = db.job_in("completed", unique_key="k", unique_for_ms=HOUR)
    db.wait(HOUR)
    db.execute("delete from litejobs_job where id = ?", (over,))
    assert windows(db) == []


def test_of_two_that_have_gone_the_one_that_holds_longest_is_remembered(
    served: Sql,
) -> None:
    """The second was asked for when the first had ended, and its time passed."""
    db = served
    first = db.job_in("completed", unique_key="k", unique_for_ms=HOUR)
    db.wait(2 * HOUR)
    second = db.job_in("completed", unique_key="k", unique_for_ms=3 * HOUR)
    until = db.now + 3 * HOUR
    db.wait(-90 * MINUTE)  # by which the first holds again
    db.execute("delete from litejobs_job where id = ?", (second,))
    db.execute("delete from litejobs_job where id = ?", (first,))
    assert windows(db) == [("k", second, until)]


def test_keys_that_hold_no_more_go_an_hour_later_together(served: Sql) -> None:
    db = served
    done(db, "a")
    db.wait(MINUTE)
    done(db, "b")
    ends = db.now - MINUTE + HOUR
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at == ends + HOUR
    db.insert("litejobs_leftover", kind="lane", name="9", due_at=db.now + MINUTE)
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at == db.now + MINUTE
    db.wait(2 * HOUR - MINUTE - 1)
    db.tick()
    assert [key for key, *_ in windows(db)] == ["a", "b"]
    db.wait(1)
    db.tick()
    assert [key for key, *_ in windows(db)] == ["b"]
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at == ends + MINUTE + HOUR
    db.wait(MINUTE)
    db.tick()
    assert windows(db) == []
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at is None


def test_a_key_holds_no_longer_when_the_clock_has_gone_back(served: Sql) -> None:
    db = served
    db.tick()
    job = done(db)
    db.wait(MINUTE)
    db.tick()
    db.wait(-DAY)
    db.tick()
    assert windows(db) == [("k", job, db.now + HOUR - MINUTE)]


def test_an_instant_is_skipped_for_a_key_whose_job_has_gone(served: Sql) -> None:
    db = served
    job = done(db)
    db.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR, unique_key="k")
    db.execute("insert into litejobs_run_now (schedule_id) values (1)")
    [row] = db.rows("select state, reason, job_id from litejobs_occurrence")
    assert (row.state, row.reason, row.job_id) == ("skipped", "unique_key", job)
    [found] = db.query("job_by_hand", schedule_id=1, last_job=job)
    assert vars(found).popitem()[1] == job


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"unique_key": ""}, "key_length"),
        ({"unique_key": "k" * 501}, "key_length"),
        ({"until_at": -1}, "until_in_range"),
        ({"until_at": 256558060800000}, "until_in_range"),
    ],
)
def test_what_such_a_key_cannot_be_is_refused(
    served: Sql, columns: dict[str, object], constraint: str
) -> None:
    row = {"unique_key": "k", "job_id": 1, "until_at": 1, **columns}
    sentence = served.refused(
        "insert into litejobs_unique_window (unique_key, job_id, until_at) "
        "values (?, ?, ?)",
        tuple(row.values()),
    )
    assert f"litejobs_unique_window_{constraint}" in sentence


# What schedules have done -------------------------------------------------------------

WEEK = 7 * DAY


def gone(db: Sql) -> list[tuple[int, int]]:
    """Of which parts the ledger knows no more, in seconds since the start."""
    return [
        ((row.from_at - START_MS) // SECOND, (row.until_at - START_MS) // SECOND)
        for row in db.rows(
            "select * from litejobs_schedule_horizon order by schedule_id, from_at"
        )
    ]


def purge(db: Sql) -> None:
    """All that has ended is deleted by hand."""
    db.execute("delete from litejobs_job where finished_at is not null")


def test_with_the_jobs_of_a_schedule_goes_its_ledger_but_the_last_row(
    held: Sql,
) -> None:
    begin(held)
    add(held, HOUR, overlap="skip")
    go(held, HOUR)
    for _ in range(2):
        go(held, HOUR)  # skipped, since the first one has not begun
    finish(held)
    go(held, HOUR)
    finish(held)
    hour = HOUR // SECOND
    later = [(2 * hour, "skipped"), (3 * hour, "skipped"), (4 * hour, "fired")]
    assert [row[:2] for row in ledger(held)] == [(hour, "fired"), *later]
    held.execute("delete from litejobs_job where id = 1")
    assert [row[:2] for row in ledger(held)] == later
    assert gone(held) == [(hour, hour)]
    held.execute("delete from litejobs_job where id = 2")
    assert [row[:2] for row in ledger(held)] == [(4 * hour, "fired")]
    assert gone(held) == [(hour, 3 * hour)]
    go(held, HOUR)
    finish(held)
    purge(held)
    assert [row[:2] for row in ledger(held)] == [(5 * hour, "fired")]


def test_a_job_that_is_kept_keeps_what_the_ledger_has_of_it(held: Sql) -> None:
    begin(held)
    add(held, HOUR)
    for _ in range(4):
        go(held, HOUR)
        finish(held)
    held.execute("delete from litejobs_job where id in (1, 3)")
    assert [(row[0] * SECOND // HOUR, row[1]) for row in ledger(held)] == [
        *((2, "fired"), (4, "fired"))
    ]


@pytest.mark.parametrize("step", [90 * MINUTE, 10 * HOUR, 3 * DAY])
def test_a_clock_that_goes_back_fires_nothing_again_that_was_deleted(
    held: Sql, step: int
) -> None:
    """What names an hour waits; so a calendar of days is asked as others are."""
    begin(held)
    add(held, HOUR)
    seen = []
    for _ in range(6):
        go(held, HOUR)
        finish(held)
        seen += fired(held)
        purge(held)
    held.wait(-step)
    held.tick()
    held.execute("update litejobs_schedule set clock_steps = 0")  # it names hours
    for _ in range(2 + step // HOUR):
        go(held, HOUR)
        finish(held)
        seen += fired(held)
        purge(held)
    # Hours before the first that there was are new, and so are those after the last.
    assert len(seen) == len(set(seen))
    assert max(seen) > 6 * HOUR // SECOND


def test_intervals_go_on_in_time_of_which_the_ledger_knows_no_more(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    for _ in range(20):
        go(held, MINUTE)
        finish(held)
        purge(held)
    held.wait(-15 * MINUTE)
    held.tick()
    again = []
    for _ in range(10):
        go(held, MINUTE)
        again += fired(held)
        finish(held)
        purge(held)
    assert len(set(again)) == len(again) >= 9


def test_years_that_a_wrong_clock_has_passed_over_are_not_lost(held: Sql) -> None:
    begin(held)
    add(held, DAY)
    for days in (1, 1, 3650, 1, 1):
        go(held, days * DAY)
        finish(held)
    purge(held)
    day = DAY // SECOND
    assert gone(held) == [(day, 2 * day), (3652 * day, 3653 * day)]
    held.wait(-3652 * DAY)
    held.tick()
    held.execute("update litejobs_schedule set clock_steps = 0")  # it names hours
    for _ in range(3):
        go(held, DAY)
        finish(held)
    assert fired(held) == [3 * day, 4 * day, 5 * day]


def test_parts_that_are_a_week_apart_are_two(held: Sql) -> None:
    begin(held)
    add(held, WEEK)
    add(held, WEEK + HOUR, name="t")
    for _ in range(4):
        go(held, WEEK + HOUR)
        finish(held)
    purge(held)
    week, more = WEEK // SECOND, (WEEK + HOUR) // SECOND
    assert gone(held) == [(week, 3 * week), *((n * more,) * 2 for n in (1, 2, 3))]


def test_what_may_have_been_done_is_not_filled_in(held: Sql) -> None:
    begin(held)
    schedule = add(held, HOUR)
    for _ in range(4):
        go(held, HOUR)
        finish(held)
    purge(held)
    backfill = "insert into litejobs_backfill (schedule_id, at) values (?, ?)"
    for hours in (1, 2, 3):
        sentence = held.refused(backfill, (schedule, START_MS + hours * HOUR))
        assert sentence.startswith("pruned_instant: what the schedule did at that time")
    for hours in (0, 4):
        held.execute(backfill, (schedule, START_MS + hours * HOUR))
    assert fired(held) == [0]
    asked = json.dumps([START_MS + n * HOUR for n in range(6)])
    [first] = held.query("unknown_instants", schedule_id=schedule, instants=asked)
    assert (first.at, first.until_at) == (START_MS + HOUR, START_MS + 3 * HOUR)


def test_what_was_deleted_does_not_come_back(held: Sql) -> None:
    begin(held)
    add(held, HOUR)
    for _ in range(4):
        go(held, HOUR)
        finish(held)
    purge(held)
    for change in ("from_at = from_at + 1", "until_at = until_at - 1"):
        sentence = held.refused(f"update litejobs_schedule_horizon set {change}")
        assert sentence.startswith("immutable_horizon: ")
    held.refused("update litejobs_schedule_horizon set schedule_id = 2")
    sentence = held.refused(
        "insert into litejobs_schedule_horizon (schedule_id, from_at, until_at) "
        "values (1, 5, 4)"
    )
    assert "litejobs_schedule_horizon_is_a_stretch" in sentence
    held.execute("delete from litejobs_schedule")
    assert gone(held) == []


def test_a_removed_schedule_that_comes_back_knows_what_was_deleted(held: Sql) -> None:
    begin(held)
    add(held, HOUR)
    for _ in range(4):
        go(held, HOUR)
        finish(held)
    purge(held)
    before = gone(held)
    held.insert("litejobs_operation", name="remove")
    held.execute("delete from litejobs_schedule")
    held.execute("update litejobs_operation set state = 'done'")
    assert gone(held) == []
    held.insert("litejobs_undo", operation=None)
    assert gone(held) == before == [(3600, 3 * 3600)]


def aged(db: Sql, most: int = 100) -> None:
    """A pass through all, of a clock that is right."""
    db.execute(
        "insert into litejobs__retain (most, process, is_held) values (?, null, 1)",
        (most,),
    )
    for _ in range(50):
        if db.value("select stage from litejobs_retaining") == "rest":
            return
        db.execute(
            "insert into litejobs__retain (most, process, is_held) values (?, 'p', 1)",
            (most,),
        )
    raise AssertionError("the pass goes on after 50 steps")


MONTH = 30 * DAY


def decided(db: Sql, schedule: int) -> list[tuple[int, str]]:
    """The ledger of a schedule: days since the start, and what became of each."""
    return [
        ((row.at - START_MS) // DAY, row.state)
        for row in db.rows(
            "select at, state from litejobs_occurrence where state <> 'planned' "
            "and schedule_id = ? order by at",
            (schedule,),
        )
    ]


def test_instants_that_fired_nothing_go_with_their_age(held: Sql) -> None:
    """The job before them has not ended, so no job takes them along."""
    begin(held)
    held.insert("litejobs_retaining", id=1, full_at=0)
    schedules = [add(held, DAY, overlap="skip", name=each) for each in ("s", "t")]
    for _ in range(50):
        go(held, DAY)
    before = decided(held, 1)
    assert before == [(1, "fired"), *((day, "skipped") for day in range(2, 51))]
    aged(held, 3)
    for each in schedules:
        assert decided(held, each) == [before[0], *before[20:]]
    day = DAY // SECOND
    assert gone(held) == [(2 * day, 20 * day)] * 2


def test_the_last_line_of_a_schedule_stays_however_old_it_is(held: Sql) -> None:
    begin(held)
    held.insert("litejobs_retaining", id=1, full_at=0)
    schedule = add(held, DAY, overlap="skip")
    for _ in range(4):
        go(held, DAY)
    held.execute("update litejobs_schedule set paused = 1 where id = ?", (schedule,))
    held.wait(3 * MONTH)
    aged(held)
    assert decided(held, schedule) == [(1, "fired"), (4, "skipped")]


@pytest.mark.parametrize("step", [90 * MINUTE, 10 * HOUR, 3 * DAY])
def test_an_instant_that_went_with_its_age_is_not_fired_after_all(
    held: Sql, step: int
) -> None:
    begin(held)
    held.insert("litejobs_retaining", id=1, full_at=0)
    held.execute("update litejobs_retention set age_ms = 0 where kind = 'event'")
    add(held, HOUR, overlap="skip")
    for _ in range(8):
        go(held, HOUR)
        held.wait(MINUTE)
        aged(held)
    hour = HOUR // SECOND
    assert fired(held) == [hour]
    assert gone(held) == [(2 * hour, 7 * hour)]
    finish(held)
    held.wait(-step)
    held.tick()
    held.execute("update litejobs_schedule set clock_steps = 0")  # it names hours
    for _ in range(2 + step // HOUR):
        go(held, HOUR)
        finish(held)
    again = fired(held)[1:]
    assert again != []
    assert not {hour * n for n in range(1, 9)} & set(again)


# Up to where something of the log has gone --------------------------------------------


def horizon(db: Sql) -> dict[str, tuple[int, int]]:
    """By task: the last number that has gone, and how long after the start it was."""
    return {
        row.task: (row.log_id, row.at - START_MS)
        for row in db.rows("select * from litejobs_horizon")
    }


def last_number(db: Sql) -> int:
    """The number of the last line of the log."""
    return int(db.query("last_event")[0].__dict__.popitem()[1])


def test_with_a_job_it_is_remembered_up_to_where_its_lines_went(served: Sql) -> None:
    db = served
    db.serve("b")
    first = db.job_in("completed")
    number = last_number(db)
    db.wait(MINUTE)
    second = db.job_in("dead_lettered", task="b")
    other = last_number(db)
    third = db.job_in("cancelled", task="b")
    assert horizon(db) == {}
    db.execute("delete from litejobs_job where id = ?", (second,))
    assert horizon(db) == {"b": (other, MINUTE)}
    db.execute("delete from litejobs_job where id = ?", (first,))
    assert horizon(db) == {"a": (number, 0), "b": (other, MINUTE)}
    db.execute("delete from litejobs_job where id = ?", (third,))
    assert horizon(db)["b"] == (last_number(db), MINUTE)


def test_an_older_job_that_goes_later_takes_no_horizon_back(served: Sql) -> None:
    db = served
    first, second = db.job_in("completed"), db.job_in("completed")
    number = last_number(db)
    for job in (second, first):
        db.execute("delete from litejobs_job where id = ?", (job,))
        assert horizon(db) == {"a": (number, 0)}


def test_a_line_after_the_last_attempt_counts(served: Sql) -> None:
    """It was requeued by hand, and cancelled."""
    db = served
    job = db.job_in("completed")
    db.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    cancel(db, job)
    db.execute("delete from litejobs_job where id = ?", (job,))
    assert horizon(db) == {"a": (last_number(db), 0)}


def test_what_is_about_no_job_or_an_unknown_task_is_under_no_name(held: Sql) -> None:
    db = held
    db.execute("update litejobs_queue set paused = 1")
    db.insert("litejobs_queue", name="mail", paused=1)
    line = int(db.value("select max(id) from litejobs_line where job_id is null"))
    db.execute("insert into litejobs__leave (kind, name) values ('line', ?)", (line,))
    db.execute("delete from litejobs_line where id = ?", (line,))
    assert horizon(db) == {"": (line, 0)}
    job = db.enqueue("nobody knows it")
    cancel(db, job)
    db.execute("delete from litejobs_job where id = ?", (job,))
    assert horizon(db) == {"": (last_number(db), 0)}


def test_a_horizon_is_never_taken_back(served: Sql) -> None:
    db = served
    job = db.job_in("completed")
    db.execute("delete from litejobs_job where id = ?", (job,))
    for change in ("log_id = log_id - 1", "task = 'b'"):
        sentence = db.refused(f"update litejobs_horizon set {change}")
        assert sentence.startswith("immutable_horizon: ")
    for row, constraint in (
        (("c" * 201, 1, 1), "task_length"),
        (("c", -1, 1), "place_in_range"),
    ):
        sentence = db.refused("insert into litejobs_horizon values (?, ?, ?)", row)
        assert f"litejobs_horizon_{constraint}" in sentence


# Figures are of what is known whole ---------------------------------------------------


def test_figures_of_a_task_begin_after_its_last_job_that_was_deleted(
    served: Sql,
) -> None:
    """Else those that were kept, because they failed, would be all that counts."""
    db = served
    db.serve("b")
    db.execute("update litejobs_runner set threads = 1")
    for task in ("a", "b"):
        for status in ("error", "ok"):
            db.settle(db.begin(db.enqueue(task, max_attempts=1)), status)
    retried = db.enqueue("a")
    for status in ("error", "ok"):
        db.settle(db.begin(retried), status)
    [before] = db.rows("select * from litejobs_measures")
    assert (before.ended, before.dead_lettered, before.retries) == (5, 2, 1)
    assert before.horizon_at is None
    db.wait(MINUTE)
    db.execute(
        "delete from litejobs_job where task = 'a' and state = 'completed'"
    )  # those that went well are not kept as long
    [found] = db.rows("select * from litejobs_measures")
    assert (found.ended, found.dead_lettered, found.retries) == (2, 1, 0)
    assert (found.retried, found.retried_succeeded) == (0, 0)
    assert found.horizon_at == START_MS
    assert found.capacity_ms == MINUTE
    assert set(db.column("select task from litejobs__activity")) == {"b"}
    db.settle(db.begin(db.enqueue("a")), "ok")
    [found] = db.rows("select * from litejobs_measures")
    assert (found.ended, found.dead_lettered) == (3, 1)
    what = "select what from litejobs__activity where task = 'a' order by id"
    assert db.column(what) == ["started", "completed"]


def test_a_clock_that_was_ahead_is_no_horizon(served: Sql) -> None:
    db = served
    db.wait(3650 * DAY)
    job = db.job_in("completed")
    db.execute("delete from litejobs_job where id = ?", (job,))
    db.wait(-3650 * DAY)
    db.settle(db.begin(db.enqueue()), "ok")
    [found] = db.rows("select ended, horizon_at from litejobs_measures")
    assert (found.ended, found.horizon_at) == (1, None)
