#!/bin/sh
# apsw 3.54.1.0 (SQLite 3.54.1): a backup onto a database in WAL mode that has another page
# size raises "ReadOnlyError: not an error". Nothing is read-only, and the text does not
# name the page size. The same call succeeds where both have the same page size.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apsw==3.54.1.0
cd "$work"
found=$("$work/venv/bin/python" - <<'PY'
import apsw

source = apsw.Connection("source.db")
source.execute("pragma page_size = 8192")
source.execute("create table note (text)")
for size in (8192, 4096):
    target = apsw.Connection(f"target-{size}.db")
    target.execute(f"pragma page_size = {size}")
    target.execute("create table other (text)")
    target.execute("pragma journal_mode = wal")
    try:
        with target.backup("main", source, "main") as backup:
            backup.step()
        print(size, "copied")
    except apsw.Error as error:
        print(size, type(error).__name__, error)
PY
)
printf '%s\n' "$found"
[ "$found" = "8192 copied
4096 ReadOnlyError not an error" ]
