"""What tests of the command line have at hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apsw
import pytest
from click.testing import Result

from litejobs._process.clock import clock_is_held
from litejobs._storage.database import Database
from litejobs._storage.files import MEMORY
from litejobs.cli import main
from litejobs.cli.file import opening
from tests.cli.calls import Cli, runner


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `litejobs ARGUMENTS…` in this process."""
    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    monkeypatch.setenv("LITEJOBS_UTC", "1")
    called = runner()

    def run(*arguments: object, **options: Any) -> Result:
        return called.invoke(main, [str(each) for each in arguments], **options)

    return run


@pytest.fixture
def path(empty_file: Path, tmp_path: Path) -> Path:
    """A jobs file without jobs, closed."""
    return Path(shutil.copy(empty_file, tmp_path / "jobs.db"))


@pytest.fixture
def db(cli: Cli, path: Path) -> Cli:
    """Run `litejobs --db` with that file."""
    return lambda *arguments, **options: cli("--db", path, *arguments, **options)


@pytest.fixture
def opened_anew() -> None:
    """Each command opens the file, and closes it, in a module that is `kept_open`."""


@pytest.fixture
def kept_open(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """What one command has opened is used by the next one: SQLite reads no schema anew.

    That is most of what a command costs. For tests of what commands say and do, and not
    of how a file is opened and closed.
    """
    if "opened_anew" in request.fixturenames:
        yield
        return
    kept = Kept()
    monkeypatch.setattr(opening, "connected", kept.connected)
    monkeypatch.setattr(Database, "of", kept.of)
    yield
    kept.forget()


class Kept:
    """The file that was opened last: to be looked at, and to be written to."""

    def __init__(self) -> None:
        self._connected, self._of = opening.connected, Database.of
        self._reader: tuple[object, KeptConnection] | None = None
        self._writer: Database | None = None

    def connected(self, real: str, *, immutable: bool) -> apsw.Connection:
        """As the reader of the command line does it."""
        about = (Path(real).stat().st_ino, real, clock_is_held(), immutable)
        if self._reader is None or self._reader[0] != about:
            self._forget_reader()
            with patch.object(apsw, "Connection", KeptConnection):
                made = self._connected(real, immutable=immutable)
            assert isinstance(made, KeptConnection)
            self._reader = about, made
        return self._reader[1]

    def of(self, path: Any, durability: str, **options: Any) -> Database:
        """As `Database` does it: it is shared by all that one process does with it."""
        held, writer = clock_is_held(), self._writer
        if writer is not None and (writer.clock_is_held, writer.durability) != (
            held,
            durability,
        ):
            self._forget_writer()
        found = self._of(path, durability, **options)
        if found is not self._writer and found.path != MEMORY:
            self._forget_writer()
            self._writer = self._of(path, durability, **options)
        return found

    def forget(self) -> None:
        """Close both."""
        self._forget_reader()
        self._forget_writer()

    def _forget_reader(self) -> None:
        if self._reader is not None:
            self._reader[1].end()
            self._reader = None

    def _forget_writer(self) -> None:
        if self._writer is not None:
            self._writer.release()
            self._writer = None


class KeptConnection(apsw.Connection):
    """One that stays open, as new, when it is closed.

    SQLite would compile all statements anew after each setting that the next command
    makes once more; so it is told of the first one alone.
    """

    _authorizer: Any = None
    _only_reads = False

    @property
    def authorizer(self) -> Any:
        """What is asked about each statement that is compiled."""
        return self._authorizer

    @authorizer.setter
    def authorizer(self, asked: Any) -> None:
        if self._authorizer is None:
            self.set_authorizer(self._asked)
        self._authorizer = asked

    def _asked(self, *about: Any) -> Any:
        return self._authorizer(*about)

    def pragma(self, name: str, *value: Any, **options: Any) -> Any:
        """Set or ask, as any other."""
        if name == "query_only":
            if self._only_reads:
                return None
            self._only_reads = True
        return super().pragma(name, *value, **options)

    def close(self, force: bool = False) -> None:
        """Forget what was set for one command, in whichever state that was left."""
        if self.in_transaction:
            self.execute("rollback")
        self.exec_trace = None
        self.set_progress_handler(None)

    def end(self) -> None:
        """Close it."""
        super().close(force=True)
