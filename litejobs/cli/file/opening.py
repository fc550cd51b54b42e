"""The file that `--db` names, opened for one command: to read it, or to write to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs.cli.file.reader import (
    Reader,
    connected,
    expected,
    no_room,
    only_read,
    room_to_look,
    too_slow,
    watchdog_of,
)
from litejobs.cli.printing import remark

if TYPE_CHECKING:
    import apsw

    from litejobs import LiteJobs
    from litejobs._storage.store import Store
    from litejobs.cli.file.untrusted import Authorizer, Careful
    from litejobs.cli.file.watchdog import Watchdog

AUTO = "auto"
_BESIDE = ("-wal", "-shm", "-journal", ".runner", ".reserve")
MOST_FILES = 1_000  # in a folder that is searched for the one with jobs
SAY_AFTER = 0.5  # seconds that a write waits before that is said
LONGEST_STEP = 0.005  # seconds from one try to the next


def path_given() -> str:
    """The path from `--db` or the environment; "auto" is the only one in this folder.

    Raises:
        click.UsageError: There is none.
        FileRefused: No file in this folder holds jobs, or more than one.
    """
    context = click.get_current_context()
    path: str | None = context.find_root().params["db"]
    if path is None:
        raise click.UsageError(
            "name the jobs file: litejobs --db PATH …, or set LITEJOBS_DB", context
        )
    return _only_file() if path == AUTO else path


@contextlib.contextmanager
def reading() -> Iterator[Reader]:
    """The file of jobs, for a look at it: nothing in it and beside it is changed.

    The application, and whoever else writes, is neither kept waiting nor waited for.
    Where the tables, views or triggers are not as this version made them, that is said
    on the error stream, since what they show may be wrong; nobody can write then.

    Raises:
        FileRefused: The file cannot be used.
    """
    path = path_given()
    parameters = click.get_current_context().find_root().params
    timeout = parameters["timeout"]
    immutable = parameters["immutable"]
    with (
        room_to_look(path, immutable=immutable),
        watchdog_of(path, timeout) as watchdog,
    ):
        connection, careful = _connect(path, watchdog, timeout, immutable=immutable)
        try:
            yield Reader(path, connection, timeout, watchdog=watchdog, careful=careful)
        finally:
            # Another thread may look at it, and not have heard that it is to end.
            if not watchdog.is_looking():
                connection.close()


def _connect(
    path: str, watchdog: Watchdog, timeout: float, *, immutable: bool
) -> tuple[apsw.Connection, Careful | None]:
    """A connection that only reads; with care, if the file is not as litejobs made it.

    To open it is a look at it, too.
    """
    import apsw

    from litejobs._storage import files
    from litejobs._storage.own_name import check_name

    real = files.checked(path, read_only=True)
    has_log = _has_log(real)
    watchdog.begin()
    try:
        connection = connected(real, immutable=immutable)
        try:
            watchdog.connection = connection
            connection.set_progress_handler(watchdog.is_over, SIZES.steps)
            allowed = only_read(connection, has_log=has_log)
            if not immutable:
                check_name(connection, real)
            careful = _care(connection, path, allowed)
        except BaseException:
            watchdog.connection = None
            connection.close()
            raise
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise _not_openable(path, error, immutable=immutable) from error
    except apsw.InterruptError as error:
        raise too_slow(path, timeout) from error
    except (apsw.FullError, apsw.IOError) as error:
        raise no_room(path, error) from error
    except apsw.Error as error:
        from litejobs._storage.refusals import refusal

        raise refusal(path, error) from error
    finally:
        watchdog.end()
    return connection, careful


def _has_log(path: str) -> bool:
    return os.path.exists(f"{path}-wal")


def _care(
    connection: apsw.Connection, path: str, allowed: Authorizer
) -> Careful | None:
    """None is needed where our tables, views and triggers are as this version's."""
    from litejobs._storage import schema_version, statements

    version = schema_version.installed_version(connection, path)
    schema_version.check_version(path, version, as_is=True)
    if statements.is_as_made(connection):
        return None
    schema_version.check_tables(connection, path)
    from litejobs.cli.file import untrusted

    careful = untrusted.careful(connection, path, allowed)
    remark(
        f"warning: tables, views or triggers of {path} are not as litejobs made "
        "them, so what is shown may be wrong, and nothing can be written; "
        "litejobs doctor names them"
    )
    return careful


def _not_openable(path: str, error: apsw.Error, *, immutable: bool) -> Exception:
    from litejobs._values.descriptors import too_many_open
    from litejobs.errors import FileRefused, ReadOnlyDatabase

    if (reason := too_many_open()) is not None:
        return FileRefused(f"{path} cannot be opened; {reason}")
    way_out = "check the permissions of the file and of its folder"
    if not immutable:
        way_out = (
            "SQLite makes files beside it; check the permissions of the folder, or, if "
            "nobody writes to the file, look at it with: litejobs --immutable …"
        )
    return ReadOnlyDatabase(f"{path} cannot be opened ({error}): {way_out}")


# Writing ------------------------------------------------------------------------------


@contextlib.contextmanager
def opened() -> Iterator[LiteJobs]:
    """The jobs of the file, to write to it, which is as this version made it.

    Nothing is created and nothing upgraded: a slip in the name must not leave a new
    file, nor tables of ours in a stranger's, and an application that still runs an
    older version must not find its file upgraded because somebody looked at it.
    If another process writes at this moment, that is waited for, and said.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    from litejobs._app import over
    from litejobs._storage.store import Store

    context = click.get_current_context()
    if context.find_root().params["immutable"]:
        raise click.UsageError(
            "this command writes to the file; leave --immutable out", context
        )
    path = path_given()
    store = Store(path, as_is=True, origin="cli")
    with over(store) as jobs:
        store.database.wait_by(patiently(path))
        yield jobs


@contextlib.contextmanager
def with_room() -> Iterator[None]:
    """In the block there is room to look and to delete, though the disk be full.

    That is what litejobs keeps for the purpose; a look alone would need some, too.
    """
    from litejobs._storage.files import checked
    from litejobs._storage.reserve import Reserve

    if not Reserve(checked(path_given(), read_only=True)).is_needed():
        yield
        return
    with opened() as jobs, stored(jobs).database.making_room():
        yield


def stored(jobs: LiteJobs) -> Store:
    """What is in the file of these jobs; in a transaction, as it is there."""
    from litejobs._app import store_of

    return store_of(jobs)


def patiently(path: str) -> Callable[[int], bool]:
    """What SQLite asks each time that another process has the lock.

    It goes on for some seconds, and the person is told. The steps are shorter than
    those of SQLite itself, which often miss the gaps that a busy runner leaves.
    """
    from litejobs._process.clock import RealTime

    begun, said = 0.0, False

    def go_on(calls: int) -> bool:
        nonlocal begun, said
        now = RealTime.monotonic()
        begun = begun if calls else now
        if now - begun > SAY_AFTER and not said:
            said = True
            remark(f"waiting: another process is writing to {path} …")
        RealTime.sleep(min(0.0005 * 2 ** min(calls, 10), LONGEST_STEP))
        return now - begun < TIMES.write_patience

    return go_on


# The only one -------------------------------------------------------------------------


def _only_file() -> str:
    """The one file in the current folder that holds jobs."""
    from litejobs.errors import FileRefused

    timeout = click.get_current_context().find_root().params["timeout"]
    with watchdog_of("the files in this folder", timeout) as watchdog:
        watchdog.begin()
        found = files_here()
        watchdog.end()
    if len(found) == 1:
        return found[0]
    folder = os.getcwd()
    if not found:
        raise FileRefused(
            f"no file in {folder} holds jobs; name it: litejobs --db PATH …"
        )
    names = ", ".join(found[:3])
    raise FileRefused(
        f"{len(found)} files in {folder} hold jobs ({names}); name one: "
        f"litejobs --db {found[0]} …"
    )


def files_here() -> list[str]:
    """The files in the current folder that hold jobs, by name."""
    names = []
    with os.scandir() as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_FILES:
                break
            if (
                entry.is_file(follow_symlinks=False)
                and entry.stat().st_size > 0
                and not entry.name.endswith(_BESIDE)
                and ".before-restore-" not in entry.name
            ):
                names.append(entry.name)
    return sorted(name for name in names if _holds_jobs(name))


def _holds_jobs(name: str) -> bool:
    import apsw

    from litejobs._storage import statements

    real = os.path.abspath(name)
    has_log = _has_log(real)
    try:
        with expected(real):
            connection = apsw.Connection(real, flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(connection):
            only_read(connection, has_log=has_log)
            return bool(connection.execute(statements.query("installed")).get)
    except (apsw.Error, UnicodeDecodeError):
        return False
