"""What works as a call works as a job: any callable, with any kind of parameter."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, cron, every
from litejobs._definitions.arguments import Binder, parted
from litejobs._definitions.callables import signatures_of
from litejobs.errors import ArgumentError, ConfigurationError, JobDeadLettered
from tests.sql.test_arguments import drawn

Function = Callable[..., Any]


@pytest.fixture
def jobs() -> Iterator[LiteJobs]:
    with LiteJobs() as jobs:
        yield jobs


def as_job(jobs: LiteJobs, function: Function, *args: Any, **kwargs: Any) -> Any:
    """What a job of the function returns, as JSON has it."""
    job = jobs.task(name="t", max_attempts=1)(function).enqueue(*args, **kwargs)
    jobs.drain()
    return job.result(timeout=0)


def as_call(function: Function, *args: Any, **kwargs: Any) -> Any:
    found = function(*args, **kwargs)
    if inspect.iscoroutine(found):
        found = asyncio.run(found)
    return json.loads(json.dumps(found))


# --- Kinds of parameters ---------------------------------------------------------


def test_any_parameters_take_as_a_job_what_they_take_as_a_call() -> None:
    r = random.Random(20261129)
    fitting = 0
    for _ in range(1500):
        function = drawn(r, kinds=(0, 1, 1, 3), names=("a", "b", "c", "d"))
        args = [r.randint(0, 9) for _ in range(r.choice([0, 0, 1, 2, 3]))]
        kwargs = {
            name: r.randint(0, 9)
            for name in r.sample(["a", "b", "c", "d", "e"], r.randint(0, 3))
        }
        binder = Binder("t", signatures_of(function))
        told = f"{inspect.signature(function)} of {args} and {kwargs}"
        try:
            found = function(*args, **kwargs)
        except TypeError:
            with pytest.raises(ArgumentError, match="cannot be called like this"):
                binder.bind(tuple(args), kwargs)
            continue
        stored = json.loads(binder.bind(tuple(args), kwargs))
        assert binder.misfit(stored) is None, told
        places, names = parted(stored)
        assert function(*places, **names) == found, told
        fitting += 1
    assert 150 < fitting < 1200


def positional(a: int, /, b: int, *, c: int = 3) -> list[int]:
    return [a, b, c]


def starred(*rest: int, unit: str = "m") -> list[Any]:
    return [list(rest), unit]


def shadowed(a: int, /, **more: int) -> list[Any]:
    return [a, more]


def middle(a: int, /, b: int = 1, c: int = 2) -> list[int]:
    return [a, b, c]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "stored"),
    [
        (positional, (1, 2), {"c": 4}, {"*": [1, 2], "c": 4}),
        (positional, (1,), {"b": 2}, [1, 2]),
        (starred, (1, 2), {"unit": "s"}, {"*": [1, 2], "unit": "s"}),
        (starred, (), {"unit": "s"}, {"unit": "s"}),
        (starred, (), {}, []),
        (shadowed, (1,), {"a": 2}, {"*": [1], "a": 2}),
        (middle, (1,), {"c": 5}, {"*": [1], "c": 5}),
    ],
)
def test_what_has_a_name_stands_beside_what_has_a_place(
    jobs: LiteJobs, function: Function, args: Any, kwargs: Any, stored: Any
) -> None:
    assert as_job(jobs, function, *args, **kwargs) == as_call(function, *args, **kwargs)
    assert jobs.get(1).args == stored
    # As another program says it, and as other clients do.
    for arguments in (stored, json.loads(json.dumps(stored))):
        job = jobs.enqueue("t", arguments)
        assert job.args == stored
    jobs.drain()
    assert jobs.get(3).result() == as_call(function, *args, **kwargs)


def test_a_schedule_gives_places_and_names(jobs: LiteJobs) -> None:
    jobs.schedule(every("1h"), args=[1], kwargs={"unit": "s"})(jobs.task(starred))
    later = jobs.schedules.create(
        "later", "unknown", cron("@daily"), args=[1], kwargs={"unit": "s"}
    )
    assert jobs.schedules["starred"].args == later.args == {"*": [1], "unit": "s"}
    jobs.schedules.update("later", task="starred")
    assert jobs.schedules["later"].args == {"*": [1], "unit": "s"}


def test_a_key_may_ask_for_a_name_beside_places(jobs: LiteJobs) -> None:
    jobs.task(concurrency_key="{0}-{unit}")(starred)
    job = jobs.enqueue("starred", {"*": [7, 8], "unit": "s"})
    assert list(jobs.keys) == ["7-s"]
    assert job.args == {"*": [7, 8], "unit": "s"}


def test_the_name_under_which_places_are_stored_is_refused(jobs: LiteJobs) -> None:
    task = jobs.task(name="any")(lambda **names: names)
    with pytest.raises(ArgumentError, match=r"cannot be given '\*' as a name"):
        task.enqueue(**{"*": 1})
    with pytest.raises(ArgumentError, match=r"'\*' has to be a list"):
        jobs.enqueue("any", {"*": 1})
    with pytest.raises(ArgumentError, match=r"'\*' has to be a list"):
        jobs.enqueue("elsewhere", {"*": 1})
    assert jobs.counts() == {}


def test_prev_is_handed_on_beside_any_number_of_places(jobs: LiteJobs) -> None:
    first = jobs.task(name="first")(lambda: "begun")
    then = jobs.task(name="then")(lambda *rest, prev=None: [list(rest), prev])
    *_, last = jobs.enqueue_chain(first.call().then(then.call(1, 2, 3)))
    jobs.drain()
    assert last.result() == [[1, 2, 3], "begun"]


# --- Decorators ------------------------------------------------------------------


def passing(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def with_session(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function("session", *args, **kwargs)

    return call


def with_prefix(function: Function) -> Function:
    @functools.wraps(function)
    def call(prefix: str, number: int) -> str:
        return f"{prefix}{function(number)}"

    return call


def by_place(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return [args[0], function(*args)]

    return call


def by_name(function: Function) -> Function:
    @functools.wraps(function)
    def call(**names: Any) -> Any:
        return function(names.pop("number") + 1, **names)

    return call


def first_looked_at(function: Function) -> Function:
    @functools.wraps(function)
    def call(number: int, /, *rest: Any, **names: Any) -> Any:
        return [number, function(number, *rest, **names)]

    return call


def told(function: Function) -> Function:
    """It says by hand which parameters it has, as it will not be called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__signature__ = inspect.signature(lambda other: None)  # type: ignore[attr-defined]
    return call


class Wrapped:
    """A decorator that is an object, as of several libraries."""

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function("object", *args, **kwargs)


def double(number: int) -> int:
    return 2 * number


def pair(first: Any, second: Any = 0) -> list[Any]:
    return [first, second]


async def later(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


@functools.singledispatch
def shown(value: Any) -> str:
    return f"any {value}"


class Counter:
    def __call__(self, number: int) -> int:
        return number + 1

    def method(self, number: int, *, step: int = 1) -> int:
        return number + step

    async def later(self, number: int) -> int:
        return number + 1

    @with_session
    def wrapped(self: Any, number: Any) -> str:
        return f"{self} {type(number).__name__}"

    @classmethod
    def of_class(cls, number: int) -> list[Any]:
        return [cls.__name__, number]

    @staticmethod
    def static(number: int) -> int:
        return number


class AsyncCounter:
    async def __call__(self, number: int) -> int:
        return number + 1


CALLS: dict[str, tuple[Function, tuple[Any, ...], dict[str, Any]]] = {
    "adds an argument": (with_session(pair), ("ann",), {}),
    "adds one beside a name": (with_session(pair), (), {"second": 1}),
    "takes one more": (with_prefix(double), ("n", 2), {}),
    "takes one more by name": (with_prefix(double), (), {"prefix": "n", "number": 2}),
    "looks at a place": (by_place(double), (2,), {}),
    "looks at a name": (by_name(double), (), {"number": 2}),
    "takes the first by place": (first_looked_at(pair), (1, 2), {}),
    "takes it beside a name": (first_looked_at(pair), (1,), {"second": 3}),
    "in each other": (passing(with_session(passing(pair))), ("ann",), {}),
    "one with its own within": (passing(with_prefix(double)), ("n", 2), {}),
    "says it is another": (told(pair), (1, 2), {}),
    "copies what that says": (with_session(told(pair)), (1,), {}),
    "an object": (Wrapped(pair), (1,), {}),
    "a cache": (functools.lru_cache(double), (2,), {}),
    "by the type of the first": (shown, (2,), {}),
    "partial": (functools.partial(pair, second=3), (1,), {}),
    "partial by place": (functools.partial(pair, 1), (3,), {}),
    "partial of decorated": (functools.partial(with_session(pair), 3), (), {}),
    "coroutine": (later, (1,), {}),
    "decorated coroutine": (passing(later), (1,), {}),
    "decorated twice": (passing(passing(later)), (1,), {}),
    "partial coroutine": (functools.partial(later), (1,), {}),
    "object": (Counter(), (1,), {}),
    "object that is a coroutine": (AsyncCounter(), (1,), {}),
    "partial of that": (functools.partial(AsyncCounter()), (1,), {}),
    "cache of a coroutine": (passing(functools.partial(later)), (1,), {}),
    "method": (Counter().method, (1,), {"step": 2}),
    "method that is a coroutine": (Counter().later, (1,), {}),
    "decorated method": (Counter().wrapped, (), {}),
    "class method": (Counter.of_class, (1,), {}),
    "static method": (Counter.static, (1,), {}),
    "static method itself": (vars(Counter)["static"], (1,), {}),
    "class": (dict, (), {"a": 1}),
    "function without a signature": (max, (1, 2), {}),
    "built-in": (sorted, ([2, 3, 1],), {"reverse": True}),
}


@pytest.mark.parametrize("which", CALLS)
def test_what_works_as_a_call_works_as_a_job(jobs: LiteJobs, which: str) -> None:
    function, args, kwargs = CALLS[which]
    assert as_job(jobs, function, *args, **kwargs) == as_call(function, *args, **kwargs)


@pytest.mark.parametrize(
    ("function", "args", "problem"),
    [
        (with_prefix(double), (2,), "missing a required argument: 'number'"),
        (with_prefix(double), ("n", 2, 3), "too many positional arguments"),
        (by_place(double), (), None),
        (functools.partial(pair, 1), (2, 3), "too many positional arguments"),
        (Counter(), (), "missing a required argument: 'number'"),
        (Counter().method, (1, 2), "too many positional arguments"),
    ],
)
def test_a_signature_of_its_own_is_checked_in_full(
    jobs: LiteJobs, function: Function, args: Any, problem: str | None
) -> None:
    task = jobs.task(name="t")(function)
    if problem is None:
        task.enqueue(*args)
        return
    with pytest.raises(ArgumentError, match=problem):
        task.enqueue(*args)
    assert jobs.counts() == {}


def test_what_does_not_fit_within_is_stored_and_logged_once(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    task = jobs.task(name="greet")(with_session(pair))
    other = jobs.task(name="other")(passing(double))
    with caplog.at_level(logging.INFO, "litejobs"):
        task.enqueue("ann")
        assert caplog.messages == []
        for _ in range(2):
            task.enqueue(third=3)
            other.enqueue()
    [first, second] = caplog.messages
    assert first == (
        "task 'greet' was given what does not fit the function within its decorator, "
        "(first: 'Any', second: 'Any' = 0) -> 'list[Any]': missing a required "
        "argument: 'first'; it is stored, for the decorator takes anything, and this "
        "is said once"
    )
    assert second.startswith("task 'other' was given what does not fit")
    assert jobs.counts() == {"pending": 5}


def test_a_result_is_handed_on_through_a_decorator(jobs: LiteJobs) -> None:
    def go_on(to: str, prev: str) -> list[str]:
        return [to, prev]

    def kept(session: str, to: str, prev: str = "none") -> list[str]:
        return [session, to, prev]

    first = jobs.task(name="first")(lambda: "begun")
    nothing = jobs.task(name="nothing")(lambda: None)
    task = jobs.task(name="go_on")(passing(go_on))
    with_default = jobs.task(name="kept")(with_session(kept))
    chains = [
        first.call().then(task.call("a")),
        first.call().then(task.call(to="a")),
        nothing.call().then(task.call("a")),
        first.call().then(with_default.call("a")),
    ]
    ends = [jobs.enqueue_chain(each)[-1] for each in chains]
    alone = [task.enqueue("a", "b"), task.enqueue("a", prev="b")]
    alone += [with_default.enqueue("a"), with_default.enqueue("a", "b")]
    jobs.drain()
    assert [each.result() for each in ends] == [
        ["a", "begun"],
        ["a", "begun"],
        ["a", None],
        ["session", "a", "begun"],
    ]
    assert [each.result() for each in alone] == [
        ["a", "b"],
        ["a", "b"],
        ["session", "a", "none"],
        ["session", "a", "b"],
    ]


def test_a_prev_that_the_decorator_gives_is_not_given_twice(jobs: LiteJobs) -> None:
    def own(to: str, prev: str) -> list[str]:
        return [to, prev]

    assert as_job(jobs, lambda_of(own), "a") == ["a", "own"]


def lambda_of(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, prev="own", **kwargs)

    return call


def test_a_step_is_called_as_its_decorator_takes_it(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    def second(prev: list[str], ctx: Any) -> list[Any]:
        return [*prev, ctx]

    flow = jobs.flow(
        "f",
        [
            ("one", with_session(lambda session, user: [session, user])),
            ("two", passing(second)),
            ("three", passing(later_of_prev)),
        ],
    )
    job = flow.enqueue(user="ann")
    jobs.drain()
    assert job.result() == ["session", "ann", {}, "later"]
    assert "missing a required argument: 'session'" in caplog.messages[0]


async def later_of_prev(prev: list[Any]) -> list[Any]:
    return [*prev, "later"]


def test_a_decorated_coroutine_runs_in_the_loop_of_the_application(
    tmp_path: Path,
) -> None:
    """It gives a coroutine, which its thread waits for, and a time limit cancels."""
    loops: list[Any] = []

    async def where(seconds: float) -> str:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(seconds)
        return "done"

    async def main(jobs: LiteJobs) -> None:
        task = jobs.task(name="where", max_attempts=1)(passing(where))
        async with jobs.arunning(threads=1):
            assert await task.enqueue(0) == "done"
            late = task.using(timeout="50ms").enqueue(3600)
            with pytest.raises(JobDeadLettered, match="TaskTimeout"):
                await late
        assert set(loops) == {asyncio.get_running_loop()}

    with LiteJobs(tmp_path / "jobs.db") as jobs:
        asyncio.run(main(jobs))


# --- What can never work ---------------------------------------------------------


def numbers(n: int) -> Iterator[int]:
    yield n


async def waiting(n: int) -> Any:
    yield n


class Yields:
    def __call__(self, n: int) -> Iterator[int]:
        yield n


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (numbers, "task 't' is a generator, of which a call runs nothing; give"),
        (waiting, "task 't' is a generator, of which a call runs nothing; give"),
        (Yields(), "task 't' is a generator, of which a call runs nothing; give"),
        (functools.partial(numbers), "is a generator, of which a call runs nothing"),
        (5, "task 't' is 5, which cannot be called; give a function"),
        ("t", "task 't' is 't', which cannot be called; give a function"),
        (vars(Counter)["of_class"], "register it where its class is complete"),
    ],
)
def test_what_can_never_work_is_refused_where_it_is_registered(
    jobs: LiteJobs, function: Any, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        jobs.task(name="t")(function)
    with pytest.raises(ConfigurationError, match=problem.removeprefix("task 't' ")):
        jobs.flow("f", [("one", function)])
    assert jobs.tasks == {}


def test_a_task_without_a_name_is_told_to_have_one(jobs: LiteJobs) -> None:
    for function in (functools.partial(double), Counter()):
        for register in (jobs.task, jobs.schedule(every("1h"))):
            with pytest.raises(
                ConfigurationError, match="has no name of its own; give"
            ):
                register(function)
    with pytest.raises(ConfigurationError, match="a task is 5, which cannot be called"):
        jobs.task(5)  # type: ignore[call-overload]


async def listens(event: Any) -> None:
    del event


@pytest.mark.parametrize(
    ("register", "called"),
    [
        ("middleware", r"\(current, run\)"),
        ("extractor", r"\(error\)"),
        ("on", r"\(event\)"),
        ("outbox", r"\(\)"),
    ],
)
def test_what_we_are_to_call_can_be_called_so(
    jobs: LiteJobs, register: str, called: str
) -> None:
    def registered(function: Any) -> Any:
        if register == "on":
            return jobs.on("completed", function)
        return getattr(jobs, register)(function)

    with pytest.raises(ConfigurationError, match="is 5, which cannot be called"):
        registered(5)
    with pytest.raises(ConfigurationError, match=f"as it is, with {called}: "):
        registered(lambda a, b, c: None)
    with pytest.raises(ConfigurationError, match="is a generator"):
        registered(numbers)
    if register != "middleware":
        with pytest.raises(ConfigurationError, match="a coroutine, which nothing awai"):
            registered(listens)
    registered(lambda *args: None)
