"""A jobs file is private, local, plain, and never opened by anything but SQLite."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._storage import files
from litejobs._storage.reserve import Reserve
from litejobs.errors import FileRefused, NetworkFileSystem, ReadOnlyDatabase

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

MOUNTINFO = rb"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:5 / /dev rw - devtmpfs udev rw
40 22 0:40 / /srv rw shared:7 master:2 - nfs4 server:/srv rw
41 40 8:2 / /srv/local rw - xfs /dev/sdb1 rw
42 22 0:42 / /mnt/my\040share rw - cifs //server/share rw
43 22 0:43 / /mnt/back\134040slash rw - fuse.sshfs me@host: rw
44 22 0:44 / /covered rw - ext4 /dev/sdc1 rw
45 22 0:45 / /covered rw - virtiofs tag rw
a line of another kind
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def without_root() -> Iterator[Path]:
    """A folder in which permissions count, for root gives up its rights here."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        folder.chmod(0o777 | stat.S_ISVTX)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)


# A new file


@posix
@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_new_database_and_its_sidecars_are_private(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        path = files.prepare(tmp_path / "jobs.db")
        assert mode(path) == 0o600
        assert path.stat().st_size == 0
        db = apsw.Connection(str(path))
        db.pragma("journal_mode", "wal")
        db.execute("create table t (x); insert into t values (1)")
        beside = files.sidecars(path)
        assert files.create_private(beside.runner)
        assert Reserve(str(path)).fill()
    assert [mode(each) for each in (path, *beside)] == [0o600] * 5
    db.close()


def test_sidecars_stand_beside_the_database() -> None:
    names = [path.name for path in files.sidecars(Path("a") / "jobs.db")]
    expected = ["jobs.db-wal", "jobs.db-shm", "jobs.db.runner", "jobs.db.reserve"]
    assert names == expected


@posix
def test_existing_file_keeps_its_mode_and_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"whatever it holds")
    path.chmod(0o640)
    assert files.prepare(path) == Path(os.path.realpath(path))
    assert mode(path) == 0o640
    assert path.read_bytes() == b"whatever it holds"


def test_existing_database_is_never_opened_by_name(tmp_path: Path) -> None:
    """Closing such a descriptor would drop the locks of the whole process."""
    path = files.prepare(tmp_path / "jobs.db")
    opened: list[str] = []

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | Path):
            opened.append(os.fspath(arguments[0]))

    sys.addaudithook(hear)
    files.prepare(path, read_only=True)
    assert str(path) not in opened
    files.prepare(path.with_name("new.db"))
    assert str(path.with_name("new.db")) in opened
    # To make an existing file asks the system, but O_EXCL lets it be opened by no one.
    assert not files.create_private(path)


def test_prepared_by_many_threads_a_file_is_made_once(tmp_path: Path) -> None:
    made: list[bool] = []
    together = threading.Barrier(8)

    def make() -> None:
        together.wait()
        made.append(files.create_private(tmp_path / "jobs.db"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]


def test_relative_name_becomes_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.prepare("jobs.db") == Path(os.path.realpath(tmp_path)) / "jobs.db"


# What is refused


@pytest.mark.parametrize("name", ["", ":memory:", "jobs\0.db"])
def test_name_of_no_file_is_refused(name: str) -> None:
    with pytest.raises(FileRefused, match="does not name a file"):
        files.prepare(name)


@posix
def test_name_that_is_not_utf_8_is_refused_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(bytes(tmp_path) + b"/j\xff.db")
    (tmp_path / "link.db").symlink_to(name)
    for refuse in (files.prepare, lambda name: LiteJobs(name).open()):
        with pytest.raises(FileRefused) as caught:
            refuse(name)
        assert str(caught.value) == (
            f"{name!r} has bytes in it that are not UTF-8, as SQLite needs; give "
            "another name"
        )
    with pytest.raises(FileRefused, match="has half of a surrogate pair in it; give"):
        files.prepare("\ud800.db")
    with pytest.raises(FileRefused):
        files.prepare("link.db")
    with LiteJobs() as jobs, pytest.raises(FileRefused, match="not UTF-8"):
        jobs.backup(name)
    assert [each.name for each in tmp_path.iterdir()] == ["link.db"]


@pytest.mark.parametrize("name", ["file:jobs.db?nolock=1", "FILE:/tmp/x?vfs=unix-none"])
def test_uri_is_refused_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileRefused, match="plain paths only; write"):
        files.prepare(name)
    assert list(tmp_path.iterdir()) == []


@posix
def test_name_that_only_looks_like_a_uri_can_be_given_as_a_path(tmp_path: Path) -> None:
    path = files.prepare(tmp_path / "file:jobs.db?mode=ro")
    assert path.name == "file:jobs.db?mode=ro"
    assert path.is_file()


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match=r"the folder .*nowhere does not exist"):
        files.prepare(tmp_path / "nowhere" / "jobs.db")


@posix
def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(FileRefused, match="is not a folder"):
        files.prepare(tmp_path / "plain" / "jobs.db")
    with pytest.raises(FileRefused, match="cannot be used: Not a directory"):
        files.prepare(tmp_path / "plain" / "below" / "jobs.db")


@posix
def test_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """Otherwise the link would have a write-ahead log of its own."""
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to("real.db")
    path = files.prepare(tmp_path / "link.db")
    assert path == Path(os.path.realpath(tmp_path)) / "real.db"


@posix
def test_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("gone.db")
    with pytest.raises(FileRefused, match=r"symbolic link to .*gone\.db, which does"):
        files.prepare(tmp_path / "link.db")
    assert not (tmp_path / "gone.db").exists()


@posix
def test_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").symlink_to("b.db")
    (tmp_path / "b.db").symlink_to("a.db")
    with pytest.raises(FileRefused, match="symbolic link"):
        files.prepare(tmp_path / "a.db")


@posix
def test_link_put_in_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").symlink_to(tmp_path / "elsewhere.db")
    assert not files.create_private(tmp_path / "jobs.db")
    assert not (tmp_path / "elsewhere.db").exists()


@posix
def test_what_is_not_a_file_is_refused_by_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileRefused, match="pipe is a pipe, not a file"):
        files.prepare(tmp_path / "pipe")
    with pytest.raises(FileRefused, match="folder is a folder, not a file"):
        files.prepare(tmp_path / "folder")
    with pytest.raises(FileRefused, match="null is a device, not a file"):
        files.prepare("/dev/null", read_only=True, allow_network=True)
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as each:
        each.bind(f"{short}/s")
        with pytest.raises(FileRefused, match="s is a socket, not a file"):
            files.prepare(f"{short}/s")


# Permissions


@posix
def test_file_that_cannot_be_written_is_refused() -> None:
    with without_root() as folder:
        path = files.prepare(folder / "jobs.db")
        path.chmod(0o400)
        with pytest.raises(ReadOnlyDatabase, match=r"jobs\.db cannot be read and writ"):
            files.prepare(path)
        assert files.prepare(path, read_only=True) == path
        path.chmod(0)
        with pytest.raises(ReadOnlyDatabase, match=r"jobs\.db cannot be read by this"):
            files.prepare(path, read_only=True)


@posix
def test_folder_that_cannot_be_written_is_refused() -> None:
    """SQLite makes its write-ahead log there, so a writable file is not enough."""
    with without_root() as folder:
        below = folder / "below"
        below.mkdir()
        path = files.prepare(below / "jobs.db")
        below.chmod(0o500)
        with pytest.raises(ReadOnlyDatabase, match="below cannot be written"):
            files.prepare(path)
        with pytest.raises(ReadOnlyDatabase, match="cannot be made: Permission denied"):
            files.create_private(below / "new.db")
        below.chmod(0)
        with pytest.raises(FileRefused, match=r"jobs\.db cannot be looked at"):
            files.prepare(path, read_only=True)
        below.chmod(0o700)


def test_missing_file_is_not_made_for_reading(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match=r"jobs\.db does not exist; check the name"):
        files.prepare(tmp_path / "jobs.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


@posix
def test_folder_that_all_may_write_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "litejobs")
    tmp_path.chmod(0o777 | stat.S_ISVTX)
    files.prepare(tmp_path / "jobs.db")
    assert caplog.records == []
    tmp_path.chmod(0o777)
    files.prepare(tmp_path / "jobs.db")
    assert "writable by every user" in caplog.text


@posix
def test_second_name_of_a_file_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = files.prepare(tmp_path / "jobs.db")
    os.link(path, tmp_path / "other.db")
    files.prepare(tmp_path / "other.db")
    assert "has 2 names" in caplog.text


# File systems


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home/me", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/jobs", "nfs4"),
        ("/srvother", "ext4"),
        ("/srv/local", "xfs"),
        ("/srv/localother", "nfs4"),
        ("/mnt/my share/jobs", "cifs"),
        ("/mnt/back\\040slash", "fuse.sshfs"),
        ("/covered/jobs", "virtiofs"),
    ],
)
def test_longest_mount_point_names_the_type(path: str, kind: str) -> None:
    assert files.type_in_mountinfo(MOUNTINFO, path.encode()) == kind


def test_empty_table_of_mounts_says_nothing() -> None:
    assert files.type_in_mountinfo(b"", b"/home") == ""


def test_name_is_read_from_what_statfs_answers() -> None:
    answer = bytes(72) + b"smbfs\0old" + bytes(100)
    assert files.type_in_statfs(answer) == "smbfs"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_type_agrees_with_what_the_system_says(tmp_path: Path) -> None:
    said = subprocess.run(
        ["stat", "-f", "-c", "%T", "/proc", "/sys"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [files.filesystem_type(p) for p in ("/proc", "/sys")]
    assert files.filesystem_type(tmp_path)


def test_where_a_frozen_program_cleans_up_no_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of one file unpacks itself there; one that is a folder stays in it."""
    for name in ("_MEI4711", "_internal"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "_MEI4711"), raising=False)
    beside = tmp_path / "_MEI4711" / ".." / "_MEI4711" / "jobs.db"
    with pytest.raises(FileRefused, match=r"deleted when it ends.*user_data_path"):
        LiteJobs(beside).open()
    assert not beside.exists()
    LiteJobs(tmp_path / "jobs.db").open().close()
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "_internal"))
    LiteJobs(tmp_path / "_internal" / "jobs.db").open().close()


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs", "afs"]
)
def test_network_file_system_is_refused_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "filesystem_type", lambda path: kind)
    with pytest.raises(NetworkFileSystem, match=rf"\({kind}\).*on a local disk"):
        files.prepare(tmp_path / "jobs.db")
    assert list(tmp_path.iterdir()) == []
    assert files.prepare(tmp_path / "jobs.db", allow_network=True).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_system_without_proc_does_not_say_the_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: str) -> IO[bytes]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(files, "open", refuse, raising=False)
    assert files.filesystem_type(tmp_path) == ""


def test_who_follows_the_hint_of_a_name_like_a_uri_has_the_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileRefused) as caught:
        LiteJobs("file:jobs.db").open()
    [hint] = re.findall(r"write '([^']+)' if", str(caught.value))
    with LiteJobs(hint):
        assert (tmp_path / "file:jobs.db").exists()
