"""Programs in which gevent has replaced threads, or what goes with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.embedded.environments import python_with
from tests.embedded.greenlets import WORK, check_each_way

pytestmark = pytest.mark.embedded

PACKAGES = ("gevent==26.9.0",)


def test_jobs_run_whichever_parts_were_replaced(tmp_path: Path) -> None:
    check_each_way(python_with(*PACKAGES), tmp_path, "gevent")


@pytest.mark.parametrize("given", ["", "thread=False"])
def test_the_command_line_runs_them(tmp_path: Path, given: str) -> None:
    patch = f"from gevent import monkey\nmonkey.patch_all({given})\n"
    asks = "add.enqueue(1, 2)\nwhere.enqueue()\nawaits.enqueue()\n"
    (tmp_path / "work.py").write_text(f"{patch}{WORK}", "utf-8")
    (tmp_path / "asks.py").write_text(f"from work import *\n{asks}", "utf-8")
    environment = os.environ | {"JOBS_DB": str(tmp_path / "app.db")}
    python = python_with(*PACKAGES)
    for command in (
        ["asks.py"],
        ["-m", "litejobs", "run", "work:jobs", "--until-empty"],
    ):
        subprocess.run(
            [python, *command], cwd=tmp_path, env=environment, check=True, timeout=300
        )
    listed = subprocess.run(
        [python, "-m", "litejobs", "--db", "app.db", "list", "--state", "completed"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(task in listed for task in ("add", "where", "awaits")), listed
