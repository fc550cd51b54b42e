"""What the SQL does without: tools/wings.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "wings.py"


@pytest.fixture(scope="module")
def wings() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_no_wing_of_the_sql_is_worse_than_recorded(
    wings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that became smaller is recorded there, so that it stays so."""
    worse = wings["main"]([])
    printed = capsys.readouterr()
    assert not worse, printed.err
    assert "better" not in printed.out, printed.out


def test_what_the_core_cannot_do_without_is_seen(wings: dict[str, Any]) -> None:
    assert wings["failing"]("") == {}
    wings["WINGS"]["words"] = ("logic/words/",)
    assert "block" in wings["failing"]("words")
