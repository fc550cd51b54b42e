"""A task is where its function was: tools that look at functions find it."""

from __future__ import annotations

import copy
import doctest
import functools
import inspect
import pickle
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from litejobs import LiteJobs

jobs = LiteJobs()


@jobs.task
def add(left: int, right: int = 1) -> int:
    """Add two numbers.

    >>> add(1, 2)
    3
    """
    return left + right


class Adder:
    """Can be called, and has no name of its own."""

    def __call__(self, left: int) -> int:
        return left + 1


def test_it_is_pickled_and_copied_as_a_function_is_by_where_it_is() -> None:
    """So it can be given to a process that was started anew, as its function could."""
    for again in (pickle.loads(pickle.dumps(add)), copy.copy(add), copy.deepcopy(add)):
        assert again is add
    assert pickle.loads(pickle.dumps(add.using(delay=1))).call(1).task == add.name
    assert {"task": copy.deepcopy({"task": add})["task"]} == {"task": add}


def test_one_that_is_not_to_be_found_is_not_pickled() -> None:
    local = jobs.task(name="local")(lambda: None)
    nameless = jobs.task(name="nameless")(Adder())
    for each in (local, nameless, jobs.flow("steps", [("one", Adder())])):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(each)
        assert copy.copy(each) is each


def test_its_examples_are_tried_and_its_signature_is_shown() -> None:
    found = doctest.DocTestFinder().find(sys.modules[__name__])
    assert [each.name for each in found if each.examples] == [f"{__name__}.add"]
    assert str(inspect.signature(add)) == "(left: 'int', right: 'int' = 1) -> 'int'"
    assert inspect.unwrap(add) is add.function
    assert (add.__module__, add.__qualname__) == (__name__, "add")


def test_it_is_wrapped_and_mocked_as_others_are() -> None:
    @functools.wraps(add)
    def wrapped(left: int) -> int:
        return left

    assert wrapped.__doc__ == add.__doc__
    double: Callable[..., int] = mock.create_autospec(add)
    assert isinstance(double(1), mock.Mock)
    assert not hasattr(add, "__len__")


def test_a_parameter_may_be_called_self() -> None:
    with LiteJobs() as own:

        @own.task
        def method(self: int) -> int:
            return self

        assert method(self=1) == 1
        for each in (method, method.using(priority=2)):
            job = each.enqueue(self=3)
            assert own.drain() == 1
            assert job.result() == 3
            assert each.call(self=3).args == '{"self":3}'
