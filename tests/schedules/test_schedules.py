"""Schedules from Python: declared in code, made and changed, run by hand."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import Cron, Every, LiteJobs, Retry, Schedule, cron, current, every
from litejobs.errors import (
    ArgumentError,
    ConfigurationError,
    ConstraintViolated,
    JobNotFound,
    ScheduleExists,
    ScheduleNotFound,
)
from tests.control.test_queues import column, say

NINE_IN_BERLIN = cron("0 9 * * MON-FRI", timezone="Europe/Berlin")  # 8:00 UTC
HOURLY = cron("0 * * * *")


def on(hour: float, day: int = 5) -> dt.datetime:
    """An hour of a day in January, in UTC; the 5th is a Monday."""
    return dt.datetime(2026, 1, day, tzinfo=dt.UTC) + dt.timedelta(hours=hour)


def ended(schedule: Schedule) -> list[tuple[str, float]]:
    """What has become of its instants, by state and hour; the newest first."""
    return [
        (each.state, (each.at - on(0)) / dt.timedelta(hours=1))
        for each in schedule.occurrences()
    ]


# Declared in code ---------------------------------------------------------------------


def test_scheduled_function_is_a_task_and_runs_by_itself(jobs: LiteJobs) -> None:
    runs = []

    @jobs.schedule(NINE_IN_BERLIN)
    def report() -> None:
        runs.append((current().schedule, current().occurrence_at))

    assert jobs.tasks == {"report": report}
    with freeze_time(on(7)) as clock:
        assert jobs.drain() == 0
        assert jobs.schedules["report"].next_at == on(8)
        clock.move_to(on(8))
        assert jobs.drain() == 1
        clock.move_to(on(8, day=6))
        assert jobs.drain() == 1
        assert jobs.drain() == 0
    assert runs == [("report", on(8)), ("report", on(8, day=6))]
    [last, _] = jobs.list()
    assert jobs.get(last.id).occurrence_at == on(8, day=6)
    assert jobs.get(last.id).schedule_id == jobs.schedules["report"].id


def test_task_has_several_schedules_with_arguments_of_their_own(
    jobs: LiteJobs,
) -> None:
    runs = []

    @jobs.schedule(every("90s"), name="often", kwargs={"host": "b"}, queue="probes")
    @jobs.schedule(HOURLY, args=["a"], priority=3)
    @jobs.task(queue="mail")
    def probe(host: str, port: int = 80) -> None:
        runs.append((host, port, current().queue, current().schedule))

    with freeze_time(on(8.5)) as clock:
        jobs.open()
        assert list(jobs.schedules) == ["often", "probe"]
        assert jobs.drain() == 0
        clock.tick(90)
        assert jobs.drain() == 1
        clock.move_to(on(9))
        assert jobs.drain() == 2
    assert runs[0] == ("b", 80, "probes", "often")
    assert sorted(runs[1:]) == [("a", 80, "mail", "probe"), runs[0]]
    assert jobs.schedules["probe"].args == {"host": "a"}
    assert [job.priority for job in jobs.list(queue="mail")] == [3]


def test_coroutines_and_flows_are_scheduled_as_well(jobs: LiteJobs) -> None:
    done = []

    @jobs.schedule(HOURLY)
    async def fetch() -> None:
        done.append("fetch")

    def parse(page: int) -> int:
        return page + 1

    def store(prev: int) -> None:
        done.append(f"store {prev}")

    flow = jobs.flow("sync", [("parse", parse), ("store", store)])
    assert jobs.schedule(HOURLY, kwargs={"page": 1})(flow) is flow
    with freeze_time(on(8.5)) as clock:
        jobs.drain()
        clock.move_to(on(9))
        jobs.drain()
    assert sorted(done) == ["fetch", "store 2"]


def test_second_schedule_of_a_task_needs_a_name(jobs: LiteJobs) -> None:
    @jobs.schedule(HOURLY)
    def probe() -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        jobs.schedule(every("90s"))(probe)
    assert str(caught.value) == (
        "schedule 'probe' is declared already, for task 'probe'; give this one of "
        "task 'probe' another name="
    )
    with pytest.raises(ConfigurationError, match="give this one of task 'other' ano"):

        @jobs.schedule(HOURLY, name="probe")
        def other() -> None: ...

    assert list(jobs.tasks) == ["probe"]
    assert list(jobs.schedules) == ["probe"]


def test_what_cannot_be_scheduled_is_refused_where_it_is_decorated(
    jobs: LiteJobs, file_jobs: LiteJobs
) -> None:
    @file_jobs.task
    def foreign() -> None: ...

    @jobs.task
    def own(number: int) -> None: ...

    with pytest.raises(ConfigurationError, match="is a task of LiteJobs"):
        jobs.schedule(HOURLY)(foreign)
    with pytest.raises(ConfigurationError, match="cannot be scheduled; decorate a fun"):
        jobs.schedule(HOURLY)(own.using(priority=1))  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="'own' cannot be called like this"):
        jobs.schedule(HOURLY)(own)
    with pytest.raises(ArgumentError, match="cannot be called like this"):

        @jobs.schedule(HOURLY, args=[1])
        def lonely() -> None: ...

    with pytest.raises(ConfigurationError, match="'own' is registered already"):

        @jobs.schedule(HOURLY, name="again", args=[1])
        def own(number: int) -> None: ...

    with pytest.raises(ConfigurationError, match="schedule='' does not fit"):
        jobs.schedule(HOURLY, name="", args=[1])(own)
    assert list(jobs.tasks) == ["own"]
    assert len(jobs.schedules) == 0


NEVER = cron("0 0 30 2 *")
NAIVE = dt.datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"when": "0 9 * * *"}, "when='0 9 [*] [*] [*]' is not a time; give cron"),
        ({"when": NEVER}, "never comes: no year has such a date"),
        ({"misfire": "on"}, "misfire='on' is unknown; did you mean 'one'?"),
        ({"misfire_limit": 0}, "misfire_limit=0 is out of range"),
        ({"misfire_limit": True}, "misfire_limit=True is out of range"),
        ({"grace": "-1s"}, "grace='-1s' is not a duration"),
        ({"overlap": None}, "overlap=None is unknown"),
        ({"max_waiting": 10_001}, "max_waiting=10001 is out of range; give a whole"),
        ({"jitter": "367d"}, "jitter='367d' is out of range; give up to 366 days"),
        ({"jitter": "often"}, "jitter='often' is not a duration"),
        ({"start_at": NAIVE}, r"start_at=.* has no time zone"),
        ({"end_at": "today"}, "end_at='today' is not a datetime"),
        (
            {"start_at": on(9), "end_at": on(8)},
            "end_at=2026-01-05T08:00:00Z lies before start_at=2026-01-05T09:00:00Z",
        ),
        ({"max_runs": 0}, "max_runs=0 is out of range"),
        ({"delay": "5s"}, "option='delay' is unknown"),
        ({"priority": "high"}, "priority='high' is out of range"),
        ({"queue": ""}, "queue='' does not fit"),
        ({"retry": 5}, "retry=5 is not a policy"),
        ({"on_conflict": "replace"}, "has no effect without a unique_key"),
        ({"unique_key": "k", "on_conflict": "raise"}, "on_conflict='raise' is unkn"),
        ({"require": "online"}, "require='online' is not a list"),
        ({"timeout": 0}, "timeout=0 leaves no time"),
    ],
)
def test_value_that_cannot_work_is_refused_at_once(
    jobs: LiteJobs, said: dict[str, Any], message: str
) -> None:
    said = {"when": HOURLY} | said
    with pytest.raises(ConfigurationError, match=message):
        jobs.schedule(**said)(lambda: None)
    with pytest.raises(ConfigurationError, match=message):
        jobs.schedules.create("probe", "probe", **said)
    assert len(jobs.schedules) == 0
    jobs.schedules.create("probe", "probe", every("1d"))
    before = jobs.schedules["probe"]
    with pytest.raises(ConfigurationError, match=message):
        jobs.schedules.update("probe", **said)
    assert jobs.schedules["probe"] == before


def test_arguments_are_a_list_and_a_mapping(jobs: LiteJobs) -> None:
    with pytest.raises(ArgumentError, match="args='a' is not a list"):
        jobs.schedules.create("probe", "probe", HOURLY, args="a")
    with pytest.raises(ArgumentError, match="kwargs=5 is not a mapping"):
        jobs.schedules.create("probe", "probe", HOURLY, kwargs=5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="arguments of task 'probe'"):
        jobs.schedules.create("probe", "probe", HOURLY, args=[object()])
    assert len(jobs.schedules) == 0


def test_declared_schedule_with_new_code_is_as_the_new_code_says(
    tmp_path: Path,
) -> None:
    with freeze_time(on(7)) as clock:
        with LiteJobs(tmp_path / "jobs.db") as jobs:
            jobs.schedule(HOURLY, name="probe", priority=1)(probe)
            jobs.drain()
            jobs.schedules.pause("probe")
        clock.move_to(on(7.5))
        with LiteJobs(tmp_path / "jobs.db") as jobs:
            jobs.schedule(every("1d", anchor=on(9)), name="probe")(probe)
            jobs.drain()
            schedule = jobs.schedules["probe"]
            assert schedule.when == Every(86_400_000, 1_767_603_600_000)
            assert (schedule.state, schedule.edited) == ("paused", False)
            jobs.schedules.resume("probe")
            assert jobs.schedules["probe"].next_at == on(9)


def probe() -> None:
    """A task that does nothing."""


def test_schedule_that_vanished_from_the_code_goes_on_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with freeze_time(on(7.5)) as clock:
        with LiteJobs(tmp_path / "jobs.db") as jobs:
            jobs.schedule(HOURLY)(probe)
            jobs.drain()
            assert jobs.schedules["probe"].vanished is False
        assert caplog.messages == []
        with LiteJobs(tmp_path / "jobs.db") as jobs:
            jobs.task(probe)
            jobs.schedules.create("own", "probe", HOURLY)
            clock.move_to(on(8))
            assert jobs.drain() == 2
            assert caplog.messages == [
                "schedule 'probe' is not in the code any more; it still runs; pause "
                "or remove it"
            ]
            caplog.clear()
            with jobs.running():
                vanished = [each.vanished for each in jobs.schedules.list()]
            assert vanished == [False, True]
            assert len(caplog.messages) == 1
            assert jobs.schedules["probe"].vanished is True
            jobs.schedules.remove("probe")
            caplog.clear()
            jobs.drain()
            assert caplog.messages == []
            assert list(jobs.schedules) == ["own"]


def test_schedule_has_vanished_until_code_has_it_again(tmp_path: Path) -> None:
    """Whatever runs, ends or looks meanwhile."""
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        task = jobs.schedule(HOURLY)(probe)
        assert jobs.schedules["probe"].vanished is False
        jobs.schedule(HOURLY, name="other")(task)
        jobs.drain()
    for _ in range(2):
        with LiteJobs(path) as jobs:
            jobs.schedule(HOURLY, name="other")(probe)
            jobs.drain()
            with jobs.running():
                assert jobs.schedules["probe"].vanished is True
            assert jobs.schedules["probe"].vanished is True
            assert jobs.schedules["other"].vanished is False
        with LiteJobs(path) as jobs:
            assert jobs.schedules["probe"].vanished is True
    with LiteJobs(path) as jobs, LiteJobs(path) as running:
        # While a runner says that it lacks it, another process does not count.
        running.schedule(HOURLY, name="other")(probe)
        with running.running():
            jobs.schedule(HOURLY)(probe)
            assert jobs.schedules["probe"].vanished is True
        assert jobs.schedules["probe"].vanished is True
    with LiteJobs(path) as jobs:
        jobs.schedule(HOURLY)(probe)
        assert jobs.schedules["probe"].vanished is False
        assert jobs.schedules["other"].vanished is False
    with LiteJobs(path) as jobs:
        assert jobs.schedules["probe"].vanished is False
        jobs.schedule(HOURLY)(probe)
        jobs.drain()
        found = {each.name: each.vanished for each in jobs.schedules.list()}
        assert found == {"other": True, "probe": False}


def test_schedule_of_the_code_is_planned_before_a_runner_starts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    nine = cron("0 9 * * *", timezone="Europe/Berlin")
    with freeze_time(on(7.5)) as clock:
        with LiteJobs(path) as jobs:
            task = jobs.schedule(nine)(probe)
            jobs.open()
            schedule = jobs.schedules["probe"]
            assert (schedule.state, schedule.next_at) == ("active", on(8))
            assert schedule.sentence == "At 09:00 every day (Europe/Berlin)"
            # Also one that is declared when the file is open.
            jobs.schedule(every("1h"), name="later", start_at=on(12))(task)
            assert jobs.schedules["later"].next_at == on(12)
            assert [each.schedule for each in jobs.schedules.upcoming(2)] == [
                *("probe", "later")
            ]
        clock.move_to(on(8.5))
        with LiteJobs(path) as jobs:
            # What is due stays; what has changed is planned from now on.
            jobs.schedule(nine)(probe)
            assert jobs.schedules["probe"].next_at == on(8)
        with LiteJobs(path) as jobs:
            jobs.schedule(every("10m"))(probe)
            assert jobs.schedules["probe"].sentence == "Every 10 minutes"
            due = [each.at for each in jobs.schedules.upcoming(3)]
            minutes = dt.timedelta(minutes=10)
            assert due == [on(8), on(8.5) + minutes, on(8.5) + 2 * minutes]
        clock.move_to(on(8.5, day=9))
        with LiteJobs(path) as jobs:
            # What was missed is found out by the runner that makes up for it.
            jobs.schedule(every("10m"))(probe)
            assert jobs.schedules["probe"].next_at == on(8)
            assert jobs.schedules["probe"].occurrences() == []
            jobs.drain()
            assert jobs.schedules["probe"].runs == 1
            assert jobs.schedules["probe"].last_at == on(8.5, day=9)


def test_many_schedules_are_planned_where_the_code_has_them(jobs: LiteJobs) -> None:
    """Some at a time, also inside a transaction of the caller."""
    task = jobs.task(probe)
    with freeze_time(on(7.5)):
        jobs.open()
        for n in range(300):
            jobs.schedule(every(60 + n), name=f"s{n}")(task)
        jobs.schedule(every("1h"), name="over", end_at=on(7))(task)
        with jobs.transaction():
            found = jobs.schedules.list()
        assert len(found) == 301
        assert [each.name for each in found if each.next_at is None] == ["over"]
        assert jobs.schedules["over"].state == "ended"


def test_what_a_person_has_made_or_changed_is_kept_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        jobs.schedule(HOURLY, name="changed")(probe)
        jobs.schedules.create("made", "probe", every("5m"))
        changed = jobs.schedules.update("changed", when=every("7m"))
        assert (changed.declared, changed.edited) == (True, True)
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        task = jobs.schedule(cron("30 * * * *"), name="changed")(probe)
        jobs.schedule(HOURLY, name="made")(task)
        jobs.drain()
        kept = jobs.schedules.list()
    assert [str(each.sentence) for each in kept] == [
        "Every 7 minutes",
        "Every 5 minutes",
    ]
    assert [(each.name, each.declared) for each in kept] == [
        ("changed", True),
        ("made", False),
    ]
    assert caplog.messages == [
        f"schedule '{name}' is not as the code says, since a person {name} it; remove "
        "it to have it from the code at the next start"
        for name in ("changed", "made")
    ]


def test_schedule_declared_while_a_runner_runs_is_its_own_at_once(
    file_jobs: LiteJobs,
) -> None:
    task = file_jobs.task(probe)
    with freeze_time(on(7.5)) as clock, file_jobs.running() as runner:
        assert file_jobs.schedule(HOURLY)(task) is task
        schedule = file_jobs.schedules["probe"]
        assert (schedule.declared, schedule.vanished) == (True, False)
        with pytest.raises(ConstraintViolated, match="the running code declares this"):
            file_jobs.schedules.remove("probe")
        assert runner.wait_idle(10)
        clock.move_to(on(8))
        [job] = wait_for_jobs(file_jobs)
        assert job.result(10) is None
        assert job.occurrence_at == on(8)
    file_jobs.schedules.remove("probe")
    assert job.state == "completed"


def wait_for_jobs(jobs: LiteJobs) -> list[Any]:
    """All jobs, as soon as there is one."""
    told = threading.Event()
    database = jobs._store.database
    database.listen(told.set)
    try:
        while not (found := jobs.list()):
            assert told.wait(10)
            told.clear()
    finally:
        database.unlisten(told.set)
    return [jobs.get(each.id) for each in found]


def test_declaration_in_a_transaction_that_is_rolled_back_is_made_again(
    jobs: LiteJobs,
) -> None:
    jobs.schedule(HOURLY)(probe)

    def look() -> None:
        with jobs.transaction():
            assert "probe" in jobs.schedules
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        look()
    assert "probe" in jobs.schedules


# Made at run time ---------------------------------------------------------------------


def test_created_schedule_is_planned_at_once(jobs: LiteJobs) -> None:
    task = jobs.task(probe)
    with freeze_time(on(7.5)) as clock:
        schedule = jobs.schedules.create("probe", task, HOURLY, max_attempts=7)
        assert (schedule.name, schedule.task, schedule.state) == (
            *("probe", "probe"),
            "active",
        )
        assert (schedule.next_at, schedule.next_due_at) == (on(8), on(8))
        assert (schedule.timezone, schedule.when) == ("UTC", HOURLY)
        assert schedule.created_at == on(7.5)
        assert (schedule.declared, schedule.edited, schedule.vanished) == (
            *(False, False),
            False,
        )
        assert (schedule.last_at, schedule.last_state, schedule.runs) == (None, None, 0)
        assert schedule.sentence is not None
        assert schedule == jobs.schedules["probe"]
        clock.move_to(on(8))
        jobs.drain()
        [job] = jobs.list()
        assert (job.max_attempts, job.state) == (7, "completed")
        schedule = jobs.schedules["probe"]
        assert (schedule.last_at, schedule.last_state) == (on(8), "fired")
        assert (schedule.last_job_id, schedule.runs) == (job.id, 1)
        assert schedule.next_at == on(9)


def test_schedule_of_a_task_that_is_not_known_here_waits_for_it(
    jobs: LiteJobs,
) -> None:
    with freeze_time(on(7.5)) as clock:
        jobs.schedules.create("late", "double", HOURLY, args=[21])
        jobs.schedules.create("named", "double", HOURLY, kwargs={"number": 4})
        clock.move_to(on(8))
        assert jobs.drain() == 0

        @jobs.task
        def double(number: int) -> int:
            return 2 * number

        assert jobs.drain() == 2
        assert [jobs.get(each.id).result(0) for each in jobs.list()] == [8, 42]
        with pytest.raises(ArgumentError, match="'double' cannot be called like this"):
            jobs.schedules.create("wrong", "double", HOURLY)


def test_name_of_a_schedule_is_taken_once(jobs: LiteJobs) -> None:
    jobs.schedules.create("probe", "probe", HOURLY)
    with pytest.raises(ScheduleExists) as caught:
        jobs.schedules.create("probe", "other", every("1d"))
    assert caught.value.code == "schedule_exists"
    assert str(caught.value) == (
        "there is a schedule 'probe' already; give another name, or change that one"
    )
    assert jobs.schedules["probe"].task == "probe"


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\udcff", 5, None])
def test_names_are_texts(jobs: LiteJobs, name: Any) -> None:
    with pytest.raises(ConfigurationError):
        jobs.schedules.create(name, "probe", HOURLY)
    with pytest.raises(ConfigurationError):
        jobs.schedules.create("probe", name, HOURLY)
    with pytest.raises(ScheduleNotFound):
        jobs.schedules[name]
    assert name not in jobs.schedules
    assert len(jobs.schedules) == 0


def test_create_is_part_of_the_callers_transaction(jobs: LiteJobs) -> None:
    def create() -> None:
        with jobs.transaction():
            schedule = jobs.schedules.create("probe", "probe", HOURLY)
            assert schedule.next_at is not None
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        create()
    assert jobs.schedules.upcoming() == []
    assert len(jobs.schedules) == 0


def test_interval_without_an_anchor_counts_from_its_start_or_its_birth(
    jobs: LiteJobs,
) -> None:
    with freeze_time(on(7.5)):
        born = jobs.schedules.create("born", "probe", every("2h"))
        begun = jobs.schedules.create("begun", "probe", every("2h"), start_at=on(9))
        held = jobs.schedules.create("held", "probe", every("2h", anchor=on(1)))
    assert (born.next_at, begun.next_at, held.next_at) == (on(9.5), on(9), on(9))
    assert isinstance(born.when, Every)
    assert born.when.anchor_ms == on(7.5).timestamp() * 1000
    assert born.timezone is None
    with freeze_time(on(7.75)):
        assert jobs.schedules.update("born", when=every("2h")).next_at == on(9.5)
        assert jobs.schedules.update("born", when=every("3h")).next_at == on(10.75)
        jobs.schedules.update("born", when=HOURLY)
        assert jobs.schedules.update("born", when=every("3h")).next_at == on(10.75)
        later = jobs.schedules.update("born", when=every("3h"), start_at=on(9))
        assert later.next_at == on(9)


@pytest.mark.parametrize(
    "said",
    [
        {"when": every("1h")},
        {"when": every("60m"), "priority": 1},
        {"when": every("1h"), "jitter": 0, "misfire": "one", "max_runs": None},
        {"when": every("1h"), "start_at": None},
        {"when": every("1h", anchor=on(1.5))},
        {"when": every("1h"), "task": "probe"},
        {"priority": 1},
    ],
    ids=repr,
)
@pytest.mark.parametrize("anew", [False, True])
def test_schedule_that_is_told_the_interval_it_has_does_not_begin_anew(
    jobs: LiteJobs, said: Any, anew: bool
) -> None:
    """A program that sets its schedules is started more often than they run."""
    jobs.task(name="probe")(probe)
    with freeze_time(on(7.5)) as clock:
        jobs.schedules.create("probe", "probe", every("1h"), priority=1)
        for number in range(12):
            changes = said | ({"queue": f"queue-{number}"} if anew else {})
            assert jobs.schedules.update("probe", **changes).next_at == on(
                7.5 + (number // 3 + 1)
            )
            clock.tick(dt.timedelta(minutes=20))
            jobs.drain()
    assert jobs.counts() == {"completed": 4}
    changed = [each for each in jobs.log() if each.name == "schedule.changed"]
    assert len(changed) == (12 if anew else repr(said).count("anchor_ms=1"))


def test_code_that_changes_does_not_begin_its_intervals_anew(tmp_path: Path) -> None:
    with freeze_time(on(7.5)) as clock:
        for number in range(12):
            with LiteJobs(tmp_path / "jobs.db") as jobs:
                jobs.schedule(every("1h"), priority=number)(probe)
                jobs.drain()
                clock.tick(dt.timedelta(minutes=20))
                jobs.drain()
                counts = jobs.counts()
    assert counts == {"completed": 4}


def test_update_changes_what_it_names_and_nothing_else(jobs: LiteJobs) -> None:
    @jobs.task
    def double(number: int, more: int = 0) -> int:
        return 2 * number + more

    with freeze_time(on(7.5)) as clock:
        first = jobs.schedules.create(
            "double",
            double,
            HOURLY,
            args=[1],
            queue="math",
            retry=Retry.constant("5s", max_attempts=9),
            unique_key="k",
            unique_for="1m",
        )
        second = jobs.schedules.update("double", when=cron("30 * * * *"))
        assert (first.next_at, second.next_at) == (on(8), on(8.5))
        assert second.args == first.args == {"number": 1}
        jobs.schedules.update("double", args=[2], on_conflict="replace")
        jobs.schedules.update("double", kwargs={"number": 3, "more": 1})
        assert jobs.schedules["double"].args == {"number": 3, "more": 1}
        jobs.schedules.update("double", retry=Retry.constant("7s"), overlap="skip")
        clock.move_to(on(8.5))
        jobs.drain()
        [job] = jobs.list()
        assert (job.queue, job.max_attempts, job.unique_key) == ("math", 9, "k")
        assert jobs.get(job.id).result(0) == 7
        assert column(
            jobs,
            "select spec.delay_ms from litejobs_job as job "
            "cross join litejobs_spec as spec on spec.id = job.spec_id",
        ) == [7000]
        assert column(jobs, "select on_conflict from litejobs_schedule") == ["replace"]
        jobs.schedules.update("double", retry=None, unique_key=None, queue=None)
        said = "select {} from litejobs_schedule"
        for name in ("max_attempts", "unique_key", "unique_for_ms", "on_conflict"):
            assert column(jobs, said.format(name)) == [None]
        third = jobs.schedules["double"]
        assert (third.overlap, third.runs) == ("skip", 1)
        with pytest.raises(ConfigurationError, match="without a unique_key; give one"):
            jobs.schedules.update("double", unique_for="5m")


def test_update_gives_a_schedule_another_task(jobs: LiteJobs) -> None:
    @jobs.task
    def one(number: int) -> None: ...

    @jobs.task
    def two(number: int, /) -> None: ...

    @jobs.task
    def three(other: int) -> None: ...

    jobs.schedules.create("x", one, HOURLY, args=[1])
    assert jobs.schedules.update("x", task="elsewhere").args == {"number": 1}
    with pytest.raises(ArgumentError, match="'three' cannot be called like this"):
        jobs.schedules.update("x", task=three)
    assert jobs.schedules["x"].task == "elsewhere"
    assert jobs.schedules.update("x", task=two, args=[5]).args == [5]
    assert jobs.schedules.update("x", task="one").args == {"number": 5}
    with pytest.raises(ConfigurationError, match="task=5 is not a task"):
        jobs.schedules.update("x", task=5)  # type: ignore[arg-type]


def test_update_needs_arguments_where_the_stored_ones_cannot_be_read(
    jobs: LiteJobs,
) -> None:
    jobs.task(probe)
    say(
        jobs,
        "insert into litejobs_schedule (name, task, expression, args) "
        f"values ('x', 'other', '0 * * * *', '[{'1' * 5000}]')",
    )
    with pytest.raises(ArgumentError, match="stored arguments cannot be read"):
        jobs.schedules.update("x", task="probe")
    assert jobs.schedules.update("x", task="probe", args=[]).args == {}


def test_update_without_changes_leaves_the_code_in_charge(jobs: LiteJobs) -> None:
    jobs.schedule(HOURLY)(probe)
    assert jobs.schedules.update("probe").edited is False


def test_declared_cron_that_a_person_makes_an_interval_is_edited(
    jobs: LiteJobs,
) -> None:
    jobs.schedule(HOURLY)(probe)
    when = every("1d", anchor=on(3))
    assert jobs.schedules.update("probe", when=when).edited is True


def test_paused_schedule_skips_what_falls_into_the_pause(jobs: LiteJobs) -> None:
    jobs.schedule(HOURLY)(probe)
    with freeze_time(on(7.5)) as clock:
        jobs.drain()
        jobs.schedules.pause("probe", "the printer is on fire")
        schedule = jobs.schedules["probe"]
        assert (schedule.state, schedule.next_at) == ("paused", None)
        assert schedule.reason == "the printer is on fire"
        assert jobs.schedules.upcoming() == []
        clock.move_to(on(10.5))
        assert jobs.drain() == 0
        jobs.schedules.pause("probe")
        assert jobs.schedules["probe"].reason == "the printer is on fire"
        jobs.schedules.resume("probe")
        schedule = jobs.schedules["probe"]
        assert (schedule.state, schedule.next_at) == ("active", on(11))
        clock.move_to(on(11))
        assert jobs.drain() == 1
        skipped = jobs.schedules["probe"].occurrences(state="skipped")
        assert {each.reason for each in skipped} == {"paused"}
        assert sum(each.count for each in skipped) == 3
        jobs.schedules.resume("probe")
        assert jobs.schedules["probe"].next_at == on(12)
    with pytest.raises(ConfigurationError, match="reason=5 does not fit"):
        jobs.schedules.pause("probe", 5)  # type: ignore[arg-type]


def test_schedule_that_cannot_be_planned_is_paused_and_says_why(
    jobs: LiteJobs,
) -> None:
    with freeze_time(on(7.5)):
        say(
            jobs,
            "insert into litejobs_schedule (name, task, expression, timezone) values "
            "('bad', 'probe', '61 * * * *', null), ('good', 'probe', '0 * * * *', "
            "null), ('lost', 'probe', '0 * * * *', 'Europe/Berlín')",
        )
        jobs.drain()
        bad, good, lost = jobs.schedules.list()
        assert [each.state for each in (bad, good, lost)] == [
            *("paused", "active"),
            "paused",
        ]
        assert bad.reason is not None
        assert "'61'" in bad.reason
        assert lost.reason is not None
        assert "Europe/Berlín" in lost.reason
        assert (bad.when, lost.when) == (None, None)
        assert good.next_at == on(8)
        with pytest.raises(ConfigurationError, match="bad minute field '61'"):
            jobs.schedules.resume("bad")
        assert jobs.schedules["bad"].state == "paused"
        mended = jobs.schedules.update("bad", when=cron("59 * * * *"))
        assert (mended.state, mended.reason) == ("active", None)
        assert mended.next_at == on(7) + dt.timedelta(minutes=59)


def test_removed_schedule_leaves_its_jobs(jobs: LiteJobs) -> None:
    @jobs.task
    def look() -> str | None:
        return current().schedule

    with freeze_time(on(7.5)):
        schedule = jobs.schedules.create("look", look, HOURLY)
        job = jobs.schedules.run_now("look")
        jobs.schedules.remove("look")
        jobs.drain()
    assert job.result(0) is None
    assert job.schedule_id == schedule.id
    assert job.occurrence_at == on(7.5)
    assert schedule.occurrences() == []
    assert list(jobs.schedules) == []


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("update", ()),
        ("pause", ()),
        ("resume", ()),
        ("remove", ()),
        ("run_now", ()),
        ("backfill", (on(1), on(2))),
        ("__getitem__", ()),
    ],
)
def test_schedule_that_there_is_not_is_not_found(
    jobs: LiteJobs, method: str, arguments: tuple[Any, ...]
) -> None:
    jobs.schedules.create("probe", "probe", HOURLY)
    for name, hint in {"prob": "did you mean 'probe'? ", "x": "", "\0": ""}.items():
        with pytest.raises(ScheduleNotFound) as caught:
            getattr(jobs.schedules, method)(name, *arguments)
        assert str(caught.value) == (
            f"there is no schedule {name!r} in :memory:; {hint}see "
            "the list of schedules"
        )


# Looking ------------------------------------------------------------------------------


def test_schedules_are_a_mapping_of_names(jobs: LiteJobs) -> None:
    assert list(jobs.schedules) == []
    jobs.schedules.create("b", "probe", HOURLY)
    jobs.schedules.create("a", "probe", HOURLY)
    assert list(jobs.schedules) == ["a", "b"]
    assert len(jobs.schedules) == 2
    assert "a" in jobs.schedules
    assert "c" not in jobs.schedules
    assert jobs.schedules.get("a") == jobs.schedules["a"]
    assert jobs.schedules.get("c") is None
    assert jobs.schedules.get("c", 5) == 5
    assert list(jobs.schedules.values()) == jobs.schedules.list()
    assert repr(jobs.schedules) == "<litejobs schedules>"


def test_upcoming_lists_what_will_run_soonest_first(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        jobs.schedules.create("hourly", "probe", HOURLY, queue="mail")
        jobs.schedules.create("probe", "probe", every("20m"))
        coming = jobs.schedules.upcoming(4)
    assert [(each.schedule, each.at) for each in coming] == [
        ("probe", on(7.5) + dt.timedelta(minutes=20)),
        ("hourly", on(8)),
        ("probe", on(7.5) + dt.timedelta(minutes=40)),
        ("probe", on(8.5)),
    ]
    assert (coming[1].queue, coming[1].task) == ("mail", "probe")
    assert (coming[1].timezone, coming[0].timezone) == ("UTC", None)
    assert coming[0].sentence == "Every 20 minutes"
    assert len(jobs.schedules.upcoming()) == 10
    with pytest.raises(ConfigurationError, match="limit=0 is out of range"):
        jobs.schedules.upcoming(0)


def test_occurrences_say_what_has_become_of_each_instant(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)) as clock:
        schedule = jobs.schedules.create("probe", jobs.task(probe), HOURLY)
        clock.move_to(on(8))
        jobs.drain()
        clock.move_to(on(11.5))
        jobs.drain()
        assert ended(schedule)[0] == ("fired", 11)
        assert ended(schedule)[-1] == ("fired", 8)
        coalesced = schedule.occurrences(state="coalesced")
        assert sum(each.count for each in coalesced) == 2
        assert {each.into_at for each in coalesced} == {on(11)}
        [first] = schedule.occurrences(1)
        assert (first.at, first.due_at, first.reason) == (on(11), on(11), None)
        assert first.job_id == jobs.list()[0].id
        [*_, following] = schedule.occurrences(state="planned")
        assert (following.at, following.job_id) == (on(12), None)
        with pytest.raises(ConfigurationError, match="state='gone' is unknown"):
            schedule.occurrences(state="gone")  # type: ignore[arg-type]


def test_rows_of_other_clients_are_read_as_they_are(jobs: LiteJobs) -> None:
    say(
        jobs,
        "insert into litejobs_schedule (name, task, expression, timezone, args) "
        "values (cast(x'ff' as text), cast(x'fe' as text), 'x', 'y', '[1e999]')",
    )
    [schedule] = jobs.schedules.list()
    assert (schedule.name, schedule.task) == ("\ufffd", "\ufffd")
    assert schedule.when is None
    assert list(jobs.schedules) == ["\ufffd"]


def test_job_that_no_schedule_has_made_has_none(jobs: LiteJobs) -> None:
    @jobs.task
    def look() -> list[Any]:
        return [current().schedule, current().occurrence_at]

    job = look.enqueue()
    jobs.drain()
    assert job.result(0) == [None, None]
    assert (job.schedule_id, job.occurrence_at) == (None, None)
    say(jobs, "delete from litejobs_job")
    with pytest.raises(JobNotFound):
        job.occurrence_at  # noqa: B018 - that is what is tried


# Missed, overlapping, bounded ---------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ({}, [11]),
        ({"misfire": "all"}, [8, 9, 10, 11]),
        ({"misfire": "all", "misfire_limit": 2}, [10, 11]),
        ({"misfire": "all", "grace": "2h"}, [10, 11]),
        ({"misfire": "skip"}, []),
        ({"misfire": "skip", "grace": "45m"}, [11]),
        ({"max_runs": 2, "misfire": "all"}, [8, 9]),
        ({"start_at": on(9), "misfire": "all"}, [9, 10, 11]),
        ({"end_at": on(10), "misfire": "all"}, [8, 9, 10]),
        ({"end_at": on(7.75)}, []),
    ],
)
def test_what_was_missed_is_made_up_for_as_far_as_is_said(
    jobs: LiteJobs, said: dict[str, Any], runs: list[int]
) -> None:
    done = []

    @jobs.schedule(HOURLY, **said)
    def report() -> None:
        done.append(current().occurrence_at)

    with freeze_time(on(7.5)) as clock:
        jobs.drain()
        clock.move_to(on(11.5))
        jobs.drain()
    assert done == [on(hour) for hour in runs]


def test_schedule_that_has_run_often_enough_is_over(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)) as clock:
        jobs.schedules.create("probe", jobs.task(probe), HOURLY, max_runs=1)
        clock.move_to(on(8))
        jobs.drain()
        schedule = jobs.schedules["probe"]
        assert (schedule.state, schedule.next_at, schedule.runs) == ("ended", None, 1)
        again = jobs.schedules.update("probe", max_runs=2)
        assert (again.state, again.next_at) == ("active", on(9))


def test_jitter_puts_an_instant_off_by_always_the_same(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        first = jobs.schedules.create("probe", "probe", HOURLY, jitter="10m")
        assert first.next_at == on(8)
        assert first.next_due_at is not None
        assert on(8) < first.next_due_at <= on(8) + dt.timedelta(minutes=10)
        again = jobs.schedules.update("probe", jitter="5m")
        assert again.jitter_ms == 300_000
        again = jobs.schedules.update("probe", jitter="10m")
        assert again.next_due_at == first.next_due_at


# By hand ------------------------------------------------------------------------------


def test_run_now_makes_a_job_besides_those_of_its_own_times(jobs: LiteJobs) -> None:
    task = jobs.task(probe)
    with freeze_time(on(7.5)) as clock:
        jobs.schedules.create("probe", task, HOURLY, priority=4, max_runs=1)
        first = jobs.schedules.run_now("probe")
        second = jobs.schedules.run_now("probe")
        assert first != second
        assert first.occurrence_at == on(7.5)
        assert first.snapshot().priority == 4
        assert jobs.drain() == 2
        assert jobs.schedules["probe"].next_at == on(8)
        clock.move_to(on(8))
        assert jobs.drain() == 1
        assert jobs.schedules["probe"].runs == 1


def test_run_now_waits_for_the_others_where_jobs_do_not_overlap(
    jobs: LiteJobs,
) -> None:
    with freeze_time(on(7.5)):
        jobs.schedules.create("probe", jobs.task(probe), HOURLY, overlap="skip")
        first, second = (jobs.schedules.run_now("probe") for _ in range(2))
        assert (first.state, second.state) == ("pending", "blocked")
        assert [parent.job for parent in second.parents] == [first]
        assert jobs.drain() == 2


def test_run_now_hands_back_the_job_that_has_the_key(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        task = jobs.task(probe)
        jobs.schedules.create("probe", task, HOURLY, unique_key="k")
        other = task.using(unique_key="k").enqueue()
        assert jobs.schedules.run_now("probe") == other
        jobs.drain()
        assert jobs.schedules.run_now("probe") != other


def test_backfill_makes_up_for_a_time_of_the_past_once(jobs: LiteJobs) -> None:
    done = []

    @jobs.task
    def report() -> None:
        done.append(current().occurrence_at)

    with freeze_time(on(7.5)) as clock:
        jobs.schedules.create("report", report, HOURLY)
        clock.move_to(on(8))
        jobs.drain()
        clock.move_to(on(11.5))
        jobs.drain()
        assert done == [on(8), on(11)]
        made = jobs.schedules.backfill("report", on(6), on(11))
        assert [job.occurrence_at for job in made] == [on(6), on(7), on(9), on(10)]
        assert jobs.schedules.backfill("report", on(6), on(11)) == []
        assert jobs.drain() == 4
    assert done[2:] == [on(6), on(7), on(9), on(10)]
    assert jobs.schedules["report"].occurrences(state="fired")[-1].at == on(6)


def test_what_was_deleted_is_neither_filled_in_nor_done_again(jobs: LiteJobs) -> None:
    done = []

    @jobs.schedule(cron("0 9 * * *"), name="report")
    def report() -> None:
        done.append(current().occurrence_at)

    with freeze_time(on(8)) as clock:
        jobs.drain()
        for day in (5, 6, 7, 8):
            clock.move_to(on(9.5, day))
            jobs.drain()
        days = [on(9, day) for day in (5, 6, 7, 8)]
        assert done == days
        assert jobs.purge(older_than=None) == 4
        [last] = jobs.schedules["report"].occurrences(state="fired")
        assert last.at == on(9, 8)
        with pytest.raises(ConfigurationError) as caught:
            jobs.schedules.backfill("report", on(0, 6), on(9, 8))
        assert str(caught.value) == (
            "schedule 'report' may have run at 2026-01-06T09:00:00Z: its jobs and its "
            "ledger until 2026-01-07T09:00:00Z have been deleted; give a start after "
            "that"
        )
        [early] = jobs.schedules.backfill("report", on(0, 4), on(23, 4))
        jobs.drain()
        assert done.pop() == early.occurrence_at == on(9, 4)
        for hour in range(72):
            clock.move_to(on(12 + hour, 5))
            jobs.drain()
        assert done == days
        clock.move_to(on(9, 9))
        jobs.drain()
        assert done == [*days, on(9, 9)]


def test_undone_backfill_can_be_made_again(jobs: LiteJobs) -> None:
    """As the schedule says by then; what was taken back is not of the schedule."""
    ran = []

    @jobs.task
    def report(region: str) -> None:
        ran.append((current().occurrence_at, region))

    def ledger() -> list[tuple[Any, ...]]:
        found = jobs.schedules["report"].occurrences()
        return [(each.at, each.state, each.reason, each.job_id) for each in found]

    with freeze_time(on(11.5)) as clock:
        jobs.schedules.create("report", report, HOURLY, args=["nroth"])
        with jobs.operation("backfill"):
            slips = jobs.schedules.backfill("report", on(6), on(7))
        jobs.undo()
        assert [job.state for job in slips] == ["cancelled", "cancelled"]
        assert ledger() == [
            (on(7), "skipped", "undone", slips[1].id),
            (on(6), "skipped", "undone", slips[0].id),
        ]
        jobs.schedules.update("report", args=["north"])
        with jobs.operation("backfill"):
            made = jobs.schedules.backfill("report", on(6), on(8))
        assert len(made) == 3
        assert not {*made} & {*slips}
        assert [job.occurrence_at for job in made] == [on(6), on(7), on(8)]
        assert [job.occurrence_at for job in slips] == [None, None]
        assert [each[1:] for each in ledger()] == [
            ("fired", "backfill", job.id) for job in reversed(made)
        ]
        assert jobs.schedules.backfill("report", on(6), on(8)) == []
        # As often as one likes, until they have begun.
        jobs.undo()
        assert {each[1:3] for each in ledger()} == {("skipped", "undone")}
        jobs.schedules.backfill("report", on(6), on(8))
        clock.move_to(on(11.6))
        jobs.drain()
        assert ran == [(on(hour), "north") for hour in (6, 7, 8)]
        assert jobs.schedules.backfill("report", on(6), on(8)) == []
        assert jobs.schedules["report"].runs == 0


def test_requeued_job_of_an_undone_backfill_is_that_of_its_instant(
    jobs: LiteJobs,
) -> None:
    jobs.task(probe)
    with freeze_time(on(11.5)):
        jobs.schedules.create("probe", "probe", HOURLY)
        with jobs.operation("backfill"):
            first, second = jobs.schedules.backfill("probe", on(6), on(7))
        jobs.undo()
        first.requeue()
        [other] = jobs.schedules.backfill("probe", on(6), on(7))
        assert other.occurrence_at == on(7)
        assert first.occurrence_at == on(6)
        fired = jobs.schedules["probe"].occurrences(state="fired")
        assert [(each.at, each.reason, each.job_id) for each in fired] == [
            (on(7), "backfill", other.id),
            (on(6), "backfill", first.id),
        ]
        # One that lost its instant stays a job of its own.
        second.requeue()
        assert jobs.drain() == 3
        assert jobs.schedules["probe"].occurrences(state="fired") == fired


def test_cancelled_job_of_a_backfill_keeps_its_instant(jobs: LiteJobs) -> None:
    """It was a person's will that this one is not done."""
    jobs.task(probe)
    with freeze_time(on(11.5)):
        jobs.schedules.create("probe", "probe", HOURLY)
        [job] = jobs.schedules.backfill("probe", on(6), on(6))
        with jobs.operation("cancel"):
            job.cancel()
        assert jobs.schedules.backfill("probe", on(6), on(6)) == []
        jobs.undo()
        assert job.state == "pending"
        assert jobs.schedules["probe"].occurrences()[0].state == "fired"


def test_backfill_counts_too_many_before_anything_is_stored(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        jobs.schedules.create("probe", "probe", cron("* * * * * *"))
        begin = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        with pytest.raises(ConfigurationError) as caught:
            jobs.schedules.backfill("probe", begin, on(0))
        assert str(caught.value) == (
            "schedule 'probe' has 1767571201 instants without a job from "
            "1970-01-01T00:00:00Z to 2026-01-05T00:00:00Z, and limit=1000; give a "
            "shorter time or a higher limit"
        )
        with pytest.raises(ConfigurationError, match=r"has 3 instants .* limit=2"):
            jobs.schedules.backfill(
                "probe", on(0), on(0) + dt.timedelta(seconds=2), limit=2
            )
        assert jobs.list() == []
        assert jobs.schedules["probe"].occurrences() == []
        end = on(0) + dt.timedelta(seconds=1)
        assert len(jobs.schedules.backfill("probe", on(0), end, limit=2)) == 2
        more = end + dt.timedelta(seconds=2)
        assert len(jobs.schedules.backfill("probe", on(0), more, limit=2)) == 2


def test_backfill_is_for_the_past(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        jobs.schedules.create("probe", "probe", HOURLY)
        with pytest.raises(ConfigurationError, match="end=2026-01-05T08:00:00Z is not"):
            jobs.schedules.backfill("probe", on(6), on(8))
        with pytest.raises(ConfigurationError, match="lies before start=2026-01-05T06"):
            jobs.schedules.backfill("probe", on(6), on(5))
        with pytest.raises(ConfigurationError, match=r"start=.* has no time zone"):
            jobs.schedules.backfill("probe", NAIVE, on(5))
        with pytest.raises(ConfigurationError, match="limit=0 is out of range"):
            jobs.schedules.backfill("probe", on(5), on(6), limit=0)
        say(
            jobs,
            "insert into litejobs_schedule (name, task, expression) "
            "values ('bad', 'probe', 'x')",
        )
        with pytest.raises(ConfigurationError, match=r"schedule 'bad': .* 'x'"):
            jobs.schedules.backfill("bad", on(5), on(6))


def test_operations_of_people_are_in_the_log(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        jobs.schedules.create("probe", "probe", HOURLY)
        jobs.schedules.update("probe", priority=1)
        jobs.schedules.pause("probe")
        jobs.schedules.resume("probe")
        jobs.schedules.run_now("probe")
        jobs.schedules.remove("probe")
    lines = [each for each in jobs.log() if each.subject == "schedule probe"]
    assert [each.new_state for each in lines] == [
        *("created", "changed", "paused", "resumed", "run_now", "removed"),
    ]
    assert {each.origin for each in lines} == {"api"}


def test_schedule_is_a_value(jobs: LiteJobs) -> None:
    with freeze_time(on(7.5)):
        schedule = jobs.schedules.create("probe", "probe", HOURLY)
    assert isinstance(schedule.when, Cron)
    assert repr(schedule).startswith("Schedule(id=1, name='probe', task='probe', args=")
    assert schedule != jobs.schedules.create("other", "probe", HOURLY)
    with pytest.raises(AttributeError):
        schedule.runs = 5  # type: ignore[misc]


# Zones --------------------------------------------------------------------------------


def test_expressions_without_a_zone_mean_that_of_the_object() -> None:
    jobs = LiteJobs(":memory:", timezone="Europe/Berlin")

    @jobs.schedule(cron("0 9 * * *"))
    def here() -> None: ...

    @jobs.schedule(cron("0 9 * * *", timezone="UTC"))
    def there() -> None: ...

    @jobs.schedule(every("1h"))
    def often() -> None: ...

    with freeze_time(on(7)), jobs:
        found = {name: each.timezone for name, each in jobs.schedules.items()}
        assert found == {"here": "Europe/Berlin", "there": "UTC", "often": None}
        assert jobs.schedules["here"].next_at == on(8)
        assert jobs.schedules["there"].next_at == on(9)
        assert jobs.schedules["here"].sentence == "At 09:00 every day (Europe/Berlin)"
        made = jobs.schedules.create("made", here, cron("30 9 * * *"))
        assert made.next_at == on(8.5)
        assert column(jobs, "select distinct timezone from litejobs_schedule") == [
            "Europe/Berlin",
            "UTC",
            None,
        ]
        moved = jobs.schedules.update("there", when=cron("0 10 * * *"))
        assert moved.when == cron("0 10 * * *", "Europe/Berlin")


def test_without_any_zone_an_expression_means_utc() -> None:
    when = cron("0 9 * * *")
    assert (when, when.timezone) == (cron("0 9 * * *", "UTC"), "UTC")
    assert when.sentence() == "At 09:00 every day (UTC)"
    assert (when.is_zoned, cron("0 9 * * *", "UTC").is_zoned) == (False, True)
    jobs = LiteJobs(":memory:")
    jobs.schedule(when)(jobs.task(name="a")(lambda: None))
    assert jobs.schedules["a"].timezone == "UTC"


@pytest.mark.parametrize(
    ("timezone", "sentence"),
    [
        ("Europe/Berln", "unknown time zone 'Europe/Berln'; did you mean 'Europe/Berl"),
        ("../etc", "unknown time zone '../etc'"),
        (5, "timezone=5 is not a name; pass an IANA name such as 'Europe/Berlin'"),
    ],
)
def test_a_zone_that_there_is_not_is_refused_where_it_is_said(
    timezone: Any, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        LiteJobs(timezone=timezone)
    assert str(refused.value).startswith(sentence)


def test_local_is_the_name_of_this_computers_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    jobs = LiteJobs(timezone="local")
    jobs.schedule(cron("0 9 * * *"))(jobs.task(name="a")(lambda: None))
    assert jobs.schedules["a"].timezone == "Asia/Tokyo"
