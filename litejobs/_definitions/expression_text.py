"""An expression as a rule has it: read by Python's own parser, and never run.

Each token is looked at before Python sees it, so that what is refused is refused with
its place in the text as it was written.
"""

from __future__ import annotations

import ast
import keyword
import re

from litejobs._values.text import Lines
from litejobs.errors import ConfigurationError

MAX_CHARACTERS = 10_000
MAX_DEPTH = 100

NO_TEXT = re.compile("[\0\ud800-\udfff]")
BRACES = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
_TOKEN = re.compile(
    r"""
      (?P<blank> [ \t\f\n]+ | \\\n | \#[^\n]* )
    | (?P<text> (?P<prefix> [bBfFtT][rR]? | [rR][bBfFtT]? | [uU] )? (?! \'{3} | "{3} )
        (?: '(?:[^'\\\n]|\\.)*' | "(?:[^"\\\n]|\\.)*" ) )
    | (?P<number> \.?[0-9] (?:[eE][+-][0-9] | [\w.])* )
    | (?P<name> [^\W\d]\w* )
    | (?P<sign> == | != | <= | >= | <> | \|\| | [<>()\[\],.|+-] )
    | (?P<other> \'{3} | "{3} | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|0[oObB][0-7_]+|[0-9_]*\.?[0-9_]*(?:[eE][+-]?[0-9_]+)?"
)
_NO_ESCAPE = re.compile(r"(?:[^\\]|\\[\\'\"abfnrtvxuUN\n])*(?P<no>\\.)?", re.DOTALL)
_WORDS = {"and", "or", "not", "in", "is"}
_KEYWORDS = {*keyword.kwlist} - _WORDS - {"True", "False", "None"}
_DEEPER = {"not", "-", "+", ".", "|"}
_FLAT = {"and", "or", "in", "is", "==", "!=", "<=", ">=", "<", ">", ","}
_CLOSING = {")": "(", "]": "["}
_OPENING = {"(": ")", "[": "]"}
INFIX = "in __ in"
"""What stands for an infix `contains` while Python parses: as long, so that places
stay, and a comparison, so that it binds like one."""

_INNER_BRACES = "{{ }} can only surround the whole expression; take the inner ones out"
_ONE_QUOTE = "a text has one quote on each side; write 'text'"
_OPEN_TEXT = "this text is not closed; put the same quote at its end"
_FOREIGN = {
    "{": _INNER_BRACES,
    "}": _INNER_BRACES,
    "'''": _ONE_QUOTE,
    '"""': _ONE_QUOTE,
    "'": _OPEN_TEXT,
    '"': _OPEN_TEXT,
    "=": "= is not a comparison; write ==",
    "&": "& is not known here; write and",
    "||": "|| is not known here; write or",
    "<>": "<> is not known here; write !=",
    "!": "! is not known here; write not",
    ":": "a part of a list or text cannot be taken; name one element, such as [0]",
}
_TOO_DEEP = f"this is nested deeper than {MAX_DEPTH} levels; split the rule"
_SHOWN = 100
_SHOWN_LINES = 10


class Source:
    """An expression as it was given, and how to show a place in it."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) > MAX_CHARACTERS:
            raise ConfigurationError(
                f"{name} has {len(text):,} characters; write at most "
                f"{MAX_CHARACTERS:,}, and split the rule"
            )
        # The braces become blanks, so that places in the body are places in the text.
        self.body = self.text
        if (found := BRACES.fullmatch(self.text)) is not None:
            self.body = " " * found.start(1) + found[1]

    def parsed(self) -> tuple[ast.expr, set[int]]:
        """Python's tree of the expression, and the places of infix `contains`."""
        scan = _Scan(self)
        # In parentheses, so that lines may break anywhere.
        code = f"({scan.code}\n)"
        try:
            return ast.parse(code, mode="eval").body, scan.infix
        except SyntaxError as error:
            place = self._start(error.lineno or 1) + (error.offset or 1) - 1
            detail = "" if error.msg.startswith("invalid syntax") else f": {error.msg}"
            problem = f"this is not an expression{detail}; correct it"
        except (MemoryError, RecursionError):
            place, problem = 0, _TOO_DEEP
        raise self.refusal(place, problem)

    def refusal(self, place: int, problem: str) -> ConfigurationError:
        """What to raise about *place*, an index into the text."""
        return ConfigurationError(
            Lines.of(f"{self.name}: {problem}\n{_marked(self.text, place)}".rstrip())
        )

    def place(self, line: int, column: int) -> int:
        """The index into the text; Python counts bytes, and the parenthesis too."""
        start = self._start(line)
        source = self.text[max(start, 0) :].partition("\n")[0].encode()
        return max(start, 0) + len(source[: column + min(start, 0)].decode())

    def _start(self, line: int) -> int:
        start = -1  # the parenthesis stands before the text
        for _ in range(1, line):
            start = self.text.find("\n", max(start, 0)) + 1
        return start


class _Scan:
    """Looks at each token before Python does, and at how deep they are nested.

    So most mistakes get a sentence of ours, equal for every version of Python, and
    no text can exhaust the stack. `code` is the text for Python, `infix` the places
    of infix `contains` in it.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.infix: set[int] = set()
        self._levels = [0]
        self._open: list[tuple[str, int]] = []
        # The two tokens before: `value` if one can end an operand, or the token.
        self._before = self._last = ""
        if (found := NO_TEXT.search(source.text)) is not None:
            raise source.refusal(
                found.start(), f"the character {found[0]!a} is not a text; take it out"
            )
        self.code = "".join(map(self._token, _TOKEN.finditer(source.body)))
        self._end()

    def _token(self, token: re.Match[str]) -> str:
        kind, word = token.lastgroup, token[0]
        if kind == "blank":
            return word
        self._check(token)
        if self._is_infix(word):
            self.infix.add(token.start())
            self._before, self._last = self._last, "in"
            self._levels[-1] = 0
            return INFIX
        operand = kind in {"text", "number", "name"} and word not in _WORDS
        if operand and self._last == "value":
            raise self.source.refusal(
                token.start(),
                f"something is missing before {word:.50}; write an operator such as "
                "==, or a comma in a list",
            )
        self._nest(word, token.start())
        ends = operand or word in _CLOSING
        self._before, self._last = self._last, "value" if ends else word
        return word

    def _is_infix(self, word: str) -> bool:
        negated = self._last == "not" and self._before == "value"
        return word == "contains" and (negated or self._last == "value")

    def _check(self, token: re.Match[str]) -> None:
        problem, place = None, token.start()
        kind, word = token.lastgroup, token[0]
        if kind == "other" or word in _FOREIGN:
            problem = _FOREIGN.get(word, f"{word!a} is not known here; take it out")
        elif kind == "name" and self._last == "." and keyword.iskeyword(word):
            problem = f'{word} is a word of Python; write ["{word}"] for the member'
        elif kind == "name" and word in _KEYWORDS:
            problem = f"{word} is not known here; use and, or, not, in and comparisons"
        elif kind == "number" and (len(word) > _SHOWN or not _NUMBER.fullmatch(word)):
            problem = f"{word:.50} is not a number; correct it"
        elif kind == "text":
            self._check_text(token)
        if problem is not None:
            raise self.source.refusal(place, problem)

    def _check_text(self, token: re.Match[str]) -> None:
        word, place = token[0], token.start()
        prefix = (token["prefix"] or "").lower()
        if prefix not in {"", "r", "u"}:
            raise self.source.refusal(
                place, f"a text cannot begin with {prefix}; write it without"
            )
        # Python would take such a backslash as it is, and warn.
        escape = None if prefix == "r" else _NO_ESCAPE.match(word)
        if escape is not None and (found := escape["no"]) is not None:
            raise self.source.refusal(
                place + escape.start("no"),
                f"{found} means nothing in a text; write \\{found}",
            )
        try:
            text = ast.literal_eval(word)
        except SyntaxError:
            problem = "this text has an escape that means nothing; correct it"
        else:
            if (unfit := NO_TEXT.search(text)) is None:
                return
            problem = f"this text holds {unfit[0]!a}, which is not a text; take it out"
        raise self.source.refusal(place, problem)

    def _nest(self, word: str, place: int) -> None:
        """Count how deep Python's tree will be, before Python builds it."""
        if word in {"(", "["}:
            self._levels[-1] += 1
            self._levels.append(0)
            self._open.append((word, place))
        elif word in _CLOSING:
            if not self._open or self._open[-1][0] != _CLOSING[word]:
                raise self.source.refusal(
                    place, f"this {word} closes nothing; take it out"
                )
            self._levels.pop()
            self._open.pop()
        elif word in _DEEPER:
            self._levels[-1] += 1
        elif word in _FLAT:
            self._levels[-1] = 0
        if sum(self._levels) > MAX_DEPTH:
            raise self.source.refusal(place, _TOO_DEEP)

    def _end(self) -> None:
        if not self._last:
            raise self.source.refusal(
                0, "the expression is empty; write one, or True for always"
            )
        if self._last != "value":
            raise self.source.refusal(
                len(self.source.body.rstrip()), "the end is missing; complete it"
            )
        if self._open:
            bracket, place = self._open[-1]
            raise self.source.refusal(
                place, f"this {bracket} is not closed; put {_OPENING[bracket]} after it"
            )


def _marked(text: str, place: int) -> str:
    """The text with a mark under *place*; of a long text, the part around it."""
    if not text.strip():
        return ""
    place = max(0, min(place, len(text.rstrip())))
    before, after = text[:place], text[place:]
    lead, _, start = before.rpartition("\n")
    end, _, tail = after.partition("\n")
    above, below = lead.split("\n") if lead else [], tail.rstrip().split("\n")
    cut = start if len(start) <= _SHOWN else "…" + start[-_SHOWN:]
    rest = end if len(end) <= _SHOWN else end[:_SHOWN] + "…"
    mark = "".join("\t" if each == "\t" else " " for each in cut) + "^"
    lines = [_printable(cut + rest), mark]
    if len(above) + len(below) <= _SHOWN_LINES:
        short = [_printable(each[:_SHOWN]) for each in (*above, *below)]
        lines = [*short[: len(above)], *lines, *short[len(above) :]]
    return "\n".join(lines)


def _printable(line: str) -> str:
    return "".join(
        each if each.isprintable() or each == "\t" else "\ufffd" for each in line
    )
