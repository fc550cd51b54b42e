"""Options: declared once, listed by help(), columns of their tables."""

from __future__ import annotations

import re
from typing import Any

import pytest

from litejobs import LiteJobs, Retry, Task, every
from litejobs._definitions import columns
from litejobs._definitions import options as _options
from litejobs._schedules.collection import Schedules
from litejobs._schedules.schedule import ScheduleChanges
from litejobs._storage import statements
from litejobs.errors import ConfigurationError

CALLS: dict[Any, Any] = {
    Task.using: _options.JobOptions,
    LiteJobs.enqueue: _options.JobOptions,
    LiteJobs.call: _options.JobOptions,
    LiteJobs.task: _options.TaskOptions,
    LiteJobs.flow: _options.FlowOptions,
    LiteJobs.schedule: _options.ScheduleOptions,
    Schedules.create: _options.ScheduleOptions,
    Schedules.update: _options.ScheduleOptions,
}


def note(text: str) -> None: ...


@pytest.fixture
def jobs() -> LiteJobs:
    return LiteJobs()


# Telling users ------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.__qualname__))
def test_help_lists_each_option_once(call: Any) -> None:
    _, _, listed = call.__doc__.partition("\nOptions:\n")
    listed, _, _ = listed.partition("\n\n")
    names = re.findall(r"^    (\w+): \S", listed, re.MULTILINE)
    assert names == list(CALLS[call].__annotations__)


def test_help_keeps_what_comes_after_the_options() -> None:
    before, _, after = str(Task.using.__doc__).partition("\nOptions:\n")
    assert before.startswith("Return the task with other options")
    assert after.endswith("the message says what is allowed.")


def test_a_docstring_that_was_dropped_stays_dropped() -> None:
    """As `python -OO` does."""

    def bare() -> None: ...

    assert _options.listed(_options.JobOptions)(bare).__doc__ is None


def test_unknown_option_is_named_with_the_nearest(jobs: LiteJobs) -> None:
    send = jobs.task(note)
    prio = r"got an unexpected keyword argument 'prio'; did you mean 'priority'\? "
    for what, call in {
        "Task.using": send.using,
        "LiteJobs.task": jobs.task,
        "LiteJobs.call": lambda **options: jobs.call("note", ["a"], **options),
        "LiteJobs.enqueue": lambda **options: jobs.enqueue("note", ["a"], **options),
        "LiteJobs.flow": lambda **options: jobs.flow("f", [("a", note)], **options),
    }.items():
        with pytest.raises(TypeError, match=rf"^{re.escape(what)}\(\) {prio}"):
            call(prio=1)  # type: ignore[operator]
    for schedule in (
        lambda **options: jobs.schedule(every("1h"), **options),
        lambda **options: jobs.schedules.create("a", send, every("1h"), **options),
    ):
        with pytest.raises(ConfigurationError, match="option='prio' is unknown; did"):
            schedule(prio=1)
    assert jobs.counts() == {}


def test_an_option_of_flows_or_tasks_is_none_of_others(jobs: LiteJobs) -> None:
    send = jobs.task(note)
    with pytest.raises(TypeError, match=r"LiteJobs\.task\(\) .* 'max_jumps'"):
        jobs.task(max_jumps=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"Task\.using\(\) .* 'rate'"):
        send.using(rate="1/s")  # type: ignore[call-arg]


# Becoming columns ---------------------------------------------------------------------


def trigger(name: str) -> str:
    """The text of the trigger of this name."""
    found = re.search(
        rf"^create trigger litejobs_{name}\n(.*?)^end;$",
        "".join(statements.logic()),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None, name
    return found[1]


def parameters_of(query: str) -> set[str]:
    return set(re.findall(r":(\w+)", statements.queries()[query]))


def test_each_statement_asks_for_what_the_options_give() -> None:
    """Else a new option would be checked, and then forgotten."""
    job = {each for option in _options.JOB.values() for each in option.columns}
    chain = {"options", "on_parent_success", "prev_job_id"}
    assert set(columns.order()) == job - {"after"} - _options.IN_SPEC | chain
    assert parameters_of("enqueue_job") == parameters_of("enqueue_alike")
    said = parameters_of("declare_task") | parameters_of("declare_task_retention")
    assert said == {
        "name",
        *columns.folded(columns.NEW_TASK),
    }
    said = set(
        re.findall(r"new\.said ->> '\$\.(\w+)'", trigger("_put_schedule_is_done"))
    )
    assert said == {
        *("name", "task", "args", "paused", "paused_reason", "declared"),
        *columns.NEW_SCHEDULE.keys() - _options.IN_SPEC,
        *every("1s").row().keys() - {"kind"},
    }


def test_a_job_gets_each_option_that_its_task_or_schedule_says() -> None:
    """Wherever that is said: an option that one of them forgets would be lost there."""
    of_job, of_task, of_schedule = (
        {each for option in table.values() for each in option.columns}
        for table in (_options.JOB, _options.TASK, _options.SCHEDULE)
    )
    # What is a template, or an instant, is worked out instead.
    worked_out = {"concurrency_key", "circuit", "concurrency_limit", "expires_in_ms"}
    defaults = of_job & of_task - worked_out - _options.IN_SPEC | {"spec_id"}
    for text in (
        *(statements.queries()[name] for name in ("enqueue_job", "enqueue_alike")),
        *(
            trigger(name)
            for name in ("_apply_defaults_writes_row", "_adopt_gives_defaults")
        ),
        trigger("_replace_changes_job"),
    ):
        assert set(re.findall(r"[ (]task\.(\w+)", text)) >= defaults
    passed_on = re.findall(r"\bschedule\.(\w+)", trigger("_fire_one_makes_job"))
    # Its unique key is worked out, too (litejobs__schedule_key).
    said = of_job & of_schedule - _options.IN_SPEC - {"unique_key"} | {"spec_id"}
    assert set(passed_on) >= said
    replaced = re.findall(r"'(\w+)', new\.\w+", trigger("job_insert_guard"))
    kept = {"after", "batch_id", "wait_ms", "unique_key", "on_conflict", "run_at"}
    apart = _options.IN_SPEC | {"expires_in_ms"}
    assert {*replaced} >= of_job - kept - apart


def test_changes_of_a_schedule_are_its_options_and_its_time() -> None:
    assert set(ScheduleChanges.__annotations__) - set(_options.SCHEDULE) == {
        *("when", "task", "args", "kwargs")
    }


def test_options_of_a_job_name_its_own_columns_alone() -> None:
    assert columns.of_job({}) == {}
    assert columns.of_job({"timeout": "1s", "queue": None, "delay": None}) == {
        "timeout_ms": 1000,
        "queue": None,
        "wait_ms": 0,
    }
    assert columns.of_job({"max_attempts": 4, "retryable": True}) == {
        "max_attempts": 4,
        "retryable": True,
    }


def test_a_retry_says_how_often_where_nothing_beside_it_does() -> None:
    waits = columns.of_job({"retry": Retry.constant("5s")})
    assert waits["delay_ms"] == 5000
    assert not waits.keys() & {"max_attempts", "retryable"}
    both = {"retry": Retry.constant("5s"), "max_attempts": 7}
    assert columns.of_job(both)["max_attempts"] == 7
    own = {"retry": Retry.constant("5s", max_attempts=7), "max_attempts": None}
    assert columns.of_job(own)["max_attempts"] == 7
    assert set(columns.of_job({"retry": None}).values()) == {None}


def test_options_without_effect_are_warned_of_without_a_retry() -> None:
    with pytest.warns(UserWarning, match="max_attempts=3 has no effect"):
        columns.of_job({"retryable": False, "max_attempts": 3})


@pytest.mark.parametrize("name", ["delay", "expires_in"])
def test_a_value_that_cannot_be_compared_is_refused_like_others(
    jobs: LiteJobs, name: str
) -> None:
    """As an array, whose comparison is not a truth value."""

    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    given: Any = {name: Array()}
    with pytest.raises(ConfigurationError, match=f"{name}, a value of type Array"):
        jobs.call("work", **given)


def test_nothing_said_is_one_tuple_for_all(jobs: LiteJobs) -> None:
    send = jobs.task(note)
    assert send.using().call("a").options is send.call("b").options
    assert jobs.call("note", ["a"]).options is columns.no_options()
