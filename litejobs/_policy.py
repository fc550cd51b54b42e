"""How often, and after how long, a failed job is tried again."""

from __future__ import annotations

import datetime as dt
import warnings
from typing import Any, Self

import attrs

from litejobs._time import duration_ms
from litejobs.errors import ConfigurationError

Duration = dt.timedelta | float | str

_MOST_ATTEMPTS = 1_000_000_000


@attrs.frozen(kw_only=True)
class Retry:
    """The limits and the backoff of a task, as they are stored with each job.

    `max_attempts` counts all attempts, the first included. None means the default: 3
    attempts, exponential backoff from 60 s with factor 2, no delay above a day, and a
    jitter of ±25 %.

    Raises:
        ConfigurationError: A value cannot work; the message says what is allowed.
    """

    max_attempts: int | None = None
    retryable: bool | None = None
    backoff: str | None = None
    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None

    def __attrs_post_init__(self) -> None:
        check_max_attempts(self.max_attempts)
        if self.retryable is False and (self.max_attempts or 1) > 1:
            warnings.warn(
                f"retryable=False allows one attempt, max_attempts={self.max_attempts} "
                "has no effect; leave one of them out",
                stacklevel=3,
            )
        if self.factor is not None:
            _check_number("factor", self.factor, 1, 1000)
        if self.jitter is not None:
            _check_number("jitter", self.jitter, 0, 1)

    @classmethod
    def exponential(
        cls,
        delay: Duration = "60s",
        *,
        factor: float = 2.0,
        max_attempts: int | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
    ) -> Self:
        """Wait *delay* times *factor* to the power of attempt - 1: 60, 120, 240 s."""
        return cls._of("exponential", delay, max_attempts, max_delay, jitter, factor)

    @classmethod
    def linear(
        cls,
        delay: Duration = "60s",
        *,
        max_attempts: int | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
    ) -> Self:
        """Wait *delay* times attempt: 60, 120, 180 s."""
        return cls._of("linear", delay, max_attempts, max_delay, jitter)

    @classmethod
    def constant(
        cls,
        delay: Duration = "60s",
        *,
        max_attempts: int | None = None,
        jitter: float | None = None,
    ) -> Self:
        """Wait the same *delay* before each retry (the backoff called none)."""
        return cls._of("none", delay, max_attempts, None, jitter)

    @classmethod
    def never(cls) -> Self:
        """The first failure is the last."""
        return cls(retryable=False)

    @classmethod
    def _of(  # noqa: PLR0917
        cls,
        backoff: str,
        delay: Duration,
        max_attempts: int | None,
        max_delay: Duration | None,
        jitter: float | None,
        factor: float | None = None,
    ) -> Self:
        return cls(
            max_attempts=max_attempts,
            backoff=backoff,
            delay_ms=duration_ms(delay, name="delay"),
            factor=factor,
            max_delay_ms=(
                None if max_delay is None else duration_ms(max_delay, name="max_delay")
            ),
            jitter=jitter,
        )

    def columns(self) -> dict[str, Any]:
        """The values under the names of their columns."""
        return attrs.asdict(self)


def check_max_attempts(value: int | None) -> None:
    """Refuse what is no number of attempts.

    Raises:
        ConfigurationError: The value is not a whole number from 1 to 10^9.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(
            f"max_attempts={value!r} is not a whole number; give 1 or more"
        )
    if not 1 <= value <= _MOST_ATTEMPTS:
        raise ConfigurationError(
            f"max_attempts={value} is out of range; give 1 (no retry) to "
            f"{_MOST_ATTEMPTS}"
        )


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not low <= value <= high
    ):
        raise ConfigurationError(
            f"{name}={value!r} is out of range; give a number from {low} to {high}"
        )
