#!/bin/sh
# SQLite 3.54.1 (apsw 3.54.1.0): json_each has a hidden column `root` beside the documented
# path arguments. In a subquery over json_each an unqualified `root` of the outer table
# silently means that one, "$", though `select *` does not show it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apsw==3.54.1.0
found=$("$work/venv/bin/python" - <<'PY'
import apsw

db = apsw.Connection(":memory:")
db.execute("create table tree (root, leaves)")
db.execute("""insert into tree values ('oak', '["acorn"]')""")
shown = db.execute("select * from json_each('[1]')")
print("shown", "root" in [name for name, _ in shown.get_description()])
inner = "select {} from json_each(tree.leaves)"
for name in ("root", "tree.root"):
    print(name, db.execute(f"select ({inner.format(name)}) from tree").get)
PY
)
printf '%s\n' "$found"
[ "$found" = 'shown False
root $
tree.root oak' ]
