"""Every decision of the SQL is that of a model: random policies, jobs and outcomes.

A story is one job with limits, rules and a list of what happens to it. It is lived in
the database and by the model, and after each event both must agree. A seed gives the
same stories again; one that fails is made smaller before it is shown.
"""

from __future__ import annotations

import ast
import contextlib
import datetime as dt
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw
import attrs
import pytest
import time_machine

from litejobs import LiteJobs, Policy, Retry, Rule
from litejobs._storage.statements import queries
from litejobs.errors import ConfigurationError
from tests.models import kinds
from tests.models.backoffs import grown
from tests.models.policymodel import (
    CRASH,
    LARGEST_DOCUMENT,
    TIMEOUT,
    Decided,
    Life,
    Limits,
    holds,
    most_attempts,
)
from tests.sql.fixture import FIX_SALT, with_options

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATEST = dt.datetime(2500, 1, 1, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SALT = 20_260_101
STORIES_PER_FILE = 15
JOBS_PER_STORY = 10
SHRINKS = 400

Data = dict[str, Any]


@attrs.frozen(kw_only=True)
class Job:
    """What a job was given beside its task, and what happens to it."""

    id: int
    own: Data = attrs.Factory(dict)
    events: tuple[Data, ...] = ()


@attrs.frozen(kw_only=True)
class Story:
    """What a task was registered with, and its jobs, one after the other."""

    steps: tuple[str, ...] = ()
    policies: dict[str, Data] = attrs.Factory(dict)
    limits: Data = attrs.Factory(dict)
    limits_in_policy: bool = False
    jobs: tuple[Job, ...] = ()

    def made(self) -> dict[str, Policy]:
        """The policies of the task ("") and of its steps."""
        limits = Retry(**_retry(self.limits)) if self.limits_in_policy else None
        return {
            step: Policy(
                [Rule(**each) for each in given["rules"]],
                otherwise=given["otherwise"],
                limits=None if step else limits,
            )
            for step, given in self.policies.items()
        }


class Mismatch(Exception):
    """The database and the model do not agree."""


# Making stories up ----------------------------------------------------------------

ACTIONS = kinds.words_of("rule.action")
DECISIONS = kinds.words_of("attempt.decision")
# Of jobs that are cancelled; and what has a test of its own, below.
OTHER_STOPPERS = {"parent_failed", "parents_succeeded", "expired", "ctx_too_large"}
STOPPERS = sorted(kinds.stops() - OTHER_STOPPERS)
GIVEN_BACK = ["interrupted", "cancelled"]
STATUSES = ["ok", "error", "error", "error"] + [
    each for each in kinds.words_of("attempt.status") if each not in GIVEN_BACK
]
BACKOFFS = [*kinds.words_of("spec.backoff")]
WORDS = ["RATE_LIMITED", "timeout", "Timeout", "40001", "ok", "error", "", "Éa"]
NUMBERS = [0, 1, 2, 3, -1, 2.5, 404, 429, 500, 503]
ERRORS = [
    {
        "type": "ReadTimeout",
        "types": ["ReadTimeout", "TimeoutError", "OSError"],
        "message": "Read TIMEOUT while waiting for 10 s",
        "code": "ETIMEDOUT",
    },
    {
        "type": "TaskError",
        "types": ["TaskError", "Exception"],
        "message": "slow down",
        "code": "RATE_LIMITED",
    },
    {"type": "ValueError", "types": ["ValueError"], "message": "", "code": 7},
    {"type": "Odd", "types": [], "message": "Éa"},
]
RESULTS: list[Any] = [
    None,
    0,
    3,
    2.5,
    True,
    "",
    "done",
    [],
    [1, "a", None, True],
    {},
    {"next": 2, "items": [1, 2, 3], "n": 0.5, "word": "Timeout", "more": True},
    {"next": None, "items": [], "odd key": {"a": [0, "x"]}},
]
PATHS = [
    "outcome.status",
    "outcome.http.status",
    "outcome.error.code",
    "outcome.error.message",
    "outcome.pg.code",
    "outcome.retry_after",
    "outcome.result",
    "outcome.result.next",
    "outcome.result.n",
    "outcome.result.more",
    "outcome.result.items[0]",
    "outcome.result.items[-1]",
    "outcome.result[1]",
    'outcome.result["odd key"].a[1]',
    "outcome.nothing.here",
    "ctx.n",
    "ctx.word",
    "ctx.last.page",
    "iter.page",
    "iter.word",
]
HOLDERS = [
    "outcome.error.types",
    "outcome.result.items",
    "outcome.result",
    "outcome.error.message",
    "outcome.error",
    "ctx.word",
    "ctx.last",
    "ctx",
    "outcome.nothing",
]
SET_KEYS = ["n", "word", "page", "last.page", "last.deep.er", "n.under"]
SET_VALUES: list[Any] = [
    0,
    1,
    "timeout",
    None,
    2.5,
    True,
    [1, "a"],
    {"page": 1},
    "{{ outcome.result.next }}",
    "{{ outcome.status }}",
    "{{ outcome.result }}",
    "{{ outcome.nothing }}",
    "{{ attempt }}",
    "{{ attempt + 1 }}",
    "{{ ctx.n + 1 }}",
    "{{ ctx.n - 2.5 }}",
    "{{ ctx.word }}",
    "{{ iter.page + 1 }}",
    "{{ iter.page }}",
    "{{ outcome.result.items }}",
    "{{ outcome.error.message + 1 }}",
]
DELAYS = [0, 1, 999, 1_000, 5_000, 30_000, 60_000]
FACTORS = [1.0, 1.5, 2.0, 3.0, 10.0]
JITTERS = [0.0, 0.0, 0.1, 0.25, 0.5, 1.0]
BUDGETS = [0, 1_000, 5_000, 30_000, 120_000, 3_600_000]


def _maybe(r: random.Random, values: list[Any], part: float = 0.5) -> Any:
    return r.choice(values) if r.random() < part else None


def _document(r: random.Random, status: str) -> Data:
    found: Data = {"status": status}
    if status == "ok":
        found["result"] = r.choice(RESULTS)
    else:
        found["error"] = r.choice(ERRORS)
        if r.random() < 0.1:
            found["result"] = r.choice(RESULTS)
        if r.random() < 0.1:
            found["retryable"] = r.choice([False, False, True, None])
    if r.random() < 0.4:
        found["http"] = {"status": r.choice([200, 401, 404, 429, 500, 503])}
    if r.random() < 0.2:
        found["pg"] = {"code": r.choice(["40001", "40P01", "23505"])}
    if r.random() < 0.2:
        asked = [0, 0.5, 1, 2.5, 30, 1_000_000, -5, "7", None, [1]]
        found["retry_after"] = r.choice(asked)
    if r.random() < 0.5:
        found["ran_ms"] = r.choice([0, 5, 1_000])
    return found


def _event(r: random.Random, steps: tuple[str, ...]) -> Data:
    chance = r.random()
    if chance < 0.02:
        return {"do": "cancel"}
    if chance < 0.07:
        return {"do": "restart"}
    if chance < 0.09:
        return {"do": "requeue"}
    if chance < 0.13 and steps:
        return {"do": "steps", "labels": r.sample(steps, r.randint(1, len(steps)))}
    if chance < 0.15:
        return {"do": "wait", "ms": r.choice([1, 5_000, 120_000, 86_400_000])}
    event: Data = {"do": "attempt", "ran": r.choice([0, 0, 1, 900, 30_000, 200_000])}
    event["late"] = r.choice([0, 0, 0, 1, 10_000, 600_000])
    event["early"] = r.random() < 0.3
    event["away"] = r.random() < 0.07
    chance = r.random()
    if chance < 0.06:
        event["dies"] = True
    elif chance < 0.10:
        event["overdue"] = True
    elif chance < 0.16:
        event["outcome"] = _document(r, r.choice(GIVEN_BACK))
    else:
        event["outcome"] = _document(r, r.choice(STATUSES))
    event["cancel"] = r.random() < 0.03
    return event


def _text(r: random.Random) -> str:
    return repr(r.choice(WORDS))


def _atom(r: random.Random) -> str:
    """One test; those that hold now and then come more often."""
    path = r.choice(PATHS)
    match r.randrange(18):
        case 0 | 1:
            return f"outcome.status == {r.choice(STATUSES)!r}"
        case 2:
            listed = r.sample(["error", "timeout", "crashed", "ok"], r.randint(1, 3))
            return f"outcome.status {r.choice(['in', 'not in'])} {listed}"
        case 3:
            return f"outcome.status != {r.choice(['ok', 'crashed', 'error'])!r}"
        case 4:
            op = r.choice(["==", "!=", "<", "<=", ">", ">="])
            return f"attempt {op} {r.randint(1, 4)}"
        case 5 | 6:
            op = r.choice(["==", "!=", "<", "<=", ">", ">="])
            return f"{path} {op} {r.choice(NUMBERS)}"
        case 7:
            op = r.choice(["==", "!=", "<", "<=", ">", ">="])
            return f"{path} {op} {_text(r)}"
        case 8:
            op = r.choice(["==", "!=", "<", ">="])
            return f"{path} {op} {r.choice(PATHS)}"
        case 9:
            return path
        case 10:
            return f"{path} {r.choice(['is', 'is not', '==', '!='])} None"
        case 11:
            lowered = r.choice([f"lower({path})", f"{path}|lower", f"{path}.lower()"])
            return f"{lowered} {r.choice(['==', '!=', '<'])} {_text(r)}"
        case 12:
            word = r.choice(["'timeout'", "'TimeoutError'", "'page'", "1", "true"])
            op = r.choice(["in", "not in"])
            lower = r.choice(["", "", "|lower"])
            return f"{word} {op} {r.choice(HOLDERS)}{lower}"
        case 13:
            holder = r.choice(HOLDERS)
            return r.choice(
                [
                    f"contains({holder}, {_text(r)})",
                    f"{holder}.contains({_text(r)})",
                    f"{holder} contains {_text(r)}",
                ]
            )
        case 14:
            values = [r.choice([*NUMBERS, *WORDS, None, True]) for _ in range(3)]
            return f"{path} {r.choice(['in', 'not in'])} {values}"
        case 15:
            return f"{path} in {r.choice(HOLDERS)}"
        case 16:
            return f"{r.randint(0, 2)} < {path} <= {r.choice([2, 450, 503])}"
    return f"step {r.choice(['==', '!='])} {r.choice('abcd')!r}"


def _condition(r: random.Random, depth: int = 0) -> str:
    if depth == 2 or r.random() < 0.5:
        atom = _atom(r)
        return f"not ({atom})" if r.random() < 0.15 else atom
    word = r.choice([" and ", " or "])
    parts = [_condition(r, depth + 1) for _ in range(r.randint(2, 3))]
    joined = word.join(f"({each})" for each in parts)
    return f"not ({joined})" if r.random() < 0.2 else joined


def _usable(r: random.Random) -> str:
    """A condition that is not too large when it is written out in terms."""
    while True:
        condition = _condition(r)
        try:
            Rule(condition, "fail")
        except ConfigurationError as error:
            if "written out" not in str(error):
                raise
        else:
            return condition


def _rule(r: random.Random, steps: tuple[str, ...]) -> Data:
    actions = [*ACTIONS, "retry", "retry", "retry", "continue", "jump"]
    do = r.choice([each for each in actions if steps or each != "jump"])
    rule: Data = {"do": do, "when": _usable(r) if r.random() < 0.93 else None}
    if rule["when"] and r.random() < 0.2:
        rule["when"] = f"{{{{ {rule['when']} }}}}"
    if do == "retry":
        if r.random() < 0.15:
            rule["intervals_ms"] = [r.choice([1_000, 5_000, 60_000])] * r.randint(1, 4)
        else:
            rule["attempts"] = _maybe(r, [1, 2, 3, 5, 10])
            rule["backoff"] = _maybe(r, BACKOFFS)
            rule["delay_ms"] = _maybe(r, DELAYS)
            if rule["backoff"] in {None, "exponential"}:
                rule["factor"] = _maybe(r, FACTORS, 0.3)
            rule["max_delay_ms"] = _maybe(r, [0, 2_000, 90_000], 0.3)
        rule["crash_delay_ms"] = _maybe(r, [0, 3_000], 0.2)
    if do == "snooze":
        rule["delay_ms"] = _maybe(r, DELAYS[1:])
        rule["max_delay_ms"] = _maybe(r, [1, 2_000, 90_000], 0.3)
    if do == "jump":
        rule["to"] = r.choice(steps)
        rule["delay_ms"] = _maybe(r, DELAYS)
    if do in {"retry", "snooze", "jump"}:
        rule["jitter"] = _maybe(r, JITTERS)
    if do in {"retry", "snooze", "jump", "continue"} and r.random() < 0.15:
        rule["queue"] = _maybe(r, ["slow", "default"])
        rule["priority"] = _maybe(r, [-5, 0, 9])
    for name in ("set_ctx", "set_iter"):
        if r.random() < 0.35:
            keys = r.sample(SET_KEYS, r.randint(1, 3))
            rule[name] = {key: r.choice(SET_VALUES) for key in keys}
    return {name: value for name, value in rule.items() if value is not None} | {
        "when": rule["when"]
    }


def _policy(r: random.Random, steps: tuple[str, ...]) -> Data:
    count = r.choice([1, 2, 3, 3, 4, 5, 6, 8, 10])
    rules = [_rule(r, steps) for _ in range(count)]
    return {"rules": rules, "otherwise": r.choice(kinds.words_of("policy.otherwise"))}


def _limits(r: random.Random) -> Data:
    """What the task is registered with, as columns."""
    limits: Data = {
        "max_attempts": _maybe(r, [1, 2, 3, 5, 12]),
        "jitter": _maybe(r, JITTERS),
        "retry_budget_ms": _maybe(r, BUDGETS, 0.4),
    }
    if r.random() < 0.15:
        intervals = [r.choice([1_000, 7_000, 60_000]) for _ in range(r.randint(1, 4))]
        limits |= {"intervals": intervals, "max_attempts": len(intervals) + 1}
    else:
        limits["backoff"] = _maybe(r, BACKOFFS)
        limits["delay_ms"] = _maybe(r, DELAYS, 0.7)
        if limits["backoff"] in {None, "exponential"}:
            limits["factor"] = _maybe(r, FACTORS)
        limits["max_delay_ms"] = _maybe(r, [0, 2_000, 90_000], 0.3)
        if r.random() < 0.07:
            limits |= {"retryable": False, "max_attempts": None}
    return {name: value for name, value in limits.items() if value is not None}


def _own(r: random.Random) -> Data:
    """Columns of the job itself, as another client may write them."""
    own: Data = {}
    if r.random() < 0.35:
        own = {
            "max_attempts": _maybe(r, [0, 1, 2, 4, 100], 0.3),
            "retryable": _maybe(r, [False, True], 0.15),
            "backoff": _maybe(r, BACKOFFS, 0.2),
            "delay_ms": _maybe(r, [*DELAYS, 2**62], 0.3),
            "factor": _maybe(r, [*FACTORS, 1e300], 0.2),
            "max_delay_ms": _maybe(r, [0, 3_000, 2**62], 0.2),
            "jitter": _maybe(r, JITTERS, 0.3),
            "intervals": _maybe(r, [[0], [500, 0, 1_500], [90_000_000, -1]], 0.1),
            "retry_budget_ms": _maybe(r, [*BUDGETS, 2**53], 0.3),
            "max_jumps": _maybe(r, [0, 1, 2], 0.3),
        }
    own["max_crashes"] = _maybe(r, [1, 2, 5], 0.3)
    own["crash_delay_ms"] = _maybe(r, [0, 4_000, 2**62], 0.3)
    own["timeout_ms"] = _maybe(r, [1, 60_000], 0.3)
    own["priority"] = _maybe(r, [-3, 7], 0.2)
    return {name: value for name, value in own.items() if value is not None}


def _story(r: random.Random, first: int) -> Story:
    steps = tuple("abcd"[: r.randint(1, 4)]) if r.random() < 0.55 else ()
    policies = {}
    if r.random() < 0.92:
        policies[""] = _policy(r, steps)
    for step in steps:
        if r.random() < 0.15:
            policies[step] = _policy(r, steps)
    return Story(
        steps=steps,
        policies=policies,
        limits=_limits(r),
        limits_in_policy="" in policies and r.random() < 0.5,
        jobs=tuple(
            Job(
                id=first + at + r.choice([0, 0, 2**32, 2**40]),
                own=_own(r),
                events=tuple(_event(r, steps) for _ in range(r.randint(4, 16))),
            )
            for at in range(JOBS_PER_STORY)
        ),
    )


def stories(seed: int, count: int) -> list[Story]:
    """The same stories for the same seed."""
    r = random.Random(seed)
    return [_story(r, 1 + at * JOBS_PER_STORY) for at in range(count)]


# Living them ----------------------------------------------------------------------


def _nothing() -> None:
    """What a task does does not matter: what it led to is made up."""


def _retry(limits: Data) -> Data:
    renamed = {"intervals": "intervals_ms"}
    return {renamed.get(name, name): value for name, value in limits.items()}


class World:
    """A database in memory, on a clock that the stories move."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.jobs = LiteJobs(":memory:").open()
        self.tasks = 0
        self.runner = 0
        self.seen: Counter[str] = Counter()
        with self.jobs.transaction() as db:
            db.execute(FIX_SALT, {"salt": SALT})

    def live(self, story: Story) -> int:
        """The story happens here; the number of attempts that were decided."""
        self.tasks += 1
        task = f"t{self.tasks}"
        policies = story.made()
        if policies and "" not in policies and story.limits.get("max_attempts") is None:
            # What one step allows is not allowed to the others.
            policies[""] = Policy([Rule.retry(attempts=3)])
        self._register(task, story, policies)
        self.runner = 0
        with self.jobs.transaction() as db:
            return sum(
                _Telling(self, db, task, story, policies, job).tell()
                for job in story.jobs
            )

    def _register(self, task: str, story: Story, policies: dict[str, Policy]) -> None:
        options: Data = {"policy": policies.get("")}
        if story.limits and not story.limits_in_policy:
            options["retry"] = Retry(**_retry(story.limits))
        if story.steps:
            steps = [(label, _nothing, policies.get(label)) for label in story.steps]
            self.jobs.flow(task, steps, **options)
        else:
            self.jobs.task(name=task, **options)(_nothing)
        self.jobs.open()


class _Telling:
    """One story, told to the database and to the model."""

    def __init__(
        self,
        world: World,
        db: apsw.Connection,
        task: str,
        story: Story,
        policies: dict[str, Policy],
        job: Job,
    ) -> None:
        self.world = world
        self.db = db
        self.task = task
        self.job = job
        self.count = 0
        limits = Limits(**story.limits)
        limits.max_attempts = most_attempts(policies, limits)
        known = attrs.fields_dict(Limits)
        own = {name: value for name, value in job.own.items() if name in known}
        self._write_steps(story.steps)
        if not world.runner:
            self._restart()
        self._enqueue()
        self.life = Life(
            id=job.id,
            salt=SALT,
            limits=limits.overridden(own),
            policies=policies,
            steps=list(story.steps),
            state="pending",
            run_at=self._now(),
            queue="default",
            priority=job.own.get("priority", 0),
            runner=world.runner,
        )
        self._compare_job("enqueued")

    def tell(self) -> int:
        """All of it; nothing is left to run when it ends."""
        tellers: dict[str, Callable[[Data], None]] = {
            "attempt": self._attempt,
            "cancel": self._cancel,
            "requeue": self._requeue,
            "restart": lambda _: self._come_back(),
            "steps": self._change_steps,
            "wait": lambda event: self._wait(event["ms"]),
        }
        for number, event in enumerate(self.job.events, 1):
            if self._has_ended() and event["do"] in {"attempt", "cancel"}:
                continue
            tellers[event["do"]](event)
            self._compare_job(f"event {number}: {event}")
        self._cancel({})
        if self.life.state == "processing":
            raise Mismatch("the model left the job processing")
        self._compare_job("the end")
        return self.count

    # Facts --------------------------------------------------------------------

    def _has_ended(self) -> bool:
        return self.life.state in {"completed", "dead_lettered", "cancelled"}

    def _now(self) -> int:
        since = dt.datetime.now(dt.UTC) - EPOCH
        return since // dt.timedelta(milliseconds=1)

    def _wait(self, ms: int) -> None:
        self.world.clock.shift(dt.timedelta(milliseconds=ms))

    def _row(self, sql: str, parameters: Any = ()) -> Data:
        cursor = self.db.execute(sql, parameters)
        names = [each[0] for each in cursor.get_description()]
        return dict(zip(names, next(cursor), strict=True))

    def _restart(self) -> None:
        self.db.execute("insert into litejobs_runner default values")
        self.world.runner = self.db.execute("select max(id) from litejobs_runner").get
        self.db.execute(
            queries()["serve_task"], {"name": self.task, "runner": self.world.runner}
        )

    def _come_back(self) -> None:
        """Another runner, which ticks at once."""
        self._restart()
        self.life.runner = self.world.runner
        self._tick()

    def _tick(self) -> None:
        self.db.execute(
            "insert into litejobs_tick (runner) values (?)", (self.world.runner,)
        )
        self.life.tick(self._now())

    def _enqueue(self) -> None:
        own = dict(self.job.own)
        own = with_options(own | {"id": self.job.id, "task": self.task})
        self.db.execute(
            f"insert into litejobs_job ({', '.join(own)}) "
            f"values ({', '.join('?' * len(own))})",
            tuple(own.values()),
        )

    def _cancel(self, event: Data) -> None:
        if not self._has_ended():
            self.db.execute(
                queries()["cancel_job"], {"id": self.job.id, "origin": "api"}
            )
            self.life.cancel(self._now())

    def _requeue(self, event: Data) -> None:
        if self._has_ended():
            self.db.execute(
                queries()["requeue_job"], {"id": self.job.id, "origin": "api"}
            )
            self.life.requeue(self._now())

    def _change_steps(self, event: Data) -> None:
        self._write_steps(event["labels"])
        self.life.steps = list(event["labels"])

    def _write_steps(self, labels: Sequence[str]) -> None:
        name = {"task": self.task}
        known = [
            label for (label,) in self.db.execute(queries()["steps_of_task"], name)
        ]
        if known == list(labels):
            return
        self.db.execute(queries()["forget_steps"], name)
        for position, label in enumerate(labels, 1):
            step = {"position": position, "label": label}
            self.db.execute(queries()["record_step"], name | step)

    def _attempt(self, event: Data) -> None:
        """The job comes in line, is claimed, and ends as the event says."""
        if self.life.state in {"scheduled", "failed"}:
            self._become_due(event)
        if self.life.state != "pending":
            return
        self.db.execute(
            "insert into litejobs_claim (runner, slots) values (?, 1)",
            (self.world.runner,),
        )
        if not self.life.may_start:
            return
        self.life.claim()
        attempt = self._row(
            "select id, deadline_at from litejobs_attempt where finished_at is null"
        )
        self._wait(event["ran"])
        if event["cancel"]:
            self._cancel({})
        decided = self._end(event, attempt)
        self._compare_attempt(attempt["id"], decided)
        self.count += 1
        self._count(decided)

    def _become_due(self, event: Data) -> None:
        left = self.life.run_at - self._now()
        if left > 0 and event["early"]:
            self._wait(left - 1)
            left = 1
            self._tick()
            self._compare_job("a millisecond before it is due")
        self._wait(max(left, 0) + event["late"])
        self._come_back() if event["away"] else self._tick()
        self._compare_job("due")

    def _end(self, event: Data, attempt: Data) -> Decided:
        if event.get("dies"):
            self._restart()
            self.life.runner = self.world.runner
            return self._end_by_tick(CRASH)
        if event.get("overdue") and attempt["deadline_at"] is not None:
            self._wait(max(0, attempt["deadline_at"] - self._now()))
            return self._end_by_tick(TIMEOUT)
        outcome = event.get("outcome") or {"status": "error"}
        self.db.execute(queries()["settle"], (attempt["id"], json.dumps(outcome)))
        return self.life.settle(self._now(), outcome)

    def _end_by_tick(self, outcome: Data) -> Decided:
        now = self._now()
        decided = self.life.settle(now, outcome)
        self._tick()
        return decided

    # Comparing ----------------------------------------------------------------

    def _compare_job(self, when: str) -> None:
        life = self.life
        row = self._row("select * from litejobs_job where id = ?", (self.job.id,))
        self._compare(
            when,
            {
                name: (row[name], getattr(life, name))
                for name in (
                    *("state", "run_at", "queue", "priority", "step", "starts"),
                    *("attempts", "crashes", "delayed_ms", "jumps", "stopped_by"),
                    *("cancel_requested_at", "finished_at", "retry_budget_expires_at"),
                )
            }
            | {
                name: (_text_of(_loaded(row[name])), _text_of(getattr(life, name)))
                for name in ("ctx", "iter")
            },
        )

    def _compare_attempt(self, attempt: int, decided: Decided) -> None:
        row = self._row(
            "select attempt.*, rule.position as rule, prev_attempt_id "
            "from litejobs_attempt as attempt "
            "join litejobs_job as job on job.id = attempt.job_id "
            "left join litejobs_rule as rule on rule.id = attempt.rule_id "
            "where attempt.id = ?",
            (attempt,),
        )
        pairs = {
            name: (row[name], getattr(decided, name))
            for name in (
                *("rule", "action", "decision", "stopped_by", "base_delay_ms"),
                *("delay_ms", "will_retry", "next_step"),
            )
        }
        for name in ("ctx", "iter"):
            model = _text_of(getattr(decided, name))
            pairs[name] = (_text_of(_loaded(row[name])), model)
        pairs["moved on"] = (
            row["prev_attempt_id"] == attempt,
            decided.decision in {"continue", "jump"},
        )
        self._compare("settled", pairs)

    def _compare(self, when: str, pairs: dict[str, tuple[Any, Any]]) -> None:
        wrong = {
            name: f"the database has {found!r}, the model {expected!r}"
            for name, (found, expected) in pairs.items()
            if found != expected
        }
        if wrong:
            raise Mismatch(f"{when}: {wrong}")

    def _count(self, decided: Decided) -> None:
        for name in ("action", "decision", "stopped_by"):
            self.world.seen[f"{name} {getattr(decided, name)}"] += 1
        self.world.seen["by a rule" if decided.rule else "by no rule"] += 1


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _text_of(value: Any) -> str:
    """So that 1, 1.0 and true are told apart."""
    return json.dumps(value)


@contextlib.contextmanager
def a_world() -> Iterator[World]:
    with time_machine.travel(START, tick=False) as clock:
        world = World(clock)
        try:
            yield world
        finally:
            world.jobs.close()


def live_all(seed: int, count: int) -> tuple[int, Counter[str]]:
    """The stories of *seed* until *count* attempts were decided, and what was seen."""
    decided, seen = 0, Counter[str]()
    number = 0
    while decided < count:
        number += 1
        batch = stories(seed * 1_000_000 + number, STORIES_PER_FILE)
        with a_world() as world:
            for story in batch:
                if dt.datetime.now(dt.UTC) > LATEST:
                    break
                try:
                    decided += world.live(story)
                except Mismatch as error:
                    pytest.fail(
                        f"seed {seed}, batch {number}: {error}\n{_shown(story)}"
                    )
            seen += world.seen
            seen["stories"] += len(batch)
    return decided, seen


# Making them smaller --------------------------------------------------------------


def _mismatch(story: Story) -> str | None:
    with a_world() as world:
        try:
            world.live(story)
        except Mismatch as error:
            return str(error)
        except ConfigurationError:  # what is left is not a policy any more
            return None
    return None


def _smaller(story: Story) -> Iterator[Story]:
    """The story with one thing less, the larger things first."""
    jobs = story.jobs
    for at, job in enumerate(jobs):
        if len(jobs) > 1:
            yield attrs.evolve(story, jobs=(job,))
        for less in _less_of_job(job):
            yield attrs.evolve(story, jobs=(*jobs[:at], less, *jobs[at + 1 :]))
    for step, policy in story.policies.items():
        if step or not story.limits_in_policy:
            others = {key: each for key, each in story.policies.items() if key != step}
            yield attrs.evolve(story, policies=others)
        for rules in _less_of_rules(policy["rules"]):
            changed = story.policies | {step: policy | {"rules": rules}}
            yield attrs.evolve(story, policies=changed)
    for limits in _less_of(story.limits):
        yield attrs.evolve(story, limits=limits)


def _less_of_job(job: Job) -> Iterator[Job]:
    events = job.events
    for size in (8, 4, 2, 1):
        for at in range(0, len(events), size):
            yield attrs.evolve(job, events=events[:at] + events[at + size :])
    for own in _less_of(job.own):
        yield attrs.evolve(job, own=own)


def _less_of_rules(rules: list[Data]) -> Iterator[list[Data]]:
    for at, rule in enumerate(rules):
        before, after = rules[:at], rules[at + 1 :]
        if before or after:
            yield [*before, *after]
        for less in _less_of(rule):
            if "do" in less and ("to" in less) == ("to" in rule):
                yield [*before, {"when": None} | less, *after]
        for part in _parts(rule["when"]):
            yield [*before, rule | {"when": part}, *after]


def _less_of(given: Data) -> Iterator[Data]:
    for name, value in given.items():
        if value is not None:
            yield {key: each for key, each in given.items() if key != name}


def _parts(when: str | None) -> list[str]:
    """Smaller conditions that a condition is made of."""
    if when is None or " contains " in when:
        return []
    match ast.parse(when.strip().strip("{}").strip(), mode="eval").body:
        case ast.BoolOp(op=op, values=values):
            word = " and " if isinstance(op, ast.And) else " or "
            whole = [f"({ast.unparse(each)})" for each in values]
            fewer = [
                word.join(whole[:at] + whole[at + 1 :]) for at in range(len(whole))
            ]
            return [*whole, *fewer] if len(whole) > 2 else whole
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return [ast.unparse(inner)]
    return []


def _shown(story: Story) -> str:
    """The smallest story found that still does not agree, and how it does not."""
    found = _mismatch(story)
    if found is None:
        return "it agrees when it is alone"
    left, smaller = SHRINKS, True
    while smaller and left > 0:
        smaller = False
        for candidate in _smaller(story):
            left -= 1
            if left <= 0:
                break
            if (now := _mismatch(candidate)) is not None:
                story, found, smaller = candidate, now, True
                break
    return f"the smallest story: {story}\n{found}"


# Tests ----------------------------------------------------------------------------


def ended(outcome: Data) -> Data:
    """The event of an attempt that ended at once."""
    return {
        "do": "attempt",
        "outcome": outcome,
        "ran": 0,
        "late": 0,
        "early": False,
        "away": False,
        "cancel": False,
    }


def check_all_was_seen(seen: Counter[str]) -> None:
    """Stories in which something never happens prove nothing about it."""
    names = [
        *(f"action {each}" for each in ACTIONS),
        *(f"decision {each}" for each in DECISIONS),
        *(f"stopped_by {each}" for each in STOPPERS),
    ]
    assert [name for name in names if not seen[name]] == []


def test_each_option_of_a_rule_is_drawn() -> None:
    r = random.Random(0)
    drawn = {option for _ in range(500) for option in _rule(r, ("a", "b"))}
    assert drawn == {field.name for field in attrs.fields(Rule) if field.init}


def test_the_sql_decides_as_the_model_does() -> None:
    # Of the first seeds, the one whose stories are the most various.
    count, seen = live_all(2, 500)
    assert count >= 500
    check_all_was_seen(seen)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_sql_decides_as_the_model_does_for_long(seed: int) -> None:
    count, seen = live_all(seed, 10_000)
    assert count >= 10_000
    check_all_was_seen(seen)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("do", ACTIONS)
def test_a_document_that_grows_too_large_stops_the_job(do: str, more: int) -> None:
    """The largest is 1 MiB as JSON, `{"word":""}` included."""
    text = "x" * (LARGEST_DOCUMENT - len('{"word":""}') + more)
    rule: Data = {"when": "outcome.status == 'error'", "do": do}
    rule["set_ctx"] = {"word": text}
    if do == "jump":
        rule["to"] = "a"
    story = Story(
        steps=("a", "b"),
        policies={"": {"rules": [rule], "otherwise": "fail"}},
        jobs=(Job(id=1, events=(ended({"status": "error"}),)),),
    )
    with a_world() as world:
        assert world.live(story) == 1
        stopped = world.seen["stopped_by ctx_too_large"]
    assert stopped == (more and do != "fail")


@pytest.mark.parametrize("factor", [1.1, 1.7, 2.3, math.pi, 9.99])
def test_a_factor_that_is_no_binary_number_grows_as_well(factor: float) -> None:
    """The database multiplies as floats do, the model exactly: a ms apart at most."""
    with a_world() as world:
        task = world.jobs.task(
            name="a", retry=Retry.exponential(1, factor=factor, max_attempts=99)
        )(_nothing)
        job = task.enqueue()
        with world.jobs.transaction() as db:
            db.execute("insert into litejobs_runner default values")
            db.execute(queries()["serve_task"], {"name": "a", "runner": 1})
            for number in range(1, 99):
                db.execute(queries()["claim"], {"runner": 1, "slots": 1})
                db.execute(queries()["settle"], (number, '{"status":"error"}'))
                base = db.execute(
                    "select base_delay_ms from litejobs_attempt where id = ?", (number,)
                ).get
                exact = grown(1_000, "exponential", factor, number, 86_400_000)
                assert abs(base - exact) <= 1
                db.execute(queries()["run_job_now"], {"id": job.id, "origin": "api"})


@pytest.mark.parametrize(
    ("when", "outcome"),
    [
        ("outcome.result == '[1]'", {"result": [1]}),
        ("outcome.result > ''", {"result": [1]}),
        ("outcome.result.a == outcome.result.b", {"result": {"a": "{}", "b": {}}}),
        ("'1' in outcome.result", {"result": [1]}),
        ("1 in outcome.result", {"result": {"1": 2}}),
        ("'[1]' in outcome.result", {"result": [[1]]}),
        ("outcome.a in outcome.result", {"a": [1], "result": ["[1]"]}),
        ("outcome.a in outcome.result", {"a": [1], "result": {"[1]": 2}}),
    ],
)
def test_a_list_is_no_text(when: str, outcome: Data) -> None:
    outcome = {"status": "error", **outcome}
    assert not holds(when, {"outcome": outcome})
    rule = {"when": when, "do": "retry"}
    story = Story(
        policies={"": {"rules": [rule], "otherwise": "fail"}},
        jobs=(Job(id=1, events=(ended(outcome),)),),
    )
    with a_world() as world:
        world.live(story)
        assert world.seen["stopped_by no_rule"] == 1
