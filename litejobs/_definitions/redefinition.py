"""Tell what is registered once more from what takes the name of something else.

A cell of a notebook that is run again makes its functions anew, and so does a module
that is reloaded: what they register takes the place of what they had registered before.
Two different functions of one name are a mistake, and so are two definitions in one
file. They are told apart by the code that makes them: it is compiled anew for each run
of a cell or a module, and is the same within one run.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from types import CodeType, FrameType, MethodType
from typing import Any, NamedTuple, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


class Place(NamedTuple):
    """Where something is registered: in which module, by which code."""

    module: object
    code: CodeType | None

    def was_run_again(self, before: Place) -> bool:
        """Whether this is the place *before*, compiled anew."""
        if self.module != before.module or self.code is before.code:
            return False
        return _name_within_module(self.code) == _name_within_module(before.code)


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
    if nearest is None:
        return Place(None, None)
    return Place(nearest.f_globals.get("__name__"), nearest.f_code)


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
    if name is None or name != former:
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
    """The name of the function that this is the code of; "" for that of a module."""
    if code is None:
        return None
    return code.co_qualname if code.co_flags & inspect.CO_NEWLOCALS else ""


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
