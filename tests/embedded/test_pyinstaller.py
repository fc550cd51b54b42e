"""A program that PyInstaller has frozen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import litejobs
from tests.embedded.environments import python_with

pytestmark = pytest.mark.embedded

PACKAGES = ("pyinstaller==6.22.3", "pyinstaller-hooks-contrib==2026.9")


def test_a_program_without_jobs_is_frozen(tmp_path: Path) -> None:
    """What is said of litejobs in the other tests is not PyInstaller's own."""
    python = python_with(*PACKAGES)
    (tmp_path / "plain.py").write_text("import litejobs\nprint(litejobs.__version__)\n")
    freeze = [python, "-m", "PyInstaller", "--onedir", "--log-level", "ERROR"]
    subprocess.run([*freeze, "plain.py"], cwd=tmp_path, check=True)
    program = tmp_path / "dist" / "plain" / "plain"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == litejobs.__version__
