"""What stands for the end of a process, where a test kills a run on purpose."""

from __future__ import annotations


class Killed(BaseException):
    """The run ends here and now: nothing is given back, settled or said any more.

    Raised where `litejobs.testing.faults` wants it. Whoever supervises something has to
    let it pass, and to leave the file as a process leaves it that is killed.
    """
