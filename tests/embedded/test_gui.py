"""Programs with a window in a browser, each run again as its framework does it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.environments import python_with
from tests.servers.serving import free_port
from tests.waiting import LONG, eventually

pytestmark = pytest.mark.embedded

JOBS = """
import os
import threading
from litejobs import LiteJobs

jobs = LiteJobs("jobs.db")

@jobs.task
def version() -> int:
    return 1

def tell(number):
    loops = [each for each in threading.enumerate() if each.name == "litejobs-loop"]
    with open("told", "a") as told:
        told.write(f"{number} {jobs.health()['role']} {len(loops)}\\n")
"""
"""It writes what its task has said, its role and how many runners there are."""

AT_ONCE = JOBS + "jobs.start()\ntell(version.enqueue().result(60))\n"

STREAMLIT = "import streamlit as st\n" + AT_ONCE + 'st.button("again")\n'

STREAMLIT_KEEPS = """
import streamlit as st
from litejobs import LiteJobs

@st.cache_resource
def get_jobs():
    jobs = LiteJobs("jobs.db")
    jobs.start()
    return jobs

jobs = get_jobs()

@jobs.task
def version() -> int:
    return 1

with open("told", "a") as told:
    told.write(f"{version.enqueue().result(60)} {jobs.health()['role']} 1\\n")
st.button("again")
"""

CLICKS = """
import os
from streamlit.testing.v1 import AppTest

app = AppTest.from_file("app.py", default_timeout=60).run()
for _ in range(5):
    assert not app.exception, app.exception
    app.button[0].click().run()
assert not app.exception, app.exception
os._exit(0)
"""

NICEGUI = (
    JOBS
    + """
from nicegui import app, ui

@app.get("/version")
async def ask():
    tell(await version.enqueue())

@ui.page("/")
def index():
    ui.label("jobs")

jobs.start()
if __name__ in {"__main__", "__mp_main__"}:
    ui.run(port=PORT, show=False)
"""
)

NICEGUI_SCRIPT = (
    JOBS
    + """
from nicegui import ui

@jobs.task
def look() -> None:
    tell(version.function())

jobs.start()
look.enqueue()
ui.label("jobs")
ui.run(port=PORT, show=False)
"""
)

GRADIO = (
    JOBS
    + """
import gradio

def ask():
    tell(version.enqueue().result(60))

jobs.start()
with gradio.Blocks() as demo:
    gradio.Button().click(ask, api_name="ask")
demo.launch(server_port=PORT, ssr_mode=False)
"""
)

PANEL = AT_ONCE + 'import panel\npanel.pane.Markdown("jobs").servable()\n'

MARIMO = f"""
import marimo
app = marimo.App()

@app.cell
def program():
{textwrap.indent(AT_ONCE, "    ")}
    return (jobs, version)

if __name__ == "__main__":
    app.run()
"""

VISIT = """
import asyncio
import websockets

async def visit(session):
    address = f"ws://127.0.0.1:PORT/ws?session_id=s{session}"
    async with websockets.connect(address) as socket:
        while "completed-run" not in str(await asyncio.wait_for(socket.recv(), 60)):
            pass

for session in range(3):
    asyncio.run(visit(session))
"""


class Program:
    """A program in a folder of its own, which a test may change, and visits."""

    def __init__(self, folder: Path, text: str, *packages: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.python = python_with(*packages)
        self.write("app.py", text)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace("PORT", str(self.port)))

    def change(self) -> None:
        """Its task has another answer from now on."""
        source = self.folder / "app.py"
        source.write_text(source.read_text().replace("return 1", "return 2"))

    def run(self, name: str) -> None:
        done = subprocess.run(
            [self.python, name],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=4 * LONG,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def serving(self, *command: str) -> Iterator[None]:
        """The command, of the environment, answers until the end of the block."""
        first, *others = command
        program = self.python if first == "python" else self.python.parent / first
        log = self.folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(program), *(each.format(port=self.port) for each in others)],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually(
                lambda: self.visit("/") is not None or process.poll() is not None
            )
            assert process.poll() is None
            yield
        except BaseException as error:
            error.add_note(log.read_text())
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(LONG)

    def visit(self, path: str, body: Any = None) -> bytes | None:
        """The answer; None if there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                found: bytes = answer.read()
                return found
        except OSError:
            return None

    def told(self) -> list[str]:
        """What the program has written, a line for each run, each of them once."""
        file = self.folder / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return list(dict.fromkeys(lines))

    def asks_until(self, line: str, path: str, body: Any = None) -> None:
        """It is visited until it tells this."""

        def is_told() -> bool:
            self.visit(path, body)
            return line in self.told()

        eventually(is_told)


def _environment() -> dict[str, str]:
    """Without what tells NiceGUI that a test runs, in which it does something else."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST")
    }
    return {**inherited, "GRADIO_ANALYTICS_ENABLED": "0"}


STREAMLIT_NEEDS = "streamlit==1.67.0"
NICEGUI_NEEDS = "nicegui==3.18.0"


@pytest.mark.parametrize("text", [STREAMLIT, STREAMLIT_KEEPS], ids=["anew", "kept"])
def test_streamlit_runs_it_at_each_click(tmp_path: Path, text: str) -> None:
    program = Program(tmp_path, text, STREAMLIT_NEEDS)
    program.write("clicks.py", CLICKS)
    program.run("clicks.py")
    assert program.told() == ["1 runner 1"]


def test_nicegui_serves_in_a_child_which_it_starts_anew(tmp_path: Path) -> None:
    program = Program(tmp_path, NICEGUI, NICEGUI_NEEDS)
    with program.serving("python", "app.py"):
        program.asks_until("1 runner 1", "/version")
        program.change()
        program.asks_until("2 runner 1", "/version")


def test_nicegui_runs_a_script_for_each_tab(tmp_path: Path) -> None:
    program = Program(tmp_path, NICEGUI_SCRIPT, NICEGUI_NEEDS)
    with program.serving("python", "app.py"):
        for _ in range(12):
            assert program.visit("/")
        eventually(lambda: len((tmp_path / "told").read_text().splitlines()) > 12)
    # A few of those before may be about to end.
    assert set(program.told()) <= {f"1 runner {each}" for each in range(1, 5)}


def test_gradio_runs_the_source_again_in_a_thread(tmp_path: Path) -> None:
    program = Program(tmp_path, GRADIO, "gradio==6.31.0")
    ask = "/gradio_api/call/ask"
    with program.serving("gradio", "app.py"):
        program.asks_until("1 runner 1", ask, {"data": []})
        program.change()
        program.asks_until("2 runner 1", ask, {"data": []})
    assert set(program.told()) == {"1 runner 1", "2 runner 1"}


def test_panel_runs_it_for_each_tab(tmp_path: Path) -> None:
    program = Program(tmp_path, PANEL, "panel==1.9.4")
    with program.serving("panel", "serve", "app.py", "--port", "{port}"):
        for _ in range(3):
            assert program.visit("/app")
    assert program.told() == ["1 runner 1"]


def test_marimo_runs_it_in_a_thread_for_each_tab(tmp_path: Path) -> None:
    program = Program(tmp_path, MARIMO, "marimo==0.25.2")
    program.write("visit.py", VISIT)
    options = ("app.py", "--headless", "--no-token", "--port", "{port}")
    with program.serving("marimo", "run", *options):
        program.run("visit.py")
        eventually(lambda: len((tmp_path / "told").read_text().splitlines()) == 3)
    assert program.told() == ["1 runner 1"]
