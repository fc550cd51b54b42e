"""Peewee, with models that its `playhouse.reflection` makes of the file."""

from __future__ import annotations

from typing import Any

import peewee
import told
from playhouse.reflection import generate_models


class Peewee:
    """Inserts leave out what has a default; `save()` writes the whole row."""

    version = f"Peewee {peewee.__version__}"

    def __init__(self, path: str) -> None:
        self.database = peewee.SqliteDatabase(path)
        names = ("litejobs_job", "litejobs_queue")
        self.models = generate_models(self.database, table_names=list(names))
        self.job, self.queue = (self.models[name] for name in names)

        class Report(peewee.Model):
            state = peewee.TextField()
            result = peewee.TextField()

            class Meta:
                database = self.database
                table_name = "litejobs_job_report"

        class Event(peewee.Model):
            name = peewee.TextField()

            class Meta:
                database = self.database
                table_name = "litejobs_event"

        self.reported, self.event = Report, Event

    def enqueue(self, **values: Any) -> int:
        return self.job.create(**values).id

    def report(self, job: int) -> tuple[str, str | None]:
        found = self.reported.get_by_id(job)
        return found.state, found.result

    def load(self, job: int) -> Any:
        return self.job.get_by_id(job)

    def save(self, loaded: Any, **values: Any) -> None:
        for name, value in values.items():
            setattr(loaded, name, value)
        loaded.save()

    def holder(self, unique_key: str) -> int:
        return self.job.get(self.job.unique_key == unique_key).id

    def pause(self, queue: str) -> None:
        row = self.queue.insert(name=queue, paused=1)
        row.on_conflict(
            conflict_target=[self.queue.name], preserve=[self.queue.paused]
        ).execute()

    def events(self, after: int) -> list[str]:
        found = self.event.select().where(self.event.id > after)
        return [each.name for each in found.order_by(self.event.id)]


if __name__ == "__main__":
    told.tell(Peewee)
