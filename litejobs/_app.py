"""LiteJobs: the object that users hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

import apsw
import attrs

from litejobs._control import batch as _batch
from litejobs._control.enqueue import (
    JobIds,
    enqueue,
    enqueue_all,
    enqueue_in_chunks,
)
from litejobs._control.hearing import Hearing
from litejobs._control.job import Job
from litejobs._control.past import Past
from litejobs._control.upkeep import Upkeep
from litejobs._definitions.callables import check_hook
from litejobs._definitions.calls import Call, CallLike
from litejobs._definitions.checks import check_not_reserved, shown
from litejobs._definitions.options import (
    FLOW,
    JOB,
    SCHEDULE,
    TASK,
    FlowOptions,
    JobOptions,
    ScheduleOptions,
    TaskOptions,
    check_names,
    listed,
)
from litejobs._definitions.redefinition import place
from litejobs._definitions.registration import Declaration
from litejobs._executors.registered import Executors
from litejobs._executors.registering import Registering
from litejobs._process.timing import DEFAULT_GRACE
from litejobs._runner.awaiting import Awaiting
from litejobs._runner.companions import Companions
from litejobs._runner.driving import Driving
from litejobs._runner.execution import Execution, Middleware
from litejobs._runner.listeners import Callback
from litejobs._runner.registry import Registry
from litejobs._runner.run_again import Origin
from litejobs._runner.service import ForeverOptions, RunnerService, RunOptions
from litejobs._simulation.foresight import Foresight
from litejobs._storage.files import MEMORY
from litejobs._storage.store import Durability, Store
from litejobs._tasks import outcome
from litejobs._tasks.flow import Flow, GivenStep, policies_of, steps_of
from litejobs._tasks.task import AsyncTask, Task, TaskDecorator, name_of, new_task
from litejobs._values.states import EndedState
from litejobs.errors import ConfigurationError, LiteJobsError

# What only some programs use is imported where it is used.
if TYPE_CHECKING:
    import datetime as dt

    from litejobs._control.operations import Operation
    from litejobs._control.queues import Circuits, Facts, Keys, Queues, Tiers
    from litejobs._control.records import JobSnapshot, Measures, Waiting
    from litejobs._definitions.policy import Duration
    from litejobs._definitions.retention import Kept, KeptKind
    from litejobs._executors.interface import TaskExecutor
    from litejobs._outbox.delivery import Outbox
    from litejobs._outbox.table import Paramstyle
    from litejobs._runner.runner import Runner
    from litejobs._runner.running import Running
    from litejobs._schedules.backups import Backups
    from litejobs._schedules.collection import ScheduleDecorator, Schedules
    from litejobs._schedules.cron import Cron, Every
    from litejobs._storage.database import Database

BACKUP = "litejobs.backup"  # the task, and as a rule the schedule

P = ParamSpec("P")
R = TypeVar("R")

# Named here, since inside the class `list` is a method.
Snapshots = list["JobSnapshot"]
Reasons = list["Waiting"]
Ids = list[int]
Jobs = list[Job[Any]]


class LiteJobs(Past, Hearing, Upkeep, Driving, Awaiting, Foresight, Registering):
    """Durable background jobs in one SQLite file.

    The constructor touches nothing; the first use, or `open()`, creates the file or
    upgrades it. Objects on the same file within a process share one writer. A relative
    path leads to where it did here, wherever the process goes. A file with several
    names (hard links) is opened by one of them alone, which it knows.

    *durability* "full" (the default) makes every commit survive a power cut; "fast"
    may lose the last commits in a power cut, and runs such jobs again, but never loses
    anything when only the process dies. *allow_network* permits a network file system,
    where locks cannot be trusted. *renames* are the former names of tasks: jobs of an
    old name, stored already or coming from older programs, become jobs of the new one.
    *timezone* (an IANA name, or "local") is that of cron expressions to which none is
    given; without it, those mean UTC.

    With *max_size* (bytes, or a text as "500MB"; 0: no limit) the file takes no new
    job as soon as what it uses comes to that, for whoever asks (`FileFull`); what goes
    on goes on: retries, chains, batches and their callbacks, what is steered, settled
    or purged. What is due then is skipped (`file_full`). The runner finds how large the
    file is. Without, the file keeps what it was told before. Where the application has
    tables of its own in the file, these would count as well, and the limit is refused
    unless *max_size_shared* says that it is meant so.

    *retention* says how long the file keeps jobs that are "completed", "cancelled" or
    "dead_lettered", what people did ("operation") and what the log says of no job
    ("event"): a duration, None for ever, 0 not at all, or `{"age": "7d", "most":
    10_000}`. What is not named stays as the file has it, in a new one 7 days, 7 days,
    for ever, 30 days and 30 days; what a person has set in the file (`retention`) is
    not changed. The runner deletes when it has nothing else to do. Of a job that has
    not ended the newest 1,000 attempts are kept, or so many as *keep_attempts* says
    (`"attempt"` in *retention*; None: all). With `"file":
    "400MB"` it deletes those that ended first, however short ago, while the file uses
    more, but none that is kept for ever.

    *executors*, by name, run the tasks and the queues that name one, in place of the
    runner's threads; see `litejobs.executors`.

    Raises:
        ConfigurationError: A value cannot work; the message says what is allowed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = MEMORY,
        *,
        durability: Durability = "full",
        allow_network: bool = False,
        renames: Mapping[str, str] | None = None,
        timezone: str | None = None,
        max_size: int | str | None = None,
        max_size_shared: bool = False,
        retention: Mapping[KeptKind, Duration | Kept | None] | None = None,
        keep_attempts: int | EllipsisType | None = ...,
        executors: Mapping[str, TaskExecutor] | None = None,
    ) -> None:
        self._executors = Executors(executors)
        self._max_bytes: int | None = None
        if max_size is not None:
            from litejobs._definitions.file_size import bytes_of

            self._max_bytes = bytes_of(max_size, name="max_size")
        self._limits_shared = max_size_shared
        self._timezone = "UTC"
        if timezone is not None:
            from litejobs._schedules.cron import checked_zone

            self._timezone = checked_zone(timezone)
        if keep_attempts is not ...:
            retention = {**(retention or {}), "attempt": keep_attempts}
        self._registry = Registry(renames, lambda: self._service.runner, retention)
        self._kept_bytes = self._registry.kept_below(self._max_bytes)
        self._backups: Backups | None = None
        self._use(Store(path, durability=durability, allow_network=allow_network))

    def _use(self, store: Store) -> None:
        self._store = store
        origin = Origin(self, store.path)
        self._execution = Execution(store, self._registry.tasks)
        self._companions = Companions(store)
        self._execution.begins = self._companions.attempt_begins
        self._service = RunnerService(
            *(store, self._registry, self._execution, self._companions),
            executors=self._executors,
            origin=origin,
        )
        store.execution = self._execution
        store.unwritten = self._registry.unwritten
        store.write_declared = self._registry.write
        store.declare_again = self._registry.declare_again
        store.opened = self._opened

    def _opened(self, database: Database) -> None:
        """The file is open, and nobody has used it yet."""
        self._service.replace_callbacks()
        self._companions.begin(database)
        if self._max_bytes is not None:
            from litejobs._storage.room import limit_size

            most, shared = self._max_bytes, self._limits_shared
            database.with_room(lambda: limit_size(database, most, shared=shared))
        if self._kept_bytes is not None and not self._limits_shared:
            from litejobs._storage.room import check_own

            what = f"retention['file']={self._kept_bytes}"
            check_own(database, what, "max_size_shared=True")

    def __repr__(self) -> str:
        return f"LiteJobs({self.path!r})"

    @property
    def path(self) -> str:
        """The path as it was given."""
        return self._store.given

    # Opening and closing ----------------------------------------------------------

    def open(self) -> Self:
        """Open the file: create or upgrade it, and write tasks and schedules into it.

        Raises:
            FileRefused: The file cannot be used; it was not changed.
            DatabaseBusy: Another process holds its lock.
        """
        _ = self._store.database
        return self

    def close(self) -> None:
        """Stop the runner and close the file; this object cannot be used again.

        Running tasks have the runner's grace period. Closing twice does nothing.
        """
        if self._execution.is_caller():
            raise LiteJobsError(
                "close() was called by a task that this object runs; call it where the "
                "runner was started"
            )
        self._service.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Tasks ------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator: ...
    @listed(TaskOptions)
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Register a function as a task: `@jobs.task` or `@jobs.task(...)`.

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

        *keep* says how long jobs are kept that were completed or cancelled, in place
        of what the file says: a duration, or `{"completed": "1d", "dead_lettered":
        "90d"}`. With 0 they go ten to twenty seconds after their end, when those who
        wait for the result have it.

        The same function may be registered again: it and its options then take the
        place of those before, also in a runner that runs. That is a cell of a notebook
        that is run again, or a module that is reloaded.

        Raises:
            ConfigurationError: A value cannot work, or another function has the name.
        """
        check_names("LiteJobs.task()", options, TASK)

        def register(function: Callable[..., Any]) -> Task[Any, Any]:
            chosen = name_of(function, name)
            check_not_reserved(chosen)
            declaration = Declaration(name=chosen, options=options)
            task = new_task(self._store, function, chosen)
            self._register(task, declaration)
            return task

        return register if function is None else register(function)

    @listed(FlowOptions)
    def flow(
        self, name: str, steps: Sequence[GivenStep], **options: Unpack[FlowOptions]
    ) -> Flow:
        """Register a flow: labelled functions that run one after the other as one job.

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
        check_not_reserved(name)
        if isinstance(steps, Iterable):
            steps = tuple(steps)
        made = steps_of(name, steps)
        declaration = Declaration(
            name=name,
            options=options,
            steps=tuple(step.label for step in made),
            step_policies=policies_of(name, steps, options.get("crash_delay")),
        )
        flow = Flow(self._store, name, made)
        self._register(flow, declaration)
        return flow

    def _register(self, task: Task[Any, Any], declaration: Declaration) -> None:
        options = declaration.options
        if task.is_async:
            # Now, and not beside the event loop, which would wait 10 ms for its turn.
            import litejobs._runner.runner  # noqa: F401 - whoever runs it finds it
        if task.is_async and options.get("executor") is None:
            options = {**options, "executor": self._executors.for_coroutines()}
            declaration = attrs.evolve(declaration, options=options)
        self._executors.check(options.get("executor"), task)
        self._registry.add(task, declaration)
        self._write_if_running()

    def _write_if_running(self) -> None:
        if self._service.runner is not None:
            _ = self._store.database

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
        """Run a task at certain times: `@jobs.schedule(cron("0 9 * * MON-FRI"))`.

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
            ArgumentError: The arguments do not fit the task or are not JSON.
        """
        from litejobs._schedules.collection import declaration_of, task_of
        from litejobs._schedules.schedule import columns_of

        columns = columns_of({"when": when, **options}, self._timezone)

        def register(given: Any) -> Any:
            task = task_of(self._store, given)
            row = declaration_of(task, name, args, kwargs, columns)
            here = place()
            self._registry.check_unscheduled(task.name, row, here)
            if task is not given:
                self._register(task, Declaration(name=task.name))
            self._registry.add_schedule(task.name, row, here)
            self._write_if_running()
            return task

        return register

    @listed(ScheduleOptions)
    def schedule_backup(
        self,
        folder: str | os.PathLike[str],
        when: Cron | Every,
        *,
        keep: int = 7,
        name: str = BACKUP,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Back the jobs file up into *folder* at certain times, and keep the newest.

        `jobs.schedule_backup("/mnt/usb", cron("0 3 * * *"), keep=14)`. Each is a job of
        the task `litejobs.backup`, and does what `backup` does: `app-backup-STAMP.db`,
        with the time in UTC, is complete and checked when it has that name. Then the
        oldest beyond *keep* are deleted: only what has such a name, and is a copy of
        this file. Of times that were missed one is made up for; while one is being
        made, no other is begun.

        It is a schedule as any other: `jobs.schedules["litejobs.backup"]`,
        `litejobs schedules`. Each further one needs a *name*, which is in the names of
        its files: letters, digits, `.`, `_` and `-`. *options* are as in `schedule`.
        The folder has to be there when a backup is made; a job that fails is retried.
        Where and how many is known from the code alone, and not from the file.

        Raises:
            ConfigurationError: A value cannot work, or the name is taken.
        """
        from litejobs._schedules import backups

        check_names("LiteJobs.schedule_backup()", options, SCHEDULE)
        place_of_it = backups.Backup.of(folder, keep, name)
        if self._backups is None:
            self._backups = backups.Backups(self._store)
        task = self._registry.tasks.get(BACKUP)
        if task is None:
            task = Task(self._store, self._backups.make, BACKUP)
            self._register(task, Declaration(name=BACKUP))
        options.setdefault("overlap", "skip")
        arguments = place_of_it.arguments()
        self.schedule(when, name=name, kwargs=arguments, **options)(task)
        self._backups.known[name] = place_of_it

    def extractor(self, function: outcome.Extractor) -> outcome.Extractor:
        """Register *function* to tell rules about an exception: a dict, or None.

        What it returns is merged into the outcome of the attempt: {"aws": {"code":
        "Throttled"}} can be asked for as `outcome.aws.code`. An extractor that raises
        is logged, and the exception counts as it is.
        """
        check_hook("the extractor", function, ("error",))
        self._execution.extractors.add(function)
        return function

    @property
    def tasks(self) -> dict[str, Task[Any, Any]]:
        """The tasks registered with this object, by name."""
        return dict(self._registry.tasks)

    def middleware(self, wrapper: Middleware) -> Middleware:
        """Put *wrapper* around each task's run: `def w(current, run): return run()`.

        The one added first is the outermost. What it raises counts as raised by the
        task. One that is a coroutine, `async def w(current, run): return await run()`,
        runs in the event loop of coroutines. Where all are, so do these; within one
        that is not, each runs in a thread of its own, which waits for it.
        """
        check_hook("middleware", wrapper, ("current", "run"), may_await=True)
        self._execution.middleware.add(wrapper)
        return wrapper

    @overload
    def on(
        self, event: str, callback: Callback, *, cursor: str | None = None
    ) -> Callback: ...
    @overload
    def on(
        self, event: str, *, cursor: str | None = None
    ) -> Callable[[Callback], Callback]: ...
    def on(
        self,
        event: str,
        callback: Callback | None = None,
        *,
        cursor: str | None = None,
    ) -> Any:
        """Call *callback* with each such `Event`, after its commit, whoever did it.

        *event* is a state that jobs come into, "*" for all of these, or "progress".
        Each process calls those that it has, whether it runs jobs or not, in a thread
        of litejobs' own, one after the other, as long as the file is open here. While a
        test holds the clock, that is done by who runs the jobs: `drain()`, a runner.
        Of an attempt that ran in this process it is called in a copy of its context
        (`contextvars`), and else in one of who runs the jobs.

        Without *cursor* it hears, once, what happens from now on, or from the opening
        of the file if that is later; what it raises is logged. With the name of a
        cursor it hears what has happened since that name was first used, through
        restarts, in order and at least once; one process at a time, and another one
        goes on when that ends. An event on which it raises is told again, after a pause
        that becomes longer, and those behind it wait.

        Raises:
            ConfigurationError: There is no such event; a callback of this object has
                the cursor.
        """
        if callback is None:
            return lambda function: self.on(event, function, cursor=cursor)
        check_hook(f"the callback of on({event!r:.80})", callback, ("event",))
        self._companions.on(event, callback, cursor)
        return callback

    # Enqueueing -------------------------------------------------------------------

    @listed(JobOptions)
    def enqueue(
        self,
        task: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        **options: Unpack[JobOptions],
    ) -> Job[Any]:
        """Store a job for the task of this name, whoever will run it.

        The task need not be registered in this process; if it is, the arguments are
        bound against its signature. The job of an unknown task waits until a runner
        registers it. Options as in `Task.using`, otherwise as `Task.enqueue`.
        """
        check_names("LiteJobs.enqueue()", options, JOB)
        call = self.call(task, arguments, **options)
        return Job(self._store, *enqueue(self._store, call))

    @listed(JobOptions)
    def call(
        self,
        task: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        **options: Unpack[JobOptions],
    ) -> Call[Any]:
        """Make a job of the task of this name as a value, for `enqueue_many`."""
        check_names("LiteJobs.call()", options, JOB)
        return self._registry.call(task, arguments, options)

    def enqueue_many(
        self, calls: Iterable[Call[Any]], *, chunk: int | None = None
    ) -> JobIds:
        """Store many jobs in one transaction, or none; return their ids, in order.

        A list whose `is_new` says of each whether it was stored, or another job had its
        unique key.

        Calls come from `task.call(…)`, `task.using(…).call(…)` or `jobs.call(…)`.
        Others wait meanwhile: some 10 s for a million of them. With *chunk* so many at
        a time are stored in a transaction of their own, and others have their turns in
        between. Then they are not all or none: if the process dies, or an error is
        raised, the chunks before are stored, and their jobs may have run; a note on the
        exception says how many there are. Of the chunk itself nothing is stored, unless
        it is `OutcomeUnknown`. With a `unique_key` each, all can be enqueued again.

        Raises:
            ConfigurationError: *chunk* is not a number from 1 on, or this is within a
                transaction, which is stored as a whole.
        """
        if chunk is not None:
            return enqueue_in_chunks(self._store, calls, chunk)
        with self._store.transaction() as db:
            return enqueue_all(db, calls)

    def enqueue_chain(self, chain: Iterable[CallLike]) -> Jobs:
        """Store jobs of which each waits for the one before and is given its result.

        `jobs.enqueue_chain(fetch.call(url).then(parse).then(store.call(kind="x")))`:
        all are stored in one transaction, or none. Returns the jobs, in order. The
        result of the job before is `current().prev`, and what a parameter called `prev`
        is given. If one of them fails for good, those behind it are cancelled, unless
        they say otherwise (`on_parent_failure`).
        """
        return _batch.enqueue_chain(self._store, chain)

    def batch(
        self,
        name: str | None = None,
        *,
        on_complete: CallLike | None = None,
        on_success: CallLike | None = None,
        on_failure: CallLike | None = None,
    ) -> contextlib.AbstractContextManager[_batch.Batch]:
        """Open a batch of jobs: `with jobs.batch(on_success=report) as batch: …`.

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
        return _batch.opened(self._store, name, on_complete, on_success, on_failure)

    @property
    def batches(self) -> _batch.Batches:
        """The batches in the file: `jobs.batches[7]`, `jobs.batches.list()`."""
        return _batch.Batches(self._store)

    def transaction(self) -> contextlib.AbstractContextManager[apsw.Connection]:
        """Begin an immediate transaction on the jobs file: own rows, and enqueued jobs.

        The block gets the apsw connection that writes to the file. Everything in it,
        `enqueue` included, is committed at its end, or rolled back if it raises. Other
        writers wait meanwhile, so keep it short: they give up after some seconds.

        Raises:
            DatabaseBusy: Another process has written for five seconds, or another
                transaction of this one for ten; or that waits for a file which the
                caller has in a transaction.
        """
        return self._store.transaction()

    def reader(self) -> contextlib.AbstractContextManager[apsw.Connection]:
        """Open a connection that reads the file, without waiting for those who write.

        For the application's own tables and for litejobs' views. Do not keep it, or a
        cursor of it, beyond the block: an open read keeps the file's log growing.
        """
        return self._store.reader()

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
        from litejobs._outbox.delivery import Outbox

        outbox = Outbox(
            self._store, connect, table=table, poll=poll, paramstyle=paramstyle
        )
        self._companions.outboxes.append(outbox)
        if self._service.runs_here():
            outbox.start()
        return outbox

    # Looking ----------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Count the jobs in each state that has any."""
        return dict(self._store.run("count_states"))

    def why(
        self, *, task: str | None = None, queue: str | None = None, limit: int = 100
    ) -> Reasons:
        """List what the jobs that wait are waiting for, by reason, the most first.

        How many for each, since when, until when, and what helps; of this *task* and
        *queue*, if they are given. A job that several gates hold back counts for each;
        one whose time has not come, or that waits for others, for that alone.
        `job.why()` says all that is to be said of one. `str()` of each is a sentence.
        """
        from litejobs._control.looking import waiting

        return waiting(self._store, task=task, queue=queue, limit=limit)

    def measures(self) -> Measures:
        """Measure how well retries serve, over all that the file remembers whole."""
        from litejobs._control.records import measures_of

        return measures_of(self._store.rows("measures")[0])

    def backup(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Copy the jobs file to *path*, as it was when this began.

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
        from litejobs._storage.backup import copy_database

        copy_database(self._store.database, path, overwrite=overwrite)

    def restore(
        self, path: str | os.PathLike[str], *, overwrite_tables: bool = False
    ) -> str:
        """Put what the copy at *path* holds into the jobs file; return where it went.

        That is the name of a backup of what the file held until then, beside it. Other
        processes may have the file open, and see the new content from then on; no
        runner may run. The copy, of which nothing is changed, is checked as a file is
        that is opened, upgraded where it is older, and put in place in one transaction:
        if the process dies, the file is as it was, or as the copy.

        Tables of the application that are in the file, or in the copy, become what the
        copy has, too, which is refused without *overwrite_tables*. What this object has
        declared is written into the file again, as when it is opened.

        Jobs that ran when the copy was made are open in it: a runner takes them for
        crashed, and runs them again; so may what was done since be done again.

        Raises:
            RunnerActive: A runner works on the file, perhaps that of this object.
            FileRefused: The copy cannot be used; the file was not changed.
            ConfigurationError: There are tables of the application.
            DatabaseFull: There is no room for three of them for a while.
        """
        from litejobs._storage.restore import restore_database

        database = self._store.database
        database.check_process()
        kept = restore_database(database, path, overwrite_tables=overwrite_tables)
        self._registry.declare_again()
        self._companions.notifier.take_over(self._store.database)
        return kept

    # Operations -----------------------------------------------------------------------

    def undo(self, operation_id: int | None = None) -> Operation:
        """Take an operation back, so that what it changed is as it was; return it.

        That is the last one that is done and not undone, if none is named. Everything
        is taken back or nothing: where anything of it has moved on since (a job was
        started, somebody else changed the setting), it is refused.

        With an operation go the others of its command, the last one first, each in a
        transaction of its own; the one that is returned is the first of them. Those
        that are refused are left, and the message says which operations were taken
        back, which were not, and why; to call it again tries those that are left.
        Inside a transaction of the caller's it is all of them or none.

        Raises:
            OperationNotFound: There is no such operation, or none to undo.
            ConstraintViolated: It cannot be undone, or not all of its command; the
                message says what is in the way, and whether anything was changed.
        """
        from litejobs._control import operations
        from litejobs._schedules.plans import plan_changed

        return operations.undone(self._store, operation_id, plan_changed)

    # Steering ---------------------------------------------------------------------

    def pause(self, queue: str) -> None:
        """Pause the queue: no job of it is claimed any more; those that run go on."""
        self.queues[queue].pause()

    def resume(self, queue: str) -> None:
        """Resume the queue: its jobs are claimed again."""
        self.queues[queue].resume()

    @property
    def queues(self) -> Queues:
        """The queues by name: `jobs.queues["mail"].set(max_running=4)`."""
        from litejobs._control.queues import Queues

        return Queues(self._store)

    @property
    def keys(self) -> Keys:
        """The concurrency keys by name: `jobs.keys["host:x"].set(max_running=2)`."""
        from litejobs._control.queues import Keys

        return Keys(self._store)

    @property
    def circuits(self) -> Circuits:
        """The circuits by name: `jobs.circuits["host:x"].state`, `.reset()`."""
        from litejobs._control.queues import Circuits

        return Circuits(self._store)

    @property
    def facts(self) -> Facts:
        """What is so at the moment, by name: `jobs.facts["online"] = False`."""
        from litejobs._control.queues import Facts

        return Facts(self._store)

    @property
    def tiers(self) -> Tiers:
        """Which priorities start only now and then.

        `jobs.tiers.set(-100, "30s")`, and `jobs.tiers.set(0, "1ms")` for all above.
        """
        from litejobs._control.queues import Tiers

        return Tiers(self._store)

    @property
    def schedules(self) -> Schedules:
        """The schedules by name: `jobs.schedules["report"].next_at`, `.create(…)`."""
        from litejobs._schedules.collection import Schedules

        return Schedules(self._store, self._registry.tasks, self._timezone)

    def requeue_all(
        self,
        *,
        state: EndedState = "dead_lettered",
        task: str | None = None,
        queue: str | None = None,
        stopped_by: str | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        limit: int = 1_000_000,
    ) -> Ids:
        """Put ended jobs back in line, and return their ids.

        Those in this *state*, of this *task* and *queue*, *stopped_by* this reason,
        that ended from *since* to *until*; the oldest first, up to *limit*. A job whose
        unique key another one has by now stays where it is, and so does one that was
        cancelled because of another one that is requeued.

        Which they are is read once, and then they are requeued in many short
        transactions, between which others get their turns. If one fails, those before
        it stay requeued. Inside a `transaction()`, or an `operation()`, all is part of
        it.
        """
        from litejobs._control.bulk import requeue

        return requeue(
            self._store,
            state=state,
            task=task,
            queue=queue,
            stopped_by=stopped_by,
            since=since,
            until=until,
            limit=limit,
        )

    # Running ----------------------------------------------------------------------

    def start(
        self,
        *,
        threads: int = 4,
        concurrency: int | None = None,
        lend: int | None = None,
        grace: Duration = DEFAULT_GRACE,
        standby: bool = True,
        queues: Iterable[str] | None = None,
    ) -> Runner:
        """Start to run the jobs in the background until `stop()`, and return at once.

        There is one runner per file. If another process runs the jobs, this one stands
        by and takes over when that ends; with *standby* False it is refused instead.
        `health()` and the log say which it is. So every process of a server can call
        this. A standby with newer code that has all tasks of the runner asks it to hand
        over, after some seconds of life. Where the same code of this process has made
        an object for the file before (a cell that is run again, a module that is
        reloaded), this one takes its place: what that runs has its grace to end, and
        its callbacks and outboxes end. A process that only imports the program (the
        parent of a reloader, a command of `manage.py`) runs no jobs, unless
        LITEJOBS_START is "always" in its environment; after the master of a server has
        forked, its workers do.

        *threads* tasks run at once, and beside them *concurrency* coroutines (100, if
        nothing else was said), which hold no thread. A task that waits for a job (by
        `result()`, `await job` or its events) lends its slot to that: so up to *lend*
        threads are there beside those (None: as many as *threads*; 0: none). Limits
        count it all the same. On `stop()` and at the end of the program (when the main
        thread has ended, and no thread of its own but daemons goes on) running tasks
        have *grace* (a duration, in real time) to end. With
        *queues* it runs the jobs of these queues alone; the others wait for a runner
        that runs them, which is a later one. In an event loop, which must not wait (and
        for which there is `arunning`), what is not done within a tenth of a second is
        done in a thread, and its errors are logged; but who asks
        to be refused is answered at once.

        Raises:
            RunnerActive: Another runner works on the file, and *standby* is False.
        """
        return self._service.start(
            threads=threads,
            concurrency=concurrency,
            lend=lend,
            grace=grace,
            standby=standby,
            queues=queues,
        )

    def stop(self, grace: Duration | None = None) -> None:
        """Stop the runner once it has settled all; asked by its task, do not wait."""
        self._service.stop(grace)

    def running(self, **options: Unpack[RunOptions]) -> Running:
        """Run the jobs in the background within a `with` block; see `start`.

        `async with jobs.running():` waits beside the event loop, not in it, also when
        running tasks have to end.
        """
        return self._service.running(options)

    def health(self) -> dict[str, Any]:
        """Return how jobs do, here and in the file, as JSON has it (docs/deploy.md).

        Of the runner of this object: `role`, `running`, `attempts`, `stuck`, and
        `problem`, the worst of `problems`, or None. Of the file, whoever runs its jobs:
        `healthy` is False from at most 10 s after something keeps jobs from being run
        until 10 s after its end, for these `causes`; `oldest_due`; `last_tick_at`.
        """
        return self._service.health()

    def run_forever(self, **options: Unpack[ForeverOptions]) -> None:
        """Run jobs until SIGTERM or SIGINT; a second signal ends the grace period.

        Signals are handled if this is the main thread; elsewhere it ends by `stop()`.
        The options are those of `start`, but *standby* is False if it is not given.
        With *until_empty* it ends once nothing is due and nothing runs (see
        `Runner.wait_idle`, also for what it leaves), after it has
        been the runner; what waits for its time, or for something else, is left.
        """
        self._service.run_forever(**options)


def over(store: Store) -> LiteJobs:
    """Return a `LiteJobs` object on a `Store` that is there already."""
    jobs = LiteJobs(store.path)
    jobs._use(store)
    return jobs


def store_of(jobs: LiteJobs) -> Store:
    """Return the `Store` of the object, for what speaks to the file beside it.

    Raises:
        ConfigurationError: It is not such an object.
    """
    if not isinstance(jobs, LiteJobs):
        raise ConfigurationError(f"jobs={shown(jobs)} is not a LiteJobs object")
    return jobs._store
