"""A process that can open no more files is told that, and health() answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no limit to set")

PROGRAM = """
import json, logging, os, resource, sys
from litejobs import LiteJobs, cron

folder, spare = sys.argv[1], int(sys.argv[2])
logging.basicConfig(level=logging.CRITICAL)
jobs = LiteJobs(folder + "/jobs.db")

@jobs.task
def note(): ...

note.enqueue()
if spare:
    jobs.drain()
jobs.backup(folder + "/old.db")
asked = {
    "counts": jobs.counts,
    "list": jobs.list,
    "enqueue": note.enqueue,
    "drain": jobs.drain,
    "health": jobs.health,
    "another": lambda: LiteJobs(folder + "/other.db").open(),
    "backup": lambda: jobs.backup(folder + "/copy.db"),
    "restore": lambda: jobs.restore(folder + "/old.db"),
    "running": lambda: jobs.start(threads=1) and jobs.stop(),
    "zone": lambda: cron("@daily", "Pacific/Chatham"),
}
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
held, found = [], {}
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    for each in held[:spare]:
        os.close(each)
    del held[:spare]
for name, ask in asked.items():
    try:
        found[name] = ["", repr(ask())]
    except Exception as error:
        found[name] = [type(error).__name__, str(error)]
for each in held:
    os.close(each)
found["afterwards"] = ["", repr(note.enqueue().state)]
print(json.dumps(found))
"""


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_who_can_open_no_more_files_is_told_that(tmp_path: Path, spare: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(spare)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found.pop("afterwards") == ["", "'pending'"]
    kind, told = found.pop("health")
    assert kind == ""
    if spare == 0:
        assert "'healthy': False" in told
        assert "too many open files" in told
        assert found["zone"][0] == "ConfigurationError"
    assert found["another"][0] == "FileRefused"
    for name, (kind, told) in found.items():
        if kind:
            assert "too many open files" in told.lower(), name
            assert "permission" not in told, name
            # A module that is imported only now is Python's to read.
            assert kind in {"FileRefused", "ConfigurationError"} or ".py'" in told, name
