"""Tortoise, with models that the application has written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import told
from tortoise import Tortoise, fields
from tortoise.models import Model


class Job(Model):
    id = fields.IntField(primary_key=True)
    task = fields.TextField()
    args = fields.TextField()
    state = fields.TextField(null=True)
    priority = fields.IntField(null=True)
    run_at = fields.BigIntField(null=True)
    attempts = fields.IntField(null=True)
    unique_key = fields.TextField(null=True)

    class Meta:
        table = "litejobs_job"


class Queue(Model):
    name = fields.CharField(200, primary_key=True)
    paused = fields.BooleanField()

    class Meta:
        table = "litejobs_queue"


class Report(Model):
    id = fields.IntField(primary_key=True)
    state = fields.TextField()
    result = fields.TextField(null=True)

    class Meta:
        table = "litejobs_job_report"


class Event(Model):
    id = fields.IntField(primary_key=True)
    name = fields.TextField()

    class Meta:
        table = "litejobs_event"


class InOneLoop:
    """Inserts and updates are of whole rows, with NULL for what is not set."""

    version = f"Tortoise {version('tortoise-orm')}"

    def __init__(self, path: str) -> None:
        self.runner = asyncio.Runner()
        url, modules = f"sqlite://{path}", {"models": [__name__]}
        self.wait(lambda: Tortoise.init(db_url=url, modules=modules))

    def wait(self, begin: Callable[[], Any]) -> Any:
        """Its connection is known within the runner alone."""

        async def awaited() -> Any:
            return await begin()

        return self.runner.run(awaited())

    def close(self) -> None:
        self.wait(Tortoise.close_connections)
        self.runner.close()

    def enqueue(self, **values: Any) -> int:
        return self.wait(lambda: Job.create(**values)).id

    def report(self, job: int) -> tuple[str, str | None]:
        found = self.wait(lambda: Report.get(id=job))
        return found.state, found.result

    def load(self, job: int) -> Any:
        return self.wait(lambda: Job.get(id=job))

    def save(self, loaded: Any, **values: Any) -> None:
        self.wait(lambda: loaded.update_from_dict(values).save())

    def holder(self, unique_key: str) -> int:
        return self.wait(lambda: Job.get(unique_key=unique_key)).id

    def pause(self, queue: str) -> None:
        change = {"paused": True}
        self.wait(lambda: Queue.update_or_create(name=queue, defaults=change))

    def events(self, after: int) -> list[str]:
        found = self.wait(lambda: Event.filter(id__gt=after).order_by("id"))
        return [each.name for each in found]


if __name__ == "__main__":
    told.tell(InOneLoop).close()
