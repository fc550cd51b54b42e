"""What tests of the command line have at hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from litejobs.cli import main
from tests.cli.calls import Cli, runner


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `litejobs ARGUMENTS…` in this process."""
    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    monkeypatch.setenv("LITEJOBS_UTC", "1")
    called = runner()

    def run(*arguments: object, **options: Any) -> Result:
        return called.invoke(main, [str(each) for each in arguments], **options)

    return run


@pytest.fixture
def path(empty_file: Path, tmp_path: Path) -> Path:
    """A jobs file without jobs, closed."""
    return Path(shutil.copy(empty_file, tmp_path / "jobs.db"))


@pytest.fixture
def db(cli: Cli, path: Path) -> Cli:
    """Run `litejobs --db` with that file."""
    return lambda *arguments, **options: cli("--db", path, *arguments, **options)
