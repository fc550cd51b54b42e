"""What the tests promise of themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import MOST

STUCK = """
import threading
import pytest

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

def test_fails(stuck):
    assert 0
"""


def test_end_of_a_failed_test_is_not_waited_for_without_limit(tmp_path: Path) -> None:
    (tmp_path / "test_stuck.py").write_text(STUCK)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfaulthandler_timeout = 0.2\nfaulthandler_exit_on_timeout = true\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=MOST,
        check=False,
    )
    assert "in stuck" in done.stderr, done.stdout
    assert done.returncode == 1
