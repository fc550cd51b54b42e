"""Cursors: where they may be put, and how they stand."""

from __future__ import annotations

import pytest

from tests.sql.fixture import Sql

PUT = "insert into litejobs_cursor (name, log_id, made_at, seen_at) values (?, ?, 1, 1)"


def test_a_cursor_is_not_put_behind_the_end_of_the_log(db: Sql) -> None:
    db.execute("insert into litejobs_job (task) values ('work')")
    db.execute(PUT, ("end", 1))
    db.execute(PUT, ("begin", 0))
    ends = "invalid_cursor: the log ends before that number"
    assert ends in db.refused(PUT, ("behind", 2))
    assert ends in db.refused(
        "update litejobs_cursor set log_id = 2 where name = 'begin'"
    )
    db.execute("update litejobs_cursor set log_id = 1 where name = 'begin'")
    assert [row.log_id for row in db.rows("select * from litejobs_cursor")] == [1, 1]


@pytest.mark.parametrize(
    ("row", "constraint"),
    [
        (("", 0), "name_length"),
        (("x" * 201, 0), "name_length"),
        (("x\0" + "x" * 201, 0), "name_length"),
        (("a", -1), "place_in_range"),
    ],
)
def test_a_cursor_has_a_name_and_a_place(
    db: Sql, row: tuple[str, int], constraint: str
) -> None:
    assert f"litejobs_cursor_{constraint}" in db.refused(PUT, row)


def test_what_was_lost_has_a_place_in_the_log(db: Sql) -> None:
    db.execute(PUT, ("a", 0))
    for place, sentence in ((-1, "cursor_place_in_range"), (1, "the log ends before")):
        assert sentence in db.refused(
            "update litejobs_cursor set lost_id = ?", (place,)
        )


@pytest.mark.parametrize("instant", ["made_at", "seen_at", "since_at"])
def test_a_cursor_has_instants_that_can_be_shown(db: Sql, instant: str) -> None:
    db.execute(PUT, ("a", 0))
    for value in (-1, 2**62):
        sentence = db.refused(f"update litejobs_cursor set {instant} = {value}")
        assert "litejobs_cursor_instants_in_range" in sentence


def test_a_report_says_how_many_lines_come_after_a_cursor(db: Sql) -> None:
    """And that some have gone, until its reader has been told so."""

    def report() -> tuple[int, int]:
        [row] = db.rows("select lines, lost from litejobs_cursor_report")
        return row.lines, row.lost

    db.execute(PUT, ("a", 0))
    for _ in range(3):
        db.execute("insert into litejobs_job (task) values ('work')")
    assert report() == (3, 0)
    db.execute("update litejobs_cursor set log_id = 2")
    assert report() == (1, 0)
    db.execute("update litejobs_job set state = 'cancelled' where id = 3")
    db.execute("delete from litejobs_job where id = 3")
    assert report()[1] == 1
    db.execute("update litejobs_cursor set lost_id = 4")
    assert report()[1] == 0
