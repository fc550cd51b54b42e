"""How a figure is taken: rounds, pairs, medians.

A workload measures two things right after each other: litejobs, and a reference. The
ratio is taken within each pair and only then its median, so a neighbour on the machine
that slows one half of a pair down slows the other too. Which half is first alternates.
"""

from __future__ import annotations

import math
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
    threads: int = 3_200  # of sixteen threads together
    bulk: int = 100_000
    drain: int = 20_000
    keyed: int = 5_000
    keys: int = 250  # of which each lets one job run
    retries: int = 4_000  # three attempts each
    rules: int = 1_000  # ten attempts each
    flow: int = 3_000  # four steps each
    latency: int = 200
    other: int = 100
    other_seconds: float = 1  # for which the runner was idle before each of them
    sleeps: int = 200
    idle: float = 8  # seconds
    wear: int = 500
    memory: int = 1_000_000
    finished: int = 1_000_000
    huge: int = 10_000_000  # finished ones, too
    future: int = 1_000_000
    behind: int = 100_000
    large_single: int = 1_000
    large_drain: int = 16_000
    large_claim: int = 200
    large_latency: int = 100
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
    commands: int = 3_000
    tests: int = 50
    placed: int = 3_000
    burned: int = 100
    cancelled: int = 50
    simulated_minutes: int = 7 * 24 * 60


QUICK = Sizes(
    single=50,
    threads=800,
    bulk=10_000,
    drain=4_000,
    keyed=1_000,
    keys=50,
    retries=500,
    rules=150,
    flow=400,
    latency=20,
    other=5,
    other_seconds=0.3,
    idle=1,
    wear=50,
    memory=20_000,
    finished=50_000,
    huge=100_000,
    future=50_000,
    behind=5_000,
    large_single=300,
    large_drain=2_000,
    large_claim=50,
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
    commands=50,
    tests=10,
    placed=500,
    burned=40,
    cancelled=10,
    simulated_minutes=8 * 60,
)


@attrs.frozen(kw_only=True)
class Bar:
    """What a figure has to reach with this durability: its value, or its ratio."""

    of: Literal["value", "ratio"]
    limit: float
    durability: Durability = "full"


@attrs.frozen(kw_only=True)
class Figure:
    """One number that a workload measures. A unit with "/s" is better when higher.

    Of its bars it has to reach all that are for the durability it was measured with.
    """

    name: str
    unit: str
    bars: tuple[Bar, ...] = ()

    @property
    def higher_is_better(self) -> bool:
        """Rates are, times are not."""
        return self.unit.endswith("/s")

    def speed(self, subject: float, reference: float) -> float:
        """How fast the subject is for each 1.0 of the reference; more is better."""
        if subject == reference:
            return 1.0  # also where both are nothing
        fast, slow = (
            (subject, reference) if self.higher_is_better else (reference, subject)
        )
        return fast / slow if slow else math.inf

    def reaches(self, bar: Bar, value: float, ratio: float) -> bool:
        """Whether this bar is reached."""
        if bar.of == "ratio":
            return ratio >= bar.limit
        return value >= bar.limit if self.higher_is_better else value <= bar.limit

    def text(self, bar: Bar) -> str:
        """The bar in words."""
        if bar.of == "ratio":
            return f"ratio ≥ {bar.limit:g}"
        sign = "≥" if self.higher_is_better else "≤"
        return f"{sign} {number(bar.limit)} {self.unit}"


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
    most_rounds: int | None = None  # where one takes long
    durabilities: tuple[Durability, ...] = ("full", "fast")  # those that it tells apart
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
    def bars(self) -> list[tuple[str, bool]]:
        """Each bar for this durability in words, and whether it is reached."""
        figure = self.figure
        return [
            (figure.text(bar), figure.reaches(bar, self.value, self.ratio))
            for bar in figure.bars
            if bar.durability == self.durability
        ]

    @property
    def reached(self) -> bool | None:
        """Whether all bars are reached; None where there is none."""
        bars = self.bars
        return all(reached for _, reached in bars) if bars else None

    def document(self) -> dict[str, Any]:
        """Everything about the figure, for the JSON file."""
        ratio = self.ratio
        return {
            "workload": self.workload.name,
            "figure": self.figure.name,
            "unit": self.figure.unit,
            "durability": self.durability,
            "value": self.value,
            "reference_is": self.workload.reference_is,
            "reference": self.reference_value,
            "ratio": ratio if math.isfinite(ratio) else None,
            "bars": [{"bar": text, "reached": reached} for text, reached in self.bars],
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
    """Every workload has run *rounds* times with each durability, interleaved.

    With those of the *durabilities* that it tells apart, and if one of its rounds takes
    long, not so often.
    """
    for workload in workloads:
        if workload.prepare is not None:
            tell(f"{workload.name}: preparing")
            workload.prepare(folder, sizes)
    results = {
        (workload.name, figure.name, durability): Result(workload, figure, durability)
        for workload in workloads
        for figure in workload.figures
        for durability in durabilities
        if durability in workload.durabilities
    }
    for turn in range(rounds):
        for workload in workloads:
            if workload.most_rounds is not None and turn >= workload.most_rounds:
                continue
            for durability in durabilities:
                if durability not in workload.durabilities:
                    continue
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
    """The middle, and what one in twenty and one in a hundred exceed, in ms."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p50": statistics.median(ordered) * 1000,
        "p95": ordered[min(last, int(len(ordered) * 0.95))] * 1000,
        "p99": ordered[min(last, int(len(ordered) * 0.99))] * 1000,
    }


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


def rates(*bars: Bar, of: str = "job") -> tuple[Figure, Figure]:
    """The figures of a workload that does many jobs, or steps: bars are for the first.

    The second is the time of the processor in this process. It knows little of the disk
    and of what else runs on the machine, so with "fast" it is the one to tune by.
    """
    return (
        Figure(name="rate", unit=f"{of}s/s", bars=bars),
        Figure(name="cpu", unit=f"µs/{of}"),
    )


def number(value: float) -> str:
    """With thousands separators, and three digits that matter."""
    if value >= 100 or value == 0:
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
    reached = {True: "reached", False: "MISSED"}
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
                "; ".join(f"{text}: {reached[is_]}" for text, is_ in result.bars),
            )
            for result in results
        ),
        left=3,
    )  # fmt: skip
