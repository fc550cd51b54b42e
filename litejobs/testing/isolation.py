"""Each test has its own jobs files, without a change to the application.

`LiteJobs` objects stay as they are, with their tasks, schedules, middleware and
callbacks; what stands behind them is another file for as long as the isolation lasts.
It holds for the whole process, since runners, clients and pools have threads of their
own. Processes share nothing, so the workers of pytest-xdist cannot meet.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Literal, get_args

from litejobs._process import aside
from litejobs._process.clock import clock_is_held, held_clock, settable
from litejobs._process.timing import TIMES
from litejobs._runner.service import RunnerService, living_services
from litejobs._storage.database import Database
from litejobs._storage.files import MEMORY, plain_name
from litejobs._storage.statements import queries
from litejobs._storage.store import Store, opened_by
from litejobs.errors import ConfigurationError, FileRefused, LiteJobsError
from litejobs.testing.blocks import block

Mode = Literal["memory", "file"]

GRACE = 0.0  # seconds that tasks have to end which still run when a test ends


_NAMES = "litejobs-"  # how the names of our threads begin
# Those of the process, which belong to no object.
_LASTING = {"litejobs-reloader", "litejobs-service-manager"}
_active: list[Isolation] = []  # the last one counts
_changing = threading.RLock()
_templates: dict[str, str] = {}


class Isolation:
    """What `isolated` gives: the files that stand in for those of the application.

    `mode` is "memory" or "file".
    """

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self._lock = threading.Lock()
        self._in_memory: dict[object, Database] = {}
        self._paths: dict[object, str] = {}
        self._folder: str | None = None
        self._stack = contextlib.ExitStack()
        self._threads: set[threading.Thread] = set()
        self._kept: set[RunnerService] = set()
        # Objects that the test keeps no name of are looked into all the same.
        self._services: set[RunnerService] = set()
        self._opened: weakref.WeakSet[Store] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<litejobs isolation in {self.mode}>"

    def path_of(self, path: str | os.PathLike[str]) -> str:
        """Return which file stands in for *path*, or ":memory:".

        Raises:
            LiteJobsError: Nothing has been opened by that name here.
        """
        key = _key(os.fspath(path))
        if key in self._in_memory:
            return MEMORY
        try:
            return self._paths[key]
        except KeyError:
            raise LiteJobsError(
                f"no jobs file {os.fspath(path)!r} has been opened in this test"
            ) from None

    def has_opened(self, store: Store) -> bool:
        """Tell whether the file of this object was opened here, and may be so again."""
        return store in self._opened

    # Beginning and ending ---------------------------------------------------------

    def begin(self) -> None:
        """Set the files of all objects aside; see `isolated`."""
        with _changing, contextlib.ExitStack() as stack:
            self._threads = set(threading.enumerate())
            outer = _active[-1] if _active else None
            running = [each for each in living_services() if _runs(each)]
            if outer is None and running:
                raise LiteJobsError(
                    f"{running[0].store!r} runs jobs since before this test, so they "
                    "cannot be kept apart; start it in a fixture of the test, or "
                    "switch isolation on for the whole run: litejobs_isolation = memory"
                )
            # What a wider fixture has started goes on, on the file that it has.
            self._kept = set(running)
            if outer is not None:
                self._take_over(outer, running)
            stack.callback(self._remove_files)
            stack.callback(self._close_files)
            for service in living_services():
                if service not in self._kept:
                    stack.callback(service.set_aside())
            known = set(living_services())
            stack.callback(self._forget_new, known)
            stack.enter_context(opened_by(self._open))
            stack.callback(self._services.clear)
            stack.callback(self._close_objects)
            _active.append(self)
            stack.callback(_active.remove, self)
            self._stack = stack.pop_all()

    def end(self) -> None:
        """Stop all that runs, and put back what was set aside.

        Raises:
            LiteJobsError: A task goes on running, or a file was not closed.
        """
        with _changing:
            if _active and _active[-1] is not self:
                raise LiteJobsError(
                    "an isolation ends that is not the last one that began; end them "
                    "in turn"
                )
            self._stack.close()
        # Of a runner that goes on, there may be more threads than before.
        left = [] if self._kept else self._threads_left()
        if left:
            raise LiteJobsError(
                f"the test has ended and {', '.join(sorted(left))} still run: a task "
                "or a callback does not return; have it end, or wait for it in the test"
            )

    def _take_over(self, outer: Isolation, running: list[RunnerService]) -> None:
        for service in running:
            store = service.store
            key = _key_of(store)
            if key in outer._in_memory:
                self._in_memory[key] = outer._in_memory[key].share(
                    store.path, store.durability
                )
            elif key in outer._paths:
                self._paths[key] = outer._paths[key]

    def _close_objects(self) -> None:
        """Runners, outboxes and callbacks end, and event loops; with all of them."""
        with contextlib.ExitStack() as stack:
            for service in living_services():
                if service not in self._kept:
                    stack.callback(service.close)
                    stack.callback(service.stop, GRACE)

    def _forget_new(self, known: set[RunnerService]) -> None:
        """An object that was made meanwhile has nothing; the next test finds it new."""
        for service in living_services():
            if service not in known:
                service.set_aside()

    def _close_files(self) -> None:
        with self._lock, contextlib.ExitStack() as stack:
            for database in self._in_memory.values():
                stack.callback(database.release)
            self._in_memory = {}

    def _remove_files(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)

    def _threads_left(self) -> list[str]:
        """The names of our threads that were begun meanwhile and do not end."""
        ours = [
            each
            for each in threading.enumerate()
            if each not in self._threads
            and each.name.startswith(_NAMES)
            and each.name not in _LASTING
            and each is not threading.current_thread()
        ]
        for threads in (aside.threads, aside.readers):
            threads.end()
        for each in ours:
            each.join(TIMES.close_patience)
        return [each.name for each in ours if each.is_alive()]

    # Opening ----------------------------------------------------------------------

    def _open(self, store: Store) -> Database:
        key = _key_of(store)
        with self._lock:
            self._opened.add(store)
            self._services.update(
                each for each in living_services() if each.store is store
            )
            if store.is_as_is and key not in self._in_memory | self._paths:
                raise FileRefused(
                    f"{store.path} does not exist in this test, which has its own jobs "
                    "files; open it by a LiteJobs object first"
                )
            # What a wider fixture has is kept, however that was isolated.
            known = self._in_memory.get(key)
            path = self._paths.get(key)
            if known is None and path is None and self.mode == "memory":
                # The one for the isolation itself, so that it lasts until its end.
                known = self._in_memory[key] = store.open_at(MEMORY)
                _set_salt(known, len(self._in_memory))
            if known is not None:
                return known.share(store.path, store.durability)
            database = store.open_at(path or self._path(key, store))
            if path is None:
                _set_salt(database, len(self._paths))
            return database

    def _path(self, key: object, store: Store) -> str:
        """Where the new file of this key is, which is empty."""
        if self._folder is None:
            import tempfile

            self._folder = tempfile.mkdtemp(prefix="litejobs-test-")
        name = os.path.basename(store.path) if store.path != MEMORY else "jobs.db"
        folder = os.path.join(self._folder, str(len(self._paths)))
        os.mkdir(folder)
        path = os.path.join(folder, name)
        _copy_empty(store, path)
        self._paths[key] = path
        return path


def _key_of(store: Store) -> object:
    """What is one file: that of a path, or that of one object in memory."""
    return store if store.path == MEMORY else _key(store.path)


def _key(path: str) -> str:
    return os.path.realpath(plain_name(path))


def _runs(service: RunnerService) -> bool:
    runner = service.runner
    return (
        runner is not None and not runner.has_stopped() and runner.role != "elsewhere"
    )


def _set_salt(database: Database, salt: int) -> None:
    """What each file draws by lot, jitter say, is the same each time a test runs."""
    with database.transaction() as connection:
        connection.execute(queries()["set_salt"], {"salt": salt})


def _copy_empty(store: Store, path: str) -> None:
    """An empty jobs file: to copy one is quicker than to make it."""
    import shutil

    template = _templates.get(store.durability)
    if template is None or not os.path.exists(template):
        import atexit
        import tempfile

        folder = tempfile.mkdtemp(prefix="litejobs-empty-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        template = os.path.join(folder, "empty.db")
        store.open_at(template).release()
        _templates[store.durability] = template
    shutil.copyfile(template, path)
    os.chmod(path, 0o600)


# What tests call ----------------------------------------------------------------------


@block
def isolated(
    mode: Mode = "memory", *, clock: Literal["held", "real"] = "held"
) -> Iterator[Isolation]:
    """Give every `LiteJobs` object of the process a fresh file for a `with` block.

    Those of modules, too, and those made in the block, whatever path they have: objects
    with the same path see each other, in memory or, with *mode* "file", in a temporary
    file. What an object has registered stays. It may be closed and used again as often
    as the application does that, and finds what it had. At the end all is stopped,
    tasks that still run are interrupted, and the files are gone; each object has the
    file again that it had before.

    The *clock* is held in the block, and may be moved by `advance`, unless it is
    "real". Blocks may be within each other: what an outer one has started goes on.

    Raises:
        LiteJobsError: A runner runs already, outside of any such block; at the end, a
            task does not return.
        ConfigurationError: A value is none of these.
    """
    if mode not in get_args(Mode):
        raise ConfigurationError(
            f"mode={mode!r} is unknown; give 'memory' (the default) or 'file'"
        )
    if clock not in ("held", "real"):
        raise ConfigurationError(f"clock={clock!r} is unknown; give 'held' or 'real'")
    with contextlib.ExitStack() as stack:
        if clock == "held":
            if not clock_is_held():
                stack.enter_context(held_clock())
            stack.enter_context(settable())
        isolation = Isolation(mode)
        isolation.begin()
        stack.callback(isolation.end)
        yield isolation


def active_isolation() -> Isolation | None:
    """Return the isolation that counts now, the innermost one, or None."""
    return _active[-1] if _active else None
