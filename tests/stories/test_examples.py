"""Each example runs and prints what it says; the backup survives being killed."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from litejobs import LiteJobs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BACKUP = EXAMPLES / "backup.py"
KILLED = -9 if os.name == "posix" else 9

# Runs the backup in this process and looks on. Python announces what it does with files
# before it does it, so a kill comes at an exact moment: at the nth event of this name
# that is about the target folder. Whoever opens a file of the jobs is written down.
WITNESS = """
import itertools, os, runpy, sys

folder, db, log, event, number, *sys.argv = sys.argv[1:]
ends = ("", "-wal", "-shm", ".runner", ".reserve", ".runner-journal")
own = [db + end for end in ends]
left = itertools.count(int(number), -1)
opened = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

def is_own(name):
    return any(os.path.exists(each) and os.path.samefile(name, each) for each in own)

def look(name, arguments):
    if not arguments or not isinstance(arguments[0], str):
        return
    if name == "open" and os.path.exists(arguments[0]) and is_own(arguments[0]):
        caller = sys._getframe(1).f_globals.get("__name__")
        # litejobs itself opens the file of the runner's lock, and the reserve.
        locks = caller == "litejobs._storage.byte_locks" and own[3] == arguments[0]
        keeps = caller == "litejobs._storage.reserve" and own[4] == arguments[0]
        if not (locks or keeps or arguments[2] & os.O_EXCL):
            os.write(opened, arguments[0].encode())
    if name == event and arguments[0].startswith(folder) and next(left) == 1:
        os.kill(os.getpid(), 9)

sys.addaudithook(look)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def environment(**extra: str) -> dict[str, str]:
    """Ours, with the checkout importable, whether or not litejobs is installed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", **extra}


def run(
    script: Path, *arguments: object, expect: int = 0, env: dict[str, str] | None = None
) -> str:
    """What the script prints; it has to end by itself, with the status *expect*."""
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env=env or environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + (done.stderr if expect else "")


def promised(script: Path) -> str:
    """The output that the docstring shows: the indented lines after `output is:`."""
    source = script.read_text(encoding="utf-8")
    docstring = source.split('"""')[1]
    match = re.search(r"output is(?: then)?:\n\n((?:    .*\n)+)", docstring)
    assert match is not None, f"{script.name} does not say what it prints"
    return textwrap.dedent(match[1])


# --- The short ones ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("paginate", "transaction", "shell", "reports", "retry", "thumbnails"),
        *("server_asyncio", "asyncio_app", "thumbnails_cpu"),
    ],
)
def test_example_prints_what_its_docstring_shows(name: str) -> None:
    script = EXAMPLES / f"{name}.py"
    assert run(script) == promised(script)


def test_shell_example_does_the_same_without_the_shell(tmp_path: Path) -> None:
    script = EXAMPLES / "shell.py"
    assert run(script, env=environment(PATH=str(tmp_path))) == promised(script)


def test_testing_example_passes_its_own_tests() -> None:
    # It names the plugin that it needs.
    env = environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    printed = run(EXAMPLES / "testing.py", env=env)
    assert re.search(r"^3 passed in ", printed, re.MULTILINE)


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        *("backup", "desktop", "paginate", "reports", "retry", "shell"),
        *("testing", "thumbnails", "transaction", "server_asyncio", "asyncio_app"),
        "thumbnails_cpu",
        "cluster",  # tests/stories/test_cluster.py
        # Under real servers, in tests/servers.
        *("server_django", "server_fastapi", "server_flask"),
    }
    # A folder has tests of its own.
    folders = {path.parent.name for path in EXAMPLES.glob("*/pytest.ini")}
    assert folders == {"orders"}  # tests/stories/test_orders.py


@pytest.mark.parametrize("name", ["asyncio", "django", "fastapi", "flask"])
def test_program_of_a_server_is_short(name: str) -> None:
    source = (EXAMPLES / f"server_{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 80


# --- The window ----------------------------------------------------------------------


def display() -> list[str]:
    """The command before Python that gives it a display; skips where there is none."""
    if importlib.util.find_spec("_tkinter") is None:
        pytest.skip("this Python has no tkinter")
    if sys.platform != "linux" or os.environ.get("DISPLAY"):
        return []
    if shutil.which("xvfb-run") is None:
        pytest.skip("there is no display, and no xvfb-run to make one")
    return ["xvfb-run", "-a"]


def test_window_example_runs_by_itself() -> None:
    script = EXAMPLES / "desktop.py"
    done = subprocess.run(
        [*display(), sys.executable, script, "--auto"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, promised(script)), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need no DISPLAY")
def test_window_example_says_when_there_is_no_display() -> None:
    if importlib.util.find_spec("_tkinter") is None:
        pytest.skip("this Python has no tkinter")
    text = run(EXAMPLES / "desktop.py", expect=1, env=environment(DISPLAY=""))
    assert text.startswith("no window can be opened here: ")


# --- The backup ----------------------------------------------------------------------


def make_tree(folder: Path, files: int = 40) -> Path:
    """Some files of all sizes in some folders, the same in each run."""
    dice = random.Random(files)
    for number in range(files):
        path = folder / f"folder {number % 5}" / f"file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(dice.choice([0, 1, 4096, 70_000])))
    (folder / "big").write_bytes(dice.randbytes(3_000_000))
    (folder / "ünïcode €").write_bytes(b"x")
    (folder / "empty").mkdir()
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that is in the folder: files with their bytes, folders with None."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def jobs_of(db: Path) -> Counter[tuple[str, str]]:
    """How many jobs there are for each path and state; the file is sound."""
    with LiteJobs(db) as jobs:
        with jobs.transaction() as connection:
            assert connection.execute("pragma integrity_check").get == "ok"
        return Counter((job.args["path"], job.state) for job in jobs.list(limit=10_000))


def witnessed(
    src: Path,
    dest: Path,
    *arguments: object,
    db: Path | None = None,
    event: str = "none",
    number: int = 0,
    expect: int = 0,
) -> str:
    """As `run`, and in no way has the jobs file been opened beside SQLite."""
    db = db or Path(f"{dest}.jobs.db")
    log = dest.with_name("opened")
    done = subprocess.run(
        [
            *(sys.executable, "-c", WITNESS, dest, db, log, event, str(number)),
            *(BACKUP, src, dest, *map(str, arguments)),
        ],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert log.read_text(encoding="utf-8") == ""
    return done.stdout


def table(text: str) -> dict[str, int]:
    """The figures of the closing table."""
    found = re.findall(r"^([a-z-]+(?: [a-z]+)*) +(\d+)(?: .*)?$", text, re.MULTILINE)
    return {name: int(count) for name, count in found}


def assert_each_file_was_copied_once(src: Path, dest: Path) -> None:
    files = [str(path.relative_to(src)) for path in src.rglob("*") if path.is_file()]
    assert contents(dest) == contents(src)
    assert jobs_of(Path(f"{dest}.jobs.db")) == Counter(
        {(path, "completed"): 1 for path in files}
    )


def test_backup_prints_a_table_and_finds_nothing_to_do_the_second_time(
    tmp_path: Path,
) -> None:
    src, dest = make_tree(tmp_path / "src"), tmp_path / "dest"
    first = run(BACKUP, src, dest)
    assert table(first) == {
        "done": 42,
        "retried": table(first)["retried"],
        "dead-lettered": 0,
        "up to date": 0,
        "left out": 0,
    }
    assert table(first)["retried"] > 0
    assert first.splitlines()[:2] == [
        f"backing up {src}",
        f"        to {dest}, with the jobs in {dest}.jobs.db",
    ]
    assert "copying   [##############################]   42 of 42 files\n" in first
    assert_each_file_was_copied_once(src, dest)

    second = run(BACKUP, src, dest)
    assert "copying" not in second
    assert table(second) == {
        "done": 0,
        "retried": 0,
        "dead-lettered": 0,
        "up to date": 42,
        "left out": 0,
    }
    assert_each_file_was_copied_once(src, dest)


def test_backup_prints_the_same_lines_as_its_docstring() -> None:
    docstring = BACKUP.read_text(encoding="utf-8").split('"""')[1]
    assert list(table(docstring.replace("\n    ", "\n"))) == [
        "done",
        "retried",
        "dead-lettered",
        "up to date",
        "left out",
    ]


def test_backup_without_arguments_takes_its_own_checkout(tmp_path: Path) -> None:
    script = tmp_path / "checkout" / "examples" / "backup.py"
    script.parent.mkdir(parents=True)
    shutil.copy(BACKUP, script)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    place = {name: str(temporary) for name in ("TMPDIR", "TEMP", "TMP")}
    assert table(run(script, env=environment(**place)))["done"] == 1
    assert contents(temporary / "litejobs-backup") == contents(tmp_path / "checkout")


def test_backup_copies_what_was_changed_or_lost_and_nothing_else(
    tmp_path: Path,
) -> None:
    src, dest = make_tree(tmp_path / "src", files=10), tmp_path / "dest"
    run(BACKUP, src, dest)
    (src / "big").write_bytes(b"smaller now")
    (dest / "folder 1" / "file 1").unlink()
    assert table(run(BACKUP, src, dest))["done"] == 2
    assert contents(dest) == contents(src)


def test_backup_keeps_times_and_permissions(tmp_path: Path) -> None:
    src, dest = make_tree(tmp_path / "src", files=1), tmp_path / "dest"
    (src / "big").chmod(0o750)
    os.utime(src / "big", ns=(10**18, 10**18 + 100))
    run(BACKUP, src, dest, "--faults", 0)
    old, new = (src / "big").stat(), (dest / "big").stat()
    assert (new.st_mtime_ns, new.st_mode) == (old.st_mtime_ns, old.st_mode)


@pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and names of bytes")
def test_backup_says_what_it_leaves_out(tmp_path: Path) -> None:
    src = make_tree(tmp_path / "src", files=3)
    (src / "link").symlink_to("big")
    (src / "links").symlink_to("folder 1", target_is_directory=True)
    os.mkfifo(src / "pipe")
    (src / "dir\x1b[31m").mkdir()
    (src / "dir\x1b[31m" / "line\nbreak").write_bytes(b"x")
    try:
        (src / os.fsdecode(b"not text \xff")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes no such names")
    text = run(BACKUP, src, tmp_path / "dest", "--faults", 0)
    assert text.endswith(
        "left out          4\n"
        "  link: a symbolic link\n"
        "  links: a symbolic link\n"
        "  not text ?: its name is not UTF-8\n"
        "  pipe: neither a file nor a folder\n"
    )
    assert (tmp_path / "dest" / "dir\x1b[31m" / "line\nbreak").read_bytes() == b"x"


def test_backup_inside_its_source_copies_neither_itself_nor_its_jobs(
    tmp_path: Path,
) -> None:
    src = make_tree(tmp_path / "src", files=3)
    before = contents(src)
    dest = src / "folder 1" / "backup"
    for done in (5, 0):
        text = run(BACKUP, src, dest)
        assert table(text)["done"] == done
        assert f"{Path('folder 1', 'backup')}: the backup itself\n" in text
        assert (
            f"{Path('folder 1', 'backup.jobs.db')}: the jobs of this backup\n" in text
        )
        assert contents(dest) == before


def test_backup_never_opens_its_own_jobs_file_under_any_name(tmp_path: Path) -> None:
    src, dest = make_tree(tmp_path / "src", files=3), tmp_path / "dest"
    before, db = contents(src), src / "jobs"
    witnessed(src, dest, "--db", db, db=db)
    os.link(db, src / "another name")
    text = witnessed(src, dest, "--db", db, db=db)
    assert "another name: the jobs of this backup\n" in text
    assert contents(dest) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["src", "src"], "contains what is to be backed up; choose another DEST"),
        (["src/folder 1", "src"], "contains what is to be backed up"),
        (["src", "dest", "--db", "dest/jobs"], "lies in the backup; choose another"),
        (["nowhere", "dest"], "is not a folder; give the one to back up"),
    ],
)
def test_backup_refuses_places_that_overlap(
    arguments: Sequence[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It does so before it opens a file, and so may be asked in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(BACKUP), *arguments])
    make_tree(tmp_path / "src", files=3)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BACKUP), run_name="__main__")
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_backup_names_the_dead_letters_and_tries_them_again_next_time(
    tmp_path: Path,
) -> None:
    src, dest = make_tree(tmp_path / "src", files=2), tmp_path / "dest"
    text = run(BACKUP, src, dest, "--faults", 1, expect=1)
    assert table(text) | {"left out": 0} == {
        "done": 0,
        "retried": 4,
        "dead-lettered": 4,
        "up to date": 0,
        "left out": 0,
    }
    reason = r"the disk does not answer|the SHA-256 of the copy is not the file's"
    dead = re.findall(
        rf"^  (.*): \[Errno \d+\] .*(?:{reason}); attempt 6$", text, re.MULTILINE
    )
    assert len(dead) == 4
    assert [name for name, found in contents(dest).items() if found is not None] == []

    assert table(run(BACKUP, src, dest, "--faults", 0))["done"] == 4
    assert contents(dest) == contents(src)


def test_backup_refuses_to_run_twice_at_once(tmp_path: Path) -> None:
    src, dest = make_tree(tmp_path / "src", files=2), tmp_path / "dest"
    dest.mkdir()
    with LiteJobs(f"{dest}.jobs.db") as jobs, jobs.running():
        text = run(BACKUP, src, dest, expect=1)
    assert text.splitlines()[-1].startswith("backup: process ")


# --- The backup, killed --------------------------------------------------------------


def killed(src: Path, dest: Path, event: str, number: int) -> None:
    """A backup was killed at the nth *event* that is about the target folder."""
    witnessed(src, dest, event=event, number=number, expect=KILLED)


# Before a copy begins, while it is written, when it is complete, and when it has its
# name and the job is still open; early and late. One of each kind comes in the next
# test, one after the other.
MOMENTS = [
    ("os.mkdir", 2),
    ("open", 1),
    ("open", 30),
    ("os.utime", 12),
    ("os.rename", 1),
    ("os.remove", 20),
]


@pytest.mark.torture
@pytest.mark.parametrize(("event", "number"), MOMENTS)
def test_killed_backup_goes_on_and_copies_each_file_once(
    event: str, number: int, tmp_path: Path
) -> None:
    src, dest = make_tree(tmp_path / "src", files=20), tmp_path / "dest"
    killed(src, dest, event, number)
    run(BACKUP, src, dest)
    assert_each_file_was_copied_once(src, dest)


def test_backup_killed_again_and_again_copies_each_file_once(tmp_path: Path) -> None:
    src, dest = make_tree(tmp_path / "src", files=20), tmp_path / "dest"
    for event, number in [
        ("os.mkdir", 2),
        ("os.rename", 5),
        ("open", 20),
        ("os.utime", 4),
        ("os.remove", 6),
    ]:
        killed(src, dest, event, number)
    run(BACKUP, src, dest)
    assert_each_file_was_copied_once(src, dest)


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent otherwise there")
def test_backup_stopped_from_the_keyboard_says_how_to_go_on(tmp_path: Path) -> None:
    src, dest = make_tree(tmp_path / "src", files=20), tmp_path / "dest"
    process = subprocess.Popen(
        [sys.executable, BACKUP, src, dest, "--faults", "1"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("copying"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, "\nstopped; start it again to go on\n")
    run(BACKUP, src, dest)
    assert contents(dest) == contents(src)


@pytest.mark.torture
def test_backup_killed_fifty_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    src, dest = make_tree(tmp_path / "src", files=2500), tmp_path / "dest"
    dice = random.Random(50)
    for _ in range(50):
        event = dice.choice(["open", "os.utime", "os.rename", "os.remove"])
        killed(src, dest, event, dice.randint(1, 60))
    run(BACKUP, src, dest)
    assert contents(dest) == contents(src)
    ended = jobs_of(Path(f"{dest}.jobs.db")).elements()
    assert Counter(path for path, state in ended if state == "completed") == Counter(
        str(path.relative_to(src)) for path in src.rglob("*") if path.is_file()
    )
