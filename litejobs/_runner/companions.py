"""What works beside the runner of one object: outboxes that deliver, and callbacks."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from litejobs._runner.listeners import Callback, EventNotifier
from litejobs._storage.store import Store

if TYPE_CHECKING:
    from litejobs._outbox.delivery import Outbox
    from litejobs._runner.subscriptions import Subscription
    from litejobs._storage.database import Database
    from litejobs._tasks.current import AttemptContext


class Companions:
    """The outboxes of one `LiteJobs` object, which live with a runner; the callbacks.

    `notifier` tells callbacks, and `subscriptions` those that have a cursor, as long as
    the file is open; `outboxes` are all that were made, closed ones too.
    """

    def __init__(self, store: Store) -> None:
        self.notifier = EventNotifier()
        self.subscriptions: list[Subscription] = []
        self.outboxes: list[Outbox] = []
        self._store = store

    @property
    def are_any(self) -> bool:
        """Whether the file is open, and there is a callback or an outbox."""
        return self._store.if_open is not None and bool(
            self.notifier.has_callbacks or self.subscriptions or self.outboxes
        )

    def on(self, event: str, callback: Callback, cursor: str | None) -> None:
        """See `LiteJobs.on`."""
        database = self._store.if_open
        if cursor is None:
            self.notifier.add(event, callback, database)
            return
        from litejobs._runner.subscriptions import Subscription

        for known in self.subscriptions:
            if known.name == cursor:
                known.replace(event, callback)
                return
        subscription = Subscription(self._store, event, callback, cursor)
        self.subscriptions.append(subscription)
        if database is not None:
            subscription.open(database)

    def begin(self, database: Database) -> None:
        """The file was opened: callbacks are told of what follows."""
        self.notifier.begin(database)
        for subscription in self.subscriptions:
            subscription.open(database)

    def run_by_caller(self, database: Database) -> None:
        """Who calls runs the jobs in its own thread; callbacks hear of it in theirs."""
        self.notifier.run_by_caller()
        for subscription in self.subscriptions:
            subscription.run_by_caller()
        self.notifier.begin(database)

    def attempt_begins(
        self, attempt: AttemptContext, context: contextvars.Context
    ) -> None:
        """An attempt begins in this process, in this context."""
        self.notifier.attempt_begins(attempt, context)
        for subscription in self.subscriptions:
            subscription.attempt_begins(attempt, context)

    def set_aside(self) -> Callable[[], None]:
        """The file is another one for a while, until what is returned is called."""
        before = self.notifier.set_aside()
        for subscription in self.subscriptions:
            subscription.close()

        def bring_back() -> None:
            for subscription in self.subscriptions:
                subscription.close()
            self.notifier.bring_back(before)
            database = self._store.if_open
            if database is not None:
                for subscription in self.subscriptions:
                    subscription.open(database)

        return bring_back

    def catch_up(self, database: Database) -> None:
        """Callbacks are told of all that was committed so far, in this thread."""
        self.notifier.catch_up(database)
        for subscription in tuple(self.subscriptions):
            subscription.catch_up()

    def start(self) -> None:
        """Callbacks are told and outboxes delivered, each by a thread of its own."""
        database = self._store.database
        self.notifier.start(database)
        for subscription in self.subscriptions:
            subscription.begin(database, for_runner=True)
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
        self.notifier.stop()
        for subscription in self.subscriptions:
            subscription.end_of_run()

    def close(self) -> None:
        """End all of it; for good, unless the file may be opened again."""
        self.notifier.close()
        for subscription in self.subscriptions:
            subscription.close()
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
        found += self.notifier.problems
        told = (each.problem for each in tuple(self.subscriptions))
        return found + [each for each in told if each is not None]

    def _open_outboxes(self) -> Iterator[Outbox]:
        return (outbox for outbox in self.outboxes if not outbox.closed)
