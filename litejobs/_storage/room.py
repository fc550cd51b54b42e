"""How large the file may be, as the code that opens it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs._storage.statements import query
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._storage.database import Database


def limit_size(database: Database, most: int, *, shared: bool) -> None:
    """The file takes no new job as soon as it uses *most* bytes; 0 is no limit.

    Raises:
        ConfigurationError: The application has tables of its own in it, not *shared*.
    """
    if most and not shared:
        others = [str(name) for (name,) in database.run("tables_of_others")]
        if others:
            named = ", ".join(others[:3]) + (", …" if others[3:] else "")
            raise ConfigurationError(
                f"max_size={most} would count tables of the application in "
                f"{database.path}, too ({named}); keep the jobs in a file of their "
                "own, or give max_size_shared=True"
            )
    with database.transaction() as db:
        db.execute(query("limit_size"), (most,))
        if most:
            db.execute(query("tell_size"))
