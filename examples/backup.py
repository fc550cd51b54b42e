"""Back up a folder: one job per file, copied and verified, and right after any kill.

    python examples/backup.py [SRC [DEST]] [--db FILE] [--threads N] [--faults RATE]

Without arguments it backs up this checkout into the folder for temporary files. Every
tenth copy fails on purpose and is tried again. Kill it at any moment (`kill -9` too),
start it again, and it goes on where it was; once more, and there is nothing to do. The
output is like this (on a terminal the lines of progress are one line that moves):

    backing up /home/me/litejobs
            to /tmp/litejobs-backup, with the jobs in /tmp/litejobs-backup.jobs.db
    copying   [------------------------------]    0 of 103 files
    copying   [############------------------]   42 of 103 files, 3 to be tried again
    copying   [##############################]  103 of 103 files
    done            103 copied and verified, in 0.7 s
    retried          11 files, 12 times
    dead-lettered     0
    up to date        0
    left out          1
      docs/latest: a symbolic link

It ends with 0 if every file is in the backup, and with 1 if one is missing.
"""

from __future__ import annotations

import argparse
import collections
import errno
import hashlib
import logging
import os
import random
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path

from litejobs import Event, LiteJobs, LiteJobsError, Retry, Runner, current

BLOCK = 1 << 20
NAME = "litejobs-backup"
UNFINISHED = ("scheduled", "blocked", "pending", "processing", "failed")
# What SQLite and litejobs keep beside a jobs file. If the process that runs the jobs
# opened one of these files and closed it again, it would lose its locks on it.
OWN = [
    *(
        base + end
        for base in ("", ".runner")
        for end in ("", "-wal", "-shm", "-journal")
    ),
    ".reserve",
]


class Tally:
    """What has happened so far, counted as the jobs move from state to state."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.times: collections.Counter[str] = collections.Counter()
        self.copying: set[int] = set()
        self.retried: set[int] = set()
        self.dead: list[int] = []
        jobs.on("*", self.count)

    def count(self, event: Event) -> None:
        """One more job has come into a state; called after the commit."""
        self.times[event.state] += 1
        self.copying.discard(event.job_id)
        if event.state == "processing":
            self.copying.add(event.job_id)
        elif event.state == "failed":
            self.retried.add(event.job_id)
        elif event.state in {"dead_lettered", "cancelled"}:
            self.dead.append(event.job_id)


def main() -> int:
    """Finish what an earlier run has left, then copy all that the backup lacks."""
    options = read_options()
    src, dest, jobs = options.src, options.dest, LiteJobs(options.db)
    # The table at the end tells what would otherwise be logged between the lines.
    logging.getLogger("litejobs").addHandler(logging.NullHandler())
    print(f"backing up {clean(src)}")
    print(f"        to {clean(dest)}, with the jobs in {clean(options.db)}")

    # A kill uses up an attempt just as a fault does, so there are many of them.
    @jobs.task(
        retry=Retry.exponential("100ms", max_attempts=6, max_delay="1s"),
        max_crashes=6,
        crash_delay="100ms",
    )
    def copy(src: str, dest: str, path: str) -> None:
        dice = random.Random(f"{path} {current().attempt}")  # the same in every run
        fault = dice.choice(["read", "write"]) if dice.random() < options.faults else ""
        copy_verified(Path(src, path), Path(dest, path), fault)

    began, tally = time.monotonic(), Tally(jobs)
    with jobs:
        with jobs.running(threads=options.threads, standby=False) as runner:
            follow(jobs, runner, tally, "going on")
            tally.dead.clear()  # the scan finds these files again: they get a new job
            paths, left_out = scan(src, dest, options.db)
            missing = [path for path in paths if not is_same(src / path, dest / path)]
            jobs.enqueue_many(
                copy.using(unique_key=key_of(dest / path)).call(
                    str(src), str(dest), path
                )
                for path in missing
            )
            follow(jobs, runner, tally, "copying")
        dead = [jobs.get(number).snapshot() for number in tally.dead]
    times, took = tally.times, f"{time.monotonic() - began:.1f} s"
    print(f"done          {times['completed']:5} copied and verified, in {took}")
    print(f"retried       {len(tally.retried):5} files, {times['failed']} times")
    print(f"dead-lettered {len(dead):5}")
    for job in dead:
        why = job.last_error or job.state
        print(f"  {clean(job.args['path'])}: {clean(why)}; attempt {job.attempt_count}")
    print(f"up to date    {len(paths) - len(missing):5}")
    print(f"left out      {len(left_out):5}")
    for path, why in left_out.items():
        print(f"  {clean(path)}: {why}")
    return 1 if dead or any("error" in why for why in left_out.values()) else 0


def copy_verified(source: Path, target: Path, fault: str) -> None:
    """*target* is *source*, byte for byte and on disk, or is left as it was."""
    if is_same(source, target):
        return  # the process died after the copy, before the job was settled
    # A name of this job alone: what a kill leaves there, its next attempt removes.
    part = target.with_name(f".litejobs-{current().job_id}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    try:
        before, read = source.stat(), hashlib.sha256()
        with source.open("rb") as old, part.open("xb") as new:
            while block := old.read(BLOCK):
                read.update(block)
                new.write(block)
                if before.st_size > BLOCK:
                    current().progress(min(new.tell() / before.st_size, 1))
            if fault == "read":
                raise OSError(errno.EIO, "injected fault: the disk does not answer")
            if fault == "write":
                new.write(b"injected fault: a byte too many")
            new.flush()
            os.fsync(new.fileno())
        with part.open("rb") as new:
            if hashlib.file_digest(new, "sha256").digest() != read.digest():
                raise OSError(errno.EIO, "the SHA-256 of the copy is not the file's")
        after = source.stat()
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise OSError(errno.EAGAIN, "the file was changed while it was copied")
        os.utime(part, ns=(before.st_atime_ns, before.st_mtime_ns))
        if os.name == "posix":  # elsewhere, a read-only target could not be replaced
            part.chmod(stat.S_IMODE(before.st_mode))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    if os.name == "posix":  # the name, too, is to survive a power cut
        folder = os.open(target.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def is_same(source: Path, target: Path) -> bool:
    """Whether the copy is there and the file has not been changed since."""
    try:
        old, new = source.stat(), target.lstat()
    except OSError:
        return False  # missing; or the job will meet the error, and say which
    return (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns)


def scan(src: Path, dest: Path, db: Path) -> tuple[list[str], dict[str, str]]:
    """The paths of all files below *src*, and what is left out, each with a reason.

    The folders are made in *dest* on the way, so empty ones are there as well.
    """
    found, left_out = list[str](), dict[str, str]()
    own = [Path(f"{db}{end}") for end in OWN]
    own_inodes = {inode_of(path) for path in own if path.exists()}

    def reason(path: Path) -> str:
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            return "a symbolic link"
        if path in own or inode_of(path) in own_inodes:
            return "the jobs of this backup"
        if any("\ud800" <= letter <= "\udfff" for letter in path.name):
            return "its name is not UTF-8"
        if stat.S_ISDIR(kind):
            return "the backup itself" if path.samefile(dest) else ""
        return "" if stat.S_ISREG(kind) else "neither a file nor a folder"

    def leave_out(error: OSError) -> None:
        left_out[os.path.relpath(error.filename, src)] = f"error: {error.strerror}"

    for folder, folders, names in os.walk(src, onerror=leave_out):
        here = Path(folder).relative_to(src)
        for name in sorted([*folders, *names]):
            try:
                why = reason(src / here / name)
                if name in folders and not why:
                    (dest / here / name).mkdir(exist_ok=True)
            except OSError as error:
                why = f"error: {error.strerror}"
            if why:
                left_out[str(here / name)] = why
            elif name in names:
                found.append(str(here / name))
        folders[:] = sorted(
            each for each in folders if str(here / each) not in left_out
        )
    return found, left_out


def inode_of(path: Path) -> tuple[int, int]:
    """What a file is, under whatever name."""
    status = path.lstat()
    return status.st_dev, status.st_ino


def key_of(target: Path) -> str:
    """The unique key of the job for *target*, however long the path is.

    It is the target's and not the source's, so no two jobs ever write one file.
    """
    return hashlib.sha256(str(target).encode()).hexdigest()


def follow(jobs: LiteJobs, runner: Runner, tally: Tally, label: str) -> None:
    """Show how the jobs come along, until the last one has ended."""
    live, shown, total = sys.stdout.isatty(), -1, 0
    while True:
        counts = jobs.counts()
        left = sum(counts.get(state, 0) for state in UNFINISHED)
        total = max(total, left)
        if total == 0:
            return
        parts = [jobs.get(number).progress or 0 for number in list(tally.copying)]
        done = min((total - left + sum(parts)) / total, 1.0)
        bar = ("#" * int(30 * done)).ljust(30, "-")
        line = f"{label:9} [{bar}] {total - left:4} of {total} files"
        if counts.get("failed"):
            line += f", {counts['failed']} to be tried again"
        if problem := runner.health["problem"]:
            line += f"; {problem}"
        if live:
            width = shutil.get_terminal_size().columns - 1
            print(
                "\r" + line[:width].ljust(width), end="" if left else "\n", flush=True
            )
        elif int(10 * done) > shown or left == 0:
            shown = int(10 * done)
            print(line, flush=True)
        if left == 0:
            return
        time.sleep(0.1)


def clean(text: object) -> str:
    """*text* without what would move the cursor or colour the terminal."""
    return "".join(each if each.isprintable() else "?" for each in str(text))


def read_options() -> argparse.Namespace:
    """What the command line says, with real paths; refuses folders that overlap."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    add = parser.add_argument
    add("src", nargs="?", type=Path, default=Path(__file__).parent.parent)
    add("dest", nargs="?", type=Path, default=Path(tempfile.gettempdir(), NAME))
    add("--db", type=Path, help="the jobs file (default: DEST.jobs.db)")
    add("--threads", type=int, default=4, help="copies at once (default: 4)")
    add("--faults", type=float, default=0.1, help="how many fail (default: 0.1)")
    options = parser.parse_args()
    src, dest = options.src.resolve(), options.dest.resolve()
    db = (options.db or Path(f"{dest}.jobs.db")).resolve()
    if not src.is_dir():
        parser.error(f"{src} is not a folder; give the one to back up")
    dest.mkdir(parents=True, exist_ok=True)
    if any(folder.samefile(dest) for folder in (src, *src.parents)):
        parser.error(f"{dest} contains what is to be backed up; choose another DEST")
    if any(folder.samefile(dest) for folder in db.parents if folder.exists()):
        parser.error(f"{db} lies in the backup; choose another place with --db")
    options.src, options.dest, options.db = src, dest, db
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped; start it again to go on")
    except LiteJobsError as error:
        sys.exit(f"backup: {error}")
