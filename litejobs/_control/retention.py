"""How long the file keeps what has ended: rows that code declares and people change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import attrs

from litejobs._control.queues import Rows
from litejobs._definitions.checks import check_name, check_word
from litejobs._definitions.retention import KINDS, OF_JOBS, kept_row
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._definitions.policy import Duration
    from litejobs._definitions.retention import KeptKind


@attrs.frozen(kw_only=True)
class RetentionRule:
    """How long one kind of thing is kept: of a task, a queue, both, or all of it.

    Durations are in milliseconds; `age_ms` None is for ever, and `most` None any
    number. `source` is who says so: "default", "code" or "person".
    """

    kind: str
    task: str | None
    queue: str | None
    age_ms: int | None
    most: int | None
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
        age: Duration | None,
        most: int | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
    ) -> None:
        """Keep what is of this *kind* for *age*, a duration, and the newest *most*.

        None is for ever, and 0 not at all. With *task* or *queue* it is for jobs of
        these. What is set here stays, whatever the code says later.

        Raises:
            ConfigurationError: A value cannot work; nothing was changed.
        """
        scope = _scope(kind, task, queue)
        row = kept_row(f"retention of {kind}", {"age": age, "most": most}, kind)
        self._write("write_retention", **scope, **row)

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


def _scope(kind: str, task: str | None, queue: str | None) -> dict[str, Any]:
    check_word("kind", kind, KINDS)
    check_name("task", task)
    check_name("queue", queue)
    if kind not in OF_JOBS and not (task is None and queue is None):
        raise ConfigurationError(
            f"an {kind} is of no task and no queue; leave them out, or give one of "
            f"{', '.join(OF_JOBS)}"
        )
    return {"kind": kind, "task": task, "queue": queue}
