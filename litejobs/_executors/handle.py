"""What an executor hands back for an attempt: by it that is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litejobs.errors import TaskInterrupt


class Handle:
    """Reaches one attempt that an executor runs; this one can do nothing about it.

    The runner calls it in its own thread, so nothing here waits. *kind* is why the task
    is to end: `TaskCancelled`, `TaskTimeout` or `TaskStopped`.
    """

    def tell(self, kind: type[TaskInterrupt]) -> None:
        """Tell the task that it is to end; it may look, or not.

        Said once, first of all: a task that is cancelled may then end by itself.
        """
        del kind

    def end(self, kind: type[TaskInterrupt]) -> bool:
        """Make the task end by raising *kind* in it; False if that cannot be done."""
        del kind
        return False

    def kill(self, kind: type[TaskInterrupt]) -> bool:
        """End what runs the task, and nothing else; False if that cannot be done.

        Said at most once: where `end` could do nothing, or has not helped in time. The
        work ends then, by `failed(kind(...))` say.
        """
        del kind
        return False

    def drop(self) -> None:
        """Forget it: the runner stops, and nobody waits for it any more."""
