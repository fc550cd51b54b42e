"""What a command changes is an operation, which `litejobs undo` takes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from litejobs.cli.file.opening import opened, stored

if TYPE_CHECKING:
    from litejobs import LiteJobs
    from litejobs._control.operations import OpenOperation


@contextlib.contextmanager
def recorded(
    name: str, detail: str | None = None, *, undoable: bool = True
) -> Iterator[LiteJobs]:
    """The jobs of the file, for one operation: all in the block is stored, or nothing.

    *name* is what is done ("pause"), *detail* with what ("queue mail"). An operation
    that changes nothing leaves no trace, unless it says that it is not *undoable*.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    from litejobs._control import operations

    with (
        opened() as jobs,
        operations.opened_if_changed(stored(jobs), name, detail, undoable=undoable),
    ):
        yield jobs


class OperationSteps:
    """Operations of one command: each stored by itself, all undone together.

    `first` is the id of the first of them that was stored, None if none was.
    """

    def __init__(self, jobs: LiteJobs, name: str, detail: str) -> None:
        self.first: int | None = None
        self._jobs = jobs
        self._named = name, detail

    @contextlib.contextmanager
    def operation(self) -> Iterator[OpenOperation]:
        """One of them goes on. If the block raises, it is not stored."""
        from litejobs._control import operations

        begun: int | None = None
        row: list[dict[str, object]] = []
        try:
            with operations.opened_if_changed(
                stored(self._jobs), *self._named, undoable=True, command=self.first
            ) as each:
                if self.first is None:
                    begun, row = each.id, self._row(each.id)
                yield each
        finally:
            # One that has changed nothing is not kept. Ctrl-C may come when it has just
            # been stored; if it was not, another operation may have its id by now.
            if begun is not None and row and self._row(begun) == row:
                self.first = begun

    def _row(self, operation_id: int) -> list[dict[str, object]]:
        rows = stored(self._jobs).rows("read_operation", {"id": operation_id})
        return [{name: row[name] for name in ("name", "origin", "at")} for row in rows]


@contextlib.contextmanager
def recorded_in_steps(
    name: str, detail: str
) -> Iterator[tuple[LiteJobs, OperationSteps]]:
    """The jobs of the file, and what opens each of many operations of one command.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    with opened() as jobs:
        yield jobs, OperationSteps(jobs, name, detail)
