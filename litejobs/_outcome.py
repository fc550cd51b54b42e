"""What an attempt returned or raised, as the outcome document that rules look at."""

from __future__ import annotations

import errno
import json
import traceback
from typing import Any

from litejobs import _json
from litejobs.errors import (
    ArgumentError,
    TaskCancelled,
    TaskError,
    TaskStopped,
    TaskTimeout,
)

OK = '{"status":"ok"}'
RESULT_LIMIT = 1_048_576
TEXT_LIMIT = 65_536

_STATUS = {
    TaskTimeout: "timeout",
    TaskCancelled: "cancelled",
    TaskStopped: "interrupted",
}


def of_result(value: object, ran_ms: int) -> str:
    """The document of an attempt that returned *value* after *ran_ms* milliseconds.

    A value that cannot be stored makes the attempt a failure that is not retried: the
    same code would return the same kind of value again.
    """
    if value is None and ran_ms == 0:
        return OK
    if value is None:
        return f'{{"status":"ok","ran_ms":{ran_ms}}}'
    try:
        text = _json.encode(value, what="result", limit=RESULT_LIMIT)
    except ArgumentError as error:
        return of_error(error, ran_ms, retryable=False)
    return f'{{"status":"ok","ran_ms":{ran_ms},"result":{text}}}'


def of_error(error: BaseException, ran_ms: int, *, retryable: bool = True) -> str:
    """The document of an attempt that raised *error*."""
    status = next(
        (_STATUS[each] for each in type(error).__mro__ if each in _STATUS), "error"
    )
    document: dict[str, Any] = {
        "status": status,
        "ran_ms": ran_ms,
        "error": {
            "type": _name(type(error)),
            "types": [_name(each) for each in type(error).__mro__[:-1]][:50],
            "code": _code(error),
            "message": _json.bounded_text(_message(error), TEXT_LIMIT),
            "traceback": _json.bounded_text(_traceback(error), TEXT_LIMIT),
        },
    }
    data = _attribute(error, "data")
    if data is not None:
        document["error"]["data"] = _storable(data)
    if not retryable or (isinstance(error, TaskError) and not error.retryable):
        document["retryable"] = False
    return json.dumps(document)


def not_retryable(code: str, message: str) -> str:
    """The document of an attempt that could not even begin."""
    return json.dumps(
        {
            "status": "error",
            "retryable": False,
            "error": {
                "type": "BadJob",
                "types": ["BadJob"],
                "code": code,
                "message": _json.bounded_text(message, TEXT_LIMIT),
            },
        }
    )


def of_interruption(reason: str) -> str:
    """The document of an attempt that the runner took back."""
    return json.dumps(
        {
            "status": "interrupted",
            "error": {
                "type": "TaskStopped",
                "types": ["TaskStopped"],
                "message": reason,
            },
        }
    )


def _code(error: BaseException) -> str | int | None:
    """The error's own code, from whichever attribute its library uses."""
    for name in ("code", "error_code", "sqlstate"):
        found = _attribute(error, name)
        if isinstance(found, str):
            return _json.bounded_text(found, 200)
        if isinstance(found, int) and not isinstance(found, bool):
            return int(found) if abs(found) <= _json.MAX_INTEGER else None
    number = _attribute(error, "errno")
    if isinstance(number, int):
        return errno.errorcode.get(number)
    return None


def _name(kind: type) -> str:
    return _json.bounded_text(kind.__name__, 200)


def _attribute(error: BaseException, name: str) -> object:
    """The attribute, or None where there is none or reading it fails."""
    try:
        return getattr(error, name, None)
    except Exception:
        return None


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<{type(error).__name__} whose text fails with {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    """Where it happened, without the values of variables, our own frames left out."""
    try:
        return "".join(
            traceback.format_exception(type(error), error, error.__traceback__)
        )
    except Exception:
        return ""


def _storable(data: object) -> object:
    try:
        return _json.decode(_json.encode(data, what="data", limit=TEXT_LIMIT))
    except ArgumentError as error:
        return {"not_stored": str(error)}
