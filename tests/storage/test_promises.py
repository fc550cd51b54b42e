"""What a power cut leaves: every acknowledged transaction, and none by half.

A script with every kind of transaction is run through a VFS that writes down what
SQLite writes and syncs. Then the power is cut after each of these operations: what was
not synced is kept, lost, kept in part, or torn. Each time the file must open in a state
that it was in after some transaction, the last acknowledged one or a later one.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs._storage import statements
from litejobs._storage.database import Database
from litejobs._storage.schema import configure

VFS = "litejobs-recorder"
SECTOR = 512

# Each is one transaction: statements of queries/ by name, or plain ones.
SCRIPT: list[list[tuple[str, Any]]] = [
    [("insert into litejobs_job (task, args) values ('early', '[1]')", ())],
    [("declare_task", {"name": "work", "delay_ms": 0, "jitter": 0.0})],
    [("declare_task", {"name": "early", "queue": "mail"})],
    [("start_runner", {"pid": 1, "host": "here", "threads": 2})],
    [("serve_task", {"name": each, "runner": 1}) for each in ("work", "early")],
    [("tick", {"runner": 1, "seen_at": None})],
    *[[("enqueue_job", {"task": "work", "args": f"[{n}]"})] for n in range(3)],
    [("enqueue_job", {"task": "work", "args": f"[{n}]"}) for n in range(40)],
    [("enqueue_job", {"task": "work", "args": "[]", "unique_key": "once"})],
    [("enqueue_job", {"task": "work", "args": "[]", "wait_ms": 3_600_000})],
    [("claim", {"runner": 1, "slots": 2})],
    [("settle", (1, '{"status":"ok","result":1}'))],
    [("settle", (2, '{"status":"error"}'))],
    [("tick", {"runner": 1, "seen_at": None})],
    [("claim", {"runner": 1, "slots": 10})],
    # As the loop does it: all that has ended, the tick and the claim in one.
    [
        *[("settle", (n, '{"status":"ok"}')) for n in range(3, 8)],
        ("settle", (8, '{"status":"timeout"}')),
        ("settle", (9, '{"status":"interrupted"}')),
        ("tick", {"runner": 1, "seen_at": None}),
        ("claim", {"runner": 1, "slots": 5}),
    ],
    [("cancel_job", {"id": 40})],
    [("requeue_job", {"id": 40})],
    [("run_job_now", {"id": 46})],
    [("pause_queue", {"name": "mail", "paused": 1})],
    [("delete from litejobs_job where id = :id", {"id": 1})],
    # A new life: what was open is an orphan.
    [
        ("start_runner", {"pid": 2, "host": "here", "threads": 2}),
        *[("serve_task", {"name": each, "runner": 2}) for each in ("work", "early")],
        ("tick", {"runner": 2, "seen_at": None}),
    ],
    *[
        [
            ("claim", {"runner": 2, "slots": 4}),
            *[("settle", (n + each, '{"status":"ok"}')) for each in range(4)],
        ]
        for n in range(18, 42, 4)
    ],
    [("pause_queue", {"name": "mail", "paused": 0})],
]


class RecordedFile(apsw.VFSFile):
    """A file that writes down what changes it."""

    def __init__(self, log: list[Any], name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.log, self.name = log, Path(path or "").name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self.log.append(("write", self.name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self.log.append(("truncate", self.name, size, b""))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.log.append(("sync", self.name, 0, b""))


class Recorder(apsw.VFS):
    """SQLite's default VFS, with recorded files."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        super().__init__(VFS, "", maxpathname=0)

    def xOpen(self, name: Any, flags: list[int]) -> RecordedFile:
        return RecordedFile(self.log, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:
        super().xDelete(name, syncdir)
        self.log.append(("delete", Path(name).name, 0, b""))


class Recording:
    """The script was run: its log of operations, and the states it went through."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        path = folder / "jobs.db"
        Database.of(path, "full", allow_network=False).release()
        self.first = path.read_bytes()
        self.log: list[Any] = []
        vfs = Recorder(self.log)
        connection = apsw.Connection(str(path), vfs=VFS)
        configure(connection, "full")
        connection.pragma("synchronous", synchronous)
        # Often, so that the cuts fall into checkpoints and new rounds of the log too.
        connection.pragma("wal_autocheckpoint", 25)
        self.states: list[int] = []
        self.images: dict[int, int] = {}
        self._note(connection, folder)
        for number, transaction in enumerate(SCRIPT, start=1):
            connection.execute("begin immediate")
            for statement, parameters in transaction:
                run(connection, statement, parameters)
            connection.execute("commit")
            self._note(connection, folder)
            self.log.append(("acknowledged", "", number, b""))
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.close()
        vfs.unregister()

    def _note(self, connection: apsw.Connection, folder: Path) -> None:
        """This is one of the states, and these are the sound pages that it has."""
        assert connection.execute("pragma quick_check").fetchall() == [("ok",)]
        self.states.append(state_of(connection))
        self.images[image_of(connection, folder)] = self.states[-1]

    def files(
        self, cut: int, keep: Callable[[list[Any]], list[Any]]
    ) -> dict[str, bytes]:
        """The files after a power cut; *keep* chooses from what was not synced."""
        files = {"jobs.db": bytearray(self.first), "jobs.db-wal": bytearray()}
        for name, content in files.items():
            mine = [each for each in self.log[:cut] if each[1] == name]
            synced = max(
                (n for n, each in enumerate(mine, start=1) if each[0] == "sync"),
                default=0,
            )
            for operation, _, offset, data in mine[:synced] + keep(mine[synced:]):
                if operation == "truncate":
                    del content[offset:]
                elif operation == "write":
                    content.extend(bytes(max(0, offset - len(content))))
                    content[offset : offset + len(data)] = data
        return {name: bytes(content) for name, content in files.items()}

    def acknowledged(self, cut: int) -> int:
        """How many transactions the program had been told of."""
        return sum(each[0] == "acknowledged" for each in self.log[:cut])


def run(connection: apsw.Connection, statement: str, parameters: Any) -> None:
    """The statement was executed; parameters that are not named are NULL."""
    sql = statements.queries().get(statement, statement)
    if isinstance(parameters, dict):
        names = dict.fromkeys(re.findall(r":(\w+)", sql))
        parameters = names | {"wait_ms": 0} | parameters
    connection.execute(sql, parameters).fetchall()


def state_of(connection: apsw.Connection) -> int:
    """A number that is the same exactly for the same rows."""
    tables = connection.execute(
        "select name from sqlite_schema where type = 'table' order by name"
    ).fetchall()
    return hash(
        repr(
            [
                connection.execute(f"select * from {each} order by 1").fetchall()
                for (each,) in tables
            ]
        )
    )


def image_of(connection: apsw.Connection, folder: Path) -> int:
    """A number that is the same exactly for the same pages: no schema is read."""
    path = folder / "image.db"
    path.unlink(missing_ok=True)
    copy = apsw.Connection(str(path))
    try:
        with copy.backup("main", connection, "main") as backup:
            backup.step()
    finally:
        copy.close()
    return hash(path.read_bytes())


# What may be left of the operations that were not synced ---------------------------


def everything(pending: list[Any]) -> list[Any]:
    """Only the process died."""
    return pending


def nothing(pending: list[Any]) -> list[Any]:
    return []


def some(chance: random.Random) -> Callable[[list[Any]], list[Any]]:
    """Any of them, as the disk's cache pleases."""
    return lambda pending: [each for each in pending if chance.random() < 0.5]


def torn(chance: random.Random) -> Callable[[list[Any]], list[Any]]:
    """The first few, of which the last has reached the disk in part."""

    def keep(pending: list[Any]) -> list[Any]:
        kept = pending[: chance.randint(0, len(pending))]
        if kept and kept[-1][0] == "write":
            operation, name, offset, data = kept[-1]
            cut = chance.randrange(0, len(data) + 1, SECTOR)
            kept[-1] = (operation, name, offset, data[:cut])
        return kept

    return keep


def cut_power(
    recording: Recording,
    folder: Path,
    *,
    every: int,
    seed: int,
    rounds: int = 1,
    durable: bool = True,
) -> tuple[Counter[str], list[str]]:
    """How many cuts there were of each kind, and what they broke.

    Without *durable*, an older state is right too, unless only the process died.
    """
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    broken: list[str] = []
    known: dict[int, str | int] = {}
    for cut in range(chance.randrange(every), len(recording.log) + 1, every):
        for keep in [everything, nothing, *[some(chance), torn(chance)] * rounds]:
            kind = keep.__qualname__.split(".")[0]
            files = recording.files(cut, keep)
            content = hash(tuple(files.values()))
            if content not in known:
                known[content] = reopened(folder, files, recording.images)
            counts[kind] += 1
            told = recording.acknowledged(cut)
            oldest = told if durable or keep is everything else 0
            if known[content] not in recording.states[oldest : told + 2]:
                broken.append(
                    f"seed {seed}, cut {cut}, {kind}: {told} transactions were "
                    f"acknowledged, found {known[content]}"
                )
    counts["different"] = len(known)
    return counts, broken


def reopened(
    folder: Path, files: dict[str, bytes], images: dict[int, int]
) -> str | int:
    """The state in which these files open, or in which words they do not.

    Pages that were seen before, in *images*, are not read by SQL again.
    """
    (folder / "cut.db-shm").unlink(missing_ok=True)
    for name, content in files.items():
        (folder / name.replace("jobs", "cut")).write_bytes(content)
    try:
        connection = apsw.Connection(str(folder / "cut.db"))
        try:
            state = images.get(image_of(connection, folder))
            if state is not None:
                return state
            sound = connection.execute("pragma quick_check").fetchall()
            return state_of(connection) if sound == [("ok",)] else str(sound)
        finally:
            connection.close()
    except apsw.Error as error:
        return str(error)


# A file that is just being made -------------------------------------------------------


def zeros(pending: list[Any]) -> list[Any]:
    """The length of the file has reached the disk, and what is in it has not."""
    return [
        (operation, name, offset, bytes(len(data)))
        for operation, name, offset, data in pending
    ]


def newborn(log: list[Any], keep: Callable[[list[Any]], list[Any]]) -> dict[str, bytes]:
    """The files after a power cut at the end of this log, which begins with none."""
    contents: dict[str, bytearray] = {"jobs.db": bytearray()}
    pending: dict[str, list[Any]] = {}

    def store(name: str, operations: list[Any]) -> None:
        content = contents.setdefault(name, bytearray())
        for operation, _, offset, data in operations:
            if operation == "truncate":
                del content[offset:]
            else:
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data

    for each in log:
        operation, name = each[:2]
        if operation == "sync":
            store(name, pending.pop(name, []))
        elif operation == "delete":
            contents.pop(name, None)
            pending.pop(name, None)
        else:
            pending.setdefault(name, []).append(each)
    for name, operations in pending.items():
        store(name, keep(operations))
    return {name: bytes(content) for name, content in contents.items()}


def test_power_cut_while_a_file_is_made_leaves_none_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At no moment is a part of its first page there for good."""
    log: list[Any] = []
    vfs = Recorder(log)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "vfs", VFS)
        Database.of(tmp_path / "jobs.db", "full", allow_network=False).release()
    vfs.unregister()
    # From then on it is a file as any other.
    has_log = [each[1] for each in log].index("jobs.db-wal")
    chance = random.Random(1)
    kept = [everything, nothing, zeros, *[some(chance), torn(chance)] * 4]
    left = [newborn(log[:cut], keep) for cut in range(has_log) for keep in kept]
    different = {tuple(sorted(files.items())) for files in left}
    assert len(different) > 10
    for number, files in enumerate(sorted(different)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in files:
            (folder / name).write_bytes(content)
        Database.of(folder / "jobs.db", "full", allow_network=False).release()


def test_power_cut_leaves_every_acknowledged_transaction(tmp_path: Path) -> None:
    recording = Recording(tmp_path, "full")
    counts, broken = cut_power(recording, tmp_path, every=10, seed=1)
    assert broken == []
    assert counts["different"] > 80, counts


@pytest.mark.parametrize("every", [24, pytest.param(4, marks=pytest.mark.torture)])
def test_power_cut_may_lose_the_last_transactions_of_the_fast_mode_but_no_half(
    tmp_path: Path, every: int
) -> None:
    recording = Recording(tmp_path, "normal")
    _, broken = cut_power(recording, tmp_path, every=every, seed=2, durable=False)
    assert broken == []
    _, lost = cut_power(recording, tmp_path, every=40, seed=2)
    assert lost != []


def test_without_syncs_the_same_cuts_lose_transactions(tmp_path: Path) -> None:
    """So the test above would notice."""
    recording = Recording(tmp_path, "off")
    _, broken = cut_power(recording, tmp_path, every=40, seed=1)
    assert broken != []


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
def test_power_cut_at_every_operation(tmp_path: Path, seed: int) -> None:
    recording = Recording(tmp_path, "full")
    counts, broken = cut_power(recording, tmp_path, every=1, seed=seed, rounds=5)
    assert broken == []
    assert counts["different"] > 1000, counts
