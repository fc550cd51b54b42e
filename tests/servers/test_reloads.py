"""Servers that watch the code: after each change it is the new one that runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from litejobs import LiteJobs
from tests.libraries import needs
from tests.servers.serving import (
    FLASK,
    ON_LINUX,
    PYTHON,
    UVICORN,
    Load,
    Refused,
    Server,
    assert_each_is_written_once,
)
from tests.waiting import eventually

pytestmark = [
    ON_LINUX,
    needs("uvicorn"),
    needs("fastapi"),
    needs("flask"),
    needs("django"),
]


def flask_run(folder: Path) -> Server:
    options = ("server_flask.py", "run", "--debug", "--port={port}")
    return Server(folder, "server_flask", *FLASK, *options)


def flask_in_main(folder: Path) -> Server:
    """Its parent has loaded the program, too, and begun to run jobs."""
    return Server(folder, "server_flask", PYTHON, "server_flask.py")


def runserver(folder: Path) -> Server:
    options = ("server_django.py", "runserver", "{port}")
    return Server(folder, "server_django", PYTHON, *options)


def uvicorn(folder: Path) -> Server:
    options = ("--port={port}", "--reload", "server_fastapi:app")
    return Server(folder, "server_fastapi", *UVICORN, *options)


SERVERS: dict[str, Callable[[Path], Server]] = {
    "flask-run": flask_run,
    "flask-in-main": flask_in_main,
    "runserver": runserver,
    "uvicorn": uvicorn,
}


def change(server: Server, old: str, new: str) -> None:
    """The program is another one from now on, which no reader sees half of."""
    text = server.program.read_text()
    assert f'"{old} ' in text
    beside = server.program.with_suffix(".new")
    beside.write_text(text.replace(f'"{old} ', f'"{new} '))
    beside.replace(server.program)


def ordered(server: Server, name: str) -> int:
    """As `order`, whatever the server is at."""
    found: list[int] = []

    def is_ordered() -> bool:
        try:
            found.append(server.order(name))
        except Refused:
            return False
        return True

    eventually(is_ordered)
    return found[0]


def runs(server: Server, text: str) -> bool:
    """Whether a letter begins with this word by now."""
    return bool(server.letter(ordered(server, "Ada")) == f"{text} Ada")


def reload_often(server: Server, reloads: int) -> None:
    with Load(server, clients=1, pause=0.05) as load:
        words = ["Dear", *[f"Round-{number}" for number in range(reloads)]]
        eventually(lambda: runs(server, "Dear"))
        for old, new in itertools.pairwise(words):
            change(server, old, new)
            eventually(lambda new=new: runs(server, new))
            # And not the old one again, whoever may have waited for its turn.
            assert runs(server, new)
        load.goes_on(5)
    assert load.wrong == []
    eventually(lambda: server.has(standbys=0))
    assert_each_is_written_once(server, load.ordered, deaths=True)


# Flask and Django restart what was restarted as what was started.
RELOADS = {"flask-run": 2, "flask-in-main": 1, "runserver": 1, "uvicorn": 2}


@pytest.mark.parametrize("name", SERVERS)
def test_new_body_runs_after_each_reload(tmp_path: Path, name: str) -> None:
    with SERVERS[name](tmp_path) as server:
        if name == "runserver":
            commands_beside_it_leave_it_alone(server)
        reload_often(server, RELOADS[name])
        server.end()


@pytest.mark.torture
@pytest.mark.parametrize("name", SERVERS)
def test_new_body_runs_after_each_of_many_reloads(tmp_path: Path, name: str) -> None:
    with SERVERS[name](tmp_path) as server:
        reload_often(server, 20)
        server.end()


# Commands beside the server, and without one


COMMANDS = {
    "migrate": ("server_django", (PYTHON, "server_django.py", "migrate")),
    "shell": (
        "server_django",
        (
            PYTHON,
            "server_django.py",
            "shell",
            "--command=import __main__; print(__main__.jobs.health()['role'])",
        ),
    ),
    "check": ("server_django", (PYTHON, "server_django.py", "check")),
    "routes": ("server_flask", (*FLASK, "server_flask.py", "routes")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_of_a_framework_does_not_become_the_runner(
    tmp_path: Path, name: str
) -> None:
    """Nor does it keep the place for a moment: the file has never had a runner."""
    module, command = COMMANDS[name]
    server = Server(tmp_path, module, *command)
    with LiteJobs(server.path) as jobs:
        job = jobs.enqueue("write", {"name": "Ada"})
        done = server.run(*command)
        assert done.returncode == 0, done.stderr
        if name == "shell":
            assert done.stdout.split()[-1:] == ["elsewhere"]
        with jobs.reader() as db:
            assert db.execute("select count(*) from litejobs_runner").get == 0
        assert job.state == "pending"


def commands_beside_it_leave_it_alone(server: Server) -> None:
    eventually(lambda: server.has(standbys=0))
    runner = server.runner()
    with Load(server) as load:
        load.goes_on(5)
        done = server.run(*COMMANDS["migrate"][1])
        assert done.returncode == 0, done.stderr
        load.goes_on(5)
    assert load.wrong == []
    assert server.runner() == runner
    assert_each_is_written_once(server, load.ordered)
