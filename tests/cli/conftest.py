"""What tests of the command line have at hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._process.clock import clock_is_held
from litejobs._storage import process_guard
from litejobs._storage.database import Database
from litejobs._storage.files import MEMORY
from litejobs.cli.file import opening
from litejobs.errors import FileRefused
from tests.cli.calls import Cli, Copied


@pytest.fixture
def path(empty_file: Path, copied: Copied) -> Path:
    """A jobs file without jobs, closed."""
    return copied(empty_file)


@pytest.fixture
def file_jobs(path: Path) -> Iterator[LiteJobs]:
    """Jobs in that file."""
    jobs = LiteJobs(path)
    yield jobs
    jobs.close()


@pytest.fixture
def db(cli: Cli, path: Path) -> Cli:
    """Run `litejobs --db` with that file."""
    return lambda *arguments, **options: cli("--db", path, *arguments, **options)


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Copied:
    """Gives the test a file that is as another one, which is closed."""
    if "kept_open" in request.fixturenames and not is_opened_anew(request):
        kept: Kept = request.getfixturevalue("kept")
        return kept.copied
    return lambda made: Path(shutil.copy(made, tmp_path / "jobs.db"))


@pytest.fixture
def opened_anew() -> None:
    """Each command opens the file, and closes it, in a module that is `kept_open`."""


@pytest.fixture
def kept_open(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> Iterator[None]:
    """What one command has opened is used by the next one: SQLite reads no schema anew.

    That is most of what a command costs. For tests of what commands say and do, and not
    of how a file is opened and closed. The next test of the module goes on with it,
    too, where both have it `copied`.
    """
    if is_opened_anew(request):
        yield
        return
    monkeypatch.setattr(opening, "connected", kept.connected)
    monkeypatch.setattr(Database, "of", kept.of)
    yield
    kept.end_test()


def is_opened_anew(request: pytest.FixtureRequest) -> bool:
    """Whether the test wants its file opened by each command."""
    return "opened_anew" in request.fixturenames


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """What the tests of a module keep open that are `kept_open`."""
    kept = Kept(tmp_path_factory)
    yield kept
    kept.forget()


class Kept:
    """The file that was opened last: to be looked at, and to be written to."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._connected, self._of = opening.connected, Database.of
        self._reader: tuple[tuple[object, ...], KeptConnection] | None = None
        self._writer: Database | None = None
        self._copy: Copy | None = None

    def copied(self, made: Path) -> Path:
        """A copy of that file: the one that is open, if that can become it."""
        if self._copy is None or not self._is_as_new() or not self._copy.put(made):
            self.forget()
            folder = self._folders.mktemp("kept")
            self._copy = Copy(shutil.copy(made, folder / "jobs.db"))
        return self._copy.path

    def _is_as_new(self) -> bool:
        """Whether nobody else has the writer, and nobody has disturbed it."""
        if self._writer is None:
            return True
        try:
            process_guard.recheck(self._writer.path)
        except FileRefused:
            return False
        return self._writer._users == 1

    def end_test(self) -> None:
        """The next test goes on with a copy, and with no other file."""
        path = None if self._copy is None else str(self._copy.path)
        if self._reader is not None and path not in self._reader[0]:
            self._forget_reader()
        if self._writer is not None and path != self._writer.path:
            self._forget_writer()

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
        if found is self._writer and found._users == 2:
            # To be opened is to wait for locks as is said now.
            found._go_on = None
            found.wait_as_long()
        if found is not self._writer and found.path != MEMORY:
            self._forget_writer()
            self._writer = self._of(path, durability, **options)
        return found

    def forget(self) -> None:
        """Close all."""
        self._forget_reader()
        self._forget_writer()
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _forget_reader(self) -> None:
        if self._reader is not None:
            self._reader[1].end()
            self._reader = None

    def _forget_writer(self) -> None:
        if self._writer is not None:
            self._writer.release()
            self._writer = None


class Copy:
    """A copy of a file, which becomes one of another file while it is open."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._number = self.path.stat().st_ino
        self._connection = apsw.Connection(str(path))
        self._made: apsw.Connection | None = None

    def put(self, made: Path) -> bool:
        """The content is that of this file; or False, if that cannot be.

        Whoever has it open finds other rows, as if another process had written them,
        and the schema that it knows: both files have that, as litejobs makes it.
        """
        if not self.path.exists() or self.path.stat().st_ino != self._number:
            return False
        self._empty_folder()
        source = self._source(made)
        number = source.pragma("schema_version")
        try:
            if self._connection.pragma("schema_version") != number:
                return False
            with self._connection.backup("main", source, "main") as backup:
                backup.step()
            self._connection.pragma("schema_version", number)
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        return True

    def _empty_folder(self) -> None:
        """What was made beside it, by a test or a runner, is gone."""
        ends = ("", "-wal", "-shm")
        files = {self.path.with_name(f"{self.path.name}{end}") for end in ends}
        for other in set(self.path.parent.iterdir()) - files:
            other.unlink()

    def _source(self, made: Path) -> apsw.Connection:
        if self._made is not None and self._made.db_filename("main") != str(made):
            self._made.close()
            self._made = None
        if self._made is None:
            self._made = apsw.Connection(str(made))
        return self._made

    def close(self) -> None:
        """Nobody needs it any more."""
        self._connection.close()
        if self._made is not None:
            self._made.close()


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
