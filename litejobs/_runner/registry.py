"""What the code declares for one file: its tasks, their schedules, former names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import attrs

from litejobs._definitions.arguments import encode_arguments, given_arguments, parted
from litejobs._definitions.calls import Call
from litejobs._definitions.checks import check_name, name_text
from litejobs._definitions.columns import parameters_of
from litejobs._definitions.gates import check_not_renamed, direct_renames
from litejobs._definitions.registration import Declaration, Registration
from litejobs._definitions.retention import FILE, kept_rows
from litejobs._process import log
from litejobs._runner.declarations import (
    declare,
    declare_schedules,
    record_renames,
    record_retention,
)
from litejobs._schedules.plans import plan_declared, unplanned
from litejobs._tasks.flow import check_targets
from litejobs._tasks.task import Task
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._definitions.options import JobOptions
    from litejobs._definitions.redefinition import Place
    from litejobs._storage.database import Database


class Serving(Protocol):
    """A runner, as far as it has to know of tasks that come while it runs."""

    @property
    def id(self) -> int:
        """Its number in the file; 0 until it has begun."""

    def serve(self, task: str, signature: str) -> None:
        """Look for jobs of this task, too."""


class SetAside(NamedTuple):
    """What a file did not know yet, and what was declared, when another stood in."""

    unwritten: dict[str, Declaration | None]
    declared: dict[str, Declaration]


class Registry:
    """The tasks of one `LiteJobs` object, and which of them the file does not know yet.

    *renames* are the former names of tasks, and *retention* says how long things are
    kept in the file. *runner* gives the runner that serves the tasks now, or None.
    """

    def __init__(
        self,
        renames: Mapping[str, str] | None,
        runner: Callable[[], Serving | None],
        retention: Mapping[Any, Any] | None = None,
    ) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._runner = runner
        self._declarations: dict[str, Declaration] = {}
        self.unwritten: dict[str, Declaration | None] = {}
        """What the file does not know yet, by task; "" is what is said of all."""
        self._scheduled: dict[str, tuple[str, Place]] = {}
        self._renames = direct_renames(renames)
        self._retention = {} if retention is None else kept_rows("retention", retention)
        self._declare_of_all()

    # Declaring --------------------------------------------------------------------

    def add(self, task: Task[Any, Any], declaration: Declaration) -> None:
        """The task is known; it may take the place of itself, made anew.

        Raises:
            ConfigurationError: A value cannot work, or another function has the name.
        """
        declaration = attrs.evolve(
            declaration,
            signature=task.arguments_taken,
            parameters=task.parameters_text,
        )
        registration = declaration.registration()
        check_targets(task.name, registration.policies.values(), registration.steps)
        check_not_renamed(task.name, self._renames)
        task.check_keys(registration.row, f"task {task.name!r}: ")
        known = self.tasks.get(task.name)
        if known is not None:
            if not task.is_again(known):
                raise ConfigurationError(
                    f"task {task.name!r} is registered already, as "
                    f"{known.function!r}; give another name="
                )
            # Its schedules are declared after it, if they are declared anew.
            schedules = self._declarations[task.name].schedules
            declaration = attrs.evolve(declaration, schedules=schedules)
            log.info("task %r is registered anew, in place of before", task.name)
        self.tasks[task.name] = task
        self._declare(declaration)

    def add_schedule(self, task: str, row: dict[str, Any], here: Place) -> None:
        """The task has this schedule, which was declared *here*; a row as in the file.

        Raises:
            ConfigurationError: Another schedule has its name.
        """
        name = row["name"]
        self.check_unscheduled(task, row, here)
        self._scheduled[name] = (task, here)
        known = self._declarations[task]
        others = (each for each in known.schedules if each["name"] != name)
        self._declare(attrs.evolve(known, schedules=(*others, row)))

    def check_unscheduled(self, task: str, row: dict[str, Any], here: Place) -> None:
        """Refuse the name of another schedule; the same one may be declared anew.

        Raises:
            ConfigurationError: Another schedule has its name.
        """
        name = row["name"]
        if name not in self._scheduled:
            return
        owner, there = self._scheduled[name]
        alike = (
            owner in self._declarations and row in self._declarations[owner].schedules
        )
        if owner != task or not (alike or here.was_run_again(there)):
            raise ConfigurationError(
                f"schedule {name!r} is declared already, for task "
                f"{owner!r}; give this one of task {task!r} "
                "another name="
            )

    def declare_again(self) -> None:
        """The file knows nothing of what was declared; it is written into it again."""
        self.unwritten.update(self._declarations)
        self._declare_of_all()

    def set_aside(self) -> SetAside:
        """The file is another one, which knows nothing; what the one before knew."""
        before = SetAside(dict(self.unwritten), dict(self._declarations))
        self.declare_again()
        return before

    def bring_back(self, before: SetAside) -> None:
        """The file is that again which was set aside: it lacks what it lacked, and new.

        A schedule that was given to a task meanwhile is new, too.
        """
        lacking = {
            name: declared
            for name, declared in self._declarations.items()
            if name in before.unwritten or before.declared.get(name) is not declared
        }
        self.unwritten.clear()
        if "" in before.unwritten:
            self.unwritten[""] = None
        self.unwritten.update(lacking)

    def _declare_of_all(self) -> None:
        if self._renames or self._retention:
            self.unwritten[""] = None

    def _declare(self, declaration: Declaration) -> None:
        name = declaration.name
        self._declarations[name] = self.unwritten[name] = declaration

    def registrations(self) -> list[Registration]:
        """All tasks as rows, as a runner puts them into the file."""
        return [each.registration() for each in self._declarations.values()]

    def executor_of(self, task: str) -> str | None:
        """Return the executor that the code names for this task, if it names one."""
        declaration = self._declarations.get(task)
        return None if declaration is None else declaration.options.get("executor")

    def code_at(self) -> int | None:
        """Return when the newest source of a task was changed, in milliseconds."""
        from litejobs._process.source_age import newest_source_ms

        return newest_source_ms(
            function for task in self.tasks.values() for function in task.functions()
        )

    def call(
        self,
        task: str,
        arguments: Mapping[str, Any] | Sequence[Any],
        options: JobOptions,
    ) -> Call[Any]:
        """See `LiteJobs.call`."""
        columns, after = parameters_of(options)
        known = self.tasks.get(name_text("task", task))
        if known is None:
            check_name("task", task)
            return Call(task, encode_arguments(task, arguments), columns, after)
        known.check_keys(options)
        places, names = parted(given_arguments(task, arguments))
        return Call(task, known.bind(tuple(places), names), columns, after)

    def kept_below(self, max_bytes: int | None) -> int | None:
        """Return below how many bytes the code keeps the file; None if it says nothing.

        Raises:
            ConfigurationError: No new job is taken before anything is deleted for it.
        """
        size = self._retention.get(FILE, {}).get("bytes")
        if size is not None and max_bytes and size >= max_bytes:
            raise ConfigurationError(
                f"retention['file']={size} is not below max_size={max_bytes}, so new "
                "jobs would be refused before any that has ended is deleted; give less"
            )
        return size

    # Writing ----------------------------------------------------------------------

    def write(self, database: Database) -> None:
        """The file knows everything that was declared so far, and the runner, too."""
        unwritten = dict(self.unwritten)
        tasks = {name: each for name, each in unwritten.items() if each is not None}
        registrations = [each.registration() for each in tasks.values()]
        runner = self._runner()
        number = None if runner is None else runner.id or None
        with database.transaction() as db:
            declare(db, registrations)
            declare_schedules(db, registrations, number)
            if "" in unwritten:
                record_renames(db, self._renames)
                record_retention(db, self._retention)
            waiting = unplanned(db, registrations)
        plan_declared(database, registrations, waiting)
        if not database.in_transaction():
            # In a transaction of the caller it may yet be rolled back: again next time.
            for name, declaration in unwritten.items():
                # Another thread may have declared a schedule of it meanwhile: put back.
                # Without a lock, which an interrupted thread could leave behind.
                found = self.unwritten.pop(name, declaration)
                if found is not declaration:
                    self.unwritten.setdefault(name, found)
        if runner is not None:
            for name in tasks:
                runner.serve(name, self.tasks[name].arguments_taken())
