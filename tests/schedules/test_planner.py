"""What the calendar answers when a schedule is to be planned."""

from __future__ import annotations

import datetime as dt
import json
import logging
import random
import re
from typing import Any

import pytest

from litejobs._process.clock import RealTime
from litejobs._schedules import planner
from litejobs._schedules.cron import Cron, Every, cron, every
from litejobs._schedules.planner import Plan, Request, outdated, plan, plans
from litejobs._schedules.zones import LAST_MS, tzdata_version
from tests.schedules.cronscan import some_expression, some_rare_expression
from tests.schedules.test_cron import ms

BERLIN = "Europe/Berlin"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


NOON = ms("2024-05-01T12:00Z")


def request(expression: object = None, **others: Any) -> Request:
    """Return a request in which nothing was missed and three instants are wanted."""
    values: dict[str, Any] = {
        "schedule_id": 7,
        "revision": 2,
        "expression": expression,
        "timezone": "UTC",
        "every_ms": None,
        "anchor_ms": None,
        "tz_version": None,
        "after_at": NOON,
        "to_at": NOON,
        "keep": 1,
        "wanted": 3,
        "high_at": -1,
        "clock_steps": 0,
        "fate": "missed",
    }
    return Request(**values | others)


def instants(made: Plan) -> list[int]:
    assert made.problem is None
    found = json.loads(made.instants)
    assert found == sorted(set(found))
    return found


def shown(made: Plan) -> list[str]:
    return [
        dt.datetime.fromtimestamp(at / 1000, dt.UTC).strftime("%m-%d %H:%M")
        for at in instants(made)
    ]


def missed(made: Plan) -> tuple[int | None, int | None, int | None]:
    return made.missed_first, made.missed_last, made.missed_count


def problem(made: Plan) -> str:
    """Return the problem, which is one sentence, of a plan that is empty otherwise."""
    assert made.problem
    assert "\n" not in made.problem
    assert ";" in made.problem, "a problem says the way out"
    assert len(made.problem) < 1000
    made.problem.encode()
    empty = Plan(7, 2, made.after_at, made.to_at, "missed", problem=made.problem)
    assert made == empty
    return made.problem


# --- what comes --------------------------------------------------------------------


def test_a_plan_has_the_next_instants_and_says_who_asked() -> None:
    made = plan(request("0 9 * * MON-FRI", timezone=BERLIN, fate="on time"))
    assert made.parameters() == {
        "schedule_id": 7,
        "revision": 2,
        "after_at": NOON,
        "to_at": NOON,
        "fate": "on time",
        "missed_first": None,
        "missed_last": None,
        "missed_count": None,
        "instants": json.dumps(
            [ms(f"2024-05-{day}T07:00Z") for day in ("02", "03", "06")]
        ),
        "exhausted": 0,
        "timezone": BERLIN,
        "tz_version": tzdata_version(BERLIN),
        "sentence": cron("0 9 * * MON-FRI", BERLIN).sentence(),
        "problem": None,
    }


def test_an_interval_is_planned_from_its_anchor_and_has_no_zone() -> None:
    made = plan(request(every_ms=90_000, anchor_ms=NOON + 10, timezone="ignored"))
    assert instants(made) == [NOON + 10, NOON + 90_010, NOON + 180_010]
    assert (made.timezone, made.tz_version) == (None, None)
    assert made.sentence == "Every 90 seconds"


def test_a_future_stretch_is_planned_after_what_is_planned_already() -> None:
    made = plan(request("0 * * * *", after_at=NOON + 5 * HOUR_MS, to_at=NOON))
    assert shown(made) == ["05-01 18:00", "05-01 19:00", "05-01 20:00"]
    assert missed(made) == (None, None, None)


def test_a_row_without_a_zone_means_utc() -> None:
    assert plan(request("0 9 * * *", timezone=None)).timezone == "UTC"


def test_a_local_zone_is_planned_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Asia/Tokyo", BERLIN):
        monkeypatch.setenv("TZ", name)
        made = plan(request("0 9 * * *", timezone="local"))
        assert made == plan(request("0 9 * * *", timezone=name))
        assert made.timezone == name


def test_none_are_wanted_and_none_come() -> None:
    made = plan(request("0 9 * * *", wanted=0, keep=0))
    assert (instants(made), made.exhausted) == ([], 0)


# --- what was missed ---------------------------------------------------------------


def test_a_missed_instant_comes_before_those_to_come() -> None:
    made = plan(request("0 * * * *", after_at=NOON - HOUR_MS))
    assert shown(made) == ["05-01 12:00", "05-01 13:00", "05-01 14:00", "05-01 15:00"]
    assert missed(made) == (None, None, None)


def test_of_many_missed_the_older_are_a_stretch() -> None:
    made = plan(request("0 9 * * *", after_at=NOON - 10 * DAY_MS, keep=2, wanted=1))
    assert shown(made) == ["04-30 09:00", "05-01 09:00", "05-02 09:00"]
    assert missed(made) == (ms("2024-04-22T09:00Z"), ms("2024-04-29T09:00Z"), 8)


def test_where_none_are_kept_all_missed_are_a_stretch() -> None:
    made = plan(request("0 * * * *", after_at=NOON - DAY_MS, keep=0, wanted=0))
    assert instants(made) == []
    assert missed(made) == (NOON - 23 * HOUR_MS, NOON, 24)


def test_one_missed_is_a_stretch_that_begins_where_it_ends() -> None:
    made = plan(request("0 * * * *", after_at=NOON - HOUR_MS, keep=0))
    assert missed(made) == (NOON, NOON, 1)


def test_every_second_of_230_years_is_counted_and_not_listed() -> None:
    to = ms("2200-01-01T00:00Z")
    for timing in ({"expression": "* * * * * *"}, {"every_ms": 1000, "anchor_ms": 0}):
        made = plan(request(timezone=BERLIN, after_at=-1, to_at=to, **timing))
        assert missed(made) == (0, to - 1000, to // 1000)
        assert instants(made) == [to, to + 1000, to + 2000, to + 3000]


def test_ten_years_of_a_daily_time_are_as_many_days() -> None:
    after = ms("2015-01-01T00:00Z")
    made = plan(
        request("30 2 * * *", timezone=BERLIN, after_at=after, to_at=NOON, keep=1)
    )
    days = (NOON - after) // DAY_MS + 1
    assert missed(made) == (
        ms("2015-01-01T01:30Z"),
        ms("2024-04-30T00:30Z"),
        days - 1,
    )


def plain(timing: Cron | Every, asked: Request) -> Plan:
    """Make a plan by listing everything, as long as there are fewer than 5000."""
    shifted = asked.clock_steps if timing.follows_elapsed_time else 0
    first = min(asked.after_at, asked.to_at) - shifted - 1
    last = max(asked.after_at, asked.to_at) + shifted
    listed = timing.instants(first, timing.count(first, last) + asked.wanted + 50)
    assert len(listed) < 5000
    values = sorted({at + shifted * (at <= asked.high_at) for at in listed})
    old = [at for at in values if asked.after_at < at <= asked.to_at]
    new = [at for at in values if at > max(asked.after_at, asked.to_at)]
    older, kept = old[: -asked.keep or None], old[len(old) :]
    if asked.keep:
        kept = old[-asked.keep :]
    if len(old) <= asked.keep:
        older = []
    return Plan(
        *(7, 2, asked.after_at, asked.to_at, "missed"),
        missed_first=older[0] if older else None,
        missed_last=older[-1] if older else None,
        missed_count=len(older) or None,
        instants=json.dumps(kept + new[: asked.wanted]),
        exhausted=0,
    )


def compare(seed: int, times: int) -> int:
    """Compare random plans with those made by listing; how many missed some."""
    chance = random.Random(seed)
    found = 0
    for _ in range(times):
        timing: Cron | Every
        after = ms("2024-03-01T00:00Z") + chance.randrange(250 * DAY_MS)
        if chance.random() < 0.2:
            timing = every(chance.choice([1, 1.5, 7, 60, 5000]))
            values = timing.row()
            length = timing.every_ms * chance.randint(1, 400)
        else:
            expression = some_expression(chance, seconds=chance.random() < 0.3)
            if chance.random() < 0.3:
                expression = some_rare_expression(chance)
            zones = [BERLIN, "America/Havana", "Australia/Lord_Howe", "UTC"]
            timing = cron(expression, chance.choice(zones))
            values = timing.row()
            ahead = timing.instants(after, chance.randint(1, 150))
            if not ahead:
                continue
            length = ahead[-1] - after
        steps = chance.choice([0, 1, 2, 999, 1000, 3000, 60_000])
        asked = request(
            **{name: values[name] for name in values if name != "kind"},
            after_at=after,
            to_at=after + length + chance.choice([-1, 0, 1, 5000]),
            keep=chance.choice([0, 1, 2, 40]),
            wanted=chance.choice([0, 1, 16]),
            clock_steps=steps,
            high_at=after + chance.randint(-length, 2 * length) if steps else -1,
        )
        made = plan(asked)
        instants(made)
        words = made._replace(timezone=None, tz_version=None, sentence=None)
        assert words == plain(timing, asked), asked
        found += made.missed_count is not None
    return found


def test_random_plans_are_what_listing_everything_gives() -> None:
    assert compare(1, 40) > 14


@pytest.mark.torture
def test_many_random_plans_are_what_listing_everything_gives() -> None:
    assert compare(2, 10_000) > 3000


# --- the clock that went back ------------------------------------------------------


def test_time_seen_before_is_planned_some_milliseconds_later() -> None:
    again = request("* * * * *", high_at=NOON + 60_000, clock_steps=2, wanted=4)
    assert instants(plan(again)) == [
        # At NOON itself it is strictly after NOON now.
        NOON + 2,
        NOON + 60_002,
        NOON + 120_000,
        NOON + 180_000,
    ]
    after = again._replace(after_at=NOON + 2, to_at=NOON + 2)
    assert instants(plan(after))[0] == NOON + 60_002


def test_an_interval_goes_on_in_time_seen_before() -> None:
    again = request(
        every_ms=60_000, anchor_ms=0, high_at=NOON + 90_000, clock_steps=1, keep=0
    )
    made = plan(again._replace(after_at=NOON - 1, to_at=NOON + 200_000, wanted=1))
    assert missed(made) == (NOON + 1, NOON + 180_000, 4)
    assert instants(made) == [NOON + 240_000]


def test_what_was_seen_before_does_not_come_again_behind_its_end() -> None:
    """An instant at the very end of it would, moved, lie after it."""
    again = request("* * * * *", after_at=NOON, to_at=NOON, high_at=NOON, clock_steps=5)
    assert json.loads(plan(again).instants)[0] == NOON + 60_000


def test_fixed_times_are_given_as_they_are_although_the_clock_went_back() -> None:
    again = request("0 15 * * *", high_at=NOON + DAY_MS, clock_steps=3)
    assert plan(again) == plan(again._replace(clock_steps=0))


def test_an_instant_that_falls_on_another_is_one() -> None:
    again = request("* * * * * *", high_at=NOON + 5000, clock_steps=2000, wanted=5)
    assert instants(plan(again)) == [NOON + 1000 * n for n in range(1, 6)]
    long = again._replace(after_at=NOON - 10_000, to_at=NOON + 20_000, keep=0)
    assert plan(long).missed_count == 30


# --- where there is nothing to plan ------------------------------------------------


@pytest.mark.parametrize(
    "expression", ["0 0 30 2 *", "* * 31 4,6 *", "0 0 */25 * MON#3", "*/5 * */25 6 1#3"]
)
@pytest.mark.parametrize("after", [-1, NOON, LAST_MS])
def test_a_date_that_no_year_has_is_a_problem(expression: str, after: int) -> None:
    made = plan(request(expression, after_at=after, to_at=after + DAY_MS))
    assert f"{expression!r} has no date in any year" in problem(made)


def test_near_the_end_of_time_there_are_no_more() -> None:
    for timing in ({"expression": "0 0 1 * *"}, {"every_ms": 30 * DAY_MS}):
        made = plan(request(**timing, after_at=LAST_MS - 62 * DAY_MS, to_at=LAST_MS))
        assert made.missed_count == 1
        assert (len(instants(made)), made.exhausted) == (1, 1)
        over = plan(request(**timing, after_at=LAST_MS, to_at=LAST_MS))
        assert (instants(over), over.exhausted) == ([], 1)
        assert over.sentence


def test_a_leap_day_on_a_sunday_is_waited_for() -> None:
    made = plan(request("0 0 29 2 */7", after_at=ms("2068-01-01T00:00Z"), wanted=2))
    assert [at // 1000 for at in instants(made)] == [
        ms("2088-02-29T00:00Z") // 1000,
        ms("2128-02-29T00:00Z") // 1000,
    ]


# --- hostile rows ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"expression": "0 9 * * MOON"}, "bad day-of-week field 'MOON'"),
        ({"expression": "0 9 * * *\0"}, "bad day-of-week"),
        ({"expression": "\ud800 * * * *"}, "is not ASCII"),
        ({"expression": "9" * 10_000_000}, "has 10000000 characters"),
        ({"expression": " " * 10_000_000}, "has 10000000 characters"),
        ({"expression": ""}, "has 0 fields"),
        ({"expression": b"* * * * *"}, "pass a string"),
        ({"expression": 5}, "pass a string"),
        ({"expression": 5.5}, "pass a string"),
        ({"expression": "* * * * *", "timezone": "../../etc/passwd"}, "unknown"),
        ({"expression": "* * * * *", "timezone": "Europe/Berlyn"}, "did you mean"),
        ({"expression": "* * * * *", "timezone": "UTC\0"}, "unknown time zone"),
        ({"expression": "* * * * *", "timezone": "\udc80"}, "unknown time zone"),
        ({"expression": "* * * * *", "timezone": "x" * 10_000_000}, "unknown"),
        ({"expression": "* * * * *", "timezone": b"UTC"}, "is not a name"),
        ({"expression": "* * * * *", "timezone": 3}, "is not a name"),
        ({"expression": "* * * * *", "clock_steps": -1}, "clock_steps=-1"),
        ({"expression": "* * * * *", "clock_steps": 2**62}, "is out of range"),
        ({"every_ms": None}, "every_ms=None is not a number"),
        ({"every_ms": 999}, "out of range"),
        ({"every_ms": 2**62}, "out of range"),
        ({"every_ms": "60000"}, "is not a number of milliseconds"),
        ({"every_ms": 60_000.0}, "is not a number of milliseconds"),
        ({"every_ms": 60_000, "anchor_ms": LAST_MS + 1}, "not an instant"),
        ({"every_ms": 60_000, "anchor_ms": -1}, "not an instant"),
        ({"every_ms": 60_000, "anchor_ms": "now"}, "not an instant"),
    ],
)
def test_a_hostile_row_has_a_problem(values: dict[str, Any], words: str) -> None:
    # The same row with whole numbers is planned first: that must not be remembered.
    plan(request(every_ms=60_000))
    assert words in problem(plan(request(**{"every_ms": None} | values)))


def test_a_hostile_moment_has_a_plan() -> None:
    far = request("0 0 1 1 *", timezone=BERLIN, after_at=-1, to_at=LAST_MS, wanted=9)
    made = plan(far)
    assert (made.missed_count, made.exhausted) == (8028, 1)
    beyond = plan(far._replace(after_at=-(2**63), to_at=2**63 - 1))
    assert beyond._replace(after_at=-1, to_at=LAST_MS) == made
    assert instants(plan(request(every_ms=60_000, anchor_ms=LAST_MS)))


def test_what_nobody_has_thought_of_is_a_problem_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "litejobs"):
        made = plan(request("* * * * *", after_at="soon\nor later"))
    assert problem(made).startswith("cannot be planned: TypeError(")
    (record,) = caplog.records
    assert record.getMessage() == "schedule 7 cannot be planned"
    assert record.exc_info


def test_a_bad_row_is_read_anew_and_a_good_one_is_kept() -> None:
    for _ in range(2):
        assert plan(request("* * *")).problem
    good = request("1 2 3 4 *")
    assert plan(good)._replace(instants="") == plan(good)._replace(instants="")
    before = planner._read.cache_info()
    plan(good)
    after = planner._read.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


# --- many at once ------------------------------------------------------------------


def test_no_time_suffices_for_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request("0 * * * *", schedule_id=n) for n in range(5)]
    assert [made.schedule_id for made in plans(requests, 0)] == [0]
    assert plans([], 0) == []
    seconds = iter(range(100))
    monkeypatch.setattr(RealTime, "monotonic", lambda: next(seconds))
    assert [made.schedule_id for made in plans(iter(requests), 3)] == [0, 1, 2]
    assert len(plans(requests, 1000)) == 5


# --- the version of the tz database ------------------------------------------------


def test_a_plan_of_another_tz_database_is_outdated() -> None:
    today = tzdata_version(BERLIN)
    assert re.fullmatch(r"20\d\d[a-z]+|sha256:[0-9a-f]{64}", today)
    current = [(BERLIN, today), ("UTC", tzdata_version("UTC"))]
    old = [(BERLIN, "1999a"), ("Middle/Earth", today), ("", ""), (BERLIN, "")]
    assert outdated([*current, *old]) == old
    odd: list[Any] = [(None, None), (b"UTC", today), (5, 5)]
    assert outdated(odd) == odd
