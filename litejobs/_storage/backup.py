"""A copy of the whole file, made while it is in use."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

import apsw

from litejobs._process.clock import RealTime, now
from litejobs._process.sizes import SIZES
from litejobs._storage import files, process_guard
from litejobs._storage.files import MEMORY
from litejobs._values.blocks import block
from litejobs._values.descriptors import too_many_open
from litejobs._values.text import one_line
from litejobs.errors import (
    CorruptDatabase,
    DatabaseFull,
    FileRefused,
    LiteJobsError,
)

if TYPE_CHECKING:
    from litejobs._storage.database import Database

PAUSE = 0.001  # seconds between two steps, so that others get the disk
BESIDE = ("-wal", "-journal", "-shm")  # what SQLite takes for a part of a database
MAGIC = b"SQLite format 3\0"  # with which each database begins
FORMAT = 18  # the byte that says how it is written
PART = r"\.[0-9a-f]{8}\.part"  # how the name of a part of a copy ends
LEFT_BEHIND = 3600  # seconds after which a part that has no lock is nobody's
ALLOW = "allow it to be overwritten"

Told = Callable[[int, int], None]
"""Is called with how many pages are copied, of how many."""


def copy_database(
    database: Database, path: str | os.PathLike[str], *, overwrite: bool
) -> None:
    """See `LiteJobs.backup`."""
    if database.in_transaction():
        raise LiteJobsError(
            "backup() was called inside a transaction, of which it would see "
            "nothing; call it after the block"
        )
    with database.reader() as source:
        copy(
            source,
            path,
            real=None if database.path == MEMORY else database.path,
            overwrite=overwrite,
        )


def copy(
    source: apsw.Connection,
    target: str | os.PathLike[str],
    *,
    real: str | None,
    overwrite: bool,
    told: Told | None = None,
    check: bool = True,
) -> None:
    """The file *target* is what the source was when this began, and is checked.

    Without *check* a damaged one is copied, too, all at once.

    *real* is the path of the source, None for one in memory. Meanwhile others read and
    write as ever, since one read transaction lasts as long as the copy; only the
    write-ahead log cannot be cut. The target has no log of its own, and can be read by
    its owner alone. Under its name there is never a part of a copy, whatever dies when;
    a process that is killed leaves a file `TARGET.….part`, which goes with a later one.

    Raises:
        FileRefused: The target cannot be written, or is not to be.
        DatabaseFull: There is no room for it; nothing of it is left.
        CorruptDatabase: The copy is damaged, so the source is; it was removed.
    """
    with new_file(target, source=real, overwrite=overwrite, database=True) as name:
        try:
            if not check:
                # Of a schema that may be damaged nothing is asked.
                _copy_as_is(source, name)
                return
            with _snapshot(source, memory=real is None):
                _check_room(source, name)
                _copy_pages(source, name, told)
        except (apsw.FullError, apsw.IOError) as error:
            raise DatabaseFull(
                f"{target} could not be written ({reason(error)}); make room on its "
                "disk, or choose another"
            ) from error
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise _damaged(real, str(error)) from error


@block
def new_file(
    target: str | os.PathLike[str],
    *,
    source: str | None,
    overwrite: bool,
    database: bool = False,
) -> Iterator[str]:
    """The block writes a new private file; at its end it is *target*, safe on disk.

    The block is given the name that it has until then. If the block raises, the file is
    removed. Neither the jobs file *source* nor what lies beside it is ever the target,
    and a database is replaced only by one: if *database* is true.

    Raises:
        FileRefused: The target cannot be written, or is not to be.
        DatabaseFull: There is no room for it; nothing of it is left.
    """
    real = _checked(target, source=source, overwrite=overwrite, database=database)
    folder, base = os.path.split(real)
    remove_left(folder, re.compile(re.escape(base) + PART))
    name = f"{real}.{os.urandom(4).hex()}.part"
    files.create_private(Path(name))
    try:
        yield name
        _flush(name)
        _publish(name, real, overwrite=overwrite)
    except BaseException as error:
        for each in ("", *BESIDE):
            with contextlib.suppress(OSError):
                os.unlink(name + each)
        if isinstance(error, OSError):
            _refuse(target, error)
        raise


def remove_left(
    folder: str, named: re.Pattern[str], *, have_locks: bool = False
) -> None:
    """Delete what processes left that were killed while they copied.

    These are the files of such names that are too old to be anybody's; if they
    *have_locks*, all that nobody has open, but for those that are still empty.
    """
    with contextlib.suppress(OSError):
        for found in sorted(os.listdir(folder)):
            path = os.path.join(folder, found)
            if named.fullmatch(found) and _is_left(path, have_locks):
                for each in (*BESIDE, ""):
                    with contextlib.suppress(OSError):
                        os.unlink(path + each)


def _is_left(path: str, have_locks: bool) -> bool:
    about = os.lstat(path)
    if not stat.S_ISREG(about.st_mode):
        return False
    if not (have_locks and about.st_size):
        return now().timestamp() - about.st_mtime > LEFT_BEHIND
    try:
        with contextlib.closing(
            apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        ) as connection:
            # Who writes it has it to itself, and so has who reads it through its log.
            connection.pragma("journal_mode", "delete")
            connection.execute("begin exclusive")
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error:
        pass  # it is not whole
    return True


# The target ---------------------------------------------------------------------------


def _checked(
    target: str | os.PathLike[str],
    *,
    source: str | None,
    overwrite: bool,
    database: bool,
) -> str:
    """The real path of the target, which may be written."""
    name = files.plain_name(target)
    real = os.path.realpath(name)
    if os.path.islink(real) or (os.path.islink(name) and not _exists(real)):
        raise FileRefused(
            f"{name} is a symbolic link that leads nowhere; remove it, or give another "
            "name"
        )
    folder = os.path.dirname(real)
    if not os.path.isdir(folder):
        raise FileRefused(f"the folder {folder} does not exist; make it")
    if source is not None:
        _check_other(name, real, source)
    if _exists(real):
        kind = os.stat(real).st_mode
        if not stat.S_ISREG(kind):
            what = files.KINDS.get(stat.S_IFMT(kind), "no plain file")
            raise FileRefused(f"{name} is {what}; give the name of a file")
        if not overwrite:
            raise FileRefused(f"{name} exists already; give another name, or {ALLOW}")
        if not database:
            _check_no_database(name, real)
    if database:
        for each in BESIDE:
            if _exists(real + each):
                raise FileRefused(
                    f"{real}{each} belongs to another database of the same name, and "
                    "SQLite would take it for a part of the copy; remove both, or give "
                    "another name"
                )
    return real


def _check_other(name: str, real: str, source: str) -> None:
    for each in (source, *files.sidecars(source), f"{source}-journal"):
        if os.fspath(each) == real or (
            _exists(each) and _exists(real) and os.path.samefile(each, real)
        ):
            what = "the jobs file itself" if each is source else "a part of it"
            raise FileRefused(f"{name} is {what}; give another name")


def _check_no_database(name: str, real: str) -> None:
    """What is there may be replaced by something that is not a database."""
    try:
        begins = first_bytes(real, len(MAGIC))
    except apsw.Error as error:
        raise FileRefused(
            f"{name} cannot be read ({error}), and so may be a database; give another "
            "name"
        ) from error
    if begins == MAGIC:
        raise FileRefused(
            f"{name} is an SQLite database, which is not replaced by something else; "
            "give another name"
        )


def has_log(path: str) -> bool:
    """Whether the database is written through a write-ahead log, as all of ours are."""
    return first_bytes(path, FORMAT + 1)[FORMAT:] == b"\2"


def open_copy(real: str) -> apsw.Connection:
    """A connection that reads a database which may be anybody's, and leaves no trace.

    Raises:
        apsw.Error: It cannot be opened.
    """
    name, flags = real, apsw.SQLITE_OPEN_READONLY
    if has_log(real) and not _exists(f"{real}-wal"):
        # Nobody has it open, and SQLite would make files beside it.
        name = f"file:{quote(real.replace(os.sep, '/'))}?immutable=1"
        flags |= apsw.SQLITE_OPEN_URI
    with process_guard.expected_open(real):
        connection = apsw.Connection(name, flags=flags)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    return connection


def first_bytes(real: str, number: int) -> bytes:
    """So many bytes with which the file begins, or all that it has.

    By SQLite's own hand: closing any other descriptor of a database that this process
    has open would drop its locks.
    """
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
    with process_guard.expected_open(real):
        file = apsw.VFSFile("", real, [flags, 0])
        try:
            return file.xRead(min(number, file.xFileSize()), 0)
        finally:
            file.xClose()


def _exists(path: str | os.PathLike[str]) -> bool:
    return os.path.lexists(path)


def _publish(name: str, real: str, *, overwrite: bool) -> None:
    """The file has its own name; what had that name is replaced only if it may be."""
    if overwrite:
        os.replace(name, real)
    elif os.name == "posix":
        try:
            # Unlike `rename`, it replaces nothing.
            os.link(name, real)
        except FileExistsError:
            raise
        except OSError:
            # A file system without links; that somebody comes in between is left.
            if _exists(real):
                raise FileExistsError(errno.EEXIST, "File exists", real) from None
            os.rename(name, real)
        else:
            os.unlink(name)
    else:  # pragma: no cover - Windows
        os.rename(name, real)
    _flush_folder(os.path.dirname(real))


def _refuse(target: str | os.PathLike[str], error: OSError) -> NoReturn:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
        raise DatabaseFull(
            f"{target} could not be written ({error.strerror}); make room on its disk, "
            "or choose another"
        ) from error
    way_out = too_many_open(error) or "give another name"
    raise FileRefused(
        f"{target} could not be written ({error.strerror}); {way_out}"
    ) from error


def _flush(name: str) -> None:
    """What is in the file survives a power cut. No SQLite has it open any more."""
    descriptor = os.open(name, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: str) -> None:
    if os.name != "posix":  # pragma: no cover - Windows has no such thing
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        # A folder may be written and not read. The file has its name.
        return
    try:
        # Not every file system can.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Copying ------------------------------------------------------------------------------


@block
def _snapshot(source: apsw.Connection, *, memory: bool) -> Iterator[None]:
    """What the source shows in the block is of one moment."""
    if memory:
        # The caller has it to itself.
        yield
        return
    source.execute("begin")
    try:
        source.execute("select count(*) from sqlite_schema").fetchall()
        yield
    finally:
        # SQLite may have ended it itself, after an I/O error.
        if source.in_transaction:  # pragma: no branch
            source.execute("rollback")


def _check_room(source: apsw.Connection, name: str) -> None:
    needed = source.pragma("page_count") * source.pragma("page_size")
    free = shutil.disk_usage(os.path.dirname(name)).free
    if needed > free:
        raise DatabaseFull(
            f"the copy needs {needed // 2**20 + 1} MB, and {free // 2**20} MB are free "
            f"in {os.path.dirname(name)}; make room, or choose another disk"
        )


def _copy_as_is(source: apsw.Connection, name: str) -> None:
    with contextlib.closing(
        apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
    ) as copied:
        with copied.backup("main", source, "main") as backup:
            backup.step()
        with contextlib.suppress(apsw.Error):
            copied.pragma("journal_mode", "delete")


def _copy_pages(source: apsw.Connection, name: str, told: Told | None) -> None:
    pages = max(1, SIZES.copied_bytes // int(source.pragma("page_size")))
    with contextlib.closing(
        apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
    ) as copied:
        copied.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        copied.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        # Nobody else sees it yet, and if this fails it is thrown away.
        copied.pragma("journal_mode", "off")
        copied.pragma("synchronous", "off")
        with copied.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(pages)
                if told is not None:
                    told(backup.page_count - backup.remaining, backup.page_count)
                if not backup.done:
                    RealTime.sleep(PAUSE)
        # Or it could not be read from where no log can be made beside it.
        copied.pragma("journal_mode", "delete")
        # As when a file is opened: a row that a check does not like is not damage.
        copied.pragma("ignore_check_constraints", True)
        found = copied.execute("pragma quick_check(1)").fetchall()
        if found[0][0] != "ok":
            raise apsw.CorruptError(found[0][0])


def reason(error: apsw.Error) -> str:
    """What SQLite says of it; while it copies it only gives a number for that."""
    said = str(error)
    if said != "not an error":
        return said
    full = isinstance(error, apsw.FullError)
    return "database or disk is full" if full else "disk I/O error"


def _damaged(real: str | None, detail: str) -> CorruptDatabase:
    return CorruptDatabase(
        f"{real or 'what is in memory'} is damaged ({one_line(detail)}), so no copy of "
        "it was kept; see what litejobs doctor says"
    )
