"""Retry with backoff: what was tried, how long it waited, and what stopped it.

    python examples/retry.py

The delays are short, so that the program ends in a second; `jitter=0` makes them exact.
The output is:

    download('good.example') got 42 bytes
      attempt 1: error, ConnectionError: no answer; then retry after 50 ms
      attempt 2: error, ConnectionError: no answer; then retry after 100 ms
      attempt 3: ok; then complete
    download('gone.example') failed for good, stopped by max_attempts
      attempt 1: error, ConnectionError: no answer; then retry after 50 ms
      attempt 2: error, ConnectionError: no answer; then retry after 100 ms
      attempt 3: error, ConnectionError: no answer; then retry after 150 ms
      attempt 4: error, ConnectionError: no answer; then dead_letter
    download('gone.example') once more: pending, after 4 attempts

On the standard error the `litejobs` logger says the same, as it happens.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from litejobs import Job, LiteJobs, Retry, current
from litejobs.errors import JobDeadLettered


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LiteJobs(Path(folder, "jobs.db")) as jobs,
    ):
        retry = Retry.exponential("50ms", max_attempts=4, max_delay="150ms", jitter=0)

        @jobs.task(retry=retry)
        def download(host: str) -> str:
            if host == "gone.example" or current().attempt < 3:
                raise ConnectionError("no answer")
            return "42 bytes"

        good = download.enqueue("good.example")
        gone = download.enqueue("gone.example")
        with jobs.running():
            print(f"download('good.example') got {good.result(timeout=10)}")
            show_attempts(good)
            try:
                gone.result(timeout=10)
            except JobDeadLettered:
                print(
                    "download('gone.example') failed for good, stopped by",
                    gone.stopped_by,
                )
                show_attempts(gone)
        gone.requeue()
        print(
            f"download('gone.example') once more: {gone.state},"
            f" after {len(gone.attempts)} attempts"
        )


def show_attempts(job: Job[Any]) -> None:
    """Print a line for each attempt: how it ended, and what was decided then."""
    for each in job.attempts:
        error = (each.outcome or {}).get("error")
        why = f", {error['type']}: {error['message']}" if error else ""
        wait = f" after {each.delay_ms} ms" if each.will_retry else ""
        print(
            f"  attempt {each.attempt}: {each.status}{why}; then {each.decision}{wait}"
        )


if __name__ == "__main__":
    main()
