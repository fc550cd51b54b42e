"""Find out whether a jobs file, and what runs it, is well.

With `--json`:

    doctor --probe                {"healthy": …, "sentence": …}
    doctor                        {"file": {"path": …, and what was measured},
                                   "versions": {…}, "checks": [{"check": …, "level":
                                   "ok", "note", "warning" or "problem", "object": …,
                                   "sentence": …, "remedy": …}, …], "level": the worst}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, UnusableFile
from litejobs.cli.file.opening import path_given

if TYPE_CHECKING:
    from litejobs.cli.file.checks import Report

COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "red"}
INDENT = 9  # columns that a level takes


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db doctor
  litejobs --db app.db doctor --quick --json
  litejobs --db app.db doctor --replay
  litejobs --timeout 5m --db app.db doctor
  litejobs --db app.db doctor --probe""",
    help="""\
    Examine the file, what lies beside it, and the process that runs its jobs.

    Nothing is changed. Each look takes as long as --timeout at most. A problem is
    broken or will not get on by itself, a warning should be looked at, a note is good
    to know. The exit code is 1 if there is a problem, and 3 if no application can use
    the file. The findings about jobs are also in the view litejobs_doctor.

    With --replay each job is also worked out anew from what is recorded of it: its
    moves, its attempts and how they ended. A problem names the job and the first event
    that does not follow from those before it. A million jobs take some 7 s, 2,000 at a
    time, and keep nobody waiting. Any client asks litejobs_replay_difference.

    With --probe, for compose, systemd and monit, one line says whether jobs are run,
    and the exit code is 0 or 1 (2 for wrong usage). A file without a runner is not
    well, nor one whose runner is gone, is suspended or says that it does not get on
    (its loop is held up, the disk is full, the file is busy, …); a standby beside a
    runner is. Locks tell all that, so the file is not opened. With --due it is: what
    litejobs_health says is a problem is one here, such as work left for 10 s.
    """,
)
@click.option(
    "--quick", is_flag=True, help="Leave out the full check of rows and indexes."
)
@click.option(
    "--replay",
    is_flag=True,
    help="Work out each job anew from what is recorded of it, and compare.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Say in one line, and quickly, whether jobs are run: exit code 0, or 1.",
)
@click.option(
    "--due",
    is_flag=True,
    help="With --probe: look into the file, too, whether what is due is begun.",
)
@click.option(
    "--no-runner",
    is_flag=True,
    help="With --probe: ask only whether the file can be used.",
)
@printing.json_option
@click.pass_context
def doctor(
    context: click.Context,
    /,
    *,
    quick: bool,
    replay: bool,
    probe: bool,
    due: bool,
    no_runner: bool,
    as_json: bool,
) -> None:
    if due and no_runner:
        raise click.UsageError(
            "--due asks for a runner; leave --no-runner out", context
        )
    if probe and replay:
        raise click.UsageError("--replay is not a probe; give one of the two", context)
    if probe:
        _probe(context, runner=not no_runner, due=due, as_json=as_json)
        return
    if due or no_runner:
        name = "--due" if due else "--no-runner"
        raise click.UsageError(f"{name} is for --probe; give both", context)
    from litejobs.cli.file.checks import examine

    report = examine(path_given(), quick=quick, replay=replay)
    if as_json:
        printing.document(
            {
                "file": report.file,
                "versions": report.versions,
                "checks": [
                    {
                        "check": each.check,
                        "level": each.level,
                        "object": each.object,
                        "sentence": each.sentence,
                        "remedy": each.remedy,
                    }
                    for each in report.checks
                ],
                "level": report.level,
            }
        )
    else:
        _print(report)
    if not report.is_usable:
        context.exit(UnusableFile.exit_code)
    if report.level == "problem":
        context.exit(REFUSED)


def _probe(context: click.Context, *, runner: bool, due: bool, as_json: bool) -> None:
    from litejobs.cli.file.probe import probe

    found = probe(runner=runner, due=due)
    if as_json:
        printing.document({"healthy": found.is_healthy, "sentence": found.sentence})
    else:
        shown = "healthy" if found.is_healthy else "unhealthy"
        click.echo(f"{shown}: {printing.escaped(found.sentence)}")
    if not found.is_healthy:
        context.exit(REFUSED)


def _print(report: Report) -> None:
    colours = printing.coloured()
    for each in report.checks:
        level: str = each.level.ljust(INDENT)
        if colours:
            level = click.style(level, fg=COLOURS[each.level])
        click.echo(level + printing.escaped(each.sentence), color=colours)
        if each.remedy is not None:
            click.echo(" " * INDENT + "-> " + printing.escaped(each.remedy))
