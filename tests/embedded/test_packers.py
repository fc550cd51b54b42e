"""A program that is packed in one of the other ways of docs/freeze.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded.programs import ALL_WORKS, by_pyinstaller, steps

pytestmark = pytest.mark.embedded


def test_a_single_file_of_pyinstaller_does_all_that_the_program_did(
    tmp_path: Path,
) -> None:
    program = by_pyinstaller(tmp_path, "--onefile")
    found = steps([program], tmp_path / "run", PYTHONTZPATH="")
    assert found[: len(ALL_WORKS)] == ALL_WORKS
    # Its own folder is gone after this.
    assert found[-1] == "beside True"
