"""One small program, as each of the servers has it."""

from __future__ import annotations

import signal
from pathlib import Path

import apsw

from tests.embedded.environments import python_with
from tests.servers.serving import Load, Server, assert_each_is_written_once
from tests.waiting import eventually

JOBS = """
import json
import logging
import os
import time
from urllib.parse import parse_qs

from litejobs import LiteJobs

logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
jobs = LiteJobs(os.environ["LITEJOBS_DB"])


@jobs.task
def write(name: str) -> str:
    if name == "slow":
        time.sleep(60)
    return f"Dear {name}"


def answer(method: str, path: str, query: str) -> tuple[int, object]:
    if method == "POST":
        return 202, {"id": write.enqueue(parse_qs(query)["name"][0]).id}
    if path == "/health":
        return 200, {"role": jobs.health()["role"]}
    letter = jobs.get(int(path.rpartition("/")[2]))
    state = letter.state
    result = letter.result() if state == "completed" else None
    return 200, {"state": state, "result": result}
"""

WSGI = (
    JOBS
    + """

def application(environ, start_response):
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    status, document = answer(method, path, environ["QUERY_STRING"])
    start_response(f"{status} OK", [("Content-Type", "application/json")])
    return [json.dumps(document).encode()]


jobs.start(threads=4, grace=0.5)
"""
)


ASGI = (
    JOBS
    + """

running = jobs.arunning(threads=4, grace=0.5)


async def app(scope, receive, send):
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        if kind == "lifespan.startup":
            await running.__aenter__()
        else:
            await running.__aexit__(None, None, None)
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
    status, document = answer(
        scope["method"], scope["path"], scope["query_string"].decode()
    )
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(document).encode()})
"""
)


def server(
    folder: Path, program: str, packages: tuple[str, ...], *command: str, **env: str
) -> Server:
    """Such a *program*, served by a *command* of an environment with these packages.

    The command's first word is a program that is there beside Python, or Python.
    """
    (folder / "served.py").write_text(program)
    python = python_with(*packages)
    name, *options = command
    found = python if name == "python" else python.parent / name
    return Server(folder, "served", str(found), *options, **env)


def serves_and_stops(
    served: Server,
    *,
    standbys: int = 0,
    how: signal.Signals = signal.SIGTERM,
    code: int = 0,
) -> None:
    """Jobs are run, by one of the processes; a stop loses none and is no crash."""
    eventually(lambda: served.has(standbys=standbys))
    with Load(served, clients=2) as load:
        load.goes_on(20)
    assert load.wrong == []
    assert_each_is_written_once(served, load.ordered)
    slow = served.order("slow")
    eventually(
        lambda: served.ask("GET", f"/letters/{slow}")[1]["state"] == "processing"
    )
    assert served.end(how) == code, served.log.read_text()
    assert is_given_back(served, slow), served.log.read_text()


def is_given_back(served: Server, job: int) -> bool:
    """Whether its attempt was ended by the runner, in good order, and it waits."""
    db = apsw.Connection(str(served.path))
    try:
        return db.execute(
            "select j.state, a.status, (select count(*) from litejobs_runner "
            "where stopped_at is null) from litejobs_job as j "
            "join litejobs_attempt as a on a.job_id = j.id where j.id = ?",
            (job,),
        ).fetchall() == [("pending", "interrupted", 0)]
    finally:
        db.close()
