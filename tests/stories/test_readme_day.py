"""The README's day of operating: its commands do what it says, one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from freezegun import freeze_time

from litejobs import LiteJobs, Retry, every
from litejobs.cli import main
from tests.cli.calls import runner

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    section = README.partition("\n## A day of operating it\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [line.removeprefix("$ ") for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose application has run for a while and is gone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITEJOBS_UTC", "1")
    with freeze_time("2026-01-01T12:00:00Z") as clock:
        with LiteJobs("app.db") as jobs:

            @jobs.task(queue="mail", retry=Retry.constant("1m", max_attempts=2))
            def send(to: str) -> str:
                if to == "nobody":
                    raise OSError("no such mailbox")
                return to

            @jobs.schedule(every("1h"))
            @jobs.task
            def report() -> None: ...

            send.enqueue("nobody")
            send.enqueue("bob@example.com")
            jobs.drain()
            clock.tick(80)
            jobs.drain()
            send.using(delay="1h").enqueue("ann@example.com")
            send.using(delay="2h").enqueue("eve@example.com")
        yield tmp_path


def test_commands_of_the_day_are_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = runner()
    shown: dict[str, Result] = {}
    first, *rest = commands()
    name, _, path = (
        first.removeprefix("export ").partition("#")[0].strip().partition("=")
    )
    monkeypatch.setenv(name, path)
    for line in rest:
        program, *arguments = shlex.split(line, comments=True)
        assert program == "litejobs"
        done = called.invoke(main, arguments)
        # Nothing is as old as what is purged.
        expected = 1 if arguments[0] in {"purge", "circuits"} else 0
        assert done.exit_code == expected, (line, done.stdout, done.stderr)
        shown[" ".join(arguments)] = done
    assert "1 job put back in line" in (
        shown["requeue --state dead_lettered --task send --yes"].stdout
    )
    assert "run it now" in shown["why 3"].stdout
    assert "is pending" in shown["run-now 3"].stdout
    assert (folder / "done.csv").read_text("utf-8").count("\n") == 2
    with LiteJobs("app-backup.db") as kept, LiteJobs("app.db") as jobs:
        assert kept.counts() == jobs.counts()
        assert not jobs.queues["mail"].paused  # undone
        assert jobs.queues["mail"].max_running == 2
        assert jobs.schedules["report"].state == "paused"
        assert jobs.get(4).state == "cancelled"


def test_every_command_is_part_of_the_day_or_named_elsewhere() -> None:
    used = {shlex.split(line)[1] for line in commands()[1:]}
    for name in main.list_commands(None):  # type: ignore[arg-type]
        assert name in used or re.search(rf"litejobs [^\n]*\b{name}\b", README), name
