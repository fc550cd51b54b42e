"""Enqueues jobs in DATABASE, writes the ids that came back into LEDGER, until killed.

It says `ready` and waits for a line, the number of the first job.
"""

from __future__ import annotations

import itertools
import os
import sys
import time

from litejobs import LiteJobs

jobs = LiteJobs(sys.argv[1])
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

print("ready", flush=True)
for number in itertools.count(int(sys.stdin.readline())):
    if number % 10:
        ids = [jobs.enqueue("work", [number]).id]
    else:
        ids = jobs.enqueue_many([jobs.call("work", [number]) for _ in range(3)])
    os.write(ledger, "".join(f"{each}\n" for each in ids).encode())
    os.fsync(ledger)
    time.sleep(0.004)
