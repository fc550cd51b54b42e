"""What an attempt returned or raised, as the outcome document that rules look at.

What libraries tell with their exceptions is read by the names of attributes; none of
them is imported. Reading an attribute may run anybody's code, so whatever goes wrong
there costs the document that one fact.
"""

from __future__ import annotations

import datetime as dt
import errno
import functools
import json
import math
import re
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, TracebackType
from typing import Any, TypeVar

from litejobs._definitions import json_codec
from litejobs._definitions.json_codec import mro as _mro
from litejobs._definitions.json_codec import type_name as _name
from litejobs._process import log
from litejobs._process.clock import now
from litejobs._process.forked_child import parent_only
from litejobs._process.interrupts import from_outside, shielded
from litejobs._tasks import result as _result
from litejobs._tasks.frames import hide_ours
from litejobs._tasks.result import compact as _compact
from litejobs.errors import (
    ArgumentError,
    ResultNotStored,
    TaskCancelled,
    TaskError,
    TaskStopped,
    TaskTimeout,
)

Extractor = Callable[[BaseException], Mapping[str, Any] | None]
"""What an application knows about an error, as members of its document."""

OK = '{"status":"ok"}'
TEXT_LIMIT = 65_536
MAX_CAUSES = 5
MAX_FRAMES = 2_000
MAX_RETRY_AFTER = 315_576_000
"""Ten years of 365.25 days, in seconds."""

_T = TypeVar("_T")
_MISSING = object()

STOPPED = "stopped"
"""The code of what a stop of its runner has ended."""

_STATUS = {TaskTimeout: "timeout", TaskCancelled: "cancelled"}
# An attempt that was interrupted uses up none, so a task cannot say that of itself.
_STATUS_WHILE_STOPPING = {
    TaskTimeout: "timeout",
    TaskCancelled: "interrupted",
    TaskStopped: "interrupted",
}


def of_result(
    value: object, ran_ms: int, *, lost: Callable[[str], None] | None = None
) -> str:
    """The document of an attempt that returned *value* after *ran_ms* milliseconds.

    Its work is done, whatever the value is: one that cannot be stored is described
    instead, and *lost* is told why. But a coroutine or a generator that has not ended
    is work that nobody has done: the attempt failed, and is not tried again, since the
    same code would do the same.
    """
    if value is None:
        return f'{{"status":"ok","ran_ms":{ran_ms}}}' if ran_ms else OK
    try:
        return of_success(value, ran_ms, lost=lost)
    except ArgumentError as error:
        return of_error(error, ran_ms, retryable=False)


def of_success(
    value: object,
    ran_ms: int | None = None,
    *,
    lost: Callable[[str], None] | None = None,
) -> str:
    """As `of_result`; *ran_ms* may be left out.

    Raises:
        ArgumentError: The value is work that nobody has done.
    """
    if value is None:
        return f'{{"status":"ok","ran_ms":{ran_ms}}}' if ran_ms else OK
    ran = "" if ran_ms is None else f',"ran_ms":{ran_ms}'
    try:
        result, reason = _result.member(value, must_be_done=True)
    except _result.Unfinished as error:
        raise ArgumentError(str(error)) from None
    if reason is not None and lost is not None:
        lost(reason)
    return f'{{"status":"ok"{ran},{result}}}'


def of_late(outcome: str) -> str:
    """The document of an attempt that was out of time before it brought *outcome*."""
    told = json.loads(outcome)
    if told["status"] not in ("ok", "error"):
        return outcome
    late = TaskTimeout("the time limit has passed")
    return of_error(late, told.get("ran_ms", 0))


def of_error(
    error: BaseException,
    ran_ms: int,
    *,
    retryable: bool = True,
    stopping: bool = False,
    extractors: Iterable[Extractor] = (),
) -> str:
    """The document of an attempt that raised *error*.

    *stopping* says that it was told so by its runner, which is stopping: then it is
    taken back, whether the task has let `TaskStopped` pass or has seen itself that it
    is to end. One that raises that without being told has failed like others.

    Beside the error itself it has, where they are known, `http.status`, `retry_after`
    (in seconds) and `pg.code`: of the error, or else of the nearest of its causes.
    *extractors* add to that; a later one goes before an earlier one.

    Never raises on account of the error or an extractor. Only what comes from outside,
    an interrupt of this thread or Ctrl-C, passes through.
    """
    document = _skeleton(error, ran_ms, retryable, stopping)
    try:
        hide_ours(error)
        _add_details(document, error)
        _ask(extractors, error, document)
        return _compact(document)
    except from_outside():
        raise
    except BaseException:
        # There is no way here that we know of, but an attempt has to end.
        log.exception("an error could not be described; its attempt failed")
        return _compact(_skeleton(error, ran_ms, retryable, stopping))


def not_retryable(code: str, message: str) -> str:
    """The document of an attempt that could not even begin."""
    return _compact(
        {
            "status": "error",
            "retryable": False,
            "error": {
                "type": "BadJob",
                "types": ["BadJob"],
                "code": code,
                "message": json_codec.bounded_text(message, TEXT_LIMIT),
            },
        }
    )


def of_misfit(message: str) -> str:
    """The document of an attempt that did not begin: its arguments do not fit.

    It uses up none, and the job is held until they do.
    """
    return _compact(
        {
            "status": "interrupted",
            "error": {
                "type": "BadJob",
                "types": ["BadJob"],
                "code": "arguments_do_not_fit",
                "message": json_codec.bounded_text(message, TEXT_LIMIT),
            },
        }
    )


def of_interruption(reason: str, code: str | None = None) -> str:
    """The document of an attempt that the runner took back."""
    known = {} if code is None else {"code": code}
    return _compact(
        {
            "status": "interrupted",
            "error": {
                "type": "TaskStopped",
                "module": TaskStopped.__module__,
                "types": ["TaskStopped"],
                **known,
                "message": json_codec.bounded_text(reason, TEXT_LIMIT),
            },
        }
    )


def of_give_back(reason: str) -> str:
    """The document of an attempt that was not begun, or that Ctrl-C ended.

    Where that happens again and again, the job is put off.
    """
    return of_interruption(reason, "given_back")


def of_stop() -> str:
    """The document of an attempt that ran, and that a stop of its runner ended.

    Where that happens again and again, the job is put off: it may be what stops it.
    """
    return of_interruption("the runner stopped", STOPPED)


# --- what every error has ----------------------------------------------------------


def _skeleton(
    error: BaseException, ran_ms: int, retryable: bool, stopping: bool
) -> dict[str, Any]:
    """The document as far as no code of the error's own is asked."""
    kinds = _mro(type(error))
    known = _STATUS_WHILE_STOPPING if stopping else _STATUS
    document: dict[str, Any] = {
        "status": next((known[each] for each in kinds if each in known), "error"),
        "ran_ms": ran_ms,
        "error": {
            "type": _name(kinds[0]),
            "module": _module(kinds[0]),
            "types": [_name(each) for each in kinds[:-1]][:50],
        },
    }
    if document["status"] == "interrupted":
        document["error"]["code"] = STOPPED
    if not retryable:
        document["retryable"] = False
    return document


def _module(kind: type) -> str | None:
    """Where the class of an error can be imported from, if it says so."""
    # Its metaclass is not asked.
    module = _text(type.__dict__["__module__"].__get__(kind))
    return None if module is None else json_codec.bounded_text(module, 200)


def _add_details(document: dict[str, Any], error: BaseException) -> None:
    document["error"] |= {
        "code": document["error"].get("code") or _code(error),
        "message": json_codec.bounded_text(_message(error), TEXT_LIMIT),
        "traceback": _both_ends(_traceback(error)),
    }
    if issubclass(type(error), BaseExceptionGroup):
        document["error"]["exceptions"] = _members(error)
    data = _attribute(error, "data")
    if data is not None:
        member, _ = _result.member(data, "data", TEXT_LIMIT)
        document["error"] |= json.loads(f"{{{member}}}")
    if issubclass(type(error), (TaskError, ResultNotStored)):
        kept = _attribute(error, "retryable", True)
        if _or_default(lambda: not kept, False):
            document["retryable"] = False
    chain = _chain(error)
    for name, find in (("http", _http), ("pg", _pg), ("retry_after", _retry_after)):
        for each in chain:
            found = find(each)
            if found is not None:
                document[name] = found
                break


def _code(error: BaseException) -> str | int | None:
    """The error's own code, from whichever attribute its library uses."""
    for name in ("code", "error_code", "sqlstate"):
        found = _attribute(error, name)
        text = _text(found)
        if text is not None:
            return json_codec.bounded_text(text, 200)
        number = _integer(found)
        if number is not None:
            return number if abs(number) <= json_codec.MAX_INTEGER else None
    number = _integer(_attribute(error, "errno"))
    return None if number is None else errno.errorcode.get(number)


def _members(group: BaseException) -> list[str]:
    """The names of the types in an exception group, each once, of inner groups too."""
    names: dict[str, None] = {}
    waiting = [group]
    for each in waiting:  # which grows meanwhile
        inner = _attribute(each, "exceptions")
        if issubclass(type(each), BaseExceptionGroup) and type(inner) is tuple:
            waiting += inner[: 1_000 - len(waiting)]
        else:
            names[_name(type(each))] = None
    return list(names)[:50]


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except from_outside():
        raise
    except BaseException as broken:
        return f"<{_name(type(error))} whose text fails with {_name(type(broken))}>"


# --- its traceback -----------------------------------------------------------------

_HEAD = TEXT_LIMIT // 4
_TAIL = TEXT_LIMIT - _HEAD - 100


def _traceback(error: BaseException) -> str:
    """Where it happened, without the values of variables.

    Of a very deep one the innermost frames are given.
    """
    begin = _attribute(error, "__traceback__")
    frames = begin if isinstance(begin, TracebackType) else None
    none: list[str] = []
    if frames is not None and _stands_alone(error):
        lines = _or_default(lambda: _lines(error, frames), none)
        if lines:
            return "".join(lines)
    lines = _or_default(
        lambda: traceback.format_exception(
            type(error), error, frames, limit=-MAX_FRAMES
        ),
        none,
    )
    if not lines:
        # Groups within groups can be too deep for it, and notes can fail.
        lines = _or_default(
            lambda: traceback.format_tb(frames, limit=-MAX_FRAMES), none
        )
        lines = [*lines, f"{_name(type(error))}: {_message(error)}\n"]
    return "".join(lines)


def _stands_alone(error: BaseException) -> bool:
    """Whether all there is to tell is the error itself: no cause, no group."""
    return (
        _attribute(error, "__cause__") is None
        and (
            _attribute(error, "__context__") is None
            or _attribute(error, "__suppress_context__") is True
        )
        and not issubclass(type(error), BaseExceptionGroup)
    )


_MOST_LINES = 30
_MOST_KNOWN = 500
_known_lines: dict[tuple[str, CodeType, int], str] = {}


def _lines(error: BaseException, frames: TracebackType) -> list[str]:
    """The text of a short traceback, or nothing of one that is not so simple.

    As the standard library has it, which reads each line of source anew and parses it
    to underline a part: most of what an error costs. A job that fails is likely to fail
    where the last one did, so the text of a place is kept.
    """
    lines = ["Traceback (most recent call last):\n"]
    frame: TracebackType | None = frames
    before = None
    while frame is not None:
        code = frame.tb_frame.f_code
        # Code of two files may be equal.
        place = (code.co_filename, code, frame.tb_lasti)
        if place == before or len(lines) > _MOST_LINES:
            return []
        text = _known_lines.get(place)
        if text is None:
            text = "".join(traceback.format_tb(frame, limit=1))
            if len(_known_lines) >= _MOST_KNOWN:
                _known_lines.clear()
            _known_lines[place] = text
        lines.append(text)
        before = place
        frame = frame.tb_next
    return lines + traceback.format_exception_only(error)


def _both_ends(text: str) -> str:
    """A traceback in at most TEXT_LIMIT bytes: where it begins and where it ends.

    The end is what an endless recursion is recognised by, and names the error.
    """
    start = _clean(text[: TEXT_LIMIT + 1])
    if len(text) <= TEXT_LIMIT and len(start.encode()) <= TEXT_LIMIT:
        return start
    head = start.encode()[:_HEAD].decode(errors="ignore")
    tail = _clean(text[-TEXT_LIMIT:]).encode()[-_TAIL:].decode(errors="ignore")
    # At the ends of lines, unless a line is very long.
    head = head[: head.rfind("\n", len(head) - 1_000) + 1] or head
    tail = tail[tail.find("\n", 0, 1_000) + 1 :]
    mark = f"… [cut: {len(text)} characters in all]\n"
    return f"{head}{mark if head.endswith(chr(10)) else chr(10) + mark}{tail}"


def _clean(text: str) -> str:
    return json_codec.bounded_text(text, 4 * TEXT_LIMIT + 4)


# --- what libraries say about it ---------------------------------------------------

_PG_CODE = "[0-9A-Z]{5}"
_SECONDS = r"[0-9]{1,20}(?:\.[0-9]{1,20})?"


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it names as its cause, five links of these at most."""
    chain = [error]
    while len(chain) <= MAX_CAUSES:
        cause: Any = _attribute(chain[-1], "__cause__")
        if not issubclass(type(cause), BaseException):
            break
        if any(cause is each for each in chain):
            break
        chain.append(cause)
    return chain


def _http(error: BaseException) -> dict[str, int] | None:
    """The status of the response that this error is about.

    `error.response` as in requests and httpx; asked for its truth, a response of
    requests says False for an error. Or the error is the response, as in urllib: it
    has headers, by which its number is told from other codes.
    """
    response = _attribute(error, "response")
    found = [_attribute(response, name) for name in ("status_code", "status")]
    if _attribute(error, "headers", _MISSING) is not _MISSING:
        found += [_attribute(error, name) for name in ("code", "status")]
    for each in found:
        status = _http_status(each)
        if status is not None:
            return {"status": status}
    return None


def _http_status(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and 100 <= number <= 599 else None  # noqa: PLR2004 - status codes of HTTP


def _pg(error: BaseException) -> dict[str, str] | None:
    """The SQLSTATE, as psycopg 3 and asyncpg name it, or as psycopg2 does."""
    for name in ("sqlstate", "pgcode"):
        code = _text(_attribute(error, name))
        if code is not None and re.fullmatch(_PG_CODE, code):
            return {"code": code}
    return None


def _retry_after(error: BaseException) -> int | float | None:
    """The seconds to wait: the error's own, or those of its response's header."""
    found = _seconds(_attribute(error, "retry_after"))
    if found is not None:
        return found
    for each in (_attribute(error, "response"), error):
        header = _header(_attribute(each, "headers"))
        if header is not None:
            return _or_default(functools.partial(_header_seconds, header), None)
    return None


def _header(headers: Any) -> str | None:
    if headers is None:
        return None
    # Both, because it may be a plain dict.
    for name in ("Retry-After", "retry-after"):
        found = _text(_or_default(functools.partial(_get, headers, name), None))
        if found is not None:
            return found
    return None


def _get(headers: Any, name: str) -> object:
    return headers.get(name)


def _header_seconds(text: str) -> int | float | None:
    """The header Retry-After in seconds from now, rounded up; None for nonsense.

    A date of the past is 0 seconds.

    Raises:
        ValueError: It looks like a date and is none.
    """
    text = text.strip(" \t")
    if re.fullmatch(_SECONDS, text):
        return _seconds(math.ceil(float(text)))
    if len(text) > 64:  # noqa: PLR2004 - longer than any date
        return None
    with shielded():
        # Not at the top: large, and seldom needed. An import that is interrupted could
        # leave its lock behind.
        import email.utils
    at = email.utils.parsedate_to_datetime(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=dt.UTC)
    left = at - now()
    return _seconds(max(0, -(-left // dt.timedelta(seconds=1))))


def _seconds(value: object) -> int | float | None:
    """A duration of at most ten years in seconds; None for anything else."""
    kind = type(value)
    seconds: int | float | None = None
    if issubclass(kind, dt.timedelta):
        seconds = dt.timedelta.total_seconds(value)  # type: ignore[arg-type]
    elif issubclass(kind, float):
        seconds = float.__float__(value)  # type: ignore[arg-type]
    else:
        seconds = _integer(value)
    if seconds is None or not 0 <= seconds <= MAX_RETRY_AFTER:  # NaN is not either
        return None
    return int(seconds) if seconds == int(seconds) else seconds


# --- what the application says about it --------------------------------------------

_OBJECTS = ("error", "http", "pg")
_MAX_COMPLAINTS = 1_000

_complaints: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
_other_complaints: set[str] = set()


def _ask(
    extractors: Iterable[Extractor], error: BaseException, document: dict[str, Any]
) -> None:
    for extractor in extractors:
        try:
            with parent_only():
                found = extractor(error)
            _merge(_checked(found), document)
        except from_outside():
            raise
        except BaseException as problem:
            _or_default(functools.partial(_complain, extractor, error, problem), None)


def _checked(found: Any) -> dict[str, Any]:
    """What an extractor returned, as members that a document may have.

    None, for the whole or for a member of the document's own, says nothing.

    Raises:
        ArgumentError: It is not what an extractor may return.
    """
    if found is None:
        return {}
    if not issubclass(type(found), Mapping):
        raise ArgumentError(
            f"it returned a value of type {type(found).__name__}; "
            "return a dict of members for the outcome document, or None"
        )
    known = (*_OBJECTS, "retry_after", "retryable")
    given = {
        name: value
        for name, value in found.items()
        if name not in {"status", "ran_ms"} and (value is not None or name not in known)
    }
    if "retry_after" in given:
        given["retry_after"] = _seconds(given["retry_after"])
        if given["retry_after"] is None:
            raise _nonsense("retry_after", "a number of seconds from 0 to 10 years")
    text = json_codec.encode(given, what="what it returned", limit=TEXT_LIMIT)
    members: dict[str, Any] = json_codec.decode(text)
    for name in _OBJECTS:
        if type(members.get(name, {})) is not dict:
            raise _nonsense(name, "a dict")
    if _http_status(members.get("http", {}).get("status", 200)) is None:
        raise _nonsense("http.status", "an integer from 100 to 599")
    if type(members.get("pg", {}).get("code", "")) is not str:
        raise _nonsense("pg.code", "a text")
    if type(members.get("retryable", True)) is not bool:
        raise _nonsense("retryable", "True or False")
    return members


def _nonsense(name: str, allowed: str) -> ArgumentError:
    return ArgumentError(f"{name} is not {allowed} in what it returned; correct it")


def _merge(given: dict[str, Any], document: dict[str, Any]) -> None:
    for name, value in given.items():
        if name in _OBJECTS:
            document[name] = document.get(name, {}) | value
        elif name != "retryable" or not value:
            # Who said that it must not be tried again is not overruled.
            document[name] = value


def _complain(
    extractor: Extractor, error: BaseException, problem: BaseException
) -> None:
    """It is logged that the extractor failed, once for each type of error."""
    name = _text(_attribute(extractor, "__qualname__")) or _name(type(extractor))
    kind = _name(type(error))
    told = _or_default(
        lambda: _complaints.setdefault(extractor, set()), _other_complaints
    )
    if f"{name} {kind}" in told or len(told) >= _MAX_COMPLAINTS:
        return
    told.add(f"{name} {kind}")
    if issubclass(type(problem), ArgumentError):
        sentence, where = str(problem), None
    else:
        sentence, where = f"it failed with {_name(type(problem))}", problem
    log.warning(
        "the extractor %s adds nothing to errors of type %s, which is said only "
        "once: %s",
        json_codec.bounded_text(name, 200),
        kind,
        sentence,
        exc_info=where,
    )


# --- reading what may fail ---------------------------------------------------------


def _or_default(read: Callable[[], _T], otherwise: _T) -> _T:
    """What *read* returns, or *otherwise* if it fails in whatever way."""
    try:
        return read()
    except from_outside():
        raise
    except BaseException:
        return otherwise


def _attribute(thing: object, name: str, otherwise: object = None) -> Any:
    """The attribute, or *otherwise* where there is none or reading it fails."""
    # As `_or_default`, without the cost of a function: asked some twenty times per
    # error.
    try:
        return getattr(thing, name, otherwise)
    except from_outside():
        raise
    except BaseException:
        return otherwise


# By their types and not with isinstance, which believes what an object says it is.


def _text(value: object) -> str | None:
    return str.__str__(value) if issubclass(type(value), str) else None


def _integer(value: object) -> int | None:
    if issubclass(type(value), int) and type(value) is not bool:
        return int.__index__(value)  # type: ignore[arg-type]
    return None
