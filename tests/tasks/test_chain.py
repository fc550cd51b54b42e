"""Chains: each job is given the result of the one before."""

from __future__ import annotations

from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import Chain, LiteJobs, Task, current
from litejobs.errors import ArgumentError, ConfigurationError, JobNotFound

Adds = Task[..., int]


@pytest.fixture
def add(jobs: LiteJobs) -> Adds:
    """A task that adds to the result of the job before."""

    @jobs.task(max_attempts=1)
    def add(number: int, prev: int | None = None) -> int:
        if number < 0:
            raise ValueError(number)
        return (prev or 0) + number

    return add


def test_job_of_an_impossible_number_is_not_found(jobs: LiteJobs) -> None:
    for number in (-1, 2**63, 2**70):
        with pytest.raises(JobNotFound, match=f"there is no job {number} in"):
            jobs.get(number)


# Handing on ---------------------------------------------------------------------------


def test_each_job_is_given_the_result_of_the_one_before(
    jobs: LiteJobs, add: Adds
) -> None:
    chain = add.call(1).then(add.call(2)).then(add.using(priority=9).call(3))
    first, second, third = jobs.enqueue_chain(chain)
    assert [each.state for each in (first, second, third)] == [
        *("pending", "blocked", "blocked")
    ]
    assert jobs.drain() == 3
    assert [each.result() for each in (first, second, third)] == [1, 3, 6]


def test_chain_is_a_value(jobs: LiteJobs, add: Adds) -> None:
    chain = add.call(1).then(add.call(2))
    longer = chain.then(add.call(3))
    assert (len([*chain]), len([*longer])) == (2, 3)
    assert repr(longer) == "<litejobs chain: add, add, add>"
    for _ in range(2):
        jobs.enqueue_chain(longer)
    jobs.enqueue_chain([add.call(1), add.call(1)])
    jobs.enqueue_chain(add.call(number) for number in (5, 6))
    jobs.drain()
    assert [job.id for job in jobs.list()][:2] == [10, 9]
    results = [jobs.get(number).result() for number in (3, 6, 8, 10)]
    assert results == [6, 6, 2, 11]


def test_job_is_followed_by_another(jobs: LiteJobs, add: Adds) -> None:
    first = add.enqueue(1)
    left, right = first.then(add.call(10)), first.then(add.call(20))
    assert jobs.drain() == 3
    assert (left.result(), right.result()) == (11, 21)
    late = first.then(add.call(30))
    assert late.state == "pending"
    jobs.drain()
    assert late.result() == 31


def test_parameter_prev_need_not_be_given(jobs: LiteJobs) -> None:
    @jobs.task
    def make() -> dict[str, int]:
        return {"pages": 3}

    @jobs.task
    def first(prev: object, kind: str) -> Any:
        return [prev, kind]

    @jobs.task
    def keyword(kind: str, *, prev: object) -> Any:
        return [prev, kind]

    @jobs.task
    def listed(*kinds: str, prev: object) -> Any:
        return [prev, *kinds]

    @jobs.task
    def only(prev: object) -> Any:
        return [prev]

    @jobs.task
    def from_current(kind: str) -> Any:
        return [current().prev, kind]

    made = make.enqueue()
    pages = {"pages": 3}
    expected = {
        made.then(first.call(kind="x")): [pages, "x"],
        made.then(keyword.call("x")): [pages, "x"],
        made.then(listed.call("x", "y")): [pages, "x", "y"],
        made.then(only): [pages],
        made.then(from_current.call("x")): [pages, "x"],
        made.then(only.call(prev="mine")): ["mine"],
        made.then(first.call("mine", "x")): ["mine", "x"],
        only.enqueue(): [None],
        first.enqueue(kind="x"): [None, "x"],
        jobs.enqueue("only"): [None],
        jobs.enqueue("first", {"kind": "x"}): [None, "x"],
    }
    jobs.drain()
    assert {job: job.result() for job in expected} == expected


def test_prev_is_not_stored_among_the_arguments(jobs: LiteJobs, add: Adds) -> None:
    assert add.call(1).args == '{"number":1}'
    assert add.call(1, prev=5).args == '{"number":1,"prev":5}'
    assert add.call(1, 5).args == '{"number":1,"prev":5}'
    with pytest.raises(ArgumentError, match="missing a required argument: 'number'"):
        add.call()
    with pytest.raises(ArgumentError, match="multiple values for argument 'prev'"):
        add.call(1, 2, prev=3)


def test_own_default_of_prev_is_kept_where_nothing_is_handed_on(
    jobs: LiteJobs,
) -> None:
    @jobs.task
    def count(prev: int = 100) -> int:
        return prev + 1

    first, second = jobs.enqueue_chain(count.call().then(count))
    jobs.drain()
    assert (first.result(), second.result()) == (101, 102)


def test_arguments_that_another_client_listed_are_filled_too(jobs: LiteJobs) -> None:
    @jobs.task
    def show(kind: str, prev: object) -> Any:
        return [kind, prev]

    jobs.open()
    with jobs.transaction() as db:
        insert = "insert into litejobs_job (task, args) values ('show', ?)"
        db.execute(insert, ('["x"]',))
        db.execute(insert, ('["x", "mine"]',))
    jobs.drain()
    results = [jobs.get(job_id).result() for job_id in (1, 2)]
    assert results == [["x", None], ["x", "mine"]]


def test_async_task_is_given_the_result_too(jobs: LiteJobs, add: Adds) -> None:
    @jobs.task
    async def double(prev: int) -> int:
        return 2 * prev

    *_, last = jobs.enqueue_chain(add.call(4).then(double).then(double))
    jobs.drain()
    assert last.result() == 16


def test_first_step_of_a_flow_is_given_the_result_too(
    jobs: LiteJobs, add: Adds
) -> None:
    def begin(prev: int, more: int) -> int:
        return prev + more

    def end(prev: int) -> str:
        return f"in all {prev}"

    flow = jobs.flow("summed", [("begin", begin), ("end", end)])
    *_, last = jobs.enqueue_chain(add.call(1).then(flow.call(more=2)))
    after = last.then(jobs.task(name="shout")(lambda prev: prev.upper()))
    jobs.drain()
    assert (last.result(), after.result()) == ("in all 3", "IN ALL 3")


def test_retried_job_is_given_the_same_result_again(jobs: LiteJobs, add: Adds) -> None:
    seen: list[int] = []

    @jobs.task(max_attempts=3)
    def flaky(prev: int) -> int:
        seen.append(prev)
        if len(seen) < 3:
            raise OSError("not yet")
        return prev

    with freeze_time("2026-01-01") as clock:
        _, last = jobs.enqueue_chain(add.call(7).then(flaky))
        for _ in range(3):
            jobs.drain()
            clock.tick(86_400)
    assert seen == [7, 7, 7]
    assert last.state == "completed"


def test_result_outlives_the_job_that_made_it(jobs: LiteJobs, add: Adds) -> None:
    with freeze_time("2026-01-01") as clock:
        first, second = jobs.enqueue_chain(
            add.call(1).then(add.using(delay="1h").call(2))
        )
        jobs.drain()
        with jobs.transaction() as db:
            db.execute("delete from litejobs_job where id = ?", (first.id,))
        clock.tick(3600)
        jobs.drain()
        assert second.result() == 3


def test_result_is_handed_on_as_it_was(jobs: LiteJobs) -> None:
    value = {"text": 'a "quoted" é line\n', "list": [1, 2.5, None, True], "big": 2**60}

    @jobs.task
    def make() -> Any:
        return value

    @jobs.task
    def same(prev: object) -> Any:
        return prev

    *_, last = jobs.enqueue_chain(make.call().then(same).then(same))
    jobs.drain()
    assert last.result() == value


def test_job_without_a_result_hands_on_none(jobs: LiteJobs) -> None:
    @jobs.task
    def nothing() -> None: ...

    @jobs.task
    def is_none(prev: object) -> bool:
        return prev is None

    _, last = jobs.enqueue_chain(nothing.call().then(is_none))
    jobs.drain()
    assert last.result() is True


# Failing ------------------------------------------------------------------------------


def test_failure_cancels_what_is_behind_it(jobs: LiteJobs, add: Adds) -> None:
    chain = add.call(1).then(add.call(-1)).then(add.call(2)).then(add.call(3))
    found = jobs.enqueue_chain(chain)
    assert jobs.drain() == 2
    assert [(each.state, each.stopped_by) for each in found] == [
        ("completed", None),
        ("dead_lettered", "max_attempts"),
        ("cancelled", "parent_failed"),
        ("cancelled", "parent_failed"),
    ]


def test_link_that_runs_after_a_failure_is_given_none(
    jobs: LiteJobs, add: Adds
) -> None:
    before = add.enqueue(9)
    goes_on = add.using(after=[before], on_parent_failure="run").call(5)
    *_, last = jobs.enqueue_chain(add.call(-1).then(goes_on).then(add.call(1)))
    jobs.drain()
    assert last.result() == 6


def test_requeued_parent_hands_on_its_new_result(jobs: LiteJobs, add: Adds) -> None:
    results = iter([None, 4])

    @jobs.task(max_attempts=1)
    def source() -> int:
        result = next(results)
        if result is None:
            raise OSError("not yet")
        return result

    first = source.enqueue()
    other = add.enqueue(0)
    waits = add.using(after=[other], on_parent_failure="block").call(1)
    last = first.then(waits)
    jobs.drain()
    assert last.state == "blocked"
    first.requeue()
    jobs.drain()
    assert last.result() == 5


def test_requeued_link_is_given_what_its_parent_has_returned_since(
    jobs: LiteJobs,
) -> None:
    mended: list[bool] = []

    @jobs.task(max_attempts=1)
    def source() -> int:
        if not mended:
            raise OSError("not yet")
        return 4

    @jobs.task(max_attempts=1)
    def double(prev: int) -> int:
        return 2 * prev

    first, second, third = jobs.enqueue_chain(source.call().then(double).then(double))
    jobs.drain()
    assert (second.state, third.state) == ("cancelled", "cancelled")
    mended.append(True)
    for each in (first, second, third):
        each.requeue()
        jobs.drain()
    assert (second.result(), third.result()) == (8, 16)


def test_link_waits_for_its_other_parents_too(jobs: LiteJobs, add: Adds) -> None:
    with freeze_time("2026-01-01") as clock:
        late = add.using(delay="1h").enqueue(100)
        _, last = jobs.enqueue_chain(add.call(1).then(add.using(after=[late]).call(2)))
        jobs.drain()
        assert last.state == "blocked"
        clock.tick(3600)
        jobs.drain()
        assert last.result() == 3


# In a batch ---------------------------------------------------------------------------


def test_chain_is_in_a_batch(jobs: LiteJobs, add: Adds) -> None:
    with jobs.batch() as batch:
        for number in range(3):
            batch.enqueue_chain(add.call(number).then(add.call(10)))
    jobs.drain()
    assert batch.state == "succeeded"
    assert sorted(batch.results().values()) == [0, 1, 2, 10, 11, 12]


# All or nothing, and what is refused --------------------------------------------------


def test_chain_that_is_refused_leaves_nothing(jobs: LiteJobs, add: Adds) -> None:
    with pytest.raises(ConfigurationError, match="chain=<built-in function print>"):
        jobs.enqueue_chain([add.call(1), print])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="the chain is empty"):
        jobs.enqueue_chain(Chain())
    with pytest.raises(ArgumentError, match="missing a required argument: 'number'"):
        add.call(1).then(add)
    for single in (add, add.using(priority=1), add.call(1)):
        with pytest.raises(ConfigurationError, match="is not a chain; give a list"):
            jobs.enqueue_chain(single)  # type: ignore[arg-type]
        with (
            pytest.raises(ConfigurationError, match="is not a chain; give a list"),
            jobs.batch() as batch,
        ):
            batch.enqueue_chain(single)  # type: ignore[arg-type]
    assert jobs.batches.list() == []
    assert jobs.counts() == {}
