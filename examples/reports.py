"""Schedules: a report at nine, a probe every 90 s, and a laptop that slept meanwhile.

    python examples/reports.py

The clock is held and moved, as in tests, so that a weekend is over at once; for this it
needs freezegun. In a program of yours there is only `jobs.running()` around it. The
clocks in Berlin go forward on that Sunday. The output is:

    Fri 27 Mar 08:58: what comes next
      probe at Fri 08:59:30
      report at Fri 09:00:00
      probe at Fri 09:01:00
    Fri 27 Mar 09:03: this has run
      probe of Fri 08:59:30
      report of Fri 09:00:00
      probe of Fri 09:01:00
      probe of Fri 09:02:30
    Mon 30 Mar 10:00: this has run
      report of Mon 09:00:00
      probe of Mon 09:59:30
    What has become of the probes:
      Mon 09:59:30: fired
      2877 from Fri 09:04:00: coalesced
      Fri 09:02:30: fired
    Mon 30 Mar 10:00: this has run
      report of Thu 09:00:00
"""

from __future__ import annotations

import datetime as dt
import sys
from zoneinfo import ZoneInfo

try:
    from freezegun import freeze_time
except ImportError as error:
    sys.exit(f"this example needs freezegun (pip install it): {error}")

from litejobs import LiteJobs, cron, current, every
from litejobs.testing import held_clock

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = dt.datetime(2026, 3, 27, 8, 58, tzinfo=BERLIN)
MONDAY = dt.datetime(2026, 3, 30, 10, 0, tzinfo=BERLIN)


def main() -> None:
    with (
        held_clock(),
        freeze_time(FRIDAY) as clock,
        LiteJobs(":memory:") as jobs,
    ):
        done: list[str] = []

        @jobs.schedule(cron("0 9 * * MON-FRI", timezone="Europe/Berlin"))
        def report() -> None:
            done.append(f"report of {shown(current().occurrence_at)}")

        @jobs.schedule(every("90s"), overlap="skip", expires_in="5m")
        def probe() -> None:
            done.append(f"probe of {shown(current().occurrence_at)}")

        jobs.drain()  # it is planned
        print(f"{FRIDAY:%a %d %b %H:%M}: what comes next")
        for each in jobs.schedules.upcoming(3):
            print(f"  {each.schedule} at {shown(each.at)}")

        for _ in range(10):
            clock.tick(30)
            jobs.drain()  # everything that is due runs, here and now
        tell(done)
        clock.move_to(MONDAY)  # nobody was there at the weekend
        jobs.drain()
        tell(done)
        print("What has become of the probes:")
        for one in jobs.schedules["probe"].occurrences(limit=3):
            many = f"{one.count} from " if one.count > 1 else ""
            print(f"  {many}{shown(one.at)}: {one.state}")

        thursday = FRIDAY - dt.timedelta(days=1)
        jobs.schedules.backfill("report", thursday, FRIDAY)
        jobs.drain()
        tell(done)


def tell(done: list[str]) -> None:
    """Print what has run since the last time."""
    now = dt.datetime.now(BERLIN)
    print(f"{now:%a %d %b %H:%M}: this has run")
    for line in done:
        print(f"  {line}")
    done.clear()


def shown(at: dt.datetime | None) -> str:
    """The instant as a clock in Berlin shows it."""
    return "never" if at is None else f"{at.astimezone(BERLIN):%a %H:%M:%S}"


if __name__ == "__main__":
    main()
