"""The log: what happened, in which order, and who did it."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs, LogLine, Policy, Retry, Rule, TaskError
from litejobs._process.clock import ensure_clock_vfs
from litejobs.cli import main
from litejobs.errors import ConfigurationError, EventsLost
from tests.cli.calls import runner

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
POLICY = Policy(
    [
        Rule.fail("outcome.error.code == 'FATAL'"),
        Rule.retry("outcome.error.code == 'AGAIN'", attempts=3, delay=10, jitter=0),
    ],
    otherwise="fail",
)


@pytest.fixture
def foreign(file_jobs: LiteJobs) -> Iterator[apsw.Connection]:
    """Another client's own connection to the file."""
    file_jobs.open()
    connection = apsw.Connection(file_jobs.path, vfs=ensure_clock_vfs())
    with contextlib.closing(connection):
        yield connection


@pytest.fixture
def cli(file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`litejobs --db FILE …`, which is to succeed."""
    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    called = runner()
    file_jobs.open()

    def run(*arguments: object) -> None:
        given = ["--db", file_jobs.path, *map(str, arguments)]
        result = called.invoke(main, given)
        assert result.exit_code == 0, result.stderr

    return run


def answers(jobs: LiteJobs, *codes: str, **options: Any) -> Any:
    """A task that raises these codes, one after the other, and then succeeds."""
    raised = iter(codes)

    def answer() -> None:
        code = next(raised, None)
        if code is not None:
            raise TaskError(code)

    return jobs.task(name="a", **options)(answer)


def names(jobs: LiteJobs, after: int = 0) -> list[str]:
    return [line.name for line in jobs.log(after=after)]


def last_id(jobs: LiteJobs) -> int:
    return max((line.id for line in jobs.log()), default=0)


# One story ----------------------------------------------------------------------------


def test_whole_story_is_told_in_its_order(
    file_jobs: LiteJobs,
    clock: Any,
    cli: Callable[..., None],
    foreign: apsw.Connection,
) -> None:
    jobs = file_jobs
    told: list[tuple[object, ...]] = []
    seen = 0

    def expect(*lines: tuple[object, ...]) -> None:
        """These lines, and no others, were written since the last ones."""
        nonlocal seen
        new = [line for line in jobs.log(after=seen) if line.name != "operation.done"]
        assert [told_of(line) for line in new] == list(lines)
        seen = new[-1].id
        told.extend(lines)

    def told_of(line: LogLine) -> tuple[object, ...]:
        by = line.origin
        about = line.subject or line.job_id
        return (line.name, about) if by is None else (line.name, about, by)

    task = answers(jobs, "AGAIN", "FATAL", "AGAIN", policy=POLICY)
    jobs.open()
    job = task.enqueue()
    expect(("policy.in_force", "policy of a"), ("task.enqueued", 1))
    jobs.drain()
    expect(
        ("task.attempt.started", 1),
        ("task.attempt.failed", 1),
        ("policy.task.evaluated", 1),
    )
    clock.tick(10)
    jobs.drain()
    expect(
        ("task.pending", 1),
        ("task.attempt.started", 1),
        ("task.attempt.failed", 1),
        ("policy.task.evaluated", 1),
        ("task.failed", 1),
    )
    cli("requeue", 1)
    expect(("task.requeued", 1, "cli"))
    jobs.drain()
    expect(
        ("task.attempt.started", 1),
        ("task.attempt.failed", 1),
        ("policy.task.evaluated", 1),
    )
    job.run_now()
    expect(("task.run_now", 1, "api"))
    jobs.drain()
    expect(
        ("task.attempt.started", 1),
        ("task.attempt.done", 1),
        ("policy.task.evaluated", 1),
        ("task.done", 1),
    )
    foreign.execute("update litejobs_queue set paused = 1 where name = 'default'")
    expect(("queue.paused", "queue default", "sql"))
    job.requeue()
    assert jobs.drain() == 0
    job.cancel()
    expect(("task.requeued", 1, "api"), ("task.cancelled", 1, "api"))
    cli("resume", "default")
    expect(("queue.open", "queue default", "cli"))

    @jobs.task
    def ends_itself() -> None:
        jobs.get(2).cancel()
        raise TaskError("STOPPED")

    ends_itself.enqueue()
    jobs.drain()
    expect(
        ("task.enqueued", 2),
        ("task.attempt.started", 2),
        ("task.cancel_requested", 2, "api"),
        ("task.attempt.failed", 2),
        ("policy.task.evaluated", 2),
        ("task.cancelled", 2),
    )
    jobs.close()
    jobs = LiteJobs(jobs.path)
    answers(jobs, policy=Policy([Rule.fail(None)]))
    jobs.open()
    expect(("policy.replaced", "policy of a"), ("policy.in_force", "policy of a"))
    # All of it once more, and for each job alone.
    assert [
        told_of(line) for line in jobs.log() if line.name != "operation.done"
    ] == told
    for number in (1, 2):
        assert [told_of(line) for line in jobs.log(job_id=number)] == [
            each for each in told if each[1] == number
        ]
    jobs.close()


def test_evaluation_names_rule_action_and_decision(jobs: LiteJobs, clock: Any) -> None:
    job = answers(jobs, "AGAIN", "FATAL", policy=POLICY).enqueue()
    jobs.drain()
    clock.tick(10)
    jobs.drain()
    first, second = job.attempts
    assert [first.rule_position, second.rule_position] == [2, 1]
    assert [
        (line.name, line.attempt_id, line.rule_id, line.action, line.decision)
        for line in jobs.log(job_id=job.id)
        if line.attempt_id is not None
    ] == [
        ("task.attempt.started", 1, None, None, None),
        ("task.attempt.failed", 1, None, None, "retry"),
        ("policy.task.evaluated", 1, first.rule_id, "retry", "retry"),
        ("task.pending", 1, None, None, None),
        ("task.attempt.started", 2, None, None, None),
        ("task.attempt.failed", 2, None, None, "dead_letter"),
        ("policy.task.evaluated", 2, second.rule_id, "fail", "dead_letter"),
        ("task.failed", 2, None, None, None),
    ]
    stopped = {line.name: line.stopped_by for line in jobs.log(job_id=job.id)}
    assert stopped["task.failed"] == "rule_fail"


def test_flow_is_logged_step_by_step(jobs: LiteJobs, clock: Any) -> None:
    policy = Policy(
        [
            Rule.snooze("outcome.result == 'wait'", delay=5),
            Rule.jump("outcome.result == 'back'", to="one"),
        ],
        otherwise="fail",
    )
    results = iter([1, "wait", "back", 1, 2])

    def step() -> object:
        return next(results)

    flow = jobs.flow("f", [("one", step), ("two", step)], policy=policy)
    job = flow.enqueue()
    jobs.drain()
    clock.tick(5)
    jobs.drain()
    assert job.state == "completed"
    assert [
        (line.step, line.decision, line.new_state)
        for line in jobs.log(job_id=job.id)
        if line.name == "policy.task.evaluated"
    ] == [
        ("one", "continue", "pending"),
        ("two", "snooze", "scheduled"),
        ("two", "jump", "pending"),
        ("one", "continue", "pending"),
        ("two", "complete", "completed"),
    ]
    assert names(jobs)[-1] == "task.done"
    assert names(jobs).count("task.done") == 1


def test_policies_of_steps_are_logged_under_their_names(jobs: LiteJobs) -> None:
    own = Policy([Rule.fail(None)])
    jobs.flow("f", [("one", lambda: None), ("two", lambda: None, own)], policy=POLICY)
    jobs.open()
    jobs.measures()
    assert sorted((line.name, line.subject) for line in jobs.log()) == [
        ("policy.in_force", "policy of f"),
        ("policy.in_force", "policy of f.two"),
    ]


def test_policy_given_up_is_replaced_by_none(file_jobs: LiteJobs) -> None:
    answers(file_jobs, policy=POLICY)
    file_jobs.open().close()
    again = LiteJobs(file_jobs.path)
    answers(again, policy=POLICY)
    assert names(again) == ["policy.in_force"]
    again.close()
    without = LiteJobs(file_jobs.path)
    answers(without)
    assert names(without) == ["policy.in_force", "policy.replaced"]
    without.close()


# Who did it ---------------------------------------------------------------------------


def action(
    origin: str,
    what: str,
    jobs: LiteJobs,
    cli: Callable[..., None],
    foreign: apsw.Connection,
) -> None:
    """The same action on job 1 or queue q, by one of three ways."""
    if origin == "api":
        steer: dict[str, Callable[[], object]] = {
            "cancel": lambda: jobs.get(1).cancel(),
            "requeue": lambda: jobs.get(1).requeue(),
            "run-now": lambda: jobs.get(1).run_now(),
            "pause": lambda: jobs.pause("q"),
            "resume": lambda: jobs.resume("q"),
        }
        steer[what]()
    elif origin == "cli":
        cli(what, "q" if what in {"pause", "resume"} else 1)
    else:
        changes = {
            "cancel": "litejobs_job set state = 'cancelled'",
            "requeue": "litejobs_job set state = 'pending'",
            "run-now": "litejobs_job set state = 'pending'",
            "pause": "litejobs_queue set paused = 1",
            "resume": "litejobs_queue set paused = 0",
        }
        where = "name = 'q'" if what in {"pause", "resume"} else "id = 1"
        foreign.execute(f"update {changes[what]} where {where}")


@pytest.mark.parametrize("origin", ["api", "cli", "sql"])
def test_operations_of_people_are_logged_with_their_origin(
    file_jobs: LiteJobs,
    clock: Any,
    cli: Callable[..., None],
    foreign: apsw.Connection,
    origin: str,
) -> None:
    answers(file_jobs).using(delay=60, queue="q").enqueue()
    before = last_id(file_jobs)
    for what in ("run-now", "cancel", "requeue", "pause", "resume"):
        action(origin, what, file_jobs, cli, foreign)
    assert [
        (line.name, line.origin, line.job_id, line.subject)
        for line in file_jobs.log(after=before)
        if line.name != "operation.done"
    ] == [
        ("task.run_now", origin, 1, None),
        ("task.cancelled", origin, 1, None),
        ("task.requeued", origin, 1, None),
        ("queue.paused", origin, None, "queue q"),
        ("queue.open", origin, None, "queue q"),
    ]


@pytest.mark.parametrize("origin", ["api", "cli", "sql"])
def test_request_to_cancel_what_runs_is_logged_with_its_origin(
    file_jobs: LiteJobs,
    clock: Any,
    cli: Callable[..., None],
    foreign: apsw.Connection,
    origin: str,
) -> None:
    @file_jobs.task
    def work() -> None:
        if origin == "sql":
            foreign.execute(
                "update litejobs_job set cancel_requested_at = "
                "(select now from litejobs_clock) where id = 1"
            )
        else:
            action(origin, "cancel", file_jobs, cli, foreign)
        raise TaskError("STOPPED")

    job = work.enqueue()
    file_jobs.drain()
    lines = [line for line in file_jobs.log() if line.origin is not None]
    asked = [line for line in lines if line.name != "operation.done"]
    assert [(line.name, line.origin, line.attempt_id) for line in asked] == [
        ("task.cancel_requested", origin, 1)
    ]
    assert job.state == "cancelled"
    job.requeue()
    assert file_jobs.log()[-1].origin == "api"


def test_what_happens_by_itself_has_no_origin(jobs: LiteJobs, clock: Any) -> None:
    """Also after somebody has acted: an operation is that of one change alone."""
    job = answers(jobs, "AGAIN", retry=Retry.constant(5, jitter=0)).enqueue()
    jobs.drain()
    job.run_now()
    jobs.drain()
    assert [
        line.name for line in jobs.log(job_id=job.id) if line.origin is not None
    ] == ["task.run_now"]


def test_operation_without_effect_is_not_logged(jobs: LiteJobs, clock: Any) -> None:
    job = answers(jobs).enqueue()
    jobs.drain()
    before = jobs.log()
    assert not job.cancel()
    assert not job.run_now()
    jobs.resume("default")
    assert jobs.log() == before


def test_operation_that_is_rolled_back_is_not_logged(
    jobs: LiteJobs, clock: Any
) -> None:
    job = answers(jobs).enqueue()
    before = jobs.log()
    with pytest.raises(ZeroDivisionError), jobs.transaction():
        job.cancel()
        jobs.pause("default")
        raise ZeroDivisionError
    assert jobs.log() == before


# In which order -----------------------------------------------------------------------


def test_order_is_that_of_the_operations_whatever_the_clock_says(
    file_jobs: LiteJobs, clock: Any, foreign: apsw.Connection
) -> None:
    """Many within a millisecond, then an hour earlier, then a year later."""
    task = answers(file_jobs)
    expected: list[tuple[str, int]] = []
    shifts = [dt.timedelta(0), dt.timedelta(hours=-1), dt.timedelta(days=365)]
    for shift in shifts:
        clock.move_to(START + shift)
        for _ in range(3):
            job = task.enqueue()
            foreign.execute(
                "update litejobs_job set state = 'cancelled' where id = ?", (job.id,)
            )
            job.requeue()
            job.cancel()
            expected += [
                (name, job.id)
                for name in (
                    *("task.enqueued", "task.cancelled"),
                    *("task.requeued", "task.cancelled"),
                )
            ]
    lines = file_jobs.log()
    assert [(line.name, line.job_id) for line in lines] == expected
    ids = [line.id for line in lines]
    assert ids == sorted(set(ids))
    instants = [line.at for line in lines]
    assert instants == [START + shift for shift in shifts for _ in range(12)]
    assert instants != sorted(instants)


def test_lines_of_one_move_come_one_after_the_other(jobs: LiteJobs, clock: Any) -> None:
    """Two attempts that end in one commit are told one after the other."""
    task = answers(jobs)
    first, second = task.enqueue(), task.enqueue()
    with jobs.transaction() as db:
        db.execute("insert into litejobs_runner (threads) values (2)")
        db.execute("update litejobs_task set runner_id = 1")
        db.execute("insert into litejobs_claim values (1, 2)")
        for attempt in (2, 1):
            document = '{"status": "error", "retryable": false}'
            db.execute("insert into litejobs_settle values (?, ?)", (attempt, document))
    ended = ["task.attempt.failed", "policy.task.evaluated", "task.failed"]
    assert [(line.name, line.job_id) for line in jobs.log()][-6:] == [
        *((name, second.id) for name in ended),
        *((name, first.id) for name in ended),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 1000])
def test_pages_make_the_whole(jobs: LiteJobs, clock: Any, limit: int) -> None:
    """A page may end in the middle of the lines of one move."""
    task = answers(jobs, "AGAIN", "FATAL", policy=POLICY)
    task.enqueue()
    task.enqueue().cancel()
    jobs.drain()
    clock.tick(10)
    jobs.drain()
    whole = jobs.log()
    assert len(whole) > 10
    pages: list[list[LogLine]] = [[]]
    while page := jobs.log(after=pages[-1][-1].id if pages[-1] else 0, limit=limit):
        pages.append(page)
    assert list(itertools.chain(*pages)) == whole
    assert {len(page) for page in pages[1:-1]} <= {limit}
    assert jobs.log(after=whole[-1].id) == []
    assert jobs.log(after=whole[-1].id + 1000) == []


def test_lines_of_one_job_come_in_pages_too(jobs: LiteJobs, clock: Any) -> None:
    job = answers(jobs).enqueue()
    jobs.drain()
    whole = jobs.log(job_id=job.id)
    assert jobs.log(job_id=job.id, limit=2) == whole[:2]
    assert jobs.log(job_id=job.id, after=whole[1].id) == whole[2:]
    assert jobs.log(job_id=job.id, after=whole[1].id, limit=1) == whole[2:3]


@pytest.mark.parametrize("limit", [0, -1, True, "2"])
def test_limit_that_is_none_is_refused(jobs: LiteJobs, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="limit="):
        jobs.log(limit=limit)


# It stays -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [3, pytest.param(1, marks=pytest.mark.torture)], ids=["crosswise", "all"]
)
def test_closed_attempts_stay_as_they_are(
    file_jobs: LiteJobs, clock: Any, foreign: apsw.Connection, step: int
) -> None:
    """Column by column, whichever way another client tries."""
    job = answers(file_jobs, "AGAIN", policy=POLICY).enqueue()
    file_jobs.drain()
    before = job.attempts
    columns = [
        row[0]
        for row in foreign.execute(
            "select name from pragma_table_info('litejobs_attempt')"
        )
    ]
    assert len(columns) > 20
    for number, column in enumerate(columns):
        # No number may be NULL, whoever guards it.
        values = ["'7'", column] if column == "id" else ["'7'", column, "null"]
        for nth, how in enumerate(("update", "update or replace", "update or ignore")):
            for value in values[(number + nth) % len(values) % step :: step]:
                # What a constraint forbids as well, `or ignore` may pass by.
                with contextlib.suppress(apsw.ConstraintError):
                    foreign.execute(f"{how} litejobs_attempt set {column} = {value}")
                    assert value != column
                    assert how == "update or ignore"
                assert job.attempts == before
    with pytest.raises(apsw.ConstraintError, match="immutable_attempt"):
        foreign.execute("delete from litejobs_attempt")
    for how in ("insert", "insert or replace", "replace"):
        with pytest.raises(apsw.ConstraintError, match="invalid_claim"):
            foreign.execute(
                f"{how} into litejobs_attempt select * from litejobs_attempt"
            )
    foreign.execute('insert into litejobs_settle values (1, \'{"status": "ok"}\')')
    assert job.attempts == before
    assert names(file_jobs)[-1] == "task.late_report"


def test_lines_of_the_log_stay_as_they_are(
    file_jobs: LiteJobs, clock: Any, foreign: apsw.Connection
) -> None:
    answers(file_jobs).enqueue()
    file_jobs.pause("default")
    before = file_jobs.log()
    columns = [
        row[0]
        for row in foreign.execute(
            "select name from pragma_table_info('litejobs__transition')"
        )
    ]
    for column in columns:
        with pytest.raises(apsw.ConstraintError, match="immutable_log"):
            foreign.execute(f"update or replace litejobs__transition set {column} = 7")
    with pytest.raises(apsw.ConstraintError, match="immutable_log"):
        foreign.execute("replace into litejobs__transition (id, at) values (1, 0)")
    with pytest.raises(apsw.ConstraintError, match="immutable_log"):
        foreign.execute("delete from litejobs__transition")
    assert file_jobs.log() == before


def test_operations_on_queues_cannot_be_struck_from_the_log(
    file_jobs: LiteJobs, clock: Any, foreign: apsw.Connection
) -> None:
    file_jobs.pause("default")
    with pytest.raises(apsw.ConstraintError, match="immutable_log"):
        foreign.execute("delete from litejobs__transition where job_id is null")


def test_task_name_that_is_no_text_does_not_hold_up_the_tick(
    jobs: LiteJobs, clock: Any
) -> None:
    """What a tick decided is read to be logged, in the transaction of the tick."""

    @jobs.task(max_attempts=3)
    def fails() -> None:
        raise OSError

    job, other = fails.enqueue(), fails.enqueue()
    jobs.drain()
    with jobs.transaction() as db:
        db.execute(
            "update litejobs_job set max_attempts = 1, task = cast(x'ff' as text) "
            "where id = ?",
            (job.id,),
        )
    clock.tick(3600)
    assert jobs.drain() == 1
    with jobs.reader() as db:
        sql = "select state from litejobs_job where id = ?"
        assert db.execute(sql, (job.id,)).get == "dead_lettered"
    assert other.snapshot().attempt_count == 2


# What has been deleted ----------------------------------------------------------------


def test_a_reader_is_told_what_was_deleted_before_it_read_on(
    jobs: LiteJobs, clock: Any
) -> None:
    send, other = answers(jobs), jobs.task(name="other")(lambda: None)
    first = send.enqueue()
    jobs.drain()
    seen = last_id(jobs)
    send.enqueue()
    kept = other.enqueue()
    jobs.drain()
    until = last_id(jobs)
    assert jobs.purge(older_than=None, task="a") == 2
    with pytest.raises(EventsLost) as caught:
        jobs.log(after=seen)
    lost = caught.value
    assert (lost.after, lost.tasks) == (seen, ("a",))
    assert str(lost).startswith(f"of the log after line {seen} not all is there any ")
    assert seen < lost.until <= until
    # What is after it is whole; and of the others nothing is missing.
    assert {line.job_id for line in jobs.log(after=lost.until)} <= {kept.id, None}
    told = [line.name for line in jobs.log(after=seen, task="other")]
    assert told == [
        *("task.enqueued", "task.attempt.started", "task.attempt.done"),
        *("policy.task.evaluated", "task.done"),
    ]
    assert [line.id for line in jobs.log(after=seen, partial=True)][:1] == [
        next(line.id for line in jobs.log() if line.job_id == kept.id)
    ]
    with pytest.raises(EventsLost):
        jobs.log(after=seen, task="a")
    assert first.id not in {line.job_id for line in jobs.log()}


def test_who_has_read_all_loses_nothing(jobs: LiteJobs, clock: Any) -> None:
    send = answers(jobs)
    seen = 0
    for _ in range(3):
        send.enqueue()
        jobs.drain()
        assert jobs.log(after=seen)[-1].name == "task.done"
        seen = last_id(jobs)
        assert jobs.purge(older_than=None) == 1
        clock.tick(60)
    told = [line.name for line in jobs.log(after=seen)]
    assert told == ["jobs.purged", "operation.done"]
