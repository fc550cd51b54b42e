"""How a figure is taken: rounds, pairs, medians.

A workload measures two things right after each other: litejobs, and a reference. The
ratio is taken within each pair and only then its median, so a neighbour on the machine
that slows one half of a pair down slows the other too. Which half is first alternates.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

Durability = Literal["full", "fast"]
Measured = dict[str, float]


@attrs.frozen(kw_only=True)
class Sizes:
    """How many jobs there are in each half of a pair."""

    single: int = 200
    bulk: int = 100_000
    drain: int = 20_000
    latency: int = 40
    other: int = 30
    finished: int = 1_000_000
    future: int = 1_000_000
    large_single: int = 200
    large_drain: int = 4_000
    large_latency: int = 40
    profile: int = 10_000
    line: int = 1_000_000
    lanes: int = 100_000
    line_batches: int = 100
    line_singles: int = 400
    line_urgent: int = 10
    schedules: int = 10_000
    often: int = 1_000
    often_seconds: float = 6
    idle_seconds: float = 3
    probes: int = 40


QUICK = Sizes(
    single=50,
    bulk=10_000,
    drain=4_000,
    latency=20,
    other=8,
    finished=50_000,
    future=50_000,
    large_single=100,
    large_drain=2_000,
    large_latency=20,
    profile=2_000,
    line=50_000,
    lanes=5_000,
    line_batches=50,
    line_singles=200,
    line_urgent=5,
    schedules=1_000,
    often=100,
    often_seconds=2,
    idle_seconds=0.5,
    probes=10,
)


@attrs.frozen(kw_only=True)
class Bar:
    """What a figure has to reach with durability "full": its value, or its ratio."""

    of: Literal["value", "ratio"]
    limit: float


@attrs.frozen(kw_only=True)
class Figure:
    """One number that a workload measures. A unit with "/s" is better when higher."""

    name: str
    unit: str
    bar: Bar | None = None

    @property
    def higher_is_better(self) -> bool:
        """Rates are, times are not."""
        return self.unit.endswith("/s")

    def speed(self, subject: float, reference: float) -> float:
        """How fast the subject is for each 1.0 of the reference; more is better."""
        if self.higher_is_better:
            return subject / reference
        return reference / subject

    def reaches(self, value: float, ratio: float) -> bool | None:
        """Whether the bar is reached; None where there is none."""
        if self.bar is None:
            return None
        if self.bar.of == "ratio":
            return ratio >= self.bar.limit
        if self.higher_is_better:
            return value >= self.bar.limit
        return value <= self.bar.limit

    def bar_text(self) -> str:
        """The bar in words."""
        if self.bar is None:
            return ""
        if self.bar.of == "ratio":
            return f"ratio ≥ {self.bar.limit:g}"
        sign = "≥" if self.higher_is_better else "≤"
        return f"{sign} {number(self.bar.limit)} {self.unit}"


# Measures once: the folder of the run, the durability, the sizes. The result has a
# value for each figure of the workload.
Measure = Callable[[Path, Durability, Sizes], Measured]


@attrs.frozen(kw_only=True)
class Workload:
    """Something to measure, with a reference.

    All three functions get the folder of the run; what `prepare` leaves in it, once
    before all rounds, the other two find there.
    """

    name: str
    says: str
    figures: tuple[Figure, ...]
    subject: Measure
    reference: Measure
    reference_is: str = "bare apsw"
    pairs: int = 1  # per round; several short ones where single commits are timed
    prepare: Callable[[Path, Sizes], None] | None = None


@attrs.define
class Result:
    """All rounds of one figure with one durability."""

    workload: Workload
    figure: Figure
    durability: Durability
    subject: list[float] = attrs.Factory(list)
    reference: list[float] = attrs.Factory(list)

    @property
    def value(self) -> float:
        """The median of the subject, in the figure's unit."""
        return statistics.median(self.subject)

    @property
    def reference_value(self) -> float:
        """The median of the reference, in the figure's unit."""
        return statistics.median(self.reference)

    @property
    def ratio(self) -> float:
        """The median of the ratios, each taken within its own round."""
        return statistics.median(
            self.figure.speed(subject, reference)
            for subject, reference in zip(self.subject, self.reference, strict=True)
        )

    @property
    def reached(self) -> bool | None:
        """Whether the bar is reached; None where there is none for this durability."""
        if self.durability != "full":
            return None
        return self.figure.reaches(self.value, self.ratio)

    def document(self) -> dict[str, Any]:
        """Everything about the figure, for the JSON file."""
        return {
            "workload": self.workload.name,
            "figure": self.figure.name,
            "unit": self.figure.unit,
            "durability": self.durability,
            "value": self.value,
            "reference_is": self.workload.reference_is,
            "reference": self.reference_value,
            "ratio": self.ratio,
            "bar": self.figure.bar_text() if self.durability == "full" else "",
            "reached": self.reached,
            "rounds": self.subject,
            "reference_rounds": self.reference,
        }


def measure(
    workloads: Sequence[Workload],
    folder: Path,
    sizes: Sizes,
    rounds: int,
    *,
    durabilities: Sequence[Durability] = ("full", "fast"),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Every workload has run *rounds* times with each durability, interleaved."""
    for workload in workloads:
        if workload.prepare is not None:
            tell(f"{workload.name}: preparing")
            workload.prepare(folder, sizes)
    results = {
        (workload.name, figure.name, durability): Result(workload, figure, durability)
        for workload in workloads
        for figure in workload.figures
        for durability in durabilities
    }
    for turn in range(rounds):
        for workload in workloads:
            for durability in durabilities:
                tell(f"round {turn + 1} of {rounds}: {workload.name}, {durability}")
                for at in range(workload.pairs):
                    subject, reference = _pair(
                        workload, folder, durability, sizes, reversed_=(turn + at) % 2
                    )
                    for figure in workload.figures:
                        result = results[workload.name, figure.name, durability]
                        result.subject.append(subject[figure.name])
                        result.reference.append(reference[figure.name])
    return list(results.values())


def _pair(
    workload: Workload,
    folder: Path,
    durability: Durability,
    sizes: Sizes,
    *,
    reversed_: int,
) -> tuple[Measured, Measured]:
    if reversed_:
        reference = workload.reference(folder, durability, sizes)
        return workload.subject(folder, durability, sizes), reference
    subject = workload.subject(folder, durability, sizes)
    return subject, workload.reference(folder, durability, sizes)


def quantiles(seconds: Sequence[float]) -> Measured:
    """The middle, and what one in twenty exceeds, in ms."""
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {"p50": statistics.median(ordered) * 1000, "p95": late * 1000}


class Clock:
    """Elapsed time and this process's own time since it was made."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._cpu = time.process_time()

    def measured(self, jobs: int) -> Measured:
        """The figures of `rates`, for so many jobs."""
        seconds = time.perf_counter() - self._begun
        cpu = time.process_time() - self._cpu
        # A clock as coarse as on Windows may not have moved during a few jobs.
        return {"rate": jobs / seconds, "cpu": max(cpu, 1e-7) / jobs * 1e6}


def rates(bar: Bar) -> tuple[Figure, Figure]:
    """The figures of a workload that does many jobs: the bar is for the first.

    The second is the time of the processor in this process. It knows little of the disk
    and of what else runs on the machine, so with "fast" it is the one to tune by.
    """
    return (
        Figure(name="rate", unit="jobs/s", bar=bar),
        Figure(name="cpu", unit="µs/job"),
    )


def number(value: float) -> str:
    """With thousands separators, and three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Aligned lines; the first *left* columns and the last are text, not numbers."""
    everything = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < left or at == last else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    )


def report(results: Iterable[Result]) -> str:
    """One line per figure and durability."""
    reached = {True: "reached", False: "MISSED", None: ""}
    return table(
        ("workload", "figure", "durability", "litejobs", "reference", "ratio", "unit",
         "reference is", "bar"),
        (
            (
                result.workload.name,
                result.figure.name,
                result.durability,
                number(result.value),
                number(result.reference_value),
                f"{result.ratio:.2f}",
                result.figure.unit,
                result.workload.reference_is,
                f"{result.figure.bar_text()}: {reached[result.reached]}"
                if result.reached is not None
                else "",
            )
            for result in results
        ),
        left=3,
    )  # fmt: skip
