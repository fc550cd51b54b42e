"""A picture of simulations, drawn by matplotlib where that is installed."""

from __future__ import annotations

import datetime as dt
import importlib
import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from litejobs._definitions.milliseconds import duration_text
from litejobs._storage.backup import new_file
from litejobs._values.text import escaped
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._simulation.findings import Simulation

KINDS = (".svg", ".png", ".pdf")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
MOST_QUEUES = 6  # with a line of their own
SEEN_BESIDE = 12  # times as many threads as run at once are not drawn
LONGEST_NAME = 16  # characters, of a queue
ROOM = 1.12  # times the largest value

# Told apart also by those who do not see all colours (Okabe and Ito).
_OK, _RETRIED, _GIVEN_UP, _INK, _FAINT = (
    *("#56b4e9", "#e69f00", "#c0392b"),
    *("#333333", "#d9d9d9"),
)
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d1f", "#555555")
_STYLE = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.edgecolor": "#888888",
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    # The same picture is the same file.
    "svg.hashsalt": "litejobs",
    # Names are text, whatever is in them.
    "text.parse_math": False,
}


def draw(
    simulations: Sequence[Simulation],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = True,
) -> None:
    """The picture of one simulation, or of several side by side, is in the file.

    Raises:
        ConfigurationError: matplotlib is missing, or makes no such picture.
        FileRefused: The file cannot be written, or is not to be replaced.
    """
    kind = check_kind(path)
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure = _figure(simulations)
        with new_file(path, source=simulations[0].path, overwrite=overwrite) as name:
            nothing = {"Date": None} if kind == ".svg" else None
            figure.savefig(name, format=kind[1:], metadata=nothing, dpi=130)


def check_kind(path: str | os.PathLike[str]) -> str:
    """How the name ends: `.svg`, say.

    Raises:
        ConfigurationError: It does not name a picture.
    """
    kind = os.path.splitext(os.fspath(path))[1].lower()
    if kind not in KINDS:
        raise ConfigurationError(
            f"{os.fspath(path)!r} does not say which kind of picture it is; let its "
            "name end in .svg, .png or .pdf"
        )
    return kind


def check_installed() -> None:
    """Raise ConfigurationError where there is nothing that draws."""
    _matplotlib()


def _matplotlib() -> Any:
    try:
        found = importlib.import_module("matplotlib")
        importlib.import_module("matplotlib.figure")
        importlib.import_module("matplotlib.dates")
    except ImportError as error:
        raise ConfigurationError(
            "pictures are drawn by matplotlib, which is not installed here; install "
            'it: pip install "litejobs[plot]"'
        ) from error
    return found


def _figure(simulations: Sequence[Simulation]) -> Any:
    matplotlib = _matplotlib()
    columns = len(simulations)
    bad = any(each.totals.dead_lettered or each.totals.expired for each in simulations)
    panels = [_attempts, _running, _depths, *([_given_up] if bad else [])]
    figure = matplotlib.figure.Figure(
        figsize=(9.5 if columns == 1 else 6.2 * columns, 1.0 + 2.3 * len(panels)),
        layout="constrained",
    )
    axes = figure.subplots(
        len(panels), columns, sharex="col", sharey="row", squeeze=False
    )
    for row, panel in enumerate(panels):
        tops = [
            panel(axes[row][column], each) for column, each in enumerate(simulations)
        ]
        for each_axes in axes[row]:
            each_axes.set_ylim(0, max(1, *tops) * ROOM)
            each_axes.yaxis.get_major_locator().set_params(integer=True)
    for column, each in enumerate(simulations):
        bottom = axes[-1][column]
        locator = matplotlib.dates.AutoDateLocator(tz=dt.UTC, minticks=4, maxticks=9)
        bottom.xaxis.set_major_locator(locator)
        bottom.xaxis.set_major_formatter(
            matplotlib.dates.ConciseDateFormatter(locator, tz=dt.UTC)
        )
        bottom.set_xlim(_days(each.from_at), _days(each.until_at))
        bottom.set_xlabel("UTC")
    if columns == 1:
        figure.suptitle(_title(simulations[0]), x=0.01, ha="left", fontsize=12)
    else:
        for column, each in enumerate(simulations):
            top = axes[0][column]
            top.annotate(
                _title(each),
                (0, 1),
                xycoords="axes fraction",
                xytext=(0, 44),
                textcoords="offset points",
                fontsize=12,
                annotation_clip=False,
            )
    return figure


def _title(each: Simulation) -> str:
    name = escaped(each.label or os.path.basename(each.path))
    return f"{name}: {each.totals.started:,} attempts, {each.threads} threads"


# Panels -------------------------------------------------------------------------------


def _attempts(axes: Any, each: Simulation) -> float:
    starts, widths = _parts(each)
    below = [0] * len(starts)
    again = [min(part.failed, part.retried) for part in each.timeline]
    for label, numbers, colour in (
        ("ok", [part.ok for part in each.timeline], _OK),
        ("failed, tried again", again, _RETRIED),
        (
            "failed for good",
            [
                part.failed - retried
                for part, retried in zip(each.timeline, again, strict=True)
            ],
            _GIVEN_UP,
        ),
    ):
        axes.bar(
            starts,
            numbers,
            widths,
            bottom=below,
            align="edge",
            color=colour,
            label=f"{label} ({sum(numbers):,})",
            linewidth=0,
        )
        below = [a + b for a, b in zip(below, numbers, strict=True)]
    axes.set_title(f"attempts that end, in each {duration_text(each.part_ms)}", pad=20)
    _legend(axes)
    return max(below, default=0)


def _running(axes: Any, each: Simulation) -> float:
    levels, edges = [part.running for part in each.timeline], _edges(each)
    axes.stairs(levels, edges, fill=True, color="#b9d7ea", linewidth=0)
    axes.stairs(levels, edges, color=_LINES[0], linewidth=1.2)
    most = max(levels, default=0)
    axes.set_title(
        f"running at once, at most {each.totals.peak_running} of {each.threads} "
        f"({each.totals.busy:.0%} of the threads' time)"
    )
    if each.threads > max(SEEN_BESIDE, SEEN_BESIDE * most):
        return most
    axes.axhline(each.threads, color=_GIVEN_UP, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"{each.threads} threads",
        (1, each.threads),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        color=_GIVEN_UP,
    )
    return each.threads * 1.1


def _depths(axes: Any, each: Simulation) -> float:
    edges = _edges(each)
    busy = [queue for queue in each.queues if queue.peak]
    for queue, colour in zip(busy[:MOST_QUEUES], _LINES, strict=False):
        axes.stairs(
            queue.depths,
            edges,
            color=colour,
            linewidth=1.5,
            baseline=None,
            label=f"{_short(queue.name)} (max {queue.peak:,})",
        )
    more = len(busy) - MOST_QUEUES
    title = "jobs in line, by queue"
    if more > 0:
        title += f" ({more} more are shorter)"
    axes.set_title(title, pad=20 if busy else None)
    if busy:
        _legend(axes)
    else:
        _nothing(axes, "no job waits for a thread")
    return max((queue.peak for queue in busy), default=0)


def _given_up(axes: Any, each: Simulation) -> float:
    starts, widths = _parts(each)
    dead = [part.dead_lettered for part in each.timeline]
    expired = [part.expired for part in each.timeline]
    axes.bar(
        starts,
        dead,
        widths,
        align="edge",
        color=_GIVEN_UP,
        label=f"dead-lettered ({sum(dead):,})",
        linewidth=0,
    )
    axes.bar(
        starts,
        expired,
        widths,
        bottom=dead,
        align="edge",
        color="#888888",
        label=f"expired ({sum(expired):,})",
        linewidth=0,
    )
    axes.set_title("jobs that are given up", pad=20)
    _legend(axes)
    if not any(dead) and not any(expired):
        _nothing(axes, "none")
    return max(map(sum, zip(dead, expired, strict=True)), default=0)


def _short(name: str) -> str:
    shown = escaped(name)
    return shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 1] + "…"


def _legend(axes: Any) -> None:
    """Between the panel and its title, where nothing is drawn."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.005, 0.99),
        ncols=MOST_QUEUES,
        handlelength=1.0,
        columnspacing=1.2,
        borderaxespad=0,
    )


def _nothing(axes: Any, sentence: str) -> None:
    axes.text(
        0.5, 0.5, sentence, transform=axes.transAxes, ha="center", color="#888888"
    )


def _parts(each: Simulation) -> tuple[list[float], list[float]]:
    """When each part begins, and how long it is: the first and the last are shorter."""
    edges = _edges(each)
    return edges[:-1], [end - start for start, end in itertools.pairwise(edges)]


def _edges(each: Simulation) -> list[float]:
    """Where parts begin, and the last one ends."""
    return [*(_days(part.at) for part in each.timeline), _days(each.reached_at)]


def _days(at: dt.datetime) -> float:
    """Since 1970, as matplotlib counts; which knows no datetimes of a frozen clock."""
    return (at - EPOCH) / DAY
