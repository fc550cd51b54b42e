"""Names that are slips: which of those that there are was meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from litejobs.cli._file import reading
from litejobs.cli._output import remark

MOST = 5_000  # names that are compared

# The statement that finds names of each kind by how they begin.
_NAMES = {
    "task": "complete_tasks",
    "queue": "complete_queues",
    "key": "complete_keys",
    "circuit": "complete_circuits",
    "fact": "complete_facts",
    "schedule": "complete_schedules",
    "event": "complete_events",
    "step": "complete_steps",
}


class File(Protocol):
    """A `Reader`, or a `LiteJobs`."""

    @property
    def path(self) -> str: ...

    def _rows(self, query: str, parameters: Any, /) -> list[dict[str, Any]]: ...


def unknown_note(known: Iterable[str], name: str) -> str:
    """`; did you mean send?`, or nothing where *name* is like none of the *known*.

    It is for the end of a sentence; names of the file are escaped by who prints it.
    """
    like = similar(known, name)
    return f"; did you mean {like}?" if like else ""


def similar(known: Iterable[str], name: str) -> str | None:
    """The one of the *known* names that is most like *name*, if any is; not itself.

    A capital is no difference, nor is what stands between words.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - seldom

    plain = {_plain(each): each for each in known if each != name}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=0.65)
    return plain[found[0]] if found else None


def unknown(file: File, **names: str | None) -> str | None:
    """`no task sned in app.db; did you mean send?`, of the first that is not there.

    *names* are names by their kind: `unknown(file, task=task, queue=queue)`. None where
    all of them are in the file, or None.
    """
    for kind, name in names.items():
        if name is not None and not is_known(file, kind, name):
            return f"no {kind} {name} in {file.path}{note(file, kind, name)}"
    return None


def is_known(file: File, kind: str, name: str) -> bool:
    """Whether the file has heard of this name."""
    rows = file._rows(_NAMES[kind], {"prefix": name, "limit": 1})
    return any(next(iter(row.values())) == name for row in rows)


def note(file: File, kind: str, name: str) -> str:
    """`; did you mean send?`, of the names of this *kind* that are in the file.

    Tasks that programs have registered come before those that are slips themselves.
    """
    if kind == "task":
        rows = file._rows("registered_tasks", {"limit": MOST})
        meant = unknown_note([row["name"] for row in rows], name)
        if meant:
            return meant
    rows = file._rows(_NAMES[kind], {"prefix": "", "limit": MOST})
    return unknown_note([str(next(iter(row.values()))) for row in rows], name)


def note_on(kind: str, name: str) -> str:
    """The `note` on the file that `--db` names.

    It may take a while, so it is asked for when what is written is stored.
    """
    with reading() as file:
        return note(file, kind, name)


def nobody_runs(file: File, task: str) -> str | None:
    """That nobody can run the jobs of this task, where that may be a slip.

    None where a living runner has registered it, or where none lives and the file knows
    the task, or knows no tasks at all.
    """
    rows = file._rows("nobody_runs", {"task": task})
    return rows[0]["sentence"] if rows else None


def remark_nobody_runs(sentence: str | None, task: str) -> None:
    """Say it, and which task may be meant; as `note_on`, when all is stored."""
    if sentence is not None:
        meant = note_on("task", task)
        rest = " Its jobs wait" if meant else "; its jobs wait"
        remark(f"{sentence}{meant}{rest} until one does")


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")[:64]
