"""How `litejobs run` shows the log: as text for people, or as JSON for programs.

With `--log-format json`, each record is one line with one object:

    time          ISO 8601 in UTC, with milliseconds: "2026-01-01T09:00:00.250Z"
    level         "DEBUG", "INFO", "WARNING", "ERROR" or "CRITICAL"
    logger        the name of the logger
    message       the text, its arguments filled in
    exception     the traceback as text, where the record has one
    stack         the stack as text, where the record has one

and whatever else the record was given (`extra`), by its name. One that has a name of
those above is under `extra_` and that name.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import Any

from litejobs.cli import printing

_OWN = ("time", "level", "logger", "message", "exception", "stack")
# What each record has. A record's `asctime` and `message` are made by formatters.
_USUAL = {*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"}


class TextFormatter(logging.Formatter):
    """One line per record, and none of it is obeyed by a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - inherited
        """Return the line, escaped."""
        return printing.escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - inherited
        """Return the traceback, each of its lines escaped."""
        return "\n".join(map(printing.escaped, _exception(self, ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """One line with one JSON object per record; see above.

    It never raises: what a record was given may be anything, and who has logged it is
    not to fail because it is shown in this way.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as one line of ASCII."""
        known: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        for given, value in vars(record).items():
            name = str(given)
            if name not in _USUAL:
                known[f"extra_{name}" if name in _OWN else name] = value
        # Other handlers may have shown the exception in their own way.
        if record.exc_info:
            known["exception"] = _exception(self, record.exc_info)
        elif record.exc_text:
            known["exception"] = known.pop("traceback", record.exc_text)
        if record.stack_info:
            known["stack"] = self.formatStack(record.stack_info)
        members = (f"{json.dumps(name)}: {_json(known[name])}" for name in known)
        return f"{{{', '.join(members)}}}"


def _json(value: object) -> str:
    """The value, if JSON can hold it, or else what it says of itself."""
    try:
        return json.dumps(value, allow_nan=False)
    except Exception:
        return json.dumps(_text(value))


def _text(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception as error:
        kind, why = type(value).__name__, type(error).__name__
        return f"<{kind} whose text fails with {why}>"


def _time(created: float) -> str:
    try:
        at = dt.datetime.fromtimestamp(created, dt.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return _text(created)  # of a record that somebody has made by hand
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:
        return f"{_text(record.msg)} (its arguments fail with {type(error).__name__})"


def _exception(formatter: logging.Formatter, found: Any) -> str:
    """The traceback; of an exception that cannot be shown, its type at least."""
    try:
        return logging.Formatter.formatException(formatter, found)
    except Exception as error:
        why = type(error).__name__
        return f"{found[0].__name__} (its traceback fails with {why})"


_FORMATTERS: dict[str, logging.Formatter] = {
    "text": TextFormatter("%(asctime)s %(levelname)s %(message)s"),
    "json": JsonFormatter(),
}


def show_log(wanted: str | None) -> None:
    """Log to the error stream, unless the application has set up its logging.

    If a format is *wanted* by name, what the application shows on the standard streams
    has it, too; its files and other handlers are left as they are.
    """
    log = logging.getLogger("litejobs")
    # `logging.config` turns off every logger that is there before it and that it is not
    # told of, if it is not told to leave them: so it does with this one.
    log.disabled = False
    root = logging.getLogger()
    there = [*root.handlers, *log.handlers]
    if there and wanted is None:
        return
    formatter = _FORMATTERS[wanted or "text"]
    shown = [each for each in there if _is_on_a_standard_stream(each)]
    for handler in shown:
        handler.setFormatter(formatter)
    if shown:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root.addHandler(handler)
    if not there and log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def _is_on_a_standard_stream(handler: logging.Handler) -> bool:
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(handler, logging.StreamHandler) and handler.stream in standard
