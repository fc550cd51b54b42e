"""Blocks, and notes, that leave an error which passes as it is."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Not by the name, which a class may have made its own.
_traceback: Any = BaseException.__dict__["__traceback__"]


class _Block(contextlib.AbstractContextManager[T]):
    """What is before the `yield` of *steps* is done first, and then what follows."""

    def __init__(self, steps: Generator[T, None, None]) -> None:
        self._steps = steps

    def __enter__(self) -> T:
        for value in self._steps:
            return value
        raise RuntimeError("the generator of a block has yielded nothing")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            for _ in self._steps:
                raise RuntimeError("the generator of a block has yielded twice")
            return False
        try:
            self._steps.throw(error)
        except StopIteration as end:
            # It has returned, and so the error goes no further; unless it is that.
            return end is not error
        except BaseException as raised:
            # A StopIteration of the block leaves a generator as the cause of another.
            is_same = raised is error or (
                type(raised) is RuntimeError
                and issubclass(type(error), StopIteration)
                and raised.__cause__ is error
            )
            if not is_same:
                raise
            _traceback.__set__(error, trace)
            return False
        raise RuntimeError("the generator of a block has yielded twice")


def block(
    make: Callable[P, Iterator[T]],
) -> Callable[P, contextlib.AbstractContextManager[T]]:
    """Make blocks of a generator that yields once, as `contextlib.contextmanager`.

    That sets `__traceback__` of an error that passes, which one that is frozen (a
    dataclass, say) refuses by another error; the caller had that one in its place.
    """

    @functools.wraps(make)
    def begin(
        *args: P.args, **kwargs: P.kwargs
    ) -> contextlib.AbstractContextManager[T]:
        # A generator, which is told to be an iterator only.
        return _Block(make(*args, **kwargs))  # type: ignore[arg-type]

    return begin


def add_note(error: BaseException, text: str) -> None:
    """Add a note to the error, where it takes any."""
    with contextlib.suppress(Exception):
        BaseException.add_note(error, text)
