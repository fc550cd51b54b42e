"""What a task returned, as a member of its outcome document, whatever it is.

Its work is done, so nothing in here may fail. What JSON holds in another form is stored
in that form. For what it cannot hold there is another member instead, which says that
it is not stored, why, and of which type it was, with a short text of it.

No code of the value's own is run for that: not its `__repr__`, which may fail or never
end, and no property of it.
"""

from __future__ import annotations

import inspect
import json
import math
import types
from typing import Any

from litejobs._definitions import json_codec
from litejobs._definitions.json_codec import Misfit, TooLarge
from litejobs._process.interrupts import from_outside
from litejobs._tasks.short_text import text_of
from litejobs.errors import ArgumentError

LIMIT = 1_048_576

# Without blanks, as SQLite writes the members of a list: so a document is the same
# whether it is settled alone or with others.
compact = json.JSONEncoder(separators=(",", ":")).encode


class Unfinished(ArgumentError):
    """What was returned is work that has not been done: a coroutine, a generator."""


def member(
    value: object,
    name: str = "result",
    limit: int = LIMIT,
    *,
    must_be_done: bool = False,
) -> tuple[str, str | None]:
    """The member *name* of a document, or the one that says why it is not there.

    It is JSON text without braces, such as `"result":[1]`; with it comes the reason if
    the value is not stored.

    Raises:
        Unfinished: With *must_be_done*: the value is a coroutine or a generator that
            has not ended, or has one in it.
    """
    try:
        return f'"{name}":{_encode(value, name, limit)}', None
    except from_outside():
        raise
    except BaseException as error:
        if must_be_done and isinstance(error, Unfinished):
            raise
        # Not only a refusal: another thread may be changing the value.
        known = isinstance(error, ArgumentError)
        reason = str(error) if known else _unreadable(name, error)
    reason = json_codec.bounded_text(reason, 1_000)
    described = {
        "type": json_codec.type_name(type(value)),
        "text": text_of(value),
        "reason": reason,
    }
    return f'"{name}_not_stored":{compact(described)}', reason


def _encode(value: object, what: str, limit: int) -> str:
    try:
        return json_codec.encode(value, what=what, limit=limit)
    except ArgumentError:
        plain = _Plain(limit).of(value, what)
    # What it takes as text is known only now: a letter may take several bytes.
    return json_codec.encode(plain, what=what, limit=limit)


def _unreadable(name: str, error: BaseException) -> str:
    said = ", ".join(each for each in error.args if type(each) is str)
    return f"{name} could not be read: {json_codec.type_name(type(error))}: {said}"


class _Plain:
    """Copies a value into what JSON has, as far as that fits the limit.

    Tuples are lists. Keys that are integers, floats, booleans or None are texts, as
    JSON has those values. What is a str, int, float, list, tuple or dict with a class
    of its own, as members of an IntEnum are, is the plain value that it holds.
    """

    def __init__(self, limit: int) -> None:
        # Counted as in `json_codec`: the container around the value is not in the text.
        self._limit = limit
        self._room = limit + 2

    def of(self, value: object, what: str) -> Any:
        """The copy.

        Raises:
            ArgumentError: There is none, or two keys of a dict would be one text.
        """
        kind = ArgumentError
        try:
            return self._list((value,), 0)[0]
        except Misfit as misfit:
            sentence = misfit.sentence(what)
            if isinstance(misfit, _UnfinishedPart):
                kind = Unfinished
        except TooLarge:
            sentence = f"{what} {json_codec.too_large(self._limit)}"
        # Outside the handlers: as its context, the misfit would keep the value alive.
        raise kind(sentence)

    # By types, and by the methods of what they are made from: a class of its own may
    # have methods that say something else.

    def _any(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if issubclass(kind, str):
            return self._text(value)
        if issubclass(kind, dict):
            return self._dict(value, depth)
        if issubclass(kind, (list, tuple)):
            return self._list(value, depth)
        self._take(2)
        if issubclass(kind, int) and kind is not bool:
            value = int.__index__(value)
        elif issubclass(kind, float):
            value = float.__float__(value)
        elif _is_unfinished(value):
            raise _UnfinishedPart(json_codec.not_done(kind))
        json_codec.check_scalar(value, type(value))
        return value

    def _text(self, value: str, subject: str = "") -> str:
        self._take(str.__len__(value) + 3)
        text = str.__str__(value)
        json_codec.check_text(text, self._room, subject)
        return text

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        base: Any = list if issubclass(type(value), list) else tuple
        self._enter(base.__len__(value), depth)
        plain: list[Any] = []
        try:
            for item in base.__iter__(value):
                plain.append(self._any(item, depth + 1))  # noqa: PERF401 - counted
        except Misfit as misfit:
            misfit.path.append((value, len(plain)))
            raise
        return plain

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self._enter(dict.__len__(value), depth)
        plain: dict[str, Any] = {}
        for key, item in dict.items(value):
            name = self._key(key)
            if name in plain:
                raise Misfit(json_codec.same_keys(name))
            try:
                plain[name] = self._any(item, depth + 1)
            except Misfit as misfit:
                misfit.path.append((value, name))
                raise
        return plain

    def _key(self, key: Any) -> str:
        kind = type(key)
        if issubclass(kind, str):
            return self._text(key, "has a key that ")
        if key is None:
            name = "null"
        elif kind is bool:
            name = "true" if key else "false"
        elif issubclass(kind, int) and (
            json_codec.MIN_INTEGER <= int.__index__(key) <= json_codec.MAX_INTEGER
        ):
            name = int.__repr__(key)
        elif issubclass(kind, float) and math.isfinite(float.__float__(key)):
            name = float.__repr__(key)
        else:
            raise Misfit(json_codec.bad_key(key))
        self._take(len(name) + 3)
        return name

    def _enter(self, length: int, depth: int) -> None:
        if depth > json_codec.MAX_DEPTH:
            raise Misfit(json_codec.TOO_DEEP)
        self._take(1)
        if 2 * length > self._room:
            raise TooLarge

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise TooLarge


# --- work that is not done ---------------------------------------------------------


class _UnfinishedPart(Misfit):
    """A part of the value has not been run to its end."""


def _is_unfinished(value: Any) -> bool:
    """Whether it is code that somebody has called, and nobody has run to its end."""
    kind = type(value)
    if kind is types.CoroutineType:
        if inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()  # no code runs, and Python does not warn of it as well
            return True
        return value.cr_frame is not None
    if kind is types.GeneratorType:
        return value.gi_frame is not None
    return kind is types.AsyncGeneratorType and value.ag_frame is not None
