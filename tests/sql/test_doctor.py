"""Is the file sound? sql/logic/reports: each finding is made, and not made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import apsw
import pytest

from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, STATES, Sql


@contextlib.contextmanager
def past_the_triggers(db: Sql) -> Iterator[None]:
    """What is written within the block is seen by no trigger."""
    db.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    yield
    db.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def found(db: Sql) -> dict[str, str]:
    """What the doctor finds: code to sentence."""
    rows = db.query("list_findings")
    assert len({row.code for row in rows}) == len(rows)
    assert {row.level for row in rows} <= {"note", "warning", "problem"}
    assert all(row.remedy and row.object for row in rows)
    return {row.code: row.sentence for row in rows}


def remedy(db: Sql, code: str) -> str:
    """What helps against it, where that is a statement."""
    [text] = [row.remedy for row in db.query("list_findings") if row.code == code]
    return str(text.partition(": ")[2])


def is_mended(db: Sql, code: str) -> bool:
    """Whether the statement that the doctor names helps."""
    assert code in found(db)
    db.execute(remedy(db, code))
    return code not in found(db)


# A healthy file -----------------------------------------------------------------------


def test_nothing_is_found_in_a_new_file(db: Sql) -> None:
    assert found(db) == {}


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_found_while_a_runner_runs_whatever_state_a_job_is_in(
    db: Sql, state: str
) -> None:
    db.serve("a")
    db.job_in(state, timeout_ms=HOUR, concurrency_key="k", circuit="c")
    assert found(db) == {}


# Rows that were written past the triggers ---------------------------------------------


def test_a_job_that_no_trigger_has_completed_is_found_and_mended(held: Sql) -> None:
    held.serve("a")
    with past_the_triggers(held):
        held.execute("insert into litejobs_job (task) values ('a'), ('a')")
    assert found(held) == {
        "job_incomplete": "job 1 and 1 more were never completed by their trigger"
    }
    held.execute(remedy(held, "job_incomplete"))
    assert found(held) == {"job_incomplete": "job 2 was never completed by its trigger"}
    assert is_mended(held, "job_incomplete")
    assert len(held.claim(2)) == 2


def test_a_job_that_runs_without_an_attempt_is_found(held: Sql) -> None:
    held.serve("a")
    job = held.job_in("processing")
    assert found(held) == {}
    with past_the_triggers(held):
        held.execute("delete from litejobs_attempt")
    assert found(held) == {
        "job_without_attempt": f"job {job} is processing without an open attempt"
    }


def test_an_attempt_that_its_job_does_not_run_is_found(held: Sql) -> None:
    held.serve("a")
    job = held.job_in("processing")
    attempt = held.job(job).attempt_id
    with past_the_triggers(held):
        held.execute("update litejobs_job set state = 'pending'")
    assert found(held) == {
        "attempt_without_job": f"attempt {attempt} is open, and its job does not run it"
    }


def test_a_job_in_a_lane_of_another_queue_is_found_and_moved(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a", queue="mail")
    job = held.enqueue("a")
    with past_the_triggers(held):
        held.execute("update litejobs_job set queue = 'mail' where id = ?", (job,))
    assert found(held) == {
        "job_in_wrong_lane": f"job {job} is in the lane of another queue or task"
    }
    assert is_mended(held, "job_in_wrong_lane")


def test_a_lane_that_does_not_know_its_first_job_is_found_and_mended(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a", concurrency_key="k")
    with past_the_triggers(held):
        held.execute("update litejobs_lane set head_id = null")
    assert found(held) == {"lane_head": "lane 2 does not know its first job"}
    assert held.claim(1) == []
    assert is_mended(held, "lane_head")
    assert [held.attempt(each).job_id for each in held.claim(1)] == [job]


def test_a_lane_that_nothing_will_wake_is_found_and_woken(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a", circuit="c")
    held.enqueue("a", circuit="d")
    held.execute("update litejobs_circuit set state = 'open' where name = 'd'")
    with past_the_triggers(held):
        held.execute("update litejobs_lane set parked = 1 where base_id is not null")
    assert found(held)["lane_asleep"] == "lane 2 is parked, and nothing will wake it"
    assert is_mended(held, "lane_asleep")
    assert len(held.claim(2)) == 1


def test_a_lane_that_waits_for_its_rate_is_not_found(held: Sql) -> None:
    held.serve("a", rate_count=1, rate_ms=MINUTE, concurrency_key="k")
    held.enqueue("a")
    held.enqueue("a")
    held.settle(*held.claim(1))
    assert held.claim(1) == []
    assert held.value("select max(parked) from litejobs_lane") == 1
    assert found(held) == {}


def test_two_runners_at_once_are_found(held: Sql) -> None:
    held.start_runner()
    held.start_runner()
    assert found(held) == {}
    with past_the_triggers(held):
        held.execute("update litejobs_runner set stopped_at = null")
    assert found(held) == {
        "several_runners": (
            "runner 1 and 1 more count as running, and there is one runner per file"
        )
    }


# What waits for others ----------------------------------------------------------------


def test_a_job_that_waits_for_nobody_is_found_and_goes_on(held: Sql) -> None:
    held.serve("a")
    job = held.job_in("blocked")
    with past_the_triggers(held):
        held.execute("delete from litejobs_dependency")
    assert found(held) == {
        "blocked_for_nothing": f"job {job} is blocked and waits for nothing"
    }
    assert is_mended(held, "blocked_for_nothing")
    assert held.job(job).state == "pending"


def test_a_parent_that_is_gone_is_found(held: Sql) -> None:
    held.serve("a")
    parent, child = held.enqueue("a"), held.enqueue("a")
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    assert found(held) == {}
    with past_the_triggers(held):
        held.execute("delete from litejobs_job where id = ?", (parent,))
    assert found(held) == {
        "dependency_lost": f"job {child} waits for a job or batch that is not there"
    }
    held.execute("delete from litejobs_dependency where job_id = ?", (child,))
    assert found(held) == {}
    assert held.job(child).state == "pending"


def test_a_parent_whose_end_was_not_told_is_found(held: Sql) -> None:
    held.serve("a")
    parent, child = held.enqueue("a"), held.enqueue("a")
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    held.settle(held.begin(parent))
    assert found(held) == {}
    with past_the_triggers(held):
        held.execute("update litejobs_dependency set parent_state = null")
        held.execute("update litejobs_job set state = 'blocked' where id = ?", (child,))
    assert found(held) == {
        "dependency_missed": f"job {child} waits for what has ended long ago"
    }


def test_a_job_that_a_failure_holds_for_good_is_found(held: Sql) -> None:
    held.serve("a")
    parent = held.job_in("dead_lettered")
    child = held.enqueue("a", on_parent_failure="block")
    assert found(held) == {}
    held.insert("litejobs_dependency", job_id=child, parent_id=parent)
    assert found(held) == {
        "blocked_by_failure": f"job {child} waits for one that has failed"
    }
    held.execute("update litejobs_job set state = 'pending' where id = ?", (parent,))
    assert found(held) == {}


def test_a_batch_that_was_never_sealed_is_found_after_an_hour(held: Sql) -> None:
    held.serve("a")
    held.job_in("blocked")
    held.execute("insert into litejobs_batch default values")
    held.wait(HOUR)
    assert found(held) == {}
    held.wait(SECOND)
    assert list(found(held)) == ["batch_not_sealed"]
    assert is_mended(held, "batch_not_sealed")


def test_a_batch_that_has_not_ended_with_its_jobs_is_found(held: Sql) -> None:
    held.serve("a")
    held.execute("insert into litejobs_batch default values")
    held.enqueue("a", batch_id=1)
    held.execute("update litejobs_batch set state = 'sealed'")
    assert found(held) == {}
    with past_the_triggers(held):
        held.execute("update litejobs_job set state = 'completed', finished_at = 1")
    assert found(held) == {
        "batch_not_ended": "batch 1 has not ended, although all its jobs have"
    }


def test_a_job_in_line_that_may_not_be_tried_again_is_found(held: Sql) -> None:
    held.serve("a")
    job = held.job_in("failed")
    held.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    assert found(held) == {}
    held.execute("update litejobs_job set max_attempts = 1 where id = ?", (job,))
    assert found(held) == {
        "attempts_used": f"job {job} is in line, and its limits allow no attempt"
    }


# Runners ------------------------------------------------------------------------------


def test_attempts_of_a_runner_that_has_ended_are_found(held: Sql) -> None:
    held.serve("a")
    held.job_in("processing")
    attempt = held.value("select id from litejobs_attempt")
    assert found(held) == {}
    held.start_runner()
    assert found(held) == {
        "attempt_without_runner": f"attempt {attempt} is open, and its runner has ended"
    }
    held.tick()
    assert found(held) == {}


def test_an_attempt_that_is_overdue_for_ten_seconds_is_found(held: Sql) -> None:
    held.serve("a")
    held.job_in("processing", timeout_ms=SECOND)
    held.wait(11 * SECOND)
    assert found(held) == {}
    held.wait(1)
    assert found(held) == {
        "attempt_overdue": "attempt 1 is open more than 10 s after its time limit"
    }
    held.tick()
    assert "attempt_overdue" not in found(held)


def test_jobs_in_line_without_a_runner_are_noted(held: Sql) -> None:
    held.serve("a")
    held.execute("update litejobs_runner set stopped_at = 1")
    assert found(held) == {}
    held.enqueue("a")
    held.enqueue("b")
    assert found(held) == {
        "runner_missing": "the runner is missing, and jobs in line wait for one: 2"
    }


@pytest.mark.parametrize("what", ["job", "occurrence", "expiry", "plan"])
def test_a_runner_that_does_not_begin_what_is_due_is_found(
    held: Sql, what: str
) -> None:
    held.serve("a")
    due_at = held.now + SECOND
    if what == "job":
        held.enqueue("a", run_at=due_at)
    elif what == "expiry":
        held.enqueue("b", expires_at=due_at)
    else:
        held.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR)
        if what == "occurrence":
            plan(held, due_at)
        else:
            due_at = held.now
    held.wait(due_at + 10 * SECOND - held.now)
    assert "runner_late" not in found(held)
    held.wait(1)
    assert found(held)["runner_late"].startswith(
        "runner 1 counts as running, and what was due at 2026-01-01T00:00:0"
    )
    held.execute("update litejobs_runner set stopped_at = 1")
    assert "runner_late" not in found(held)


def plan(db: Sql, at: int) -> None:
    """The one schedule has its next instant then."""
    [request] = db.rows("select * from litejobs_planning")
    db.insert(
        "litejobs_plan",
        schedule_id=request.schedule_id,
        revision=request.revision,
        after_at=request.after_at,
        to_at=request.to_at,
        fate=request.fate,
        instants=f"[{at}]",
        exhausted=1,
        sentence="sometimes",
    )


def test_a_task_that_the_runner_does_not_know_is_found(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a")
    held.enqueue("b", queue="x")
    held.enqueue("b", queue="y")
    assert found(held) == {
        "task_unknown": (
            "task b is in the code of no living runner, and jobs in line wait for one: "
            "2"
        )
    }
    held.serve("b")
    assert found(held) == {}


def test_many_dead_letters_of_one_hour_are_noted(held: Sql) -> None:
    held.serve("a")
    held.serve("b")
    for _ in range(10):
        held.job_in("dead_lettered")
    held.execute("update litejobs_job set task = 'b' where id = 10")
    assert found(held) == {}
    held.job_in("dead_lettered")
    assert found(held) == {
        "dead_letters": (
            "task a has jobs that were dead-lettered within the last hour: 10"
        )
    }
    held.wait(HOUR)
    assert found(held) == {}


@pytest.mark.parametrize(
    ("task", "word"),
    [
        ("app.mail:send-2", "app.mail:send-2"),
        ("it's $(x)", "'it'\\''s $(x)'"),
        ("-all", "'-all'"),
    ],
)
def test_a_task_in_a_command_that_is_advised_is_one_word(
    held: Sql, task: str, word: str
) -> None:
    held.serve(task)
    for _ in range(10):
        held.job_in("dead_lettered", task=task)
    [row] = [
        each for each in held.query("list_findings") if each.code == "dead_letters"
    ]
    assert row.remedy.endswith(f"litejobs requeue --state dead_lettered --task {word}")


def test_tasks_that_cannot_be_ended_are_found(held: Sql) -> None:
    held.serve("a")
    held.query("record_stuck", runner=1, stuck=2)
    # In threads or on executors, after a time limit or a cancel.
    assert found(held)["threads_stuck"] == (
        "runner 1 has tasks that go on after a time limit or a cancel, and cannot be "
        "ended: 2"
    )
    held.query("record_stuck", runner=1, stuck=0)
    assert found(held) == {}
    words = held.refused("update litejobs_runner set stuck = -1")
    assert "litejobs_runner_stuck_is_count" in words


# Held back by a person ----------------------------------------------------------------


def test_a_paused_queue_is_noted_if_jobs_wait_in_it(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a", run_at=held.now + HOUR)
    held.execute("update litejobs_queue set paused = 1")
    assert found(held) == {}
    held.enqueue("a")
    assert found(held) == {
        "queue_paused": "queue default is paused, and jobs in line wait for it: 1"
    }


def test_a_queue_that_may_run_nothing_is_noted(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a")
    held.execute("update litejobs_queue set max_running = 0")
    assert list(found(held)) == ["queue_closed"]


def test_a_queue_that_the_runner_leaves_out_is_noted(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a")
    held.execute("""update litejobs_runner set queues = '["mail"]'""")
    assert list(found(held)) == ["queue_unserved"]


def test_a_circuit_that_stays_open_is_found_if_jobs_wait_for_it(held: Sql) -> None:
    held.serve("a")
    held.execute(
        "insert into litejobs_circuit (name, state, open_until) "
        "values ('c', 'open', ?)",
        (held.now + 2 * HOUR,),
    )
    held.wait(HOUR + 1)
    assert found(held) == {}
    held.enqueue("a", circuit="c")
    assert found(held) == {
        "circuit_open": (
            "circuit c has been open for more than an hour, and jobs wait for it"
        )
    }
    held.execute("update litejobs_circuit set open_until = null")
    assert "opened by hand" in found(held)["circuit_open"]
    held.execute("update litejobs_circuit set state = 'closed'")
    assert found(held) == {}


def test_a_circuit_is_not_found_when_it_has_just_opened(held: Sql) -> None:
    held.serve("a")
    held.execute("insert into litejobs_breaker (task, threshold) values ('a', 1)")
    held.enqueue("a", circuit="c")
    held.enqueue("a", circuit="c")
    for opened in range(1, 5):
        [attempt] = held.claim(1)
        held.settle(attempt, "error")
        assert ("circuit_open" in found(held)) == (opened > 3)
        held.wait(opened * 10 * MINUTE)
        held.tick()
    assert "opened 4 times" in found(held)["circuit_open"]


# Schedules and the clock --------------------------------------------------------------


def test_a_schedule_that_cannot_be_planned_is_found(held: Sql) -> None:
    held.insert("litejobs_schedule", name="s", task="a", expression="nonsense")
    assert found(held) == {}
    [request] = held.rows("select * from litejobs_planning")
    held.insert(
        "litejobs_plan",
        schedule_id=request.schedule_id,
        revision=request.revision,
        after_at=request.after_at,
        to_at=request.to_at,
        fate=request.fate,
        problem="it is not a cron expression",
    )
    assert found(held) == {
        "schedule_invalid": "schedule s cannot be planned: it is not a cron expression"
    }


def test_a_schedule_that_has_gone_from_the_code_is_noted(held: Sql) -> None:
    held.serve("a")
    held.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR, declared="{}")
    held.execute("update litejobs_schedule set runner_id = ?", (held.runner,))
    assert found(held) == {}
    held.start_runner()
    assert list(found(held)) == ["schedule_vanished"]


def test_a_clock_that_was_ahead_is_right_when_something_has_happened_since(
    held: Sql,
) -> None:
    held.serve("a")
    held.wait(DAY)
    held.enqueue("a")
    for paused in (1, 0):
        held.execute("update litejobs_queue set paused = ?", (paused,))
    held.wait(-DAY)
    held.tick()
    assert list(found(held)) == ["clock_went_back"]
    held.enqueue("a")
    assert found(held) == {}


def test_a_clock_that_has_gone_back_is_found(held: Sql) -> None:
    held.serve("a")
    held.enqueue("a")
    held.wait(-MINUTE)
    assert found(held) == {}
    held.wait(-1)
    assert found(held) == {
        "clock_went_back": (
            "the file has seen 2026-01-01T00:00:00Z, which is still to come: the clock "
            "has gone back, or was ahead"
        )
    }
