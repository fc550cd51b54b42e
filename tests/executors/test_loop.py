"""What the loop asks of the file for executors."""

from __future__ import annotations

from litejobs import LiteJobs
from litejobs._app import store_of
from litejobs._runner.loop import Loop
from tests.executors.hands import Hands
from tests.waiting import LONG, eventually

OK = '{"status":"ok","result":null}'


def test_where_something_is_settled_what_waits_is_claimed_without_a_question(
    jobs: LiteJobs,
) -> None:
    with jobs:
        jobs.task(name="work", executor="far")(lambda: None)
        first, second = jobs.enqueue("work"), jobs.enqueue("work")
        loop = Loop(store_of(jobs).database, 1, executors={"far": 1})
        loop.begin(jobs._registry.registrations())
        agenda = loop.look()
        assert (agenda.apart, agenda.room) == (1, {"far": 1})
        [begun] = loop.turn(agenda, slots=1, room={"far": 1})
        assert begun.job_id == first.id
        # It may have ended by now: the turn that settles it comes in any case.
        agenda = loop.look(settles=True)
        assert (agenda.apart, agenda.room) == (0, {})
        ended = [(begun.attempt_id, OK)]
        [begun] = loop.turn(agenda, ended, slots=1, room={"far": 1})
        assert begun.job_id == second.id
        assert first.state == "completed"
        loop.end()


def test_the_gate_that_an_executor_leaves_open_is_for_who_is_first_in_line() -> None:
    """In the turn that settles it, so a job for a thread waits for none behind it."""
    far = Hands()
    with LiteJobs(":memory:", executors={"far": far}) as jobs:
        jobs.task(name="apart", executor="far", queue="q")(lambda: None)
        jobs.task(name="here", queue="q", priority=9)(lambda: None)
        jobs.queues["q"].set(max_running=1)
        with jobs.transaction():
            apart = [jobs.enqueue("apart") for _ in range(3)]
        with jobs.running(threads=1) as runner:
            eventually(lambda: len(far.taken) == 1)
            here = jobs.enqueue("here")
            far.taken[0].work.done(None)
            eventually(lambda: len(far.taken) == 2)
            far.taken[1].work.done(None)
            eventually(lambda: len(far.taken) == 3)
            far.taken[2].work.done(None)
            assert runner.wait_idle(LONG)
        with jobs.reader() as db:
            begun = db.execute("select job_id from litejobs_attempt order by id")
            first, *others = (job for (job,) in begun)
    assert [first, *others] == [apart[0].id, here.id, apart[1].id, apart[2].id]
