"""A short text of any value, for people, made without running code of the value's own.

A `__repr__` of somebody else may fail, never end, or build a text of gigabytes. So what
Python and its library make is shown as they show it, a dataclass by the fields that its
own text would have, and anything else by the name of its type.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from litejobs._definitions import json_codec

LENGTH = 1_000
"""In characters, about."""

_DEEPEST = 8

# What is small, or as large as its text, and has no value of another type in it.
_PRINTED: tuple[type, ...] = (
    *(type(None), bool, float, complex, type(...), type(NotImplemented), range),
    *(dt.date, dt.timedelta, dt.timezone),
)
# Known by name, so that nothing is imported for the sake of a text.
_PRINTED_IF_LOADED = {
    "decimal": ("Decimal",),
    "uuid": ("UUID",),
    "pathlib": ("PurePosixPath", "PureWindowsPath", "PosixPath", "WindowsPath"),
    "ipaddress": ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"),
    "zoneinfo": ("ZoneInfo",),
}
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
    dict: ("{", "}"),
}


def text_of(value: object) -> str:
    """The text. What does not fit is left out, and "…" stands in its place."""
    text = ""
    try:
        for piece in _pieces(value, 0):
            text += piece
            if len(text) > LENGTH:
                break
    except Exception:  # say, another thread is changing the value
        text += "…"
    if len(text) > LENGTH:
        text = text[:LENGTH] + "…"
    return json_codec.bounded_text(text, 4 * LENGTH)


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """The text in pieces, none of which is much longer than what is wanted."""
    kind = type(value)
    name = json_codec.type_name(kind)
    base = _base(kind)
    if depth > _DEEPEST:
        yield "…"
    elif issubclass(kind, enum.Enum):
        member = _attribute(value, "_name_")
        yield f"{name}.{member}" if type(member) is str else f"<{name}>"
    elif base is int:
        yield json_codec.shown_integer(int.__index__(value))
    elif base is str or base is bytes or base is bytearray:
        start = base.__getitem__(value, slice(LENGTH + 1))
        yield base.__repr__(start)
    elif base is not None:
        yield from _container(value, base, depth)
    elif issubclass(kind, BaseException):
        args = BaseException.__dict__["args"].__get__(value)
        yield from _listed(f"{name}(", _items(args, depth), ")")
    elif _is_printed(kind, value):
        yield repr(value)[: LENGTH + 1]
    elif (fields := _fields(kind)) is not None:
        named = ((each, _attribute(value, each)) for each in fields)
        parts = (
            itertools.chain([f"{each}="], _pieces(item, depth + 1))
            for each, item in named
        )
        yield from _listed(f"{name}(", parts, ")")
    elif issubclass(kind, type):
        yield f"<class {json_codec.type_name(value)}>"
    else:
        yield f"<{name}>"


def _base(kind: type) -> Any:
    """What Python itself has of which the type is made, if it is that."""
    bases = (int, str, bytes, bytearray, *_BRACKETS)
    if kind is bool:
        return None
    return next((base for base in bases if issubclass(kind, base)), None)


def _container(value: Any, base: Any, depth: int) -> Iterator[str]:
    start, end = _BRACKETS[base]
    length = base.__len__(value)
    if length == 1 and base is tuple:
        end = ",)"
    if length == 0 and start == "{" and base is not dict:
        start = end = ""
    if type(value) is not base or base is frozenset or not start:
        start, end = f"{json_codec.type_name(type(value))}({start}", f"{end})"
    if base is not dict:
        yield from _listed(start, _items(base.__iter__(value), depth), end)
        return
    parts = (
        itertools.chain(_pieces(key, depth + 1), [": "], _pieces(item, depth + 1))
        for key, item in dict.items(value)
    )
    yield from _listed(start, parts, end)


def _items(values: Iterable[Any], depth: int) -> Iterator[Iterable[str]]:
    return (_pieces(item, depth + 1) for item in values)


def _listed(start: str, parts: Iterable[Iterable[str]], end: str) -> Iterator[str]:
    yield start
    for number, part in enumerate(parts):
        if number:
            yield ", "
        yield from part
    yield end


def _is_printed(kind: type, value: Any) -> bool:
    # By identity: a class may have a class of its own, with a comparison of its own.
    if any(kind is each for each in _PRINTED):
        return True
    if kind is dt.datetime or kind is dt.time:
        return value.tzinfo is None or _is_printed(type(value.tzinfo), value.tzinfo)
    return any(
        kind is getattr(sys.modules.get(module), each, None)
        for module, names in _PRINTED_IF_LOADED.items()
        for each in names
    )


def _fields(kind: type) -> list[str] | None:
    """The names of the fields that are in the text of a dataclass, or one of attrs."""
    found = json_codec.class_attribute(kind, "__dataclass_fields__")
    if type(found) is dict:
        return [name for name, each in found.items() if each.repr]
    found = json_codec.class_attribute(kind, "__attrs_attrs__")
    if isinstance(found, tuple):
        return [each.name for each in found if each.repr]
    return None


def _attribute(thing: object, name: str) -> Any:
    """The attribute if it is simply stored there; nothing is run to find it."""
    kind = type(thing)
    found = json_codec.class_attribute(kind, name)
    if type(found) is types.MemberDescriptorType:
        return found.__get__(thing)
    own = json_codec.class_attribute(kind, "__dict__")
    if type(own) is types.GetSetDescriptorType:
        return dict.get(own.__get__(thing), name, found)
    return found
