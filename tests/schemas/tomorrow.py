"""A schema that comes after today's, so that upgrades are tried before there is one.

Its changes are of each kind that there is: a column, a constraint, a table, an index,
a view and a trigger of another name, a trigger that says something else, and rows.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from litejobs._storage import statements
from tests.schemas import books

MIGRATION = """\
-- Runners have colours.
alter table litejobs_runner add column colour text
    constraint litejobs_runner_colour_length check (length(colour) between 1 and 20);
update litejobs_runner set colour = 'green';

-- Names may be longer.
alter table litejobs_fact drop constraint litejobs_fact_name_length;
alter table litejobs_fact add constraint litejobs_fact_name_length
    check (length(name) between 1 and 300);

-- What runs on which day.
create table litejobs_day (
    id integer not null primary key,
    name text not null
) strict;

-- Which day is this?
create index litejobs_day_of_name on litejobs_day (name);

-- Nobody may hear of this.
update litejobs_job set priority = 7 where task = 'send' and state = 'pending';
"""
TODAY = statements.current_version()
VERSION = TODAY + 1
NAME = f"{VERSION:04}_colours.sql"
OLD_VIEW, NEW_VIEW = "litejobs_why", "litejobs_because"
OLD_TRIGGER, NEW_TRIGGER = "litejobs_queue_delete_guard", "litejobs_queue_stays"


def make(folder: Path) -> Path:
    """The folder `sql/` of that schema, with its migration, in *folder*."""
    sql, copies = folder / "sql", folder / "copies"
    shutil.copytree(statements.directory(), sql)
    copies.mkdir()
    for path in books.released().values():
        shutil.copy(path, copies)
    change_schema(sql)
    migrations = sql / "migrations"
    migrations.mkdir(exist_ok=True)
    (migrations / NAME).write_text(MIGRATION, encoding="utf-8")
    books.release(copies)
    with instead(sql):
        assert books.freeze(copies).startswith(f"version {VERSION} is ")
    return sql


def change_schema(sql: Path) -> None:
    """The files say what they will say."""
    schema = sql / "schema"
    runner, gate = schema / "runner.sql", schema / "gate.sql"
    text = runner.read_text(encoding="utf-8")
    colour, rest = MIGRATION.split("add column ")[1].split(";", 1)
    before = r"(create table litejobs_runner \([^;]*?)(?=,\n    constraint)"
    text = replaced(text, before, rf"\1,\n    {colour}")
    tables = "-- What runs" + rest.split("-- What runs")[1].split("-- Nobody")[0]
    runner.write_text(f"{text}\n{tables}", encoding="utf-8")
    text = gate.read_text(encoding="utf-8")
    limit = (
        "constraint litejobs_fact_name_length check (length(name) between 1 and 200)"
    )
    text = replaced(text, rf"\n    {re.escape(limit)},", "")
    limit = limit.replace("200", "300")
    before = r"(create table litejobs_fact \([^;]*?)(?=\n\) strict)"
    text = replaced(text, before, rf"\1,\n    {limit}")
    gate.write_text(text, encoding="utf-8")
    for path in sql.rglob("*.sql"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(rf"\b{OLD_VIEW}\b", NEW_VIEW, text)
        text = re.sub(rf"\b{OLD_TRIGGER}\b", NEW_TRIGGER, text)
        path.write_text(text, encoding="utf-8")
    guard = sql / "logic" / "guards" / "triggers_moves.sql"
    text = guard.read_text(encoding="utf-8")
    text = replaced(text, "'unknown_state: a state is ", "'unknown_state: one of ")
    guard.write_text(text, encoding="utf-8")


def replaced(text: str, pattern: str, by: str) -> str:
    """The text with that changed, which is in it once."""
    changed, count = re.subn(pattern, by, text)
    assert count == 1, f"{pattern} is {count} times in the text; choose another"
    return changed


@contextlib.contextmanager
def instead(sql: Path) -> Iterator[None]:
    """In the block `sql/` is that folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "_folder", lambda: str(sql))
        forget()
        yield
    forget()


def forget() -> None:
    """What was read from the files is read again."""
    lasting = (statements._folder, statements.plain_text)
    for each in vars(statements).values():
        if each not in lasting and hasattr(each, "cache_clear"):
            each.cache_clear()
