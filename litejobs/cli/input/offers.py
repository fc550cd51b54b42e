"""What Tab offers from the file while a command line is typed."""

from __future__ import annotations

import contextlib
import io
import re
import threading

import click
from click.shell_completion import CompletionItem

from litejobs._process.timing import TIMES
from litejobs.cli import printing
from litejobs.cli.file.opening import reading

THREAD = "litejobs-completion"
MOST = 100  # that are offered at once

# What a shell takes for one plain word. What is offered is put on the line as it is, so
# a name like `$(reboot)` must never be.
_WORD = re.compile(r"\w[\w@%+=:,./-]*")

Items = list[CompletionItem]


def offered(ctx: click.Context, query: str, incomplete: str) -> Items:
    """What a named query finds in the file that begins like this: values, and a word.

    Nothing where no file is named, where it cannot be read, or in time: Tab says no
    errors. What a shell would not take as one plain word is left out.
    """
    found: Items = []
    thread = threading.Thread(
        target=_look, args=(ctx, query, incomplete, found), name=THREAD, daemon=True
    )
    # A lock, or a file system that does not answer, keeps only the thread waiting.
    with contextlib.redirect_stderr(io.StringIO()):
        thread.start()
        thread.join(TIMES.completion_patience)
    return found[:]


def _look(ctx: click.Context, query: str, incomplete: str, found: Items) -> None:
    ctx.find_root().params["timeout"] = TIMES.completion_patience
    with contextlib.suppress(Exception), ctx.scope(cleanup=False), reading() as file:
        rows = file.rows(query, prefix=incomplete, limit=MOST)
        found += [
            CompletionItem(value, help=printing.escaped(about) if about else None)
            for value, about in (map(str, row.values()) for row in rows)
            if value.startswith(incomplete) and _WORD.fullmatch(value)
        ]
