"""A thread beside the loop that shows to other processes what is wrong with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._storage.vital_signs import VitalSigns


class VitalWatch:
    """It looks every second, since a loop that is held up cannot say so itself.

    That it looks is shown, too: where a library keeps the interpreter, it cannot.
    """

    def __init__(
        self, database: str | os.PathLike[str], look: Callable[[], Collection[str]]
    ) -> None:
        """*look* gives the causes, by their codes in `vital_signs.CAUSES`."""
        self._signs = VitalSigns(database)
        self._look = look
        self._ended = threading.Event()
        self._failed = False
        self._thread = threading.Thread(
            target=self._work, name="litejobs-health", daemon=True
        )

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End it; nothing is shown any more, once a look that hangs has come back."""
        self._ended.set()
        if self._thread.ident is None:
            return
        self._thread.join(TIMES.close_patience)
        if self._thread.is_alive():
            log.error(
                "the thread that shows how this runner does has not come back within "
                "%g s and is left to itself: the disk does not answer, perhaps",
                TIMES.close_patience,
            )

    def _work(self) -> None:
        try:
            self._look_again()
        finally:
            self._signs.close()

    def _look_again(self) -> None:
        looked_at = RealTime.monotonic()
        while True:
            before, looked_at = looked_at, RealTime.monotonic()
            if looked_at - before > TIMES.late + TIMES.sign_pause:
                log.warning(
                    "for %.0f s this process has run no Python: a library has kept the "
                    "interpreter to itself, or the machine was overloaded, or the "
                    "process was suspended; no job was begun or ended meanwhile",
                    looked_at - before,
                )
            try:
                self._signs.show(self._look())
                self._failed = False
            except Exception as error:
                if not self._failed:
                    self._failed = True
                    log.warning("other processes are not shown how it does: %s", error)
            if self._ended.wait(TIMES.sign_pause):
                return
