"""Fan out, fan in, and a chain: shrink pictures, then make a sheet of them.

    python examples/thumbnails.py

A batch has a job for each picture. When all are completed, `sheet` puts them together,
and what it returns is handed on to `publish`; if a picture is broken, `apologize` runs
in their place. The batch and all that waits for it are stored in one commit. The
output is:

    holidays: batch 1 is sealed, with 4 jobs
    holidays: batch 1 is succeeded
      shrink: 4 completed
      sheet: completed, 'sheet of beach, boat, cafe, dunes'
      publish: completed, '<img src="sheet of beach, boat, cafe, dunes">'
      apologize: cancelled, stopped by parents_succeeded
    birthday: batch 2 is sealed, with 3 jobs
    birthday: batch 2 is failed
      shrink: 2 completed, 1 dead_lettered
      sheet: cancelled, stopped by parent_failed
      publish: cancelled, stopped by parent_failed
      apologize: completed, 'sorry about candles'
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from litejobs import Batch, Job, LiteJobs

ALBUMS = {
    "holidays": ["beach", "boat", "cafe", "dunes"],
    "birthday": ["cake", "candles", "guests"],
}


def main() -> None:
    logging.getLogger("litejobs").setLevel(logging.CRITICAL)  # candles will fail
    with (
        tempfile.TemporaryDirectory() as folder,
        LiteJobs(Path(folder, "jobs.db")) as jobs,
    ):

        @jobs.task(max_attempts=1)
        def shrink(picture: str) -> str:
            if picture == "candles":
                raise ValueError("this is not a picture")
            return picture

        @jobs.task
        def sheet(batch_id: int) -> str:
            return f"sheet of {', '.join(jobs.batches[batch_id].results().values())}"

        @jobs.task
        def publish(prev: str) -> str:
            return f'<img src="{prev}">'

        @jobs.task
        def apologize(batch_id: int) -> str:
            members = jobs.batches[batch_id].jobs()
            broken = [job.args["picture"] for job in members if job.stopped_by]
            return f"sorry about {', '.join(broken)}"

        for album, pictures in ALBUMS.items():
            with jobs.batch(album) as batch:
                batch.enqueue_many(shrink.call(picture) for picture in pictures)
                made = batch.on_success(sheet.call(batch.id))
                others = [made, made.then(publish)]
                others.append(batch.on_failure(apologize.call(batch.id)))
            members = len(batch.jobs())
            print(f"{album}: batch {batch.id} is {batch.state}, with {members} jobs")
            jobs.drain()
            print(f"{album}: batch {batch.id} is {batch.state}")
            show(batch, others)


def show(batch: Batch, others: list[Job[Any]]) -> None:
    """Print what has become of the batch's jobs, and of those that waited for it."""
    counts = [f"{number} {state}" for state, number in batch.counts().items()]
    print("  shrink:", ", ".join(counts))
    for job in others:
        end = f"stopped by {job.stopped_by}"
        if job.state == "completed":
            end = repr(job.result())
        print(f"  {job.task}: {job.state}, {end}")


if __name__ == "__main__":
    main()
