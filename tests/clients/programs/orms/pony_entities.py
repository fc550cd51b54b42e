"""Pony, with entities that the application has written."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import told
from pony import orm


class Pony:
    """`flush` writes what was set, and nothing for what was not; it looks whether what
    it has read has changed since."""

    version = f"Pony {version('pony')}"

    def __init__(self, path: str) -> None:
        self.database = orm.Database()

        class Job(self.database.Entity):
            _table_ = "litejobs_job"
            id = orm.PrimaryKey(int, auto=True)
            task = orm.Required(str)
            args = orm.Required(str)
            state = orm.Optional(str, nullable=True)
            priority = orm.Optional(int)
            run_at = orm.Optional(int, size=64)
            unique_key = orm.Optional(str, nullable=True)

        class Queue(self.database.Entity):
            _table_ = "litejobs_queue"
            name = orm.PrimaryKey(str)
            paused = orm.Required(bool)

        class Report(self.database.Entity):
            _table_ = "litejobs_job_report"
            id = orm.PrimaryKey(int)
            state = orm.Required(str)
            result = orm.Optional(str)

        class Event(self.database.Entity):
            _table_ = "litejobs_event"
            id = orm.PrimaryKey(int)
            name = orm.Required(str)

        self.job, self.queue, self.reported, self.event = Job, Queue, Report, Event
        self.database.bind("sqlite", path)
        self.database.generate_mapping(create_tables=False)

    @orm.db_session
    def enqueue(self, **values: Any) -> int:
        job = self.job(**values)
        orm.flush()
        return job.id

    @orm.db_session
    def report(self, job: int) -> tuple[str, str | None]:
        found = self.reported[job]
        return found.state, found.result

    @orm.db_session
    def load(self, job: int) -> Any:
        return self.job[job].to_dict()

    @orm.db_session
    def save(self, loaded: Any, **values: Any) -> None:
        job = self.job[loaded["id"]]
        for name, value in {**loaded, **values}.items():
            if name != "id":
                setattr(job, name, value)

    @orm.db_session
    def holder(self, unique_key: str) -> int:
        return self.job.get(unique_key=unique_key).id

    @orm.db_session
    def pause(self, queue: str) -> None:
        found = self.queue.get(name=queue)
        if found is None:
            self.queue(name=queue, paused=True)
        else:
            found.paused = True

    @orm.db_session
    def events(self, after: int) -> list[str]:
        found = self.event.select().filter(lambda event: event.id > after)
        return [each.name for each in found.order_by(self.event.id)]


if __name__ == "__main__":
    told.tell(Pony)
