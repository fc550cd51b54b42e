"""A real server in processes of its own, its clients, and what its jobs file says."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._storage import byte_locks
from tests.waiting import LONG, eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="looks at processes and locks in /proc"
)
PYTHON = sys.executable
UVICORN = (PYTHON, "-m", "uvicorn", "--host", "127.0.0.1")
GUNICORN = (PYTHON, "-m", "gunicorn", "--graceful-timeout", "10")
FLASK = (PYTHON, "-m", "flask", "--app")


def free_port() -> int:
    """One that nobody has; each server of a test has another one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Refused(Exception):
    """The server was not there, or has broken the connection off."""


class Server:
    """A program that serves letters, in a session of its own.

    `{port}` in the command is the port. The module of the program is a copy in
    *folder*, which a test may change.
    """

    def __init__(self, folder: Path, module: str, *command: str, **env: str) -> None:
        self.folder = folder
        self.program = folder / f"{module}.py"
        if not self.program.exists():
            shutil.copy(EXAMPLES / f"{module}.py", self.program)
        self.path = folder / "jobs.db"
        self.port = free_port()
        self.log = folder / "server.log"
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "LITEJOBS_DB": str(self.path),
            "PORT": str(self.port),
            **env,
        }
        self._command = [each.format(port=self.port) for each in command]
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: apsw.Connection | None = None

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually(self.is_ready)
        except BaseException as error:
            self.__exit__()
            error.add_note(self.log.read_text())
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(LONG)

    @property
    def pid(self) -> int:
        """The process that was started."""
        assert self._process is not None
        return self._process.pid

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command of the same program has ended, in the same place."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )

    # What a client sees

    def ask(self, method: str, path: str) -> tuple[int, Any]:
        """The status and the document of an answer.

        Raises:
            Refused: There is none.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise Refused(repr(error)) from error
        finally:
            connection.close()
        if answer.status >= 400:
            return answer.status, body
        try:
            return answer.status, json.loads(body)
        except ValueError:
            raise Refused(f"the answer breaks off after {body!r}") from None

    def is_ready(self) -> bool:
        """Whether it answers; an assertion error if it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            status, document = self.ask("GET", "/health")
        except Refused:
            return False
        assert status == 200, document
        return True

    def order(self, name: str) -> int:
        """A letter is ordered; its number."""
        status, document = self.ask("POST", f"/letters?name={name}")
        assert status == 202, (document, self.log.read_text())
        number: int = document["id"]
        return number

    def letter(self, number: int) -> Any:
        """Its text, once it is written."""
        found: list[Any] = []

        def is_written() -> bool:
            try:
                status, document = self.ask("GET", f"/letters/{number}")
            except Refused:
                return False
            assert status == 200, document
            found[:] = [document["result"]]
            return bool(document["state"] == "completed")

        eventually(is_written)
        return found[0]

    # What the system and the file see

    def processes(self) -> set[int]:
        """All that live of those that it has started."""
        return {pid for pid in session(self.pid) if is_alive(pid)}

    def runner(self) -> int | None:
        """The process that has the runner's lock."""
        path = Path(f"{self.path}.runner")
        if not path.exists():
            return None
        file = byte_locks.opened(path, make=False)
        if file is None:
            return None
        try:
            return file.holder(0)
        finally:
            file.close_if_free()

    def has(self, *, standbys: int) -> bool:
        """Whether one runs the jobs, so many stand by, and the file says the same."""
        if self._reader is None:
            # Kept: to read the schema takes longer than what is asked.
            LiteJobs(self.path).open().close()  # no worker may have been there yet
            flags = apsw.SQLITE_OPEN_READWRITE
            self._reader = apsw.Connection(str(self.path), flags)
            self._reader.set_busy_timeout(LONG * 1000)
        db = self._reader
        standing = db.execute("select pid from litejobs_standby").fetchall()
        running = db.execute(
            "select pid from litejobs_runner where stopped_at is null"
        ).fetchall()
        pids = {pid for (pid,) in standing}
        return (
            len(standing) == len(pids) == standbys
            and running == [(self.runner(),)]
            and pids | {running[0][0]} <= self.processes()
            and running[0][0] not in pids
        )

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """It was told to end, and has: no process is left; its exit code."""
        assert self._process is not None
        self._process.send_signal(how)
        code = self._process.wait(LONG)
        eventually(lambda: not self.processes())
        assert self.runner() is None
        return code


def session(leader: int) -> Iterator[int]:
    """The processes of the session, whoever their parents are."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(each.name)) == leader:
                    yield int(each.name)


def is_alive(pid: int) -> bool:
    """Whether it runs, and has not only left its exit code."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def has_died(pid: int) -> bool:
    """It was killed, at once; True when it is gone."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid))
    return True


class Load:
    """Clients that order letters one after the other, and remember which."""

    def __init__(self, server: Server, clients: int = 3, pause: float = 0.05) -> None:
        self._server = server
        self._pause = pause
        self._ends = threading.Event()
        self.ordered: list[int] = []
        self.refused = 0
        self.wrong: list[object] = []
        self._threads = [
            threading.Thread(target=self._order, args=(number,))
            for number in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(LONG)

    def _order(self, client: int) -> None:
        count = 0
        while not self._ends.wait(self._pause):
            count += 1
            try:
                self.ordered.append(self._server.order(f"{client}-{count}"))
            except Refused:
                self.refused += 1
            except BaseException as error:
                self.wrong.append(error)

    def goes_on(self, more: int = 20) -> None:
        """Return when so many more letters are ordered."""
        until = len(self.ordered) + more
        eventually(lambda: self.wrong or len(self.ordered) >= until)
        assert self.wrong == []


def assert_each_is_written_once(
    server: Server, ordered: Sequence[int], *, deaths: bool = False
) -> None:
    """What was ordered is completed, once each; others of its attempts died."""
    assert len(set(ordered)) == len(ordered)

    def open_jobs(jobs: LiteJobs) -> list[Any]:
        if deaths:
            # Nobody waits here for the pause after a crash.
            with jobs.transaction() as db:
                db.execute(
                    "update litejobs_job set state = 'pending' where state = 'failed'"
                )
        with jobs.reader() as db:
            query = "select id, state from litejobs_job where state <> 'completed'"
            return db.execute(query).fetchall()

    with LiteJobs(server.path) as jobs:
        eventually(lambda: not open_jobs(jobs))
        with jobs.reader() as db:
            stored = {each for (each,) in db.execute("select id from litejobs_job")}
            outcomes = Counter(
                db.execute(
                    # What was claimed ahead is given back where a machine is busy.
                    "select job_id, case when outcome ->> '$.error.message' "
                    "= 'it was claimed ahead and not begun' then 'given back' "
                    "else status end from litejobs_attempt"
                ).fetchall()
            )
    assert set(ordered) <= stored
    kinds = {outcome for _, outcome in outcomes}
    told = [each for each, _ in outcomes if each in stored]
    assert set(told) == stored
    died = {"crashed", "interrupted"} if deaths else set()
    assert kinds <= {"ok", "given back"} | died, kinds
    assert dict.fromkeys(stored, 1) == {
        each: count for (each, outcome), count in outcomes.items() if outcome == "ok"
    }
