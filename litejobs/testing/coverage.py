"""What of the schedule logic a test suite has exercised.

`pytest --litejobs-coverage` says which states jobs were in, which moves they made, why
they waited, what stopped them, which rules decided, how schedules' instants ended, and
which triggers acted: in all files that this process opens, whoever wrote to them, as
long as it was committed through `LiteJobs` objects.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import apsw

from litejobs._storage import statements
from litejobs._storage.database import OPEN
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litejobs._storage.database import Database

MACHINE = ("state", "move", "reason", "stop", "trigger")
"""The kinds of things that are the same for every application."""

ENDS = ("done", "retried", "dead-lettered", "cancelled", "timed out", "crashed")
"""What a test suite may want to have seen of each task."""

_SPACES = str.maketrans("\t\n\f\r", "    ")
_SPAN = (
    "after_id",
    "after_job",
    "after_attempt",
    "last_id",
    "last_job",
    "last_attempt",
)
_STATUSES = {"timeout": "timed out", "crashed": "crashed"}
_DECISIONS = {
    "complete": "done",
    "retry": "retried",
    "dead_letter": "dead-lettered",
    "cancel": "cancelled",
}


class Seen:
    """How often each thing was seen, and which there are.

    `times` has a `Counter` for each kind (`state`, `move`, `reason`, `stop`, `trigger`,
    `rule`, `end`, `schedule`), `known` the names of a kind in their order. The names of
    ends and schedules are `NAME: WORD`.
    """

    def __init__(self) -> None:
        self.times: dict[str, Counter[str]] = {}
        self.known: dict[str, dict[str, None]] = {}

    def add(self, kind: str, name: str, times: int = 1) -> None:
        """Count that it was seen."""
        self.times.setdefault(kind, Counter())[name] += times

    def know(self, kind: str, name: str) -> None:
        """Remember that there is such a thing, whether or not it is ever seen."""
        self.known.setdefault(kind, {})[name] = None

    def dump(self) -> dict[str, Any]:
        """Return all of it as JSON can carry it, from one process to another."""
        return {
            "times": {kind: dict(names) for kind, names in self.times.items()},
            "known": {kind: list(names) for kind, names in self.known.items()},
        }

    def merge(self, dumped: Mapping[str, Any]) -> None:
        """Add what another process has seen."""
        for kind, names in dumped["times"].items():
            for name, times in names.items():
                self.add(kind, name, times)
        for kind, known in dumped["known"].items():
            for name in known:
                self.know(kind, name)


class Collector:
    """Looks at every file that this process opens, from `start` to `stop`."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._lock = threading.Lock()
        self._files: weakref.WeakSet[_File] = weakref.WeakSet()

    def start(self) -> None:
        """Look at what is opened from now on."""
        apsw.connection_hooks.append(self._trace)
        OPEN.watch(self._look_at)

    def stop(self) -> None:
        """Look at nothing that is opened from now on; files that are open go on."""
        OPEN.watch_no_more(self._look_at)
        with contextlib.suppress(ValueError):
            apsw.connection_hooks.remove(self._trace)

    def dump(self) -> dict[str, Any]:
        """Return what was seen up to now, as `Seen.merge` takes it."""
        with self._lock:
            return self.seen.dump()

    def _trace(self, connection: apsw.Connection) -> None:
        connection.trace_v2(
            apsw.SQLITE_TRACE_STMT, _Triggers(self), id="litejobs-coverage"
        )

    def _look_at(self, database: Database) -> None:
        file = _File(database, self)
        self._files.add(file)
        database.listen(file.look)

    def add(self, kind: str, name: str, times: int = 1) -> None:
        """Count that it was seen, in any thread."""
        with self._lock:
            self.seen.add(kind, name, times)

    def know(self, kind: str, name: str) -> None:
        """Remember that there is such a thing, in any thread."""
        with self._lock:
            self.seen.know(kind, name)


class _Triggers:
    """Which triggers act.

    SQLite's trace names each one that it asks, and then, if its `when` holds, the first
    statement in it.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._asked = ""
        self._acts: dict[tuple[str, str], bool] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        if not event["trigger"]:
            self._asked = ""
            return
        text = event["sql"]
        if text.startswith("TRIGGER "):
            self._asked = text.removeprefix("TRIGGER ")
            return
        asked, self._asked = self._asked, ""
        if not asked.startswith("litejobs_"):
            return
        key = (asked, text)
        acts = self._acts.get(key)
        if acts is None:
            acts = self._acts[key] = text.strip() in _trigger_texts().get(asked, "")
        if acts:
            self._collector.add("trigger", asked)


class _File:
    """One file, looked at after each commit of this process."""

    def __init__(self, database: Database, collector: Collector) -> None:
        self._database = weakref.ref(database)
        self._collector = collector
        self._lock = threading.Lock()
        self._rules: dict[int, str] = {}
        [[self._last]] = database.run("last_event")
        for kind, name in database.run("coverage_words"):
            collector.know(kind, name)
        for name in _trigger_texts():
            collector.know("trigger", name)

    def look(self) -> None:
        """Count what has happened since the last look.

        Where the file is closed meanwhile, or busy, the next look finds it.
        """
        database = self._database()
        if database is None or not self._lock.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(LiteJobsError, apsw.Error):
                self._read(database)
        finally:
            self._lock.release()

    def _read(self, database: Database) -> None:
        add = self._collector.add
        [[last]] = database.run("last_event")
        for kind, name, rule_id in database.run("coverage_own"):
            self._collector.know(kind, name)
            if rule_id is not None:
                self._rules[rule_id] = name
        for kind, name in database.run("coverage_now"):
            add(kind, name)
        # A copy that was put into the file may have gone back.
        asked = {"after": min(self._last, last), "last": last, "limit": None}
        [places] = database.run("log_span", asked)
        span = dict(zip(_SPAN, places, strict=True))
        for task, move, status, decision, stopped_by, rule_id, times in database.run(
            "coverage_moves", span
        ):
            add("move", move, times)
            if stopped_by is not None:
                add("stop", stopped_by, times)
            if rule_id in self._rules:
                add("rule", self._rules[rule_id], times)
            for word in {_STATUSES.get(status), _DECISIONS.get(decision)}:
                if word is not None:
                    add("end", f"{task}: {word}", times)
        self._last = last


@functools.cache
def _trigger_texts() -> dict[str, str]:
    """The text of each trigger, in a line as SQLite's trace shows its statements."""
    return {
        name: text.translate(_SPACES) for name, text in statements.triggers().items()
    }
