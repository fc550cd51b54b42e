"""How large the file may be, as the code that opens it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs._storage.statements import query
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.database import Database

_MEANT = {False: "max_size_shared=True", True: "--shared"}


def limit_size(
    database: Database, most: int, *, shared: bool, edited: bool = False
) -> None:
    """The file takes no new job as soon as it uses *most* bytes; 0 stands for no limit.

    What a person has said, who has *edited* it, stays whatever the code says.

    Raises:
        ConfigurationError: The application has tables of its own in it, not *shared*;
            or a person says it, and the file is to be kept below a size that is larger.
    """
    if most and not shared:
        check_own(database, f"max_size={most}", _MEANT[edited])
    with database.transaction() as db:
        db.execute(query("limit_size"), {"most": most, "edited": edited})
        if most:
            db.execute(query("tell_size"))
        if edited:
            check_order(db, f"max_size={most}", "give more, or keep it smaller first")


def check_order(db: apsw.Connection, what: str, way_out: str) -> None:
    """Jobs that have ended are deleted for the size before new ones are refused.

    *what* has just been set, in the transaction that is open.

    Raises:
        ConfigurationError: They are not.
    """
    for kept, most in db.execute(query("crossed_size")):
        raise ConfigurationError(
            f"{what}: new jobs would be refused (max_size={most}) before any that has "
            f"ended is deleted (retention of file: {kept} bytes); {way_out}"
        )


def check_own(database: Database, what: str, consent: str) -> None:
    """The file has no tables but those of litejobs, so its size is that of the jobs.

    *what* limits it, unless *consent* is given.

    Raises:
        ConfigurationError: The application has tables of its own in it.
    """
    others = [str(name) for (name,) in database.run("tables_of_others")]
    if others:
        named = ", ".join(others[:3]) + (", …" if others[3:] else "")
        raise ConfigurationError(
            f"{what} would count tables of the application in {database.path}, too "
            f"({named}); keep the jobs in a file of their own, or say that it is "
            f"meant so: {consent}"
        )
