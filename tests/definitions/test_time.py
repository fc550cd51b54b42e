"""Durations and instants become whole milliseconds, exactly, or are refused."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import freezegun
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litejobs._definitions.milliseconds import (
    duration_ms,
    duration_text,
    from_ms,
    instant_ms,
)
from litejobs._values.durations import MAX_DURATION_MS
from litejobs.errors import ConfigurationError


def refused_duration(value: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        duration_ms(value, name="delay")
    return str(caught.value)


def refused_instant(value: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        instant_ms(value, name="run_at")
    return str(caught.value)


# --- durations ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2m30s", 150_000),
        ("250ms", 250),
        ("1d", 86_400_000),
        ("1.5h", 5_400_000),
        ("1d 2h 3m 4s 5ms", 93_784_005),
        (" 5m ", 300_000),
        ("0s", 0),
        (0, 0),
        (-0.0, 0),
        (30, 30_000),
        (2.5, 2_500),
        (timedelta(hours=1, microseconds=1_499), 3_600_001),
        (timedelta(0), 0),
        ("36525d", MAX_DURATION_MS),
        (timedelta(days=36_525), MAX_DURATION_MS),
        (36_525 * 86_400, MAX_DURATION_MS),
    ],
    ids=str,
)
def test_duration_is_read(value, ms):
    assert duration_ms(value, name="delay") == ms


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (1.0005, 1_001),
        (1.0004, 1_000),
        ("1.5ms", 2),
        ("2.5ms", 3),
        (timedelta(microseconds=2_500), 3),
        (timedelta(microseconds=2_499), 2),
    ],
    ids=str,
)
def test_half_a_millisecond_rounds_up(value, ms):
    """1.0005 is a little less than that in binary; the written number counts."""
    assert duration_ms(value, name="delay") == ms


@pytest.mark.parametrize(
    "value", [1e-9, 5e-324, "0.001ms", timedelta(microseconds=1)], ids=str
)
def test_more_than_nothing_never_becomes_nothing(value):
    assert duration_ms(value, name="delay") == 1


def test_precision_of_the_application_is_not_used():
    with decimal.localcontext(prec=2):
        assert duration_ms("1234567.891s", name="delay") == 1_234_567_891


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "5",
        "m",
        "5M",
        "5mo",
        "5 months",
        "5 minute s",
        "5wd",
        "5mm",
        "1d1w",
        "30s5m",
        "5m5m",
        "1h30",
        "1e3s",
        "-5s",
        "+5s",
        ".5s",
        "5.s",
        "٣s",
        "1" * 70 + "s",
        float("nan"),
        True,
        False,
        None,
    ],
    ids=repr,
)
def test_what_is_no_duration_is_refused_with_what_is_allowed(value):
    message = refused_duration(value)

    assert message.startswith(f"delay={value!r}"[:40])
    if isinstance(value, str):
        assert message.endswith(
            ' is not a duration; write one such as "250ms", "30s", "1h30m" or "2 weeks"'
        )
    else:
        assert message.endswith(
            " is not a duration; pass a timedelta, a number of seconds, "
            'or a text such as "250ms", "30s", "1h30m"'
        )


def test_a_duration_without_an_end_is_refused_with_what_is_one_in_effect():
    assert refused_duration(float("inf")) == (
        'delay=inf has no end; pass up to 100 years, "36525d", or leave it out where '
        "that means that there is no limit"
    )
    assert duration_ms("36525d", name="delay") == 36_525 * 86_400_000
    assert refused_duration(float("-inf")).endswith("is negative; pass 0 or more")


@pytest.mark.parametrize("value", [b"5s", [5], decimal.Decimal(5)], ids=repr)
def test_other_types_are_named(value):
    message = refused_duration(value)

    assert message.startswith(
        f"delay, a value of type {type(value).__name__}, is not a"
    )


@pytest.mark.parametrize("value", [-1, -1e-9, timedelta(microseconds=-1)], ids=repr)
def test_negative_duration_is_refused(value):
    assert refused_duration(value) == f"delay={value!r} is negative; pass 0 or more"


@pytest.mark.parametrize(
    "value",
    ["36526d", timedelta(days=36_525, microseconds=1), 1e308, 10**30, timedelta.max],
    ids=repr,
)
def test_more_than_a_hundred_years_is_refused(value):
    assert refused_duration(value) == (
        f"delay={value!r} is more than 100 years; pass a shorter duration"
    )


def test_endless_integer_is_refused_without_printing_it():
    assert refused_duration(10**5000) == (
        "delay, an integer of 16,610 bits, is more than 100 years; "
        "pass a shorter duration"
    )


def test_endless_text_is_refused_without_printing_it():
    assert len(refused_duration("9" * 1_000_000 + "s")) < 250


@given(st.integers(0, MAX_DURATION_MS))
def test_all_ways_to_write_a_duration_agree(ms):
    written = timedelta(milliseconds=ms)

    assert duration_ms(written, name="delay") == ms
    assert duration_ms(written.total_seconds(), name="delay") == ms
    assert duration_ms(f"{ms}ms", name="delay") == ms
    assert duration_ms(duration_text(ms), name="delay") == ms


@given(st.text(st.sampled_from("0123456789.dhms -")) | st.floats() | st.integers())
def test_any_value_is_read_within_bounds_or_refused(value):
    try:
        ms = duration_ms(value, name="delay")
    except ConfigurationError as error:
        assert str(error).startswith("delay")
    else:
        assert type(ms) is int
        assert 0 <= ms <= MAX_DURATION_MS


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (250, "250ms"),
        (5_400_000, "1h 30m"),
        (60_000, "1m"),
        (90_061_001, "1d 1h 1m 1s 1ms"),
        (-1_500, "-1s 500ms"),
    ],
)
def test_duration_is_written_for_people(ms, text):
    assert duration_text(ms) == text


# --- instants ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(2025, 6, 1, 12, tzinfo=UTC), 1_748_779_200_000),
        (datetime(2025, 6, 1, 14, tzinfo=ZoneInfo("Europe/Berlin")), 1_748_779_200_000),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999),
    ],
    ids=str,
)
def test_instant_is_counted_from_1970_in_utc(value, ms):
    assert instant_ms(value, name="run_at") == ms


def test_fraction_of_a_millisecond_is_dropped():
    """The clock drops it too; rounded up, "now" would lie in the future."""
    value = datetime(2025, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)

    assert instant_ms(value, name="run_at") == 1_735_689_600_001


def test_hour_that_comes_twice_is_told_apart_by_its_fold():
    early = datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    late = early.replace(fold=1)

    assert instant_ms(late, name="at") - instant_ms(early, name="at") == 3_600_000


def test_datetime_of_a_frozen_clock_is_an_instant_like_any_other():
    with freezegun.freeze_time("2025-06-01 12:00:00.123456"):
        assert instant_ms(datetime.now(UTC), name="run_at") == 1_748_779_200_123


def test_naive_datetime_is_refused():
    assert refused_instant(datetime(2025, 6, 1, 12)) == (
        "run_at=2025-06-01T12:00:00 has no time zone; "
        "pass value.astimezone() if local time is meant, or set tzinfo"
    )


@pytest.mark.parametrize(
    "value", [date(2025, 6, 1), "2025-06-01", 1_748_779_200, True, None], ids=repr
)
def test_what_is_no_datetime_is_refused(value):
    message = refused_instant(value)

    assert message.startswith("run_at")
    assert message.endswith(
        "is not a datetime; pass one with a time zone, such as datetime.now(UTC)"
    )


@pytest.mark.parametrize(
    "value",
    [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    ],
    ids=str,
)
def test_instant_outside_1970_to_9999_is_refused(value):
    assert refused_instant(value) == (
        f"run_at={value.isoformat()} is outside the years 1970 to 9999 in UTC; "
        "pass an instant within them"
    )


@given(st.integers(0, 253_402_300_799_999))
def test_every_millisecond_comes_back_exactly(ms):
    """Floats would lose some: 1e-3 has no exact binary form."""
    value = from_ms(ms)

    assert value.tzinfo is UTC
    assert instant_ms(value, name="run_at") == ms


def test_number_far_outside_the_calendar_is_not_an_instant():
    with pytest.raises(OverflowError):
        from_ms(10**18)
