"""The one way from Python values to JSON text and back.

`encode` stores a value only if `decode` gives an equal value of the same types back.
So the values are None, bool, int, float, str, and lists and dicts of these, exactly:
a tuple would come back as a list and an IntEnum as an int, and both are refused.

Beyond what JSON itself asks, so that every reader sees the same value:

- Integers lie within signed 64 bits. SQLite turns larger ones into floats.
- Floats are finite, keys are strings, and no key stands twice in an object.
- Text holds no lone surrogate, which UTF-8 cannot express, and no NUL (U+0000).
  Older SQLite cuts a text at NUL in its JSON functions; newer SQLite takes a key
  for the part of it before NUL.
- Lists and objects are nested at most 64 deep.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from litejobs.errors import ArgumentError

MAX_BYTES = 1_048_576
MAX_DEPTH = 64
OUTCOME_DEPTH = 2
"""What is around the data of an error in an outcome document; `decode` adds it."""

MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)

# In characters, of which each takes four bytes at most.
_PLAIN_TEXT = 4_096
_PLAIN_OBJECT = MAX_BYTES // 4


def encode(value: Any, *, what: str, limit: int = MAX_BYTES) -> str:
    """Return *value* as JSON text that `decode` turns into an equal value.

    The text is compact, keeps the order of keys and leaves letters as they are.
    *what* names the value in messages, such as `args`; *limit* is in bytes of UTF-8.
    A value far too large is refused before any of it is copied.

    Raises:
        ArgumentError: The value cannot be stored. The message names the place inside
            it, such as `args[0]["to"]`, and what to pass instead.
    """
    _check(value, what=what, limit=limit)
    text = _to_text(value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        raise ArgumentError(f"{what} {too_large(limit)}")
    return text


def opening(names: Iterable[str]) -> tuple[str, ...]:
    """What stands before each value in an object with these keys, for `encode_plain`.

    The keys are identifiers, so there is nothing in them to refuse.
    """
    return tuple(
        f"{',' if place else '{'}{_quoted(name)}:" for place, name in enumerate(names)
    )


def encode_plain(before: Iterable[str], values: Iterable[Any]) -> str | None:
    """What `encode` returns for an object of a few small values; None: let it judge.

    *before* comes from `opening`; keys without a value are left out. It costs a sixth
    of `encode`, which walks over the values first.
    """
    text = ""
    for start, value in zip(before, values):  # noqa: B905 - `strict=False` costs time
        kind = type(value)
        if kind is int:
            if not MIN_INTEGER <= value <= MAX_INTEGER:
                return None
            text += f"{start}{value}"
        elif kind is str:
            if len(value) > _PLAIN_TEXT or (
                (not value.isascii() or "\0" in value) and _UNSTORABLE.search(value)
            ):
                return None
            text += start + _quoted(value)
        elif value is None:
            text += start + "null"
        elif kind is bool:
            text += start + ("true" if value else "false")
        elif kind is float and math.isfinite(value):
            text += start + repr(value)
        else:
            return None
    # Bytes are counted by `encode`; so few characters cannot be too many of them.
    return (text or "{") + "}" if len(text) < _PLAIN_OBJECT else None


def decode(text: str, *, what: str = "the stored JSON") -> Any:
    """Return the value that *text* stands for.

    Whatever `encode` wrote comes back, also as part of an outcome document. Text from
    elsewhere is held to the same rules, its size aside, so that Python and SQLite
    cannot read two values from one text.
    *what* names the text in messages.

    Raises:
        ArgumentError: The text is not JSON, or holds what `encode` would refuse.
    """
    try:
        value = _from_text(text)
    except json.JSONDecodeError as error:
        raise ArgumentError(f"{what} is not JSON: {error}; correct the text") from None
    except Misfit as misfit:
        raise ArgumentError(misfit.sentence(what)) from None
    except RecursionError:
        raise ArgumentError(f"{what} {TOO_DEEP}") from None
    except ValueError:
        # The only one left: an integer of more digits than Python agrees to read.
        raise ArgumentError(f"{what} holds an integer {_BEYOND_64_BITS}") from None
    _check(value, what=what, limit=sys.maxsize, outside=OUTCOME_DEPTH)
    return value


def decode_plain(text: str) -> Any:
    """What `decode` returns, at a part of the cost for a few small values.

    Whatever is not plain for sure, `decode` judges: nested values, fractions, escapes.

    Raises:
        ArgumentError: As `decode`.
    """
    if len(text) < _PLAIN_OBJECT and text.isascii() and _PLAIN.fullmatch(text):
        try:
            value, end = _from_start(text)
        except ValueError:
            return decode(text)
        # A name stands before each `":`; where one is there twice, `decode` says so.
        if end == len(text) and (type(value) is list or len(value) == text.count('":')):
            return value
    return decode(text)


def bounded_text(text: str, limit: int = 65_536) -> str:
    """Return *text* in at most *limit* bytes of UTF-8, as text that `encode` accepts.

    What is too long is cut between two characters and ends in a mark that states the
    full size. Lone surrogates and NUL become U+FFFD, the replacement character.
    It never raises: it serves for messages of errors, which must not cause another.
    """
    text = str.__str__(text)  # an exception may print itself as a subclass of str
    start = _UNSTORABLE.sub("\ufffd", text[: limit + 1])
    if len(text) <= limit and len(start.encode()) <= limit:
        return start
    mark = f"… [cut: {_utf8_size(text)} bytes in all]"
    room = limit - len(mark.encode())
    if room < 0:
        return _cut(start, limit)
    return _cut(start, room) + mark


def _cut(text: str, size: int) -> str:
    return text.encode()[: max(size, 0)].decode(errors="ignore")


def _utf8_size(text: str) -> int:
    """Return the bytes of *text* in UTF-8, without a second copy of a large text."""
    if text.isascii():
        return len(text)
    step = 65_536
    return sum(
        len(text[at : at + step].encode(errors="surrogatepass"))
        for at in range(0, len(text), step)
    )


# --- the walk over a value ---------------------------------------------------------

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def _check(value: Any, *, what: str, limit: int, outside: int = 0) -> None:
    try:
        # As the only item of a container, so that one loop looks at every value. The
        # container itself and the comma after its item are not in the text.
        _walk((value,), limit + 2, -outside)
    except Misfit as misfit:
        sentence = misfit.sentence(what)
    except TooLarge:
        sentence = f"{what} {too_large(limit)}"
    else:
        return
    # Outside the handlers: as its context, the misfit would keep the value alive.
    raise ArgumentError(sentence)


def _walk(container: Any, room: int, depth: int) -> int:
    """Return what is left of *room* bytes after *container*, if it can be stored.

    Every value counts with the least it can take as JSON, its comma included. It is
    this count that ends the walk: forty lists that each hold the next one twice are
    small in memory, and a million million values as text.
    """
    if depth > MAX_DEPTH:
        raise Misfit(TOO_DEEP)
    room -= 1
    if 2 * len(container) > room:
        raise TooLarge
    keyed = type(container) is dict
    if keyed:
        room = _walk_keys(container, room)
    key = None
    try:
        for key, item in (  # noqa: B007 - the handler below reads the key
            container.items() if keyed else enumerate(container)
        ):
            kind = type(item)
            if kind is str:
                room -= len(item) + 3
                if room < 0 or "\0" in item or not item.isascii():
                    check_text(item, room)
            elif kind is dict or kind is list:
                room = _walk(item, room, depth + 1)
            else:
                room -= 2
                if kind is not int or not MIN_INTEGER <= item <= MAX_INTEGER:
                    check_scalar(item, kind)
    except Misfit as misfit:
        misfit.path.append((container, key))
        raise
    if room < 0:
        raise TooLarge
    return room


def _walk_keys(container: dict[Any, Any], room: int) -> int:
    for key in container:
        if type(key) is not str:
            raise Misfit(bad_key(key))
        room -= len(key) + 3
        if room < 0 or "\0" in key or not key.isascii():
            check_text(key, room, "has a key that ")
    return room


def check_text(text: str, room: int, subject: str = "") -> None:
    """Refuse a text that cannot be stored; *room* is what is left after it."""
    if room < 0:
        raise TooLarge
    found = _UNSTORABLE.search(text)
    if found is None:
        return
    if found[0] == "\0":
        problem = "a NUL character, where SQLite would cut it"
        way_out = 'value.replace("\\0", "")'
    else:
        problem = f"the lone surrogate U+{ord(found[0]):04X}, which is not text"
        way_out = 'value.encode(errors="replace").decode()'
    raise Misfit(f"{subject}holds {problem}; pass {way_out}")


def check_scalar(value: Any, kind: type) -> None:
    """Refuse what is not a JSON value, texts and containers aside."""
    if value is None or kind is bool:
        return
    if kind is int and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise Misfit(f"is {shown_integer(value)}, an integer {_BEYOND_64_BITS}")
    if kind is int:
        return
    if kind is not float:
        name = type_name(kind)
        raise Misfit(f"is of type {name}, which JSON cannot hold; {_way_out(kind)}")
    if not math.isfinite(value):
        raise Misfit(f"is {value}, which JSON cannot hold; pass None or a text")


# --- what is said about a value that does not fit ----------------------------------

TOO_DEEP = (
    f"is nested deeper than {MAX_DEPTH} lists and dicts; "
    "flatten it, or store the data elsewhere and pass its id"
)
_BEYOND_64_BITS = "beyond signed 64 bits; pass it as text"


class TooLarge(Exception):
    """The value takes more bytes than allowed."""


class Misfit(Exception):
    """A value cannot be stored; the path to it is collected on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[tuple[Any, Any]] = []

    def sentence(self, what: str) -> str:
        containers = [id(container) for container, _ in self.path]
        if len(set(containers)) < len(containers):
            return f"{what} contains itself, so as JSON it has no end; pass ids instead"
        # The innermost step was added first; the outermost is the walk's own tuple.
        steps = [_shown_step(key) for _, key in reversed(self.path)][1:]
        if len(steps) > 10:  # noqa: PLR2004 - more would hide the rest of the sentence
            steps[5:-5] = ["…"]
        return f"{what}{''.join(steps)} {self.problem}"


def too_large(limit: int) -> str:
    """What is wrong with a value that takes more than *limit* bytes."""
    return (
        f"takes more than {limit:,} bytes as JSON; "
        "store the data in a file or table and pass its path or id"
    )


def bad_key(key: Any) -> str:
    """What is wrong with a key that is not a text."""
    kind = type(key)
    if kind is int:
        shown = f"the key {shown_integer(key)}"
    elif key is None or kind is bool or kind is float:
        shown = f"the key {key}"
    else:
        shown = f"a key of type {type_name(kind)}"
    return f"has {shown}, and keys in JSON are texts; pass a str"


def not_done(kind: type) -> str:
    """What is wrong with a coroutine or generator that has not ended."""
    return f"is of type {type_name(kind)}, whose work is not done; {_way_out(kind)}"


def same_keys(key: str) -> str:
    """What is wrong with a dict of which two keys are this text."""
    return (
        f"has two keys that are {_shown_key(key)} as text, and keys in JSON are texts; "
        "pass keys of one type"
    )


def type_name(kind: type) -> str:
    """The name of the type, in at most 200 bytes; its metaclass is not asked."""
    return bounded_text(type.__dict__["__name__"].__get__(kind), 200)


def mro(kind: type) -> tuple[type, ...]:
    """The type and its bases; its metaclass is not asked."""
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return found


def class_attribute(kind: type, name: str) -> Any:
    """What the type or one of its bases has under this name, or None; nobody is asked.

    A descriptor is itself, and is not run.
    """
    for each in mro(kind):
        own = type.__dict__["__dict__"].__get__(each)
        if name in own:
            return own[name]
    return None


def _shown_step(key: Any) -> str:
    return f"[{key if type(key) is int else _shown_key(key)}]"


def _shown_key(key: str) -> str:
    shown = key if len(key) <= 40 else key[:40] + "…"  # noqa: PLR2004 - as above
    return json.dumps(shown, ensure_ascii=not shown.isprintable())


def shown_integer(value: int) -> str:
    """The number, or how long it is."""
    # Python refuses to print very long integers, and nobody would read them.
    bits = value.bit_length()
    return str(value) if bits <= 128 else f"a number of {bits:,} bits"  # noqa: PLR2004 - what is longer hides the rest


_ATTRIBUTES = {
    "__attrs_attrs__": "pass attrs.asdict(value)",
    "__dataclass_fields__": "pass dataclasses.asdict(value)",
    "_asdict": "pass value._asdict()",
    "tolist": "pass value.tolist()",
}
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    # Order matters: an IntEnum is also an int.
    (enum.Enum, "pass value.value"),
    ((dt.date, dt.time), "pass value.isoformat()"),
    (dt.timedelta, "pass value.total_seconds()"),
    ((bytes, bytearray), "pass base64.b64encode(value).decode()"),
    ((str, BaseException), "pass str(value)"),
    (int, "pass int(value)"),
    (float, "pass float(value)"),
    (complex, "pass [value.real, value.imag]"),
    ((tuple, list, set, frozenset, Iterator), "pass list(value)"),
    (Mapping, "pass dict(value)"),
    (Awaitable, "await it, and pass what it returns"),
    (AsyncIterator, "pass [each async for each in value]"),
)
# Known by name, so that nothing is imported for the sake of a message.
_PRINTED_WHOLE = {"Decimal", "Fraction", "UUID", "PurePath", "_IPAddressBase"}


def _way_out(kind: type) -> str:
    """Return what to pass instead, judged by the type; the value is not touched."""
    for attribute, way_out in _ATTRIBUTES.items():
        if class_attribute(kind, attribute) is not None:
            return way_out
    for kinds, way_out in _KINDS if _is_plain(type(kind)) else ():
        if issubclass(kind, kinds):
            return way_out
    if _PRINTED_WHOLE.intersection(type_name(each) for each in mro(kind)):
        return "pass str(value)"
    return "pass its id or its fields, and build it again in the task"


def _is_plain(metaclass: type) -> bool:
    """Whether a class can be asked what kind it is without running code of this."""
    return (
        class_attribute(metaclass, "__getattribute__") is type.__getattribute__
        and class_attribute(metaclass, "__hash__") is type.__hash__
    )


# --- the encoder and the decoder ---------------------------------------------------


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        # SQLite would read the first of the two, Python the last.
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Misfit(f"has the key {_shown_key(twice)} twice in one object; keep one")
    return value


def _no_constant(name: str) -> NoReturn:
    raise Misfit(f"holds {name}, which JSON does not know; use null or a text")


# The walk has found cycles and kept out NaN, so the encoder need not look again.
_to_text = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    separators=(",", ":"),
).encode
_quoted = json.encoder.encode_basestring  # as the encoder above does with texts
_from_start = json.JSONDecoder().raw_decode
_ITEM = (
    r'(?:"[^"\\\x00-\x1f]*":)?'
    r'(?:"[^"\\\x00-\x1f]*"|-?[0-9]{1,18}|true|false|null)'
)
_PLAIN = re.compile(rf"[\[{{](?:{_ITEM}(?:,{_ITEM})*)?[\]}}]")
_from_text = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=_no_constant,
).decode
