"""Hear what happens: the log, events as they come, and jobs by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litejobs._process import role

if TYPE_CHECKING:
    from litejobs._control.cursors import Cursors
    from litejobs._control.job import Job
    from litejobs._control.records import LogLine
    from litejobs._control.streams import EventStream
    from litejobs._definitions.policy import Duration
    from litejobs._storage.store import Store

# Named here, since inside `LiteJobs` `list` is a method.
LogLines = list["LogLine"]


class Hearing:
    """The part of `LiteJobs` that tells what happens in the file."""

    _store: Store

    def log(
        self,
        *,
        job_id: int | None = None,
        task: str | None = None,
        after: int = 0,
        limit: int = 1000,
        partial: bool = False,
    ) -> LogLines:
        """List lines of the log in order, those *after* one; of a job, a task or all.

        One move of a job can be several lines: an attempt ended, its policy was
        evaluated, the job ended. Operations of people are among them, with their
        origin.

        With a job go its lines. Who reads on from a line is told where some of those
        that follow have gone (of the *task*, if one is given); *partial* asks for those
        that are left all the same, as 0, the beginning, does.

        Raises:
            EventsLost: Not all lines after that one are there any more.
            JobNotFound: The job has been deleted, and its lines with it.
        """
        from litejobs._control.looking import log_lines

        return log_lines(
            self._store,
            job_id=job_id,
            task=task,
            after=after,
            limit=limit,
            partial=partial,
        )

    def events(
        self,
        *names: str,
        task: str | None = None,
        queue: str | None = None,
        cursor: str | None = None,
    ) -> EventStream:
        """Stream what happens to jobs, in any process: `for` or `async for event in …`.

        *names* are the states that jobs come into, "*" for all of these (as without
        any), and "progress"; of jobs of this *task* and *queue*. Each is an `Event`, in
        the order of the log, once it is committed, whoever did it. Of progress the
        latest is told and not each step. `async for` reads in a thread beside the event
        loop.

        It begins with what happens from now on; in a coroutine from `async with` on, or
        from the first event that is waited for. With the name of a *cursor* it goes on
        where this name was left, also after a restart: at least once, in order. What
        was told is done when the next event is asked for (or by `ack`); what was not
        done when the process died is told again. One stream at a time reads by a name,
        in all processes; others wait until it is closed or its process has ended. Each
        name is a subscription of its own; that of a name that is new begins now.
        Progress is told while it happens and not afterwards.

        Where jobs were deleted before their events were told, the stream raises
        `EventsLost` once, and goes on behind that when it is asked for the next one.

        Raises:
            ConfigurationError: There is no such event, or a name cannot be one.
        """
        from litejobs._control.events import wanted
        from litejobs._control.streams import EventStream
        from litejobs._definitions.checks import check_name

        check_name("task", task)
        check_name("queue", queue)
        chosen = wanted(names, task=task, queue=queue)
        stream = EventStream(self._store, chosen, cursor=cursor, after=None)
        if not role.is_in_event_loop():
            stream.begin()
        return stream

    @property
    def cursors(self) -> Cursors:
        """The cursors of events by name: `jobs.cursors.move("mail", after=17)`."""
        from litejobs._control.cursors import Cursors

        return Cursors(self._store)

    def find(
        self,
        *,
        unique_key: str | None = None,
        delivery_key: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        timeout: Duration = 0,
    ) -> Job[Any] | None:
        """Find the job that has this *unique_key*, or that came through the outbox.

        The key of a template is named with the arguments filled in, or refused.
        Of several jobs that have had the key it is the one that is not finished, or
        else the one that ended last; of this *task* and *queue*, if they are given. A
        row of an outbox is known by its *delivery_key*; its job is there when it has
        been delivered. Waits up to *timeout*, of real time, for the job to be
        there; None if it is not. `find(delivery_key=key, timeout=5).result()`.

        Raises:
            ConfigurationError: Not one of the two keys is given, or it cannot be one.
            LiteJobsError: It would wait in a transaction of this thread.
        """
        from litejobs._control.lookup import find

        return find(
            self._store,
            unique_key=unique_key,
            delivery_key=delivery_key,
            task=task,
            queue=queue,
            timeout=timeout,
        )

    async def afind(
        self,
        *,
        unique_key: str | None = None,
        delivery_key: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        timeout: Duration = 0,
    ) -> Job[Any] | None:
        """Find a job as `find` does, beside the event loop: `await job` then waits."""
        from litejobs._control.lookup import afind

        return await afind(
            self._store,
            unique_key=unique_key,
            delivery_key=delivery_key,
            task=task,
            queue=queue,
            timeout=timeout,
        )
