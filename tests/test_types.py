"""What users' type checkers see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.libraries import needs
from tests.waiting import MOST

HERE = Path(__file__).parent
ASYNCIO = HERE / "typing_asyncio.py"
NOWHERE = "nul" if sys.platform == "win32" else "/dev/null"


def check(*command: str) -> None:
    """The checker says that all is well."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        timeout=MOST,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs("mypy")
def test_sample_of_users_code_type_checks_and_coroutines_are_awaitable() -> None:
    """Every expectation in the sample holds, the wrong calls included.

    Coroutines are called directly, too. It is one run, which reads litejobs once.
    """
    check(
        *("-m", "mypy", "--strict", "--warn-unused-ignores", "--cache-dir", NOWHERE),
        *(str(HERE / "typing_sample.py"), str(ASYNCIO)),
    )


@needs("ty")
def test_coroutines_are_awaitable_for_ty() -> None:
    check("-m", "ty", "check", str(ASYNCIO))


@needs("pyright")
def test_coroutines_are_awaitable_for_pyright() -> None:
    check("-m", "pyright", str(ASYNCIO))
