"""What the same code makes anew takes the place of what it has made before.

Streamlit runs a program again at each click, a notebook its cells, a reloader the
module that has changed: each time the program makes its `LiteJobs` anew, and nothing
leads to the one before any more, whose runner would run the jobs on with functions of
which there are newer ones.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from litejobs._definitions.redefinition import callers, is_made_anew
from litejobs._storage.files import MEMORY


class Origin:
    """Where and when an object was made: *owner*, on the jobs file at *path*.

    To be made by its constructor.
    """

    def __init__(self, owner: object, path: str) -> None:
        self._owner = weakref.ref(owner)
        self._path = path
        self._callers = callers()
        self._thread = threading.current_thread()

    def replaces(self, before: Origin) -> bool:
        """Whether the same code has made this one for the same file, later."""
        # In this order: where a path leads is asked of the system.
        return is_made_anew(
            self._callers, before._callers, before._is_named
        ) and self._may_replace(before)

    def shares_file(self, other: Origin) -> bool:
        """Whether both are on one file; each has one of its own in memory."""
        if MEMORY in {self._path, other._path}:
            return False
        return os.path.realpath(self._path) == os.path.realpath(other._path)

    def _may_replace(self, before: Origin) -> bool:
        if MEMORY not in {self._path, before._path}:
            return self.shares_file(before)
        # Each has a file of its own. The run of the code that has made the one before
        # is over: in another thread it may yet wait for its jobs, and in another cell
        # it has a name of its own.
        thread = before._thread
        is_over = thread is self._thread or not thread.is_alive()
        return (
            is_over
            and self._path == before._path
            and not any(
                now.names is there.names and before._is_named(now.names or {})
                for now, there in zip(self._callers, before._callers, strict=False)
            )
        )

    def _is_named(self, names: dict[str, Any]) -> bool:
        """Whether one of these names leads to the object, or to a few with it."""
        owner = self._owner()
        for value in tuple(names.values()):
            if value is owner:
                return True
            if type(value) in {list, tuple, set, dict}:
                several = value.values() if type(value) is dict else value
                if any(each is owner for each in tuple(several)):
                    return True
        return False
