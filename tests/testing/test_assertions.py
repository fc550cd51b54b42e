"""Each assertion with a right and a wrong expectation, and what is said of that."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs.errors import ArgumentError, ConfigurationError, LiteJobsError
from litejobs.testing import (
    all_enqueued,
    assert_enqueued,
    enqueued,
    isolated,
    perform,
    refute_enqueued,
)

jobs = LiteJobs("app.db")


@jobs.task(queue="mail")
def send(to: str, n: int = 1, *, subject: str = "Hello") -> None:
    pass


@jobs.task
def total(first: int, /, *more: int) -> int:
    return first + sum(more)


@jobs.task
def again(n: int) -> None:
    if n:
        again.enqueue(n - 1)


def plain(to: str) -> None:
    pass


jobs.task(name="renamed")(plain)
jobs.flow("trip", [("go", lambda to, by: to), ("come", lambda to: to)])


@pytest.fixture(autouse=True)
def _isolated(clock: Any) -> Iterator[None]:
    with isolated():
        yield


def said(assertion: Callable[[], object]) -> str:
    """What a wrong expectation is told."""
    with pytest.raises(AssertionError) as caught:
        assertion()
    return str(caught.value)


# What fits ----------------------------------------------------------------------------


def test_a_task_is_named_by_itself_its_function_or_its_name() -> None:
    plain_job = jobs.enqueue("renamed", {"to": "ann"})
    for task in (plain, "renamed", jobs.tasks["renamed"]):
        [found] = assert_enqueued(task)
        assert found.id == plain_job.id
    refute_enqueued(send)


def test_arguments_are_a_part_of_those_that_were_given() -> None:
    send.enqueue("ann", 3)
    assert_enqueued(send)
    assert_enqueued(send, args={})
    assert_enqueued(send, args={"n": 3})
    assert_enqueued(send, args={"to": "ann", "n": 3})
    assert_enqueued(send, args=["ann"])
    assert_enqueued("send", args=("ann", 3))
    refute_enqueued(send, args={"n": True})
    refute_enqueued(send, args={"subject": "Hello"})  # it was left out


def test_arguments_that_are_stored_as_a_list_have_names_as_well() -> None:
    total.enqueue(1, 2, 3)
    assert_enqueued(total, args=[1])
    assert_enqueued(total, args={"first": 1, "more": [2, 3]})
    refute_enqueued(total, args=[2])


def test_arguments_of_a_flow_and_of_a_task_of_nobody_are_compared_as_stored() -> None:
    jobs.enqueue("trip", {"to": "Oslo", "by": "train"})
    jobs.enqueue("task_of_nobody", [1, 2])
    assert_enqueued("trip", args={"by": "train"})
    assert_enqueued("task_of_nobody", args=[1, 2])
    refute_enqueued("task_of_nobody", args=[1])


def test_values_are_compared_as_the_file_has_them() -> None:
    day = dt.date(2026, 5, 1)
    with pytest.raises(ArgumentError):
        assert_enqueued(send, args={"to": day})
    send.enqueue("ann", subject="1")
    assert_enqueued(send, args={"subject": "1"})


def test_true_is_not_1_at_any_depth() -> None:
    send.enqueue("ann", subject={"is": [1, {"urgent": True}]})
    assert_enqueued(send, args={"subject": {"is": [1.0, {"urgent": True}]}})
    refute_enqueued(send, args={"subject": {"is": [True, {"urgent": True}]}})
    refute_enqueued(send, args={"subject": {"is": [1, {"urgent": 1}]}})


def test_queue_time_and_number_are_compared(clock: Any) -> None:
    at = dt.datetime(2026, 1, 1, 3, tzinfo=dt.UTC)
    send.using(queue="slow", delay="3h").enqueue("ann")
    send.enqueue("bob")
    assert_enqueued(send, queue="slow", run_at="3h", count=1)
    assert_enqueued(send, run_at=at)
    assert_enqueued(send, run_at=at.astimezone(dt.timezone(dt.timedelta(hours=2))))
    assert_enqueued(send, run_at=at + dt.timedelta(seconds=1))
    refute_enqueued(send, run_at=at + dt.timedelta(seconds=2))
    assert_enqueued(send, run_at=0, queue="mail", count=1)
    assert_enqueued(send, count=2)
    assert_enqueued(count=2)
    clock.tick(60)  # how long after it was enqueued, and not from now
    assert_enqueued(send, run_at="3h")


def test_what_has_become_of_a_job_does_not_matter() -> None:
    send.enqueue("ann")
    send.enqueue("bob").cancel()
    jobs.drain()
    assert [each.state for each in assert_enqueued(send, count=2)] == [
        "completed",
        "cancelled",
    ]


def test_all_that_was_enqueued_is_listed_in_order_as_snapshots() -> None:
    assert list(all_enqueued()) == []
    send.enqueue("ann")
    total.enqueue(1)
    LiteJobs("other.db").enqueue("elsewhere")
    gc.collect()  # nothing else has a name for that object
    assert [each.task for each in all_enqueued()] == ["send", "total", "elsewhere"]
    assert [each.task for each in all_enqueued(jobs=jobs)] == ["send", "total"]
    assert [each.args for each in all_enqueued(send)] == [{"to": "ann"}]
    assert [each.id for each in all_enqueued()[:1]] == [1]


def test_a_task_of_one_file_is_not_looked_for_in_another() -> None:
    LiteJobs("other.db").enqueue("send", {"to": "ann"})
    refute_enqueued(send)
    assert_enqueued("send")


def test_jobs_of_a_closed_object_are_seen() -> None:
    send.enqueue("ann")
    jobs.close()
    assert_enqueued(send)
    assert_enqueued("send")


def test_a_job_that_was_performed_was_not_enqueued() -> None:
    with enqueued(again, args=[2], count=1):
        perform(again, 3)
    refute_enqueued(again, args=[3])
    assert len(all_enqueued()) == 1


def test_objects_of_earlier_tests_do_not_count() -> None:
    """An application that is made anew for each test, with the same functions."""

    def work(n: int) -> None:
        pass

    def work_otherwise(m: int) -> None:
        pass

    left = [LiteJobs("app.db") for _ in range(2)]
    for each in left:
        each.task(name="work")(work_otherwise)
        each.task(name="same")(work)
    LiteJobs("file:no.db").task(name="work")(work)
    with isolated():
        app = LiteJobs("made.db")
        app.task(name="work")(work)
        app.enqueue("work", [7])
        assert_enqueued(work, args=[7], count=1)
        assert_enqueued("work", args={"n": 7}, count=1)
        assert perform("work", 1) is None
    with isolated():
        for each in left:
            each.enqueue("work", [1])
        assert_enqueued("work", args={"m": 1}, count=2)  # one file, two objects
        with pytest.raises(ConfigurationError, match="several LiteJobs objects have"):
            perform("work", 1)


# Blocks -------------------------------------------------------------------------------


def test_a_block_sees_only_what_was_enqueued_within() -> None:
    send.enqueue("before")
    with enqueued() as new:
        assert list(new) == []
        send.enqueue("ann")
        assert len(new) == 1  # so far
        total.enqueue(1)
    send.enqueue("after")
    assert [each.task for each in new] == ["send", "total"]
    assert new[0].args == {"to": "ann"}
    assert repr(new) == "[<job 2 (send)>, <job 3 (total)>]"


def test_a_block_asserts_what_it_is_told() -> None:
    send.enqueue("before")
    with enqueued(send, args={"to": "ann"}, count=1) as new:
        send.enqueue("ann")
    assert len(new) == 1
    with enqueued(count=0):
        pass
    assert "in the block" in said(lambda: block(send, args={"to": "before"}))
    assert "2 such jobs were enqueued in the block, and none was expected" in said(
        lambda: block(send, count=0)
    )


def block(*wanted: Any, **more: Any) -> None:
    with enqueued(*wanted, **more):
        send.enqueue("ann")
        send.enqueue("bob")


def test_a_file_that_is_opened_within_the_block_is_seen() -> None:
    app = LiteJobs("late.db")
    with enqueued("late") as new:
        app.enqueue("late")
    assert len(new) == 1


def test_jobs_from_before_are_not_new_though_the_object_was_closed() -> None:
    send.enqueue("old")
    jobs.close()
    with enqueued() as new:
        send.enqueue("young")
    assert [each.args for each in new] == [{"to": "young"}]


def test_what_a_block_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), enqueued(send):
        raise ZeroDivisionError


def test_an_assertion_about_before_is_no_block() -> None:
    send.enqueue("ann")
    with pytest.raises(LiteJobsError, match=r"write `with enqueued\(task, …\):`"):
        with assert_enqueued(send):  # type: ignore[attr-defined]
            pass
    with pytest.raises(LiteJobsError, match="use it as `with enqueued"):
        len(enqueued())


# What is said -------------------------------------------------------------------------


def test_near_misses_stand_side_by_side() -> None:
    send.enqueue("bob", 3)
    send.using(queue="bulk").enqueue("ann", 4)
    total.enqueue(1)
    wanted = {"to": "ann", "n": 3}
    assert said(lambda: assert_enqueued(send, args=wanted, queue="mail")) == (
        "no such job was enqueued\n\n"
        "            expected  job 1     job 2\n"
        "  task      send      send      send\n"
        "  queue     mail      mail      != bulk\n"
        "  args: to  'ann'     != 'bob'  'ann'\n"
        "  args: n   3         3         != 4\n"
        "(1 job was enqueued of other tasks)"
    )


def test_only_the_nearest_are_shown() -> None:
    for n in range(6):
        send.enqueue("ann", n)
    text = said(lambda: assert_enqueued(send, args=["bob"]))
    assert text.count("!= 'ann'") == 3
    assert "job 6" in text
    assert text.endswith("and 3 more that differ")


def test_another_time_is_shown() -> None:
    send.using(delay="1h").enqueue("ann")
    assert "in 2h     != in 1h" in said(lambda: assert_enqueued(send, run_at="2h"))
    at = dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC)
    assert "2026-01-01 05:00:00Z  != 2026-01-01 01:00:00Z" in said(
        lambda: assert_enqueued(send, run_at=at)
    )


def test_another_number_is_said_with_those_that_there_are() -> None:
    send.enqueue("ann")
    send.enqueue("bob")
    assert said(lambda: assert_enqueued(send, count=1)) == (
        "2 such jobs were enqueued, and 1 was expected\n\n"
        "        expected  job 1          job 2\n"
        "  task  send      send           send\n"
        "  args  (any)     {'to': 'ann'}  {'to': 'bob'}"
    )
    assert said(lambda: assert_enqueued(send, args=["ann"], count=2)).startswith(
        "1 such job was enqueued, and 2 were expected\n"
    )
    assert said(lambda: assert_enqueued(total, count=2)).startswith(
        "no such job was enqueued, and 2 were expected\n"
    )


def test_of_too_few_the_near_misses_are_shown() -> None:
    for name in ("ann", "bob", "ann"):
        send.enqueue(name)
    assert said(lambda: assert_enqueued(send, args={"to": "ann"}, count=3)) == (
        "2 such jobs were enqueued, and 3 were expected\n\n"
        "            expected  job 2\n"
        "  task      send      send\n"
        "  args: to  'ann'     != 'bob'\n"
        "(as expected: job 1, 3)"
    )


def test_what_was_not_to_be_is_shown() -> None:
    send.enqueue("ann")
    send.enqueue("bob")
    text = said(lambda: refute_enqueued(send, args=["ann"]))
    assert text.startswith("1 such job was enqueued, and none was expected\n")
    assert "job 1" in text
    assert "bob" not in text


def test_an_empty_file_is_said() -> None:
    assert said(lambda: assert_enqueued(send)) == (
        "no such job was enqueued\nnothing at all was enqueued"
    )
    assert said(assert_enqueued) == ("no job was enqueued\nnothing at all was enqueued")


def test_jobs_that_were_deleted_are_counted() -> None:
    send.enqueue("ann")
    jobs.advance("8d")
    assert said(lambda: assert_enqueued(send)).endswith(
        "(1 job was enqueued that the file does not have any more: what has ended is "
        "deleted in time, or by a purge)"
    )
    with enqueued() as new:
        send.enqueue("bob")
    assert len(new) == 1
    assert "any more" not in said(lambda: _send_to("bob", "ann"))


def _send_to(name: str, expected: str) -> None:
    with enqueued(send, args=[expected]):
        send.enqueue(name)


def test_jobs_of_other_tasks_are_counted() -> None:
    total.enqueue(1)
    total.enqueue(2)
    assert said(lambda: assert_enqueued(send)) == (
        "no such job was enqueued\n"
        "expected was a job of 'send'; there are those of 'total' (2)"
    )


def test_a_slip_in_the_name_is_said() -> None:
    jobs.open()
    assert said(lambda: assert_enqueued("sned")).endswith(
        "no LiteJobs object has a task 'sned'; did you mean 'send'?"
    )


def test_long_values_are_cut() -> None:
    send.enqueue("x" * 1000)
    text = said(lambda: assert_enqueued(send, args=["y" * 1000]))
    assert max(map(len, text.splitlines())) < 120


def test_values_that_begin_alike_are_shown_where_they_differ() -> None:
    url = "https://example.com/a/long/way/to/orders/"
    send.enqueue(url + "17")
    send.enqueue("elsewhere")
    text = said(lambda: assert_enqueued(send, args={"to": url + "18"}))
    assert text.endswith(
        "args: to differs further on:\n"
        "  expected  …g/way/to/orders/18'\n"
        "  job 1     …g/way/to/orders/17'"
    )


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"args": {"too": 1}}, ArgumentError, "do not fit task 'send': it has no para"),
        ({"args": [1, 2, 3]}, ArgumentError, "fit task 'send': too many positional"),
        ({"args": "ann"}, ArgumentError, "is neither a dict .* nor a list"),
        ({"args": {"to": object()}}, ArgumentError, "args"),
        ({"count": -1}, ConfigurationError, "count=-1 is not a number of jobs"),
        ({"count": True}, ConfigurationError, "count=True is not a number of jobs"),
        ({"queue": 7}, ConfigurationError, "queue=7 is not a name"),
        ({"run_at": "soon"}, ConfigurationError, "run_at='soon' is not a duration"),
        ({"run_at": dt.datetime(2026, 1, 1)}, ConfigurationError, "has no time zone"),
        ({"jobs": "app.db"}, ConfigurationError, "is not a LiteJobs object"),
        ({"jobs": LiteJobs("o.db")}, ConfigurationError, "another LiteJobs object th"),
        ({"que": "mail"}, TypeError, "unexpected keyword argument 'que'"),
    ],
)
@pytest.mark.parametrize("what", [assert_enqueued, all_enqueued, refute_enqueued])
def test_a_value_that_cannot_be_is_refused(what, options, kind, message) -> None:
    if "count" in options and what is not assert_enqueued:
        kind, message = TypeError, "unexpected keyword argument 'count'"
    with pytest.raises(kind, match=message):
        what(send, **options)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (len, "is not a task; give one that @jobs.task has made"),
        (7, "task=7 is not a task"),
        (send.using(queue="x"), "is given with options"),
    ],
)
def test_what_is_no_task_is_refused(task, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        assert_enqueued(task)
