#!/bin/sh
# SQLite 3.40.0 (apsw 3.40.0.0): with `pragma trusted_schema = off`, which SQLite's own page
# on security advises, views that use SQLite's own JSON functions are refused as unsafe;
# with 3.42.0 (apsw 3.42.0.1) they work. The functions are no less built in there.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 3.40.0.0 3.42.0.1; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/python" -m pip install -q "apsw==$version"
  "$work/$version/bin/python" - "$version" >> "$work/found" <<'PY'
import sys

import apsw

db = apsw.Connection(":memory:")
db.execute("create view size as select json_extract('[7]', '$[0]') as size")
db.execute("pragma trusted_schema = off")
try:
    print(sys.argv[1], next(db.execute("select size from size"))[0])
except apsw.SQLError as error:
    print(sys.argv[1], error)
PY
done
cat "$work/found"
[ "$(cat "$work/found")" = "3.40.0.0 SQLError: unsafe use of json_extract()
3.42.0.1 7" ]
