"""What goes when it was kept long enough: sql/logic/retention.

`step` is what a runner says when it has nothing else to do. It has run as long as the
clock has moved, unless a story says otherwise.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, Sql
from tests.sql.test_dependency import cancel, child_of, end

WEEK = 7 * DAY
MONTH = 30 * DAY
MANY = 40  # steps, which no pass here takes


@pytest.fixture
def file(held: Sql) -> Sql:
    """A new file, whose first pass is in an hour, that knows a task."""
    held.insert("litejobs_retaining", id=1, full_at=held.now + HOUR)
    held.serve("a")
    return held


@pytest.fixture
def sure(file: Sql) -> Sql:
    """The same with a clock that has been steady for a day."""
    file.execute("update litejobs_clock_watch set steady_ms = ?", (DAY,))
    return file


def step(
    db: Sql,
    most: int = 100,
    *,
    ran: int | None = None,
    process: str | None = "p",
    held: bool | None = None,
) -> None:
    """A step, of a process that has run for so long, or has a clock that is held."""
    db.execute(
        "insert into litejobs__retain (most, ran_ms, process, is_held) "
        "values (?, ?, ?, ?)",
        (most, ran, process, ran is None if held is None else held),
    )


def due(db: Sql) -> bool:
    """Whether a runner would make a step now."""
    at = db.value("select next_retention_at from litejobs_agenda")
    return at is not None and at <= db.now


def steps(db: Sql, most: int = 100) -> int:
    """All that are due, and how many these were."""
    for count in range(MANY):
        if not due(db):
            return count
        step(db, most)
    raise AssertionError(f"a step is due after {MANY} of them")


def ids(db: Sql) -> list[int]:
    return db.column("select id from litejobs_job order by id")


def lines(db: Sql) -> list[tuple[Any, ...]]:
    """What the log says of purges, by whom."""
    return db.execute(
        "select subject, origin from litejobs__transition where note = 'jobs' "
        "order by id"
    )


def keep(
    db: Sql, kind: str, age: int | None, most: int | None = None, **of: str
) -> None:
    """As a person says it."""
    db.execute(
        "insert into litejobs_retention (kind, task, queue, age_ms, most) "
        "values (?, ?, ?, ?, ?) on conflict (kind, task, queue) do update "
        "set age_ms = excluded.age_ms, most = excluded.most",
        (kind, of.get("task", ""), of.get("queue", ""), age, most),
    )


# By age -------------------------------------------------------------------------------


def test_a_new_file_keeps_jobs_for_a_week_and_dead_letters_for_ever(sure: Sql) -> None:
    ended = [sure.job_in(each) for each in ("completed", "cancelled", "dead_lettered")]
    sure.wait(WEEK - 1)
    steps(sure)
    assert ids(sure) == ended
    sure.wait(HOUR)
    steps(sure)
    assert ids(sure) == [ended[2]]
    sure.wait(52 * WEEK)
    steps(sure)
    assert ids(sure) == [ended[2]]


def test_what_can_come_back_is_kept_as_long_as_what_failed(sure: Sql) -> None:
    first = sure.enqueue(max_attempts=1)
    child = child_of(sure, first)
    lower = child_of(sure, child)
    sure.execute("insert into litejobs_batch default values")
    batch = sure.value("select max(id) from litejobs_batch")
    member = sure.enqueue(max_attempts=1, batch_id=batch)
    sure.execute("update litejobs_batch set state = 'sealed'")
    after = sure.enqueue()
    sure.insert("litejobs_dependency", job_id=after, batch_id=batch)
    other = sure.enqueue()
    sure.fail(first)
    sure.fail(member)
    cancel(sure, other)
    sure.wait(WEEK + HOUR)
    steps(sure)
    assert ids(sure) == [first, child, lower, member, after]
    sure.execute("delete from litejobs_job where id in (?, ?)", (first, member))
    for left in ([lower], []):
        sure.wait(HOUR)
        steps(sure)
        assert ids(sure) == left


def test_it_has_what_that_needs_from_its_first_row_on(held: Sql) -> None:
    for table in ("meta", "retaining", "clock_watch"):
        held.execute(f"drop trigger litejobs_{table}_delete_guard")
    for table in ("meta", "retention", "retaining", "clock_watch"):
        held.execute(f"delete from litejobs_{table}")
    held.query("record_install", version=1, path=None)
    kept = "select kind, age_ms, edited from litejobs_retention order by kind"
    assert held.execute(kept) == [
        ("attempt", None, 0),
        ("cancelled", WEEK, 0),
        ("completed", WEEK, 0),
        ("dead_lettered", None, 0),
        ("event", MONTH, 0),
        ("operation", MONTH, 0),
    ]
    assert (
        held.value("select next_retention_at from litejobs_agenda") == held.now + HOUR
    )
    assert len(held.content("litejobs_clock_watch")) == 1


def test_the_age_counts_from_the_end(sure: Sql) -> None:
    late = sure.enqueue()
    early = sure.job_in("completed", priority=5)
    sure.wait(WEEK)
    sure.fail(late, "ok")
    steps(sure)
    assert ids(sure) == [late]
    sure.wait(WEEK - HOUR)
    steps(sure)
    assert ids(sure) == [late]
    sure.wait(2 * HOUR)
    steps(sure)
    assert ids(sure) == []
    assert early != late


def test_what_has_not_ended_is_never_deleted(sure: Sql) -> None:
    states = ("scheduled", "blocked", "pending", "processing", "failed")
    jobs = [sure.job_in(each) for each in states]
    sure.wait(52 * WEEK)
    steps(sure)
    assert ids(sure) == jobs


def test_what_may_not_be_purged_is_kept_and_its_time_comes_later(sure: Sql) -> None:
    parent = sure.enqueue(max_attempts=1)
    child = child_of(sure, parent, on_parent_failure="block")
    end(sure, parent, "cancelled")
    sure.wait(WEEK + HOUR)
    steps(sure)
    assert ids(sure) == [parent, child]
    cancel(sure, child)
    sure.wait(WEEK + HOUR)
    steps(sure)
    assert ids(sure) == []


def test_a_pass_goes_on_in_steps_each_of_which_deletes_so_many(sure: Sql) -> None:
    for _ in range(25):
        sure.job_in("cancelled")
    sure.wait(WEEK + HOUR)
    counts = []
    while due(sure):
        step(sure, 10)
        counts.append(len(ids(sure)))
    assert counts == [15, 5, 0]


def test_a_step_passes_by_no_more_than_four_times_as_many(sure: Sql) -> None:
    kept = [sure.job_in("dead_lettered") for _ in range(12)]
    gone = sure.job_in("cancelled")
    sure.wait(WEEK + HOUR)
    step(sure, 2)
    assert gone in ids(sure)
    step(sure, 2)
    assert ids(sure) == kept


def test_jobs_from_when_the_clock_was_ahead_end_no_pass(sure: Sql) -> None:
    sure.wait(52 * WEEK)
    ahead = sure.job_in("completed")
    sure.wait(-52 * WEEK)
    sure.execute(
        "insert into litejobs__clock_set_back (by_ms) values (?)", (52 * WEEK,)
    )
    behind = sure.job_in("completed")
    sure.wait(WEEK + HOUR)
    steps(sure)
    assert ids(sure) == [ahead] != [behind]
    sure.wait(53 * WEEK)
    steps(sure)
    assert ids(sure) == []


def test_a_pass_that_was_planned_by_a_clock_ahead_does_not_wait_for_it(
    sure: Sql,
) -> None:
    sure.wait(WEEK)
    steps(sure)
    sure.wait(-WEEK)
    assert due(sure)
    assert steps(sure) == 1
    sure.wait(23 * HOUR)
    assert not due(sure)


def test_what_it_waits_for_goes_back_with_the_clock(sure: Sql) -> None:
    sure.execute(
        "insert into litejobs_purge (name, states, before_at, jobs) "
        "values ('x', '[]', 0, 0)"
    )
    sure.execute("update litejobs_retaining set full_at = ?", (sure.now + DAY,))
    sure.wait(-HOUR)
    sure.execute("insert into litejobs__clock_set_back (by_ms) values (?)", (HOUR,))
    assert sure.value("select full_at from litejobs_retaining") == sure.now + DAY
    assert sure.value("select until_at from litejobs_purge") == sure.now + MINUTE


def test_an_idle_file_is_looked_at_once_a_day(sure: Sql) -> None:
    for _ in range(3):
        sure.job_in("dead_lettered")
    sure.wait(HOUR)
    assert steps(sure) == 1
    for _ in range(23):
        sure.wait(HOUR)
        assert not due(sure)
    sure.wait(HOUR)
    assert steps(sure) == 1


def test_the_next_pass_is_when_the_next_job_could_go(sure: Sql) -> None:
    keep(sure, "completed", 5 * HOUR)
    sure.wait(HOUR)
    sure.job_in("completed")
    steps(sure)
    sure.wait(5 * HOUR - 1)
    assert not due(sure)
    sure.wait(1)
    assert steps(sure) == 1
    assert ids(sure) == []


# Of which task and queue --------------------------------------------------------------


def test_the_row_that_says_most_counts_alone(sure: Sql) -> None:
    sure.serve("b")
    keep(sure, "completed", 4 * DAY)
    keep(sure, "completed", 3 * DAY, queue="q")
    keep(sure, "completed", 2 * DAY, task="b")
    keep(sure, "completed", DAY, task="b", queue="q")
    of_all = sure.job_in("completed")
    of_queue = sure.job_in("completed", queue="q")
    of_task = sure.job_in("completed", task="b")
    of_both = sure.job_in("completed", task="b", queue="q")
    left = []
    for _ in range(4):
        sure.wait(DAY + 2 * MINUTE)
        steps(sure)
        left.append(ids(sure))
    assert left == [[of_all, of_queue, of_task], [of_all, of_queue], [of_all], []]
    assert of_both not in left[0]


def test_for_ever_can_be_said_of_one_task(sure: Sql) -> None:
    keep(sure, "completed", None, task="a")
    kept = sure.job_in("completed")
    gone = sure.job_in("cancelled")
    sure.wait(WEEK + HOUR)
    steps(sure)
    assert ids(sure) == [kept] != [gone]


def test_of_what_is_kept_not_at_all_nothing_is_left_ten_seconds_later(
    sure: Sql,
) -> None:
    sure.serve("b")
    keep(sure, "completed", 0, task="b")
    kept = sure.job_in("completed")
    sure.wait(HOUR)
    first = sure.job_in("completed", task="b")
    steps(sure)
    assert ids(sure) == [kept, first]
    sure.wait(10 * SECOND)
    second = sure.job_in("completed", task="b")
    steps(sure)
    assert ids(sure) == [kept, second]
    sure.wait(10 * SECOND - 1)
    steps(sure)
    assert ids(sure) == [kept, second]
    sure.wait(1)
    assert due(sure)
    steps(sure)
    assert ids(sure) == [kept]


def test_what_is_kept_not_at_all_goes_within_twenty_seconds_at_little_cost(
    sure: Sql,
) -> None:
    keep(sure, "completed", 0, task="a")
    sure.wait(2 * MINUTE)
    steps(sure)
    made, ages = 0, []
    for _ in range(50):
        job = sure.job_in("completed")
        for age in range(1, 40):
            sure.wait(SECOND)
            made += steps(sure)
            if job not in ids(sure):
                ages.append(age)
                break
        sure.wait(7 * SECOND)
    assert len(ages) == 50
    assert min(ages) >= 10
    assert max(ages) <= 20
    # One look each ten seconds, and none while there is nothing.
    assert made <= 150
    sure.wait(10 * MINUTE)
    assert not due(sure)


def test_one_that_ends_late_is_found_each_minute_within_an_hour(sure: Sql) -> None:
    keep(sure, "completed", 0, task="a")
    sure.wait(2 * MINUTE)
    steps(sure)
    slow = sure.job_in("processing")
    for _ in range(3):
        sure.wait(MINUTE)
        steps(sure)
    sure.settle(sure.job(slow).attempt_id)
    sure.wait(MINUTE)
    steps(sure)
    assert ids(sure) == []
    sure.wait(10 * MINUTE)
    assert not due(sure)


# By number ----------------------------------------------------------------------------


def test_of_many_the_newest_stay(sure: Sql) -> None:
    keep(sure, "completed", None, 3)
    done = [sure.job_in("completed") for _ in range(20)]
    dead = [sure.job_in("dead_lettered") for _ in range(5)]
    sure.wait(HOUR)
    assert steps(sure, 2) > 3
    assert ids(sure) == done[-3:] + dead
    done += [sure.job_in("completed") for _ in range(2)]
    sure.wait(2 * HOUR)
    steps(sure)
    assert ids(sure) == sorted(done[-3:] + dead)


def test_the_newest_are_those_that_ended_last(sure: Sql) -> None:
    """However long ago they were asked for, and whatever the clock has said."""
    keep(sure, "completed", None, 2)
    keep(sure, "cancelled", None, 1)
    slow = sure.job_in("processing")
    waiting = [sure.enqueue() for _ in range(2)]
    done = [sure.job_in("completed") for _ in range(5)]
    sure.wait(-HOUR)
    sure.settle(sure.job(slow).attempt_id)
    for each in reversed(waiting):
        cancel(sure, each)
    sure.wait(2 * HOUR)
    assert steps(sure, 1) > 3
    assert ids(sure) == [slow, waiting[0], done[-1]]


def test_a_job_that_was_requeued_has_ended_when_it_last_did(sure: Sql) -> None:
    keep(sure, "completed", None, 2)
    done = [sure.job_in("completed") for _ in range(4)]
    sure.execute("update litejobs_job set state = 'pending' where id = ?", (done[0],))
    sure.settle(sure.begin(done[0]))
    sure.wait(HOUR)
    steps(sure, 1)
    assert ids(sure) == [done[0], done[-1]]


def test_each_row_counts_those_of_which_it_speaks(sure: Sql) -> None:
    sure.serve("b")
    keep(sure, "completed", WEEK, 2)
    keep(sure, "completed", WEEK, 1, task="b")
    mine = [sure.job_in("completed") for _ in range(4)]
    other = [sure.job_in("completed", task="b") for _ in range(4)]
    sure.wait(HOUR)
    steps(sure)
    assert ids(sure) == mine[-2:] + other[-1:]


def test_none_of_them_goes_in_the_minute_of_its_end(sure: Sql) -> None:
    keep(sure, "completed", None, 0)
    sure.wait(HOUR)
    job = sure.job_in("completed")
    step(sure, process=None)
    assert ids(sure) == [job]


def test_with_fewer_than_may_be_nothing_goes(sure: Sql) -> None:
    keep(sure, "completed", None, 3)
    jobs = [sure.job_in("completed") for _ in range(3)]
    sure.wait(HOUR)
    steps(sure, 1)
    assert ids(sure) == jobs


# What else is kept --------------------------------------------------------------------


def operate(db: Sql, name: str) -> None:
    """A person pauses a queue, or lets it go on."""
    db.insert("litejobs_operation", name=name)
    db.execute(
        "insert into litejobs_queue (name, paused) values ('q', 1) "
        "on conflict (name) do update set paused = 1 - paused"
    )
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")


def test_what_people_did_goes_after_a_month(sure: Sql) -> None:
    for _ in range(3):
        operate(sure, "pause")
    sure.wait(MONTH - HOUR)
    steps(sure)
    assert sure.value("select count(*) from litejobs_operation") == 3
    operate(sure, "now")
    sure.wait(DAY)
    steps(sure)
    assert sure.column("select name from litejobs_operation") == ["now"]


def test_lines_about_no_job_go_after_a_month(sure: Sql) -> None:
    sure.execute("insert into litejobs_queue (name) values ('q')")
    for paused in (1, 0, 1):
        sure.execute("update litejobs_queue set paused = ? where name = 'q'", (paused,))
    job = sure.job_in("dead_lettered")
    told = "select subject from litejobs__transition where job_id is null"
    before = len(sure.column(told))
    sure.wait(MONTH - HOUR)
    steps(sure, 1)
    sure.tick()
    assert len(sure.column(told)) == before > 2
    sure.wait(DAY)
    sure.execute("update litejobs_queue set paused = 0")
    steps(sure, 1)
    sure.tick()
    assert len(sure.column(told)) == 1
    assert sure.moves(job) != []


def test_a_line_from_when_the_clock_was_ahead_keeps_none_behind_it(sure: Sql) -> None:
    sure.execute("delete from litejobs_line")
    ahead = sure.now + 73 * 365 * DAY
    for at in (sure.now, ahead, sure.now):
        sure.execute(
            "insert into litejobs__transition (at, subject, new_state, note, origin) "
            "values (?, 'what', 'mended', 'jobs', 'sql')",
            (at,),
        )
    sure.wait(MONTH + HOUR)
    steps(sure)
    sure.execute("insert into litejobs__sweep (most) values (100)")
    assert sure.column("select at from litejobs_line order by id") == [ahead]


def test_for_ever_is_for_operations_and_lines_too(sure: Sql) -> None:
    keep(sure, "operation", None)
    keep(sure, "event", None)
    operate(sure, "pause")
    before = sure.content("litejobs_line")
    assert before != []
    sure.wait(52 * WEEK)
    steps(sure)
    sure.tick()
    assert sure.content("litejobs_line") == before
    assert sure.value("select count(*) from litejobs_operation") == 1


# The log ------------------------------------------------------------------------------


def test_the_log_has_a_line_each_hour(sure: Sql) -> None:
    for _ in range(3):
        sure.job_in("completed")
    sure.wait(WEEK + HOUR)
    steps(sure, 2)
    assert lines(sure) == []
    sure.wait(HOUR - 1)
    assert not due(sure)
    sure.wait(1)
    assert steps(sure) == 1
    assert lines(sure) == [("3 jobs kept long enough", "retention")]


def test_it_has_it_when_the_runner_ends_too(sure: Sql) -> None:
    sure.job_in("completed")
    sure.wait(WEEK + HOUR)
    steps(sure)
    sure.start_runner()
    assert lines(sure) == [("1 job kept long enough", "retention")]


def test_a_purge_that_was_killed_has_its_line_a_minute_later(sure: Sql) -> None:
    sure.job_in("completed")
    sure.execute(
        "insert into litejobs_purge (name, states, before_at, origin, jobs) "
        "values ('x', '[\"completed\"]', ?, 'cli', 25)",
        (sure.now,),
    )
    sure.wait(30 * SECOND)
    sure.execute("update litejobs_purge set jobs = 50")
    sure.wait(MINUTE - 1)
    assert not due(sure)
    sure.wait(1)
    assert due(sure)
    step(sure)
    subject = "50 jobs (completed until 2026-01-01T00:00:00.000Z)"
    assert lines(sure) == [(subject, "cli")]


def test_the_next_purge_ends_it_as_well(sure: Sql) -> None:
    purge = (
        "insert into litejobs_purge (name, states, before_at, task) "
        "values (?, ?, 5, 'a')"
    )
    sure.execute(purge, ("x", '["completed"]'))
    sure.execute("update litejobs_purge set jobs = 1")
    sure.execute(purge, ("y", '["completed"]'))
    assert len(sure.content("litejobs_purge")) == 2
    sure.wait(MINUTE)
    sure.execute(purge, ("z", '["completed"]'))
    assert sure.column("select name from litejobs_purge") == ["z"]
    subject = "1 job of task a (completed until 1970-01-01T00:00:00.005Z)"
    assert lines(sure) == [(subject, "sql")]


# The clock ----------------------------------------------------------------------------


def test_nothing_goes_by_age_before_the_clock_was_steady_for_a_day(file: Sql) -> None:
    job = file.job_in("completed")
    keep(file, "completed", HOUR)
    for _ in range(23):
        file.wait(HOUR)
        step(file, ran=HOUR)
        assert ids(file) == [job]
    file.wait(HOUR)
    step(file, ran=HOUR)
    assert ids(file) == []


@for_each(
    "jump",
    [HOUR + 1, 40 * DAY, -MINUTE - 1, -DAY],
)
def test_a_step_of_the_clock_begins_the_day_anew(sure: Sql, jump: int) -> None:
    sure.job_in("completed")
    step(sure, ran=0)
    sure.wait(WEEK + 2 * DAY)
    step(sure, ran=WEEK + 2 * DAY)
    assert ids(sure) == []
    job = sure.job_in("completed")
    sure.wait(WEEK + 2 * DAY + jump)
    step(sure, ran=WEEK + 2 * DAY, process="p")
    assert ids(sure) == [job]
    [found] = sure.rows("select * from litejobs_doctor where code like 'retention%'")
    way = "forward" if jump > 0 else "back"
    assert f"the clock was put {way} at 2026" in found.sentence
    assert "24 more hours of running time" in found.sentence
    for _ in range(24):
        sure.wait(HOUR)
        step(sure, ran=HOUR)
    assert sure.rows("select * from litejobs_doctor where code like 'ret%'") == []
    sure.wait(HOUR)
    step(sure, ran=HOUR)
    assert ids(sure) == []


def test_a_purge_that_ends_by_a_clock_ahead_does_not_wait_for_it(sure: Sql) -> None:
    sure.wait(DAY)
    sure.execute(
        "insert into litejobs_purge (name, states, before_at, jobs) "
        "values ('x', '[\"completed\"]', 0, 1)"
    )
    sure.wait(-DAY)
    step(sure)
    subject = "1 job (completed until 1970-01-01T00:00:00.000Z)"
    assert lines(sure) == [(subject, "sql")]


@for_each("drift", [HOUR, 0, -MINUTE])
def test_smaller_ones_are_let_be(sure: Sql, drift: int) -> None:
    sure.job_in("completed")
    step(sure, ran=0)
    sure.wait(WEEK + HOUR)
    step(sure, ran=WEEK + HOUR - drift)
    assert ids(sure) == []


def watch(
    db: Sql, process: str, ran: int | None, read: int | None = None
) -> tuple[int, int | None]:
    """A process says how long it has run: what that comes to."""
    db.execute(
        "insert into litejobs__watch_clock (ran_ms, process, is_held, read_ms) "
        "values (?, ?, 0, ?)",
        (ran, process, read),
    )
    return db.execute("select steady_ms, step_ms from litejobs_clock_watch")[0]  # type: ignore[return-value]


def test_between_two_processes_a_short_gap_is_a_restart(file: Sql) -> None:
    assert watch(file, "first", 5 * MINUTE) == (5 * MINUTE, None)
    file.wait(HOUR)
    assert watch(file, "second", 0) == (HOUR + 5 * MINUTE, None)
    file.wait(HOUR + 10 * MINUTE)
    assert watch(file, "third", 10 * MINUTE) == (2 * HOUR + 15 * MINUTE, None)


def test_a_longer_one_counts_as_an_hour_and_a_very_long_one_is_a_step(
    file: Sql,
) -> None:
    assert watch(file, "first", HOUR) == (HOUR, None)
    file.wait(31 * DAY + MINUTE)
    assert watch(file, "second", MINUTE) == (2 * HOUR + MINUTE, None)
    file.wait(31 * DAY + MINUTE + 1)
    assert watch(file, "third", MINUTE) == (0, 31 * DAY + 1)
    file.wait(-MINUTE)
    assert watch(file, "fourth", 0) == (0, 31 * DAY + 1)
    file.wait(-MINUTE - 1)
    assert watch(file, "fifth", None) == (0, -MINUTE - 1)


def test_it_counts_whole_where_the_other_clock_has_gone_as_far(file: Sql) -> None:
    """That goes on from one process to the next, until the computer starts again."""
    assert watch(file, "first", 0, DAY) == (0, None)
    file.wait(7 * HOUR)
    assert watch(file, "second", SECOND, DAY + 7 * HOUR + MINUTE) == (7 * HOUR, None)
    # It went further, it went less far, it began anew, nobody says how far.
    hours = 7
    for read in (DAY + 17 * HOUR, DAY + 20 * HOUR, MINUTE, None, DAY):
        file.wait(8 * HOUR)
        hours += 1
        assert watch(file, f"with {read}", 0, read) == (hours * HOUR, None)


def test_what_runs_once_a_day_deletes_what_is_old(file: Sql) -> None:
    """Though each time the computer was started before."""
    left = []
    for day in range(60):
        file.job_in("completed")
        if due(file):
            step(file, process=f"of day {day}", ran=SECOND)
        left.append(len(ids(file)))
        file.wait(DAY)
    assert max(left[:20]) > 15
    assert max(left[40:]) <= 10


def test_health_says_it_while_nothing_goes_by_its_age(file: Sql) -> None:
    def said() -> list[str]:
        return file.column(
            "select sentence from litejobs_health where code = 'retention_unwatched'"
        )

    file.execute("update litejobs_meta set installed_at = ?", (file.now,))
    file.wait(WEEK)
    watch(file, "first", 5 * HOUR)
    assert said() == []
    file.wait(DAY + MINUTE)
    [sentence] = said()
    assert "steady for 19 more hours" in sentence
    file.execute("update litejobs_retention set age_ms = null")
    assert said() == []
    file.execute("update litejobs_retention set age_ms = ? where most is null", (DAY,))
    file.execute("update litejobs_clock_watch set steady_ms = ?", (DAY,))
    assert said() == []


def test_steps_by_hand_are_no_step_of_the_clock(file: Sql) -> None:
    """A client that does not say how long it has run makes them between a runner's."""
    job = file.job_in("completed")
    file.wait(WEEK)
    step(file, ran=0)
    for _ in range(24):
        assert ids(file) == [job]
        file.wait(30 * MINUTE)
        step(file, process=None, held=False)
        file.wait(30 * MINUTE)
        step(file, ran=HOUR)
    step(file, process=None, held=False)
    assert ids(file) == []
    assert file.execute("select steady_ms, step_ms from litejobs_clock_watch") == [
        (DAY, None)
    ]


def test_one_that_a_runner_can_tell_is_told_though_others_came_between(
    sure: Sql,
) -> None:
    step(sure, ran=0)
    sure.wait(2 * HOUR)
    step(sure, process=None, held=False)
    step(sure, ran=MINUTE)
    assert sure.execute("select steady_ms, step_ms from litejobs_clock_watch") == [
        (0, 2 * HOUR - MINUTE)
    ]


def test_what_is_kept_not_at_all_goes_whatever_the_clock_does(file: Sql) -> None:
    keep(file, "completed", 0, task="a")
    keep(file, "cancelled", WEEK, 1, task="a")
    file.job_in("completed")
    jobs = [file.job_in("cancelled") for _ in range(3)]
    file.wait(52 * WEEK)
    step(file, ran=0)
    assert ids(file) == jobs[-1:]


def test_a_clock_that_a_test_holds_is_right(file: Sql) -> None:
    file.job_in("completed")
    watch(file, "p", 0)
    file.wait(WEEK)
    watch(file, "p", 0)
    step(file)
    assert ids(file) == []
    assert file.execute("select steady_ms, step_ms from litejobs_clock_watch") == [
        (DAY, None)
    ]


def ended_ahead(db: Sql, years: int = 73) -> int:
    """A job that ended when the clock was wrong, which a runner has seen."""
    watch(db, "p", 0)
    db.wait(years * 365 * DAY)
    watch(db, "p", 0)
    job = db.job_in("completed")
    db.wait(-years * 365 * DAY + MINUTE)
    step(db, ran=MINUTE)
    return job


def test_a_job_from_the_future_goes_when_the_clock_was_right_for_so_long(
    file: Sql,
) -> None:
    """It had ended when the clock was put back; when, nobody knows."""
    job = ended_ahead(file)
    new = file.job_in("completed")
    for _ in range(7 * 24):
        assert ids(file) == [job, new]
        file.wait(HOUR)
        step(file, ran=HOUR)
    assert ids(file) == []


def test_one_that_no_step_of_the_clock_explains_stays(file: Sql) -> None:
    """It may have ended a moment ago."""
    ended_ahead(file)
    file.wait(30 * SECOND)
    job = file.job_in("completed")
    file.wait(-30 * SECOND)
    keep(file, "completed", 0)
    file.wait(-30 * SECOND)
    step(file, ran=0, process=None, held=False)
    assert job in ids(file)
    file.wait(3 * MINUTE)
    step(file, ran=0, process=None, held=False)
    assert ids(file) == []


def test_the_tick_remembers_it_before_the_first_step(file: Sql) -> None:
    file.wait(365 * DAY)
    file.tick()
    job = file.job_in("completed")
    file.wait(-365 * DAY)
    file.tick()
    file.execute("update litejobs_clock_watch set steady_ms = ?", (DAY,))
    file.wait(WEEK - HOUR)
    step(file, ran=0, process=None, held=False)
    assert ids(file) == [job]
    file.wait(HOUR)
    step(file, ran=0, process=None, held=False)
    assert ids(file) == []


# Behind -------------------------------------------------------------------------------


def behind(db: Sql) -> list[str]:
    """What health says, and a doctor as well."""
    found = "select sentence from litejobs_{} where code = 'retention_behind'"
    said = db.column(found.format("health"))
    assert said == db.column(found.format("doctor"))
    return said


def test_health_says_it_when_no_step_is_made(sure: Sql) -> None:
    """The runner lives, and what it deletes is refused, say."""
    sure.job_in("completed")
    sure.wait(WEEK - HOUR)
    steps(sure)
    sure.execute(
        "create trigger mine before delete on litejobs_job "
        "begin select raise(abort, 'mine: no'); end"
    )
    sure.wait(HOUR)
    assert due(sure)
    sure.refused("insert into litejobs__retain (most, process) values (5, 'p')")
    assert behind(sure) == []
    sure.wait(10 * SECOND + 1)
    assert behind(sure) == [
        "the file keeps what should have gone: no step was made since "
        "2026-01-07T23:00:00Z, though one has been due"
    ]
    sure.execute("drop trigger mine")
    steps(sure)
    assert behind(sure) == []
    assert ids(sure) == []


def test_it_says_it_when_a_pass_comes_to_no_end(sure: Sql) -> None:
    keep(sure, "completed", HOUR)
    for _ in range(30):
        sure.job_in("completed")
    sure.wait(2 * HOUR)
    step(sure, 1)
    for _ in range(24):
        assert behind(sure) == []
        sure.wait(HOUR)
        step(sure, 1)
    sure.wait(SECOND)
    step(sure, 1)
    assert behind(sure) == [
        "the file keeps what should have gone: a look through all, begun at "
        "2026-01-01T02:00:00Z, has not come to its end"
    ]
    steps(sure)
    assert behind(sure) == []


def test_that_is_said_of_a_living_runner_and_a_clock_that_is_right(sure: Sql) -> None:
    sure.job_in("completed")
    sure.wait(2 * WEEK)
    assert behind(sure) != []
    sure.execute("update litejobs_clock_watch set steady_ms = 0")
    assert behind(sure) == []
    sure.execute("update litejobs_clock_watch set steady_ms = ?", (DAY,))
    sure.execute("update litejobs_runner set stopped_at = ?", (sure.now,))
    assert behind(sure) == []
    sure.start_runner()
    assert behind(sure) == []
    sure.wait(10 * SECOND)
    assert behind(sure) != []


# Who says so --------------------------------------------------------------------------


def declare(db: Sql, kind: str, age: int | None, task: str = "") -> None:
    """As the code says it with each start."""
    db.execute(
        "insert into litejobs__declare_retention (kind, task, queue, age_ms) "
        "values (?, ?, '', ?)",
        (kind, task, age),
    )


def said(db: Sql, kind: str = "completed") -> list[tuple[Any, ...]]:
    return db.execute(
        "select task, kept, source from litejobs_retention_report where kind = ?",
        (kind,),
    )


def test_what_a_person_has_set_stays_whatever_the_code_says(db: Sql) -> None:
    assert said(db) == [(None, "7d", "default")]
    declare(db, "completed", DAY)
    assert said(db) == [(None, "1d", "code")]
    declare(db, "completed", 90 * MINUTE)
    assert said(db) == [(None, "90m", "code")]
    keep(db, "completed", 1500)
    assert said(db) == [(None, "1500ms", "person")]
    declare(db, "completed", DAY)
    assert said(db) == [(None, "1500ms", "person")]
    db.execute("delete from litejobs_retention where kind = 'completed'")
    declare(db, "completed", 5 * SECOND)
    assert said(db) == [(None, "5s", "code")]


def test_the_same_said_again_changes_nothing(file: Sql) -> None:
    before = file.content("litejobs_retaining")
    declare(file, "completed", WEEK)
    file.execute("update litejobs_retention set age_ms = age_ms")
    assert file.content("litejobs_retaining") == before
    assert said(file) == [(None, "7d", "default")]


def test_what_the_code_says_no_more_of_a_task_goes(db: Sql) -> None:
    declared = (
        "insert into litejobs__declare_task_retention (task, kinds) values (?, ?)"
    )
    keep(db, "cancelled", 0, task="a")
    kinds = '{"completed": {"age_ms": 7200000, "most": 7}, "cancelled": {"age_ms": 5}}'
    db.execute(declared, ("a", kinds))
    assert said(db)[1:] == [("a", "2h, the newest 7 at most", "code")]
    assert said(db, "cancelled")[1:] == [("a", "not at all", "person")]
    db.execute(declared, ("a", "{}"))
    assert said(db) == [(None, "7d", "default")]
    assert said(db, "cancelled")[1:] == [("a", "not at all", "person")]


def test_for_ever_is_said_in_words(db: Sql) -> None:
    assert said(db, "dead_lettered") == [(None, "for ever", "default")]


def test_a_new_setting_is_looked_at_a_minute_later(sure: Sql) -> None:
    job = sure.job_in("completed")
    sure.wait(2 * DAY)
    steps(sure)
    keep(sure, "completed", DAY)
    assert not due(sure)
    sure.wait(MINUTE - 1)
    assert not due(sure)
    assert ids(sure) == [job]
    sure.wait(1)
    steps(sure)
    assert ids(sure) == []


def test_a_pass_that_goes_on_waits_for_that_minute(sure: Sql) -> None:
    old = [sure.job_in("completed") for _ in range(8)]
    sure.wait(WEEK)
    new = sure.job_in("completed")
    sure.wait(2 * MINUTE)
    step(sure, 2)
    assert ids(sure) == [*old[2:], new]
    keep(sure, "completed", 7 * SECOND)
    assert not due(sure)
    keep(sure, "completed", WEEK)
    sure.wait(MINUTE)
    steps(sure)
    assert ids(sure) == [new]


def test_a_row_that_speaks_of_others_counts_them_anew(sure: Sql) -> None:
    sure.serve("b")
    names = ["a", "a", "b", "b", "a", "a", "a", "a"]
    made = [sure.job_in("completed", task=each) for each in names]
    keep(sure, "completed", None, 2, task="a")
    sure.wait(HOUR)
    step(sure, 2)
    assert ids(sure) == made[2:]
    sure.execute("update litejobs_retention set task = 'b' where task = 'a'")
    for _ in range(2):
        steps(sure)
        assert ids(sure) == made[2:]
        sure.wait(MINUTE)


def test_so_is_what_a_rule_that_is_gone_has_kept(sure: Sql) -> None:
    keep(sure, "completed", None, task="a")
    job = sure.job_in("completed")
    sure.wait(WEEK)
    steps(sure)
    sure.execute("delete from litejobs_retention where task = 'a'")
    sure.wait(MINUTE - 1)
    steps(sure)
    assert ids(sure) == [job]
    sure.wait(1)
    steps(sure)
    assert ids(sure) == []


def test_whoever_asks_for_a_step_has_one_though_none_is_due(sure: Sql) -> None:
    keep(sure, "completed", HOUR)
    sure.job_in("completed")
    sure.wait(HOUR)
    steps(sure)
    sure.job_in("completed")
    sure.wait(HOUR - 1)
    step(sure)
    assert len(ids(sure)) == 1
    sure.wait(1)
    sure.execute("insert into litejobs__retain (most) values (5)")
    assert ids(sure) == []


@pytest.mark.every_client
def test_any_client_undoes_what_it_has_set(db: Sql) -> None:
    db.insert("litejobs_retaining", id=1, full_at=5)
    before = db.content("litejobs_retention")
    db.insert("litejobs_operation", name="set")
    db.execute("update litejobs_retention set age_ms = 5 where kind = 'completed'")
    db.execute("update litejobs_retention set task = 'a' where kind = 'cancelled'")
    db.execute("delete from litejobs_retention where kind = 'event'")
    db.insert("litejobs_retention", kind="file", bytes=5)
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")
    assert db.content("litejobs_retention") != before
    db.insert("litejobs_undo", operation=None)
    assert db.content("litejobs_retention") == before


# What cannot be said ------------------------------------------------------------------


@for_each(
    "table, columns, constraint",
    [
        ("retention", {"kind": "failed"}, "retention_kind_known"),
        (
            "retention",
            {"kind": "completed", "task": "x" * 201},
            "retention_names_length",
        ),
        ("retention", {"kind": "event", "task": "a"}, "retention_names_jobs"),
        ("retention", {"kind": "operation", "most": 1}, "retention_names_jobs"),
        ("retention", {"kind": "event", "age_ms": -1}, "retention_age_in_range"),
        ("retention", {"kind": "completed", "most": -1}, "retention_most_in_range"),
        ("retention", {"kind": "completed", "edited": 2}, "retention_edited_is_flag"),
        (
            "retention",
            {"kind": "completed", "counted": -1},
            "retention_counted_not_negative",
        ),
        ("retaining", {"id": 2, "full_at": 0}, "retaining_is_one_row"),
        ("retaining", {"id": 1, "full_at": 0, "stage": "x"}, "retaining_stage_known"),
        ("retention", {"kind": "file", "age_ms": 5}, "retention_bytes_of_file"),
        ("retention", {"kind": "completed", "bytes": 5}, "retention_bytes_of_file"),
        ("retention", {"kind": "file", "bytes": 0}, "retention_bytes_in_range"),
        (
            "retention",
            {"kind": "file", "bytes": 5, "task": "a"},
            "retention_names_jobs",
        ),
        ("retaining", {"id": 1, "full_at": 0, "late": 2}, "retaining_flags"),
        ("clock_watch", {"id": 2}, "clock_watch_is_one_row"),
        ("clock_watch", {"id": 1, "seen_at": -1}, "clock_watch_instants_in_range"),
        ("clock_watch", {"id": 1, "steady_ms": -1}, "clock_watch_steady_in_range"),
        ("purge", {}, "purge_states_are_a_list"),
        ("purge", {"states": "{}"}, "purge_states_are_a_list"),
        ("purge", {"states": "x"}, "purge_states_are_a_list"),
        ("purge", {"name": "file", "states": "[]"}, "purge_states_are_a_list"),
        ("purge", {"name": "retention", "task": "a"}, "purge_states_are_a_list"),
        ("purge", {"states": "[]", "before_at": -1}, "purge_before_in_range"),
        ("purge", {"states": "[]", "origin": ""}, "purge_origin_length"),
        ("purge", {"states": "[]", "jobs": -1}, "purge_jobs_not_negative"),
    ],
)
def test_what_cannot_be_is_refused(
    db: Sql, table: str, columns: dict[str, Any], constraint: str
) -> None:
    columns = columns or {"before_at": 5}
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    words = db.refused(
        f"insert into litejobs_{table} ({names}) values ({marks})",
        tuple(columns.values()),
    )
    assert f"litejobs_{constraint}" in words


@pytest.mark.every_client
def test_rows_without_which_nothing_would_go_are_not_deleted(db: Sql) -> None:
    db.insert("litejobs_retaining", id=1, full_at=5)
    for table in ("retaining", "clock_watch"):
        sentence = db.refused(f"delete from litejobs_{table}")
        assert sentence.startswith(f"immutable_{table}: this row says ")
        assert len(db.content(f"litejobs_{table}")) == 1


# One way for all that is deleted ------------------------------------------------------


def purge(db: Sql, jobs: list[int], name: str = "mine") -> None:
    db.execute(
        "insert into litejobs__purge_jobs (purge, ids) values (?, ?)",
        (name, json.dumps(jobs)),
    )


@pytest.mark.every_client
def test_any_client_purges_as_the_program_does(db: Sql) -> None:
    db.serve("a")
    done = [db.job_in("completed") for _ in range(3)]
    dead = db.job_in("dead_lettered")
    db.insert("litejobs_purge", name="mine", states='["completed"]', task="a")
    purge(db, [*done[:2], dead, 99])
    assert ids(db) == [done[2], dead]
    purge(db, done)
    purge(db, done)
    assert ids(db) == [dead]
    db.execute("delete from litejobs_purge where name = 'mine'")
    [(subject, origin)] = lines(db)
    assert subject.startswith("3 jobs of task a (completed")
    assert origin == "sql"


def test_what_a_purge_means_is_looked_at_when_it_deletes(sure: Sql) -> None:
    sure.serve("b")
    parent = sure.job_in("completed")
    child = child_of(sure, parent)
    wrong = [
        sure.job_in("completed", task="b"),
        sure.job_in("completed", queue="q"),
        sure.job_in("cancelled"),
    ]
    right = sure.job_in("completed")
    sure.wait(1)
    late = sure.job_in("completed")
    sure.insert(
        "litejobs_purge",
        name="mine",
        states='["completed"]',
        task="a",
        queue="default",
        before_at=sure.now - 1,
    )
    purge(sure, [parent, child, *wrong, right, late])
    assert ids(sure) == [parent, child, *wrong, late]


def test_a_purge_without_a_row_is_refused(sure: Sql) -> None:
    job = sure.job_in("completed")
    for name in ("nobody", None, "retention", "file"):
        sentence = sure.refused(
            "insert into litejobs__purge_jobs (purge, ids) values (?, ?)",
            (name, f"[{job}]"),
        )
        assert sentence.startswith("unknown_purge: what is deleted is counted in a row")
    assert ids(sure) == [job]


def test_in_the_name_of_retention_nobody_deletes_what_it_would_keep(sure: Sql) -> None:
    done = sure.job_in("completed")
    sure.wait(WEEK)
    dead, fresh = sure.job_in("dead_lettered"), sure.job_in("completed")
    sure.execute("update litejobs_retaining set full_at = ?", (sure.now,))
    step(sure)
    assert sure.column("select name from litejobs_purge") == ["retention"]
    assert ids(sure) == [dead, fresh] != done
    sentence = sure.refused(
        "insert into litejobs__purge_jobs (purge, ids) values ('retention', ?)",
        (json.dumps([dead, fresh]),),
    )
    assert sentence.startswith("unknown_purge: ")
    assert ids(sure) == [dead, fresh]


@pytest.mark.every_client
def test_the_jobs_of_a_purge_are_a_list_of_whole_numbers(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("completed")
    db.insert("litejobs_purge", name="mine", states='["completed"]')
    for given in ("x", "", None, job, f"{job}", f'{{"a":{job}}}', f'["{job}"]', "[.5]"):
        sentence = db.refused(
            "insert into litejobs__purge_jobs (purge, ids) values ('mine', ?)", (given,)
        )
        assert sentence.startswith("invalid_ids: the jobs of a purge are named by")
    assert ids(db) == [job]
    purge(db, [job, job, -job, 2**63 - 1])
    assert ids(db) == []
    assert db.value("select jobs from litejobs_purge") == 1


def test_a_process_that_says_an_endless_time_is_heard_as_one_that_ran_long(
    sure: Sql,
) -> None:
    step(sure, ran=0, process="p")
    sure.wait(-HOUR)
    step(sure, ran=2**63 - 1, process="p")
    assert sure.value("select steady_ms from litejobs_clock_watch") == 0
    assert sure.value("select step_ms from litejobs_clock_watch") < -100 * 365 * DAY
