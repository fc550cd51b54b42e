"""Each gate of the model of the line can be closed by steps of its random test.

A gate that no step closes is never drawn, however long the random tests run: the model
and the database agree about it because neither was ever asked. So here each of them is
closed by the steps alone, with what they draw and without chance, and both say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.models import kinds
from tests.models.linemodel import MISFIT
from tests.models.test_kinds import NOT_IN_LINE, OTHER_GATES
from tests.models.test_line import BLOCKED, LineOfJobs
from tests.sql.fixture import SECOND

Steps = Callable[[LineOfJobs], None]

CLOSED_BY: dict[str, Steps] = {}
"""By its code: steps after which a job in line waits for this gate."""


def steps(close: Steps) -> Steps:
    CLOSED_BY[close.__name__] = close
    return close


def new(**given: object) -> dict[str, object]:
    """A job as the random test draws them, with nothing said of it but this."""
    return {
        "task": "plain",
        "args": "{}",
        "queue": None,
        "priority": None,
        "wait": None,
        "delay_ms": 0,
        "max_attempts": None,
        "retryable": None,
        "concurrency_key": None,
        "concurrency_limit": None,
        "circuit": None,
        "requires": None,
        "expires": None,
        **given,
    }


def end(line: LineOfJobs, status: str) -> None:
    """The job that was begun first ends."""
    line.settle(ends=[(0, status, None)])


@steps
def attempts_used(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(max_attempts=5)])
    line.claim(slots=1)
    end(line, "error")
    line.tick()
    line.move(number=0, change=("max_attempts", 1), run_at=None)


@steps
def expired(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(expires=SECOND)])
    line.time_passes(ms=SECOND, ticks=False)


@steps
def queue_paused(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new()])
    line.pause(queue="default", paused=1)


@steps
def queue_unserved(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new()])
    line.choose(queues=["mail"])


@steps
def queue_full(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(), new()])
    line.limit_queue(queue="default", most=1)
    line.claim(slots=1)


@steps
def queue_rate(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(), new()])
    line.pace_queue(queue="default", rate=(1, 2 * SECOND, None))
    line.claim(slots=1)


@steps
def unknown_task(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(task="late")])


@steps
def fact(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(requires='["online"]')])


@steps
def tier(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(), new()])
    line.add_tier(queue="", min_priority=0, every_ms=SECOND, at_most=1)
    line.claim(slots=1)


@steps
def key_full(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(task="keyed"), new(task="keyed")])
    line.claim(slots=1)


@steps
def key_rate(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(task="paced")] * 3)
    line.claim(slots=2)
    end(line, "ok")
    end(line, "ok")


@steps
def circuit_open(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(task="guarded", delay_ms=SECOND)] * 3)
    line.claim(slots=2)
    end(line, "error")
    end(line, "error")


@steps
def circuit_probing(line: LineOfJobs) -> None:
    circuit_open(line)
    line.time_passes(ms=5 * SECOND, ticks=True)
    line.claim(slots=1)


@steps
def arguments_do_not_fit(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new()])
    line.claim(slots=1)
    line.settle(ends=[(0, "interrupted", MISFIT)])


@pytest.fixture
def line() -> Iterator[LineOfJobs]:
    """The random test before its first step: a runner, its tasks, and no job."""
    line = LineOfJobs()
    try:
        line.begin(jobs=[], facts=False)
        yield line
    finally:
        line.teardown()


def test_steps_close_each_gate_that_the_model_knows(line: LineOfJobs) -> None:
    line.enqueue(jobs=[new(concurrency_key="own", circuit="line")])
    [job] = line.line.jobs.values()
    known = line.line.gates(job, line.now)
    for code in [*known, *kinds.blocks() - NOT_IN_LINE - OTHER_GATES]:
        assert code in CLOSED_BY, f"no steps of test_line.py close the gate {code!r}"
    assert known.keys() == CLOSED_BY.keys()


@pytest.mark.parametrize("gate", CLOSED_BY)
def test_a_gate_is_closed_by_steps(line: LineOfJobs, gate: str) -> None:
    line.look()
    assert line.db.execute(BLOCKED) == []
    CLOSED_BY[gate](line)
    line.look()
    closed = {
        code
        for job in line.line.jobs.values()
        if job.state == "pending"
        for code in line.line.closed_gates(job, line.now)
    }
    assert closed == {gate}, f"the model says {closed}"
    assert {code for _, code in line.db.execute(BLOCKED)} == {gate}
