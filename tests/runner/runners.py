"""A runner that is not started, for tests that look inside of one."""

from __future__ import annotations

from typing import Any

from litejobs import LiteJobs
from litejobs._runner.runner import Runner


def runner_of(jobs: LiteJobs, kind: type[Runner] = Runner, **options: Any) -> Any:
    runner = kind(
        *(jobs._store, jobs._registry, jobs._execution, jobs._companions),
        executors=jobs._executors,
        **options,
    )
    runner._open()
    return runner
