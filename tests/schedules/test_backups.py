"""Backups that are made by a schedule, and of which the newest are kept."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from litejobs import LiteJobs, cron, every
from litejobs.cli import main
from litejobs.errors import ConfigurationError, FileRefused
from tests.cli.calls import runner

HOUR = 3_600


@pytest.fixture
def clock() -> Iterator[FrozenDateTimeFactory]:
    with freeze_time("2026-01-01T12:00:00Z") as held:
        yield held


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "backups"
    made.mkdir()
    return made


@pytest.fixture
def path(tmp_path: Path, clock: FrozenDateTimeFactory) -> Path:
    return tmp_path / "app.db"


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def backup(hour: int, label: str = "backup") -> str:
    return f"app-{label}-20260101T{hour}0000.000Z.db"


def go_on(jobs: LiteJobs, clock: FrozenDateTimeFactory, hours: int = 1) -> list[Any]:
    """So many hours pass; what became of the last jobs."""
    for _ in range(hours):
        clock.tick(HOUR)
        jobs.drain()
    return jobs.list(task="litejobs.backup")


def test_the_newest_are_kept_and_each_is_a_whole_file(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=2)
        jobs.drain()
        jobs.enqueue("a")
        last, *_ = go_on(jobs, clock, 3)
        assert names(folder) == [backup(14), backup(15)]
        found = jobs.get(last.id).result()
        size = (folder / backup(15)).stat().st_size
        assert found == {
            "path": str(folder / backup(15)),
            "size_bytes": size,
            "deleted": [backup(13)],
        }
    with LiteJobs(folder / backup(15)) as kept:
        assert [each.task for each in kept.list(state="pending")] == ["a"]


def test_it_is_a_schedule_like_any_other_and_there_after_a_restart(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    for _ in range(2):
        with LiteJobs(path) as jobs:
            jobs.schedule_backup(folder, cron("0 14 * * *"), jitter="1s")
            jobs.open()
            [schedule] = jobs.schedules.list()
            assert (schedule.name, schedule.task) == ("litejobs.backup",) * 2
            assert schedule.overlap == "skip"
    shown = runner().invoke(main, ["--db", str(path), "schedules"])
    assert "litejobs.backup" in shown.stdout
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, cron("0 14 * * *"))
        jobs.schedules.run_now("litejobs.backup")
        jobs.drain()
        assert names(folder) == [backup(12)]


def test_nothing_is_deleted_where_no_new_one_can_be_made(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=1)
        jobs.drain()
        go_on(jobs, clock)
        away = folder.rename(folder.with_name("unmounted"))
        [failed, _] = go_on(jobs, clock)
        assert (failed.state, failed.last_error_type) == ("failed", "FileRefused")
        assert f"the folder {folder} for backups does not exist" in failed.last_error
        assert names(away) == [backup(13)]
        away.rename(folder)
        clock.tick(120)
        jobs.drain()
        assert jobs.get(failed.id).state == "completed"
        assert len(names(folder)) == 1
        assert names(folder) != [backup(13)]


def test_only_copies_of_this_file_are_deleted(
    path: Path,
    folder: Path,
    clock: FrozenDateTimeFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    LiteJobs(folder / backup(10)).open().close()  # of another application
    with contextlib.closing(apsw.Connection(str(folder / backup(11)))) as db:
        db.execute("create table litejobs_meta (id, salt)")
    (folder / "app-backup-20260101T100000.000Z.db-old").write_text("mine")
    (folder / "app-backup-yesterday.db").write_text("mine")
    (folder / "other-backup-20260101T100000.000Z.db").write_text("mine")
    (folder / backup(12)).mkdir()
    (folder / backup(13, "x")).write_text("in use")
    mine = names(folder)
    with LiteJobs(path) as jobs, caplog.at_level(logging.WARNING):
        jobs.schedule_backup(folder, every("1h"), keep=1)
        jobs.drain()
        go_on(jobs, clock, 2)
    assert names(folder) == sorted([*mine, backup(14)])
    said = f"{folder / backup(10)} is named as a backup, and is none of {path}"
    assert said in caplog.text


def test_files_of_the_same_name_in_one_folder_do_not_count_for_each_other(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    """Two devices with the same program back up to one disk, each half an hour."""
    for minute in (1330, 1430, 1530):
        with LiteJobs(folder / f"app-backup-20260101T{minute}00.000Z.db") as other:
            other.open()
    theirs = names(folder)
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=2)
        jobs.drain()
        go_on(jobs, clock, 3)
    assert names(folder) == sorted([*theirs, backup(14), backup(15)])
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=3)
        go_on(jobs, clock, 1)
    assert names(folder) == sorted([*theirs, backup(14), backup(15), backup(16)])


def test_a_clock_that_goes_back_does_not_take_the_one_just_made_away(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=2)
        jobs.drain()
        go_on(jobs, clock, 2)
        clock.move_to("2026-01-01T10:00:00Z")
        jobs.schedules.run_now("litejobs.backup")
        jobs.drain()
        assert names(folder) == [backup(10), backup(14)]


def test_what_a_killed_process_has_left_is_removed_when_it_is_old(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    old = folder / f"{backup(10)}.0123abcd.part"
    young = folder / f"{backup(11)}.0123abcd.part"
    stranger = folder / "orders.db.0123abcd.part"
    for each in (old, young, stranger):
        each.write_text("half of it")
        age = 2 * HOUR if each is not young else 60
        at = clock().timestamp() + HOUR - age
        os.utime(each, (at, at))
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"))
        jobs.drain()
        go_on(jobs, clock)
    assert names(folder) == sorted([young.name, backup(13), stranger.name])


def test_two_of_them_in_one_folder_leave_each_other_alone(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=1)
        jobs.schedule_backup(folder, every("2h"), keep=9, name="every_other")
        jobs.drain()
        go_on(jobs, clock, 4)
        both = sorted(jobs.schedules)
    assert both == ["every_other", "litejobs.backup"]
    found = names(folder)
    assert [each for each in found if "-backup-" in each] == [backup(16)]
    assert len(found) == 3


def test_who_writes_to_the_file_cannot_say_where_files_are_made_or_deleted(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"), keep=5)
        jobs.drain()
        elsewhere = folder.with_name("elsewhere")
        elsewhere.mkdir()
        name = "litejobs.backup"
        arguments = {"name": name, "folder": str(elsewhere), "keep": 1}
        job = jobs.enqueue(name, arguments, max_attempts=1)
        go_on(jobs, clock, 2)
        jobs.enqueue(name, {**arguments, "folder": str(folder)})
        jobs.drain()
        assert job.state == "dead_lettered"
        [attempt] = job.attempts
    assert attempt.outcome is not None
    said = attempt.outcome["error"]["message"]
    assert said.startswith("no schedule_backup() of this program has the name")
    assert (names(elsewhere), len(names(folder))) == ([], 2)


def test_a_scheduled_backup_is_restored_as_any_other(
    path: Path, folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs(path) as jobs:
        jobs.schedule_backup(folder, every("1h"))
        jobs.enqueue("a")
        jobs.drain()
        go_on(jobs, clock)
        jobs.enqueue("b")
        jobs.restore(folder / backup(13))
        assert jobs.list(task="b") == []
        assert jobs.list(task="a") != []


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        ("keep=0 backups cannot be kept; give a number from 1", {"keep": 0}),
        ("keep=True backups cannot be kept", {"keep": True}),
        ("name='a/b' is a part of the names of files", {"name": "a/b"}),
        ("name='..' is a part of the names of files", {"name": ".."}),
        ("overlap", {"overlap": "sometimes"}),
    ],
)
def test_mistakes_are_refused_where_they_are_made(
    tmp_path: Path, said: str, changed: dict[str, Any]
) -> None:
    jobs = LiteJobs(tmp_path / "app.db")
    with pytest.raises(ConfigurationError, match=said):
        jobs.schedule_backup(tmp_path, every("1h"), **changed)
    with pytest.raises(FileRefused, match="does not name a file"):
        jobs.schedule_backup("", every("1h"))
    jobs.schedule_backup(tmp_path, every("1h"))
    with pytest.raises(ConfigurationError, match="is declared already"):
        jobs.schedule_backup(tmp_path / "other", every("1h"))
    assert not (tmp_path / "app.db").exists()


def test_names_of_our_own_tasks_are_nobody_elses(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "app.db")
    said = "names that begin with 'litejobs.' are those of litejobs' own tasks"
    with pytest.raises(ConfigurationError, match=said):
        jobs.task(name="litejobs.backup")(print)
    with pytest.raises(ConfigurationError, match=said):
        jobs.flow("litejobs.x", [])


def test_jobs_in_memory_are_backed_up_too(
    folder: Path, clock: FrozenDateTimeFactory
) -> None:
    with LiteJobs() as jobs:
        jobs.schedule_backup(folder, every("1h"))
        jobs.drain()
        go_on(jobs, clock)
    [name] = names(folder)
    assert name == "memory-backup-20260101T130000.000Z.db"
