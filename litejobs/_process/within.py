"""Within which transactions code runs, as its context says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar, Token

from litejobs._values.blocks import block

Turns = tuple[object, ...]

_turns: ContextVar[Turns] = ContextVar("litejobs_turns", default=())


def turns() -> Turns:
    """What is kept until the caller has done what it does, as a rule.

    A context is copied where a coroutine makes a task, or has something done in a
    thread. So it may also be over by now.
    """
    return _turns.get()


def begin(turn: object) -> Token[Turns]:
    """From here on the caller, and what it starts, is within it too."""
    return _turns.set((*_turns.get(), turn))


def end(token: Token[Turns]) -> None:
    """It is over."""
    # In another context where a fixture is a coroutine, or a block was thrown away.
    with contextlib.suppress(ValueError):
        _turns.reset(token)


@block
def within(turn: object) -> Iterator[None]:
    """In the block the caller is within it."""
    token = begin(turn)
    try:
        yield
    finally:
        end(token)
