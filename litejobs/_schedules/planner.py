"""What the calendar answers when a schedule is to be planned.

A row of the view `litejobs_planning` is a `Request`: which instants were missed, and
which come next? Its answer is a `Plan`, one row for the view `litejobs_plan`. What is
due, missed or late is decided there; here is only the calendar, so nothing in this
module reads the database or asks what time it is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import attrs

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._schedules.cron import Cron, Every, from_row
from litejobs._schedules.zones import LAST_MS, local_zone, tzdata_version
from litejobs.errors import ConfigurationError

# A clock that went back each minute would need two years for as many.
_MOST_CLOCK_STEPS = 1_000_000


class Request(NamedTuple):
    """A row of `litejobs_planning`; any value may be anything, since rows may be raw.

    Missed are the instants after `after_at` and up to `to_at`; of those the newest
    `keep` are wanted, and then the next `wanted` ones. Where the clock has gone back,
    elapsed time up to `high_at` is passed through again, each instant `clock_steps`
    milliseconds later than it was the first time.
    """

    schedule_id: int
    revision: int
    expression: str | None
    timezone: str | None
    every_ms: int | None
    anchor_ms: int | None
    tz_version: str | None
    after_at: int
    to_at: int
    keep: int
    wanted: int
    high_at: int
    clock_steps: int
    fate: str


class Plan(NamedTuple):
    """A row for `litejobs_plan`.

    `instants` is a JSON array, ascending: those missed that are kept, then those to
    come. The older ones that were missed are only counted. With a `problem`, which is
    one sentence, there is nothing else.
    """

    schedule_id: int
    revision: int
    after_at: int
    to_at: int
    fate: str
    missed_first: int | None = None
    missed_last: int | None = None
    missed_count: int | None = None
    instants: str = "[]"
    exhausted: int = 1
    timezone: str | None = None
    tz_version: str | None = None
    sentence: str | None = None
    problem: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Return what the statement `record_plan` is given."""
        return self._asdict()


def plans(requests: Iterable[Request], seconds: float) -> list[Plan]:
    """Return the plans of as many requests as *seconds* of real time suffice for.

    They are those of the first requests, in order, and at least one if there are any.
    """
    until = RealTime.monotonic() + seconds
    made: list[Plan] = []
    for request in requests:
        made.append(plan(request))
        if RealTime.monotonic() >= until:
            break
    return made


def plan(request: Request) -> Plan:
    """Return the plan of a request, or the problem why there is none.

    However long the missed stretch is, it is not walked through. No exception leaves
    this function; one that nobody has thought of is logged and becomes the problem.
    """
    try:
        return _planned(request)
    except ConfigurationError as error:
        problem = str(error)
    except Exception as error:
        log.exception("schedule %s cannot be planned", request.schedule_id)
        problem = f"cannot be planned: {error!r:.300}; the traceback is in the log"
    return _empty(request)._replace(problem=problem)


def outdated(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those (timezone, tz_version) whose zone has another version by now.

    Unknown zones are among them: planned anew, their schedules get a problem.
    """
    return [pair for pair in pairs if not _is_current(*pair)]


def _is_current(timezone: str, version: str) -> bool:
    try:
        return tzdata_version(timezone) == version
    except ConfigurationError:
        return False


def _empty(request: Request) -> Plan:
    return Plan(
        request.schedule_id,
        request.revision,
        request.after_at,
        request.to_at,
        request.fate,
    )


def _planned(request: Request) -> Plan:
    timing = _timing(request)
    line = _line(timing, request)
    after_at, to_at, keep = request.after_at, request.to_at, request.keep
    missed = line.count(after_at, to_at)
    kept = line.newest(after_at, to_at, keep + 1)
    coming = line.instants(max(after_at, to_at), request.wanted)
    if not (missed or coming or timing.instants(-1, 1)):
        raise ConfigurationError(
            f"the cron expression {request.expression!r:.64} has no date in any year; "
            "write days that its months have"
        )
    zone = timing.timezone if isinstance(timing, Cron) else None
    made = _empty(request)._replace(
        exhausted=int(len(coming) < request.wanted),
        timezone=zone,
        tz_version=None if zone is None else tzdata_version(zone),
        sentence=_sentence(timing),
    )
    if missed > keep:
        made = made._replace(
            missed_first=line.instants(after_at, 1)[0],
            missed_last=kept.pop(0),
            missed_count=missed - keep,
        )
    return made._replace(instants=json.dumps(kept + coming))


def occurrences(
    expression: str | None,
    timezone: str | None,
    every_ms: int | None,
    anchor_ms: int | None,
    *,
    after_at: int,
    to_at: int,
) -> int:
    """Return how many instants of a schedule lie after one moment up to another.

    None, where it cannot be planned.
    """
    kind = "every" if expression is None else "cron"
    zone = local_zone() if timezone == "local" else timezone
    try:
        timing = _read(kind, expression, zone, every_ms, anchor_ms)
    except ConfigurationError:
        return 0
    return max(0, timing.count(after_at, to_at))


# --- the row's schedule ------------------------------------------------------------


def _timing(request: Request) -> Cron | Every:
    if request.expression is None:
        return _read("every", None, None, request.every_ms, request.anchor_ms)
    zone = request.timezone
    # Looked up each time: the name behind "local" may change, and is not a key to keep.
    name = local_zone() if zone == "local" else zone
    return _read("cron", request.expression, name, None, None)


# Typed, because 60000.0 is equal to 60000 but no number of milliseconds.
_read = functools.lru_cache(maxsize=4096, typed=True)(from_row)


@functools.lru_cache(maxsize=4096)
def _sentence(timing: Cron | Every) -> str:
    return timing.sentence()


# --- the clock that has gone back --------------------------------------------------


def _line(timing: Cron | Every, request: Request) -> Cron | Every | _Again:
    steps = request.clock_steps
    if steps == 0 or not timing.follows_elapsed_time:
        return timing
    if not 0 < steps <= _MOST_CLOCK_STEPS:
        raise ConfigurationError(
            f"clock_steps={steps} is out of range; set it to 0 if the clock is right"
        )
    if request.after_at >= request.high_at:
        # What was seen before is over, also what would lie just behind it when moved.
        return timing
    return _Again(timing, min(request.high_at, LAST_MS - steps), steps)


@attrs.frozen
class _Again:
    """A schedule that goes on in time which it has seen before, up to `high_at`.

    There, each instant is `steps` milliseconds later, since none may come twice. Where
    that is a whole interval, some of them fall together with those after `high_at`.
    """

    timing: Cron | Every
    high_at: int
    steps: int

    def instants(self, after_ms: int, n: int) -> list[int]:
        """Return the next *n* instants, as moved, strictly after *after_ms*."""
        moved = self._moved(self.timing.instants(after_ms - self.steps, n))
        others = self.timing.instants(max(after_ms, self.high_at), n)
        return sorted({*moved, *others})[:n]

    def newest(self, after_ms: int, to_ms: int, n: int) -> list[int]:
        """Return the last *n* instants, as moved, after one moment up to another."""
        seen_to = min(to_ms - self.steps, self.high_at)
        moved = self._moved(self.timing.newest(after_ms - self.steps, seen_to, n))
        others = self.timing.newest(max(after_ms, self.high_at), to_ms, n)
        return sorted({*moved, *others})[-n:]

    def count(self, after_ms: int, to_ms: int) -> int:
        """Return how many instants, as moved, lie after one moment up to another."""
        seen_to = min(to_ms - self.steps, self.high_at)
        new_after = max(after_ms, self.high_at)
        both_to = min(to_ms, self.high_at + self.steps)
        moved = self._moved(self._listed(new_after - self.steps, both_to - self.steps))
        return (
            self.timing.count(after_ms - self.steps, seen_to)
            + self.timing.count(new_after, to_ms)
            - len({*moved} & {*self._listed(new_after, both_to)})
        )

    def _moved(self, instants: list[int]) -> list[int]:
        return [at + self.steps for at in instants if at <= self.high_at]

    def _listed(self, after_ms: int, to_ms: int) -> list[int]:
        return self.timing.instants(after_ms, self.timing.count(after_ms, to_ms))
