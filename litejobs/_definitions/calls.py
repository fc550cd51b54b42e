"""Calls: jobs that are to be stored, what can become one, and what one can wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, ParamSpec, TypeVar

from litejobs.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")

Parents = tuple[tuple[int | None, int | None], ...]
"""What a job waits for: pairs of a job's id and a batch's, one of them None."""


class JobHandle:
    """A job, as something to wait for."""

    __slots__ = ()
    id: int


class BatchHandle:
    """A batch, as something to wait for, or to be in."""

    __slots__ = ()
    id: int


class Deferrable(Generic[P, R]):
    """What is called later: a task, or one with options."""

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Make the job as a value; nothing is stored yet."""
        raise NotImplementedError


class Call(Generic[R]):
    """A job to be enqueued: task, arguments as JSON, and the other parameters.

    `options` stand in the order of the statement that enqueues a job; calls through the
    same `using(…)` share one tuple of them. `after` are the jobs and batches that the
    job waits for: pairs of a job's id and a batch's, one of them None.
    """

    __slots__ = ("after", "args", "options", "task")

    def __init__(
        self, task: str, args: str, options: tuple[Any, ...], after: Parents = ()
    ) -> None:
        self.task = task
        self.args = args
        self.options = options
        self.after = after

    def parameters(self) -> tuple[Any, ...]:
        """Return what the statement that enqueues a job is given."""
        return (self.task, self.args, *self.options)

    def then(self, call: CallLike) -> Chain:
        """Return this call with another one behind it, for `LiteJobs.enqueue_chain`."""
        return Chain(self, call)

    @property
    def unique_key(self) -> str | None:
        """The key among unfinished jobs, if it has one."""
        key: str | None = self.options[-1]
        return key


class Chain:
    """Calls that are to run one after the other; see `LiteJobs.enqueue_chain`."""

    __slots__ = ("calls",)

    def __init__(self, *calls: CallLike) -> None:
        self.calls = tuple(as_call("chain", each) for each in calls)

    def __repr__(self) -> str:
        return f"<litejobs chain: {', '.join(each.task for each in self.calls)}>"

    def __iter__(self) -> Iterator[Call[Any]]:
        return iter(self.calls)

    def then(self, call: CallLike) -> Chain:
        """Return the chain with one more call at its end."""
        return Chain(*self.calls, call)


CallLike = Call[Any] | Deferrable[..., Any]
"""What can be enqueued later: a call; a task is then called without arguments."""


def as_call(what: str, given: object) -> Call[Any]:
    """*given* as a call; a task is called without arguments.

    Raises:
        ConfigurationError: It is none of a call, a task, and a task with options.
        ArgumentError: The task needs arguments.
    """
    if isinstance(given, Call):
        return given
    if isinstance(given, Deferrable):
        return given.call()
    raise ConfigurationError(
        f"{what}={given!r:.80} cannot be enqueued; give a task, task.using(…) or "
        "task.call(…)"
    )
