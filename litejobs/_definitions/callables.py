"""What is called when a task's function is: its parameters, and whether it awaits.

Decorators wrap: `functools.wraps` lets a function say that it is another one, with the
signature of that. What is called is the outermost, and only that knows what it takes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from litejobs.errors import ConfigurationError

_BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_MOST_WRAPPED = 100
_ANYTHING = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


class Signatures(NamedTuple):
    """The parameters of what is called, and those for people and keys.

    They differ where a decorator takes anything for what it wraps.
    """

    taken: inspect.Signature
    told: inspect.Signature


def check_callable(what: str, function: object) -> None:
    """Refuse what is not called, and what runs none of its code when it is.

    Raises:
        ConfigurationError: The message says what to register instead.
    """
    if not callable(function):
        is_of_class = isinstance(function, (classmethod, property))
        raise ConfigurationError(
            f"{what} is {function!r:.80}, which cannot be called; "
            + (
                "register it where its class is complete, as Class.name"
                if is_of_class
                else "give a function"
            )
        )
    called = _what_runs(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigurationError(
            f"{what} is a generator, of which a call runs nothing; give a function "
            "that runs to its end"
        )


def check_hook(
    what: str, function: Any, given: Sequence[str], *, may_await: bool = False
) -> None:
    """Refuse what could not be called as we call it, or would not run then.

    *given* are the names of what it is given, by place.

    Raises:
        ConfigurationError: The message says how it is called.
    """
    check_callable(what, function)
    if not may_await and is_coroutine(function):
        raise ConfigurationError(
            f"{what} is {function!r:.80}, a coroutine, which nothing awaits; give a "
            "plain function"
        )
    try:
        taken_by(function).bind(*given)
    except TypeError as error:
        raise ConfigurationError(
            f"{what} is {function!r:.80}, which cannot be called as it is, with "
            f"({', '.join(given)}): {error}; let it take that"
        ) from None


def is_coroutine(function: object) -> bool:
    """Whether a call gives a coroutine: it, or its class's `__call__`, is async."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        _what_runs(function)
    )


def wraps_coroutine(function: object) -> bool:
    """Whether it is a plain function around a coroutine, which it may well return."""
    for _ in range(_MOST_WRAPPED):
        if is_coroutine(function):
            return True
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            inner = getattr(_what_runs(function), "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return False


def signatures_of(function: Any) -> Signatures:
    """What is taken, and what is said to be taken."""
    return Signatures(taken_by(function), told_by(function))


def taken_by(function: Any) -> inspect.Signature:
    """The parameters of what is called, whatever it says of what it wraps.

    Of one that tells none, such as `max`, they are any.
    """
    kind = type(function)
    if kind is FunctionType:
        # As the code has them: `__wrapped__` and `__signature__`, which is copied with
        # the attributes of what is wrapped, speak of another function.
        bare = FunctionType(
            *(function.__code__, function.__globals__, function.__name__),
            *(function.__defaults__, function.__closure__),
        )
        bare.__kwdefaults__ = function.__kwdefaults__
        bare.__annotations__ = _annotations_of(function)
        return inspect.signature(bare)
    if isinstance(function, staticmethod):
        return taken_by(function.__func__)
    if kind is MethodType:
        return _without_first(taken_by(function.__func__))
    if kind is functools.partial:

        def inner(*_: object, **__: object) -> None: ...

        # As `inspect` reads it; typeshed has none.
        inner.__signature__ = taken_by(function.func)  # type: ignore[attr-defined]
        return inspect.signature(
            functools.partial(inner, *function.args, **function.keywords)
        )
    call = _what_runs(function)
    if call is not function:
        return _without_first(taken_by(call))
    try:
        return _signature(function, follow_wrapped=False)
    except Exception:
        return _ANYTHING


def told_by(function: Any) -> inspect.Signature:
    """The parameters that it says it has: those of what it wraps, at first sight.

    Of several that are wrapped in each other it is the outermost that does not take
    whatever it is given.
    """
    taken = taken_by(function)
    if not takes_whatever(taken):
        return taken
    try:
        if type(function) is MethodType:
            return _signature(function)
        inner = inspect.unwrap(
            function, stop=lambda each: not takes_whatever(taken_by(each))
        )
        told = taken_by(inner)
        return _signature(inner) if takes_whatever(told) else told
    except Exception:
        return taken


def takes_whatever(signature: inspect.Signature) -> bool:
    """Whether there are `*args` or `**kwargs`."""
    return any(
        each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
        for each in signature.parameters.values()
    )


# Annotations are shown, and nothing else. Since Python 3.14 they are evaluated when
# they are asked for, and may name what is there for type checkers alone, or comes
# later: then they are shown as they are written, or not at all.
if sys.version_info >= (3, 14):
    import annotationlib

    def _annotations_of(function: FunctionType) -> dict[str, Any]:
        for form in (annotationlib.Format.VALUE, annotationlib.Format.STRING):
            with contextlib.suppress(Exception):
                return annotationlib.get_annotations(function, format=form)
        return {}

    def _signature(function: Any, *, follow_wrapped: bool = True) -> inspect.Signature:
        try:
            return inspect.signature(function, follow_wrapped=follow_wrapped)
        except Exception:
            return inspect.signature(
                function,
                follow_wrapped=follow_wrapped,
                annotation_format=annotationlib.Format.STRING,
            )
else:

    def _annotations_of(function: FunctionType) -> dict[str, Any]:
        return function.__annotations__

    _signature = inspect.signature


def _what_runs(function: Any) -> Any:
    """The function whose code runs when this is called, as far as that is known."""
    while True:
        kind = type(function)
        if kind is functools.partial:
            function = function.func
        elif isinstance(function, staticmethod):
            function = function.__func__
        elif kind in {FunctionType, MethodType} or isinstance(function, type):
            return function
        else:
            call = inspect.getattr_static(kind, "__call__", None)
            return call if type(call) is FunctionType else function


def _without_first(signature: inspect.Signature) -> inspect.Signature:
    """What is left where the first argument, self, is given."""
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in _BY_PLACE:
        return signature
    return signature.replace(parameters=parameters[1:])
