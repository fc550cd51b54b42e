"""Enqueue a job, wait for its result, cancel another, and read what happened.

    python examples/sql/client.py jobs.db

Another process runs the jobs of the file: see docs/sql.md. This one needs Python alone.
"""

import json
import sqlite3
import sys
import time

db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
db.execute("pragma synchronous = full")

newest = "select id from litejobs_event order by id desc limit 1"
(last,) = db.execute(newest).fetchone() or (0,)

job = db.execute(
    "insert into litejobs_job (task, args) values ('greet', ?)",
    (json.dumps({"name": "Ann"}),),
).lastrowid
state = None
while state not in ("completed", "dead_lettered", "cancelled"):
    time.sleep(0.05)
    state, result = db.execute(
        "select state, result from litejobs_job_report where id = ?", (job,)
    ).fetchone()
print(state, json.loads(result))

later = db.execute(
    "insert into litejobs_job (task, run_at) values ('greet', ?)",
    (int(time.time() * 1000) + 3_600_000,),
).lastrowid
db.execute("update litejobs_job set state = 'cancelled' where id = ?", (later,))

for event in db.execute(
    "select id, job_id, name from litejobs_event where id > ? order by id", (last,)
):
    last = event[0]  # the next look begins here
    print("job", event[1], event[2])
