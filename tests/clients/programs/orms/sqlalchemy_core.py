"""SQLAlchemy without models: tables that are reflected, and statements."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import told
from sqlalchemy.dialects.sqlite import insert


class Core:
    """A row is a mapping; `save` writes all of it."""

    version = f"SQLAlchemy {sa.__version__}"

    def __init__(self, path: str) -> None:
        self.engine = sa.create_engine(f"sqlite:///{path}")
        self.metadata = sa.MetaData()

    def table(self, name: str) -> sa.Table:
        return sa.Table(name, self.metadata, autoload_with=self.engine)

    def enqueue(self, **values: Any) -> int:
        with self.engine.begin() as connection:
            done = connection.execute(sa.insert(self.table("litejobs_job")), values)
            return done.inserted_primary_key[0]

    def report(self, job: int) -> tuple[str, str | None]:
        report = self.table("litejobs_job_report")
        found = sa.select(report.c.state, report.c.result).where(report.c.id == job)
        with self.engine.connect() as connection:
            return tuple(connection.execute(found).one())

    def load(self, job: int) -> Any:
        table = self.table("litejobs_job")
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(table).where(table.c.id == job))
            return dict(found.mappings().one())

    def save(self, loaded: Any, **values: Any) -> None:
        table = self.table("litejobs_job")
        of = sa.update(table).where(table.c.id == loaded["id"])
        with self.engine.begin() as connection:
            connection.execute(of.values(**{**loaded, **values}))

    def holder(self, unique_key: str) -> int:
        table = self.table("litejobs_job")
        found = sa.select(table.c.id).where(table.c.unique_key == unique_key)
        with self.engine.connect() as connection:
            return connection.execute(found).scalar_one()

    def pause(self, queue: str) -> None:
        row = insert(self.table("litejobs_queue")).values(name=queue, paused=True)
        changed = {"paused": row.excluded.paused}
        with self.engine.begin() as connection:
            connection.execute(row.on_conflict_do_update(["name"], set_=changed))

    def events(self, after: int) -> list[str]:
        table = self.table("litejobs_event")
        found = sa.select(table.c.name).where(table.c.id > after).order_by(table.c.id)
        with self.engine.connect() as connection:
            return list(connection.execute(found).scalars())


if __name__ == "__main__":
    told.tell(Core)
