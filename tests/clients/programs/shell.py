"""The sqlite3 shell, once for each statement: `python shell.py SHELL FILE`."""

import re
import subprocess
import sys

shell, path = sys.argv[1:]


def typed(*lines):
    """What the shell prints, and what it complains of."""
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        [shell, "-batch", path],
        input=text,
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    return done.stdout.splitlines(), done.stderr


def parameter(number, said):
    kind, text = said[0], said[1:]
    quoted = "'" + text.replace("'", "''") + "'"
    value = {"t": quoted, "n": "null", "d": f"datetime({text} / 1000, 'unixepoch')"}
    escaped = value.get(kind, text).replace("\\", r"\\").replace('"', r"\"")
    return f'.parameter set ?{number} "{escaped}"'


def say(*parts):
    print("\t".join(parts), flush=True)


timeout = ""
[version], _ = typed("select sqlite_version();")
say("ready", version, version)
for line in sys.stdin:
    verb, sql, *values = line.rstrip("\n").split("\t")
    if found := re.match(r"pragma busy_timeout = (\d+)", sql):
        timeout = f".timeout {found[1]}"
    set_up = [timeout] + [
        parameter(number, each) for number, each in enumerate(values, 1)
    ]
    last = "select last_insert_rowid();"
    said, wrong = typed(".changes on", ".mode tabs", *set_up, f"{sql};", last)
    if wrong:
        words = re.sub(r"^.*?near line \d+: ", "", wrong.splitlines()[0])
        say("error", words)
        continue
    # After each statement it says how many rows that has changed.
    told = [re.match(r"changes: +(\d+) ", each) for each in said]
    *changes, last_changes = [found[1] for found in told if found]
    *rows, last_id = [each for each, found in zip(said, told, strict=True) if not found]
    for row in rows:
        say("row", row)
    say("done", changes[-1], last_id)
