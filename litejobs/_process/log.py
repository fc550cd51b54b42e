"""Whatever litejobs says to the log of the application is said here.

A handler or a filter is code of others: it may raise, and it may show a terminal what
it is given. So nothing that it raises comes back to the loop, to a worker or to who
enqueues, and texts are escaped, whoever wrote them. What a live exception says for
itself (`exc_info`) is the application's, and is left as it is; a traceback of which
the file has only the text is escaped and indented, so that none of its lines can pass
for a line of the log.

A record that is lost is not lost in silence: as the standard library does, the error is
printed to stderr, unless the application has set `logging.raiseExceptions` to False; at
most once a minute, with how many were lost. And it is in `runner.health`, not as the
`problem`, for jobs run, but among the `problems`, until a record is made again.

In the main thread what is not an `Exception` passes, since a signal may have brought
it: Ctrl-C, or the `SystemExit` of a handler for SIGTERM. In others none comes from
outside; an interrupt of a task waits until the record is made.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from litejobs._process.clock import RealTime
from litejobs._process.interrupts import shielded
from litejobs._values.text import Lines, escaped

DEBUG, INFO, WARNING, ERROR = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
)
LONGEST = 1_000  # characters of one value in a record
REMIND_AFTER = 60.0  # seconds between two complaints of records that were lost

# Not by the name, which a class may have made its own.
_traceback: Any = BaseException.__dict__["__traceback__"]

_logger = logging.getLogger("litejobs")
# Nothing is logged by this one: its level says whether tracebacks are wanted of each
# failure (DEBUG), or only of those that are final. It has that of `litejobs` otherwise.
_tracebacks = logging.getLogger("litejobs.traceback")
_lost = 0
_problem: str | None = None
_complained_at = -REMIND_AFTER


def is_enabled(level: int) -> bool:
    """Whether records of this level are wanted; no, where that cannot be found out."""
    return _is_enabled(_logger, level)


def wants_tracebacks() -> bool:
    """Whether failures that are not final are to have their tracebacks, too."""
    return _is_enabled(_tracebacks, logging.DEBUG)


def _is_enabled(logger: logging.Logger, level: int) -> bool:
    try:
        return logger.isEnabledFor(level)
    except BaseException as error:
        if _may_be_a_signal(error):
            raise
        return False


def debug(message: str, *values: object, extra: Mapping[str, object] = {}) -> None:
    """Say what only those want to know who look for something."""
    _say(logging.DEBUG, message, values, extra=extra)


def info(message: str, *values: object, extra: Mapping[str, object] = {}) -> None:
    """Say what is as it should be."""
    _say(logging.INFO, message, values, extra=extra)


def warning(
    message: str,
    *values: object,
    extra: Mapping[str, object] = {},
    exc_info: BaseException | None = None,
) -> None:
    """Say what somebody should look at."""
    _say(logging.WARNING, message, values, extra=extra, exc_info=exc_info)


def error(
    message: str,
    *values: object,
    extra: Mapping[str, object] = {},
    exc_info: BaseException | None = None,
) -> None:
    """Say what is wrong."""
    _say(logging.ERROR, message, values, extra=extra, exc_info=exc_info)


def exception(message: str, *values: object, extra: Mapping[str, object] = {}) -> None:
    """Say what is wrong, with the exception that is being handled."""
    _say(logging.ERROR, message, values, extra=extra, exc_info=sys.exception())


def say(
    level: int,
    message: str,
    *values: object,
    extra: Mapping[str, object] = {},
    exc_info: BaseException | None = None,
) -> None:
    """Say it at this level."""
    _say(level, message, values, extra=extra, exc_info=exc_info)


def _say(
    level: int,
    message: str,
    values: tuple[object, ...],
    *,
    extra: Mapping[str, object] = {},
    exc_info: BaseException | None = None,
) -> None:
    # An interrupt would leave the lock of a handler behind.
    with shielded():
        try:
            if _logger.isEnabledFor(level):
                more = {
                    name: _field(value)
                    for name, value in extra.items()
                    if value is not None
                }
                shown = tuple(map(_shown, values))
                if "traceback" in more and exc_info is None:
                    _log_stored(level, message, shown, more)
                else:
                    _logger.log(
                        level,
                        message,
                        *shown,
                        extra=more,
                        exc_info=_told(exc_info),
                        stacklevel=3,
                    )
                _note(None)
        except BaseException as raised:
            if _may_be_a_signal(raised):
                raise
            _complain(raised)


def _told(
    error: BaseException | None,
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """As `logging` takes it without asking the exception for anything."""
    return None if error is None else (type(error), error, _traceback.__get__(error))


def _log_stored(
    level: int, message: str, values: tuple[object, ...], extra: dict[str, object]
) -> None:
    """As `Logger.log`; formatters show the traceback as that of an exception.

    They ask the record for that text before they make it of an exception.
    """
    path, line, function, _ = _logger.findCaller(stacklevel=4)
    record = _logger.makeRecord(
        *(_logger.name, level, path, line, message, values, None, function, extra)
    )
    record.exc_text = _indented(str(extra["traceback"]))
    _logger.handle(record)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def problems() -> list[str]:
    """What is wrong with the log, since the last record of it was lost."""
    return [] if _problem is None else [_problem]


def _note(problem: str | None) -> None:
    global _problem  # noqa: PLW0603 - one log for the process
    _problem = problem


class _Shown(str):
    """A value as a record may have it; `%r` shows it in quotes."""

    __slots__ = ("_quoted",)

    _quoted: str

    def __repr__(self) -> str:
        return self._quoted


def _shown(value: object) -> object:
    kind = type(value)
    if kind is int or value is None or kind in {float, bool, Lines}:
        return value
    if kind is str and len(value) <= LONGEST and value.isprintable():  # type: ignore[arg-type, attr-defined]
        return value  # as nearly all are, and shown by `%r` as below
    text = str(value)
    made = _Shown(escaped(text, LONGEST))
    # `repr` escapes the same characters.
    made._quoted = repr(text) if len(text) <= LONGEST else repr(str(made))
    return made


def _field(value: object) -> object:
    # Of the usual types alone: a handler may send the record to another program.
    shown = _shown(value)
    return str(shown) if isinstance(shown, str) else shown


def _may_be_a_signal(raised: BaseException) -> bool:
    return (
        not isinstance(raised, Exception)
        and threading.get_ident() == threading.main_thread().ident
    )


def _complain(raised: BaseException) -> None:
    """Say where the application's logging says such things that it fails."""
    global _lost, _complained_at  # noqa: PLW0603 - one log for the process
    try:
        _lost += 1
        kind = type(raised).__name__
        _note(f"what litejobs logs is lost: {kind}: {escaped(str(raised), LONGEST)}")
        now = RealTime.monotonic()
        if not logging.raiseExceptions or now - _complained_at < REMIND_AFTER:
            return
        _complained_at = now
        import traceback

        count, _lost = _lost, 0
        trace = "".join(traceback.format_exception(raised))
        # None where the program has no terminal.
        if sys.stderr is not None:
            sys.stderr.write(
                f"--- Logging error ---\n{trace}litejobs goes on; {count} of its "
                "records were lost\n"
            )
    except BaseException as error:
        if _may_be_a_signal(error):
            raise
