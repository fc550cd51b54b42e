"""What works beside the runner of one object: outboxes that deliver, and callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from litejobs._runner.listeners import EventNotifier
from litejobs._storage.store import Store

if TYPE_CHECKING:
    from litejobs._outbox.delivery import Outbox


class Companions:
    """The outboxes and the callbacks of one `LiteJobs` object; they live with a runner.

    `notifier` tells callbacks, `outboxes` are all that were made, closed ones too.
    """

    def __init__(self, store: Store) -> None:
        self.notifier = EventNotifier()
        self.outboxes: list[Outbox] = []
        self._store = store

    def start(self) -> None:
        """Callbacks are told and outboxes delivered, each by a thread of its own."""
        self.notifier.start(self._store.database)
        for outbox in self._open_outboxes():
            outbox.start()

    def request_stop(self) -> None:
        """Outboxes begin nothing new; nothing is waited for."""
        for outbox in self.outboxes:
            outbox.request_stop()

    def stop(self) -> None:
        """Wait until outboxes have ended, and callbacks were told of all until now."""
        for outbox in self.outboxes:
            outbox.stop()
        self.notifier.close()

    def close(self) -> None:
        """End all of it; for good, unless the file may be opened again."""
        self.notifier.close()
        for outbox in self.outboxes:
            if self._store.reopens:
                outbox.stop()
            else:
                outbox.close()

    def deliver(self) -> int:
        """Deliver what is in the outboxes, here and now; how many jobs that made."""
        return sum(outbox.deliver() for outbox in self._open_outboxes())

    @property
    def problems(self) -> list[str]:
        """What keeps outboxes or callbacks from working, in sentences."""
        found = []
        for outbox in tuple(self.outboxes):
            found += outbox.problems
        return found + self.notifier.problems

    def _open_outboxes(self) -> Iterator[Outbox]:
        return (outbox for outbox in self.outboxes if not outbox.closed)
