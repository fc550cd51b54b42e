"""The file that `--db` names, opened for one command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from litejobs import LiteJobs


def path_given() -> str:
    """The path from `--db` or the environment.

    Raises:
        click.UsageError: There is none.
    """
    context = click.get_current_context()
    path: str | None = context.find_root().params["db"]
    if path is None:
        raise click.UsageError(
            "name the jobs file: litejobs --db PATH …, or set LITEJOBS_DB", context
        )
    return path


@contextlib.contextmanager
def opened() -> Iterator[LiteJobs]:
    """The jobs of the file, which exists and is as this version made it.

    Nothing is created and nothing upgraded: a slip in the name must not leave a new
    file, nor tables of ours in a stranger's, and an application that still runs an
    older version must not find its file upgraded because somebody looked at it.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    from litejobs import LiteJobs  # noqa: PLC0415 - heavy, and help does without

    path = path_given()
    _check_ours(path)
    with LiteJobs(path) as jobs:
        jobs._origin = "cli"
        yield jobs


def _check_ours(path: str) -> None:
    import apsw  # noqa: PLC0415 - as above

    from litejobs import _database, _files, _guard, _sql  # noqa: PLC0415
    from litejobs.errors import FileRefused  # noqa: PLC0415

    real = str(_files.prepare(path, read_only=True))
    _guard.check_not_shared(real)
    queries = _sql.queries()
    try:
        with _guard.expected_open(real):
            connection = apsw.Connection(real, flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(connection):
            connection.set_busy_timeout(_database.BUSY_TIMEOUT_MS)
            connection.pragma("query_only", True)
            installed = connection.execute(queries["installed"]).get
            version = _database._installed_version(connection, path)
    except apsw.Error as error:
        raise _database._refusal(path, error) from error
    if not installed:
        raise FileRefused(
            f"{path} holds no jobs tables; check the name, or make them with: "
            f"litejobs --db {path} init"
        )
    if version is not None and version < _sql.SCHEMA_VERSION:
        raise FileRefused(
            f"{path} has schema version {version}, this litejobs knows "
            f"{_sql.SCHEMA_VERSION}; when no older application uses the file any more, "
            f"upgrade it with: litejobs --db {path} init"
        )
