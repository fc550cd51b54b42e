"""Helpers for the tests of applications that use litejobs.

With pytest nothing needs to be done: the plugin `litejobs.testing.plugin` holds the
clock for the whole session. With unittest, one call does, before a database is opened:

    from litejobs.testing import hold_clock

    hold_clock()

From then on freezegun and time-machine move retries and schedules as they move
`datetime.datetime.now(datetime.UTC)`, without a sleep (a `tz_offset` given to freezegun
moves that too, so leave it out). Databases that were open before, and those opened
through other drivers than apsw, keep to real time.
"""

from __future__ import annotations

from litejobs._process.clock import clock_is_held, held_clock, hold_clock, release_clock

__all__ = ["clock_is_held", "held_clock", "hold_clock", "release_clock"]
