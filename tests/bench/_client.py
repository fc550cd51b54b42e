"""Another process with the standard library's sqlite3: one insert per line it reads.

    python _client.py FILE SYNCHRONOUS INSERT

Prints `time.perf_counter()` as it was before each insert: that clock is the machine's,
the same in every process. Runs as a plain script, so that nothing of ours is imported.
"""

from __future__ import annotations

import sqlite3
import sys
import time


def main(path: str, synchronous: str, insert: str) -> None:
    """Until the input ends."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    connection.execute(f"pragma synchronous = {int(synchronous)}")
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        connection.execute(insert)
        print(repr(begun), flush=True)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
