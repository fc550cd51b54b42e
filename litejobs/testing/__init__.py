"""Helpers for the tests of applications that use litejobs; see docs/testing.md.

With pytest nothing needs to be done: the plugin `litejobs.testing.plugin` holds the
clock for the whole session, and `litejobs_isolation = memory` in its configuration
gives each test jobs files of its own. With unittest there are `LiteJobsTestCase` and
`with isolated():`; or one call holds the clock, before a file is opened:

    from litejobs.testing import hold_clock

    hold_clock()

From then on freezegun and time-machine move retries and schedules as they move
`datetime.datetime.now(datetime.UTC)`, without a sleep (a `tz_offset` given to freezegun
moves that too, so leave it out). Databases that were open before, and those opened
through other drivers than apsw, keep to real time.
"""

# May import all rooms but the command line, which does not import it.

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litejobs._process.clock import (
        clock_is_held,
        held_clock,
        hold_clock,
        release_clock,
    )
    from litejobs.testing.assertions import (
        EnqueuedJobs,
        all_enqueued,
        assert_enqueued,
        enqueued,
        refute_enqueued,
    )
    from litejobs.testing.cases import LiteJobsTestCase
    from litejobs.testing.clocks import Clock, standing_clock
    from litejobs.testing.driving import StandIn, perform, running_as
    from litejobs.testing.fault_injection import Faults, faults
    from litejobs.testing.isolation import Isolation, isolated

__all__ = [
    "Clock",
    "EnqueuedJobs",
    "Faults",
    "Isolation",
    "LiteJobsTestCase",
    "StandIn",
    "all_enqueued",
    "assert_enqueued",
    "clock_is_held",
    "enqueued",
    "faults",
    "held_clock",
    "hold_clock",
    "isolated",
    "perform",
    "refute_enqueued",
    "release_clock",
    "running_as",
    "standing_clock",
]

# In which module each name is made, which is imported when the name is asked for: a
# suite that has no jobs pays for next to nothing.
_HOMES = {
    "Clock": "clocks",
    "EnqueuedJobs": "assertions",
    "Faults": "fault_injection",
    "Isolation": "isolation",
    "LiteJobsTestCase": "cases",
    "StandIn": "driving",
    "all_enqueued": "assertions",
    "assert_enqueued": "assertions",
    "enqueued": "assertions",
    "faults": "fault_injection",
    "isolated": "isolation",
    "perform": "driving",
    "refute_enqueued": "assertions",
    "running_as": "driving",
    "standing_clock": "clocks",
}
_OF_THE_CLOCK = ("clock_is_held", "held_clock", "hold_clock", "release_clock")

if not TYPE_CHECKING:  # for type checkers it would make every name one of ours

    def __getattr__(name: str) -> object:
        if name in _OF_THE_CLOCK:
            home = "litejobs._process.clock"
        elif name in _HOMES:
            home = f"{__name__}.{_HOMES[name]}"
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        try:
            value = getattr(import_module(home), name)
        except AttributeError as error:
            from litejobs._packing.missing import cannot_import

            raise cannot_import(f"{__name__}.{name}", error) from error
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
