"""What another file holds, put into the jobs file, while other processes have it open.

The order is what keeps the old content, whatever dies when: the other file is copied
and checked beside the jobs file, as one that is opened; then both locks are taken, the
runner's and the writer's; then what is there is kept as a backup; and then all pages
are replaced in one transaction, which is there as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from litejobs._process.clock import RealTime, now
from litejobs._process.sizes import SIZES
from litejobs._storage import files, process_guard
from litejobs._storage.backup import (
    BESIDE,
    MAGIC,
    PART,
    Told,
    copy,
    first_bytes,
    has_log,
    open_copy,
    reason,
    remove_left,
)
from litejobs._storage.confinement import confined
from litejobs._storage.files import MEMORY
from litejobs._storage.lock_holder import holder_elsewhere
from litejobs._storage.refusals import refusal, shown_name
from litejobs._storage.runner_lock import RunnerLock, living_in
from litejobs._storage.schema import prepare
from litejobs._storage.schema_version import (
    check_as_made,
    check_version,
    installed_version,
)
from litejobs._storage.statements import query
from litejobs._values.blocks import block
from litejobs._values.descriptors import too_many_open
from litejobs.errors import (
    ConfigurationError,
    CorruptDatabase,
    DatabaseBusy,
    DatabaseFull,
    FileRefused,
    LiteJobsError,
    NotADatabase,
    RunnerActive,
)

if TYPE_CHECKING:
    from litejobs._storage.database import Database

KEPT = ".before-restore-"  # in the name of what was there before
OURS = b"litejobs_job"  # in the schema of each jobs file, which is written first
BEGINNING = 2**20  # bytes in which that is
STAGED = ".restore"  # at the end of the name of what is to come
ALLOW = "overwrite_tables=True"
LONGEST_WAIT = 10.0  # seconds for others to end their transactions
LONGEST_STEP = 0.005  # seconds from one try to the next
MOST_NAMES = 3  # of tables in a sentence

GoOn = Callable[[int], bool]
Reading = Callable[[], AbstractContextManager[apsw.Connection]]


class Staged(NamedTuple):
    """The content that is to come, checked, in a file of its own."""

    connection: apsw.Connection
    jobs: int
    tables: list[str]


def restore_database(
    database: Database, source: str | os.PathLike[str], *, overwrite_tables: bool
) -> str:
    """See `LiteJobs.restore`."""
    path = database.path
    if path == MEMORY:
        raise LiteJobsError(
            "jobs in memory have no file to restore into; open the copy itself, or "
            "give LiteJobs a path"
        )
    if database.in_transaction():
        raise LiteJobsError(
            "restore() was called inside a transaction, which it would replace; call "
            "it after the block"
        )
    with database.reader() as reader, staged(source, path, reader) as new:
        tables = sorted({*others(reader), *new.tables})
        if tables and not overwrite_tables:
            raise ConfigurationError(f"{tables_sentence(path, tables)}; say {ALLOW}")
        with runner_lock(path, reader), database.replacing() as writer:
            kept = replace(
                writer, new.connection, path, lambda: database.reader(outside=True)
            )
    database.cut_log()
    assert kept is not None  # since there was something
    return kept


def tables_sentence(path: str, tables: list[str]) -> str:
    """That other tables than ours would be overwritten, too."""
    names = ", ".join(shown_name(name) for name in tables[:MOST_NAMES])
    more = len(tables) - MOST_NAMES
    rest = f" and {more} more" if more > 0 else ""
    one = len(tables) == 1
    return (
        f"{path} or the copy has tables of the application ({names}{rest}), and "
        f"{'that' if one else 'those'} would become what the copy has, too"
    )


def others(connection: apsw.Connection) -> list[str]:
    """The tables in the file that are not ours."""
    rows = connection.execute(query("tables_of_others")).fetchall()
    return [str(name) for (name,) in rows]


# What is to come ----------------------------------------------------------------------


@block
def staged(
    source: str | os.PathLike[str], path: str, present: apsw.Connection | None
) -> Iterator[Staged]:
    """A copy of *source* beside the jobs file *path*, as this version makes a file.

    It is checked as one that is opened; the source is only read. Pages and encoding are
    as in the *present* file, if there is one, since others have that open.

    Raises:
        FileRefused: It cannot be read, or is not what litejobs makes.
        CorruptDatabase: It is damaged.
        DatabaseFull: There is no room for the copy.
    """
    name = os.fspath(source)
    real = str(files.prepare(name, allow_network=True, read_only=True))
    _check_other(name, real, path)
    process_guard.check_not_shared(real)
    remove_left(*_left_by_restores(path), have_locks=True)
    staging = f"{path}.{os.urandom(4).hex()}{STAGED}"
    try:
        _copy(name, real, staging)
        with contextlib.closing(apsw.Connection(staging)) as connection:
            try:
                _adopt(connection, name, present, path)
                jobs = int(connection.execute(query("count_all_jobs")).get)
                found = Staged(connection, jobs, others(connection))
            except apsw.Error as error:
                raise refusal(name, error) from error
            yield found
    finally:
        for each in ("", *BESIDE):
            with contextlib.suppress(OSError):
                os.unlink(staging + each)


def _left_by_restores(path: str) -> tuple[str, re.Pattern[str]]:
    """In which folder restores of this file that were killed left what of these names.

    What it was before has a name of its own once it is whole, and is kept.
    """
    folder, base = os.path.split(path)
    staged = rf"\.[0-9a-f]{{8}}{re.escape(STAGED)}(?:{PART})?"
    before = rf"{re.escape(KEPT)}[-0-9TZ]+{PART}"
    return folder, re.compile(rf"{re.escape(base)}(?:{staged}|{before})")


def _check_other(name: str, real: str, path: str) -> None:
    for each in (path, *map(os.fspath, files.sidecars(path))):
        if real == each or (os.path.exists(each) and os.path.samefile(real, each)):
            raise FileRefused(
                f"{name} is the jobs file itself, or a part of it; give a copy of it"
            )


def _copy(name: str, real: str, staging: str) -> None:
    try:
        connection = open_copy(real)
    except (apsw.IOError, apsw.CantOpenError, apsw.PermissionsError) as error:
        way_out = "check its permissions and its disk"
        raise FileRefused(
            f"{name} cannot be read ({reason(error)}); {too_many_open() or way_out}"
        ) from error
    except apsw.Error as error:
        raise refusal(name, error) from error
    with contextlib.closing(connection):
        try:
            copy(connection, staging, real=name, overwrite=False)
        except apsw.Error as error:
            raise refusal(name, error) from error


def _adopt(
    connection: apsw.Connection,
    name: str,
    present: apsw.Connection | None,
    path: str,
) -> None:
    """It is a jobs file of today, as if it had been opened as *path*."""
    with confined(connection):
        version = installed_version(connection, name)
        if version is None:
            raise FileRefused(
                f"{name} holds no jobs tables; give a copy that litejobs backup has "
                "made"
            )
        check_version(name, version, as_is=False)
        check_as_made(connection, name, version)
    if present is not None:
        _fit(connection, name, present)
    prepare(connection, name, "fast")
    before = None
    if present is not None:
        with contextlib.suppress(apsw.Error):
            before = present.execute(query("restored_at")).get
    connection.execute(query("record_restore"), {"present": before, "path": path})


def _fit(connection: apsw.Connection, name: str, present: apsw.Connection) -> None:
    """What cannot change in a file that others have open is as there."""
    encoding = present.pragma("encoding")
    if connection.pragma("encoding") != encoding:
        raise FileRefused(
            f"{name} is written in {connection.pragma('encoding')}, and the jobs file "
            f"in {encoding}, which cannot change while it is there: stop the "
            "application, move the jobs file away with what lies beside it, and copy "
            f"{name} into its place"
        )
    size = present.pragma("page_size")
    if connection.pragma("page_size") != size:
        connection.pragma("journal_mode", "delete")
        connection.pragma("page_size", size)
        connection.execute(query("rewrite_file"))


# Putting it there ---------------------------------------------------------------------


@block
def runner_lock(path: str, present: apsw.Connection | None) -> Iterator[None]:
    """No runner runs the jobs of the file in the block.

    Raises:
        RunnerActive: One does.
    """

    def asked() -> list[Any]:
        with contextlib.suppress(apsw.Error):
            if present is not None:
                return present.execute(query("living_runner")).fetchall()
        return []

    lock = RunnerLock(path, lambda: living_in(asked()))
    if not lock.acquire():
        rows = asked()
        found = rows[0][1] if rows else None
        pid = found if isinstance(found, int) else None
        who = "another process" if pid is None else f"process {pid}"
        raise RunnerActive(
            f"{who} runs the jobs of {path}; stop it, restore, and start it again", pid
        )
    try:
        yield
    finally:
        lock.release()


def replace(
    writer: apsw.Connection,
    new: apsw.Connection,
    path: str,
    reading: Reading | None,
    *,
    told: Told | None = None,
    go_on: GoOn | None = None,
) -> str | None:
    """The file *path* holds what *new* holds; the name of what it was before.

    That is read by connections that *reading* opens, None where there is nothing. While
    another process writes, *go_on* is asked whether to wait, and waits itself. Where it
    is so damaged that SQLite cannot write to it, another file takes its place.

    Raises:
        DatabaseBusy: Another process kept the write lock past the busy timeout.
        DatabaseFull: There is no room; the file is as it was.
        NotADatabase, CorruptDatabase: What is there is none, or not enough of one to
            see that it was a jobs file.
    """
    try:
        return _replace_pages(writer, new, path, reading, told=told, go_on=go_on)
    except (apsw.ReadOnlyError, NotADatabase, CorruptDatabase):
        if not _was_ours(path):
            raise
    return _take_place(new, path)


def _was_ours(path: str) -> bool:
    """Whether the names of our tables are where a file of ours begins."""
    return OURS in first_bytes(path, BEGINNING)


def _take_place(new: apsw.Connection, path: str) -> str:
    """The file is moved away, with what SQLite had beside it, and the other put there.

    It has its name until the other one is whole and safe on disk. Its log is not the
    other one's, so that goes first.
    """
    kept = _kept_name(path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    try:
        os.link(path, kept)
    except OSError:  # pragma: no cover - a file system without links
        os.rename(path, kept)
    try:
        _move_beside(path, kept)
        copy(new, path, real=None, overwrite=True)
    except BaseException:
        if os.path.exists(path):
            os.unlink(kept)
        else:  # pragma: no cover - a file system without links
            os.rename(kept, path)
        _move_beside(kept, path)
        raise
    os.chmod(path, mode)
    return kept


def _move_beside(path: str, other: str) -> None:
    for each in BESIDE:
        with contextlib.suppress(FileNotFoundError):
            os.replace(path + each, other + each)


def _replace_pages(
    writer: apsw.Connection,
    new: apsw.Connection,
    path: str,
    reading: Reading | None,
    *,
    told: Told | None,
    go_on: GoOn | None,
) -> str | None:
    pages = max(1, SIZES.copied_bytes // int(new.pragma("page_size")))
    kept = None
    if reading is not None and first_bytes(path, len(MAGIC)) != MAGIC:
        raise NotADatabase(
            f"{path} is not an SQLite database; move it away, and restore again"
        )
    if reading is not None and not has_log(path):
        # None of ours has it open, and nobody can read it while it is locked.
        with reading() as old:
            kept = _keep(old, path)
    try:
        writer.set_busy_handler(go_on or _patience())
        with writer.backup("main", new, "main") as backup:
            # From here on nobody else writes: what is kept is the last that there was.
            backup.step(0)
            if reading is not None and kept is None:
                with reading() as old:
                    kept = _keep(old, path)
            while not backup.done:
                backup.step(pages)
                if told is not None:
                    told(backup.page_count - backup.remaining, backup.page_count)
    except apsw.BusyError as error:
        raise DatabaseBusy(
            f"{holder_elsewhere(path)} kept the write lock of {path} for too long; try "
            "again when it is done"
        ) from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise CorruptDatabase(
            f"{path} is damaged where it begins ({error}); move it away, and restore "
            "again"
        ) from error
    except (apsw.FullError, apsw.IOError) as error:
        raise DatabaseFull(
            f"{path} could not be written ({reason(error)}), and is as it was"
            f"{'' if kept is None else f', of which {kept} is a copy'}; make room on "
            "its disk, and restore again"
        ) from error
    return kept


def _patience() -> GoOn:
    """For some seconds, in shorter steps than SQLite's own.

    Those often miss the gaps that a busy process leaves.
    """
    begun = RealTime.monotonic()

    def go_on(calls: int) -> bool:
        RealTime.sleep(min(0.0005 * 2 ** min(calls, 10), LONGEST_STEP))
        return RealTime.monotonic() - begun < LONGEST_WAIT

    return go_on


def _keep(old: apsw.Connection, path: str) -> str:
    """A backup of what is there, under a name that nothing has; damaged or not."""
    name = _kept_name(path)
    copy(old, name, real=path, overwrite=False, check=False)
    return name


def _kept_name(path: str) -> str:
    stamp = f"{now():%Y%m%dT%H%M%SZ}"
    name = first = f"{path}{KEPT}{stamp}"
    number = 1
    while os.path.lexists(name):
        number += 1
        name = f"{first}-{number}"
    return name
