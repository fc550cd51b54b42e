"""LiteJobs: the object that users hold."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

import apsw
import attrs

from litejobs import _batch, _context, _json, _log, _loop, _outcome
from litejobs._again import Functions, Place, place
from litejobs._batch import CallLike
from litejobs._clock import stopwatch
from litejobs._columns import parameters_of
from litejobs._coroutines import EventLoopThread
from litejobs._database import Database, fetched
from litejobs._dispatch import Callback, Dispatcher
from litejobs._files import MEMORY
from litejobs._flow import Flow, GivenStep, check_targets, policies_of, steps_of
from litejobs._fork import parent_only
from litejobs._job import Job, check_limit, no_result_yet, read_result
from litejobs._limits import Parents, check_not_renamed, direct_renames
from litejobs._lock import MemoryLock, RunnerLock
from litejobs._options import (
    FLOW,
    JOB,
    TASK,
    FlowOptions,
    JobOptions,
    ScheduleOptions,
    TaskOptions,
    check_names,
    listed,
)
from litejobs._runner import (
    DEFAULT_GRACE,
    HELD_POLL,
    POLL,
    Runner,
    names_of_queues,
)
from litejobs._sql import queries
from litejobs._states import STATES
from litejobs._task import (
    Call,
    Declaration,
    Registration,
    Task,
    check_name,
    encode_arguments,
)
from litejobs._time import duration_ms, instant_ms
from litejobs._together import enqueue_together
from litejobs.errors import (
    Closed,
    ConfigurationError,
    ConstraintViolated,
    InvalidTransition,
    JobExists,
    JobNotFound,
    LiteJobsError,
    RunnerActive,
)

# What only some programs use is imported where it is used.
if TYPE_CHECKING:
    import datetime as dt
    import signal

    from litejobs._acts import Act, OpenAct
    from litejobs._cron import Cron, Every
    from litejobs._model import Attempt, Block, JobSnapshot, LogLine, Measures
    from litejobs._outbox import Outbox
    from litejobs._outbox_table import Paramstyle
    from litejobs._policy import Duration
    from litejobs._schedules import ScheduleDecorator, Schedules
    from litejobs._steering import Circuits, Facts, Keys, Queues, Tiers

    Signals = list[signal.Signals]

P = ParamSpec("P")
R = TypeVar("R")

State = Literal[
    "scheduled",
    "blocked",
    "pending",
    "processing",
    "failed",
    "completed",
    "dead_lettered",
    "cancelled",
]
EndedState = Literal["completed", "dead_lettered", "cancelled"]
Durability = Literal["full", "fast"]
Middleware = Callable[[_context.Current, Callable[[], Any]], Any]
_CHUNK = 1000
_CHUNK_SIZE = 2**18  # characters

# Named here, since inside the class `list` is a method.
Rows = list[dict[str, Any]]
Snapshots = list["JobSnapshot"]
Attempts = list["Attempt"]
LogLines = list["LogLine"]
Blocks = list["Block"]
Acts = list["Act"]
Registrations = list[Registration]
Ids = list[int]
Jobs = list[Job[Any]]


class _TaskDecorator(Protocol):
    """What `@jobs.task(...)` returns: typed for plain and for async functions."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class LiteJobs:
    """Durable background jobs in one SQLite file.

    The constructor touches nothing; the first use, or `open()`, creates the file or
    upgrades it. Objects on the same file within a process share one writer.

    *durability* "full" (the default) makes every commit survive a power cut; "fast"
    may lose the last commits in a power cut, and runs such jobs again, but never loses
    anything when only the process dies. *allow_network* permits a network file system,
    where locks cannot be trusted. *renames* are the former names of tasks: jobs of an
    old name, stored already or coming from older programs, become jobs of the new one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = MEMORY,
        *,
        durability: Durability = "full",
        allow_network: bool = False,
        renames: Mapping[str, str] | None = None,
    ) -> None:
        if durability not in {"full", "fast"}:
            raise ConfigurationError(
                f"durability={durability!r} is unknown; give 'full' or 'fast'"
            )
        self._path = os.fspath(path)
        self._durability: Durability = durability
        self._allow_network = allow_network
        self._database: Database | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._options: dict[str, Declaration] = {}
        self._undeclared: dict[str, Declaration] = {}
        self._scheduled: dict[str, tuple[str, Place]] = {}
        self._renames = direct_renames(renames)
        self._undeclared_renames = dict(self._renames)
        self._middleware: Functions[Middleware] = Functions()
        self._extractors: Functions[_outcome.Extractor] = Functions()
        self._origin = "api"
        self._as_is = False
        self._dispatcher = Dispatcher(self)
        self._coroutines = EventLoopThread()
        self._runner: Runner | None = None
        self._outboxes: list[Outbox] = []

    def __repr__(self) -> str:
        return f"LiteJobs({self._path!r})"

    @property
    def path(self) -> str:
        """The path as it was given."""
        return self._path

    # Opening and closing ----------------------------------------------------------

    def open(self) -> Self:
        """The file exists, is at today's schema, and knows the tasks and schedules.

        Raises:
            FileRefused: The file cannot be used; it was not changed.
            DatabaseBusy: Another process holds its lock.
        """
        self._database_now()
        return self

    def close(self) -> None:
        """The runner has stopped, the file is closed; the object cannot be used again.

        Running tasks have the runner's grace period. Closing twice does nothing.
        """
        if _context.is_run_by(self):
            raise LiteJobsError(
                "close() was called by a task that this object runs; call it where the "
                "runner was started"
            )
        self.stop()
        self._dispatcher.close()
        self._coroutines.close()
        for outbox in self._outboxes:
            outbox.close()
        with self._opening:
            database, self._database = self._database, None
            self._closed = True
        if database is not None:
            database.release()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _database_now(self) -> Database:
        """The open database, with everything declared so far written into it."""
        database = self._database
        if database is None:
            with self._opening:
                if self._closed:
                    raise Closed(f"{self!r} was closed; make a new LiteJobs object")
                if self._database is None:
                    self._database = self._opened()
                database = self._database
        if self._undeclared or self._undeclared_renames:
            self._declare(database)
        return database

    def _opened(self) -> Database:
        database = Database.of(
            self._path,
            self._durability,
            allow_network=self._allow_network,
            as_is=self._as_is,
        )
        try:
            # Before anybody can use it.
            self._dispatcher.begin(database)
        except BaseException:
            database.release()
            raise
        return database

    def _declare(self, database: Database) -> None:
        undeclared = dict(self._undeclared)
        registrations = [each.registration() for each in undeclared.values()]
        runner = 0 if self._runner is None else self._runner.id
        with database.transaction() as db:
            _loop.declare(db, registrations)
            _loop.declare_schedules(db, registrations, runner or None)
            _loop.record_renames(db, self._undeclared_renames)
            unplanned = _loop.unplanned(db, registrations)
        _loop.plan_declared(database, registrations, unplanned)
        if not database.in_transaction():
            # In a transaction of the caller it may yet be rolled back: again next time.
            self._undeclared_renames = {}
            for name, declaration in undeclared.items():
                # Another thread may have declared a schedule of it meanwhile.
                if self._undeclared.get(name) is declaration:
                    del self._undeclared[name]
        if self._runner is not None:
            for name in undeclared:
                self._runner.serve(name)

    # Tasks ------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> _TaskDecorator: ...
    @listed(TaskOptions)
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """The function is a task that jobs can name: `@jobs.task` or `@jobs.task(...)`.

        Its name is the function's, unless *name* says otherwise. The options are the
        defaults of its jobs. *max_attempts* counts all attempts, *timeout* and
        *expires_in* are durations: seconds, "1h30m" or a timedelta.

        Jobs with the same *concurrency_key* share a limit: *concurrency_limit* of them
        run at once (1 if neither it nor a rate is given), and they start as fast as
        *rate* allows, such as "10/1m". The key may be a template: "host:{host}" is one
        key for each value of that argument; one that was left out is an empty text.
        Without a key, limit and rate are the task's. *circuit*, a template likewise,
        holds jobs back after failures, see `Circuit`. All facts in *require* have to be
        true (`jobs.facts`). A job that still waits *expires_in* after it became due is
        cancelled.

        The same function may be registered again: it and its options then take the
        place of those before, also in a runner that runs. That is a cell of a notebook
        that is run again, or a module that is reloaded.

        Raises:
            ConfigurationError: A value cannot work, or another function has the name.
        """
        check_names("LiteJobs.task()", options, TASK)

        def register(function: Callable[..., Any]) -> Task[Any, Any]:
            chosen = name if name is not None else getattr(function, "__name__", "")
            declaration = Declaration(name=chosen, options=options)
            task: Task[Any, Any] = Task(self, function, chosen)
            self._register(task, declaration)
            return task

        return register if function is None else register(function)

    @listed(FlowOptions)
    def flow(
        self, name: str, steps: Sequence[GivenStep], **options: Unpack[FlowOptions]
    ) -> Flow:
        """A job of several steps, run one after the other: labels and functions.

        A step is called with those of the job's arguments that it names, and, where
        it has parameters of these names, with `prev` (the result of the step before),
        `ctx` and `iter`. Attempts, limits and budget count for each step anew; each
        end of a step is one commit, so that no finished step runs again after a kill.
        A third value of a step is a Policy or a Retry of its own, which takes the
        place of the flow's. After *max_jumps* jumps (10,000 if not given) the job is
        dead-lettered. Otherwise as `task`; declared again by the same module, it takes
        the place of what it was before.

        Raises:
            ConfigurationError: A value cannot work, or the name is taken.
        """
        check_names("LiteJobs.flow()", options, FLOW)
        steps = tuple(steps)
        made = steps_of(name, steps)
        declaration = Declaration(
            name=name,
            options=options,
            steps=tuple(step.label for step in made),
            step_policies=policies_of(name, steps),
        )
        flow = Flow(self, name, made)
        self._register(flow, declaration)
        return flow

    def _register(self, task: Task[Any, Any], declaration: Declaration) -> None:
        registration = declaration.registration()
        check_targets(task.name, registration.policies.values(), registration.steps)
        check_not_renamed(task.name, self._renames)
        if not isinstance(task, Flow):
            task._check_templates(registration)
        known = self._tasks.get(task.name)
        if known is not None:
            if not task.is_again(known):
                raise ConfigurationError(
                    f"task {task.name!r} is registered already, as "
                    f"{known.function!r}; give another name="
                )
            # Its schedules are declared after it, if they are declared anew.
            schedules = self._options[task.name].schedules
            declaration = attrs.evolve(declaration, schedules=schedules)
            _log.info("task %r is registered anew, in place of before", task.name)
        self._tasks[task.name] = task
        self._options[task.name] = declaration
        self._undeclared[task.name] = declaration
        if self._runner is not None:
            self._database_now()

    @listed(ScheduleOptions)
    def schedule(
        self,
        when: Cron | Every,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """The task runs by itself: `@jobs.schedule(cron("0 9 * * MON-FRI"))`.

        It decorates a task, or a function, which is then a task with the defaults.
        *name* is the task's if not given; each further schedule of a task needs one of
        its own. Each job has these *args* and *kwargs*, and these options.

        Instants that were missed, because no runner was there or the computer slept:
        with *misfire* "one" the newest of them runs, with "all" the newest
        *misfire_limit* (100 if not given) do, and with "skip" none does. Those that
        are late by more than *grace* never run (with "skip", by more than a minute).
        When one comes while an earlier job has not ended: *overlap* "allow" runs both,
        "skip" leaves it out, "queue" lets up to *max_waiting* (1) wait, and
        "cancel_running" cancels the earlier ones.

        *jitter* puts each instant off by up to this duration, always by the same.
        There are none before *start_at* and after *end_at*, and no more than
        *max_runs* jobs.

        Schedules are written into the file when it is opened and when a runner
        begins. One that a person has changed (`jobs.schedules`) stays as it is, and
        whether it is paused is never changed. One that is taken out of the code goes
        on, which the runner logs, until it is paused or removed.

        Raises:
            ConfigurationError: A value cannot work, the time never comes, or the name
                is taken.
            ArgumentError: The arguments do not fit the task or are no JSON.
        """
        from litejobs._schedule import (  # noqa: PLC0415
            arguments_text,
            columns_of,
            declared_row,
            row_of,
        )

        columns = columns_of({"when": when, **options})

        def register(given: Any) -> Task[Any, Any]:
            task = self._task_of(given)
            chosen = task.name if name is None else name
            text = arguments_text(task, args, kwargs)
            row = declared_row(row_of(chosen, task.name, text, columns))
            here = place()
            self._check_unscheduled(chosen, task, row, here)
            if task is not given:
                self._register(task, Declaration(name=task.name))
            self._scheduled[chosen] = (task.name, here)
            known = self._options[task.name]
            others = (each for each in known.schedules if each["name"] != chosen)
            declaration = attrs.evolve(known, schedules=(*others, row))
            self._options[task.name] = self._undeclared[task.name] = declaration
            if self._runner is not None:
                self._database_now()
            return task

        return register

    def _task_of(self, given: object) -> Task[Any, Any]:
        """The task itself, or one of the function, which is not registered yet."""
        if isinstance(given, Task):
            from litejobs._schedules import own_task  # noqa: PLC0415

            return own_task(self, given)
        if not callable(given):
            raise ConfigurationError(
                f"{given!r:.80} cannot be scheduled; decorate a function or a task, "
                "and give options such as queue= to jobs.schedule(…)"
            )
        return Task(self, given, getattr(given, "__name__", ""))

    def _check_unscheduled(
        self, name: str, task: Task[Any, Any], row: dict[str, Any], here: Place
    ) -> None:
        """Refuse the name of another schedule; the same one may be declared anew."""
        if name not in self._scheduled:
            return
        owner, there = self._scheduled[name]
        alike = owner in self._options and row in self._options[owner].schedules
        if owner != task.name or not (alike or here.was_run_again(there)):
            raise ConfigurationError(
                f"schedule {name!r} is declared already, for task "
                f"{owner!r}; give this one of task {task.name!r} "
                "another name="
            )

    def extractor(self, function: _outcome.Extractor) -> _outcome.Extractor:
        """*function* is asked what rules should know of an exception: a dict, or None.

        What it returns is merged into the outcome of the attempt: {"aws": {"code":
        "Throttled"}} can be asked for as `outcome.aws.code`. An extractor that raises
        is logged, and the exception counts as it is.
        """
        self._extractors.add(function)
        return function

    @property
    def tasks(self) -> dict[str, Task[Any, Any]]:
        """The tasks registered with this object, by name."""
        return dict(self._tasks)

    def middleware(self, wrapper: Middleware) -> Middleware:
        """*wrapper* is around every task's run: `def w(current, run): return run()`.

        The one added first is the outermost. What it raises counts as raised by the
        task.
        """
        self._middleware.add(wrapper)
        return wrapper

    @overload
    def on(self, event: str, callback: Callback) -> Callback: ...
    @overload
    def on(self, event: str) -> Callable[[Callback], Callback]: ...
    def on(self, event: str, callback: Callback | None = None) -> Any:
        """*callback* is told, after the commit, of jobs that came into this state.

        *event* is one of the states, or "*" for all. It gets an `Event`, in a thread of
        its own, while a runner of this object runs, and in `drain()`. What it raises is
        logged.

        It hears, once, what happens from now on, or from the opening of the file if
        that is later, whoever did it: also what became of jobs before the runner was
        started, and what that finds (a job that killed its process, one that expired).
        A standby hears what happens from when it takes over.

        Raises:
            ConfigurationError: There is no such state.
        """
        if callback is None:
            return lambda function: self.on(event, function)
        self._dispatcher.add(event, callback, self._database)
        return callback

    # Enqueueing -------------------------------------------------------------------

    @listed(JobOptions)
    def enqueue(
        self,
        task: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        **options: Unpack[JobOptions],
    ) -> Job[Any]:
        """A job for the task of this name is stored, whoever will run it.

        The task need not be registered in this process; if it is, the arguments are
        bound against its signature. The job of an unknown task waits until a runner
        registers it. Options as in `Task.using`, otherwise as `Task.enqueue`.
        """
        check_names("LiteJobs.enqueue()", options, JOB)
        return self._store(self.call(task, arguments, **options))

    @listed(JobOptions)
    def call(
        self,
        task: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        **options: Unpack[JobOptions],
    ) -> Call[Any]:
        """A job of the task of this name as a value, for `enqueue_many`."""
        check_names("LiteJobs.call()", options, JOB)
        columns, after = parameters_of(options)
        known = self._tasks.get(task)
        if known is None:
            check_name("task", task)
            return Call(task, encode_arguments(task, arguments), columns, after)
        bind = known._bind
        if isinstance(arguments, Mapping):
            return Call(task, bind((), dict(arguments)), columns, after)
        encode_arguments(task, arguments)
        return Call(task, bind(tuple(arguments), {}), columns, after)

    def enqueue_many(self, calls: Iterable[Call[Any]]) -> Ids:
        """All of them are stored in one transaction, or none; their ids, in order.

        Calls come from `task.call(…)`, `task.using(…).call(…)` or `jobs.call(…)`.
        """
        with self._database_now().transaction() as db:
            return enqueue_all(db, calls)

    def enqueue_chain(self, chain: Iterable[CallLike]) -> Jobs:
        """Each call is a job that waits for the one before, and is given its result.

        `jobs.enqueue_chain(fetch.call(url).then(parse).then(store.call(kind="x")))`:
        all are stored in one transaction, or none; the jobs, the first one first. The
        result of the job before is `current().prev`, and what a parameter called `prev`
        is given. If one of them fails for good, those behind it are cancelled, unless
        they say otherwise (`on_parent_failure`).
        """
        return _batch.enqueue_chain(self, chain)

    def batch(
        self,
        name: str | None = None,
        *,
        on_complete: CallLike | None = None,
        on_success: CallLike | None = None,
        on_failure: CallLike | None = None,
    ) -> contextlib.AbstractContextManager[_batch.Batch]:
        """Jobs that belong together: `with jobs.batch(on_success=report) as batch: …`.

        Add jobs with `batch.enqueue(task, …)`, `batch.enqueue_many(calls)` or
        `task.using(batch=batch).enqueue(…)`. The batch, its jobs and its callbacks are
        stored together at the end of the block, or not at all if it raises: the block
        is a `transaction()`, so do not await in it, and keep it short.

        A callback is a task without arguments, `task.using(…)` or `task.call(…)`, and
        becomes a job when all jobs of the batch have ended: *on_complete* in any case,
        *on_success* if all are completed, *on_failure* if one of them is not. A batch
        without jobs succeeds at once. Other jobs can wait for it, too: `after=[batch]`.

        Raises:
            ConfigurationError, ArgumentError: A callback cannot be enqueued.
        """
        return _batch.opened(self, name, on_complete, on_success, on_failure)

    @property
    def batches(self) -> _batch.Batches:
        """The batches in the file: `jobs.batches[7]`, `jobs.batches.list()`."""
        return _batch.Batches(self)

    def transaction(self) -> contextlib.AbstractContextManager[apsw.Connection]:
        """An immediate transaction on the jobs file: your own rows, and enqueued jobs.

        The block gets the apsw connection that writes to the file. Everything in it,
        `enqueue` included, is committed at its end, or rolled back if it raises. Other
        writers wait meanwhile, so keep it short.
        """
        return self._database_now().transaction()

    def reader(self) -> contextlib.AbstractContextManager[apsw.Connection]:
        """A connection that reads the file, without waiting for those who write.

        For the application's own tables and for litejobs' views. Do not keep it, or a
        cursor of it, beyond the block: an open read keeps the file's log growing.
        """
        return self._database_now().reader()

    def outbox(
        self,
        connect: Callable[[], Any],
        *,
        table: str = "litejobs_outbox",
        poll: Duration = "1s",
        paramstyle: Paramstyle | None = None,
    ) -> Outbox:
        """Deliver jobs that the application writes into a table of its own database.

        See `Outbox`: the application inserts into *table* in its own transaction, with
        any driver; *connect* opens a DB-API connection to its database. It is delivered
        while a runner of this object runs, every *poll* and when its `wake()` is
        called, and by `drain()`.
        """
        from litejobs._outbox import Outbox  # noqa: PLC0415

        outbox = Outbox(self, connect, table=table, poll=poll, paramstyle=paramstyle)
        self._outboxes.append(outbox)
        if self._runner is not None:
            outbox.start()
        return outbox

    def _open_outboxes(self) -> Iterator[Outbox]:
        return (outbox for outbox in self._outboxes if not outbox.closed)

    def _store(self, call: Call[R]) -> Job[R]:
        if call.unique_key is None and not call.after:
            return self._store_new(call.parameters())
        with self._database_now().transaction() as db:
            return Job(self, _enqueue_one(db, call))

    def _store_new(self, parameters: tuple[Any, ...]) -> Job[Any]:
        """As `_store`, where no unique key can make it an older job."""
        database = self._database
        if database is None or self._undeclared:
            database = self._database_now()
        job_id = database.write("enqueue_job", parameters, enqueue_together)
        if job_id is None:
            raise _dropped(parameters[0])
        return Job(self, job_id)

    async def _astore(self, call: Call[R]) -> Job[R]:
        if self._database_now().in_transaction():
            return self._store(call)
        import asyncio  # noqa: PLC0415

        return await asyncio.to_thread(self._store, call)

    # Looking ----------------------------------------------------------------------

    def get(self, job_id: int) -> Job[Any]:
        """The job with this id.

        Raises:
            JobNotFound: There is none.
        """
        try:
            row = self._row(job_id)
        except OverflowError:  # no number that the file could hold
            row = None
        if row is None:
            raise JobNotFound(f"there is no job {job_id!r} in {self._path}")
        return Job(self, job_id)

    def list(
        self,
        *,
        state: State | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Snapshots:
        """Snapshots of jobs, the newest first; *before* an id, for the next page."""
        check_limit(limit)
        if state is not None and state not in STATES:
            raise ConfigurationError(
                f"state {state!r} is unknown; give one of {', '.join(sorted(STATES))}"
            )
        query = "list_jobs"
        if state in {"dead_lettered", "cancelled"}:
            query = "list_ended_badly"
        parameters = {
            "state": state,
            "queue": queue,
            "task": task,
            "before": before,
            "limit": limit,
        }
        from litejobs._model import snapshot_of  # noqa: PLC0415

        return [snapshot_of(row) for row in self._rows(query, parameters)]

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state that has any."""
        return dict(self._database_now().run("count_states"))

    def _rows(self, query: str, parameters: Any) -> Rows:
        with self._database_now().reader() as connection:
            names, rows = fetched(connection, queries()[query], parameters)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _row(self, job_id: int) -> dict[str, Any] | None:
        rows = self._rows("get_job", {"id": job_id})
        return rows[0] if rows else None

    def _attempts(self, job_id: int) -> Attempts:
        from litejobs._model import attempt_of  # noqa: PLC0415

        rows = self._rows("list_attempts", {"id": job_id})
        return [attempt_of(row) for row in rows]

    def _blocks(self, job_id: int) -> Blocks:
        from litejobs._model import block_of  # noqa: PLC0415

        rows = self._rows("explain_job", {"id": job_id})
        return [block_of(row) for row in rows]

    def _result(self, job_id: int, timeout: float | None) -> Any:
        database = self._database_now()
        if database.in_transaction():
            raise LiteJobsError(
                f"job {job_id} cannot end while this thread's own transaction is open; "
                "ask for its result after the block"
            )
        step = HELD_POLL if database.clock_is_held else POLL
        changed = threading.Event()
        database.listen(changed.set)
        waited = 0.0
        try:
            while True:
                changed.clear()
                ended, result = self._look_for_result(job_id)
                if ended:
                    return result
                if timeout is not None and waited >= timeout:
                    raise no_result_yet(job_id, result, timeout)
                pause = step if timeout is None else min(step, timeout - waited)
                if not changed.wait(pause):
                    waited += pause
        finally:
            database.unlisten(changed.set)

    async def _aresult(self, job_id: int) -> Any:
        """As `_result`, without a thread: woken by commits, or looks now and then."""
        database = self._database_now()
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(changed.set)

        step = HELD_POLL if database.clock_is_held else POLL
        database.listen(notify)
        try:
            while True:
                changed.clear()
                ended, result = self._look_for_result(job_id)
                if ended:
                    return result
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), step)
        finally:
            database.unlisten(notify)

    def _look_for_result(self, job_id: int) -> tuple[bool, Any]:
        """Whether the job has ended, and its result, or else its state."""
        rows = self._database_now().run("job_outcome", {"id": job_id})
        if not rows:
            raise JobNotFound(f"job {job_id} is not in the file (any more)")
        state, outcome, _, stopped_by, task, ended = rows[0]
        if not ended:
            return False, state
        return True, read_result(job_id, state, outcome, task, stopped_by)

    def events(
        self, *, job_id: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogLines:
        """Lines of the log in their order, from the one *after*; of one job or of all.

        One move of a job can be several lines: an attempt ended, its policy was
        evaluated, the job ended. Acts of people are among them, with their origin.
        """
        from litejobs._model import log_line_of  # noqa: PLC0415

        check_limit(limit)
        query = "list_events" if job_id is None else "list_job_events_after"
        rows = self._rows(query, {"job_id": job_id, "after": after, "limit": limit})
        return [log_line_of(row) for row in rows]

    def measures(self) -> Measures:
        """How well retries serve, over all that the file remembers."""
        from litejobs._model import Measures  # noqa: PLC0415

        [row] = self._rows("measures", None)
        return Measures(**row)

    def backup(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """The file *path* is a copy of the jobs file, as it was when this began.

        One plain file, complete and checked, which its owner alone may read; never a
        part of one under that name. The application and the runner go on meanwhile. An
        existing file is only replaced with *overwrite*.

        Jobs that run at that moment are open in the copy: a runner that is started on
        it takes them for crashed, and runs them again.

        Raises:
            FileRefused: The copy cannot be written there, or is not to be.
            DatabaseFull: There is no room for it; nothing of it is left.
            CorruptDatabase: The jobs file is damaged; no copy was kept.
        """
        from litejobs import _backup  # noqa: PLC0415 - seldom

        database = self._database_now()
        if database.in_transaction():
            raise LiteJobsError(
                "backup() was called inside a transaction, of which it would see "
                "nothing; call it after the block"
            )
        with database.reader() as source:
            _backup.copy(
                source,
                path,
                real=None if database.path == MEMORY else database.path,
                overwrite=overwrite,
            )

    # Acts -------------------------------------------------------------------------

    def act(
        self,
        name: str,
        detail: str | None = None,
        *,
        undoable: bool = True,
        command: int | None = None,
    ) -> contextlib.AbstractContextManager[OpenAct]:
        """What is changed in the block is one act: stored together, undone together.

        `with jobs.act("pause", "queue mail"): jobs.pause("mail")`. *name* and *detail*
        are for people; the block gets the act, whose `detail` may be set until its end.
        The block is a `transaction()`: if it raises, nothing is stored, so keep it
        short and do not await in it. An act within an act is part of it, and one that
        changes nothing leaves no trace. `undo` takes it back; not what is deleted in
        it, and not one that says it is not *undoable*, which is remembered only.

        What is too much for one transaction is several acts, one after the other, of
        which each but the first names that as its *command*, by its id. They are listed
        one by one, and undone together. One that left no trace is no first one.

        What is recorded: jobs that are enqueued, cancelled, requeued or run now, and
        the settings of queues, keys, tiers, facts, circuits and schedules.

        Raises:
            ConfigurationError: *name* or *detail* cannot be stored.
        """
        from litejobs import _acts  # noqa: PLC0415

        return _acts.opened(self, name, detail, undoable=undoable, command=command)

    def undo(self, act_id: int | None = None) -> Act:
        """The act is taken back: what it changed is again as it was. The act.

        That is the last one that is done and not undone, if none is named. Everything
        is taken back or nothing: where anything of it has moved on since (a job was
        started, somebody else changed the setting), it is refused.

        With an act go the others of its command, the last one first, each in a
        transaction of its own; the one that is returned is the first of them. Those
        that are refused are left, and the message says which acts were taken back,
        which were not, and why; to call it again tries those that are left. Inside a
        transaction of the caller's it is all of them or none.

        Raises:
            ActNotFound: There is no such act, or none to undo.
            ConstraintViolated: It cannot be undone, or not all of its command; the
                message says what is in the way, and whether anything was changed.
        """
        from litejobs import _acts  # noqa: PLC0415

        return _acts.undone(self, act_id)

    def acts(self, limit: int = 50) -> Acts:
        """What people have done, the last act first, and whether it can be undone."""
        from litejobs import _acts  # noqa: PLC0415

        check_limit(limit)
        return _acts.listed(self, limit)

    # Steering ---------------------------------------------------------------------

    def pause(self, queue: str) -> None:
        """No job of the queue is claimed any more; those that run go on."""
        self._pause(queue, 1)

    def resume(self, queue: str) -> None:
        """Jobs of the queue are claimed again."""
        self._pause(queue, 0)

    def _pause(self, queue: str, paused: int) -> None:
        check_name("queue", queue)
        with self._database_now().transaction() as db:
            db.execute(
                queries()["pause_queue"],
                {"name": queue, "paused": paused, "origin": self._origin},
            )

    @property
    def queues(self) -> Queues:
        """The queues by name: `jobs.queues["mail"].set(max_running=4)`."""
        from litejobs._steering import Queues  # noqa: PLC0415

        return Queues(self)

    @property
    def keys(self) -> Keys:
        """The concurrency keys by name: `jobs.keys["host:x"].set(max_running=2)`."""
        from litejobs._steering import Keys  # noqa: PLC0415

        return Keys(self)

    @property
    def circuits(self) -> Circuits:
        """The circuits by name: `jobs.circuits["host:x"].state`, `.reset()`."""
        from litejobs._steering import Circuits  # noqa: PLC0415

        return Circuits(self)

    @property
    def facts(self) -> Facts:
        """What is so at the moment, by name: `jobs.facts["online"] = False`."""
        from litejobs._steering import Facts  # noqa: PLC0415

        return Facts(self)

    @property
    def tiers(self) -> Tiers:
        """Which priorities start only now and then.

        `jobs.tiers.set(-100, "30s")`, and `jobs.tiers.set(0, "1ms")` for all above.
        """
        from litejobs._steering import Tiers  # noqa: PLC0415

        return Tiers(self)

    @property
    def schedules(self) -> Schedules:
        """The schedules by name: `jobs.schedules["report"].next_at`, `.create(…)`."""
        from litejobs._schedules import Schedules  # noqa: PLC0415

        return Schedules(self)

    def _change(self, query: str, job_id: int) -> bool:
        with self._database_now().transaction() as db:
            parameters = {"id": job_id, "origin": self._origin}
            return bool(db.execute(queries()[query], parameters).fetchall())

    def _requeue(self, job_id: int) -> None:
        if not self._change("requeue_job", job_id):
            raise InvalidTransition(
                f"job {job_id} is {self.get(job_id).state} and has not ended, so there "
                "is nothing to requeue; run_now() puts one that waits in line",
                "invalid_transition",
            )

    def requeue_all(
        self,
        *,
        state: Literal["dead_lettered", "cancelled", "completed"] = "dead_lettered",
        task: str | None = None,
        queue: str | None = None,
        stopped_by: str | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        limit: int = 1_000_000,
    ) -> Ids:
        """Ended jobs are back in line; their ids.

        Those in this *state*, of this *task* and *queue*, *stopped_by* this reason,
        that ended from *since* to *until*; the oldest first, up to *limit*. A job whose
        unique key another one has by now stays where it is, and so does one that was
        cancelled because of another one that is requeued.

        Which they are is read once, and then they are requeued in many short
        transactions, between which others get their turns. If one fails, those before
        it stay requeued. Inside a `transaction()`, or an `act()`, all is part of it.
        """
        check_limit(limit)
        if state not in ("dead_lettered", "cancelled", "completed"):
            raise ConfigurationError(
                f"state={state!r} cannot be requeued; give 'dead_lettered', "
                "'cancelled' or 'completed'"
            )
        from litejobs._many import change  # noqa: PLC0415 - seldom needed

        states = json.dumps([state])
        parameters = {
            "act": "requeue",
            "states": states,
            "task": task,
            "queue": queue,
            "stopped_by": stopped_by,
            "since": None if since is None else instant_ms(since, name="since"),
            "until": None if until is None else instant_ms(until, name="until"),
            "text": None,
            "limit": limit,
        }
        ids = [row["id"] for row in self._rows("choose_jobs", parameters)]
        done = change(self, "requeue", ids, states)
        return sorted(job_id for some in done for job_id in some)

    def purge(
        self,
        *,
        older_than: Duration | None,
        states: Iterable[EndedState] = ("completed", "cancelled"),
        task: str | None = None,
        queue: str | None = None,
        vacuum: bool = False,
    ) -> int:
        """Ended jobs are deleted, with their attempts and what the log has of them.

        Those in one of these *states*, of this *task* and *queue*, that ended at least
        *older_than* (a duration) ago, None for all until now. One whose key still holds
        (`unique_for`) stays. How many were deleted; the log has one line about it.

        With the last job that needs them go lanes, keys, circuits and batches; without
        *task* and *queue* also what people did until then (`acts`), and what the log
        says of it. A key that has used up its rate, and a circuit that is not closed,
        are remembered somewhat longer.

        That is done by transactions of at most 500 jobs, with a pause after each, so
        that other work goes on. If the process dies, what was deleted stays deleted.
        What is deleted is overwritten in the file, and the write-ahead log is cut at
        the end. But copies that SQLite has left behind where it moved rows to another
        page, a few in a thousand, stay until their room is used, and the file does not
        become smaller: with *vacuum* it is then written anew, while everybody else
        waits.

        Raises:
            ConfigurationError: A state in which no job has ended, say.
            LiteJobsError: It was called inside a transaction.
        """
        from litejobs._purge import purge, selection  # noqa: PLC0415

        chosen = selection(states, older_than, task, queue)
        return purge(self, chosen, vacuum=vacuum)

    # Running ----------------------------------------------------------------------

    def start(
        self,
        *,
        threads: int = 4,
        grace: Duration = DEFAULT_GRACE,
        standby: bool = False,
        queues: Iterable[str] | None = None,
    ) -> Runner:
        """A runner runs the jobs in the background, until `stop()`.

        *threads* tasks run at once. On `stop()` and at the end of the program running
        tasks have *grace* (a duration, in real time) to end. With *standby* it waits
        until the runner of another process has ended. With *queues* it runs the jobs
        of these queues alone; the others wait for a runner that runs them, and since
        there is one runner per file, that is a later one.

        Raises:
            RunnerActive: Another runner works on the file.
        """
        runner = self._new_runner(threads, grace, queues)
        try:
            started = runner.start(standby=standby)
        except BaseException:
            # One that was interrupted may stop yet, and is waited for by `stop`.
            if runner.has_stopped():
                self._runner = None
            raise
        if not started:
            return runner
        self._dispatcher.start(self._database_now())
        for outbox in self._open_outboxes():
            outbox.start()
        return runner

    def stop(self, grace: Duration | None = None) -> None:
        """The runner of this object, if any, has stopped and settled all it had.

        Called by a task of that runner, it only asks it to stop.
        """
        runner = self._runner
        if runner is not None:
            for outbox in self._outboxes:
                outbox.request_stop()
            runner.stop(
                None if grace is None else duration_ms(grace, name="grace") / 1000
            )
            if not runner.has_stopped():
                return
            self._runner = None
            for outbox in self._outboxes:
                outbox.stop()
            self._dispatcher.close()

    @contextlib.contextmanager
    def running(
        self,
        *,
        threads: int = 4,
        grace: Duration = DEFAULT_GRACE,
        standby: bool = False,
        queues: Iterable[str] | None = None,
    ) -> Iterator[Runner]:
        """Within the block a runner runs the jobs in the background; see `start`."""
        runner = self.start(
            threads=threads, grace=grace, standby=standby, queues=queues
        )
        try:
            yield runner
        finally:
            self.stop()
            runner.stop()  # also where a task has asked for it, and did not wait

    def run_forever(
        self,
        *,
        threads: int = 4,
        grace: Duration = DEFAULT_GRACE,
        standby: bool = False,
        queues: Iterable[str] | None = None,
    ) -> None:
        """Run jobs until SIGTERM or SIGINT; a second signal ends the grace period.

        Signals are handled if this is the main thread; elsewhere it ends by `stop()`.
        With *queues* jobs of these queues alone are run; see `start`.
        """
        runner = self._new_runner(threads, grace, queues)
        with _signals() as caught:
            try:
                if runner.start(standby=standby, stop=lambda: bool(caught)):
                    _log.info("runner started with %d threads", threads)
                    self._dispatcher.start(self._database_now())
                    for outbox in self._open_outboxes():
                        outbox.start()
                    while not (caught or runner.wait_stopped(0.1)):
                        pass
            finally:
                self._runner = None
                self._end_run(runner, caught, duration_ms(grace, name="grace") / 1000)

    def _end_run(self, runner: Runner, caught: Signals, grace: float) -> None:
        """The runner and all around it have stopped; a second signal hurries them."""
        runner.request_stop()
        if caught:
            # Said when it is true: whoever reads this may let a running job end, and
            # none may start in its place.
            _log.info("%s: stopping; running jobs have %g s", caught[0].name, grace)
        for outbox in self._outboxes:
            outbox.request_stop()
        hurried = False
        while not runner.wait_stopped(0.1):
            if len(caught) > 1 and not hurried:
                hurried = True
                _log.warning("%s again: stopping at once", caught[1].name)
                runner.shorten_grace(0)
        for outbox in self._outboxes:
            outbox.stop()
        self._dispatcher.close()

    def drain(self, *, limit: int = 1_000_000) -> int:
        """Everything due has run, here and now, in this thread; how many attempts.

        For tests and scripts. Jobs that become due meanwhile are run too, and those in
        outboxes. Time limits do not interrupt a task, since it runs in the calling
        thread.

        Raises:
            RunnerActive: A runner works on the file, perhaps that of this object.
            LiteJobsError: *limit* attempts have run and there is still more to do.
        """
        self._refuse_in_transaction()
        if self._runner is not None:
            raise RunnerActive(
                "a runner of this object runs the jobs; wait for it with "
                "runner.wait_idle(), or use drain() without it",
                os.getpid(),
            )
        from litejobs._drain import Drain  # noqa: PLC0415

        self._deliver()
        count = Drain(self).run(limit)
        # Tasks may have put something into an outbox in their turn.
        while self._deliver():
            count += Drain(self).run(limit - count)
        return count

    def _deliver(self) -> int:
        return sum(outbox.deliver() for outbox in self._open_outboxes())

    def _new_runner(
        self, threads: int, grace: Duration, queues: Iterable[str] | None
    ) -> Runner:
        self._refuse_in_transaction()
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ConfigurationError(
                f"threads={threads!r} runs nothing; give 1 or more"
            )
        if self._runner is not None:
            raise RunnerActive(
                "a runner of this object runs the jobs already; stop it first",
                os.getpid(),
            )
        seconds = duration_ms(grace, name="grace") / 1000
        names = None if queues is None else names_of_queues(queues)
        self._dispatcher.begin(self._database_now())
        self._runner = Runner(self, threads=threads, grace=seconds, queues=names)
        return self._runner

    def _refuse_in_transaction(self) -> None:
        database = self._database_now()
        # First of all, or a child would be told what is true of its parent.
        database.check_process()
        if database.in_transaction():
            raise LiteJobsError(
                "jobs cannot be run inside a transaction, which may be rolled back; "
                "start the runner, or drain, after the block"
            )

    def _runner_lock(self) -> RunnerLock | MemoryLock:
        database = self._database_now()
        return (
            MemoryLock(database.runs)
            if self._path == MEMORY
            else RunnerLock(database.path)
        )

    def _declarations(self) -> Registrations:
        return [each.registration() for each in self._options.values()]

    def _current(
        self,
        assignment: _loop.Assignment,
        report: Callable[[_context.Current], None],
    ) -> _context.Current:
        return _context.Current(
            job_id=assignment.job_id,
            attempt_id=assignment.attempt_id,
            attempt=assignment.attempt,
            start_no=assignment.start_no,
            task=assignment.task,
            queue=assignment.queue.decode(errors="replace"),
            database=self._database_now(),
            owner=self,
            report=report,
            step=_step_of(assignment),
            ctx=assignment.ctx,
            iter=assignment.iter,
            prev=assignment.prev,
            prev_not_stored=assignment.prev_not_stored,
        )

    def _run_attempt(
        self, assignment: _loop.Assignment, context: _context.Current
    ) -> str:
        """The outcome document of the attempt, whatever the task raises."""
        begun = stopwatch()
        try:
            task = self._tasks.get(assignment.task)
            if task is None:
                return _outcome.not_retryable(
                    "unknown_task", f"no task {assignment.task!r} is registered here"
                )
            steps = task.steps if isinstance(task, Flow) else {None: None}
            if context.step not in steps:
                return _outcome.not_retryable(
                    "unknown_step",
                    f"task {assignment.task!r} has no step {context.step!r} here",
                )
            try:
                arguments = _json.decode(assignment.args.decode())
            except (ValueError, LiteJobsError) as error:
                return _outcome.not_retryable("bad_arguments", str(error))
            with _context.running(context), parent_only():
                value = self._call(task, arguments, context)
        except BaseException as error:
            if (
                isinstance(error, KeyboardInterrupt)
                and threading.current_thread() is threading.main_thread()
            ):
                # In drain(): Ctrl-C ends the program, not the job.
                context.keyboard_interrupt = True
                return _outcome.of_interruption("Ctrl-C")
            return _outcome.of_error(
                error,
                _ran_ms(begun),
                stopping=context.stopping,
                extractors=self._extractors,
            )
        return _outcome.of_result(value, _ran_ms(begun), lost=context.say_not_stored)

    def _call(
        self, task: Task[Any, Any], arguments: Any, context: _context.Current
    ) -> Any:
        def run() -> Any:
            is_async = task.is_async
            if isinstance(task, Flow):
                step = task.steps[context.step or ""]
                is_async = step.is_async
                named = step.arguments(task.named(arguments), context)
                with parent_only():
                    value = step.function(**named)
            elif isinstance(arguments, dict):
                named = task._with_prev((), arguments, context)
                with parent_only():
                    value = task.function(**named)
            else:
                named = task._with_prev(arguments, {}, context)
                with parent_only():
                    value = task.function(*arguments, **named)
            if is_async:
                return context.await_result(self._coroutines.submit(value))
            return value

        for wrapper in reversed(self._middleware):
            run = _wrapped(wrapper, context, run)
        return run()


def enqueue_all(db: apsw.Connection, calls: Iterable[Call[Any]]) -> Ids:
    """All calls are jobs, in order; the caller has begun the transaction.

    Of a run of calls that differ in their arguments alone, the first finds the lane or
    makes it; the others are then whole rows that one statement writes.
    """
    known = queries()
    ids: Ids = []
    first: Call[Any] | None = None
    alike: list[str] = []
    size = 0
    waiting: dict[int, Parents] = {}

    def flush() -> None:
        nonlocal size
        if alike and first is not None:
            # JSON within JSON, without a text around each: it has not to be read twice.
            parameters = (first.task, *first.options, f"[{','.join(alike)}]")
            rows: Any = db.execute(known["enqueue_alike"], parameters)
            found = sorted([number for (number,) in rows])
            if len(found) < len(alike):
                raise _dropped(first.task)
            ids.extend(found)
            alike.clear()
            size = 0

    for call in calls:
        if (
            first is not None
            and call.options is first.options
            and call.task == first.task
        ):
            if call.after:
                waiting[len(ids) + len(alike)] = call.after
            alike.append(call.args)
            size += len(call.args)
            if len(alike) >= _CHUNK or size > _CHUNK_SIZE:
                flush()
            continue
        flush()
        job_id, is_new = _insert(db, call)
        if call.after and is_new:
            waiting[len(ids)] = call.after
        ids.append(job_id)
        first = None if call.unique_key is not None else call
    flush()
    # Last, since the others of a run do not wait for what its first one waits for.
    db.executemany(
        known["record_dependency"],
        ((ids[place], *parent) for place, after in waiting.items() for parent in after),
    )
    return ids


def _enqueue_one(db: apsw.Connection, call: Call[Any]) -> int:
    job_id, is_new = _insert(db, call)
    if is_new:
        known = queries()["record_dependency"]
        for parent in call.after:
            try:
                db.execute(known, (job_id, *parent))
            except apsw.ConstraintError as error:
                if "unknown_parent:" not in str(error):
                    raise
                raise _unknown_parent(*parent) from error
    return job_id


def _unknown_parent(job_id: int | None, batch_id: int | None) -> ConstraintViolated:
    which = f"batch {batch_id}" if job_id is None else f"job {job_id}"
    return ConstraintViolated(
        f"unknown_parent: there is no {which} to wait for; give the id of one that is "
        "in the file",
        "unknown_parent",
    )


def _insert(db: apsw.Connection, call: Call[Any]) -> tuple[int, bool]:
    """The id of the job, and whether it is new; what it waits for is left out."""
    for _ in range(3):
        taken = None
        row = None
        try:
            row = db.execute(queries()["enqueue_job"], call.parameters()).get
        except apsw.ConstraintError as error:
            if not str(error).startswith(("unique_key_taken:", "irreplaceable:")):
                raise
            taken = error
        if row is not None:
            return int(row), True
        # The same unique key: the job that has it is handed back. If none has it any
        # more, its time was over between the two statements.
        row = db.execute(queries()["find_by_unique_key"], (call.unique_key,)).get
        if row is not None and (
            "irreplaceable:" in str(taken) or (call.after and call.replaces)
        ):
            raise JobExists(
                f"job {row} has the unique key {call.unique_key!r}, and what it waits "
                "for, its batch and its chain are not replaced; ask without them, or "
                "cancel that job first",
                int(row),
            ) from taken
        if row is not None and taken is not None:
            raise JobExists(
                f"job {row} has the unique key {call.unique_key!r}; wait until the key "
                "is free, or ask for that job itself, with the conflict 'ignore'",
                int(row),
            ) from taken
        if row is not None:
            return int(row), False
    raise _dropped(call.task)


def _dropped(task: str) -> ConstraintViolated:
    return ConstraintViolated(
        f"a job of task {task!r} was dropped, though no job has its unique key; "
        "look for a trigger of your own on litejobs_job"
    )


def _wrapped(
    wrapper: Middleware, context: _context.Current, run: Callable[[], Any]
) -> Callable[[], Any]:
    return lambda: wrapper(context, run)


def _step_of(assignment: _loop.Assignment) -> str | None:
    step = assignment.step
    return None if step is None else step.decode(errors="replace")


def _ran_ms(begun: float) -> int:
    return max(0, int((stopwatch() - begun) * 1000))


@contextlib.contextmanager
def _signals() -> Iterator[Signals]:
    """Within the block SIGTERM and SIGINT are put into the list, in the main thread.

    The handler does nothing else: it may run in the middle of anything the main thread
    does, so a lock that it took, or a line that it logged, could wait for itself.
    """
    import signal  # noqa: PLC0415

    caught: Signals = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {
        number: signal.signal(
            number, lambda number, _: caught.append(signal.Signals(number))
        )
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield caught
    finally:
        for number, old in before.items():
            signal.signal(number, old)
