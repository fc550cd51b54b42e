"""The command line: `litejobs`, and `python -m litejobs`.

A command says one thing to `LiteJobs` and prints the answer; nothing is decided here.
This package imports click alone at its top, and the rest when a command runs, so that
help and completion are quick.

May import all other rooms.
"""

from __future__ import annotations

import click

from litejobs.cli.failure import Commands
from litejobs.cli.input.types import FileName, Seconds
from litejobs.cli.printing import prepare_streams

__all__ = ["main"]

_COMMANDS = {
    "init": "run:init",
    "run": "run:run",
    "enqueue": "enqueue:enqueue",
    "list": "jobs:list_jobs",
    "show": "jobs:show",
    "why": "jobs:why",
    "stats": "stats:stats",
    "events": "events:events",
    "watch": "watch:watch",
    "cancel": "actions:cancel",
    "run-now": "actions:run_now",
    "requeue": "actions:requeue",
    "pause": "actions:pause",
    "resume": "actions:resume",
    "purge": "purge:purge",
    "retention": "retention:retention",
    "space": "space:space",
    "cursors": "cursors:cursors",
    "schedules": "schedules:schedules",
    "tasks": "tasks:tasks",
    "queues": "queues:queues",
    "keys": "queues:keys",
    "circuits": "queues:circuits",
    "facts": "queues:facts",
    "tiers": "queues:tiers",
    "undo": "undo:undo",
    "policy": "policy:policy",
    "simulate": "simulate:simulate",
    "doctor": "doctor:doctor",
    "backup": "backup:backup",
    "restore": "restore:restore",
    "export": "export:export",
    "schema": "schema:schema",
    "completion": "completion:completion",
}
"""In which module of this package each command is made, and under which name: only the
one that is asked for is imported. In the order in which people need them."""

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
        from litejobs import __version__

        click.echo(f"litejobs {__version__}")
        context.exit()


@click.group(
    cls=Commands,
    modules=_COMMANDS,
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="See and steer the jobs in a litejobs file, and run them.",
)
@click.option(
    "--db",
    type=FileName(),
    metavar="PATH",
    envvar="LITEJOBS_DB",
    show_envvar=True,
    help='The jobs file; "auto" is the only one in the current folder.',
)
@click.option(
    "--utc",
    is_flag=True,
    envvar="LITEJOBS_UTC",
    help="Show instants in UTC instead of the zone of this machine.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Use colours; auto is on a terminal, unless NO_COLOR is set.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default="5s",
    show_default=True,
    help="How long one look into the file may take.",
)
@click.option(
    "--immutable",
    is_flag=True,
    help="The file is on read-only media and nobody writes to it: look at it all the "
    "same.",
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
def main(**_: object) -> None:
    prepare_streams()
