"""What stands in the code blocks of docs/, for tests that run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1] / "docs"


class Command(NamedTuple):
    """A line after `$`, and the lines below it."""

    line: str
    output: str


class Block(NamedTuple):
    """A code block: a file if its first line is a comment with a name, or commands."""

    section: str
    language: str
    file: str | None
    text: str

    @property
    def commands(self) -> list[Command]:
        """Those of a console, in order."""
        assert self.language == "console"
        assert self.text.startswith("$ "), self.text
        return [
            Command(*each.partition("\n")[::2])
            for each in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        ]


def blocks_of(name: str) -> list[Block]:
    """The blocks of a document, in order; of a file, without the line of its name."""
    found = []
    text = (DOCS / name).read_text(encoding="utf-8")
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        title = section.partition("\n")[0].removeprefix("## ")
        for language, body in re.findall(
            r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE
        ):
            named = re.match(r"# (\w+\.\w+)\n", body)
            file = named[1] if named else None
            found.append(
                Block(title, language, file, body[named.end() :] if named else body)
            )
    return found
