"""Which file may hold jobs, and how it comes into being.

Everything here is done by name, with `os.stat` and its kin. On POSIX, closing *any*
descriptor of a file drops every lock this process holds on it, those of SQLite
included; so a database that exists is opened by SQLite and by nothing else.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from litejobs._values.descriptors import too_many_open
from litejobs.errors import FileRefused, NetworkFileSystem, ReadOnlyDatabase

if TYPE_CHECKING:
    from pathlib import Path

MEMORY = ":memory:"  # the name of none: a database of this process alone
PRIVATE = 0o600

NETWORK_TYPES = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.ceph",
        "fuse.davfs",
        "fuse.glusterfs",
        "fuse.grpcfuse",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "grpcfuse",
        "nfs",
        "nfs4",
        "remote",
        "smb",
        "smb3",
        "smbfs",
        "virtiofs",
        "webdav",
    }
)

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# Held from the look at a name until its new file is closed again. Without it, a second
# thread could find the file just made and open it with SQLite, and closing our
# descriptor would drop the locks of that connection.
_creating = threading.Lock()


class Sidecars(NamedTuple):
    """The files that live beside a database, whether or not they exist now."""

    wal: Path
    shm: Path
    runner: Path
    reserve: Path


def prepare(
    path: str | os.PathLike[str],
    *,
    allow_network: bool = False,
    read_only: bool = False,
) -> Path:
    """The file exists, is a plain one SQLite can lock and write; its real path.

    A missing file is made, empty and readable by its owner alone, before SQLite sees
    it; SQLite gives the same mode to its sidecar files. An existing file is looked at
    and never opened. With *read_only* nothing is made and nothing need be writable.
    A symbolic link is followed, so that all names of a file share its sidecars; one
    that leads nowhere is refused, lest a job file appear where nobody expects it.

    Raises:
        FileRefused: The name or what it leads to cannot be a database.
        NetworkFileSystem: Locks cannot be trusted there, and *allow_network* is false.
        ReadOnlyDatabase: The file or its folder cannot be written.
    """
    from pathlib import Path

    return Path(checked(path, allow_network=allow_network, read_only=read_only))


def checked(
    path: str | os.PathLike[str],
    *,
    allow_network: bool = False,
    read_only: bool = False,
) -> str:
    """As `prepare`, the path as a text."""
    name = plain_name(path)
    real = os.path.realpath(name)
    # os.path, for it answers no instead of raising where it may not look.
    if os.path.islink(name) and not os.path.exists(real):
        msg = f"{name} is a symbolic link to {real}, which does not exist; make it"
        raise FileRefused(f"{msg} lead to a file or remove it")
    _check_text(real)
    folder = os.path.dirname(real)
    _check_folder(folder, read_only=read_only)
    _check_file_system(folder, allow_network=allow_network)
    if not read_only:
        _check_stays(real)
        create_private(real)
    _check_file(real, read_only=read_only)
    return real


def sidecars(path: str | os.PathLike[str]) -> Sidecars:
    """The names that SQLite, the runner's lock and the reserve use beside *path*."""
    from pathlib import Path

    name = os.fspath(path)
    return Sidecars(
        *map(Path, (f"{name}-wal", f"{name}-shm", f"{name}.runner", f"{name}.reserve"))
    )


def create_private(path: str | os.PathLike[str]) -> bool:
    """A file of this name exists; True if it was made now, empty, with mode 0600.

    An existing file of any kind is left alone and not opened. Of two processes that
    do this at once, one makes the file and the other finds it.

    Raises:
        ReadOnlyDatabase: The folder does not let a file be made in it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    with _creating:
        try:
            # O_EXCL: a descriptor is only ever had of a file that nobody else in this
            # process can have open yet, so closing it costs nobody a lock.
            descriptor = os.open(path, flags, PRIVATE)
        except FileExistsError:
            return False
        except OSError as error:
            if (reason := too_many_open(error)) is not None:
                raise FileRefused(f"{path} cannot be made; {reason}") from error
            msg = f"{path} cannot be made: {error.strerror}; choose a folder that"
            raise ReadOnlyDatabase(f"{msg} this user can write") from error
        try:
            if sys.platform != "win32":  # pragma: no branch
                # The umask may have taken even our own bits.
                os.fchmod(descriptor, PRIVATE)
        finally:
            os.close(descriptor)
    return True


def placed(path: str) -> str:
    """The name, as it is from wherever the process may go later on."""
    if path in {"", MEMORY} or "\0" in path or path.lower().startswith("file:"):
        return path  # which is refused when it is opened
    try:
        # Not `abspath`: that would leave out "link/..", which may lead elsewhere.
        return os.path.join(os.getcwd(), path)
    except OSError:
        return path  # its folder is gone


def plain_name(path: str | os.PathLike[str]) -> str:
    """The name as text; refused if SQLite would take it for something else."""
    if not isinstance(path, (str, os.PathLike)):
        raise FileRefused(f"{path!r:.80} is not a path; give one as a text")
    name = os.fspath(path)
    if name in {"", MEMORY} or "\0" in name:
        raise FileRefused(f"{name!r} does not name a file; give the path of one")
    _check_text(name)
    if name.lower().startswith("file:"):
        msg = f"{name!r} looks like a URI, and litejobs takes plain paths only; write"
        raise FileRefused(f"{msg} './{name}' if the file is really called that")
    return name


def _check_text(name: str) -> None:
    """SQLite takes names as UTF-8: what is not is refused before a file is made."""
    try:
        name.encode()
    except UnicodeEncodeError:
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            problem = "half of a surrogate pair in it"
        else:
            problem = "bytes in it that are not UTF-8, as SQLite needs"
        raise FileRefused(f"{name!r} has {problem}; give another name") from None


def _check_folder(folder: str, *, read_only: bool) -> None:
    try:
        mode = os.stat(folder).st_mode
    except FileNotFoundError:
        raise FileRefused(f"the folder {folder} does not exist; make it") from None
    except OSError as error:
        msg = f"the folder {folder} cannot be used: {error.strerror}; choose another"
        raise FileRefused(msg) from error
    if not stat.S_ISDIR(mode):
        raise FileRefused(f"{folder} is not a folder; choose another place")
    if not read_only and not _may(folder, os.W_OK | os.X_OK):
        msg = f"the folder {folder} cannot be written, and SQLite makes files in it"
        raise ReadOnlyDatabase(f"{msg} beside the database; change its permissions")
    if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        _warn(
            "the folder %s is writable by every user, who could replace the jobs"
            " file; take that right away (chmod o-w)",
            folder,
        )


def _check_stays(path: str) -> None:
    """A program of one file unpacks itself for each run, and cleans up behind it."""
    folder = getattr(sys, "_MEIPASS", None)
    # PyInstaller's name for it; a program that is a folder has one of another name.
    if folder is None or not os.path.basename(folder).startswith("_MEI"):
        return
    if path.startswith(os.path.realpath(folder) + os.sep):
        raise FileRefused(
            f"{path} is in the folder into which this program has unpacked itself, "
            "which is deleted when it ends, with all jobs; keep the file with the "
            "user's data, as in platformdirs.user_data_path(NAME)"
        )


def _check_file_system(folder: str, *, allow_network: bool) -> None:
    kind = filesystem_type(folder)
    if kind in NETWORK_TYPES and not allow_network:
        msg = f"{folder} is on a network file system ({kind}), where SQLite's locks"
        msg = f"{msg} cannot be trusted; keep the jobs file on a local disk"
        raise NetworkFileSystem(msg)


def _check_file(path: str, *, read_only: bool) -> None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        raise FileRefused(f"{path} does not exist; check the name") from None
    except OSError as error:
        msg = f"{path} cannot be looked at: {error.strerror}; check its permissions"
        raise FileRefused(msg) from error
    if not stat.S_ISREG(status.st_mode):
        # realpath() has followed every link, so one that is here now is either part
        # of a circle or was put in place this very moment.
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "a symbolic link")
        raise FileRefused(f"{path} is {kind}, not a file; choose another name")
    if status.st_nlink > 1:
        _warn(_SEVERAL_NAMES, path, status.st_nlink)
    if not _may(path, os.R_OK if read_only else os.R_OK | os.W_OK):
        need = "read" if read_only else "read and written"
        msg = f"{path} cannot be {need} by this user; change its permissions"
        raise ReadOnlyDatabase(msg)


_SEVERAL_NAMES = (
    "%s has %d names (hard links); it is opened by one of them alone, and the others"
    " are not backups, since they change along: make those with litejobs backup"
)


def hard_links(path: str) -> str | None:
    """What is wrong if the file has several names, or None."""
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return None
    return _SEVERAL_NAMES % (path, names) if names > 1 else None


def size_of(path: str) -> int:
    """Bytes of the file of this name; 0, if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _warn(message: str, *parameters: object) -> None:
    from litejobs._process import log

    log.warning(message, *parameters)


def _may(path: str, rights: int) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, rights, effective_ids=effective)


def filesystem_type(path: str | os.PathLike[str]) -> str:
    """The type of file system that holds *path*, as the system calls it.

    On Linux and macOS a word such as `ext4`, `nfs4` or `apfs`; on Windows `remote`
    for a network drive; empty when the system does not say.
    """
    real = os.path.realpath(path)
    if sys.platform == "win32":  # pragma: no cover
        return _windows_type(real)
    if sys.platform == "darwin":  # pragma: no cover
        return _darwin_type(real)
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            table = file.read()
    except OSError:
        return ""
    return type_in_mountinfo(table, os.fsencode(real))


def type_in_mountinfo(table: bytes, path: bytes) -> str:
    """The type of the mount that holds *path* in the text of `/proc/self/mountinfo`.

    The longest mount point that leads to *path* wins; of two on the same point, the
    later one, which covers the earlier.
    """
    best, kind = -1, ""
    for line in table.splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) < 5 or not after:  # noqa: PLR2004 (the mount point is the 5th)
            continue
        point = _unescaped(fields[4]).rstrip(b"/")
        if (path == point or path.startswith(point + b"/")) and len(point) >= best:
            best, kind = len(point), after.split(b" ")[0].decode("ascii", "replace")
    return kind


def _unescaped(field: bytes) -> bytes:
    r"""A field as it was before the kernel wrote blank, tab, newline and \ in octal."""
    for byte in (b" ", b"\t", b"\n", b"\\"):  # the backslash last: it starts the others
        field = field.replace(b"\\%03o" % byte[0], byte)
    return field


def type_in_statfs(answer: bytes) -> str:
    """The name of the file system in the structure macOS's `statfs` fills in."""
    return answer[72:88].partition(b"\0")[0].decode("ascii", "replace")


if sys.platform == "darwin":  # pragma: no cover (seen on macOS only)

    def _darwin_type(real: str) -> str:
        import ctypes  # needed on this system only

        library = ctypes.CDLL(None, use_errno=True)
        # Intel Macs keep the older structure under the plain name.
        call = getattr(library, "statfs$INODE64", None) or library.statfs
        answer = ctypes.create_string_buffer(4096)
        return "" if call(os.fsencode(real), answer) else type_in_statfs(answer.raw)


if sys.platform == "win32":  # pragma: no cover (seen on Windows only)

    def _windows_type(real: str) -> str:
        import ctypes  # needed on this system only

        remote = 4  # DRIVE_REMOTE
        root = os.path.splitdrive(real)[0] + "\\"
        network = root.startswith("\\\\") and not root.startswith("\\\\?\\")
        drive = ctypes.windll.kernel32.GetDriveTypeW(root.removeprefix("\\\\?\\"))
        return "remote" if network or drive == remote else ""
