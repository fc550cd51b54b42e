#!/bin/sh
# dataset 2.0.0: `insert` of a row that a constraint refuses leaves its transaction open,
# with the write lock held, though no transaction was asked for and `in_transaction` is
# false. Every other writer finds the database locked until the next write with success.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q dataset==2.0.0
cd "$work"
found=$("$work/venv/bin/python" - <<'PY'
import sqlite3

import dataset
from sqlalchemy.exc import IntegrityError

other = sqlite3.connect("notes.db", timeout=0, isolation_level=None)
other.execute("create table note (id integer primary key, text text unique)")
other.execute("insert into note (text) values ('taken')")


def try_write(when):
    try:
        other.execute("insert into note (text) values (?)", (when,))
        print(when, "written")
    except sqlite3.OperationalError as error:
        print(when, error)


db = dataset.connect("sqlite:///notes.db")
db["note"].insert({"text": "first"})
try_write("after a success")
try:
    db["note"].insert({"text": "taken"})
except IntegrityError as error:
    print("in_transaction", db.in_transaction, error.orig)
try_write("after an error")
db["note"].insert({"text": "next"})
try_write("after the next")
PY
)
printf '%s\n' "$found"
[ "$found" = "after a success written
in_transaction False UNIQUE constraint failed: note.text
after an error database is locked
after the next written" ]
