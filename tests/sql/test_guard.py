"""What is refused, and in which words: sql/logic/guards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rows import for_each, in_turn
from tests.sql.fixture import (
    CLIENTS,
    ERRORS,
    FINISHED,
    HOUR,
    STATES,
    WAITING,
    Sql,
    tables,
)

pytestmark = pytest.mark.every_client

# The moves that a plain update may make; all others need an attempt, or do not exist.
BY_HAND = {
    "scheduled": ("pending", "cancelled"),
    "blocked": ("cancelled",),
    "pending": ("cancelled",),
    "processing": (),
    "failed": ("pending", "cancelled"),
    "completed": ("pending",),
    "dead_lettered": ("pending",),
    "cancelled": ("pending",),
}

ONLY_A_CLAIM = (
    "invalid_transition: only a claim of a pending job makes it processing; "
    "insert into litejobs_claim, or read the row again"
)
CANCEL_REQUEST = (
    "invalid_transition: a processing job ends when its attempt is settled; "
    "set cancel_requested_at to have it cancelled"
)
SETTLE = (
    "invalid_transition: a processing job moves when its attempt is settled; "
    "insert into litejobs_settle, or read the row again"
)
REQUEUE = (
    "invalid_transition: a finished job can only be requeued; set its state to "
    "pending, or read the row again"
)
THROUGH_AN_ATTEMPT = (
    "invalid_transition: a job ends through an attempt; cancel it, or let it be "
    "claimed and settled"
)
NO_SUCH_MOVE = (
    "invalid_transition: the state diagram has no such move; a waiting job can be set "
    "to pending or cancelled"
)
STILL_WAITS = (
    "parents_unfinished: this job waits for others that have not ended; wait for them, "
    "or delete its rows in litejobs_dependency"
)
UNKNOWN = (
    "unknown_state: a state is scheduled, blocked, pending, processing, failed, "
    "completed, dead_lettered or cancelled"
)
KEY_TAKEN = (
    "unique_key_taken: an unfinished job has the same unique key; cancel that one first"
)
IMMUTABLE_JOB = (
    "immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and "
    "stopped_by are kept by the database; leave them out, or read the row again"
)

UPDATES = (
    "update",
    "update or replace",
    "update or ignore",
    "update or fail",
    "update or rollback",
)


def sentence_for(old: str, new: str) -> str:
    """The words in which the move is refused."""
    if new == "processing":
        return ONLY_A_CLAIM
    if old == "processing":
        return CANCEL_REQUEST if new == "cancelled" else SETTLE
    if old in FINISHED:
        return REQUEUE
    if old == "blocked" and new in ("scheduled", "pending"):
        return STILL_WAITS
    return THROUGH_AN_ATTEMPT if new in (*FINISHED, "failed") else NO_SUCH_MOVE


def origins(db: Sql, job: int) -> list[str | None]:
    """Who made each move of the job, in order."""
    return db.column(
        "select origin from litejobs__transition where job_id = ? order by id", (job,)
    )


@pytest.fixture
def served(db: Sql) -> Iterator[Sql]:
    """A database with one task in a living runner."""
    db.serve("a")
    return db


# The state diagram --------------------------------------------------------------------


@for_each("how, old", in_turn(UPDATES, STATES))
def test_a_plain_update_makes_only_the_moves_of_the_diagram(
    served: Sql, how: str, old: str
) -> None:
    makes_only_the_moves_of_the_diagram(served, how, old)


@pytest.mark.torture
@for_each("old", STATES)
@for_each("how", UPDATES)
def test_a_plain_update_makes_only_the_moves_of_the_diagram_in_any_way(
    served: Sql, how: str, old: str
) -> None:
    makes_only_the_moves_of_the_diagram(served, how, old)


def makes_only_the_moves_of_the_diagram(served: Sql, how: str, old: str) -> None:
    job = served.job_in(old)
    for new in STATES:
        served.execute("savepoint before")
        sql, values = f"{how} litejobs_job set state = ? where id = ?", (new, job)
        if new == old or new in BY_HAND[old]:
            served.execute(sql, values)
            assert served.job(job).state == new
            if new != old:
                assert served.moves(job)[-1][:2] == (old, new)
        else:
            before = served.content("litejobs_job"), served.content("litejobs_attempt")
            lines = served.content("litejobs__transition")
            assert served.refused(sql, values) == sentence_for(old, new), new
            after = served.content("litejobs_job"), served.content("litejobs_attempt")
            assert after == before
            assert served.content("litejobs__transition") == lines
        served.execute("rollback to before")


def test_a_failed_job_is_dead_lettered_only_with_a_reason(served: Sql) -> None:
    job = served.job_in("failed")
    move = "update litejobs_job set state = 'dead_lettered'"
    for half in ("", ", stopped_by = 'expired'", ", finished_at = 1"):
        assert served.refused(f"{move}{half} where id = {job}") == THROUGH_AN_ATTEMPT
    served.execute(f"{move}, stopped_by = 'expired', finished_at = 1 where id = {job}")
    assert served.moves(job)[-1][:2] == ("failed", "dead_lettered")


def test_a_job_in_line_is_dead_lettered_only_when_its_retries_have_no_time_left(
    held: Sql,
) -> None:
    held.serve("a", jitter=0.0, retry_budget_ms=HOUR)
    without, job = held.enqueue("a"), held.job_in("failed")
    held.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    move = "update litejobs_job set state = 'dead_lettered'"
    why = ", stopped_by = 'retry_budget_expired'"
    whole = f"{move}{why}, finished_at = 5 where id = ?"
    held.wait(HOUR - 1)
    assert held.refused(whole, (job,)) == THROUGH_AN_ATTEMPT
    held.wait(1)
    for half in (why, ", finished_at = 5", ", stopped_by = 'me', finished_at = 5"):
        assert held.refused(f"{move}{half} where id = {job}") == THROUGH_AN_ATTEMPT
    assert held.refused(whole, (without,)) == THROUGH_AN_ATTEMPT
    held.execute(whole, (job,))
    assert held.moves(job)[-1][:2] == ("pending", "dead_lettered")


@pytest.mark.parametrize("state", ["scheduled", "pending", "failed"])
def test_no_job_waits_again_for_those_that_have_ended(served: Sql, state: str) -> None:
    """It would wait for nothing, and for ever."""
    parent = served.job_in("completed")
    run_at = served.now + HOUR if state == "scheduled" else None
    job = served.enqueue("a", run_at=run_at)
    served.insert("litejobs_dependency", job_id=job, parent_id=parent)
    if state == "failed":
        served.fail(job)
    assert served.job(job).state == state
    move = f"update litejobs_job set state = 'blocked' where id = {job}"
    assert served.refused(move) == NO_SUCH_MOVE


@for_each("old", STATES)
@for_each("how", ["insert or replace", "insert or ignore", "replace"])
def test_an_insert_over_a_job_moves_nothing(served: Sql, how: str, old: str) -> None:
    job = served.job_in(old)
    before = served.content("litejobs_job"), served.content("litejobs_attempt")
    sql = f"{how} into litejobs_job (id, task, state) values (?, 'a', ?)"
    for new in STATES:
        sentence = served.refused(sql, (job, new))
        assert sentence == "duplicate_job: a job with this id exists; leave the id out"
    assert (
        served.content("litejobs_job"),
        served.content("litejobs_attempt"),
    ) == before


@pytest.mark.parametrize("old", STATES)
def test_an_upsert_makes_only_the_moves_of_the_diagram(served: Sql, old: str) -> None:
    """The insert's own guard comes before the `on conflict` of the statement."""
    job = served.job_in(old)
    sentence = served.refused(
        f"insert into litejobs_job (id, task) values ({job}, 'a') "
        "on conflict (id) do update set state = 'completed'"
    )
    assert sentence.startswith("duplicate_job: ")


@for_each("old", STATES)
@for_each("new", ["lost", "", "Pending", "pending "])
def test_a_state_that_does_not_exist_is_refused(
    served: Sql, old: str, new: str
) -> None:
    job = served.job_in(old)
    sql = "update litejobs_job set state = ? where id = ?"
    assert served.refused(sql, (new, job)) == UNKNOWN


@pytest.mark.parametrize("old", STATES)
def test_a_state_is_never_null(served: Sql, old: str) -> None:
    job = served.job_in(old)
    for how in ("update", "update or replace"):
        sql = f"{how} litejobs_job set state = null where id = {job}"
        assert served.refused(sql) == UNKNOWN
    assert served.job(job).state == old


@pytest.mark.parametrize(
    ("status", "new"),
    [
        ("ok", "completed"),
        ("error", "failed"),
        ("error", "dead_lettered"),
        ("cancelled", "cancelled"),
        ("interrupted", "pending"),
    ],
)
def test_the_other_moves_are_made_by_facts(served: Sql, status: str, new: str) -> None:
    job = served.enqueue(max_attempts=1 if new == "dead_lettered" else 3)
    served.fail(job, status)
    assert served.moves(job)[-2:] == [
        ("pending", "processing", None),
        ("processing", new, None),
    ]


def test_once_its_attempt_is_closed_a_job_may_also_be_put_off(served: Sql) -> None:
    job = served.job_in("processing")
    served.execute("drop trigger litejobs_attempt_close_moves_job")
    served.settle(served.job(job).attempt_id, "error")
    assert served.job(job).state == "processing"
    served.execute("update litejobs_job set state = 'scheduled' where id = ?", (job,))
    assert served.job(job).state == "scheduled"


def test_an_open_attempt_of_another_job_makes_nothing_processing(served: Sql) -> None:
    busy = served.job_in("processing")
    job = served.enqueue("a")
    sql = "update litejobs_job set state = 'processing', attempt_id = ? where id = ?"
    sentence = served.refused(sql, (served.job(busy).attempt_id, job))
    assert sentence in (ONLY_A_CLAIM, IMMUTABLE_JOB)
    assert served.job(job).state == "pending"


# With all that an end has, and with attempts that are closed, 1 of another job.
ENDS = (
    "state = 'completed', finished_at = 5",
    "state = 'completed', finished_at = 5, attempt_id = 1",
    "state = 'completed', finished_at = 5, attempt_id = 2, starts = 1",
    "state = 'failed', attempt_id = 2, starts = 1",
    "state = 'failed', finished_at = null",
    "state = 'dead_lettered', finished_at = 5, stopped_by = 'me'",
    "state = 'pending', finished_at = null, attempts = 0",
)


@for_each("how, end", in_turn(UPDATES, ENDS))
def test_nobody_ends_a_job_behind_the_back_of_its_runner(
    served: Sql, how: str, end: str
) -> None:
    no_such_end(served, how, end)


@pytest.mark.torture
@for_each("how", UPDATES)
@for_each("end", ENDS)
def test_nobody_ends_a_job_behind_the_back_of_its_runner_in_any_way(
    served: Sql, how: str, end: str
) -> None:
    no_such_end(served, how, end)


def no_such_end(served: Sql, how: str, end: str) -> None:
    served.job_in("completed")
    job = served.job_in("failed")
    served.begin(job)
    before = served.content("litejobs_job"), served.content("litejobs_attempt")
    sentence = served.refused(f"{how} litejobs_job set {end} where id = {job}")
    assert sentence == SETTLE
    after = served.content("litejobs_job"), served.content("litejobs_attempt")
    assert after == before


def test_a_job_whose_attempt_is_closed_keeps_its_number_and_its_attempt(
    served: Sql,
) -> None:
    """Also between the end of the attempt and the move, where others may look on."""
    served.job_in("completed")
    job = served.job_in("processing")
    served.execute("drop trigger litejobs_attempt_close_moves_job")
    served.settle(served.job(job).attempt_id)
    end = "update litejobs_job set state = 'completed', finished_at = 5"
    for more in ("starts = 0", "starts = 9", "attempt_id = 1", "attempt_id = null"):
        assert served.refused(f"{end}, {more} where id = {job}") == IMMUTABLE_JOB
    served.execute(f"{end} where id = {job}")
    assert served.moves(job)[-1][:2] == ("processing", "completed")


NOT_ITS_OWN: list[Any] = ["its last", 1, 3, None, 77]
"""1 is closed, 3 is open, both of other jobs; its own last one is closed, too."""


@for_each("how, attempt", in_turn(UPDATES, NOT_ITS_OWN))
def test_no_job_in_line_starts_with_an_attempt_that_is_not_its_own(
    served: Sql, how: str, attempt: str | int | None
) -> None:
    does_not_start(served, how, attempt)


@pytest.mark.torture
@for_each("how", UPDATES)
@for_each("attempt", NOT_ITS_OWN)
def test_no_job_in_line_starts_with_an_attempt_that_is_not_its_own_in_any_way(
    served: Sql, how: str, attempt: str | int | None
) -> None:
    does_not_start(served, how, attempt)


def does_not_start(served: Sql, how: str, attempt: str | int | None) -> None:
    served.job_in("completed")
    job = served.job_in("failed")
    served.job_in("processing")
    served.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    new = served.enqueue("a")
    before = served.content("litejobs_job"), served.content("litejobs__transition")
    # One statement for all values: to prepare it costs more than to try it.
    sql = (
        f"{how} litejobs_job set state = 'processing', starts = :starts, "
        "attempt_id = case when :attempt = 'its last' then attempt_id else :attempt "
        "end, attempts = attempts + 1 where id = :id"
    )
    for each, starts in ((job, 1), (job, 2), (new, 1)):
        values = {"starts": starts, "attempt": attempt, "id": each}
        assert served.refused(sql, values) == ONLY_A_CLAIM
    after = served.content("litejobs_job"), served.content("litejobs__transition")
    assert after == before


NOT_IN_LINE = [each for each in STATES if each not in ("pending", "processing")]


@pytest.fixture(scope="module")
def no_start() -> Iterator[Callable[[str], Sql]]:
    """By client: jobs that are not in line, in order, and attempts that start none.

    One database for all of them: without the trigger it has another schema.
    """
    made: dict[str, Sql] = {}

    def by(client: str) -> Sql:
        if client not in made:
            made[client] = db = CLIENTS[client]()
            db.serve("a")
            for state in NOT_IN_LINE:
                db.job_in(state)
            db.execute("drop trigger litejobs_attempt_insert_starts_job")
        return made[client]

    yield by
    for db in made.values():
        db.connection.close()


@pytest.mark.parametrize("state", NOT_IN_LINE)
def test_only_a_job_in_line_starts_even_with_an_attempt_that_is_open(
    no_start: Callable[[str], Sql], client_of_db: str, state: str
) -> None:
    db = no_start(client_of_db)
    row = db.rows("select * from litejobs_job where state = ?", (state,))[0]
    db.insert(
        "litejobs_attempt",
        job_id=row.id,
        start_no=row.starts + 1,
        attempt=row.attempts + 1,
        runner_id=db.runner,
        claimed_at=0,
    )
    sentence = db.refused(
        "update litejobs_job set state = 'processing', starts = starts + 1, "
        "attempts = attempts + 1, finished_at = null, stopped_by = null, "
        "attempt_id = (select max(id) from litejobs_attempt) where id = ?",
        (row.id,),
    )
    assert sentence == ONLY_A_CLAIM
    assert db.rows("select * from litejobs_job where id = ?", (row.id,)) == [row]


def test_what_happens_to_every_job_is_not_looked_at_in_detail(served: Sql) -> None:
    """That is the dearest that a move can bring with it."""
    keyed = served.enqueue("a", concurrency_key="k", queue="keyed")
    broken = served.enqueue("a", circuit="c", queue="broken")
    served.execute("update litejobs_queue set paused = name <> 'default'")
    served.execute(
        "create trigger looked_at instead of insert on litejobs__moved "
        "begin select raise(abort, 'looked at'); end"
    )
    postponed = served.enqueue("a", run_at=served.now + HOUR)
    done, failed = served.enqueue("a"), served.enqueue("a")
    first, second = served.claim(2)
    served.settle(first)
    served.settle(second, "error")
    states = [served.job(job).state for job in (postponed, done, failed)]
    assert states == ["scheduled", "completed", "failed"]

    moves = ((postponed, "pending"), (failed, "pending"), (done, "pending"))
    for job, state in (*moves, (keyed, "cancelled"), (broken, "cancelled")):
        sql = "update litejobs_job set state = ? where id = ?"
        assert served.refused(sql, (state, job)) == "looked at"
    for column in ("concurrency_key", "circuit"):
        sql = f"insert into litejobs_job (task, {column}) values ('a', 'new')"
        assert served.refused(sql) == "looked at"
    for queue in ("keyed", "broken"):
        served.execute("update litejobs_queue set paused = name <> ?", (queue,))
        sql = "insert into litejobs_claim (runner, slots) values (?, 1)"
        assert served.refused(sql, (served.runner,)) == "looked at"


# By hand ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", WAITING)
def test_cancelling_by_hand_completes_itself(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    before = db.now
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    row = db.job(job)
    assert before <= row.finished_at <= db.now
    assert row.cancel_requested_at == row.finished_at
    assert db.moves(job)[-1] == (state, "cancelled", "by_hand")
    assert origins(db, job)[-1] == "sql"
    assert db.events(job)[-1] == "task.cancelled"
    assert db.claim() == []


@pytest.mark.parametrize("state", WAITING)
def test_asking_for_a_cancel_cancels_a_waiting_job_at_once(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    [answer] = db.query("cancel_job", id=job, origin="test")
    assert answer.id == job
    row = db.job(job)
    assert (row.state, row.cancel_requested_at) == ("cancelled", row.finished_at)
    assert db.moves(job)[-1] == (state, "cancelled", "by_hand")
    assert origins(db, job)[-1] == "test"
    assert row.origin is None
    assert db.query("cancel_job", id=job, origin="test") == []


def test_asking_for_a_cancel_leaves_a_running_job_until_it_is_settled(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("processing")
    lines = db.moves(job)
    db.execute("update litejobs_job set cancel_requested_at = 1")
    db.execute("update litejobs_job set cancel_requested_at = 2")
    assert db.job(job).state == "processing"
    assert db.moves(job) == [*lines, (None, None, "cancel_requested")]
    assert db.events(job)[-1] == "task.cancel_requested"


def test_a_finished_job_tells_who_asked_for_its_cancel_while_it_ran(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("processing")
    db.query("cancel_job", id=job, origin="test")
    db.settle(db.job(job).attempt_id, "cancelled")
    assert db.moves(job)[-2:] == [
        (None, None, "cancel_requested"),
        ("processing", "cancelled", None),
    ]
    assert origins(db, job)[-2:] == ["test", None]
    assert db.job(job).origin is None


@pytest.mark.parametrize("state", FINISHED)
def test_asking_for_a_cancel_leaves_a_finished_job(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    db.execute("update litejobs_job set cancel_requested_at = 1")
    assert db.job(job).state == state


@pytest.mark.parametrize("state", FINISHED)
def test_a_requeued_job_begins_anew_and_keeps_its_history(db: Sql, state: str) -> None:
    db.serve("a", max_attempts=2, jitter=0.0, max_crashes=9)
    job = db.enqueue("a")
    db.fail(job, "crashed")
    if state == "cancelled":
        db.execute("update litejobs_job set state = 'cancelled'")
    else:
        attempt = db.begin(job)
        db.execute("update litejobs_job set progress = 0.5, progress_message = 'half'")
        db.settle(attempt, "ok" if state == "completed" else "error")
    old = db.job(job)
    assert (old.state, old.crashes) == (state, 1)
    assert old.delayed_ms > 0
    attempts = db.content("litejobs_attempt")
    before = db.now
    db.execute("update litejobs_job set state = 'pending'")
    row = db.job(job)
    assert (row.state, row.attempts, row.crashes, row.delayed_ms) == (
        "pending",
        0,
        0,
        0,
    )
    assert (row.finished_at, row.stopped_by, row.cancel_requested_at) == (None,) * 3
    assert (row.progress, row.progress_message) == (None, None)
    assert row.starts == old.starts
    assert before <= row.run_at <= db.now
    assert db.content("litejobs_attempt") == attempts
    assert db.moves(job)[-1] == (state, "pending", "by_hand")
    assert db.events(job)[-1] == "task.requeued"
    [attempt] = db.claim()
    assert db.attempt(attempt).start_no == old.starts + 1
    assert db.attempt(attempt).attempt == 1


@pytest.mark.parametrize("state", ["scheduled", "failed"])
def test_a_job_that_is_run_now_is_due_now(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    attempts = db.job(job).attempts
    before = db.now
    db.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    row = db.job(job)
    assert before <= row.run_at <= db.now
    assert row.attempts == attempts
    assert db.moves(job)[-1] == (state, "pending", "by_hand")
    assert db.events(job)[-1] == "task.run_now"


def test_progress_is_kept_while_a_job_runs(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("processing")
    attempt = db.job(job).attempt_id
    progress = {"id": job, "fraction": 0.5, "message": "half"}
    db.query("report_progress", attempt=attempt + 1, **progress)
    assert db.job(job).progress is None
    db.query("report_progress", attempt=attempt, **progress)
    assert (db.job(job).progress, db.job(job).progress_message) == (0.5, "half")


@for_each(
    "end, state, stays",
    [
        ("ok", "completed", True),
        ("error", "failed", False),
        ("interrupted", "pending", False),
        ("crashed", "failed", False),
        ("cancelled", "cancelled", True),
    ],
)
def test_progress_ends_with_its_attempt_unless_the_job_does(
    db: Sql, end: str, state: str, stays: bool
) -> None:
    db.serve("a")
    job = db.enqueue("a", max_attempts=2)
    attempt = db.begin(job)
    db.query("report_progress", id=job, attempt=attempt, fraction=0.5, message="half")
    db.settle(attempt, end)
    row = db.job(job)
    expected = (0.5, "half") if stays else (None, None)
    assert (row.state, (row.progress, row.progress_message)) == (state, expected)
    if end == "error":
        attempt = db.begin(job)
        db.query("report_progress", id=job, attempt=attempt, fraction=0.1, message=None)
        db.settle(attempt, "error")
        assert (db.job(job).state, db.job(job).progress) == ("dead_lettered", 0.1)


@pytest.mark.parametrize(
    "how",
    ["born", "requeued in line"],
)
def test_an_origin_that_no_line_took_over_is_not_that_of_a_later_operation(
    db: Sql, how: str
) -> None:
    if how == "born":
        sql = "insert into litejobs_job (task, origin) values ('a', 'test')"
        assert db.refused(sql).startswith("invalid_birth: ")
    job = db.enqueue("a")
    if how != "born":
        db.query("requeue_job", id=job, origin="test")
    db.execute("update litejobs_job set state = 'cancelled'")
    assert origins(db, job)[-1] == "sql"


# Keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", UPDATES)
@pytest.mark.parametrize("state", FINISHED)
def test_a_requeue_does_not_take_the_key_of_a_living_job(
    served: Sql, how: str, state: str
) -> None:
    old = served.job_in(state, unique_key="k")
    new = served.enqueue("a", unique_key="k")
    sql = f"{how} litejobs_job set state = 'pending' where id = {old}"
    assert served.refused(sql) == KEY_TAKEN
    served.execute("update litejobs_job set state = 'cancelled' where id = ?", (new,))
    served.execute(sql)
    assert served.job(old).state == "pending"


@for_each("how", UPDATES)
@for_each("state", [*WAITING, "processing"])
def test_an_update_does_not_take_the_key_of_a_living_job(
    served: Sql, how: str, state: str
) -> None:
    served.job_in(state, unique_key="k")
    job = served.enqueue("a", unique_key="other")
    before = served.content("litejobs_job")
    sql = f"{how} litejobs_job set unique_key = 'k' where id = {job}"
    assert served.refused(sql) == KEY_TAKEN
    assert served.content("litejobs_job") == before


@pytest.mark.parametrize("how", UPDATES)
def test_a_key_and_a_state_changed_together_take_no_key_either(
    served: Sql, how: str
) -> None:
    done = served.job_in("completed", unique_key="free")
    served.enqueue("a", unique_key="k")
    sql = (
        f"{how} litejobs_job set unique_key = 'k', state = 'pending' where id = {done}"
    )
    assert served.refused(sql) == KEY_TAKEN


def test_a_key_that_is_free_can_be_taken(served: Sql) -> None:
    ended = served.job_in("completed", unique_key="k")
    job = served.enqueue("a")
    served.execute("update litejobs_job set unique_key = 'k' where id = ?", (job,))
    served.execute("update litejobs_job set unique_key = 'k' where id = ?", (job,))
    served.execute("update litejobs_job set unique_key = 'j' where id = ?", (ended,))
    assert served.column("select unique_key from litejobs_job order by id") == [
        "j",
        "k",
    ]


# Identity -----------------------------------------------------------------------------


KEPT = (
    "id = 77",
    "id = 1",
    "starts = 0",
    "starts = 9",
    "starts = 9, attempt_id = 1",
    "created_at = 5",
    "created_at = null",
    "finished_at = 5",
    "stopped_by = 'me'",
    "lane_id = 99",
)


@for_each("how, assignment", in_turn(UPDATES, KEPT))
def test_a_job_keeps_its_identity(served: Sql, how: str, assignment: str) -> None:
    no_such_update(served, how, assignment)


@pytest.mark.torture
@for_each("how", UPDATES)
@for_each("assignment", KEPT)
def test_a_job_keeps_its_identity_in_any_way(
    served: Sql, how: str, assignment: str
) -> None:
    no_such_update(served, how, assignment)


def no_such_update(served: Sql, how: str, assignment: str) -> None:
    served.job_in("completed")
    job = served.job_in("failed")
    before = served.content("litejobs_job")
    sql = f"{how} litejobs_job set {assignment} where id = {job}"
    assert served.refused(sql) == IMMUTABLE_JOB
    assert served.content("litejobs_job") == before


@for_each("how", UPDATES)
@for_each("column", ["batch_id", "prev_job_id"])
@for_each("value", ["1", "null"])
def test_a_job_keeps_its_batch_and_the_job_before_it(
    served: Sql, how: str, column: str, value: str
) -> None:
    parent = served.job_in("completed")
    served.execute("insert into litejobs_batch default values")
    served.execute("insert into litejobs_batch default values")
    if value == "null":
        job = served.enqueue("a", batch_id=2, prev_job_id=parent)
    else:
        job = served.enqueue("a")
    sql = f"{how} litejobs_job set {column} = {value} where id = {job}"
    assert served.refused(sql) == IMMUTABLE_JOB


def test_a_job_may_be_told_what_it_is_already(served: Sql) -> None:
    """As who writes whole rows back does."""
    parent = served.job_in("completed")
    served.execute("insert into litejobs_batch default values")
    served.enqueue("a", batch_id=1, prev_job_id=parent)
    before = served.content("litejobs_job")
    kept = ("id", "rowid", "batch_id", "prev_job_id", "created_at", "lane_id", "birth")
    kept += ("state", "attempt_id", "starts", "attempts", "finished_at", "stopped_by")
    same = ", ".join(f"{column} = {column}" for column in kept)
    for how in UPDATES:
        served.execute(f"{how} litejobs_job set {same}")
    assert served.content("litejobs_job") == before


@pytest.mark.parametrize("column", ["starts", "lane_id"])
def test_a_job_keeps_what_cannot_be_null(served: Sql, column: str) -> None:
    """The column itself is first to refuse; `or ignore` leaves the job as it is."""
    job = served.job_in("failed")
    before = served.content("litejobs_job")
    sql = f"litejobs_job set {column} = null where id = {job}"
    for how in ("update", "update or fail", "update or abort"):
        assert "constraint failed: litejobs_job" in served.refused(f"{how} {sql}")
    served.execute(f"update or ignore {sql}")
    assert served.content("litejobs_job") == before


@pytest.mark.parametrize("state", FINISHED)
@pytest.mark.parametrize("value", ["5", "null"])
def test_a_finished_job_keeps_its_end(served: Sql, value: str, state: str) -> None:
    served.job_in(state)
    for column in ("finished_at", "stopped_by"):
        if (column, value, state) == ("stopped_by", "null", "dead_lettered"):
            continue
        if served.value(f"select {column} is {value} from litejobs_job"):
            continue
        sentence = served.refused(f"update litejobs_job set {column} = {value}")
        assert sentence == IMMUTABLE_JOB


@pytest.mark.parametrize("value", ["null", "77", "1"])
def test_a_job_keeps_its_attempt(served: Sql, value: str) -> None:
    """Attempt 1 is of another job."""
    served.job_in("completed")
    job = served.job_in("failed")
    sql = f"update litejobs_job set attempt_id = {value} where id = {job}"
    assert served.refused(sql) == IMMUTABLE_JOB


def test_a_job_keeps_the_last_of_its_attempts(served: Sql) -> None:
    """An earlier one of its own is not that, whatever else is said."""
    job = served.job_in("failed")
    first = served.job(job).attempt_id
    served.fail(job)
    for more in ("", ", starts = 1", ", starts = 3"):
        sql = f"update litejobs_job set attempt_id = {first}{more} where id = {job}"
        assert served.refused(sql) == IMMUTABLE_JOB


@pytest.mark.parametrize("name", ["rowid", "oid", "_rowid_"])
@pytest.mark.parametrize("how", ["update", "update or replace"])
def test_the_id_is_guarded_under_all_its_names(
    served: Sql, how: str, name: str
) -> None:
    served.job_in("completed")
    job = served.job_in("failed")
    to = 1 if "replace" in how else 77
    before = served.content("litejobs_job")
    sql = f"{how} litejobs_job set {name} = {to} where id = {job}"
    assert served.refused(sql) == IMMUTABLE_JOB
    assert served.content("litejobs_job") == before


# Instants -----------------------------------------------------------------------------


def test_a_job_in_line_is_not_postponed(held: Sql) -> None:
    job = held.enqueue("a", run_at=held.now - HOUR)
    sql = f"update litejobs_job set run_at = ? where id = {job}"
    assert held.refused(sql, (held.now + 1,)) == (
        "invalid_run_at: a pending job is already due; to postpone it set its state to "
        "scheduled as well"
    )
    for earlier in (held.now, held.now - 2 * HOUR):
        held.execute(sql, (earlier,))
        assert held.job(job).run_at == earlier


def test_a_job_in_line_that_is_postponed_leaves_the_line(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a")
    sql = f"update litejobs_job set state = 'scheduled', run_at = ? where id = {job}"
    assert held.refused(sql, (held.now,)) == NO_SUCH_MOVE
    held.execute(sql, (held.now + HOUR,))
    assert held.moves(job)[-1][:2] == ("pending", "scheduled")
    assert held.claim(1) == []
    held.clock.shift(HOUR / 1000)
    held.tick()
    assert [held.attempt(each).job_id for each in held.claim(1)] == [job]


@pytest.mark.parametrize("state", ["scheduled", "failed", "blocked"])
def test_a_job_that_waits_can_be_postponed(held: Sql, state: str) -> None:
    held.serve("a")
    job = held.job_in(state)
    held.execute("update litejobs_job set run_at = ?", (held.now + 9 * HOUR,))
    assert held.job(job).run_at == held.now + 9 * HOUR
    assert held.job(job).state == state


# Deleting -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", FINISHED)
def test_a_finished_job_is_deleted_with_its_history(served: Sql, state: str) -> None:
    """With foreign keys on and off: sqlite3 has them off."""
    job, other = served.job_in(state), served.job_in(state)
    kept = served.moves(other)
    served.execute("delete from litejobs_job where id = ?", (job,))
    assert served.column("select id from litejobs_job") == [other]
    assert served.column("select job_id from litejobs_attempt") == [other] * (
        state != "cancelled"
    )
    assert served.moves(job) == []
    assert served.moves(other) == kept


@pytest.mark.parametrize("state", [*WAITING, "processing"])
def test_an_unfinished_job_is_not_deleted(served: Sql, state: str) -> None:
    served.job_in(state)
    assert served.refused("delete from litejobs_job") == (
        "unfinished_job: only a finished job can be deleted; cancel it first"
    )


def test_the_id_of_a_deleted_job_is_not_used_again(served: Sql) -> None:
    job = served.job_in("completed")
    attempt = served.job(job).attempt_id
    served.execute("delete from litejobs_job")
    again = served.job_in("completed")
    assert again > job
    assert served.job(again).attempt_id > attempt


# The log ------------------------------------------------------------------------------


@for_each(
    "column",
    [
        "id",
        "at",
        "job_id",
        "attempt_id",
        "old_state",
        "new_state",
        "subject",
        "note",
        "origin",
    ],
)
@for_each("how", ["update", "update or replace", "update or ignore"])
def test_a_line_of_the_log_does_not_change(db: Sql, how: str, column: str) -> None:
    db.enqueue("a")
    assert db.refused(f"{how} litejobs__transition set {column} = 5") == (
        "immutable_log: what happened is never changed"
    )


@pytest.mark.parametrize("state", STATES)
def test_a_line_of_the_log_is_not_deleted_without_its_job(
    served: Sql, state: str
) -> None:
    served.job_in(state)
    assert served.refused("delete from litejobs__transition") == (
        "immutable_log: lines of the log go only with their job"
    )


def test_a_line_of_the_log_about_no_job_is_not_deleted(served: Sql) -> None:
    served.enqueue("a", queue="mail")
    served.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    assert (
        served.refused("delete from litejobs__transition where job_id is null")
        == "immutable_log: lines of the log go only with their job"
    )
    assert served.column(
        "select subject from litejobs__transition where job_id is null"
    ) == ["queue mail"]


def test_a_line_of_the_log_is_not_replaced(db: Sql) -> None:
    db.enqueue("a")
    before = db.content("litejobs__transition")
    for how in ("insert", "insert or replace", "insert or ignore"):
        for number in (1, 2**53 + 1):
            sentence = db.refused(
                f"{how} into litejobs__transition (id, at) values ({number}, 0)"
            )
            assert sentence == "immutable_log: what happened is never changed"
    assert db.content("litejobs__transition") == before


# Lanes --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_a_lane_that_is_there_is_not_made_again(db: Sql, how: str) -> None:
    db.enqueue("a")
    lanes = db.content("litejobs_lane")
    db.execute(f"{how} into litejobs_lane (queue, task) values ('default', 'a')")
    db.execute(f"{how} into litejobs_lane (id, queue, task) values (1, 'x', 'y')")
    assert db.content("litejobs_lane") == lanes


def test_a_lane_does_not_change(db: Sql) -> None:
    db.enqueue("a")
    for sql in ("update litejobs_lane set queue = 'x'", "delete from litejobs_lane"):
        assert db.refused(sql) == "immutable_lane: lanes are kept by the database"


def test_a_lane_without_jobs_can_go(db: Sql) -> None:
    db.serve("a")
    db.job_in("completed")
    db.execute("delete from litejobs_job")
    db.execute("delete from litejobs_lane")
    job = db.enqueue("a")
    assert db.job(job).lane_id is not None
    assert len(db.claim()) == 1


# Runners, and the row about the file --------------------------------------------------


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_runners_are_numbered_by_the_database(db: Sql, how: str) -> None:
    runner = db.start_runner()
    for number in (runner, 2**53 + 1, 2**63 - 1):
        sql = f"{how} into litejobs_runner (id) values ({number})"
        assert db.refused(sql) == (
            "immutable_runner: runners are numbered by the database; leave the id out"
        )
    assert db.start_runner() == runner + 1


@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
@pytest.mark.parametrize(
    "assignment", ["id = 77", "seen_at = -1", "seen_at = 253402300800000"]
)
def test_what_a_runner_saw_is_an_instant(db: Sql, assignment: str, how: str) -> None:
    db.start_runner()
    assert db.refused(f"{how} litejobs_runner set {assignment}") == (
        "immutable_runner: id and seen_at are kept by the database, and a runner that "
        "has stopped stays so; leave them out"
    )
    db.execute("update litejobs_runner set seen_at = seen_at + 1")


@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
def test_a_runner_that_has_stopped_stays_so(db: Sql, how: str) -> None:
    """What it had open was settled; its row does not say who runs now."""
    runner = db.start_runner()
    db.execute("update litejobs_runner set stopped_at = 5")
    db.execute("update litejobs_runner set stopped_at = 6, threads = 2")
    assert db.refused(f"{how} litejobs_runner set stopped_at = null").startswith(
        "immutable_runner: id and seen_at are kept by the database, and a runner that "
        "has stopped stays so"
    )
    stopped = "select stopped_at from litejobs_runner where id = ?"
    assert db.column(stopped, (runner,)) == [6]


def test_a_living_runner_is_not_deleted(db: Sql) -> None:
    ended, living = db.start_runner(), db.start_runner()
    assert db.refused("delete from litejobs_runner where id = ?", (living,)) == (
        "immutable_runner: a living runner cannot be deleted; set its stopped_at, or "
        "end its process"
    )
    db.execute("delete from litejobs_runner where id = ?", (ended,))
    assert db.column("select id from litejobs_runner") == [living]


def test_the_row_about_the_file_is_not_deleted(db: Sql) -> None:
    assert db.refused("delete from litejobs_meta") == (
        "immutable_meta: this row says what the file is; leave it"
    )
    assert len(db.content("litejobs_meta")) == 1


@pytest.mark.parametrize("state", ["processing", "failed", "completed"])
def test_move_by_hand_is_not_completed_unless_it_was_made(
    served: Sql, state: str
) -> None:
    """The command is for the trigger that sees the move, but anybody can say it."""
    job = served.job_in(state)
    tables = "select * from litejobs_job", "select * from litejobs__transition"
    before = [served.rows(each) for each in tables]
    served.execute(
        "insert into litejobs__by_hand (id, task, old_state, new_state) "
        "values (?, 'a', 'completed', 'cancelled')",
        (job,),
    )
    assert [served.rows(each) for each in tables] == before


# Numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "constraint"),
    [
        ("update litejobs_job set given = 'x'", "litejobs_job_given_is_json"),
        ("update litejobs_job set attempts = 1 << 62", "litejobs_job_counts_in_range"),
        ("update litejobs_job set crashes = 1 << 31", "litejobs_job_counts_in_range"),
        (
            "update litejobs_job set delayed_ms = 1 << 62",
            "litejobs_job_counts_in_range",
        ),
        (
            "insert into litejobs_job "
            "(task, queue, lane_id, priority, run_at, created_at) "
            "values ('a', 'default', 1, 0, 0, 1 << 62)",
            "litejobs_job_instants_in_range",
        ),
        ("update litejobs_meta set logged = 1 << 61", "litejobs_meta_logged_in_range"),
        (
            "insert into litejobs_job "
            "(task, queue, lane_id, priority, run_at, created_at, birth) "
            "values ('a', 'default', 1, 0, 0, 0, (1 << 62) + 1)",
            "litejobs_job_birth_in_range",
        ),
        (
            "insert into litejobs__transition (at, new_state) values (1 << 62, 'x')",
            "litejobs_line_at_in_range",
        ),
    ],
)
def test_numbers_have_bounds(db: Sql, sql: str, constraint: str) -> None:
    """Beyond them a sum is not an integer any more, and whoever adds is refused."""
    db.enqueue("a")
    assert db.refused(sql) == f"CHECK constraint failed: {constraint}"


def test_the_log_is_what_happened(db: Sql) -> None:
    """No line comes between others, changes or goes, and what was counted stays."""
    db.serve("a")
    db.enqueue("a")
    db.execute("update litejobs_queue set paused = 1")
    log = db.content("litejobs__transition")
    [line] = db.column("select id from litejobs_line where note is null")
    for sql in (
        f"insert into litejobs_line (id, at, new_state) values ({line + 9}, 0, 'x')",
        "insert into litejobs_line (id, at, new_state) values (1, 0, 'x')",
        "update litejobs_line set at = 5",
        "delete from litejobs_line",
        "update litejobs_job set birth = 8",
        "update litejobs_job set birth_origin = 'schedule s'",
        "update litejobs_meta set logged = 0",
        "insert or replace into litejobs_meta (id, schema_version, installed_at) "
        "values (1, 1, 0)",
    ):
        assert db.refused(sql).startswith(("immutable_log: ", "immutable_meta: "))
    # What says what is so is not a change.
    db.execute("update litejobs_job set birth = birth, birth_origin = birth_origin")
    db.execute("update litejobs_meta set logged = logged")
    assert db.content("litejobs__transition") == log


# Numbers ------------------------------------------------------------------------------

# What a row of each table that numbers its rows may have, if its id is left out.
NUMBERED = {
    "litejobs_runner": "(pid) values (1)",
    "litejobs_standby": "(pid) values (1)",
    "litejobs_lane": "(queue, task) values ('default', 'mine')",
    "litejobs_job": "(task) values ('a')",
    "litejobs_attempt": "(job_id, start_no, attempt, runner_id, claimed_at) "
    "select id, 1, 1, (select max(id) from litejobs_runner), 0 from litejobs_job "
    "where id = 1",
    "litejobs_policy": "(task) values ('mine')",
    "litejobs_rule": "(policy_id, position, action) values (1, 9, 'break')",
    "litejobs_tier": "(min_priority, every_ms) values (7, 1)",
    "litejobs_batch": "(name) values ('mine')",
    "litejobs_dependency": "(job_id, parent_id) values (3, 2)",
    "litejobs_schedule": "(name, task, every_ms) values ('mine', 'a', 1000)",
    "litejobs_telling": "(parent_state, told_id, last_id) values ('completed', 0, 0)",
    "litejobs_operation": "(name) values ('mine')",
    "litejobs_spec": "(timeout_ms) values (77)",
    "litejobs_change": "(operation_id, kind, key) values (1, 'key', 'mine')",
}
# Those of which each row has a number that is known.
ONES = {
    *("litejobs_meta", "litejobs_tally", "litejobs_undoing", "litejobs_line"),
    *("litejobs_misfit", "litejobs_space", "litejobs_placement"),
    *("litejobs_retaining", "litejobs_clock_watch", "litejobs_carried"),
}


def numbering(db: Sql) -> list[str]:
    """The tables whose key is a number that SQLite can give."""
    return [
        table
        for table in tables(db)
        if db.value("select count(*) from pragma_table_info(?) where pk", (table,)) == 1
        and db.value("select type from pragma_table_info(?) where pk", (table,)).upper()
        == "INTEGER"
    ]


@pytest.fixture
def numbered(db: Sql) -> Sql:
    """One with a row in each of these tables but the last."""
    db.serve("a")
    db.add_policy({"action": "break"})
    for _ in range(3):
        db.enqueue("a")
    db.insert("litejobs_operation", name="first")
    return db


def given(table: str) -> str:
    """The row of NUMBERED with an id that is bound."""
    columns, _, values = NUMBERED[table].partition(") ")
    verb = "select " if values.startswith("select ") else "values ("
    return f"(id, {columns[1:]}) {verb}?, {values.removeprefix(verb)}"


def test_every_table_that_gives_numbers_is_known(db: Sql) -> None:
    assert set(numbering(db)) == NUMBERED.keys() | ONES


INSERTS = (
    "insert",
    "insert or replace",
    "insert or ignore",
    "insert or fail",
    "upsert",
)


@for_each("how, table", in_turn(INSERTS, [*NUMBERED]))
def test_no_number_uses_up_the_others(numbered: Sql, how: str, table: str) -> None:
    """After the largest number there is none for others, or it is any.

    SQLite remembers one that is ignored because of a constraint, too.
    """
    uses_up_no_others(numbered, how, table)


@pytest.mark.torture
@for_each("table", NUMBERED)
@for_each("how", INSERTS)
def test_no_number_uses_up_the_others_in_any_way(
    numbered: Sql, how: str, table: str
) -> None:
    uses_up_no_others(numbered, how, table)


def uses_up_no_others(numbered: Sql, how: str, table: str) -> None:
    verb = "insert" if how == "upsert" else how
    end = " on conflict do nothing" if how == "upsert" else ""
    row = given(table)
    for number in (2**53 + 1, 2**63 - 1):
        with contextlib.suppress(*ERRORS):
            numbered.execute(f"{verb} into {table} {row}{end}", (number,))
        sql = f"select count(*) from {table} where id = ?"
        assert numbered.value(sql, (number,)) == 0
        assert numbered.refused(f"insert into {table} {row}", (number,))
    numbered.execute(f"insert into {table} {NUMBERED[table]}")
    assert numbered.value(f"select max(id) from {table}") < 1_000


@for_each("table", NUMBERED)
@for_each("how", ["update", "update or replace", "update or ignore"])
def test_no_row_takes_such_a_number(numbered: Sql, table: str, how: str) -> None:
    numbered.execute(f"insert into {table} {NUMBERED[table]}")
    before = numbered.column(f"select id from {table}")
    for name in ("id", "rowid"):
        with contextlib.suppress(*ERRORS):
            numbered.execute(f"{how} {table} set {name} = {2**63 - 1} where id > 0")
        assert numbered.column(f"select id from {table}") == before
