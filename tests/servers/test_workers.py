"""Servers with several workers: each enqueues, one runs, and the others stand by."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
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


def uvicorn(folder: Path, workers: int) -> Server:
    app = "server_fastapi:app"
    # On a busy machine a worker may take its time to begin; after the usual 5 s one
    # would be given up, and the others not be replaced.
    options = f"--workers={workers}", f"--timeout-worker-healthcheck={LONG}"
    return Server(folder, "server_fastapi", *UVICORN, "--port={port}", *options, app)


FRAMEWORKS = {
    "server_django": "django.core.wsgi, django.http, django.urls",
    "server_fastapi": "fastapi",
    "server_flask": "flask",
}


def gunicorn(
    folder: Path, workers: int, *options: str, app: str = "server_flask:app"
) -> Server:
    """The framework is imported once for all workers, the program in each of them."""
    module = app.partition(":")[0]
    config = folder / "gunicorn_config.py"
    config.write_text(f"import {FRAMEWORKS[module]}\n")
    where = ("--bind=127.0.0.1:{port}", f"--workers={workers}", f"--config={config}")
    return Server(folder, module, *GUNICORN, *where, *options, app)


def gunicorn_preload(folder: Path, workers: int) -> Server:
    return gunicorn(folder, workers, "--preload")


def gunicorn_of_loops(folder: Path, workers: int, *options: str) -> Server:
    kind = "--worker-class=uvicorn.workers.UvicornWorker"
    return gunicorn(folder, workers, kind, *options, app="server_fastapi:app")


def gunicorn_of_loops_preload(folder: Path, workers: int) -> Server:
    return gunicorn_of_loops(folder, workers, "--preload")


def gunicorn_of_django(folder: Path, workers: int) -> Server:
    return gunicorn(folder, workers, app="server_django:application")


def hypercorn(folder: Path, workers: int) -> Server:
    options = (f"--workers={workers}", "--bind=127.0.0.1:{port}", "server_fastapi:app")
    return Server(folder, "server_fastapi", PYTHON, "-m", "hypercorn", *options)


# What happens to workers of a server that has done its work


def the_runner_is_killed(server: Server, workers: int) -> None:
    assert len(failovers(server, workers, kills=1)) == 1


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


def a_reload_replaces_all(server: Server, workers: int, reloads: int = 1) -> None:
    """As gunicorn reloads."""
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


def they_are_replaced_one_by_one(server: Server, workers: int) -> None:
    """As uvicorn replaces them."""
    eventually(lambda: server.has(standbys=workers - 1))
    with Load(server) as load:
        runner = server.runner()
        assert runner is not None
        os.kill(runner, signal.SIGTERM)
        eventually(lambda: server.runner() not in {None, runner})
        load.goes_on()
        # Or else the last one may be gone, and not have been replaced yet.
        eventually(lambda: server.has(standbys=workers - 1))
        old = server.processes()
        os.kill(server.pid, signal.SIGHUP)
        # Left are the parent and what multiprocessing has beside the workers.
        eventually(lambda: len(old & server.processes()) <= len(old) - workers)
        eventually(lambda: server.has(standbys=workers - 1))
    assert load.wrong == []
    assert_each_is_written_once(server, load.ordered, deaths=True)


Happens = Callable[[Server, int], None]
SERVERS: dict[str, tuple[Callable[[Path, int], Server], Sequence[Happens]]] = {
    "uvicorn": (uvicorn, [the_runner_is_killed, they_are_replaced_one_by_one]),
    "gunicorn": (gunicorn, [a_reload_replaces_all]),
    "gunicorn-preload": (
        gunicorn_preload,
        [the_runner_is_killed, a_reload_replaces_all] * 2,
    ),
    "gunicorn-uvicorn": (gunicorn_of_loops, [a_reload_replaces_all]),
    "gunicorn-uvicorn-preload": (gunicorn_of_loops_preload, []),
    "gunicorn-django": (gunicorn_of_django, []),
    "hypercorn": (hypercorn, []),
}
CASES = [
    *(
        pytest.param(
            *(name, 3, 1), marks=needs("hypercorn") if name == "hypercorn" else ()
        )
        for name in SERVERS
    ),
    pytest.param("uvicorn", 2, 1, marks=pytest.mark.torture),
    *(
        pytest.param(name, 4, 2, marks=pytest.mark.torture)
        for name in SERVERS
        if name != "hypercorn"
    ),
]


@pytest.mark.parametrize(("name", "workers", "rounds"), CASES)
def test_every_worker_enqueues_and_one_runs(
    tmp_path: Path, name: str, workers: int, rounds: int
) -> None:
    """Whatever happens to workers happens under load, and is lost by none of them."""
    make, happens = SERVERS[name]
    with make(tmp_path, workers) as server:
        eventually(lambda: server.has(standbys=workers - 1))
        with Load(server) as load:
            load.goes_on(30)
        assert load.wrong == []
        assert load.refused == 0
        assert_each_is_written_once(server, load.ordered)
        assert server.letter(server.order("Ada")) == "Dear Ada"
        assert server.has(standbys=workers - 1)
        for each in [*happens] * rounds:
            each(server, workers)
        assert server.end() == 0


@pytest.mark.torture
@pytest.mark.parametrize("name", ["uvicorn", "gunicorn", "gunicorn-preload"])
def test_another_worker_runs_within_a_second_of_fifty_kills(
    tmp_path: Path, name: str
) -> None:
    make, _ = SERVERS[name]
    with make(tmp_path, 4) as server:
        took = failovers(server, 4, kills=50)
        print(f"median {statistics.median(took):.3f} s, at most {max(took):.3f} s")
        assert statistics.median(took) <= 1
        assert max(took) <= 3


@pytest.mark.torture
@pytest.mark.parametrize("name", ["gunicorn", "gunicorn-uvicorn"])
def test_many_reloads_of_gunicorn_replace_all_workers(
    tmp_path: Path, name: str
) -> None:
    make, _ = SERVERS[name]
    with make(tmp_path, 4) as server:
        a_reload_replaces_all(server, 4, reloads=5)
        assert server.end() == 0


def test_workers_that_serve_a_few_requests_each_lose_nothing(tmp_path: Path) -> None:
    options = ("--max-requests=15", "--max-requests-jitter=10")
    with gunicorn(tmp_path, 3, *options) as server:
        with Load(server) as load:
            load.goes_on(60)
        assert load.wrong == []
        assert_each_is_written_once(server, load.ordered, deaths=True)
        eventually(lambda: server.has(standbys=2))
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
    with gunicorn(tmp_path, 2, *["--preload"][:preload]) as server:
        eventually(lambda: server.has(standbys=1))
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
