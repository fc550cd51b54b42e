"""Operations of people, and undoing them: sql/logic/operations."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import time_machine

from tests.models.lifemodel import INVARIANTS
from tests.sql.fixture import (
    CLIENTS,
    ERRORS,
    FINISHED,
    HELD,
    HOUR,
    MINUTE,
    SECOND,
    START,
    WAITING,
    Sql,
    as_new,
    lent,
    on_apsw,
    watched,
)

NEW_OPERATION = (
    "invalid_operation: a new operation is open and has no history; leave out all but "
    "name, detail, origin, undoable and command, which is the first operation of a "
    "command"
)
IMMUTABLE = (
    "immutable_operation: an operation ends and can be undone, and else stays as it "
    "was; set its state to done, or insert into litejobs_undo"
)
SETTLED = (
    "immutable_operation: what an operation has changed stays as it was; undo it, or "
    "delete the whole operation"
)
NOTHING = (
    "nothing_to_undo: there is no operation that is done and not undone; see "
    "litejobs_operation_report"
)
UNKNOWN = "unknown_operation: there is no such operation; see litejobs_operation_report"
UNDONE = (
    "operation_undone: this operation has been undone already; an undo is not undone, "
    "do it again by hand"
)
OPEN = "operation_open: this operation has not ended yet; set its state to done first"
NEVER_ENDED = (
    "operation_not_recorded: this operation was never ended, so nobody knows what "
    "belongs to it; put right by hand what it changed"
)
UNRECORDED = (
    "operation_not_recorded: this operation did more than is recorded; put right by "
    "hand what it changed"
)
FINAL = (
    "operation_is_final: what this operation deleted is not kept; enqueue it again if "
    "it is needed"
)
DELETED = (
    "operation_is_final: jobs of this operation were deleted, and are not kept; put "
    "right by hand what else it changed"
)
MOVED_ON = (
    "moved_on: what this operation changed has moved on since, see "
    "litejobs_operation_report; put it right by hand"
)
HALF = (
    "half_undone: not all of this operation could be taken back, so nothing was; undo "
    "it without a conflict clause"
)

FACTS = ("job", "queue", "key", "tier", "fact", "circuit", "schedule")

# Beside the invariants of all lives: what is derived is what it would be if it were
# worked out anew.
DERIVED = (
    (
        "select id from litejobs_lane as lane where base_id is not null"
        " and (head_priority, head_at, head_id) is not (select head_priority, head_at,"
        " head_id from litejobs__head where lane_id = lane.id)"
    ),
    # The other way round the next tick looks at it.
    (
        "select id from litejobs_lane as lane where head_id is not null and parked <"
        " (select parked from litejobs__parking where lane_id = lane.id)"
    ),
    "select 1 from litejobs_undoing",
    "select 1 from litejobs_dependency where pending_level <> 0",
    "select id from litejobs_job where origin is not null",
    "select name from litejobs_queue where origin is not null",
    "select name from litejobs_circuit where origin is not null",
    "select name from litejobs_fact where origin is not null",
    "select name from litejobs_schedule where origin is not null",
    (
        "select job.id from litejobs_job as job"
        " cross join litejobs_lane as lane on lane.id = job.lane_id"
        " cross join litejobs__place as place on place.job_id = job.id"
        " where job.state in ('scheduled', 'blocked', 'failed', 'pending')"
        " and (lane.tier_id, lane.requires, lane.concurrency_key, lane.circuit)"
        " is not (place.tier_id, place.requires, place.concurrency_key, place.circuit)"
    ),
    # Who is blocked waits for something, or is held back by a failure.
    (
        "select id from litejobs_job as job where state = 'blocked' and not exists ("
        " select 1 from litejobs_dependency where job_id = job.id"
        " and (parent_state is null or job.on_parent_failure is 'block'"
        " and parent_state in ('dead_lettered', 'cancelled', 'failed')))"
    ),
    (
        "select dependency.id from litejobs_dependency as dependency"
        " cross join litejobs_job as job on job.id = dependency.job_id"
        " cross join litejobs_job as parent on parent.id = dependency.parent_id"
        " where job.state = 'blocked' and parent_state is not null and parent.state"
        " not in ('completed', 'dead_lettered', 'cancelled')"
    ),
)


@pytest.fixture
def db(request: pytest.FixtureRequest, clients: dict[str, Sql]) -> Iterator[Sql]:
    """One of the clients, in turn: all that is said here takes long to be prepared.

    What is held by a clock is told to both kinds of apsw (`held`), and random lives
    hold equal what recursive triggers do. Both are watched here, so that each trigger
    is seen to act whichever test has which client.
    """
    every = request.config.getoption("every_client")
    names = sorted(clients) if every else HELD
    name = names[zlib.crc32(request.node.nodeid.encode()) % len(names)]
    watching = watched if name == "apsw-recursive" else contextlib.nullcontext
    with as_new(clients[name]) as found, watching(found):
        yield found


@contextlib.contextmanager
def recorded(db: Sql, name: str = "operation", **columns: Any) -> Iterator[int]:
    """What a client does to have it recorded: the id of the operation."""
    db.insert("litejobs_operation", name=name, **columns)
    operation = int(db.value("select max(id) from litejobs_operation"))
    yield operation
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")


def undo(db: Sql, operation: int | None = None) -> None:
    db.insert("litejobs_undo", operation=operation, origin="test")


def operation_of(db: Sql, operation: int) -> Any:
    return db.rows(
        "select * from litejobs_operation_report where id = ?", (operation,)
    )[0]


def facts(db: Sql) -> dict[str, Any]:
    """All that people and jobs have decided."""
    names = {"key": "key", "job": "id", "tier": "id", "schedule": "id"}
    found: dict[str, Any] = {}
    for kind in FACTS:
        key = names.get(kind, "name")
        found[kind] = {
            row[0]: json.loads(row[1])
            for row in db.execute(f"select {key}, image from litejobs__{kind}_image")
        }
    found["dependency"] = db.execute(
        "select job_id, parent_id, batch_id, parent_state from litejobs_dependency"
        " order by id"
    )
    found["batch"] = db.execute("select id, state from litejobs_batch order by id")
    found["ledger"] = db.execute(
        "select schedule_id, at, is_range, state, job_id from litejobs_occurrence"
        " where state <> 'planned' order by 1, 2, 3"
    )
    return found


def rows(db: Sql) -> dict[str, Any]:
    """Everything in the file."""
    tables = db.column(
        "select name from sqlite_schema where type = 'table' and name glob 'litejobs_*'"
    )
    return {table: db.content(table) for table in tables}


def check(db: Sql) -> None:
    """Nothing that must not be is in the file."""
    for name, sql in INVARIANTS.items():
        assert db.execute(sql) == [], name
    for sql in DERIVED:
        assert db.execute(sql) == [], sql


def refused(db: Sql, operation: int | None, words: str) -> None:
    """The operation is not undone, and nothing at all has changed."""
    before = rows(db)
    assert words in db.refused(
        "insert into litejobs_undo (operation) values (?)", (operation,)
    )
    assert rows(db) == before


def obstacles(db: Sql, operation: int) -> list[tuple[str, str]]:
    return [
        (row.object, row.reason)
        for row in db.query("operation_obstacles", id=operation, undone=None, limit=999)
    ]


def undone_exactly(db: Sql, change: Callable[[], Any], name: str = "operation") -> int:
    """The change is made as an operation, and undone: all is as before. The operation's
    id."""
    before = facts(db)
    with recorded(db, name) as operation:
        change()
    check(db)
    assert facts(db) != before
    assert operation_of(db, operation).can_be_undone, operation_of(db, operation)
    undo(db)
    check(db)
    assert facts(db) == before
    found = operation_of(db, operation)
    assert found.state == "undone"
    assert found.undone_at is not None
    return operation


def set_state(db: Sql, job: int, state: str) -> None:
    db.execute("update litejobs_job set state = ? where id = ?", (state, job))


# The life of an operation -------------------------------------------------------------


def test_operation_is_open_then_done_then_undone(held: Sql) -> None:
    db = held
    job = db.enqueue()
    with recorded(db, "cancel", detail="job 1", origin="cli") as operation:
        assert operation_of(db, operation).state == "open"
        assert operation_of(db, operation).in_the_way == "it has not ended yet"
        assert OPEN not in db.refused("insert into litejobs_undoing values (99, null)")
        assert OPEN in db.refused(
            f"insert into litejobs_undoing values ({operation}, null)"
        )
        set_state(db, job, "cancelled")
    found = operation_of(db, operation)
    assert (found.name, found.detail, found.origin) == ("cancel", "job 1", "cli")
    assert (found.state, found.at, found.changes) == ("done", db.now, 1)
    db.wait(MINUTE)
    undo(db)
    assert operation_of(db, operation).in_the_way == "it has been undone already"
    lines = db.execute(
        "select name, subject, old_state, new_state, origin from litejobs_event"
        " where subject = 'cancel: job 1'"
    )
    assert lines == [
        ("operation.done", "cancel: job 1", None, "done", "cli"),
        ("operation.undone", "cancel: job 1", "done", "undone", "test"),
    ]


def test_operation_that_changes_nothing_leaves_no_trace(db: Sql) -> None:
    db.insert("litejobs_queue", name="q")
    log = db.value("select count(*) from litejobs__transition")
    with recorded(db):
        db.execute("update litejobs_queue set paused = 0 where name = 'q'")
        db.insert("litejobs_key", key="k")
        db.execute("delete from litejobs_key")
    with recorded(db):
        pass
    assert db.execute("select * from litejobs_operation") == []
    assert db.execute("select * from litejobs_change") == []
    assert db.value("select count(*) from litejobs__transition") == log


def test_change_and_change_back_is_nothing(db: Sql) -> None:
    db.insert("litejobs_queue", name="q")
    with recorded(db):
        db.execute("update litejobs_queue set max_running = 3")
        db.execute("update litejobs_queue set max_running = null")
    assert db.execute("select * from litejobs_operation") == []


def test_what_is_done_outside_an_operation_is_not_recorded(held: Sql) -> None:
    db = held
    steer(db)
    schedule(db)
    for change in (*SETTINGS.values(), *CHANGES.values()):
        with contextlib.suppress(*ERRORS):
            db.execute(change)
    set_state(db, db.enqueue(), "cancelled")
    undo_nothing = "insert into litejobs_undo (operation) values (null)"
    assert NOTHING in db.refused(undo_nothing)
    assert db.execute("select * from litejobs_change") == []
    refused(db, None, NOTHING)


def test_last_operation_is_undone_unless_another_one_is_named(db: Sql) -> None:
    operations = []
    for name in ("a", "b", "c"):
        with recorded(db) as operation:
            db.insert("litejobs_fact", name=name, value=1)
        operations.append(operation)
    undo(db)
    assert db.column("select name from litejobs_fact order by 1") == ["a", "b"]
    undo(db, operations[0])
    assert db.column("select name from litejobs_fact order by 1") == ["b"]
    refused(db, operations[0], UNDONE)
    refused(db, operations[2], UNDONE)
    undo(db)
    refused(db, None, NOTHING)
    refused(db, 999, UNKNOWN)


def test_forgotten_operation_lapses_with_the_next_one(db: Sql) -> None:
    """Others have written meanwhile: nobody knows what belongs to it."""
    db.insert("litejobs_operation", name="forgotten")
    db.insert("litejobs_fact", name="a", value=1)
    with recorded(db):
        db.insert("litejobs_fact", name="b", value=1)
    assert operation_of(db, 1).state == "lapsed"
    assert operation_of(db, 1).in_the_way.startswith("it was never ended")
    refused(db, 1, NEVER_ENDED)
    undo(db)
    assert db.column("select name from litejobs_fact") == ["a"]


@pytest.mark.parametrize("what", ["runner", "undo"])
def test_forgotten_operation_lapses_with_a_new_runner_or_an_undo(
    db: Sql, what: str
) -> None:
    with recorded(db):
        db.insert("litejobs_fact", name="a", value=1)
    db.insert("litejobs_operation", name="forgotten")
    if what == "runner":
        db.start_runner()
    else:
        undo(db)
    assert operation_of(db, 2).state == "lapsed"


def test_forgotten_operation_records_nothing_after_ten_minutes(held: Sql) -> None:
    db = held
    db.insert("litejobs_operation", name="forgotten")
    job = db.enqueue()
    recorded = "select count(*) from litejobs_change"
    before = db.value(recorded)
    db.wait(10 * MINUTE)
    set_state(db, job, "cancelled")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR)
    db.execute("delete from litejobs_schedule")
    db.insert("litejobs_tier", min_priority=1, every_ms=SECOND)
    assert db.value(recorded) == before
    db.execute("update litejobs_operation set state = 'done'")
    refused(db, 1, NEVER_ENDED)


def test_operation_that_says_so_is_final(db: Sql) -> None:
    with recorded(db, "purge", undoable=0) as operation:
        pass
    assert operation_of(db, operation).in_the_way == "what it deleted is not kept"
    refused(db, None, FINAL)


def test_operation_that_deletes_jobs_is_final(db: Sql) -> None:
    db.serve()
    job, other = db.job_in("completed"), db.enqueue()
    with recorded(db) as operation:
        db.execute("delete from litejobs_job where id = ?", (job,))
        set_state(db, other, "cancelled")
    refused(db, operation, DELETED)


def test_operation_may_be_forgotten(db: Sql) -> None:
    with recorded(db) as operation:
        db.insert("litejobs_fact", name="a", value=1)
    db.execute("delete from litejobs_operation where id = ?", (operation,))
    assert db.execute("select * from litejobs_change") == []
    refused(db, operation, UNKNOWN)


@pytest.mark.every_client
@pytest.mark.parametrize(
    "columns",
    [
        {"state": "done"},
        {"obstacle": "unrecorded"},
        {"at": 5},
        {"undone_at": 5},
        {"log_id": 5},
        {"id": 2**53 + 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_new_operation_has_no_history(
    held: Sql, how: str, columns: dict[str, Any]
) -> None:
    db = held
    names = ", ".join(columns)
    sql = f"{how} into litejobs_operation (name, {names}) values ('x', ?)"
    assert NEW_OPERATION in db.refused(sql, tuple(columns.values()))


def test_operations_of_a_command_name_the_first_of_them(held: Sql) -> None:
    db = held
    for number, command in enumerate((None, 1, 1, None)):
        with recorded(db, command=command):
            db.insert("litejobs_fact", name=str(number), value=1)
    found = db.execute("select id, operations, left, state from litejobs__command")
    assert found == [(1, 3, 3, "done"), (4, 1, 1, "done")]
    # None names one that another one began, that never was, or itself.
    for command in (2, 9, 5, 0):
        values = f"values (5, 'x', {command})"
        sql = f"insert into litejobs_operation (id, name, command) {values}"
        assert NEW_OPERATION in db.refused(sql)
    assert IMMUTABLE in db.refused(
        "update litejobs_operation set command = 1 where id = 4"
    )
    undo(db, 3)
    undo(db, 2)
    found = db.execute("select id, left, state from litejobs__command")
    assert found == [(1, 1, "done"), (4, 1, "done")]
    undo(db, 1)
    found = db.execute("select id, left, state, refusal from litejobs__command")
    assert found[0] == (1, 0, "undone", "it has been undone already")


def test_command_has_the_number_of_its_first_operation_that_is_left(held: Sql) -> None:
    db = held
    for number, command in enumerate((None, 1, 1)):
        with recorded(db, command=command):
            db.insert("litejobs_fact", name=str(number), value=1)
    db.execute("delete from litejobs_operation where id = 1")
    with recorded(db, command=1):
        db.insert("litejobs_fact", name="later", value=1)
    assert db.execute("select id, began, operations from litejobs__command") == [
        (2, 1, 3)
    ]
    assert db.execute("select distinct command from litejobs__operation_line") == [(2,)]
    assert "command_earlier" in db.refused(
        "insert into litejobs_operation (id, name, command) values (1, 'x', 1)"
    )
    db.execute("delete from litejobs_operation")
    gone = db.refused("insert into litejobs_operation (name, command) values ('x', 1)")
    assert NEW_OPERATION in gone


def test_what_can_never_be_undone_is_said_of_a_command_first(held: Sql) -> None:
    db = held
    with recorded(db):
        db.insert("litejobs_fact", name="a", value=1)
    with recorded(db, command=1, undoable=0):
        pass
    undo(db, 1)
    found = db.execute("select state, refusal from litejobs__command")
    assert found == [("done", "what it deleted is not kept")]


@pytest.mark.parametrize("what", ["insert", "delete"])
def test_who_waits_for_whom_is_not_recorded(db: Sql, what: str) -> None:
    parent, child = db.enqueue(), db.enqueue(on_parent_failure="run")
    # So it does not wait, and the log has no line about it.
    set_state(db, parent, "cancelled")
    if what == "delete":
        db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    with recorded(db) as operation:
        db.insert("litejobs_fact", name="a", value=1)
        if what == "delete":
            db.execute("delete from litejobs_dependency")
        else:
            db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    assert db.job(child).state == "pending"
    refused(db, operation, UNRECORDED)


@pytest.mark.every_client
def test_operation_is_not_written_over(db: Sql) -> None:
    with recorded(db, undoable=0) as operation:
        pass
    sql = (
        f"insert or replace into litejobs_operation (id, name) "
        f"values ({operation}, 'x')"
    )
    assert NEW_OPERATION in db.refused(sql)


@pytest.mark.every_client
@pytest.mark.parametrize(
    "change",
    [
        "id = 9",
        "state = 'open'",
        "state = 'lapsed'",
        "state = 'undone'",
        "name = 'other'",
        "detail = 'other'",
        "origin = 'other'",
        "undone_at = 5",
        "at = 5",
        "log_id = 5",
        "obstacle = null",
        "obstacle = 'jobs_deleted'",
        "undoable = 1",
    ],
)
def test_what_was_done_stays_said(held: Sql, change: str) -> None:
    db = held
    with recorded(db, undoable=0):
        db.execute("insert into litejobs_policy (task) values ('a')")
    assert IMMUTABLE in db.refused(f"update or ignore litejobs_operation set {change}")


def test_open_operation_may_still_say_with_what(db: Sql) -> None:
    with recorded(db, undoable=0) as operation:
        db.execute("update litejobs_operation set detail = '12 jobs'")
    assert operation_of(db, operation).detail == "12 jobs"


@pytest.mark.every_client
def test_what_an_operation_changed_is_not_rewritten(held: Sql) -> None:
    db = held
    with recorded(db):
        db.insert("litejobs_fact", name="a", value=1)
        db.execute("update litejobs_change set before = before")
    assert SETTLED in db.refused("update or ignore litejobs_change set before = '{}'")


@pytest.mark.parametrize(
    ("name", "table", "columns"),
    [
        (
            "litejobs_operation_id_positive",
            "litejobs_operation",
            {"id": 0, "name": "x"},
        ),
        ("litejobs_operation_name_length", "litejobs_operation", {"name": ""}),
        (
            "litejobs_operation_detail_length",
            "litejobs_operation",
            {"detail": "x" * 2001},
        ),
        ("litejobs_operation_origin_length", "litejobs_operation", {"origin": ""}),
        ("litejobs_operation_undoable_is_flag", "litejobs_operation", {"undoable": 2}),
        ("litejobs_change_kind_known", "litejobs_change", {"kind": "x"}),
        ("litejobs_change_is_json", "litejobs_change", {"before": "{"}),
        ("litejobs_change_is_json", "litejobs_change", {"after": "{"}),
    ],
)
def test_constraint_refuses(
    held: Sql, name: str, table: str, columns: dict[str, Any]
) -> None:
    db = held
    db.insert("litejobs_operation", name="x")
    operation = db.value("select id from litejobs_operation")
    needed: dict[str, Any] = {"name": "x"}
    if table == "litejobs_change":
        needed = {"operation_id": operation, "kind": "job", "key": "1"}
    columns = needed | columns
    marks = ", ".join("?" * len(columns))
    sql = f"insert into {table} ({', '.join(columns)}) values ({marks})"
    assert name in db.refused(sql, tuple(columns.values()))


def test_other_constraints_refuse(held: Sql) -> None:
    db = held
    db.insert("litejobs_operation", name="x")
    for name, change in (
        ("litejobs_operation_obstacle_known", "obstacle = 'x'"),
        ("litejobs_operation_instants_in_range", "at = -1"),
        ("litejobs_operation_state_known", "state = 'x'"),
    ):
        # The guard would refuse some of them first.
        db.execute("savepoint bare")
        source = db.value(
            "select sql from sqlite_schema where name = "
            "'litejobs_operation_update_guard'"
        )
        db.execute("drop trigger litejobs_operation_update_guard")
        assert name in db.refused(f"update litejobs_operation set {change}")
        db.execute(source)
        db.execute("rollback to bare")
    with recorded(db):
        db.insert("litejobs_fact", name="a", value=1)
    sql = "insert into litejobs_undoing (operation_id, origin) values (?, '')"
    operation = db.value("select max(id) from litejobs_operation")
    assert "litejobs_undoing_origin_length" in db.refused(sql, (operation,))
    again = (
        "insert into litejobs_change (operation_id, kind, key)"
        " select operation_id, kind, key from litejobs_change"
    )
    assert "litejobs_change.operation_id, litejobs_change.kind" in db.refused(again)


# Jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", WAITING)
def test_cancelled_job_waits_again(db: Sql, state: str) -> None:
    db.serve()
    job = db.job_in(state)
    undone_exactly(db, lambda: set_state(db, job, "cancelled"))
    assert db.events(job)[-2:] == ["task.cancelled", "task.undone"]
    assert db.moves(job)[-1] == ("cancelled", state, "undone")


@pytest.mark.parametrize("state", WAITING)
def test_job_that_was_asked_to_end_waits_again(db: Sql, state: str) -> None:
    db.serve()
    job = db.job_in(state)
    undone_exactly(db, lambda: db.query("cancel_job", id=job, origin="cli"))


def test_running_job_is_not_asked_to_end_any_more(db: Sql) -> None:
    db.serve()
    job = db.job_in("processing")
    undone_exactly(db, lambda: db.query("cancel_job", id=job, origin="cli"))
    assert db.events(job)[-2:] == ["task.cancel_requested", "task.undone"]
    db.settle(db.job(job).attempt_id, "error")
    assert db.job(job).state == "failed"


def test_running_job_that_has_ended_is_not_undone(db: Sql) -> None:
    db.serve()
    job = db.job_in("processing")
    with recorded(db) as operation:
        db.query("cancel_job", id=job, origin="cli")
    db.settle(db.job(job).attempt_id, "error")
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation)[0] == (f"job {job}", "is cancelled now")


@pytest.mark.parametrize("state", FINISHED)
def test_requeued_job_has_ended_again(held: Sql, state: str) -> None:
    db = held
    db.serve()
    job = db.job_in(state, unique_key="k", expires_at=db.now + HOUR)
    db.execute("update litejobs_job set progress = 0.25, progress_message = 'x'")
    before = db.job(job)
    db.wait(2 * HOUR)
    undone_exactly(db, lambda: set_state(db, job, "pending"))
    assert {**vars(db.job(job)), "lane_id": 0} == {**vars(before), "lane_id": 0}
    assert db.claim() == []


@pytest.mark.parametrize("state", FINISHED)
def test_requeued_job_that_was_started_is_not_undone(db: Sql, state: str) -> None:
    db.serve()
    job = db.job_in(state)
    with recorded(db) as operation:
        set_state(db, job, "pending")
    attempt = db.begin(job)
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation) == [(f"job {job}", "has been started since")]
    db.settle(attempt, "interrupted")
    # It is in line again, as the operation had left it, but has run.
    refused(db, operation, MOVED_ON)


@pytest.mark.parametrize("state", ["scheduled", "failed"])
def test_job_that_was_run_now_waits_for_its_time_again(held: Sql, state: str) -> None:
    db = held
    db.serve()
    job = db.job_in(state)
    undone_exactly(db, lambda: db.query("run_job_now", id=job, origin="cli"))
    assert db.blocks(job) == ["due"]
    db.wait(2 * HOUR)
    db.tick()
    assert db.job(job).state == "pending"


@pytest.mark.parametrize("state", ["scheduled", "failed"])
def test_job_that_was_due_and_run_now_is_due_again(held: Sql, state: str) -> None:
    db = held
    db.serve()
    job = db.job_in(state)
    db.wait(2 * HOUR)
    undone_exactly(db, lambda: db.query("run_job_now", id=job, origin="cli"))


def test_many_requeued_jobs_have_ended_again(db: Sql) -> None:
    db.serve()
    ended = [db.job_in(state) for state in FINISHED * 3]
    many = ", ".join(map(str, ended))
    sql = f"update litejobs_job set state = 'pending' where id in ({many})"
    operation = undone_exactly(db, lambda: db.execute(sql))
    assert operation_of(db, operation).changes == 9


def test_one_of_many_that_was_started_keeps_all_back(db: Sql) -> None:
    db.serve()
    ended = [db.job_in("dead_lettered") for _ in range(5)]
    with recorded(db) as operation:
        db.execute("update litejobs_job set state = 'pending'")
    db.claim()
    refused(db, operation, MOVED_ON)
    assert operation_of(db, operation).in_the_way.endswith("has been started since")
    assert len([job for job in ended if db.job(job).state == "pending"]) == 4


def test_job_comes_back_to_its_place_in_line(held: Sql) -> None:
    db = held
    db.serve()
    db.serve("k", concurrency_key="{x}")
    columns = {"task": "k", "args": '{"x": 1}', "priority": 3}
    first, second = db.enqueue(**columns), db.enqueue(**columns)
    plain = db.enqueue(priority=2)
    undone_exactly(db, lambda: set_state(db, first, "cancelled"))
    assert [db.attempt(each).job_id for each in db.claim(3)] == [first, plain]
    assert db.blocks(second) == ["key_full"]


def test_job_comes_back_into_the_lane_that_is_its_own_now(held: Sql) -> None:
    """Lanes of jobs that have ended are left as they are."""
    db = held
    db.serve()
    job = db.enqueue(priority=5)
    with recorded(db):
        set_state(db, job, "cancelled")
    db.insert("litejobs_tier", min_priority=5, every_ms=MINUTE)
    undo(db)
    check(db)
    assert len(db.claim()) == 1
    assert db.value("select next_at from litejobs_tier") == db.now + MINUTE


@pytest.mark.parametrize(("operation", "back"), [("cancelled", 0), ("pending", 1)])
def test_unique_key_that_is_taken_keeps_a_job_back(
    db: Sql, operation: str, back: int
) -> None:
    db.serve()
    job = db.job_in("dead_lettered", unique_key="k") if back else db.enqueue()
    db.execute("update litejobs_job set unique_key = 'k'")
    with recorded(db) as number:
        set_state(db, job, operation)
        if back:
            set_state(db, job, "cancelled")
    other = db.enqueue(unique_key="k")
    refused(db, number, MOVED_ON)
    state = "dead_lettered" if back else "pending"
    assert obstacles(db, number) == [
        (f"job {job}", f"cannot be {state} again: job {other} has its unique key")
    ]
    set_state(db, other, "cancelled")
    undo(db, number)
    check(db)
    assert db.job(job).state == state


def test_job_that_was_requeued_and_cancelled_has_failed_again(db: Sql) -> None:
    """From one end to another, through the line."""
    db.serve()
    job = db.job_in("dead_lettered")

    def change() -> None:
        set_state(db, job, "pending")
        set_state(db, job, "cancelled")

    undone_exactly(db, change)
    assert [move[1] for move in db.moves(job)[-2:]] == ["pending", "dead_lettered"]


def test_job_that_was_deleted_is_not_undone(db: Sql) -> None:
    """With it goes what an operation remembers of it, which may be personal."""
    job = db.enqueue()
    with recorded(db) as operation:
        db.insert("litejobs_fact", name="f", value=1)
        set_state(db, job, "cancelled")
    db.execute("delete from litejobs_job")
    assert db.column("select kind from litejobs_change") == ["fact"]
    assert operation_of(db, operation).in_the_way == "jobs of it were deleted"
    refused(db, operation, DELETED)


def test_expired_job_comes_back_until_the_tick(held: Sql) -> None:
    db = held
    db.serve()
    job = db.enqueue(expires_at=db.now + HOUR)
    with recorded(db):
        set_state(db, job, "cancelled")
    db.wait(2 * HOUR)
    undo(db)
    assert db.blocks(job) == ["expired"]
    db.tick()
    assert db.job(job).stopped_by == "expired"


def test_enqueued_job_is_cancelled(db: Sql) -> None:
    with recorded(db) as operation:
        job = db.enqueue("new", queue="new")
    undo(db, operation)
    check(db)
    assert (db.job(job).state, db.job(job).stopped_by) == ("cancelled", None)
    assert db.events(job) == ["task.enqueued", "task.undone"]


def test_enqueued_job_that_has_only_waited_is_cancelled(held: Sql) -> None:
    db = held
    db.serve()
    with recorded(db) as operation:
        job = db.enqueue(run_at=db.now + MINUTE)
    db.wait(HOUR)
    db.tick()
    assert db.job(job).state == "pending"
    undo(db, operation)
    assert db.job(job).state == "cancelled"


def test_enqueued_job_that_was_started_is_not_undone(db: Sql) -> None:
    db.serve()
    with recorded(db) as operation:
        job = db.enqueue()
    db.fail(job)
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation) == [(f"job {job}", "has been started")]


def test_enqueued_job_that_was_cancelled_is_not_undone(db: Sql) -> None:
    with recorded(db) as operation:
        job = db.enqueue()
    set_state(db, job, "cancelled")
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation) == [(f"job {job}", "is cancelled now")]


def test_job_that_was_enqueued_and_cancelled_stays_so(db: Sql) -> None:
    with recorded(db) as operation:
        job = db.enqueue()
        set_state(db, job, "cancelled")
    undo(db, operation)
    check(db)
    assert db.job(job).state == "cancelled"


def test_enqueued_chain_is_cancelled(db: Sql) -> None:
    with recorded(db):
        chain = [db.enqueue() for _ in range(3)]
        for parent, job in itertools.pairwise(chain):
            db.insert("litejobs_dependency", job_id=job, parent_id=parent)
    undo(db)
    check(db)
    assert {db.job(job).state for job in chain} == {"cancelled"}


# Jobs that wait for others ------------------------------------------------------------


def family(db: Sql, **columns: Any) -> list[int]:
    """A job, one that waits for it, and one that waits for that."""
    jobs = [db.enqueue(), db.enqueue(**columns), db.enqueue()]
    for parent, job in itertools.pairwise(jobs):
        db.insert("litejobs_dependency", job_id=job, parent_id=parent)
    return jobs


@pytest.mark.parametrize("policy", [None, "cancel", "run", "block"])
def test_children_are_as_they_were(db: Sql, policy: str | None) -> None:
    db.serve()
    jobs = family(db, on_parent_failure=policy)
    undone_exactly(db, lambda: set_state(db, jobs[0], "cancelled"))
    for job in jobs:
        db.fail(job, "ok")
    assert {db.job(job).state for job in jobs} == {"completed"}


def test_child_that_was_released_and_started_keeps_all_back(db: Sql) -> None:
    db.serve()
    jobs = family(db, on_parent_failure="run")
    with recorded(db) as operation:
        set_state(db, jobs[0], "cancelled")
    db.begin(jobs[1])
    refused(db, operation, MOVED_ON)
    assert (f"job {jobs[1]}", "has been started since") in obstacles(db, operation)


def test_child_that_was_released_and_became_due_is_blocked_again(held: Sql) -> None:
    db = held
    db.serve()
    parent = db.enqueue()
    child = db.enqueue(run_at=db.now + HOUR, on_parent_failure="run")
    db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    with recorded(db):
        set_state(db, parent, "cancelled")
    assert db.job(child).state == "scheduled"
    db.wait(2 * HOUR)
    db.tick()
    assert db.job(child).state == "pending"
    undo(db)
    check(db)
    assert db.job(child).state == "blocked"


def test_child_of_two_parents_waits_for_both_again(db: Sql) -> None:
    db.serve()
    one, two = db.enqueue(), db.enqueue()
    child = db.enqueue(on_parent_failure="run")
    for parent in (one, two):
        db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    undone_exactly(db, lambda: set_state(db, one, "cancelled"))
    assert len(db.blocks(child)) == 2


def test_what_was_heard_of_a_parent_before_stays_heard(db: Sql) -> None:
    """A child knows that its parent was completed once, whatever came then."""
    db.serve()
    parent, child = db.enqueue(), db.enqueue()
    db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    db.fail(parent, "ok")
    set_state(db, child, "cancelled")
    set_state(db, parent, "pending")
    undone_exactly(db, lambda: set_state(db, parent, "cancelled"))
    assert db.column("select parent_state from litejobs_dependency") == ["completed"]


@pytest.mark.parametrize("policy", [None, "block"])
def test_requeued_parent_has_failed_again(db: Sql, policy: str | None) -> None:
    db.serve()
    parent = db.enqueue(max_attempts=1)
    child = db.enqueue(on_parent_failure=policy)
    db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    db.fail(parent)
    undone_exactly(db, lambda: set_state(db, parent, "pending"))
    assert db.job(child).state == ("blocked" if policy else "cancelled")


def test_requeued_chain_and_its_batch_have_failed_again(db: Sql) -> None:
    db.serve()
    db.execute("insert into litejobs_batch default values")
    batch = db.value("select max(id) from litejobs_batch")
    jobs = [db.enqueue(max_attempts=1, batch_id=batch), db.enqueue(batch_id=batch)]
    jobs += [db.enqueue(), db.enqueue()]
    db.insert("litejobs_dependency", job_id=jobs[1], parent_id=jobs[0])
    db.insert("litejobs_dependency", job_id=jobs[2], batch_id=batch)
    db.insert("litejobs_dependency", job_id=jobs[3], parent_id=jobs[2])
    db.execute("update litejobs_batch set state = 'sealed'")
    db.fail(jobs[0])
    with recorded(db) as operation:
        set_state(db, jobs[0], "pending")
    assert [db.job(job).state for job in jobs] == ["pending", *["blocked"] * 3]
    undo(db, operation)
    assert [db.job(job).state for job in jobs] == ["dead_lettered", *["cancelled"] * 3]
    assert db.column("select state from litejobs_batch") == ["failed"]
    ends = "select parent_state from litejobs_dependency order by id"
    assert db.column(ends) == ["dead_lettered", "failed", "cancelled"]
    set_state(db, jobs[0], "pending")
    assert [db.job(job).state for job in jobs] == ["pending", *["blocked"] * 3]


def test_children_of_a_job_that_ended_otherwise_know_its_first_end(db: Sql) -> None:
    db.serve()
    parent = db.enqueue(max_attempts=1)
    child, other = db.enqueue(), db.enqueue(on_parent_failure="block")
    for each in (child, other):
        db.insert("litejobs_dependency", job_id=each, parent_id=parent)
    db.fail(parent)
    with recorded(db) as operation:
        set_state(db, parent, "pending")
        set_state(db, parent, "cancelled")
    ends = "select parent_state from litejobs_dependency order by id"
    assert db.column(ends) == ["cancelled"] * 2
    undo(db, operation)
    assert db.column(ends) == ["dead_lettered"] * 2
    assert db.job(child).stopped_by == "parent_failed"
    assert db.job(other).state == "blocked"


def test_child_that_was_put_back_to_wait_is_cancelled_again(db: Sql) -> None:
    db.serve()
    parent, child = db.enqueue(), db.enqueue()
    db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    set_state(db, child, "cancelled")
    undone_exactly(db, lambda: db.query("requeue_job", id=child, origin="cli"))


@pytest.mark.parametrize(
    ("end", "state"), [("ok", "completed"), ("error", "cancelled")]
)
def test_blocked_job_whose_parent_has_ended_is_not_undone(
    db: Sql, end: str, state: str
) -> None:
    db.serve()
    parent, child = db.enqueue(max_attempts=1), db.enqueue()
    db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    with recorded(db) as operation:
        set_state(db, child, "cancelled")
    db.fail(parent, end)
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation) == [
        (f"job {child}", "cannot be blocked again: what it waits for has ended")
    ]
    assert state in {"completed", "cancelled"}


def test_job_whose_batch_has_ended_is_not_undone(held: Sql) -> None:
    db = held
    db.serve()
    db.execute("insert into litejobs_batch default values")
    batch = db.value("select max(id) from litejobs_batch")
    jobs = [db.enqueue(batch_id=batch) for _ in range(2)]
    db.execute("update litejobs_batch set state = 'sealed'")
    # While another one of it is there, nothing has ended.
    undone_exactly(db, lambda: set_state(db, jobs[0], "cancelled"))
    with recorded(db) as operation:
        set_state(db, jobs[0], "cancelled")
    db.wait(1)
    db.fail(jobs[1], "ok")
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation) == [
        (f"job {jobs[0]}", "cannot be pending again: its batch has ended")
    ]


def test_operation_that_ends_a_batch_is_not_undone(db: Sql) -> None:
    db.execute("insert into litejobs_batch default values")
    batch = db.value("select max(id) from litejobs_batch")
    job = db.enqueue(batch_id=batch)
    db.execute("update litejobs_batch set state = 'sealed'")
    with recorded(db) as operation:
        set_state(db, job, "cancelled")
    refused(db, operation, UNRECORDED)
    assert operation_of(db, operation).in_the_way == "it did more than is recorded"


# Operations that do more than is recorded ---------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "update litejobs_job set state = 'scheduled', run_at = 9999999999999",
        "insert into litejobs_dependency (job_id, batch_id) values (1, 1)",
        "insert into litejobs_claim (runner, slots) values (1, 1)",
        "insert into litejobs_policy (task) values ('a')",
    ],
)
def test_what_is_not_recorded_is_not_undone(db: Sql, change: str) -> None:
    db.serve()
    db.execute("insert into litejobs_batch default values")
    job = db.enqueue()
    ids = ("values (1, 1)", f"values ({job}, (select max(id) from litejobs_batch))")
    runner = ("values (1, 1)", f"values ({db.runner}, 1)")
    with recorded(db) as operation:
        db.execute(change.replace(*(ids if "depend" in change else runner)))
        db.insert("litejobs_fact", name="a", value=1)
    refused(db, operation, UNRECORDED)


@pytest.mark.parametrize("how", ["replace", "debounce"])
@pytest.mark.parametrize("state", ["scheduled", "pending"])
def test_a_job_that_was_replaced_or_put_off_does_not_come_back(
    db: Sql, state: str, how: str
) -> None:
    """Neither as it was, nor in part."""
    job = db.job_in(state, unique_key="k")
    with recorded(db) as operation:
        at = db.now + 2 * HOUR
        db.enqueue(unique_key="k", on_conflict=how, args="[2]", run_at=at)
    became = db.job(job)
    refused(db, operation, UNRECORDED)
    assert db.job(job) == became


def test_a_job_that_came_and_was_replaced_in_one_operation_goes(db: Sql) -> None:
    with recorded(db) as operation:
        job = db.enqueue(unique_key="k")
        db.enqueue(unique_key="k", on_conflict="replace", args="[2]")
    undo(db, operation)
    assert db.job(job).state == "cancelled"


# Settings -----------------------------------------------------------------------------

SETTINGS = {
    "pause": "update litejobs_queue set paused = 1 where name = 'q'",
    "resume": "update litejobs_queue set paused = 0 where name = 'paused'",
    "pause a new queue": "insert into litejobs_queue (name, paused) values ('n', 1)",
    "write a queue over": "insert or replace into litejobs_queue (name) values ('set')",
    "all of a queue": (
        "update litejobs_queue set max_running = 2, rate_count = 3, rate_ms = 60000,"
        " rate_burst = 2, retries = 'after_new', aging_ms = 1000, keys = 'round_robin'"
        " where name = 'q'"
    ),
    "nothing of a queue": (
        "update litejobs_queue set paused = 0, max_running = null, rate_count = null,"
        " retries = 'in_order', aging_ms = null, keys = 'in_order' where name = 'set'"
    ),
    "delete a queue": "delete from litejobs_queue where name = 'set'",
    "a key": "update litejobs_key set max_running = 5, rate_count = 2 where key = 'k'",
    "a new key": "insert into litejobs_key (key, max_running) values ('n', 2)",
    "no key": "delete from litejobs_key where key = 'k'",
    "a fact": "update litejobs_fact set value = 0 where name = 'f'",
    "a new fact": "insert into litejobs_fact (name, value) values ('n', 1)",
    "no fact": "delete from litejobs_fact where name = 'f'",
    "a tier": (
        "update litejobs_tier set every_ms = 1000, at_most = 3, min_priority = 2,"
        " queue = 'q'"
    ),
    "a new tier": (
        "insert into litejobs_tier (queue, min_priority, every_ms) values ('q', 3, 9)"
    ),
    "a tier written over": (
        "insert or replace into litejobs_tier (queue, min_priority, every_ms)"
        " values ('', 1, 9)"
    ),
    "no tier": "delete from litejobs_tier",
    "isolate": "update litejobs_circuit set state = 'open' where name = 'c'",
    "isolate for a while": (
        "update litejobs_circuit set state = 'open', open_until = 9999999999999"
        " where name = 'c'"
    ),
    "reset": "update litejobs_circuit set state = 'closed' where name = 'open'",
    "open for longer": (
        "update litejobs_circuit set open_until = 9999999999999 where name = 'open'"
    ),
    "isolate a new circuit": (
        "insert into litejobs_circuit (name, state) values ('n', 'open')"
    ),
    "no circuit": "delete from litejobs_circuit where name = 'open'",
}


def steer(db: Sql) -> None:
    """Something of each kind, and jobs that depend on it."""
    db.serve("a")
    db.serve("k", concurrency_key="k", circuit="c", queue="q")
    db.serve("o", circuit="open", queue="q")
    for name in ("q", "paused"):
        db.enqueue(queue=name)
    for task in ("k", "o", "k", "o"):
        db.enqueue(task, priority=3)
    db.execute("update litejobs_queue set paused = 1 where name = 'paused'")
    db.insert("litejobs_queue", name="set", paused=1, max_running=7, aging_ms=500)
    db.execute("update litejobs_key set rate_count = 7, rate_ms = 1000 where key = 'k'")
    db.insert("litejobs_fact", name="f", value=1)
    db.insert("litejobs_tier", min_priority=1, every_ms=MINUTE, at_most=1)
    db.execute(
        "update litejobs_circuit set state = 'open', open_until = ?"
        " where name = 'open'",
        (db.now + HOUR,),
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_is_as_it_was(db: Sql, setting: str) -> None:
    steer(db)
    operation = undone_exactly(db, lambda: db.execute(SETTINGS[setting]))
    refused(db, operation, UNDONE)


@pytest.mark.every_client
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "over",
    [
        SETTINGS["write a queue over"],
        SETTINGS["a tier written over"],
        (
            "insert or replace into litejobs_tier (id, queue, min_priority, every_ms)"
            " select id, 'q', 2, 9 from litejobs_tier where queue = ''"
        ),
    ],
    ids=["queue", "tier", "number of a tier"],
)
def test_what_is_written_over_is_as_it_was_for_every_client(
    clients: dict[str, Sql], client: str, over: str
) -> None:
    """Only with recursive triggers is it deleted, as far as triggers are told."""
    with as_new(clients[client]) as db:
        steer(db)
        db.insert("litejobs_tier", queue="other", min_priority=1, every_ms=MINUTE)
        undone_exactly(db, lambda: db.execute(over))


@pytest.mark.parametrize(
    ("setting", "meanwhile", "kept"),
    [
        ("pause", "litejobs_queue set paused = 0", False),
        ("pause", "litejobs_queue set max_running = 8", True),
        ("all of a queue", "litejobs_queue set aging_ms = 8", False),
        ("all of a queue", "litejobs_queue set paused = 1", True),
        ("delete a queue", "litejobs_queue set paused = 1", True),
        ("a key", "litejobs_key set rate_count = 9", False),
        ("a key", "litejobs_key set rate_ms = 9", True),
        ("a fact", "litejobs_fact set value = 1", False),
        ("a tier", "litejobs_tier set at_most = 9", False),
        ("isolate", "litejobs_circuit set state = 'closed'", False),
        ("reset", "litejobs_circuit set state = 'open'", False),
    ],
)
def test_setting_that_somebody_has_changed_is_not_undone(
    db: Sql, setting: str, meanwhile: str, kept: bool
) -> None:
    """What the operation has not touched may be another by now, and stays so."""
    steer(db)
    with recorded(db) as operation:
        db.execute(SETTINGS[setting])
    before = facts(db)
    db.execute(f"update {meanwhile}")
    changed = facts(db)
    assert changed != before
    if not kept:
        refused(db, operation, MOVED_ON)
        assert "has been changed since" in operation_of(db, operation).in_the_way
        return
    undo(db, operation)
    check(db)
    table, _, column, _, value = meanwhile.split()
    assert set(db.column(f"select {column} from {table}")) == {int(value)}


@pytest.mark.parametrize(
    ("setting", "meanwhile"),
    [
        ("a new fact", "delete from litejobs_fact"),
        ("a new fact", "update litejobs_fact set value = 0"),
        ("no fact", "insert into litejobs_fact (name, value) values ('f', 0)"),
        ("a tier", "delete from litejobs_tier"),
        ("a new tier", "update litejobs_tier set at_most = 4"),
        (
            "no tier",
            "insert into litejobs_tier (id, min_priority, every_ms) values (77, 1, 9)",
        ),
    ],
)
def test_thing_that_came_or_went_meanwhile_is_not_undone(
    db: Sql, setting: str, meanwhile: str
) -> None:
    steer(db)
    with recorded(db) as operation:
        db.execute(SETTINGS[setting])
    db.execute(meanwhile)
    refused(db, operation, MOVED_ON)


def test_settings_of_what_is_in_use_are_the_defaults_again(db: Sql) -> None:
    """A row that lanes name is not deleted, but says nothing any more."""
    with recorded(db):
        db.insert("litejobs_queue", name="q", paused=1)
        db.insert("litejobs_key", key="k", max_running=3)
        db.insert("litejobs_circuit", name="c", state="open")
    db.enqueue(queue="q", concurrency_key="k", circuit="c")
    undo(db)
    check(db)
    assert db.value("select paused from litejobs_queue") == 0
    assert db.value("select max_running from litejobs_key") is None
    assert db.value("select state from litejobs_circuit") == "closed"


def test_claims_do_not_get_in_the_way_of_settings(held: Sql) -> None:
    """What a rate has used up is not a setting."""
    db = held
    db.serve("k", concurrency_key="k", rate_count=5, queue="q")
    for _ in range(3):
        db.enqueue("k")
    before = facts(db)
    with recorded(db) as operation:
        db.execute("update litejobs_queue set rate_count = 100")
        db.execute("update litejobs_key set rate_count = 100, max_running = 9")
    assert db.claim(1) != []
    undo(db, operation)
    check(db)
    for kind in ("queue", "key"):
        assert facts(db)[kind] == before[kind]


# Schedules ----------------------------------------------------------------------------

CHANGES = {
    "say": "update litejobs_schedule set every_ms = 120000, priority = 4, queue = 'q'",
    "rename": "update litejobs_schedule set name = 'other'",
    "pause": "update litejobs_schedule set paused = 1, paused_reason = 'why'",
    "remove": "delete from litejobs_schedule",
    "add": (
        "insert into litejobs_schedule (name, task, expression, timezone)"
        " values ('t', 'a', '0 9 * * *', 'Europe/Berlin')"
    ),
}


def schedule(db: Sql, **columns: Any) -> int:
    """A schedule that has fired twice."""
    if not db.runner:
        db.serve()
    # As the runner's calendar would.
    db.execute("update litejobs_runner set plans = 0")
    columns = {"name": "s", "task": "a", "every_ms": MINUTE, **columns}
    db.insert("litejobs_schedule", **columns)
    number = int(db.value("select max(id) from litejobs_schedule"))
    for _ in range(2):
        db.execute("insert into litejobs_run_now (schedule_id) values (?)", (number,))
    return number


@pytest.mark.parametrize("change", CHANGES)
def test_schedule_is_as_it_was(db: Sql, change: str) -> None:
    number = schedule(db, args='["x"]', jitter=0.125, factor=1.5, intervals="[1000]")
    db.execute("update litejobs_schedule set runs = 7")
    before = db.rows("select * from litejobs_schedule where id = ?", (number,))[0]
    undone_exactly(db, lambda: db.execute(CHANGES[change]))
    after = db.rows("select * from litejobs_schedule where id = ?", (number,))[0]
    for name in ("created_at", "runs", "anchor_ms", "high_at", "clock_steps"):
        assert getattr(after, name) == getattr(before, name), name
    # It goes on from now.
    assert after.replan_at is not None


def test_resumed_schedule_is_paused_again(db: Sql) -> None:
    schedule(db, paused=1, paused_reason="why")
    resume = "update litejobs_schedule set paused = 0"
    undone_exactly(db, lambda: db.execute(resume))
    assert db.value("select paused_reason from litejobs_schedule") == "why"


def test_removed_schedule_fires_no_instant_twice(held: Sql) -> None:
    db = held
    number = schedule(db)
    fired = db.value("select max(at) from litejobs_occurrence where state = 'fired'")
    undone_exactly(db, lambda: db.execute("delete from litejobs_schedule"))
    again = "insert into litejobs_occurrence (schedule_id, at, due_at) values (?, ?, ?)"
    assert "duplicate_occurrence" in db.refused(again, (number, fired, fired))
    assert db.value("select planned_until from litejobs_schedule") == db.now
    jobs = db.value("select count(*) from litejobs_job")
    db.wait(HOUR)
    db.execute(
        "insert into litejobs_backfill (schedule_id, at) values (?, ?)", (number, fired)
    )
    assert db.value("select count(*) from litejobs_job") == jobs


def test_removed_schedule_that_ran_often_enough_is_not_planned(db: Sql) -> None:
    schedule(db, max_runs=2)
    db.execute("update litejobs_schedule set runs = 2")
    with recorded(db):
        db.execute("delete from litejobs_schedule")
    undo(db)
    assert db.value("select replan_at from litejobs_schedule") is None


def test_removed_schedule_whose_name_is_taken_is_not_undone(db: Sql) -> None:
    schedule(db)
    with recorded(db) as operation:
        db.execute("delete from litejobs_schedule")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR)
    refused(db, operation, MOVED_ON)
    assert obstacles(db, operation) == [
        ("schedule s", "cannot come back: another schedule has its name")
    ]


def test_schedule_of_the_code_is_the_codes_again(db: Sql) -> None:
    """A person's change makes it edited, which ends with the change."""
    schedule(db, declared='{"x": 1}')
    undone_exactly(db, lambda: db.execute(CHANGES["say"]))
    assert db.value("select edited from litejobs_schedule") == 0


def test_schedule_that_was_edited_twice_stays_edited(db: Sql) -> None:
    schedule(db, declared='{"x": 1}')
    with recorded(db) as operation:
        db.execute(CHANGES["say"])
    db.execute("update litejobs_schedule set max_runs = 5")
    undo(db, operation)
    assert db.execute("select edited, max_runs, every_ms from litejobs_schedule") == [
        (1, 5, MINUTE)
    ]


@pytest.mark.parametrize(
    ("change", "meanwhile"),
    [
        ("say", "update litejobs_schedule set every_ms = 5000"),
        ("pause", "update litejobs_schedule set paused = 0"),
        ("pause", "delete from litejobs_schedule"),
        ("add", "update litejobs_schedule set priority = 5"),
        ("add", "delete from litejobs_schedule"),
    ],
)
def test_schedule_that_somebody_has_changed_is_not_undone(
    db: Sql, change: str, meanwhile: str
) -> None:
    schedule(db)
    with recorded(db) as operation:
        db.execute(CHANGES[change])
    db.execute(meanwhile)
    refused(db, operation, MOVED_ON)


def test_schedule_may_run_meanwhile(db: Sql) -> None:
    number = schedule(db)
    with recorded(db) as operation:
        db.execute(CHANGES["say"])
    db.execute("insert into litejobs_run_now (schedule_id) values (?)", (number,))
    undo(db, operation)
    assert db.value("select every_ms from litejobs_schedule") == MINUTE


def test_job_of_a_schedule_run_by_hand_is_cancelled(db: Sql) -> None:
    number = schedule(db)
    with recorded(db):
        db.execute("insert into litejobs_run_now (schedule_id) values (?)", (number,))
    job = db.value("select max(id) from litejobs_job")
    undo(db)
    check(db)
    assert db.job(job).state == "cancelled"
    sql = "select state from litejobs_occurrence where job_id = ?"
    assert db.column(sql, (job,)) == ["fired"]


# All or nothing -----------------------------------------------------------------------


def test_many_things_are_undone_together(db: Sql) -> None:
    steer(db)
    schedule(db)
    job, ended = db.enqueue(), db.job_in("dead_lettered", max_attempts=1)

    def change() -> None:
        for setting in ("pause", "a key", "no fact", "a tier", "isolate"):
            db.execute(SETTINGS[setting])
        db.execute(CHANGES["remove"])
        set_state(db, job, "cancelled")
        set_state(db, ended, "pending")

    operation = undone_exactly(db, change)
    assert operation_of(db, operation).changes == 8


def test_one_thing_that_has_moved_on_keeps_all_back(db: Sql) -> None:
    steer(db)
    job = db.enqueue()
    with recorded(db) as operation:
        db.execute(SETTINGS["pause"])
        set_state(db, job, "cancelled")
        db.execute(SETTINGS["a fact"])
    db.execute("delete from litejobs_fact")
    refused(db, operation, MOVED_ON)


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["or ignore", "or replace", "or fail", "or abort"])
def test_conflict_clause_does_not_half_undo(db: Sql, how: str) -> None:
    """Under `or ignore` what is refused is left out, without a word."""
    db.insert("litejobs_fact", name="a", value=1)
    with recorded(db) as operation:
        db.execute("update litejobs_fact set value = 0")
        db.insert("litejobs_fact", name="b", value=1)
    # An application may have a rule of its own.
    db.execute(
        "create temp trigger own before update on litejobs_fact"
        " begin select raise(ignore); end"
    )
    before = rows(db)
    sql = f"insert {how} into litejobs_undo (operation) values ({operation})"
    assert HALF in db.refused(sql)
    assert rows(db) == before
    db.execute("drop trigger own")
    db.execute(sql)
    assert db.execute("select name, value from litejobs_fact") == [("a", 1)]


@pytest.mark.every_client
def test_marker_of_an_undo_cannot_be_left_behind(db: Sql) -> None:
    """Who writes it undoes the operation; only so the guards let such moves pass."""
    job = db.job_in("dead_lettered") if db.serve() is None else 0
    assert "invalid_transition" in db.refused(
        "update litejobs_job set state = 'failed' where id = ?", (job,)
    )
    with recorded(db) as operation:
        set_state(db, job, "pending")
    db.execute(
        f"insert or replace into litejobs_undoing (operation_id) values ({operation})"
    )
    assert db.execute("select * from litejobs_undoing") == []
    assert db.job(job).state == "dead_lettered"
    assert db.events(job)[-1] == "task.undone"
    assert db.execute("select * from litejobs_replay_difference") == []
    check(db)


@pytest.mark.parametrize(
    "was",
    [
        {"state": "completed", "finished_at": 5},
        {"state": "completed"},
        {"state": "dead_lettered", "finished_at": 5, "stopped_by": "max_attempts"},
        {"state": "failed"},
        {"state": "processing"},
        {"state": "pending", "attempts": 9},
        {"state": "pending", "crashes": 9},
        {"state": "pending", "finished_at": 5},
        {"state": None},
        {"state": "x"},
        {"state": "blocked"},
    ],
    ids=str,
)
def test_forged_past_cannot_be_stored(db: Sql, was: dict[str, Any]) -> None:
    """Whoever can write the file can write a change, but no job that cannot be."""
    job = db.enqueue()
    with recorded(db) as operation:
        db.execute(
            "insert into litejobs_change (operation_id, kind, key, before)"
            " select ?, 'job', id, json_patch(image, ?) from litejobs__job_image"
            " where id = ?",
            (operation, json.dumps(was), job),
        )
    before = rows(db)
    db.refused("insert into litejobs_undo (operation) values (?)", (operation,))
    assert rows(db) == before
    check(db)


# What is remembered -------------------------------------------------------------------

# Columns that are not settings: what follows from the others, or what a runner does.
NO_FACTS = {
    "queue": {"name", "rate_next_us", "origin"},
    "key": {"key", "rate_next_us", "closed_until"},
    "tier": {"id", "next_at", "taken"},
    "fact": {"name", "origin"},
    "circuit": {"name", "probe_attempt_id", "origin"},
    "schedule": {
        *("id", "created_at", "runner_id", "runs", "skip_until", "high_at", "origin"),
        *("clock_steps", "sentence", "tz_version", "planned_at", "planned_until"),
        *("replan_at", "revision", "options", "spec_id"),
    },
}
# Facts that change only along with others.
FOLLOW = {
    "circuit": {"opened_at", "cooldown_ms", "opens"},
    "schedule": {"declared", "edited", "invalid"},
}


@pytest.mark.parametrize("kind", NO_FACTS)
def test_every_setting_is_a_fact_that_is_recorded_and_taken_back(
    db: Sql, kind: str
) -> None:
    columns = set(db.column(f"select name from pragma_table_info('litejobs_{kind}')"))
    texts = dict(
        db.execute(
            "select name, sql from sqlite_schema where type in ('view', 'trigger')"
        )
    )
    facts = set(re.findall(r"'(\w+)',", texts[f"litejobs__{kind}_image"]))
    recorded = re.search(
        r"before update of([\w\s,]+?)\s+on ",
        texts[f"litejobs_{kind}_update_is_recorded"],
    )
    assert recorded is not None
    watched = set(re.findall(r"\w+", recorded[1]))
    assert facts == columns - NO_FACTS[kind]
    assert facts - FOLLOW.get(kind, set()) == watched - {"spec_id"}
    # They are what the undo writes, or what it looks at.
    undo = (
        texts["litejobs_undoing_takes_back"]
        + texts["litejobs__undo_schedule_goes_back"]
        + texts["litejobs__put_schedule_is_done"]
    )
    assert facts <= set(re.findall(r"'\$\.(\w+)'", undo))


# Any client ---------------------------------------------------------------------------


def test_any_client_can_act_and_undo() -> None:
    """The standard library's sqlite3 alone, with a transaction of its own."""
    source = on_apsw(traced=False)
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(source.connection.serialize("main"))
    db.execute("insert into litejobs_job (task) values ('a')")
    db.execute("begin immediate")
    db.execute(
        "insert into litejobs_operation (name, detail) values ('cancel', 'all of a')"
    )
    db.execute("update litejobs_job set state = 'cancelled' where task = 'a'")
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")
    db.execute("commit")
    assert db.execute("select state from litejobs_job").fetchall() == [("cancelled",)]
    [line] = db.execute(
        "select id, name, can_be_undone from litejobs_operation_report"
    ).fetchall()
    assert line == (1, "cancel", 1)
    db.execute("insert into litejobs_undo (operation) values (1)")
    assert db.execute("select state from litejobs_job").fetchall() == [("pending",)]
    db.close()


# Random lives -------------------------------------------------------------------------


class Life:
    """A runner works, and people act, undo, and do things without saying so."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.db: list[Sql] = []
        self.operations: dict[int, dict[str, Any]] = {}
        self.undone = 0
        self.refused = 0

    def do(self, sql: str, parameters: Any = ()) -> str | None:
        """The same in each database; in which words it was refused, if it was."""
        answers = set()
        for db in self.db:
            try:
                db.execute(sql, parameters)
                answers.add(None)
            except ERRORS as error:
                answers.add(str(error))
        assert len(answers) == 1, (sql, parameters, answers)
        return answers.pop()

    def begin(self) -> None:
        for db in self.db:
            db.start_runner()
            db.serve("a", jitter=0.0, max_attempts=2)
            db.serve("k", concurrency_key="{x}", circuit="c", queue="q", jitter=0.0)
            db.insert("litejobs_breaker", task="k", threshold=2)
            db.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)

    def job(self) -> int:
        found = self.db[0].column(
            "select id from litejobs_job order by id desc limit 12"
        )
        return int(self.chosen.choice([*found, 1]))

    def loop(self) -> None:
        runner = self.db[0].runner
        pick = self.chosen.choice
        match pick(("tick", "claim", "claim", "settle", "settle", "wait")):
            case "tick":
                self.do("insert into litejobs_tick (runner) values (?)", (runner,))
            case "claim":
                self.do("insert into litejobs_claim values (?, ?)", (runner, 2))
            case "settle":
                status = pick(("ok", "ok", "error", "interrupted", "crashed"))
                self.do(
                    "insert into litejobs_settle (attempt, outcome) select min(id), ?"
                    " from litejobs_attempt where finished_at is null",
                    (json.dumps({"status": status}),),
                )
            case "wait":
                self.db[0].wait(pick((SECOND, MINUTE, HOUR)))

    def change(self) -> tuple[str, Any]:
        """Something that a person can do."""
        pick, number = self.chosen.choice, self.chosen.randint
        key = pick((None, None, "u1", "u2"))
        return pick(
            (
                ("update litejobs_job set state = 'cancelled' where id = ?", 1),
                ("update litejobs_job set state = 'cancelled' where id = ?", 1),
                ("update litejobs_job set state = 'pending' where id = ?", 1),
                ("update litejobs_job set state = 'pending' where id = ?", 1),
                (
                    "update litejobs_job set cancel_requested_at = 5 where id = ?"
                    " and cancel_requested_at is null and finished_at is null",
                    1,
                ),
                (
                    "update litejobs_job set state = 'pending'"
                    " where state = 'dead_lettered'",
                    0,
                ),
                (
                    "insert into litejobs_job (task, args, unique_key, priority)"
                    f" values ('{pick('ak')}', '{{\"x\": {number(1, 2)}}}', "
                    f"{'null' if key is None else repr(key)}, {number(0, 1)})",
                    0,
                ),
                (
                    "insert into litejobs_dependency (job_id, parent_id)"
                    " select max(id), max(id) - 1 from litejobs_job",
                    0,
                ),
                (f"update litejobs_queue set paused = {number(0, 1)}", 0),
                (f"update litejobs_queue set max_running = {number(1, 3)}", 0),
                (
                    "insert into litejobs_key (key, max_running)"
                    f" values ('{number(1, 2)}', {number(1, 3)}) on conflict (key)"
                    " do update set max_running = excluded.max_running",
                    0,
                ),
                (
                    "insert into litejobs_fact (name, value) values ('f',"
                    f" {number(0, 1)}) on conflict (name) do update"
                    " set value = excluded.value",
                    0,
                ),
                ("delete from litejobs_fact", 0),
                (
                    "insert into litejobs_tier (min_priority, every_ms)"
                    f" values ({number(0, 1)}, 1000) on conflict do nothing",
                    0,
                ),
                ("delete from litejobs_tier", 0),
                ("update litejobs_circuit set state = 'open'", 0),
                ("update litejobs_circuit set state = 'closed'", 0),
                (f"update litejobs_schedule set paused = {number(0, 1)}", 0),
                (f"update litejobs_schedule set every_ms = {number(1, 3)}000", 0),
                ("delete from litejobs_schedule", 0),
                (
                    "insert into litejobs_schedule (name, task, every_ms)"
                    " values ('s', 'a', 1000)",
                    0,
                ),
                (
                    "insert into litejobs_run_now (schedule_id)"
                    " select id from litejobs_schedule",
                    0,
                ),
            )
        )

    def person(self) -> None:
        sql, takes_job = self.change()
        self.do(sql, (self.job(),) if takes_job else ())

    def operation(self) -> None:
        before = facts(self.db[0])
        self.do("insert into litejobs_operation (name) values ('x')")
        for _ in range(self.chosen.randint(1, 3)):
            self.person()
        self.do("update litejobs_operation set state = 'done' where state = 'open'")
        for operation in self.db[0].column("select max(id) from litejobs_operation"):
            if operation is not None and operation not in self.operations:
                self.operations[operation] = {
                    "before": before,
                    "after": facts(self.db[0]),
                }

    def undo(self) -> None:
        if not self.operations:
            return
        operation = self.chosen.choice(
            [*list(self.operations)[-3:], max(self.operations)]
        )
        db = self.db[0]
        possible = operation_of(db, operation).can_be_undone
        untouched = facts(db) == self.operations[operation]["after"]
        kept = rows(db)
        said = self.do("insert into litejobs_undo (operation) values (?)", (operation,))
        assert (said is None) == possible, said
        if said is not None:
            assert rows(db) == kept
            self.refused += 1
            return
        self.undone += 1
        if untouched:
            self.is_as_before(operation)

    def is_as_before(self, operation: int) -> None:
        """Exactly, but for jobs that were asked for, which are cancelled."""
        db = self.db[0]
        before, after = self.operations[operation]["before"], facts(db)
        born = after["job"].keys() - before["job"].keys()
        assert {after["job"][job]["state"] for job in born} <= {*FINISHED}
        after["job"] = {
            job: fact for job, fact in after["job"].items() if job not in born
        }
        for found in (before, after):
            found["ledger"] = [row for row in found["ledger"] if row[4] not in born]
            # A cancelled child may have heard of the same end before.
            found["dependency"] = [
                row
                for row in found["dependency"]
                if row[0] not in born and after["job"][row[0]]["state"] != "cancelled"
            ]
            # A row that says nothing is none.
            for kind in ("queue", "key", "circuit"):
                plain = {"retries": "in_order", "keys": "in_order", "state": "closed"}
                found[kind] = {
                    name: fact
                    for name, fact in found[kind].items()
                    if any(
                        value != plain.get(key, 0)
                        for key, value in fact.items()
                        if value is not None
                    )
                }
        assert after == before


def live(seed: int, steps: int) -> Life:
    """A life of so many steps, in two databases at once."""
    life = Life(seed)
    with time_machine.travel(START, tick=False) as clock:
        life.db = [
            lent(recursive_triggers=recursive, traced=True, clock=clock)
            for recursive in (False, True)
        ]
        life.begin()
        for number in range(steps):
            step = life.chosen.choice(
                ("loop",) * 4 + ("person", "operation", "operation", "undo")
            )
            getattr(life, step)()
            check(life.db[0])
            if number % 25 == 0:
                assert rows(life.db[0]).keys() == rows(life.db[1]).keys()
                for table, content in rows(life.db[0]).items():
                    if table != "litejobs_runner":
                        assert rows(life.db[1])[table] == content, table
    return life


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.torture), 1])
def test_operation_is_undone_exactly_or_not_at_all(seed: int) -> None:
    life = live(seed, 150)
    assert life.undone > 2
    assert life.refused > 0


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 140))
def test_operation_is_undone_exactly_or_not_at_all_in_many_lives(seed: int) -> None:
    assert live(seed, 400).undone > 5
