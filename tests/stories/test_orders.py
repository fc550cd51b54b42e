"""The example with tests of its own: they pass, whoever runs them and however often."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.libraries import needs
from tests.servers.serving import ON_LINUX, UVICORN, Server
from tests.waiting import LONG, eventually

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "orders"
# The plugin comes by itself where litejobs is installed. What the client that FastAPI
# gives to tests says of its own libraries is nothing about the example.
OPTIONS = [
    *("-q", "-p", "litejobs.testing.plugin", "-p", "no:cacheprovider"),
    *("-W", "error", "-W", "ignore:Using `httpx`", "-W", "ignore:Module already"),
]

# Those in which most of the application runs.
PART = ["tests/test_faults.py", "tests/test_server.py", "tests/test_with_unittest.py"]

# Again in one process, with the same modules, and no thread is left behind.
TWICE = """
import sys, threading, pytest

before = set(threading.enumerate())
again = sys.argv.index("AGAIN")
for given in sys.argv[1:again], [*sys.argv[1:again], *sys.argv[again + 1:]]:
    if pytest.main(given):
        sys.exit("the suite fails")
new = set(threading.enumerate()) - before
for each in new:
    each.join(60)
sys.exit(f"threads are left: {new}" if any(each.is_alive() for each in new) else 0)
"""

pytestmark = [needs("fastapi"), needs("httpx")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.db*")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "orders", ignore=ignored))


def passed(folder: Path, *command: str) -> list[int]:
    """How many tests each run of the suite has passed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder.parent)},
        capture_output=True,
        text=True,
        timeout=10 * LONG,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        int(each) for each in re.findall(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    ]


HOW_MUCH = pytest.mark.parametrize(
    ("part", "least"),
    [
        pytest.param(PART, 7, id="part"),
        pytest.param([], 20, id="all", marks=pytest.mark.torture),
    ],
)


@HOW_MUCH
def test_its_suite_passes_in_two_processes_at_once(
    folder: Path, part: list[str], least: int
) -> None:
    before = sorted(folder.rglob("*.db*"))
    [count] = passed(folder, "-m", "pytest", *OPTIONS, "-n", "2", *part)
    assert count >= least
    # No test has touched the file of the application.
    assert sorted(folder.rglob("*.db*")) == before == []


@HOW_MUCH
def test_its_suite_passes_twice_in_one_process_and_leaves_no_thread(
    folder: Path, part: list[str], least: int
) -> None:
    first, second = passed(folder, "-c", TWICE, *OPTIONS, "AGAIN", *part)
    assert first >= 20
    assert second >= least
    assert part or first == second
    assert sorted(folder.rglob("*.db*")) == []


@ON_LINUX
@needs("uvicorn")
def test_it_answers_what_its_docstring_shows(folder: Path) -> None:
    docstring = (folder / "shop.py").read_text("utf-8").split('"""')[1]
    found = re.findall(
        r"localhost:8000([^\s']+)|^    (\{.*\})$", docstring, re.MULTILINE
    )
    [(first, _), (_, placed), (second, _), (_, paid)] = found
    with Server(folder, "shop", *UVICORN, "--port={port}", "shop:app") as server:
        assert server.ask("POST", first) == (202, json.loads(placed))
        eventually(lambda: server.ask("GET", second) == (200, json.loads(paid)))
        server.end()


def test_its_suite_uses_all_that_is_for_tests() -> None:
    text = "".join(each.read_text("utf-8") for each in EXAMPLE.glob("tests/*.py"))
    for name in [
        *("assert_enqueued(", "refute_enqueued(", "all_enqueued(", "with enqueued("),
        *("perform(", "drain(", "inline(", "step(", "advance(", "running_as("),
        *("faults(", "litejobs_clock.set(", "litejobs_db", "LiteJobsTestCase"),
        *("litejobs_isolation(", "async def test_", "raising=True"),
    ]:
        assert name in text, name
