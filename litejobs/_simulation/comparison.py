"""Simulations side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import attrs

from litejobs._simulation.findings import Simulation

if TYPE_CHECKING:
    import os


@attrs.frozen(kw_only=True)
class Measure:
    """One thing that was measured, and its value in each simulation, in order.

    `unit` is "" for what is counted, "ms" for durations, "part" for parts of a whole.
    None stands for what there is not in that simulation.
    """

    name: str
    unit: str
    values: list[float | int | None]

    @property
    def differs(self) -> bool:
        """Whether it is not the same in all of them."""
        return len(set(self.values)) > 1


@attrs.frozen(kw_only=True)
class Comparison:
    """What was measured in several simulations of the same file."""

    labels: list[str]
    measures: list[Measure]
    simulations: list[Simulation] = attrs.field(repr=False)

    @classmethod
    def of(cls, *simulations: Simulation) -> Self:
        """All measures, in the order of their importance."""
        labels = [
            each.label or f"simulation {number}"
            for number, each in enumerate(simulations, 1)
        ]
        return cls(
            labels=labels, measures=_measures(simulations), simulations=[*simulations]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the labels, the measures and the simulations as plain values."""
        return {
            "labels": self.labels,
            "measures": [
                attrs.asdict(each) | {"differs": each.differs} for each in self.measures
            ],
            "simulations": [each.to_dict() for each in self.simulations],
        }

    def plot(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Draw the simulations side by side; see `Simulation.plot`."""
        from litejobs._simulation.picture import draw

        draw(self.simulations, path, overwrite=overwrite)


def _measures(simulations: tuple[Simulation, ...]) -> list[Measure]:
    totals = [each.totals for each in simulations]
    made = [
        Measure(name=name, unit=unit, values=[getattr(each, field) for each in totals])
        for name, field, unit in _TOTALS
    ]
    for name, unit, part in _BY_NAME:
        of_each = [part(each) for each in simulations]
        names = dict.fromkeys(key for found in of_each for key in found)
        made += [
            Measure(
                name=name.format(key),
                unit=unit,
                values=[found.get(key) for found in of_each],
            )
            for key in names
        ]
    return made


_TOTALS = (
    ("attempts started", "started", ""),
    ("attempts ok", "ok", ""),
    ("attempts failed", "failed", ""),
    ("… out of time", "timeouts", ""),
    ("… crashed", "crashes", ""),
    ("retries", "retried", ""),
    ("jobs completed", "completed", ""),
    ("jobs dead-lettered", "dead_lettered", ""),
    ("jobs expired", "expired", ""),
    ("jobs cancelled", "cancelled", ""),
    ("most at once", "peak_running", ""),
    ("time of the threads used", "busy", "part"),
)


def _unfinished(each: Simulation) -> dict[str, float]:
    return dict(each.unfinished)


def _depths(each: Simulation) -> dict[str, float]:
    return {queue.name: queue.peak for queue in each.queues}


def _overlaps(each: Simulation) -> dict[str, float]:
    return {one.schedule: one.overlaps + one.skipped for one in each.overlaps}


def _full(each: Simulation) -> dict[str, float]:
    return {f"{one.kind} {one.name}": one.full_ms for one in each.limits}


def _budgets(each: Simulation) -> dict[str, float]:
    return {one.task: one.most_used for one in each.budgets}


def _circuits(each: Simulation) -> dict[str, float]:
    return {one.circuit: one.times for one in each.circuits}


_BY_NAME = (
    ("{} at the end", "", _unfinished),
    ("most in line in {}", "", _depths),
    ("{} overlaps", "", _overlaps),
    ("{} full for", "ms", _full),
    ("retry budget of {} used", "part", _budgets),
    ("circuit {} opens", "", _circuits),
)
