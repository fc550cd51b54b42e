"""Tell what is registered once more from what takes the name of something else.

A cell of a notebook that is run again makes its functions anew, and so does a module
that is reloaded: what they register takes the place of what they had registered before.
Two different functions of one name are a mistake, and so are two definitions in one
file. They are told apart by the code that makes them: it is compiled anew for each run
of a cell or a module, or has other globals where it was compiled once (Streamlit), and
is the same within one run.
"""

from __future__ import annotations

import dis
import inspect
import os
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, MethodType
from typing import Any, TypeVar

import attrs

_F = TypeVar("_F", bound=Callable[..., Any])

_CELL = "__marimo__cell_"  # in the file name of a cell, which marimo compiles once
MOST_CALLERS = 40

_MODULE = "<module>"
_JUMPS = {*dis.hasjrel, *dis.hasjabs}


@attrs.frozen(eq=False)
class Place:
    """Where something is registered: in which module, by which code of it.

    `names` are the globals of that run of the module, and `call` is where in the code
    the call is.
    """

    module: object
    code: CodeType | None
    names: dict[str, Any] | None = None
    call: int = -1

    def was_run_again(self, before: Place) -> bool:
        """Whether this is the place *before*, compiled anew, or with new globals."""
        return (
            not self.is_of_same_run(before)
            and self._shares_module(before)
            and _name_within_module(self.code) == _name_within_module(before.code)
        )

    def is_of_same_run(self, before: Place) -> bool:
        """Whether nothing was compiled, and no module made, in between."""
        return self.code is before.code and self.names is before.names

    def shares_file(self, other: Place) -> bool:
        """Whether both are in one file, which may be loaded under several names."""
        file, others = _file(self.code), _file(other.code)
        return file is not None and file == others

    def _shares_module(self, before: Place) -> bool:
        """Whether both are in one module, or file.

        Two programs have a module of one name each (`__main__`, `conftest`), and two
        cells have their globals in common.
        """
        if self.names is before.names or None in {_file(self.code), _file(before.code)}:
            return self.module == before.module
        return self.shares_file(before)

    def may_be_run_again(self, before: Place) -> bool:
        """Whether code that was compiled once may have run twice, in the same globals.

        As a cell of marimo does. Or what is called makes several.
        """
        return (
            self.code is not None
            and self.is_of_same_run(before)
            and self.call == before.call
            and _name_within_module(self.code) == _MODULE
        )

    def is_in_loop(self) -> bool:
        """Whether the call may be made more than once in one run of the code."""
        assert self.code is not None
        return any(
            each.opcode in _JUMPS and each.argval <= self.call <= each.offset
            for each in dis.get_instructions(self.code)
        )

    def has_own_name(self) -> bool:
        """Whether no other code of the module has the name of this one.

        All lambdas have the same, and so have functions that are generated, as the
        `__init__` of each dataclass.
        """
        name = _name_within_module(self.code)
        return name == _MODULE or not (
            name is None or name.endswith(">") or _file(self.code) is None
        )


def callers() -> tuple[Place, ...]:
    """The callers outside of litejobs, the nearest first."""
    found: list[Place] = []
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and len(found) < MOST_CALLERS:
        if not frame.f_code.co_filename.startswith(_OUR_FOLDER):
            found.append(_place(frame))
        frame = frame.f_back
    return tuple(found)


def is_made_anew(
    here: Sequence[Place],
    there: Sequence[Place],
    is_named: Callable[[dict[str, Any]], bool],
) -> bool:
    """Whether what was made *here* was made *there* before, by code that ran again.

    Both are `callers`. The code may have called a function that did not run again, in a
    module of its own. What was made there by a loop, or has a name in these globals yet
    (*is_named*), was made in one run.
    """
    for number, (now, before) in enumerate(zip(here, there, strict=False)):
        if not (now.has_own_name() and before.has_own_name()):
            continue
        if now.was_run_again(before):
            return True
        if not now.is_of_same_run(before):
            return False
        if now.may_be_run_again(before):
            assert now.code is not None
            if _CELL in now.code.co_filename:
                return True
            if number == 0:
                return not (now.is_in_loop() or is_named(now.names or {}))
    return False


def place(module: object = None) -> Place:
    """The nearest caller in this module, or else the nearest outside of litejobs."""
    frame: FrameType | None = inspect.currentframe()
    nearest: FrameType | None = None
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OUR_FOLDER):
            nearest = nearest or frame
            if module is None or frame.f_globals.get("__name__") == module:
                nearest = frame
                break
        frame = frame.f_back
    return Place(None, None) if nearest is None else _place(nearest)


def _place(frame: FrameType) -> Place:
    name = frame.f_globals.get("__name__")
    return Place(name, frame.f_code, frame.f_globals, frame.f_lasti)


# As code names it, which in a frozen program is another one than `__file__`.
_OUR_FOLDER = os.path.dirname(os.path.dirname(place.__code__.co_filename)) + os.sep


def place_of(function: object) -> Place:
    """Where this function is registered at the moment."""
    return place(getattr(function, "__module__", None))


def is_same(function: object, here: Place, before: object, there: Place) -> bool:
    """Whether the *function*, registered *here*, is the one *before*, or made anew."""
    if function is before or (
        isinstance(function, MethodType)
        and isinstance(before, MethodType)
        and function == before
    ):
        return True
    name, former = _name(function), _name(before)
    if name is None or former is None or name[1] != former[1]:
        return False
    if name[0] != former[0] and not here.shares_file(there):
        return False
    return here.was_run_again(there) or (
        here.code is there.code and _is_equal(function, before)
    )


class Functions(list[_F]):
    """Functions in the order in which they were added; each is there once."""

    def __init__(self) -> None:
        super().__init__()
        self._places: list[Place] = []

    def add(self, function: _F) -> None:
        """It is the last one; but one that is made anew takes the place it had."""
        here = place_of(function)
        # What a function makes has the name of all that it makes.
        made = "<locals>" in str(getattr(function, "__qualname__", ""))
        for number, (known, there) in enumerate(zip(self, self._places, strict=True)):
            if function is known or (
                not made and is_same(function, here, known, there)
            ):
                self[number] = function
                self._places[number] = here
                return
        self._places.append(here)
        self.append(function)


def _name_within_module(code: CodeType | None) -> str | None:
    """The name of the function, or class, that this is the code of."""
    return None if code is None else code.co_qualname


def _file(code: CodeType | None) -> str | None:
    """The file of the code; None where it was given as a text."""
    name = None if code is None else code.co_filename
    return None if name is None or name.startswith("<") else name


def _name(function: object) -> tuple[str, str] | None:
    """What the function is called; neither lambdas nor methods of objects are."""
    if getattr(function, "__self__", None) is not None:
        return None
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if type(module) is not str or type(name) is not str or name.endswith("<lambda>"):
        return None
    return module, name


def _is_equal(function: Any, before: Any) -> bool:
    """Whether a function that makes it was called again, and gave it nothing else."""
    try:
        return (
            function.__code__ is before.__code__
            and _values(function) == _values(before)
            and bool(function.__code__.co_flags & inspect.CO_NESTED)
        )
    except (AttributeError, ValueError):  # no function, or a cell that is empty yet
        return False


def _values(function: Any) -> list[int]:
    """Which objects the function has been given by the code around it."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
    ]
    return [id(each) for each in (*cells, *defaults)]
