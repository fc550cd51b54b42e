"""What users' type checkers see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.libraries import needs


@needs("mypy")
def test_sample_of_users_code_type_checks() -> None:
    """Every expectation in the sample holds, the wrong calls included."""
    here = Path(__file__).parent
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--warn-unused-ignores",
            "--cache-dir",
            "nul" if sys.platform == "win32" else "/dev/null",
            str(here / "typing_sample.py"),
        ],
        capture_output=True,
        text=True,
        cwd=here.parent,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
