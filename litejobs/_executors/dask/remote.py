"""What Dask is given to run for an attempt."""

from __future__ import annotations

import functools
import importlib
import uuid
from collections.abc import Callable
from typing import Any

from litejobs._process import fork_guard


async def attempt(told: bytes) -> None:
    """Run the attempt in this worker, and tell its runner what comes of it."""
    in_dask = importlib.import_module("litejobs._runner.in_dask")
    await in_dask.serve(told)


def closing(close: Callable[[], object]) -> Any:
    """Return a plugin that calls *close* when its worker closes."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class Closing(WorkerPlugin):
        def teardown(self, worker: Any) -> None:
            del worker
            close()

    return Closing()


def program() -> str:
    """Return a name for this process, which no other has on any machine."""
    return _program(fork_guard.generation())


@functools.cache
def _program(generation: int) -> str:
    return f"{uuid.uuid4().hex}-{generation}"
