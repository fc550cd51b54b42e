"""What would happen, as `LiteJobs.simulate` says it: litejobs/_simulation."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs, Policy, Rate, Retry, Rule, TaskError, cron, every
from litejobs._simulation.attempts import Ending, SimulatedAttempt
from litejobs._simulation.findings import Simulation
from litejobs._storage.runner_lock import lock_of
from litejobs._storage.statements import queries
from litejobs.errors import (
    ConfigurationError,
    DatabaseFull,
    LiteJobsError,
    TamperedSchema,
)
from litejobs.testing import hold_clock, release_clock
from tests.libraries import needs
from tests.rows import for_each
from tests.waiting import Sizes

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MINUTE, HOUR = 60_000, 3_600_000
NAN = float("nan")
POLICY = Policy([Rule(when="outcome.status == 'error'", do="fail")], otherwise="fail")


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def contents(path: Path) -> dict[str, str]:
    """All files of the folder, by what is in them."""
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(path.parent.iterdir())
        # Where whoever reads says how far the log may not be cut meanwhile.
        if not each.name.endswith("-shm")
    }


def with_past(jobs: LiteJobs, clock: Any, runs: int = 40) -> Any:
    """A task with a past: each fourth first attempt fails, and takes ten seconds."""

    @jobs.task(retry=Retry.exponential("1m", max_attempts=2, jitter=0))
    def send(n: int) -> int:
        clock.tick(dt.timedelta(seconds=10 if n % 4 == 0 else 2))
        if n % 4 == 0:
            raise TaskError("E_BUSY", "busy")
        return n

    for n in range(runs):
        send.enqueue(n)
    jobs.drain()
    return send


def test_a_simulation_asks_for_all_that_a_loop_asks_for(jobs: LiteJobs) -> None:
    """An instant that one of the two agendas forgets, nobody wakes for there."""
    with jobs.reader() as db:
        cursor = db.execute("select * from litejobs_agenda")
        names = {str(column[0]) for column in cursor.get_description()} - {"now"}
        cursor.close()
    assert "next_run_at" in names
    for query in ("agenda", "simulated_agenda"):
        text = queries()[query]
        assert {name for name in names if name not in text} == set(), query


# The file, and the clocks of others ---------------------------------------------------


def test_the_file_is_not_touched(file_jobs: LiteJobs, clock: Any) -> None:
    send = with_past(file_jobs, clock)
    for n in range(20):
        send.using(delay=f"{n}m").enqueue(n)
    path = Path(file_jobs.path)
    before = contents(path)
    with file_jobs.reader() as db:
        version = db.pragma("data_version")
    found = file_jobs.simulate("1h")
    assert found.totals.started >= 20
    assert contents(path) == before
    with file_jobs.reader() as db:
        assert db.pragma("data_version") == version
        assert db.execute(
            "select count(*) from litejobs_job where state = 'scheduled'"
        ).get


@pytest.mark.parametrize("hours", [6, pytest.param(48, marks=pytest.mark.torture)])
@for_each("held", [True, False])
def test_no_other_clock_is_moved(tmp_path: Path, held: bool, hours: int) -> None:
    if not held:
        release_clock()
    try:
        jobs = LiteJobs(tmp_path / "jobs.db")

        @jobs.schedule(every("1m"))
        @jobs.task
        def work() -> None: ...

        jobs.open()
        seen: list[tuple[int, int]] = []

        def told(*_: object) -> None:
            ours = dt.datetime.now(dt.UTC)
            with jobs.reader() as db:
                seen.append(
                    (
                        db.execute("select now from litejobs_clock").get,
                        int(ours.timestamp() * 1000),
                    )
                )

        found = jobs.simulate(f"{hours}h", told=told)
        assert found.totals.started > 50 * hours
        assert len(seen) >= 2
        for in_file, in_process in seen:
            assert abs(in_file - in_process) < HOUR
        assert "litejobs-simulation" not in "".join(apsw.vfs_names())
        jobs.close()
    finally:
        if not held:
            hold_clock()


def test_it_goes_on_while_others_use_the_file(file_jobs: LiteJobs, clock: Any) -> None:
    """Other threads of the application, with their own connections, are let be."""
    send = with_past(file_jobs, clock)
    enqueued = []

    def told(*_: object) -> None:
        enqueued.append(send.enqueue(1).id)

    first = file_jobs.simulate("1h", told=told)
    assert len(enqueued) >= 2
    # What came later is in the file, and was not in the copy.
    assert first.totals.started == 0
    assert file_jobs.simulate("1h").totals.started >= len(enqueued)


def test_it_is_refused_within_a_transaction(file_jobs: LiteJobs, clock: Any) -> None:
    with file_jobs.transaction():
        with pytest.raises(LiteJobsError, match="inside a transaction, which would"):
            file_jobs.simulate("1h")


def test_there_is_room_though_the_file_is_full(jobs: LiteJobs, clock: Any) -> None:
    @jobs.schedule(every("10m"))
    @jobs.task
    def work() -> None: ...

    jobs.open()
    with jobs.transaction() as db:
        db.execute("insert into litejobs_space (id, disk_full_at) values (1, 5)")
        db.execute(
            "update litejobs_space set bytes = 10, free_bytes = 0, max_bytes = 9"
        )
    found = jobs.simulate("1h")
    assert found.totals.started == 6
    assert "the limits of the disk do not count" in found.notes[0]


def open_without_a_name(folder: Path) -> list[str]:
    """What this process has open in the folder that nobody else can find there."""
    return [
        name
        for each in Path("/proc/self/fd").iterdir()
        if (name := os.path.realpath(each)).startswith(f"{folder}/")
        and "(deleted)" in name
    ]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it looks into /proc")
def test_large_copies_are_on_a_disk_and_go_with_the_process(
    file_jobs: LiteJobs,
    clock: Any,
    sizes: Sizes,
    tmp_path_factory: Any,
    monkeypatch: Any,
) -> None:
    """However it ends: there is no name that a process which is killed could leave."""

    @file_jobs.task
    def store(text: str) -> None: ...

    for n in range(40):
        store.using(delay=f"{n}m").enqueue("x" * 100_000)
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv("SQLITE_TMPDIR", raising=False)
    cases = {"as it is": None, "patient": POLICY}
    seen: list[tuple[int, list[Path]]] = []

    def told(*_: object) -> None:
        seen.append((len(open_without_a_name(folder)), list(folder.iterdir())))

    in_memory = file_jobs.simulate_cases(cases, "1h", told=told)
    assert set(map(str, seen)) == {"(0, [])"}
    seen.clear()
    # One would be small enough, and two are not.
    size = Path(file_jobs.path).stat().st_size
    sizes(simulated_in_memory=size * 3 // 2)
    assert file_jobs.simulate("1h", told=told).totals.started == 40
    assert set(map(str, seen)) == {"(0, [])"}
    seen.clear()
    assert file_jobs.simulate_cases(cases, "1h", told=told) == in_memory
    assert all(copies and not names for copies, names in seen)
    assert open_without_a_name(folder) == []


@pytest.mark.parametrize("kind", ["posix", "nt"])
def test_copies_for_which_no_disk_has_room_are_refused(
    file_jobs: LiteJobs, clock: Any, sizes: Sizes, monkeypatch: Any, kind: str
) -> None:
    file_jobs.open()
    sizes(simulated_in_memory=0)
    asked: list[str] = []

    def none_left(folder: str) -> Any:
        asked.append(folder)
        return SimpleNamespace(free=2**20)

    disk = SimpleNamespace(disk_usage=none_left)
    monkeypatch.setattr("litejobs._simulation.copies.shutil", disk)
    if kind == "nt":
        system = SimpleNamespace(name=kind)
        monkeypatch.setattr("litejobs._simulation.copies.os", system)
    monkeypatch.setenv("SQLITE_TMPDIR", "/nowhere/at/all")
    monkeypatch.delenv("TMPDIR", raising=False)
    with pytest.raises(
        DatabaseFull, match=r"and 1 MB are free; make room, or set TMPD"
    ):
        file_jobs.simulate("1h")
    assert asked == ["/var/tmp" if kind == "posix" else tempfile.gettempdir()]


def test_a_file_that_was_altered_is_refused(file_jobs: LiteJobs, clock: Any) -> None:
    file_jobs.open()
    with file_jobs.transaction() as db:
        db.execute("drop trigger litejobs_tick_moves_on")
    with pytest.raises(TamperedSchema, match="litejobs_tick_moves_on"):
        file_jobs.simulate("1h")


def test_what_was_kept_long_enough_is_still_there(jobs: LiteJobs, clock: Any) -> None:
    """Nothing is deleted, so that what is told of a year is told of all of it."""

    @jobs.schedule(every("1d"))
    @jobs.task
    def work() -> None: ...

    found = jobs.simulate("365d1h", events=True)
    assert found.totals.completed == 365
    assert found.events is not None
    assert sum(event["name"] == "task.done" for event in found.events) == 365


# How attempts end ---------------------------------------------------------------------


def test_attempts_end_as_recorded_ones_did(jobs: LiteJobs, clock: Any) -> None:
    send = with_past(jobs, clock)
    for n in range(400):
        send.enqueue(n)
    found = jobs.simulate("1d", events=True)
    # A quarter of the first attempts failed; retries have failed all.
    assert 70 <= found.totals.dead_lettered <= 130
    assert found.totals.retried == found.totals.dead_lettered
    [one] = found.assumptions
    assert (one.drawn_from, one.failed, one.median_ms) == (50, 20, 2_000)
    assert {job.error_code for job in found.ended_first} == {"E_BUSY"}
    assert found.events is not None
    ended = [e for e in found.events if e["name"] == "task.attempt.failed"]
    assert {event["error_type"] for event in ended} == {"TaskError"}


def test_what_a_task_did_under_its_old_name_counts(
    file_jobs: LiteJobs, clock: Any
) -> None:
    with_past(file_jobs, clock)
    path = file_jobs.path
    file_jobs.close()
    with LiteJobs(path, renames={"send": "mail"}) as jobs:

        @jobs.task
        def mail(n: int) -> None: ...

        mail.enqueue(1)
        [one] = jobs.simulate("1h").assumptions
    assert (one.task, one.drawn_from) == ("mail", 50)


def test_the_same_seed_draws_the_same(jobs: LiteJobs, clock: Any) -> None:
    send = with_past(jobs, clock)
    for n in range(100):
        send.enqueue(n)
    first = jobs.simulate("1d", seed=7, events=True)
    assert jobs.simulate("1d", seed=7, events=True) == first
    assert jobs.simulate("1d", seed=8, events=True).events != first.events


def test_an_attempt_ends_the_same_whatever_else_is_otherwise(
    jobs: LiteJobs, clock: Any
) -> None:
    """So that two simulations differ in what was changed, and not by chance."""
    send = with_past(jobs, clock)
    for n in range(100):
        send.enqueue(n)

    def failed(found: Simulation) -> set[int]:
        assert found.events is not None
        return {
            event["job_id"]
            for event in found.events
            if event["name"] == "task.attempt.failed"
        }

    many = jobs.simulate("1d", threads=8, events=True)
    one = jobs.simulate("1d", threads=1, events=True)
    assert many.reached_at == one.reached_at
    assert many.totals.peak_running == 8
    assert one.totals.peak_running == 1
    assert failed(many) == failed(one)


def test_without_a_past_an_attempt_ends_well_after_a_second(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.task
    def work() -> None: ...

    for _ in range(3):
        work.enqueue()
    found = jobs.simulate("10s", threads=1)
    assert found.totals.completed == 3
    assert [part.ok for part in found.timeline if part.ok] == [1, 1, 1]
    [one] = found.assumptions
    assert one.says == "none has been recorded: they end well, after 1s"


def test_a_process_that_died_had_not_run_until_the_next_one_began(
    jobs: LiteJobs, clock: Any
) -> None:
    """How long nobody ran anything is not how long attempts run."""

    @jobs.task(max_attempts=1, crash_delay=0)
    def work() -> None: ...

    work.enqueue()
    with jobs.transaction() as db:
        db.execute("insert into litejobs_runner (threads) values (1)")
        db.execute("update litejobs_task set runner_id = 1")
        db.execute("insert into litejobs_claim values (1, 1)")
        clock.tick(dt.timedelta(seconds=4))
        db.execute("insert into litejobs_tick (runner) values (1)")
        clock.tick(dt.timedelta(hours=9))
        db.execute("insert into litejobs_runner (threads) values (1)")
        db.execute("insert into litejobs_tick (runner) values (2)")
        db.execute("update litejobs_task set runner_id = 2")
    work.enqueue()
    found = jobs.simulate("1h")
    assert found.totals.crashes == 1
    assert found.assumptions[0].median_ms == 4_000


@pytest.mark.parametrize(
    ("said", "totals"),
    [
        ("ok", {"ok": 1, "failed": 0, "completed": 1}),
        (None, {"ok": 1, "completed": 1}),
        ("fail", {"ok": 0, "failed": 2, "dead_lettered": 1}),
        ("timeout", {"failed": 2, "timeouts": 2}),
        ("crash", {"failed": 2, "crashes": 2}),
        (ValueError("no"), {"failed": 2}),
        (ValueError, {"failed": 2}),
        (TaskError("X", "no", retryable=False), {"failed": 1, "dead_lettered": 1}),
        ({"status": "ok", "result": 3}, {"ok": 1}),
        ({"status": "error", "error": {"code": "X"}}, {"failed": 2}),
    ],
)
def test_whoever_simulates_may_say_how_attempts_end(
    jobs: LiteJobs, clock: Any, said: Any, totals: dict[str, int]
) -> None:
    @jobs.task(max_attempts=2, retry=Retry.constant("1s"))
    def work(n: int) -> None: ...

    work.enqueue(5)
    asked: list[SimulatedAttempt] = []

    def outcome(attempt: SimulatedAttempt) -> Any:
        asked.append(attempt)
        return said

    found = jobs.simulate("1h", outcomes=outcome, task_duration={"work": "2s"})
    for name, number in totals.items():
        assert getattr(found.totals, name) == number, name
    assert (asked[0].task, asked[0].args, asked[0].attempt) == ("work", {"n": 5}, 1)
    assert found.assumptions[0].says == "they end as the caller says, after 2s"


@pytest.mark.parametrize(
    "said",
    [
        {"status": "ok"},
        {"status": "ok", "ran_ms": 5, "result": {"ran_ms": [1, "ü"]}},
        {"ran_ms": 5, "status": "ok"},
        {"result": '"ran_ms":5', "status": "ok", "ran_ms": None},
        {},
    ],
)
def test_how_long_an_attempt_ran_is_written_into_its_outcome(
    said: dict[str, Any],
) -> None:
    for ran_ms in (0, 1_234):
        ending = Ending("ok", ran_ms, json.dumps(said), is_timed=True)
        expected = json.dumps(said | {"ran_ms": ran_ms}, separators=(",", ":"))
        assert ending.document == expected
    assert Ending("ok", 7, json.dumps(said)).document == json.dumps(said)


def test_outcomes_and_durations_are_said_by_task(jobs: LiteJobs, clock: Any) -> None:
    @jobs.task(max_attempts=1)
    def good() -> None: ...

    @jobs.task(max_attempts=1)
    def bad() -> None: ...

    good.enqueue()
    bad.enqueue()
    found = jobs.simulate(
        "1h",
        outcomes={"bad": "fail", "*": "ok"},
        task_duration={"good": lambda attempt: attempt.attempt * 90, "bad": "10s"},
    )
    assert [(each.task, each.state) for each in found.ended_badly] == [
        ("bad", "dead_lettered")
    ]
    assert found.totals.busy == pytest.approx(100 / 3600 / 8, abs=1e-4)


@for_each(
    "options, sentence",
    [
        ({"outcomes": "maybe"}, "'maybe' is not how an attempt can end; give 'ok'"),
        ({"outcomes": {"work": 5}}, "outcomes=5 of task 'work' is not how"),
        ({"outcomes": {"wrok": "ok"}}, "does not know; did you mean 'work'"),
        ({"outcomes": lambda _: "maybe"}, "outcomes='maybe' of task 'work'"),
        ({"outcomes": lambda _: {"status": "odd"}}, "'odd'.* is not how"),
        ({"outcomes": lambda _: {"status": "ok", "result": {5}}}, "that is not JSON"),
        ({"outcomes": lambda _: {"status": "ok", "result": NAN}}, "that is not JSON"),
        ({"outcomes": lambda _: UnicodeDecodeError}, r"give .* UnicodeDecodeError\(…"),
        ({"task_duration": "5x"}, "task_duration='5x' is not a duration"),
        ({"task_duration": {"work": -1}}, "task_duration=-1"),
        ({"task_duration": {5: 1}}, "the key 5, which is not a text"),
        ({"until": "0s"}, "until='0s' is not in the future of this file"),
        ({"until": START}, "until=2026-01-01.* is not in the future"),
        ({"until": START.replace(tzinfo=None)}, "until=.*no time zone"),
        ({"threads": 0}, "threads=0"),
        ({"seed": "x"}, "seed='x'"),
        ({"limit": 0}, "limit=0"),
        ({"part": "1ms"}, "part='1ms' makes too many parts"),
        ({"without": "mail"}, "without='mail' says not what to leave out; give queue="),
        ({"without": {"job": "x"}}, "without names 'job', which is none of"),
        ({"without": {"task": "wrok"}}, "does not have; did you mean 'work'"),
        ({"without": 5}, "without=5 says not what to leave out"),
        ({"without": {"queue": 5}}, "'queue': 5.* is not a name; give one, or a list"),
        ({"what_if": 5}, "what_if=5 is not a Policy; make one"),
        ({"what_if": "patient"}, "what_if='patient' is not a Policy"),
        ({"what_if": {"work": 5}}, "'work': 5.* is not a Policy"),
        ({"what_if": {"wrok": POLICY}}, "'wrok', which the"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(
    jobs: LiteJobs, clock: Any, options: dict[str, Any], sentence: str
) -> None:
    @jobs.task
    def work() -> None: ...

    work.enqueue()
    with pytest.raises(ConfigurationError, match=sentence):
        jobs.simulate(**{"until": "1h", **options})


# What follows -------------------------------------------------------------------------


def test_an_attempt_that_takes_too_long_is_out_of_time(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.task(timeout="30s", max_attempts=2, retry=Retry.constant("1m", jitter=0))
    def work() -> None: ...

    work.enqueue()
    found = jobs.simulate("10m", task_duration="31s", events=True)
    assert (found.totals.timeouts, found.totals.dead_lettered) == (2, 1)
    [job] = found.ended_first
    assert job.error_type == "TaskTimeout"
    assert (job.finished_at - found.from_at).total_seconds() == 120
    # As long as it may is not too long.
    assert jobs.simulate("10m", task_duration="30s").totals.ok == 1


def test_what_expires_and_what_waits_is_told(jobs: LiteJobs, clock: Any) -> None:
    @jobs.task(queue="slow", expires_in="10m")
    def slow() -> None: ...

    @jobs.task(queue="paused")
    def paused() -> None: ...

    for _ in range(3):
        slow.enqueue()
    paused.enqueue()
    jobs.pause("paused")
    jobs.queues["slow"].set(max_running=1)
    found = jobs.simulate("1h", task_duration="6m")
    assert found.totals.expired == 1
    [job] = found.ended_first
    assert (job.state, job.stopped_by, job.job_id) == ("cancelled", "expired", 3)
    assert job.finished_at == START + dt.timedelta(minutes=10)
    assert found.unfinished == {"pending": 1}
    assert [(each.code, each.jobs) for each in found.waiting] == [("queue_paused", 1)]
    depths = {queue.name: (queue.peak, queue.at_end) for queue in found.queues}
    assert depths == {"slow": (2, 0), "paused": (1, 1)}


def test_the_depth_of_a_queue_is_the_most_of_each_part(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.schedule(cron("*/20 * * * *"))
    @jobs.task(queue="many")
    def work() -> None: ...

    for _ in range(9):
        work.enqueue()
    with_one = jobs.simulate("1h", task_duration="2m", threads=1, part="10m")
    [queue] = with_one.queues
    # Nine, of which one runs: eight wait, and with each part five less.
    assert queue.depths[0] == 8
    assert (queue.peak, queue.at_end) == (8, 0)
    assert with_one.totals.peak_running == 1
    assert [part.running for part in with_one.timeline][:2] == [1, 1]
    assert sum(part.started for part in with_one.timeline) == with_one.totals.started


def test_attempts_that_take_no_time_have_run(jobs: LiteJobs, clock: Any) -> None:
    @jobs.task
    def work() -> None: ...

    for _ in range(3):
        work.enqueue()
    found = jobs.simulate("1h", task_duration=0)
    assert (found.totals.peak_running, found.totals.busy) == (1, 0.0)
    assert [part.running for part in found.timeline][:2] == [1, 0]


def test_schedules_that_overlap_and_collide_are_named(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.schedule(cron("0 * * * *"), name="hourly")
    @jobs.task
    def hourly() -> None: ...

    @jobs.schedule(cron("0 */6 * * *"), name="rarely", overlap="skip")
    @jobs.schedule(cron("30 * * * *"), name="half")
    @jobs.task
    def others() -> None: ...

    found = jobs.simulate("1d", task_duration={"hourly": "61m", "others": "5m"})
    [overlap] = found.overlaps
    assert (overlap.schedule, overlap.overlaps, overlap.longest_ms) == (
        *("hourly", 23),
        MINUTE,
    )
    assert overlap.first_at == at("2026-01-01 02:00")
    [collision] = found.collisions
    assert collision.schedules == ["hourly", "rarely"]
    assert (collision.times, collision.first_at) == (4, at("2026-01-01 06:00"))
    skipped = jobs.simulate("1d", task_duration={"others": "7h", "hourly": "1s"})
    one = next(each for each in skipped.overlaps if each.schedule == "rarely")
    assert (one.overlap, one.overlaps, one.skipped) == ("skip", 0, 2)


def test_a_schedule_that_nobody_can_plan_is_named(jobs: LiteJobs, clock: Any) -> None:
    @jobs.task
    def work() -> None: ...

    jobs.open()
    with jobs.transaction() as db:
        db.execute(
            "insert into litejobs_schedule (name, task, expression, timezone) "
            "values ('odd', 'work', '0 * * * *', 'Mars/Phobos')"
        )
    found = jobs.simulate("3h")
    assert found.totals.started == 0
    assert found.notes[-1].startswith(
        "the schedule odd cannot be planned, and brings nothing: "
    )
    assert "Mars/Phobos" in found.notes[-1]


def test_for_how_long_limits_were_full_is_told(jobs: LiteJobs, clock: Any) -> None:
    @jobs.task(queue="few", concurrency_key="host:{host}", concurrency_limit=1)
    def fetch(host: str) -> None: ...

    @jobs.task(queue="fast", rate=Rate(2, per="1m"), concurrency_key="api")
    def call() -> None: ...

    for host in "aab":
        fetch.enqueue(host)
    for _ in range(3):
        call.enqueue()
    jobs.queues["few"].set(max_running=2)
    found = jobs.simulate("1h", task_duration={"fetch": "5m", "call": "1s"})
    used = {(each.kind, each.name): each for each in found.limits if not each.per_ms}
    assert used["queue", "few"].full_ms == 5 * MINUTE
    assert (used["queue", "few"].most, used["queue", "few"].used) == (2, 2)
    assert used["key", "host:a"].full_ms == 10 * MINUTE
    assert used["key", "host:b"].full_ms == 5 * MINUTE
    [rate] = [each for each in found.limits if each.per_ms]
    assert (rate.kind, rate.name, rate.most, rate.per_ms) == ("key", "api", 2, MINUTE)
    # One each half minute, and none for half a minute after the last.
    assert (rate.used, rate.full_ms) == (3, 90_000)


def test_how_much_of_retry_budgets_is_used_is_told(jobs: LiteJobs, clock: Any) -> None:
    @jobs.task(retry=Retry.constant("1m", max_attempts=9, budget="3m", jitter=0))
    def work() -> None: ...

    work.enqueue()
    found = jobs.simulate("1h", outcomes="fail", task_duration="1s")
    [budget] = found.budgets
    assert (budget.task, budget.jobs, budget.most_used, budget.exhausted) == (
        *("work", 1),
        *(1.0, 1),
    )
    assert found.ended_first[0].stopped_by == "retry_budget"


def test_attempts_that_run_go_on_if_their_runner_lives(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None: ...

    work.enqueue()
    lock = lock_of(jobs._store.database)
    with jobs.transaction() as db:
        db.execute("insert into litejobs_runner (threads) values (3)")
        db.execute("update litejobs_task set runner_id = 1")
        db.execute("insert into litejobs_claim values (1, 1)")
    clock.tick(dt.timedelta(minutes=4))
    # Nobody has the lock, so the process is gone, and what it ran has crashed.
    gone = jobs.simulate("1h", task_duration="10m")
    assert (gone.totals.crashes, gone.totals.ok) == (1, 0)
    assert gone.threads == 8
    assert any("nobody runs the jobs" in note for note in gone.notes)
    assert lock.acquire()
    try:
        lives = jobs.simulate("1h", task_duration="10m", events=True)
    finally:
        lock.release()
    assert (lives.totals.crashes, lives.totals.ok) == (0, 1)
    assert (lives.threads, lives.notes) == (3, [])
    assert lives.events is not None
    assert lives.events[0]["at"] == int(START.timestamp() * 1000) + 10 * MINUTE


# What would be otherwise --------------------------------------------------------------


def test_another_policy_is_tried(jobs: LiteJobs, clock: Any) -> None:
    send = with_past(jobs, clock)
    for n in range(100):
        send.enqueue(n)
    at_once = Policy(
        rules=[Rule(when="outcome.error.code == 'E_BUSY'", do="fail")],
        otherwise="retry",
    )
    base = jobs.simulate("1d")
    strict = jobs.simulate("1d", what_if={"send": at_once})
    assert jobs.simulate("1d", what_if=at_once).totals == strict.totals
    assert base.totals.retried > 0
    assert strict.totals.retried == 0
    assert {job.stopped_by for job in strict.ended_first} == {"rule_fail"}
    compared = base.compare(strict)
    measures = {each.name: each for each in compared.measures}
    assert measures["retries"].values == [base.totals.retried, 0]
    assert measures["retries"].differs
    assert not measures["jobs cancelled"].differs
    assert json.loads(json.dumps(compared.to_dict()))["labels"] == [
        "simulation 1",
        "simulation 2",
    ]


def test_other_limits_hold_for_jobs_to_come(jobs: LiteJobs, clock: Any) -> None:
    """As with a deploy: what was enqueued before keeps its own."""

    @jobs.schedule(every("10m"))
    @jobs.task(max_attempts=2, timeout="10s", retry=Retry.constant("1s", jitter=0))
    def work() -> None: ...

    more = Policy(
        rules=[Rule(when="outcome.status != 'ok'", do="retry", attempts=5, delay="1s")],
        otherwise="fail",
    )
    found = jobs.simulate("1h", what_if=more, outcomes="fail", task_duration="1s")
    assert {job.attempts for job in found.ended_first} == {5}
    # What the policy does not speak of stays.
    out_of_time = jobs.simulate("1h", what_if=more, task_duration="11s")
    assert out_of_time.totals.ok == 0
    assert out_of_time.totals.timeouts == out_of_time.totals.failed > 0


def test_cases_are_of_one_moment(jobs: LiteJobs, clock: Any) -> None:
    send = with_past(jobs, clock)
    for n in range(50):
        send.enqueue(n)
    told: list[tuple[float, int, int]] = []
    compared = jobs.simulate_cases(
        {"as it is": None, "strict": POLICY, "one": {"send": POLICY}},
        "1d",
        told=lambda *each: (told.append(each), send.enqueue(0)),
    )
    assert compared.labels == ["as it is", "strict", "one"]
    started = {each.name: each for each in compared.measures}["jobs completed"]
    assert started.values[1] == started.values[2]
    assert len({each.from_at for each in compared.simulations}) == 1
    ended = [
        each.totals.completed + each.totals.dead_lettered
        for each in compared.simulations
    ]
    assert ended == [50, 50, 50]
    assert [part for part, *_ in told] == sorted(part for part, *_ in told)
    with pytest.raises(ConfigurationError, match="cases names none; name some"):
        jobs.simulate_cases({})


def test_a_queue_or_a_task_is_left_out(jobs: LiteJobs, clock: Any) -> None:
    @jobs.schedule(every("10m"), name="mails")
    @jobs.task(queue="mail")
    def mail() -> None: ...

    @jobs.schedule(every("10m"), name="others")
    @jobs.task
    def other() -> None: ...

    mail.enqueue()
    whole = jobs.simulate("1h")
    ways: Any = ({"queue": "mail"}, "queue=mail", ["task=mail"], {"task": ["mail"]})
    for without in ways:
        found = jobs.simulate("1h", without=without)
        assert [each.task for each in found.assumptions] == ["other"], without
        assert whole.totals.started > found.totals.started, without
    alone = jobs.simulate("1h", without={"schedule": "others"})
    assert [each.task for each in alone.assumptions] == ["mail"]


def test_it_ends_where_more_attempts_begin_than_are_allowed(
    jobs: LiteJobs, clock: Any
) -> None:
    @jobs.schedule(every("1m"))
    @jobs.task
    def work() -> None: ...

    found = jobs.simulate("1d", limit=10)
    assert found.totals.started == 10
    assert not found.complete
    assert found.reached_at < found.until_at


def test_what_goes_round_in_a_circle_is_told(
    jobs: LiteJobs, clock: Any, sizes: Sizes
) -> None:
    @jobs.task(retry=Retry.constant(0, max_attempts=1_000_000))
    def work() -> None: ...

    work.enqueue()
    found = jobs.simulate("1h", outcomes="fail", task_duration=0, limit=500)
    assert not found.complete
    assert found.reached_at == found.from_at
    sizes(simulated_turns=50)
    with pytest.raises(LiteJobsError, match=r"does not get on at .*wait for no time"):
        jobs.simulate("1h", outcomes="fail", task_duration=0)


def test_it_says_how_many_attempts_are_expected(jobs: LiteJobs, clock: Any) -> None:
    @jobs.schedule(cron("*/5 * * * *"))
    @jobs.schedule(every("1m"), max_runs=7, name="seven")
    @jobs.task
    def work() -> None: ...

    work.enqueue()
    told: list[tuple[float, int, int]] = []
    found = jobs.simulate("1h", told=lambda *each: told.append(each))
    assert told[0] == (0.0, 0, 1 + 12 + 7)
    assert told[-1] == (1.0, found.totals.started, 20)
    assert found.totals.started == 20


# What the application has in the file -------------------------------------------------


def test_triggers_of_the_application_are_a_part_of_it(
    file_jobs: LiteJobs, clock: Any
) -> None:
    @file_jobs.task
    def work() -> None: ...

    @file_jobs.task
    def after() -> None: ...

    with file_jobs.transaction() as db:
        db.execute("create table done (job integer)")
        db.execute(
            "create trigger done_tells after update of state on litejobs_job "
            "when new.state = 'completed' and new.task = 'work' begin "
            "insert into done values (new.id); "
            "insert into litejobs_job (task) values ('after'); end"
        )
    work.enqueue()
    found = file_jobs.simulate("1h")
    assert {each.task: each.attempts for each in found.assumptions} == {
        "work": 1,
        "after": 1,
    }
    with file_jobs.reader() as db:
        assert db.execute("select count(*) from done").get == 0


def test_a_trigger_that_calls_what_is_not_here_is_left_out(
    file_jobs: LiteJobs, clock: Any
) -> None:
    @file_jobs.task
    def work() -> None: ...

    work.enqueue()
    with file_jobs.transaction() as db:
        db.execute(
            'create trigger "app""s own" after update of state on litejobs_job '
            "begin select my_function(new.id); end"
        )
        db.execute(
            "create trigger fine after insert on litejobs_attempt "
            "begin select count(*) from litejobs_job; end"
        )
    found = file_jobs.simulate("1h")
    assert found.totals.completed == 1
    assert found.notes[0] == (
        'the trigger app"s own of the application is left out: '
        "no such function: my_function"
    )
    assert len(found.notes) == 2


def test_a_trigger_that_refuses_ends_it_with_a_sentence(
    file_jobs: LiteJobs, clock: Any
) -> None:
    @file_jobs.task
    def work() -> None: ...

    work.enqueue()
    with file_jobs.transaction() as db:
        db.execute(
            "create trigger no before insert on litejobs_attempt "
            "begin select raise(abort, 'not today'); end"
        )
    with pytest.raises(LiteJobsError, match=r"2026-01-01T00:00:00.*not today"):
        file_jobs.simulate("1h")
    # And all of it is gone.
    assert "litejobs-simulation" not in "".join(apsw.vfs_names())


def test_a_constraint_that_is_looked_at_in_the_end_is_unmet_at_its_instant(
    file_jobs: LiteJobs, clock: Any
) -> None:
    @file_jobs.task
    def work() -> None: ...

    @file_jobs.task
    def orphan() -> None: ...

    work.enqueue()
    orphan.using(delay="30m").enqueue()
    work.using(delay="40m").enqueue()
    with file_jobs.transaction() as db:
        db.execute("create table parent (id integer primary key)")
        db.execute(
            "create table child (parent integer "
            "references parent deferrable initially deferred)"
        )
        db.execute(
            "create trigger bears after update of state on litejobs_job "
            "when new.state = 'completed' and new.task = 'orphan' "
            "begin insert into child values (1); end"
        )
    with pytest.raises(LiteJobsError, match=r"2026-01-01T00:30:01.*FOREIGN KEY"):
        file_jobs.simulate("1h")


def test_a_trigger_that_refuses_an_outcome_refuses_none_of_others(
    file_jobs: LiteJobs, clock: Any
) -> None:
    @file_jobs.task
    def work() -> None: ...

    @file_jobs.task
    def unwanted() -> None: ...

    work.enqueue()
    unwanted.enqueue()
    with file_jobs.transaction() as db:
        db.execute(
            "create trigger no after update of state on litejobs_job "
            "when new.state = 'completed' and new.task = 'unwanted' "
            "begin select raise(abort, 'not today'); end"
        )
    found = file_jobs.simulate("1h")
    assert (found.totals.completed, found.totals.dead_lettered) == (1, 1)


# As values, and as a picture ----------------------------------------------------------


def test_it_is_a_value_that_can_be_stored(jobs: LiteJobs, clock: Any) -> None:
    send = with_past(jobs, clock)
    send.enqueue(0)
    found = jobs.simulate("1h", events=True)
    document = json.loads(found.to_json())
    assert document["totals"]["started"] == found.totals.started
    assert document["from_at"].endswith("Z")
    assert len(document["timeline"]) == len(found.timeline)
    for queue in document["queues"]:
        assert len(queue["depths"]) == len(found.timeline)


def test_what_draws_is_an_extra(
    jobs: LiteJobs, clock: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    found = jobs.simulate("1h")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r'pip install "litejobs\[plot\]"'):
        found.plot(tmp_path / "out.svg")
    with pytest.raises(ConfigurationError, match=r"let its name end in \.svg"):
        found.plot(tmp_path / "out.gif")
    assert list(tmp_path.iterdir()) == []


@needs("matplotlib")
@for_each("kind", ["svg", "png", "pdf"])
def test_it_is_drawn(jobs: LiteJobs, clock: Any, tmp_path: Path, kind: str) -> None:
    @jobs.task(queue="$odd_{name", max_attempts=1)
    def work() -> None: ...

    for _ in range(30):
        work.enqueue()
    found = jobs.simulate("1h", outcomes="fail", threads=2, task_duration="1m")
    path = tmp_path / f"out.{kind}"
    found.plot(path)
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[kind]
    assert path.read_bytes().startswith(begins)
    if kind == "svg":
        first = path.read_bytes()
        found.plot(path)
        assert path.read_bytes() == first
