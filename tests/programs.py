"""Programs that tests start."""

from __future__ import annotations

import os
import signal
import subprocess
from types import TracebackType

from tests.waiting import eventually


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


def exit_code_of(child: int) -> int:
    """How this forked child has ended; one that never does is killed.

    It has the pipes of this process: whoever reads them would wait for it, too, also
    after this one was ended.
    """
    codes: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            codes.append(os.waitstatus_to_exitcode(status))
        return bool(pid)

    try:
        eventually(has_ended)
    finally:
        if not codes:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return codes[0]
