"""One transaction of the writer: begun in the right file, stored or taken back."""

from __future__ import annotations

import contextlib
from array import array

import apsw

from litejobs._process import clock
from litejobs._process.timing import TIMES
from litejobs._storage import statements, wal
from litejobs._storage.connections import CLOSED, Connections
from litejobs._storage.lock_holder import holder_elsewhere
from litejobs._storage.refusals import translating
from litejobs._storage.schema import forget_statistics
from litejobs.errors import (
    Closed,
    DatabaseBusy,
    LiteJobsError,
    OutcomeUnknown,
    translated,
)

_DATA_VERSION = apsw.SQLITE_FCNTL_DATA_VERSION


class Transactions(Connections):
    """What the one whose turn it is says to SQLite before and after what is written."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool
    ) -> None:
        self._moved = array("i", [0])
        self._moved_at = self._moved.buffer_info()[0]
        self._told = array("I", [0])
        self._told_at = self._told.buffer_info()[0]
        self._writing = self._has_begun = False
        self._sized_at = 0.0  # when a transaction has last told how large the file is
        super().__init__(path, durability, allow_network=allow_network, as_is=as_is)
        self._restored_at = self._execute(statements.query("restored_at")).get

    def _begin(self) -> None:
        if self._closed:
            raise Closed(CLOSED)
        if self._asleep:
            self._wake_up()
        writer = self._writer
        if self._protection is not None:
            self._protection.check()
            # What SQLite cannot tell, on Windows say, is looked up.
            question = apsw.SQLITE_FCNTL_HAS_MOVED
            told = writer.file_control("main", question, self._moved_at)
            if not told or self._moved[0]:
                self._check_in_place()
        if writer.in_transaction:
            # Only if an exception was raised into a thread at the worst moment.
            self._rollback()
        try:
            self._execute("begin immediate")
        except apsw.BusyError as error:
            raise DatabaseBusy(
                f"{holder_elsewhere(self.path)} kept the write lock of {self.path} for "
                f"too long ({error}); try again, and keep transactions short"
            ) from error
        except apsw.Error as error:
            raise translated(error) from error
        self._has_begun = True
        try:
            # Another number than after our own last write: somebody else has written.
            if self._note_others() != self._version_seen:
                self._check_schema()
        except BaseException:
            self._rollback()
            raise

    def _note_others(self) -> int:
        """In turn, after the writer has read: whether others have committed is counted.

        Returns a number that changes when they have, or this connection has.
        """
        version = self._writer.data_version()
        if version != self._version_known:
            self._others_seen += 1
            self._version_known = version
        return version

    def _check_schema(self) -> None:
        seen = self._writer.pragma("schema_version")
        if seen != self._schema_seen:
            self._recheck(self._writer)
            with translating():
                forgotten = forget_statistics(self._writer)
            # What is forgotten comes back if the block is undone; it is looked again.
            self._schema_seen = -1 if forgotten else seen
            self._check_restored()

    def _check_restored(self) -> None:
        """Another content, which is noticed as another schema, lacks what was said."""
        restored_at = self._execute(statements.query("restored_at")).get
        if restored_at == self._restored_at:
            return
        self._tell_restored()
        self._restored_at = restored_at

    def _check_not_ended(self) -> None:
        if not self._writer.in_transaction:
            raise LiteJobsError(
                "the block ended its transaction itself, by COMMIT or ROLLBACK; leave "
                "that to the end of the block, and raise to roll back"
            )

    def _commit(self) -> None:
        # What a child leaves that was forked in the block is its parent's transaction.
        self._fork.check()
        if self._protection is not None:
            try:
                self._protection.check()
            except BaseException:
                self._rollback()
                raise
        before, elsewhere = -1, True
        try:
            if clock.RealTime.monotonic() - self._sized_at >= TIMES.size_pause:
                # A runner does so, too; but perhaps there is none.
                self._sized_at = clock.RealTime.monotonic()
                self._execute(statements.queries()["tell_size"])
            before = self._version()
            elsewhere = not self._writing and self._writes_elsewhere()
            self._execute("commit")
            self._has_begun = False
            # Nobody else has committed since it began.
            self._version_known = self._writer.data_version()
        except apsw.ConstraintError as error:
            self._rollback()
            raise translated(error) from error
        except apsw.Error as error:
            stored_or_not = not self._writer.in_transaction
            self._rollback()
            if isinstance(error, apsw.BusyError) and not stored_or_not:
                raise translated(error) from error
            if (
                isinstance(error, apsw.FullError)
                and not elsewhere
                and self._version() == before
                and self._is_nowhere()
            ):
                raise translated(error) from error
            message = (
                f"COMMIT failed ({error}): the change may or may not have been stored; "
                "look before trying again, or try again with the same unique_key"
            )
            raise OutcomeUnknown(message) from error
        except BaseException:
            # Or what was not committed would be read as if it were, in ":memory:".
            self._rollback()
            raise

    def _is_nowhere(self) -> bool:
        """Whether a commit for which there was no room can never come to light.

        As a rule it has not been written to its end, and so it is nothing. But room may
        have run out behind it, where the log is filled up to the end of a sector or was
        to be synced; or what was not written may lie there already, from the last time
        that the log was filled. So it is looked at, as whoever opens it next would.
        """
        try:
            return not wal.has_hidden_commit(self.path)
        except OSError:
            return False

    def _version(self) -> int:
        """A number that changes when this connection, or another one, has committed."""
        self._writer.file_control("main", _DATA_VERSION, self._told_at)
        return self._told[0]

    def _writes_elsewhere(self) -> bool:
        """Whether the transaction is to be stored in several files, one by one."""
        writer = self._writer
        return any(
            writer.txn_state(name) == apsw.SQLITE_TXN_WRITE
            for name in writer.db_names()[1:]
        )

    def _rollback(self) -> None:
        self._has_begun = False
        if not self._fork.is_stale() and self._writer.in_transaction:
            with contextlib.suppress(apsw.Error):
                self._execute("rollback")
