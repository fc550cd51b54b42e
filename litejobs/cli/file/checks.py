"""What `litejobs doctor` looks at, one after the other.

What the rows say is asked in SQL, of the view `litejobs_doctor`; here is what no query
can see: the pages, the files beside it, the disk, the processes, the clocks.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import shutil
import stat
import sys
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

from litejobs import __version__
from litejobs._definitions.milliseconds import from_ms
from litejobs._process.sizes import SIZES
from litejobs._schedules.zones import tzdata_version
from litejobs._storage import files, readers, schema, schema_version, statements
from litejobs._storage.refusals import (
    is_of_unknown_format,
    shown_name,
    unknown_format_sentence,
)
from litejobs._storage.runner_lock import living_standbys, runner_lives
from litejobs._storage.vital_signs import CAUSES, HELD, causes_shown, is_suspended
from litejobs._values.text import one_line
from litejobs.cli import printing
from litejobs.cli.file.reader import no_room
from litejobs.cli.file.unchecked import UncheckedReader, open_unchecked
from litejobs.errors import FileRefused

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")

MIB = 2**20
LITTLE_SPACE = 256 * MIB
NO_SPACE = 16 * MIB
MOST_COMPLAINTS = 100  # of one check of SQLite's
MOST_SHOWN = 5  # names or complaints in one sentence
ONE_SECOND = 1_000  # ms
INCREMENTAL = 2  # `auto_vacuum`: pages can be moved, and those at the end given back

Damage = (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)


class Check(NamedTuple):
    """What was found, or that there was nothing to find. A fatal one: see `doctor`."""

    check: str
    level: Level
    sentence: str
    remedy: str | None = None
    object: str | None = None
    fatal: bool = False


class Report(NamedTuple):
    """All of it. `file` is what was measured, by name."""

    versions: dict[str, str]
    file: dict[str, Any]
    checks: list[Check]

    @property
    def level(self) -> Level:
        """The worst that was found."""
        return max((each.level for each in self.checks), key=LEVELS.index)

    @property
    def is_usable(self) -> bool:
        """Whether an application could use the file."""
        return not any(check.fatal for check in self.checks)


def examine(path: str, *, quick: bool, replay: bool = False) -> Report:
    """All that can be said of the file; nothing in it or beside it is changed."""
    report = Report(versions(), {"path": path}, [])
    found = report.checks
    found += _software(report.versions)
    found += _files_beside(os.path.realpath(path), report.file)
    try:
        with _silent(), open_unchecked(path, shared=True) as reader:
            found += _inside(reader, report.file, quick=quick, replay=replay)
    except FileRefused as error:
        sentence, _, remedy = str(error).partition("; ")
        found.append(Check("file", "problem", sentence, remedy or None, fatal=True))
    except Damage as error:
        found.append(_damaged("file", error))
    except (apsw.BusyError, apsw.LockedError):
        found.append(_locked("file"))
    except apsw.Error as error:
        found.append(_unreadable(path, error))
    return report


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What would be logged of the file is found by the checks, too."""
    logger, nowhere = logging.getLogger("litejobs"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)


def _inside(
    reader: UncheckedReader, file: dict[str, Any], *, quick: bool, replay: bool
) -> Iterator[Check]:
    """What the connection shows: the pages first, then what is on them."""
    reader.beware()
    for name, look in (
        ("settings", lambda: _settings(reader, file)),
        ("pages", lambda: _pages(reader)),
    ):
        found = _looked(name, look)
        yield from found
        if any(check.fatal for check in found):
            # Whatever else is read may be anything.
            return
    yield from _looked("log", lambda: _log(reader, file))
    yield from _looked("schema", lambda: _schema(reader, file))
    version = file.get("schema_version")
    if isinstance(version, int) and version <= statements.current_version():
        yield from _looked("runner", lambda: _runner(reader, file))
        yield from _looked("clock", lambda: _clock(reader))
        yield from _looked("zones", lambda: _zones(reader))
        if version == statements.current_version():
            yield from _looked("rows", lambda: _rows(reader))
            if replay:
                yield from _looked("replay", lambda: _replay(reader))
    yield from _looked("references", lambda: _references(reader))
    if not quick:
        yield from _looked("indexes", lambda: _integrity(reader))


def _looked(name: str, look: Callable[[], Iterable[Check]]) -> list[Check]:
    """What a look has found, or why it has found nothing."""
    found: list[Check] = []
    try:
        # One by one: what was found before an error counts.
        for check in look():
            found.append(check)  # noqa: PERF402 - those before an error count
    except apsw.InterruptError:
        sentence = "took too long and was given up"
        remedy = "give it more time: litejobs --timeout 5m … doctor"
        # Without the schema nothing is known of the file: that is not well. Nor is it
        # known to be sound, if pages and indexes were not looked at to their end.
        unknown = name == "schema"
        level: Level = "problem" if unknown else "note"
        if name in {"pages", "indexes"}:
            level = "warning"
        sentence = f"the look at {name} {sentence}"
        found.append(Check(name, level, sentence, remedy, fatal=unknown))
    except (apsw.BusyError, apsw.LockedError):
        found.append(_locked(name))
    except Damage as error:
        found.append(_damaged(name, error))
    except (apsw.FullError, apsw.IOError) as error:
        sentence, _, remedy = str(no_room("the file", error)).partition("; ")
        found.append(Check(name, "problem", sentence, remedy, fatal=True))
    except (apsw.Error, ValueError, TypeError, OverflowError, LookupError) as error:
        if is_of_unknown_format(error):
            return [_damaged(name, error)]
        remedy = "see what else was found"
        sentence = f"the look at {name} has failed: {error}"
        found.append(Check(name, "warning", sentence, remedy))
    return found


def _damaged(name: str, error: Exception) -> Check:
    if isinstance(error, apsw.NotADBError):
        sentence = "the file is not an SQLite database"
        remedy = "name another file, or restore a backup"
        return Check(name, "problem", sentence, remedy, fatal=True)
    if is_of_unknown_format(error):
        sentence, _, remedy = unknown_format_sentence("the file").partition("; ")
        return Check(name, "problem", sentence, remedy, fatal=True)
    return Check(
        name,
        "problem",
        f"the file is damaged: {one_line(str(error))}",
        "restore a backup, or copy out what still reads with the sqlite3 shell's "
        ".recover",
        fatal=True,
    )


def _locked(name: str) -> Check:
    return Check(
        name,
        "warning",
        f"another process has locked the file, so {name} could not be looked at",
        "end that process, or try again",
    )


def _unreadable(path: str, error: Exception) -> Check:
    return Check(
        "file",
        "problem",
        f"{path} cannot be opened: {error}",
        "check the permissions of the file and of its folder; on read-only media: "
        "litejobs --immutable … doctor",
        fatal=True,
    )


def _few(names: list[str]) -> str:
    """The first names, and how many more."""
    more = len(names) - MOST_SHOWN
    return ", ".join(names[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


# Software -----------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """What runs here, and of which version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        cronsim = version("cronsim")
    except PackageNotFoundError:
        cronsim = "unknown"
    return {
        "litejobs": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "cronsim": cronsim,
        "tz": tzdata_version(),
        "tz_source": _tz_source(),
    }


def _tz_source() -> str:
    """Where time zones are read from."""
    for folder in zoneinfo.TZPATH:
        if (Path(folder) / "UTC").is_file():
            return folder
    return "none" if tzdata_version() == "none" else "package tzdata"


def _software(found: dict[str, str]) -> Iterator[Check]:
    names = {"python": "Python", "sqlite": "SQLite", "tz": "tz database"}
    listed = [
        f"{names.get(name, name)} {value}"
        for name, value in found.items()
        if name != "tz_source"
    ]
    yield Check("versions", "ok", f"{', '.join(listed)} ({found['tz_source']})")
    oldest = ".".join(map(str, schema.OLDEST_SQLITE))
    if _numbers(found["sqlite"]) < schema.OLDEST_SQLITE:
        sentence = f"SQLite {found['sqlite']} is too old to keep jobs safely"
        remedy = f"upgrade apsw to bring {oldest} or newer"
        yield Check("versions", "problem", sentence, remedy)
    if found["tz"] == "none":
        sentence = "there is no tz database, so no time zone but UTC is known"
        yield Check("versions", "warning", sentence, "install the package tzdata")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


# The file and the disk ----------------------------------------------------------------


def _files_beside(real: str, file: dict[str, Any]) -> Iterator[Check]:
    """What the file system says of the file and its folder."""
    try:
        status = os.stat(real)  # looked at by name, never opened
    except OSError:
        return
    file["size"] = status.st_size
    file["log_size"] = files.size_of(f"{real}-wal")
    yield from _permissions(real, status)
    folder = os.path.dirname(real)
    kind = files.filesystem_type(folder) or "unknown"
    file["file_system"] = kind
    if kind in files.NETWORK_TYPES:
        sentence = f"{folder} is on a network file system ({kind}), where the locks of "
        sentence += "SQLite cannot be trusted"
        yield Check("disk", "problem", sentence, "keep the jobs file on a local disk")
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        file["disk_free"] = free
        left = f"{printing.size(free)} are free on the disk ({kind})"
        if free < LITTLE_SPACE:
            level: Level = "problem" if free < NO_SPACE else "warning"
            yield Check("disk", level, f"only {left}", "make room")
        else:
            yield Check("disk", "ok", left)


def _permissions(real: str, status: os.stat_result) -> Iterator[Check]:
    if os.name == "posix":  # pragma: no branch
        mode = stat.S_IMODE(status.st_mode)
        folder = os.path.dirname(real)
        if mode & 0o077:
            level: Level = "warning" if mode & 0o022 else "note"
            others = "change" if mode & 0o022 else "read"
            sentence = f"other users may {others} the file (mode {mode:04o})"
            yield Check("permissions", level, sentence, f"chmod 600 {real}")
        if status.st_uid != os.geteuid():
            sentence = f"the file belongs to another user (number {status.st_uid})"
            remedy = "run the application and the commands as one user"
            yield Check("permissions", "note", sentence, remedy)
        around = os.stat(folder).st_mode
        if around & stat.S_IWOTH and not around & stat.S_ISVTX:
            sentence = f"every user may write in {folder}, and so replace the file"
            yield Check("permissions", "warning", sentence, f"chmod o-w {folder}")
    if status.st_nlink > 1:
        sentence = f"the file has {status.st_nlink} names (hard links), and its log "
        sentence += "lies beside one of them; the others are not backups"
        yield Check("permissions", "warning", sentence, "leave it one name")
    if not _may_use(real):
        remedy = "change its permissions, or run this as its owner"
        sentence = "this user may not write to the file"
        yield Check("permissions", "warning", sentence, remedy)
    else:
        sentence = f"this user may read and write {real}"
        yield Check("permissions", "ok", sentence)


def _may_use(real: str) -> bool:
    return os.access(real, os.R_OK | os.W_OK)


# Inside the file ----------------------------------------------------------------------


def _settings(reader: UncheckedReader, file: dict[str, Any]) -> Iterator[Check]:
    names = (
        *("journal_mode", "page_size", "page_count", "freelist_count"),
        *("auto_vacuum", "encoding", "application_id", "user_version"),
    )
    for name in names:
        file[name] = reader.setting(name)
    mode = file["journal_mode"]
    shown = f"journal mode {mode}, pages of {file['page_size']} bytes"
    if mode == "wal":
        yield Check("settings", "ok", shown)
    else:
        sentence = f"the file has no write-ahead log (journal mode {mode})"
        remedy = "none is needed: litejobs sets it when it opens the file"
        yield Check("settings", "note", sentence, remedy)
    unused = file["freelist_count"] * file["page_size"]
    if unused > SIZES.much_unused and 2 * file["freelist_count"] > file["page_count"]:
        sentence = (
            f"{printing.size(unused)} of {printing.size(file['size'])} are unused pages"
        )
        remedy = "they are used again; or: litejobs purge --older-than 30d --vacuum"
        if file["auto_vacuum"] == INCREMENTAL:
            remedy = "they are used again, and given back while a runner is idle"
        yield Check("settings", "note", sentence, remedy)


def _pages(reader: UncheckedReader) -> Iterator[Check]:
    # Rows that a check constraint does not like are not damage, see `_integrity`.
    reader.connection.pragma("ignore_check_constraints", True)
    complaints = reader.complaints("quick_check", MOST_COMPLAINTS)
    if complaints:
        yield _damaged("pages", apsw.CorruptError(_few(complaints)))
    else:
        yield Check("pages", "ok", "SQLite's quick check finds nothing wrong")


def _integrity(reader: UncheckedReader) -> Iterator[Check]:
    """Every index has every row, and every row is as the constraints want it."""
    try:
        reader.connection.pragma("ignore_check_constraints", False)
        complaints = reader.complaints("integrity_check", MOST_COMPLAINTS)
    except apsw.SQLError:
        # A check of the application's calls a function that only that has.
        reader.connection.pragma("ignore_check_constraints", True)
        complaints = reader.complaints("integrity_check", MOST_COMPLAINTS)
    broken = [
        each for each in complaints if not each.startswith("CHECK constraint failed")
    ]
    refused = [each for each in complaints if each not in broken]
    if broken:
        remedy = "stop the application and run REINDEX, or restore a backup"
        sentence = f"the file is not sound: {_few(broken)}"
        yield Check("indexes", "problem", sentence, remedy)
    if refused:
        names = sorted(set(refused))
        sentence = f"rows that their tables would refuse: {_few(names)}"
        remedy = "correct them with the sqlite3 shell; somebody wrote past the checks"
        ours = any("litejobs_" in each for each in names)
        yield Check("indexes", "warning" if ours else "note", sentence, remedy)
    if not complaints:
        yield Check("indexes", "ok", "SQLite's full check finds nothing wrong")


def _schema(reader: UncheckedReader, file: dict[str, Any]) -> Iterator[Check]:
    if not reader.value("installed"):
        sentence = "the file holds no jobs tables"
        remedy = f"check the name, or make them: litejobs --db {reader.path} init"
        yield Check("schema", "problem", sentence, remedy, fatal=True)
        return
    try:
        version = reader.value("file_version")
    except apsw.SQLError:
        version = None
    file["schema_version"] = version
    known = statements.current_version()
    lost, remedy = _dropped(reader) if version in {None, known} else ("", "")
    if lost:
        yield Check("schema", "problem", lost, remedy, fatal=True)
    elif not isinstance(version, int):
        sentence = "the file holds objects named litejobs_… but no version of them"
        remedy = "restore it from a backup, or use another file"
        yield Check("schema", "problem", sentence, remedy, fatal=True)
    elif version > known:
        sentence = f"the file has schema version {version}, this litejobs knows {known}"
        remedy = "upgrade litejobs, or use the one that made the file"
        yield Check("schema", "problem", sentence, remedy, fatal=True)
    elif version < known and not statements.is_as_made(reader.connection, version):
        sentence = f"the file has schema version {version}, and is not as that was made"
        remedy = "restore a backup; nobody can upgrade this file as it is"
        yield Check("schema", "problem", sentence, remedy, fatal=True)
    elif version < known:
        sentence = f"the file has schema version {version}, this litejobs has {known}"
        remedy = "it is upgraded when an application with this litejobs opens it"
        yield Check("schema", "note", sentence, remedy)
    else:
        changed = _changed(reader)
        if changed:
            sentence = f"not as litejobs made it: {_few(changed)}"
            remedy = "restore a backup; nobody can write to this file as it is"
            yield Check("schema", "problem", sentence, remedy, fatal=True)
        else:
            yield Check("schema", "ok", f"schema version {version}, as it was made")
    strangers = reader.rows("triggers_of_others")
    if strangers:
        names = [f"{each['name']} on {each['place']}" for each in strangers]
        sentence = f"the application has triggers on tables of jobs: {_few(names)}"
        remedy = "none is needed, if they are quick and write nothing to those tables"
        yield Check("schema", "note", sentence, remedy)


def _changed(reader: UncheckedReader) -> list[str]:
    """Which of our objects are not as this version makes them, and how."""
    if statements.is_as_made(reader.connection):
        return []
    changes = statements.changes(_objects(reader))
    return [f"{shown_name(name)} ({how})" for name, how in changes]


def _dropped(reader: UncheckedReader) -> tuple[str, str]:
    """That our tables are gone, and what helps; empty if they are there."""
    if statements.is_as_made(reader.connection):
        return "", ""
    return schema_version.dropped(_objects(reader), reader.path)


def _objects(reader: UncheckedReader) -> statements.Objects:
    return [
        (str(row["type"]), str(row["name"]), str(row["sql"]))
        for row in reader.rows("our_objects")
    ]


# The log and the runner ---------------------------------------------------------------


def _log(reader: UncheckedReader, file: dict[str, Any]) -> Iterator[Check]:
    """How long the write-ahead log is, and whether somebody keeps it from being cut."""
    size = file.get("log_size", 0)
    frames, written = reader.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    file["log_frames"], file["log_frames_written_back"] = frames, written
    if size <= SIZES.wal_warning:
        yield Check("log", "ok", f"the write-ahead log has {printing.size(size)}")
        return
    sentence = f"the write-ahead log has {printing.size(size)}"
    if written >= frames:
        sentence += ", all of it written back"
        remedy = "a runner cuts it when it is idle, or the last program that closes it"
        yield Check("log", "warning", sentence, remedy)
        return
    sentence += f", of which {written} of {frames} pages are written back"
    reads = readers.lasting_reads(f"{reader.real}-shm")
    others = [each for each in reads or () if each[0] != os.getpid()]
    if others:
        names = readers.names_of(frozenset(others))
        sentence += f"; a read is open in process {', '.join(names)}"
    remedy = "close the cursors of what reads for so long, or end it"
    yield Check("log", "warning", sentence, remedy)


def _runner(reader: UncheckedReader, file: dict[str, Any]) -> Iterator[Check]:
    held = runner_lives(reader.real)
    file["runner_lock_held"] = bool(held)
    if held is None:
        sentence = "it cannot be told whether a process holds the runner's lock"
        remedy = f"check the permissions of {files.sidecars(reader.real).runner}"
        yield Check("runner", "warning", sentence, remedy)
        return
    yield from _runs(reader, held=held)
    yield from _standbys(reader, file)


def _runs(reader: UncheckedReader, *, held: bool) -> Iterator[Check]:
    rows = reader.rows("living_runner")
    if not rows:
        if held:
            sentence = "a process holds the runner's lock, and no runner is in the file"
            remedy = "try again: it may be about to begin or to end"
            yield Check("runner", "note", sentence, remedy)
        else:
            yield Check("runner", "ok", "no runner is running")
        return
    row = rows[0]
    named = f"runner {row['id']} (process {row['pid']} on {row['host']})"
    threads = f"with {row['threads']} threads"
    since = printing.cell(from_ms(row["started_at"]))
    if held:
        sentence = f"{named} has been running {threads} since {since}"
        yield Check("runner", "ok", sentence)
        yield from _vital_signs(reader.real, row["id"], row["pid"])
    else:
        yield Check(
            "runner",
            "warning",
            f"{named}, begun {since}, is gone: its lock is free, and it never stopped",
            "start a runner: it takes up what that one has left",
            f"runner {row['id']}",
        )


def _vital_signs(real: str, runner: int, process: int) -> Iterator[Check]:
    """What the process of the runner shows, and how the system has it."""
    name = f"runner {runner}"
    suspended = is_suspended(process)
    if suspended:
        sentence = f"process {process} is suspended, and runs nothing"
        yield Check("runner", "problem", sentence, f"kill -CONT {process}", name)
    for code in causes_shown(real):
        if suspended and code == HELD:
            continue
        sentence = f"{name} does not get on: {CAUSES[code]}"
        remedy = "its log, and jobs.health() in its program, say more"
        yield Check(code, "problem", sentence, remedy, name)


def _standbys(reader: UncheckedReader, file: dict[str, Any]) -> Iterator[Check]:
    """Who waits for the runner's end; rows that others have left do not count."""
    rows = {row["id"]: row for row in reader.rows("standbys")}
    living = living_standbys(reader.real, rows) or []
    file["standbys"] = len(living)
    shown = []
    for each in living:
        since = printing.cell(from_ms(rows[each]["began_at"]))
        shown.append(f"process {rows[each]['pid']} (since {since})")
    if shown:
        verb = "stands by, and takes" if len(shown) == 1 else "stand by, and one takes"
        sentence = f"{_few(shown)} {verb} over when the runner ends"
        yield Check("standbys", "ok", sentence)


# Clocks, zones and rows ---------------------------------------------------------------


def _clock(reader: UncheckedReader) -> Iterator[Check]:
    here = dt.datetime.now(dt.UTC)
    there = from_ms(reader.value("now"))
    apart = abs((there - here) // dt.timedelta(milliseconds=1))
    if apart > ONE_SECOND:
        sentence = f"SQLite's clock and Python's are {apart} ms apart"
        remedy = "set the clock of this machine right"
        yield Check("clock", "warning", sentence, remedy)
    else:
        yield Check("clock", "ok", f"it is {printing.cell(here)}")


def _zones(reader: UncheckedReader) -> Iterator[Check]:
    """Whether schedules were planned with another tz database than the one here."""
    from litejobs._schedules.planner import outdated

    pairs = [tuple(row.values()) for row in reader.rows("zones_in_use")]
    for zone, version in outdated(pairs):
        yield Check(
            "zones",
            "note",
            f"schedules in {zone} were planned with another tz database ({version})",
            "a runner plans them anew when it starts",
            f"zone {zone}",
        )


def _rows(reader: UncheckedReader) -> Iterator[Check]:
    """What the view `litejobs_doctor` says."""
    found = reader.rows("list_findings")
    for row in found:
        level = row["level"]
        yield Check(
            str(row["code"]),
            level if level in LEVELS else "problem",
            str(row["sentence"]),
            None if row["remedy"] is None else str(row["remedy"]),
            None if row["object"] is None else str(row["object"]),
        )
    if not found:
        yield Check("rows", "ok", "jobs, attempts, lanes and schedules fit together")
    yield Check("retention", "ok", str(reader.value("retention_told")))


def _replay(reader: UncheckedReader) -> Iterator[Check]:
    """What jobs are, and what is recorded of them."""
    from litejobs._control.past import gone_in_words, replayed

    found = 0
    for row in replayed(reader, MOST_COMPLAINTS):
        found += 1
        job = row["job_id"]
        remedy = "restore a backup: a program has written past the triggers"
        if job is not None:
            remedy = f"see litejobs show {job}; {remedy}"
        name = None if job is None else f"job {job}"
        yield Check("replay", "problem", str(row["sentence"]), remedy, name)
    if found == MOST_COMPLAINTS:
        sentence = f"only the first {found} jobs that are not what is recorded are told"
        yield Check(
            "replay", "note", sentence, "ask for the others when these are well"
        )
    if not found:
        yield Check("replay", "ok", "every job is what is recorded of it")
    gone = reader.rows("past_horizon", {"log_id": 0, "task": None})
    if gone:
        sentence = f"nothing is left to compare where {gone_in_words(gone)}"
        yield Check("replay", "ok", sentence)


def _references(reader: UncheckedReader) -> Iterator[Check]:
    broken = []
    for row in reader.rows("our_objects"):
        if row["type"] == "table":
            found = reader.complaints("foreign_key_check", row["name"])
            if found:
                broken.append(f"{row['name']} ({len(found)})")
    if broken:
        sentence = f"rows that name others which are not there: {_few(broken)}"
        remedy = "restore a backup; somebody has deleted past the foreign keys"
        yield Check("references", "problem", sentence, remedy)
    else:
        yield Check("references", "ok", "every row that is named is there")
