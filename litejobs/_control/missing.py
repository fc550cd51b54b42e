"""What is said of a job that is not there: it has been deleted, or never was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litejobs._storage.rows import fetch_lossy
from litejobs._storage.statements import queries
from litejobs.errors import JobNotFound

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.store import Source


def no_job(source: Source, job_id: int) -> JobNotFound:
    """The exception for a job that is not in the file, in a sentence."""
    try:
        rows = source.rows("was_job", {"id": job_id})
    except (OverflowError, TypeError):  # no number that the file could hold
        rows = [{"was": 0, "horizon": None}]
    return _told(**rows[0], path=source.path, job_id=job_id)


def no_job_in(connection: apsw.Connection, path: str, job_id: int) -> JobNotFound:
    """The same, of the file of that name to which *connection* is open."""
    [row] = fetch_lossy(connection, queries()["was_job"], {"id": job_id})[1]
    return _told(*row, path=path, job_id=job_id)


def _told(was: Any, horizon: str | None, *, path: str, job_id: int) -> JobNotFound:
    """Ids are never given again: one that has been given is that of a deleted job."""
    there_is_none = f"there is no job {job_id!r} in {path}"
    if not was:
        return JobNotFound(there_is_none)
    until = "" if horizon is None else f" (what is deleted had ended by {horizon})"
    return JobNotFound(
        f"{there_is_none} any more: it was deleted after it had ended, and its result "
        f"with it{until}; ask for results sooner, or keep the jobs of its task longer"
    )
