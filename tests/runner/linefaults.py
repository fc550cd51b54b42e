"""An exception at any line of litejobs' own code, as if the interpreter had raised it.

What a line calls may fail for want of memory, Ctrl-C is answered between two lines,
and whoever changes the code tomorrow makes a mistake in one of them. A trace function
raises before a line is run, so each can be tried in turn.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, Self


class Struck(Exception):
    """Raised at a line."""


class StruckHard(BaseException):
    """The same, as Ctrl-C is: no `Exception`."""


class Visit(NamedTuple):
    """The *nth* time that a thread of this kind came to a line."""

    role: str
    function: str
    line: int
    nth: int


def code_of(*things: ModuleType | type | Callable[..., Any]) -> set[CodeType]:
    """All that is written in these modules, classes and functions."""
    found: set[CodeType] = set()
    for thing in things:
        if isinstance(thing, (ModuleType, type)):
            home = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
            for each in vars(thing).values():
                if isinstance(each, property):
                    found |= code_of(each.fget)  # type: ignore[arg-type]
                elif isinstance(each, (staticmethod, classmethod)):
                    found |= code_of(each.__func__)
                elif isinstance(each, (type, FunctionType)) and each.__module__ == home:
                    found |= code_of(each)
        else:
            # What a decorator has made of it, and what it was.
            whole = getattr(thing, "__wrapped__", thing)
            found |= set(_nested(whole.__code__))
    return found


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested(each)


def _leaves(frame: FrameType) -> bool:
    """Whether a `with` block has come to its end, and its `__exit__` is called next."""
    code = frame.f_code
    if code not in _leavings:
        _leavings[code] = set(_learnt(code))
    return frame.f_lasti in _leavings[code]


_leavings: dict[CodeType, set[int]] = {}


def _learnt(code: CodeType) -> Iterator[int]:
    """Where it says `__exit__(None, None, None)`, as the compiler writes it."""
    steps = [each for each in dis.get_instructions(code) if each.opname != "NOP"]
    for at in range(len(steps) - 2):
        three = [(each.opname, each.argval) for each in steps[at : at + 3]]
        if three == [("LOAD_CONST", None)] * 3:
            yield steps[at].offset


def role_of(thread: threading.Thread) -> str:
    """Its name without a number."""
    return thread.name.rstrip("0123456789").rstrip("-")


class Lines:
    """The lines that the threads of these *roles* run in the code, and one that fails.

    `seen` has each visit in its order. With *at* the visit of this number, of all that
    a single thread makes, raises *error*; with *visit* that one does. Unless *leaving*,
    going back to the line of a `with` to leave it is none: the interpreter answers no
    signal there, and releasing a lock needs no memory.
    """

    def __init__(
        self,
        code: Iterable[CodeType],
        *,
        error: type[BaseException] = Struck,
        at: int = 0,
        visit: Visit | None = None,
        roles: frozenset[str] = frozenset(),
        leaving: bool = True,
    ) -> None:
        self._code = frozenset(code)
        self._error = error
        self._at = at
        self._visit = visit
        self._roles = roles
        self._leaving = leaving
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self.armed = False
        self.seen: list[Visit] = []
        self.struck: Visit | None = None

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """For `sys.settrace`."""
        if frame.f_code not in self._code:
            return None
        if event == "line" and self.armed and self.struck is None:
            self._come_to(frame)
        return self.trace

    def _come_to(self, frame: FrameType) -> None:
        role = role_of(threading.current_thread())
        if self._roles and role not in self._roles:
            return
        if not self._leaving and _leaves(frame):
            return
        where = (role, frame.f_code.co_qualname, frame.f_lineno)
        self._counts[where] += 1
        visit = Visit(*where, self._counts[where])
        self.seen.append(visit)
        if len(self.seen) == self._at or visit == self._visit:
            self.struck = visit
            raise self._error(f"{visit}")

    def __enter__(self) -> Self:
        """All threads that begin in the block are traced."""
        self._before = threading.gettrace()
        threading.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        threading.settrace(self._before)  # type: ignore[arg-type]

    def during(self, work: Callable[[], Any]) -> Any:
        """What *work* returns or raises, run in this thread with its lines counted."""
        before = sys.gettrace()
        self.armed = True
        sys.settrace(self.trace)
        try:
            return work()
        except BaseException as error:
            return error
        finally:
            sys.settrace(before)
            self.armed = False
