"""Programs that tests start."""

from __future__ import annotations

import subprocess
from types import TracebackType


class Program(subprocess.Popen[str]):
    """A program that is waited for at the end of its block.

    Where the test has failed in the middle, nobody tells it to end: it is killed, or
    the failure would be a test that never ends.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for its end."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)
