"""The clock of litejobs in the hands of a test."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator

from litejobs._definitions.checks import shown
from litejobs._definitions.milliseconds import duration_ms, from_ms, instant_ms
from litejobs._definitions.policy import Duration
from litejobs._process.clock import (
    clock_is_held,
    held_clock,
    move_to,
    now_ms,
    settable,
)
from litejobs.errors import ConfigurationError
from litejobs.testing.blocks import block


class Clock:
    """The clock that jobs go by: it stands still until it is moved.

    Where freezegun or time-machine holds Python's clock, it is theirs that is shown and
    moved; elsewhere what else asks Python for the time is not told.
    """

    def __repr__(self) -> str:
        return f"<litejobs clock at {self.now.isoformat()}>"

    @property
    def now(self) -> dt.datetime:
        """The instant at which it stands, an aware datetime in UTC."""
        return from_ms(now_ms())

    def move(self, duration: Duration) -> dt.datetime:
        """Move it on by seconds, "1h30m" or a timedelta, and return the instant.

        Nothing is run: see `LiteJobs.drain`, and `LiteJobs.advance`, which does both. A
        runner in the background finds out by itself, when the test waits for it.
        """
        move_to(now_ms() + duration_ms(duration, name="duration"))
        return self.now

    def set(self, instant: dt.datetime | str) -> dt.datetime:
        """Set it to an aware datetime, or to a text of one; return the instant.

        A text without a zone means UTC: "2026-03-01 03:00". It may lie in the past.
        """
        move_to(instant_ms(_read(instant), name="instant"))
        return self.now


@block
def standing_clock(instant: dt.datetime | str | None = None) -> Iterator[Clock]:
    """Hold the clock for a `with` block, at *instant* or where it is now.

    Files that were opened before it was held go on with real time. After the block the
    clock is as it was before.
    """
    with contextlib.ExitStack() as stack:
        if not clock_is_held():
            stack.enter_context(held_clock())
        stack.enter_context(settable())
        clock = Clock()
        if instant is None:
            move_to(now_ms())
        else:
            clock.set(instant)
        yield clock


def _read(instant: dt.datetime | str) -> dt.datetime:
    if not isinstance(instant, str):
        return instant
    try:
        read = dt.datetime.fromisoformat(instant)
    except ValueError:
        raise ConfigurationError(
            f"instant={shown(instant)} is not one; write it as '2026-03-01 03:00', "
            "which means UTC, or '2026-03-01T03:00+01:00'"
        ) from None
    return read if read.tzinfo is not None else read.replace(tzinfo=dt.UTC)
