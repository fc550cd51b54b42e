"""What was enqueued, asked and asserted; a failure shows what came near."""

from __future__ import annotations

import datetime as dt
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from litejobs._control.records import JobSnapshot, snapshot_of
from litejobs._definitions import json_codec
from litejobs._definitions.arguments import parted
from litejobs._definitions.checks import is_whole, shown
from litejobs._definitions.milliseconds import (
    duration_ms,
    duration_text,
    from_ms,
    instant_ms,
)
from litejobs.errors import ArgumentError, ConfigurationError, LiteJobsError
from litejobs.testing.lookup import (
    Meant,
    TaskLike,
    last_jobs,
    meant,
    performed_in,
    stores,
    unknown,
)

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._definitions.policy import Duration
    from litejobs._storage.database import Database

ABOUT = 1_000  # milliseconds by which `run_at` may be off
SHOWN = 3  # jobs that are compared in a message
WIDTH = 34  # characters of a value in a message
MOST_NUMBERS = 10  # of jobs that are as expected

_MISSING = object()


class EnqueuedJobs(Sequence[JobSnapshot]):
    """Jobs that were enqueued, in order: what the calls below return."""

    def __init__(self, found: Sequence[JobSnapshot]) -> None:
        self._found: Sequence[JobSnapshot] = found

    @overload
    def __getitem__(self, place: int) -> JobSnapshot: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[JobSnapshot]: ...
    def __getitem__(self, place: int | slice) -> JobSnapshot | Sequence[JobSnapshot]:
        return self._found[place]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"[{', '.join(f'<job {each.id} ({each.task})>' for each in self)}]"

    def __enter__(self) -> Self:
        raise LiteJobsError(
            "this was asserted of all jobs so far, before the block; for those that a "
            "block enqueues write `with enqueued(task, …):`"
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing: the block was not begun."""


def all_enqueued(
    task: TaskLike | None = None,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | Duration | None = None,
    jobs: LiteJobs | None = None,
) -> EnqueuedJobs:
    """List the jobs that were enqueued, in order, whatever has become of them since.

    Those of all open files, or of the file of the *task*, or of *jobs*; not those that
    `perform` has run. The options are those of `assert_enqueued`.
    """
    wanted = _Wanted.of(task, args, queue, run_at, jobs)
    return EnqueuedJobs([each for each in _all(wanted, {}) if wanted.fits(each)])


def assert_enqueued(
    task: TaskLike | None = None,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | Duration | None = None,
    count: int | None = None,
    jobs: LiteJobs | None = None,
) -> EnqueuedJobs:
    """Assert that such a job was enqueued, whatever has become of it, and return all.

    *task* is a task, its function or its name. Of *args*, a dict of keywords or a list
    of positional arguments, those that are given have to be the same; others do not
    matter. *run_at* is an aware datetime, or how long after it was enqueued the job is
    due, within a second. With *count* there are exactly so many. It looks into the file
    of the task, or of *jobs*, or into all that are open. For what a block enqueues, see
    `enqueued`.

    Raises:
        AssertionError: There is none, or another number; the message compares those
            that come nearest with what was expected.
        ConfigurationError, ArgumentError: A value cannot work.
    """
    wanted = _Wanted.of(task, args, queue, run_at, jobs)
    return _asserted(wanted, _checked_count(count), {}, "")


def refute_enqueued(
    task: TaskLike | None = None,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | Duration | None = None,
    jobs: LiteJobs | None = None,
) -> None:
    """Assert that no such job was enqueued; see `assert_enqueued`.

    Raises:
        AssertionError: There is one; the message shows it.
    """
    _asserted(_Wanted.of(task, args, queue, run_at, jobs), 0, {}, "")


class enqueued(EnqueuedJobs):  # noqa: N801 - reads as a word of the language
    """Collect what a block enqueues: `with enqueued() as new: …`, a list of them.

    With a task or another option of `assert_enqueued` it is asserted at the end of the
    block that such a job was enqueued within it: `with enqueued(report, count=1): …`;
    with `count=0` that none was. If the block raises, that is raised.
    """

    def __init__(
        self,
        task: TaskLike | None = None,
        *,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        queue: str | None = None,
        run_at: dt.datetime | Duration | None = None,
        count: int | None = None,
        jobs: LiteJobs | None = None,
    ) -> None:
        super().__init__(())
        self._wanted = _Wanted.of(task, args, queue, run_at, jobs)
        self._count = _checked_count(count)
        self._after: dict[Database, int] | None = None
        self._ended = False

    def __enter__(self) -> Self:
        self._after = last_jobs()
        return self

    def __exit__(self, *raised: object) -> None:
        self._found = self._now()
        self._ended = True
        if raised[0] is None and (
            self._wanted.says_something or self._count is not None
        ):
            _asserted(self._wanted, self._count, self._begun(), " in the block")

    @overload
    def __getitem__(self, place: int) -> JobSnapshot: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[JobSnapshot]: ...
    def __getitem__(self, place: int | slice) -> JobSnapshot | Sequence[JobSnapshot]:
        return self._now()[place]

    def __len__(self) -> int:
        return len(self._now())

    def __iter__(self) -> Iterator[JobSnapshot]:
        return iter(self._now())

    def _now(self) -> Sequence[JobSnapshot]:
        if self._ended:
            return self._found
        return [
            each
            for each in _all(self._wanted, self._begun())
            if self._wanted.fits(each)
        ]

    def _begun(self) -> dict[Database, int]:
        if self._after is None:
            raise LiteJobsError(
                "enqueued() has seen nothing yet; use it as `with enqueued() as new:`"
            )
        return self._after


# What is wanted, and how a job compares -----------------------------------------------


class _Wanted(NamedTuple):
    """What a job is to be like; None where that does not matter."""

    found: Meant | None
    args: Mapping[str, Any] | Sequence[Any] | None
    queue: str | None
    run_at: dt.datetime | None
    delay_ms: int | None
    jobs: LiteJobs | None

    @classmethod
    def of(
        cls,
        task: TaskLike | None,
        args: Mapping[str, Any] | Sequence[Any] | None,
        queue: str | None,
        run_at: dt.datetime | Duration | None,
        jobs: LiteJobs | None,
    ) -> _Wanted:
        """See `assert_enqueued`."""
        found = None if task is None else meant(task, jobs)
        at, delay_ms = None, None
        if isinstance(run_at, dt.datetime):
            at = from_ms(instant_ms(run_at, name="run_at"))
        elif run_at is not None:
            delay_ms = duration_ms(run_at, name="run_at")
        if queue is not None and not isinstance(queue, str):
            raise ConfigurationError(f"queue={shown(queue)} is not a name; give a text")
        return cls(found, _plain_args(found, args), queue, at, delay_ms, jobs)

    @property
    def says_something(self) -> bool:
        """Whether not every job is such a one."""
        return any(each is not None for each in self[:-1])

    def fits(self, job: JobSnapshot) -> bool:
        """Whether the job is such a one."""
        return all(is_so for _, _, _, is_so in self.compared(job))

    def compared(self, job: JobSnapshot) -> list[tuple[str, str, str, bool]]:
        """Each thing that is wanted: its name, what is wanted, what is, whether so."""
        rows = []
        if self.found is not None:
            name = self.found.name
            rows.append(("task", name, job.task, job.task == name))
        if self.queue is not None:
            rows.append(("queue", self.queue, job.queue, job.queue == self.queue))
        if self.args is not None:
            rows += _compared_args(self.args, _named(self.found, job.args))
        if self.run_at is not None:
            off = abs(job.run_at - self.run_at) <= dt.timedelta(milliseconds=ABOUT)
            rows.append(("run_at", _at(self.run_at), _at(job.run_at), off))
        if self.delay_ms is not None:
            waits = (job.run_at - job.created_at) // dt.timedelta(milliseconds=1)
            is_so = abs(waits - self.delay_ms) <= ABOUT
            rows.append(("run_at", _in(self.delay_ms), _in(waits), is_so))
        return rows


def _all(wanted: _Wanted, after: Mapping[Database, int]) -> list[JobSnapshot]:
    """What was enqueued, task and all else aside."""
    jobs: list[JobSnapshot] = []
    for store in stores(wanted.jobs, wanted.found):
        database = store.database
        asked = {"after": after.get(database, 0)}
        own = performed_in(database)
        jobs += [
            snapshot_of(row)
            for row in store.rows("list_enqueued", asked)
            if row["id"] not in own
        ]
    return jobs


def _checked_count(count: int | None) -> int | None:
    if count is not None and not is_whole(count, 0, 2**31):
        raise ConfigurationError(
            f"count={shown(count)} is not a number of jobs; give 0 or more"
        )
    return count


def _plain_args(
    found: Meant | None, args: Mapping[str, Any] | Sequence[Any] | None
) -> Mapping[str, Any] | Sequence[Any] | None:
    """Arguments as the file has them, by name where the task is known."""
    if args is None:
        return None
    if isinstance(args, (str, bytes)) or not isinstance(args, (Mapping, Sequence)):
        raise ArgumentError(
            f"args={shown(args)} is neither a dict (keywords) nor a list (positional); "
            'give one, such as args={"to": "ann"}'
        )
    plain = dict(args) if isinstance(args, Mapping) else list(args)
    stored = json_codec.decode(json_codec.encode(plain, what="args"))
    signature = _signature(found)
    if signature is None:
        return stored  # type: ignore[no-any-return]
    places, names = parted(stored)
    if isinstance(stored, list) or places:
        try:
            bound = signature.bind_partial(*places, **names)
        except TypeError as error:
            raise _does_not_fit(found, args, error) from None
        return _flat(signature, bound)
    takes_any = any(
        each.kind is each.VAR_KEYWORD for each in signature.parameters.values()
    )
    for name in stored:
        if name not in signature.parameters and not takes_any:
            raise _does_not_fit(found, args, f"it has no parameter {name!r}")
    return stored  # type: ignore[no-any-return]


def _does_not_fit(found: Meant | None, args: object, why: object) -> ArgumentError:
    signature = _signature(found)
    return ArgumentError(
        f"args={shown(args)} do not fit task {found.name if found else ''!r}: {why}; "
        f"its signature is {signature}"
    )


def _signature(found: Meant | None) -> inspect.Signature | None:
    if found is None or found.task is None:
        return None
    return found.task.parameters


def _flat(
    signature: inspect.Signature, bound: inspect.BoundArguments
) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = list(value) if isinstance(value, tuple) else value
    return named


def _named(found: Meant | None, stored: Any) -> Any:
    """Stored arguments by name where that is possible."""
    signature = _signature(found)
    places, names = parted(stored)
    if signature is None or not (places or isinstance(stored, list)):
        return stored
    try:
        return _flat(signature, signature.bind_partial(*places, **names))
    except TypeError:
        return stored


def _compared_args(wanted: Any, stored: Any) -> list[tuple[str, str, str, bool]]:
    if isinstance(wanted, list) or not isinstance(stored, dict):
        return [("args", repr(wanted), repr(stored), _equal(wanted, stored))]
    if not wanted:
        return []
    rows = []
    for name, value in wanted.items():
        there = stored.get(name, _MISSING)
        is_so = there is not _MISSING and _equal(value, there)
        shown_there = "(not given)" if there is _MISSING else repr(there)
        rows.append((f"args: {name}", repr(value), shown_there, is_so))
    return rows


def _equal(one: Any, other: Any) -> bool:
    """Equal, but true is not 1, at any depth: JSON has both."""
    if isinstance(one, bool) != isinstance(other, bool) or one != other:
        return False
    if isinstance(one, dict):
        return all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return all(map(_equal, one, other))
    return True


# What is said -------------------------------------------------------------------------


def _asserted(
    wanted: _Wanted, count: int | None, after: Mapping[Database, int], where: str
) -> EnqueuedJobs:
    __tracebackhide__ = True
    all_jobs = _all(wanted, after)
    found = [each for each in all_jobs if wanted.fits(each)]
    if len(found) == count or (count is None and found):
        return EnqueuedJobs(found)
    message = _message(wanted, count, found, all_jobs, where)
    gone = _gone(wanted, after)
    if gone:
        message += (
            f"\n({_number(gone, 'job')} enqueued that the file does not have any more: "
            "what has ended is deleted in time, or by a purge)"
        )
    raise AssertionError(message)


def _gone(wanted: _Wanted, after: Mapping[Database, int]) -> int:
    """How many jobs were deleted since."""
    gone = 0
    for store in stores(wanted.jobs, wanted.found):
        first = after.get(store.database, 0)
        there = len(store.run("list_enqueued", {"after": first}))
        gone += max(0, store.run("count_enqueued")[0][0] - first - there)
    return gone


def _message(
    wanted: _Wanted,
    count: int | None,
    found: list[JobSnapshot],
    all_jobs: list[JobSnapshot],
    where: str,
) -> str:
    what = "such job" if wanted.says_something else "job"
    if count == 0:
        head = f"{_number(len(found), what)} enqueued{where}, and none was expected"
    elif not found:
        head = f"no {what} was enqueued{where}"
        if count is not None and count > 1:
            head += f", and {count} were expected"
    else:
        head = (
            f"{_number(len(found), what)} enqueued{where}, and {count} "
            f"{'was' if count == 1 else 'were'} expected"
        )
    lines = [head]
    if not all_jobs:
        lines.append(f"nothing at all was enqueued{where}")
    name = wanted.found.name if wanted.found else None
    same = [each for each in all_jobs if name is None or each.task == name]
    if name is not None and not same:
        lines += _of_others(wanted, name, all_jobs)
    else:
        # Where there are too many, those are to be seen that are; else what comes near.
        others = [each for each in same if not wanted.fits(each)]
        too_few = count is None or len(found) < count
        fit = not (too_few and others)
        near = found[:SHOWN] if fit else _nearest(wanted, others)
        lines += ["", *_table(wanted, near)] if near else []
        left = len(found if fit else others) - len(near)
        if left:
            lines.append(f"and {left} more {'like these' if fit else 'that differ'}")
        if found and not fit:
            told = ", ".join(str(each.id) for each in found[:MOST_NUMBERS])
            more = ", …" if len(found) > MOST_NUMBERS else ""
            lines.append(f"(as expected: job {told}{more})")
        of_others = len(all_jobs) - len(same)
        if of_others:
            lines.append(f"({_number(of_others, 'job')} enqueued of other tasks)")
    return "\n".join(lines)


def _number(count: int, what: str) -> str:
    return f"1 {what} was" if count == 1 else f"{count} {what}s were"


def _of_others(wanted: _Wanted, name: str, all_jobs: list[JobSnapshot]) -> list[str]:
    lines = []
    if all_jobs:
        tasks = Counter(each.task for each in all_jobs)
        told = ", ".join(
            f"{task!r} ({number})" for task, number in tasks.most_common(10)
        )
        lines.append(f"expected was a job of {name!r}; there are those of {told}")
    said = unknown(name, wanted.jobs)
    if said is not None:
        lines.append(said)
    return lines


def _nearest(wanted: _Wanted, jobs: list[JobSnapshot]) -> list[JobSnapshot]:
    """Those of which most is as wanted, and of these the newest."""

    def order(job: JobSnapshot) -> tuple[int, int]:
        return -sum(is_so for _, _, _, is_so in wanted.compared(job)), -job.id

    return sorted(jobs, key=order)[:SHOWN]


def _table(wanted: _Wanted, jobs: list[JobSnapshot]) -> list[str]:
    """What is wanted and what there is, side by side; != marks what differs."""
    names = {name: text for job in jobs for name, text, _, _ in wanted.compared(job)}
    columns = [["", *names], ["expected", *map(_cut, names.values())]]
    further_on = []
    for job in jobs:
        rows = {name: (text, is_so) for name, _, text, is_so in wanted.compared(job)}
        column = [f"job {job.id}"]
        for name, expected in names.items():
            text, is_so = rows.get(name, ("", True))
            column.append(_cut(text) if is_so else f"!= {_cut(text)}")
            if not is_so and _cut(text) == _cut(expected):
                further_on += _further_on(name, expected, text, column[0])
        columns.append(column)
    for name in ("args", "task"):
        # What does not matter tells one from the other all the same.
        if not any(each.startswith(name) for each in names):
            columns[0].append(name)
            columns[1].append("(any)")
            for job, column in zip(jobs, columns[2:], strict=True):
                column.append(job.task if name == "task" else _short(job.args))
    widths = [max(map(len, column)) for column in columns]
    return [
        "  " + "  ".join(map(str.ljust, row, widths)).rstrip()
        for row in zip(*columns, strict=True)
    ] + further_on


def _further_on(name: str, expected: str, text: str, job: str) -> list[str]:
    """Where two values differ that begin alike, as far as the table shows them."""
    pairs = enumerate(zip(expected, text, strict=False))
    first = next((at for at, (one, other) in pairs if one != other), len(text))
    start = max(0, first - WIDTH // 2)
    width = max(len("expected"), len(job))
    return [
        f"{name} differs further on:",
        *(
            f"  {whose:<{width}}  …{_cut(value[start:])}"
            for whose, value in (("expected", expected), (job, text))
        ),
    ]


def _short(value: Any) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _at(instant: dt.datetime) -> str:
    return f"{instant.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}Z"


def _in(ms: int) -> str:
    return f"in {duration_text(ms)}"
