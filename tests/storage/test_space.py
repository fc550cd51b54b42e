"""How large a file is, and what becomes of the room that nothing uses any more."""

from __future__ import annotations

import itertools
from pathlib import Path

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._process.sizes import SIZES
from tests.waiting import Sizes, Times, eventually

INCREMENTAL = 2
KEPT = 262_144  # bytes of unused pages that are not given back, or a sixteenth


def setting(path: Path, name: str) -> int:
    """What a pragma says of a file that nobody of this process has open."""
    connection = apsw.Connection(str(path))
    try:
        return int(connection.pragma(name))
    finally:
        connection.close()


def filled(path: Path, count: int = 300) -> LiteJobs:
    """A file of which most is unused, since its jobs have ended and were deleted."""
    jobs = LiteJobs(path)

    @jobs.task
    def note(text: str) -> None: ...

    jobs.enqueue_many(note.call("x" * 5_000) for _ in range(count))
    jobs.drain()
    assert jobs.purge(older_than=None) == count
    return jobs


def test_unused_pages_can_be_given_back_in_files_that_litejobs_makes(
    tmp_path: Path,
) -> None:
    LiteJobs(tmp_path / "jobs.db").open().close()
    assert setting(tmp_path / "jobs.db", "auto_vacuum") == INCREMENTAL


def test_file_of_an_application_keeps_its_pages_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = apsw.Connection(str(path))
    connection.execute("create table own (value)")
    connection.close()
    jobs = filled(path)
    unused = jobs._store.database._writer.pragma("freelist_count")
    assert unused > 200
    assert not jobs._store.database.give_back_pages()
    assert jobs._store.database._writer.pragma("freelist_count") == unused
    jobs.close()
    assert setting(path, "auto_vacuum") == 0


def test_unused_pages_are_given_back_bit_by_bit(tmp_path: Path, sizes: Sizes) -> None:
    path = tmp_path / "jobs.db"
    jobs = filled(path)
    database = jobs._store.database
    before = path.stat().st_size
    pages = [database._writer.pragma("page_count")]
    while database.give_back_pages():
        pages.append(database._writer.pragma("page_count"))
    steps = [many - few for many, few in itertools.pairwise(pages)]
    assert max(steps) <= SIZES.given_back_pages + 1  # a page of their map goes, too
    assert len(steps) > 10
    # What comes next finds some, and the file on the disk is as small as it says.
    unused = database._writer.pragma("freelist_count") * 2048
    assert KEPT - 2048 <= unused <= KEPT
    assert path.stat().st_size == pages[-1] * 2048 < before / 2
    # And that is all: nothing more is written.
    log = path.with_name("jobs.db-wal")
    assert log.stat().st_size == 0
    assert not database.give_back_pages()
    assert log.stat().st_size == 0
    assert database._writer.pragma("integrity_check") == "ok"
    jobs.close()


def test_idle_runner_gives_unused_pages_back(tmp_path: Path, times: Times) -> None:
    times(lock_pause=0.0, give_back_pause=0.0)
    path = tmp_path / "jobs.db"
    jobs = filled(path)
    before = path.stat().st_size
    with jobs.running():
        eventually(lambda: path.stat().st_size < before / 2)
    jobs.close()


def test_pages_wait_while_others_read_or_write(tmp_path: Path, times: Times) -> None:
    times(busy_timeout=0.0)
    path = tmp_path / "jobs.db"
    jobs = filled(path)
    database = jobs._store.database
    pages = database._writer.pragma("page_count")
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    assert database.give_back_pages()  # there are more: it is tried again
    assert database._writer.pragma("page_count") == pages
    other.execute("rollback")
    held = other.execute("select 1 from litejobs_meta union all select 2")
    while database.give_back_pages():
        pass
    size = path.stat().st_size
    assert size > database._writer.pragma("page_count") * 2048
    held.close()
    other.close()
    assert not database.give_back_pages()
    assert path.stat().st_size == database._writer.pragma("page_count") * 2048
    jobs.close()


def test_jobs_in_memory_have_nothing_to_give_back(jobs: LiteJobs) -> None:
    assert not jobs.open()._store.database.give_back_pages()


@pytest.mark.parametrize("vacuum", [False, True])
def test_copies_of_a_file_give_back_what_they_do_not_use(
    tmp_path: Path, vacuum: bool
) -> None:
    """A backup, what is restored from it, and a file that was written anew."""
    jobs = filled(tmp_path / "jobs.db")
    jobs.purge(older_than=None, vacuum=vacuum)
    jobs.backup(tmp_path / "copy.db")
    jobs.close()
    other = LiteJobs(tmp_path / "other.db").open()
    other.close()
    LiteJobs(tmp_path / "new.db").restore(tmp_path / "copy.db")
    LiteJobs(tmp_path / "other.db").restore(tmp_path / "copy.db")
    for name in ("jobs", "copy", "new", "other"):
        path = tmp_path / f"{name}.db"
        assert setting(path, "auto_vacuum") == INCREMENTAL, name
        with LiteJobs(path) as again:
            database = again.open()._store.database
            while database.give_back_pages():
                pass
            assert database._writer.pragma("integrity_check") == "ok"


def test_other_programs_hear_that_pages_can_be_moved_where_a_copy_comes(
    tmp_path: Path,
) -> None:
    """They have the file open, in which pages stay, while one is put in that moves."""
    path = tmp_path / "jobs.db"
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", 2048)
    connection.execute("create table own (value)")
    filled(tmp_path / "copy.db").close()
    jobs = LiteJobs(path).open()
    connection.execute("select * from own").fetchall()
    jobs.restore(tmp_path / "copy.db", overwrite_tables=True)
    connection.execute("create table other (value)")
    connection.execute("insert into other values (randomblob(50000))")
    assert connection.pragma("integrity_check") == "ok"
    assert connection.pragma("auto_vacuum") == INCREMENTAL
    while jobs._store.database.give_back_pages():
        pass
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    jobs.close()
