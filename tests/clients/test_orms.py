"""An ORM does what a user needs on the tables of litejobs, or what is known of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients import page
from tests.clients.orms import ORMS, Orm, row_of, rows_in, tried, written


@pytest.mark.clients
@pytest.mark.parametrize("orm", [pytest.param(each, id=each.name) for each in ORMS])
def test_orm_does_what_a_user_needs(orm: Orm, empty_file: Path, tmp_path: Path) -> None:
    command = orm.command()
    if command is None:
        pytest.skip(f"it is not here: {orm.package}")
    told = tried(command, Path(shutil.copy(empty_file, tmp_path / "jobs.db")))
    other = {
        act: said
        for act, said in told.acts.items()
        if not said.startswith(orm.expected(act).seen)
    }
    assert other == {}
    shown = rows_in(page.PAGE.read_text(encoding="utf-8"))[orm.name].split("|")
    # Its version is that of the machine that wrote the page.
    assert shown[3:] == row_of(orm, told).split("|")[3:]


def test_page_has_a_row_for_each_orm() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert list(rows_in(text))[2:] == [each.name for each in ORMS]
    assert written(text, {}) == text
