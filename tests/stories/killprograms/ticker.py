"""A loop of another language: ticks, plans, claims and settles until it is killed.

It shares the life of a runner with others of its kind. Its calendar is a grid: every
schedule comes each GRID ms. Like any foreign client it has the standard library alone:
no module of ours is imported, and it says `ready` and waits for a line, its seed.

    python ticker.py DATABASE RUNNER GRID
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time

db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
RUNNER, GRID = int(sys.argv[2]), int(sys.argv[3])
OK = '{"status":"ok","ran_ms":0,"result":null}'
PLANNING = """
select schedule_id, revision, after_at, to_at, keep, wanted, fate
from litejobs_planning order by replan_at
"""
PLAN = """
insert into litejobs_plan (
    schedule_id, revision, after_at, to_at, fate, missed_first, missed_last,
    missed_count, instants, exhausted, sentence
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 'on the grid')
"""
LAST = "select coalesce(max(id), 0) from litejobs_attempt"


def answer(row: tuple) -> tuple:
    """What the calendar says to a row of litejobs_planning."""
    schedule, revision, after, to, keep, wanted, fate = row
    first, last = after // GRID + 1, to // GRID
    missed = [number * GRID for number in range(first, last + 1)]
    kept = missed[max(0, len(missed) - keep) :] if keep else []
    others = missed[: len(missed) - len(kept)]
    begin = max(after, to) // GRID + 1
    coming = [number * GRID for number in range(begin, begin + wanted)]
    return (
        *(schedule, revision, after, to, fate),
        others[0] if others else None,
        others[-1] if others else None,
        len(others) or None,
        json.dumps(kept + coming),
    )


def plans() -> list[tuple]:
    """Answers to all that the calendar is asked now."""
    return [answer(row) for row in db.execute(PLANNING).fetchall()]


def turn(chance: random.Random, running: list[int]) -> list[int]:
    """One transaction: settle, plan, tick, claim; the attempts that are this one's.

    Others may have planned between the question and the answer, which may be given
    much later, and more than once: then it is void.
    """
    if chance.random() < 0.3 and (early := plans()):
        answers[:] = early
    db.execute("begin immediate")
    for attempt in running:
        db.execute("insert into litejobs_settle values (?, ?)", (attempt, OK))
    operations = ["plan", "tick", "claim"]
    chance.shuffle(operations)
    new = []
    for operation in operations[: chance.choice((1, 2, 3, 3))]:
        if operation == "plan":
            db.executemany(PLAN, answers)
            if chance.random() < 0.8:
                db.executemany(PLAN, plans())
        elif operation == "tick":
            db.execute("insert into litejobs_tick (runner) values (?)", (RUNNER,))
        else:
            [(before,)] = db.execute(LAST).fetchall()
            db.execute("insert into litejobs_claim values (?, 4)", (RUNNER,))
            new = db.execute(
                "select id from litejobs_attempt where id > ?", (before,)
            ).fetchall()
    if chance.random() < 0.05:
        db.execute("rollback")
        return running
    db.execute("commit")
    return [attempt for (attempt,) in new]


print("ready", flush=True)
seeded = random.Random(int(sys.stdin.readline()))
db.execute("pragma synchronous = off")
# Its SQLite may be one that must not checkpoint at the same moment as another.
db.execute("pragma wal_autocheckpoint = 0")
claimed: list[int] = []
answers: list[tuple] = []
while True:
    claimed = turn(seeded, claimed)
    time.sleep(seeded.choice((0, 0.001, 0.01)))
