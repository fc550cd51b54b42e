"""What the tests' own client keeps prepared."""

from __future__ import annotations

import pytest

from tests.sql import fixture
from tests.sql.fixture import ERRORS, on_apsw


def test_a_statement_that_was_refused_twice_does_not_refuse_others() -> None:
    """Those that are said again are prepared again from time to time."""
    db = on_apsw(traced=False)
    for _ in range(2):
        with pytest.raises(ERRORS, match="no such column: rowid"):
            db.execute("update litejobs__transition set note = 'x' where rowid = 1")
    for number in range(fixture.KEPT + 1):
        assert db.value("select ?", (number,)) == number
