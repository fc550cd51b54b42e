"""Whether another process finds a task by importing its module."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from litejobs._tasks.task import Task


def modules_of(task: Task[Any, Any]) -> list[str]:
    """Return the modules that another process imports to have this task.

    Raises:
        ConfigurationError: It would not find the task there.
    """
    return list(dict.fromkeys(_module_of(task, each) for each in task.functions()))


def check_definition(task: Task[Any, Any]) -> None:
    """Refuse a task by how it is defined, perhaps before its module has its name.

    Raises:
        ConfigurationError: Another process would not find it.
    """
    for function in task.functions():
        _check_definition(task, function)


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
