"""Has every trigger and every constraint been seen at work? Runs after all others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from litejobs import _sql
from tests.sqlfixture import SEEN, on_apsw, trigger_sources, trigger_when

pytest_plugins = ["tests.sqlfixture"]


@pytest.fixture
def whole_suite(request: pytest.FixtureRequest) -> None:
    """Skips the test unless all tests of the SQL were asked for."""
    option = request.config.option
    collected = {item.path.name for item in request.session.items}
    wanted = {path.name for path in Path(__file__).parent.glob("test_sql_*.py")}
    partial = (
        option.keyword
        or option.markexpr not in ("", "not torture")
        or getattr(option, "lf", False)
        or getattr(option, "deselect", None)
        or any("::" in each for each in request.config.args)
    )
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("the tests of the SQL are shared between processes")
    if partial or not wanted <= collected:
        pytest.skip("only a part of the tests of the SQL was run")


@pytest.fixture
def triggers() -> dict[str, str]:
    """All triggers: their names and how they were created."""
    return trigger_sources(on_apsw(traced=False).connection)


@pytest.mark.usefixtures("whole_suite")
def test_every_trigger_was_seen_to_act(triggers: dict[str, str]) -> None:
    assert sorted(triggers.keys() - SEEN.acted) == []


@pytest.mark.usefixtures("whole_suite")
def test_every_when_was_seen_to_hold_its_trigger_back(triggers: dict[str, str]) -> None:
    conditional = {name for name, source in triggers.items() if trigger_when(source)}
    assert sorted(conditional - SEEN.held_back) == []


@pytest.mark.usefixtures("whole_suite")
def test_every_named_constraint_was_seen_to_refuse() -> None:
    named = set(re.findall(r"constraint (\w+)", _sql.schema()))
    assert sorted(named - SEEN.refused) == []
