"""Go back to a backup, while other processes have the file open.

With `--json`:

    restore                       {"restore": {"path": …, "from": …, "jobs": how many,
                                   "kept": what has the content from before, or null
                                   where there was none}}
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from litejobs.cli import printing
from litejobs.cli.commands.actions import confirm, counted
from litejobs.cli.commands.backup import progress
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import path_given, patiently
from litejobs.cli.input.types import FileName
from litejobs.cli.signals import tidy

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.restore import Staged


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db restore app-backup.db
  litejobs --db app.db restore /mnt/usb/app.db --yes""",
    help="""Make the jobs file what FILE is, a copy that `backup` has made.

    The runner has to be stopped first; other processes may have the file open, and see
    the new content from then on. FILE is only read, and checked as a jobs file is that
    is opened. What the jobs file holds until then is kept in a file beside it. All
    tables are replaced, those of the application as well, in one transaction: whatever
    happens, the file is as it was, or as FILE. Jobs that ran when FILE was made are
    taken for crashed, and run again. It also works where the jobs file is damaged, or
    not there.
    """,
)
@click.argument("source", metavar="FILE", type=FileName())
@click.option("--yes", is_flag=True, help="Do not ask first.")
@printing.json_option
@click.pass_context
def restore(
    context: click.Context, /, *, source: str, yes: bool, as_json: bool
) -> None:
    if context.find_root().params["immutable"]:
        raise click.UsageError(
            "this command writes to the file; leave --immutable out", context
        )
    path = path_given()
    with tidy():
        jobs, kept = _restore(path, source, yes=yes)
    if as_json:
        document = {"path": path, "from": source, "jobs": jobs, "kept": kept}
        printing.document({"restore": document})
        return
    printing.say(f"{path} is what {source} is ({counted(jobs)})")
    if kept is not None:
        printing.say(f"what it was before is in {kept}")


def _restore(path: str, source: str, *, yes: bool) -> tuple[int, str | None]:
    """How many jobs the file has now, and where its content from before is."""
    from litejobs._storage import files, process_guard
    from litejobs._storage import restore as _restoring
    from litejobs._storage.own_name import check_name, own_name

    real = os.path.realpath(files.plain_name(path))
    process_guard.check_not_shared(real)
    with contextlib.ExitStack() as stack:
        present = None
        if os.path.exists(real):
            real = files.checked(path)
            present = stack.enter_context(_opened(path, real))
            if own_name(present) is not None:
                check_name(present, real)
        has_content = present is not None and _check_ours(present, path)
        like = present if has_content and _is_readable(present) else None
        new = stack.enter_context(_staged(source, real, like))
        what = f"{path} becomes what {source} is ({counted(new.jobs)})"
        tables = sorted({*new.tables, *([] if like is None else _others(like))})
        if tables:
            what += f"; {_restoring.tables_sentence(path, tables)}"
        confirm(what, yes=yes)
        stack.enter_context(_restoring.runner_lock(real, like))
        if present is None:
            real = files.checked(path)
            present = stack.enter_context(_opened(path, real))
        with progress() as told:
            kept = _restoring.replace(
                present,
                new.connection,
                real,
                (lambda: _opened(path, real)) if has_content else None,
                told=told,
                go_on=patiently(path),
            )
        _cut_log(present)
    return new.jobs, kept


@contextlib.contextmanager
def _opened(path: str, real: str) -> Iterator[apsw.Connection]:
    """The jobs file, of which nothing is believed, as one to be written over."""
    import apsw

    from litejobs._storage import process_guard
    from litejobs._storage.refusals import refusal

    try:
        with process_guard.expected_open(real):
            connection = apsw.Connection(real, flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise refusal(path, error) from error
    with contextlib.closing(connection):
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        with contextlib.suppress(apsw.Error):
            # Where the schema is damaged, it is so by default.
            connection.pragma("synchronous", 2)
        yield connection


def _check_ours(connection: apsw.Connection, path: str) -> bool:
    """Whether there is anything in the file; a stranger's is not written over.

    Raises:
        FileRefused: It holds something, and no jobs tables.
    """
    import apsw

    from litejobs._storage.statements import query
    from litejobs.errors import FileRefused

    try:
        if not connection.pragma("page_count"):
            return False
        ours, tables = connection.execute(query("installed")).get, _others(connection)
    except apsw.Error:
        return True  # damaged: what it was cannot be told
    if tables and not ours:
        raise FileRefused(
            f"{path} holds no jobs tables, but others ({tables[0]}); check the name"
        )
    return True


def _is_readable(connection: apsw.Connection | None) -> bool:
    import apsw

    from litejobs._storage.statements import query

    with contextlib.suppress(apsw.Error):
        if connection and connection.execute(query("installed")).get:
            _others(connection)
            return True
    return False


def _others(connection: apsw.Connection) -> list[str]:
    from litejobs._storage.restore import others

    return others(connection)


@contextlib.contextmanager
def _staged(
    source: str, real: str, present: apsw.Connection | None
) -> Iterator[Staged]:
    """The copy, checked; what is wrong with it is not wrong with the jobs file."""
    from litejobs._storage.restore import staged
    from litejobs.errors import FileRefused

    with contextlib.ExitStack() as stack:
        try:
            new = stack.enter_context(staged(source, real, present))
        except FileRefused as error:
            raise Failure(str(error)) from error
        yield new


def _cut_log(connection: apsw.Connection) -> None:
    """The file itself has the new content, if nobody reads at this moment."""
    import apsw

    connection.set_busy_handler(None)
    with contextlib.suppress(apsw.Error):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
