#!/bin/sh
# libsql 0.1.11 (Python): a whole number that does not fit in 32 bits is bound as a real, so
# a time in milliseconds comes back from an expression as a float, and one above 2^53 is
# another number. The sqlite3 module of Python binds all of them as integers.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q libsql==0.1.11
found=$("$work/venv/bin/python" - <<'PY'
import sqlite3

import libsql

for module in (sqlite3, libsql):
    db = module.connect(":memory:")
    for number in (2**31 - 1, 2**31, 2**53 + 1):
        kind, back = db.execute("select typeof(?), ?", (number, number)).fetchone()
        print(module.__name__, number, kind, int(back))
PY
)
printf '%s\n' "$found"
[ "$found" = "sqlite3 2147483647 integer 2147483647
sqlite3 2147483648 integer 2147483648
sqlite3 9007199254740993 integer 9007199254740993
libsql 2147483647 integer 2147483647
libsql 2147483648 real 2147483648
libsql 9007199254740993 real 9007199254740992" ]
