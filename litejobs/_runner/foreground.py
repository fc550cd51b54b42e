"""A runner in the foreground: until a signal, and hurried by a second one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._values.blocks import block

if TYPE_CHECKING:
    from litejobs._runner.companions import Companions
    from litejobs._runner.runner import Runner

Signals = list[signal.Signals]


@block
def signals() -> Iterator[Signals]:
    """Within the block SIGTERM and SIGINT are put into the list, in the main thread.

    The handler does nothing else: it may run in the middle of anything the main thread
    does, so a lock that it took, or a line that it logged, could wait for itself.
    """
    caught: Signals = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {
        number: signal.signal(
            number, lambda number, _: caught.append(signal.Signals(number))
        )
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield caught
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def end_run(
    runner: Runner, companions: Companions, caught: Signals, grace: float
) -> None:
    """The runner and all around it have stopped; a second signal hurries them."""
    runner.request_stop()
    if caught:
        # Said when it is true: whoever reads this may let a running job end, and
        # none may start in its place.
        log.info("%s: stopping; running jobs have %g s", caught[0].name, grace)
    companions.request_stop()
    hurried = False
    while not runner.wait_stopped(0.1):
        if len(caught) > 1 and not hurried:
            hurried = True
            log.warning("%s again: stopping at once", caught[1].name)
            runner.shorten_grace(0)
    companions.stop()
