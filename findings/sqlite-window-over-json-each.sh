#!/bin/sh
# SQLite 3.54.1 (apsw 3.54.1.0): a view over json_each, without a call, takes its argument
# from `where` through the view's own column, so it works like a view with a parameter. As
# soon as the view has a window function the same question has no rows, without an error:
# the condition is no longer handed down, and json_each without an argument is empty.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apsw==3.54.1.0
found=$("$work/venv/bin/python" - <<'PY'
import apsw

db = apsw.Connection(":memory:")
db.execute("create view plain as select json as asked, value from json_each")
db.execute("""
    create view summed as
    select json as asked, value, sum(value) over () as total from json_each
""")
for view in ("plain", "summed"):
    rows = db.execute(f"select value from {view} where asked = '[1,2,3]'").fetchall()
    print(view, len(rows))
called = "select value, sum(value) over () from json_each('[1,2,3]')"
print("called", len(db.execute(called).fetchall()))
PY
)
printf '%s\n' "$found"
[ "$found" = "plain 3
summed 0
called 3" ]
