"""Change what becomes of a job or a queue.

With `--json`:

    cancel, requeue,
    run-now                       {"job": JOB}, as it is afterwards; {"jobs": […]} where
                                   several IDs were given
    cancel, requeue, run-now
    without IDs                   {"cancelled": NUMBER}, {"requeued": NUMBER},
                                   {"run_now": NUMBER}; with --dry-run {"count":
                                   NUMBER, "jobs": the first ten}
    pause, resume                 {"queue": {"name": …, "paused": …}}
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import reading, stored
from litejobs.cli.file.operation import recorded, recorded_in_steps
from litejobs.cli.input import filters as _filters
from litejobs.cli.input.types import JOB_ID, QUEUE
from litejobs.cli.output.jobs import job_of, sentence

if TYPE_CHECKING:
    from litejobs import Job, LiteJobs

FIRST = 10  # of many jobs, so many are shown
ALL = 2**62


class Kind(NamedTuple):
    """What can be done to jobs, in words, and to those in which states."""

    name: str
    states: tuple[str, ...]
    will_be: str
    done: str
    key: str  # in JSON
    refusal: str


CANCEL = Kind(
    "cancel",
    ("scheduled", "blocked", "pending", "processing", "failed"),
    "will be cancelled",
    "cancelled",
    "cancelled",
    "has ended and cannot be cancelled; litejobs purge deletes jobs that have ended",
)
RUN_NOW = Kind(
    "run_now",
    ("scheduled", "failed"),
    "will be put in line now",
    "put in line now",
    "run_now",
    "does not wait for its time; litejobs requeue puts back one that has ended, and "
    "litejobs why ID says what keeps one that waits",
)
REQUEUE = Kind(
    "requeue",
    ("dead_lettered", "cancelled", "completed"),
    "will be put back in line",
    "put back in line",
    "requeued",
    "has not ended; litejobs run-now puts one that waits for its time, or for its "
    "retry, in line now",
)

F = TypeVar("F", bound=Callable[..., Any])


def _of_many(command: F) -> F:
    """The options of a command that takes IDs, or what jobs have in common."""
    for option in (
        printing.json_option,
        click.option("--yes", is_flag=True, help="Do not ask first."),
        click.option(
            "--dry-run", is_flag=True, help="Show how many there are, and the first."
        ),
        _filters.filter_options,
        click.argument("job_ids", metavar="[ID]…", type=JOB_ID, nargs=-1),
    ):
        command = option(command)
    return command


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db cancel 42
  litejobs --db app.db cancel 42 43 44
  litejobs --db app.db cancel --state scheduled --task send --dry-run""",
    help="""Cancel jobs: at once if they wait, else when their attempts end.

    Give IDs, or what the jobs have in common.
    """,
)
@_of_many
@click.pass_context
def cancel(context: click.Context, /, **options: Any) -> None:
    _run_action(context, CANCEL, lambda job: job.cancel(), **options)


@click.command(
    "run-now",
    epilog="""\b
Examples:
  litejobs --db app.db run-now 42
  litejobs --db app.db run-now 42 43
  litejobs --db app.db run-now --state failed --task fetch""",
    help="""Put jobs that wait for their time, or for their retry, in line now.

    Give IDs, or what the jobs have in common.
    """,
)
@_of_many
@click.pass_context
def run_now(context: click.Context, /, **options: Any) -> None:
    _run_action(context, RUN_NOW, lambda job: job.run_now(), **options)


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db requeue 42
  litejobs --db app.db requeue --state dead_lettered --task send --dry-run
  litejobs --db app.db requeue --state dead_lettered --text Connection --since 1d""",
    help="""Put jobs that have ended back in line.

    Give IDs, or their state and what else they have in common. Their attempts count
    from 0 again; those they had stay in their history.
    """,
)
@_of_many
@click.pass_context
def requeue(context: click.Context, /, **options: Any) -> None:
    _run_action(context, REQUEUE, lambda job: job.requeue(), **options)


@click.command(
    epilog="\b\nExamples:\n  litejobs --db app.db pause mail",
    help="Start no further job of a queue; those that run go on.",
)
@click.argument("queue", type=QUEUE)
@printing.json_option
def pause(*, queue: str, as_json: bool) -> None:
    _set_paused(queue, paused=True, as_json=as_json)


@click.command(
    epilog="\b\nExamples:\n  litejobs --db app.db resume mail",
    help="Start the jobs of a paused queue again.",
)
@click.argument("queue", type=QUEUE)
@printing.json_option
def resume(*, queue: str, as_json: bool) -> None:
    _set_paused(queue, paused=False, as_json=as_json)


def _run_action(
    context: click.Context,
    kind: Kind,
    action: Callable[[Job[object]], bool | None],
    *,
    job_ids: Sequence[int],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    filters = _filters.filters_of(options)
    if job_ids and (filters or dry_run):
        raise click.UsageError("with IDs there is nothing to choose; leave options out")
    if job_ids:
        _apply_to_each(kind, job_ids, action, as_json=as_json)
        return
    if not filters or (kind is REQUEUE and "states" not in filters):
        which = "--state" if kind is REQUEUE else "--state, --task or --queue"
        raise click.UsageError(
            f"give IDs, or {which} and what else they have in common"
        )
    for state in filters.get("states", ()):
        if state not in kind.states:
            raise click.UsageError(
                f"a job that is {state} {kind.refusal}".replace(" ID ", " ")
            )
    _apply_to_many(context, kind, filters, dry_run=dry_run, yes=yes, as_json=as_json)


def _apply_to_each(
    kind: Kind,
    job_ids: Sequence[int],
    action: Callable[[Job[object]], bool | None],
    *,
    as_json: bool,
) -> None:
    """The action is done to all of them, or to none and it is said why."""
    ids = list(dict.fromkeys(job_ids))
    what = f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs"
    with recorded(kind.name, what) as jobs:
        from litejobs.errors import InvalidTransition

        for job_id in ids:
            handle = jobs.get(job_id)
            try:
                done_to_it = action(handle) is not False
            except InvalidTransition:
                done_to_it = False
            if not done_to_it:
                raise Failure(_refusal(kind, job_of(_row(jobs, job_id))))
        done = [job_of(_row(jobs, job_id)) for job_id in ids]
    if as_json:
        printing.document({"job": done[0]} if len(ids) == 1 else {"jobs": done})
    else:
        for job in done:
            printing.say(sentence(job))


def _row(jobs: LiteJobs, job_id: int) -> dict[str, Any]:
    return stored(jobs).rows("get_job", {"id": job_id})[0]


def _refusal(kind: Kind, job: Mapping[str, Any]) -> str:
    """Why this cannot be done to the job, and what can."""
    said = sentence(job)
    if job["state"] in (*kind.states, kind.done):
        return f"{said}; nothing was changed"
    way_out = kind.refusal.replace(" ID ", f" {job['id']} ")
    return f"{said}: it {way_out}; nothing was changed"


# Many at once -------------------------------------------------------------------------


def _apply_to_many(
    context: click.Context,
    kind: Kind,
    filters: dict[str, Any],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    with reading() as file, file.together():
        given = _filters.resolve(filters, file)
        states = _filters.states_json(given["states"] or kind.states)
        found = file.rows(
            "find_jobs",
            given
            | {"action": kind.name, "states": states, "until": None}
            | {"limit": FIRST if dry_run else ALL},
        )
        count = found[0]["count"] if found else 0
        first = [
            job_of(row)
            for each in found[:FIRST]
            for row in file.rows("get_job", id=each["id"])
        ]
        if not found and not as_json:
            printing.remark(_filters.no_match(file, given))
    which = _filters.in_words(given)
    if as_json and (dry_run or not found):
        printing.document({"count": count, "jobs": first} if dry_run else {kind.key: 0})
    elif dry_run and found:
        printing.say(
            f"{counted(count)} {kind.will_be.replace('will', 'would')}: {which}"
        )
        _show_first(count, first)
    elif found:
        confirm(f"{counted(count)} {kind.will_be}: {which}", yes=yes)
        done = _do(kind, [row["id"] for row in found], str(states), which)
        if as_json:
            printing.document({kind.key: done})
        else:
            printing.say(f"{counted(done)} {kind.done}")
            if done < count:
                printing.remark(f"{counted(count - done)} had moved on by then")
    if not found:
        context.exit(REFUSED)


def _do(kind: Kind, ids: Sequence[int], states: str, which: str) -> int:
    """It is done to those that still are as they were; how many that is.

    Where a person can see it, below a bar that grows.
    """
    from litejobs._control.bulk import apply

    done, steps = 0, None
    bar = click.progressbar(length=len(ids), label=kind.name, file=sys.stderr)
    seen = sys.stderr is not None and sys.stderr.isatty()
    try:
        with (
            recorded_in_steps(kind.name, f"jobs: {which}") as (jobs, steps),
            bar if seen else contextlib.nullcontext(),
        ):
            for some in apply(stored(jobs), kind.name, ids, states, steps.operation):
                done += len(some)
                if seen:
                    bar.update(len(some))
    except KeyboardInterrupt as error:
        if steps is None or steps.first is None:
            raise Failure("interrupted: nothing was changed") from error
        # Ctrl-C may have come just when some more were committed.
        raise Failure(
            f"interrupted: at least {counted(done)} of {len(ids)} {kind.done} by then; "
            f"litejobs undo {steps.first} takes that back, the same command goes on"
        ) from error
    return done


def counted(number: int) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} job" if number == 1 else f"{number} jobs"


def confirm(what: str, *, yes: bool) -> None:
    """Whoever gives the command agrees, or nothing is done.

    Raises:
        Failure: They do not, or nobody can be asked.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure(f"{what}: say --yes, since nobody can be asked here")
    if not click.confirm(f"{printing.escaped(what)}. Go on?", err=True):
        raise Failure("nothing was changed")


def _show_first(count: int, first: Sequence[dict[str, Any]]) -> None:
    printing.table(
        ("id", "state", "queue", "task", "stopped by", "finished"),
        (
            (
                job["id"],
                printing.state(job["state"]),
                *(job[key] for key in ("queue", "task", "stopped_by", "finished_at")),
            )
            for job in first
        ),
    )
    if count > len(first):
        printing.say(f"… and {count - len(first)} more")


def _set_paused(name: str, *, paused: bool, as_json: bool) -> None:
    from litejobs.cli.input import known_names

    with recorded("pause" if paused else "resume", f"queue {name}") as jobs:
        file = stored(jobs)
        others = file.rows("offer_queues", {"prefix": "", "limit": 1})
        new = bool(others) and not known_names.is_known(file, "queue", name)
        (jobs.pause if paused else jobs.resume)(name)
    if as_json:
        printing.document({"queue": {"name": name, "paused": paused}})
    else:
        printing.say(f"queue {name} {'is paused' if paused else 'runs again'}")
    if new:
        note = known_names.suggestion_for("queue", name)
        printing.remark(f"no job has been in a queue {name}, and it was made now{note}")
