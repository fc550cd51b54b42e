"""Text from the file or from elsewhere, as people may get to see it.

Whoever can write to the file chooses names, errors and reasons in it. On their way into
a line of the log, the sentence of an exception or a terminal all of them pass through
`escaped`, so that none moves a cursor, colours a screen, turns the reading direction or
forges a line.
"""

from __future__ import annotations

from typing import Any

LONGEST_SENTENCE = 20_000
"""Characters of an exception's sentence: more than the longest error text it quotes."""

# Control and format characters, halves of pairs, what is not assigned or private, and
# what separates lines.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Lines(str):
    """A text that was escaped line by line, so its line breaks and tabs are ours."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> Lines:
        """The text, with the line breaks and tabs that it has."""
        return cls("".join(map(_but_for_space, text)))


def escaped(text: str, limit: int | None = None) -> str:
    r"""Return *text* on one line, with nothing in it that a terminal would obey.

    Such characters are shown as `\x1b`, `\u202e` or `\U000e0001`. Of more than *limit*
    characters the first are given, and how many there were.
    """
    if limit is not None and len(text) > limit:
        text = f"{escaped(text[:limit])[:limit]}… [cut: {len(text)} characters in all]"
    if text.isprintable():
        return text
    import unicodedata

    return "".join(
        _escape(char) if unicodedata.category(char) in _UNSAFE else char
        for char in text
    )


def one_line(text: str) -> str:
    """What SQLite says, as a part of a sentence: it quotes names from the file."""
    return escaped(" ".join(text.removeprefix("*** in database main ***").split()))


def json_or_text(text: str) -> Any:
    """Return the JSON value; what another client wrote and nobody can read, as text."""
    import json

    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def sentence(text: str) -> str:
    """A text of ours as it may be read: `Lines` as they are, others on one line."""
    return text if isinstance(text, Lines) else escaped(text, LONGEST_SENTENCE)


def _but_for_space(char: str) -> str:
    return char if char in "\n\t" else escaped(char)


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:  # noqa: PLR2004 - two digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four digits
