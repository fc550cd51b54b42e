"""Freeze the schema: `python -m tests.schemas freeze`.

Writes down what the objects of today's `sql/` are, by which a file is known to be as
this version makes it.
"""

from __future__ import annotations

import sys

import apsw

from litejobs import _sql


def freeze() -> None:
    """Write the digest of what `sql/` makes."""
    connection = apsw.Connection(":memory:")
    _sql.create(connection)
    digest = _sql.digest_of(_sql.objects(connection))
    connection.close()
    path = _sql.directory() / "digest.txt"
    path.write_text(f"{digest}\n", encoding="utf-8")
    sys.stdout.write(f"{path}: {digest}\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["freeze"]:
        sys.exit("usage: python -m tests.schemas freeze")
    freeze()
