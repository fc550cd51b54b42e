"""Who is told of what happens to a file that is open."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from litejobs._process.interrupts import shielded

Listener = Callable[[], None]

_NOBODY: tuple[Listener, ...] = ()


class CommitListeners:
    """Those who are told of commits, of another content, of a fork, and of the end."""

    def __init__(self) -> None:
        self._listeners = _NOBODY
        self._restored: tuple[weakref.WeakMethod[Listener], ...] = ()
        # Who is told that connections are there again after a fork, and of the end.
        self._awake = self._ending = _NOBODY
        self._listening = threading.RLock()

    def listen(self, listener: Listener) -> None:
        """Call *listener* after each commit of this process, in its thread."""
        with shielded(), self._listening:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Listener) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._listeners = tuple(
                each for each in self._listeners if each != listener
            )

    def on_restored(self, listener: Listener) -> None:
        """Call *listener* in the first transaction after a copy was put into the file.

        It is this thread's turn, and what it writes is there before anything else is.
        The listener is a method, and its object is not kept by this: one that was never
        closed may go, while others have the file open.
        """
        self.forget_restored(listener)
        with shielded(), self._listening:
            self._restored = (*self._restored, weakref.WeakMethod(listener))

    def forget_restored(self, listener: Listener) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._restored = tuple(
                each for each in self._restored if each() not in {None, listener}
            )

    def _tell_restored(self) -> None:
        for each in self._restored:
            listener = each()
            if listener is not None:
                listener()

    def on_end(self, listener: Listener) -> None:
        """Call *listener* once, before the last user's connections are closed."""
        with shielded(), self._listening:
            self._ending = (*self._ending, listener)

    def on_wake_up(self, listener: Listener) -> None:
        """Call *listener* when connections that were closed for a fork are there again.

        On either side of the fork, and within a turn: it may begin a thread, and
        nothing more.
        """
        with shielded(), self._listening:
            self._awake = (*self._awake, listener)

    def on_wake_up_no_more(self, listener: Listener) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._awake = tuple(each for each in self._awake if each != listener)
