"""What has happened to jobs, read from the log page by page, and how far they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import attrs

from litejobs._control.missing import no_job
from litejobs._control.records import Event
from litejobs._definitions.milliseconds import from_ms
from litejobs._values.states import PROGRESS, STATES
from litejobs.errors import ConfigurationError, EventsLost

if TYPE_CHECKING:
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store

MOST_AT_ONCE = 1000  # lines of the log that are read
SPAN = (
    *("after_id", "after_job", "after_attempt"),
    *("last_id", "last_job", "last_attempt"),
)
"""The places between which they stand, as `log_span` tells them."""

Ask = Callable[[str, Any], list[Any]]


@attrs.frozen(kw_only=True)
class Wanted:
    """Which events are told: into these states (None: all), of these jobs."""

    states: tuple[str, ...] | None = None
    progress: bool = False
    task: str | None = None
    queue: str | None = None
    job_id: int | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """As parameters of the queries."""
        return {
            "states": None if self.states is None else json.dumps(self.states),
            "task": self.task,
            "queue": self.queue,
            "job_id": self.job_id,
        }

    def takes(self, event: Event) -> bool:
        """Whether the event (not one of progress) is among these."""
        return (self.states is None or event.state in self.states) and self.is_of(
            event.job_id, event.task, event.queue
        )

    def is_of(self, job_id: int, task: str | None, queue: str | None) -> bool:
        """Whether events of this job, of that task and queue, are among these."""
        return (
            self.job_id in (None, job_id)
            and self.task in (None, task)
            and self.queue in (None, queue)
        )


def merged(all_of: Collection[Wanted]) -> Wanted:
    """What has to be read for all of them; of a job all, by which its end is seen."""
    states = {None if each.job_id is not None else each.states for each in all_of}
    tasks = {None if each.job_id is not None else each.task for each in all_of}
    queues = {None if each.job_id is not None else each.queue for each in all_of}
    return Wanted(
        states=None
        if None in states
        else tuple(sorted({name for each in states if each for name in each})),
        progress=any(each.progress for each in all_of),
        task=tasks.pop() if len(tasks) == 1 else None,
        queue=queues.pop() if len(queues) == 1 else None,
    )


EVERYTHING = Wanted()


def wanted(names: Collection[str], **of: Any) -> Wanted:
    """The events of these names, of all states if there are none.

    Raises:
        ConfigurationError: One of them is neither a state, nor "progress", nor "*".
    """
    for name in names:
        check_event(name)
    states = tuple(name for name in names if name in STATES)
    every = "*" in names or not names
    return Wanted(states=None if every else states, progress=PROGRESS in names, **of)


def check_event(name: str) -> None:
    """Refuse what is not an event."""
    if name not in ("*", PROGRESS) and name not in STATES:
        raise ConfigurationError(
            f"event {name!r} is unknown; give '*', 'progress' or one of "
            f"{', '.join(sorted(STATES))}"
        )


class Page:
    """What was read at one moment: events, up to which number, and what is lost.

    `lost` are tasks with the numbers up to which something of them has been deleted.
    """

    __slots__ = ("events", "has_ended", "lost", "place")

    def __init__(
        self,
        place: int,
        events: list[Event],
        lost: list[tuple[str, int]],
        *,
        has_ended: bool = False,
    ) -> None:
        self.place = place
        self.events = events
        self.lost = lost
        self.has_ended = has_ended


def read_page(ask: Ask, after: int, chosen: Wanted, *, known_lost: int = 0) -> Page:
    """What comes after this number, a page at most; of *known_lost* nothing is said."""
    [(last,)] = ask("last_event", ())
    if last < after:
        # Another content was put into the file, the log of which has not come so far.
        return Page(last, [], [])
    if last == after:
        return Page(after, [], [])
    asked = {"after": after, "last": None, "limit": MOST_AT_ONCE}
    # What is deleted a moment later is not lost, but in the rows.
    [places] = ask("log_span", asked)
    span = dict(zip(SPAN, places, strict=True))
    rows = ask("new_transitions", {**span, **chosen.filters})
    lost = ask("lost_events", {"after": max(after, known_lost), "task": chosen.task})
    events = [_event(row) for row in rows if row[2] is not None]
    # Numbers that nothing has any more, since what had them was deleted, end it.
    place = last if span["last_id"] == after else span["last_id"]
    return Page(place, events, lost)


def read_job(
    ask: Ask, after: int, chosen: Wanted, *, known_lost: int = 0
) -> Page | None:
    """The same of one job; None if it is not there (any more)."""
    asked = {"after": after, **chosen.filters}
    rows = ask("transitions_of_job", asked)
    if not rows:
        return None
    [(last,)] = ask("last_event", ())
    told = [_event(row[:-2]) for row in rows if row[0] is not None and row[-2]]
    is_ended = rows[-1][-1]
    gone = ask("attempts_gone", {"id": chosen.job_id})
    lost = [(row[1], row[2]) for row in gone if row[2] > max(after, known_lost)]
    return Page(last, told, lost, has_ended=bool(is_ended))


class ProgressReader:
    """Tells what has changed since it was last asked: the latest, not each step."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def changes(self, ask: Ask, place: int, chosen: Wanted) -> list[Event]:
        """What has changed of the progress of jobs that run, since the last call."""
        return self.changed(ask("progress", _progress_filters(chosen)), place)

    def changed(self, rows: list[Any], place: int) -> list[Event]:
        """The same, as these rows of `progress` have it."""
        before = self._known
        self._known = {row[0]: (row[4], row[5]) for row in rows}
        return [
            Event(
                id=place,
                at=from_ms(at),
                job_id=job_id,
                task=task,
                queue=queue,
                attempt_id=attempt,
                old_state="processing",
                state="processing",
                progress=fraction,
                message=message,
            )
            for job_id, at, task, queue, fraction, message, attempt in rows
            if before.get(job_id) != (fraction, message)
        ]


def _progress_filters(chosen: Wanted) -> dict[str, Any]:
    return {
        "job_id": chosen.job_id,
        "task": chosen.task,
        "queue": chosen.queue,
    }


def _event(row: Any) -> Event:
    number, at, job_id, task, queue, old, new, attempt = row
    return Event(
        id=number,
        at=from_ms(at),
        job_id=job_id,
        task=task,
        queue=queue,
        attempt_id=attempt,
        old_state=old,
        state=new,
    )


def last_place(database: Database) -> int:
    """The number of the last thing in the log that is committed."""
    place: int = database.run("last_event")[0][0]
    return place


def lost_error(after: int, lost: list[tuple[str, int]]) -> EventsLost:
    """The exception for who reads on where something has gone."""
    until = max(number for _, number in lost)
    tasks = tuple(task for task, _ in lost)
    named = ", ".join(f"task {name}" for name in tasks if name)
    return EventsLost(
        f"of the events after {after} not all are there any more: up to {until} jobs "
        f"or attempts were deleted ({named or 'no task'}) before they were told; the "
        "next one that is asked for comes after them, and what must hear of all reads "
        "more often, or keeps jobs longer",
        after,
        until,
        tasks,
    )


def job_is_gone(store: Store, chosen: Wanted) -> Exception:
    """The exception for a stream about a job that is not there."""
    assert chosen.job_id is not None
    return no_job(store, chosen.job_id)
