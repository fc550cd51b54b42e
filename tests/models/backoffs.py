"""The kinds of backoff as tests know them: one function for each, and what it gives.

The models of retries work with these functions, so a new kind, which random tests draw
from the schema, is one more function here.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from tests.models.kinds import UnknownKind

Growth = Callable[[Fraction, Fraction, int, int], Fraction]

GROWTH: dict[str, Growth] = {}
"""By its word in `backoff`: the wait after failure *number*, from *wait* and *factor*.

It may stop to grow at *most*.
"""
WAITS: dict[str, list[int]] = {}
"""The first five waits of each in seconds, if nothing but the kind is named."""


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
