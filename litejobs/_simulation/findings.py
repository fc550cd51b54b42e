"""What a simulation has shown, and how that is read from the copy."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import attrs

from litejobs._definitions.milliseconds import from_ms, read_instant
from litejobs._simulation.attempts import TaskAssumption
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.statements import queries

if TYPE_CHECKING:
    import os

    import apsw

    from litejobs._simulation.comparison import Comparison
    from litejobs._simulation.engine import Begun, Went

MOST_PARTS = 60
_PARTS = (  # ms, that divide an hour or a day, or are made of days
    *(1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 900_000, 1_800_000),
    *(3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000),
    *(604_800_000, 2_592_000_000, 31_536_000_000, 315_360_000_000),
)


@attrs.frozen(kw_only=True)
class SimulatedPart:
    """What happens in one part of the time, which begins `at`.

    `started` attempts begin, `ok` and `failed` ones end (in an error, out of time, or
    with their process), `retried` ones will be followed by another; jobs are
    `completed`, `dead_lettered`, `expired` or `cancelled`. At most so many run at once.
    """

    at: dt.datetime
    started: int
    ok: int
    failed: int
    retried: int
    completed: int
    dead_lettered: int
    expired: int
    cancelled: int
    running: int


@attrs.frozen(kw_only=True)
class SimulatedQueue:
    """How many jobs are in line in a queue: the most in each part, and in all."""

    name: str
    peak: int
    peak_at: dt.datetime | None
    at_end: int
    depths: list[int]


@attrs.frozen(kw_only=True)
class EndedBadly:
    """So many jobs of a task and a queue end in this state, and for this reason."""

    task: str
    queue: str
    state: str
    stopped_by: str | None
    jobs: int
    first_at: dt.datetime
    last_at: dt.datetime


@attrs.frozen(kw_only=True)
class EndedJob:
    """A job that is given up, or expires, with the last error that it met."""

    job_id: int
    task: str
    queue: str
    schedule: str | None
    state: str
    stopped_by: str | None
    finished_at: dt.datetime
    attempts: int
    error_type: str | None
    error_code: str | None


@attrs.frozen(kw_only=True)
class Overlap:
    """A schedule that comes round while a job of an earlier instant has not ended.

    That is so `overlaps` times, first at `first_at`; the earlier job needs up to
    `longest_ms` more then. `skipped` instants have no job for that reason, as its
    `overlap` says ("allow", "skip", "queue", "cancel_running").
    """

    schedule: str
    overlap: str
    overlaps: int
    first_at: dt.datetime | None
    longest_ms: int | None
    skipped: int


@attrs.frozen(kw_only=True)
class Collision:
    """Schedules that come round at the same instant, how often, and when first."""

    schedules: list[str]
    times: int
    first_at: dt.datetime


@attrs.frozen(kw_only=True)
class LimitUse:
    """How far a limit of a queue or a key is used.

    With `per_ms` None it says how many run at once, of which `used` were the most;
    else how many may begin in so many ms, and `used` have begun in all. For `full_ms`
    there was nothing left of it, first at `first_full_at`.
    """

    kind: str
    name: str
    most: int
    per_ms: int | None
    used: int
    full_ms: int
    first_full_at: dt.datetime | None


@attrs.frozen(kw_only=True)
class BudgetUse:
    """How far retry budgets are used: by `jobs` of the task that had to wait.

    `most_used` is the largest part of a budget that one of them has waited, 1.0 all of
    it; `exhausted` jobs were given up for that.
    """

    task: str
    jobs: int
    most_used: float
    exhausted: int


@attrs.frozen(kw_only=True)
class CircuitUse:
    """A circuit that opens so many times, first at `first_at`."""

    circuit: str
    times: int
    first_at: dt.datetime


@attrs.frozen(kw_only=True)
class StillWaiting:
    """What so many jobs wait for at the end, beside their time.

    The codes are those of `jobs.why`, with the object that stands in the way.
    """

    code: str
    object: str | None
    jobs: int


@attrs.frozen(kw_only=True)
class Totals:
    """What happens in all of the time; the words are those of `SimulatedPart`.

    `timeouts` and `crashes` are among those that `failed`. `peak_running` is how many
    run at once at most, and `busy` which part of the time of the threads is used.
    """

    started: int
    ok: int
    failed: int
    timeouts: int
    crashes: int
    retried: int
    completed: int
    dead_lettered: int
    expired: int
    cancelled: int
    peak_running: int
    peak_running_at: dt.datetime | None
    busy: float


@attrs.frozen(kw_only=True)
class Simulation:
    """What would happen in a file from `from_at` up to `until_at`.

    It was simulated up to `reached_at`; `complete` is False where that is earlier,
    since as many attempts had begun as were allowed. `timeline` and the depths of the
    `queues` have a number for each part of `part_ms`. `notes` are sentences about what
    is not as it would be.
    """

    path: str
    label: str
    seed: int
    threads: int
    from_at: dt.datetime
    until_at: dt.datetime
    reached_at: dt.datetime
    complete: bool
    part_ms: int
    totals: Totals
    timeline: list[SimulatedPart] = attrs.field(repr=False)
    queues: list[SimulatedQueue] = attrs.field(repr=False)
    unfinished: dict[str, int]
    ended_badly: list[EndedBadly] = attrs.field(repr=False)
    ended_first: list[EndedJob] = attrs.field(repr=False)
    overlaps: list[Overlap] = attrs.field(repr=False)
    collisions: list[Collision] = attrs.field(repr=False)
    limits: list[LimitUse] = attrs.field(repr=False)
    budgets: list[BudgetUse] = attrs.field(repr=False)
    circuits: list[CircuitUse] = attrs.field(repr=False)
    waiting: list[StillWaiting] = attrs.field(repr=False)
    assumptions: list[TaskAssumption] = attrs.field(repr=False)
    notes: list[str]
    events: list[dict[str, Any]] | None = attrs.field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values: instants are ISO 8601 in UTC."""
        found: dict[str, Any] = attrs.asdict(self, value_serializer=_plain)
        return found

    def to_json(self) -> str:
        """Return `to_dict` as JSON on one line."""
        return json.dumps(self.to_dict())

    def compare(self, *others: Simulation) -> Comparison:
        """Put this and *others* side by side, measure by measure."""
        from litejobs._simulation.comparison import Comparison

        return Comparison.of(self, *others)

    def plot(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Draw it as a picture: *path* ends in .svg, .png or .pdf.

        That needs matplotlib: `pip install "litejobs[plot]"`.

        Raises:
            ConfigurationError: It is not installed, or makes no such picture.
            FileRefused: The file cannot be written, or is there and is not to be
                replaced.
        """
        from litejobs._simulation.picture import draw

        draw([self], path, overwrite=overwrite)


def _plain(_: Any, __: Any, value: Any) -> Any:
    if isinstance(value, dt.datetime):
        text = value.astimezone(dt.UTC).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    return value


def part_of(span_ms: int, most: int = MOST_PARTS) -> int:
    """The length of parts of which there are no more in that time, in ms."""
    for part in _PARTS:
        if span_ms <= part * most:
            return part
    return _PARTS[-1]


# Reading ------------------------------------------------------------------------------


class Findings:
    """Reads a copy to which all has happened."""

    def __init__(
        self, db: apsw.Connection, begun: Begun, went: Went, part_ms: int, limit: int
    ) -> None:
        self._db = db
        self._asked = {
            "start": begun.start,
            "until": went.reached,
            "part": part_ms,
            "after_job": begun.after_job,
            "after_attempt": begun.after_attempt,
            "after_id": begun.after_id,
            "open": json.dumps(begun.open_attempts),
            "running": len(begun.open_attempts),
            "depths": json.dumps(begun.depths),
            "limit": limit,
        }
        self._threads = begun.threads
        self._part = part_ms

    def all(self) -> dict[str, Any]:
        """What a `Simulation` is made of, beside what it was told."""
        levels = self._rows("simulated_levels")
        running = [each for each in levels if each["queue"] is None]
        timeline = self._timeline(running)
        return {
            "timeline": timeline,
            "totals": self._totals(timeline, running),
            "queues": self._queues(levels),
            "unfinished": {
                row["state"]: row["jobs"] for row in self._rows("simulated_at_end")
            },
            "ended_badly": self._made(EndedBadly, "simulated_ended"),
            "ended_first": self._made(EndedJob, "simulated_ended_first"),
            "overlaps": self._made(Overlap, "simulated_overlaps"),
            "collisions": self._collisions(),
            "limits": self._limits(),
            "budgets": self._made(BudgetUse, "simulated_budgets"),
            "circuits": self._made(CircuitUse, "simulated_circuits"),
            "waiting": self._made(StillWaiting, "simulated_waiting"),
        }

    def events(self) -> list[dict[str, Any]]:
        """What is logged of it, in order, as `litejobs_event` has it."""
        return self._rows("simulated_events")

    def _timeline(self, running: list[dict[str, Any]]) -> list[SimulatedPart]:
        """A part for each that there is, also where nothing happens."""
        found = {row["at"]: row for row in self._rows("simulated_timeline")}
        nothing = dict.fromkeys(attrs.fields_dict(SimulatedPart), 0)
        parts = []
        for level in running:
            row = nothing | found.get(level["part_at"], {})
            # One that takes less than a millisecond has run, too.
            row["running"] = max(level["level"], min(1, row["started"]))
            parts.append(SimulatedPart(**row | {"at": from_ms(level["part_at"])}))
        return parts

    def _totals(
        self, timeline: list[SimulatedPart], running: list[dict[str, Any]]
    ) -> Totals:
        names = set(attrs.fields_dict(SimulatedPart)) - {"at", "running"}
        sums = {name: sum(getattr(part, name) for part in timeline) for name in names}
        peak = max(running, key=lambda each: each["level"], default=None)
        [more] = self._rows("simulated_spent")
        span = max(1, self._asked["until"] - self._asked["start"])  # type: ignore[operator]
        return Totals(
            **sums,
            timeouts=more["timeouts"],
            crashes=more["crashes"],
            peak_running=max((part.running for part in timeline), default=0),
            peak_running_at=from_ms(peak["at"]) if peak and peak["level"] else None,
            busy=round(more["ran_ms"] / (span * max(1, self._threads)), 4),
        )

    def _queues(self, levels: list[dict[str, Any]]) -> list[SimulatedQueue]:
        by_name: dict[str, list[dict[str, Any]]] = {}
        for row in levels:
            if row["queue"] is not None:
                by_name.setdefault(row["queue"], []).append(row)
        at_end = {row["queue"]: row["depth"] for row in self._rows("simulated_depths")}
        found = []
        for name, rows in by_name.items():
            peak = max(rows, key=lambda each: each["level"])
            found.append(
                SimulatedQueue(
                    name=name,
                    peak=peak["level"],
                    peak_at=from_ms(peak["at"]) if peak["level"] else None,
                    at_end=at_end.get(name, 0),
                    depths=[row["level"] for row in rows],
                )
            )
        found.sort(key=lambda each: (-each.peak, each.name))
        return found

    def _collisions(self) -> list[Collision]:
        return [
            Collision(
                schedules=json.loads(row["schedules"]),
                times=row["times"],
                first_at=from_ms(row["first_at"]),
            )
            for row in self._rows("simulated_collisions")
        ]

    def _limits(self) -> list[LimitUse]:
        rows = self._rows("simulated_limits") + self._rows("simulated_rates")
        return [LimitUse(**_moments(row)) for row in rows]

    def _made(self, kind: Any, query: str) -> list[Any]:
        return [kind(**_moments(row)) for row in self._rows(query)]

    def _rows(self, query: str) -> list[dict[str, Any]]:
        names, rows = fetch_lossy(self._db, queries()[query], self._asked)
        return [dict(zip(names, row, strict=True)) for row in rows]


def _moments(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: read_instant(value) if name.endswith("_at") else value
        for name, value in row.items()
    }
