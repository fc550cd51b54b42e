"""A test of rows fails with all that fail, and no row finds what another has done."""

from __future__ import annotations

import datetime as dt
import inspect

import pytest

from tests.rows import for_each
from tests.sql.fixture import HOUR, Sql


def test_each_row_that_fails_is_named() -> None:
    @for_each("letter", "abc")
    @for_each("number, double", [(1, 2), (2, 5), (3, 6)])
    def doubles(letter: str, number: int, double: int) -> None:
        assert letter != "b", "not this letter"
        assert double == 2 * number

    with pytest.raises(AssertionError) as told:
        doubles()
    first, *rows = str(told.value).split("\n\n")
    assert first == "5 of 9 rows:"
    assert [row.split(":")[0] for row in rows] == [
        "letter 'a', number 2, double 5",
        *(f"letter 'b', number {n}, double {m}" for n, m in ((1, 2), (2, 5), (3, 6))),
        "letter 'c', number 2, double 5",
    ]
    assert "not this letter" in rows[1]


def test_what_is_no_row_is_left_to_pytest() -> None:
    @for_each("number", [1])
    def tested(number: int, *, other: str) -> None:
        assert (number, other) == (1, "given")

    assert list(inspect.signature(tested).parameters) == ["other"]
    tested(other="given")


def test_nothing_is_tested_by_no_rows() -> None:
    with pytest.raises(ValueError, match="no rows of number"):
        for_each("number", [])


def test_each_row_begins_with_what_the_fixtures_made(held: Sql) -> None:
    held.serve("a")
    began = held.now
    seen = []

    @for_each("number", range(3))
    def tested(db: Sql, number: int) -> None:
        seen.append((db.enqueue("a"), db.runner, db.now))
        db.start_runner()
        db.wait(HOUR)
        assert number != 1

    with pytest.raises(AssertionError, match="1 of 3 rows"):
        tested(db=held)
    assert seen == [(1, held.runner, began)] * 3
    assert held.content("litejobs_job") == []
    assert dt.datetime.now(dt.UTC).timestamp() * 1000 == began
