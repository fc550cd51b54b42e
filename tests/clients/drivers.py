"""The clients that are tried, and what is known of each.

A client says where it is found, how its program is started, and what differs from what
most have: what is seen, and why. A run that sees anything else fails.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.clients.acts import FACTS, WORKS

PROGRAMS = Path(__file__).parent / "programs"
PLACE = "LITEJOBS_CLIENTS"
"""An environment variable: the folder where packages of npm and pip were installed."""

USUAL = {
    "waits for a lock": "5 s",
    "7, true, an instant": "integer, integer, text",
    "rows of one insert": "1",
    "last id": "the job's",
    "synchronous": "full",
    "an open row": "lets go",
}
"""What most drivers do, or should."""


class Differs(NamedTuple):
    """Something that is not as usual: what is seen of it begins or goes on so."""

    seen: str
    because: str = ""


class Client(NamedTuple):
    """A driver, and what is known of it."""

    name: str
    command: Callable[[], list[str] | None]
    package: str  # what brings it, for the one who has not got it
    differs: dict[str, Differs] = {}  # noqa: RUF012
    always: bool = False  # part of each run of the tests

    def expected(self, name: str) -> Differs:
        """What is seen of an act or a fact."""
        usual = USUAL[name] if name in FACTS else WORKS
        return self.differs.get(name, Differs(usual))

    @property
    def waits(self) -> bool:
        """Whether it waits when the file is locked."""
        return self.expected("waits for a lock").seen != "no"


def place() -> Path:
    """Where packages of npm and pip were installed for this."""
    return Path(os.environ.get(PLACE, PROGRAMS / "installed"))


def python(module: str) -> Callable[[], list[str] | None]:
    """A module of this Python, or of the one in the place."""

    def command() -> list[str] | None:
        if importlib.util.find_spec(module) is not None:
            return [sys.executable, str(PROGRAMS / "dbapi.py"), module]
        other = place() / "python" / "bin" / "python"
        if other.exists() and _has(str(other), "-c", f"import {module}"):
            return [str(other), str(PROGRAMS / "dbapi.py"), module]
        return None

    return command


def shell() -> list[str] | None:
    """The sqlite3 shell."""
    found = shutil.which("sqlite3")
    return found and [sys.executable, str(PROGRAMS / "shell.py"), found]


@functools.cache
def _has(*command: str) -> bool:
    """Whether a program says that something is there."""
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode == 0


NO_WAIT = Differs("no", "the driver sets no busy timeout: set one")

CLIENTS = [
    Client("Python sqlite3", python("sqlite3"), "Python's own", always=True),
    Client(
        "Python apsw",
        python("apsw"),
        "pip: apsw",
        {
            "waits for a lock": NO_WAIT,
            "7, true, an instant": Differs(
                "integer, integer, refused", "a `datetime` is bound by a converter only"
            ),
            "an open row": Differs(
                "keeps the lock", "a cursor commits when it is read to its end"
            ),
        },
        always=True,
    ),
    Client(
        "sqlite3 shell",
        shell,
        "Debian: sqlite3",
        {"waits for a lock": NO_WAIT._replace(because="say `.timeout 5000` first")},
        always=True,
    ),
]
