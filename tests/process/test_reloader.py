"""`litejobs run --reload`: what runs is the code as it is, after each change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from litejobs import LiteJobs
from litejobs._process import reloader
from tests.waiting import MOST, Times, eventually

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="not there on Windows")

APPLICATION = """
import os
from litejobs import LiteJobs
import part

jobs = LiteJobs("jobs.db")

@jobs.task
def work():
    print(part.WORD, os.getpid(), flush=True)

@jobs.task
def wait():
    print("begun", flush=True)
    os.read(0, 1)
    print("ended", flush=True)
"""


class Reloading:
    """`litejobs run app:jobs --reload`, and what it says."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        if not (folder / "app.py").exists():
            (folder / "app.py").write_text(APPLICATION)
            self.write("first")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "litejobs", "run", "app:jobs", "--reload", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Who waits for what it never says waits for its end.
        self.limit = threading.Timer(MOST, self.process.kill)
        self.limit.daemon = True
        self.limit.start()
        self.jobs = LiteJobs(folder / "jobs.db")

    def end(self) -> None:
        """It was killed, and its child, which has its pipes, too, ends by itself."""
        self.limit.cancel()
        self.jobs.close()
        self.process.kill()
        self.process.communicate(timeout=MOST)

    def write(self, word: str, text: str = "WORD = {!r}\n") -> None:
        """As editors do: another file takes the name."""
        new = self.folder / "part.new"
        new.write_text(text.format(word))
        new.replace(self.folder / "part.py")

    def said(self) -> str:
        return _line(self.process.stdout)

    def logged(self, text: str) -> str:
        while text not in (line := _line(self.process.stderr)):
            pass
        return line


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline()
    if not line:
        pytest.fail("it has ended")
    return line


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Any]:
    started: list[Reloading] = []

    def start(*options: str) -> Reloading:
        started.append(Reloading(tmp_path, *options))
        started[-1].logged("runner started")
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize("changes", [2, pytest.param(10, marks=pytest.mark.torture)])
def test_new_body_runs_after_each_of_many_changes(reloading: Any, changes: int) -> None:
    """Of one size, and within a second, as bytecode is not told apart."""
    runner = reloading()
    processes = set()
    for number in range(changes):
        runner.write(f"word{number}")
        assert runner.logged("changed").endswith("part.py has changed: starting anew\n")
        runner.logged("runner started")
        runner.jobs.enqueue("work")
        word, process = runner.said().split()
        assert word == f"word{number}"
        processes.add(process)
    assert len(processes) == changes
    runner.process.send_signal(signal.SIGTERM)
    assert runner.process.wait(60) == 0


def test_what_runs_may_end_before_the_new_code_begins(reloading: Any) -> None:
    runner = reloading("--grace", "1h")
    job = runner.jobs.enqueue("wait")
    assert runner.said() == "begun\n"
    runner.write("second")
    runner.logged("SIGTERM: stopping; running jobs have 3600 s")
    runner.process.stdin.write("x")
    runner.process.stdin.flush()
    assert runner.said() == "ended\n"
    runner.logged("runner started")
    assert runner.jobs.get(job.id).state == "completed"
    assert [each.status for each in runner.jobs.get(job.id).attempts] == ["ok"]


def test_code_that_cannot_be_imported_is_waited_for(reloading: Any) -> None:
    runner = reloading()
    for wrong in ("WORD = (", "WORD = 1 / 0\n", "import sys; sys.exit(3)\n"):
        runner.write("", wrong)
        runner.logged("Error: ")
        line = runner.logged("started anew when")
        assert "the process has ended with code 2; it is started anew when the" in line
    runner.write("right")
    runner.logged("runner started")
    runner.jobs.enqueue("work")
    assert runner.said().startswith("right ")


def test_process_that_is_killed_is_started_anew_when_the_code_changes(
    reloading: Any,
) -> None:
    """And one whose parent is killed stops."""
    runner = reloading()
    runner.jobs.enqueue("work")
    os.kill(int(runner.said().split()[1]), signal.SIGKILL)
    assert "the process was ended by SIGKILL; it is started anew" in runner.logged(
        "end"
    )
    runner.write("second")
    runner.logged("runner started")
    runner.process.kill()
    runner.process.wait(60)
    runner.logged("SIGTERM: stopping")
    runner.logged("stopped")


def test_first_start_may_fail_too(tmp_path: Path) -> None:
    """But where nothing was found that could change, there is nothing to wait for."""
    ended = subprocess.run(
        [sys.executable, "-m", "litejobs", "run", "nothing:jobs", "--reload"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "there is no module 'nothing' in " in ended.stderr


def test_run_until_empty_ends_the_reloader_too(reloading: Any) -> None:
    runner = reloading("--until-empty")
    runner.logged("nothing is due and nothing runs")
    assert runner.process.wait(60) == 0


def test_refusal_ends_it(reloading: Any, tmp_path: Path) -> None:
    """Other code would be refused as well: another process runs the jobs."""
    first = reloading()
    second = Reloading(tmp_path)
    try:
        assert "already runs the jobs of jobs.db" in second.logged("Error: ")
        assert second.process.wait(60) == 1
    finally:
        second.end()
    assert first.process.poll() is None


# Without an end -----------------------------------------------------------------------


def test_code_that_changes_for_ever_is_taken_as_it_is(
    tmp_path: Path,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The program writes to a file from which it has imported, say."""
    times(settle_patience=0.01)
    name = str(tmp_path / "part.py")
    sizes = iter(range(10**9))
    monkeypatch.setattr(reloader, "_signature", lambda name: (0, next(sizes), 0))
    reloader._wait_until_settled([name])
    assert "part.py has not been left alone for 0.01 s" in caplog.text


STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"ready")
while True:
    signal.pause()
"""


@pytest.mark.parametrize("how", ["stop", "end"])
def test_a_child_that_does_not_end_is_told_of_or_killed(
    how: str,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where it was asked to stop it has the grace of its tasks, which it knows."""
    times(reloader_patience=0.01)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", STUBBORN])
    reads, writes = os.pipe()
    begin = subprocess.Popen

    def begun(*args: Any, **kwargs: Any) -> Any:
        return begin(*args, stdout=writes, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", begun)
    child = reloader._Child()
    os.close(writes)
    assert os.read(reads, 100) == b"ready"
    os.close(reads)
    if how == "end":
        child.end()
        assert "is killed" in caplog.text
    else:
        stopping = threading.Thread(target=child.stop, args=([],))
        stopping.start()
        eventually(lambda: "which is to end, goes on" in caplog.text)
        child._process.kill()
        stopping.join(MOST)
    assert child.has_ended()
    child.end()
