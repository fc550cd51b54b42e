"""SQLAlchemy, with models that the application has written."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import told
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Job(Base):
    """Some of its columns, with a default of the application for one."""

    __tablename__ = "litejobs_job"

    id: Mapped[int] = mapped_column(primary_key=True)
    task: Mapped[str]
    args: Mapped[str]
    state: Mapped[str | None] = mapped_column(default=None)
    queue: Mapped[str | None]
    priority: Mapped[int | None]
    run_at: Mapped[int | None]
    attempts: Mapped[int | None]
    unique_key: Mapped[str | None]


class Queue(Base):
    __tablename__ = "litejobs_queue"

    name: Mapped[str] = mapped_column(primary_key=True)
    paused: Mapped[bool]


class Report(Base):
    __tablename__ = "litejobs_job_report"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]
    result: Mapped[str | None]


class Event(Base):
    __tablename__ = "litejobs_event"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Written:
    """Inserts say NULL for all that is not set; updates say what was changed."""

    version = f"SQLAlchemy {sa.__version__}"

    def __init__(self, path: str) -> None:
        self.engine = sa.create_engine(f"sqlite:///{path}")
        self.job, self.queue, self.reported, self.event = Job, Queue, Report, Event

    def enqueue(self, **values: Any) -> int:
        with Session(self.engine) as session, session.begin():
            job = self.job(**values)
            session.add(job)
            session.flush()
            return job.id

    def report(self, job: int) -> tuple[str, str | None]:
        with Session(self.engine) as session:
            found = session.get_one(self.reported, job)
            return found.state, found.result

    def load(self, job: int) -> Any:
        with Session(self.engine, expire_on_commit=False) as session:
            return session.get_one(self.job, job)

    def save(self, loaded: Any, **values: Any) -> None:
        for name, value in values.items():
            setattr(loaded, name, value)
        with Session(self.engine) as session, session.begin():
            session.add(loaded)

    def holder(self, unique_key: str) -> int:
        with Session(self.engine) as session:
            return session.scalars(
                sa.select(self.job.id).where(self.job.unique_key == unique_key)
            ).one()

    def pause(self, queue: str) -> None:
        with self.engine.begin() as connection:
            row = insert(self.queue).values(name=queue, paused=True)
            changed = {"paused": row.excluded.paused}
            connection.execute(row.on_conflict_do_update(["name"], set_=changed))

    def events(self, after: int) -> list[str]:
        with Session(self.engine) as session:
            found = sa.select(self.event).where(self.event.id > after)
            return [each.name for each in session.scalars(found.order_by("id"))]


if __name__ == "__main__":
    told.tell(Written)
