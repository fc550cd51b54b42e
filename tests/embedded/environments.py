"""Environments with real programs, which are kept for the next run."""

from __future__ import annotations

import contextlib
import functools
import getpass
import hashlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = Path(tempfile.gettempdir()) / f"litejobs-embedded-{getpass.getuser()}"
OURS = ("litejobs", "sql", "pyproject.toml", "README.md", "LICENSE")
PATIENCE = 600  # seconds, for pip, and for another process that installs the same


def python_with(*packages: str, python: str = sys.executable) -> Path:
    """The Python of an environment that has these packages, and litejobs as it is now.

    The programs of the packages lie beside it. litejobs is installed there as from a
    wheel: what is packed is what a user has. The environment is kept, in the folder for
    temporary files, for the same checkout, Python and packages. Where pip cannot get a
    package the test is skipped.
    """
    asked = "\n".join((str(ROOT), python, *sorted(packages)))
    place = KEPT / hashlib.sha256(asked.encode()).hexdigest()[:16]
    KEPT.mkdir(mode=0o700, exist_ok=True)
    with _alone(place):
        found = _python_of(place)
        if not (place / "packages").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([python, "-m", "venv", place], check=True)
            done = _pip(found, "install", *packages, *_needs())
            if done.returncode != 0:
                shutil.rmtree(place, ignore_errors=True)
                last = done.stderr.strip().splitlines()[-1:]
                pytest.skip(f"{', '.join(packages)} cannot be installed: {last}")
            (place / "packages").write_text(asked, "utf-8")
        stamp = place / "litejobs"
        if not stamp.exists() or stamp.read_text("ascii") != _state():
            stamp.unlink(missing_ok=True)
            install = ("install", "--no-deps", "--force-reinstall", str(ROOT))
            done = _pip(found, *install)
            assert done.returncode == 0, done.stderr
            stamp.write_text(_state(), "ascii")
    return found


def _python_of(place: Path) -> Path:
    if sys.platform == "win32":
        return place / "Scripts" / "python.exe"
    return place / "bin" / "python"


def _pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@functools.cache
def _needs() -> tuple[str, ...]:
    """What litejobs itself needs."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tuple(tomllib.load(file)["project"]["dependencies"])


@functools.cache
def _state() -> str:
    """What is installed, in short: another one if any of its files is different."""
    found = hashlib.sha256()
    for name in OURS:
        whole = ROOT / name
        files = [whole] if whole.is_file() else sorted(whole.rglob("*.*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return found.hexdigest()


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """No other process installs there; a lock that ends with its process."""
    lock = place.with_suffix(".lock")
    with contextlib.closing(sqlite3.connect(lock, timeout=PATIENCE)) as held:
        held.execute("begin exclusive")
        yield
