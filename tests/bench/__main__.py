"""The command line of the benchmarks: `python -m tests.bench`."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import apsw
import attrs
import click

from tests.bench._attempts import ATTEMPTS
from tests.bench._cli import COMMAND_LINE
from tests.bench._dask import IS_THERE, ON_DASK
from tests.bench._executors import EXECUTORS
from tests.bench._figures import QUICK, Sizes, measure, report
from tests.bench._hearing import NOTIFIED
from tests.bench._large import HUGE, LARGE
from tests.bench._line import LINE
from tests.bench._processes import PROCESSES
from tests.bench._rows import ROWS
from tests.bench._schedules import SCHEDULES
from tests.bench._simulation import SIMULATIONS
from tests.bench._statements import profile, profiles
from tests.bench._tests import TESTS
from tests.bench._wear import COUNTED, WEAR
from tests.bench._workloads import WORKLOADS

HERE = WEAR if COUNTED else ()
USUAL_ONES = (
    *WORKLOADS,
    *ROWS,
    *ATTEMPTS,
    *PROCESSES,
    *EXECUTORS,
    *(ON_DASK if IS_THERE else ()),
    *HERE,
    *COMMAND_LINE,
    TESTS,
    *SIMULATIONS,
    LARGE,
)
USUAL = [workload.name for workload in USUAL_ONES]
ALL = {workload.name: workload for workload in (*USUAL_ONES, HUGE, *LINE, *SCHEDULES)}
GROUPS = {
    "line": [workload.name for workload in LINE],
    "schedules": [workload.name for workload in SCHEDULES],
}
PROFILE = "profile"
NAMES = [*ALL, *GROUPS, PROFILE]

EPILOG = "Workloads: " + "; ".join(
    [
        *(f"{name}: {workload.says}" for name, workload in ALL.items()),
        "line, schedules: all whose names begin so (only if named).",
        f"{PROFILE}: where the time of a drain goes, per statement (only if named).",
    ]
)


@click.command(epilog=EPILOG)
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1, type=click.Choice(NAMES))
@click.option("--rounds", type=click.IntRange(min=1), help="Default 5, or 3 if quick.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every figure, with all its rounds, to this file.",
)
@click.option("--quick", is_flag=True, help="Less of everything: in two minutes.")
@click.option(
    "--size",
    type=click.IntRange(min=1_000),
    help="How many jobs stand in the line; a tenth of it where each has its own key.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Put the files here, to measure this disk. Default: the temporary folder.",
)
@click.option(
    "--profiles",
    "profiles_folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the profiles into this folder, one text for each thing profiled.",
)
def main(
    names: tuple[str, ...],
    rounds: int | None,
    json_file: Path | None,
    quick: bool,
    size: int | None,
    folder: Path | None,
    profiles_folder: Path | None,
) -> None:
    """Measure litejobs beside the bare limit of apsw, in interleaved rounds.

    Most workloads run with durability "full" and "fast". Values are medians of the
    rounds; the ratio is the median of the ratios within each round, of speeds: 1 is as
    fast as the reference, more is faster. A bar is for one durability and full sizes.
    """
    # What an application does with the log is not measured; without a handler Python
    # would print it.
    logging.getLogger("litejobs").addHandler(logging.NullHandler())
    sizes = QUICK if quick else Sizes()
    if size is not None:
        sizes = attrs.evolve(sizes, line=size, lanes=size // 10)
    rounds = rounds or (3 if quick else 5)
    about = environment()
    click.echo(", ".join(f"{key} {value}" for key, value in about.items()))
    with tempfile.TemporaryDirectory(dir=folder, prefix="litejobs-bench-") as inside:
        results = measure(
            [
                ALL[each]
                for name in names or USUAL
                for each in GROUPS.get(name, [name])
                if each != PROFILE
            ],
            Path(inside),
            sizes,
            rounds,
            tell=_tell,
        )
        _tell("")
        if results:
            click.echo(f"Medians of {rounds} rounds.\n\n{report(results)}")
        if PROFILE in names:
            if profiles_folder is None:
                click.echo(f"\n{profile(Path(inside), 'full', sizes)}")
            else:
                for name, text in profiles(Path(inside), sizes).items():
                    profiles_folder.mkdir(parents=True, exist_ok=True)
                    file = profiles_folder / f"{name}.txt"
                    file.write_text(text + "\n", encoding="utf-8")
                    click.echo(file)
    if json_file is not None:
        document = {
            "environment": about,
            "rounds": rounds,
            "sizes": attrs.asdict(sizes),
            "figures": [result.document() for result in results],
        }
        text = json.dumps(document, indent=2, ensure_ascii=False)
        json_file.write_text(text + "\n", encoding="utf-8")


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "Python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "notification": "yes" if NOTIFIED else "no",
    }


def _tell(text: str) -> None:
    """On a terminal, what is being measured now, in one line that is written over."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


if __name__ == "__main__":
    main(prog_name="python -m tests.bench")
