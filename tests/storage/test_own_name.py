"""A file with several names is opened by one of them, which it knows."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._storage import own_name
from litejobs.errors import DatabaseBusy, FileRefused
from tests.waiting import Times

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="as POSIX has links")


def linked(path: Path) -> Path:
    """A second name of the file, as `cp -al` makes one for a backup."""
    other = path.parent / "snapshot" / path.name
    other.parent.mkdir(exist_ok=True)
    other.unlink(missing_ok=True)
    other.hardlink_to(path)
    return other


def name_in(path: Path) -> str | None:
    """The name that stands in the file itself, and not only in its log."""
    alone = path.with_name("alone.db")
    # By another process: to close the file here would drop the locks of ours.
    subprocess.run(["cp", path, alone], check=True)
    connection = sqlite3.connect(alone)
    try:
        found = connection.execute("select path from litejobs_meta").fetchone()
    finally:
        connection.close()
        alone.unlink()
    return found and str(found[0])


@pytest.mark.parametrize("is_open", [True, False])
def test_second_name_is_refused(
    tmp_path: Path, is_open: bool, cli: Callable[..., Any]
) -> None:
    """Also of a file that was just made, of which all may be in its log."""
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path).open()
    other = linked(path)
    job = jobs.enqueue("note")
    if not is_open:
        jobs.close()
    with pytest.raises(FileRefused) as raised:
        LiteJobs(other).enqueue("lost")
    said = str(raised.value)
    assert said.startswith(f"{other} is the same file as {path} (a hard link or a ")
    assert f"use {path}, or make a file of its own: litejobs --db {path} backup" in said
    for command in (["enqueue", "lost"], ["list"], ["init"]):
        answer = cli("--db", str(other), *command)
        assert answer.exit_code == 3
        assert f"is the same file as {path}" in answer.output
    if is_open:
        jobs.close()
    # What SQLite leaves beside it, while the other is in use, has nothing in it.
    beside = {each: each.stat().st_size for each in other.parent.iterdir()}
    del beside[other]
    assert set(beside.values()) <= {0}
    with LiteJobs(path) as jobs:
        assert jobs.get(job.id).task == "note"
        assert jobs.counts() == {"pending": 1}


def test_file_with_a_second_name_goes_on_by_its_own(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    LiteJobs(path).open().close()
    linked(path)
    for _ in range(2):
        with LiteJobs(path) as jobs:
            jobs.enqueue("note")
    assert name_in(path) == str(path)


def test_file_that_was_moved_knows_its_new_name(tmp_path: Path) -> None:
    path, moved = tmp_path / "jobs.db", tmp_path / "moved.db"
    LiteJobs(path).open().close()
    path.rename(moved)
    with LiteJobs(moved) as jobs:
        assert name_in(moved) == str(moved)
        other = tmp_path / "other.db"
        other.hardlink_to(moved)
        jobs.enqueue("note")
    with pytest.raises(FileRefused, match=f"the same file as {moved}"):
        LiteJobs(other).open()


def test_file_of_which_the_own_name_is_gone_takes_the_one_it_is_opened_by(
    tmp_path: Path,
) -> None:
    """One of two names has been taken from it, or is that of another file now."""
    path = tmp_path / "jobs.db"
    for has_another in (False, True):
        LiteJobs(path).open().close()
        other = linked(path)
        third = linked(other)
        path.unlink()
        if has_another:
            LiteJobs(path).open().close()
        with LiteJobs(other) as jobs:
            jobs.enqueue("note")
        with pytest.raises(FileRefused, match=f"the same file as {other}"):
            LiteJobs(third).open()
        shutil.rmtree(other.parent)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["copy", "backup", "restore"])
def test_copy_of_a_file_knows_its_own_name(tmp_path: Path, how: str) -> None:
    path, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("note")
        if how != "copy":
            jobs.backup(copy)
    if how == "copy":
        shutil.copy(path, copy)
    if how == "restore":
        with LiteJobs(path) as jobs:
            jobs.restore(copy)
        copy = path
    with LiteJobs(copy) as jobs:
        assert jobs.counts() == {"pending": 1}
    assert name_in(copy) == str(copy)
    assert name_in(path) == str(path)


def test_command_that_restores_asks_for_the_name_too(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    path, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    with LiteJobs(path) as jobs:
        jobs.backup(copy)
        jobs.enqueue("note")
        other = linked(path)
        answer = cli("--db", str(other), "restore", str(copy), "--yes")
        assert answer.exit_code == 3
        assert f"is the same file as {path}" in answer.output
        assert jobs.counts() == {"pending": 1}
    assert cli("--db", str(path), "restore", str(copy), "--yes").exit_code == 0
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {}


@pytest.mark.parametrize(
    "content", ["", "create table mine (x)", "create table litejobs_meta (id)"]
)
def test_file_that_knows_no_name_is_refused_while_it_has_two(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.execute(content)
    connection.close()
    path.touch()
    other = linked(path)
    for each in (path, other):
        with pytest.raises(FileRefused, match=r"has 2 names.*leave it one name"):
            LiteJobs(each).open()
    assert path.stat().st_nlink == 2


def test_name_that_cannot_be_written_is_asked_for_where_there_are_several(
    tmp_path: Path, times: Times
) -> None:
    times(busy_timeout=0.01)
    path, moved = tmp_path / "jobs.db", tmp_path / "moved.db"
    LiteJobs(path).open().close()
    path.rename(moved)
    writing = apsw.Connection(str(moved))
    writing.execute("begin immediate")
    with LiteJobs(moved) as jobs:
        assert jobs.counts() == {}
    linked(moved)
    with pytest.raises(DatabaseBusy):
        LiteJobs(moved).open()
    writing.close()


def test_file_that_is_mounted_by_another_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one link, and is one file all the same."""
    path, mounted = tmp_path / "jobs.db", tmp_path / "there" / "jobs.db"
    LiteJobs(path).open().close()
    mounted.parent.mkdir()
    shutil.copy(path, mounted)
    same = os.path.samefile
    names = {str(path), str(mounted)}
    monkeypatch.setattr(os.path, "samefile", lambda *two: {*two} == names or same(*two))
    with pytest.raises(FileRefused, match=f"is the same file as {path} .*or a mount"):
        LiteJobs(mounted).open()
    LiteJobs(path).open().close()


def test_file_that_was_moved_is_opened_where_a_symbolic_link_is_left(
    tmp_path: Path,
) -> None:
    path, moved = tmp_path / "jobs.db", tmp_path / "there" / "jobs.db"
    LiteJobs(path).open().close()
    moved.parent.mkdir()
    path.rename(moved)
    path.symlink_to(moved)
    linked(moved)
    for name in (path, moved):
        with LiteJobs(name) as jobs:
            jobs.enqueue("note")
            assert jobs.path == str(name)


def test_folder_may_be_reached_in_two_ways(tmp_path: Path) -> None:
    """It is mounted twice, say: what lies beside the file is found by both."""
    path = tmp_path / "jobs.db"
    connection = sqlite3.connect(path)
    connection.execute("create table litejobs_meta (id, path)")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(tmp_path, target_is_directory=True)
    name = os.fspath(elsewhere / "jobs.db")
    connection.execute("insert into litejobs_meta values (1, ?)", (name,))
    connection.commit()
    connection.close()
    linked(path)
    reading = apsw.Connection(str(path))
    own_name.check_name(reading, str(path))
    reading.close()


def test_name_in_a_folder_that_was_moved_is_known_there(tmp_path: Path) -> None:
    """Or mounted in another place, as containers have it."""
    before, folder = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    LiteJobs(before / "jobs.db").open().close()
    (before / "other.db").hardlink_to(before / "jobs.db")
    before.rename(folder)
    with pytest.raises(FileRefused, match=f"the same file as {folder / 'jobs.db'}"):
        LiteJobs(folder / "other.db").open()
    with LiteJobs(folder / "jobs.db") as jobs:
        jobs.enqueue("note")
    assert name_in(folder / "jobs.db") == str(folder / "jobs.db")


def test_name_may_be_written_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where upper and lower case are one, a folder lists one of them."""
    path, same = tmp_path / "jobs.db", tmp_path / "JOBS.db"
    LiteJobs(path).open().close()
    if not same.exists():
        same.hardlink_to(path)
    linked(path)
    found = os.listdir
    monkeypatch.setattr(
        os, "listdir", lambda folder: [n for n in found(folder) if n != same.name]
    )
    with LiteJobs(same) as jobs:
        jobs.enqueue("note")
