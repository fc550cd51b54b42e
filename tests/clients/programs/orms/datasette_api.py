"""Datasette: pages with filters, and queries of its metadata that write.

Both bind texts, whatever they are given.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

import told
from datasette.app import Datasette

COLUMNS = ("task", "args", "run_at", "unique_key", "state", "priority")
NAMED = ", ".join(f":{name}" for name in COLUMNS)
QUERIES = {
    "enqueue": f"insert into litejobs_job ({', '.join(COLUMNS)}) select {NAMED}",
    "save": "update litejobs_job set state = :state, priority = :priority"
    " where id = :id",
    "pause": "insert into litejobs_queue (name, paused) values (:name, :paused)"
    " on conflict (name) do update set paused = excluded.paused",
}


class Served:
    """What is not given is an empty text; `nullif` makes NULL of it."""

    version = f"Datasette {version('datasette')}"

    def __init__(self, path: str) -> None:
        self.name = Path(path).stem
        for name in COLUMNS:
            QUERIES["enqueue"] = QUERIES["enqueue"].replace(
                f":{name}", f"nullif(:{name}, '')"
            )
        queries = {
            name: {"sql": sql, "write": True, "allow": True}
            for name, sql in QUERIES.items()
        }
        databases = {self.name: {"queries": queries}}
        self.served = Datasette([path], metadata={"databases": databases})
        self.runner = asyncio.Runner()

    def ask(self, page: str, **filters: Any) -> list[dict[str, Any]]:
        address = f"/{self.name}/{page}.json"
        asked = self.served.client.get(address, params={"_shape": "array", **filters})
        return self.runner.run(asked).json()

    def tell(self, query: str, **values: Any) -> None:
        address = f"/{self.name}/{query}?_json=1"
        said = self.runner.run(self.served.client.post(address, data=values)).json()
        if not said["ok"]:
            raise RuntimeError(said["message"])

    def enqueue(self, **values: Any) -> int:
        self.tell("enqueue", **{name: values.get(name, "") for name in COLUMNS})
        [found] = self.ask("litejobs_job", _sort_desc="id", _size=1)
        return found["id"]

    def report(self, job: int) -> tuple[str, str | None]:
        [found] = self.ask("litejobs_job_report", id=job)
        return found["state"], found["result"]

    def load(self, job: int) -> Any:
        [found] = self.ask("litejobs_job", id=job)
        return found

    def save(self, loaded: Any, **values: Any) -> None:
        row = {**loaded, **values}
        self.tell("save", **{name: row[name] for name in ("id", "state", "priority")})

    def holder(self, unique_key: str) -> int:
        [found] = self.ask("litejobs_job", unique_key=unique_key)
        return found["id"]

    def pause(self, queue: str) -> None:
        self.tell("pause", name=queue, paused=1)

    def events(self, after: int) -> list[str]:
        found = self.ask("litejobs_event", id__gt=after, _sort="id")
        return [each["name"] for each in found]


if __name__ == "__main__":
    told.tell(Served)
