"""What a purge deletes, what it leaves, and what it leaves behind."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

import litejobs
from litejobs import Circuit, LiteJobs, every
from litejobs._control import purge
from litejobs._storage.statements import queries
from litejobs.errors import (
    ConfigurationError,
    ConstraintViolated,
    DatabaseFull,
    JobExists,
    JobNotFound,
    LiteJobsError,
)
from tests.sql.fixture import Sql
from tests.waiting import Sizes, Times

LONG = 30.0  # seconds of real time; never used up
NOW = "2026-01-01T12:00:00Z"
CANARY = "canary-4711"

Add = Callable[..., Any]


@pytest.fixture
def add(jobs: LiteJobs) -> Add:
    """Enqueue a job that ends as it is told to: `add("error", queue="mail")`."""
    return adder(jobs)


def adder(jobs: LiteJobs) -> Add:
    @jobs.task(name="end", max_attempts=1)
    def end(how: str) -> str:
        if how == "error":
            raise ValueError(how)
        return how

    @jobs.task(name="other")
    def other() -> None: ...

    def enqueue(how: str = "ok", **options: Any) -> Any:
        job = end.using(**options).enqueue(how)
        if how == "cancel":
            job.cancel()
        return job

    return enqueue


def ids(jobs: LiteJobs) -> list[int]:
    return sorted(job.id for job in jobs.list(limit=1000))


def delete(jobs: LiteJobs, *numbers: int) -> None:
    """A person deletes these jobs, which a purge would leave."""
    with jobs.transaction() as db:
        for job in numbers:
            db.execute("delete from litejobs_job where id = ?", (job,))


# Which --------------------------------------------------------------------------------


def test_purge_deletes_completed_and_cancelled_jobs(jobs: LiteJobs, add: Add) -> None:
    add("ok"), add("cancel"), add("error")
    jobs.drain()
    waiting = add("ok", delay="1h")
    counts = {"cancelled": 1, "completed": 1, "dead_lettered": 1, "scheduled": 1}
    assert jobs.counts() == counts
    assert jobs.purge(older_than=None) == 2
    assert jobs.counts() == {"dead_lettered": 1, "scheduled": 1}
    assert waiting.state == "scheduled"


def test_dead_letters_are_purged_when_they_are_named(jobs: LiteJobs, add: Add) -> None:
    add("ok"), add("error")
    jobs.drain()
    assert jobs.purge(older_than=None, states=["dead_lettered"]) == 1
    assert jobs.counts() == {"completed": 1}


def test_only_what_ended_long_enough_ago_is_purged(jobs: LiteJobs, add: Add) -> None:
    """The age counts from the end, not from when it was asked for."""
    with freeze_time(NOW) as clock:
        old = add("ok")
        late = add("ok", delay="2h")
        jobs.drain()
        clock.tick(dt.timedelta(hours=2))
        jobs.drain()
        clock.tick(dt.timedelta(hours=2) - dt.timedelta(milliseconds=1))
        assert jobs.purge(older_than="4h") == 0
        clock.tick(dt.timedelta(milliseconds=1))
        assert jobs.purge(older_than="4h") == 1
        assert ids(jobs) == [late.id]
        assert old.id < late.id
        assert jobs.purge(older_than=0) == 1


def test_a_clock_that_went_back_hides_jobs_from_an_age_only(
    jobs: LiteJobs, add: Add
) -> None:
    with freeze_time(NOW) as clock:
        add("ok")
        jobs.drain()
        clock.tick(dt.timedelta(hours=-1))
        assert jobs.purge(older_than=0) == 0
        assert jobs.purge(older_than=None) == 1


def test_what_ends_after_the_question_stays_though_the_clock_went_back(
    jobs: LiteJobs, add: Add
) -> None:
    with freeze_time(NOW) as clock:
        add("ok")
        jobs.drain()
        clock.tick(dt.timedelta(hours=-1))
        waiting, stopped = add("ok"), add("ok")
        chosen = purge.selection(["completed", "cancelled"], None, None, None)
        with jobs._store.database.reader() as db:
            chosen.update(
                zip(
                    ("before_at", "last_line", "last_operation"),
                    db.execute(queries()["purge_bounds"], {"age_ms": None}).get,
                    strict=True,
                )
            )
        clock.tick(60)
        with jobs.operation("cancel", "one"):
            stopped.cancel()
        jobs.drain()
        assert purge.purge(jobs._store, chosen) == 1
        assert ids(jobs) == [waiting.id, stopped.id]
        assert [each.name for each in jobs.operations()] == ["purge", "cancel"]


def test_an_interrupted_purge_forgets_no_operation(
    jobs: LiteJobs, add: Add, sizes: Sizes
) -> None:
    sizes(fewest_at_once=1, most_at_once=1)
    for _ in range(3):
        add("ok")
    jobs.drain()
    with jobs.operation("pause", "queue mail"):
        jobs.queues["mail"].pause()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    chosen = purge.selection(["completed"], None, None, None)
    with pytest.raises(KeyboardInterrupt):
        purge.purge(jobs._store, chosen, told=interrupt)
    assert len(ids(jobs)) == 2
    assert [each.name for each in jobs.operations()] == ["purge", "pause"]


def test_task_and_queue_choose_among_them(jobs: LiteJobs, add: Add) -> None:
    mail = add("ok", queue="mail")
    bulk = add("ok", queue="bulk")
    other = jobs.tasks["other"].using(queue="mail").enqueue()
    jobs.drain()
    assert jobs.purge(older_than=None, task="other", queue="bulk") == 0
    assert jobs.purge(older_than=None, task="end", queue="mail") == 1
    assert ids(jobs) == [bulk.id, other.id]
    assert jobs.purge(older_than=None, queue="mail") == 1
    assert jobs.purge(older_than=None, task="end") == 1
    assert mail.id == 1


def test_a_job_that_was_requeued_while_others_were_deleted_stays(
    jobs: LiteJobs, add: Add, sizes: Sizes
) -> None:
    sizes(fewest_at_once=1, most_at_once=1)
    first, second, third = add("ok"), add("ok"), add("ok")
    jobs.drain()
    chosen = purge.selection(["completed"], None, None, None)
    told: list[int] = []

    def requeue(deleted: int) -> None:
        if not told:
            second.requeue()
        told.append(deleted)

    assert purge.purge(jobs._store, chosen, told=requeue) == 2
    assert told == [1, 0, 1]
    assert ids(jobs) == [second.id]
    assert (first.id, second.state, third.id) == (1, "pending", 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"states": ["pending"]}, "state='pending' is not one in which a job"),
        ({"states": "processing"}, "state='processing' is not one in which"),
        ({"states": [None]}, "state=None is not one in which"),
        ({"states": []}, "states=[] means no job"),
        ({"older_than": "soon"}, "older_than='soon'"),
        ({"older_than": -1}, "older_than=-1"),
        ({"task": ""}, "task='' does not fit"),
        ({"queue": 7}, "queue=7 does not fit"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    jobs: LiteJobs, add: Add, options: dict[str, Any], words: str
) -> None:
    add("ok")
    jobs.drain()
    with pytest.raises(ConfigurationError) as refused:
        jobs.purge(**{"older_than": None, **options})
    assert words in str(refused.value)
    assert jobs.counts() == {"completed": 1}


def test_a_purge_within_a_transaction_is_refused(jobs: LiteJobs, add: Add) -> None:
    add("ok")
    jobs.drain()
    with jobs.transaction(), pytest.raises(LiteJobsError, match="call it after"):
        jobs.purge(older_than=None)
    assert jobs.counts() == {"completed": 1}


# What hangs on them -------------------------------------------------------------------


def test_attempts_and_lines_of_the_log_go_along(jobs: LiteJobs, add: Add) -> None:
    gone, kept = add("ok"), add("error")
    jobs.drain()
    jobs.purge(older_than=None)
    with jobs.reader() as db:
        for table in ("attempt", "_transition"):
            column = f"select distinct job_id from litejobs_{table}"
            left = [row[0] for row in db.execute(f"{column} where job_id is not null")]
            assert left == [kept.id]
    assert gone.id != kept.id


def test_the_log_has_one_line_about_it(jobs: LiteJobs, add: Add) -> None:
    with freeze_time(NOW):
        for _ in range(30):
            add("ok", queue="mail")
        jobs.drain()
        before = jobs.log(limit=10_000)[-1].id
        assert jobs.purge(older_than=0, task="end", queue="mail") == 30
        line, done = jobs.log(after=before)
        assert (done.name, done.subject) == ("operation.done", "purge: 30 jobs")
        assert (line.name, line.origin, line.job_id) == ("jobs.purged", "api", None)
        assert line.subject == (
            "30 jobs of task end of queue mail "
            "(completed, cancelled until 2026-01-01T12:00:00.000Z)"
        )
        add("cancel")
        assert jobs.purge(older_than=None, states="cancelled") == 1
        assert jobs.log(after=done.id, partial=True)[-2].subject == (
            "1 job (cancelled until 2026-01-01T12:00:00.000Z)"
        )


def test_the_log_has_no_line_about_nothing(jobs: LiteJobs) -> None:
    assert jobs.purge(older_than=None) == 0
    assert jobs.log() == []


def test_a_child_goes_on_whose_parent_was_purged(jobs: LiteJobs, add: Add) -> None:
    parent = add("ok")
    later = add("ok", delay="1h")
    child = add("ok", after=[parent, later])
    jobs.drain()
    assert jobs.purge(older_than=None) == 0
    delete(jobs, parent.id)
    waits_for = [each.object for each in child.why() if each.code == "dependency"]
    assert waits_for == [f"job {later.id}"]
    later.run_now()
    jobs.drain()
    assert child.state == "completed"


def test_the_result_of_a_purged_job_reaches_the_next_of_its_chain(
    jobs: LiteJobs,
) -> None:
    got: list[str] = []

    @jobs.task
    def first() -> str:
        return "from the first"

    @jobs.task
    def second(prev: str) -> None:
        got.append(prev)

    jobs.enqueue_chain([first.call(), second.using(require=["ready"]).call()])
    jobs.drain()
    assert jobs.counts() == {"completed": 1, "pending": 1}
    assert jobs.purge(older_than=None) == 0
    delete(jobs, 1)
    jobs.facts["ready"] = True
    jobs.drain()
    assert got == ["from the first"]


def test_a_child_that_is_blocked_by_a_purged_failure_says_so_and_can_be_freed(
    jobs: LiteJobs, add: Add
) -> None:
    parent = add("error")
    child = add("ok", after=[parent], on_parent_failure="block")
    jobs.drain()
    assert jobs.purge(older_than=None, states=["dead_lettered"]) == 0
    delete(jobs, parent.id)
    [reason] = [each for each in child.why() if each.code == "dependency"]
    assert reason.object == f"job {parent.id}"
    assert "delete the row in litejobs_dependency" in str(reason.remedy)
    with jobs.transaction() as db:
        db.execute("delete from litejobs_dependency")
    jobs.drain()
    assert child.state == "completed"


def test_a_batch_ends_as_it_would_have_without_the_purge(
    jobs: LiteJobs, add: Add
) -> None:
    task = jobs.tasks["end"]
    with jobs.batch() as good:
        good.enqueue(task.call("ok"))
        good.enqueue(task.using(delay="1h").call("ok"))
    with jobs.batch() as bad:
        bad.enqueue(task.call("error"))
        bad.enqueue(task.using(delay="1h").call("ok"))
    jobs.drain()
    assert jobs.purge(older_than=None, states=["completed", "dead_lettered"]) == 0
    delete(jobs, *(job.id for job in jobs.list() if job.state != "scheduled"))
    for job in jobs.list(state="scheduled"):
        jobs.get(job.id).run_now()
    jobs.drain()
    assert (good.state, bad.state) == ("succeeded", "failed")
    add("ok")


def test_an_occurrence_whose_job_was_purged_does_not_fire_again(
    jobs: LiteJobs,
) -> None:
    ran: list[int] = []
    with freeze_time(NOW) as clock:

        @jobs.schedule(every("1h"), name="hourly")
        def tick() -> None:
            ran.append(1)

        jobs.drain()
        clock.tick(dt.timedelta(hours=1))
        jobs.drain()
        assert jobs.purge(older_than=None) == 1
        jobs.drain()
        assert len(ran) == 1
        with jobs.reader() as db:
            fired = "select count(*) from litejobs_occurrence where state = 'fired'"
            assert db.execute(fired).get == 1
        clock.tick(dt.timedelta(hours=1))
        jobs.drain()
        assert len(ran) == 2


def test_a_unique_key_holds_as_long_as_it_did_when_its_job_is_purged(
    jobs: LiteJobs, add: Add
) -> None:
    with freeze_time(NOW) as clock:
        job = add("ok", unique_key="once", unique_for="1d")
        add("ok", unique_key="plain")
        jobs.drain()
        assert jobs.purge(older_than=None) == 2
        assert ids(jobs) == []
        again = add("ok", unique_key="once", unique_for="1d")
        assert again == job
        with pytest.raises(JobExists) as caught:
            add("ok", unique_key="once", on_conflict="raise")
        assert caught.value.job_id == job.id
        assert ids(jobs) == []
        assert add("ok", unique_key="plain").id == 3
        clock.tick(dt.timedelta(days=1))
        assert add("ok", unique_key="once").id == 4


def test_what_may_be_purged_is_a_view_for_any_client(db: Sql) -> None:
    db.serve("a")
    done = [db.job_in(state) for state in ("completed", "dead_lettered", "cancelled")]
    for state in ("scheduled", "blocked", "pending", "processing", "failed"):
        db.job_in(state)
    assert db.column("select id from litejobs__purgeable order by id") == done
    db.execute(
        "delete from litejobs_job where id in (select id from litejobs__purgeable)"
    )
    assert set(db.column("select state from litejobs_job")) == {
        *("scheduled", "blocked", "pending", "processing", "failed")
    }


# A little at a time -------------------------------------------------------------------


def test_a_transaction_deletes_no_more_than_500_jobs(
    jobs: LiteJobs, add: Add, times: Times, sizes: Sizes
) -> None:
    times(step=LONG)
    sizes(found_at_once=1100)
    with jobs.transaction():
        for _ in range(1500):
            add("cancel")
    told: list[int] = []
    chosen = purge.selection(["cancelled"], None, None, None)
    assert purge.purge(jobs._store, chosen, told=told.append) == 1500
    assert told[:7] == [25, 50, 100, 200, 400, 325, 400]
    assert sum(told) == 1500
    assert max(told) <= 500


def test_a_slow_disk_makes_the_transactions_smaller(
    jobs: LiteJobs, add: Add, times: Times
) -> None:
    times(step=0.0)
    with jobs.transaction():
        for _ in range(35):
            add("cancel")
    told: list[int] = []
    chosen = purge.selection(["cancelled"], None, None, None)
    purge.purge(jobs._store, chosen, told=told.append)
    assert told == [25, 10]


def test_jobs_run_while_others_are_purged(file_jobs: LiteJobs) -> None:
    jobs, ran = file_jobs, threading.Event()
    add = adder(jobs)
    with jobs.transaction():
        for _ in range(60):
            add("cancel")

    @jobs.task
    def meanwhile() -> None:
        ran.set()

    def enqueue(_: int) -> None:
        if not ran.is_set():
            meanwhile.enqueue()
            assert ran.wait(LONG)

    chosen = purge.selection(["cancelled"], None, None, None)
    with jobs.running(threads=1):
        assert purge.purge(jobs._store, chosen, told=enqueue) == 60
    assert ran.is_set()


def test_what_was_deleted_before_an_interruption_is_logged(
    jobs: LiteJobs, add: Add
) -> None:
    for _ in range(40):
        add("cancel")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    chosen = purge.selection(["cancelled"], None, None, None)
    with pytest.raises(KeyboardInterrupt):
        purge.purge(jobs._store, chosen, told=interrupt)
    assert jobs.counts() == {"cancelled": 15}
    [subject] = [line.subject for line in jobs.log() if line.name == "jobs.purged"]
    assert subject is not None
    assert subject.startswith("25 jobs (cancelled until ")


def test_an_error_is_told_even_if_the_log_cannot_be_written(
    jobs: LiteJobs, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(25):
        add("cancel")
    full = DatabaseFull("full")

    def refuse(*_: object) -> None:
        raise full

    monkeypatch.setattr(purge, "_record", refuse)
    chosen = purge.selection(["cancelled"], None, None, None)
    with pytest.raises(ZeroDivisionError):
        purge.purge(jobs._store, chosen, told=lambda _: 1 // 0)


# What is left -------------------------------------------------------------------------

SONGS = 40


def found(jobs: LiteJobs) -> int:
    """How often the canary is in the file and beside it.

    Another process looks: in this one SQLite's locks would be lost.
    """
    path = Path(jobs.path)
    names = sorted(path.parent.glob(f"{path.name}*"))
    assert path in names
    code = (
        "import sys; print(sum(open(each, 'rb').read().count(sys.argv[1].encode())"
        " for each in sys.argv[2:]))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, CANARY, *names],
        capture_output=True,
        check=True,
    )
    return int(done.stdout)


def sing(jobs: LiteJobs, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs end with a canary in their arguments, result or error; others have none."""
    chosen = random.Random(1)

    @jobs.task(max_attempts=1)
    def sing(song: str) -> str:
        litejobs.current().progress(0.5, song[:50])
        if chosen.random() < 0.2:
            raise ValueError(song)
        return song

    keep = jobs.task(name="keep")(lambda _: None)
    with caplog.at_level(logging.CRITICAL, "litejobs"):
        for _ in range(4):
            for _ in range(SONGS // 4):
                sing.enqueue(CANARY + "." * chosen.choice([1, 100, 900, 3000]))
                keep.enqueue("x" * chosen.choice([1, 100, 900, 3000]))
            jobs.drain()
    assert found(jobs) >= SONGS


def test_nothing_of_purged_jobs_is_left_in_the_files(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    sing(file_jobs, caplog)
    assert file_jobs.purge(older_than=None, states=purge.ENDED) == 2 * SONGS
    assert found(file_jobs) == 0


def test_nothing_of_what_purged_jobs_named_is_left_in_the_files(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys, circuits, batches, unique keys, and what people said that they did."""
    jobs = file_jobs

    @jobs.task(
        max_attempts=1,
        concurrency_key="key {who}",
        circuit=Circuit("circuit {who}", threshold=1, cooldown="1m"),
    )
    def visit(who: str, fails: bool) -> str:
        litejobs.current().progress(0.5, who)
        if fails:
            raise ValueError(who)
        return who

    @jobs.task(name="remind")
    def remind(who: str) -> None: ...

    with freeze_time(NOW) as clock:
        jobs.open()
        with jobs.batch(name=f"batch of {CANARY}") as batch:
            for number in range(SONGS):
                who = f"{CANARY} {number}"
                options = {"unique_key": f"only {who}", "unique_for": "1m"}
                batch.enqueue(visit.using(**options).call(who, number % 9 == 0))
        batch.on_complete(remind.call(CANARY))
        with jobs.batch(name=f"nothing for {CANARY}"):
            pass
        jobs.schedules.create(f"for {CANARY}", remind, every("1h"), args=[CANARY])
        with caplog.at_level(logging.CRITICAL, "litejobs"):
            jobs.drain()
            clock.tick(dt.timedelta(hours=1))
            jobs.drain()
        with jobs.operation("stop", f"what reminds {CANARY}"):
            jobs.keys[f"key {CANARY} 1"].set(max_running=3)
            jobs.schedules.remove(f"for {CANARY}")
        queue = f"for {CANARY}"
        stopped = remind.using(delay="1d", queue=queue).enqueue(CANARY)
        with jobs.operation("cancel", CANARY):
            stopped.cancel()
        assert found(jobs) > 5 * SONGS
        assert jobs.keys[f"key {CANARY} 1"].remove()
        jobs.purge(older_than=None, states=purge.ENDED)
        assert jobs.counts() == {}
        # A queue is a setting, which goes by hand.
        jobs.queues[queue].remove()
        # Circuits that have opened are remembered for an hour after their cool-down.
        assert {each.state for each in jobs.circuits.values()} == {"half_open"}
        clock.tick(dt.timedelta(minutes=61))
        assert jobs.purge(older_than=None) == 0
    assert list(jobs.circuits) == []
    assert found(jobs) == 0


def test_nothing_is_left_between_others_after_a_vacuum(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite leaves copies where it moves rows to other pages, and forgets them."""
    sing(file_jobs, caplog)
    purged = file_jobs.purge(
        older_than=None, states=purge.ENDED, task="sing", vacuum=True
    )
    assert purged == SONGS
    assert found(file_jobs) == 0
    with file_jobs.reader() as db:
        assert db.pragma("freelist_count") == 0
    assert file_jobs.counts() == {"completed": SONGS}


def test_a_purge_of_jobs_in_memory_may_vacuum_too(jobs: LiteJobs, add: Add) -> None:
    add("cancel")
    assert jobs.purge(older_than=None, vacuum=True) == 1


def test_an_open_read_is_named_as_what_keeps_deleted_text(
    file_jobs: LiteJobs,
    caplog: pytest.LogCaptureFixture,
    times: Times,
) -> None:
    times(cut_pause=0.0)
    jobs = file_jobs
    add = adder(jobs)
    add("cancel")
    with jobs.reader() as reader:
        reader.execute("begin")
        assert reader.execute("select count(*) from litejobs_job").get == 1
        assert jobs.purge(older_than=None) == 1
        reader.execute("rollback")
    [line] = [each for each in caplog.messages if "purged" in each]
    assert f"can still be read in {jobs.path}-wal" in line
    add("cancel")
    caplog.clear()
    assert jobs.purge(older_than=None) == 1
    assert caplog.messages == []
    assert Path(f"{jobs.path}-wal").stat().st_size == 0


def test_the_queries_find_their_way_by_the_ids(db: Sql) -> None:
    """A step looks at the rows that it deletes, and at no others."""
    lines = db.execute(
        f"explain query plan {queries()['purge_jobs']}",
        {"ids": "[1]", "name": "x", "last_line": 7},
    )
    plans = [str(line[3]) for line in lines]
    assert any(
        "SEARCH litejobs_job USING INTEGER PRIMARY KEY" in each for each in plans
    )
    assert not any(each.startswith("SCAN litejobs_job") for each in plans)


# What is said of jobs that have gone --------------------------------------------------


def test_who_asks_for_the_result_of_a_deleted_job_is_told_so(
    jobs: LiteJobs, add: Add, clock: Any
) -> None:
    job, kept = add("ok"), add("ok", delay="1h")
    assert jobs.drain() == 1
    assert jobs.purge(older_than=None) == 1
    sentence = (
        "there is no job 1 in :memory: any more: it was deleted after it had ended, "
        "and its result with it (what is deleted had ended by 2026-01-01T00:00:00Z); "
        "ask for results sooner, or keep the jobs of its task longer"
    )

    async def wait() -> None:
        await job

    for ask in (
        *(job.result, job.snapshot, job.forecast, job.requeue),
        *(job.cancel, job.run_now, job.why, lambda: job.attempts),
        *(lambda: jobs.get(1), lambda: job.schedule_id, lambda: asyncio.run(wait())),
        lambda: jobs.log(job_id=1),
    ):
        with pytest.raises(JobNotFound) as caught:
            ask()
        assert str(caught.value) == sentence
    for number in (kept.id + 1, 0, -1, 2**70):
        with pytest.raises(JobNotFound) as caught:
            jobs.get(number)
        assert str(caught.value) == f"there is no job {number} in :memory:"
    assert jobs.log(job_id=1, partial=True) == []
    assert kept.attempts == []
    assert [kept.cancel(), kept.cancel(), kept.run_now()] == [True, False, False]


def test_who_waits_for_a_result_is_told_when_its_job_is_deleted(
    file_jobs: LiteJobs,
) -> None:
    """Not left waiting for what will never come."""
    job = adder(file_jobs)("ok", delay="1h")
    said: list[str] = []

    def wait() -> None:
        try:
            job.result(timeout=LONG)
        except JobNotFound as error:
            said.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    with file_jobs.transaction():
        job.cancel()
        delete(file_jobs, job.id)
    waiting.join(LONG)
    assert said[0].startswith("there is no job 1 in ")
    assert "it was deleted after it had ended" in said[0]


def test_undo_is_refused_whole_when_one_of_its_jobs_has_gone(
    jobs: LiteJobs, add: Add
) -> None:
    with freeze_time(NOW) as clock:
        old, new = add("ok"), add("ok", delay="8d")
        with jobs.operation("give up"):
            old.cancel()
            new.cancel()
        clock.tick(dt.timedelta(days=7))
        delete(jobs, old.id)
        with pytest.raises(ConstraintViolated) as caught:
            jobs.undo()
        assert "jobs of it were deleted; nothing was changed" in str(caught.value)
        assert new.state == "cancelled"
