"""What is wrong around a runner, in sentences, for as long as it is."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from litejobs._definitions.milliseconds import read_instant
from litejobs._process.log import LONGEST
from litejobs._process.timing import TIMES
from litejobs._storage.files import MEMORY
from litejobs._storage.runner_lock import runner_or_successor, runner_process
from litejobs._storage.vital_signs import CAUSES, HELD, causes_shown, is_suspended
from litejobs._values.blocks import block
from litejobs._values.text import escaped
from litejobs.errors import FileRefused, LiteJobsError, RunnerActive

if TYPE_CHECKING:
    from litejobs._definitions.registration import Registration
    from litejobs._executors.work import Work
    from litejobs._runner.companions import Companions
    from litejobs._runner.loop import StuckWait
    from litejobs._runner.pool import DaemonPool
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store
    from litejobs._tasks.current import Assignment

MOST_NAMED = 5
_LOG = "its log, and jobs.health() in its program, say more"
_START = "start a runner: jobs.start(), or litejobs run MODULE:OBJECT"


class Cause(NamedTuple):
    """What keeps jobs from being run, or may soon; as a row of `litejobs_health`."""

    code: str
    level: Literal["problem", "warning"]
    object: str
    sentence: str
    remedy: str | None


def overall(
    store: Store, *, own: Collection[str] | None, is_waiting: bool
) -> dict[str, Any]:
    """How the jobs of the file do, whoever runs them, as `LiteJobs.health` tells it.

    *own* are the causes of the runner of this process, or None where it has none; one
    that *is_waiting* takes the place of a runner that is gone.
    """
    causes: list[Cause] = []
    oldest, last_tick = None, None
    try:
        causes += _of_process(store, own, is_waiting=is_waiting)
        # Its one connection is not waited for.
        if store.path != MEMORY or not own:
            with _in_turn(store):
                causes += _of_file(store, {each.code for each in causes})
                oldest, last_tick = _oldest(store), _last_tick(store)
    except (LiteJobsError, OSError) as error:
        causes.append(Cause("file_unreadable", "problem", "the file", str(error), None))
    return {
        "healthy": all(each.level != "problem" for each in causes),
        "causes": [each._asdict() for each in causes],
        "oldest_due": oldest,
        "last_tick_at": last_tick,
    }


def _of_process(
    store: Store, own: Collection[str] | None, *, is_waiting: bool
) -> list[Cause]:
    """What the process of the runner shows, if there is one."""
    if own is not None:
        return [
            Cause(
                code,
                "problem",
                "the runner",
                f"the runner of this process does not get on: {CAUSES[code]}",
                "health()['problems'] and the log say more",
            )
            for code in CAUSES
            if code in own
        ]
    if store.path == MEMORY:
        return [_missing(store)]
    try:
        return _of_other_process(store, is_waiting=is_waiting)
    except FileRefused as error:
        sentence, _, remedy = str(error).partition("; ")
        sentence = f"it cannot be told whether jobs are run: {sentence}"
        return [
            Cause("runner_unknown", "problem", "the runner", sentence, remedy or None)
        ]


def _of_other_process(store: Store, *, is_waiting: bool) -> list[Cause]:
    path = os.path.realpath(store.path)
    process = runner_process(path)
    if process is None:
        if is_waiting:
            return []
        standbys = [] if _is_absent(store) else _standbys(store)
        process = runner_or_successor(path, standbys)
    if process is None:
        return [_missing(store)]
    who = f"process {process}" if process else "a process"
    found = []
    suspended = is_suspended(process)
    if suspended:
        sentence = f"{who} is to run the jobs of {path}, and is suspended"
        remedy = f"kill -CONT {process}"
        found.append(
            Cause("runner_suspended", "problem", "the runner", sentence, remedy)
        )
    for code in causes_shown(path):
        if suspended and code == HELD:
            continue
        sentence = f"{who}, which is to run the jobs, does not get on: {CAUSES[code]}"
        found.append(Cause(code, "problem", "the runner", sentence, _LOG))
    return found


def _standbys(store: Store) -> list[int]:
    """Their numbers; what cannot be read is told where the file is looked at."""
    with contextlib.suppress(LiteJobsError):
        return [row[0] for row in store.database.run("standbys")]
    return []


@block
def _in_turn(store: Store) -> Iterator[None]:
    """In memory, what keeps its one connection is not waited for without an end.

    Raises:
        DatabaseBusy: It was waited for.
    """
    if store.path != MEMORY or store.if_open is None:
        yield
        return
    with store.database.reader(patience=TIMES.turn_patience):
        yield


def _missing(store: Store) -> Cause:
    sentence = f"no process runs the jobs of {store.path}"
    return Cause("runner_missing", "problem", "the runner", sentence, _START)


def _of_file(store: Store, known: Collection[str]) -> list[Cause]:
    """What the rows say, and the process does not say itself."""
    if _is_absent(store):
        return []
    rows = [Cause(*row) for row in store.database.run("health")]
    return [each for each in rows if each.code not in known]


def _oldest(store: Store) -> dict[str, Any] | None:
    """The job that has been due longest, and why it does not run."""
    rows = [] if _is_absent(store) else store.database.run("oldest_due")
    if not rows:
        return None
    [(job, task, queue, due_at)] = rows
    names = ("code", "detail", "object", "until_at", "remedy")
    why = store.database.run("explain_job", {"id": job})
    return {
        "job": job,
        "task": task,
        "queue": queue,
        "due_at": _text_of(due_at),
        "why": [
            {
                name: _text_of(value) if name == "until_at" else value
                for name, value in zip(names, row, strict=True)
            }
            for row in why
        ],
    }


def _last_tick(store: Store) -> str | None:
    rows = [] if _is_absent(store) else store.database.run("last_tick")
    return _text_of(rows[0][0]) if rows else None


def _text_of(instant: int | None) -> str | None:
    """As JSON has it, so that an application can hand all of it out."""
    found = read_instant(instant)
    return None if found is None else found.isoformat()


def _is_absent(store: Store) -> bool:
    """Whether there is no file, which nobody makes to ask how it does."""
    return store.if_open is None and (
        store.path == MEMORY or not os.path.exists(store.path)
    )


def runner_active(database: Database, does: str, way_out: str) -> RunnerActive:
    """Return what to raise where another runner has the file: who it is."""
    rows = database.run("living_runner")
    # It may have begun just now, and is not in the file yet.
    pid = rows[0][1] if rows else None
    who = "another process" if pid is None else f"process {pid}"
    return RunnerActive(f"{who} {does} the jobs of {database.path}; {way_out}", pid)


def problems_around(
    companions: Companions, database: Database, pool: DaemonPool
) -> list[str]:
    """What keeps the runner's threads, its file, outboxes or callbacks from working.

    It reads nothing from the file and waits for nothing.
    """
    found = [] if pool.problem is None else [pool.problem]
    found += database.problems
    return found + companions.problems


def too_many_stuck(blocked: Sequence[Assignment], threads: int) -> str:
    """Threads are stuck, and no others take their places."""
    return (
        f"{len(blocked)} of {threads} threads do not come back after their time limits "
        f"({_jobs(blocked)}), and too many are stuck to be replaced; see what they "
        "call, and restart the program"
    )


THREADS_ASLEEP = (
    "no thread begins the jobs that were claimed for it; a library that replaces the "
    "threads or the queues of Python has to do that before anything else is imported"
)


def replaced_threads(stuck: Sequence[Assignment]) -> str:
    """Threads are stuck, and others have taken their places."""
    return (
        "threads do not come back after their time limits, and others have taken their "
        f"places: {_jobs(stuck)}"
    )


def tasks_stuck(waits: Sequence[StuckWait]) -> str:
    """Tasks wait for jobs, and these for the tasks, or for what they take up."""
    told = [
        f"job {each.waiter_id} ({_shown(each.waiter_task)}) for "
        + (
            "events of whichever job"
            if each.task is None
            else f"job {each.job_id} ({_shown(each.task)})"
        )
        + ("" if each.object is None else f", which waits for {_shown(each.object)}")
        for each in waits
    ]
    return (
        f"tasks wait for jobs that cannot begin before they end: {_few(told, '; ')}; "
        "let tasks end, and what follows wait for their jobs (job.then()), raise the "
        "limit, or give the runner more threads= or lend="
    )


def run_otherwise(tasks: Sequence[str]) -> str:
    """Another object of this process runs these tasks with other functions."""
    return (
        "this object stands by, and another LiteJobs of this process runs other "
        f"functions for its tasks {_few([_shown(each) for each in tasks])}: make one "
        "for the file, or stop the other one"
    )


def executors_away(away: Mapping[str, int]) -> list[str]:
    """Some cannot be reached, since these instants, in milliseconds."""
    return [
        f"executor {_shown(name)} is away since {_instant(since)}, and its jobs wait"
        for name, since in sorted(away.items())
    ]


def _instant(at_ms: int) -> str:
    return f"{dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def tasks_adrift(works: Sequence[Work]) -> str:
    """Tasks go on, on executors that cannot end them."""
    names = sorted({_shown(each.executor) for each in works})
    return (
        f"tasks cannot be ended on {_few([f'executor {name}' for name in names])}, and "
        f"take its slots until they end: {_jobs([each.assignment for each in works])}"
    )


def _jobs(assignments: Sequence[Assignment]) -> str:
    return _few([f"job {each.job_id} ({_shown(each.task)})" for each in assignments])


def news(
    invalid: Sequence[Any],
    schedules: Sequence[Any],
    tasks: Sequence[Any],
    queues: Sequence[Any],
    declarations: Sequence[Registration],
) -> list[str]:
    """What the file says that may not be as it is meant to be."""
    found = [
        f"schedule {_shown(name)} is paused: {_shown(reason)}"
        for name, reason in invalid
    ]
    if tasks:
        names = _few([_shown(name) for (name,) in tasks])
        found.append(f"jobs wait for tasks that this runner does not have: {names}")
    if queues:
        names = _few([_shown(name) for (name,) in queues])
        found.append(f"nothing has named these queues of the runner so far: {names}")
    ours = {row["name"] for task in declarations for row in task.schedules}
    vanished, changed = [], []
    for name, is_declared, edited, is_gone in schedules:
        if is_gone:
            vanished.append(_shown(name))
        elif name in ours and (edited or not is_declared):
            changed.append(_shown(name))
    if vanished:
        found.append(f"schedules run that are not in the code: {_few(vanished)}")
    if changed:
        found.append(
            f"schedules are as a person has them, not as the code: {_few(changed)}"
        )
    return found


def _few(names: Sequence[str], between: str = ", ") -> str:
    more = len(names) - MOST_NAMED
    named = between.join(names[:MOST_NAMED])
    return named + (f" and {more} more" if more > 0 else "")


def _shown(text: Any) -> str:
    return escaped(str(text), LONGEST)
