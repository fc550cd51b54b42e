"""Each mistake of the list in `tests/mutations` is noticed by the test beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations import sources
from tests.mutations.__main__ import listed, missing
from tests.sql.test_whole import is_whole

ROOT = Path(__file__).parents[2]
FIND = "python -m tests.mutations find"


def test_the_list_has_a_mistake_of_each_object() -> None:
    """Of each trigger, view, and named constraint that is not a copy of another."""
    names = missing()
    assert not names, f"no mistake of {', '.join(names)} is in the list; run: {FIND}"


def test_each_mistake_of_the_list_can_still_be_made() -> None:
    gone = [each.mistake for each in listed() if not sources.exists(each.mistake)]
    labels = "; ".join(mistake.label for mistake in gone)
    assert not gone, f"the SQL has no such place any more: {labels}; run: {FIND}"


def test_each_test_of_the_list_is_still_there() -> None:
    texts = {each.file: "" for each in listed()}
    for file in texts:
        path = ROOT / file
        texts[file] = path.read_text(encoding="utf-8") if path.exists() else ""
    gone = {
        each.mistake.name
        for each in listed()
        if not re.search(rf"\b{each.function}\b", texts[each.file])
    }
    assert not gone, f"tests of the list are gone; run: {FIND} {' '.join(sorted(gone))}"


def test_each_case_of_the_list_is_still_there(request: pytest.FixtureRequest) -> None:
    """Also where it has another name than before: by all that was collected."""
    collected = {each.nodeid for each in request.session.items}
    files = {each.partition("::")[0] for each in collected}
    if not (is_whole(request.session) and files >= {each.file for each in listed()}):
        pytest.skip("only a part of the tests was collected")
    gone = {each.mistake.name for each in listed() if each.test not in collected}
    assert not gone, f"cases of the list are gone; run: {FIND} {' '.join(sorted(gone))}"


@pytest.mark.torture
def test_each_mistake_of_the_list_is_noticed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutations", "-j", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
