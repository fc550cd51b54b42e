"""docs/testing.md: what stands there is a suite, and it passes."""

from __future__ import annotations

import re

from tests.documents import DOCS, blocks_of
from tests.testing.conftest import Suite

TEXT = (DOCS / "testing.md").read_text(encoding="utf-8")
BLOCKS = blocks_of("testing.md")


def test_the_suite_of_the_documentation_passes(suite: Suite) -> None:
    files = {
        each.file.removesuffix(".py"): each.text
        for each in BLOCKS
        if each.language == "python" and each.file
    }
    [ini] = [each.text for each in BLOCKS if each.language == "ini"]
    run = suite(ini=ini.removeprefix("[pytest]\n"), **files)
    run.assert_outcomes(passed=len(re.findall(r"^ *def test_", TEXT, re.MULTILINE)))


def test_every_block_is_one_of_its_files() -> None:
    assert len(BLOCKS) == TEXT.count("```") / 2 > 5
    assert all(each.file for each in BLOCKS if each.language == "python")


def test_every_name_is_explained() -> None:
    from litejobs import testing

    classes = {"Clock", "EnqueuedJobs", "Faults", "Isolation", "StandIn"}
    holds = {"clock_is_held", "held_clock", "hold_clock", "release_clock"}
    named = set(re.findall(r"\w+", TEXT))
    assert set(testing.__all__) - classes - holds <= named
