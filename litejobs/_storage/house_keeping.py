"""Keep a file in order: its log short, room on its disk, its empty pages few."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import apsw

from litejobs._process import clock, log
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage import files, process_guard, readers, statements, wal
from litejobs._storage.connections import DISK_FULL, NO_ROOM_LEFT
from litejobs._storage.files import MEMORY, size_of
from litejobs._storage.reading import Reading
from litejobs._storage.refusals import translating
from litejobs._storage.reserve import FIRST, LAST
from litejobs._storage.schema import forget_statistics
from litejobs._values.blocks import block
from litejobs.errors import DatabaseBusy, DatabaseFull, DiskFailed

_LONG_LOG = "the write-ahead log of %s has grown to %d MB; %s"

Done = TypeVar("Done")


class HouseKeeping(Reading):
    """What a runner does for its file beside its jobs, and others where it is full."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool
    ) -> None:
        self._warned_at = self._forgot_at = -60.0
        self._reads: readers.Reads | None = None
        self._log_problem: str | None = None
        self._name_problem: str | None = None
        self.has_remnants = False
        self._has_given_back = False  # and the file is not cut yet
        super().__init__(path, durability, allow_network=allow_network, as_is=as_is)

    def keep_house(self, *, idle: bool) -> None:
        """Nothing is wrong with the file that can be seen, and its log is kept short.

        For a runner, every second or so. While it is *idle*, a write-ahead log that has
        grown is copied into the file and cut; one that somebody's open read keeps from
        being cut is among the `problems` above 64 MB, and in the log once a minute.

        Raises:
            SharedFile: A second SQLite library has the file open in this process.
        """
        if self.path == MEMORY:
            return
        process_guard.recheck(self.path)
        self._check_in_place()
        self._name_problem = files.hard_links(self.path)
        grown = size_of(f"{self.path}-wal") > SIZES.wal_limit
        if idle and (grown or self.has_remnants):
            # If others read or write now, next time will do.
            self.cut_log()
        self._forget_statistics()
        size = size_of(f"{self.path}-wal")
        if size <= SIZES.wal_warning:
            self._log_problem = None
            return
        # Where none has lasted, or one was missed, a later one is looked for.
        before = self._reads or None if self._log_problem else None
        self._reads = readers.lasting_reads(f"{self.path}-shm", before)
        told = self.path, size // 2**20, _holding(self._reads)
        self._log_problem = _LONG_LOG % told
        now = clock.RealTime.monotonic()
        if now - self._warned_at >= 60:  # noqa: PLR2004 - seconds
            self._warned_at = now
            log.warning(_LONG_LOG, *told)

    def _forget_statistics(self) -> None:
        """Now and then: some clients count anew whenever they close.

        A later `analyze` does not change the schema, so only who opens the file after
        it goes by what it has counted.
        """
        now = clock.RealTime.monotonic()
        if now - self._forgot_at < TIMES.statistics_pause:
            return
        self._forgot_at = now
        if self.look("statistics") and self.look("has_statistics")[0][0]:
            later = contextlib.suppress(DatabaseBusy, DatabaseFull)
            with later, self.transaction(0) as connection:
                forget_statistics(connection)

    @property
    def is_log_pinned(self) -> bool:
        """Whether an open read kept a long log from being cut, at `keep_house`.

        Where nobody does, it is cut as soon as the runner is idle. Where the system
        does not show who reads, somebody may.
        """
        return self._log_problem is not None and self._reads != frozenset()

    @property
    def is_name_unsafe(self) -> bool:
        """Whether the file had several names, at the last `keep_house`."""
        return self._name_problem is not None

    @property
    def is_disk_full(self) -> bool:
        """Whether there was no room, and none was found since, for the runner here."""
        return self._room_problem is not None

    @property
    def problems(self) -> list[str]:
        """What is wrong with the file as `keep_house` has seen it last."""
        found = [self._room_problem, self._reserve.obstacle]
        found += [self._log_problem, self._name_problem]
        if self.has_remnants:
            found.append(
                f"what was purged from {self.path} can still be read in "
                f"{self.path}-wal, because a read is kept open"
            )
        return [each for each in found if each is not None]

    def cut_log(self) -> bool:
        """The write-ahead log is copied into the file, and empty.

        False if somebody reads or writes: they are neither waited for nor kept waiting.

        Raises:
            DatabaseFull: There is no room to copy it, or the disk has failed.
        """
        if self.path == MEMORY:
            return True
        self._check()
        busy = contextlib.suppress(apsw.BusyError, apsw.LockedError)
        with self._having_the_turn(), busy:
            self._wake_up()
            self._writer.set_busy_timeout(0)
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.FullError, apsw.IOError) as error:
                raise DatabaseFull(
                    f"the write-ahead log of {self.path} cannot be copied into the "
                    f"file ({error}); what was stored is in the log: make room, and "
                    "it is copied next time"
                ) from error
            finally:
                self.wait_as_long()
            self.has_remnants = False
            return True
        return False

    # Room on the disk -------------------------------------------------------------

    def keep_reserve(self) -> None:
        """Room is kept for the day on which the disk is full, as soon as there is any.

        For a runner, and for what has deleted jobs. When it is there again after that
        day, new jobs may be asked for again.
        """
        if self.path == MEMORY:
            return
        known = self._reserve.obstacle
        is_kept = self._reserve.fill()
        if self._reserve.obstacle not in {None, known}:
            log.warning("%s", self._reserve.obstacle)
        if not self.look("is_disk_full")[0][0]:
            # Nothing was refused yet, and that is told before anything is.
            full = NO_ROOM_LEFT % self.path if self._reserve.has_no_room() else None
            if full != self._room_problem:
                log.warning("%s", full or f"the disk of {self.path} has room again")
            self._room_problem = full
        elif is_kept:
            with self.transaction(TIMES.turn_patience) as connection:
                connection.execute(statements.query("say_disk_is_full"), (0,))
            self._room_problem = None
            log.warning("the disk of %s has room again", self.path)
        else:
            self._room_problem = DISK_FULL % self.path

    def spend_reserve(self, *, deletes: bool = False) -> bool:
        """The disk is full: what was kept for that is room now, if there was any.

        A last part of it is for who *deletes*, and so makes room himself.
        It is for what has begun to end, and for jobs to be deleted. So nothing new is
        asked for, whoever writes, and nothing claimed, until it is kept again.
        """
        if self.path == MEMORY:
            return False
        self._cut_tail()
        if not self._reserve.size():
            return False
        keep = 0 if deletes else LAST
        # The lock first, or others would store in it what they are refused otherwise.
        # And a part of it first: if this process dies, or another program is quicker,
        # the rest is kept.
        with self.transaction(TIMES.turn_patience) as connection:
            if not self._reserve.spend(FIRST, keep=keep):
                return False
            connection.execute(statements.query("say_disk_is_full"), (1,))
        self._reserve.spend(keep=keep)
        self._room_problem = DISK_FULL % self.path
        log.error("%s", self._room_problem)
        with contextlib.suppress(DatabaseFull):
            self.cut_log()
        return True

    def _cut_tail(self) -> None:
        """What was not committed gives back its room in the log; the rest is copied."""
        with self.transaction(TIMES.turn_patience), contextlib.suppress(OSError):
            if not wal.cut_tail(self.path):
                return
        with contextlib.suppress(DatabaseFull):
            self.cut_log()

    @block
    def making_room(self) -> Iterator[None]:
        """In the block jobs are deleted, on a full disk too; it has room afterwards."""
        if self.path == MEMORY:
            yield
            return
        if self._reserve.is_needed():
            self.spend_reserve(deletes=True)
        try:
            yield
        finally:
            with contextlib.suppress(DatabaseFull):
                if self.run("is_disk_full")[0][0]:
                    while self.give_back_pages():
                        pass
                self.look_for_room()

    def look_for_room(self) -> None:
        """If no new job was taken, and there is room by now, the file hears of it.

        A runner looks by itself, but perhaps there is none.
        """
        with self.transaction(TIMES.turn_patience) as connection:
            connection.execute(statements.query("tell_size"))
            if connection.execute(statements.query("is_disk_full")).get:
                self.keep_reserve()

    def with_room(self, work: Callable[[], Done]) -> Done:
        """What *work* returns; on a full disk it is done again, in room that was kept.

        Raises:
            DatabaseFull: Nothing was kept, or it is not enough.
        """
        try:
            return work()
        except DatabaseFull as error:
            if self.in_transaction() or isinstance(error, DiskFailed):
                raise
            # It may also have left room that it could not use.
            self.spend_reserve()
        return work()

    def give_back_pages(self) -> bool:
        """Some pages that nothing uses any more go back to the disk; whether more may.

        For who has nothing else to do. Those that are kept for what comes next stay
        (`spare_pages`), and so do all of a file whose maker wanted it so. If others
        write now, later will do: no more may go at once.

        Raises:
            DatabaseFull: There is no room to move pages, or the disk has failed.
        """
        if self.path == MEMORY:
            return False
        spare = self.look("spare_pages")[0][0]
        if spare:
            try:
                with self.transaction(0) as connection:
                    some = min(spare, SIZES.given_back_pages)
                    connection.pragma("incremental_vacuum", some)
            except DatabaseBusy:
                return False
            self._has_given_back = True
        elif self._has_given_back:
            # The file is cut where its log is copied into it.
            self._has_given_back = not self.cut_log()
        return bool(spare)

    # Its content anew -------------------------------------------------------------

    @block
    def replacing(self) -> Iterator[apsw.Connection]:
        """The writer, for a block that puts another content into the file.

        It is this thread's turn, and no transaction has begun.
        """
        self._check()
        with self._having_the_turn(), translating(), self._taking_long():
            self._wake_up()
            if self._protection is not None:
                self._protection.check()
            self._check_in_place()
            try:
                yield self._writer
            finally:
                # Whatever was known of the file may be otherwise now.
                self._version_seen = self._schema_seen = -1
                self.wait_as_long()
        for listener in self._listeners:
            listener()

    def rewrite(self) -> None:
        """The file is written anew without its empty room; everybody else waits.

        Raises:
            DatabaseBusy: Another connection kept the write lock past the busy timeout.
            DatabaseFull: There is no room for a second copy; the file is as it was.
        """
        self._check()
        with self._having_the_turn(), translating(), self._taking_long():
            self._wake_up()
            self._execute(statements.queries()["rewrite_file"])


def _holding(reads: readers.Reads | None) -> str:
    """Who holds the log, and what to do about it."""
    if reads is None:
        return (
            "a program that keeps a read open holds it, and which one this system does "
            "not say: close its cursors or end it"
        )
    names = readers.names_of(reads)
    if not names:
        return "nobody keeps a read open any more; it is cut when the runner is idle"
    which = f"process {names[0]} keeps a read open and holds it: close its cursors"
    if len(names) > 1:
        which = f"processes {', '.join(names)} keep reads open and hold it: close their"
        which += " cursors"
    return f"{which}, or end {'it' if len(names) == 1 else 'them'}"
