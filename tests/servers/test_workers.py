"""Servers with several workers: each enqueues, one runs, and the others stand by."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libraries import needs
from tests.servers.serving import (
    EXAMPLES,
    GUNICORN,
    ON_LINUX,
    PYTHON,
    UVICORN,
    Load,
    Refused,
    Server,
    assert_each_is_written_once,
    has_died,
)
from tests.waiting import LONG, eventually

pytestmark = [
    ON_LINUX,
    needs("uvicorn"),
    needs("gunicorn"),
    needs("fastapi"),
    needs("flask"),
    needs("django"),
]


def uvicorn(folder: Path, workers: int = 2) -> Server:
    app = "server_fastapi:app"
    # On a busy machine a worker may take its time to begin; after the usual 5 s one
    # would be given up, and the others not be replaced.
    options = f"--workers={workers}", f"--timeout-worker-healthcheck={LONG}"
    return Server(folder, "server_fastapi", *UVICORN, "--port={port}", *options, app)


def gunicorn(folder: Path, *options: str, app: str = "server_flask:app") -> Server:
    module = app.partition(":")[0]
    where = "--bind=127.0.0.1:{port}"
    return Server(folder, module, *GUNICORN, where, "--workers=4", *options, app)


def gunicorn_of_loops(folder: Path, *options: str) -> Server:
    kind = "--worker-class=uvicorn.workers.UvicornWorker"
    return gunicorn(folder, kind, *options, app="server_fastapi:app")


def hypercorn(folder: Path) -> Server:
    options = ("--workers=3", "--bind=127.0.0.1:{port}", "server_fastapi:app")
    return Server(folder, "server_fastapi", PYTHON, "-m", "hypercorn", *options)


SERVERS: dict[str, tuple[Callable[[Path], Server], int]] = {
    "uvicorn-2": (uvicorn, 2),
    "uvicorn-4": (lambda folder: uvicorn(folder, 4), 4),
    "gunicorn": (gunicorn, 4),
    "gunicorn-preload": (lambda folder: gunicorn(folder, "--preload"), 4),
    "gunicorn-uvicorn": (gunicorn_of_loops, 4),
    "gunicorn-uvicorn-preload": (
        lambda folder: gunicorn_of_loops(folder, "--preload"),
        4,
    ),
    "gunicorn-django": (
        lambda folder: gunicorn(folder, app="server_django:application"),
        4,
    ),
    "hypercorn": (hypercorn, 3),
}
OTHERS_SHOW_IT = ("uvicorn-4", "gunicorn-preload")  # in tests of their own, below
MARKS = {
    "hypercorn": needs("hypercorn"),
    **dict.fromkeys(OTHERS_SHOW_IT, pytest.mark.torture),
}
CASES = [pytest.param(name, marks=MARKS.get(name, ())) for name in SERVERS]


@pytest.mark.parametrize("name", CASES)
def test_every_worker_enqueues_and_one_runs(tmp_path: Path, name: str) -> None:
    make, workers = SERVERS[name]
    with make(tmp_path) as server:
        eventually(lambda: server.has(standbys=workers - 1))
        with Load(server) as load:
            load.goes_on(60)
        assert load.wrong == []
        assert load.refused == 0
        assert_each_is_written_once(server, load.ordered)
        assert server.letter(server.order("Ada")) == "Dear Ada"
        assert server.has(standbys=workers - 1)
        assert server.end() == 0


# When workers end


def failovers(server: Server, workers: int, kills: int) -> list[float]:
    """The runner was killed so often; until another one has run a job, in seconds."""
    took = []
    with Load(server, clients=1) as load:
        for kill in range(kills):
            eventually(lambda: server.has(standbys=workers - 1))
            victim = server.runner()
            assert victim is not None
            load.goes_on(3)
            has_died(victim)
            began = time.monotonic()
            while True:
                try:
                    number = server.order(f"after-{kill}")
                    break
                except Refused:
                    continue
            load.ordered.append(number)
            server.letter(number)
            took.append(time.monotonic() - began)
            assert server.runner() != victim
            load.goes_on(3)
    assert load.wrong == []
    assert_each_is_written_once(server, load.ordered, deaths=True)
    return took


@pytest.mark.parametrize("name", ["uvicorn-4", "gunicorn-preload"])
def test_another_worker_runs_after_the_runner_was_killed(
    tmp_path: Path, name: str
) -> None:
    make, workers = SERVERS[name]
    with make(tmp_path) as server:
        assert len(failovers(server, workers, kills=2)) == 2
        assert server.end() == 0


@pytest.mark.torture
@pytest.mark.parametrize("name", ["uvicorn-4", "gunicorn", "gunicorn-preload"])
def test_another_worker_runs_within_a_second_of_fifty_kills(
    tmp_path: Path, name: str
) -> None:
    make, workers = SERVERS[name]
    with make(tmp_path) as server:
        took = failovers(server, workers, kills=50)
        print(f"median {statistics.median(took):.3f} s, at most {max(took):.3f} s")
        assert statistics.median(took) <= 1
        assert max(took) <= 3


@pytest.mark.parametrize(
    ("name", "reloads"),
    [
        ("gunicorn", 1),
        ("gunicorn-preload", 2),
        ("gunicorn-uvicorn", 1),
        pytest.param("gunicorn", 5, marks=pytest.mark.torture),
        pytest.param("gunicorn-uvicorn", 5, marks=pytest.mark.torture),
    ],
)
def test_reload_of_gunicorn_replaces_all_workers_under_load(
    tmp_path: Path, name: str, reloads: int
) -> None:
    make, workers = SERVERS[name]
    with make(tmp_path) as server:
        eventually(lambda: server.has(standbys=workers - 1))
        with Load(server) as load:
            for _ in range(reloads):
                old = server.processes() - {server.pid}
                load.goes_on()
                os.kill(server.pid, signal.SIGHUP)
                eventually(lambda old=old: not old & server.processes())
                eventually(lambda: server.has(standbys=workers - 1))
                load.goes_on()
        assert load.wrong == []
        assert_each_is_written_once(server, load.ordered, deaths=True)
        assert server.end() == 0


def test_workers_of_uvicorn_are_replaced_one_by_one_under_load(tmp_path: Path) -> None:
    with uvicorn(tmp_path, 4) as server:
        eventually(lambda: server.has(standbys=3))
        with Load(server) as load:
            for _ in range(2):
                eventually(lambda: server.has(standbys=3))
                runner = server.runner()
                assert runner is not None
                os.kill(runner, signal.SIGTERM)
                eventually(lambda old=runner: server.runner() not in {None, old})
                load.goes_on()
            # Or else the last one may be gone, and not have been replaced yet.
            eventually(lambda: server.has(standbys=3))
            old = server.processes()
            os.kill(server.pid, signal.SIGHUP)
            # Left are the parent and what multiprocessing has beside the workers.
            eventually(lambda: len(old & server.processes()) <= len(old) - 4)
            eventually(lambda: server.has(standbys=3))
        assert load.wrong == []
        assert_each_is_written_once(server, load.ordered, deaths=True)
        assert server.end() == 0


def test_workers_that_serve_a_few_requests_each_lose_nothing(tmp_path: Path) -> None:
    with gunicorn(tmp_path, "--max-requests=15", "--max-requests-jitter=10") as server:
        with Load(server) as load:
            load.goes_on(100)
        assert load.wrong == []
        assert_each_is_written_once(server, load.ordered, deaths=True)
        eventually(lambda: server.has(standbys=3))
        assert server.end() == 0


# Programs of other shapes


def changed(folder: Path, module: str, *changes: tuple[str, str]) -> None:
    """The example is in the folder, with some words replaced."""
    text = (EXAMPLES / f"{module}.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / f"{module}.py").write_text(text)


@pytest.mark.parametrize("preload", [True, False])
def test_what_is_enqueued_while_the_program_is_loaded_is_run(
    tmp_path: Path, *, preload: bool
) -> None:
    early = "jobs.start(threads=4, grace=3)\nwrite.enqueue('early')\n"
    changed(tmp_path, "server_flask", ("jobs.start(threads=4, grace=3)\n", early))
    with gunicorn(tmp_path, *["--preload"][:preload]) as server:
        eventually(lambda: server.has(standbys=3))
        with Load(server) as load:
            load.goes_on()
        assert load.wrong == []
        assert_each_is_written_once(server, load.ordered)
        assert server.letter(1) == "Dear early"
        assert server.end() == 0


@pytest.mark.parametrize("option", ["workers=2", "reload=True"])
def test_main_module_that_starts_jobs_and_then_a_server_leaves_them_to_it(
    tmp_path: Path, option: str
) -> None:
    """Its process only watches the others, and has begun to run jobs before."""
    started = "app = FastAPI()\njobs.start(threads=4, grace=3)\n"
    changed(
        tmp_path,
        "server_fastapi",
        ("app = FastAPI(lifespan=lifespan)\n", started),
    )
    program = tmp_path / "server_fastapi.py"
    program.write_text(
        f"{program.read_text()}\n"
        "if __name__ == '__main__':\n"
        "    import uvicorn\n"
        "    port = int(os.environ['PORT'])\n"
        f"    uvicorn.run('server_fastapi:app', port=port, {option})\n"
    )
    with Server(tmp_path, "server_fastapi", PYTHON, program.name) as server:
        eventually(lambda: server.has(standbys=1 if "workers" in option else 0))
        eventually(lambda: server.runner() != server.pid)
        with Load(server) as load:
            load.goes_on()
        assert load.wrong == []
        assert_each_is_written_once(server, load.ordered)
        server.end()
