"""Keep the books of the schema: `python -m tests.schemas freeze`, or `… release`.

`freeze` after each change of what `sql/` makes: it writes down what the objects of
today's version are, by which its files are known, in `sql/versions.txt`. If the version
before was released, today's is a new one, and it is tried whether a file of each older
version becomes what a new file is.

`release` when today's version is handed out: it keeps a copy of its objects, from which
`freeze` and the tests make old files. From then on a change is a new version.
"""

from __future__ import annotations

import sys

from tests.schemas.books import Unlike, freeze, release

if __name__ == "__main__":
    known = {"freeze": freeze, "release": release}
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        sys.exit("usage: python -m tests.schemas freeze|release")
    try:
        sys.stdout.write(known[sys.argv[1]]() + "\n")
    except Unlike as error:
        sys.exit(str(error))
