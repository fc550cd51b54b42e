"""Applications whose tests are run, and runs of pytest that have nothing of ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import litejobs
from litejobs.testing import plugin

pytest_plugins = ["pytester"]

ROOT = str(Path(litejobs.__file__).parents[1])

Suite = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of pytest loads what it is told to: others take half of its start.

    That this plugin is loaded without being named is tested in tests/process.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Suite:
    """Runs the files given by name as a suite in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([ROOT, str(pytester.path)]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(*options: str, ini: str = "", **files: str) -> pytest.RunResult:
        pytester.makeini(f"[pytest]\n{ini}")
        pytester.makepyfile(**files)
        loaded = ["-p", plugin.__name__, "-p", "no:cacheprovider", "-W", "error"]
        return pytester.runpytest_subprocess(*loaded, *options)

    return run


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """As many threads run after the test as before."""
    before = set(threading.enumerate())
    yield
    left = [each.name for each in set(threading.enumerate()) - before]
    assert not left
