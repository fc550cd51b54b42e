"""Whether jobs are run, in one look: for what restarts programs that are not well.

It is asked every few seconds, so nothing is imported or read that it can do without.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from litejobs.cli.file.opening import path_given, reading


class Verdict(NamedTuple):
    """Whether all is well, and why."""

    is_healthy: bool
    sentence: str


def probe(*, runner: bool) -> Verdict:
    """Look at the file, and, if asked, for the *runner* and those that stand by.

    Raises:
        click.ClickException: No file is named.
    """
    import click

    from litejobs.errors import LiteJobsError

    path = path_given()
    try:
        with reading() as file:
            if not runner:
                file.value("now")
                return Verdict(True, f"{path} can be used")
            found = file.row("probe_runner")
            standbys = [int(each["id"]) for each in file.rows("standbys")]
    except LiteJobsError as error:
        return Verdict(False, str(error))
    except click.UsageError:
        raise
    except click.ClickException as error:
        return Verdict(False, error.message)
    return _judged(path, found, standbys)


def _judged(path: str, found: dict[str, object] | None, standbys: list[int]) -> Verdict:
    from litejobs._storage.runner_lock import living_standbys, runner_lives

    real = os.path.realpath(path)
    lives = runner_lives(real)
    if lives is None:
        return Verdict(
            False,
            f"it cannot be told whether a process runs the jobs of {path}; check the "
            f"permissions of {real}.runner",
        )
    if found is None:
        if lives:
            return Verdict(True, f"a process begins to run the jobs of {path}")
        return Verdict(
            False,
            f"no process runs the jobs of {path}; start one: litejobs run app:jobs",
        )
    who = f"runner {found['id']} (process {found['pid']})"
    if not lives:
        return Verdict(False, f"{who} of {path} is gone: it never stopped")
    if found["late"] is not None:
        return Verdict(False, f"{found['late']} by process {found['pid']}")
    # Whoever has ended without a word may still be in the file.
    count = len(living_standbys(real, standbys) or ()) if standbys else 0
    others = f", and {count} more stand by" if count > 1 else ", and one more stands by"
    return Verdict(True, f"{who} runs the jobs of {path}{others if count else ''}")
