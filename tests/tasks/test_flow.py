"""Flows: one job of several steps, as their users write them, on a held clock."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from freezegun import freeze_time

from litejobs import Flow, Job, LiteJobs, Policy, Retry, Rule, TaskError, current
from litejobs._runner import loop as _loop
from litejobs._tasks.current import attempt_of_caller
from litejobs.errors import (
    ArgumentError,
    ConfigurationError,
    JobCancelled,
    JobDeadLettered,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
JUMPING = "step == 'b' and outcome.result == 'again'"


@pytest.fixture
def clock() -> Iterator[Any]:
    with freeze_time(NOW) as held:
        yield held


@pytest.fixture
def log() -> list[str]:
    return []


def writes(log: list[str], *labels: str) -> list[tuple[str, Callable[[], str]]]:
    """Steps that write their label down and return it."""

    def step(label: str) -> Callable[[], str]:
        def run() -> str:
            log.append(label)
            return label

        return run

    return [(label, step(label)) for label in labels]


def ends(job: Job[Any]) -> list[tuple[str | None, int, str | None, str | None]]:
    """Step, number, status and decision of each attempt."""
    return [(at.step, at.attempt, at.status, at.decision) for at in job.attempts]


def standing(job: Job[Any]) -> tuple[str, str | None, str | None]:
    seen = job.snapshot()
    return seen.state, seen.step, seen.stopped_by


# --- Steps and what they are called with ---------------------------------------------


def test_steps_run_in_their_order_and_each_gets_the_result_before(
    jobs: LiteJobs,
) -> None:
    seen: list[Any] = []

    def one(prev: Any) -> dict[str, int]:
        seen.append(prev)
        return {"a": 1}

    def two(prev: Any) -> None:
        seen.append(prev)

    def three(prev: Any) -> str:
        seen.append(prev)
        return "end"

    flow = jobs.flow("f", [("one", one), ("two", two), ("three", three)])
    job = flow.enqueue()
    assert standing(job) == ("pending", "one", None)
    assert jobs.drain() == 3
    assert seen == [None, {"a": 1}, None]
    assert standing(job) == ("completed", "three", None)
    assert job.result() == "end"
    assert ends(job) == [
        ("one", 1, "ok", "continue"),
        ("two", 1, "ok", "continue"),
        ("three", 1, "ok", "complete"),
    ]
    assert [each.next_step for each in job.attempts] == ["two", "three", None]


def test_each_step_gets_the_arguments_that_it_names(jobs: LiteJobs) -> None:
    seen: list[Any] = []

    def one(a: int, b: int = 2) -> None:
        seen.append((a, b))

    def two(c: str, *, a: int) -> None:
        seen.append((c, a))

    def three(**rest: Any) -> None:
        seen.append(rest)

    flow = jobs.flow("f", [("one", one), ("two", two), ("three", three)])
    job = flow.enqueue(1, c="x", more=[True])
    assert job.args == {"a": 1, "c": "x", "more": [True]}
    jobs.drain()
    assert seen == [(1, 2), ("x", 1), {"a": 1, "c": "x", "more": [True]}]


def test_default_stays_that_of_each_step(jobs: LiteJobs) -> None:
    seen: list[Any] = []
    flow = jobs.flow(
        "f",
        [
            ("one", lambda size=1: seen.append(size)),
            ("two", lambda size=2: seen.append(size)),
        ],
    )
    flow.enqueue()
    flow.enqueue(size=7)
    jobs.drain()
    assert sorted(seen) == [1, 2, 7, 7]


def test_argument_is_required_if_one_step_requires_it(jobs: LiteJobs) -> None:
    flow = jobs.flow("f", [("one", lambda size=1: size), ("two", lambda size: size)])
    with pytest.raises(ArgumentError, match="missing a required argument: 'size'"):
        flow.enqueue()
    assert flow.enqueue(3).args == {"size": 3}


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2), {"c": 3}, "too many positional arguments"),
        ((), {"a": 1, "c": 3, "d": 4}, "unexpected keyword argument 'd'"),
        ((1,), {"c": 3, "d": 4}, "unexpected keyword argument 'd'"),
        ((1,), {"c": {1, 2}}, "set"),
    ],
)
def test_wrong_arguments_are_refused_where_the_job_is_enqueued(
    jobs: LiteJobs, args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    flow = jobs.flow("f", [("one", lambda a: a), ("two", lambda c: c)])
    with pytest.raises(ArgumentError, match=problem):
        flow.enqueue(*args, **kwargs)
    if not (args and kwargs):
        with pytest.raises(ArgumentError, match=problem):
            jobs.enqueue("f", kwargs or args)
    assert jobs.counts() == {}


def test_step_may_be_called_with_what_rules_remember(jobs: LiteJobs) -> None:
    seen: list[Any] = []

    def one(n: int) -> int:
        return n

    def two(prev: int, ctx: dict[str, Any], iter: dict[str, Any]) -> None:  # noqa: A002 - a parameter of that name is what is tried
        seen.append((prev, ctx, iter, current().ctx, current().iter, current().prev))

    policy = Policy(
        [
            Rule(
                "step == 'one'",
                "continue",
                set_ctx={"first": "{{ outcome.result }}", "deep.er": [1, None]},
                set_iter={"next": "{{ outcome.result + 1 }}"},
            )
        ],
        otherwise="fail",
    )
    job = jobs.flow("f", [("one", one), ("two", two)], policy=policy).enqueue(4)
    assert (job.snapshot().ctx, job.snapshot().iter) == (None, None)
    jobs.drain()
    ctx, iter_ = {"first": 4, "deep": {"er": [1, None]}}, {"next": 5}
    assert seen == [(4, ctx, iter_, ctx, iter_, 4)]
    assert (job.snapshot().ctx, job.snapshot().iter) == (ctx, iter_)


def test_current_says_which_step_it_is(jobs: LiteJobs) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((current().task, current().step, current().start_no))

    jobs.flow("f", [("one", look), ("two", look)]).enqueue()
    jobs.task(name="plain")(look).enqueue()
    jobs.drain()
    assert sorted(seen, key=str) == [
        ("f", "one", 1),
        ("f", "two", 2),
        ("plain", None, 1),
    ]


def test_step_may_be_async(jobs: LiteJobs) -> None:
    async def one() -> int:
        return 20

    async def two(prev: int) -> int:
        return prev + 2

    job = jobs.flow("f", [("one", one), ("plus", two), ("same", lambda prev: prev)])
    made = job.enqueue()
    jobs.drain()
    assert made.result() == 22


def test_step_may_be_a_task_of_its_own(jobs: LiteJobs) -> None:
    @jobs.task
    def double(n: int) -> int:
        return 2 * n

    @jobs.task
    async def add(prev: int, n: int) -> int:
        return prev + n

    flow = jobs.flow("f", [("double", double), ("add", add)])
    job, plain = flow.enqueue(5), double.enqueue(4)
    jobs.drain()
    assert (job.result(), plain.result()) == (15, 8)


def test_one_function_may_be_two_steps(jobs: LiteJobs) -> None:
    def plus(n: int, prev: int | None) -> int:
        return (prev or 0) + n

    job = jobs.flow("f", [("a", plus), ("b", plus), ("c", plus)]).enqueue(5)
    jobs.drain()
    assert job.result() == 15


def test_result_that_cannot_be_stored_stops_the_step_that_needs_it(
    jobs: LiteJobs, log: list[str]
) -> None:
    steps = [("a", lambda: {1, 2}), *writes(log, "b"), ("c", lambda prev: prev)]
    needed = jobs.flow("f", [steps[0], steps[2]]).enqueue()
    job = jobs.flow("g", steps).enqueue()
    jobs.drain()
    assert standing(needed) == ("dead_lettered", "c", "not_retryable")
    assert (standing(job), log) == (("completed", "c", None), ["b"])


def test_transaction_of_a_step_ends_that_step_alone(
    jobs: LiteJobs, log: list[str]
) -> None:
    def one() -> None:
        with current().transaction({"rows": 1}) as db:
            db.execute("create table mine (x)")
            db.execute("insert into mine values (1)")
        assert attempt_of_caller.get().settled

    def two(prev: Any) -> str:
        log.append(f"two after {prev}")
        return "end"

    job = jobs.flow("f", [("one", one), ("two", two)]).enqueue()
    jobs.drain()
    assert log == ["two after {'rows': 1}"]
    assert job.result() == "end"
    with jobs.reader() as db:
        assert db.execute("select count(*) from mine").get == 1


def test_flow_of_one_step_is_enough(jobs: LiteJobs) -> None:
    job = jobs.flow("f", [("only", lambda: 1)]).enqueue()
    jobs.drain()
    assert job.result() == 1


def test_flow_cannot_be_called(jobs: LiteJobs) -> None:
    flow = jobs.flow("f", [("a", lambda: 1)])
    assert isinstance(flow, Flow)
    with pytest.raises(ConfigurationError, match="flow 'f' cannot be called; enqueue"):
        flow()


def test_options_of_a_job_go_before_those_of_its_flow(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    flow = jobs.flow("f", writes(log, "a", "b"), queue="slow", priority=1, max_jumps=3)
    bound = flow.using(queue="fast", priority=5, delay="1h", unique_key="k")
    job = bound.enqueue()
    assert bound.enqueue() == job
    seen = job.snapshot()
    assert (seen.queue, seen.priority, seen.state) == ("fast", 5, "scheduled")
    assert jobs.drain() == 0
    clock.tick(3600)
    assert jobs.drain() == 2
    assert job.state == "completed"
    assert bound.enqueue() != job


def test_many_flows_are_enqueued_at_once(jobs: LiteJobs, log: list[str]) -> None:
    flow = jobs.flow("f", writes(log, "a", "b"))
    ids = jobs.enqueue_many(flow.call() for _ in range(5))
    assert [jobs.get(each).snapshot().step for each in ids] == ["a"] * 5
    assert jobs.drain() == 10
    assert jobs.counts() == {"completed": 5}


# --- What is refused -----------------------------------------------------------------


def f(a: int) -> int:
    return a


def positional(a: int, /) -> None: ...


def starred(*a: int) -> None: ...


REFUSED: list[Any] = [
    ([], "flow 'f' has 0 steps; give 1 to 1000"),
    ([("a", f), ("a", f)], "two steps called 'a'; label each differently"),
    (
        [("a", positional)],
        "step 'a' takes a: 'int', but steps are called with keywords",
    ),
    (
        [("a", starred)],
        r"step 'a' takes \*a: 'int', but steps are called with keywords",
    ),
    ([("a", 5)], "step 'a' is 5, which cannot be called; give a function"),
    ([("", f)], "label of step 1='' does not fit"),
    ([(5, f)], "label of step 1=5 does not fit"),
    ([(None, f)], "step 1 has no label; give a text"),
    ([f], "step 1 is .*; give a label and a function"),
    ([("a", f, None, None)], "step 1 is .*; give a label and a function"),
    (["ab"], "step 1 is 'ab'; give a label and a function"),
    ([("a", f, "retry")], "policy of step 'a' is 'retry'; give a Policy or a Retry"),
    ([("a", f, Retry(budget="5m"))], "step 'a' has a budget of its own"),
    (
        [("a", f, Policy([Rule.jump(True, "nowhere")]))],
        "a rule jumps to step 'nowhere', but there are only a; correct the rule's to=",
    ),
    ([(f"s{at}", f) for at in range(1001)], "1001 steps; give 1 to 1000"),
]


@pytest.mark.parametrize(("steps", "sentence"), REFUSED)
def test_flow_that_cannot_work_is_refused_with_a_sentence(
    jobs: LiteJobs, steps: Any, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        jobs.flow("f", steps)
    assert jobs.tasks == {}


def test_policy_of_a_flow_jumps_to_its_own_steps_only(jobs: LiteJobs) -> None:
    policy = Policy([Rule.jump("attempt > 1", "later")], otherwise="fail")
    with pytest.raises(ConfigurationError, match="there are only a, b; correct"):
        jobs.flow("f", [("a", f), ("b", f)], policy=policy)
    with pytest.raises(ConfigurationError, match="there are no steps; correct"):
        jobs.task(policy=policy)(f)


def test_flow_and_task_cannot_have_one_name(jobs: LiteJobs) -> None:
    jobs.task(name="f")(f)
    with pytest.raises(ConfigurationError, match="'f' is registered already"):
        jobs.flow("f", [("a", f)])


@pytest.mark.parametrize("value", [-1, 1.5, True, "many"])
def test_nonsense_of_max_jumps_is_refused(jobs: LiteJobs, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_jumps="):
        jobs.flow("f", [("a", f)], max_jumps=value)


def test_argument_may_have_any_name(jobs: LiteJobs) -> None:
    steps = [("a", lambda options: options), ("b", lambda prev, **more: [prev, more])]
    job = jobs.flow("f", steps).enqueue(1, size=2)
    jobs.drain()
    assert job.result() == [1, {"options": 1, "size": 2}]


def test_list_may_hold_an_argument_of_any_name(jobs: LiteJobs) -> None:
    jobs.flow("f", [("a", lambda options, size=5: [options, size])]).enqueue(1)
    with jobs.transaction() as db:
        db.execute(
            "insert into litejobs_job (task, args) values ('f', ?)", ('[{"size": 1}]',)
        )
    jobs.drain()
    assert jobs.get(2).result(timeout=0) == [{"size": 1}, 5]


def test_flow_is_no_step_of_another_flow(jobs: LiteJobs) -> None:
    inner = jobs.flow("inner", [("a", f)])
    with pytest.raises(ConfigurationError):
        jobs.flow("outer", [("b", inner)])


def test_steps_that_come_from_an_iterator_keep_their_policies(jobs: LiteJobs) -> None:
    own = Policy([Rule(True, "continue")])
    job = jobs.flow("f", iter([("a", lambda: 1 // 0, own)])).enqueue()  # type: ignore[arg-type]
    jobs.drain()
    assert job.state == "completed"


def test_argument_with_a_default_keeps_its_place(jobs: LiteJobs) -> None:
    flow = jobs.flow("f", [("a", lambda a, b=2: [a, b])])
    assert flow.enqueue(1, 5).args == {"a": 1, "b": 5}


# --- Retries, limits and budgets -----------------------------------------------------


class Flaky:
    """A step that fails as often as it is told, each time it is come to."""

    def __init__(self, log: list[str], label: str, failures: int) -> None:
        self.log, self.label, self.failures, self.left = log, label, failures, failures

    def __call__(self) -> str:
        self.log.append(self.label)
        if self.left:
            self.left -= 1
            raise TaskError("FLAKY", self.label)
        self.left = self.failures
        return self.label


def test_retry_of_a_step_does_not_run_finished_ones_again(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    steps = [
        ("a", Flaky(log, "a", 1)),
        ("b", Flaky(log, "b", 2)),
        ("c", Flaky(log, "c", 2)),
    ]
    job = jobs.flow("f", steps, retry=Retry.constant("1m", jitter=0)).enqueue()
    for _ in range(6):
        jobs.drain()
        clock.tick(60)
    assert log == ["a", "a", "b", "b", "b", "c", "c", "c"]
    assert job.state == "completed"  # of 3 attempts each, 8 in all
    assert [each.attempt for each in job.attempts] == [1, 2, 1, 2, 3, 1, 2, 3]
    assert [each.start_no for each in job.attempts] == list(range(1, 9))


def test_backoff_begins_anew_with_each_step(jobs: LiteJobs, clock: Any) -> None:
    log: list[str] = []
    steps = [("a", Flaky(log, "a", 2)), ("b", Flaky(log, "b", 2))]
    job = jobs.flow("f", steps, retry=Retry.exponential("10s", jitter=0)).enqueue()
    for _ in range(6):
        jobs.drain()
        clock.tick(60)
    assert [each.delay_ms for each in job.attempts] == [
        *(10_000, 20_000, None),
        *(10_000, 20_000, None),
    ]


def test_step_that_keeps_failing_stops_the_job_there(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    steps = [("a", Flaky(log, "a", 1)), ("b", Flaky(log, "b", 9)), *writes(log, "c")]
    job = jobs.flow(
        "f", steps, retry=Retry.constant("1m", max_attempts=2, jitter=0)
    ).enqueue()
    for _ in range(5):
        jobs.drain()
        clock.tick(60)
    assert standing(job) == ("dead_lettered", "b", "max_attempts")
    assert log == ["a", "a", "b", "b"]
    with pytest.raises(JobDeadLettered, match="TaskError: b"):
        job.result()
    job.requeue()
    assert standing(job) == ("pending", "b", None)
    assert job.snapshot().attempt_count == 0
    jobs.drain()
    assert log[4:] == ["b"]


def test_budget_counts_for_each_step_anew(jobs: LiteJobs, clock: Any) -> None:
    log: list[str] = []
    steps = [("a", Flaky(log, "a", 2)), ("b", Flaky(log, "b", 3))]
    retry = Retry.constant("4s", max_attempts=9, jitter=0, budget="10s")
    job = jobs.flow("f", steps, retry=retry).enqueue()
    jobs.drain()
    clock.tick(4)
    jobs.drain()
    seen = job.snapshot()
    assert (seen.delayed_ms, seen.retry_budget_ms) == (8_000, 10_000)
    assert seen.retry_budget_expires_at == NOW + dt.timedelta(seconds=10)
    clock.tick(4)
    jobs.drain()
    seen = job.snapshot()
    assert (seen.step, seen.delayed_ms) == ("b", 4_000)
    assert seen.retry_budget_expires_at == NOW + dt.timedelta(seconds=18)
    for _ in range(3):
        clock.tick(4)
        jobs.drain()
    assert standing(job) == ("dead_lettered", "b", "retry_budget")
    assert log == ["a", "a", "a", "b", "b", "b"]


def test_retry_of_a_step_takes_the_place_of_the_flows(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    steps = [
        ("a", Flaky(log, "a", 4), Retry.constant("1s", max_attempts=5, jitter=0)),
        ("b", Flaky(log, "b", 1)),
    ]
    job = jobs.flow(
        "f", steps, retry=Retry.constant("30s", max_attempts=5, jitter=0)
    ).enqueue()
    for _ in range(5):
        jobs.drain()
        clock.tick(1)
    assert log == ["a"] * 5 + ["b"]
    assert job.attempts[-1].delay_ms == 30_000
    clock.tick(29)
    jobs.drain()
    assert job.state == "completed"


def test_retry_of_a_step_may_allow_more_than_the_default(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    """Nothing is said of the whole flow, so the step's number can be reached."""
    retry = Retry.constant("1s", max_attempts=6, jitter=0)
    job = jobs.flow("f", [("a", Flaky(log, "a", 5), retry)]).enqueue()
    for _ in range(6):
        jobs.drain()
        clock.tick(1)
    assert (job.state, len(log)) == ("completed", 6)


def test_step_without_a_retry_of_its_own_has_the_usual_three_attempts(
    jobs: LiteJobs, log: list[str]
) -> None:
    own = Retry.constant(0, max_attempts=7)
    steps = [("a", Flaky(log, "a", 0), own), ("b", Flaky(log, "b", 99))]
    job = jobs.flow("f", steps, retry=Retry.constant(0)).enqueue()
    jobs.drain()
    assert job.state == "dead_lettered"
    assert log == ["a", "b", "b", "b"]


def test_step_with_retry_never_fails_at_once(jobs: LiteJobs, log: list[str]) -> None:
    steps = [*writes(log, "a"), ("b", Flaky(log, "b", 1), Retry.never())]
    job = jobs.flow("f", steps).enqueue()
    jobs.drain()
    assert standing(job) == ("dead_lettered", "b", "rule_fail")


def test_retry_of_a_step_may_name_its_errors(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    retry = Retry.constant("1s", on=("FLAKY",), max_attempts=3, jitter=0)
    other = Retry.constant("1s", on=(OSError,), max_attempts=3, jitter=0)
    steps = [("a", Flaky(log, "a", 1), retry), ("b", Flaky(log, "b", 1), other)]
    job = jobs.flow("f", steps).enqueue()
    jobs.drain()
    clock.tick(1)
    jobs.drain()
    assert standing(job) == ("dead_lettered", "b", "no_rule")
    assert log == ["a", "a", "b"]


def test_policy_of_a_step_takes_the_place_of_the_flows(
    jobs: LiteJobs, log: list[str]
) -> None:
    def boom() -> None:
        raise TaskError("BOOM", "boom")

    swallow = Policy(
        [Rule("outcome.error.code == 'BOOM'", "continue")], otherwise="fail"
    )
    steps = [("a", boom, swallow), *writes(log, "b"), ("c", boom)]
    job = jobs.flow("f", steps, policy=Policy([Rule.fail()])).enqueue()
    jobs.drain()
    assert ends(job) == [
        ("a", 1, "error", "continue"),
        ("b", 1, "ok", "continue"),
        ("c", 1, "error", "dead_letter"),
    ]
    assert standing(job) == ("dead_lettered", "c", "rule_fail")


# --- Crashes -------------------------------------------------------------------------


def die(jobs: LiteJobs) -> None:
    """A process claims the next attempt and is never heard of again."""
    loop = _loop.Loop(jobs._store.database, 1)
    loop.begin(jobs._registry.registrations())
    assert len(loop.turn(loop.look(), slots=1)) == 1


def test_crash_repeats_the_step_that_was_open_and_no_other(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    job = jobs.flow(
        "f", writes(log, "a", "b", "c"), retry=Retry.constant("5s", jitter=0)
    ).enqueue()
    die(jobs)
    for _ in range(2):
        # The orphan is settled when another process begins.
        assert jobs.drain() == 0
        clock.tick(5)
        die(jobs)
    assert (log, job.snapshot().crashes) == ([], 2)
    jobs.drain()
    assert standing(job) == ("dead_lettered", "a", "max_crashes")
    job.requeue()
    jobs.drain()
    assert (log, job.state) == (["a", "b", "c"], "completed")


@pytest.mark.parametrize(("given", "first"), [(None, 1_000), ("3s", 3_000)])
def test_a_step_with_a_retry_of_its_own_waits_little_after_its_first_crash(
    jobs: LiteJobs, clock: Any, log: list[str], given: str | None, first: int
) -> None:
    [(label, run)] = writes(log, "a")
    steps = [(label, run, Retry.constant("9s", jitter=0))]
    job = jobs.flow("f", steps, crash_delay=given).enqueue()
    for _ in range(2):
        die(jobs)
        assert jobs.drain() == 0
        clock.tick(3)
    assert [each.delay_ms for each in job.attempts] == [first, 9_000]


def test_crashes_are_counted_for_each_step_anew(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    policy = Policy([Rule.jump("step != 'd'", "d", delay="1s")], otherwise="retry")
    retry = Retry.constant("5s", jitter=0)
    flow = jobs.flow("f", writes(log, "a", "d"), policy=policy, retry=retry)
    job = flow.enqueue()
    for _ in range(2):
        die(jobs)
        jobs.drain()
        clock.tick(5)
    jobs.drain()
    seen = job.snapshot()
    assert (log, seen.step, seen.crashes, seen.attempt_count) == (["a"], "d", 0, 0)
    clock.tick(1)
    for _ in range(2):
        die(jobs)
        jobs.drain()
        clock.tick(5)
    jobs.drain()
    assert (log, job.state) == (["a", "d"], "completed")
    assert [each.status for each in job.attempts] == ["crashed", "crashed", "ok"] * 2


def test_continue_does_not_swallow_a_crash(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    policy = Policy([Rule(True, "continue")])
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    die(jobs)
    jobs.drain()
    assert standing(job) == ("failed", "a", None)
    clock.tick(100)
    jobs.drain()
    assert (log, job.state) == (["a", "b"], "completed")


def test_rule_that_names_the_crash_may_jump(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy([Rule.jump("outcome.status == 'crashed'", "c")], otherwise="fail")
    job = jobs.flow("f", writes(log, "a", "b", "c"), policy=policy).enqueue()
    die(jobs)
    jobs.drain()
    assert (log, job.state) == (["c"], "completed")


# A step's Retry becomes rules, to which crashes are not put: the job's limits decide.
def test_step_with_retry_never_is_not_run_again_after_a_crash(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    job = jobs.flow("f", [("a", Flaky(log, "a", 0), Retry.never())]).enqueue()
    die(jobs)
    jobs.drain()
    assert job.state == "dead_lettered"


def test_step_waits_after_a_crash_as_its_own_retry_says(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    retry = Retry.constant("1s", max_attempts=2, jitter=0)
    job = jobs.flow("f", [("a", Flaky(log, "a", 0), retry)]).enqueue()
    die(jobs)
    jobs.drain()
    assert job.attempts[0].delay_ms == 1_000


# --- Rules ---------------------------------------------------------------------------


def test_continue_after_an_error_goes_on_without_a_result(jobs: LiteJobs) -> None:
    seen: list[Any] = []

    def boom() -> None:
        raise ValueError("boom")

    def keep(prev: Any) -> None:
        seen.append(prev)

    steps = [("a", lambda: 1), ("b", boom), ("c", keep)]
    policy = Policy([Rule("step == 'b'", "continue")], otherwise="fail")
    job = jobs.flow("f", steps, policy=policy).enqueue()
    jobs.drain()
    assert (job.state, seen) == ("completed", [None])


def test_break_ends_the_flow_with_that_result(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy([Rule("outcome.result == 'b'", "break")], otherwise="fail")
    job = jobs.flow("f", writes(log, "a", "b", "c"), policy=policy).enqueue()
    jobs.drain()
    assert (log, job.result()) == (["a", "b"], "b")
    assert standing(job) == ("completed", "b", None)


def test_jump_skips_steps_or_goes_back(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy(
        [
            Rule.jump("step == 'a'", "c"),
            Rule.jump("step == 'c' and not iter.done", "b", set_iter={"done": True}),
        ],
        otherwise="fail",
    )
    job = jobs.flow("f", writes(log, "a", "b", "c"), policy=policy).enqueue()
    jobs.drain()
    assert log == ["a", "c", "b", "c"]
    assert job.snapshot().jumps == 2
    assert job.state == "completed"


def test_result_before_a_jump_is_prev(jobs: LiteJobs) -> None:
    seen: list[Any] = []

    def a(prev: Any) -> None:
        seen.append(prev)

    def b() -> dict[str, int]:
        return {"n": len(seen)}

    policy = Policy([Rule.jump("outcome.result.n < 3", "a")], otherwise="fail")
    jobs.flow("f", [("a", a), ("b", b)], policy=policy).enqueue()
    jobs.drain()
    assert seen == [None, {"n": 1}, {"n": 2}]


def test_loop_counts_in_iter(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy(
        [
            Rule.jump("step == 'a' and not iter.n", "a", set_iter={"n": 1}),
            Rule.jump(
                "step == 'a' and iter.n < 4", "a", set_iter={"n": "{{ iter.n + 1 }}"}
            ),
        ],
        otherwise="fail",
    )
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    jobs.drain()
    assert log == ["a"] * 5 + ["b"]
    assert job.snapshot().iter == {"n": 4}


def test_delayed_jump_waits_and_then_begins_the_step_anew(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    policy = Policy(
        [
            Rule.jump(
                "step == 'b' and not iter.once", "a", delay="10m", set_iter={"once": 1}
            )
        ],
        otherwise="fail",
    )
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    jobs.drain()
    seen = job.snapshot()
    assert standing(job) == ("scheduled", "a", None)
    assert seen.run_at == NOW + dt.timedelta(minutes=10)
    assert (seen.attempt_count, seen.delayed_ms, seen.jumps) == (0, 0, 1)
    assert job.attempts[-1].delay_ms == 600_000
    clock.tick(599)
    assert jobs.drain() == 0
    clock.tick(1)
    assert jobs.drain() == 2
    assert log == ["a", "b", "a", "b"]
    assert job.state == "completed"


def test_snooze_comes_back_to_its_step_and_uses_up_nothing(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    policy = Policy(
        [Rule.snooze("step == 'b' and outcome.error.code == 'FLAKY'", delay="1h")],
        otherwise="fail",
    )
    steps = [*writes(log, "a"), ("b", Flaky(log, "b", 5))]
    job = jobs.flow("f", steps, policy=policy, max_attempts=1).enqueue()
    for _ in range(5):
        jobs.drain()
        seen = job.snapshot()
        assert (seen.state, seen.step, seen.attempt_count) == ("scheduled", "b", 0)
        clock.tick(3600)
    jobs.drain()
    assert job.state == "completed"
    assert log == ["a"] + ["b"] * 6
    assert [each.attempt for each in job.attempts] == [1] * 7


def test_fail_of_a_rule_stops_whatever_the_limits_allow(
    jobs: LiteJobs, log: list[str]
) -> None:
    policy = Policy([Rule.fail("outcome.error.code == 'FLAKY'"), Rule.retry()])
    job = jobs.flow("f", [("a", Flaky(log, "a", 1))], policy=policy).enqueue()
    jobs.drain()
    assert standing(job) == ("dead_lettered", "a", "rule_fail")


def test_rule_may_fail_a_result(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy([Rule.fail("outcome.result == 'b'")], otherwise="retry")
    job = jobs.flow("f", writes(log, "a", "b", "c"), policy=policy).enqueue()
    jobs.drain()
    assert standing(job) == ("dead_lettered", "b", "rule_fail")


def test_rule_may_cancel(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy([Rule("outcome.result == 'b'", "cancel")], otherwise="retry")
    job = jobs.flow("f", writes(log, "a", "b", "c"), policy=policy).enqueue()
    jobs.drain()
    assert standing(job) == ("cancelled", "b", None)
    with pytest.raises(JobCancelled):
        job.result()


def test_rule_may_move_the_job_to_another_queue(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy(
        [Rule("step == 'a'", "continue", queue="later", priority=-3)], otherwise="fail"
    )
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    jobs.pause("later")
    jobs.drain()
    seen = job.snapshot()
    assert (seen.queue, seen.priority, seen.step) == ("later", -3, "b")
    assert "queue_paused" in [each.code for each in job.why()]
    jobs.resume("later")
    jobs.drain()
    assert log == ["a", "b"]


def test_jumps_are_bounded(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy([Rule.jump(True, "a")])
    job = jobs.flow("f", writes(log, "a"), policy=policy, max_jumps=4).enqueue()
    assert jobs.drain() == 5
    assert standing(job) == ("dead_lettered", "a", "max_jumps")
    assert job.snapshot().jumps == 4
    job.requeue()
    assert job.snapshot().jumps == 0
    assert jobs.drain() == 5


def test_no_jump_at_all_may_be_allowed(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy([Rule.jump("step == 'a'", "b")], otherwise="fail")
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy, max_jumps=0).enqueue()
    jobs.drain()
    assert standing(job) == ("dead_lettered", "a", "max_jumps")


@pytest.mark.parametrize("before", [pytest.param(0, marks=pytest.mark.torture), 9_900])
def test_ten_thousand_jumps_are_the_default(jobs: LiteJobs, before: int) -> None:
    count = []
    policy = Policy([Rule.jump(True, "a")])
    steps = [("a", lambda: count.append(1))]
    job = jobs.flow("f", steps, policy=policy).enqueue()
    with jobs.transaction() as db:
        # As if there had been so many: a trigger would say that there were not.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        db.execute("update litejobs_job set jumps = ?", (before,))
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    jobs.drain()
    assert (len(count), job.stopped_by) == (10_001 - before, "max_jumps")
    assert job.snapshot().jumps == 10_000


# --- Cancelling and requeueing -------------------------------------------------------


def test_cancel_request_ends_the_flow_at_the_next_boundary(
    jobs: LiteJobs, log: list[str]
) -> None:
    made: list[Job[Any]] = []

    def a() -> int:
        made[0].cancel()
        return 7

    made.append(jobs.flow("f", [("a", a), *writes(log, "b")]).enqueue())
    jobs.drain()
    assert standing(made[0]) == ("cancelled", "a", None)
    assert ends(made[0]) == [("a", 1, "ok", "cancel")]
    assert log == []


def test_cancel_request_in_the_last_step_comes_too_late(jobs: LiteJobs) -> None:
    made: list[Job[Any]] = []

    def last() -> str:
        made[0].cancel()
        return "done"

    made.append(jobs.flow("f", [("a", lambda: 1), ("b", last)]).enqueue())
    jobs.drain()
    assert made[0].result() == "done"


def test_flow_that_waits_between_steps_is_cancelled_at_once(
    jobs: LiteJobs, clock: Any, log: list[str]
) -> None:
    policy = Policy([Rule.jump("step == 'a'", "b", delay="1h")], otherwise="fail")
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    jobs.drain()
    job.cancel()
    assert standing(job) == ("cancelled", "b", None)
    clock.tick(3600)
    assert jobs.drain() == 0
    job.requeue()
    jobs.drain()
    assert (log, job.state) == (["a", "b"], "completed")


def test_requeue_of_a_completed_flow_begins_at_the_first_step(
    jobs: LiteJobs, log: list[str]
) -> None:
    policy = Policy(
        [Rule("step == 'a'", "continue", set_iter={"n": 1}, set_ctx={"n": 1})],
        otherwise="fail",
    )
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    jobs.drain()
    job.requeue()
    seen = job.snapshot()
    assert (seen.step, seen.iter, seen.ctx) == ("a", None, {"n": 1})
    jobs.drain()
    assert log == ["a", "b"] * 2


def test_requeue_of_a_dead_flow_goes_on_with_the_same_prev(jobs: LiteJobs) -> None:
    seen: list[Any] = []

    def b(prev: Any) -> None:
        seen.append(prev)
        if len(seen) == 1:
            raise TaskError("NO", "no", retryable=False)

    job = jobs.flow("f", [("a", lambda: [1, 2]), ("b", b)]).enqueue()
    jobs.drain()
    assert job.stopped_by == "not_retryable"
    job.requeue()
    jobs.drain()
    assert (seen, job.state) == ([[1, 2], [1, 2]], "completed")


# --- Other clients -------------------------------------------------------------------


@pytest.mark.parametrize("args", ['{"a": 1, "c": "x"}', '[1, "x"]'])
def test_flow_inserted_as_a_bare_row_runs_from_its_first_step(
    jobs: LiteJobs, args: str
) -> None:
    """A list has places for the parameters of the first step alone."""
    seen: list[Any] = []
    steps = [
        ("one", lambda a, c: seen.append((a, c))),
        ("two", lambda c, prev: seen.append((c, prev))),
    ]
    flow = jobs.flow("f", steps)
    jobs.open()
    with jobs.transaction() as db:
        db.execute("insert into litejobs_job (task, args) values ('f', ?)", (args,))
    [row] = jobs.list(task=flow.name)
    assert (row.state, row.step) == ("pending", "one")
    assert jobs.drain() == 2
    assert seen == [(1, "x"), ("x", None)]
    assert jobs.counts() == {"completed": 1}


def test_job_with_a_list_that_does_not_fit_is_held(jobs: LiteJobs) -> None:
    jobs.flow("f", [("one", lambda a: a), ("two", lambda c: c)])
    with jobs.transaction() as db:
        db.execute("insert into litejobs_job (task, args) values ('f', '[1, 2]')")
    jobs.drain()
    [seen] = jobs.list()
    assert (seen.step, seen.attempt_count) == ("one", 0)
    [why] = jobs.get(seen.id).why()[:1]
    assert why.code == "arguments_do_not_fit"


def test_job_may_be_inserted_at_a_later_step(jobs: LiteJobs, log: list[str]) -> None:
    jobs.flow("f", writes(log, "a", "b", "c"))
    with jobs.transaction() as db:
        db.execute("insert into litejobs_job (task, step) values ('f', 'b')")
    jobs.drain()
    assert log == ["b", "c"]


def test_flow_asked_for_before_it_was_known_begins_at_its_first_step(
    file_jobs: LiteJobs, log: list[str]
) -> None:
    job = file_jobs.enqueue("f", {})
    assert (job.snapshot().step, [each.code for each in job.why()]) == (
        None,
        ["unknown_task"],
    )
    file_jobs.flow("f", writes(log, "a", "b"))
    file_jobs.drain()
    assert (log, job.state) == (["a", "b"], "completed")


# --- A runner ------------------------------------------------------------------------


def test_flow_runs_in_the_threads_of_a_runner(file_jobs: LiteJobs) -> None:
    async def add(prev: int, n: int) -> int:
        return prev + n

    flow = file_jobs.flow("f", [("one", lambda n: n), ("two", add), ("three", add)])
    made = [flow.enqueue(n) for n in range(20)]
    with file_jobs.running(threads=4):
        assert [job.result(timeout=30) for job in made] == [3 * n for n in range(20)]
    for job in made:
        assert [each.step for each in job.attempts] == ["one", "two", "three"]


def test_log_tells_each_move_of_a_flow(jobs: LiteJobs, log: list[str]) -> None:
    policy = Policy(
        [Rule.jump("step == 'b' and not iter.n", "a", set_iter={"n": 1})],
        otherwise="fail",
    )
    job = jobs.flow("f", writes(log, "a", "b"), policy=policy).enqueue()
    jobs.drain()
    evaluated = [
        (line.step, line.action, line.decision)
        for line in jobs.log(job_id=job.id)
        if line.name == "policy.task.evaluated"
    ]
    assert evaluated == [
        ("a", "continue", "continue"),
        ("b", "jump", "jump"),
        ("a", "continue", "continue"),
        ("b", "continue", "complete"),
    ]


def test_dead_letter_is_logged_although_warnings_are_not(
    jobs: LiteJobs, log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    jobs.flow("f", [("a", Flaky(log, "a", 1))], retry=Retry.never()).enqueue()
    with caplog.at_level(logging.ERROR, "litejobs"):
        jobs.drain()
    assert len(caplog.records) == 1


def test_failed_step_is_logged_once(
    jobs: LiteJobs, log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    jobs.flow("f", [("a", Flaky(log, "a", 1))], retry=Retry.never()).enqueue()
    with caplog.at_level(logging.WARNING, "litejobs"):
        jobs.drain()
    assert [each.getMessage() for each in caplog.records] == [
        "job 1 (f) failed for good in attempt 1 of 3: TaskError: a; "
        "stopped by not_retryable"
    ]


# --- Restarts with other code --------------------------------------------------------


class Lives:
    """The same file, opened again and again by other code."""

    def __init__(self, path: Path) -> None:
        self.path, self.jobs = path, LiteJobs(path)

    def restart(self) -> LiteJobs:
        self.jobs.close()
        self.jobs = LiteJobs(self.path)
        return self.jobs


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path / "jobs.db")
    yield lives
    lives.jobs.close()


def waiting_at_b(lives: Lives, log: list[str], *labels: str) -> int:
    """A job has done its first step and waits an hour before b; its id."""
    policy = Policy([Rule.jump("step == 'a'", "b", delay="1h")], otherwise="fail")
    job = lives.jobs.flow("f", writes(log, *labels), policy=policy).enqueue()
    lives.jobs.drain()
    assert standing(job) == ("scheduled", "b", None)
    return job.id


def test_flow_goes_on_where_it_was_after_a_restart(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    number = waiting_at_b(lives, log, "a", "b", "c")
    jobs = lives.restart()
    jobs.flow("f", writes(log, "a", "b", "c"))
    clock.tick(3600)
    jobs.drain()
    assert (log, jobs.get(number).state) == (["a", "b", "c"], "completed")


def test_step_that_is_gone_is_a_dead_letter_until_it_is_back(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    number = waiting_at_b(lives, log, "a", "b", "c")
    jobs = lives.restart()
    jobs.flow("f", writes(log, "a", "c"))
    clock.tick(3600)
    jobs.drain()
    job = jobs.get(number)
    assert standing(job)[:2] == ("dead_lettered", "b")
    assert job.attempts[-1].outcome is not None
    assert job.attempts[-1].outcome["error"]["code"] == "unknown_step"
    assert "task 'f' has no step 'b' here" in (job.snapshot().last_error or "")
    assert log == ["a"]
    jobs = lives.restart()
    jobs.flow("f", writes(log, "a", "b", "c"))
    job = jobs.get(number)
    job.requeue()
    jobs.drain()
    assert (log, job.state) == (["a", "b", "c"], "completed")


def test_steps_in_another_order_are_followed_from_the_one_it_is_at(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    number = waiting_at_b(lives, log, "a", "b", "c")
    jobs = lives.restart()
    jobs.flow("f", writes(log, "b", "new", "a"))
    clock.tick(3600)
    jobs.drain()
    assert (log, jobs.get(number).state) == (["a", "b", "new", "a"], "completed")


def test_flow_that_became_a_plain_task_says_that_its_step_is_gone(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    number = waiting_at_b(lives, log, "a", "b")
    jobs = lives.restart()
    jobs.task(name="f")(lambda: log.append("plain"))
    clock.tick(3600)
    jobs.drain()
    assert log == ["a"], "nothing runs in the place of a step"
    assert standing(jobs.get(number)) == ("dead_lettered", "b", "not_retryable")
    assert "has no step 'b' here" in (jobs.get(number).snapshot().last_error or "")


def test_task_that_became_a_flow_begins_with_its_first_step(
    lives: Lives, log: list[str]
) -> None:
    job = lives.jobs.task(name="f")(lambda: log.append("plain")).enqueue()
    number = job.id
    jobs = lives.restart()
    jobs.flow("f", writes(log, "a"))
    jobs.drain()
    assert log == ["a"]
    assert standing(jobs.get(number))[:2] == ("completed", "a")


# --- Policies changed while jobs are under way ---------------------------------------


def flaky_flow(jobs: LiteJobs, log: list[str], **options: Any) -> Flow:
    return jobs.flow("f", [("a", Flaky(log, "a", 99))], **options)


def test_job_under_way_follows_the_rules_as_they_are_now(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    first = Policy([Rule.retry(delay="1m", backoff="constant", jitter=0)])
    number = flaky_flow(lives.jobs, log, policy=first, max_attempts=9).enqueue().id
    lives.jobs.drain()
    jobs = lives.restart()
    second = Policy([Rule.retry(delay="5m", backoff="constant", jitter=0)])
    flaky_flow(jobs, log, policy=second, max_attempts=9)
    clock.tick(60)
    jobs.drain()
    jobs = lives.restart()
    flaky_flow(jobs, log, policy=Policy([Rule.fail()]), max_attempts=9)
    clock.tick(300)
    jobs.drain()
    attempts = jobs.get(number).attempts
    assert [each.delay_ms for each in attempts] == [60_000, 300_000, None]
    assert [each.stopped_by for each in attempts] == [None, None, "rule_fail"]
    assert len({each.rule_id for each in attempts}) == 3


def test_job_under_way_keeps_the_limits_that_it_was_given(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    retry = Retry.constant("1m", max_attempts=2, jitter=0, budget="1h")
    old = flaky_flow(lives.jobs, log, retry=retry, max_jumps=3).enqueue().id
    jobs = lives.restart()
    retry = Retry.constant("7m", max_attempts=5, jitter=0)
    new = flaky_flow(jobs, log, retry=retry).enqueue().id
    jobs.drain()
    assert [jobs.get(each).attempts[0].delay_ms for each in (old, new)] == [
        60_000,
        420_000,
    ]
    before = jobs.get(old).snapshot()
    assert (before.max_attempts, before.retry_budget_ms) == (2, 3_600_000)
    for _ in range(5):
        clock.tick(420)
        jobs.drain()
    assert [len(jobs.get(each).attempts) for each in (old, new)] == [2, 5]
    assert {jobs.get(each).stopped_by for each in (old, new)} == {"max_attempts"}


def test_policy_that_was_dropped_leaves_the_limits_alone(
    lives: Lives, clock: Any, log: list[str]
) -> None:
    policy = Policy([Rule.fail("outcome.error.code == 'FLAKY'")], otherwise="retry")
    number = flaky_flow(lives.jobs, log, policy=policy, max_attempts=4).enqueue().id
    jobs = lives.restart()
    flaky_flow(jobs, log, max_attempts=4)
    jobs.drain()
    attempt = jobs.get(number).attempts[0]
    assert (attempt.rule_id, attempt.action, attempt.decision) == (
        None,
        "retry",
        "retry",
    )


def test_policy_of_a_step_that_was_dropped_gives_way_to_the_flows(
    lives: Lives, log: list[str]
) -> None:
    def declare(jobs: LiteJobs, own: Policy | None) -> Flow:
        steps = [("a", Flaky(log, "a", 99), own)]
        return jobs.flow("f", steps, policy=Policy([Rule(True, "continue")]))

    first = declare(lives.jobs, Policy([Rule.fail()])).enqueue().id
    lives.jobs.drain()
    jobs = lives.restart()
    second = declare(jobs, None).enqueue().id
    jobs.drain()
    assert jobs.get(first).stopped_by == "rule_fail"
    assert jobs.get(second).state == "completed"


def test_same_policy_after_a_restart_is_the_same_row(
    lives: Lives, log: list[str]
) -> None:
    def declare(jobs: LiteJobs, when: str) -> None:
        flaky_flow(jobs, log, policy=Policy([Rule.fail(when)], otherwise="retry"))
        jobs.open()

    def policies(jobs: LiteJobs) -> int:
        with jobs.reader() as db:
            return int(db.execute("select count(*) from litejobs_policy").get)

    declare(lives.jobs, "outcome.error.code == 'X'")
    declare(lives.restart(), "{{ outcome.error.code   ==   'X' }}")
    assert policies(lives.jobs) == 1
    declare(lives.restart(), "outcome.error.code == 'Y'")
    assert policies(lives.jobs) == 2


def test_changed_policy_decides_already_about_the_attempt_that_runs(
    lives: Lives, log: list[str]
) -> None:
    """Rules are looked up when an attempt ends, not when it begins."""
    jobs = lives.jobs

    def a() -> None:
        with jobs.transaction() as db:
            db.execute(
                "insert into litejobs_policy (task, step, otherwise) "
                "values ('f', '', 'continue')"
            )
        raise ValueError("no")

    job = jobs.flow("f", [("a", a)], policy=Policy([Rule.fail()])).enqueue()
    jobs.drain()
    assert ends(job) == [("a", 1, "error", "complete")]


def test_steps_and_policies_are_visible_in_the_file(
    jobs: LiteJobs, log: list[str]
) -> None:
    policy = Policy([Rule.fail()])
    steps = [("a", f, policy), ("b", f)]
    jobs.flow("f", steps, policy=Policy([Rule.jump(JUMPING, "a")], otherwise="retry"))
    jobs.open()
    with jobs.reader() as db:
        assert db.execute(
            "select task, position, label from litejobs_step order by position"
        ).fetchall() == [("f", 1, "a"), ("f", 2, "b")]
        assert db.execute(
            "select policy.step, otherwise, action, condition, next_step "
            "from litejobs_policy as policy join litejobs_rule as rule "
            "on rule.policy_id = policy.id order by policy.step"
        ).fetchall() == [
            ("", "retry", "jump", JUMPING, "a"),
            ("a", "fail", "fail", None, None),
        ]
