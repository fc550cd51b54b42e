"""The clock jumps, or the machine sleeps, while schedules run.

Each instant of a schedule is a job at most once, however often the clock shows it;
what follows elapsed time goes on at once, wherever the clock has gone; and however much
was jumped over, it is one row. Tests with a runner move its clock while it runs; those
with `drain` begin a new life each time, which learns of the jump from the file.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from litejobs import LiteJobs

# A summer's evening, a little after the second: 00:10 of the next day in Berlin.
START = dt.datetime(2026, 7, 1, 22, 10, 0, 400_000, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
OFTEN = 8
PLANNED = 16  # instants that are known ahead, at most

Jump = Callable[[dt.datetime], dt.datetime]
BACK: dict[str, Jump] = {
    "back 1 s": lambda now: now - SECOND,
    "back 1.5 s": lambda now: now - 1.5 * SECOND,
    "back 1 h": lambda now: now - HOUR,
    "back 1 day": lambda now: now - DAY,
    "to 1970": lambda _: dt.datetime(1970, 1, 1, 0, 0, 10, tzinfo=dt.UTC),
}
FORWARD: dict[str, Jump] = {
    "on 10 s": lambda now: now + 10 * SECOND,
    "on 10 years": lambda now: now.replace(year=now.year + 10),
    "to 2200": lambda now: now.replace(year=2200),
}
JUMPS = BACK | FORWARD
every_jump = pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)


@attrs.frozen
class Story:
    """Jobs on a clock that is moved."""

    jobs: LiteJobs
    clock: FrozenDateTimeFactory

    @property
    def now(self) -> dt.datetime:
        """What the clock shows."""
        return dt.datetime.now(dt.UTC)

    def add(self, name: str, **columns: Any) -> None:
        """A schedule of the task, as any client would make it."""
        row = {"name": name, "task": "nothing"} | columns
        with self.jobs.transaction() as db:
            db.execute(
                f"insert into litejobs_schedule ({', '.join(row)}) "
                f"values ({', '.join('?' for _ in row)})",
                tuple(row.values()),
            )

    def add_often(self) -> None:
        """Some come every second, half as intervals and half as cron expressions."""
        for number in range(OFTEN // 2):
            self.add(f"every {number}", every_ms=1000)
            self.add(f"cron {number}", expression="* * * * * *")

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.jobs.reader() as db:
            return db.execute(sql, parameters).fetchall()

    def value(self, sql: str, *parameters: Any) -> Any:
        return self.rows(sql, *parameters)[0][0]

    def last_job(self) -> int:
        return int(self.value("select coalesce(max(id), 0) from litejobs_job"))

    def fired(self, after: int = 0) -> Counter[str]:
        """How many jobs each schedule has made, after the one with this id."""
        return Counter(
            name
            for (name,) in self.rows(
                "select name from litejobs_job as job "
                "join litejobs_schedule as schedule on schedule.id = job.schedule_id "
                "where job.id > ?",
                after,
            )
        )

    def instants(self, name: str) -> list[dt.datetime]:
        """For which instants the schedule has made jobs, the first job first."""
        return [
            dt.datetime.fromtimestamp(at / 1000, dt.UTC)
            for (at,) in self.rows(
                "select occurrence_at from litejobs_job where schedule_id = "
                "(select id from litejobs_schedule where name = ?) order by id",
                name,
            )
        ]

    def ledger(self, name: str) -> list[tuple[str, int, int]]:
        """What was decided of its instants: state, whether it is a range, count."""
        return self.rows(
            "select state, is_range, coalesce(count, 1) from litejobs_occurrence "
            "where schedule_id = (select id from litejobs_schedule where name = ?) "
            "and state <> 'planned' order by at, is_range desc",
            name,
        )

    def ledger_rows(self) -> int:
        return int(self.value("select count(*) from litejobs_occurrence"))

    def check(self) -> None:
        """Each instant that has fired has its job, each job its instant, once."""
        jobs = self.rows(
            "select schedule_id, occurrence_at, id from litejobs_job order by 1, 2"
        )
        assert max(Counter(job[:2] for job in jobs).values(), default=1) == 1
        assert jobs == self.rows(
            "select schedule_id, at, job_id from litejobs_occurrence "
            "where state = 'fired' order by 1, 2"
        )
        assert not self.rows(
            "select * from litejobs_occurrence where is_range = 0 "
            "group by schedule_id, at having count(*) > 1"
        )
        assert self.value("pragma main.integrity_check") == "ok"


@pytest.fixture
def story(jobs: LiteJobs) -> Iterator[Story]:
    """A story that begins in the evening, with a task that does nothing."""
    jobs.task(name="nothing")(lambda: None)
    with freeze_time(START) as clock:
        # What ran longer ago than a week is looked at here, too.
        jobs.retention.set("completed", None)
        yield Story(jobs, clock)


QUIET = """
select not exists (select 1 from litejobs_planning)
and not exists (
    select 1 from litejobs_occurrence
    where state = 'planned' and due_at <= (select now from litejobs_clock)
)
and not exists (
    select 1 from litejobs_runner
    where stopped_at is null and seen_at > (select now + 1000 from litejobs_clock)
)
"""


@pytest.fixture(params=["drain", "runner"])
def catch_up(
    request: pytest.FixtureRequest, story: Story
) -> Iterator[Callable[[], object]]:
    """What makes everything true that follows from the time, one way or the other."""
    if request.param == "drain":
        yield story.jobs.drain
        return
    with story.jobs.running(threads=2) as runner:
        yield lambda: until(lambda: story.value(QUIET) and runner.wait_idle(30))


def until(holds: Callable[[], object]) -> None:
    """It holds, since the runner works meanwhile."""
    pause = threading.Event()
    for _ in range(3000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it is not so after 30 s")


# Jumps --------------------------------------------------------------------------------


@every_jump
def test_schedules_of_every_second_go_on_at_once_after_a_jump(
    story: Story, catch_up: Callable[[], object], jump: Jump
) -> None:
    """Only a step back of a second or less is let be, and waited out."""
    story.add_often()
    catch_up()
    for _ in range(4):
        story.clock.tick(1)
        catch_up()
    assert set(story.fired().values()) == {4}
    last, rows, then = story.last_job(), story.ledger_rows(), story.now
    story.clock.move_to(jump(story.now))
    catch_up()
    if then - SECOND <= story.now < then:
        assert story.last_job() == last
        story.clock.tick(1)
        catch_up()
    if story.now > then:
        # What was jumped over fires once.
        assert story.fired(last) == dict.fromkeys(story.fired(), 1)
    else:
        assert story.last_job() == last
    last = story.last_job()
    for seconds in (1, 2, 3):
        story.clock.tick(1)
        catch_up()
        assert story.fired(last) == dict.fromkeys(story.fired(), seconds)
    # For each: what is planned, one stretch that was missed, and what has fired.
    assert story.ledger_rows() <= rows + OFTEN * (PLANNED + 1 + 4)
    story.check()


@every_jump
def test_many_jumps_leave_as_many_rows_as_jumps(story: Story, jump: Jump) -> None:
    """There and back again: no instant comes twice, and nothing piles up."""
    story.add_often()
    story.jobs.drain()
    for there in range(4):
        story.clock.move_to(jump(story.now) if there % 2 else START + HOUR)
        for _ in range(3):
            story.jobs.drain()
            story.clock.tick(1)
        last = story.last_job()
        story.clock.tick(1)
        story.jobs.drain()
        assert story.fired(last) == dict.fromkeys(story.fired(), 1)
    story.check()
    decided = story.value(
        "select count(*) from litejobs_occurrence "
        "where state not in ('planned', 'fired')"
    )
    assert decided <= OFTEN * 4 * PLANNED
    assert story.ledger_rows() <= OFTEN * (PLANNED + 4 * (PLANNED + 5))


def test_hour_that_is_seen_again_for_a_moment_only_is_not_missed(story: Story) -> None:
    """Put back by mistake, and right again: what is over has had its jobs."""
    story.add("all", every_ms=1000, misfire="all")
    story.add("one", every_ms=1000)
    story.jobs.drain()
    for _ in range(3):
        story.clock.tick(1)
        story.jobs.drain()
    story.clock.tick(0.5)
    story.jobs.drain()
    right = story.now
    story.clock.move_to(right - HOUR)
    for _ in range(3):
        story.jobs.drain()
        story.clock.tick(1)
    story.clock.move_to(right + 5 * SECOND)
    story.jobs.drain()
    # Before, then what was planned when it was put back, and five seconds since.
    for name in ("all", "one"):
        counted = sum(count for _, _, count in story.ledger(name))
        assert 3 + 2 + 5 <= counted <= 3 + PLANNED + 5
    assert story.fired()["one"] == 3 + 2 + 1
    story.check()


# Fixed hours --------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")


def in_berlin(day: int, hour: int, minute: int = 0, fold: int = 0) -> dt.datetime:
    """A time of October 2026; the clocks go back on the 25th, from 3:00 to 2:00."""
    local = dt.datetime(2026, 10, day, hour, minute, tzinfo=BERLIN, fold=fold)
    return local.astimezone(dt.UTC)


def walk(story: Story, to: dt.datetime, step: dt.timedelta) -> None:
    """The clock has gone on to that time, and at each step all was done."""
    while story.now < to:
        story.clock.move_to(min(story.now + step, to))
        story.jobs.drain()


@pytest.mark.parametrize(
    "pace", [None, pytest.param(HOUR, marks=pytest.mark.torture)], ids=["some", "each"]
)
@pytest.mark.parametrize("step", [HOUR, DAY, 30 * DAY], ids=["hour", "day", "month"])
def test_fixed_hour_does_not_run_again_when_the_clock_is_put_back(
    story: Story, step: dt.timedelta, pace: dt.timedelta | None
) -> None:
    """At any *pace*; by default hour by hour in the night of the change alone."""
    pace = pace or (4 * HOUR if step < 30 * DAY else 12 * HOUR)
    story.clock.move_to(in_berlin(19, 12))
    story.add("daily", expression="30 2 * * *", timezone="Europe/Berlin")
    story.jobs.drain()
    walk(story, in_berlin(22, 3), pace)
    ran = [in_berlin(day, 2, 30) for day in (20, 21, 22)]
    assert story.instants("daily") == ran
    story.clock.move_to(story.now - step)
    story.jobs.drain()
    assert story.instants("daily") == ran
    walk(story, max(in_berlin(22, 12), story.now), pace)
    days = [at for at in story.instants("daily") if at >= ran[0]]
    assert days == ran
    walk(story, in_berlin(24, 20), pace)
    walk(story, in_berlin(25, 12), HOUR)
    walk(story, in_berlin(27, 12), pace)
    # In the night of the change at 2:30 for the first time, not for the second.
    days = [at for at in story.instants("daily") if at >= ran[0]]
    assert days == ran + [in_berlin(day, 2, 30) for day in (23, 24, 25, 26, 27)]
    story.check()


def test_clock_that_is_put_back_with_the_zone_runs_a_fixed_hour_once(
    story: Story,
) -> None:
    """Somebody corrects the clock by the hour that the zone has corrected already."""
    story.clock.move_to(in_berlin(24, 12))
    story.add("fixed", expression="30 2 * * *", timezone="Europe/Berlin")
    story.add("hourly", expression="30 * * * *", timezone="Europe/Berlin")
    story.jobs.drain()
    walk(story, in_berlin(25, 2, 45), HOUR / 4)
    story.clock.move_to(story.now - HOUR)
    story.jobs.drain()
    walk(story, in_berlin(25, 3, 45), HOUR / 4)
    assert story.instants("fixed") == [in_berlin(25, 2, 30)]
    hourly = story.instants("hourly")
    # 14 hours by the calendar from 12:00 to 2:30, then three that really passed, and
    # half an hour: the first of them was seen before.
    assert len(hourly) == 15 + 3
    assert max(Counter(hourly).values()) == 1
    story.check()


@every_jump
def test_fixed_hour_runs_within_a_day_after_a_jump(story: Story, jump: Jump) -> None:
    story.add("daily", expression="30 2 * * *", timezone="Europe/Berlin")
    story.add("monday", expression="0 9 * * MON", timezone="Australia/Lord_Howe")
    story.jobs.drain()
    walk(story, START + 3 * HOUR, HOUR)
    [ran] = story.instants("daily")
    story.clock.move_to(jump(story.now))
    story.jobs.drain()
    last = story.last_job()
    # At an instant for which it has run it does not run again.
    seen = 1 if story.now < ran < story.now + DAY else 0
    walk(story, story.now + DAY, HOUR)
    assert story.fired(last)["daily"] == 1 - seen
    walk(story, story.now + 7 * DAY, 6 * HOUR)
    assert story.fired(last) == {"daily": 8 - seen, "monday": 1}
    story.check()


# Sleep --------------------------------------------------------------------------------

DAILY_AT_THREE = {"expression": "0 3 * * *", "timezone": "Europe/Berlin"}
HALF_HOURLY = {"expression": "*/30 * * * *"}
EVERY_SECOND = {"every_ms": 1000}


@pytest.mark.parametrize(
    ("timing", "policy", "count", "ledger"),
    [
        (DAILY_AT_THREE, {}, 1, [("fired", 0, 1)]),
        (DAILY_AT_THREE, {"misfire": "skip"}, 0, [("late", 0, 1)]),
        (
            DAILY_AT_THREE,
            {"misfire": "skip", "misfire_grace_ms": 12 * 3_600_000},
            1,
            [("fired", 0, 1)],
        ),
        (HALF_HOURLY, {}, 1, [("coalesced", 1, 23), ("fired", 0, 1)]),
        (HALF_HOURLY, {"misfire": "all"}, 24, [("fired", 0, 1)] * 24),
        (
            HALF_HOURLY,
            {"misfire": "all", "misfire_limit": 3},
            3,
            [("coalesced", 1, 21), *[("fired", 0, 1)] * 3],
        ),
        (
            EVERY_SECOND,
            {},
            1,
            [("coalesced", 1, 12 * 3600 - 1), ("fired", 0, 1)],
        ),
    ],
)  # fmt: skip
def test_twelve_hours_asleep_are_made_up_for_by_the_policy_once(
    story: Story,
    catch_up: Callable[[], object],
    timing: dict[str, Any],
    policy: dict[str, Any],
    count: int,
    ledger: list[tuple[str, int, int]],
) -> None:
    story.add("overdue", **timing, **policy)
    catch_up()
    story.clock.tick(12 * HOUR)
    catch_up()
    assert story.fired() == ({"overdue": count} if count else {})
    assert story.ledger("overdue") == ledger
    catch_up()
    assert len(story.instants("overdue")) == count
    story.check()


# Anything -----------------------------------------------------------------------------

PERIODS = {"second": 1, "cron second": 1, "minute": 60, "every": 90, "hour": 3600}


def any_life(story: Story, seed: int, steps: int) -> None:
    """The clock goes on and jumps as a seed chooses.

    What follows elapsed time has run at least once in each of its periods in which the
    clock did not jump; steps back of a second are let be, and are waited out.
    """
    chance = random.Random(seed)
    story.add("second", every_ms=1000)
    story.add("cron second", expression="* * * * * *")
    story.add("minute", expression="* * * * *", timezone="Asia/Kathmandu")
    story.add("every", every_ms=90_000)
    story.add("hour", expression="*/10 * * * *", misfire="all", misfire_limit=5)
    story.add("fixed", expression="30 2,3 * * *", timezone="Europe/Berlin")
    story.jobs.drain()
    undisturbed = let_be = dt.timedelta()
    ran = {name: dt.timedelta() for name in PERIODS}
    for number in range(steps):
        last = story.last_job()
        if chance.random() < 0.2:
            name = chance.choice([*JUMPS])
            story.clock.move_to(max(JUMPS[name](story.now), EPOCH))
            let_be = let_be + SECOND if name == "back 1 s" else dt.timedelta()
            undisturbed = dt.timedelta()
            ran = {name: dt.timedelta() for name in PERIODS}
        else:
            step = chance.choice([0.7, 1, 3, 59, 60, 90, 1800, 3600]) * SECOND
            story.clock.tick(step)
            undisturbed += step
        story.jobs.drain()
        fired = story.fired(last)
        for name, period in PERIODS.items():
            if fired[name]:
                ran[name] = undisturbed
            quiet = undisturbed - ran[name]
            assert quiet <= period * SECOND + let_be, f"seed {seed}, {number}: {name}"
            assert fired[name] <= 5, f"seed {seed}, step {number}: {name}"
        story.check()
    decided = steps * len(PERIODS)
    assert story.ledger_rows() <= decided * (5 + 3) + PLANNED * 6, f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_no_instant_comes_twice_in_any_life(story: Story, seed: int) -> None:
    any_life(story, seed, 40)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_instant_comes_twice_in_any_long_life(story: Story, seed: int) -> None:
    any_life(story, seed, 300)
