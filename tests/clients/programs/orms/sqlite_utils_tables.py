"""sqlite-utils, as a library."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import sqlite_utils
import told


class SqliteUtils:
    """Inserts and updates are of the columns that are given."""

    version = f"sqlite-utils {version('sqlite-utils')}"

    def __init__(self, path: str) -> None:
        self.database = sqlite_utils.Database(path)

    def enqueue(self, **values: Any) -> int:
        return self.database["litejobs_job"].insert(values).last_pk

    def report(self, job: int) -> tuple[str, str | None]:
        view = self.database["litejobs_job_report"]
        [found] = view.rows_where("id = ?", [job], select="state, result")
        return found["state"], found["result"]

    def load(self, job: int) -> Any:
        return self.database["litejobs_job"].get(job)

    def save(self, loaded: Any, **values: Any) -> None:
        self.database["litejobs_job"].update(loaded["id"], {**loaded, **values})

    def holder(self, unique_key: str) -> int:
        table = self.database["litejobs_job"]
        [found] = table.rows_where("unique_key = ?", [unique_key])
        return found["id"]

    def pause(self, queue: str) -> None:
        row = {"name": queue, "paused": True}
        self.database["litejobs_queue"].upsert(row, pk="name")

    def events(self, after: int) -> list[str]:
        view = self.database["litejobs_event"]
        found = view.rows_where("id > ?", [after], order_by="id")
        return [each["name"] for each in found]


if __name__ == "__main__":
    told.tell(SqliteUtils)
