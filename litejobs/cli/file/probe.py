"""Whether jobs are run, in one look: for what restarts programs that are not well.

It is asked every few seconds, so nothing is imported or read that it can do without.
That a runner lives is told by its lock; SQLite would read the whole schema before the
first row, which takes a third as long as an empty program with click and apsw.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from litejobs.cli.file.opening import path_given


class Verdict(NamedTuple):
    """Whether all is well, and why."""

    is_healthy: bool
    sentence: str


def probe(*, runner: bool, due: bool) -> Verdict:
    """Look at the *runner*, if asked for, and whether it has begun what is *due*.

    Raises:
        click.ClickException: No file is named.
    """
    from litejobs._storage.runner_lock import runner_process
    from litejobs.errors import LiteJobsError

    path = path_given()
    real = os.path.realpath(path)
    if not runner:
        return _looked(path, runner=False, process=None)
    try:
        process = runner_process(real)
    except (LiteJobsError, OSError) as error:
        return Verdict(
            False, f"it cannot be told whether jobs of {path} are run: {error}"
        )
    if process is None or due or not os.path.isfile(real):
        return _looked(path, runner=True, process=process)
    return _seen(real, path, process)


def _seen(real: str, path: str, process: int) -> Verdict:
    """What the process of the runner shows, without a look into the file."""
    from litejobs._storage.vital_signs import CAUSES, causes_shown, is_suspended
    from litejobs.errors import LiteJobsError

    who = f"process {process}" if process else "a process"
    if is_suspended(process):
        return Verdict(
            False, f"{who} is to run the jobs of {path}, but is suspended (SIGSTOP)"
        )
    try:
        shown = causes_shown(real)
    except (LiteJobsError, OSError) as error:
        return Verdict(
            False, f"it cannot be told how the runner of {path} does: {error}"
        )
    if shown:
        said = "; ".join(CAUSES[each] for each in shown)
        return Verdict(False, f"{who} is to run the jobs of {path}, but {said}")
    return Verdict(True, f"{who} runs the jobs of {path}")


def _looked(path: str, *, runner: bool, process: int | None) -> Verdict:
    """The same by what the file says; *process* holds the lock of the runner."""
    import click

    from litejobs._process.clock import RealTime
    from litejobs._process.timing import TIMES
    from litejobs._storage.runner_lock import runner_or_successor
    from litejobs.cli.file.opening import reading
    from litejobs.errors import LiteJobsError

    try:
        with reading() as file:
            if not runner:
                file.value("now")
                return Verdict(True, f"{path} can be used")
            if process is None:
                numbers = [row["id"] for row in file.rows("standbys")]
                process = runner_or_successor(os.path.realpath(path), numbers)
            found = file.row("probe_runner")
            if found is not None and found["sentence"] is not None:
                # It may have become so this moment, and the runner is about to see it.
                RealTime.sleep(TIMES.probe_pause)
                found = file.row("probe_runner")
    except LiteJobsError as error:
        return Verdict(False, str(error))
    except click.ClickException as error:
        return Verdict(False, error.message)
    if found is None:
        if process is not None:
            return Verdict(True, f"a process begins to run the jobs of {path}")
        return Verdict(
            False,
            f"no process runs the jobs of {path}; start one: litejobs run app:jobs",
        )
    who = f"runner {found['id']} (process {found['pid']})"
    if process is None:
        return Verdict(False, f"{who} of {path} is gone: it never stopped")
    seen = _seen(os.path.realpath(path), path, process)
    if not seen.is_healthy:
        return seen
    if found["sentence"] is not None:
        return Verdict(False, f"{found['sentence']} (process {found['pid']})")
    return Verdict(True, f"{who} runs the jobs of {path}, and has begun what is due")
