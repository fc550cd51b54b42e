"""The program that is packed, and what it says where all of it works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.embedded.environments import python_with

SOURCES = Path(__file__).parent / "program"

ALL_WORKS = [
    "double 42",
    "retry 2",
    "frames 1",  # of the task alone, none of ours
    "cron True",
    "upcoming 9",
    "process True",
    "versions 2",
    "command 0",
]


def sources_in(folder: Path) -> Path:
    """The modules of the program, copied there."""
    return shutil.copytree(SOURCES, folder / "program")


def by_pyinstaller(folder: Path, *options: str) -> Path:
    """The program, as PyInstaller freezes it with no option about litejobs."""
    if sys.platform == "linux" and not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("PyInstaller needs a Python with a shared library")
    python = python_with(
        "pyinstaller==6.22.3",
        "pyinstaller-hooks-contrib==2026.9",
        "inotify_simple==2.0.1; platform_system == 'Linux'",
        "tzdata==2026.6",
    )
    command = [python, "-m", "PyInstaller", "--log-level", "ERROR", *options, "app.py"]
    sources = sources_in(folder)
    subprocess.run(command, cwd=sources, check=True)
    return sources / "dist" / "app"


def steps(command: list[str | Path], folder: Path, **env: str) -> list[str]:
    """What the program prints of its steps; it runs in this folder, which is made."""
    folder.mkdir()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    known = {"extra", "beside", *(line.split()[0] for line in ALL_WORKS)}
    found = [line for line in done.stdout.splitlines() if line.split()[0] in known]
    assert found, done.stderr
    return found
