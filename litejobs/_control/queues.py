"""Queues, keys, circuits, facts and tiers: rows by which a person steers what may run.

What is read here is read from the file anew each time; what is set is one transaction
of its own, or part of the caller's, and counts from its commit on, in every process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import attrs

from litejobs._control.rows import Rows
from litejobs._definitions.checks import (
    KEY_LENGTH,
    NAME_LENGTH,
    check_name,
    check_priority,
    check_text,
    check_word,
    is_name,
    name_text,
    shown,
    whole,
)
from litejobs._definitions.gates import Rate, refuse_template
from litejobs._definitions.milliseconds import duration_ms, read_instant
from litejobs._definitions.policy import Duration
from litejobs._definitions.retention import Kept, KeptState, kept_of_jobs
from litejobs.errors import ConfigurationError, Refused

if TYPE_CHECKING:
    from litejobs._control.retention import RetentionRule
    from litejobs._storage.store import Store

Retries = Literal["in_order", "after_new"]
KeyOrder = Literal["in_order", "round_robin"]
CircuitStateName = Literal["closed", "open", "half_open"]

V = TypeVar("V")
T = TypeVar("T")

_LONGEST_MS = 366 * 86_400_000
_LONGEST_OPEN_MS = 36_525 * 86_400_000


class Facts(Rows, MutableMapping[str, bool]):
    """What is so at the moment, as the application says: `jobs.facts["online"] = True`.

    A job that requires a fact waits until it is true. One that has never been set, or
    was deleted, is not true, and a `KeyError` here.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def __getitem__(self, name: str) -> bool:
        if is_name(name, NAME_LENGTH):
            for row in self._read("read_fact", name=name):
                return bool(row["value"])
        raise KeyError(name)

    def __setitem__(self, name: str, value: bool) -> None:
        check_name("fact", name_text("fact", name))
        if not isinstance(value, bool):
            raise ConfigurationError(
                f"the fact {name!r} cannot be {shown(value)}; set it to True or False"
            )
        self._write("set_fact", name=name, value=int(value))

    def __delitem__(self, name: str) -> None:
        if not is_name(name, NAME_LENGTH) or not self._write("drop_fact", name=name):
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([row["name"] for row in self._read("list_facts")])

    def __len__(self) -> int:
        return len(self._read("list_facts"))


class _Named(Rows):
    """One of the things that have a name. Its properties read its row anew."""

    __slots__ = ("_name",)
    _query: str

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store)
        self._name = name

    def __repr__(self) -> str:
        return f"<litejobs {type(self).__name__.lower()} {self._name!r}>"

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, _Named)
            and other._name == self._name
            and self._is_of_file(other)
        )

    def __hash__(self) -> int:
        return hash((type(self), self._name))

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def _row(self) -> dict[str, Any]:
        """Its row, or what counts where there is none."""
        [row] = self._read(self._query, name=self._name)
        return row


class Queue(_Named):
    """A queue. Its properties are read anew; a queue without a row has the defaults."""

    __slots__ = ()
    _query = "read_queue"

    @property
    def paused(self) -> bool:
        """Whether none of its jobs is started."""
        return bool(self._row()["paused"])

    @property
    def max_running(self) -> int | None:
        """How many of its jobs may run at once; None is without limit."""
        limit: int | None = self._row()["max_running"]
        return limit

    @property
    def rate(self) -> Rate | None:
        """How fast its jobs may start; None is without limit."""
        return _rate_of(self._row())

    @property
    def retries(self) -> Retries:
        """Whether retries keep their place in the order, or yield to new jobs."""
        retries: Retries = self._row()["retries"]
        return retries

    @property
    def aging_ms(self) -> int | None:
        """After how many ms of waiting a job counts for one priority more."""
        aging: int | None = self._row()["aging_ms"]
        return aging

    @property
    def keys(self) -> KeyOrder:
        """Whether keys take turns within a priority."""
        order: KeyOrder = self._row()["keys"]
        return order

    @property
    def executor(self) -> str | None:
        """On which executor those of its jobs run whose task names none."""
        name: str | None = self._row()["executor"]
        return name

    @property
    def retention(self) -> dict[KeptState, RetentionRule]:
        """How long its jobs are kept, where that is said of the queue: by state."""
        from litejobs._control.retention import Retention

        return {
            each.kind: each  # type: ignore[misc]
            for each in Retention(self._store)
            if each.queue == self._name and each.task is None
        }

    @property
    def waiting(self) -> int:
        """How many of its jobs have not ended and do not run."""
        return self._count("waiting")

    @property
    def running(self) -> int:
        """How many of its jobs run."""
        return self._count("running")

    def _count(self, column: str) -> int:
        rows = self._read("list_queues", name=self._name, most=-1, limit=-1)
        return sum(row[column] for row in rows)

    def pause(self) -> None:
        """Start none of its jobs any more; those that run go on."""
        self._write("pause_queue", name=self._name, paused=1)

    def resume(self) -> None:
        """Start its jobs again."""
        self._write("pause_queue", name=self._name, paused=0)

    def set(
        self,
        *,
        max_running: int | EllipsisType | None = ...,
        rate: Rate | str | EllipsisType | None = ...,
        retries: Retries | EllipsisType = ...,
        aging: Duration | EllipsisType | None = ...,
        keys: KeyOrder | EllipsisType = ...,
        executor: str | EllipsisType | None = ...,
        retention: Mapping[KeptState, Duration | Kept | None]
        | Duration
        | EllipsisType
        | None = ...,
    ) -> None:
        """Change what is named here, and nothing else; make the queue if it is new.

        None takes a limit away. *max_running* jobs run at once; *rate* such as "10/1m"
        start in a time; *retries* "after_new" lets first attempts pass; after each
        *aging*, a duration, a waiting job counts for one priority more; *keys*
        "round_robin" serves the key first that was served longest ago. Where a task
        names none, its jobs run on *executor*, one that the code of the runner has
        registered; None is the runner's threads. *retention* says
        how long its jobs are kept that were completed or cancelled, where nothing is
        said of their task: a duration, None for ever, 0 not at all, or
        `{"completed": "1d", "dead_lettered": {"age": "90d", "most": 1000}}`;
        `jobs.retention.reset` takes that back.

        Raises:
            ConfigurationError: A value cannot work; nothing was changed.
        """
        changes: dict[str, Any] = {}
        if max_running is not ...:
            changes["max_running"] = _max_running(max_running)
        if rate is not ...:
            changes.update(_rate_columns(rate))
        if retries is not ...:
            check_word("retries", retries, ("in_order", "after_new"))
            changes["retries"] = retries
        if aging is not ...:
            changes["aging_ms"] = (
                None if aging is None else _ms("aging", aging, _LONGEST_MS)
            )
        if keys is not ...:
            check_word("keys", keys, ("in_order", "round_robin"))
            changes["keys"] = keys
        if executor is not ...:
            if executor is not None:
                check_name("executor", executor)
            changes["executor"] = executor
        kept = {} if retention is ... else kept_of_jobs("retention", retention)
        with self._store.transaction():
            self._write("write_queue", **self._row() | changes)
            for kind, row in kept.items():
                scope = {"kind": kind, "task": None, "queue": self._name}
                self._write("write_retention", **scope, **row)

    def remove(self) -> None:
        """Remove the queue, as if nobody had ever named it.

        One that has jobs is kept, also if they have ended: purge them first. So is one
        that a task or a schedule names, or that has tiers of its own.

        Raises:
            Refused: It is in use, or there is none; nothing was changed.
        """
        with self._store.transaction():
            [row] = self._read("queue_kept", name=self._name)
            if row["reason"] is not None:
                raise Refused(f"{row['reason']}; nothing was changed")
            self._write("drop_queue", name=self._name)


class Key(_Named):
    """What jobs of one concurrency key share, as a person has set it for all of them.

    None is what their task says. Properties are read anew.
    """

    __slots__ = ()
    _query = "read_key"

    @property
    def max_running(self) -> int | None:
        """How many of its jobs may run at once, whatever their task says."""
        limit: int | None = self._row()["max_running"]
        return limit

    @property
    def rate(self) -> Rate | None:
        """How fast its jobs may start, whatever their task says."""
        return _rate_of(self._row())

    @property
    def running(self) -> int:
        """How many of its jobs run."""
        count: int = self._row()["running"]
        return count

    def set(
        self,
        *,
        max_running: int | EllipsisType | None = ...,
        rate: Rate | str | EllipsisType | None = ...,
    ) -> None:
        """Set limits for all jobs of this key; with None, what their tasks say counts.

        Raises:
            ConfigurationError: A value cannot work; nothing was changed.
        """
        changes: dict[str, Any] = {}
        if max_running is not ...:
            changes["max_running"] = _max_running(max_running)
        if rate is not ...:
            changes.update(_rate_columns(rate))
        with self._store.transaction():
            self._write("write_key", **self._row() | changes)

    def remove(self) -> bool:
        """Forget what was set by hand; return False if nothing was."""
        return self._write("drop_key", name=self._name)


class CircuitState(_Named):
    """How a circuit stands. Properties are read anew; one without a row is closed."""

    __slots__ = ()
    _query = "read_circuit"

    def __repr__(self) -> str:
        return f"<litejobs circuit {self._name!r}>"

    @property
    def state(self) -> CircuitStateName:
        """Closed lets its jobs start, open none, half open a single one: the probe."""
        state: CircuitStateName = self._row()["state"]
        return state

    @property
    def opened_at(self) -> dt.datetime | None:
        """When it was opened last, as an aware datetime in UTC."""
        return read_instant(self._row()["opened_at"])

    @property
    def open_until(self) -> dt.datetime | None:
        """When a probe may start; None in an open one is: not before it is reset."""
        return read_instant(self._row()["open_until"])

    @property
    def failures(self) -> int:
        """How many failures count at present."""
        count: int = self._row()["failures"]
        return count

    @property
    def opens(self) -> int:
        """How often failures have opened it since it was last closed."""
        count: int = self._row()["opens"]
        return count

    @property
    def probe(self) -> int | None:
        """The id of the attempt that finds out whether it can close."""
        attempt: int | None = self._row()["probe_attempt_id"]
        return attempt

    def reset(self) -> bool:
        """Close it and forget its failures; return False if there was nothing to do."""
        with self._store.transaction():
            closed = self._write("reset_circuit", name=self._name)
            forgot = self._write("forget_circuit_failures", name=self._name)
        return closed or forgot

    def isolate(self, duration: Duration | None = None) -> None:
        """Open it for this *duration*, or else until it is reset.

        None of its jobs is started meanwhile; those that run go on. After the duration
        a single job probes it.

        Raises:
            ConfigurationError: *duration* cannot work; nothing was changed.
        """
        ms = None if duration is None else _ms("duration", duration, _LONGEST_OPEN_MS)
        with self._store.transaction():
            self._write("make_circuit", name=self._name)
            self._write("open_circuit", name=self._name, for_ms=ms)


class _Mapping(Rows, Mapping[str, V]):
    """By name, those that the file knows; asking for another makes no row."""

    __slots__ = ()
    _what: str
    _names: str
    _kind: Any
    _longest: int

    def __repr__(self) -> str:
        return f"<litejobs {self._what}s>"

    def __getitem__(self, name: str) -> V:
        check_text(self._what, name_text(self._what, name), self._longest)
        found: V = self._kind(self._store, name)
        return found

    def __contains__(self, name: object) -> bool:
        return is_name(name, self._longest) and any(
            row["known"] for row in self._read(self._kind._query, name=name)
        )

    @overload
    def get(self, name: str, /) -> V | None: ...
    @overload
    def get(self, name: str, /, default: V | T) -> V | T: ...
    def get(self, name: str, /, default: Any = None) -> Any:
        """Return the one of this name if the file knows it, else *default*."""
        found = self[name]
        return found if name in self else default

    def __iter__(self) -> Iterator[str]:
        return iter([row["name"] for row in self._read(self._names, **_ALL)])

    def __len__(self) -> int:
        return len(self._read(self._names, **_ALL))


_ALL = {"name": None, "after": "", "limit": -1}


class Queues(_Mapping[Queue]):
    """The queues by name: `jobs.queues["mail"].set(max_running=4)`.

    A queue is there from the first job, task or setting that names it.
    """

    __slots__ = ()
    _what, _names, _kind, _longest = "queue", "queue_names", Queue, NAME_LENGTH


class _FilledIn(_Mapping[V]):
    """By name, as that is with the arguments filled in."""

    __slots__ = ()

    def __getitem__(self, name: str) -> V:
        found = super().__getitem__(name)
        if name not in self:
            refuse_template(self._what, name)
        return found


class Keys(_FilledIn[Key]):
    """The concurrency keys by name: `jobs.keys["host:x"].set(max_running=2)`."""

    __slots__ = ()
    _what, _names, _kind, _longest = "key", "list_keys", Key, KEY_LENGTH


class Circuits(_FilledIn[CircuitState]):
    """The circuits by name: `jobs.circuits["host:x"].reset()`."""

    __slots__ = ()
    _what, _names, _kind, _longest = (
        "circuit",
        "list_circuits",
        CircuitState,
        KEY_LENGTH,
    )


@attrs.frozen(kw_only=True)
class Tier:
    """Jobs from a priority on start together, once in a while.

    Of those of at least `min_priority`, up to the next tier, `at_most` are started
    (None is all that wait), then none for `every_ms`. `queue` None is every queue that
    has no tiers of its own. `taken` of them have started since the tier was opened
    last; it opens again at `next_at`.
    """

    queue: str | None
    min_priority: int
    every_ms: int
    at_most: int | None
    next_at: dt.datetime | None
    taken: int


class Tiers(Rows, Sequence[Tier]):
    """The tiers: those of all queues first, then by queue; the lowest priority first.

    `jobs.tiers.set(-100, every="30s")` lets jobs of priority -100 and more start only
    every 30 seconds, so that unimportant work does not keep a small device awake. A
    tier ends where the next one begins, so that alone would hold back normal jobs, of
    priority 0, as well; `jobs.tiers.set(0, every="1ms")` lets these start at any time.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._all()!r})"

    def _all(self) -> list[Tier]:
        return [
            Tier(**row | {"next_at": read_instant(row["next_at"])})
            for row in self._read("list_tiers")
        ]

    @overload
    def __getitem__(self, index: int) -> Tier: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tier]: ...
    def __getitem__(self, index: int | slice) -> Tier | list[Tier]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Tier]:
        return iter(self._all())

    def set(
        self,
        min_priority: int,
        every: Duration,
        at_most: int | None = None,
        queue: str | None = None,
    ) -> None:
        """Start jobs from this priority on together, each *every*, *at_most* so many.

        It is for *queue*, or for all queues that have no tiers of their own. One that
        is there is changed, and goes on from where it is.

        Raises:
            ConfigurationError: A value cannot work; nothing was changed.
        """
        key = _tier_key(min_priority, queue)
        if at_most is not None:
            whole("at_most", at_most, 1)
        every_ms = _ms("every", every, _LONGEST_MS)
        self._write("set_tier", **key, every_ms=every_ms, at_most=at_most)

    def remove(self, min_priority: int, queue: str | None = None) -> None:
        """Remove the tier; its jobs are then those of the next lower one.

        Raises:
            KeyError: There was none.
        """
        if not self._write("drop_tier", **_tier_key(min_priority, queue)):
            raise KeyError((min_priority, queue))


# Values -------------------------------------------------------------------------------


def _tier_key(min_priority: int, queue: str | None) -> dict[str, Any]:
    if min_priority is None:
        raise ConfigurationError("min_priority=None is not a priority; give a number")
    check_priority(min_priority)
    check_name("queue", queue)
    return {"min_priority": min_priority, "queue": queue}


def _rate_of(row: Mapping[str, Any]) -> Rate | None:
    """The rate of a row, also one that another client wrote and `Rate` would refuse."""
    count, per_ms = row["rate_count"], row["rate_ms"]
    if count is None or per_ms is None:
        return None
    rate = Rate.__new__(Rate)
    rate.__attrs_init__(count=count, per_ms=per_ms, burst=row["rate_burst"] or 1)
    return rate


def _rate_columns(rate: Rate | str | None) -> dict[str, int | None]:
    if rate is None:
        return {"rate_count": None, "rate_ms": None, "rate_burst": None}
    rate = Rate.of(rate)
    return {
        "rate_count": rate.count,
        "rate_ms": rate.per_ms,
        "rate_burst": rate.burst,
    }


def _max_running(value: int | None) -> int | None:
    return None if value is None else whole("max_running", value, 0)


def _ms(name: str, value: Duration, longest: int) -> int:
    ms = duration_ms(value, name=name)
    if not 1 <= ms <= longest:
        raise ConfigurationError(
            f"{name}={shown(value)} is out of range; give a duration from 1ms to "
            f"{longest // 86_400_000}d"
        )
    return ms
