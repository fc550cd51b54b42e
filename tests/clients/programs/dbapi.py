"""What speaks PEP 249, and apsw: `python dbapi.py MODULE FILE`."""

import datetime as dt
import importlib
import sys
from importlib.metadata import version as installed

name, path = sys.argv[1:]


def opened():
    if name == "pyodbc":
        return driver.connect(
            f"Driver=SQLite3;Database={path};BigInt=yes", autocommit=True
        )
    if name == "apsw":
        return driver.Connection(path)
    if name == "adbc_driver_sqlite.dbapi":
        return driver.connect(path, autocommit=True)
    return driver.connect(path, isolation_level=None)


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


def say(*parts):
    words = ["" if part is None else str(part) for part in parts]
    print("\t".join(" ".join(word.split()) for word in words), flush=True)


def changed(cursor):
    return connection.changes() if name == "apsw" else cursor.rowcount


def last_id(cursor):
    if name == "apsw":
        return connection.last_insert_rowid()
    return getattr(cursor, "lastrowid", None)


def rows_of(cursor):
    if name == "apsw" or cursor.description:
        yield from iter(cursor.fetchone, None)


driver = importlib.import_module(name)
package = {"turso": "pyturso"}.get(name, name.partition(".")[0])
version = sys.version.split()[0] if name == "sqlite3" else installed(package)
try:
    connection = opened()
    cursor = connection.cursor()
    cursor.execute("select sqlite_version()")
    say("ready", version, *cursor.fetchone())
    cursor.close()
except Exception as error:
    say("error", error, version)
    sys.exit()
left = []
for line in sys.stdin:
    verb, sql, *values = line.rstrip("\n").split("\t")
    cursor = connection.cursor()
    try:
        given = [bound(value) for value in values]
        cursor.execute(sql, given) if given else cursor.execute(sql)
        for row in rows_of(cursor):
            say("row", *row)
            if verb == "first":
                left.append(cursor)
                break
        say("done", changed(cursor), last_id(cursor))
    except Exception as error:
        say("error", error)
