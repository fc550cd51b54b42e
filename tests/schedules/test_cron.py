"""Cron expressions and intervals, as instants."""

from __future__ import annotations

import calendar
import datetime as dt
import random
import re
import sys
import zoneinfo
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import freezegun
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litejobs._schedules import zones as _zones
from litejobs._schedules.cron import Cron, Every, cron, every, from_row
from litejobs._schedules.zones import LAST_MS, tzdata_version
from litejobs.errors import ConfigurationError
from tests.schedules.cronscan import (
    DAY,
    Line,
    scan,
    some_expression,
    some_rare_expression,
    some_walks,
    values,
    walk,
)
from tests.schedules.cronwords import Sentence

BERLIN = "Europe/Berlin"


def ms(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def shown(schedule: Cron, after: str, n: int) -> list[str]:
    """Next instants, as the local clock shows them: "2024-03-31T03:00+02:00"."""
    zone = zoneinfo.ZoneInfo(schedule.timezone)
    return [
        dt.datetime.fromtimestamp(at / 1000, zone).isoformat(timespec="minutes")
        for at in schedule.instants(ms(after), n)
    ]


def utc(text: str, n: int, *, after: str = "2024-01-01T00:00Z") -> list[str]:
    return [at.removesuffix("+00:00") for at in shown(cron(text), after, n)]


def refused(*args: Any, make: Any = cron) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make(*args)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message, "a message says the way out"
    return message


# --- reading -----------------------------------------------------------------------


def test_weekdays_at_nine_are_five_days_a_week() -> None:
    assert utc("0 9 * * MON-FRI", 6, after="2024-01-04T00:00Z") == [
        "2024-01-04T09:00",
        "2024-01-05T09:00",
        "2024-01-08T09:00",
        "2024-01-09T09:00",
        "2024-01-10T09:00",
        "2024-01-11T09:00",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 L * *", ["2024-01-31T00:00", "2024-02-29T00:00"]),
        ("0 0 LW 3,6 *", ["2024-03-29T00:00", "2024-06-28T00:00"]),
        ("0 0 * * MON#2", ["2024-01-08T00:00", "2024-02-12T00:00"]),
        ("0 0 * * 5L", ["2024-01-26T00:00", "2024-02-23T00:00"]),
        ("0 0 * * 7", ["2024-01-07T00:00", "2024-01-14T00:00"]),
        ("5/25 6 * * *", ["2024-01-01T06:05", "2024-01-01T06:30"]),
        ("5-5/25 6 * * *", ["2024-01-01T06:05", "2024-01-02T06:05"]),
        ("0 0 * * tue-tue/2,WED", ["2024-01-02T00:00", "2024-01-03T00:00"]),
        ("0 0 * * tue-2/2,WED", ["2024-01-02T00:00", "2024-01-03T00:00"]),
        ("5-05/25 6 * * *", ["2024-01-01T06:05", "2024-01-02T06:05"]),
        ("0 0 13 * FRI", ["2024-01-05T00:00", "2024-01-12T00:00"]),
        ("0 0 13 * */5", ["2024-09-13T00:00", "2024-10-13T00:00"]),
        ("  0\t0  1 jan,JUL *\n", ["2024-07-01T00:00", "2025-01-01T00:00"]),
    ],
)
def test_fields_know_more_than_numbers(text: str, expected: list[str]) -> None:
    assert utc(text, 2) == expected


@pytest.mark.parametrize(
    ("days", "same"),
    [
        ("SAT-SUN", "SAT,SUN"),
        ("6-0", "SAT,SUN"),
        ("FRI-SUN", "FRI,SAT,SUN"),
        ("FRI-MON", "FRI,SAT,SUN,MON"),
        ("5-1/2", "FRI,SUN"),
        ("SAT-TUE/3", "SAT,TUE"),
        ("WED,SAT-SUN", "WED,SAT,SUN"),
        ("SAT-FRI", "*"),
        ("SUN-SAT", "*"),
        ("0-7", "*"),
        ("7-0", "SUN"),
        ("7-2", "SUN,MON,TUE"),
        ("7-7", "SUN"),
    ],
)
def test_a_range_of_weekdays_may_go_on_over_the_end_of_the_week(
    days: str, same: str
) -> None:
    schedule = cron(f"0 9 * * {days}", BERLIN)
    expected = cron(f"0 9 * * {same}", BERLIN)
    after = ms("2024-01-01T00:00Z")
    assert schedule.instants(after, 30) == expected.instants(after, 30)
    assert schedule.count(after, after + 10**11) == expected.count(
        after, after + 10**11
    )
    assert schedule.sentence() == expected.sentence()
    assert schedule.expression == f"0 9 * * {days}"


def test_six_fields_begin_with_seconds() -> None:
    start = ms("2024-01-01T00:00Z")
    assert cron("*/20 0 12 * * *").instants(start, 4) == [
        start + 12 * 3_600_000,
        start + 12 * 3_600_000 + 20_000,
        start + 12 * 3_600_000 + 40_000,
        start + 36 * 3_600_000,
    ]


@pytest.mark.parametrize(
    ("alias", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@Yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_an_alias_is_short_for_five_fields(alias: str, same: str) -> None:
    after = ms("2024-03-30T00:00Z")
    expected = cron(same, BERLIN).instants(after, 5)
    assert cron(alias, BERLIN).instants(after, 5) == expected
    assert cron(alias).expression == alias


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("61 * * * *", "bad minute field '61'"),
        ("0 24 * * *", "bad hour field '24'"),
        ("0 9 32 * *", "bad day-of-month field '32'"),
        ("0 9 * 13 *", "bad month field '13'"),
        ("0 9 30 2 MOON", "bad day-of-week field 'MOON'"),
        ("60 0 9 * * *", "bad second field '60'"),
        ("0 9 * * MON#6", "comes up to five times a month: MON#1 to MON#5"),
        ("0 9 * * FRI-8", "0 to 7 (0 and 7 are Sunday) or SUN to SAT"),
        ("0 9 * * L5", "write 5L"),
        ("0 9 * * MON,FRIL", "write 5L"),
        ("0 9 L-3 * *", "L is the last day of a month and LW its last weekday"),
        ("0 9 15W * *", "L is the last day of a month and LW its last weekday"),
        ("0 22-2 * * *", "write 22-23,0-2"),
        ("0 23-0 * * *", "write 23,0"),
        ("0 22-2/2 * * *", "write 22,0,2"),
        ("0 0 25-5 * *", "write 25-31,1-5"),
        ("0 0 31-2 * *", "write 31,1-2"),
        ("0 0 * nov-feb *", "write NOV-DEC,JAN-FEB"),
        ("0 0 * 11-2 *", "write 11-12,1-2"),
        ("? 9 * * *", "has a ?, which is not known here; write 5 fields"),
        (
            "0 9 15W * ?",
            "has a ?, which is not known here; L is the last day of a month",
        ),
        ("0 0 9 ? * 2 2026", "a year, which is start_at= and end_at= here"),
        ("rate(5 minutes)", "has 2 fields; write 5 fields"),
        ("5M", "has 1 field; write 5 fields"),
        (
            "9-5 9 * * *",
            "bad minute field '9-5'; a range counts upwards: write 9-59,0-5",
        ),
        ("9-61 9 * * *", "minutes are 0 to 59, and the fields are minute hour"),
        ("0 24 * * *", "hours are 0 to 23, and"),
        ("0 9 0 * *", "days are 1 to 31, and"),
        ("0 9 * january *", "months are 1 to 12 or JAN to DEC, and"),
        ("0 9 * * monday", "SUN to SAT"),
        ("H H(0-7) * * *", "write a number; jitter= spreads jobs"),
        ("0~29 9 * * *", "write a number; jitter= spreads jobs"),
        ("0 9 * * * 2028", "ends with a year, which is start_at= and end_at= here"),
        ("0 0 9 * * * 2028-2030", "ends with a year, which is start_at="),
        ("0 0 9 L-3 * ?", "name those that it may be and let the task look"),
        ("0 9 15W * ? *", "name those that it may be and let the task look"),
        # Quartz runs these on each Monday, and on all five days.
        ("0 0 9 ? * MON/2", "a step after a name, which Quartz passes over; list"),
        ("0 0 9 ? * MON-FRI/2", "a step after a name, which Quartz passes over; list"),
        ("0 9 * * 1#2-2/3", "bad day-of-week"),
        ("0 9 * * \x1b[31m", "'\\x1b[31M'"),
        ("*/0 * * * *", "bad minute field '*/0'; a step is 1 or more"),
        ("* * *", "has 3 fields; write 5 fields"),
        ("", "has 0 fields"),
        ("0 0 0 * * * 2024", "ends with a year"),
        ("0 0 0 * * * *", "has 7 fields"),
        ("0 9 * * \u017fun", "is not ASCII"),
        ("@reboot", "run that task when the application starts"),
        ("@every 5m", "write every('5m')"),
        ("@every 90m", "write every('90m')"),
        ("@Every 1h 30m", "write every('1h 30m')"),
        ("@every", "write every(…) with a duration, as 1h30m is one"),
        ("@every moon", "write every(…) with a duration, as 1h30m is one"),
        ("@every 5M", "write every(…) with a duration, as 1h30m is one"),
        ("every 90 minutes", "write every('90 minutes')"),
        ("90m", "has 1 field; write every('90m')"),
        ("@noon", "known are @yearly"),
        ("0," * 100 + "0 * * * *", "has 209 characters"),
        (None, "pass a string"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused(
    expression: Any, words: str
) -> None:
    assert words in refused(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/90 * * * *", "field '*/90': a step of 90 minutes goes beyond the 60 of"),
        ("*/90 * * * *", "only once in an hour; write every('90m') for 90 minutes"),
        ("0 */90 * * * *", "write every('90m')"),
        # An interval would come at other times, too.
        ("5/90 * * * *", "only once in an hour; give a step up to 60"),
        ("0-30/061 * * * *", "only once in an hour; give a step up to 60"),
        ("0,*/90 * * * *", "only once in an hour; give a step up to 60"),
        ("*/90 9-17 * * *", "only once in an hour; give a step up to 60"),
        ("*/90 * * * MON", "only once in an hour; give a step up to 60"),
        ("* */36 * * *", "only once in a day; give a step up to 24"),
        ("0 9 */40 * *", "only once in a month; give a step up to 31"),
        ("0 */36 * * *", "only once in a day; write every('36h') for 36 hours"),
        ("0 0 */40 * *", "only once in a month; write every('40d') for 40 days"),
        ("0 0 L/32 * *", "give a step up to 31"),
        (
            "0 0 1 */13 *",
            "only once in a year; name the months, or write every('396d')",
        ),
        ("0 0 * * */8", "only once in a week; write every('8d') for 8 days"),
        ("*/90 * * * * *", "only once in a minute; write every('90s') for 90 seconds"),
        ("*/99999999999 * * * *", "give a step up to 60"),
        ("*/" + "9" * 180 + " * * * *", "give a step up to 60"),
    ],
)
def test_a_step_beyond_its_field_is_refused_for_an_interval(
    expression: str, words: str
) -> None:
    assert words in refused(expression)


def test_a_step_of_a_whole_field_means_what_it_says() -> None:
    """As many minutes as an hour has are an hour, also in elapsed time."""
    for expression, same in (
        ("*/60 * * * *", "0 * * * *"),
        ("0 */24 * * *", "0 0 * * *"),
        ("0 0 1 */12 *", "0 0 1 1 *"),
        ("0 0 * * */7", "0 0 * * SUN"),
    ):
        assert cron(expression).instants(0, 20) == cron(same).instants(0, 20)


AT = "2026-03-01T00:00Z"  # a Sunday

# An expression of others, and each that means the same here, with its first instants.
OF_OTHERS = {
    "0 12 * * ? *": {"0 12 * * *": "03-01 12:00, 03-02 12:00, 03-03 12:00"},
    "0 18 ? * 2-6 *": {"0 18 * * MON-FRI": "03-02 18:00, 03-03 18:00, 03-04 18:00"},
    "55 23 1 * ? *": {"55 23 1 * *": "03-01 23:55, 04-01 23:55, 05-01 23:55"},
    "0/2 * ? * MON-FRI *": {
        "0/2 * * * MON-FRI": "03-02 00:00, 03-02 00:02, 03-02 00:04"
    },
    "0 10 ? * 6L *": {"0 10 * * 5L": "03-27 10:00, 04-24 10:00, 05-29 10:00"},
    "cron(0 9 ? * 1 *)": {"0 9 * * SUN": "03-01 09:00, 03-08 09:00, 03-15 09:00"},
    "cron(15 10 * * MON)": {"15 10 * * MON": "03-02 10:15, 03-09 10:15, 03-16 10:15"},
    "0 0 9 ? * 2-6": {
        "0 0 9 * * MON-FRI": "03-02 09:00, 03-03 09:00, 03-04 09:00",
        "0 0 9 * * TUE-SAT": "03-03 09:00, 03-04 09:00, 03-05 09:00",
    },
    "0 15 10 ? * 6L": {
        "0 15 10 * * 5L": "03-27 10:15, 04-24 10:15, 05-29 10:15",
        "0 15 10 * * 6L": "03-28 10:15, 04-25 10:15, 05-30 10:15",
    },
    "0 15 10 ? * 6#3 *": {
        "0 15 10 * * FRI#3": "03-20 10:15, 04-17 10:15, 05-15 10:15",
        "0 15 10 * * SAT#3": "03-21 10:15, 04-18 10:15, 05-16 10:15",
    },
    "0 0 12 ? * 4/2": {
        "0 0 12 * * WED-SAT/2": "03-04 12:00, 03-06 12:00, 03-11 12:00",
        "0 0 12 * * THU-SAT/2": "03-05 12:00, 03-07 12:00, 03-12 12:00",
    },
    "0 0 12 ? * L": {"0 0 12 * * SAT": "03-07 12:00, 03-14 12:00, 03-21 12:00"},
    "0 0 12 ? * MON-FRI": {
        "0 0 12 * * MON-FRI": "03-02 12:00, 03-03 12:00, 03-04 12:00"
    },
    "0 0 12 L * ?": {"0 0 12 L * *": "03-31 12:00, 04-30 12:00, 05-31 12:00"},
    "0 9 ? * *": {"0 9 * * *": "03-01 09:00, 03-02 09:00, 03-03 09:00"},
    "0 9 * * ?": {"0 9 * * *": "03-01 09:00, 03-02 09:00, 03-03 09:00"},
}


@pytest.mark.parametrize("expression", OF_OTHERS)
def test_an_expression_of_others_is_told_with_its_own_meaning(expression: str) -> None:
    """In AWS and Quartz 1 is Sunday; where the digit may be another day, both stand."""
    message = refused(expression)
    found = re.findall(r"'([^']*)'", message)
    assert found.pop(0) == expression
    assert found == list(OF_OTHERS[expression])
    for each, meant in OF_OTHERS[expression].items():
        instants = cron(each).instants(ms(AT) - 1000, 3)
        shown = [dt.datetime.fromtimestamp(at / 1000, dt.UTC) for at in instants]
        assert ", ".join(f"{at:%m-%d %H:%M}" for at in shown) == meant
    if len(found) == 2:
        assert "where 1 is Sunday, as in Quartz" in message


def test_no_advice_is_an_expression_with_other_times() -> None:
    """What a ? leaves open is said by names of days, in whatever place it stands."""
    chance = random.Random(20261129)
    told = 0
    for _ in range(400):
        fields = some_expression(chance, seconds=chance.random() < 0.5).split()
        fields[chance.randrange(len(fields))] = "?"
        message = refused(" ".join(fields))
        for each in re.findall(r"'([^']*)'", message)[1:]:
            told += 1
            assert "?" not in each
            *others, days = each.split()
            assert re.fullmatch(r"[\dL]*L|[^\d]*([#/]\d)?(,.*)?", days), message
            assert len(cron(each).instants(0, 2)) == 2
            before = [part.upper() for part in fields if part != "?"]
            assert all(part.upper() in (*before, "*") for part in others), message
    assert told > 30


def test_every_range_over_an_end_is_told_how_to_write_it() -> None:
    chance = random.Random(5)
    for place, (low, high) in enumerate([(0, 59), (0, 59), (0, 23), (1, 31), (1, 12)]):
        for _ in range(20):
            last, first = sorted(chance.sample(range(low, high + 1), 2))
            step = chance.randint(1, 7)
            fields = ["0", "0", "0", "*", "*", "*"]
            fields[place] = f"{first}-{last}" + (f"/{step}" if step > 1 else "")
            message = refused(" ".join(fields))
            fields[place] = message.rpartition("write ")[2]
            assert cron(" ".join(fields))
            both = [*range(first, high + 1), *range(low, last + 1)]
            assert values(fields[place], low, high, {}) == {*both[::step]}


def test_hostile_expressions_are_read_or_refused_in_one_sentence() -> None:
    chance = random.Random(7)
    letters = "0123456789*/-,#LWMSUN? %"
    read = 0
    for _ in range(3000):
        text = list(some_expression(chance, seconds=chance.random() < 0.3))
        for _ in range(chance.choice([1, 2, 2, 20])):
            text[chance.randrange(len(text))] = chance.choice(letters)
        try:
            schedule = cron("".join(text))
        except ConfigurationError as error:
            assert "\n" not in str(error)
        else:
            read += 1
            assert schedule.sentence().endswith("(UTC)")
            assert len(schedule.instants(0, 2)) <= 2
    assert 100 < read < 2900


@pytest.mark.parametrize(
    "expression", ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 */30 2 SUN#5", "* * 31 2 *"]
)
def test_a_date_that_no_year_has_never_comes(expression: str) -> None:
    assert cron(expression, BERLIN).instants(0, 5) == []


def test_leap_days_wait_eight_years_across_2100() -> None:
    after = "2095-01-01T00:00Z"
    expected = ["2096-02-29T00:00", "2104-02-29T00:00"]
    assert utc("0 0 29 2 *", 2, after=after) == expected
    assert utc("0 */24 29 2 *", 2, after=after) == expected


# --- where lists begin and end -----------------------------------------------------


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/15 * * * *"])
def test_instants_lie_strictly_after_the_millisecond_asked(expression: str) -> None:
    schedule = cron(expression)
    (first,) = schedule.instants(ms("2024-01-01T02:29:30Z"), 1)
    assert first == ms("2024-01-01T02:30Z")
    assert schedule.instants(first - 1, 1) == [first]
    assert schedule.instants(first, 1) > [first]
    assert schedule.instants(first, 0) == []


def test_nothing_lies_before_1970_or_after_9999() -> None:
    for timezone in ("UTC", "Pacific/Auckland", "America/New_York"):
        for expression in ("0 0 * * *", "*/15 * * * *"):
            schedule = cron(expression, timezone)
            first = schedule.instants(-(10**15), 2)
            assert 0 <= first[0] < first[1] <= 2 * DAY * 1000
            near_the_end = schedule.instants(LAST_MS - 3 * DAY * 1000, 10_000)
            assert near_the_end[0] < near_the_end[-1] <= LAST_MS
            assert schedule.instants(LAST_MS, 5) == []
            assert schedule.instants(10**18, 5) == []


def test_1970_itself_is_an_instant() -> None:
    assert cron("0 0 * * *").instants(-1, 1) == [0]
    assert cron("* * * * *").instants(-1, 1) == [0]
    assert every("1h").instants(-1, 1) == [0]


@pytest.mark.parametrize("year", [1970, 1999, 2038, 2100, 2199])
def test_every_year_has_its_newyear(year: int) -> None:
    schedule = cron("0 0 1 1 *", "Asia/Tokyo")
    before = calendar.timegm((year, 1, 2, 0, 0, 0)) * 1000
    assert schedule.instants(before, 1) == [ms(f"{year + 1}-01-01T00:00+09:00")]


# --- changes of the clock ----------------------------------------------------------

# In the order of the clock: zone, expression, what is asked after, what comes.
STORIES: list[tuple[str, str, str, list[str]]] = [
    (
        BERLIN,
        "30 2 * * *",
        "2024-03-29T12:00Z",
        ["2024-03-30T02:30+01:00", "2024-03-31T03:00+02:00", "2024-04-01T02:30+02:00"],
    ),
    (
        BERLIN,
        "0,30 2,3 * * *",
        "2024-03-30T12:00Z",
        ["2024-03-31T03:00+02:00", "2024-03-31T03:30+02:00", "2024-04-01T02:00+02:00"],
    ),
    (
        BERLIN,
        "30 2 * * *",
        "2024-10-26T12:00Z",
        ["2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"],
    ),
    (
        BERLIN,
        "*/30 * * * *",
        "2024-03-31T00:00Z",
        ["2024-03-31T01:30+01:00", "2024-03-31T03:00+02:00", "2024-03-31T03:30+02:00"],
    ),
    (
        "America/New_York",
        "30 1 * * *",
        "2024-11-02T12:00Z",
        ["2024-11-03T01:30-04:00", "2024-11-04T01:30-05:00"],
    ),
    (
        "America/New_York",
        "*/30 1 * * *",
        "2024-11-02T12:00Z",
        [
            "2024-11-03T01:00-04:00",
            "2024-11-03T01:30-04:00",
            "2024-11-03T01:00-05:00",
            "2024-11-03T01:30-05:00",
            "2024-11-04T01:00-05:00",
        ],
    ),
    (
        "America/New_York",
        "*/30 2 * * *",
        "2024-03-09T12:00Z",
        ["2024-03-11T02:00-04:00", "2024-03-11T02:30-04:00"],
    ),
    (
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2024-10-05T00:00Z",
        ["2024-10-06T02:30+11:00", "2024-10-07T02:15+11:00"],
    ),
    (
        "Australia/Lord_Howe",
        "*/15 * * * *",
        "2024-04-06T14:30Z",
        [
            "2024-04-07T01:45+11:00",
            "2024-04-07T01:30+10:30",
            "2024-04-07T01:45+10:30",
            "2024-04-07T02:00+10:30",
        ],
    ),
    (
        "America/Sao_Paulo",
        "0 0 * * *",
        "2018-11-03T00:00Z",
        ["2018-11-03T00:00-03:00", "2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"],
    ),
    (
        "America/Sao_Paulo",
        "30 23 * * *",
        "2018-02-17T12:00Z",
        ["2018-02-17T23:30-02:00", "2018-02-18T23:30-03:00"],
    ),
    (
        "Asia/Kathmandu",
        "10 0 * * *",
        "1985-12-30T20:00Z",
        ["1986-01-01T00:15+05:45", "1986-01-02T00:10+05:45"],
    ),
    (
        "Pacific/Apia",
        "0 9 * * *",
        "2011-12-29T00:00Z",
        ["2011-12-29T09:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T09:00+14:00"],
    ),
    (
        "Pacific/Apia",
        "0 6 30 * *",
        "2011-11-29T00:00Z",
        ["2011-11-30T06:00-10:00", "2011-12-31T00:00+14:00", "2012-01-30T06:00+14:00"],
    ),
    (
        "Pacific/Apia",
        "0 */12 * * *",
        "2011-12-29T12:00Z",
        ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"],
    ),
    (
        "Pacific/Kwajalein",
        "0 12 * * *",
        "1993-08-20T12:00Z",
        ["1993-08-20T12:00-12:00", "1993-08-22T00:00+12:00", "1993-08-22T12:00+12:00"],
    ),
    (
        "Africa/Cairo",
        "0 0 * * *",
        "2024-04-25T00:00Z",
        ["2024-04-26T01:00+03:00", "2024-04-27T00:00+03:00"],
    ),
    (
        "Africa/Cairo",
        "30 23 * * *",
        "2024-10-31T12:00Z",
        ["2024-10-31T23:30+03:00", "2024-11-01T23:30+02:00"],
    ),
    (
        "Europe/Dublin",
        "30 1 * * *",
        "2024-03-30T12:00Z",
        ["2024-03-31T02:00+01:00", "2024-04-01T01:30+01:00"],
    ),
    (
        "Europe/Dublin",
        "30 1 * * *",
        "2024-10-26T12:00Z",
        ["2024-10-27T01:30+01:00", "2024-10-28T01:30+00:00"],
    ),
    (
        "America/Havana",
        "0 0 * * SUN",
        "2024-03-04T12:00Z",
        ["2024-03-10T01:00-04:00", "2024-03-17T00:00-04:00"],
    ),
    (
        "America/Havana",
        "*/15 0 * * *",
        "2024-03-09T12:00Z",
        ["2024-03-11T00:00-04:00"],
    ),
    (
        "America/Havana",
        "30 0 3 * *",
        "2024-11-01T12:00Z",
        ["2024-11-03T00:30-04:00", "2024-12-03T00:30-05:00"],
    ),
    (
        "Asia/Beirut",
        "@daily",
        "2024-03-30T12:00Z",
        ["2024-03-31T01:00+03:00", "2024-04-01T00:00+03:00"],
    ),
    (
        "Antarctica/Troll",
        "30 1,2 * * *",
        "2024-03-30T12:00Z",
        ["2024-03-31T03:00+02:00", "2024-04-01T01:30+02:00", "2024-04-01T02:30+02:00"],
    ),
    (
        "America/Caracas",
        "45 2 * * *",
        "2016-04-30T12:00Z",
        ["2016-05-01T03:00-04:00", "2016-05-02T02:45-04:00"],
    ),
]


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), STORIES)
def test_the_clock_of_a_zone_changes(
    zone: str, expression: str, after: str, expected: list[str]
) -> None:
    assert shown(cron(expression, zone), after, len(expected)) == expected


@pytest.mark.parametrize("fields", ["30 2 * * *", "0 30 2 * * *"])
def test_a_seconds_field_does_not_make_a_fixed_time_run_twice(fields: str) -> None:
    expected = [
        "2024-10-26T02:30+02:00",
        "2024-10-27T02:30+02:00",
        "2024-10-28T02:30+01:00",
    ]
    assert shown(cron(fields, BERLIN), "2024-10-25T12:00Z", 3) == expected


def test_a_start_in_the_second_pass_does_not_go_back_to_the_first() -> None:
    in_second_pass = "2024-10-27T02:10+01:00"
    expected = ["2024-10-28T02:30+01:00"]
    assert shown(cron("30 2 * * *", BERLIN), in_second_pass, 1) == expected


def test_a_gap_ends_to_the_second() -> None:
    zone = zoneinfo.ZoneInfo(BERLIN)
    change = ms("2024-03-31T01:00Z") // 1000
    assert _zones.change_between(zone, change - 1, change + 1) == change
    assert _zones.change_between(zone, change - DAY, change + DAY) == change
    assert _zones.change_between(zone, change - 1, change) is None
    assert _zones.change_between(zone, change, change + DAY) is None
    for fields in ("59 59 2 * * *", "0 0 2 * * *", "*/7 30 2 * * *"):
        (at,) = cron(fields, BERLIN).instants((change - 3600) * 1000, 1)
        assert at == change * 1000, fields


CHANGES = [
    ("Europe/Berlin", "2024-03-31T01:00Z"),
    ("Europe/Berlin", "2024-10-27T01:00Z"),
    ("America/New_York", "2024-11-03T06:00Z"),
    ("Australia/Lord_Howe", "2024-04-06T15:00Z"),
    ("Australia/Lord_Howe", "2024-10-05T15:30Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Africa/Cairo", "2024-04-25T22:00Z"),
    ("Europe/Dublin", "2024-10-27T01:00Z"),
    ("America/Havana", "2024-11-03T05:00Z"),
    ("Antarctica/Troll", "2024-10-27T01:00Z"),
]


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_whatever_the_minute_asked_the_next_is_what_the_clock_shows(
    zone: str, change: str
) -> None:
    at = ms(change) // 1000
    walked = walk(zone, at - 3 * 3600, at + 3 * 3600 + DAY)
    for expression in ("10,40 0-3,23 * * *", "*/20 * * * *", "0 */2 * * *"):
        schedule = cron(expression, zone)
        found = scan(expression, walked, walked.start)
        for after in range(walked.start, at + 3 * 3600, 300):
            expected = next(due for due in found if due > after)
            assert schedule.instants(after * 1000, 1) == [expected * 1000]


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_a_planner_that_looks_each_minute_misses_and_repeats_nothing(
    zone: str, change: str
) -> None:
    at = ms(change) // 1000
    walked = walk(zone, at - 4 * 3600, at + 4 * 3600)
    expressions = ("30 0-4 * * *", "15 2 * * *", "*/15 * * * *", "0 0 * * *")
    fired: dict[str, list[int]] = {expression: [] for expression in expressions}
    start = dt.datetime.fromtimestamp(walked.start, dt.UTC)
    with freezegun.freeze_time(start) as clock:
        schedules = {expression: cron(expression, zone) for expression in expressions}
        planned = {
            expression: schedule.instants(walked.start * 1000, 1)
            for expression, schedule in schedules.items()
        }
        while (now := dt.datetime.now(dt.UTC).timestamp()) <= walked.end:
            for expression, due in planned.items():
                if due[0] <= now * 1000:
                    fired[expression] += due
                    planned[expression] = schedules[expression].instants(due[0], 1)
            clock.tick(60)
    for expression in expressions:
        expected = scan(expression, walked, walked.start)
        assert fired[expression] == [due * 1000 for due in expected]


# --- against an independent scan ---------------------------------------------------

STABLE_ZONES = [
    *("Europe/Berlin", "Europe/Dublin", "Europe/Lisbon", "Asia/Beirut", "Asia/Amman"),
    *("America/New_York", "America/Havana", "America/Sao_Paulo", "America/St_Johns"),
    *("America/Caracas", "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia"),
    *("Australia/Lord_Howe", "Australia/Sydney", "Asia/Kathmandu", "Asia/Tehran"),
    *("Pacific/Apia", "Pacific/Kwajalein", "Pacific/Chatham", "Antarctica/Troll"),
    *("Antarctica/Casey", "America/Asuncion", "Asia/Pyongyang", "UTC"),
]


def compare(
    seed: int, zones: list[str], walks: int, per_walk: int, *, seconds: bool = False
) -> int:
    """Compare whole lists for random (expression, zone, start); the number compared."""
    chance = random.Random(seed)
    fired = 0
    for _ in range(walks):
        (walked,) = some_walks(chance, zones, 1, seconds=seconds)
        for _ in range(per_walk):
            expression = some_expression(chance, seconds=seconds)
            after = chance.randrange(walked.start, (walked.start + walked.end) // 2)
            expected = scan(expression, walked, after)
            schedule = cron(expression, walked.zone)
            # One more than expected: it must lie past the end of the walk.
            after_ms = after * 1000 + chance.randrange(1000)
            found = schedule.instants(after_ms, len(expected) + 1)
            within = [at // 1000 for at in found if at <= walked.end * 1000]
            assert within == expected, (expression, walked.zone, after)
            fired += len(expected)
    assert fired > walks * per_walk, "the comparison was about something"
    return walks * per_walk


def test_random_schedules_agree_with_a_scan_of_every_minute() -> None:
    assert compare(2024, STABLE_ZONES, walks=20, per_walk=20) == 400
    assert compare(2025, STABLE_ZONES, walks=3, per_walk=20, seconds=True) == 60


def test_rare_schedules_agree_with_a_scan_of_years() -> None:
    chance = random.Random(3)
    start = calendar.timegm((2019, 11, 5, 0, 0, 0))
    walked = walk("America/Havana", start, start + 900 * DAY, 900)
    fired = 0
    for _ in range(7):
        expression = some_rare_expression(chance)
        expected = scan(expression, walked, walked.start)
        schedule = cron(expression, walked.zone)
        found = schedule.instants(walked.start * 1000, len(expected) + 1)
        within = [at // 1000 for at in found if at <= walked.end * 1000]
        assert within == expected, expression
        fired += len(expected)
    assert fired > 150


@pytest.mark.torture
def test_100_000_random_schedules_agree_with_a_scan_of_every_minute() -> None:
    zones = sorted(zoneinfo.available_timezones() - {"localtime"})
    assert compare(1, zones, walks=4800, per_walk=20) == 96_000
    assert compare(2, zones, walks=200, per_walk=20, seconds=True) == 4_000


@pytest.mark.torture
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza"]
)
def test_rare_schedules_agree_with_a_scan_of_twelve_years(zone: str) -> None:
    chance = random.Random(zone)
    start = calendar.timegm((2014, 1, 1, 0, 0, 0))
    walked = walk(zone, start, start + 12 * 365 * DAY, 900)
    for _ in range(100):
        expression = some_rare_expression(chance)
        expected = scan(expression, walked, walked.start)
        found = cron(expression, zone).instants(start * 1000, len(expected) + 1)
        within = [at // 1000 for at in found if at <= walked.end * 1000]
        assert within == expected, expression


# --- counting ----------------------------------------------------------------------


def test_counting_agrees_with_listing_for_random_stretches() -> None:
    assert count_and_list(11, 80, longest=250) == 80


@pytest.mark.torture
def test_counting_agrees_with_listing_for_many_random_stretches() -> None:
    assert count_and_list(12, 3000, longest=2500) == 3000


def count_and_list(seed: int, times: int, *, longest: int) -> int:
    """Compare `count` and `newest` with the plain list of random stretches."""
    chance = random.Random(seed)
    compared = 0
    while compared < times:
        seconds = chance.random() < 0.3
        expression = some_expression(chance, seconds=seconds)
        if chance.random() < 0.3:
            expression = some_rare_expression(chance)
        schedule = cron(expression, chance.choice(STABLE_ZONES))
        year = chance.choice([1970, 1972, 1985, 1993, 2011, 2018, 2024, 2199, 9998])
        after = calendar.timegm((year, 1, 1, 0, 0, 0)) * 1000 - 1
        after += chance.randrange(365 * DAY * 1000) if chance.random() < 0.8 else 0
        listed = schedule.instants(after, chance.randint(2, longest))
        if not listed:
            assert schedule.count(after, LAST_MS) == 0
            continue
        place = chance.randrange(len(listed))
        to = listed[place] - chance.choice([0, 1])
        expected = [at for at in listed if at <= to]
        about = expression, schedule.timezone, after, to
        assert schedule.count(after, to) == len(expected), about
        for n in (1, 17):
            assert schedule.newest(after, to, n) == expected[-n:], about
        compared += 1
    return compared


@pytest.mark.parametrize(
    ("zone", "change"),
    [*CHANGES, ("Pacific/Kwajalein", "1993-08-21T12:00Z")],
)
def test_counting_may_begin_and_end_within_a_change(zone: str, change: str) -> None:
    at = ms(change)
    around = range(at - 3 * 3_600_000, at + 3 * 3_600_000, 900_000 - 1)
    for expression in ("7,59 * * * *", "0,30 0-4,23 * * *", "59 59 0-3 * * *"):
        schedule = cron(expression, zone)
        listed = schedule.instants(around[0] - 1, 100)
        for after in around:
            for to in (after + 1, after + 1_800_000, around[-1]):
                expected = sum(after < at <= to for at in listed)
                assert schedule.count(after, to) == expected


@pytest.mark.parametrize("zone", STABLE_ZONES[::4])
def test_a_stretch_of_thousands_of_years_is_counted(zone: str) -> None:
    last = LAST_MS // 1000 - DAY
    assert cron("* * * * * *", zone).count(-1, LAST_MS) == last
    nights = cron("30 2 * * *", zone).count(-1, LAST_MS)
    assert abs(nights - last // DAY) <= 2
    quarters = cron("*/15 * * * *", zone)
    years = [ms(f"{year}-05-01T00:00Z") for year in (1971, 1999, 2801, 7777, 9999)]
    parts = [quarters.count(start, end) for start, end in pairwise(years)]
    assert sum(parts) == quarters.count(years[0], years[-1])
    newest = quarters.newest(years[0], years[-1], 3)
    assert quarters.count(newest[0] - 1, years[-1]) == 3
    assert quarters.instants(newest[0] - 1, 3) == newest


def test_nothing_is_counted_in_a_stretch_that_is_empty_or_turned_round() -> None:
    for schedule in (cron("* * * * * *", BERLIN), cron("0 0 30 2 *"), every("1s")):
        assert schedule.count(5000, 5000) == schedule.count(9000, -1) == 0
        assert schedule.newest(5000, 5000, 3) == schedule.newest(5000, 9000, 0) == []
        assert schedule.count(LAST_MS, 10**18) == 0


def test_far_changes_of_a_clock_are_known_from_an_earlier_year() -> None:
    for name in STABLE_ZONES:
        zone = zoneinfo.ZoneInfo(name)
        for year in (2799, 2800, 3172, 9998):
            start = calendar.timegm((year, 1, 1, 0, 0, 0))
            for at, before, after in _zones.changes(zone, start, start + 400 * DAY):
                assert _zones.offset_s(zone, at - 1) == before
                assert _zones.offset_s(zone, at) == after != before
    berlin = zoneinfo.ZoneInfo(BERLIN)
    start = calendar.timegm((8000, 1, 1, 0, 0, 0))
    assert len(list(_zones.changes(berlin, start, start + 800 * DAY))) == 4


# --- zones -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("europe/berlin", "did you mean 'Europe/Berlin'"),
        ("Berlin", "did you mean 'Europe/Berlin'"),
        ("America/New York", "did you mean 'America/New_York'"),
        ("Europe/Berlyn", "'Europe/Berlin'"),
        ("Middle Earth", "pass an IANA name"),
        ("../../etc/passwd", "pass an IANA name"),
        ("/usr/share/zoneinfo/Europe/Berlin", "unknown time zone"),
        ("right/Europe/Berlin", "did you mean 'Europe/Berlin'"),
        ("America", "unknown time zone"),
        ("UTC+2", "or 'Etc/GMT-2', which is 2 hours ahead of UTC all year"),
        ("GMT+2", "or 'Etc/GMT-2', which is 2 hours ahead of UTC all year"),
        ("utc-01:00", "or 'Etc/GMT+1', which is 1 hour behind UTC all year"),
        ("Etc/GMT+02", "or 'Etc/GMT+2', which is 2 hours behind UTC all year"),
        ("+05:30", "pass an IANA name"),
        ("UTC-13", "pass an IANA name"),
        ("UTC+0", "pass an IANA name"),
        ("CEST", "pass an IANA name"),
        ("EST5", "pass an IANA name"),
        ("PST", "pass an IANA name"),
        ("utc", "did you mean 'UTC'?"),
        ("rome", "did you mean 'Europe/Rome'?"),
        ("localtime", "pass 'local' for that of this computer"),
        ("", "unknown time zone ''"),
        ("Europe/Berlin\n", "'Europe/Berlin'"),
        (dt.UTC, "pass an IANA name"),
    ],
)
def test_an_unknown_zone_is_refused_with_names_like_it(name: Any, words: str) -> None:
    assert words in refused("* * * * *", name)


def test_without_a_tz_database_only_utc_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(key: str) -> zoneinfo.ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert cron("0 9 * * *").instants(0, 1) == [9 * 3_600_000]
    assert "install the package tzdata" in refused("0 9 * * *", BERLIN)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("/usr/share/zoneinfo/America/Havana", "America/Havana"),
        ("EST5EDT", "EST5EDT"),
        ("", "UTC"),
        (":", "UTC"),
    ],
)
def test_local_is_the_name_in_the_tz_variable(
    variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    schedule = cron("0 9 * * *", timezone="local")
    assert schedule.timezone == name
    assert schedule.row()["timezone"] == name


def test_a_local_zone_without_a_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    message = refused("0 9 * * *", "local")
    assert "CET-1CEST" in message
    assert "pass one, such as 'Europe/Berlin'" in message
    monkeypatch.delenv("TZ")
    monkeypatch.setattr(_zones, "_linked_zone", lambda _: None)
    monkeypatch.setattr(_zones, "_written_zone", lambda _: None)
    assert "/etc/localtime does not give" in refused("0 9 * * *", "local")
    monkeypatch.setattr(_zones, "_written_zone", lambda _: "Asia/Tokyo")
    assert cron("0 9 * * *", "local").timezone == "Asia/Tokyo"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_local_follows_the_link_of_the_system(tmp_path: Path) -> None:
    file = tmp_path / "zoneinfo" / "Europe" / "Berlin"
    file.parent.mkdir(parents=True)
    file.touch()
    link = tmp_path / "localtime"
    link.symlink_to(file)
    assert _zones._linked_zone(link) == "Europe/Berlin"
    assert _zones._linked_zone(tmp_path / "missing") is None
    copied = tmp_path / "copied"
    copied.touch()
    assert _zones._linked_zone(copied) is None


def test_the_zone_may_be_written_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "timezone"
    assert _zones._written_zone(file) is None
    file.write_text("Europe/Berlin\n", "ascii")
    assert _zones._written_zone(file) == "Europe/Berlin"
    file.write_bytes(b"\xff")
    assert _zones._written_zone(file) is None


# --- the version of the tz database ------------------------------------------------


def test_the_tz_database_has_a_version() -> None:
    version = tzdata_version(BERLIN)
    assert re.fullmatch(r"20\d\d[a-z]+|sha256:[0-9a-f]{64}", version)
    assert tzdata_version(BERLIN) == version
    assert "did you mean" in refused("Europe/Berlyn", make=tzdata_version)


def test_the_version_is_read_beside_the_zones_file(tmp_path: Path) -> None:
    (tmp_path / "Test").write_bytes(b"TZif")
    stated = tmp_path / "tzdata.zi"
    stated.write_text("# version 2031c\n# more\n", "ascii")
    assert _zones._version((str(tmp_path),), "Test") == "2031c"
    stated.unlink()
    _zones._version.cache_clear()
    (tmp_path / "+VERSION").write_text("2031d\n", "ascii")
    assert _zones._version((str(tmp_path),), "Test") == "2031d"


def test_without_a_stated_version_the_zones_file_tells(tmp_path: Path) -> None:
    file = tmp_path / "Test"
    file.write_bytes(b"TZif, some rules")
    (tmp_path / "tzdata.zi").write_text("no version here\n", "ascii")
    some = _zones._version((str(tmp_path),), "Test")
    assert some.startswith("sha256:")
    file.write_bytes(b"TZif, other rules")
    _zones._version.cache_clear()
    assert _zones._version((str(tmp_path),), "Test") != some


def test_the_tzdata_package_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> Any:
        if name == "tzdata":
            return type("tzdata", (), {"IANA_VERSION": "2031e"})
        raise AssertionError(name)

    _zones._version.cache_clear()
    monkeypatch.setattr(_zones.importlib, "import_module", imported)
    assert _zones._version((), "Europe/Berlin") == "2031e"
    _zones._version.cache_clear()

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(_zones.importlib, "import_module", missing)
    assert _zones._version((), "Europe/Berlin") == "none"
    _zones._version.cache_clear()


# --- words -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (
            cron("0 9 * * MON-FRI", timezone=BERLIN),
            "At 09:00 on Monday through Friday (Europe/Berlin)",
        ),
        (cron("@daily"), "At 00:00 every day (UTC)"),
        (cron("@hourly"), "At the start of every hour (UTC)"),
        (cron("*/15 * * * *"), "Every 15th minute of every hour (UTC)"),
        (cron("0 0 L * *"), "At 00:00 on the last day of every month (UTC)"),
        (cron("0 6 21 * *"), "At 06:00 on the 21st day of every month (UTC)"),
        (
            cron("0 6 11,22,23,31 * *"),
            "At 06:00 on the 11th, the 22nd, the 23rd, and the 31st day of month (UTC)",
        ),
        (cron("* * * * * *"), "Every second (UTC)"),
        (every("90s"), "Every 90 seconds"),
        (every(3600), "Every hour"),
        (every("1h30m"), "Every 90 minutes"),
        (every("2d"), "Every 2 days"),
        (every("1.5s"), "Every 1500 milliseconds"),
    ],
)
def test_a_schedule_says_in_words_when_it_runs(
    schedule: Cron | Every, sentence: str
) -> None:
    assert schedule.sentence() == sentence


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        # Either day field is enough, and this one is every day.
        ("0 0 1-31 * MON", "At 00:00 every day"),
        ("0 0 13 * 0-6", "At 00:00 every day"),
        ("0 0 */1 * MON", "At 00:00 on Monday"),
        ("0 0 13 * FRI", "At 00:00 on the 13th day of month and also on Friday"),
        ("0 0 */31 * FRI", "At 00:00 on the first day of month if it is Friday"),
        # Not every five hours, nor every 45 minutes, nor every 7.
        ("0 */5 * * *", "At 00:00, 05:00, 10:00, 15:00, and 20:00 every day"),
        ("*/45 * * * *", "At minutes 0 and 45 of every hour"),
        ("*/7 * * * *", "Every seventh minute from 0 through 56 of every hour"),
        ("50/20 * * * *", "At minute 50 of every hour"),
        ("0 0 * * */2", "At 00:00 on Tuesday, Thursday, Saturday, and Sunday"),
        ("0 0 * * 0,7", "At 00:00 on Sunday"),
        ("0 0 * * SAT-SUN", "At 00:00 on Saturday and Sunday"),
        ("0 0 * * FRI-MON", "At 00:00 on Friday through Monday"),
        ("5 */15 * * * *", "At second 5 of every 15th minute of every hour"),
        ("*/2 * * * * *", "Every other second of every minute"),
        ("10-20 0 * * *", "Every minute from 00:10 through 00:20"),
        (
            "0 0 L,15 * *",
            "At 00:00 on the 15th day of month and the last day of the month",
        ),
        ("0 9 1 1 *", "At 09:00 on January 1"),
        ("0 9 LW 1,2 *", "At 09:00 on the last weekday of January and February"),
        (
            "0 9 * 11,12,1 *",
            "At 09:00 every day in every month from November through January",
        ),
        ("0 0 30 2 *", "At 00:00 on February 30, which no year has"),
    ],
)
def test_the_words_are_of_what_happens_and_not_of_what_may_be_meant(
    expression: str, sentence: str
) -> None:
    assert cron(expression).sentence() == f"{sentence} (UTC)"


def test_whoever_reads_the_sentence_knows_every_time_of_the_schedule() -> None:
    compare_sentences(21, 50)


@pytest.mark.torture
def test_whoever_reads_many_sentences_knows_every_time() -> None:
    compare_sentences(22, 3000)


def compare_sentences(seed: int, count: int) -> None:
    """Compare what a sentence says, as it is read, with what a cron daemon would do."""
    chance = random.Random(seed)
    first = dt.date(2023, 1, 1)
    days = [first + dt.timedelta(days=n) for n in range(2 * 365)]
    for _ in range(count):
        expression = some_expression(chance, seconds=chance.random() < 0.3)
        if chance.random() < 0.3:
            expression = some_rare_expression(chance)
        line = Line(expression)
        text = cron(expression, BERLIN).sentence()
        read = Sentence(text)
        times = {
            (hour, minute, second)
            for hour in line.hours
            for minute in line.minutes
            for second in line.seconds
        }
        assert read.times == times, (expression, text)
        found = [day for day in days if read.is_on(day)]
        assert found == [day for day in days if line.runs_on(day)], (expression, text)
        assert not (read.never and found)


# --- intervals ---------------------------------------------------------------------


def test_an_interval_counts_from_its_anchor() -> None:
    anchor = dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC)
    schedule = every("1d", anchor=anchor)
    assert schedule.instants(ms("2024-03-30T11:00Z"), 2) == [
        ms("2024-03-30T12:00Z"),
        ms("2024-03-31T12:00Z"),
    ]
    assert schedule.instants(schedule.anchor_ms or 0, 1) == [ms("2024-03-31T12:00Z")]


def test_a_clock_set_far_back_still_has_instants_soon() -> None:
    schedule = every("10s", anchor=dt.datetime(2024, 1, 1, 0, 0, 3, tzinfo=dt.UTC))
    assert schedule.instants(0, 3) == [3_000, 13_000, 23_000]
    assert schedule.instants(-(10**15), 1) == [3_000]
    assert schedule.instants(LAST_MS, 3) == []
    assert every("1s").instants(LAST_MS - 1500, 5) == [LAST_MS - 999]


@given(
    every_ms=st.integers(1_000, 36_525 * 86_400_000),
    anchor_ms=st.none() | st.integers(0, LAST_MS),
    after_ms=st.integers(-1, LAST_MS),
    n=st.integers(0, 5),
)
def test_instants_of_an_interval_are_whole_intervals_from_the_anchor(
    every_ms: int, anchor_ms: int | None, after_ms: int, n: int
) -> None:
    found = Every(every_ms, anchor_ms).instants(after_ms, n)
    assert len(found) <= n
    if n and after_ms + every_ms <= LAST_MS:
        assert found[0] <= max(after_ms, 0) + every_ms
    for at, following in pairwise(found):
        assert following == at + every_ms
    for at in found:
        assert after_ms < at <= LAST_MS
        assert (at - (anchor_ms or 0)) % every_ms == 0


@pytest.mark.parametrize("duration", ["0s", "999ms", "sometimes", -1, None, True])
def test_an_interval_that_cannot_be_kept_is_refused(duration: Any) -> None:
    assert refused(duration, make=every)


def test_an_anchor_without_a_zone_is_refused() -> None:
    naive = dt.datetime(2024, 1, 1)
    assert "anchor" in refused(make=lambda: every("1h", anchor=naive))


# --- rows --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [
        cron("0 9 * * MON-FRI", timezone=BERLIN),
        cron("@daily"),
        every("90s"),
        every("1d", anchor=dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_a_row_gives_the_same_schedule_again(schedule: Cron | Every) -> None:
    again = from_row(**schedule.row())
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert again.instants(10**12, 3) == schedule.instants(10**12, 3)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("cron", None), "pass a string"),
        (("cron", 5), "pass a string"),
        (("cron", b"* * * * *"), "pass a string"),
        (("cron", "* * * * *", 3), "pass an IANA name"),
        (("cron", "* * * * *", "Mars/Base"), "unknown time zone"),
        (("every", None, None, None), "every_ms=None"),
        (("every", None, None, 1.5), "every_ms=1.5"),
        (("every", None, None, True), "every_ms=True"),
        (("every", None, None, 0), "out of range"),
        (("every", None, None, 10**30), "out of range"),
        (("every", None, None, 1000, -1), "anchor_ms=-1"),
        (("every", None, None, 1000, "x" * 999), "anchor_ms='xxx"),
        (("hourly",), "kind 'hourly'"),
        ((None,), "kind None"),
    ],
)
def test_a_row_that_any_client_wrote_is_checked(row: Any, words: str) -> None:
    assert words in refused(*row, make=from_row)


def test_a_row_without_a_zone_means_utc() -> None:
    assert from_row("cron", "0 9 * * *") == cron("0 9 * * *", "UTC")


def test_a_schedule_does_not_change() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        cron("0 9 * * *").expression = "* * * * *"  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        every("1h").every_ms = 1  # type: ignore[misc]
