"""What can go wrong, as one tree.

    LiteJobsError
    ├── ConfigurationError    an option or declaration that cannot work (ValueError)
    ├── ArgumentError         arguments that cannot be stored, or do not fit (TypeError)
    ├── JobNotFound           no job with this id (LookupError)
    ├── BatchNotFound         no batch with this id (LookupError)
    ├── ScheduleNotFound      no schedule of this name (LookupError)
    ├── CursorNotFound        no cursor of this name (LookupError)
    ├── CursorInUse           a process reads on from it at this moment
    ├── OperationNotFound     no operation with this id, or none to undo (LookupError)
    ├── Refused               the database refused the change
    │   ├── InvalidTransition   a move between states that is not allowed
    │   └── ConstraintViolated  a value that a named constraint keeps out
    │       ├── FileFull          the file is as large as `max_size` says
    │       ├── JobExists         another job has the unique key
    │       └── ScheduleExists    another schedule has the name
    ├── JobNotCompleted       asked for a result that will never come
    │   ├── JobDeadLettered     it failed for good
    │   └── JobCancelled        it was cancelled
    ├── EventsLost            a part of the log was deleted before it was read
    ├── ResultNotStored       the job is completed, its result could not be stored
    ├── ResultTimeout         asked for a result that has not come yet (TimeoutError)
    ├── RunnerActive          another process runs the jobs of this file
    ├── Closed                this LiteJobs object was closed
    ├── ForkedProcess         this object belongs to the parent process
    ├── DatabaseBusy          another connection kept the write lock too long
    ├── DatabaseFull          disk full or an I/O error; nothing was written
    │   └── DiskFailed          the disk fails, and is not full
    ├── OutcomeUnknown        COMMIT failed: it may or may not have been stored
    └── FileRefused           the file cannot be used; it was not changed
        ├── NotADatabase, CorruptDatabase, ReadOnlyDatabase
        ├── NewerSchema, TamperedSchema, SQLiteTooOld
        └── NetworkFileSystem, SharedFile

    TaskError                 raised by tasks: a failure with a code and data
    TaskInterrupt             raised *into* tasks (a BaseException)
    ├── TaskTimeout             the time limit has passed
    ├── TaskCancelled           somebody asked for the job to be cancelled
    └── TaskStopped             the runner is stopping

A message names the thing, the value and the way out.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import apsw

from litejobs._values.text import one_line, sentence


def _again(
    kind: type[BaseException], args: tuple[Any, ...], members: dict[str, Any]
) -> BaseException:
    """The exception as it was, without its constructor, which may want more."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(members)
    return error


def _reduced(error: BaseException) -> tuple[Any, ...]:
    """How it is copied, and pickled into another process."""
    return _again, (type(error), error.args, {**vars(error)})


class LiteJobsError(Exception):
    """Every exception that litejobs raises on its own account.

    Its sentence is one line without control characters, since it may quote the file.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(
            *(sentence(each) if isinstance(each, str) else each for each in given)
        )

    __reduce__ = _reduced


class ConfigurationError(LiteJobsError, ValueError):
    """An option or a declaration cannot work; nothing was changed."""


class ArgumentError(LiteJobsError, TypeError):
    """Arguments cannot be stored as JSON, or do not fit the task."""


class JobNotFound(LiteJobsError, LookupError):
    """The file holds no job with this id."""


class BatchNotFound(LiteJobsError, LookupError):
    """The file holds no batch with this id."""


class ScheduleNotFound(LiteJobsError, LookupError):
    """The file holds no schedule of this name."""


class CursorNotFound(LiteJobsError, LookupError):
    """There is no cursor of this name."""


class CursorInUse(LiteJobsError):
    """A process reads on from the cursor at this moment; `process` is its number."""

    def __init__(self, message: str, process: int) -> None:
        super().__init__(message)
        self.process = process


class OperationNotFound(LiteJobsError, LookupError):
    """The file holds no operation with this id, or none that could be undone."""


class Refused(LiteJobsError):
    """The database refused a change; nothing of it was stored.

    `code` is the word before the colon of the database's sentence, or the name of
    the constraint.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InvalidTransition(Refused):
    """The job is in a state from which this move is not allowed."""


class ConstraintViolated(Refused):
    """A named constraint keeps this value out."""


class FileFull(ConstraintViolated):
    """The file is as large as `max_size` says, and takes no new job."""


class JobExists(ConstraintViolated):
    """Another job has the same unique key; `job_id` says which."""

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message, "unique_key_taken")
        self.job_id = job_id


class ScheduleExists(ConstraintViolated):
    """Another schedule has the same name; nothing was stored."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "schedule_exists")


class JobNotCompleted(LiteJobsError):
    """A result was asked for that will never come; `job_id` says of which job."""

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobDeadLettered(JobNotCompleted):
    """The job failed for good; the message quotes its last error."""


class JobCancelled(JobNotCompleted):
    """The job was cancelled."""


class EventsLost(LiteJobsError):
    """A part of the log was deleted before it was read, with its jobs or attempts.

    What came after the id `after`, up to `until`, is not all there any more: that of
    jobs of the tasks in `tasks`, in which '' stands for what is about no job. What
    comes after `until` is whole: `jobs.log(after=error.until)` goes on, and so does a
    stream of events that raises this, when it is asked for the next one.
    """

    def __init__(
        self, message: str, after: int, until: int, tasks: tuple[str, ...]
    ) -> None:
        super().__init__(message)
        self.after = after
        self.until = until
        self.tasks = tasks


class ResultNotStored(LiteJobsError):
    """The job is completed, but JSON cannot hold what its task returned.

    `job_id` says which job, `type` the name of the type of what it returned, `text` has
    a short text of it, and `reason` says why it is not stored. A task that lets this
    pass is not tried again, for it would find the same.
    """

    retryable = False

    def __init__(
        self, message: str, job_id: int, kind: str, text: str, reason: str
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.type = kind
        self.text = text
        self.reason = reason


class ResultTimeout(LiteJobsError, TimeoutError):
    """The job has not ended within the time given; it goes on all the same."""


class RunnerActive(LiteJobsError):
    """Another runner works on this file; `pid` is its process, if known."""

    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class Closed(LiteJobsError):
    """This object was closed; make a new one."""


class ForkedProcess(LiteJobsError):
    """This object was made in a parent process and cannot be used after a fork."""


class DatabaseBusy(LiteJobsError):
    """Another connection, or a transaction of this process, kept the file too long.

    For five seconds, or ten if it is one of this process; or that waits for a file
    which the caller has in a transaction of its own.
    """


class DatabaseFull(LiteJobsError):
    """The disk is full or failed; the transaction was rolled back."""


class DiskFailed(DatabaseFull):
    """The disk fails, and is not full: the file could not be read."""


class OutcomeUnknown(LiteJobsError):
    """COMMIT reported an error: the change may or may not have been stored.

    Not where the disk was full and the write-ahead log shows that nothing was stored:
    that is `DatabaseFull`. Look before trying again, or try again with the same
    `unique_key`.
    """


class FileRefused(LiteJobsError):
    """The file cannot be used; nothing in it was changed."""


class NotADatabase(FileRefused):
    """The file is something else than an SQLite database."""


class CorruptDatabase(FileRefused):
    """SQLite finds the file damaged."""


class ReadOnlyDatabase(FileRefused):
    """The file or its folder cannot be written."""


class NewerSchema(FileRefused):
    """A newer litejobs made or upgraded this file."""


class TamperedSchema(FileRefused):
    """Tables, views or triggers of litejobs are not as this version made them."""


class SQLiteTooOld(FileRefused):
    """The SQLite library has known defects, or cannot upgrade a file."""


class NetworkFileSystem(FileRefused):
    """The file lies where SQLite's locks cannot be trusted."""


class SharedFile(FileRefused):
    """Another SQLite library in this process has the same file open."""


class TaskError(Exception):
    """Raise it in a task to fail with a *code* that retry rules can name.

    `data` is kept with the attempt as JSON. With `retryable=False` it is not tried
    again, whatever the job's limits allow. With `retry_after`, a duration such as
    `"30s"`, the next attempt does not come earlier; the attribute is in seconds.

    Raises:
        ConfigurationError: `retry_after` is not a duration from 0 to 10 years.
    """

    __reduce__ = _reduced

    def __init__(
        self,
        code: str,
        message: str = "",
        data: Any = None,
        *,
        retryable: bool = True,
        retry_after: timedelta | float | str | None = None,
    ) -> None:
        super().__init__(message or code)
        self.retry_after = self._seconds(retry_after)
        self.retryable = retryable
        self.code = code
        self.message = message or code
        self.data = data

    @staticmethod
    def _seconds(duration: timedelta | float | str | None) -> float | None:
        if duration is None:
            return None
        from litejobs._values.durations import Unusable, whole_ms

        try:
            ms = whole_ms(duration, name="retry_after")
        except Unusable as error:
            raise ConfigurationError(str(error)) from None
        if ms > 315_576_000_000:  # noqa: PLR2004 - ten years
            raise ConfigurationError(
                f"retry_after={duration!r} is more than 10 years; pass a shorter "
                "duration, or retryable=False"
            )
        return ms / 1000 if ms % 1000 else ms // 1000


class TaskInterrupt(BaseException):
    """Raised into a task's thread; let it pass, after cleaning up."""


class TaskTimeout(TaskInterrupt):
    """The attempt's time limit has passed; the attempt is already settled."""


class TaskCancelled(TaskInterrupt):
    """Somebody asked for this job to be cancelled."""


class TaskStopped(TaskInterrupt):
    """The runner is stopping and the grace period is over.

    Raised by a task that was not told so, it is an error like others.
    """


# Texts, as in other modules of ours: most programs never need them compiled.
_SENTENCE = r"(?s)^(?P<code>[a-z_]+): (?P<text>.+)$"
_RULE = (
    r"(?P<kind>CHECK|UNIQUE|NOT NULL|FOREIGN KEY) constraint failed"
    r"(?:: (?P<name>litejobs_\w+)(?P<columns>.*))?$"
)
_MISFIT = r"cannot store \w+ value in (\w+) column litejobs_(\w+)\.(\w+)"


def _broken_rule(text: str) -> ConstraintViolated | None:
    """What of ours is broken, in words without its names in the file, and its name.

    Rules are named for what they keep: litejobs_job_args_are_json.
    """
    if (misfit := re.search(_MISFIT, text)) is not None:
        kind, of, what = misfit[1], _words(misfit[2]), misfit[3]
        kinds = {"INTEGER": "a whole number", "REAL": "a number", "TEXT": "a text"}
        allowed = kinds.get(kind, "another value")
        return ConstraintViolated(
            f"{what} of a {of} is of the wrong type; give {allowed}"
        )
    found = re.search(_RULE, text)
    if found is None or (found["name"] is None and found["kind"] != "FOREIGN KEY"):
        return None
    if found["kind"] == "FOREIGN KEY":
        return ConstraintViolated(
            "a value names what is not in the file; give one that is there"
        )
    of, _, rule = found["name"].removeprefix("litejobs_").partition("_")
    columns = ", ".join(re.findall(r"\.(\w+)", found["columns"]))
    table = _words(found["name"])
    if found["kind"] == "NOT NULL":
        return ConstraintViolated(f"a {table} has to have its {columns}; give it")
    if found["kind"] == "UNIQUE":
        return ConstraintViolated(
            f"there is a {table} with this {columns} already; give another"
        )
    kept = re.sub(r" (length|size)$", r" of an allowed \1", _words(rule))
    refused = f"the file refused a value of a {of}, where this has to be so: {kept}"
    return ConstraintViolated(f"{refused}; give another value", found["name"])


def _words(name: str) -> str:
    return name.removeprefix("litejobs_").replace("_", " ").strip()


def _io_errors(*names: str) -> set[int]:
    return {getattr(apsw, f"SQLITE_IOERR_{name}") for name in names}


# Errors of the disk that no lack of room has brought about.
_OF_READING = _io_errors(
    *("READ", "SHORT_READ", "CORRUPTFS", "DATA", "FSTAT", "SEEK", "MMAP", "ACCESS")
)
_OF_SHARING = _io_errors("SHMMAP", "SHMOPEN")
_OF_LOCKING = _io_errors(
    *("LOCK", "RDLOCK", "UNLOCK", "SHMLOCK", "BLOCKED", "CHECKRESERVEDLOCK")
)


def translated(error: apsw.Error) -> Exception:
    """Return what an SQLite error means to a caller; others come back unchanged."""
    text = str(error)
    if isinstance(error, apsw.ConstraintError):
        if (broken := _broken_rule(text)) is not None:
            return broken
        text = text.removeprefix("ConstraintError: ")
        if (found := re.match(_SENTENCE, text)) is not None:
            if found["code"] == "disk_full":
                return DatabaseFull(text)
            if found["code"] == "file_full":
                return FileFull(text, "file_full")
            kind = (
                InvalidTransition
                if found["code"] in {"invalid_transition", "unknown_state"}
                else ConstraintViolated
            )
            return kind(text, found["code"])
        return ConstraintViolated(text)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return DatabaseBusy(
            "another connection kept the write lock of the jobs file for too long "
            f"({text}); try again, and keep transactions short"
        )
    if isinstance(error, (apsw.CantOpenError, apsw.IOError)):
        # It is there since the file was opened: where it helps, nothing can be read.
        from litejobs._values.descriptors import too_many_open

        if (reason := too_many_open()) is not None:
            return FileRefused(f"the jobs file cannot be used; {reason}")
    if isinstance(error, apsw.CantOpenError):
        return FileRefused(
            f"the jobs file, or one beside it, cannot be opened ({text}); check its "
            "folder"
        )
    if isinstance(error, (apsw.FullError, apsw.IOError)):
        return _of_disk(error, text)
    if isinstance(error, apsw.ReadOnlyError):
        return ReadOnlyDatabase(
            f"the jobs file cannot be written through this connection ({text}); write "
            "through jobs.transaction(), and check the file's permissions"
        )
    if isinstance(error, apsw.CorruptError):
        detail = one_line(text)
        return CorruptDatabase(f"the jobs file is damaged ({detail}); restore a backup")
    return error


def _of_disk(error: apsw.Error, text: str) -> LiteJobsError:
    kind = getattr(error, "extendedresult", None)
    if kind in _OF_SHARING:
        return FileRefused(
            f"the jobs file cannot be shared in memory where it lies ({text}): its "
            "file system does not map files, as FUSE with direct I/O does not; put it "
            "on a local disk"
        )
    if kind in _OF_LOCKING:
        return FileRefused(
            f"the jobs file cannot be locked where it lies ({text}); put it on a local "
            "disk"
        )
    if kind == apsw.SQLITE_IOERR_NOMEM:
        return LiteJobsError(
            f"there was no memory left for the jobs file ({text}); nothing was stored"
        )
    if kind in _OF_READING:
        return DiskFailed(
            f"the disk of the jobs file fails: it could not be read ({text}); try "
            "again, and if that goes on, see the system's log and restore a backup"
        )
    return DatabaseFull(
        f"the disk of the jobs file is full or failing ({text}); nothing was "
        "stored: make room and try again"
    )
