"""Whether another process finds a task by importing its module."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from litejobs._storage.store import Store
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litejobs._tasks.task import Task


def modules_of(task: Task[Any, Any]) -> list[str]:
    """Return the modules that another process imports to have this task.

    Raises:
        ConfigurationError: It would not find the task there.
    """
    return list(dict.fromkeys(_module_of(task, each) for each in task.functions()))


def check_definition(task: Task[Any, Any]) -> None:
    """Refuse a task by how it is defined, perhaps before its module has its name.

    Where its module is imported already, that is known to register it, or not.

    Raises:
        ConfigurationError: Another process would not find it.
    """
    for function in task.functions():
        _check_definition(task, function)
        if not _is_being_imported(function):
            _check_registration(task, function)


_attributes: dict[type, str] = {}
"""Where an object of this type has its store."""


def stores_in(module: str) -> Iterator[tuple[str, Store]]:
    """Yield the store of each object, and of each task, that this module names."""
    for name in list(vars(sys.modules[module])):
        store = store_at(module, name)
        if store is not None:
            yield name, store


def store_at(module: str, name: str) -> Store | None:
    """Return the store of what has this name there, if it is an object or a task.

    What else stands there is not touched: to ask something lazy for an attribute may
    raise anything, or begin what nobody wants here.
    """
    value = vars(sys.modules[module]).get(name)
    known = _attributes.get(type(value))
    if known is not None and isinstance(store := vars(value).get(known), Store):
        # It is one of ours, as another of its type was; the way below takes long.
        return store
    for attribute in ("store", "_store"):
        store = inspect.getattr_static(value, attribute, None)
        if issubclass(type(store), Store):
            found: Store = store
            _attributes[type(value)] = attribute
            return found
    return None


def _check_definition(task: Task[Any, Any], function: Callable[..., Any]) -> None:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if module in {None, "__main__"}:
        raise ConfigurationError(
            f"task {task.name!r} is defined in the program that was started "
            "(__main__), which other processes do not import; move it to a module"
        )
    if "<" in name:
        raise ConfigurationError(
            f"task {task.name!r} is {module}:{name}, which other processes cannot "
            "import; define its function at the top of a module"
        )


def _is_being_imported(function: Callable[..., Any]) -> bool:
    """Whether its module, or a package that this is in, runs just now."""
    name = f"{function.__module__}."
    frame = inspect.currentframe()
    while frame is not None:
        is_module = frame.f_code.co_name == "<module>"
        if is_module and name.startswith(f"{frame.f_globals.get('__name__')}."):
            return True
        frame = frame.f_back
    return False


def _check_registration(task: Task[Any, Any], function: Callable[..., Any]) -> None:
    module = function.__module__
    for _, store in stores_in(module):
        if store.execution is not None and task.name in store.execution.tasks:
            return
    raise ConfigurationError(
        f"task {task.name!r} is not registered by importing {module}, which is all "
        "that other processes do; register it at the top of that module"
    )


def _module_of(task: Task[Any, Any], function: Callable[..., Any]) -> str:
    _check_definition(task, function)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not task and getattr(found, "function", found) is not function:
        raise ConfigurationError(
            f"task {task.name!r} is not found again as {module}:{name}, by which "
            "other processes import it; give function and task one name there"
        )
    return str(module)
