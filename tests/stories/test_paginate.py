"""A flow pages through a real HTTP server: faults, a pause asked for, and kills.

The held clock tells the story in this process; for the kills the example runs in a
child, which ends itself at the nth statement that writes, as a seed chooses.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "paginate.py"
STEPS = ["fetch_page", "transform", "store"]
KILLED = -9 if os.name == "posix" else 9

# Runs the example in this process, which kills itself before or after the nth statement
# that writes. With 0 it only counts them.
WITNESS = """
import itertools, os, runpy, sys
import apsw

number, log, *sys.argv = sys.argv[1:]
left = itertools.count(int(number), -1)
writes = ("begin", "commit", "insert", "update", "savepoint", "release")

def look(cursor, sql, bindings):
    if sql.lstrip().startswith(writes) and next(left) == 1:
        os.kill(os.getpid(), 9)
    return True

def watch(connection):
    connection.exec_trace = look

apsw.connection_hooks.append(watch)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    with open(log, "w") as file:
        file.write(str(int(number) - next(left)))
"""


class Site:
    """An API of *pages* pages, with what is to go wrong and what has been asked for.

    *faults* are answers for the first requests of a page: a status, a status with the
    value of Retry-After, or None to hang up.
    """

    def __init__(self, pages: int, faults: Mapping[int, list[Any]]) -> None:
        self.pages = pages
        self.faults = {page: list(each) for page, each in faults.items()}
        self.served: Counter[int] = Counter()
        self.url = ""

    def items(self, page: int) -> list[str]:
        return [f"thing {page}.{at}" for at in range(page % 4)]

    def answer(self, page: int) -> tuple[int, dict[str, str], dict[str, Any]] | None:
        """Status, headers and document; None to hang up."""
        if self.faults.get(page):
            fault = self.faults[page].pop(0)
            if fault is None:
                return None
            if isinstance(fault, int):
                return fault, {}, {}
            return fault[0], {"Retry-After": fault[1]}, {}
        self.served[page] += 1
        following = page + 1 if page < self.pages else None
        return 200, {}, {"items": self.items(page), "next": following}


@contextlib.contextmanager
def serving(
    pages: int, faults: Mapping[int, list[Any]] | None = None
) -> Iterator[Site]:
    """A real server in a thread, on a free port."""
    site = Site(pages, faults or {})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            answer = site.answer(int(query["page"][0]))
            if answer is None:
                self.close_connection = True
                return
            status, headers, document = answer
            body = json.dumps(document).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the child was killed
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what is worth saying."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}/"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module; requests to this machine go past any proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    spec = importlib.util.spec_from_file_location("paginate", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(jobs: LiteJobs) -> tuple[list[tuple[int, int]], list[tuple[int, str]]]:
    with jobs.transaction() as db:
        assert db.execute("pragma integrity_check").get == "ok"
        return (
            db.execute("select number, items from page order by number").fetchall(),
            db.execute("select page, name from item order by page, name").fetchall(),
        )


def expected(site: Site) -> tuple[list[tuple[int, int]], list[tuple[int, str]]]:
    pages = range(1, site.pages + 1)
    return (
        [(page, len(site.items(page))) for page in pages],
        [(page, name.title()) for page in pages for name in site.items(page)],
    )


def steps_that_ended(job: Any) -> list[str]:
    return [each.step for each in job.attempts if each.status == "ok"]


# --- On the held clock ---------------------------------------------------------------


def begin(jobs: LiteJobs, example: ModuleType, url: str) -> Any:
    sync = example.declare(jobs, url)
    with jobs.transaction() as db:
        db.execute(example.TABLES)
    return example.job_of(jobs, sync)


def test_flow_pages_to_the_end_and_stores_each_page_once(
    jobs: LiteJobs, example: ModuleType
) -> None:
    with serving(5) as site:
        job = begin(jobs, example, site.url)
        assert jobs.drain() == 15
        assert job.state == "completed"
        assert steps_that_ended(job) == STEPS * 5
        decisions = [each.decision for each in job.attempts]
        assert decisions[:3] == ["continue", "continue", "jump"]
        assert decisions[-1] == "complete"
        assert stored(jobs) == expected(site)
        assert site.served == Counter(range(1, 6))
        seen = job.snapshot()
        assert (seen.step, seen.iter, seen.jumps) == ("store", {"page": 5}, 4)
        assert example.show(jobs, job) == 0


def test_busy_server_is_asked_again_and_nothing_but_that_step(
    jobs: LiteJobs, example: ModuleType
) -> None:
    with freeze_time("2026-01-01") as clock, serving(3, {2: [503, None, 502]}) as site:
        job = begin(jobs, example, site.url)
        assert jobs.drain() == 4
        for wait in range(3):
            seen = job.snapshot()
            assert (seen.state, seen.step) == ("failed", "fetch_page")
            assert (seen.attempt_count, seen.delayed_ms) == (wait + 1, 50 * (wait + 1))
            assert seen.next_retry_at == dt.datetime.now(dt.UTC) + dt.timedelta(
                milliseconds=50
            )
            assert jobs.drain() == 0
            clock.tick(dt.timedelta(milliseconds=50))
            jobs.drain()
        assert job.state == "completed"
        assert stored(jobs) == expected(site)
        assert steps_that_ended(job) == STEPS * 3
        failed = [each for each in job.attempts if each.status == "error"]
        assert [each.attempt for each in failed] == [1, 2, 3]
        assert [each.outcome["error"]["type"] for each in failed] == [
            "HTTPError",
            "RemoteDisconnected",
            "HTTPError",
        ]
        assert [each.rule_position for each in failed] == [1, 1, 1]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("Thu, 01 Jan 2026 00:10:00 GMT", 600),
        ("0", 0.05),
        ("nonsense", 0.05),
        ("9999999", 86_400),
    ],
)
def test_delay_that_the_server_asks_for_is_stored_and_kept(
    jobs: LiteJobs, example: ModuleType, header: str, seconds: float
) -> None:
    with freeze_time("2026-01-01") as clock, serving(2, {2: [(429, header)]}) as site:
        job = begin(jobs, example, site.url)
        jobs.drain()
        wait = dt.timedelta(seconds=seconds)
        assert job.attempts[-1].delay_ms == seconds * 1000
        assert job.next_retry_at == dt.datetime.now(dt.UTC) + wait
        clock.tick(wait - dt.timedelta(milliseconds=1))
        assert jobs.drain() == 0
        clock.tick(dt.timedelta(milliseconds=1))
        assert jobs.drain() == 3
        assert job.state == "completed"
        assert stored(jobs) == expected(site)


def test_page_that_cannot_be_had_stops_the_job_and_a_requeue_goes_on_there(
    jobs: LiteJobs, example: ModuleType
) -> None:
    with serving(4, {3: [404]}) as site:
        job = begin(jobs, example, site.url)
        assert jobs.drain() == 7
        seen = job.snapshot()
        assert (seen.state, seen.stopped_by) == ("dead_lettered", "no_rule")
        assert (seen.step, seen.iter) == ("fetch_page", {"page": 3})
        assert example.show(jobs, job) == 1
        again = example.job_of(jobs, jobs.tasks["sync"])
        assert again == job
        assert jobs.drain() == 6
        assert job.state == "completed"
        assert stored(jobs) == expected(site)
        assert site.served == Counter(range(1, 5))


def test_server_that_stays_busy_uses_up_the_attempts(
    jobs: LiteJobs, example: ModuleType
) -> None:
    with freeze_time("2026-01-01") as clock, serving(2, {2: [503] * 25}) as site:
        job = begin(jobs, example, site.url)
        for _ in range(25):
            jobs.drain()
            clock.tick(1)
        seen = job.snapshot()
        assert (seen.state, seen.stopped_by) == ("dead_lettered", "max_attempts")
        assert (seen.attempt_count, seen.delayed_ms) == (20, 19 * 50)
        assert stored(jobs)[0] == expected(site)[0][:1]


def test_jumps_without_end_are_bounded(jobs: LiteJobs, example: ModuleType) -> None:
    """An API whose last page says that it is not the last one."""
    with serving(3) as site:
        site.answer = lambda page: (200, {}, {"items": [], "next": 1})  # type: ignore[method-assign]
        job = begin(jobs, example, site.url)
        with jobs.transaction() as db:
            db.execute("update litejobs_job set options = '{\"max_jumps\": 7}'")
        assert jobs.drain() == 3 * 8
        assert (job.state, job.stopped_by) == ("dead_lettered", "max_jumps")
        # The eighth page was stored with the attempt whose jump was refused.
        assert stored(jobs)[0] == [(1, 0)] * 8


# --- Killed --------------------------------------------------------------------------


def run(db: Path, *arguments: object, kill: int = 0) -> tuple[int, str]:
    """Its exit status and what it prints; killed at this statement that writes."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [
            *(sys.executable, "-c", WITNESS, str(kill), db.with_name("writes")),
            *(EXAMPLE, "--db", db, *map(str, arguments)),
        ],
        env={**os.environ, "PYTHONPATH": path, "no_proxy": "127.0.0.1"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def check(db: Path, site: Site, kills: int, story: str) -> None:
    """Every page is stored once, and no step that had ended was run again."""
    with LiteJobs(db) as jobs:
        assert stored(jobs) == expected(site), story
        [snapshot] = jobs.list(task="sync")
        job = jobs.get(snapshot.id)
        assert snapshot.state == "completed", story
        assert steps_that_ended(job) == STEPS * site.pages, story
        statuses = Counter(each.status for each in job.attempts)
        assert statuses["crashed"] <= kills, story
        assert set(statuses) <= {"ok", "error", "crashed"}, story
        fetch_lossy: Counter[int] = Counter()
        page = 1
        for each in job.attempts:
            if each.step == "fetch_page" and each.status != "error":
                fetch_lossy[page] += 1
            page += each.step == "store" and each.status == "ok"
        # A page was given once, or again where a kill came before the end of its step.
        for page, times in site.served.items():
            assert 1 <= times <= fetch_lossy[page], f"{story}: page {page}"


FAULTS = {2: [503], 3: [None, 503]}


def kill_rounds(folder: Path, rounds: int, seed: int, pages: int = 4) -> None:
    """The example is killed *rounds* times on one file, then goes on to its end."""
    chance = random.Random(seed)
    db = folder / "jobs.db"
    story = f"seed {seed}"
    with serving(pages, FAULTS) as site:
        kills = 0
        for _ in range(rounds):
            moment = chance.randint(1, 60)
            story += f" {moment}"
            status, text = run(db, "--url", site.url, kill=moment)
            if status == 0:
                break  # it came to its end before that moment
            assert status == KILLED, f"{story}: {text}"
            kills += 1
        status, text = run(db, "--url", site.url)
        assert status == 0, f"{story}: {text}"
        assert "job 1: completed\n" in text, story
        assert f"pages   {pages:6}\n" in text, story
        check(db, site, kills, story)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.torture)])
def test_killed_example_goes_on_and_stores_every_page_once(
    tmp_path: Path, seed: int
) -> None:
    kill_rounds(tmp_path, 3, seed)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 120))
def test_example_killed_again_and_again_stores_every_page_once(
    tmp_path: Path, seed: int
) -> None:
    kill_rounds(tmp_path, 25, seed, pages=20)


def killed_at(folder: Path, moment: int) -> None:
    folder.mkdir()
    db = folder / "jobs.db"
    with serving(3) as site:
        assert run(db, "--url", site.url, kill=moment)[0] == KILLED
        assert run(db, "--url", site.url)[0] == 0
        check(db, site, 1, f"killed at statement {moment}")


def writes(folder: Path) -> int:
    """How many statements write in a whole run over three pages."""
    with serving(3) as site:
        assert run(folder / "jobs.db", "--url", site.url)[0] == 0
    return int((folder / "writes").read_text())


def test_kill_around_the_commit_of_a_page_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    """The last statements of a run are those that store the last page."""
    last = writes(tmp_path)
    moment = random.Random(last).randrange(last - 14, last - 1)
    killed_at(tmp_path / "killed", moment)


@pytest.mark.torture
def test_kill_at_every_statement_loses_and_doubles_nothing(tmp_path: Path) -> None:
    last = writes(tmp_path)
    for moment in range(1, last - 1):
        killed_at(tmp_path / str(moment), moment)


def test_example_goes_on_with_another_server_of_its_own(tmp_path: Path) -> None:
    """Killed, its server is gone too; the next one has another port."""
    db = tmp_path / "jobs.db"
    assert run(db, "--pages", 4, kill=60)[0] == KILLED
    status, text = run(db, "--pages", 4)
    assert status == 0
    assert "job 1: completed\npages        4\nitems       35\n" in text
    assert run(db, "--pages", 4) == (0, text)  # there is nothing left to do
