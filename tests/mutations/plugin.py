"""A plugin of pytest: the SQL of this run has the mistake which the environment names.

Files are known by a digest of what makes them, which is that of the SQL with the
mistake: only what it does can be noticed.
"""

from __future__ import annotations

import functools
import json
import os

import apsw

from litejobs import _sql
from tests.mutations.sources import VARIABLE, Mistake, mutated

_mistake = Mistake(*json.loads(os.environ[VARIABLE]))
_real = _sql._read


def _read(*names: str) -> str:
    return mutated("/".join(names), _real(*names), _mistake)


@functools.cache
def _versions() -> dict[int, _sql.Known]:
    connection = apsw.Connection(":memory:")
    _sql.create(connection)
    found = _sql.objects(connection)
    connection.close()
    known = _sql.Known(_sql.checksum(_sql.plain(found)), _sql.checksum(found))
    return {_sql.SCHEMA_VERSION: known}


_sql._read = _read
_sql.versions = _versions
