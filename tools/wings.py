"""Whether each wing of the SQL can be left out, and who names it all the same.

A wing is a feature that the core does without: `python tools/wings.py` makes the schema
without the files of each, says the statements of a job's life to it, and prints what
fails. Exit code 1: a wing is worse than recorded here, or the circle is larger.
`--names` also prints every object that names one of a wing, with its place.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

SQL = Path(__file__).parents[1] / "sql"

# The files of each wing: folders of `logic/`, or files.
WINGS = {
    "arguments": ("logic/arguments/",),
    "cursors": ("schema/hearing.sql", "logic/cursors/"),
    "dependencies": ("schema/dependency.sql", "logic/dependencies/"),
    "executors": ("schema/executor.sql", "logic/executors/"),
    "leftovers": ("logic/leftovers/",),
    "operations": ("schema/operation.sql", "logic/operations/"),
    "outbox": ("schema/outbox.sql", "logic/outbox/"),
    "reports": ("logic/reports/",),
    "retention": ("schema/retention.sql", "logic/retention/"),
    "schedules": ("schema/schedule.sql", "logic/schedules/"),
    "space": ("schema/space.sql", "logic/space/"),
}

# What a new file says of itself.
INSTALLED = """
insert into litejobs_meta (id, schema_version, installed_at)
select 1, 1, now from litejobs_clock
"""
# A job's life, in statements that any SQLite client can say.
LIFE = {
    "runner": "insert into litejobs_runner (pid) values (4711)",
    "task": "insert into litejobs_task (name, runner_id) values ('send', 1)",
    "enqueue": "insert into litejobs_job (task, args) values ('send', '{}')",
    "enqueue again": "insert into litejobs_job (task, args) values ('send', '[1]')",
    "enqueue in an hour": "insert into litejobs_job (task, run_at) "
    "select 'send', now + 3600000 from litejobs_clock",
    "claim": "insert into litejobs_claim (runner, slots) values (1, 1)",
    "claim again": "insert into litejobs_claim (runner, slots) values (1, 1)",
    "settle": "insert into litejobs_settle (attempt, outcome) "
    """values (1, '{"status": "ok"}')""",
    "settle an error": "insert into litejobs_settle (attempt, outcome) "
    """values (2, '{"status": "error"}')""",
    "tick": "insert into litejobs_tick (runner) values (1)",
    "agenda": "select * from litejobs_agenda",
    "block": "select * from litejobs_block",
    "cancel": "update litejobs_job set state = 'cancelled' where id = 3",
    "requeue": "update litejobs_job set state = 'pending' where id = 3",
    "delete": "delete from litejobs_job where id = 1",
}
ENDS_AS = [(2, "failed"), (3, "pending")]


class Known(NamedTuple):
    """How a wing stood when it was last recorded: at most this may be wrong of it."""

    failing: int  # statements of LIFE; all of them, where the schema is not made
    named_by_core: int  # pairs of an object of no wing and one of this wing it names
    named_by_wings: int  # the same of objects of other wings


RECORDED = {
    "arguments": Known(7, 3, 0),
    "cursors": Known(0, 0, 0),
    "dependencies": Known(12, 9, 23),
    "executors": Known(5, 11, 5),
    "leftovers": Known(0, 0, 0),
    "operations": Known(12, 16, 12),
    "outbox": Known(0, 0, 0),
    "reports": Known(0, 0, 0),
    "retention": Known(15, 4, 6),
    "schedules": Known(15, 6, 23),
    "space": Known(7, 4, 8),
}
CIRCLE = 15  # folders of `logic/` that name each other's objects, directly or not


class Object(NamedTuple):
    """A table, view or trigger, by where it is made."""

    name: str
    file: str
    line: int
    text: str  # without comments and strings, its lines kept

    @property
    def wing(self) -> str:
        """The wing it belongs to; empty for the core."""
        for wing, parts in WINGS.items():
            if self.file.startswith(parts):
                return wing
        return ""


def files() -> list[str]:
    """Those that make the schema, in the order in which they can be run."""
    lines = (SQL / "order.txt").read_text("utf-8").splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    return sorted(names, key=lambda name: "/triggers" in name)


def objects() -> dict[str, Object]:
    """All of them, by their names."""
    found = {}
    made = re.compile(r"^create (?:table|view|trigger) (\w+)", re.MULTILINE)
    for file in files():
        text = (SQL / file).read_text("utf-8")
        text = re.sub(r"--[^\n]*|'(?:[^']|'')*'", _blank, text)
        starts = [*made.finditer(text)]
        ends = [each.start() for each in starts[1:]] + [len(text)]
        for start, end in zip(starts, ends, strict=True):
            line = text.count("\n", 0, start.start()) + 1
            part = text[start.start() : end]
            found[start[1]] = Object(start[1], file, line, part)
    return found


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


class Naming(NamedTuple):
    """An object that names another one, and where it first does."""

    by: Object
    named: Object
    line: int


def namings(known: dict[str, Object]) -> list[Naming]:
    """Each pair once."""
    found: dict[tuple[str, str], Naming] = {}
    for each in known.values():
        for match in re.finditer(r"\blitejobs_\w+", each.text):
            named = known.get(match[0])
            if named is not None and named is not each:
                line = each.line + each.text.count("\n", 0, match.start())
                found.setdefault((each.name, named.name), Naming(each, named, line))
    return [*found.values()]


def largest_circle(pairs: list[Naming]) -> list[str]:
    """The most folders of `logic/` of which each leads to each."""
    direct: dict[str, set[str]] = defaultdict(set)
    for each in pairs:
        by, named = Path(each.by.file).parent, Path(each.named.file).parent
        if by.parent.name == named.parent.name == "logic" and by != named:
            direct[by.name].add(named.name)
    reached = {folder: _reached(folder, direct) for folder in [*direct]}
    circles = [
        sorted(other for other in all_of if folder in reached.get(other, ()))
        for folder, all_of in reached.items()
    ]
    return max(circles, key=len, default=[])


def _reached(start: str, direct: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        further = direct.get(ahead.pop(), set()) - found
        found |= further
        ahead += further
    return found


def failing(wing: str) -> dict[str, str]:
    """The statements that fail without the files of that wing, each with what is said.

    All of them, where the schema itself cannot be made.
    """
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        return _failing(db, wing)


def _failing(connection: sqlite3.Connection, wing: str) -> dict[str, str]:
    connection.execute("pragma foreign_keys = on")
    try:
        for file in files():
            if not file.startswith(WINGS.get(wing, ())):
                connection.executescript((SQL / file).read_text("utf-8"))
        connection.execute(INSTALLED)
    except sqlite3.Error as error:
        return dict.fromkeys(LIFE, f"the schema is not made: {error}")
    found = {}
    for what, statement in LIFE.items():
        try:
            connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            found[what] = str(error)
    ends_as = "select id, state from litejobs_job order by id"
    if not found and connection.execute(ends_as).fetchall() != ENDS_AS:
        found["delete"] = "the jobs do not end as with all wings"
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print how each wing stands, and say whether none is worse than recorded."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--names", action="store_true", help="who names what, where")
    chosen = parser.parse_args(arguments)
    pairs = namings(objects())
    crossing = [each for each in pairs if each.named.wing not in {"", each.by.wing}]
    worse = [f"with all wings: {what}: {said}" for what, said in failing("").items()]
    print(f"{'left out':14} {'fail':>4} {'core':>4} {'wings':>5}  first failure")
    stands = {}
    for wing in WINGS:
        fails = failing(wing)
        of_core = sum(not each.by.wing for each in crossing if each.named.wing == wing)
        of_wings = sum(each.named.wing == wing for each in crossing) - of_core
        stands[wing] = Known(len(fails), of_core, of_wings)
        first = next((f"{what}: {said}" for what, said in fails.items()), "")
        print(f"{wing:14} {len(fails):4} {of_core:4} {of_wings:5}  {first}")
        if any(map(int.__gt__, stands[wing], RECORDED[wing])):
            worse.append(f"{wing}: recorded is {RECORDED[wing]}")
        elif stands[wing] != RECORDED[wing]:
            print(f"better: record of {wing} {stands[wing]}")
    circle = largest_circle(pairs)
    by_core = {each.by.name for each in crossing if not each.by.wing}
    free = sum(known.failing == 0 for known in stands.values())
    print(f"can be left out: {free} of {len(WINGS)}")
    of_core = sum(known.named_by_core for known in stands.values())
    print(f"named by the core: {of_core} times, by {len(by_core)} objects")
    print(f"circle of {len(circle)} folders: {', '.join(circle)}")
    if len(circle) > CIRCLE:
        worse.append(f"circle: recorded are {CIRCLE} folders")
    if chosen.names:
        for each in sorted(crossing, key=lambda each: (each.named.wing, each)):
            place = f"sql/{each.by.file}:{each.line}"
            print(f"{each.named.wing:14} {place} {each.by.name} > {each.named.name}")
    for line in worse:
        print(f"worse: {line}", file=sys.stderr)
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
