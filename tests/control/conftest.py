"""What tests of handles have at hand."""

from __future__ import annotations

import pytest

from litejobs import LiteJobs, Task


@pytest.fixture
def work(jobs: LiteJobs) -> Task[[str], str]:
    """A task that succeeds, or fails at once if it is called "bad"."""

    @jobs.task(max_attempts=1)
    def work(name: str) -> str:
        if name == "bad":
            raise ValueError(name)
        return name

    return work
