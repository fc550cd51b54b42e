"""DuckDB with its extension for SQLite: `python duck.py duckdb FILE`."""

import datetime as dt
import re
import sys
import time
from pathlib import Path

import duckdb


def say(*parts):
    words = ["" if part is None else str(part) for part in parts]
    print("\t".join(" ".join(word.split()) for word in words), flush=True)


def bound(said):
    kind, text = said[0], said[1:]
    return {
        "i": lambda: int(text),
        "r": lambda: float(text),
        "b": lambda: text == "1",
        "t": lambda: text,
        "n": lambda: None,
        "d": lambda: dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC),
    }[kind]()


def done(sql, given):
    """A statement that is tried again for as long as it was told to wait for a lock."""
    until = time.monotonic() + patience
    while True:
        try:
            return db.execute(sql, given)
        except duckdb.Error as error:
            if "database is locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


patience = 0.0
try:
    # The extension comes as a package of its own, for those who cannot download it.
    import duckdb_extension_sqlite_scanner as extension

    [place] = Path(extension.__path__[0]).rglob("*.duckdb_extension")
    db = duckdb.connect()
    db.execute(f"load '{place}'")
    db.execute(f"attach '{sys.argv[-1]}' as jobs (type sqlite)")
    db.execute("use jobs")
    say("ready", duckdb.__version__, "its own")
except Exception as error:
    say("error", error)
    sys.exit()
for line in sys.stdin:
    verb, sql, *values = line.rstrip("\n").split("\t")
    try:
        if found := re.match(r"pragma busy_timeout = (\d+)", sql):
            patience = int(found[1]) / 1000
            say("done")
            continue
        given = [bound(value) for value in values]
        cursor = done(sql, given)
        reads = re.match("select|pragma", sql) or "returning" in sql
        while reads and (row := cursor.fetchone()):
            say("row", *row)
            if verb == "first":
                break
        say("done")
    except Exception as error:
        say("error", str(error).splitlines()[0])
