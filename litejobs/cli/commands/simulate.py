"""Find out what would happen until some later instant.

With `--json`:

    simulate                      {"simulation": {…, as `Simulation.to_dict` has it},
                                   "warnings": [about the policies, …]}
    simulate --what-if …          {"comparison": {"labels": […], "measures": [{"name":
                                   …, "unit": …, "values": […], "differs": …}, …],
                                   "simulations": […]}, "warnings": […]}
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from litejobs._process.sizes import SIZES
from litejobs.cli import printing
from litejobs.cli.commands.stats import sparkline
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import path_given
from litejobs.cli.file.unchecked import open_unchecked, refusals
from litejobs.cli.input.types import Count, Duration, Instant
from litejobs.cli.signals import tidy

if TYPE_CHECKING:
    import apsw

    from litejobs._simulation.comparison import Comparison, Measure
    from litejobs._simulation.findings import SimulatedPart, Simulation
    from litejobs._simulation.simulate import WhatIf

STEPS = 1_000  # of the progress bar
MOST_ROWS = 16  # of the timeline


class _Until(Instant):
    """`+7d`, by the clock of the file, or an instant."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """A duration as a text, or an aware datetime."""
        from litejobs.cli.input.datetimes import looks_like_one

        if not isinstance(value, str) or looks_like_one(value):
            return super().convert(value, param, ctx)
        return _DURATION.convert(value.strip().removeprefix("+"), param, ctx)


_DURATION = Duration()


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db simulate --until +7d
  litejobs --db app.db simulate --until tomorrow --without queue=mail --threads 2
  litejobs --db app.db simulate --assume fail --task-duration 5s
  litejobs --db app.db simulate --what-if patient.toml --plot week.svg
  litejobs --db app.db simulate --what-if a.toml --what-if b.toml --json""",
    help="""Find out what will happen in the file, or would with other policies.

    A copy of the file, with a clock of its own, goes from instant to instant; what
    happens there is decided by the triggers that decide for the real jobs. The file is
    not changed, and no task is run: how attempts end, and how long they take, is drawn
    from what was recorded, or assumed. One seed always draws the same.
    """,
)
@click.option(
    "--until",
    type=_Until(),
    default="+7d",
    show_default=True,
    help="Up to when: +7d from now, or an instant.",
)
@click.option(
    "--assume",
    type=click.Choice(["history", "ok", "fail"]),
    default="history",
    show_default=True,
    help="How attempts end: drawn from what was recorded of their task, or all so.",
)
@click.option(
    "--task-duration",
    metavar="history|DURATION",
    default="history",
    show_default=True,
    help="How long attempts run: drawn in the same way, or all so long, as 5s.",
)
@click.option(
    "--what-if",
    "what_ifs",
    metavar="FILE",
    multiple=True,
    help="A policy (TOML, JSON) that all tasks would have, or [tasks.NAME] with one "
    "each, and threads = N. It is compared with what is; several with each other.",
)
@click.option(
    "--without",
    metavar="KIND=NAME",
    multiple=True,
    help="Leave out what is of queue=NAME, task=NAME or schedule=NAME.",
)
@click.option(
    "--threads",
    type=Count(1, 1_000_000),
    help="How many attempts run at once; if not given, as many as the runner has "
    "that lives, or 8.",
)
@click.option(
    "--seed",
    type=Count(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Another number draws others.",
)
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=1_000_000,
    show_default=True,
    help="How many attempts at most.",
)
@click.option(
    "--show",
    type=Count(1, 100_000),
    default=20,
    show_default=True,
    help="How many jobs and others of a kind to list.",
)
@click.option(
    "--plot", metavar="FILE", help="Draw it, too: FILE ends in .svg, .png or .pdf."
)
@click.option("--events", is_flag=True, help="With --json: all that happens, in order.")
@printing.json_option
def simulate(
    *,
    until: Any,
    assume: str,
    task_duration: str,
    what_ifs: tuple[str, ...],
    without: tuple[str, ...],
    threads: int | None,
    seed: int,
    limit: int,
    show: int,
    plot: str | None,
    events: bool,
    as_json: bool,
) -> None:
    from litejobs._simulation import picture
    from litejobs._simulation.simulate import Question, WhatIf
    from litejobs.errors import ConfigurationError

    if events and not as_json:
        raise click.UsageError("--events is for programs; give --json as well")
    cases, warned = _cases(what_ifs)
    question = Question(
        until=until,
        outcomes=assume,
        task_duration=(
            task_duration
            if task_duration == "history"
            else _DURATION.convert(task_duration, None, None)
        ),
        without=without,
        threads=threads,
        seed=seed,
        limit=limit,
        listed=show,
        events=events,
    )
    try:
        if plot is not None:
            picture.check_kind(plot)
            picture.check_installed()
        found = _simulated(question, cases or [WhatIf()])
        if plot is not None:
            _draw(found, plot)
    except ConfigurationError as error:
        raise Failure(str(error)) from error
    compared = found[0].compare(*found[1:]) if len(found) > 1 else None
    if as_json:
        content: dict[str, Any] = (
            {"simulation": found[0].to_dict()}
            if compared is None
            else {"comparison": compared.to_dict()}
        )
        printing.document({**content, "warnings": warned})
        return
    if compared is None:
        _show(found[0])
    else:
        _show_comparison(compared)
    for sentence in warned:
        printing.remark(sentence)
    if plot is not None:
        printing.remark(f"the picture is in {plot}")


def _draw(found: Sequence[Simulation], path: str) -> None:
    from litejobs._simulation import picture
    from litejobs.errors import FileRefused

    try:
        picture.draw(found, path)
    except FileRefused as error:
        # Of the picture: the file that --db names is all right.
        raise Failure(str(error)) from error


def _cases(paths: Sequence[str]) -> tuple[list[WhatIf], list[str]]:
    """What would be otherwise in each case; one alone is compared with what is."""
    if not paths:
        return [], []
    from litejobs._simulation.simulate import WhatIf
    from litejobs.cli.input.policy_file import cases_in

    cases, warned = [], []
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if len(set(names)) < len(names):
        names = list(paths)
    for path, name in zip(paths, names, strict=True):
        policies, threads, said = cases_in(path)
        cases.append(WhatIf(label=name, policies=policies, threads=threads))
        warned += [f"{name}: {sentence}" for sentence in said]
    if len(cases) == 1:
        cases.insert(0, WhatIf(label="as it is"))
    return cases, warned


def _simulated(question: Any, cases: Sequence[WhatIf]) -> list[Simulation]:
    from litejobs._simulation.copies import Origin
    from litejobs._simulation.simulate import simulated
    from litejobs._storage.runner_lock import runner_lives

    path = path_given()
    with tidy(), refusals(path), contextlib.ExitStack() as stack:
        told = _Progress(stack)
        with open_unchecked(path, shared=True) as file:
            lives = runner_lives(file.real) is not False
        origin = Origin(path=path, reading=lambda: _reading(path))
        return simulated(origin, question, cases, runner_lives=lives, told=told)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[apsw.Connection]:
    """Only as long as it is copied, so that nobody's log grows meanwhile."""
    with open_unchecked(path, shared=True) as file:
        yield file.connection


class _Progress:
    """Says beforehand that it takes long, and shows how far it is, to a person."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._bar: Any = None
        self._begun = False

    def __call__(self, part: float, attempts: int, expected: int) -> None:
        if not self._begun:
            self._begun = True
            self._begin(expected)
        if self._bar is not None:
            self._bar.label = f"simulating, {attempts:,} attempts"
            self._bar.update(max(0, int(part * STEPS) - self._bar.pos))

    def _begin(self, expected: int) -> None:
        from litejobs._simulation.simulate import SECONDS_PER_ATTEMPT

        if expected > SIZES.simulated_untold:
            long = printing.span(expected * SECONDS_PER_ATTEMPT)
            printing.remark(
                f"about {expected:,} attempts are expected, which takes about {long}; "
                "Ctrl-C ends it"
            )
        # None where the stream was closed before the program began.
        if sys.stderr is not None and sys.stderr.isatty():
            bar: Any = click.progressbar(
                length=STEPS, label="simulating, 0 attempts", file=sys.stderr
            )
            self._bar = self._stack.enter_context(bar)


# Showing ------------------------------------------------------------------------------


def _show(found: Simulation) -> None:
    totals = found.totals
    length = printing.span((found.reached_at - found.from_at).total_seconds())
    printing.say(
        f"what would happen in {length}, from {printing.moment(found.from_at)} to "
        f"{printing.moment(found.reached_at)}, with {found.threads} threads"
    )
    _say_incomplete(found)
    part = printing.span(found.part_ms / 1000)
    printing.say(
        f"{totals.started:,} attempts, {totals.peak_running} at once at most, "
        f"{totals.busy:.1%} of the threads' time; each bar is {part}"
    )
    for kind, colour, numbers in (
        ("ok", "green", [each.ok for each in found.timeline]),
        ("failed", "red", [each.failed for each in found.timeline]),
        ("running", "cyan", [each.running for each in found.timeline]),
        ("in line", "yellow", _in_line(found)),
    ):
        _show_bars(kind, colour, numbers)
    _show_timeline(found)
    _show_queues(found)
    _show_ended(found)
    _show_schedules(found)
    _show_limits(found)
    _show_rest(found)
    for note in found.notes:
        printing.remark(note)


def _say_incomplete(found: Simulation) -> None:
    if not found.complete:
        printing.remark(
            f"it ends before {printing.moment(found.until_at)}, since as many attempts "
            "had begun as --limit allows"
        )


def _in_line(found: Simulation) -> list[int]:
    """How many at most in each part, in all queues."""
    depths = [queue.depths for queue in found.queues]
    return [sum(each) for each in zip(*depths, strict=True)] or [0]


def _show_bars(kind: str, colour: str, numbers: Sequence[int]) -> None:
    bars, colours = sparkline(numbers), printing.coloured()
    if colours:
        bars = click.style(bars, fg=colour)
    click.echo(f"{kind:<8} {bars} max {max(numbers):,}", color=colours)


def _show_timeline(found: Simulation) -> None:
    printing.section("timeline")
    names = ("started", "ok", "failed", "retried", "completed")
    bad = ("dead_lettered", "expired", "cancelled")
    rows = list(_grouped(found.timeline))
    shown = [
        *names,
        *(each for each in bad if any(getattr(p, each) for p in found.timeline)),
    ]
    printing.table(
        ("from", *shown, "at once"),
        (
            (
                group[0].at,
                *(sum(getattr(each, name) for each in group) for name in shown),
                max(each.running for each in group),
            )
            for group in rows
        ),
    )


def _grouped(parts: Sequence[SimulatedPart]) -> Iterator[Sequence[SimulatedPart]]:
    """So many of them together that there are not too many rows."""
    from litejobs._simulation.findings import part_of

    if len(parts) == 1:
        yield parts
        return
    length = parts[-1].at - parts[-2].at
    if len(parts) > 2:  # noqa: PLR2004 - the first one may be shorter
        length = parts[2].at - parts[1].at
    span = length * len(parts)
    whole = part_of(int(span.total_seconds() * 1000), MOST_ROWS)
    number = max(1, dt.timedelta(milliseconds=whole) // length)
    begin = 0
    # The first part is short, where it does not begin with an hour or a day.
    for at in range(1, len(parts) + 1):
        if at == len(parts) or (parts[at].at - printing.EPOCH) // length % number == 0:
            yield parts[begin:at]
            begin = at


def _show_queues(found: Simulation) -> None:
    printing.section("jobs in line, by queue")
    printing.table(
        ("queue", "most", "when", "at the end", "over time"),
        (
            (each.name, each.peak, each.peak_at, each.at_end, sparkline(each.depths))
            for each in found.queues
        ),
    )
    if found.unfinished:
        states = ", ".join(
            f"{jobs:,} {state}" for state, jobs in found.unfinished.items()
        )
        printing.say(f"not ended by then: {states}")
    if found.waiting:
        printing.section("what waits at the end, and for what")
        printing.table(
            ("for", "object", "jobs"),
            ((each.code, each.object, each.jobs) for each in found.waiting),
        )


def _show_ended(found: Simulation) -> None:
    if not found.ended_badly:
        return
    printing.section("jobs that do not end well")
    printing.table(
        ("task", "queue", "state", "stopped by", "jobs", "first", "last"),
        (
            (
                each.task,
                each.queue,
                printing.state(each.state),
                each.stopped_by,
                each.jobs,
                each.first_at,
                each.last_at,
            )
            for each in found.ended_badly
        ),
    )
    if not found.ended_first:
        return
    printing.section("the first of them")
    printing.table(
        ("job", "task", "schedule", "state", "stopped by", "when", "attempts", "error"),
        (
            (
                each.job_id,
                each.task,
                each.schedule,
                printing.state(each.state),
                each.stopped_by,
                each.finished_at,
                each.attempts,
                " ".join(filter(None, (each.error_type, each.error_code))) or None,
            )
            for each in found.ended_first
        ),
    )


def _show_schedules(found: Simulation) -> None:
    if found.overlaps:
        printing.section("schedules that overlap themselves")
        printing.table(
            ("schedule", "overlap", "times", "skipped", "first", "by up to"),
            (
                (
                    each.schedule,
                    each.overlap,
                    each.overlaps,
                    each.skipped,
                    each.first_at,
                    _long(each.longest_ms),
                )
                for each in found.overlaps
            ),
        )
    if found.collisions:
        printing.section("schedules that come round at the same instant")
        printing.table(
            ("schedules", "times", "first", "which"),
            (
                (
                    len(each.schedules),
                    each.times,
                    each.first_at,
                    ", ".join(each.schedules),
                )
                for each in found.collisions
            ),
        )


def _show_limits(found: Simulation) -> None:
    if found.limits:
        printing.section("limits and rates")
        printing.table(
            ("of", "name", "allows", "used", "full for", "share", "first full"),
            (
                (
                    each.kind,
                    each.name,
                    f"{each.most} at once"
                    if each.per_ms is None
                    else f"{each.most} in {_long(each.per_ms)}",
                    each.used,
                    _long(each.full_ms) if each.full_ms else None,
                    f"{_share(found, each.full_ms):.1%}",
                    each.first_full_at,
                )
                for each in found.limits
            ),
        )
    if found.budgets:
        printing.section("retry budgets")
        printing.table(
            ("task", "jobs that waited", "most used", "exhausted"),
            (
                (each.task, each.jobs, f"{each.most_used:.0%}", each.exhausted)
                for each in found.budgets
            ),
        )
    if found.circuits:
        printing.section("circuits that open")
        printing.table(
            ("circuit", "times", "first"),
            ((each.circuit, each.times, each.first_at) for each in found.circuits),
        )


def _share(found: Simulation, ms: int) -> float:
    return ms / 1000 / max(0.001, (found.reached_at - found.from_at).total_seconds())


def _show_rest(found: Simulation) -> None:
    if found.assumptions:
        printing.section("what attempts were taken to be")
        printing.table(
            ("task", "attempts", "recorded", "of these failed", "median", "so"),
            (
                (
                    each.task,
                    each.attempts,
                    each.drawn_from,
                    each.failed,
                    _long(each.median_ms),
                    each.says,
                )
                for each in found.assumptions
            ),
        )


def _long(ms: float | None) -> str | None:
    if ms is None:
        return None
    seconds = ms / 1000
    if 1 <= seconds < printing.MINUTE:
        return f"{seconds:.1f} s"
    return printing.span(seconds)


def _show_comparison(compared: Comparison) -> None:
    first = compared.simulations[0]
    length = printing.span((first.until_at - first.from_at).total_seconds())
    printing.say(
        f"what would happen in {length}, from {printing.moment(first.from_at)} to "
        f"{printing.moment(first.until_at)}"
    )
    for label, each in zip(compared.labels, compared.simulations, strict=True):
        _say_incomplete(each)
        printing.section(f"{label} ({each.threads} threads)")
        _show_bars("ok", "green", [part.ok for part in each.timeline])
        _show_bars("failed", "red", [part.failed for part in each.timeline])
        _show_bars("in line", "yellow", _in_line(each))
    printing.section("side by side")
    lines = [
        (each.name, *(_value(each, value) for value in each.values), _difference(each))
        for each in compared.measures
        if any(each.values)
    ]
    titles = ("what", *compared.labels, "difference")
    # Texts, since some are durations; numbers all the same.
    widths = [
        max(len(title), *(len(line[at]) for line in lines)) if lines else 0
        for at, title in enumerate(titles)
    ]
    printing.table(
        titles,
        ((line[0], *map(str.rjust, line[1:], widths[1:])) for line in lines),
    )
    for note in dict.fromkeys(
        note for each in compared.simulations for note in each.notes
    ):
        printing.remark(note)


def _value(measure: Measure, value: float | None) -> str:
    if value is None:
        return "-"
    if measure.unit == "part":
        return f"{value:.1%}"
    return _long(value) or "-" if measure.unit == "ms" else f"{value:,}"


def _difference(measure: Measure) -> str:
    """From the first to the last."""
    first, last = measure.values[0] or 0, measure.values[-1] or 0
    by = _value(measure, abs(last - first))
    if by == _value(measure, 0):
        return "-"
    return ("+" if last > first else "-") + by
