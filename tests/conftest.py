"""What every test has at hand."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import apsw
import freezegun.api
import pytest
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs._process.sizes import other_sizes
from litejobs._process.timing import TIMES, other_times
from litejobs._storage import statements
from tests.libraries import skip_where_missing
from tests.waiting import MOST, Sizes, Times

pytest_plugins = ["litejobs.testing.plugin", "tests.sql.fixture"]

# How long a job waits for its thread says how busy the machine is: it is given back,
# and leaves a line in its history, where no test has asked for that.
TIMES.prefetch_patience = 60.0
TIMES.loop_patience = 60.0

# Nor is a transaction given up because the machine is busy.
TIMES.longest_turn = 600.0

# Each test compiles the triggers of its own file; most of what that costs is to get
# memory and give it back. So each connection takes its memory at once, uncounted: 8 MB,
# of which a claim, a settlement, a tick and an enqueue need most.
apsw.shutdown()
apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, False)
apsw.config(apsw.SQLITE_CONFIG_LOOKASIDE, 512, 16_000)
apsw.initialize()

# It says the same of the same text, and is asked 200,000 times about some 500.
statements.plain_text = functools.lru_cache(2_000)(  # type: ignore[assignment]
    statements.plain_text
)


def _names_in(module: object) -> object:
    """Another one when names come to a module, or go.

    By this freezegun finds out whether to look through that module anew, for each one
    whenever it begins to hold the clock. All its names, in order, would cost it 10 ms.
    """
    names = getattr(module, "__dict__", None) or {}
    return id(module), len(names), next(reversed(names), None)


freezegun.api._get_module_attributes_hash = _names_in  # type: ignore[assignment]


MEMORY = Path("/dev/shm")  # on Linux, a file system without a disk
STDERR = pytest.StashKey[int]()  # a descriptor
ROOM = 2**31  # bytes that are free there; what tests leave goes at their ends


def has_memory() -> bool:
    """Whether the files of tests may be kept there: there is room, and programs run."""
    if sys.platform != "linux" or not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize >= ROOM and not (
        found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    )


def pytest_configure(config: pytest.Config) -> None:
    """Files lie in memory, and bytecode in pytest's cache if not beside its source.

    Each commit waits until the disk has it, some milliseconds, where there is a disk;
    whether SQLite asks for that is tested by file systems that tests make. And hundreds
    of processes are started here: each would compile all it imports anew.
    """
    if has_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # What tests print is caught later; there threads are to be seen all the same.
    config.stash[STDERR] = os.dup(2)
    if hasattr(config, "workerinput") and hasattr(os, "register_at_fork"):
        # A child has the pipe by which this process tells of its tests. Whoever reads
        # that waits for the child, too: for ever, if it waits for a lock that a thread
        # had which is not there.
        end_soon = functools.partial(signal.alarm, MOST)
        os.register_at_fork(after_in_child=end_soon)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has begun this in the background; programs of tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cache = getattr(config, "cache", None)
    if sys.dont_write_bytecode and cache is not None:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(cache.mkdir("bytecode"))
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        config.add_cleanup(_forget_programs_of_tests)
    # Not before: it is large, and compiled for all processes by the first one.
    import hypothesis

    # How long an example takes says how busy the machine is, too.
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Three processes share the tests on two cores, with `-n auto`.

    A third of their time they wait: for programs to start, locks, and real pauses. Each
    has its part in the order of the tests, so that most statements are prepared by one
    of them, and takes from the others when it is through.
    """
    if config.option.dist == "no":
        config.option.dist = "worksteal"
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(cores, cores * 3 // 2)


def _forget_programs_of_tests() -> None:
    """The bytecode of what tests wrote to their folders: no other run has the same."""
    for name in (tempfile.gettempdir(), os.environ.get("PYTEST_DEBUG_TEMPROOT")):
        if name is not None:
            folder = Path(name).resolve()
            mirrored = Path(str(sys.pycache_prefix), *folder.parts[1:])
            for each in mirrored.glob("pytest-of-*"):
                shutil.rmtree(each, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """While tests are collected all is kept: there is no garbage to search for."""
    gc.disable()
    try:
        _compile_a_share(session.config)
        return (yield)
    finally:
        gc.enable()


def _compile_a_share(config: pytest.Config) -> None:
    """Where several processes collect all tests, each begins with others of them.

    In a new checkout they would all compile the same modules at the same time.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not worker or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number, count = int(worker), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("test_*.py"))[number::count]:
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        # What is wrong with it is said when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of libraries are there in any case, and run where these are."""
    skip_where_missing(items)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item) -> None:
    """What ends a failed test, a fixture say, may take no longer than another test.

    With a failure pytest stops looking how long it takes, for there may be a debugger.
    What fails is just what may leave something behind that the end waits for.
    """
    seconds = float(node.config.getini("faulthandler_timeout") or 0)
    if seconds > 0 and not node.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(
            seconds, file=node.config.stash[STDERR], exit=True
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Long forms take as long as they need."""
    if item.get_closest_marker("torture") is not None:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_finish() -> None:
    """What was imported and collected stays, and is not searched for garbage again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def jobs() -> Iterator[LiteJobs]:
    """Jobs in memory, on the held clock."""
    jobs = LiteJobs(":memory:")
    yield jobs
    jobs.close()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run `litejobs ARGUMENTS…` in this process."""
    from litejobs.cli import main
    from tests.cli.calls import runner

    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    monkeypatch.setenv("LITEJOBS_UTC", "1")
    called = runner()

    def run(*arguments: object, **options: Any) -> Any:
        return called.invoke(main, [str(each) for each in arguments], **options)

    return run


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jobs file without jobs, closed; to be copied."""
    found = tmp_path_factory.mktemp("empty") / "jobs.db"
    LiteJobs(found).open().close()
    return found


@pytest.fixture
def file_jobs(empty_file: Path, tmp_path: Path) -> Iterator[LiteJobs]:
    """Jobs in a file, on the held clock."""
    jobs = LiteJobs(shutil.copy(empty_file, tmp_path / "jobs.db"))
    yield jobs
    jobs.close()


@pytest.fixture
def clock() -> Iterator[Any]:
    """The clock is held: 2026 begins, in UTC."""
    with freeze_time("2026-01-01T00:00:00Z") as frozen:
        yield frozen


@pytest.fixture
def times() -> Iterator[Times]:
    """Says how long runners wait until the test ends: `times(lock_pause=0.01)`."""
    with contextlib.ExitStack() as stack:

        def change(**seconds: float) -> None:
            stack.enter_context(other_times(**seconds))

        yield change


@pytest.fixture
def sizes() -> Iterator[Sizes]:
    """Says how much is done at once until the test ends: `sizes(most_at_once=5)`."""
    with contextlib.ExitStack() as stack:

        def change(**numbers: int) -> None:
            stack.enter_context(other_sizes(**numbers))

        yield change


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 5 MB in memory, where mounting one is permitted."""
    if sys.platform != "linux":
        pytest.skip("tmpfs is Linux")
    options = ["-t", "tmpfs", "-o", "size=5m", "tmpfs", str(tmp_path)]
    done = subprocess.run(
        ["mount", *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


# What was seen of the SQL, where processes share its tests ---------------------------

_told: list[dict[str, list[str]]] = []
_unseen: dict[str, list[str]] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that has run a share of the tests tells; the one that waits sums up."""
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        _sum_up(session)
        return
    whole = sys.modules.get("tests.sql.test_whole")
    if whole is not None and whole.is_whole(session):
        output["seen"] = {name: sorted(each) for name, each in vars(whole.SEEN).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of the processes has ended."""
    seen = getattr(node, "workeroutput", {}).get("seen")
    if seen is not None:
        _told.append(seen)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What no test has seen is named."""
    for what, names in _unseen.items():
        terminalreporter.write_line(f"FAILED: {what}: {', '.join(names)}", red=True)


def _sum_up(session: pytest.Session) -> None:
    if not _told:
        return
    from tests.sql import test_whole as whole

    for seen in _told:
        for name, names in seen.items():
            getattr(whole.SEEN, name).update(names)
    _unseen.update(
        {
            "no test saw these triggers act": whole.never_acted(),
            "no test saw these triggers held back": whole.never_held_back(),
            "no test saw these constraints refuse": whole.never_refused(),
        }
    )
    for what in [what for what, names in _unseen.items() if not names]:
        del _unseen[what]
    if _unseen:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
