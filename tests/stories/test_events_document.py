"""docs/events.md: what stands there is a program, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.documents import DOCS, blocks_of
from tests.waiting import LONG

ROOT = Path(__file__).parents[2]


def test_the_document_prints_what_it_says(tmp_path: Path) -> None:
    blocks = blocks_of("events.md")
    program = "".join(each.text for each in blocks if each.language == "python")
    said = "".join(each.text for each in blocks if each.language == "text")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.stdout.splitlines() == said.splitlines()
    assert done.returncode == 0


def test_every_block_says_what_it_is() -> None:
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    assert len(blocks_of("events.md")) == text.count("```") / 2 > 5
