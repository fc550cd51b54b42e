"""How a test speaks to a client: a program in its language, which reads lines.

A program is started with the path of a jobs file (before it, what its row in the list
of clients gives it). It opens the file as its driver comes, with nothing set, and says

    ready TAB version of the driver TAB version of SQLite

Then it reads a line for each statement: a verb, the SQL, and what is bound to it, each
with a letter of its kind before it, to be bound as its language has such values.

    run TAB insert into litejobs_job (task) values (?) TAB tsend
    first TAB …     reads one row, and leaves the statement open

i: whole number, r: another number, b: 0 or 1, t: text, n: null, d: an instant (ms).
It answers `row TAB value TAB …` for each row, and at the end either

    done TAB how many rows the driver says were changed TAB the last id that it says
    error TAB what the driver says (and, if it cannot open the file, its version)

An empty value is null, or what a driver does not tell. It ends with its input.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

LONG = 60.0  # seconds: how long a program may be silent

Value = str | int | float | bool | dt.datetime | None


class Refused(Exception):
    """The driver raised an error; these are its words."""


class Gone(Exception):
    """The program has ended, or says nothing."""


class Answer(NamedTuple):
    """What the driver gave back."""

    rows: list[list[str]]
    changes: str
    last_id: str


class Session:
    """A client that has a jobs file open."""

    def __init__(self, command: Sequence[str], path: Path) -> None:
        self._command = [*command, str(path)]
        self._start()

    def restart(self) -> None:
        """Begin anew: the program has ended."""
        self.close()
        self._start()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            bufsize=1,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._heard: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            word, *said = self._next()
        except Gone:
            self.close()
            raise
        if word != "ready":
            self.close()
            raise Refused(*(said or [word]))
        self.version, self.sqlite = said

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\r\n"))
        self._lines.put("")

    def _next(self) -> list[str]:
        self.listen(LONG)
        if not self._heard:
            raise Gone(f"nothing was said for {LONG} s")
        line = self._heard.pop()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            raise Gone(said or "the program has ended")
        return line.split("\t")

    def listen(self, seconds: float) -> None:
        """Return when it has said something, or after so many seconds."""
        if not self._heard:
            with contextlib.suppress(queue.Empty):
                self._heard.append(self._lines.get(timeout=seconds))

    def send(self, verb: str, sql: str, *values: Value) -> None:
        """Begin a statement; what it gives is asked for with `answer`."""
        assert self._process.stdin is not None
        line = "\t".join((verb, " ".join(sql.split()), *map(_said, values)))
        try:
            self._process.stdin.write(f"{line}\n")
        except OSError:  # it has ended; the next read has why
            return

    def answer(self) -> Answer:
        """What the statement gave that was begun."""
        rows = []
        while True:
            word, *rest = self._next()
            if word == "row":
                rows.append(rest)
            elif word == "done":
                return Answer(rows, *(*rest, "", "")[:2])
            else:
                raise Refused(*rest)

    def run(self, sql: str, *values: Value) -> Answer:
        """Do a statement, and read all of its rows."""
        self.send("run", sql, *values)
        return self.answer()

    def first(self, sql: str, *values: Value) -> Answer:
        """Do a statement, read one row, and leave it open."""
        self.send("first", sql, *values)
        return self.answer()

    def rows(self, sql: str, *values: Value) -> list[list[str]]:
        """The rows of a statement."""
        return self.run(sql, *values).rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the program end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()


def _said(value: Value) -> str:
    match value:
        case None:
            return "n"
        case bool():
            return f"b{value:d}"
        case int():
            return f"i{value}"
        case float():
            return f"r{value}"
        case str():
            return f"t{value}"
    return f"d{int(value.timestamp() * 1000)}"
