"""A process that waits for its turn is a row, and may ask for the runner's place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sql.fixture import Sql


def runner(db: Sql, *, tasks: str = "ab", **columns: Any) -> int:
    """A runner of process 1, with these tasks, whose code was changed at 10."""
    given = {"pid": 1, "host": "here", "code_at": 10} | columns
    db.insert("litejobs_runner", **given)
    number = int(db.value("select max(id) from litejobs_runner"))
    for task in tasks:
        db.insert("litejobs_task", name=task, runner_id=number)
    return number


def test_one_without_an_executor_of_the_runner_does_not_ask(db: Sql) -> None:
    number = runner(db)
    for owner, name in ((number, "cpu"), (number - 1, "gone")):
        db.insert("litejobs_executor", name=name, slots=2, runner_id=owner)
    standby(db, executors='["gpu"]')
    assert handing_over(db) == 0
    standby(db, executors='["gpu", "cpu"]')
    assert handing_over(db) == 1


def standby(db: Sql, **columns: Any) -> int:
    """A standby of process 2 that can do the same, with newer code."""
    given = {
        "pid": 2,
        "parent_pid": 7,
        "host": "here",
        "code_at": 11,
        "tasks": json.dumps(["a", "b"]),
    }
    db.insert("litejobs_standby", **given | columns)
    return int(db.value("select max(id) from litejobs_standby"))


def handing_over(db: Sql) -> Any:
    """Whether the last standby may have a place: 1, or 2 if at once and for good."""
    query = "select 1 + at_once from litejobs__successor where standby_id = ?"
    last = db.value("select max(id) from litejobs_standby")
    found = db.execute(query, (last,))
    return found[0][0] if found else 0


def test_newer_code_asks_for_the_place(db: Sql) -> None:
    number = runner(db)
    assert handing_over(db) == 0
    first = standby(db)
    assert handing_over(db) == 1
    assert db.value("select began_at from litejobs_standby") == db.now
    asked = "select asks from litejobs_standby"
    for lasts, place in ((False, None), (True, number)):
        db.query("ask_for_place", id=first, lasts=lasts)
        assert db.value(asked) == place


@pytest.mark.parametrize(("parent", "how"), [(7, 1), (1, 2)])
def test_runner_is_told_who_asks_for_its_place(db: Sql, parent: int, how: int) -> None:
    number = runner(db)
    told = {"runner": number, "seen_at": 0}
    assert db.query("agenda", **told)[0].hand_over is None
    first = standby(db, parent_pid=parent, reloaded=1)
    db.query("ask_for_place", id=first, lasts=how == 1)
    standby(db, pid=3, asks=number + 1)  # of another one
    assert db.query("agenda", **told)[0].hand_over == how
    assert [each.id for each in db.query("askers", runner=number)] == [first]
    db.query("end_standby", id=first)
    assert db.query("agenda", **told)[0].hand_over is None


@pytest.mark.parametrize(
    "columns",
    [
        {"code_at": 10},
        {"code_at": 9},
        {"code_at": None},
        {"host": "elsewhere"},
        {"host": None},
        {"queues": '["mail"]'},
        {"tasks": '["a"]'},
        {"tasks": "[]"},
        {"reloaded": 1},  # its parent is another process
    ],
)
def test_who_cannot_do_the_same_does_not(db: Sql, columns: dict[str, Any]) -> None:
    runner(db)
    standby(db, **{"code_at": 10} | columns if "reloaded" in columns else columns)
    assert handing_over(db) == 0


def test_a_standby_of_the_same_queues_asks(db: Sql) -> None:
    runner(db, queues='["mail"]')
    standby(db)
    assert handing_over(db) == 0
    standby(db, queues='["mail"]')
    assert handing_over(db) == 1


def test_a_parent_that_watches_gives_its_place_up_for_good(db: Sql) -> None:
    """Whatever the child knows, and however old its code is."""
    runner(db)
    standby(db, parent_pid=1, reloaded=1, code_at=None, tasks="[]")
    assert handing_over(db) == 2


def test_a_runner_that_has_stopped_is_not_asked(db: Sql) -> None:
    runner(db)
    db.execute("update litejobs_runner set stopped_at = ?", (db.now,))
    standby(db)
    assert handing_over(db) == 0


def test_what_only_a_standby_would_run_is_told(db: Sql) -> None:
    first = standby(db, tasks='["a","b","c"]')
    told = "select standby_id, pid, kind, name from litejobs__unserved"
    assert db.execute(told) == []  # nobody runs anything
    runner(db, tasks="c")  # which has ended, though the file knows its task
    runner(db)
    assert db.execute(told) == [(first, 2, "task", "c")]
    remedy = db.value("select remedy from litejobs__unserved")
    assert remedy.startswith("process 2 has it, but stands by while process 1 runs")
    runner(db, tasks="", queues='["mail"]')
    for queue in ("mail", "bulk", "more"):
        db.insert("litejobs_queue", name=queue)
    second = standby(db, pid=3, tasks="[]", queues='["bulk","mail"]')
    kinds = db.execute(f"{told} where kind = 'queue' order by 1, 4")
    named = {row[3] for row in kinds if row[0] == first}
    assert named >= {"bulk", "more"}
    assert "mail" not in named
    assert [row[1:] for row in kinds if row[0] == second] == [(3, "queue", "bulk")]


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"tasks": "{}"}, "litejobs_standby_tasks_are_a_list"),
        ({"tasks": "x"}, "litejobs_standby_tasks_are_a_list"),
        ({"queues": "[]"}, "litejobs_standby_queues_are_a_list"),
        ({"queues": "x"}, "litejobs_standby_queues_are_a_list"),
        ({"executors": "{}"}, "litejobs_standby_executors_are_a_list"),
        ({"executors": "x"}, "litejobs_standby_executors_are_a_list"),
        ({"reloaded": 2}, "litejobs_standby_reloaded_is_flag"),
        ({"id": 0}, "litejobs_standby_id_positive"),
    ],
)
def test_a_standby_that_cannot_be_is_refused(
    db: Sql, columns: dict[str, Any], constraint: str
) -> None:
    given = {"pid": 2} | columns
    marks = ", ".join(f":{name}" for name in given)
    insert = f"insert into litejobs_standby ({', '.join(given)}) values ({marks})"
    assert constraint in db.refused(insert, given)
