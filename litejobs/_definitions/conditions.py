"""A rule's condition, from an expression to the rows that SQL evaluates.

An expression is read with Python's own parser and never run. What comes out are
terms: the rule matches if all conditions of some term hold. Negation is kept with
each condition and never turned into another operator, because `not (x >= 500)` holds
where x is missing and `x < 500` does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from litejobs._definitions.checks import listed
from litejobs._definitions.expression_text import (
    BRACES,
    INFIX,
    MAX_DEPTH,
    Source,
)
from litejobs._definitions.json_codec import decode, encode
from litejobs.errors import ArgumentError, ConfigurationError

SOURCES = ("outcome", "ctx", "iter", "attempt", "step")
"""What the paths of a condition begin with."""

CHANGE_SOURCES = ("outcome", "ctx", "iter", "attempt")
"""What the paths in `set_ctx` and `set_iter` begin with."""

MAX_TERMS = 100
MAX_CONDITIONS = 1_000
MAX_INDEX = 1_000_000_000
MAX_CHANGES = 100


@attrs.frozen
class Operand:
    """One side of a condition.

    `source` is literal or one of SOURCES. `path` is a path of SQLite's JSON functions,
    `$` for a literal, attempt and step. `value` is the JSON text of a literal, else
    None. `lowered` asks for SQLite's `lower()`, which knows ASCII letters only.
    """

    source: str
    path: str = "$"
    value: str | None = None
    lowered: bool = False


@attrs.frozen
class Condition:
    """One test: `op` is eq, lt, le, gt, ge, in or truthy (which has no `right`).

    `term` and `position` count from 1; the conditions of a term hold together.
    """

    term: int
    position: int
    left: Operand
    op: str
    right: Operand | None
    negated: bool

    def columns(self) -> dict[str, Any]:
        """The values under the names of their columns."""
        right = self.right
        return {
            "term": self.term,
            "position": self.position,
            "source": self.left.source,
            "path": self.left.path,
            "value": self.left.value,
            "lowered": int(self.left.lowered),
            "op": self.op,
            "negated": int(self.negated),
            "other_source": None if right is None else right.source,
            "other_path": "$" if right is None else right.path,
            "other_value": None if right is None else right.value,
            "other_lowered": 0 if right is None else int(right.lowered),
        }


@attrs.frozen
class Change:
    """One member of `ctx` or `iter` that a rule sets.

    `source` is literal, with `value` as JSON text, or one of CHANGE_SOURCES, with a
    `source_path`. `plus` is a number as JSON text that is added to what is found.
    """

    target: str
    path: str
    source: str
    source_path: str
    value: str | None
    plus: str | None

    def columns(self) -> dict[str, Any]:
        """The values under the names of their columns."""
        return attrs.asdict(self)


def parse(
    expression: str | bool,
    *,
    name: str = "when",
    sources: Collection[str] = SOURCES,
) -> tuple[Condition, ...]:
    """The conditions of *expression*; none of them means that it always holds.

    True, `"true"` and `"always"` always hold. *name* is what messages call the
    expression, and *sources* are the words that its paths may begin with.

    Raises:
        ConfigurationError: The expression cannot be used. The message shows it, with
            a mark under the place.
    """
    if expression is True:
        return ()
    if not isinstance(expression, str):
        raise ConfigurationError(
            f"{name}={expression!r:.100} is not a condition; give an expression such "
            "as "
            "\"outcome.status == 'error'\", or True for always"
        )
    source = Source(str.__str__(expression), name)
    if source.body.strip() == "always":
        return ()
    return _numbered(_Reader(source, sources).terms())


def names_crash(conditions: Iterable[Condition]) -> bool:
    """Whether a condition asks for attempts whose process died.

    That is `outcome.status == 'crashed'`, or `outcome.status in [...]` with a list
    that holds 'crashed', and not its negation.
    """
    return any(_names_crash(each) for each in conditions)


def unknown_paths(
    conditions: Iterable[Condition], changes: Iterable[Change]
) -> list[str]:
    """A sentence for each path in them that no outcome has by itself.

    It may be a slip, or what an extractor of the application adds.
    """
    found = {
        each.path: None
        for condition in conditions
        for each in (condition.left, condition.right)
        if each is not None and each.source == "outcome"
    }
    found |= {
        change.source_path: None for change in changes if change.source == "outcome"
    }
    return [sentence for path in found if (sentence := _unknown(path)) is not None]


_MEMBERS = (
    *("status", "ran_ms", "retryable", "result", "retry_after"),
    *("result_not_stored", "result_not_stored.type"),
    *("result_not_stored.text", "result_not_stored.reason"),
    *("error", "error.type", "error.module", "error.types", "error.code"),
    "error.message",
    *("error.traceback", "error.exceptions", "error.data"),
    *("error.data_not_stored", "error.data_not_stored.type"),
    *("error.data_not_stored.text", "error.data_not_stored.reason"),
    *("http", "http.status", "pg", "pg.code"),
)
_OPEN = ("result", "error.data")  # anything may be in them
_LISTS = ("error.types", "error.exceptions")
_STEP = re.compile(r"""\.(?:"([^"]*)"|([A-Za-z_]\w*))|(\[[^]]*\])""")


def _unknown(path: str) -> str | None:
    steps = [name or plain or at for name, plain, at in _STEP.findall(path)]
    written = ".".join(steps).replace(".[", "[")
    if written in _MEMBERS or not steps:
        return None
    if any(written.startswith((f"{each}.", f"{each}[")) for each in _OPEN):
        return None
    if written.partition("[")[0] in _LISTS and len(steps) == 3:  # noqa: PLR2004 - list, index, member
        return None
    import difflib

    near = difflib.get_close_matches(written, _MEMBERS, 1)
    meant = f"; did you mean outcome.{near[0]}?" if near else ""
    return (
        f"no outcome has outcome.{written:.100}, unless an extractor of yours adds it"
        f"{meant}"
    )


def parse_changes(target: str, given: Mapping[str, Any]) -> tuple[Change, ...]:
    """What `set_ctx` or `set_iter` (*target* ctx or iter) does, in the order given.

    Keys are names of members, with dots between levels. Values are JSON, or a text
    such as `{{ outcome.result.next }}` or `{{ iter.page + 1 }}`.

    Raises:
        ConfigurationError: A key or a value cannot be used; the message names it.
    """
    name = f"set_{target}"
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"{name}={given!r:.100} is not a mapping; give one such as "
            '{"page": "{{ iter.page + 1 }}"}'
        )
    if len(given) > MAX_CHANGES:
        raise ConfigurationError(
            f"{name} has {len(given)} members; set at most {MAX_CHANGES}, or one "
            "member that holds the others"
        )
    return tuple(
        _change(target, _target_path(key, name), value, f"{name}[{key!r:.100}]")
        for key, value in given.items()
    )


# --- terms -------------------------------------------------------------------------


@attrs.frozen
class _Test:
    left: Operand
    op: str
    right: Operand | None
    negated: bool


_Term = tuple[_Test, ...]


def _numbered(terms: Sequence[_Term]) -> tuple[Condition, ...]:
    return tuple(
        Condition(term, position, each.left, each.op, each.right, each.negated)
        for term, tests in enumerate(terms, 1)
        for position, each in enumerate(tests, 1)
    )


def _both(one: list[_Term], other: list[_Term]) -> list[_Term]:
    return _distinct(
        tuple(dict.fromkeys(first + second)) for first in one for second in other
    )


def _distinct(terms: Iterable[_Term]) -> list[_Term]:
    found: dict[frozenset[_Test], _Term] = {}
    for term in terms:
        found.setdefault(frozenset(term), term)
    return list(found.values())


def _names_crash(condition: Condition) -> bool:
    left, right = condition.left, condition.right
    if condition.negated or right is None:
        return False
    if (left.source, left.path) != ("outcome", "$.status"):
        return False
    if condition.op == "eq":
        return right.value == '"crashed"'
    return condition.op == "in" and '"crashed"' in _elements(right.value)


def _elements(value: str | None) -> list[str]:
    """The elements of a literal list of scalars, each as JSON text."""
    if value is None or not value.startswith("["):
        return []
    return [encode(each, what="an element") for each in decode(value)]


# --- changes -----------------------------------------------------------------------


def _target_path(key: object, name: str) -> str:
    if not isinstance(key, str):
        raise ConfigurationError(
            f"{name} has the key {key!r:.100}, which is not a text; give the name of a "
            "member"
        )
    members = key.split(".")
    if not all(members) or key != key.strip():
        raise ConfigurationError(
            f"{name}[{key!r:.100}] is not a name of a member; give one such as "
            "'page', or 'last.page' for a member within a member"
        )
    if len(members) > MAX_DEPTH:
        raise ConfigurationError(
            f"{name}[{key!r:.100}] is nested deeper than {MAX_DEPTH} levels; give a "
            "shorter name"
        )
    if "[" in key or "]" in key:
        raise ConfigurationError(
            f"{name}[{key!r:.100}] is not a name of a member: single elements of a "
            "list cannot be set; set a member, or the whole list"
        )
    for member in members:
        if (problem := _unwritable(member)) is not None:
            raise ConfigurationError(
                f"{name}[{key!r:.100}] holds {problem}; use another name"
            )
    return "$" + "".join(map(_member, members))


def _change(target: str, path: str, value: object, name: str) -> Change:
    if isinstance(value, str) and BRACES.fullmatch(value):
        expression = Source(str.__str__(value), name)
        source, plus = _Reader(expression, CHANGE_SOURCES).change()
        return Change(target, path, source.source, source.path, None, plus)
    try:
        text = encode(value, what=name)
    except ArgumentError as error:
        raise ConfigurationError(str(error)) from None
    if (found := _braced(value)) is not None:
        raise ConfigurationError(
            f"{name} holds {{{{ inside {found!r:.100}, which would be stored as it is; "
            "let {{ }} surround a whole value, under a key of its own such as 'a.b'"
        )
    return Change(target, path, "literal", "$", text, None)


def _braced(value: object) -> str | None:
    """A text within *value* that looks like a template, if there is one."""
    if isinstance(value, str):
        return value if "{{" in value else None
    if isinstance(value, dict):
        return next((x for x in map(_braced, (*value, *value.values())) if x), None)
    if isinstance(value, list):
        return next((x for x in map(_braced, value) if x), None)
    return None


# --- paths and literals ------------------------------------------------------------

_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_UNWRITABLE = re.compile('[\0-\x1f"\\\\\ud800-\udfff]')
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _member(key: str) -> str:
    return f".{key}" if _PLAIN.fullmatch(key) else f'."{key}"'


def _element(index: int) -> str:
    return f"[{index}]" if index >= 0 else f"[#{index}]"


def _unwritable(key: str) -> str | None:
    """What keeps *key* out of a path that every SQLite reads alike, if anything."""
    found = _UNWRITABLE.search(key)
    return found and f"the character {found[0]!a}, which no path can express"


def _lowered(value: str) -> str:
    """A literal with its texts lowered, as SQLite would do it."""
    if value.startswith("["):
        return f"[{','.join(map(_lowered, _elements(value)))}]"
    if not value.startswith('"'):
        return value
    return encode(decode(value).translate(_ASCII_LOWER), what="the value")


def _kind(operand: Operand) -> str | None:
    """What is known of the values of *operand*: number, text, null, list or boolean."""
    if operand.value is None:
        return {"attempt": "number", "step": "text"}.get(operand.source)
    if operand.value[0] in '["':
        return "list" if operand.value[0] == "[" else "text"
    return {"true": "boolean", "false": "boolean", "null": "null"}.get(
        operand.value, "number"
    )


# --- from Python's tree to terms ---------------------------------------------------

_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_OPS: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Eq: ("eq", False),
    ast.NotEq: ("eq", True),
    ast.Lt: ("lt", False),
    ast.LtE: ("le", False),
    ast.Gt: ("gt", False),
    ast.GtE: ("ge", False),
    ast.In: ("in", False),
    ast.NotIn: ("in", True),
}
_OUTCOME = {
    *("status", "result", "result_not_stored", "error", "http", "pg", "retry_after")
}
_MIRRORED = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class _Reader:
    """Reads the tree of one expression; what cannot be stored is refused."""

    def __init__(self, source: Source, sources: Collection[str]) -> None:
        self.source = source
        self.sources = sources
        self.infix: set[int] = set()

    def terms(self) -> list[_Term]:
        """The terms of a condition; none if it always holds."""
        node, self.infix = self.source.parsed()
        match node:
            case ast.Constant(value=True) | ast.Name(id="true"):
                return []
        return self._condition(node, False)

    def change(self) -> tuple[Operand, str | None]:
        """The path of a change, and the number that is added to it."""
        node, self.infix = self.source.parsed()
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                if isinstance(left, (ast.Constant, ast.UnaryOp)):
                    left, right = right, left
                return self._changed(left), self._number(right, 1)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self._changed(left), self._number(right, -1)
        return self._changed(node), None

    def _refusal(self, place: ast.expr | int, problem: str) -> ConfigurationError:
        at = place if isinstance(place, int) else self._place(place)
        return self.source.refusal(at, problem)

    def _place(self, node: ast.expr) -> int:
        return self.source.place(node.lineno, node.col_offset)

    def _condition(self, node: ast.expr, negated: bool) -> list[_Term]:
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = [self._condition(each, negated) for each in values]
                return self._joined(node, parts, isinstance(op, ast.And) != negated)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._condition(inner, not negated)
            case ast.Compare():
                parts = [[(each,)] for each in self._comparisons(node, negated)]
                return self._joined(node, parts, not negated)
            case ast.Call(func=ast.Name(id="contains")):
                whole, part = self._arguments(node, 2, "contains(a, b)")
                return [(self._contains(node, whole, part, negated),)]
            case ast.Call(func=ast.Attribute(value=whole, attr="contains")):
                (part,) = self._arguments(node, 1, "a.contains(b)")
                return [(self._contains(node, whole, part, negated),)]
        operand = self._operand(node)
        if operand.source == "literal":
            raise self._refusal(
                node,
                "this is always the same; compare it with a path, or leave it out "
                "(a rule that always holds has the condition True)",
            )
        return [(_Test(operand, "truthy", None, negated),)]

    def _joined(
        self, node: ast.expr, parts: list[list[_Term]], together: bool
    ) -> list[_Term]:
        terms: list[_Term] = [()] if together else []
        for part in parts:
            terms = _both(terms, part) if together else _distinct(terms + part)
            if len(terms) > MAX_TERMS or sum(map(len, terms)) > MAX_CONDITIONS:
                raise self._refusal(
                    node,
                    f"written out, this is more than {MAX_TERMS} alternatives or "
                    f"{MAX_CONDITIONS:,} conditions; use in [...], or split the rule",
                )
        return terms

    def _comparisons(self, node: ast.Compare, negated: bool) -> list[_Test]:
        tests = []
        left, contains, turned = node.left, False, False
        for op, right in zip(node.ops, node.comparators, strict=True):
            if self._is_infix(right):
                contains, turned = True, isinstance(op, ast.NotIn)
                continue
            if contains:
                tests.append(self._contains(node, left, right, negated != turned))
            else:
                tests.append(self._comparison(node, left, op, right, negated))
            left, contains = right, False
        return tests

    def _is_infix(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Name)
            and node.id == "__"
            and self._place(node) - INFIX.index("__") in self.infix
        )

    def _comparison(
        self,
        node: ast.expr,
        left: ast.expr,
        op: ast.cmpop,
        right: ast.expr,
        negated: bool,
    ) -> _Test:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._is_null(left, right, negated != isinstance(op, ast.IsNot))
        word, turned = _OPS[type(op)]
        if word == "in":
            return self._contains(node, right, left, negated != turned)
        one, other = self._operand(left), self._operand(right)
        if one.source == "literal":
            one, other, word, right = other, one, _MIRRORED[word], left
        self._check_comparison(node, one, word, other, right)
        return _Test(one, word, other, negated != turned)

    def _is_null(self, left: ast.expr, right: ast.expr, negated: bool) -> _Test:
        one, other = self._operand(left), self._operand(right)
        if other.value != "null":
            raise self._refusal(right, "only None can follow is; write ==")
        self._check_comparison(left, one, "eq", other, right)
        return _Test(one, "eq", other, negated)

    def _check_comparison(
        self, node: ast.expr, one: Operand, word: str, other: Operand, right: ast.expr
    ) -> None:
        self._check_varies(node, one, other)
        kinds = _kind(one), _kind(other)
        if "list" in kinds:
            raise self._refusal(
                right, "a list cannot be compared; use in, or its elements"
            )
        if word != "eq" and kinds[1] in {"null", "boolean"}:
            raise self._refusal(
                right, "only numbers and texts have an order; use == or !="
            )
        if kinds[1] == "null" and one.source != "attempt":
            return
        if None not in kinds and kinds[0] != kinds[1]:
            raise self._refusal(
                right,
                f"{one.source} is a {kinds[0]} and can never be like a {kinds[1]}; "
                f"compare it with a {kinds[0]}",
            )

    def _contains(
        self, node: ast.expr, whole: ast.expr, part: ast.expr, negated: bool
    ) -> _Test:
        inner, outer = self._operand(part), self._operand(whole)
        self._check_varies(node, inner, outer)
        if _kind(inner) == "list":
            raise self._refusal(part, "a list is never in another; name one element")
        if outer.value == "[]":
            raise self._refusal(whole, "nothing is in an empty list; add an element")
        if _kind(outer) not in {None, "list", "text"}:
            raise self._refusal(
                whole, f"nothing can be in a {_kind(outer)}; give a list, text or path"
            )
        if _kind(outer) == "text" and _kind(inner) not in {None, "text"}:
            raise self._refusal(part, "only a text can be in a text; put it in quotes")
        return _Test(inner, "in", outer, negated)

    def _check_varies(self, node: ast.expr, one: Operand, other: Operand) -> None:
        if one.source == other.source == "literal":
            raise self._refusal(
                node, "this is always the same; compare a path such as outcome.status"
            )

    # --- operands ---

    def _operand(self, node: ast.expr) -> Operand:
        match node:
            case ast.Attribute() | ast.Subscript():
                return self._path(node)
            case ast.Name(id=word) if word not in _CONSTANTS:
                return self._path(node)
            case ast.Call(func=ast.Name(id="lower")):
                (inner,) = self._arguments(node, 1, "lower(a)")
                return self._lower(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr="lower")):
                self._arguments(node, 0, "a.lower()")
                return self._lower(inner)
            case ast.BinOp(left=inner, op=ast.BitOr(), right=right):
                if isinstance(right, ast.Name) and right.id == "lower":
                    return self._lower(inner)
                raise self._refusal(right, "only lower can follow |; write |lower")
            case ast.Call(func=function):
                raise self._refusal(
                    function, "only lower() and contains() can be called; use a path"
                )
            case ast.BinOp():
                raise self._refusal(
                    node, "a condition cannot calculate; compare with the final number"
                )
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                raise self._refusal(
                    node, "the answer of a test cannot be compared; use and, or, not"
                )
        return Operand("literal", "$", self._storable(node, self._constant(node)))

    def _constant(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.Name(id=word) if word in _CONSTANTS:
                return _CONSTANTS[word]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self._constant(operand)
                if type(value) in {int, float}:
                    return -value if isinstance(sign, ast.USub) else value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._element(item) for item in items]
        raise self._refusal(
            node, "this is not a value; write a path, number, quoted text, list or None"
        )

    def _element(self, node: ast.expr) -> Any:
        if isinstance(node, (ast.List, ast.Tuple)):
            raise self._refusal(
                node, "a list cannot hold lists; list numbers and texts"
            )
        value = self._constant(node)
        self._storable(node, value)
        return value

    def _storable(self, node: ast.expr, value: Any) -> str:
        try:
            return encode(value, what="the value")
        except ArgumentError as error:
            problem = str(error)
        raise self._refusal(node, problem)

    def _lower(self, node: ast.expr) -> Operand:
        operand = self._operand(node)
        if _kind(operand) not in {None, "text", "list"}:
            raise self._refusal(node, "only texts have lower case; leave lower out")
        if operand.value is not None:
            return attrs.evolve(operand, value=_lowered(operand.value))
        return attrs.evolve(operand, lowered=True)

    def _arguments(self, node: ast.Call, count: int, usage: str) -> list[ast.expr]:
        if len(node.args) != count or node.keywords:
            raise self._refusal(node, f"this takes something else; write {usage}")
        return node.args

    # --- paths ---

    def _path(self, node: ast.expr) -> Operand:
        steps: list[str] = []
        inner = node
        while not isinstance(inner, ast.Name):
            match inner:
                case ast.Attribute(value=value, attr=member):
                    self._check_spelling(inner, member)
                    steps.append(self._step(inner, member))
                    inner = value
                case ast.Subscript(value=value, slice=key):
                    steps.append(self._step(key, self._key(key)))
                    inner = value
                case _:
                    raise self._refusal(
                        inner, "a path begins with a name; leave out what is around it"
                    )
        source = self._source(inner)
        if steps and source in {"attempt", "step"}:
            raise self._refusal(inner, f"{source} has no members; write {source} alone")
        return Operand(source, "$" + "".join(reversed(steps)))

    def _check_spelling(self, node: ast.Attribute, member: str) -> None:
        """Refuse a name that Python reads in another spelling, such as ﬁ as fi."""
        if self.source.text.isascii() or node.end_lineno is None:
            return
        end = self.source.place(node.end_lineno, node.end_col_offset or 0)
        if not self.source.text[:end].endswith(member):
            raise self._refusal(
                end - 1, f'this name would be read as {member}; write ["..."] instead'
            )

    def _source(self, node: ast.Name) -> str:
        if node.id in self.sources:
            return node.id
        allowed = f"begin a path with {listed(self.sources)}, and put texts in quotes"
        if node.id in SOURCES:
            raise self._refusal(node, f"{node.id} cannot be used here; {allowed}")
        import difflib

        near = difflib.get_close_matches(node.id[:50], self.sources, 1, 0.7)
        meant = f"outcome.{node.id}" if node.id in _OUTCOME else "".join(near)
        hint = f"did you mean {meant}? Otherwise " if meant else ""
        raise self._refusal(node, f"{node.id!r:.50} is not known; {hint}{allowed}")

    def _key(self, node: ast.expr) -> str | int:
        match node:
            case ast.Constant(value=str() as key):
                return key
            case ast.Constant(value=int() as index) if not isinstance(index, bool):
                return index
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as index)):
                return -index
        raise self._refusal(
            node, 'this is not a key; write a number or a text: [0] or ["a"]'
        )

    def _step(self, node: ast.expr, key: str | int) -> str:
        if isinstance(key, int):
            if abs(key) > MAX_INDEX:
                raise self._refusal(
                    node, f"no list is so long; give at most {MAX_INDEX:,}"
                )
            return _element(key)
        if (problem := _unwritable(key)) is not None:
            raise self._refusal(node, f"this key holds {problem}; use another key")
        return _member(key)

    # --- changes ---

    def _changed(self, node: ast.expr) -> Operand:
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            raise self._refusal(
                node,
                "only a path, or a path plus or minus a number, can be set; write "
                "{{ iter.page + 1 }}, and values without {{ }}",
            )
        operand = self._path(node)
        if operand.path == "$" and operand.source != "attempt":
            raise self._refusal(
                node, f"the whole of {operand.source} would be copied; name a member"
            )
        return operand

    def _number(self, node: ast.expr, sign: int) -> str:
        value = self._constant(node)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._refusal(
                node, "only a number can be added; write one, such as 1"
            )
        return self._storable(node, sign * value)
