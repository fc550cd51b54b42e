"""The command line: `litejobs`, and `python -m litejobs`.

A command says one thing to `LiteJobs` and prints the answer; nothing is decided here.
This package imports click alone at its top, and the rest when a command runs, so that
help and completion are quick.
"""

from __future__ import annotations

import click

from litejobs.cli._failure import Commands
from litejobs.cli._output import prepare_streams
from litejobs.cli.enqueue import enqueue
from litejobs.cli.gates import circuits, facts, keys, queues, tiers
from litejobs.cli.look import list_jobs, show, why
from litejobs.cli.run import init, run
from litejobs.cli.schedules import schedules
from litejobs.cli.steer import cancel, pause, requeue, resume, run_now

__all__ = ["main"]

_EXAMPLES = """\b
Examples:
  litejobs --db app.db init
  litejobs run app:jobs --threads 8
  litejobs --db app.db enqueue send '{"to": "ann@example.com"}' --delay 10m
  litejobs --db app.db list --state dead_lettered
  litejobs --db app.db why 42
  litejobs --db app.db queues set mail --max-running 4 --rate 10/1m
  litejobs --db app.db schedules add report send --cron '0 9 * * MON-FRI'
  LITEJOBS_DB=app.db litejobs show 42 --json

\b
Exit codes: 0 done; 1 nothing matched, or refused; 2 wrong usage;
3 the file cannot be used."""


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from litejobs import __version__  # noqa: PLC0415 - see above

        click.echo(f"litejobs {__version__}")
        context.exit()


@click.group(
    cls=Commands,
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--db",
    metavar="PATH",
    envvar="LITEJOBS_DB",
    show_envvar=True,
    help="The jobs file.",
)
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def main(db: str | None, debug: bool) -> None:  # noqa: ARG001 - read by name
    """See and steer the jobs in a litejobs file, and run them."""
    prepare_streams()


for command in (
    init,
    run,
    list_jobs,
    show,
    why,
    enqueue,
    cancel,
    requeue,
    run_now,
    pause,
    resume,
    queues,
    keys,
    circuits,
    facts,
    tiers,
    schedules,
):
    main.add_command(command)
