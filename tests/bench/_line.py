"""Do jobs that may not run, or may, slow down the claims of other work?

A file with a great many jobs behind a gate, or due at once, beside a file without them.
What is measured in both is the loop as the runner has it: look, and in one transaction
settle what has ended, tick, and claim, for jobs that take no time. Nothing is handed to
a thread, so it is the time of the statements and of the commits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs

from litejobs import LiteJobs
from litejobs._runner.loop import Finished, Loop
from litejobs._tasks.current import Assignment
from tests.bench._figures import (
    Bar,
    Clock,
    Durability,
    Figure,
    Measured,
    Sizes,
    Workload,
)
from tests.bench._subject import new_path

BATCH = 32
SLOTS = 4  # free ones after a machine woke
WARM = 4  # batches, and as many single jobs, that run before anything is timed
URGENT = 10  # a priority above that of everything else
KEPT = Bar(of="ratio", limit=0.8)

OK = '{"status":"ok","ran_ms":0,"result":null}'
FAILED = '{"status":"error","ran_ms":0,"error":{"type":"OSError","types":["OSError"]}}'
INTERRUPTED = '{"status":"interrupted"}'

# Written past the triggers for speed, but row for row as they would have left it.
BEHIND = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_job (
    id, task, queue, lane_id, priority, run_at, created_at, state, concurrency_key,
    concurrency_limit, circuit, args, birth
)
select n, task, queue, lane_id, n % 3, created_at - :count + n, created_at, state,
    concurrency_key, concurrency_limit, circuit, '{"number":' || n || '}',
    (select 4 * (claims + others) from litejobs__mark) + (state = 'scheduled')
from number cross join temp.model;

update litejobs_lane
set (head_priority, head_at, head_id) = (
    select head_priority, head_at, head_id from litejobs__head
    where lane_id = litejobs_lane.id
)
where base_id is not null;
"""
# Rows as any client writes them, each in a lane of its own.
LANES = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_job (task, args, concurrency_key, circuit, requires)
select
    'behind',
    '{"number":' || n || '}',
    replace(:concurrency_key, '{n}', n),
    replace(:circuit, '{n}', n),
    :requires
from number;
"""
OF_A_LANE: dict[str, Any] = {
    "concurrency_key": "host:{n}",
    "circuit": None,
    "requires": None,
}
NEW_LANE = """
insert into litejobs_job (task, concurrency_key, circuit)
select 'behind', 'new:' || max(id), 'net' from litejobs_lane
"""
# A job again for each key that has none in line or running.
REFILL = """
insert into litejobs_job (task, queue, args, concurrency_key, circuit, requires)
select task, queue, '{"number":0}', concurrency_key, nullif(circuit, ''),
    nullif(requires, '')
from litejobs_lane
where concurrency_key <> '' and head_id is null
"""
CLOSE_KEYS = """
update litejobs_key
set rate_count = 1, rate_ms = 3600000,
    rate_next_us = (select (now + 86400000) * 1000 from litejobs_clock)
"""
OPEN_CIRCUIT = """
update litejobs_circuit
set state = 'open', open_until = (select now + 86400000 from litejobs_clock)
"""
HALF_OPEN_CIRCUIT = "update litejobs_circuit set state = 'half_open'"
CLOSE_CIRCUIT = "update litejobs_circuit set state = 'closed'"
PAUSE = "update litejobs_queue set paused = 1 where name = 'behind'"
OFFLINE = "insert into litejobs_fact (name, value) values ('online', 0)"


class Line:
    """A file with its loop. Three tasks: `nothing`, `behind` (many), and `mark`."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.jobs = LiteJobs(path, durability=durability)
        self.nothing = self.jobs.task(name="nothing")(_nothing)
        self.behind = self.jobs.task(name="behind")(_nothing)
        self.mark = self.jobs.task(name="mark")(_nothing)
        self.jobs.open()
        self.loop = Loop(self.jobs._store.database, SLOTS)

    def execute(self, *statements: str, **parameters: Any) -> None:
        """All of them have run, in one transaction."""
        with self.jobs.transaction() as db:
            for statement in statements:
                db.execute(statement, parameters)

    def turn(self, slots: int, finished: Sequence[Finished] = ()) -> list[Assignment]:
        """The loop has looked, and done what it saw."""
        return self.loop.turn(self.loop.look(), finished, slots=slots)

    def run(self, count: int, slots: int, task: str = "nothing") -> Measured:
        """*count* jobs were claimed, up to *slots* at a time, and settled."""
        finished: list[Finished] = []
        done = 0
        clock = Clock()
        while done < count or finished:
            new = self.turn(min(slots, count - done), finished)
            finished = [(each.attempt_id, OK) for each in new]
            done += len(new)
            if not new and done < count:
                raise RuntimeError(f"{done} of {count} jobs were claimed")
            if any(each.task != task for each in new):
                raise RuntimeError(f"another job than {task!r} was claimed: {new}")
        return clock.measured(count)

    def run_others(self, sizes: Sizes, priority: int) -> Measured:
        """Plain jobs, in batches and one at a time."""
        batches = BATCH * sizes.line_batches
        warm = WARM * BATCH
        call = self.nothing.using(priority=priority).call
        self.jobs.enqueue_many(
            call(number) for number in range(warm + WARM + batches + sizes.line_singles)
        )
        self.run(warm, BATCH)
        self.run(WARM, 1)
        in_batches = self.run(batches, BATCH)
        one_by_one = self.run(sizes.line_singles, 1)
        return {
            "batches": in_batches["rate"],
            "batches cpu": in_batches["cpu"],
            "singles": one_by_one["rate"],
            "singles cpu": one_by_one["cpu"],
        }


def _nothing(number: int = 0) -> None:
    """What all tasks would do, if they were run."""


@contextlib.contextmanager
def on_file(path: Path, durability: Durability) -> Iterator[Line]:
    """A line whose runner lives for the length of the block."""
    line = Line(path, durability)
    try:
        line.loop.begin(line.jobs._registry.registrations())
        yield line
        line.loop.end()
    finally:
        line.jobs.close()


@contextlib.contextmanager
def on_new_file(folder: Path, durability: Durability) -> Iterator[Line]:
    """The same on a file of its own."""
    with new_path(folder) as path, on_file(path, durability) as line:
        yield line


@attrs.frozen(kw_only=True)
class Many:
    """A file with many jobs, built once for all rounds."""

    name: str
    options: dict[str, Any] = attrs.Factory(dict)
    lanes: Callable[[Sizes], int] | None = None  # None: all jobs are in one lane
    state: str = "pending"
    close: tuple[str, ...] = ()  # what closes the gate, as a person would

    def path(self, folder: Path) -> Path:
        """Where it is."""
        return folder / f"line-{self.name}.db"

    def build(self, folder: Path, sizes: Sizes) -> None:
        """The file is there."""
        path = self.path(folder)
        if path.exists():
            return
        with on_file(path, "fast") as line:
            if self.lanes:
                count = self.lanes(sizes)
                line.execute(LANES, **OF_A_LANE | self.options, count=count)
            else:
                # One real job, so that its queue, lane, key and circuit exist.
                line.behind.using(**self.options).enqueue(1)
        if not self.lanes:
            _fill(path, self.state, sizes.line)
        if self.close:
            with on_file(path, "fast") as line:
                line.execute(*self.close)

    def measures(self, measure: Callable[[Line, Sizes], Measured]) -> Any:
        """That, as the subject of a workload."""

        def subject(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
            with on_file(self.path(folder), durability) as line:
                return measure(line, sizes)

        return subject


def _fill(path: Path, state: str, count: int) -> None:
    """The one job has become *count* jobs in the same lane."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    connection.pragma("cache_size", -256_000)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute(
        "create temp table model as select task, queue, lane_id, created_at, "
        "concurrency_key, concurrency_limit, circuit, ? as state from litejobs_job",
        (state,),
    )
    connection.execute("begin immediate")
    connection.execute("delete from litejobs_line; delete from litejobs_job")
    connection.execute(BEHIND, {"count": count})
    connection.execute("commit")
    connection.pragma("wal_checkpoint(truncate)")
    connection.close()


def alone(
    measure: Callable[[Line, Sizes], Measured],
) -> Callable[[Path, Durability, Sizes], Measured]:
    """The reference: the same in a file that has nothing else."""

    def reference(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
        with on_new_file(folder, durability) as line:
            return measure(line, sizes)

    return reference


# What is measured ---------------------------------------------------------------------


def others(line: Line, sizes: Sizes) -> Measured:
    """Other work, of the same priority as the jobs that may not run."""
    return line.run_others(sizes, priority=0)


def others_first(line: Line, sizes: Sizes) -> Measured:
    """Other work that is more important than the jobs that may run, too."""
    return line.run_others(sizes, priority=1)


def others_beside_one_that_runs(line: Line, sizes: Sizes) -> Measured:
    """Other work while one job of the key runs, which is as many as may."""
    running = line.turn(1)
    if [each.task for each in running] != ["behind"]:
        raise RuntimeError("no job of the key was claimed")
    measured = line.run_others(sizes, priority=0)
    line.turn(0, [(running[0].attempt_id, INTERRUPTED)])
    return measured


def many_keys(line: Line, sizes: Sizes) -> Measured:
    """The jobs of the keys themselves, each key having one; then it is as before."""
    warm = min(WARM * BATCH, sizes.lanes // 3)
    line.run(warm, BATCH, "behind")
    count = min(BATCH * sizes.line_batches, sizes.lanes // 3)
    measured = line.run(count, BATCH, "behind")["rate"]
    line.execute(REFILL)
    return {"batches": measured}


def plain_jobs(line: Line, sizes: Sizes) -> Measured:
    """As many jobs without a key."""
    line.behind.enqueue(0)
    line.jobs.enqueue_many(map(line.behind.call, range(sizes.lanes)))
    return many_keys(line, sizes)


def circuit(line: Line, sizes: Sizes) -> Measured:
    """What it costs once that a circuit opens, that a probe fails, that it closes.

    And what a job costs that has a new key, while it is closed.

    The first time around is not measured, for statements are prepared then.
    """
    _circle(line)
    return _circle(line)


def _circle(line: Line) -> Measured:
    opened = _ms(lambda: line.execute(OPEN_CIRCUIT))
    line.execute(HALF_OPEN_CIRCUIT)
    probe: list[Assignment] = []
    probing = _ms(lambda: probe.extend(line.turn(1)))
    report = [(each.attempt_id, FAILED) for each in probe]
    failed = _ms(lambda: line.turn(0, report))
    closed = _ms(lambda: line.execute(CLOSE_CIRCUIT))
    # The next commit also moves the pages of all lanes from the log to the file.
    line.execute(NEW_LANE)
    enqueued = _ms(lambda: line.execute(NEW_LANE))
    return {
        "open": opened,
        "probe": probing,
        "fail": failed,
        "close": closed,
        "enqueue": enqueued,
    }


def one_lane(line: Line, sizes: Sizes) -> Measured:
    """The same of a circuit with one lane."""
    line.execute(LANES, **OF_A_LANE | {"circuit": "net"}, count=1)
    return circuit(line, sizes)


def urgent(line: Line, sizes: Sizes) -> Measured:
    """From before an urgent job is enqueued until it is claimed, again and again.

    The first one right after the machine woke, the others while the loop catches up.
    All that is claimed meanwhile takes no time.
    """
    enqueue = line.mark.using(priority=URGENT).enqueue
    finished: list[Finished] = []
    waits = []
    for _ in range(1 + sizes.line_urgent):
        begun = time.perf_counter()
        enqueue()
        claimed = False
        while not claimed:
            new = line.turn(SLOTS, finished)
            finished = [(each.attempt_id, OK) for each in new]
            claimed = any(each.task == "mark" for each in new)
        waits.append((time.perf_counter() - begun) * 1000)
    line.turn(0, finished)
    return {"first": waits[0], "worst": max(waits)}


def _ms(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


# The workloads ------------------------------------------------------------------------

CLAIMS = (
    Figure(name="batches", unit="jobs/s", bars=(KEPT,)),
    Figure(name="batches cpu", unit="µs/job"),
    Figure(name="singles", unit="jobs/s", bars=(KEPT,)),
    Figure(name="singles cpu", unit="µs/job"),
)


def a_lane_each(sizes: Sizes) -> int:
    """As many lanes as there are to be."""
    return sizes.lanes


def beside(
    many: Many, says: str, measure: Callable[[Line, Sizes], Measured] = others
) -> Workload:
    """Claims of other work, beside the jobs of this file and in an empty one."""
    return Workload(
        name=f"line-{many.name}",
        says=f"other work beside {says}",
        figures=CLAIMS,
        subject=many.measures(measure),
        reference=alone(others_first if measure is others_first else others),
        reference_is="empty file",
        pairs=2,
        prepare=many.build,
    )


KEYS = Many(name="keys", lanes=a_lane_each)
MOVES = Many(name="circuit-moves", lanes=a_lane_each, options={"circuit": "net"})
DUE = Many(name="due", state="scheduled")

LINE = (
    beside(
        Many(name="key", options={"concurrency_key": "host", "concurrency_limit": 1}),
        "a million jobs of a key that is full",
        others_beside_one_that_runs,
    ),
    beside(
        Many(
            name="key-circuits",
            lanes=lambda sizes: sizes.lanes // 100 + 2,
            options={"concurrency_key": "host", "circuit": "net:{n}"},
        ),
        "a thousand circuits of a key that is full",
        others_beside_one_that_runs,
    ),
    beside(
        Many(name="circuit", options={"circuit": "net"}, close=(OPEN_CIRCUIT,)),
        "a million jobs of an open circuit",
    ),
    beside(
        Many(name="paused", options={"queue": "behind"}, close=(PAUSE,)),
        "a million jobs of a paused queue",
    ),
    Workload(
        name="line-keys-alone",
        says="jobs of a hundred thousand keys that may all run",
        figures=(Figure(name="batches", unit="jobs/s"),),
        subject=KEYS.measures(many_keys),
        reference=alone(plain_jobs),
        reference_is="no keys",
        prepare=KEYS.build,
    ),
    beside(KEYS, "less important jobs of as many keys", others_first),
    beside(
        Many(name="rates", lanes=a_lane_each, close=(CLOSE_KEYS,)),
        "as many keys that have used up their rates",
    ),
    beside(
        Many(
            name="circuit-lanes",
            lanes=a_lane_each,
            options={"circuit": "net"},
            close=(OPEN_CIRCUIT,),
        ),
        "as many keys of an open circuit",
    ),
    beside(
        Many(
            name="fact",
            lanes=a_lane_each,
            options={"requires": '["online"]'},
            close=(OFFLINE,),
        ),
        "as many keys that need what is not so",
    ),
    Workload(
        name="line-circuit-moves",
        says="what it costs once to open and close a circuit of as many keys",
        figures=tuple(
            Figure(name=name, unit="ms")
            for name in ("open", "probe", "fail", "close", "enqueue")
        ),
        subject=MOVES.measures(circuit),
        reference=alone(one_lane),
        reference_is="one lane",
        prepare=MOVES.build,
    ),
    Workload(
        name="line-due",
        says="an urgent job while a million delayed ones are due at once",
        figures=(
            Figure(name="first", unit="ms", bars=(Bar(of="value", limit=500),)),
            Figure(name="worst", unit="ms", bars=(Bar(of="value", limit=500),)),
        ),
        subject=DUE.measures(urgent),
        reference=alone(urgent),
        reference_is="empty file",
        prepare=DUE.build,
    ),
)
