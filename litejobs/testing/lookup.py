"""Which object a test means, and which files there are."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from litejobs._app import store_of
from litejobs._definitions.checks import did_you_mean, shown
from litejobs._runner.service import living_services
from litejobs._storage.files import MEMORY
from litejobs._tasks.task import BoundTask, Task
from litejobs.errors import ConfigurationError
from litejobs.testing.isolation import active_isolation

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._runner.service import RunnerService
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store

TaskLike = str | Task[..., Any] | BoundTask[..., Any] | Callable[..., Any]

# Jobs that `perform` has run: a test has made them, and not what it tests.
_performed: weakref.WeakKeyDictionary[Database, set[int]] = weakref.WeakKeyDictionary()


class Meant(NamedTuple):
    """A task that a test has named: what it is called, and where it is known."""

    name: str
    task: Task[..., Any] | None
    service: RunnerService | None


def meant(task: TaskLike, jobs: LiteJobs | None) -> Meant:
    """The task that is given by itself, by its function or by its name.

    Raises:
        ConfigurationError: No object has registered it.
    """
    if isinstance(task, BoundTask):
        raise ConfigurationError(
            "the task is given with options, which say nothing of one that is there; "
            "give the task itself, and queue= or run_at="
        )
    services = [
        service
        for service in living_services()
        if jobs is None or service.store is store_of(jobs)
    ]
    if isinstance(task, Task):
        for service in services:
            if service.store is task.store:
                return Meant(task.name, task, service)
        if jobs is not None:
            raise ConfigurationError(
                f"task {task.name!r} is one of another LiteJobs object than jobs=; "
                "leave that out, or give the name of the task"
            )
    known = [
        (name, each, service)
        for service in services
        for name, each in service.registry.tasks.items()
        if task is each or task is each.function or task == name
    ]
    if not known and not isinstance(task, str):
        raise ConfigurationError(
            f"task={shown(task)} is not a task; give one that @jobs.task has made, its "
            "function or its name"
        )
    if not known:
        # It may be that of another program.
        return Meant(str(task), None, None)
    # Objects of earlier tests may have it, too; those count whose files are open.
    here = [each for each in known if is_here(each[2].store)] or known[-1:]
    name, found, service = here[-1]
    if len(here) > 1:
        return Meant(name, None, None)
    return Meant(name, found, None if isinstance(task, str) else service)


def is_here(store: Store) -> bool:
    """Whether the file is open, or was so in this test and may be opened again."""
    isolation = active_isolation()
    return store.if_open is not None or (
        isolation is not None and isolation.has_opened(store)
    )


def to_run(task: TaskLike) -> Task[..., Any]:
    """The task that is given by itself, its function or its name, to be run.

    Raises:
        ConfigurationError: No object has registered it, or several have.
    """
    found = meant(task, None)
    if found.task is not None:
        return found.task
    if found.name in _names(None):
        raise ConfigurationError(
            f"several LiteJobs objects have a task {found.name!r}; give the task itself"
        )
    raise ConfigurationError(
        f"no LiteJobs object has a task {found.name!r}, so it cannot be run"
    )


def _names(jobs: LiteJobs | None) -> set[str]:
    return {
        each
        for service in living_services()
        if jobs is None or service.store is store_of(jobs)
        for each in service.registry.tasks
    }


def unknown(name: str, jobs: LiteJobs | None) -> str | None:
    """A sentence on a task that nobody knows, and what may have been meant."""
    names = _names(jobs)
    if name in names:
        return None
    near = did_you_mean(name, names).strip()
    return f"no LiteJobs object has a task {name!r}{near and f'; {near}'}"


def stores(jobs: LiteJobs | None, found: Meant | None) -> list[Store]:
    """The files in which jobs of the task may be, each once: those that are open.

    In an isolation also those that were, since to ask them opens no other file.
    """
    if jobs is not None:
        return [store_of(jobs)]
    if found is not None and found.service is not None:
        return [found.service.store]
    seen: dict[int, Store] = {}
    for service in living_services():
        store = service.store
        if is_here(store):
            seen.setdefault(id(store.database), store)
    return list(seen.values())


def last_jobs() -> dict[Database, int]:
    """The last job of each file that is there, for what is enqueued from now on.

    A file that exists and is not open yet is opened: it may have jobs.
    """
    found: dict[Database, int] = {}
    isolation = active_isolation()
    for service in living_services():
        store = service.store
        is_there = is_here(store)
        if isolation is None and not is_there and not store.is_closed:
            is_there = store.path != MEMORY and os.path.exists(store.path)
        if is_there:
            found[store.database] = store.run("count_enqueued")[0][0]
    return found


def note_performed(database: Database, job_id: int) -> None:
    """A test has made this job itself, by `perform`."""
    _performed.setdefault(database, set()).add(job_id)


def performed_in(database: Database) -> set[int]:
    """The jobs of the file that tests have made themselves."""
    return _performed.get(database, set())
