"""Copy the file while it is in use.

With `--json`:

    backup                        {"backup": {"path": …, "size": …,
                                   "schema_version": …}}
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from litejobs.cli import printing
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import path_given
from litejobs.cli.file.unchecked import open_unchecked, refusals
from litejobs.cli.input.types import FileName
from litejobs.cli.signals import tidy

if TYPE_CHECKING:
    from litejobs.cli.file.unchecked import UncheckedReader

MEGABYTE = 1_000_000


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db backup app-backup.db
  litejobs --db app.db backup /mnt/usb/app.db --overwrite""",
    help="""Make FILE a copy of the jobs file, while the application goes on.

    All of it is copied, tables of the application included, as it is at this moment;
    also a file of another version of litejobs. The copy is checked before it gets its
    name. To go back to it, stop the runner, and: litejobs restore FILE. Jobs that ran
    when it was made are then taken for crashed, and run again.
    """,
)
@click.argument("target", metavar="FILE", type=FileName())
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@printing.json_option
def backup(*, target: str, overwrite: bool, as_json: bool) -> None:
    path = path_given()
    with (
        tidy(),
        refusals(path),
        open_unchecked(path, shared=True) as file,
        progress() as told,
    ):
        from litejobs._storage import backup as _backup
        from litejobs.errors import CorruptDatabase, FileRefused

        version = _version(file)
        try:
            _backup.copy(
                file.connection,
                target,
                real=file.real,
                overwrite=overwrite,
                told=told,
            )
        except CorruptDatabase:
            raise
        except FileRefused as error:
            # Of the target: the file that --db names is all right.
            sentence = str(error).replace(_backup.ALLOW, "--overwrite")
            raise Failure(sentence) from error
    size = os.stat(target).st_size
    if as_json:
        document = {"path": target, "size": size, "schema_version": version}
        printing.document({"backup": document})
    else:
        printing.say(f"{target} is a copy of {path} ({size / MEGABYTE:.1f} MB)")


def _version(file: UncheckedReader) -> object:
    import apsw

    from litejobs.errors import FileRefused

    if not file.value("installed"):
        raise FileRefused(f"{file.path} holds no jobs tables; check the name")
    try:
        return file.value("file_version")
    except apsw.SQLError:
        return None


@contextlib.contextmanager
def progress() -> Iterator[Callable[[int, int], None] | None]:
    """Shows how far it is, if a person looks on."""
    # None where the stream was closed before the program began.
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label="copying", file=sys.stderr) as bar:

        def told(done: int, pages: int) -> None:
            bar.length = pages
            bar.update(done - bar.pos)

        yield told
