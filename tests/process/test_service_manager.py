"""systemd, and who speaks as it does, is told how the runners of a process do."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from litejobs import LiteJobs
from litejobs._process import service_manager
from litejobs._process.service_manager import ServiceManager, State
from tests.waiting import LONG, eventually

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs sockets with names")


class Manager:
    """A service manager that has read what it was told, datagram by datagram."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(LONG)

    def told(self) -> list[str]:
        """The lines of the next datagram."""
        return self._socket.recv(4096).decode().split("\n")

    def hears(self, line: str) -> list[str]:
        """The next datagram that has this line."""
        while line not in (told := self.told()):
            pass
        return told

    def waits(self) -> list[list[str]]:
        """What there is to be read now."""
        found = []
        self._socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.told())
        self._socket.settimeout(LONG)
        return found

    def close(self) -> None:
        self._socket.close()


def addresses() -> list[str]:
    return ["file", *(["abstract"] if sys.platform == "linux" else [])]


@pytest.fixture(params=addresses())
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "abstract":
        return f"@litejobs-test-{secrets.token_hex(8)}"
    # A short one: its length is limited.
    return os.path.relpath(tmp_path / "notify")


@pytest.fixture
def manager(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """The manager that this process has, which has not been told of anything."""
    found = Manager(address)
    monkeypatch.setenv(service_manager.ADDRESS, address)
    monkeypatch.delenv(service_manager.INTERVAL, raising=False)
    monkeypatch.delenv(service_manager.PROCESS, raising=False)
    ours = ServiceManager()
    for module in ("_process.program_end", "_runner.service"):
        monkeypatch.setattr(f"litejobs.{module}.manager", ours)
    yield found
    # Its thread stays to the end of the process, and hears of nothing any more.
    monkeypatch.setenv(service_manager.ADDRESS, "")
    found.close()


def test_runner_is_ready_and_says_what_it_does(
    manager: Manager, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        jobs.start()
        assert manager.hears("READY=1") == [
            "READY=1",
            f"STATUS=running the jobs of {path}",
        ]
        jobs.stop()
        told = manager.told()
        if told == [f"STATUS=the jobs of {path} are not run here"]:
            told = manager.told()  # it has looked while `stop` came to its end
        assert told == ["STATUS=no jobs are run here"]


def test_runner_that_was_stopped_is_well_before_it_is_forgotten(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        runner = jobs.start()
        service = jobs._service
        assert service.state() == State(True, True, f"running the jobs of {path}")
        runner.stop()
        assert service.runner is runner
        well = State(True, True, f"the jobs of {path} are not run here")
        assert service.state() == well


def test_standby_is_ready_and_says_that_it_stands_by(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as first, LiteJobs(path) as second:
        with monkeypatch.context() as patch:
            patch.delenv(service_manager.ADDRESS)
            first.start()
        second.start()
        assert manager.hears("READY=1") == [
            "READY=1",
            f"STATUS=standing by to run the jobs of {path}",
        ]
        first.stop()
        manager.hears(f"STATUS=running the jobs of {path}")


def test_status_is_one_line(manager: Manager, tmp_path: Path) -> None:
    path = tmp_path / "jo\nbs.db"
    with LiteJobs(path) as jobs, jobs.running():
        shown = str(path).replace("\n", "\\x0a")
        manager.hears(f"STATUS=running the jobs of {shown}")


class Runner:
    """One that is as the test says."""

    def __init__(self) -> None:
        self.now = State(True, True, "well")
        self.asked = threading.Semaphore(0)

    def state(self) -> State:
        self.asked.release()
        return self.now

    def is_asked_again(self) -> None:
        """Twice from now on: what was said the first time has been told."""
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(3):
            assert self.asked.acquire(timeout=LONG)


@pytest.fixture
def telling(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> ServiceManager:
    """One that is asked for a sign of life each 0.1 seconds."""
    monkeypatch.setenv(service_manager.INTERVAL, "100000")
    monkeypatch.setenv(service_manager.PROCESS, str(os.getpid()))
    return ServiceManager()


def test_sign_of_life_is_given_while_all_get_on(
    manager: Manager, telling: ServiceManager
) -> None:
    well, ill = Runner(), Runner()
    ill.now = State(True, False, "the loop is held up")
    telling.tell_of(well)
    manager.hears("WATCHDOG=1")
    manager.hears("WATCHDOG=1")
    telling.tell_of(ill)
    manager.hears("STATUS=well; the loop is held up")
    ill.is_asked_again()
    manager.waits()
    ill.is_asked_again()
    assert manager.waits() == []
    ill.now = State(True, True, "well")
    manager.hears("STATUS=well; well")
    manager.hears("WATCHDOG=1")


def test_program_that_stops_its_runner_lives_on(
    manager: Manager, telling: ServiceManager
) -> None:
    runner = Runner()
    telling.tell_of(runner)
    manager.hears("WATCHDOG=1")
    telling.forget(runner)
    manager.hears("STATUS=no jobs are run here")
    manager.hears("WATCHDOG=1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (service_manager.PROCESS, "1"),
        (service_manager.INTERVAL, "0"),
        (service_manager.INTERVAL, "soon"),
        (service_manager.INTERVAL, "-5"),
    ],
)
def test_no_sign_is_given_that_is_not_asked_for(
    manager: Manager,
    telling: ServiceManager,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    runner = Runner()
    runner.now = State(False, True, "starting")
    telling.tell_of(runner)
    assert manager.told() == ["STATUS=starting"]
    runner.is_asked_again()
    runner.now = State(True, True, "running")
    assert manager.told() == ["READY=1", "STATUS=running"]
    assert manager.waits() == []


def test_stopping_is_said_once_and_is_the_last_word(
    manager: Manager, telling: ServiceManager
) -> None:
    telling.stopping()  # nobody was told of anything
    runner = Runner()
    telling.tell_of(runner)
    manager.hears("READY=1")
    telling.stopping()
    telling.stopping()
    manager.hears("STOPPING=1")
    runner.now = State(False, False, "no longer running")
    runner.is_asked_again()
    said = [line for told in manager.waits() for line in told]
    assert set(said) <= {"WATCHDOG=1"}


def test_manager_that_is_not_there_is_a_warning_once(
    telling: ServiceManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(service_manager.ADDRESS, str(tmp_path / "nobody"))
    runner = Runner()
    telling.tell_of(runner)
    eventually(lambda: caplog.messages)
    runner.is_asked_again()
    [said] = caplog.messages
    assert said.startswith("the service manager cannot be told at NOTIFY_SOCKET=")


def test_runner_that_fails_to_say_how_it_does_gives_no_sign(
    manager: Manager, telling: ServiceManager, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Runner):
        def state(self) -> State:
            super().state()
            raise RuntimeError("no")

    broken = Broken()
    telling.tell_of(broken)
    broken.is_asked_again()
    assert manager.waits() == []
    assert "the service manager is not told how the runner does" in caplog.text


def test_nobody_is_told_where_nobody_asks(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(service_manager.ADDRESS)
    before = {each.name for each in threading.enumerate()}
    with LiteJobs(tmp_path / "jobs.db") as jobs, jobs.running():
        new = {each.name for each in threading.enumerate()} - before
        assert "litejobs-service-manager" not in new
    assert manager.waits() == []


APPLICATION = """
import os
from litejobs import LiteJobs
jobs = LiteJobs("jobs.db")
"""


def test_command_tells_from_its_start_to_its_end(
    manager: Manager, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    address = manager.address
    if not address.startswith("@"):
        address = str(Path(address).resolve())
    process = subprocess.Popen(
        [sys.executable, "-m", "litejobs", "run", "app:jobs"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            service_manager.ADDRESS: address,
            service_manager.INTERVAL: "200000",
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        path = tmp_path / "jobs.db"
        assert manager.hears("READY=1")[1] == f"STATUS=running the jobs of {path}"
        manager.hears("WATCHDOG=1")
        manager.hears("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        manager.hears("STOPPING=1")
        assert process.wait(LONG) == 0
    finally:
        process.kill()
        process.wait()
