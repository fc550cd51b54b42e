"""Read from a file, each thread at a connection of its own, or at the writer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import apsw

from litejobs._process import clock
from litejobs._process.interrupts import can_be_interrupted, shielded
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage import statements
from litejobs._storage.files import MEMORY
from litejobs._storage.refusals import translating
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.writer_lock import Owner, current_owner
from litejobs._storage.writing import Writing
from litejobs._values.blocks import block

READING_POLL = 0.001  # between two looks whether threads still read


class Reading(Writing):
    """What is asked of a file."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool
    ) -> None:
        # Threads that read, each as often as it does.
        self._reading: list[int] = []
        self._is_drowsy = False  # and who would read waits
        super().__init__(path, durability, allow_network=allow_network, as_is=as_is)

    @block
    def reader(
        self, *, outside: bool = False, patience: float = -1
    ) -> Iterator[apsw.Connection]:
        """A connection to read from; in this thread's own transaction, the writer.

        With *outside* it reads what is committed, there too, except in memory. There
        the one connection is waited for, for *patience* seconds.
        """
        if self._turn.is_mine() and not (outside and self.path != MEMORY):
            with translating():
                yield self._writer
            return
        self._check()
        if self.path == MEMORY:
            with self._having_the_turn(patience), translating():
                yield self._writer
            return
        me = threading.get_ident()
        self._begin_reading(me)
        try:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._open_reader()
            try:
                with translating():
                    yield connection
            finally:
                if self._closed:
                    connection.close()
                elif len(self._readers) < SIZES.spare_readers:
                    self._readers.append(connection)
                else:
                    # Each keeps the schema in memory, and up to 2 MB of the file.
                    with contextlib.suppress(ValueError):
                        self._all.remove(connection)
                    connection.close()
        finally:
            self._reading.remove(me)

    def _begin_reading(self, me: int) -> None:
        while True:
            self._reading.append(me)
            # Said before it is looked: who will fork or close does it the other way
            # round.
            if not (self._asleep or self._is_drowsy or self._closed):
                return
            self._reading.remove(me)
            self._check()
            with self._having_the_turn():
                self._wake_up()

    def _await_readers(self, until: float) -> bool:
        """Whether no other thread reads any more; not later than *until*, monotonic."""
        me = threading.get_ident()
        while any(each != me for each in tuple(self._reading)):
            if clock.RealTime.monotonic() >= until:
                return False
            clock.RealTime.sleep(READING_POLL)
        return True

    def run(self, query: str, parameters: Any = ()) -> list[Any]:
        """The rows of a named query that reads."""
        with self.reader() as connection:
            return self._rows(connection, query, parameters)

    @block
    def one_moment(
        self, *, outside: bool = False
    ) -> Iterator[Callable[[str, Any], list[Any]]]:
        """What reads by named queries, all of them of the file at one moment.

        With *outside* without what this thread's own transaction has not committed.
        """
        with self.reader(outside=outside) as connection:
            begins = not connection.in_transaction
            if begins:
                connection.execute("begin")
            try:
                yield lambda query, parameters: fetch_lossy(
                    connection, statements.queries()[query], parameters
                )[1]
            finally:
                if begins:
                    connection.execute("rollback")

    def look(self, query: str, parameters: Any = ()) -> list[Any]:
        """The rows of a short query, for the thread of the loop alone."""
        return self.look_at((query, parameters))[0]

    def look_at(self, *queries: tuple[str, Any]) -> list[list[Any]]:
        """The rows of each of these short queries, for the thread of the loop alone.

        On the writer, unless somebody else writes: a connection of its own takes 8 ms
        to open and 5 MB to keep, which a small program can do without, and after each
        commit it would read anew from the log what the writer has in memory.
        """
        me = current_owner()
        if not self._take_turn_at_once(me):
            return [self.run(*each) for each in queries]
        try:
            self._wake_up()
            with translating():
                found = [self._rows(self._writer, *each) for each in queries]
            self._note_others()
            return found
        finally:
            self._turn.pass_on(me)

    def _take_turn_at_once(self, me: Owner) -> bool:
        """Whether it is the caller's turn now, which whoever has it does `pass_on`."""
        if self.path == MEMORY:
            return False
        if me[0] == threading.main_thread().ident or can_be_interrupted():
            # An exception may come between any two lines there.
            return False
        self._check()
        return self._turn.take_free(me)

    @property
    def others_seen(self) -> int:
        """A number that changes when it is seen that another connection has committed.

        That is seen where the loop looks at the file, and where this process writes.
        """
        return self._others_seen

    def look_for_others(self) -> int:
        """Look whether another connection has committed, and return `others_seen`."""
        if self.path == MEMORY or self._turn.is_mine():
            return self._others_seen
        self._check()
        with shielded(), self._having_the_turn(TIMES.turn_patience):
            self._wake_up()
            self._writer.pragma("data_version")
            self._note_others()
        return self._others_seen

    def _rows(
        self, connection: apsw.Connection, query: str, parameters: Any
    ) -> list[Any]:
        sql = statements.queries()[query]
        try:
            return connection.execute(sql, parameters).fetchall()
        except UnicodeDecodeError:
            return fetch_lossy(connection, sql, parameters)[1]
