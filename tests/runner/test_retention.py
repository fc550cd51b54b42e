"""What a runner and a drain delete by themselves, and when."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Policy, Retry, Rule
from litejobs._process import clock as clocks
from litejobs._runner.loop import Loop
from litejobs._runner.retention import Retention
from litejobs.errors import ConfigurationError, ConstraintViolated, EventsLost
from tests.waiting import Sizes, Times, eventually

ROOT = Path(__file__).parents[2]
DAY = 86_400.0
HOUR = 3_600.0
NOW = "2026-01-01T12:00:00Z"
SOON = Retry(max_attempts=99, backoff="none", delay="5m", jitter=0)


def ids(jobs: LiteJobs) -> list[int]:
    return sorted(job.id for job in jobs.list(limit=1000))


# Drain --------------------------------------------------------------------------------


def test_a_drain_deletes_what_was_kept_long_enough(jobs: LiteJobs, clock: Any) -> None:
    done = jobs.task(name="done")(lambda: None)
    fail = jobs.task(name="fail", max_attempts=1)(lambda: 1 / 0)
    for _ in range(600):
        done.enqueue()
    dead = fail.enqueue()
    jobs.drain()
    clock.tick(7 * DAY - 1)
    new = done.enqueue()
    jobs.drain()
    assert len(ids(jobs)) == 602
    clock.tick(HOUR)
    jobs.drain()
    assert ids(jobs) == [dead.id, new.id]
    [line] = [each for each in jobs.log(limit=9999) if each.name == "jobs.purged"]
    assert (line.subject, line.origin) == ("600 jobs kept long enough", "retention")


def test_a_drain_without_a_held_clock_does_no_more_than_it_has_time_for(
    jobs: LiteJobs,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    times: Times,
    sizes: Sizes,
) -> None:
    """Under a held clock it makes all steps: here it is told that it has none."""
    times(retention_least=0.0)
    sizes(retention_percent=0)
    done = jobs.task(name="done")(lambda: None)
    for _ in range(60):
        done.enqueue()
    jobs.drain()
    clock.tick(8 * DAY)
    monkeypatch.setattr(Loop, "clock_is_held", False)
    jobs.drain()
    assert len(ids(jobs)) == 35
    jobs.drain()
    assert len(ids(jobs)) == 10


def test_a_drain_gives_back_the_pages_that_nothing_uses_any_more(
    file_jobs: LiteJobs, clock: Any
) -> None:
    """Where all is run by drains there is no idle runner to do so."""
    jobs, path = file_jobs, Path(file_jobs.path)
    done = jobs.task(name="done")(lambda text: None)
    with jobs.transaction():
        for _ in range(1500):
            done.enqueue("text" * 100)
    jobs.drain()
    jobs._store.database.cut_log()
    before = path.stat().st_size
    clock.tick(8 * DAY)
    jobs.drain()
    assert ids(jobs) == []
    assert path.stat().st_size < before * 0.75


# The runner ---------------------------------------------------------------------------


def test_a_runner_deletes_when_it_has_nothing_else_to_do(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    done = jobs.task(name="done")(lambda: None)
    with freeze_time(NOW) as clock:
        for _ in range(100):
            done.enqueue()
        jobs.drain()
        clock.tick(8 * DAY)
        kept = done.enqueue()
        with jobs.running(threads=1):
            eventually(lambda: ids(jobs) == [kept.id])
        names = [each.subject for each in jobs.log(limit=9999) if each.note == "jobs"]
        assert names == ["100 jobs kept long enough"]


def test_who_waits_for_a_job_that_is_not_kept_has_its_result(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs

    @jobs.task(keep=0)
    def answer() -> int:
        return 42

    with freeze_time(NOW) as clock, jobs.running(threads=1):
        job = answer.enqueue()
        assert job.result(timeout=30) == 42
        clock.tick(9.0)
        assert ids(jobs) == [job.id]
        clock.tick(11.0)
        eventually(lambda: ids(jobs) == [])


def test_what_is_not_to_be_kept_from_now_on_stays_for_a_minute(
    jobs: LiteJobs, clock: Any
) -> None:
    """In a file that has jobs a slip can be taken back."""
    job = jobs.task(name="a")(lambda: None).enqueue()
    jobs.drain()
    clock.tick(HOUR)
    jobs.drain()
    jobs.retention.set("completed", 0, task="a")
    clock.tick(59)
    jobs.drain()
    assert ids(jobs) == [job.id]
    clock.tick(2)
    jobs.drain()
    assert ids(jobs) == []


def test_jobs_run_on_though_nothing_can_be_deleted(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger of the application refuses to let jobs go."""
    jobs = file_jobs
    done = jobs.task(name="done")(lambda: "done")
    with freeze_time(NOW) as clock:
        old = done.enqueue()
        jobs.drain()
        with jobs.transaction() as db:
            db.execute(
                "create trigger mine before delete on litejobs_job "
                "begin select raise(abort, 'audited: nothing is deleted'); end"
            )
        clock.tick(8 * DAY)
        with caplog.at_level(logging.WARNING, "litejobs"), jobs.running(threads=1):
            assert done.enqueue().result(timeout=30) == "done"
            eventually(lambda: caplog.messages)
            assert done.enqueue().result(timeout=30) == "done"
        [said] = [each for each in caplog.messages if "kept long enough" in each]
        assert said.startswith(
            "what was kept long enough cannot be deleted, and is tried again every "
            "few seconds: "
        )
        assert "audited: nothing is deleted" in said
        assert old.id in ids(jobs)


def test_health_says_it_from_ten_seconds_on_until_it_is_over(
    file_jobs: LiteJobs, times: Times
) -> None:
    times(retention_pause=0.01)
    jobs = file_jobs
    done = jobs.task(name="done")(lambda: None)

    def causes() -> list[str]:
        return [each["code"] for each in jobs.health()["causes"]]

    with freeze_time(NOW) as clock:
        old = done.enqueue()
        jobs.drain()
        clock.tick(8 * DAY)
        with jobs.transaction() as db:
            db.execute(
                "create trigger mine before delete on litejobs_job "
                "begin select raise(abort, 'audited: nothing is deleted'); end"
            )
        with jobs.running(threads=1):
            assert "retention_behind" not in causes()
            clock.tick(11.0)
            eventually(lambda: "retention_behind" in causes())
            assert jobs.health()["healthy"]
            with jobs.transaction() as db:
                db.execute("drop trigger mine")
            eventually(lambda: "retention_behind" not in causes())
            assert old.id not in ids(jobs)


def test_time_in_which_no_step_could_be_stored_is_no_step_of_the_clock(
    jobs: LiteJobs, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For hours: what the runner has told in them is told again with the next step."""
    boot = [1000.0]
    monkeypatch.setattr(clocks.RealTime, "since_boot", lambda: boot[0])
    database = jobs.open()._store.database
    monkeypatch.setattr(database, "clock_is_held", False)
    loop = Loop(database, 1)
    loop.begin([])
    retention = Retention(loop)
    assert retention.step()
    with jobs.transaction() as db:
        db.execute(
            "create temp trigger mine before update on litejobs_retaining "
            "begin select raise(abort, 'no room'); end"
        )
    for _ in range(3):
        clock.tick(HOUR)
        boot[0] += HOUR
        assert not retention.step()
    with jobs.transaction() as db:
        db.execute("drop trigger mine")
    assert retention.step()
    with jobs.reader() as db:
        told = db.execute("select steady_ms, step_ms from litejobs_clock_watch").get
    assert told == (3 * HOUR * 1000, None)
    loop.end()


def test_while_jobs_are_to_be_run_the_next_step_comes_much_later(
    jobs: LiteJobs,
) -> None:
    loop = Loop(jobs.open()._store.database, 1)
    loop.begin([])
    retention = Retention(loop)
    assert retention.rest(busy=True) == retention.rest(busy=False) == 0
    assert retention.step()
    assert retention.rest(busy=True) > retention.rest(busy=False)
    loop.end()


def test_a_busy_runner_deletes_too(file_jobs: LiteJobs) -> None:
    """One job always enqueues the next, until the old ones are gone."""
    jobs, stop = file_jobs, threading.Event()
    done = jobs.task(name="done")(lambda: None)

    @jobs.task
    def again() -> None:
        if not stop.is_set():
            again.enqueue()

    with freeze_time(NOW) as clock:
        old = done.enqueue()
        jobs.drain()
        clock.tick(8 * DAY)
        again.enqueue()
        again.enqueue()
        with jobs.running(threads=1):
            eventually(lambda: old.id not in ids(jobs))
            stop.set()


# What is said of it -------------------------------------------------------------------


def test_the_first_start_of_a_file_says_what_is_kept(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a runner: a drain is quiet."""
    file_jobs.drain()
    with caplog.at_level(logging.INFO, "litejobs"):
        for _ in range(2):
            with file_jobs.running(threads=1):
                pass
    [said] = [each for each in caplog.messages if each.startswith("kept: ")]
    assert said == (
        "kept: completed 7d, cancelled 7d, dead_lettered for ever, operation 30d, "
        "event 30d, attempt the newest 1000 of a job; the rest is deleted in time (see "
        "litejobs retention)"
    )


def rules(jobs: LiteJobs) -> list[str]:
    return [
        " ".join(filter(None, (each.kind, each.task, each.queue, each.kept)))
        for each in jobs.retention
        if each.source != "default"
    ]


def test_code_says_it_for_the_file_and_for_its_tasks() -> None:
    jobs = LiteJobs(
        retention={
            "completed": "1d",
            "dead_lettered": {"age": "90d", "most": 100},
            "event": None,
        }
    )
    jobs.task(keep=0)(never := named("never"))
    jobs.task(keep={"completed": None, "dead_lettered": "2h"})(named("always"))
    assert rules(jobs) == [
        "completed 1d",
        "dead_lettered 90d, the newest 100 at most",
        "event for ever",
        "completed always for ever",
        "dead_lettered always 2h",
        "completed never not at all",
        "cancelled never not at all",
    ]
    jobs.retention.set("cancelled", "5d", task="never")
    jobs.task(keep=None)(never)
    assert rules(jobs)[-2:] == ["dead_lettered always 2h", "cancelled never 5d"]
    jobs.close()


def named(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


def test_what_a_person_has_set_outlives_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path, retention={"completed": "1d"}) as jobs:
        jobs.retention.set("completed", "3d", most=7)
        jobs.retention.set("completed", 0, task="a", queue="q")
    with LiteJobs(path, retention={"completed": "2d"}) as jobs:
        assert rules(jobs) == [
            "completed 3d, the newest 7 at most",
            "completed a q not at all",
        ]
        jobs.retention.reset("completed", task="a", queue="q")
        jobs.retention.reset("completed")
        assert rules(jobs) == []
        with pytest.raises(KeyError):
            jobs.retention.reset("completed", task="a")
    with LiteJobs(path, retention={"completed": "2d"}) as jobs:
        assert rules(jobs) == ["completed 2d"]
        assert len(jobs.retention) == 6
        assert jobs.retention[0] == jobs.retention[:1][0]
        assert "kept='2d'" in repr(jobs.retention)


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        ("7d", 'retention=\'7d\' is not a mapping; give {"completed": "7d"}, say'),
        ({"complete": "7d"}, "did you mean 'completed'"),
        ({"completed": "soon"}, "retention['completed']='soon'"),
        ({"completed": {"ages": 1}}, "'ages' says nothing here; did you mean 'age'"),
        ({"completed": {"most": -1}}, "retention['completed']['most']=-1"),
        ({"event": {"most": 1}}, "is for jobs; of an event give the age alone"),
        ({"file": "much"}, "retention['file']='much' is not a size"),
        ({"file": 0}, "a file cannot be kept below nothing"),
        ({"file": {"age": 5}}, "is not a size"),
        ({"attempt": 0}, "retention['attempt']=0"),
        ({"attempt": "7d"}, "retention['attempt']='7d'"),
    ],
)
def test_what_cannot_be_meant_is_refused(retention: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        LiteJobs(retention=retention)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "failed", "age": 1}, "kind='failed'"),
        ({"kind": "event", "age": 1, "task": "a"}, "an event is of no task"),
        ({"kind": "completed", "age": -1}, "-1"),
        ({"kind": "completed", "age": 1, "queue": ""}, "queue=''"),
        ({"kind": "file", "age": "1MB", "most": 5}, "most=5 is for jobs"),
        ({"kind": "file", "age": "1MB", "task": "a"}, "the file is of no task"),
        ({"kind": "event", "age": "1d", "shared": True}, "is for the size of the file"),
        ({"kind": "attempt", "age": 5, "most": 5}, "of attempts give the number alone"),
        ({"kind": "attempt", "age": "1d"}, "retention of attempt='1d'"),
    ],
)
def test_what_cannot_be_set_is_refused(
    jobs: LiteJobs, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        jobs.retention.set(**options)
    assert words in str(refused.value)
    assert rules(jobs) == []


def test_a_task_keeps_jobs_and_nothing_else(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="'event' is not kept by a rule"):
        jobs.task(name="a", keep={"event": "1d"})(lambda: None)  # type: ignore[dict-item]


# Attempts of jobs that have not ended -------------------------------------------------


def test_of_a_job_that_never_ends_the_newest_attempts_are_kept(clock: Any) -> None:
    begun = dt.datetime.now(dt.UTC)
    with LiteJobs(keep_attempts=3) as jobs:

        @jobs.task(policy=Policy([Rule.snooze(None, delay="5m")]))
        def poll() -> None: ...

        @jobs.task(keep={"attempt": 1}, retry=SOON)
        def once() -> None:
            raise ValueError

        job, other = poll.enqueue(), once.enqueue()
        for _ in range(30):
            jobs.drain()
            clock.tick(360)
        kept = [each.start_no for each in job.attempts]
        # Those of the last hour are there yet.
        assert len(kept) < 16
        assert kept[-3:] == [28, 29, 30]
        assert len(other.attempts) < len(kept)
        assert other.snapshot().starts == 30
        with pytest.raises(EventsLost, match=r"older attempts of it were deleted"):
            jobs.get(job.id, at=begun + dt.timedelta(minutes=1))
        with pytest.raises(EventsLost), job.events(past=True) as events:
            events.poll()


def test_without_a_number_all_are_kept(clock: Any) -> None:
    with LiteJobs(keep_attempts=None) as jobs:
        assert rules(jobs) == ["attempt all of a job"]
        jobs.retention.set("attempt", 5, task="a")
        assert rules(jobs)[1:] == ["attempt a the newest 5 of a job"]


# Below a size -------------------------------------------------------------------------


def used(jobs: LiteJobs) -> int:
    """How many bytes of the file are of pages that something uses."""
    with jobs.reader() as db:
        pages, free, size = (
            db.execute(f"pragma {name}").get
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def test_a_file_is_kept_below_a_size(tmp_path: Path, clock: Any) -> None:
    """Of the jobs those stay that ended last; what is for ever is for ever."""
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        limit = used(jobs) + 200_000
    with LiteJobs(path, retention={"file": limit}, max_size=limit + 50_000) as jobs:
        done = jobs.task(name="done")(lambda text: None)
        fail = jobs.task(name="fail", max_attempts=1)(lambda: 1 / 0)
        dead = fail.enqueue()
        for _ in range(20):
            for number in range(20):
                done.enqueue(f"{number}" * 300)
            clock.tick(120.0)
            jobs.drain()
            clock.tick(120.0)
            jobs.drain()
            assert used(jobs) < limit
        left = ids(jobs)
        assert left[0] == dead.id
        assert left[1:] == list(range(402 - len(left[1:]), 402))
        assert len(left) > 100
        clock.tick(HOUR)
        jobs.drain()
        told = [each.subject for each in jobs.log(limit=9999) if each.note == "jobs"]
        assert told
        assert all("since the file was too large" in str(each) for each in told)


def test_a_runner_keeps_it_so_too(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    limit = used(jobs) + 100_000
    with freeze_time(NOW) as clock:
        done = jobs.task(name="done")(lambda text: None)
        with jobs.running(threads=1) as runner:
            for _ in range(200):
                done.enqueue("text" * 200)
            assert runner.wait_idle(60.0)
            jobs.retention.set("file", limit)
            assert len(ids(jobs)) == 200
            clock.tick(61.0)
            eventually(lambda: used(jobs) < limit)
            assert 20 < len(ids(jobs)) < 150
            [rule] = [each for each in jobs.retention if each.kind == "file"]
            assert (rule.bytes, rule.source) == (limit, "person")


def test_a_size_is_refused_where_it_would_count_tables_of_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table notes (text text)")
    jobs = LiteJobs(path, retention={"file": "10MB"})
    with pytest.raises(ConfigurationError, match=r"count tables .* \(notes\)"):
        jobs.open()
    with LiteJobs(path) as jobs:
        with pytest.raises(ConfigurationError, match=r"shared=True"):
            jobs.retention.set("file", "10MB")
        jobs.retention.set("file", None)
        jobs.retention.set("file", "10MB", shared=True)
        assert rules(jobs) == ["file below 10MB"]
    with LiteJobs(path, retention={"file": "20MB"}, max_size_shared=True) as jobs:
        assert rules(jobs) == ["file below 10MB"]


def test_it_is_below_the_size_at_which_no_new_job_is_taken() -> None:
    with pytest.raises(ConfigurationError, match="is not below max_size=1000000"):
        LiteJobs(retention={"file": "1MB"}, max_size="1MB")
    LiteJobs(retention={"file": "1MB"}, max_size=0)


# Undone -------------------------------------------------------------------------------


def test_who_sets_one_of_both_sizes_is_told_if_they_do_not_fit(tmp_path: Path) -> None:
    with LiteJobs(tmp_path / "jobs.db", max_size="40MB") as jobs:
        with pytest.raises(ConfigurationError) as refused:
            jobs.retention.set("file", "40MB")
        assert str(refused.value) == (
            "retention of file='40MB': new jobs would be refused (max_size=40000000) "
            "before any that has ended is deleted (retention of file: 40000000 bytes); "
            "give less, or raise max_size first"
        )
        with jobs.transaction():
            with pytest.raises(ConfigurationError):
                jobs.retention.set("file", "50MB")
            jobs.pause("mail")
        assert rules(jobs) == []
        assert jobs.queues["mail"].paused
        jobs.retention.set("file", "39MB")
    # The program starts all the same, and who looks is told.
    with LiteJobs(tmp_path / "jobs.db", max_size="30MB") as jobs:
        [found] = [
            each["sentence"]
            for each in jobs.health()["causes"]
            if each["code"] == "file_full_first"
        ]
    assert found == (
        "the file is to be kept below 39000000 bytes (retention of file), but takes no "
        "new job from 30000000 on (max_size), before anything is deleted for it"
    )


def test_a_queue_says_how_long_its_jobs_are_kept(jobs: LiteJobs) -> None:
    mail = jobs.queues["mail"]
    assert mail.retention == {}
    mail.set(retention="1d")
    assert rules(jobs) == ["completed mail 1d", "cancelled mail 1d"]
    mail.set(retention={"completed": None, "dead_lettered": {"age": "9d", "most": 5}})
    assert {kind: each.kept for kind, each in mail.retention.items()} == {
        "completed": "for ever",
        "cancelled": "1d",
        "dead_lettered": "9d, the newest 5 at most",
    }
    with pytest.raises(ConfigurationError, match="'event' is not kept by a rule"):
        mail.set(max_running=7, retention={"event": "1d"})  # type: ignore[dict-item]
    assert mail.max_running is None
    assert jobs.queues["other"].retention == {}


def test_rules_are_undone_as_other_settings_are(jobs: LiteJobs) -> None:
    before = list(jobs.retention)
    with jobs.operation("set", "what is kept"):
        jobs.retention.set("completed", "3d", most=7)
        jobs.queues["mail"].set(max_running=3, retention="1d")
    [operation] = jobs.operations()
    assert operation.in_the_way is None
    jobs.undo()
    assert list(jobs.retention) == before
    assert jobs.queues["mail"].max_running is None
    jobs.retention.set("completed", "3d", queue="mail")
    jobs.retention.set("file", "1GB")
    before = list(jobs.retention)
    with jobs.operation("reset"):
        jobs.retention.reset("completed", queue="mail")
        jobs.retention.set("completed", 0)
        jobs.retention.reset("completed")
        jobs.retention.set("file", "2GB")
    assert rules(jobs) == ["file below 2GB"]
    jobs.undo()
    assert list(jobs.retention) == before
    with jobs.operation("same"):
        jobs.retention.set("file", "1GB")
    assert [each.name for each in jobs.operations()] == ["reset", "set"]


def test_what_was_set_again_since_is_in_the_way(jobs: LiteJobs) -> None:
    with jobs.operation("set"):
        jobs.retention.set("completed", "3d", task="a")
    jobs.retention.set("completed", "4d", task="a")
    with pytest.raises(ConstraintViolated) as refused:
        jobs.undo()
    assert "retention of completed of task a has been changed since" in str(
        refused.value
    )
    assert rules(jobs) == ["completed a 4d"]


# A purge that was killed --------------------------------------------------------------

KILLED = """
import os, sys
from litejobs import LiteJobs
from litejobs._control import purge

jobs = LiteJobs(sys.argv[1])
chosen = purge.selection(["cancelled"], None, None, None)
purge.purge(jobs._store, chosen, told=lambda _: os._exit(9))
"""


def test_a_purge_that_was_killed_is_in_the_log_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        done = jobs.task(name="done")(lambda: None)
        for _ in range(40):
            done.enqueue().cancel()
    died = subprocess.run(
        [sys.executable, "-c", KILLED, path], cwd=ROOT, check=False, timeout=60
    )
    assert died.returncode == 9
    with LiteJobs(path) as jobs:
        left = len(ids(jobs))
        assert 0 < left < 40
        with jobs.reader() as db:
            until = db.execute("select until_at from litejobs_purge").get
        with freeze_time(dt.datetime.fromtimestamp(until / 1000 + 1, dt.UTC)):
            jobs.drain()
        [line] = [each for each in jobs.log(limit=999) if each.note == "jobs"]
        assert line.subject is not None
        assert line.subject.startswith(f"{40 - left} jobs (cancelled until ")


def test_time_since_the_start_of_the_computer_goes_on() -> None:
    first = clocks.RealTime.since_boot()
    assert clocks.RealTime.since_boot() >= first > 0
