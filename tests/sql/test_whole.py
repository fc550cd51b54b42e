"""Has every trigger and every constraint been seen at work? Runs after all others.

Where the tests are shared between processes, each tells in the end what it has seen,
and tests/conftest.py sums it up.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from litejobs._storage import statements
from tests.sql.fixture import SEEN, on_apsw, trigger_sources, trigger_when


def is_whole(session: pytest.Session) -> bool:
    """Whether all tests of the SQL were asked for."""
    option = session.config.option
    collected = {item.path for item in session.items}
    wanted = set(Path(__file__).parent.glob("test_*.py"))
    partial = (
        option.keyword
        or re.sub(r"\bnot \w+|\band\b|\s", "", option.markexpr)
        or getattr(option, "lf", False)
        or getattr(option, "deselect", None)
        or any("::" in each for each in session.config.args)
    )
    return not partial and wanted <= collected


def never_acted() -> list[str]:
    """The triggers that no test has seen at work."""
    return sorted(_triggers().keys() - SEEN.acted)


def never_held_back() -> list[str]:
    """The triggers whose condition no test has seen to be false."""
    conditional = {name for name, source in _triggers().items() if trigger_when(source)}
    return sorted(conditional - SEEN.held_back)


def never_refused() -> list[str]:
    """The constraints that no test has seen to refuse anything."""
    named = set(re.findall(r"constraint (\w+)", "".join(statements.schema())))
    return sorted(named - SEEN.refused)


def _triggers() -> dict[str, str]:
    return trigger_sources(on_apsw(traced=False).connection)


@pytest.fixture
def whole_suite(request: pytest.FixtureRequest) -> None:
    """Skips the test unless this process runs all tests of the SQL."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("asked when all processes that share the tests have ended")
    if not is_whole(request.session):
        pytest.skip("only a part of the tests of the SQL was run")


@pytest.mark.usefixtures("whole_suite")
def test_every_trigger_was_seen_to_act() -> None:
    assert never_acted() == []


@pytest.mark.usefixtures("whole_suite")
def test_every_when_was_seen_to_hold_its_trigger_back() -> None:
    assert never_held_back() == []


@pytest.mark.usefixtures("whole_suite")
def test_every_named_constraint_was_seen_to_refuse() -> None:
    assert never_refused() == []
