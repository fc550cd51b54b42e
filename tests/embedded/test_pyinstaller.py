"""A program that PyInstaller has frozen, with no option about litejobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.embedded.programs import ALL_WORKS, by_pyinstaller, steps

pytestmark = pytest.mark.embedded


def test_a_frozen_program_does_all_that_it_did(tmp_path: Path) -> None:
    """As a folder, and on a system without time zones of its own."""
    program = by_pyinstaller(tmp_path, "--onedir") / "app"
    assert steps([program], tmp_path / "run", PYTHONTZPATH="") == [
        *ALL_WORKS,
        *["extra inotify_simple"] * (sys.platform == "linux"),
        "extra tzdata",
    ]
