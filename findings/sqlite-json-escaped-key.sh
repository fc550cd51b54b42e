#!/bin/sh
# SQLite 3.44.2 (apsw 3.44.2.0) does not find a key of a JSON object by its letter where the
# document has that letter as an escape, which is what Python's json.dumps writes; 3.54.1
# (apsw 3.54.1.0) finds it. So one query over one file has two answers.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 3.44.2.0 3.54.1.0; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/python" -m pip install -q "apsw==$version"
  "$work/$version/bin/python" - "$version" >> "$work/found" <<'PY'
import json
import sys

import apsw

db = apsw.Connection(":memory:")
document = json.dumps({"größe": 7})
print(sys.argv[1], next(db.execute("select json_extract(?, '$.größe')", (document,)))[0])
PY
done
cat "$work/found"
[ "$(cat "$work/found")" = "3.44.2.0 None
3.54.1.0 7" ]
