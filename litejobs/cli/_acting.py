"""What a command changes is an act, which `litejobs undo` takes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from litejobs.cli._file import opened

if TYPE_CHECKING:
    from litejobs import LiteJobs
    from litejobs._acts import OpenAct


@contextlib.contextmanager
def acting(
    name: str, detail: str | None = None, *, undoable: bool = True
) -> Iterator[LiteJobs]:
    """The jobs of the file, for one act: all in the block is stored, or nothing.

    *name* is what is done ("pause"), *detail* with what ("queue mail"); it can still be
    said within the block, by `describe`. An act that changes nothing leaves no trace,
    unless it says that it is not *undoable*.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    from litejobs import _acts  # noqa: PLC0415 - heavy

    with (
        opened() as jobs,
        _acts.opened_if_changed(jobs, name, detail, undoable=undoable),
    ):
        yield jobs


@contextlib.contextmanager
def acting_in_steps(
    name: str, detail: str
) -> Iterator[
    tuple[LiteJobs, Callable[[], contextlib.AbstractContextManager[OpenAct]]]
]:
    """The jobs of the file, and what opens each of many acts that are one command.

    Each is stored by itself, so that others get their turns, and they are undone
    together.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    from litejobs import _acts  # noqa: PLC0415 - heavy

    with opened() as jobs:
        first: int | None = None

        @contextlib.contextmanager
        def act() -> Iterator[OpenAct]:
            nonlocal first
            with _acts.opened_if_changed(
                jobs, name, detail, undoable=True, command=first
            ) as each:
                yield each
            # One that has changed nothing was not kept.
            if first is None and jobs._rows("read_act", {"id": each.id}):
                first = each.id

        yield jobs, act


def describe(jobs: LiteJobs, detail: str) -> None:
    """The act that is going on was done with this: what is known only afterwards."""
    from litejobs import _acts  # noqa: PLC0415 - heavy

    act = _acts.going_on(jobs)
    if act is not None:
        act.detail = detail
