"""Any SQLite client is a full client: the table in docs/sql.md, row by row."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.clients import acts, page
from tests.clients.drivers import CLIENTS, Client, example


def each_of(clients: Iterable[Client]) -> pytest.MarkDecorator:
    """A test for each; those that are not always tried have a marker."""
    found = [
        pytest.param(each, id=each.name, marks=[pytest.mark.clients][each.always :])
        for each in clients
    ]
    return pytest.mark.parametrize("client", found)


@each_of(CLIENTS)
def test_client_does_what_the_page_says(
    client: Client, empty_file: Path, tmp_path: Path
) -> None:
    command = client.command()
    if command is None:
        pytest.skip(f"{client.name} is not here: {client.package}")
    path = Path(shutil.copy(empty_file, tmp_path / "jobs.db"))
    many = 10 if client.always else acts.MANY
    seen = acts.try_all(
        command,
        path,
        waits=client.waits,
        many=many,
        numbers_alone=client.numbers_alone,
    )
    for name, said in seen.acts.items():
        assert client.expected(name).seen in said, name
    rows = page.rows_in(page.PAGE.read_text(encoding="utf-8"))
    for table in page.TABLES:
        shown = rows[table][client.name].split("|")
        now = page.row_of(client, seen, table).split("|")
        # Its versions are those of the machine that wrote the page.
        versions = 2 if table == "facts" else 0
        assert shown[2 + versions :] == now[2 + versions :]


@each_of(each for each in CLIENTS if each.example)
def test_whole_program_prints_what_the_page_shows(
    client: Client, empty_file: Path, tmp_path: Path
) -> None:
    command = example(client)
    if command is None:
        pytest.skip(f"{client.name} is not here: {client.package}")
    path = Path(shutil.copy(empty_file, tmp_path / "jobs.db"))
    assert acts.run_example(command, path) == acts.EXAMPLE


def test_page_has_a_row_for_each_client_and_all_notes() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    for rows in page.rows_in(text).values():
        assert list(rows)[2:] == [each.name for each in CLIENTS]
    assert page.written(text, {}) == text
