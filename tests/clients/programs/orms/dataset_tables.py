"""dataset, which knows columns and no models."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import dataset
import told


class Dataset:
    """With `ensure_schema`, its default, it would add columns and indexes."""

    version = f"dataset {version('dataset')}"

    def __init__(self, path: str) -> None:
        self.database = dataset.connect(f"sqlite:///{path}", ensure_schema=False)

    def enqueue(self, **values: Any) -> int:
        return self.database["litejobs_job"].insert(values)

    def report(self, job: int) -> tuple[str, str | None]:
        found = self.database["litejobs_job_report"].find_one(id=job)
        return found["state"], found["result"]

    def load(self, job: int) -> Any:
        return self.database["litejobs_job"].find_one(id=job)

    def save(self, loaded: Any, **values: Any) -> None:
        # Or a transaction stays open when the update is refused, and has the lock.
        with self.database as transaction:
            transaction["litejobs_job"].update({**loaded, **values}, ["id"])

    def holder(self, unique_key: str) -> int:
        return self.database["litejobs_job"].find_one(unique_key=unique_key)["id"]

    def pause(self, queue: str) -> None:
        row = {"name": queue, "paused": True}
        self.database["litejobs_queue"].upsert(row, ["name"])

    def events(self, after: int) -> list[str]:
        found = self.database["litejobs_event"].find(id={">": after}, order_by="id")
        return [each["name"] for each in found]


if __name__ == "__main__":
    told.tell(Dataset)
