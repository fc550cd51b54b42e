#!/bin/sh
# DuckDB 1.5.5 with its sqlite extension reads the text of the views of an attached SQLite
# file as its own dialect, when they are asked for. `[id]`, a quoted name to SQLite, is then
# a list of one. A single view that is no syntax of DuckDB (`id is 1`) makes
# information_schema.tables fail even for the other tables, though those can be read.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q duckdb==1.5.5 \
  duckdb-extension-sqlite-scanner==1.5.5
cd "$work"
found=$("$work/venv/bin/python" - <<'PY'
import pathlib
import sqlite3

import duckdb
import duckdb_extension_sqlite_scanner

[extension] = pathlib.Path(duckdb_extension_sqlite_scanner.__file__).parent.glob(
    "**/*.duckdb_extension"
)
duck = duckdb.connect()
duck.execute(f"load '{extension}'")
lite = sqlite3.connect("notes.db", isolation_level=None)
lite.execute("create table note (id integer)")
lite.execute("insert into note values (1)")
lite.execute("create view quoted as select [id] from note")


def ask(query):
    try:
        print(duck.execute(query).fetchall())
    except duckdb.Error as error:
        print(str(error).splitlines()[0])


print("view", lite.execute("select * from quoted").fetchall())
duck.execute("attach 'notes.db' as notes (type sqlite)")
ask("select * from notes.quoted")
duck.execute("detach notes")

lite.execute("create view chosen as select id from note where id is 1")
print("view", lite.execute("select * from chosen").fetchall())
duck.execute("attach 'notes.db' as notes (type sqlite)")
ask("select table_name from information_schema.tables where table_name = 'note'")
ask("select * from notes.note")
PY
)
printf '%s\n' "$found"
[ "$found" = 'view [(1,)]
[([1],)]
view [(1,)]
Parser Error: syntax error at or near "1"
[(1,)]' ]
