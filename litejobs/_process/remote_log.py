"""What tasks log in another process goes to the loggers of this one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

LONGEST_RECORD = 8 * 1024 * 1024  # characters of a record, as JSON
LONGEST_TEXT = 64 * 1024  # characters of each of its texts, where that is too long
_OF_RECORDS = frozenset(logging.makeLogRecord({}).__dict__)


def levels() -> dict[str, int]:
    """The levels of this process's loggers; "" is that of the root."""
    found = {"": logging.root.level}
    for name, logger in tuple(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            found[name] = logger.level
    return found


def hand_on(fields: dict[str, Any]) -> None:
    """A record of another process is made here, if it is wanted here."""
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def set_levels(levels: dict[str, int]) -> None:
    """Loggers of these names make records of these levels; "" is the root."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


def send_by(sending: Callable[[], Callable[[str], object] | None]) -> None:
    """From now on records go to what *sending* says then, as JSON of their fields.

    With None it goes nowhere.
    """
    logging.getLogger().addHandler(_Sender(sending))


class _Sender(logging.Handler):
    def __init__(self, sending: Callable[[], Callable[[str], object] | None]) -> None:
        super().__init__()
        self._sending = sending
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send what the record says, as text."""
        send = self._sending()
        if send is None:
            return
        try:
            fields = dict(record.__dict__, msg=record.getMessage(), args=None)
            if record.exc_info and not record.exc_text:
                fields["exc_text"] = self._formatter.formatException(record.exc_info)
            fields["exc_info"] = None
            send(_as_json(fields))
        except Exception:
            self.handleError(record)


def _as_json(fields: dict[str, Any]) -> str:
    """What a record says; of one that cannot be told so, or is too long, the text."""
    try:
        text = json.dumps(fields, default=str, skipkeys=True)
    except Exception:
        text = ""
    if 0 < len(text) <= LONGEST_RECORD:
        return text
    known = {name: fields.get(name) for name in _OF_RECORDS}
    cut = {
        name: each[:LONGEST_TEXT] if isinstance(each, str) else each
        for name, each in known.items()
    }
    return json.dumps(cut, default=str)
