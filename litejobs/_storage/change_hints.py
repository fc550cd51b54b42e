"""A hint that another process has written to the file, from the operating system.

Used where the extra `notify` is installed, which is on Linux. It only spares a runner
some looks at the file: it may be missing, late or wrong, and then the runner hears a
little later, by looking.

What is watched is the write-ahead log alone and not its folder, so that a database or
a log file of the application beside it costs nothing. Every commit is written there;
but it can be seen only some time *after* its event, when it is safe on the disk: what
then changes in the shared memory causes none.

Our own commits cause events, too. So what is asked for is one event at a time: after it
the system tells nothing more, and the thread that waited rests, until the runner has
had nothing to do for a while. Under load there is no cost.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable
from typing import Any

from litejobs._process import log

LIBRARY = "inotify_simple"
PATIENCE = 1.0  # seconds for the thread to end; it needs microseconds
LONGEST = 60_000
"""Milliseconds after which the thread looks whether it is still needed, should the last
event of all have escaped it."""


def watch(
    path: str, changed: Callable[[], None], *, proved: bool = False
) -> Watch | None:
    """What calls *changed* when something is written to the file of this path.

    None if the library is not installed, or the system refuses; that is not an error.
    With *proved* the caller finds out by itself whether events come here.
    """
    try:
        return Watch(f"{path}-wal", changed, proved=proved)
    except Exception as error:
        log.debug("commits of other processes are looked for: %s", error)
        return None


class Watch:
    """Listens to one file, once each time that `listen` was called.

    `listen` and `close` are for one thread, that of the loop. *changed* is called in
    the thread that waits for events.
    """

    def __init__(
        self, path: str, changed: Callable[[], None], *, proved: bool = False
    ) -> None:
        library = importlib.import_module(LIBRARY)
        flags = library.flags
        # Other than by being written to, the file may go, and another one come.
        self._mask = (
            flags.ONESHOT
            | flags.MODIFY
            | flags.ATTRIB
            | flags.DELETE_SELF
            | flags.MOVE_SELF
        )
        self._path = path
        self._changed = changed
        self._mutex = threading.Lock()
        self._go = threading.Lock()
        self._go.acquire()
        self._rests = True
        self._listens = False
        self._closed = False
        self._heard = False
        self._proved = proved
        self._thread: threading.Thread | None = None
        self._events: Any = library.INotify()
        try:
            self._file = self._events.add_watch(path, self._mask)
        except BaseException:
            self._events.close()
            raise

    def listen(self) -> bool:
        """The next event from now on is told of; False if none can be.

        At the first call there must have been events already, those of our own commits:
        where these are not told of, others will not be.
        """
        if self._listens:
            return True
        if self._closed:
            return False
        try:
            with self._mutex:
                if self._rests:
                    self._pass_over()
                self._listens = self._renew()
                if self._listens and self._rests:
                    self._wake()
        except Exception as error:
            log.debug("commits of other processes are looked for: %s", error)
            self.close()
        return self._listens

    def has_heard(self) -> bool:
        """Whether it told of one since this was last asked."""
        heard, self._heard = self._heard, False
        return heard

    def close(self) -> None:
        """It tells nothing more; its thread has ended and its descriptor is closed."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._listens = False
            if self._thread is None:
                self._events.close()
                return
            if self._rests:
                self._go.release()
            else:
                # This is an event in itself, the last one: the thread wakes up.
                self._forget(self._file)
        self._thread.join(PATIENCE)

    def _renew(self) -> bool:
        """The file that has the name now is watched for one event, if there is one."""
        try:
            file = self._events.add_watch(self._path, self._mask)
        except FileNotFoundError:
            return False
        if file != self._file:
            self._forget(self._file)
            self._file = file
        return True

    def _forget(self, file: int) -> None:
        # It is over already, after an event.
        with contextlib.suppress(OSError):
            self._events.rm_watch(file)

    def _pass_over(self) -> None:
        """What is left of the event before is not taken for the next one."""
        left = self._events.read(timeout=0)
        if not (left or self._proved):
            raise OSError(f"no event came when {self._path} was written to")
        self._proved = True

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(
                target=self._work, name="litejobs-notify", daemon=True
            )
            thread.start()
            self._thread = thread
        self._rests = False
        self._go.release()

    def _work(self) -> None:
        try:
            while self._go.acquire() and not self._closed:
                self._events.read(timeout=LONGEST)
                with self._mutex:
                    listened, self._listens = self._listens, False
                    self._rests = True
                    if self._closed:
                        return
                if listened:
                    self._heard = True
                    self._changed()
        except Exception as error:
            log.debug("commits of other processes are looked for: %s", error)
        finally:
            with self._mutex:
                self._closed = True
                self._listens = False
            self._events.close()
