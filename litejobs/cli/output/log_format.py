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
        return "\n".join(map(printing.escaped, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """One line with one JSON object per record; see above."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as one line of ASCII."""
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        known: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _USUAL:
                known[f"extra_{name}" if name in _OWN else name] = _plain(value)
        # Other handlers may have shown the exception in their own way.
        if record.exc_info:
            known["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            known["exception"] = known.pop("traceback", record.exc_text)
        if record.stack_info:
            known["stack"] = self.formatStack(record.stack_info)
        return json.dumps(known)


def _plain(value: object) -> object:
    """The value, if JSON can hold it, or else what it says of itself."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)
    return value


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
