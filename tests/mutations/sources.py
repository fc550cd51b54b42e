"""The objects that `sql/` makes, as they are written there, and mistakes in them."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import apsw

from litejobs._storage import statements

_OBJECT = re.compile(
    r"^create (?:unique )?(table|index|view|trigger) (\w+)", re.MULTILINE
)
_CONSTRAINT = re.compile(r"constraint (\w+)\s+(check|unique|foreign key)")
# What is neither code nor to be changed: comments, texts, names of constraints.
_APART = re.compile(r"--[^\n]*|'(?:[^']|'')*'|constraint \w+")


# Mistakes of a whole object, in place of a text: they outlive its changes.
EMPTY = "no rows"
IDLE = "never acts"
LAX = "allows anything"
# No mistake: other words for the same. Who notices that compares texts or plans, or
# starts another process, in which the SQL is as it should be.
SAME = "the same in other words"


class Place(NamedTuple):
    """An object of the schema: in which file, and from where to where."""

    kind: str
    name: str
    file: str
    start: int
    end: int


class Mistake(NamedTuple):
    """In *name*, the *number*th *old* text of the object has become *new*.

    Without an *old* text, *new* is what the whole object does.
    """

    name: str
    old: str
    new: str
    number: int = 1

    @property
    def label(self) -> str:
        if not self.old:
            return f"{self.name}: {self.new}"
        return f"{self.name}: {self.old!r} -> {self.new!r} ({self.number})"


def read(file: str) -> str:
    return (statements.directory() / file).read_text(encoding="utf-8")


@functools.cache
def places() -> dict[str, Place]:
    """Each table, index, view and trigger by its name."""
    found = {}
    for name in statements._order():
        text = read(name)
        starts = [match.start() for match in _OBJECT.finditer(text)] + [len(text)]
        for match, end in zip(_OBJECT.finditer(text), starts[1:], strict=True):
            kind, title = match.groups()
            found[title] = Place(kind, title, name, match.start(), end)
    return found


def source(place: Place) -> str:
    """The statement that makes the object."""
    text = read(place.file)[place.start : place.end]
    ends = "\nend;" if place.kind == "trigger" else ";\n"
    at = text.find(ends)
    return text if at < 0 else text[: at + len(ends)]


def mutated(file: str, text: str, mistake: Mistake) -> str:
    """The text of a file with the mistake in it, or as it is if that is elsewhere.

    Raises:
        LookupError: There is no such place any more.
    """
    place = place_of(mistake.name)
    if place.file != file:
        return text
    whole = source(place)
    changed = (
        _whole(place, whole, mistake) if not mistake.old else _part(whole, mistake)
    )
    return text[: place.start] + changed + text[place.start + len(whole) :]


def _part(whole: str, mistake: Mistake) -> str:
    before, at = 0, -1
    for _ in range(mistake.number):
        at = whole.find(mistake.old, before)
        if at < 0:
            raise LookupError(f"nothing is like this any more: {mistake.label}")
        before = at + len(mistake.old)
    return whole[:at] + mistake.new + whole[at + len(mistake.old) :]


def _whole(place: Place, whole: str, mistake: Mistake) -> str:
    same = mistake.new == SAME
    if place.kind == "table":
        text = _text_of(mistake.name, whole)
        allows = f"constraint {mistake.name} check (1)"
        return whole.replace(
            text, f"constraint the_same check (1) {text}" if same else allows
        )
    if place.kind == "view":
        head = f"create view {place.name} as\n"
        rest = whole.removeprefix(head).rstrip().removesuffix(";")
        return f"{head}select * from (\n{rest}\n) where {int(same)};\n"
    head, begin, body = whole.partition("\nbegin\n")
    head, _, condition = head.partition("\nwhen ")
    return f"{head}\nwhen {int(same)} and (\n{condition or 1}\n){begin}{body}"


def place_of(name: str) -> Place:
    found = places().get(name) or places().get(constraints().get(name, ""))
    if found is None:
        raise LookupError(f"there is no {name} any more")
    return found


@functools.cache
def constraints() -> dict[str, str]:
    """The table of each named constraint."""
    return {
        name: place.name
        for place in places().values()
        if place.kind == "table"
        for name, _ in _CONSTRAINT.findall(source(place))
    }


def copies() -> set[str]:
    """Constraints that say of their table what an earlier one says of its own."""
    seen: dict[str, str] = {}
    found = set()
    for name, table in constraints().items():
        suffix = name.removeprefix(table)
        words = " ".join(text_of(name).split()[2:])
        if seen.setdefault(f"{suffix} {words}", name) != name:
            found.add(name)
    # All flags say the same, of columns with other names.
    for name, table in sorted(constraints().items()):
        flag = re.fullmatch(r"_(\w+)_is_flag", name.removeprefix(table))
        if flag is not None:
            words = " ".join(text_of(name).split()[2:])
            if seen.setdefault(words.replace(flag[1], "column"), name) != name:
                found.add(name)
    return found


def text_of(name: str) -> str:
    """What the constraint says, from its name to its last bracket."""
    return _text_of(name, source(places()[constraints()[name]]))


def _text_of(name: str, text: str) -> str:
    """`constraint NAME check (…)`, up to the bracket that ends it."""
    match = re.search(rf"constraint {name}\b[^(]*\(", text)
    assert match is not None, name
    depth, at = 1, match.end()
    for part in re.finditer(r"'(?:[^']|'')*'|[()]", text[at:]):
        depth += {"(": 1, ")": -1}.get(part.group(), 0)
        if not depth:
            return text[match.start() : at + part.end()]
    raise AssertionError(name)


def exists(mistake: Mistake) -> bool:
    """Whether there is a place for it."""
    try:
        place = place_of(mistake.name)
        return mutated(place.file, text := read(place.file), mistake) != text
    except LookupError:
        return False


def compiles(mistake: Mistake) -> bool:
    """Whether SQLite takes the object with the mistake in it."""
    place = place_of(mistake.name)
    text = mutated(place.file, read(place.file), mistake)
    connection = apsw.Connection(":memory:")
    try:
        for each in (*statements.schema(), *statements.logic()):
            connection.execute(text if each == read(place.file) else each)
    except apsw.SQLError:
        return False
    finally:
        connection.close()
    return True


# Mistakes ---------------------------------------------------------------------------


def wanted() -> list[str]:
    """The objects of which the list has a mistake: the others are copies of these."""
    skipped = copies()
    named = [name for name in constraints() if name not in skipped]
    logic = [x.name for x in places().values() if x.kind in ("view", "trigger")]
    return named + logic


SWAPS = (
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" <> ", " = "),
    (r" = ", " <> "),
    (r"\band\b", "or"),
    (r"\bor\b(?! replace| ignore)", "and"),
    (r"\bnot exists\b", "exists"),
    (r"(?<!not )\bexists\b", "not exists"),
    (r"\bis not null\b", "is null"),
    (r"(?<!\w)is null\b", "is not null"),
    (r"\bis not\b(?! null)", "is"),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
    (r" desc\b", " asc"),
    (r" \+ ", " - "),
    (r" - ", " + "),
)


def obvious(name: str) -> Mistake:
    """The object does nothing: it has no rows, never acts, refuses nothing."""
    if name in constraints():
        return Mistake(name, "", LAX)
    place = place_of(name)
    if place.kind == "trigger":
        return Mistake(name, "", IDLE)
    if "where 0;" not in source(place):
        return Mistake(name, "", EMPTY)
    # A command: triggers stand in its place.
    return Mistake(name, "where 0;", "where 1;")


def small(place: Place) -> Iterator[Mistake]:
    """Small mistakes in an order that is the object's own, and always the same."""
    text = source(place)
    apart = [match.span() for match in _APART.finditer(text)]
    found = []
    for pattern, new in SWAPS:
        for match in re.finditer(pattern, text):
            if any(start <= match.start() < end for start, end in apart):
                continue
            line = text[text.rfind("\n", 0, match.start()) + 1 :]
            line = line[: line.find("\n") if "\n" in line else None]
            at = match.start() - text.rfind("\n", 0, match.start()) - 1
            changed = line[:at] + new + line[at + len(match.group()) :]
            number = text[: match.start() - at].count(line) + 1
            found.append(Mistake(place.name, line, changed, number))
    found.sort(key=lambda each: zlib.crc32(each.label.encode()))
    yield from filter(compiles, found)
