"""How long the file keeps what has ended: rows that code declares and people change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import attrs

from litejobs._control.rows import Rows
from litejobs._definitions.checks import check_name, check_word, shown
from litejobs._definitions.retention import ATTEMPT, FILE, KINDS, OF_JOBS, kept_row
from litejobs._storage.room import check_order, check_own
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._definitions.policy import Duration
    from litejobs._definitions.retention import KeptKind


@attrs.frozen(kw_only=True)
class RetentionRule:
    """How long one kind of thing is kept: of a task, a queue, both, or all of it.

    Durations are in milliseconds; `age_ms` None is for ever, and `most` None any
    number. Of the kind "attempt", `most` says how many attempts of a job are kept that
    has not ended. Of the kind "file", `bytes` says how much the file may use before
    what has ended first is deleted. `source` is who says so: "default", "code" or
    "person".
    """

    kind: str
    task: str | None
    queue: str | None
    age_ms: int | None
    most: int | None
    bytes: int | None
    kept: str
    source: str


class Retention(Rows, Sequence[RetentionRule]):
    """The rules, those of everything first. They are read anew each time.

    Of the rules that speak of a job the one that says most counts alone: that of its
    task and queue, of its task, of its queue, of all. They count from a minute after
    they were set, so that a slip can be taken back.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._all()!r})"

    def _all(self) -> list[RetentionRule]:
        return [RetentionRule(**row) for row in self._read("list_retention")]

    @overload
    def __getitem__(self, index: int) -> RetentionRule: ...
    @overload
    def __getitem__(self, index: slice) -> list[RetentionRule]: ...
    def __getitem__(self, index: int | slice) -> RetentionRule | list[RetentionRule]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[RetentionRule]:
        return iter(self._all())

    def set(
        self,
        kind: KeptKind,
        age: Duration | str | int | None,
        most: int | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        shared: bool = False,
    ) -> None:
        """Keep what is of this *kind* for *age*, a duration, and the newest *most*.

        None is for ever, and 0 not at all. With *task* or *queue* it is for jobs of
        these. Those that ended last are the newest. What is set here stays, whatever
        the code says later.

        Of the kind "attempt", give a number in place of the age: so many attempts are
        kept of a job that has not ended, those that ended last. What its limits, its
        budget and its rules count stays as it is.

        Of the kind "file", give a size (bytes, or a text as "400MB") in place of the
        age: while the file uses more, jobs are deleted that ended first, however short
        ago, but none that is kept for ever. In a file that has tables of the
        application these count as well, so it has to be meant so (*shared*).

        Raises:
            ConfigurationError: A value cannot work; nothing was changed.
        """
        scope = _scope(kind, task, queue)
        what = f"retention of {kind}"
        if shared and kind != FILE:
            raise ConfigurationError(
                f"{what}: shared is for the size of the file; leave it out"
            )
        if kind not in _ALONE:
            row = kept_row(what, {"age": age, "most": most}, kind)
        elif most is not None:
            raise ConfigurationError(
                f"most={shown(most)} is for jobs that have ended; {_ALONE[kind]} alone"
            )
        else:
            row = kept_row(what, age, kind)
        if row["bytes"] is not None and not shared:
            check_own(self._store.database, f"{what}={shown(age)}", "shared=True")
        with self._store.transaction() as db:
            self._write("write_retention", **scope, **row)
            if row["bytes"] is not None:
                check_order(
                    db, f"{what}={shown(age)}", "give less, or raise max_size first"
                )

    def reset(
        self, kind: KeptKind, *, task: str | None = None, queue: str | None = None
    ) -> None:
        """Forget what was set: what is said of more, or in a new file, counts again.

        What the code says comes back when it starts next.

        Raises:
            KeyError: There is no such rule.
            ConfigurationError: A value cannot work.
        """
        scope = _scope(kind, task, queue)
        with self._store.transaction():
            if not self._write("drop_retention", **scope):
                raise KeyError((kind, task, queue))
            self._write("restore_retention", **scope)


_ALONE = {FILE: "of the file give the size", ATTEMPT: "of attempts give the number"}


def _scope(kind: str, task: str | None, queue: str | None) -> dict[str, Any]:
    check_word("kind", kind, KINDS)
    check_name("task", task)
    check_name("queue", queue)
    if kind not in OF_JOBS and not (task is None and queue is None):
        raise ConfigurationError(
            f"{'the' if kind == FILE else 'an'} {kind} is of no task and no queue; "
            f"leave them out, or give one of {', '.join(OF_JOBS)}"
        )
    return {"kind": kind, "task": task, "queue": queue}
