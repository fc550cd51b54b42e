"""Supervisors of docs/deploy.md: a stop loses nothing, and the next start goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from tests.embedded.environments import KEPT, PATIENCE, ROOT, python_with
from tests.servers.serving import ON_LINUX, is_alive, session
from tests.waiting import LONG, eventually

pytestmark = [pytest.mark.embedded, ON_LINUX]

PACKAGES = ("supervisor==4.3.0", "circus==0.19.0", "honcho==2.0.0")
PROGRAM = """
import os
import sys
import time
from litejobs import LiteJobs

jobs = LiteJobs("jobs.db")


@jobs.task
def write(number: int) -> int:
    time.sleep(0.01)
    return number


@jobs.task
def long() -> bool:
    try:
        open("begun", "x").close()
    except FileExistsError:
        return sys.stdin is None or not sys.stdin.isatty()
    time.sleep(600)


if __name__ == "__main__":
    long.enqueue()
    jobs.enqueue_many(write.call(each) for each in range(1000))
"""
RUN = "{bin}/litejobs run app:jobs --threads 2 --grace 1s"
SUPERVISORD = f"""
[supervisord]
nodaemon=true
[program:jobs]
command={RUN}
stopwaitsecs=10
"""
CIRCUS = f"""
[watcher:jobs]
cmd = {RUN}
graceful_timeout = 10
copy_env = True
"""
PM2 = """
module.exports = {apps: [{
    name: "jobs", script: "{bin}/litejobs", interpreter: "{bin}/python",
    args: "run app:jobs --threads 2 --grace 1s", kill_timeout: 5000,
}]}
"""
SCRIPT = f"#!/bin/sh\nexec {RUN}\n"


class Supervised(NamedTuple):
    """What it reads, what is run, with which code that ends, and what brings it."""

    file: str
    text: str
    command: str
    code: int = 0
    needs: str = ""


SUPERVISORS = {
    "none": Supervised("unused", "", RUN),
    "supervisord": Supervised(
        "supervisord.conf", SUPERVISORD, "{bin}/supervisord -c supervisord.conf"
    ),
    "circus": Supervised("circus.ini", CIRCUS, "{bin}/circusd circus.ini"),
    "honcho": Supervised(
        "Procfile", f"jobs: exec {RUN}\n", "{bin}/honcho start", code=143
    ),
    "pm2": Supervised(
        "pm2.config.js", PM2, "{npm}/pm2-runtime start pm2.config.js", needs="npm"
    ),
    "runit": Supervised("jobs/run", SCRIPT, "runsv jobs", needs="runsv"),
    "s6": Supervised("jobs/run", SCRIPT, "s6-supervise jobs", needs="s6-supervise"),
    "tini": Supervised("unused", "", f"tini -- {RUN}", needs="tini"),
}


@pytest.mark.parametrize("name", SUPERVISORS)
def test_stop_under_load_loses_nothing_and_the_next_start_goes_on(
    tmp_path: Path, name: str
) -> None:
    chosen = SUPERVISORS[name]
    if chosen.needs and shutil.which(chosen.needs) is None:
        pytest.skip(f"{chosen.needs} is not installed")
    python = python_with(*PACKAGES)
    places = {"{bin}": str(python.parent), "{npm}": _pm2() if name == "pm2" else ""}
    (tmp_path / "app.py").write_text(PROGRAM)
    file = tmp_path / chosen.file
    file.parent.mkdir(exist_ok=True)
    file.write_text(_placed(chosen.text, places))
    file.chmod(0o755)
    command = _placed(chosen.command, places).split()
    if name in {"runit", "s6"}:
        # They go to the folder of the service.
        shutil.copy(tmp_path / "app.py", file.parent)
    where = file.parent
    subprocess.run([python, "app.py"], cwd=where, check=True)

    def states() -> dict[str, int]:
        db = apsw.Connection(str(where / "jobs.db"))
        try:
            db.set_busy_timeout(LONG * 1000)
            query = "select state, count(*) from litejobs_job group by state"
            return dict(db.execute(query).fetchall())
        finally:
            db.close()

    assert chosen.code == _ended(
        command,
        tmp_path,
        lambda: (where / "begun").exists() and "completed" in states(),
    )
    found = states()
    assert set(found) == {"completed", "pending"}, found
    assert _attempts(where) == {("interrupted", 1), ("ok", found["completed"])}
    assert chosen.code == _ended(
        command, tmp_path, lambda: states() == {"completed": 1001}
    )
    assert _attempts(where) == {("interrupted", 1), ("ok", 1001)}


def _ended(command: list[str], folder: Path, ready: Callable[[], bool]) -> int:
    """It was started without a terminal, told to end when *ready*, and has ended."""
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PM2_HOME": str(folder / "pm2")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(ready)
        process.terminate()
        code = process.wait(LONG)
        eventually(lambda: not any(map(is_alive, session(process.pid))))
    except BaseException as error:
        error.add_note((folder / "log").read_text())
        raise
    finally:
        for pid in session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(LONG)
    return code


def _attempts(folder: Path) -> set[tuple[str, int]]:
    """How attempts have ended; those that were claimed and not begun left aside."""
    db = apsw.Connection(str(folder / "jobs.db"))
    try:
        return set(
            db.execute(
                "select status, count(*) from litejobs_attempt where coalesce("
                "outcome ->> '$.error.message', '') "
                "<> 'it was claimed ahead and not begun' group by status"
            ).fetchall()
        )
    finally:
        db.close()


def _placed(text: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        text = text.replace(name, place)
    return text


def _pm2() -> str:
    """The folder of its programs; the test is skipped where npm cannot get it."""
    folder = KEPT / "pm2-7.0.4"
    found = folder / "node_modules" / ".bin"
    if not (found / "pm2-runtime").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        done = subprocess.run(
            ["npm", "install", "--silent", "pm2@7.0.4"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        if done.returncode != 0:
            pytest.skip(f"npm cannot get pm2: {done.stderr[-200:]}")
    return str(found)


UNIT = ROOT / "docs" / "deploy.md"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)
def test_unit_of_the_docs_is_one_for_systemd(tmp_path: Path) -> None:
    text = UNIT.read_text()
    unit = text[text.index("[Unit]") :].partition("```")[0]
    assert "KillMode=mixed" in unit
    unit = unit.replace("/srv/app/venv/bin/litejobs", "/bin/true")
    unit = unit.replace("/srv/app", "/").replace("User=app", "User=root")
    (tmp_path / "jobs.service").write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "jobs.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [each for each in done.stderr.splitlines() if "jobs.service" in each]
    assert ours == []


def test_the_docs_have_a_row_for_each_supervisor() -> None:
    text = UNIT.read_text()
    for name in SUPERVISORS.keys() - {"none"} | {"systemd"}:
        assert f"\n| {name}" in text
