"""Another policy, held against what a task has been through."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import json
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import Attempt, Job, LiteJobs, Policy, Retry, Rule
from litejobs._control.simulation import Backtest
from litejobs._storage.statements import queries
from litejobs.errors import ConfigurationError
from tests.control.test_forecast import file_bytes
from tests.models.backoffs import GROWTH

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DECIDED = ("decision", "action", "stopped_by", "next_step", "delay_ms")


class Hands:
    """A runner of a few lines, whose attempts end as the test says."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.jobs = jobs
        self.start()

    def start(self) -> None:
        """A new runner lives; what those before it had open has crashed."""
        with self.jobs.transaction() as db:
            db.execute("insert into litejobs_runner (threads) values (1)")
            self.runner = db.execute("select max(id) from litejobs_runner").get
        self.tick()

    def tick(self) -> None:
        with self.jobs.transaction() as db:
            db.execute("insert into litejobs_tick (runner) values (?)", (self.runner,))

    def claim(self, slots: int = 1) -> list[tuple[int, int]]:
        """The attempts that are open then, each with its job."""
        with self.jobs.transaction() as db:
            db.execute("update litejobs_task set runner_id = ?", (self.runner,))
            db.execute("insert into litejobs_claim values (?, ?)", (self.runner, slots))
            return db.execute(
                "select id, job_id from litejobs_attempt where finished_at is null "
                "order by id"
            ).fetchall()

    def settle(self, attempt: int, outcome: dict[str, Any]) -> None:
        with self.jobs.transaction() as db:
            document = json.dumps(outcome)
            db.execute("insert into litejobs_settle values (?, ?)", (attempt, document))

    def run(self, job: Job[Any], clock: Any, *outcomes: dict[str, Any]) -> None:
        """The job, when it is due, ends like this, and then like that."""
        for outcome in outcomes:
            clock.move_to(max(job.snapshot().run_at, dt.datetime.now(dt.UTC)))
            self.tick()
            [(attempt, number)] = self.claim()
            assert number == job.id
            self.settle(attempt, outcome)

    def crash(self, job: Job[Any], clock: Any) -> None:
        """The job, when it is due, is running while the process dies."""
        clock.move_to(max(job.snapshot().run_at, dt.datetime.now(dt.UTC)))
        self.tick()
        assert [number for _, number in self.claim()] == [job.id]
        self.start()


def error(kind: str = "OSError", **more: Any) -> dict[str, Any]:
    types = [kind, "Exception", "BaseException"]
    return {"status": "error", "error": {"type": kind, "types": types}} | more


def http(status: int) -> dict[str, Any]:
    return error("HTTPError", http={"status": status})


def ok(result: Any = None) -> dict[str, Any]:
    return {"status": "ok", "result": result}


TIMEOUT = {"status": "timeout", "error": {"type": "TaskTimeout", "types": []}}
INTERRUPTED = {"status": "interrupted"}


def nothing() -> None: ...


def decided(attempt: Attempt) -> dict[str, Any]:
    return {name: getattr(attempt, name) for name in DECIDED}


def assert_same(found: Backtest, attempts: int) -> None:
    assert found.differences == []
    assert found.attempts == attempts


# The same policy ----------------------------------------------------------------------

SAME = Policy(
    [
        Rule.retry("outcome.http.status in [429, 503]", attempts=6, backoff="linear"),
        Rule.retry("outcome.http.status == 500", intervals=[5, 10, 20], jitter=0.5),
        Rule.snooze("outcome.status == 'timeout'", delay=60, jitter=0.2),
        Rule("outcome.error.type == 'Skip'", "continue"),
        Rule("outcome.error.type == 'Stop'", "cancel"),
        Rule.fail("outcome.error.type == 'ValueError'"),
    ],
    otherwise="retry",
    limits=Retry.exponential(10, budget="30m", max_attempts=8),
)


def test_same_policy_decides_the_same(jobs: LiteJobs, clock: Any) -> None:
    """Through retries, snoozes, interruptions and crashes, and after a requeue."""
    task = jobs.task(name="a", policy=SAME)(nothing)
    hands = Hands(jobs)
    job = task.enqueue()
    hands.run(job, clock, http(503), TIMEOUT, http(500), INTERRUPTED, http(500))
    hands.crash(job, clock)
    hands.run(job, clock, http(503), error("Stop"))
    job.requeue()
    hands.run(job, clock, error(), TIMEOUT, TIMEOUT)
    hands.crash(job, clock)
    hands.run(job, clock, error("ValueError"))
    job.requeue()
    hands.run(job, clock, *[error()] * 8)
    job.requeue()
    hands.run(job, clock, error("Skip"))
    assert job.state == "completed"
    assert [each.stopped_by for each in job.attempts if each.stopped_by] == [
        *("rule_fail", "max_attempts"),
    ]
    # What was interrupted has decided nothing.
    assert_same(SAME.backtest(jobs, task="a"), len(job.attempts) - 1)


def test_same_policy_decides_the_same_where_waits_do_not_grow(
    jobs: LiteJobs, clock: Any
) -> None:
    """Each attempt is decided alone: no wait may depend on the one before it."""
    policy = Policy(
        [],
        otherwise="retry",
        limits=Retry.exponential(60, factor=1, jitter=0.5, max_attempts=12),
    )
    job = jobs.task(name="a", policy=policy)(nothing).enqueue()
    Hands(jobs).run(job, clock, *[error()] * 12)
    waits = [each.delay_ms for each in job.attempts[:-1]]
    assert waits != sorted(waits)
    assert_same(policy.backtest(jobs, task="a"), 12)


def test_same_policy_decides_the_same_when_a_budget_is_used_up(
    jobs: LiteJobs, clock: Any
) -> None:
    """Which counts the waits of retries, not those of snoozes, since the requeue."""
    policy = Policy(
        [
            Rule.snooze("outcome.status == 'timeout'", delay="9m"),
            Rule.retry(None, attempts=50),
        ],
        limits=Retry.constant(60, budget="10m", max_attempts=50),
    )
    job = jobs.task(name="a", policy=policy)(nothing).enqueue()
    hands = Hands(jobs)
    for _ in range(3):
        while job.state != "dead_lettered":
            hands.run(job, clock, error())
            if len(job.attempts) % 3 == 0 and job.state == "failed":
                hands.run(job, clock, TIMEOUT)
        assert job.stopped_by == "retry_budget"
        job.requeue()
    assert {each.decision for each in job.attempts} >= {"snooze", "retry"}
    assert_same(policy.backtest(jobs, task="a"), len(job.attempts))


def test_same_policy_decides_the_same_in_every_step(jobs: LiteJobs, clock: Any) -> None:
    policy = Policy(
        [
            Rule.jump(
                "step == 'b' and outcome.status == 'ok' and ctx.pages < 3",
                to="a",
                delay=5,
                jitter=0.5,
                set_ctx={"pages": "{{ ctx.pages + 1 }}"},
                set_iter={"seen": "{{ outcome.result }}"},
            ),
            Rule("step == 'a' and not ctx.pages", "continue", set_ctx={"pages": 1}),
            Rule.retry("iter.seen == 2 and attempt < 3", attempts=5, delay=7),
            Rule.retry("outcome.http", attempts=4, set_iter={"n": "{{ attempt }}"}),
        ],
        otherwise="fail",
    )
    flow = jobs.flow("a", [(each, nothing) for each in "abc"], policy=policy)
    hands = Hands(jobs)
    job = flow.enqueue()
    hands.run(job, clock, error("Skip"), http(503), http(503), ok(1))
    hands.run(job, clock, http(503), ok(), http(500), ok(2))
    hands.run(job, clock, TIMEOUT, TIMEOUT, TIMEOUT)
    assert (job.state, job.snapshot().step) == ("dead_lettered", "a")
    job.requeue()
    hands.run(job, clock, TIMEOUT)
    job.cancel()
    job.requeue()
    hands.run(job, clock, TIMEOUT)
    assert [each.step for each in job.attempts] == [*"abbbaabbaaaaa"]
    assert [each.decision for each in job.attempts] == [
        *("continue", "retry", "retry", "jump", "retry", "continue", "retry", "jump"),
        *("retry", "retry", "dead_letter", "retry", "retry"),
    ]
    assert_same(policy.backtest(jobs, task="a"), len(job.attempts))


def test_cancelled_attempts_say_nothing_of_a_policy(jobs: LiteJobs, clock: Any) -> None:
    """Work that was done in spite of it does: it is decided as it was."""
    task = jobs.task(name="a", policy=SAME)(nothing)
    hands = Hands(jobs)
    for outcome in (error(), ok(), {"status": "cancelled"}, error("Stop")):
        job = task.enqueue()
        [(attempt, _)] = hands.claim()
        job.cancel()
        hands.settle(attempt, outcome)
    assert jobs.counts() == {"cancelled": 3, "completed": 1}
    assert_same(SAME.backtest(jobs, task="a"), 2)


def test_running_attempts_are_not_looked_at(jobs: LiteJobs, clock: Any) -> None:
    task = jobs.task(name="a", policy=SAME)(nothing)
    hands = Hands(jobs)
    task.enqueue()
    task.enqueue()
    hands.settle(hands.claim(2)[0][0], error())
    assert_same(SAME.backtest(jobs, task="a"), 1)


def test_same_policy_decides_the_same_after_the_last_jump(
    jobs: LiteJobs, clock: Any
) -> None:
    policy = Policy([Rule.jump("outcome.status == 'ok'", to="a")], otherwise="fail")
    flow = jobs.flow("a", [("a", nothing)], policy=policy, max_jumps=3)
    job = flow.enqueue()
    assert jobs.drain() == 4
    assert job.stopped_by == "max_jumps"
    assert_same(policy.backtest(jobs, task="a"), 4)


def test_same_policy_decides_the_same_after_a_budget_ran_out(
    jobs: LiteJobs, clock: Any
) -> None:
    policy = Policy(
        [Rule.retry(None, attempts=9)],
        limits=Retry.constant(30, budget="100s", max_attempts=9, jitter=0),
    )
    job = jobs.task(name="a", policy=policy)(nothing).enqueue()
    hands = Hands(jobs)
    hands.run(job, clock, error())
    hands.start()
    clock.move_to(job.snapshot().run_at)
    hands.tick()
    [(attempt, _)] = hands.claim()
    clock.tick(200)
    hands.settle(attempt, error())
    assert job.stopped_by == "retry_budget_expired"
    assert_same(policy.backtest(jobs, task="a"), 2)


ASKS_ITER = Policy(
    [
        Rule.fail("iter.seen"),
        Rule("outcome.status == 'ok'", "continue", set_iter={"seen": True}),
    ],
    otherwise="retry",
)


def test_same_policy_decides_the_same_after_a_completed_job_was_requeued(
    jobs: LiteJobs, clock: Any
) -> None:
    job = jobs.task(name="a", policy=ASKS_ITER)(nothing).enqueue()
    hands = Hands(jobs)
    hands.run(job, clock, ok())
    job.requeue()
    hands.run(job, clock, ok())
    assert job.state == "completed"
    assert_same(ASKS_ITER.backtest(jobs, task="a"), 2)


def test_same_policy_decides_the_same_of_a_job_born_with_ctx(
    jobs: LiteJobs, clock: Any
) -> None:
    policy = Policy([Rule.retry("ctx.patient")], otherwise="fail")
    jobs.task(name="a", policy=policy)(nothing)
    with jobs.transaction() as db:
        db.execute(
            """insert into litejobs_job (task, ctx) values ('a', '{"patient": true}')"""
        )
    hands = Hands(jobs)
    hands.run(jobs.get(1), clock, error())
    assert jobs.get(1).state == "failed"
    assert_same(policy.backtest(jobs, task="a"), 1)


def test_same_policy_decides_the_same_after_crashes_that_were_snoozed(
    jobs: LiteJobs, clock: Any
) -> None:
    policy = Policy(
        [Rule.snooze("outcome.status == 'crashed'", delay=5)], otherwise="fail"
    )
    job = jobs.task(name="a", policy=policy)(nothing).enqueue()
    hands = Hands(jobs)
    for _ in range(3):
        hands.crash(job, clock)
    assert job.stopped_by == "max_crashes"
    assert_same(policy.backtest(jobs, task="a"), 3)


@pytest.mark.parametrize("said_by", ["task", "job"])
def test_same_policy_decides_the_same_under_a_limit_that_is_not_its_own(
    jobs: LiteJobs, clock: Any, said_by: str
) -> None:
    policy = Policy([Rule.retry("outcome.error", attempts=5)], otherwise="fail")
    most = {"max_attempts": 2}
    task = jobs.task(name="a", policy=policy, **(most if said_by == "task" else {}))(
        nothing
    )
    job = task.using(**(most if said_by == "job" else {})).enqueue()
    hands = Hands(jobs)
    hands.run(job, clock, error(), error())
    assert job.stopped_by == "max_attempts"
    found = policy.backtest(jobs, task="a", keep_limits=True)
    assert_same(found, 2)
    if said_by == "task":
        # Declared with the policy alone, it is the rule that says how often.
        fewer = policy.backtest(jobs, task="a")
        assert (fewer.limits_set_aside, found.limits_set_aside) == (True, False)
        assert [each.after["decision"] for each in fewer.differences] == ["retry"]


def test_same_policy_decides_the_same_beside_one_of_a_step(
    jobs: LiteJobs, clock: Any
) -> None:
    policy = Policy([Rule.retry("outcome.error")], otherwise="fail")
    own = Policy([Rule.fail("outcome.error")], otherwise="fail")
    flow = jobs.flow("a", [("a", nothing), ("b", nothing, own)], policy=policy)
    job = flow.enqueue()
    hands = Hands(jobs)
    hands.run(job, clock, error(), ok(), error())
    assert job.stopped_by == "rule_fail"
    assert_same(policy.backtest(jobs, task="a"), 3)


# Random histories ---------------------------------------------------------------------

OUTCOMES = (
    *(ok(), ok(7), http(503), http(500), http(401), error(), error("ValueError")),
    *(error("Skip"), error(retry_after=20), TIMEOUT, INTERRUPTED),
)
STEPS = ("one", "two", "three")


def some_policy(rng: random.Random, steps: tuple[str, ...]) -> Policy:
    """Up to six rules, with whatever goes with their actions."""
    rules = []
    for _ in range(rng.randint(1, 6)):
        when = rng.choice(
            [
                "outcome.http.status >= 500",
                "not outcome.http.status >= 500 and outcome.status == 'error'",
                "outcome.status == 'timeout'",
                "outcome.status == 'crashed' and attempt < 3",
                "outcome.error.type in ['Skip', 'ValueError']",
                "attempt >= 2",
                "ctx.n > 3 or iter.last == 'OSError'",
                "outcome.result == 7",
            ]
        )
        # A crash is counted by the tests above: a snooze would give it back.
        waits = ["snooze", "jump"] if steps else ["snooze"]
        calm = ["retry", "retry", "retry", "fail", "continue", "break", "cancel"]
        do = rng.choice(
            calm if "crashed" in when or "attempt" in when else calm + waits
        )
        if "crashed" in when and do == "continue":
            do = "retry"
        options: dict[str, Any] = {}
        if do == "retry":
            options = {
                "attempts": rng.choice([None, 2, 3, 7]),
                "delay": rng.choice([None, 0, 10, "1h"]),
                "backoff": rng.choice([None, *GROWTH]),
                "jitter": rng.choice([None, 0, 0.9]),
            }
        elif do in {"snooze", "jump"}:
            options = {"delay": 30, "jitter": rng.choice([None, 0.4])}
        if do == "jump":
            options["to"] = rng.choice(steps)
        if do in {"retry", "snooze"}:
            options["queue"] = rng.choice([None, "side"])
        if rng.random() < 0.5:
            options["set_ctx"] = {"n": "{{ attempt }}"}
            options["set_iter"] = {"last": "{{ outcome.error.type }}"}
        rules.append(Rule(when, do, **options))
    limits = Retry(
        max_attempts=rng.choice([None, 1, 3, 9]),
        delay=rng.choice([None, 5]),
        budget=rng.choice([None, "2m", "1d"]),
    )
    otherwise = rng.choice(["fail", "continue", "retry"])
    return Policy(
        rules, otherwise=otherwise, limits=limits if rng.random() < 0.5 else None
    )


def history(jobs: LiteJobs, clock: Any, rng: random.Random, tasks: int) -> list[Policy]:
    """The policies of so many tasks, after their jobs have been through a lot."""
    policies = []
    handles: list[Job[Any]] = []
    for number in range(tasks):
        steps = STEPS if number % 3 == 0 else ()
        policy = some_policy(rng, steps)
        name = f"task {number}"
        if steps:
            flow = jobs.flow(name, [(each, nothing) for each in steps], policy=policy)
            handles += [flow.enqueue() for _ in range(3)]
        else:
            task = jobs.task(name=name, policy=policy)(nothing)
            handles += [task.enqueue() for _ in range(3)]
        policies.append(policy)
    hands = Hands(jobs)
    for _ in range(30):
        clock.tick(rng.choice([0, 30, 300, 7200]))
        hands.tick()
        opened = hands.claim(rng.choice([5, 500]))
        for attempt, number in opened:
            if rng.random() < 0.03:
                jobs.get(number).cancel()
            if rng.random() < 0.9:
                hands.settle(attempt, rng.choice(OUTCOMES))
        for job in handles:
            if rng.random() < 0.02:
                job.run_now()
            if rng.random() < 0.01:
                job.cancel()
            # A completed one forgets its iter: there is a test of its own above.
            if rng.random() < 0.4 and job.state in {"dead_lettered", "cancelled"}:
                job.requeue()
        if rng.random() < 0.3:
            hands.start()
    return policies


@pytest.mark.parametrize("tasks", [10, pytest.param(30, marks=pytest.mark.torture)])
def test_same_policy_decides_the_same_after_random_histories(
    jobs: LiteJobs, clock: Any, tasks: int
) -> None:
    rng = random.Random(20260102)
    policies = history(jobs, clock, rng, tasks)
    decisions: set[str] = set()
    compared = 0
    for number, policy in enumerate(policies):
        name = f"task {number}"
        found = policy.backtest(jobs, task=name)
        seen = [
            attempt
            for job in jobs.list(task=name)
            for attempt in jobs.get(job.id).attempts
        ]
        # That a budget's instant is not known has a test of its own, above.
        expired = {
            each.id for each in seen if each.stopped_by == "retry_budget_expired"
        }
        assert [
            each for each in found.differences if each.attempt_id not in expired
        ] == [], (name, policy)
        decisions |= {str(each.decision) for each in seen}
        compared += found.attempts
    assert compared > 10 * tasks
    assert decisions >= {
        *("retry", "snooze", "dead_letter", "jump", "continue", "complete"),
        *("cancel", "interrupt"),
    }


# Another policy -----------------------------------------------------------------------

OLD = Policy(
    [
        Rule.retry("outcome.http.status >= 500", attempts=3, delay=10, jitter=0),
        Rule.snooze("outcome.status == 'timeout'", delay=60),
    ],
    otherwise="fail",
    limits=Retry.constant(30, max_attempts=6, jitter=0),
)
NEW = Policy(
    [
        Rule.retry(
            "outcome.http.status in [429, 503]",
            attempts=4,
            backoff="linear",
            delay=10,
            jitter=0,
        ),
        Rule.fail("outcome.http.status in [401, 403]"),
        Rule.snooze("outcome.status == 'timeout'", delay=60),
        Rule("outcome.error.type == 'Skip'", "continue"),
    ],
    otherwise="fail",
)


def by_new(attempt: Attempt, crashes: int) -> dict[str, Any]:
    """What NEW says of the attempt of a plain task, written down a second time."""
    document = attempt.outcome or {}
    status = document["status"]
    code = document.get("http", {}).get("status")
    kind = document.get("error", {}).get("type")

    def answer(decision: str, action: str, **more: Any) -> dict[str, Any]:
        return dict.fromkeys(DECIDED) | {"decision": decision, "action": action} | more

    def dead(action: str, stopped_by: str) -> dict[str, Any]:
        return answer("dead_letter", action, stopped_by=stopped_by)

    if status == "ok":
        return answer("complete", "continue")
    if status == "crashed":
        if crashes + 1 >= 3:
            return dead("retry", "max_crashes")
        # The task's limit does not come from its rules, so it stays.
        if attempt.attempt >= 6:
            return dead("retry", "max_attempts")
        return answer("retry", "retry", delay_ms=30_000 if crashes else 1_000)
    if status == "timeout":
        return answer("snooze", "snooze", delay_ms=60_000)
    if code in {429, 503}:
        if attempt.attempt >= 4:
            return dead("retry", "rule_attempts")
        return answer("retry", "retry", delay_ms=10_000 * attempt.attempt)
    if code in {401, 403}:
        return dead("fail", "rule_fail")
    if kind == "Skip":
        return answer("complete", "continue")
    return dead("fail", "no_rule")


def crashes_before(attempt: Attempt, earlier: list[Attempt]) -> int:
    """The crashes since the job was last put in line anew."""
    count = 0
    for each in earlier:
        if each.decision in {"dead_letter", "cancel", "complete"}:
            count = 0
        elif each.status == "crashed":
            count += 1
    return count


def test_another_policy_differs_where_an_independent_replay_says(
    jobs: LiteJobs, clock: Any
) -> None:
    rng = random.Random(20260103)
    task = jobs.task(name="a", policy=OLD)(nothing)
    handles = [task.enqueue() for _ in range(60)]
    hands = Hands(jobs)
    outcomes = [ok(), error("Skip"), error(), TIMEOUT, INTERRUPTED, http(503)]
    outcomes += [http(each) for each in (401, 403, 429, 500, 503)]
    for _ in range(14):
        clock.tick(rng.choice([20, 60]))
        hands.tick()
        for attempt, _ in hands.claim(100):
            if rng.random() < 0.8:
                hands.settle(attempt, rng.choice(outcomes))
        hands.start()
        for each in jobs.list(state="dead_lettered"):
            if rng.random() < 0.5:
                jobs.get(each.id).requeue()
    found = NEW.backtest(jobs, task="a", keep_limits=True)
    expected: dict[int, tuple[Any, ...]] = {}
    count = 0
    for job in handles:
        attempts = job.attempts
        for at, each in enumerate(attempts):
            if each.finished_at is None or each.status == "interrupted":
                continue
            count += 1
            before = decided(each)
            after = by_new(each, crashes_before(each, attempts[:at]))
            if before != after:
                expected[each.id] = (job.id, each.attempt, None, before, after)
    assert {
        each.attempt_id: (each.job_id, each.attempt, each.step, each.before, each.after)
        for each in found.differences
    } == expected
    assert list(expected) != sorted(expected), "several jobs, one after the other"
    assert [each.attempt_id for each in found.differences] == sorted(expected)
    assert found.attempts == count
    assert 100 < len(expected) < count
    kinds = {(each[3]["decision"], each[4]["decision"]) for each in expected.values()}
    assert kinds >= {
        ("dead_letter", "retry"),
        ("retry", "dead_letter"),
        ("dead_letter", "complete"),
        ("retry", "retry"),
    }


def test_limit_of_the_other_policy_lets_its_rules_be_reached(
    jobs: LiteJobs, clock: Any
) -> None:
    """Ten attempts of a rule count, although the jobs were made with three."""
    old = Policy([Rule.retry(None, attempts=3)])
    job = jobs.task(name="a", policy=old)(nothing).enqueue()
    Hands(jobs).run(job, clock, *[error()] * 3)
    new = Policy([Rule.retry(None, attempts=10)])
    [only] = new.backtest(jobs, task="a").differences
    assert (only.attempt, only.before["stopped_by"]) == (3, "rule_attempts")
    assert (only.after["decision"], only.after["stopped_by"]) == ("retry", None)
    few = Policy([Rule.retry(None)], limits=Retry(max_attempts=2))
    assert [
        (each.attempt, each.after["stopped_by"])
        for each in few.backtest(jobs, task="a").differences
    ] == [(2, "max_attempts"), (3, "max_attempts")]


def test_backoff_and_budget_of_the_other_policy_count(
    jobs: LiteJobs, clock: Any
) -> None:
    rule = Rule.retry(None, attempts=9)
    old = Policy([rule], limits=Retry.constant(60, max_attempts=9, jitter=0))
    job = jobs.task(name="a", policy=old)(nothing).enqueue()
    Hands(jobs).run(job, clock, *[error()] * 3)
    new = Policy([rule], limits=Retry.constant(20, max_attempts=9, jitter=0, budget=50))
    found = new.backtest(jobs, task="a").differences
    assert [each.after["delay_ms"] for each in found] == [20_000, None, None]
    # The budget is held against what was really waited before.
    assert found[1].after["stopped_by"] == "retry_budget"


def test_success_is_no_difference_where_there_was_no_policy(
    jobs: LiteJobs, clock: Any
) -> None:
    task = jobs.task(name="a")(nothing)
    task.enqueue()
    task.enqueue()
    assert jobs.drain() == 2
    assert_same(NEW.backtest(jobs, task="a"), 2)


def test_errors_of_a_task_without_a_policy_are_decided_anew(
    jobs: LiteJobs, clock: Any
) -> None:
    """What the rules leave open is as the job has it."""
    job = jobs.task(name="a", max_attempts=4)(nothing).enqueue()
    Hands(jobs).run(job, clock, error("ValueError"), http(503))
    new = Policy([Rule.retry("outcome.http", jitter=0, delay=1)], otherwise="fail")
    first, second = new.backtest(jobs, task="a").differences
    assert first.after == {
        "decision": "dead_letter",
        "action": "fail",
        "stopped_by": "no_rule",
        "next_step": None,
        "delay_ms": None,
    }
    # The backoff that the rule does not name is the job's: exponential.
    assert second.after["delay_ms"] == 2000


def test_steps_of_a_flow_are_where_they_were(jobs: LiteJobs, clock: Any) -> None:
    old = Policy([Rule.retry("outcome.error")], otherwise="fail")
    flow = jobs.flow("a", [(each, nothing) for each in "abc"], policy=old)
    job = flow.enqueue()
    Hands(jobs).run(job, clock, ok(), error(), ok(), ok())
    assert job.state == "completed"
    new = Policy(
        [
            Rule("step == 'b' and outcome.status == 'ok'", "break"),
            Rule.jump("step == 'b'", to="a"),
            Rule.jump("step == 'c'", to="nowhere"),
        ],
        otherwise="fail",
    )
    found = new.backtest(jobs, task="a")
    assert [
        (each.step, each.after["decision"], each.after["next_step"])
        for each in found.differences
    ] == [("b", "jump", "a"), ("b", "complete", None), ("c", "dead_letter", "nowhere")]
    assert found.differences[2].after["stopped_by"] == "unknown_step"


def test_policy_in_force_is_not_touched(jobs: LiteJobs, clock: Any) -> None:
    job = jobs.task(name="a", policy=OLD)(nothing).enqueue()
    hands = Hands(jobs)
    hands.run(job, clock, http(500))
    assert NEW.backtest(jobs, task="a").differences
    assert NEW.backtest(jobs, task="a") == NEW.backtest(jobs, task="a")
    hands.run(job, clock, http(500))
    assert_same(OLD.backtest(jobs, task="a"), 2)
    assert job.state == "failed"


# How much of it -----------------------------------------------------------------------


def test_since_leaves_out_what_ended_before(jobs: LiteJobs, clock: Any) -> None:
    """What came before still counts for it: attempts, waits and what was remembered."""
    old = Policy([Rule.retry(None, attempts=5, set_ctx={"n": "{{ attempt }}"})])
    task = jobs.task(name="a", policy=old, retry=Retry.constant(60, jitter=0))(nothing)
    job = task.enqueue()
    Hands(jobs).run(job, clock, *[error()] * 4)
    ends = [each.finished_at for each in job.attempts]
    new = Policy([Rule.fail("ctx.n >= 2")], otherwise="retry")

    def differing(since: dt.datetime | None) -> tuple[int, list[int]]:
        found = new.backtest(jobs, task="a", since=since)
        return found.attempts, [each.attempt for each in found.differences]

    assert differing(None)[0] == 4
    assert differing(ends[0])[0] == 4
    assert differing(ends[1])[0] == 3
    assert ends[2] is not None
    assert differing(ends[2]) == (2, [3, 4])
    assert differing(ends[2] + dt.timedelta(milliseconds=1)) == (1, [4])
    with pytest.raises(ConfigurationError, match="since"):
        new.backtest(jobs, task="a", since=dt.datetime(2026, 1, 1))


def test_limit_takes_the_latest(jobs: LiteJobs, clock: Any) -> None:
    task = jobs.task(name="a", policy=OLD)(nothing)
    handles = [task.enqueue() for _ in range(5)]
    hands = Hands(jobs)
    for job in handles:
        hands.run(job, clock, http(401))
    new = Policy([Rule.fail("outcome.http.status == 401")], otherwise="fail")
    found = new.backtest(jobs, task="a", limit=2)
    assert found.attempts == 2
    assert [each.job_id for each in found.differences] == [4, 5]
    assert new.backtest(jobs, task="a", limit=99).attempts == 5
    for limit in (0, True, "all"):
        with pytest.raises(ConfigurationError, match="limit="):
            new.backtest(jobs, task="a", limit=limit)  # type: ignore[arg-type]


def test_other_tasks_are_not_looked_at(jobs: LiteJobs, clock: Any) -> None:
    hands = Hands(jobs)
    for name in ("a", "b"):
        job = jobs.task(name=name, policy=OLD)(nothing).enqueue()
        hands.run(job, clock, http(401))
    found = Policy([Rule.fail(None)]).backtest(jobs, task="b")
    assert [each.job_id for each in found.differences] == [2]


def test_unknown_task_is_refused(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="task='nope' is not known in :mem"):
        NEW.backtest(jobs, task="nope")


def test_task_without_a_past_has_nothing_to_differ(jobs: LiteJobs) -> None:
    jobs.task(name="a")(nothing)
    assert_same(NEW.backtest(jobs, task="a"), 0)
    jobs.enqueue("a")
    jobs.drain()
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert_same(NEW.backtest(jobs, task="a", since=tomorrow), 0)


# Only reading -------------------------------------------------------------------------


def test_backtest_neither_waits_for_a_writer_nor_writes(
    file_jobs: LiteJobs, clock: Any
) -> None:
    job = file_jobs.task(name="a", policy=OLD)(nothing).enqueue()
    Hands(file_jobs).run(job, clock, http(500), http(401))
    path = Path(file_jobs.path)
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.execute("create table app (x)")
        version = other.pragma("data_version")
        other.execute("begin immediate")
        other.execute("insert into app values (1)")
        before = file_bytes(path)
        assert len(NEW.backtest(file_jobs, task="a").differences) == 2
        assert file_bytes(path) == before
        other.execute("commit")
        assert other.pragma("data_version") == version


@pytest.mark.parametrize("most", [300, pytest.param(10_000, marks=pytest.mark.torture)])
def test_ten_thousand_attempts_are_the_default_limit(
    jobs: LiteJobs, clock: Any, most: int
) -> None:
    """The latest: of jobs with one attempt each, and of one that went round."""
    policy = Policy(
        [
            Rule.jump("outcome.result < 1000", to="a", set_iter={"n": "{{ attempt }}"}),
            Rule.fail("outcome.http.status == 401"),
        ],
        otherwise="fail",
    )
    flow = jobs.flow("a", [("a", nothing)], policy=policy)
    assert inspect.signature(Policy.backtest).parameters["limit"].default == 10_000
    limit = {} if most == 10_000 else {"limit": most}
    jobs.enqueue_many([flow.call() for _ in range(most)])
    document = json.dumps(http(401))
    with jobs.transaction() as db:
        hands = Hands(jobs)
        db.executemany(
            "insert into litejobs_settle values (?, ?)",
            [(attempt, document) for attempt, _ in hands.claim(most)],
        )
        job = flow.enqueue()
        for number in range(100):
            hands.settle(hands.claim()[0][0], ok(number))
        assert db.execute("select count(*) from litejobs_attempt").get == most + 100
    assert job.snapshot().jumps == 100
    assert_same(policy.backtest(jobs, task="a", **limit), most)
    assert policy.backtest(jobs, task="a", limit=2 * most).attempts == most + 100


@pytest.mark.parametrize("limit", [1, 10_000])
def test_past_of_a_job_with_many_attempts_is_read_in_one_walk(
    jobs: LiteJobs, clock: Any, limit: int
) -> None:
    """What was written long before each of them is not looked for by each."""
    policy = Policy(
        [
            Rule.jump("outcome.result == 0", to="a", set_ctx={"n": 0}),
            Rule.jump("outcome.result < 1000", to="a"),
        ],
        otherwise="fail",
    )
    jobs.flow("a", [("a", nothing)], policy=policy).enqueue()
    hands = Hands(jobs)
    steps: list[int] = []
    with jobs.transaction() as db:
        for number in range(400):
            hands.settle(hands.claim()[0][0], ok(number))
            if number in {99, 199, 399}:
                steps.append(steps_to_read_the_past(db, limit))
    # Twice as many attempts more, twice as many steps more.
    assert steps[2] - steps[1] < 2.2 * (steps[1] - steps[0])
    assert_same(policy.backtest(jobs, task="a"), 400)


def steps_to_read_the_past(db: apsw.Connection, limit: int) -> int:
    """How many steps of SQLite that takes."""
    counted: list[int] = []
    db.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    past = {"task": "a", "since": None, "limit": limit}
    for row in db.execute(queries()["simulation_past_attempts"], past).fetchall():
        assert json.loads(row[1])["ctx"] in {None, '{"n":0}'}
    db.trace_v2(0, None)
    return sum(counted)


def test_what_was_before_a_job_that_was_deleted_is_not_decided_again(
    jobs: LiteJobs, clock: Any
) -> None:
    """Those that are left were kept because they failed, and say little."""
    task = jobs.task(name="a", max_attempts=1)(lambda: None)
    other = jobs.task(name="b", max_attempts=1)(lambda: None)
    hands = Hands(jobs)
    for each in (task, other):
        for outcome in ({"status": "error"}, {"status": "ok"}):
            hands.run(each.enqueue(), clock, outcome)
    again = Policy([], otherwise="retry")
    whole = again.backtest(jobs, task="a")
    assert (whole.attempts, whole.horizon_at) == (2, None)
    clock.tick(60)
    assert jobs.purge(older_than=None, task="a") == 1
    found = again.backtest(jobs, task="a")
    assert (found.attempts, found.differences) == (0, [])
    assert found.horizon_at == START
    assert again.backtest(jobs, task="b").horizon_at is None
    hands.run(task.enqueue(), clock, {"status": "error"})
    found = again.backtest(jobs, task="a")
    assert (found.attempts, found.horizon_at) == (1, START)
    since = START + dt.timedelta(seconds=1)
    assert again.backtest(jobs, task="a", since=since).horizon_at is None
