"""What attempts have in `contextvars`, until callbacks were told how they ended."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._process.context import of_caller
from litejobs._process.sizes import SIZES
from litejobs._values.states import PROGRESS

if TYPE_CHECKING:
    from litejobs._control.records import Event
    from litejobs._storage.database import Database
    from litejobs._tasks.current import AttemptContext


class AttemptContexts:
    """The contexts of attempts of which one reader of the log may yet be told.

    Of those that run in this process: others have none here. Nor have those that begin
    while many are kept for a callback that is slow, or fails again and again.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[AttemptContext, contextvars.Context]] = {}
        self._closed: list[int] = []
        self._is_full = False

    def add(self, attempt: AttemptContext, context: contextvars.Context) -> None:
        """The attempt begins, in this context."""
        if self._is_full:
            self._is_full = len(self._kept) > SIZES.contexts // 2
        elif len(self._kept) >= SIZES.contexts:
            self._is_full = True
            log.warning(
                "callbacks have not been told how %d attempts ended: until they have "
                "caught up, callbacks of further attempts have the context of their "
                "runner, and find nothing in it that an attempt has set (contextvars)",
                len(self._kept),
                extra={"event_name": "contexts_not_kept"},
            )
        if self._is_full and attempt.attempt_id not in self._kept:
            return
        self._kept[attempt.attempt_id] = attempt, context

    def of(self, event: Event) -> contextvars.Context:
        """Return a copy for one callback: of the attempt's, or else of the caller's.

        That of the attempt may be in use, by the thread of its task.
        """
        number = event.attempt_id
        kept = None if number is None else self._kept.get(number)
        return (
            contextvars.copy_context()
            if kept is None
            else kept[1].copy().run(of_caller)
        )

    def told(self, event: Event) -> None:
        """All callbacks were told of this; with its end an attempt is over."""
        if event.attempt_id is not None and (
            event.old_state == "processing" and event.name != PROGRESS
        ):
            self._kept.pop(event.attempt_id, None)

    def told_all(self, database: Database) -> None:
        """Nothing was left to be told: nor is it of what was closed one look before."""
        for attempt_id in self._closed:
            self._kept.pop(attempt_id, None)
        self._closed = [
            attempt_id
            for attempt_id, (attempt, _) in tuple(self._kept.items())
            if attempt.is_over
            and not database.look("attempt_is_open", {"attempt": attempt_id})
        ]

    def clear(self) -> None:
        """Nothing more is told of them: the file is another one, say."""
        self._kept.clear()
        self._closed = []
