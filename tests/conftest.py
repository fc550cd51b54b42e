"""What every test has at hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from litejobs import LiteJobs

pytest_plugins = ["litejobs.testing.plugin"]


@pytest.fixture
def jobs() -> Iterator[LiteJobs]:
    """Jobs in memory, on the held clock."""
    jobs = LiteJobs(":memory:")
    yield jobs
    jobs.close()


@pytest.fixture
def file_jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    """Jobs in a file, on the held clock."""
    jobs = LiteJobs(tmp_path / "jobs.db")
    yield jobs
    jobs.close()
