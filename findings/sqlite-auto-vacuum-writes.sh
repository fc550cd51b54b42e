#!/bin/sh
# SQLite 3.54.1 (apsw 3.54.1.0): `pragma auto_vacuum` on a new file writes its first page at
# once, in a transaction of its own. `pragma page_size`, which is as much a wish for the
# file that is to come, writes nothing. Within a transaction `pragma auto_vacuum` does
# nothing, without an error.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apsw==3.54.1.0
cd "$work"
found=$("$work/venv/bin/python" - <<'PY'
import os

import apsw

for number, wish in enumerate(("page_size = 4096", "auto_vacuum = incremental")):
    db = apsw.Connection(f"{number}.db")
    db.execute(f"pragma {wish}")
    print(wish, os.stat(f"{number}.db").st_size)
db = apsw.Connection("within.db")
db.execute("begin immediate")
db.execute("pragma auto_vacuum = incremental")
db.execute("create table note (text)")
db.execute("commit")
print("within", db.execute("pragma auto_vacuum").get)
PY
)
printf '%s\n' "$found"
[ "$found" = "page_size = 4096 0
auto_vacuum = incremental 4096
within 0" ]
