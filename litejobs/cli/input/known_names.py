"""Names that the file knows, and what is said of those that it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs.cli.file.opening import reading
from litejobs.cli.printing import remark
from litejobs.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from litejobs._storage.store import Source

MOST = 5_000  # names that are compared

# The statement that finds names of each kind by how they begin.
_NAMES = {
    "task": "offer_tasks",
    "queue": "offer_queues",
    "key": "offer_keys",
    "circuit": "offer_circuits",
    "fact": "offer_facts",
    "schedule": "offer_schedules",
    "event": "offer_events",
    "step": "offer_steps",
}


def unknown(file: Source, **names: str | None) -> str | None:
    """`no task sned in app.db; did you mean send?`, of the first that is not there.

    *names* are names by their kind: `unknown(file, task=task, queue=queue)`. None where
    all of them are in the file, or None.
    """
    for kind, name in names.items():
        if name is not None and not is_known(file, kind, name):
            return f"no {kind} {name} in {file.path}{note(file, kind, name)}"
    return None


def is_known(file: Source, kind: str, name: str) -> bool:
    """Whether the file has heard of this name."""
    rows = file.rows(_NAMES[kind], {"prefix": name, "limit": 1})
    return any(next(iter(row.values())) == name for row in rows)


def note(file: Source, kind: str, name: str) -> str:
    """`; did you mean send?`, of the names of this *kind* that are in the file.

    Tasks that programs have registered come before those that are slips themselves.
    """
    if kind == "task":
        rows = file.rows("registered_tasks", {"limit": MOST})
        meant = did_you_mean([row["name"] for row in rows], name)
        if meant:
            return meant
    rows = file.rows(_NAMES[kind], {"prefix": "", "limit": MOST})
    return did_you_mean([str(next(iter(row.values()))) for row in rows], name)


def suggestion_for(kind: str, name: str) -> str:
    """The `note` on the file that `--db` names.

    It may take a while, so it is asked for when what is written is stored.
    """
    with reading() as file:
        return note(file, kind, name)


def nobody_runs(file: Source, task: str) -> str | None:
    """That nobody can run the jobs of this task, where that may be a slip.

    None where a living runner has registered it, or where none lives and the file knows
    the task, or knows no tasks at all.
    """
    rows = file.rows("nobody_runs", {"task": task})
    return rows[0]["sentence"] if rows else None


def remark_nobody_runs(sentence: str | None, task: str) -> None:
    """Say it, and which task may be meant; as `suggestion_for`, when all is stored."""
    if sentence is not None:
        meant = suggestion_for("task", task)
        rest = " Its jobs wait" if meant else "; its jobs wait"
        remark(f"{sentence}{meant}{rest} until one does")
