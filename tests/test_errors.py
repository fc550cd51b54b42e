"""Exceptions of ours go where exceptions go: into other processes, and copied."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

import litejobs
from litejobs import TaskError, errors
from tests.rows import for_each

SEEN = (
    *(errors.LiteJobsError, errors.TaskError, errors.TaskInterrupt),
    click.ClickException,
)

# What the constructors want beside a message.
MADE: dict[str, tuple[Any, ...]] = {
    "CursorInUse": ("why", 7),
    "Refused": ("why", "a_code"),
    "InvalidTransition": ("why", "invalid_transition"),
    "ConstraintViolated": ("why", "a_constraint"),
    "JobExists": ("why", 7),
    "JobNotCompleted": ("why", 7),
    "JobDeadLettered": ("why", 7),
    "JobCancelled": ("why", 7),
    "EventsLost": ("why", 7, 11, ("mail",)),
    "ResultNotStored": ("why", 7, "date", "datetime.date(2026, 1, 2)", "a reason"),
    "RunnerActive": ("why", 4711),
    "TaskError": ("A_CODE", "why", {"a": [1]}),
}


def classes() -> Iterator[type[BaseException]]:
    """Every exception of the package that a user or a task may see, once."""
    for module in pkgutil.walk_packages(litejobs.__path__, "litejobs."):
        if module.name == "litejobs.__main__":
            continue
        try:
            found = vars(importlib.import_module(module.name)).values()
        except ModuleNotFoundError as error:
            # It comes with an extra.
            assert error.name == "distributed"
            continue
        for each in found:
            if (
                inspect.isclass(each)
                and issubclass(each, SEEN)
                and each.__module__ == module.name
                and not each.__name__.startswith("_")
            ):
                yield each


def pickled(error: BaseException, protocol: int) -> BaseException:
    found: BaseException = pickle.loads(pickle.dumps(error, protocol))
    return found


WAYS: dict[str, Callable[[BaseException], BaseException]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {number}": lambda error, number=number: pickled(error, number)
        for number in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@for_each("way", WAYS)
@for_each("kind", [*classes()])
def test_exception_comes_back_as_it_was(kind: type[BaseException], way: str) -> None:
    error = kind(*MADE.get(kind.__name__, ("why",)))
    error.add_note("and a note")
    found = WAYS[way](error)
    assert type(found) is kind
    assert (str(found), found.args) == (str(error), error.args)
    assert vars(found) == vars(error)


def test_all_that_users_catch_is_among_them() -> None:
    public = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and each.__module__ == "litejobs.errors"
        if issubclass(each, BaseException)
    }
    assert public <= {each.__name__ for each in classes()}
    assert {"JobExists", "TaskError", "TaskStopped"} <= public


class Late(TaskError):
    """As an application may have it, with a constructor of its own."""

    def __init__(self, train: int, *, minutes: int) -> None:
        super().__init__("LATE", f"train {train}", retry_after="1m")
        self.minutes = minutes


class NotThere(errors.JobNotFound):
    def __init__(self, *, number: int) -> None:
        super().__init__(f"no {number}")


@pytest.mark.parametrize("way", WAYS)
def test_so_do_those_that_applications_derive(way: str) -> None:
    found = WAYS[way](Late(7, minutes=3))
    assert isinstance(found, Late)
    assert (found.code, found.message, found.data) == ("LATE", "train 7", None)
    assert (found.minutes, found.retry_after, found.retryable) == (3, 60, True)
    assert str(WAYS[way](NotThere(number=4))) == "no 4"
