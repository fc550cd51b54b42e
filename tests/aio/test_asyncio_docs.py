"""docs/asyncio.md: what stands there runs, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.documents import blocks_of

ROOT = Path(__file__).parents[2]


def test_what_the_document_says_is_so(tmp_path: Path) -> None:
    blocks = blocks_of("asyncio.md")
    files = [block for block in blocks if block.file is not None]
    assert [each.file for each in files] == ["pages.py", "orders.py", "around.py"]
    for block in files:
        (tmp_path / str(block.file)).write_text(block.text, encoding="utf-8")
    commands = [
        command
        for block in blocks
        if block.language == "console"
        for command in block.commands
    ]
    assert [each.line for each in commands] == [
        f"python {block.file}" for block in files
    ]
    for command in commands:
        done = subprocess.run(
            [sys.executable, command.line.split()[1]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == command.output.strip()
