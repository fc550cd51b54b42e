"""What is said when the disk is full at COMMIT, and what the next process then finds.

Every write, sync and truncation of the files passes through a disk that is full from
the k-th of them on, for a moment or for good, and perhaps in the midst of what is
written. What lies there then is what a process that is killed right after the error
leaves behind; it is opened, and must hold what was acknowledged and nothing of what was
said not to be stored.
"""

from __future__ import annotations

import contextlib
import functools
import io
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._storage import database, process_guard, wal
from litejobs.errors import DatabaseFull, OutcomeUnknown
from tests.storage.test_group_commit import Crowd

VFS = "litejobs-full-disk"


class FullDisk(apsw.VFS):
    """SQLite's default VFS, and a copy of what lies in its files.

    `left` operations go well, then `at` ones fail with `error`; of a write that fails
    so many bytes in sixteen are written as `part` says.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.left = -1
        self.lasts = False
        self.only = ""
        self.part = 0
        self.powersafe = True
        self.error: type[apsw.Error] = apsw.FullError
        self.failed: list[str] = []
        super().__init__(VFS, "", maxpathname=0)

    def xOpen(self, name: Any, flags: list[int]) -> FullFile:
        return FullFile(self, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        super().xDelete(name, sync)
        self.files.pop(Path(name).name, None)

    def fails(self, operation: str) -> bool:
        if self.left < 0 or (self.failed and not self.lasts):
            return False
        if self.only not in ("", operation):
            return False
        if self.left > 0:
            self.left -= 1
            return False
        self.failed.append(operation)
        return True

    def filled(self, left: int, *, lasts: bool, part: int = 0, only: str = "") -> None:
        """From now on so many operations go well, or so many of one kind."""
        self.left, self.lasts, self.part, self.only = left, lasts, part, only
        self.failed = []

    def mended(self) -> list[str]:
        """There is room again; the operations that have failed."""
        self.left = -1
        failed, self.failed = self.failed, []
        return failed

    def left_behind(self, folder: Path) -> Path:
        """A file with its log, as they lie."""
        path = folder / "left.db"
        for end in ("-shm", "-wal", ""):
            path.with_name(path.name + end).unlink(missing_ok=True)
        for name, content in self.files.items():
            path.with_name(name.replace("jobs.db", "left.db")).write_bytes(content)
        return path


class FullFile(apsw.VFSFile):
    """A file of that disk."""

    def __init__(self, disk: FullDisk, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk, self._name = disk, Path(path or "").name
        self._content = disk.files.setdefault(self._name, bytearray())
        super().__init__("", name, flags)

    def _operation(self, what: str) -> str:
        return f"{what} {'log' if self._name.endswith('-wal') else 'file'}"

    def xWrite(self, data: bytes, offset: int) -> None:
        fails = self._disk.fails(self._operation("write"))
        if fails:
            data = bytes(data)[: len(data) * self._disk.part // 16]
        if data:
            super().xWrite(data, offset)
            self._content.extend(bytes(max(0, offset - len(self._content))))
            self._content[offset : offset + len(data)] = data
        if fails:
            raise self._disk.error("database or disk is full")

    def xTruncate(self, size: int) -> None:
        if self._disk.fails(self._operation("truncate")):
            raise self._disk.error("database or disk is full")
        super().xTruncate(size)
        del self._content[size:]

    def xSync(self, flags: int) -> None:
        if self._disk.fails(self._operation("sync")):
            raise self._disk.error("database or disk is full")
        # No power is cut here, so the cache of the system is as good as the disk.

    def xDeviceCharacteristics(self) -> int:
        if self._disk.powersafe:
            return super().xDeviceCharacteristics()
        return super().xDeviceCharacteristics() & ~apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FullDisk]:
    """All files lie on it."""
    disk = FullDisk()
    monkeypatch.setattr(database.clock, "vfs_name", lambda: VFS)
    monkeypatch.setattr(database.clock, "clock_is_held", lambda: True)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    yield disk
    disk.unregister()


class Story:
    """Jobs are asked for on a disk that may be full; what was said of each is kept."""

    def __init__(self, disk: FullDisk, folder: Path) -> None:
        self.disk, self.folder = disk, folder
        self.jobs = LiteJobs(folder / "jobs.db")
        self.note = self.jobs.task(name="note")(lambda n, text="": None)
        self.number = 0
        self.stored: set[int] = set()
        self.refused: set[int] = set()
        self.told: Counter[tuple[str, str]] = Counter()
        self.copy = folder / "copy.db"
        self.looker = apsw.Connection(str(self.copy))
        self.looks = 0
        self.objects: list[Any] = []
        self.write(self.one)
        # Often, so that commits write to the file itself, and begin the log anew.
        self.writer = self.jobs._store.database._writer
        self.writer.pragma("wal_autocheckpoint", 12)

    def one(self) -> list[int]:
        """One job is enqueued."""
        self.number += 1
        self.note.enqueue(self.number)
        return [self.number]

    def many(self) -> list[int]:
        """More than the page cache holds, so that pages are written before the end."""
        self.writer.pragma("cache_size", 5)
        numbers = []
        try:
            with self.jobs.transaction():
                for _ in range(15):
                    self.number += 1
                    numbers.append(self.number)
                    self.note.enqueue(self.number, "x" * 500)
        finally:
            self.writer.pragma("cache_size", -2_000)
        return numbers

    def write(self, work: Callable[[], list[int]]) -> None:
        """The work is done, and what was said of it is remembered."""
        before, came = self.number, len(self.disk.failed)
        try:
            self.stored |= set(work())
            said = "stored"
        except DatabaseFull as error:
            assert "nothing was stored: make room and try again" in str(error)
            self.refused |= set(range(before + 1, self.number + 1))
            said = "full"
        except OutcomeUnknown:
            said = "unknown"
        where = next(iter(self.disk.failed[came:]), "nothing")
        self.told[where, said] += 1
        if where != "nothing":
            self.check()

    def found(self) -> set[int]:
        """What is in the file for whoever opens it next."""
        path = self.disk.left_behind(self.folder)
        # It copies what counts of the log into the file, and looks at no object.
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            connection.pragma("user_version")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        # Who looks there knows the objects already, as long as their number is the
        # same; and that the pages are others by the counter in the header.
        self.looks += 1
        content = bytearray(path.read_bytes())
        content[18:20] = b"\1\1"  # no log
        content[24:28] = struct.pack(">I", self.looks)
        self.copy.write_bytes(content)
        objects = self.looker.execute("select * from sqlite_schema").fetchall()
        self.objects = self.objects or objects
        assert objects == self.objects
        rows = self.looker.execute("select args ->> '$.n' from litejobs_job")
        return {number for (number,) in rows}

    def check(self) -> None:
        """What lies on the disk opens to what was said."""
        found = self.found()
        assert self.stored <= found
        assert not self.refused & found

    def cut_log(self) -> None:
        """The log is copied into the file and truncated, if there is room."""
        try:
            self.jobs._store.database.cut_log()
        except DatabaseFull as error:
            assert "what was stored is in the log" in str(error)

    def run(self, *, lasts: bool, step: int) -> None:
        """At these k the disk is full, until a whole round needs fewer operations."""
        for round_ in (self.short_round, self.long_round):
            for k in range(0, 1_000, step):
                self.disk.filled(k, lasts=lasts, part=5 * k % 16)
                round_()
                came = self.disk.mended()
                self.write(self.one)
                self.check()
                if not came:
                    break
            else:
                pytest.fail("the disk was full each time")
        assert self.writer.execute("pragma integrity_check").get == "ok"
        self.jobs.close()

    def short_round(self) -> None:
        """Several commits, of which one copies the log and the next begins it anew."""
        for _ in range(3):
            self.write(self.one)

    def long_round(self) -> None:
        """A commit of which pages were written before, and a log that is cut."""
        self.write(self.many)
        self.cut_log()
        self.write(self.one)


each_k = pytest.mark.parametrize(
    "step",
    [3, pytest.param(1, marks=pytest.mark.torture)],
    ids=["some", "all"],
)


@each_k
@pytest.mark.parametrize(
    ("lasts", "powersafe"),
    [(False, True), (True, True), (False, False)],
    ids=["once", "until mended", "padded"],
)
def test_full_disk_leaves_what_was_said(
    disk: FullDisk, tmp_path: Path, lasts: bool, powersafe: bool, step: int
) -> None:
    disk.powersafe = powersafe
    story = Story(disk, tmp_path)
    story.run(lasts=lasts, step=step)
    told = story.told
    # A log that is not written to its end holds no commit. Where it is padded, or could
    # not be synced, it may.
    assert told["write log", "full"] > 10
    assert told["sync log", "unknown"] > 0
    # What lies there from the round before may be the very bytes that were not written:
    # so it is with the page that says where others belong, which is often the same.
    assert told["write log", "unknown"] < told["write log", "full"] / 4
    # SQLite says nothing of a log that could not be copied into the file after COMMIT.
    # Python's exception is heard all the same, and is taken for what it may mean.
    assert {said for where, said in told if where.endswith("file")} == {"unknown"}


@each_k
def test_failing_disk_leaves_what_was_said(
    disk: FullDisk, tmp_path: Path, step: int
) -> None:
    """Of an I/O error at COMMIT nothing is known: what is read back is not proof."""
    disk.error = apsw.IOError
    story = Story(disk, tmp_path)
    story.run(lasts=False, step=step)
    assert story.told["write log", "unknown"] > 5
    assert story.told["sync log", "full"] == 0


@pytest.mark.parametrize("only", ["", "sync log"], ids=["each", "syncs"])
def test_threads_that_share_a_commit_are_each_told_of_their_own(
    disk: FullDisk, tmp_path: Path, only: str
) -> None:
    """There was room for some of them alone, as it turned out; for others not."""
    story = Story(disk, tmp_path)
    told: list[Any] = []
    for k in range(200):
        crowd = Crowd(story.jobs)
        first = story.number + 1
        story.number += 4
        with crowd.database._turn:
            for n in range(first, first + 4):
                crowd.join_line(functools.partial(story.note.enqueue, n))
            disk.filled(k, lasts=k % 2 == 0, only=only)
        answers = crowd.done()
        for n, answer in enumerate(answers, first):
            if isinstance(answer, DatabaseFull):
                story.refused.add(n)
            elif not isinstance(answer, OutcomeUnknown):
                assert answer.state == "pending"
                story.stored.add(n)
        story.check()
        told += answers
        if not disk.mended():
            break
    else:
        pytest.fail("the disk was full each time")
    # Only a sync leaves open whether it is stored.
    kind, least = (OutcomeUnknown, 0) if only else (DatabaseFull, 10)
    assert Counter(map(type, told))[kind] > least
    story.jobs.close()


def test_log_that_holds_the_very_bytes_already_is_no_proof(
    disk: FullDisk, tmp_path: Path
) -> None:
    """The page that could not be written lies there, from the round before."""
    story = Story(disk, tmp_path)
    with story.jobs.transaction() as db:
        db.execute("create table own (id integer primary key, value)")
        db.execute("insert into own values (1, 0)")
    story.writer.pragma("wal_autocheckpoint", 0)

    def set_to(value: int) -> None:
        with story.jobs.transaction() as db:
            db.execute("update own set value = ?", (value,))

    story.cut_log()
    set_to(7)
    set_to(8)
    story.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    # The log's header and its sync, the frame's header; then the page.
    disk.filled(3, lasts=False)
    with pytest.raises(OutcomeUnknown):
        set_to(7)
    assert disk.mended() == ["write log"]
    connection = apsw.Connection(str(disk.left_behind(tmp_path)))
    assert connection.execute("select value from own").get == 7
    connection.close()
    # In the life of this connection it is not there.
    with story.jobs.reader() as db:
        assert db.execute("select value from own").get == 8
    story.jobs.close()


def test_commit_of_several_databases_is_unknown(disk: FullDisk, tmp_path: Path) -> None:
    """The one may be stored, and the disk of the other be full."""
    story = Story(disk, tmp_path)
    other = str(tmp_path / "other.db")
    apsw.Connection(other).pragma("journal_mode", "wal")
    story.writer.execute("attach ? as other", (other,))
    story.writer.execute("create table other.own (id)")

    def both() -> list[int]:
        with story.jobs.transaction() as db:
            db.execute("insert into other.own values (1)")
            return story.one()

    halves = 0
    for k in range(100):
        disk.filled(k, lasts=False)
        story.write(both)
        halves += story.number in story.found() - story.stored
        if not disk.mended():
            break
    assert story.told["write log", "unknown"] > 5
    assert story.told["write log", "full"] == 0
    assert halves > 3
    story.jobs.close()


# The log ----------------------------------------------------------------------------


def checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """As the documentation of the format has it."""
    one, two = sums
    for x, y in struct.iter_unpack(f"{order}II", data):
        one = (one + x + two) % 2**32
        two = (two + y + one) % 2**32
    return one, two


def in_other_order(log: bytes, page: int) -> bytes:
    """The log as a machine with the other order of bytes writes it."""
    magic = struct.unpack_from(">I", log)[0] ^ 1
    order = ">" if magic & 1 else "<"
    head = struct.pack(">I", magic) + log[4:24]
    sums = checksum(order, head, (0, 0))
    parts = [head, struct.pack(">II", *sums)]
    for at in range(32, len(log), 24 + page):
        head, content = log[at : at + 16], log[at + 24 : at + 24 + page]
        sums = checksum(order, head[:8] + content, sums)
        parts += [head, struct.pack(">II", *sums), content]
    return b"".join(parts)


@pytest.mark.parametrize("turned", [False, True], ids=["own order", "other order"])
def test_commit_is_found_in_the_log_if_every_bit_is_right(
    tmp_path: Path, turned: bool
) -> None:
    connection = apsw.Connection(str(tmp_path / "log.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute("create table t (a)")
    connection.execute("insert into t values (randomblob(9000))")
    frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    content = (tmp_path / "log.db-wal").read_bytes()
    connection.close()
    size = (len(content) - 32) // frames
    if turned:
        content = in_other_order(content, size - 24)

    def found(before: int, log: bytes | bytearray = content) -> bool:
        at = 48 + (before - 1) * size
        sums = content[at : at + 8] if before else bytes(8)
        return wal._has_commit_behind(
            io.BytesIO(log), before, struct.unpack(">2I", sums), content[16:24]
        )

    assert all(map(found, range(frames)))
    assert not found(frames)
    last = 32 + (frames - 1) * size
    for place in (0, 16, last + 1, last + 9, last + 17, last + 24, last + size - 1):
        for bit in range(1, 8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            assert not found(frames - 1, changed)
    assert not found(frames - 1, content[:-1])
    assert not found(frames - 1, content[: last + 23])
    for nothing in (b"", content[:31], bytes(len(content))):
        assert not found(0, nothing)


def test_log_whose_index_cannot_be_read_tells_nothing(
    disk: FullDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(disk, tmp_path)

    def refuse(path: str, size: int) -> bytes:
        raise OSError(path, size)

    halves = iter([b"0" * 48, b"1" * 48])
    for read in (refuse, lambda *_: next(halves) + next(halves)):
        monkeypatch.setattr(process_guard, "read_open", read)
        disk.filled(0, lasts=False)
        with pytest.raises(OutcomeUnknown):
            story.one()
        disk.mended()
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        process_guard.read_open(tmp_path / "nothing", 1)
    story.jobs.close()


# A real disk ------------------------------------------------------------------------


def test_log_that_cannot_be_copied_into_the_file_has_what_was_acknowledged(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says nothing of that at COMMIT; but in the end the log has no room."""
    # Through the VFS with the held clock, Python would hear of it.
    monkeypatch.setattr(database.clock, "clock_is_held", lambda: False)
    jobs = LiteJobs(small_disk / "jobs.db")
    note = jobs.task(name="note")(lambda text: None)
    writer = jobs.open()._store.database._writer
    writer.pragma("wal_autocheckpoint", 0)
    kept = [note.enqueue("x" * 1_500).id for _ in range(50)]
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 100_000))
    writer.pragma("wal_autocheckpoint", 10)
    with pytest.raises(DatabaseFull, match=r"disk is full\); nothing was stored"):
        while True:
            kept.append(note.enqueue("y" * 1_500).id)
    assert len(kept) > 50
    with pytest.raises(apsw.FullError):
        writer.wal_checkpoint()
    assert [job.id for job in reversed(jobs.list(limit=1_000))] == kept
    filler.unlink()
    kept.append(note.enqueue("z").id)
    writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert [job.id for job in reversed(jobs.list(limit=1_000))] == kept
    jobs.close()
