"""A window that stays responsive while jobs run, with a bar and a button for each job.

    python examples/desktop.py [--auto]

The window's thread never waits for the file. Callbacks and a thread beside it read the
jobs into a queue, into which the window looks every 50 ms. With `--auto` it paints five
pictures, cancels the third, closes by itself, and the output is:

    picture 1: completed
    picture 2: completed
    picture 3: cancelled
    picture 4: completed
    picture 5: completed
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from litejobs import JobSnapshot, LiteJobs, current

try:
    import tkinter as tk
    from tkinter import ttk
except ImportError:
    sys.exit("this example needs tkinter; on Debian: apt install python3-tk")

ENDED = ("completed", "dead_lettered", "cancelled")


def paint(strokes: int) -> None:
    for stroke in range(strokes):
        current().wait(0.05)  # the work; ends at once when the job is cancelled
        current().check()
        current().progress((stroke + 1) / strokes)


class Window(tk.Tk):
    """A row for each job; its methods run in the window's thread, but for `read`."""

    def __init__(self, jobs: LiteJobs, beside: ThreadPoolExecutor) -> None:
        super().__init__()
        self.title("litejobs")
        self.jobs, self.beside, self.paint = jobs, beside, jobs.task(paint)
        self.news: SimpleQueue[JobSnapshot] = SimpleQueue()
        self.seen: dict[int, JobSnapshot] = {}
        self.rows: dict[int, tuple[ttk.Progressbar, ttk.Label, ttk.Button]] = {}
        self.asked: Future[Any] = beside.submit(jobs.open)
        jobs.on("*", lambda event: self.read([event.job_id]))
        ttk.Button(self, text="Paint a picture", command=self.add).grid(
            columnspan=4, pady=8
        )
        self.look()

    def add(self) -> None:
        """Another job is asked for, beside this thread, for a commit takes its time."""
        self.beside.submit(self.paint.enqueue, 20)

    def cancel(self, job_id: int) -> None:
        """The job is asked to end, in the same way."""
        self.beside.submit(lambda: self.jobs.get(job_id).cancel())

    def read(self, numbers: list[int]) -> None:
        """How the jobs stand is in the queue; called in other threads, for it waits."""
        for number in numbers:
            self.news.put(self.jobs.get(number).snapshot())

    def look(self) -> None:
        """What is new is shown, and the jobs that run are asked how far they are."""
        while not self.news.empty():
            self.show(self.news.get())
        if self.asked.done():
            running = [n for n, job in self.seen.items() if job.state == "processing"]
            self.asked = self.beside.submit(self.read, running)
        self.after(50, self.look)

    def show(self, job: JobSnapshot) -> None:
        """The row of the job, made if it is a new one, says how it stands."""
        if job.id not in self.rows:
            bar, state = ttk.Progressbar(self, maximum=1), ttk.Label(self, width=12)
            button = ttk.Button(
                self, text="Cancel", command=lambda: self.cancel(job.id)
            )
            self.rows[job.id] = bar, state, button
            row = ttk.Label(self, text=f"picture {job.id}"), bar, state, button
            for column, widget in enumerate(row):
                widget.grid(row=job.id, column=column, padx=8, pady=4)
        bar, state, button = self.rows[job.id]
        bar["value"], state["text"], self.seen[job.id] = (
            job.progress or 0,
            job.state,
            job,
        )
        if job.state in ENDED:
            button.state(["disabled"])

    def run_by_itself(self) -> None:
        """What a person would click, until five pictures are done with."""
        ended = [job for _, job in sorted(self.seen.items()) if job.state in ENDED]
        if 3 in self.seen and (self.seen[3].progress or 0) > 0.3:
            self.rows[3][2].invoke()
        if len(ended) == 5:
            print(*[f"picture {job.id}: {job.state}" for job in ended], sep="\n")
            self.after(500, self.destroy)
        else:
            self.after(50, self.run_by_itself)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LiteJobs(Path(folder, "jobs.db")) as jobs,
        ThreadPoolExecutor(1) as beside,
    ):
        try:
            window = Window(jobs, beside)
        except tk.TclError as error:
            sys.exit(f"no window can be opened here: {error}")
        with jobs.running(threads=2, grace="1s"):
            if "--auto" in sys.argv:
                for _ in range(5):
                    window.add()
                window.run_by_itself()
            window.mainloop()


if __name__ == "__main__":
    main()
