"""What `watch` shows, read from the file again and again at little cost."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import click

from litejobs._process.sizes import SIZES
from litejobs.cli import printing
from litejobs.cli.file.reader import Reader
from litejobs.cli.output.waiting import waiting

Data = dict[str, Any]

MOST = 10_000  # lines of the log that are read
MOST_ROWS = 200  # of each section
MOST_ATTEMPTS = 20  # of the job that is looked at
MOST_EVENTS = 20  # of the same
RATE_MS = 10_000  # of the log that the first look counts
COUNTING = 50  # the queues are counted in at most one part in so many of the time
STALE = 5.0  # seconds after which is looked also where nothing was written
PAUSE = 5.0  # seconds after a look that has failed
PATIENCE = 0.5  # seconds for the last look, which is given up at the end


class Looker:
    """What the screen shows, read in short transactions that cost little.

    Queues with very many jobs are counted less often, so that counting takes no more
    than a fiftieth of the time.
    """

    def __init__(self, file: Reader) -> None:
        self._file = file
        self._real = os.path.realpath(file.path)
        self._stat = os.stat(self._real)
        self._data: Data = {}
        self._queues: list[Data] = []
        self._count_at = 0.0
        self._counted: int | None = None
        self._version: int | None = None
        self._asked: tuple[int | None, bool] = None, False
        self._looked_at = 0.0
        self._reasons: list[Data] = []
        self._reasons_at = 0.0
        self._line = -1  # of the log, up to which it was read; nothing was yet
        self._since_ms = 0

    def look(self, job_id: int | None = None, *, waiting: bool = False) -> Data:
        """What is so now, and all about that job, if one is given, as `about`.

        With *waiting* also what all that waits is waiting for, by that name.

        Where nothing was written since the last look, nothing is read for a while.

        Raises:
            LiteJobsError: The file cannot be read any more.
        """
        begun = time.monotonic()
        version = self._file.changes()
        fresh = begun - self._looked_at < STALE and bool(self._data)
        asked = job_id, waiting
        if fresh and (version, asked) == (self._version, self._asked):
            still = [{**row, "per_second": 0.0} for row in self._data["queues"]]
            self._data = {**self._data, "queues": still, "file": self._file_now()}
        else:
            self._data = self._read(job_id, version)
            if waiting:
                self._data["waiting"] = self._waiting()
            self._version, self._asked = version, asked
            self._looked_at = begun
        return self._data

    def count_now(self) -> None:
        """The next look counts anew; any thread may call this."""
        self._count_at = self._reasons_at = 0.0

    def stop(self) -> None:
        """The look that is being made is given up; any thread may call this."""
        self._file.connection.interrupt()

    def now(self) -> dt.datetime:
        """What the clock of the file shows."""
        return printing.at_ms(self._file.now_ms())

    def _read(self, job_id: int | None, version: int) -> Data:
        file, known = self._file, self._data.get("failures", [])
        log = {"after": self._line, "most": MOST}
        with file.together():
            now_ms = file.now_ms()
            since_ms = now_ms - RATE_MS if self._line < 0 else self._since_ms
            line = file.value("last_event")
            self._count(version)
            rates = {
                row["name"]: row["per_second"]
                for row in file.rows("watch_rates", since=since_ms, **log)
            }
            data = {
                "file": self._file_now(),
                "runner": self._runner(),
                "queues": [
                    {**row, "per_second": rates.get(row["name"], 0.0)}
                    for row in self._queues
                ],
                "running": _shown(file.rows("watch_running", limit=MOST_ROWS)),
                "failures": _shown(
                    file.rows(
                        "watch_failures",
                        known=json.dumps([row["id"] for row in known]),
                        limit=MOST_ROWS,
                        **log,
                    )
                ),
                "executors": _shown(file.rows("watch_executors", limit=MOST_ROWS)),
                "schedules": _shown(file.rows("watch_schedules", limit=MOST_ROWS)),
                "last_operation": file.row("watch_last_operation"),
            }
            if job_id is not None:
                data["about"] = self._about(job_id)
        self._line, self._since_ms = line, now_ms
        return data

    def _count(self, version: int) -> None:
        begun = time.monotonic()
        if version != self._counted and begun >= self._count_at:
            self._queues = _shown(
                self._file.rows(
                    "list_queues", name=None, most=SIZES.shown_count, limit=MOST_ROWS
                )
            )
            ended = time.monotonic()
            self._count_at = ended + COUNTING * (ended - begun)
            self._counted = version

    def _waiting(self) -> list[Data]:
        """By reason; as with the queues, not so often where that takes long."""
        begun = time.monotonic()
        if begun >= self._reasons_at:
            gone = self._runner_is_gone()
            self._reasons = waiting(self._file, gone=gone, limit=MOST_ROWS)
            ended = time.monotonic()
            self._reasons_at = ended + COUNTING * (ended - begun)
        return self._reasons

    def _runner(self) -> Data | None:
        row = self._file.row("watch_runner")
        if row is None:
            return None
        runner = printing.moments(row)
        if runner["queues"] is not None:
            # What is not a list any more, since somebody has written it, is shown so.
            with contextlib.suppress(ValueError, RecursionError):
                runner["queues"] = json.loads(runner["queues"])
        runner["gone"] = runner["stopped_at"] is None and self._is_gone()
        runner["standbys"] = self._standbys()
        return runner

    def _standbys(self) -> int:
        """How many processes wait for the runner's end; dead ones leave their rows."""
        rows = self._file.rows("standbys")
        if not rows:
            return 0
        from litejobs._storage.runner_lock import living_standbys

        return len(living_standbys(self._real, [each["id"] for each in rows]) or ())

    def _runner_is_gone(self) -> bool:
        runner = self._file.row("watch_runner")
        return runner is not None and runner["stopped_at"] is None and self._is_gone()

    def _is_gone(self) -> bool:
        """Whether nobody holds the runner's lock; what cannot be told counts as no."""
        from litejobs._storage.runner_lock import runner_lives

        return runner_lives(self._real) is False

    def _about(self, job_id: int) -> Data:
        row = self._file.row("get_job", id=job_id)
        attempts = self._file.rows("watch_attempts", id=job_id, limit=MOST_ATTEMPTS)
        events = self._file.rows("list_job_events", job_id=job_id, limit=MOST_EVENTS)
        why: list[Data] = []
        if row is not None:
            gone = row["finished_at"] is None and self._runner_is_gone()
            why = self._file.rows("explain_job_or_runner", id=job_id, gone=int(gone))
        return {
            "id": job_id,
            "job": None if row is None else printing.moments(row),
            "why": [printing.moments(each) for each in why],
            "attempts": [printing.moments(each) for each in attempts],
            "events": [printing.moments(each) for each in events],
        }

    def _file_now(self) -> Data:
        """Its sizes.

        Raises:
            FileRefused: Another file has its name now, or none.
        """
        from litejobs.errors import FileRefused

        try:
            found = os.stat(self._real)
            same = os.path.samestat(found, self._stat)
        except OSError:
            same = False
        if not same:
            raise FileRefused(
                f"{self._file.path} was deleted or replaced by another file; watch it "
                "anew"
            )
        try:
            log = os.stat(f"{self._real}-wal").st_size
        except OSError:
            log = 0
        return {
            "path": self._file.path,
            "size_bytes": found.st_size,
            "wal_bytes": log,
        }


def _shown(rows: list[Data]) -> list[Data]:
    found = []
    for row in rows:
        shown = printing.moments(row)
        for name, value in row.items():
            flag = name in {"paused", "cancel_requested"} or name.endswith("at_least")
            if flag:
                shown[name] = bool(value)
        found.append(shown)
    return found


class Watcher(threading.Thread):
    """Looks at the file again and again, so that a slow look keeps no key waiting."""

    def __init__(
        self, looker: Looker, data: Data, interval: float, told: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True, name="litejobs-watch")
        self.lock = threading.Lock()  # held while the file is read
        self.problem: str | None = None
        self.job_id: int | None = None
        self.waiting = False
        self._looker = looker
        self._interval = interval
        self._told = told
        self._hurry = threading.Event()
        self._ended = False
        self._then: Callable[[], None] | None = None
        self._latest = data, looker.now(), time.monotonic()

    def latest(self) -> tuple[Data, dt.datetime]:
        """What was read last, and what the clock shows now."""
        data, at, read_at = self._latest
        return data, at + dt.timedelta(seconds=time.monotonic() - read_at)

    def look_now(
        self,
        job_id: int | None,
        *,
        waiting: bool = False,
        changed: Callable[[], None] | None = None,
    ) -> None:
        """Make the next look at once; from now on also at that job, or what waits.

        If something was changed here, that is shown, whatever it costs to count, and
        *changed* is called as soon as `latest` has it (or the look has failed).
        """
        self.job_id, self.waiting = job_id, waiting
        if changed is not None:
            self._looker.count_now()
            self._then = changed
        self._hurry.set()

    def run(self) -> None:
        """Until `end`."""
        pause = self._interval
        while True:
            self._hurry.wait(pause)
            self._hurry.clear()
            if self._ended:
                return
            pause = self._interval
            then, self._then = self._then, None  # what was changed before this look
            try:
                with self.lock:
                    data = self._looker.look(self.job_id, waiting=self.waiting)
                    self._latest = data, self._looker.now(), time.monotonic()
                self.problem = None
            except Exception as error:
                self.problem = in_words(error)
                pause = max(pause, PAUSE)
            if then is not None:
                then()
            if not self._ended:
                self._told()

    def end(self) -> None:
        """Nothing is read any more."""
        self._ended = True
        self._hurry.set()
        if self.is_alive():
            self._looker.stop()
            self.join(PATIENCE)


def in_words(error: BaseException) -> str:
    """An error as one sentence."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    return printing.escaped(str(error) or type(error).__name__)
