"""Read a paginated API to its end: one job whose steps go round, once for each page.

    python examples/paginate.py [--db FILE] [--url URL] [--pages N]

A flow of three steps fetches a page, transforms it and stores it; its rules jump back
to the first step until there is no next page. `store` writes the application's rows in
the commit that ends the step, so each page is stored once. Kill it at any moment
(`kill -9` too), start it again with the same FILE, and it goes on where it was; a FILE
is for one API.

Without a URL it reads from a server of its own, which is sometimes busy (503), wants a
pause (429 with `Retry-After: 1`) or hangs up. Without a FILE the output is:

    reading 12 pages from a server of our own
    job 1: completed
    pages       12
    items      115
    retries      4
      page 3: HTTP Error 503: Service Unavailable; again after 50 ms
      page 5: HTTP Error 429: Too Many Requests; again after 1000 ms
      page 7: Remote end closed connection without response; again after 50 ms
      page 11: HTTP Error 503: Service Unavailable; again after 50 ms

It ends with 0 if every page is stored, and with 1 if one could not be had.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from litejobs import Flow, Job, LiteJobs, LiteJobsError, Policy, Retry, Rule, current
from litejobs.errors import JobDeadLettered

# No primary keys: if a page were stored twice, it would be seen.
TABLES = """
create table if not exists page (number integer not null, items integer not null);
create table if not exists item (page integer not null, name text not null);
"""

BUSY = "outcome.http.status in [429, 500, 502, 503, 504]"
LOST = (
    "not outcome.http and ('OSError' in outcome.error.types"
    " or 'HTTPException' in outcome.error.types)"
)
PAGING = Policy(
    [
        Rule.retry(f"{BUSY} or {LOST}"),
        Rule.jump(
            "step == 'store' and outcome.result.next",
            to="fetch_page",
            set_iter={"page": "{{ outcome.result.next }}"},
        ),
        Rule("step == 'store' and outcome.status == 'ok'", "break"),
    ],
    otherwise="fail",
)


def declare(jobs: LiteJobs, url: str) -> Flow:
    """The flow, whose first step reads from *url*.

    Where the API is, is not an argument of the job: our own server has another port in
    each process that goes on with it.
    """

    def fetch() -> dict[str, Any]:
        page = current().iter.get("page", 1)
        query = urllib.parse.urlencode({"page": page})
        with urllib.request.urlopen(f"{url}?{query}", timeout=10) as answer:
            return {"page": page, **json.load(answer)}

    def transform(prev: dict[str, Any]) -> dict[str, Any]:
        return {**prev, "items": [name.title() for name in prev["items"]]}

    def store(prev: dict[str, Any]) -> None:
        page, items = prev["page"], prev["items"]
        # The rows, the end of the step and the jump to the next page: one commit.
        with current().transaction({"next": prev["next"]}) as db:
            db.execute("insert into page values (?, ?)", (page, len(items)))
            rows = [(page, name) for name in items]
            db.executemany("insert into item values (?, ?)", rows)

    return jobs.flow(
        "sync",
        [("fetch_page", fetch), ("transform", transform), ("store", store)],
        policy=PAGING,
        # A kill uses up an attempt of its step just as a fault does: so many of them.
        retry=Retry.constant("50ms", max_attempts=20, jitter=0),
        max_crashes=20,
        crash_delay="50ms",
    )


def main() -> int:
    """Go on with the job that an earlier run has left, or make one; show the rows."""
    options = read_options()
    # The table at the end tells what would otherwise be logged between the lines.
    logging.getLogger("litejobs").addHandler(logging.NullHandler())
    with contextlib.ExitStack() as stack:
        if options.url is None:
            url = stack.enter_context(serving(options.pages))
            print(f"reading {options.pages} pages from a server of our own", flush=True)
        else:
            url = options.url
            print(f"reading {url}", flush=True)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        jobs = stack.enter_context(LiteJobs(options.db or Path(folder, "jobs.db")))
        sync = declare(jobs, url)
        with jobs.transaction() as db:
            db.execute(TABLES)
        job = job_of(jobs, sync)
        with jobs.running(threads=1), contextlib.suppress(JobDeadLettered):
            job.result()
        return show(jobs, job)


def job_of(jobs: LiteJobs, sync: Flow) -> Job[Any]:
    """The one job of this file: while it is unfinished, its key keeps it alone."""
    ended = [each for each in jobs.list(task="sync", limit=1) if each.finished_at]
    if not ended:
        return sync.using(unique_key="sync").enqueue()
    job = jobs.get(ended[0].id)
    if job.state != "completed":
        job.requeue()  # it goes on at the step that failed
    return job


def show(jobs: LiteJobs, job: Job[Any]) -> int:
    """Print what is stored and what had to be tried again; the exit status."""
    with jobs.reader() as db:
        pages = db.execute("select count(*) from page").get
        items = db.execute("select count(*) from item").get
    attempts, page, state = job.attempts, 1, job.state
    print(f"job {job.id}: {state}")
    print(f"pages   {pages:6}")
    print(f"items   {items:6}")
    print(f"retries {sum(each.decision == 'retry' for each in attempts):6}")
    for each in attempts:
        if each.decision in {"retry", "dead_letter"}:
            why = ((each.outcome or {}).get("error") or {}).get("message", each.status)
            then = f"again after {each.delay_ms} ms"
            if each.decision == "dead_letter":
                then = f"given up, stopped by {each.stopped_by}"
            print(f"  page {page}: {why}; {then}")
        elif each.step == "store" and each.status == "ok":
            page += 1
    return 0 if state == "completed" else 1


# --- The server ----------------------------------------------------------------------


@contextlib.contextmanager
def serving(pages: int) -> Iterator[str]:
    """Within the block a server in a thread gives this many pages, at this address."""
    asked: set[int] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            number = int(query["page"][0])
            # Now and then a page goes wrong when it is first asked for.
            fault = "" if number in asked else FAULTS.get(number % 16, "")
            asked.add(number)
            if fault == "hang up":
                self.close_connection = True
            elif fault:
                self.send_response(int(fault))
                if fault == "429":
                    self.send_header("Retry-After", "1")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.give(page_of(number, pages))

        def give(self, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the table at the end tells it."""

    os.environ["no_proxy"] = "127.0.0.1"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/items"
        server.shutdown()


FAULTS = {3: "503", 5: "429", 7: "hang up", 11: "503"}


def page_of(number: int, pages: int) -> dict[str, Any]:
    """Ten items, on the last page fewer, and the number of the next page."""
    count = 10 if number < pages else 5
    return {
        "items": [f"item {10 * (number - 1) + at}" for at in range(count)],
        "next": number + 1 if number < pages else None,
    }


def read_options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--db", type=Path, help="the jobs file (default: a new one)")
    parser.add_argument("--url", help="the API to read (default: a server of our own)")
    parser.add_argument("--pages", type=int, default=12, help="of our own server")
    options = parser.parse_args()
    if options.pages < 1:
        parser.error(f"--pages {options.pages} is nothing to read; give 1 or more")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped; start it again to go on")
    except LiteJobsError as error:
        sys.exit(f"paginate: {error}")
