"""The SQL of this process has a mistake: of one that pytest forks, or of a whole run
of pytest, which has this module as a plugin and the mistake in its environment.

Files are known by a digest of what makes them, which is that of the SQL with the
mistake: only what it does can be noticed.
"""

from __future__ import annotations

import functools
import json
import os
import sys

import apsw

from litejobs._storage import statements
from tests.mutations.sources import Mistake, mutated

VARIABLE = "LITEJOBS_MISTAKE"
_real = statements._read
_today = statements.current_version()


def make(mistake: Mistake) -> None:
    """From now on."""

    def read(name: str) -> str:
        return mutated(name, _real(name), mistake)

    statements._read = read
    statements.versions = _versions
    # What was read before, which the collecting of the tests does.
    statements.image.cache_clear()
    if fixture := sys.modules.get("tests.sql.fixture"):
        fixture._installed.cache_clear()


@functools.cache
def _versions() -> dict[int, statements.Known]:
    connection = apsw.Connection(":memory:")
    statements.create(connection)
    found = statements.objects(connection)
    connection.close()
    known = statements.Known(
        statements.checksum(statements.plain(found)), statements.checksum(found)
    )
    return {_today: known}


if VARIABLE in os.environ:
    make(Mistake(*json.loads(os.environ[VARIABLE])))
