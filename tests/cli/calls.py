"""The command line, called in the process of the test."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

Cli = Callable[..., Result]
"""Runs `litejobs ARGUMENTS…`; keywords go to click's runner."""

Copied = Callable[[Path], Path]
"""Gives the test a file that is as another one, which is closed."""


def runner() -> CliRunner:
    """One whose results have the two streams apart, as click 8.2 does by itself."""
    old = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(**({"mix_stderr": False} if old else {}))


def document(result: Result, code: int = 0) -> Any:
    """The one line of JSON that a command has printed."""
    assert result.exit_code == code, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)
