"""The application's own tables in the file, and what is done to them."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs._storage import statements


@pytest.mark.parametrize(
    ("connect", "legacy"), [(sqlite3.connect, "on"), (apsw.Connection, "off")]
)
def test_tables_of_the_application_are_altered_and_ours_stay_as_they_were(
    empty_file: Path, tmp_path: Path, connect: Callable[[str], Any], legacy: str
) -> None:
    """SQLite reads ours for it, all of them; with the pragma fewer times."""
    path = shutil.copy(empty_file, tmp_path / "app.db")
    with contextlib.closing(connect(str(path))) as db:
        db.execute(f"pragma legacy_alter_table = {legacy}")
        for change in (
            "create table orders (id integer primary key, item text, note text)",
            "insert into orders values (7, 'a tea pot', 'blue')",
            "alter table orders add column amount integer not null default 1",
            "alter table orders drop column note",
            "alter table orders rename to made_anew",
        ):
            db.execute(change)
        if connect is sqlite3.connect:
            db.commit()
    with contextlib.closing(apsw.Connection(str(path))) as db:
        found = db.execute("select * from made_anew").fetchall()
        assert found == [(7, "a tea pot", 1)]
        assert statements.is_as_made(db)
