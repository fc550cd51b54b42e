"""See which policies decide about retries, and what others would do.

With `--json`:

    policy show                   {"tasks": [TASK with its limits and its "policies":
                                   [POLICY with its "rules"]], "defaults": {…}}
    policy check                  {"policy": {"limits": {…}, "otherwise": …,
                                   "rules": […]}, "warnings": […]}
    policy backtest               {"backtest": {"task": …, "step": …, "attempts": …,
                                   "horizon_at": up to when nothing was decided again,
                                   since jobs were deleted, or null,
                                   "limits_set_aside": …, "summary": [{"kind":
                                   "decision", "longer", "shorter" or "reason", what was
                                   decided _before and _after, "attempts", "jobs"}, …],
                                   "differences": […]}, "warnings": […]}
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import reading
from litejobs.cli.file.reader import Reader
from litejobs.cli.input.policy_file import policy_in
from litejobs.cli.input.types import STEP, TASK, Count, Since
from litejobs.cli.output.policies import (
    LIMITS,
    limits_line,
    limits_of,
    lines_of,
    only,
    show_differences,
    show_limits,
    show_lines,
    show_summary,
    show_warnings,
    task_of,
)

MOST_SHOWN = 10  # differences in a table, unless more are asked for

_FILE = click.argument(
    "document",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)


@click.group(
    epilog="""\b
Examples:
  litejobs --db app.db policy show send
  litejobs policy check retry.toml
  litejobs --db app.db policy backtest retry.toml --task send --since 7d""",
    help="See what decides about retries, and try out something else.",
)
def policy() -> None:
    pass


# Showing ------------------------------------------------------------------------------


@policy.command(
    epilog="""\b
Examples:
  litejobs --db app.db policy show
  litejobs --db app.db policy show send --json
  litejobs --db app.db policy show send --replaced""",
    help="""Show the limits and the policies in the file, of all tasks or of TASK.

    The first rule that holds for an attempt decides. What no rule speaks of, and all
    that a rule leaves out, is up to the limits. The exit code is 1 if there is none.
    """,
)
@click.argument("task", type=TASK, required=False)
@click.option(
    "--replaced", is_flag=True, help="Also the policies that were replaced since."
)
@printing.json_option
@click.pass_context
def show(
    context: click.Context, /, *, task: str | None, replaced: bool, as_json: bool
) -> None:
    with reading() as file, file.together():
        defaults, *known = file.rows("policy_tasks", task=task)
        tasks = [task_of(file.rows, row, replaced=replaced) for row in known]
    if task is not None and not tasks:
        raise Failure(f"task {task!r} is not known in {file.path}; see: policy show")
    if as_json:
        shown = {name: each for name, each in defaults.items() if each is not None}
        printing.document({"tasks": tasks, "defaults": limits_of(shown)})
    elif tasks:
        show_limits(tasks)
        lines = [
            {"task": each["name"], **line} for each in tasks for line in lines_of(each)
        ]
        if lines:
            click.echo()
            show_lines(lines)
        else:
            click.echo()
            printing.remark("no rules: whatever fails is retried within the limits")
    else:
        printing.remark("no task is known")
    if not tasks:
        context.exit(REFUSED)


# Checking -----------------------------------------------------------------------------


@policy.command(
    epilog="""\b
Examples:
  litejobs policy check retry.toml
  litejobs policy check retry.json --json""",
    help="""Read a policy from FILE (JSON, TOML, YAML), and show what it means.

    Nothing is done with it, and no jobs file is needed. It is the data that
    `Policy.from_dict` takes. The exit code is 1 if it cannot be used.
    """,
)
@_FILE
@printing.json_option
def check(*, document: str, as_json: bool) -> None:
    made, warned = policy_in(document)
    from litejobs._control.simulation import ALONE, policy_in_memory

    with policy_in_memory(made) as connection:
        rows = Reader(document, connection, timeout=60).rows
        defaults, row = rows("policy_tasks", task=ALONE)
        task = task_of(rows, row, replaced=False)
    [found] = task["policies"]
    if as_json:
        said = [name for name, each in defaults.items() if each is not None]
        shown = {
            "limits": only(task, *said, "intervals", "retry_budget_ms"),
            **only(found, "otherwise", "rules", "otherwise_reached"),
        }
        printing.document({"policy": shown, "warnings": warned})
        return
    printing.table(LIMITS[:3], [limits_line(task)[:3]])
    click.echo()
    show_lines(lines_of(task))
    show_warnings(warned)


# Backtesting --------------------------------------------------------------------------


@policy.command(
    epilog="""\b
Examples:
  litejobs --db app.db policy backtest retry.toml --task send
  litejobs --db app.db policy backtest retry.toml --task sync --step fetch --since 7d
  litejobs --db app.db policy backtest retry.json --task send --limit 100 --json""",
    help="""\
    Decide past attempts again as the policy in FILE would have, and compare.

    Nothing is written. Each attempt ends as it did, with the counts that its job had
    then, as if the task had been declared with this policy alone: its limits are those
    in FILE, else the defaults. With --keep-limits those of the task stay, as they do
    where its code goes on saying them beside the policy; for a step they always do.
    The exit code is 1 if there are no attempts.
    """,
)
@_FILE
@click.option("--task", type=TASK, required=True, help="Whose attempts are decided.")
@click.option("--step", type=STEP, default="", help="It is for this step alone.")
@click.option(
    "--since",
    type=Since(),
    help="Only attempts that ended since then, as 7d, or an instant.",
)
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=10_000,
    show_default=True,
    help="How many attempts at most, the latest.",
)
@click.option(
    "--keep-limits",
    is_flag=True,
    help="Limits that the task has stay where FILE names none.",
)
@click.option(
    "--show",
    type=Count(0, 2**31),
    default=MOST_SHOWN,
    show_default=True,
    help="How many differences to list one by one.",
)
@printing.json_option
@click.pass_context
def backtest(
    context: click.Context,
    /,
    *,
    document: str,
    task: str,
    step: str,
    since: tuple[bool, int] | None,
    limit: int,
    keep_limits: bool,
    show: int,
    as_json: bool,
) -> None:
    made, warned = policy_in(document)
    if step and made.limits is not None:
        warned.append(
            "limits in the policy of a step have no effect, since all steps share "
            "those of the task; say it with rules"
        )
    import attrs

    from litejobs._control.simulation import backtest_from

    with reading() as file:
        warned += _unknown_step(file, task, step)
        since_ms = Since.in_ms(since, file)
        with _refused(), file.lent() as connection:
            found = backtest_from(
                connection,
                file.path,
                made,
                task=task,
                step=step,
                since=None if since_ms is None else printing.at_ms(since_ms),
                limit=limit,
                keep_limits=keep_limits,
                limited=file.limit_each,
            )
    differences = [attrs.asdict(each) for each in found.differences]
    if as_json:
        content = {
            "task": task,
            "step": step or None,
            "attempts": found.attempts,
            "horizon_at": found.horizon_at,
            "limits_set_aside": found.limits_set_aside,
            "summary": found.summary,
            "differences": differences,
        }
        printing.document({"backtest": content, "warnings": warned})
    elif found.attempts:
        show_summary(found.attempts, len(differences), found.summary)
        show_differences(differences, show)
        if found.limits_set_aside:
            printing.remark(
                f"the limits that task {task!r} has do not count here, as if it were "
                "declared with this policy alone; give --keep-limits to let them stay "
                "where the file names none"
            )
        show_warnings(warned)
    else:
        printing.remark("no attempt of this task has ended in that time")
    if found.horizon_at is not None and not as_json:
        printing.remark(
            f"nothing up to {printing.cell(found.horizon_at)} was decided again, since "
            "jobs or attempts of that time were deleted"
        )
    if not found.attempts:
        context.exit(REFUSED)


def _unknown_step(file: Reader, task: str, step: str) -> list[str]:
    """That a step may be a slip. It may also be a former one, so it is not refused."""
    labels = [row["label"] for row in file.rows("steps_of_task", task=task)]
    if not step or step in labels:
        return []
    from litejobs.cli.suggestions import did_you_mean

    meant = did_you_mean(labels, step) if labels else "; it is not a flow"
    return [f"task {task} has no step {step}{meant}"]


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """A task that the file does not know is not wrong usage: nothing has matched."""
    from litejobs.errors import ConfigurationError

    try:
        yield
    except ConfigurationError as error:
        raise Failure(str(error)) from error
