"""How long is waited for the next attempt, as all models know it: in one place.

Each kind of backoff is a function here, so a new kind, which random tests draw from the
schema, is one more function. `planned_wait` makes a wait of one, as litejobs__backoff
does in SQL: another limit of waits is stated there, and both models of retries know it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

import attrs

from tests.models.kinds import UnknownKind

DAY = 86_400_000
TEN_YEARS = 3650 * DAY

Number = TypeVar("Number", float, Fraction)
Growth = Callable[[Fraction, Fraction, int, int], Fraction]

GROWTH: dict[str, Growth] = {}
"""By its word in `backoff`: the wait after failure *number*, from *wait* and *factor*.

It may stop to grow at *most*.
"""
WAITS: dict[str, list[int]] = {}
"""The first five waits of each in seconds, if nothing but the kind is named."""


@attrs.frozen
class PlannedWait:
    """Milliseconds to wait for the next attempt, before jitter, and at most with it."""

    base_ms: int
    most_ms: int

    def middle(self, jitter: Number) -> Number:
        """Around what jitter lies: low enough that all of it is within the most."""
        return min(self.base_ms, self.most_ms / (1 + jitter))


def planned_wait(
    number: int,
    *,
    delay_ms: int | None = None,
    backoff: str | None = None,
    factor: float | None = None,
    max_delay_ms: int | None = None,
    intervals: Sequence[int] | None = None,
) -> PlannedWait:
    """The wait after attempt *number* has failed; what is None has its default."""
    most = min(DAY if max_delay_ms is None else max_delay_ms, TEN_YEARS)
    if intervals:
        listed = intervals[min(number, len(intervals)) - 1]
        return PlannedWait(min(max(0, listed), most), most)
    delay = 60_000 if delay_ms is None else delay_ms
    factor = 2.0 if factor is None else factor
    base = grown(delay, backoff or "exponential", factor, number, most)
    return PlannedWait(base, most)


def planned_wait_of_crash(
    crash_delay_ms: int | None, max_delay_ms: int | None
) -> PlannedWait:
    """The wait after a first crash, which has no jitter; None is the default."""
    delay = 1000 if crash_delay_ms is None else crash_delay_ms
    return planned_wait(1, delay_ms=delay, backoff="none", max_delay_ms=max_delay_ms)


def kind(*waits: int) -> Callable[[Growth], Growth]:
    def known(grow: Growth) -> Growth:
        GROWTH[grow.__name__] = grow
        WAITS[grow.__name__] = list(waits)
        return grow

    return known


def grown(delay: int, backoff: str, factor: float, number: int, most: int) -> int:
    """Milliseconds to wait after failure *number*, before jitter; exact."""
    if backoff not in GROWTH:
        raise UnknownKind(f"the models do not know the backoff {backoff!r}")
    wait = GROWTH[backoff](Fraction(delay), Fraction(factor), number, most)
    return int(min(wait, Fraction(most)))


@kind(60, 60, 60, 60, 60)
def none(wait: Fraction, _factor: Fraction, _number: int, _most: int) -> Fraction:
    return wait


@kind(60, 120, 180, 240, 300)
def linear(wait: Fraction, _factor: Fraction, number: int, _most: int) -> Fraction:
    return wait * number


@kind(60, 120, 240, 480, 960)
def exponential(wait: Fraction, factor: Fraction, number: int, most: int) -> Fraction:
    for _ in range(number - 1):
        if wait >= most or factor == 1 or not wait:
            break
        wait *= factor
    return wait
