"""What the loop asks of the file for executors."""

from __future__ import annotations

from pathlib import Path

from litejobs import LiteJobs
from litejobs._app import store_of
from litejobs._runner.loop import Loop

OK = '{"status":"ok","result":null}'


def test_where_something_is_settled_what_waits_is_claimed_without_a_question(
    tmp_path: Path,
) -> None:
    with LiteJobs(tmp_path / "app.db") as jobs:
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
