"""What docs/simulation.md shows is run as it stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, every
from litejobs._simulation.findings import Simulation
from litejobs.cli import main
from tests.cli.calls import runner
from tests.libraries import needs

DOCUMENT = (Path(__file__).parents[2] / "docs/simulation.md").read_text("utf-8")
PATIENT = """
[[rules]]
when = "outcome.status == 'error'"
then = { do = "retry", attempts = 8, delay = 10.0 }
[[rules]]
[rules.else]
then = { do = "fail" }
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where there is an application's file, and what a policy would be."""
    monkeypatch.chdir(tmp_path)
    with freeze_time("2026-01-01T12:00:00Z"):
        with LiteJobs("app.db") as jobs:

            @jobs.schedule(every("1h"))
            @jobs.task(queue="mail")
            def send() -> None: ...

            jobs.open()
        [toml] = blocks("toml")
        (tmp_path / "patient.toml").write_text(toml)
        (tmp_path / "a.toml").write_text(toml)
        (tmp_path / "b.toml").write_text(PATIENT)
        yield tmp_path


@needs("matplotlib")
def test_its_program_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = blocks("python")
    names: dict[str, Any] = {}
    exec(program, names)
    names["jobs"].close()
    assert capsys.readouterr().out.startswith("168 0 1\n")
    assert (folder / "week.svg").exists()


@needs("matplotlib")
def test_its_commands_run(folder: Path) -> None:
    [console] = blocks("console")
    for line in console.splitlines():
        dollar, program, *arguments = shlex.split(line)
        assert (dollar, program) == ("$", "litejobs")
        done = runner().invoke(main, arguments)
        assert done.exit_code == 0, (line, done.stderr)


def test_it_names_all_that_is_said() -> None:
    said = set(Simulation.__annotations__)
    described = set(re.findall(r"`(\w+)`", DOCUMENT))
    plain = {"path", "label", "seed", "threads", "from_at", "until_at", "reached_at"}
    assert said - described - plain - {"part_ms"} == set()
