"""What an `analyze` of another client counts in our tables does not lead us astray.

By the counts of tables that are nearly empty SQLite walks through them, which takes
ever longer while they grow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._process.timing import TIMES
from litejobs._storage import statements
from tests.sql.fixture import Sql
from tests.sql.test_plans import plan

# Those of a loop, which set off no triggers, so they are planned soon.
HOT = ("agenda", "idle", "new_transitions", "planning", "signals")
COUNTS = "select count(*) from sqlite_stat1 where "
OURS = COUNTS + "tbl glob 'litejobs_*'"


@pytest.fixture
def client(file_jobs: LiteJobs) -> Iterator[Callable[..., Any]]:
    """Another program on a file with one job, and a table of its own."""

    @file_jobs.task
    def send() -> None:
        pass

    send.enqueue()
    file_jobs.drain()
    with contextlib.closing(apsw.Connection(str(file_jobs.path))) as connection:
        connection.execute(
            "create table orders (id integer primary key, place text);"
            "create index orders_by_place on orders (place);"
            "insert into orders (place) values ('x'), ('y')"
        )
        yield lambda sql: connection.execute(sql).get


def plans(connection: apsw.Connection) -> dict[str, list[str]]:
    asked = Sql(connection)
    return {name: plan(asked, statements.queries()[name]) for name in HOT}


def opened(path: Path) -> dict[str, list[str]]:
    """The plans of who opens the file now."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return plans(connection)


def own(jobs: LiteJobs) -> list[dict[str, list[str]]]:
    """The plans of the writer of this process, and of one that reads."""
    database = jobs._store.database
    with jobs.transaction() as connection, database.reader(outside=True) as reader:
        return [plans(connection), plans(reader)]


def test_a_new_process_forgets_what_was_counted_before(
    file_jobs: LiteJobs, client: Callable[..., Any]
) -> None:
    path = Path(file_jobs.path)
    before, own_before = opened(path), own(file_jobs)
    file_jobs.close()
    client("analyze")
    assert client(OURS) > 0
    # The test of the test: they would be other ones.
    assert opened(path) != before
    with LiteJobs(path) as jobs:
        assert own(jobs) == own_before
        assert opened(path) == before
    assert client(OURS) == 0
    assert client(COUNTS + "tbl = 'orders'") == 1


def test_a_process_that_has_the_file_open_forgets_them(
    file_jobs: LiteJobs, client: Callable[..., Any]
) -> None:
    path = Path(file_jobs.path)
    before, own_before = opened(path), own(file_jobs)
    # The first one changes the schema, which the next transaction sees.
    client("analyze")
    file_jobs.enqueue("send")
    assert own(file_jobs) == own_before
    assert client(OURS) == 0
    # Nor do they come back with what a block is undone with.
    client("drop table sqlite_stat1")
    client("analyze")
    with pytest.raises(ZeroDivisionError), file_jobs.transaction():
        raise ZeroDivisionError
    assert client(OURS) > 0
    client("create table more (a)")
    client("create table most (a)")
    file_jobs.enqueue("send")
    assert client(OURS) == 0
    for _ in range(2):
        # It is looked once more, since they could have come back.
        with file_jobs.transaction():
            pass
    # A later one does not; then it is the runner that looks, in each process.
    client("analyze")
    file_jobs.enqueue("send")
    assert client(OURS) > 0
    assert opened(path) != before
    database = file_jobs._store.database
    with TIMES.instead(statistics_pause=0.0):
        database.keep_house(idle=False)
    assert opened(path) == before
    assert own(file_jobs) == own_before
    assert (client(OURS), client(COUNTS + "tbl = 'orders'")) == (0, 1)
    assert client("pragma integrity_check") == "ok"
    # Not more often than it is worth: some clients count whenever they close.
    client("analyze")
    database.keep_house(idle=False)
    assert client(OURS) > 0


def test_what_was_counted_is_forgotten_later_while_others_write(
    file_jobs: LiteJobs, client: Callable[..., Any]
) -> None:
    path = Path(file_jobs.path)
    file_jobs.close()
    client("analyze")
    client("begin immediate")
    with TIMES.instead(busy_timeout=0.0), LiteJobs(path) as jobs:
        jobs.open()
        assert client(OURS) > 0
        client("rollback")
        jobs._store.database.keep_house(idle=False)
        assert client(OURS) == 0


def test_who_only_reads_leaves_what_was_counted(
    file_jobs: LiteJobs, client: Callable[..., Any], cli: Callable[..., Any]
) -> None:
    path = str(file_jobs.path)
    file_jobs.close()
    client("analyze")
    assert cli("--db", path, "list").exit_code == 0
    assert client(OURS) > 0
