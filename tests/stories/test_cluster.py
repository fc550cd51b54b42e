"""The example of a cluster runs, and prints what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.executors.clusters import AGES
from tests.libraries import needs
from tests.stories.test_examples import EXAMPLES, environment, promised


@needs("distributed")
@needs("cryptography")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_cluster_example_prints_what_its_docstring_shows() -> None:
    script = EXAMPLES / "cluster.py"
    done = subprocess.run(
        [sys.executable, script],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=AGES,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == promised(script)
