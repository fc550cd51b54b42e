"""Which schema a file has, and whether this code may use it."""

from __future__ import annotations

import contextlib

import apsw

from litejobs._storage import statements
from litejobs.errors import FileRefused, NewerSchema, TamperedSchema

_SHOWN = 3


def installed_version(connection: apsw.Connection, path: str) -> int | None:
    """The version of the tables in the file; None where there is nothing of ours."""
    if not connection.execute(statements.query("installed")).get:
        return None
    version = None
    if connection.execute(statements.query("has_meta")).get:
        with contextlib.suppress(apsw.SQLError):
            version = connection.execute(statements.query("file_version")).get
    if not isinstance(version, int):
        check_tables(connection, path)
        raise TamperedSchema(
            f"{path} holds objects named litejobs_… but no version of them; "
            "restore it from a backup, or use another file"
        )
    return version


def check_version(path: str, version: int | None, *, as_is: bool) -> None:
    """The schema is not newer than this code, and with *as_is* not older either."""
    if version is not None and version > statements.current_version():
        raise NewerSchema(
            f"{path} has schema version {version}, this litejobs knows "
            f"{statements.current_version()}; upgrade litejobs, or use the one that "
            "made the file"
        )
    if as_is and version is None:
        raise FileRefused(
            f"{path} holds no jobs tables; check the name, or make them with: "
            f"litejobs --db {path} init"
        )
    if as_is and version != statements.current_version():
        raise FileRefused(
            f"{path} has schema version {version}, this litejobs knows "
            f"{statements.current_version()}; when no older application uses the file "
            f"any more, upgrade it with: litejobs --db {path} init"
        )


def check_same_version(path: str, version: int | None) -> None:
    """The file that is open has the schema of this code still."""
    check_version(path, version, as_is=False)
    if version is None:
        raise FileRefused(
            f"{path} was open and has no jobs tables any more; put them back with: "
            f"litejobs --db {path} restore BACKUP"
        )
    if version != statements.current_version():
        raise FileRefused(
            f"{path} was open and has schema version {version} now, this litejobs "
            f"knows {statements.current_version()}: an older file has taken its place; "
            "restart the application, which upgrades it"
        )


def check_as_made(connection: apsw.Connection, path: str, version: int) -> None:
    """Our tables, indexes, views and triggers are as that version makes them.

    Raises:
        TamperedSchema: Something was changed, is missing or was added.
    """
    if statements.is_as_made(connection, version):
        return
    if version != statements.current_version():
        raise TamperedSchema(
            f"{path} has schema version {version}, and its tables, views or triggers "
            "named litejobs_… are not those of that version; restore the file from a "
            "backup"
        )
    from litejobs._storage.refusals import shown_name

    check_tables(connection, path)
    changes = statements.changes(statements.objects(connection))
    if not changes:
        raise TamperedSchema(
            f"{path} is as the SQL of this program says, which is not what its "
            "versions.txt says; install litejobs again, or, where you have changed its "
            "SQL, run python -m tests.schemas freeze"
        )
    names = ", ".join(shown_name(name) for name, _ in changes[:3])
    raise TamperedSchema(
        f"{path}: {names} is not as litejobs made it "
        f"({len(changes)} changed, missing or added); restore the file from a backup"
    )


def check_tables(connection: apsw.Connection, path: str) -> None:
    """Our tables were not dropped by a tool that has no models of them.

    Raises:
        TamperedSchema: They were.
    """
    sentence, remedy = dropped(statements.objects(connection), path)
    if sentence:
        raise TamperedSchema(f"{path}: {sentence}; {remedy}")


def dropped(found: statements.Objects, path: str) -> tuple[str, str]:
    """That tables of litejobs were dropped, and what helps; empty if none was.

    SQLite lets a table go that views and triggers read. The views stay, and so do the
    triggers on them.
    """
    tables = statements.dropped(found)
    if not tables:
        return "", ""
    more = len(tables) - _SHOWN
    names = ", ".join(tables[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    some = "" if are_all_dropped(found) else "some of "
    anew = "" if some else f", or begin without jobs: litejobs --db {path} init"
    remedy = (
        f"restore a backup: litejobs --db {path} restore BACKUP{anew}; and let the "
        "tool that dropped them leave out what is named litejobs_…"
    )
    return f"{some}the tables of litejobs were dropped ({names})", remedy


def are_all_dropped(found: statements.Objects) -> bool:
    """Nothing but views, and triggers on them, is left of what this version makes."""
    return bool(statements.dropped(found)) and "table" not in {
        each[0] for each in found
    }
