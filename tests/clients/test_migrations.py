"""Tools that bring the application's tables up to date, in one file with litejobs.

Each changes the table `orders`, and the jobs are there as before, or what the tool does
instead is said. docs/one-file.md has what to do about it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest

from litejobs import LiteJobs
from litejobs.errors import TamperedSchema
from tests.clients.drivers import PROGRAMS
from tests.clients.found import command_of, run

TOOLS = PROGRAMS / "tools"
BEFORE = "create table orders (id integer primary key, item text, note text)"
AFTER = {"id", "item", "amount"}


class Tool(NamedTuple):
    """A migration tool, and how it is told."""

    program: str
    package: str
    words: tuple[str, ...] = ()

    def run(self, path: Path, folder: Path, *words: str) -> tuple[int, str]:
        """Change the table; the exit code and what was printed."""
        command = command_of(TOOLS / self.program, self.package)
        if command is None:
            pytest.skip(f"it is not here: {self.package}")
        done = run(command, path, folder, *self.words, *words)
        return done.returncode, done.stdout + done.stderr


ALEMBIC = Tool("alembic_upgrade.py", "alembic")
DRIZZLE_KIT = Tool("drizzle_kit.cjs", "drizzle-kit")
SEQUELIZE = Tool("sequelize_sync.cjs", "sequelize")

LEAVE_JOBS_ALONE = {
    "Alembic, with the filters": ALEMBIC._replace(words=("filtered",)),
    "Django": Tool("django_migrate.py", "django"),
    "sqlite-utils": Tool("sqlite_utils_transform.py", "sqlite-utils"),
    "Sequelize": SEQUELIZE,
    "TypeORM": Tool("typeorm_synchronize.cjs", "typeorm"),
    "drizzle-kit generate": DRIZZLE_KIT._replace(words=("generate",)),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The application's file, with a row in its table and a job."""
    path = tmp_path / "app.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("send", delay="1d")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(BEFORE)
        db.execute("insert into orders (item) values ('a tea pot')")
        db.commit()
    return path


def columns(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        found = db.execute("select name from pragma_table_info('orders')")
        return {name for (name,) in found}


@pytest.mark.clients
@pytest.mark.parametrize("name", LEAVE_JOBS_ALONE)
def test_tool_changes_the_application_s_table_alone(
    name: str, file: Path, tmp_path: Path
) -> None:
    tool = LEAVE_JOBS_ALONE[name]
    if name == "Django":
        # It begins with the table as it is there.
        assert tool.run(file, tmp_path)[0] == 0
        tool = tool._replace(words=("again",))
    code, printed = tool.run(file, tmp_path)
    assert code == 0, printed
    assert columns(file) == AFTER
    with LiteJobs(file) as jobs:
        assert [job.task for job in jobs.list()] == ["send"]


@pytest.mark.clients
@pytest.mark.parametrize(
    ("tool", "words"),
    [
        # The views that are left are read when a table is renamed.
        pytest.param(ALEMBIC, "no such table: main.litejobs_", id="Alembic"),
        pytest.param(SEQUELIZE._replace(words=("drop",)), "", id="dropAllTables"),
    ],
)
def test_tool_drops_our_tables_and_that_is_said(
    tool: Tool, words: str, file: Path, tmp_path: Path
) -> None:
    code, printed = tool.run(file, tmp_path)
    assert (code != 0, words in printed) == (bool(words), True), printed
    with pytest.raises(TamperedSchema, match="the tables of litejobs were dropped"):
        LiteJobs(file).open()


@pytest.mark.clients
@pytest.mark.parametrize("verb", ["push", "pushfiltered"])
def test_drizzle_kit_ends_at_a_view_that_is_not_its_own(
    verb: str, file: Path, tmp_path: Path
) -> None:
    """It reads all views of the file, whatever `tablesFilter` says, and knows those
    alone whose text is `AS SELECT …` on one line. With a filter it fails at any view
    whose name is filtered out, without a word."""
    code, printed = DRIZZLE_KIT.run(file, tmp_path, verb)
    assert code == 1
    assert ("Could not process view" in printed) == (verb == "push")
    assert columns(file) == {"id", "item", "note"}
    with LiteJobs(file) as jobs:
        assert len(jobs.list()) == 1
