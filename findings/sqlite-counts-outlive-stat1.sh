#!/bin/sh
# SQLite 3.54.1 (apsw 3.54.1.0): once `analyze` has run, emptying sqlite_stat1 and reading it
# again with `analyze sqlite_schema` does not bring a connection's plans back: it keeps the
# counts of rows of the tables, while a new connection to the same file has the first plan.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apsw==3.54.1.0
cd "$work"
found=$("$work/venv/bin/python" - <<'PY'
import apsw

FILL = """
    with recursive count(n) as (select 1 union all select n + 1 from count where n < {rows})
    insert into {table} select n from count
"""
db = apsw.Connection("counts.db")
for table, rows in (("few", 3), ("many", 50000)):
    db.execute(f"create table {table} (n)")
    db.execute(FILL.format(table=table, rows=rows))


def show_plan(when, connection):
    plan = "explain query plan select 1 from many join few on many.n + 0 = few.n + 0"
    print(when, [row[3] for row in connection.execute(plan)])


show_plan("new", db)
db.execute("analyze")
show_plan("analyzed", db)
db.execute("delete from sqlite_stat1")
db.execute("analyze sqlite_schema")
print("kept", db.execute("select count(*) from sqlite_stat1").get)
show_plan("emptied", db)
show_plan("another", apsw.Connection("counts.db"))
PY
)
printf '%s\n' "$found"
[ "$found" = "new ['SCAN many', 'SCAN few']
analyzed ['SCAN few', 'SCAN many']
kept 0
emptied ['SCAN few', 'SCAN many']
another ['SCAN many', 'SCAN few']" ]
