"""A forecast is what then happens, held against the lives that jobs really have."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import Attempt, Flow, Job, LiteJobs, Policy, Retry, Rule
from litejobs._control import simulation
from litejobs._control.simulation import Forecast
from litejobs._storage import in_memory
from litejobs.errors import ArgumentError, ConfigurationError, JobNotFound
from tests.models.backoffs import GROWTH

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
START_MS = int(START.timestamp() * 1000)
ENDED = {"completed", "dead_lettered", "cancelled"}

ERROR = {
    "status": "error",
    "error": {
        "type": "OSError",
        "types": ["OSError", "Exception", "BaseException"],
        "code": "E1",
        "message": "connection timed out",
    },
}
HTTP_503 = ERROR | {"http": {"status": 503}}
HTTP_429 = ERROR | {"http": {"status": 429}, "retry_after": 90}
TIMEOUT = {
    "status": "timeout",
    "error": {
        "type": "TaskTimeout",
        "module": "litejobs.errors",
        "types": ["TaskTimeout", "TimeoutError"],
        "message": "the time limit has passed",
    },
}
CRASHED = {"status": "crashed", "error": {"type": "ProcessDied", "message": ""}}

Planned = tuple[int, str | None, dt.datetime, str, int | None, str | None]


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
        """The attempts that were opened, each with its job."""
        with self.jobs.transaction() as db:
            db.execute("update litejobs_task set runner_id = ?", (self.runner,))
            db.execute("insert into litejobs_claim values (?, ?)", (self.runner, slots))
            return db.execute(
                "select id, job_id from litejobs_attempt where finished_at is null "
                "and runner_id = ? order by id",
                (self.runner,),
            ).fetchall()

    def settle(self, attempt: int, outcome: dict[str, Any]) -> None:
        with self.jobs.transaction() as db:
            document = json.dumps(outcome)
            db.execute("insert into litejobs_settle values (?, ?)", (attempt, document))

    def live(
        self, job: Job[Any], clock: Any, outcome: dict[str, Any], most: int = 100
    ) -> list[Planned]:
        """The attempts that the job then has, one each time that it is due."""
        before = len(job.attempts)
        for _ in range(most):
            seen = job.snapshot()
            if seen.state in ENDED:
                break
            clock.move_to(max(seen.run_at, dt.datetime.now(dt.UTC)))
            self.tick()
            opened = self.claim()
            if not opened:
                break
            assert opened[0][1] == job.id
            self.settle(opened[0][0], outcome)
            if job.attempts[-1].decision not in {"retry", "snooze"}:
                break
        return lived(job)[before:]


def lived(job: Job[Any]) -> list[Planned]:
    """The attempts that the job has had, in the shape of a forecast."""
    return [
        (
            each.attempt,
            each.step,
            each.claimed_at,
            str(each.decision),
            each.delay_ms,
            each.stopped_by,
        )
        for each in job.attempts
    ]


def planned(forecast: Forecast) -> list[Planned]:
    return [
        (
            each.attempt,
            each.step,
            each.at,
            each.decision,
            each.delay_ms,
            each.stopped_by,
        )
        for each in forecast.attempts
    ]


def seconds(forecast: Forecast, since: dt.datetime = START) -> list[float]:
    """The instants of the attempts, as seconds since then."""
    return [(each.at - since).total_seconds() for each in forecast.attempts]


@pytest.fixture(params=["jobs", "file_jobs"])
def both(request: pytest.FixtureRequest) -> LiteJobs:
    """Jobs in memory, and jobs in a file."""
    found: LiteJobs = request.getfixturevalue(request.param)
    return found


def failing(jobs: LiteJobs, **options: Any) -> Any:
    """A task that fails, each time."""

    def fail() -> None:
        raise OSError("again")

    return jobs.task(name="fail", **options)(fail)


# What then happens --------------------------------------------------------------------

BACKOFFS = {
    "default": Retry(),
    "exponential": Retry.exponential(30, retries=6),
    "exponential with factor and cap": Retry.exponential(
        "2s", factor=3.5, max_delay="5m", max_attempts=9
    ),
    "linear": Retry.linear("45s", retries=5, jitter=0.5),
    "linear with cap": Retry.linear(60, retries=4, max_delay=100, jitter=0),
    "constant": Retry.constant(10, retries=3),
    "constant of nothing": Retry.constant(0, retries=3),
    "fixed": Retry.fixed([60, 300, 900]),
    "fixed without jitter": Retry.fixed([1, 2, 86_400], jitter=0),
    "budget": Retry.exponential(1, max_attempts=100, budget="2m", jitter=0),
    "budget with jitter": Retry.linear(7, max_attempts=100, budget="5m"),
    "attempts before budget": Retry.constant(5, max_attempts=3, budget="10m"),
    "never": Retry.never(),
    "one attempt": Retry(max_attempts=1),
}


IN_FILES = {"default", "exponential with factor and cap", "fixed", "budget with jitter"}


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param(
            *(name, where),
            id=f"{where}-{name}",
            marks=pytest.mark.torture
            if where == "file_jobs" and name not in IN_FILES
            else [],
        )
        for where in ("jobs", "file_jobs")
        for name in BACKOFFS
    ],
)
def test_forecast_is_what_then_happens(
    request: pytest.FixtureRequest, clock: Any, name: str, where: str
) -> None:
    both = request.getfixturevalue(where)
    task = failing(both, retry=BACKOFFS[name])
    hands = Hands(both)
    job = task.enqueue()
    forecast = job.forecast()
    happened = hands.live(job, clock, ERROR)
    assert planned(forecast) == happened
    assert forecast.ends == "dead_lettered"
    assert forecast.stopped_by == job.stopped_by
    assert job.state == "dead_lettered"


def test_forecast_is_what_drain_then_does(both: LiteJobs, clock: Any) -> None:
    """With the real loop, which raises a real error and starts anew each time."""
    job = failing(both, retry=Retry.exponential(30, retries=4)).enqueue()
    forecast = job.forecast()
    for each in forecast.attempts:
        clock.move_to(each.at - dt.timedelta(milliseconds=1))
        too_early = each.attempt > 1 and both.drain()
        assert not too_early
        clock.move_to(each.at)
        assert both.drain() == 1
    assert planned(forecast) == lived(job)
    assert job.state == "dead_lettered"


def test_forecast_gives_the_instants_of_the_worked_example(
    jobs: LiteJobs, clock: Any
) -> None:
    retry = Retry.exponential(1, max_attempts=100, budget="2m", jitter=0)
    forecast = failing(jobs, retry=retry).enqueue().forecast()
    assert seconds(forecast) == [0, 1, 3, 7, 15, 31, 63]
    assert [each.delay_ms for each in forecast.attempts] == [
        *(1000, 2000, 4000, 8000, 16_000, 32_000),
        None,
    ]
    assert (forecast.ends, forecast.stopped_by) == ("dead_lettered", "retry_budget")


def test_every_forecast_on_the_way_is_the_rest_of_the_first(
    both: LiteJobs, clock: Any
) -> None:
    hands = Hands(both)
    job = failing(both, retry=Retry.exponential(30, retries=6, budget="1h")).enqueue()
    first = planned(job.forecast())
    for done in range(1, len(first)):
        hands.live(job, clock, ERROR, most=1)
        assert planned(job.forecast()) == first[done:]
    hands.live(job, clock, ERROR, most=1)
    assert planned(job.forecast()) == []
    assert lived(job) == first


def test_requeued_job_is_forecast_from_its_first_attempt_again(
    jobs: LiteJobs, clock: Any
) -> None:
    """With other jitter, which depends on how often the job was started."""
    hands = Hands(jobs)
    job = failing(jobs, retry=Retry.constant(100, retries=2)).enqueue()
    before = hands.live(job, clock, ERROR)
    job.requeue()
    forecast = job.forecast()
    after = hands.live(job, clock, ERROR)
    assert planned(forecast) == after
    assert [each[0] for each in before] == [each[0] for each in after] == [1, 2, 3]
    assert [each[4] for each in before] != [each[4] for each in after]


# By rules -----------------------------------------------------------------------------


def rules() -> Policy:
    return Policy(
        [
            Rule.retry(
                "outcome.http.status in [429, 503] and attempt < 3",
                attempts=10,
                backoff="linear",
                delay=20,
            ),
            Rule.retry("outcome.http.status == 503", attempts=4, intervals=[1, 2, 3]),
            Rule.snooze("outcome.status == 'timeout'", delay="10m", jitter=0.1),
            Rule.retry("outcome.error.code == 'E1'", attempts=2),
            Rule.fail("'ValueError' in outcome.error.types"),
            Rule("outcome.error.type == 'Skip'", "continue"),
            Rule("outcome.error.type == 'Stop'", "cancel"),
            Rule("outcome.error.type == 'Done'", "break"),
        ],
        otherwise="fail",
    )


def error_of(kind: str) -> dict[str, Any]:
    return {"status": "error", "error": {"type": kind, "types": [kind]}}


DECIDED = [
    (HTTP_503, "dead_lettered", "rule_attempts", 4),
    (HTTP_429, "dead_lettered", "rule_attempts", 3),
    (ERROR, "dead_lettered", "rule_attempts", 2),
    (error_of("ValueError"), "dead_lettered", "rule_fail", 1),
    (error_of("Unheard"), "dead_lettered", "no_rule", 1),
    (error_of("Skip"), "completed", None, 1),
    (error_of("Done"), "completed", None, 1),
    (error_of("Stop"), "cancelled", None, 1),
    ({"status": "ok"}, "completed", None, 1),
    (ERROR | {"retryable": False}, "dead_lettered", "not_retryable", 1),
]


@pytest.mark.parametrize(
    ("where", "outcome", "ends", "stopped_by", "count"),
    [
        *(("jobs", *each) for each in DECIDED),
        *(("file_jobs", *each) for each in DECIDED[:1]),
        *(
            pytest.param("file_jobs", *each, marks=pytest.mark.torture)
            for each in DECIDED[1:]
        ),
    ],
)
def test_rules_decide_in_a_forecast_as_they_then_do(
    request: pytest.FixtureRequest,
    clock: Any,
    where: str,
    outcome: dict[str, Any],
    ends: str,
    stopped_by: str | None,
    count: int,
) -> None:
    both = request.getfixturevalue(where)
    task = failing(both, policy=rules())
    hands = Hands(both)
    job = task.enqueue()
    forecast = job.forecast(outcome=outcome)
    assert (forecast.ends, forecast.stopped_by) == (ends, stopped_by)
    assert len(forecast.attempts) == count
    assert planned(forecast) == hands.live(job, clock, outcome)


def test_snoozes_never_end_and_are_cut_off_at_the_limit(
    both: LiteJobs, clock: Any
) -> None:
    """They give their attempt back, so each is the first one."""
    task = failing(both, policy=rules())
    hands = Hands(both)
    job = task.enqueue()
    forecast = job.forecast(outcome=TIMEOUT, limit=7)
    assert (forecast.ends, forecast.stopped_by) == (None, None)
    assert [each.attempt for each in forecast.attempts] == [1] * 7
    delays = [each.delay_ms for each in forecast.attempts]
    assert len(set(delays)) > 1
    assert planned(forecast) == hands.live(job, clock, TIMEOUT, most=7)


def test_default_limit_is_100_attempts(jobs: LiteJobs, clock: Any) -> None:
    job = failing(jobs, retry=Retry.constant(1, retries=150)).enqueue()
    assert len(job.forecast().attempts) == 100
    whole = job.forecast(limit=1000)
    assert len(whole.attempts) == 151
    assert (whole.ends, whole.stopped_by) == ("dead_lettered", "max_attempts")
    cut = job.forecast(limit=151)
    assert (cut.ends, cut.stopped_by) == ("dead_lettered", "max_attempts")
    assert job.forecast(limit=150).ends is None


def test_next_attempt_fails_as_the_last_one_did(both: LiteJobs, clock: Any) -> None:
    """Without an outcome given: the rule that decided goes on deciding."""
    task = failing(both, policy=rules())
    hands = Hands(both)
    job = task.enqueue()
    assert job.forecast().stopped_by == "no_rule"
    hands.live(job, clock, HTTP_503, most=1)
    forecast = job.forecast()
    assert forecast.stopped_by == "rule_attempts"
    assert planned(forecast) == hands.live(job, clock, HTTP_503)


def test_last_outcome_may_have_been_a_timeout(both: LiteJobs, clock: Any) -> None:
    task = failing(both, policy=rules(), timeout="5s")
    hands = Hands(both)
    job = task.enqueue()
    hands.claim()
    clock.tick(5)
    hands.tick()
    assert [each.status for each in job.attempts] == ["timeout"]
    forecast = job.forecast(limit=3)
    assert [each.decision for each in forecast.attempts] == ["snooze"] * 3
    assert planned(forecast) == hands.live(job, clock, TIMEOUT, most=3)


def test_crash_is_no_failure_to_repeat(both: LiteJobs, clock: Any) -> None:
    """After a crash the forecast takes the last error of the step, or else any."""
    task = failing(both, policy=rules())
    hands = Hands(both)
    job = task.enqueue()
    hands.claim()
    hands.start()
    assert [each.status for each in job.attempts] == ["crashed"]
    unknown = job.forecast()
    assert [each.stopped_by for each in unknown.attempts] == ["no_rule"]
    hands.live(job, clock, HTTP_503, most=1)
    clock.move_to(job.snapshot().run_at)
    hands.tick()
    hands.claim()
    hands.start()
    assert [each.status for each in job.attempts] == ["crashed", "error", "crashed"]
    forecast = job.forecast()
    assert forecast.stopped_by == "rule_attempts"
    assert planned(forecast) == hands.live(job, clock, HTTP_503)


def test_crashes_are_forecast_until_they_are_too_many(
    both: LiteJobs, clock: Any
) -> None:
    task = failing(both, retry=Retry.linear(30, retries=9), max_crashes=4)
    hands = Hands(both)
    job = task.enqueue()
    forecast = job.forecast(outcome=CRASHED)
    assert (forecast.ends, forecast.stopped_by) == ("dead_lettered", "max_crashes")
    for each in forecast.attempts:
        clock.move_to(each.at)
        hands.tick()
        assert len(hands.claim()) == 1
        hands.start()
    assert [each.status for each in job.attempts] == ["crashed"] * 4
    assert planned(forecast) == lived(job)


def test_what_a_server_asked_for_is_waited_for(jobs: LiteJobs, clock: Any) -> None:
    hands = Hands(jobs)
    job = failing(jobs, retry=Retry.constant(60, retries=3, jitter=0)).enqueue()
    hands.live(job, clock, HTTP_429, most=1)
    assert seconds(job.forecast()) == [90, 180, 270]


def test_rules_may_read_what_they_have_written(both: LiteJobs, clock: Any) -> None:
    policy = Policy(
        [
            Rule.fail("iter.tries >= 3"),
            Rule.retry(
                None,
                attempts=50,
                backoff="constant",
                delay=10,
                set_iter={"tries": "{{ attempt }}"},
            ),
        ]
    )
    task = failing(both, policy=policy)
    hands = Hands(both)
    job = task.enqueue()
    forecast = job.forecast()
    assert [each.stopped_by for each in forecast.attempts] == [None] * 3 + ["rule_fail"]
    hands.live(job, clock, ERROR, most=2)
    assert planned(job.forecast()) == planned(forecast)[2:]
    assert planned(forecast)[2:] == hands.live(job, clock, ERROR)


def test_rule_that_moves_the_job_does_not_lose_it(both: LiteJobs, clock: Any) -> None:
    policy = Policy(
        [Rule.retry(None, attempts=4, delay=5, queue="slow", priority=-3)],
    )
    task = failing(both, policy=policy)
    hands = Hands(both)
    job = task.enqueue()
    forecast = job.forecast()
    assert len(forecast.attempts) == 4
    assert planned(forecast) == hands.live(job, clock, ERROR)
    assert job.snapshot().queue == "slow"


def test_rules_changed_meanwhile_are_the_ones_that_count(
    tmp_path: Path, clock: Any
) -> None:
    """Limits stay as they were copied to the job, rules are those in force."""

    def with_rule(rule: Rule) -> tuple[LiteJobs, Any]:
        jobs = LiteJobs(tmp_path / "jobs.db")
        return jobs, failing(jobs, policy=Policy([rule], otherwise="fail"))

    jobs, task = with_rule(Rule.retry("outcome.error", attempts=3, delay=10, jitter=0))
    hands = Hands(jobs)
    job = task.enqueue()
    hands.live(job, clock, ERROR, most=1)
    assert seconds(job.forecast()) == [10, 30]
    number = job.id
    jobs.close()

    jobs, _ = with_rule(
        Rule.retry("outcome.error", attempts=9, backoff="none", delay=7, jitter=0)
    )
    job = jobs.open().get(number)
    forecast = job.forecast()
    assert seconds(forecast) == [10, 17]
    assert forecast.stopped_by == "max_attempts"
    assert planned(forecast) == Hands(jobs).live(job, clock, ERROR)
    jobs.close()

    jobs, _ = with_rule(Rule.fail("outcome.error"))
    jobs.open().requeue_all()
    job = jobs.get(number)
    assert [each.stopped_by for each in job.forecast().attempts] == ["rule_fail"]
    jobs.close()


# Flows --------------------------------------------------------------------------------


def syncing(jobs: LiteJobs, **options: Any) -> Flow:
    def step() -> None: ...

    own = Policy(
        [Rule.retry("outcome.http", attempts=5, intervals=[2, 4, 6, 8])],
        otherwise="fail",
    )
    return jobs.flow(
        "sync",
        [("fetch", step), ("store", step, own), ("tell", step)],
        **options,
    )


def test_steps_are_forecast_one_at_a_time(both: LiteJobs, clock: Any) -> None:
    """Attempts count for each step anew, and a step's own policy decides in it."""
    flow = syncing(both, retry=Retry.linear(60, retries=2))
    hands = Hands(both)
    job = flow.enqueue()
    fetch = job.forecast(outcome=HTTP_503)
    assert {each.step for each in fetch.attempts} == {"fetch"}
    assert [each.attempt for each in fetch.attempts] == [1, 2, 3]
    assert hands.live(job, clock, HTTP_503, most=2) == planned(fetch)[:2]

    hands.live(job, clock, {"status": "ok"}, most=1)
    assert job.snapshot().step == "store"
    # The error of the step before says nothing about this one.
    assert [each.stopped_by for each in job.forecast().attempts] == ["no_rule"]
    store = job.forecast(outcome=HTTP_503)
    assert [each.attempt for each in store.attempts] == [1, 2, 3]
    assert {each.step for each in store.attempts} == {"store"}
    # The job's limit is that of the flow, below what the step's rule would allow.
    assert store.stopped_by == "max_attempts"
    assert planned(store) == hands.live(job, clock, HTTP_503)


def test_forecast_of_a_step_ends_where_the_next_one_begins(
    both: LiteJobs, clock: Any
) -> None:
    flow = syncing(both)
    hands = Hands(both)
    job = flow.enqueue()
    forecast = job.forecast(outcome={"status": "ok"})
    assert (forecast.ends, len(forecast.attempts)) == ("pending", 1)
    hands.live(job, clock, {"status": "ok"}, most=1)
    hands.live(job, clock, {"status": "ok"}, most=1)
    assert job.snapshot().step == "tell"
    assert job.forecast(outcome={"status": "ok"}).ends == "completed"


def test_jump_ends_a_forecast_with_its_delay(both: LiteJobs, clock: Any) -> None:
    policy = Policy(
        [
            Rule.retry("attempt < 3", attempts=9, delay=10),
            Rule.jump("outcome.error", to="fetch", delay="2m", jitter=0.5),
        ],
        otherwise="fail",
    )
    flow = syncing(both, policy=policy)
    hands = Hands(both)
    job = flow.enqueue()
    forecast = job.forecast(outcome=ERROR)
    assert forecast.ends == "scheduled"
    assert [each.decision for each in forecast.attempts] == ["retry", "retry", "jump"]
    assert forecast.attempts[-1].delay_ms
    assert planned(forecast) == hands.live(job, clock, ERROR)


# Wherever the job stands --------------------------------------------------------------


def test_scheduled_job_begins_at_its_time(both: LiteJobs, clock: Any) -> None:
    task = failing(both, retry=Retry.constant(10, retries=1, jitter=0))
    hands = Hands(both)
    job = task.using(delay="1h").enqueue()
    forecast = job.forecast()
    assert seconds(forecast) == [3600, 3610]
    assert planned(forecast) == hands.live(job, clock, ERROR)


def test_job_in_line_begins_now_however_long_it_has_waited(
    both: LiteJobs, clock: Any
) -> None:
    task = failing(both, retry=Retry.constant(10, retries=1, jitter=0))
    hands = Hands(both)
    job = task.enqueue()
    clock.tick(500)
    assert seconds(job.forecast()) == [500, 510]
    hands.live(job, clock, ERROR, most=1)
    clock.tick(90)
    assert seconds(job.forecast()) == [590]
    assert planned(job.forecast()) == hands.live(job, clock, ERROR)


def test_forecast_is_that_of_one_moment_whatever_is_settled_meanwhile(
    file_jobs: LiteJobs, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are read one after the other, but as they were when it began."""
    retry = Retry.constant(10, retries=2, jitter=0)
    job = failing(file_jobs, retry=retry).enqueue()
    hands = Hands(file_jobs)
    [(attempt, _)] = hands.claim()
    before = job.forecast()
    copy_task = simulation._Simulation.copy_task

    def while_it_is_settled(simulated: Any, reader: Any, of: Any) -> None:
        copy_task(simulated, reader, of)
        hands.settle(attempt, ERROR)

    with monkeypatch.context() as patch:
        patch.setattr(simulation._Simulation, "copy_task", while_it_is_settled)
        assert job.forecast() == before
    assert job.state == "failed"


def test_running_attempt_is_the_first_of_the_forecast(
    both: LiteJobs, clock: Any
) -> None:
    """As if it failed now; and if it is to be cancelled, that is the end."""
    task = failing(both, retry=Retry.constant(10, retries=2, jitter=0))
    hands = Hands(both)
    job = task.enqueue()
    [(attempt, _)] = hands.claim()
    clock.tick(3)
    forecast = job.forecast()
    assert [each.attempt for each in forecast.attempts] == [1, 2, 3]
    assert seconds(forecast) == [3, 13, 23]
    assert job.state == "processing"
    job.cancel()
    cancelled = job.forecast()
    assert ([each.decision for each in cancelled.attempts], cancelled.ends) == (
        ["cancel"],
        "cancelled",
    )
    hands.settle(attempt, ERROR)
    assert job.state == "cancelled"


@pytest.mark.parametrize("end", ["completed", "dead_lettered", "cancelled"])
def test_job_that_has_ended_is_not_tried_again(
    both: LiteJobs, clock: Any, end: str
) -> None:
    task = failing(both, retry=Retry.never())
    hands = Hands(both)
    job = task.enqueue()
    if end == "cancelled":
        job.cancel()
    else:
        hands.live(job, clock, {"status": "ok"} if end == "completed" else ERROR)
    forecast = job.forecast()
    assert (forecast.attempts, forecast.ends) == ([], end)
    assert forecast.stopped_by == job.stopped_by


def test_deleted_job_has_no_forecast(both: LiteJobs, clock: Any) -> None:
    job = failing(both).enqueue()
    job.cancel()
    with both.transaction() as db:
        db.execute("delete from litejobs_job where id = ?", (job.id,))
    with pytest.raises(JobNotFound, match="there is no job 1"):
        job.forecast()


def test_what_holds_a_job_back_is_out_of_its_way(both: LiteJobs, clock: Any) -> None:
    """A paused queue and a task that nobody runs say nothing about errors."""
    job = both.enqueue("unheard", queue="mail", retry=Retry.constant(10, retries=1))
    both.pause("mail")
    assert [each.code for each in job.why()] == ["queue_paused", "unknown_task"]
    forecast = job.forecast()
    assert [each.attempt for each in forecast.attempts] == [1, 2]
    both.task(name="unheard")(lambda: None)
    both.resume("mail")
    both.open()
    assert planned(forecast) == Hands(both).live(job, clock, ERROR)


def test_limits_lowered_by_hand_end_it_sooner(both: LiteJobs, clock: Any) -> None:
    task = failing(both, retry=Retry.constant(10, retries=8, jitter=0))
    hands = Hands(both)
    job = task.enqueue()
    hands.live(job, clock, ERROR, most=2)

    def lower(column: str, value: object) -> None:
        with both.transaction() as db:
            db.execute(f"update litejobs_job set {column} = ?", (value,))

    lower("max_attempts", 4)
    forecast = job.forecast()
    assert (seconds(forecast), forecast.stopped_by) == ([20, 30], "max_attempts")
    lower("options", '{"retry_budget_ms": 25000}')
    forecast = job.forecast()
    assert (seconds(forecast), forecast.stopped_by) == ([20], "retry_budget")
    lower("max_attempts", 2)
    forecast = job.forecast()
    assert (forecast.attempts, forecast.ends, forecast.stopped_by) == (
        [],
        "dead_lettered",
        "max_attempts",
    )
    lower("retryable", 0)
    assert job.forecast().stopped_by == "not_retryable"
    assert hands.live(job, clock, ERROR) == []
    assert (job.state, job.stopped_by) == ("dead_lettered", "not_retryable")


def test_first_attempt_is_made_whatever_the_limits_say(
    both: LiteJobs, clock: Any
) -> None:
    task = failing(both)
    hands = Hands(both)
    job = task.enqueue()
    with both.transaction() as db:
        db.execute("update litejobs_job set max_attempts = 0")
    forecast = job.forecast()
    assert [each.stopped_by for each in forecast.attempts] == ["max_attempts"]
    assert planned(forecast) == hands.live(job, clock, ERROR)


def test_job_of_an_open_transaction_can_be_asked(jobs: LiteJobs, clock: Any) -> None:
    with pytest.raises(ZeroDivisionError), jobs.transaction():
        job = failing(jobs, retry=Retry.constant(1, retries=3)).enqueue()
        assert len(job.forecast().attempts) == 4
        raise ZeroDivisionError
    assert jobs.counts() == {}


# What cannot be asked -----------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [{}, {"status": "failed"}, {"status": None}, {"state": "ok"}, {"status": ["ok"]}],
)
def test_outcome_that_is_none_is_refused_with_a_sentence(
    jobs: LiteJobs, outcome: dict[str, Any]
) -> None:
    job = failing(jobs).enqueue()
    with pytest.raises(
        ConfigurationError,
        match=r"outcome=.*an outcome is a JSON object whose status is ok, error",
    ):
        job.forecast(outcome=outcome)


def test_outcome_that_is_no_json_is_refused(jobs: LiteJobs) -> None:
    job = failing(jobs).enqueue()
    with pytest.raises(ArgumentError, match=r'outcome\["error"\] is'):
        job.forecast(outcome={"status": "error", "error": OSError("no")})


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "10", 2**63])
def test_limit_that_is_none_is_refused(jobs: LiteJobs, limit: Any) -> None:
    job = failing(jobs).enqueue()
    with pytest.raises(ConfigurationError, match="limit="):
        job.forecast(limit=limit)


# What comes between -------------------------------------------------------------------


def slow_under_a_budget(jobs: LiteJobs, clock: Any) -> tuple[Hands, Job[Any]]:
    """95 s after the start: failed twice, due in 30 s, 60 s of its 100 s planned."""
    retry = Retry.constant(30, max_attempts=9, budget="100s", jitter=0)
    job = failing(jobs, retry=retry).enqueue()
    hands = Hands(jobs)
    hands.live(job, clock, ERROR, most=1)
    clock.tick(30)
    hands.tick()
    [(attempt, _)] = hands.claim()
    clock.tick(65)
    hands.settle(attempt, ERROR)
    return hands, job


def test_budget_counts_what_was_waited_as_long_as_no_other_runner_comes(
    both: LiteJobs, clock: Any
) -> None:
    hands, job = slow_under_a_budget(both, clock)
    forecast = job.forecast()
    assert (seconds(forecast), forecast.stopped_by) == ([125, 155], "retry_budget")
    assert planned(forecast) == hands.live(job, clock, ERROR)


def test_budget_runs_out_while_the_job_waits_under_another_runner(
    both: LiteJobs, clock: Any
) -> None:
    hands, job = slow_under_a_budget(both, clock)
    hands.start()
    forecast = job.forecast()
    assert hands.live(job, clock, ERROR) == []
    assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")
    assert (planned(forecast), forecast.ends) == ([], "dead_lettered")
    assert forecast.stopped_by == "retry_budget_expired"


def test_budget_runs_out_between_two_attempts_under_another_runner(
    both: LiteJobs, clock: Any
) -> None:
    retry = Retry.constant(30, max_attempts=9, budget="100s", jitter=0)
    job = failing(both, retry=retry).enqueue()
    hands = Hands(both)
    hands.live(job, clock, ERROR, most=1)
    clock.tick(65)
    hands.start()
    forecast = job.forecast()
    happened = hands.live(job, clock, ERROR)
    assert [each[2] for each in happened] == [
        START + dt.timedelta(seconds=each) for each in (65, 95)
    ]
    assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")
    assert planned(forecast) == happened
    assert forecast.stopped_by == "retry_budget_expired"


def test_job_snoozed_below_its_limits_is_forecast_as_it_then_stands(
    both: LiteJobs, clock: Any
) -> None:
    """Its limits were lowered while it slept: it is in line for nothing."""
    policy = Policy(
        [Rule.snooze("outcome.status == 'timeout'", delay=60)], otherwise="retry"
    )
    retry = Retry.constant(10, retries=5, jitter=0)
    job = failing(both, retry=retry, policy=policy).enqueue()
    hands = Hands(both)
    hands.live(job, clock, ERROR, most=2)
    hands.live(job, clock, TIMEOUT, most=1)
    with both.transaction() as db:
        db.execute("update litejobs_job set max_attempts = 2")
    forecast = job.forecast()
    assert (forecast.attempts, forecast.stopped_by) == ([], "max_attempts")
    assert hands.live(job, clock, TIMEOUT) == []
    assert [each.code for each in job.why()] == ["attempts_used"]


# Only reading -------------------------------------------------------------------------


def contents(jobs: LiteJobs) -> list[tuple[str, list[Any]]]:
    """All that is in the tables of litejobs."""
    with jobs.reader() as db:
        tables = [
            row[0]
            for row in db.execute(
                "select name from sqlite_schema where type = 'table' "
                "and (name glob 'litejobs_*' or name = 'sqlite_sequence') order by name"
            )
        ]
        return [(each, list(db.execute(f"select * from {each}"))) for each in tables]


def test_forecast_changes_nothing(both: LiteJobs, clock: Any) -> None:
    task = failing(both, policy=rules())
    hands = Hands(both)
    job = task.enqueue()
    hands.live(job, clock, HTTP_503, most=1)
    before = contents(both)
    assert job.forecast().attempts
    assert job.forecast(outcome=TIMEOUT).attempts
    with contextlib.suppress(ConfigurationError):
        job.forecast(outcome={"status": "?"})
    assert contents(both) == before


def test_forecast_neither_waits_for_a_writer_nor_writes(
    file_jobs: LiteJobs, clock: Any
) -> None:
    job = failing(file_jobs, retry=Retry.constant(10, retries=3)).enqueue()
    expected = job.forecast()
    path = Path(file_jobs.path)
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.execute("create table app (x)")
        # Who commits in between is seen by this number, and by the bytes of the files.
        version = other.pragma("data_version")
        other.execute("begin immediate")
        other.execute("insert into app values (1)")
        before = file_bytes(path)
        assert job.forecast() == expected
        assert file_bytes(path) == before
        other.execute("commit")
        assert other.pragma("data_version") == version
        # One write after the other goes on meanwhile; none of them is lost.
        for number in range(50):
            other.execute("insert into app values (?)", (number,))
            if number % 10 == 0:
                assert job.forecast() == expected
        assert other.pragma("data_version") == version
        assert other.execute("select count(*) from app").get == 51


def file_bytes(path: Path) -> list[bytes]:
    return [
        each.read_bytes()
        for each in (path, path.with_name(path.name + "-wal"))
        if each.exists()
    ]


# Any policy ---------------------------------------------------------------------------

CONDITIONS = (
    "outcome.status == 'error'",
    "outcome.status == 'timeout'",
    "outcome.status in ['crashed', 'timeout']",
    "outcome.http.status >= 500",
    "not outcome.http.status >= 500",
    "'OSError' in outcome.error.types",
    "'timed' in lower(outcome.error.message)",
    "attempt > 2",
    "attempt < 4 and outcome.error",
    "iter.n >= 2 or step == 'two'",
)
OUTCOMES = (ERROR, HTTP_503, HTTP_429, TIMEOUT, CRASHED, error_of("ValueError"))


def some_waits(rng: random.Random) -> dict[str, Any]:
    """A backoff as both a Retry and a rule take it."""
    options: dict[str, Any] = {"jitter": rng.choice([None, 0, 0.1, 0.5, 1])}
    backoff = rng.choice([None, *GROWTH, "fixed"])
    options["backoff"] = backoff
    if backoff == "fixed":
        options["intervals"] = [
            rng.randint(1, 100) for _ in range(rng.choice([1, 2, 5]))
        ]
        return options
    options["delay"] = rng.choice([None, 0, 1, 30, "5m", "3h"])
    options["max_delay"] = rng.choice([None, None, 40, "1h"])
    if backoff == "exponential":
        options["factor"] = rng.choice([1, 1.5, 2, 10])
    return options


def some_retry(rng: random.Random) -> Retry:
    waits = some_waits(rng)
    if waits["backoff"] != "fixed":
        waits["max_attempts"] = rng.choice([None, 1, 2, 3, 6, 20])
        if waits["max_attempts"] in {None, 1}:
            waits["retryable"] = rng.choice([None, False])
    return Retry(**waits, budget=rng.choice([None, None, 0, 10, "4m", "1d"]))


def some_rule(rng: random.Random, steps: tuple[str, ...]) -> Rule:
    when = rng.choice(CONDITIONS)
    do = rng.choice(["retry"] * 5 + ["snooze"] * 2 + ["fail", "continue", "break"])
    if steps and rng.random() < 0.2:
        do = "jump"
    options: dict[str, Any] = {}
    if do == "retry":
        options = some_waits(rng)
        if options["backoff"] != "fixed":
            options["attempts"] = rng.choice([None, 1, 2, 4, 8])
    elif do in {"snooze", "jump"}:
        options = {
            "delay": rng.choice([1, 60, "2h"]),
            "jitter": rng.choice([None, 0.3]),
        }
    if do == "jump":
        options["to"] = rng.choice(steps)
    if do in {"retry", "snooze"}:
        options["priority"] = rng.choice([None, None, 5, -5])
        options["queue"] = rng.choice([None, None, "side"])
    if rng.random() < 0.4:
        options["set_iter"] = {"n": "{{ attempt }}", "e": "{{ outcome.error.type }}"}
    return Rule(when, do, **options)


def some_policy(rng: random.Random, steps: tuple[str, ...]) -> Policy:
    return Policy(
        [some_rule(rng, steps) for _ in range(rng.randint(1, 5))],
        otherwise=rng.choice(["fail", "continue", "retry"]),
        limits=some_retry(rng) if rng.random() < 0.5 else None,
    )


def some_task(jobs: LiteJobs, rng: random.Random, name: str) -> Job[Any]:
    """A job of a task or flow whose policy is a random one."""
    steps = ("one", "two", "three") if rng.random() < 0.3 else ()
    options: dict[str, Any] = {"max_crashes": rng.choice([None, 1, 3, 10])}
    if rng.random() < 0.75:
        options["policy"] = some_policy(rng, steps)
    else:
        options["retry"] = some_retry(rng)

    def work() -> None: ...

    if steps:
        own = some_policy(rng, steps) if rng.random() < 0.5 else None
        flow = jobs.flow(
            name, [("one", work, own), ("two", work), ("three", work)], **options
        )
        return flow.using(delay=rng.choice([0, 0, 45])).enqueue()
    task = jobs.task(name=name, **options)(work)
    return task.using(delay=rng.choice([0, 0, 45])).enqueue()


MOST = 12


@pytest.mark.parametrize("count", [70, pytest.param(120, marks=pytest.mark.torture)])
def test_random_policies_are_forecast_as_they_then_decide(
    jobs: LiteJobs, clock: Any, count: int
) -> None:
    """Many jobs in one file: asked at birth, and again on their way.

    They live side by side: the clock goes from one due instant to the next.
    """
    rng = random.Random(20260101)
    made = [some_task(jobs, rng, f"task {number}") for number in range(count)]
    outcomes = {job.id: rng.choice(OUTCOMES) for job in made}
    asked_again_after = {job.id: rng.randint(1, 4) for job in made}
    foretold = {
        job.id: job.forecast(outcome=outcomes[job.id], limit=MOST) for job in made
    }
    hands = Hands(jobs)
    counts = dict.fromkeys(outcomes, 0)
    asked_again = 0
    while due := next_due(jobs):
        clock.move_to(max(due, dt.datetime.now(dt.UTC)))
        hands.tick()
        for attempt, number in hands.claim(1000):
            hands.settle(attempt, outcomes[number])
            counts[number] += 1
            job = jobs.get(number)
            last = job.attempts[-1]
            if counts[number] == MOST or last.decision not in {"retry", "snooze"}:
                job.cancel()
            elif counts[number] == asked_again_after[number]:
                # It fails as it did last; a crash cannot be learnt from.
                given = CRASHED if last.status == "crashed" else None
                rest = job.forecast(outcome=given, limit=MOST - counts[number])
                assert planned(foretold[number])[counts[number] :] == planned(rest)
                asked_again += 1
    for job in made:
        forecast, last = foretold[job.id], job.attempts[-1]
        assert planned(forecast) == lived(job), job.id
        goes_on = last.decision in {"retry", "snooze"}
        assert (forecast.ends, forecast.stopped_by) == (
            (None, None) if goes_on else (left_as(last), last.stopped_by)
        )
    seen = [each for job in made for each in job.attempts]
    assert len(seen) > 3 * count
    assert asked_again > count / 5
    assert {each.decision for each in seen} >= {
        *("retry", "snooze", "dead_letter", "jump", "continue", "complete"),
    }
    assert {each.stopped_by for each in seen} >= {
        *("max_attempts", "not_retryable", "rule_attempts", "retry_budget"),
        *("rule_fail", "no_rule", "max_crashes"),
    }


def left_as(last: Attempt) -> str:
    """The state in which an attempt leaves its job."""
    if last.decision == "jump" and last.delay_ms:
        return "scheduled"
    states = {
        "complete": "completed",
        "dead_letter": "dead_lettered",
        "cancel": "cancelled",
    }
    return states.get(last.decision or "", "pending")


def next_due(jobs: LiteJobs) -> dt.datetime | None:
    with jobs.reader() as db:
        due = db.execute(
            "select min(run_at) from litejobs_job "
            "where state in ('scheduled', 'failed', 'pending')"
        ).get
    return None if due is None else START + dt.timedelta(milliseconds=due - START_MS)


def test_arguments_that_are_no_text_do_not_hide_the_forecast(
    both: LiteJobs, clock: Any
) -> None:
    job = failing(both, retry=Retry.constant(10, retries=2, jitter=0)).enqueue()
    before = job.forecast()
    with both.transaction() as db:
        db.execute("update litejobs_job set args = cast(x'5b22ff225d' as text)")
    assert job.forecast() == before


# The database in memory is used again ------------------------------------------------


def test_nothing_of_a_forecast_is_left_for_the_next(jobs: LiteJobs, clock: Any) -> None:
    """Also after one that was given up, and one of another task."""
    often = Retry.exponential("10s", max_attempts=6)

    @jobs.task(retry=often)
    def one() -> None: ...

    @jobs.task(max_attempts=2)
    def other() -> None: ...

    first, second, gone = one.enqueue(), other.enqueue(), jobs.enqueue("gone")
    gone.cancel()
    jobs.purge(older_than=None)
    in_memory.close_spare()
    expected = first.forecast()
    in_memory.close_spare()
    expected_of_other = second.forecast()
    assert (len(expected.attempts), len(expected_of_other.attempts)) == (6, 2)
    for _ in range(2):
        assert first.forecast() == expected
        with pytest.raises(ConfigurationError, match="outcome="):
            first.forecast(outcome={"status": "unheard of"})
        assert second.forecast() == expected_of_other
        assert len(first.forecast(limit=1).attempts) == 1
        with pytest.raises(JobNotFound):
            gone.forecast()


def test_threads_forecast_at_the_same_time(jobs: LiteJobs) -> None:
    made = [jobs.enqueue("task", max_attempts=n) for n in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(lambda job: len(job.forecast().attempts), made))
            assert found == list(range(1, 9))


def test_what_every_connection_is_given_is_given_to_it(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.enqueue("task")
    job.forecast()
    opened: list[apsw.Connection] = []
    monkeypatch.setattr(apsw, "connection_hooks", [opened.append])
    job.forecast()
    assert len(opened) == 2
    job.forecast()
    assert len(opened) == 2
