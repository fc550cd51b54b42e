"""Write jobs, their attempts or the log out, for other programs and spreadsheets.

With `--json`:

    export                        JOB, ATTEMPT or EVENT, one document on a line for each
    export --output               {"export": {"path": …, "what": …, "format": …,
                                   "rows": …}}
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import click

from litejobs._process.sizes import SIZES
from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import reading
from litejobs.cli.file.reader import Reader
from litejobs.cli.input import filters as _filters
from litejobs.cli.output.jobs import ATTEMPT_FIELDS, JOB_FIELDS, record_of
from litejobs.cli.signals import tidy

# With which a spreadsheet begins to compute; some take the wide ones of Asia as well.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# As `litejobs events` has them.
EVENT_FIELDS = (
    *("id", "at", "name", "job_id", "task", "attempt_id", "old_state", "new_state"),
    *("step", "rule_id", "action", "decision", "stopped_by", "error_type", "error"),
    *("subject", "note", "origin"),
)


class Kind(NamedTuple):
    """What can be written: its columns, and the queries that read a span of it."""

    fields: tuple[str, ...]
    span: str
    rows: str
    documents: frozenset[str] = frozenset()


KINDS = {
    "jobs": Kind(
        (*JOB_FIELDS, "result"),
        "export_jobs_span",
        "export_jobs",
        frozenset({"args", "ctx", "iter", "result", "result_not_stored"}),
    ),
    "attempts": Kind(
        ATTEMPT_FIELDS,
        "export_attempts_span",
        "export_attempts",
        frozenset({"outcome"}),
    ),
    "events": Kind(EVENT_FIELDS, "log_span", "export_events"),
}


class _Kept(Exception):
    """Nothing matches, so the file that was there is not replaced."""


Row = Mapping[str, Any]
Writer = Callable[[Sequence[Row]], str]


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db export > jobs.jsonl
  litejobs --db app.db export --state dead_lettered --since 7d --format csv
  litejobs --db app.db export --what events --output events.jsonl
  litejobs --db app.db export --what attempts --queue mail --format csv \\
      --output attempts.csv --overwrite""",
    help="""Write jobs, their attempts or the log, the oldest first.

    Attempts and lines of the log are those of the jobs that are meant; for them,
    --since asks when they began or happened. Documents are as those of list, show and
    events, and jobs have their result. In CSV, lines end as RFC 4180 has
    it (CR LF), text is UTF-8 and quoted, what was JSON is JSON again, control
    characters are escaped as \\x1b, and a text that a spreadsheet would compute has a '
    before it. The file is read part by part, and so never kept from anybody; what comes
    into it meanwhile is left out. The exit code is 1 if nothing matches, and what
    --overwrite would replace is left alone then. With --output, --json prints what was
    written.
    """,
)
@click.option(
    "--what",
    type=click.Choice(list(KINDS)),
    default="jobs",
    show_default=True,
    help="What is written.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="A JSON document on each line, or comma-separated values with a header.",
)
@_filters.filter_options
@click.option(
    "--output", metavar="FILE", help="Write to this file, which only you may read."
)
@click.option("--overwrite", is_flag=True, help="Replace that file if it exists.")
@printing.json_option
@click.pass_context
def export(
    context: click.Context,
    /,
    *,
    what: str,
    form: str,
    output: str | None,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    if as_json and output is None and form == "csv":
        raise click.UsageError("--json and --format csv exclude each other")
    kind = KINDS[what]
    writer = _csv_writer(kind) if form == "csv" else _lines
    count, kept = 0, False
    with (
        reading() as file,
        tidy(),
        contextlib.suppress(_Kept),
        _sink(file, output, overwrite=overwrite) as sink,
    ):
        filters = _filters.resolve(_filters.filters_of(options), file)
        if form == "csv":
            sink.write(_csv_text([kind.fields]).encode())
        for rows in _parts(file, what, filters):
            sink.write(writer(rows).encode())
            count += len(rows)
        sink.flush()
        kept = not count and output is not None and os.path.lexists(output)
        if kept:
            raise _Kept
    if kept:
        printing.remark(f"no {what[:-1]} matches; {output} was left as it is")
    if output is not None and as_json:
        printing.document(
            {"export": {"path": output, "what": what, "format": form, "rows": count}}
        )
    elif output is not None and not kept:
        printing.say(f"{output} has {count} {what if count != 1 else what[:-1]}")
    if not count:
        if output is None:
            printing.remark(f"no {what[:-1]} matches")
        context.exit(REFUSED)


# Reading ------------------------------------------------------------------------------


def _parts(file: Reader, what: str, filters: dict[str, Any]) -> Iterator[list[Row]]:
    """What matches, part by part, each of a short reading of its own.

    A part is what matches among so many rows, so that a filter that keeps little is not
    one long reading.
    """
    kind = KINDS[what]
    filters = filters | {"states": _filters.states_json(filters["states"])}
    [ends] = file.rows("export_ends")
    after, last = 0, ends[what]
    while after < last:
        [part] = file.rows(kind.span, after=after, last=last, limit=SIZES.exported_rows)
        rows = file.rows(kind.rows, {**filters, **part})
        if rows:
            yield [record_of(row, kind.fields) for row in rows]
        # The same, if what is left was deleted meanwhile.
        after = last if part["last_id"] == after else part["last_id"]


# Writing ------------------------------------------------------------------------------


def _lines(rows: Sequence[Row]) -> str:
    """JSON, one document on each line, in ASCII without control characters."""
    return "".join(f"{printing.json_text(row)}\n" for row in rows)


def _csv_writer(kind: Kind) -> Writer:
    def write(rows: Sequence[Row]) -> str:
        return _csv_text(
            [_cell(row[name], is_document=name in kind.documents) for name in row]
            for row in rows
        )

    return write


def _csv_text(rows: Iterable[Sequence[object]]) -> str:
    return "".join(f"{','.join(map(_quoted, row))}\r\n" for row in rows)


def _quoted(cell: object) -> str:
    """All text is, so that none is taken for a number, nor empty text for nothing."""
    if isinstance(cell, str):
        return '"' + cell.replace('"', '""') + '"'
    return "" if cell is None else str(cell)


def _cell(value: object, *, is_document: bool) -> object:
    """A value as a spreadsheet may have it: nothing in it is computed or obeyed."""
    if value is None:
        return None
    if is_document or isinstance(value, bool):
        text = printing.json_text(value)
    elif isinstance(value, dt.datetime):
        text = printing.instant(value, "milliseconds")
    elif isinstance(value, (int, float)):
        return value
    else:
        text = str(value)
    return printing.escaped(f"'{text}" if text.startswith(FORMULA) else text)


@contextlib.contextmanager
def _sink(file: Reader, output: str | None, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Where it is written to: the output, or a private file that is whole or not there.

    Raises:
        Failure: The file cannot be written, or is not to be.
    """
    if output is None:
        if sys.stdout is None:
            raise Failure("the output is closed; name a file: --output FILE")
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    from litejobs._storage import backup
    from litejobs.errors import FileRefused

    new_file = backup.new_file(
        output, source=os.path.realpath(file.path), overwrite=overwrite
    )
    of_the_source = False
    try:
        with new_file as name, open(name, "wb") as sink:
            try:
                yield sink
            except FileRefused:
                of_the_source = True
                raise
    except FileRefused as error:
        if of_the_source:
            raise
        # The file that --db names is all right.
        sentence = str(error).replace(backup.ALLOW, "--overwrite")
        raise Failure(sentence) from error
