"""`with` blocks that may decorate a function, too, a coroutine or generator as well."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from litejobs._values import blocks
from litejobs.errors import ConfigurationError

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class Block(contextlib.AbstractContextManager[T], Generic[T]):
    """One block, or as a decorator one for each call: until the call has ended.

    That of a coroutine ends when it returns, that of a generator (a fixture that
    yields, say) when it is exhausted or closed.
    """

    def __init__(
        self, name: str, begin: Callable[[], contextlib.AbstractContextManager[T]]
    ) -> None:
        self._name = name
        self._begin = begin
        self._begun: list[contextlib.AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        block = self._begin()
        entered = block.__enter__()
        self._begun.append(block)
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._begun.pop().__exit__(kind, raised, trace)

    def __call__(self, function: F) -> F:
        """Decorate the function.

        Raises:
            ConfigurationError: It is a class.
        """
        if isinstance(function, type):
            raise ConfigurationError(
                f"{self._name}() cannot decorate class {function.__name__}; decorate "
                "its methods, or call it in a fixture or setUp"
            )
        return cast("F", functools.wraps(function)(_wrapper(function, self._begin)))


def _wrapper(
    function: Callable[..., Any],
    begin: Callable[[], contextlib.AbstractContextManager[Any]],
) -> Callable[..., Any]:
    async def of_coroutine(*args: Any, **kwargs: Any) -> Any:
        with begin():
            return await function(*args, **kwargs)

    async def of_async_generator(*args: Any, **kwargs: Any) -> Any:
        with begin():
            async with contextlib.aclosing(function(*args, **kwargs)) as values:
                async for value in values:
                    yield value

    def of_generator(*args: Any, **kwargs: Any) -> Any:
        with begin():
            return (yield from function(*args, **kwargs))

    def of_function(*args: Any, **kwargs: Any) -> Any:
        with begin():
            return function(*args, **kwargs)

    if inspect.iscoroutinefunction(function):
        return of_coroutine
    if inspect.isasyncgenfunction(function):
        return of_async_generator
    return of_generator if inspect.isgeneratorfunction(function) else of_function


def block(make: Callable[P, Iterator[T]]) -> Callable[P, Block[T]]:
    """Make blocks of a generator that yields once, as `contextlib.contextmanager`."""
    manager = blocks.block(make)

    @functools.wraps(make)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Block[T]:
        return Block(make.__name__, functools.partial(manager, *args, **kwargs))

    return begin
