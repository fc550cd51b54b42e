"""A database with the files of sql/ in it, and short words for what tests say to it.

PYTEST_DONT_REWRITE: test modules import from here, and conftest.py has it as a plugin.

A `db` is one of three clients: apsw on the held clock, the same with recursive
triggers, and the standard library's sqlite3 on real time, as a foreign client has it
(foreign keys off). `held` is the first two only, for stories about time.

Most tests speak through the first alone. Where clients can differ, because foreign keys
or recursive triggers decide what a statement does, or because it is what other clients
say, tests are marked `every_client`. Those with a `db` speak through all of them where
jobs are enqueued, claimed, settled and guarded, and elsewhere in the long form. With
`--every-client` all tests are run through all.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import functools
import itertools
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import apsw
import pytest
import time_machine

from litejobs._definitions.options import IN_SPEC
from litejobs._process.clock import ensure_clock_vfs
from litejobs._storage import in_memory
from litejobs._storage import statements as _statements

STATES = (
    "scheduled",
    "blocked",
    "pending",
    "processing",
    "failed",
    "completed",
    "dead_lettered",
    "cancelled",
)
WAITING = ("scheduled", "blocked", "pending", "failed")

CLAIMABLE = """(
    select job.id as job_id, job.lane_id, job.priority, job.run_at
    from litejobs__gate as gate
    cross join litejobs__ready as job on job.lane_id = gate.lane_id
    where gate.is_open
    and coalesce(job.expires_at > (select now from litejobs_clock), 1)
)"""
"""The jobs that may run now, in no order, to select from: in line, within their limits,
not expired, in an open lane. A claim has faster ways, and litejobs_block answers what
keeps the rest; tests hold all three to each other."""
FINISHED = ("completed", "dead_lettered", "cancelled")

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
START_MS = int(START.timestamp() * 1000)
SALT = 20_260_101
FIX_SALT = "update litejobs_meta set salt = :salt where id = 1"
"""So that jitter is the same in each run."""

ERRORS = (apsw.Error, sqlite3.Error)

PREPARED = 1000
"""Statements that sqlite3 keeps, each with all that its triggers do. To prepare one
that enqueues, claims or settles takes up to 10 ms, and most tests say the same ones."""
PLACES, KEPT = 512, 240
"""Those that apsw keeps: at most so many, and each run of any takes up a place. So for
each KEPT runs the last KEPT of those that were said more than once are moved to the
front."""

# SQLite names a unique constraint by its columns.
UNIQUE = {
    "UNIQUE constraint failed: litejobs_lane.queue, litejobs_lane.task": (
        "litejobs_lane_unique"
    ),
    "UNIQUE constraint failed: litejobs_attempt.job_id, litejobs_attempt.start_no": (
        "litejobs_attempt_start_unique"
    ),
    "UNIQUE constraint failed: litejobs_rule.policy_id, litejobs_rule.position": (
        "litejobs_rule_position_unique"
    ),
    "UNIQUE constraint failed: litejobs_step.task, litejobs_step.label": (
        "litejobs_step_label_unique"
    ),
    "UNIQUE constraint failed: litejobs_change.operation_id, litejobs_change.kind": (
        "litejobs_change_unique"
    ),
    "UNIQUE constraint failed: litejobs_schedule.name": (
        "litejobs_schedule_name_unique"
    ),
}
# Where SQLite cannot read a path at all, it says so, in words that differ between its
# versions, before the constraint can.
NO_PATH = re.compile(r"bad JSON path|JSON path error")


class _Connection(apsw.Connection):
    """Statements that are said again stay prepared, whatever else is said meanwhile."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._runs = itertools.count(1)
        self._once: set[str] = set()
        self._again: dict[str, None] = {}
        self._touching = self.cursor()
        self._touching.exec_trace = lambda *_: False

    def execute(self, sql: str, *args: Any, **options: Any) -> apsw.Cursor:
        """As apsw does."""
        if sql in self._once:
            self._again.pop(sql, None)
            self._again[sql] = None
        else:
            self._once.add(sql)
        if next(self._runs) % KEPT == 0:
            self._touch()
        return super().execute(sql, *args, **options)

    def _touch(self) -> None:
        """Each is taken out of its place and put back into the next one, not run."""
        for sql in list(self._again)[:-KEPT]:
            del self._again[sql]
        for sql in list(self._again):
            try:
                self._touching.execute(sql)
            except (apsw.ExecTraceAbort, apsw.BindingsError):
                pass
            except apsw.Error:  # a statement that was refused, each time it was said
                del self._again[sql]


class Seen:
    """What the whole suite has seen of the schema, by name."""

    def __init__(self) -> None:
        self.acted: set[str] = set()
        self.held_back: set[str] = set()
        self.refused: set[str] = set()


SEEN = Seen()


class Sql:
    """One client on one database; *clock* moves its time, where it can be moved."""

    def __init__(self, connection: Any, clock: Any = None) -> None:
        self.connection = connection
        self.clock = clock
        self.runner = 0

    # Executors ----------------------------------------------------------------------

    def register(self, name: str, slots: int, clean_up_ms: int = 0) -> None:
        """The runner has this executor."""
        named = {"name": name, "slots": slots, "runner": self.runner}
        self.query("register_executor", clean_up_ms=clean_up_ms, **named)

    def claim_room(self, slots: int, most: int | None = None, **room: int) -> list[int]:
        """The jobs that a runner with so much room is given, in their order."""
        last = self.value("select coalesce(max(id), 0) from litejobs_attempt")
        told = {"slots": slots, "most": most, "executors": json.dumps(room)}
        self.query("claim_room", runner=self.runner, **told)
        return self.column(
            "select job_id from litejobs_attempt where id > ? order by id", (last,)
        )

    # Any statement ----------------------------------------------------------------

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """All rows of one statement."""
        return list(self.connection.execute(sql, parameters).fetchall())

    def value(self, sql: str, parameters: Any = ()) -> Any:
        """The first column of the first row."""
        return self.execute(sql, parameters)[0][0]

    def column(self, sql: str, parameters: Any = ()) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self.execute(sql, parameters)]

    def rows(self, sql: str, parameters: Any = ()) -> list[SimpleNamespace]:
        """All rows, with their columns as attributes."""
        cursor = self.connection.execute(sql, parameters)
        try:
            names = [each[0] for each in cursor.description or ()]
        except apsw.ExecutionCompleteError:
            return []
        return [
            SimpleNamespace(**dict(zip(names, row, strict=True)))
            for row in cursor.fetchall()
        ]

    def query(self, query: str, /, **parameters: Any) -> list[SimpleNamespace]:
        """The rows of a statement of queries/."""
        return self.rows(_statements.queries()[query], parameters)

    def refused(self, sql: str, parameters: Any = ()) -> str:
        """The words in which the database refuses this statement, as it must."""
        try:
            self.execute(sql, parameters)
        except ERRORS as error:
            text = str(error).removeprefix("ConstraintError: ")
            SEEN.refused.update(re.findall(r"CHECK constraint failed: (\w+)", text))
            SEEN.refused.update(name for key, name in UNIQUE.items() if key in text)
            if NO_PATH.search(text):
                tables = re.findall(r"into (\w+)", sql)
                SEEN.refused.update(f"{each}_paths_are_paths" for each in tables)
            return text
        raise AssertionError(f"the database accepted: {sql} with {parameters!r}")

    # Time -------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Milliseconds, as the database says."""
        return int(self.value("select now from litejobs_clock"))

    def wait(self, ms: int) -> None:
        """*ms* later, or earlier."""
        self.clock.shift(dt.timedelta(milliseconds=ms))

    # Facts ------------------------------------------------------------------------

    def serve(self, task: str = "a", **columns: Any) -> None:
        """The task is in the code of the living runner, which is started if need be."""
        if not self.runner:
            self.start_runner()
        self.insert("litejobs_task", name=task, runner_id=self.runner, **columns)

    def start_runner(self) -> int:
        """A new runner lives, has all the tasks, and is `runner` now."""
        self.execute("insert into litejobs_runner default values")
        self.runner = self.value("select max(id) from litejobs_runner")
        self.execute("update litejobs_task set runner_id = ?", (self.runner,))
        return self.runner

    def insert(self, table: str, how: str = "insert", **columns: Any) -> None:
        """One row; *how* may be `insert or replace` and the like.

        What has no column of its own is said as `options`. The columns stand in the
        order of their names, or each order would be prepared as a statement of its own;
        and so would each set of columns, where there are many: the others are null.
        """
        if not columns:
            self.execute(f"{how} into {table} default values")
            return
        if table in HAVE_OPTIONS:
            columns = with_options(columns)
        if table in WIDE and len(columns) > 1:
            columns = {**dict.fromkeys(_null_columns(table, _installed())), **columns}
        columns = dict(sorted(columns.items()))
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        self.execute(
            f"{how} into {table} ({names}) values ({marks})", tuple(columns.values())
        )

    def enqueue(self, task: str = "a", **columns: Any) -> int:
        """A bare row, as any client inserts it; its id."""
        self.insert("litejobs_job", task=task, **columns)
        return int(self.value("select max(id) from litejobs_job"))

    def tick(self, runner: int | None = None) -> None:
        """Time has passed."""
        self.execute(
            "insert into litejobs_tick (runner) values (?)", (runner or self.runner,)
        )

    def claim(self, slots: int = 1) -> list[int]:
        """The ids of the attempts that were opened."""
        last = self.value("select coalesce(max(id), 0) from litejobs_attempt")
        self.execute(
            "insert into litejobs_claim (runner, slots) values (?, ?)",
            (self.runner, slots),
        )
        return self.column(
            "select id from litejobs_attempt where id > ? order by id", (last,)
        )

    def settle(self, attempt: int, status: str = "ok", more: str = "") -> None:
        """The attempt has ended like this; *more* is JSON that begins with a comma."""
        self.execute(
            "insert into litejobs_settle (attempt, outcome) values (?, ?)",
            (attempt, f'{{"status":"{status}"{more}}}'),
        )

    # Stories ----------------------------------------------------------------------

    def fail(self, job: int, status: str = "error") -> SimpleNamespace:
        """The job, made due if need be, is run and ends like this; the attempt."""
        attempt = self.begin(job)
        self.settle(attempt, status)
        return self.attempt(attempt)

    def begin(self, job: int) -> int:
        """The job, made due if need be, is processing; the id of its attempt."""
        self.execute(
            "update litejobs_job set state = 'pending' "
            "where id = ? and state <> 'pending'",
            (job,),
        )
        attempts = self.claim(1)
        found = [each for each in attempts if self.attempt(each).job_id == job]
        if not found:
            raise AssertionError(f"job {job} was not the one that was claimed")
        return found[0]

    def job_in(self, state: str, **columns: Any) -> int:
        """A job that has come into *state* by the moves that lead there."""
        if state == "scheduled":
            return self.enqueue(run_at=self.now + HOUR, **columns)
        if state == "dead_lettered":
            columns = {"max_attempts": 1, **columns}
        # Before all that is in line already, so that it is this one that is claimed.
        first = self.value("select coalesce(max(priority), 0) + 1 from litejobs_job")
        job = self.enqueue(**{"priority": first, **columns})
        if state == "blocked":
            self.block(job)
        elif state == "cancelled":
            self.execute("update litejobs_job set state = ? where id = ?", (state, job))
        elif state == "processing":
            self.begin(job)
        elif state in ("failed", "dead_lettered"):
            self.fail(job)
        elif state == "completed":
            self.fail(job, "ok")
        if self.job(job).state != state:
            raise AssertionError(f"job {job} is {self.job(job).state}, not {state}")
        return job

    def block(self, job: int) -> None:
        """The job waits for a batch that does not end."""
        self.execute("insert into litejobs_batch default values")
        self.execute(
            "insert into litejobs_dependency (job_id, batch_id) "
            "select ?, max(id) from litejobs_batch",
            (job,),
        )

    # Policies and flows -----------------------------------------------------------

    def add_policy(
        self,
        *rules: dict[str, Any],
        task: str = "a",
        step: str = "",
        otherwise: str = "fail",
    ) -> int:
        """A policy of these rules, in their order, written by plain inserts; its id."""
        self.insert("litejobs_policy", task=task, step=step, otherwise=otherwise)
        policy = int(self.value("select max(id) from litejobs_policy"))
        for number, each in enumerate(rules, 1):
            self.add_rule(policy, **{"position": number, **each})
        return policy

    def add_rule(
        self,
        policy: int,
        *,
        when: Any = (),
        changes: Any = (),
        **columns: Any,
    ) -> int:
        """A rule of terms, each a list of conditions, or of one such list; its id."""
        self.insert("litejobs_rule", policy_id=policy, **columns)
        rule = int(self.value("select max(id) from litejobs_rule"))
        terms = when if when and isinstance(when[0], list) else [when]
        for term, conditions in enumerate(terms):
            for number, each in enumerate(conditions):
                self.insert(
                    "litejobs_condition",
                    rule_id=rule,
                    term=term,
                    position=number,
                    **each,
                )
        for number, each in enumerate(changes, 1):
            self.insert("litejobs_rule_change", rule_id=rule, position=number, **each)
        return rule

    def add_steps(self, *labels: str, task: str = "a") -> None:
        """The task is a flow of these steps."""
        for position, label in enumerate(labels, 1):
            self.insert("litejobs_step", task=task, position=position, label=label)

    # Looking ----------------------------------------------------------------------

    def job(self, job: int) -> SimpleNamespace:
        """The row of the job, with the options that it has."""
        jobs = having_options("litejobs_job")
        return self.rows(f"select * from {jobs} where id = ?", (job,))[0]

    def attempt(self, attempt: int) -> SimpleNamespace:
        """The row of the attempt."""
        return self.rows("select * from litejobs_attempt where id = ?", (attempt,))[0]

    def moves(self, job: int) -> list[tuple[str | None, str | None, str | None]]:
        """The lines of the log about the job: old state, new state, note."""
        return self.execute(  # type: ignore[return-value]
            "select old_state, new_state, note from litejobs__transition "
            "where job_id = ? order by id",
            (job,),
        )

    def events(self, job: int) -> list[str]:
        """The names of what happened to the job, in order."""
        return self.column(
            "select name from litejobs_event where job_id = ? order by id", (job,)
        )

    def blocks(self, job: int) -> list[str]:
        """Why the job may not run now."""
        return [row.code for row in self.reasons(job)]

    def reasons(self, job: int) -> list[SimpleNamespace]:
        """The same, with what is in the way and until when."""
        return self.rows(
            "select code, detail, object, until_at from litejobs_block "
            "where job_id = ? order by code",
            (job,),
        )

    def content(
        self, table: str, without: tuple[str, ...] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a table, in the order of their keys."""
        names = [
            name
            for name in self.column("select name from pragma_table_info(?)", (table,))
            if name not in without
        ]
        return self.execute(f"select {', '.join(names)} from {table} order by 1")


class Operand:
    """What a condition reads: at a path of a document, or a literal."""

    def __init__(
        self, source: str, path: str = "$", value: str | None = None, lowered: int = 0
    ) -> None:
        self.columns = {"source": source, "value": value, "lowered": lowered}
        # The default of the column is part of what is tested.
        self.columns |= {} if path == "$" else {"path": path}

    def __repr__(self) -> str:
        columns = self.columns
        text = str(columns["value"] or columns.get("path", columns["source"]))
        return text + ("|lower" if columns["lowered"] else "")

    @property
    def lowered(self) -> Operand:
        """The same in lower case."""
        columns: Any = {"path": "$", **self.columns, "lowered": 1}
        return Operand(**columns)


def at(path: str) -> Operand:
    """`outcome.http.status` and the like."""
    source, _, rest = path.partition(".")
    return Operand(source, f"$.{rest}" if rest else "$")


def literal(value: Any) -> Operand:
    """A JSON value."""
    return Operand("literal", value=json.dumps(value, ensure_ascii=False))


def condition(
    left: Operand, op: str = "truthy", right: Operand | None = None, negated: int = 0
) -> dict[str, Any]:
    """The columns of a condition; its numbers are given where it is inserted."""
    columns = {**left.columns, "op": op, "negated": negated}
    if right is not None:
        columns |= {f"other_{name}": each for name, each in right.columns.items()}
    return columns


HAVE_OPTIONS = tuple(
    f"litejobs_{table}" for table in ("job", "task", "schedule", "rule")
)
WIDE = ("litejobs_job", "litejobs_task")
"""Where tests say a hundred sets of columns, and each takes 10 ms to be prepared."""


@functools.cache
def _null_columns(table: str, image: bytes) -> list[str]:
    """Those that are null in a row unless they are said."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", image)
    found = connection.execute(
        "select name from pragma_table_info(?) "
        'where not "notnull" and dflt_value is null and not pk',
        (table,),
    )
    return [name for (name,) in found]


def having_options(table: str) -> str:
    """The rows of the table with the options that they have, to select from."""
    said = ", ".join(f"spec.{name}" for name in sorted(IN_SPEC))
    return (
        f"(select own.*, {said} from {table} as own "
        "left join litejobs_spec as spec on spec.id = own.spec_id)"
    )


def with_options(columns: Mapping[str, Any]) -> dict[str, Any]:
    """These columns, with what is said in `options` as a JSON object."""
    said = {
        name: value
        for name, value in columns.items()
        if name in IN_SPEC and value is not None
    }
    row = {name: value for name, value in columns.items() if name not in IN_SPEC}
    return row | {"options": json.dumps(said)} if said else row


def is_code(code: Any) -> dict[str, Any]:
    """Holds for outcomes whose `code` is this."""
    return condition(at("outcome.code"), "eq", literal(code))


def machine_steps(db: Sql, statement: str, parameters: Any = ()) -> int:
    """How many steps SQLite's machine takes for it."""
    counted: list[int] = []
    db.connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    db.execute(statement, parameters)
    db.connection.trace_v2(0, None)
    return counted[-1]


def steps_of(db: Sql, action: Callable[[], object]) -> int:
    """How many hundreds of SQLite's own steps that takes."""
    count = itertools.count()

    def step() -> bool:
        next(count)
        return False

    db.connection.set_progress_handler(step, 100)
    action()
    db.connection.set_progress_handler(None, 100)
    return next(count)


def tables(db: Sql) -> list[str]:
    """The names of our tables."""
    return db.column(
        "select name from sqlite_schema where type = 'table' and name glob 'l*'"
    )


def on_apsw(
    *,
    clock: Any = None,
    recursive_triggers: bool = False,
    foreign_keys: bool = True,
    traced: bool = True,
    script: str = "",
) -> Sql:
    """A database of its own, through the VFS that asks Python for the time.

    What the *script* makes is in it.
    """
    connection = _Connection(
        ":memory:", vfs=ensure_clock_vfs(), statementcachesize=PLACES
    )
    connection.deserialize("main", _installed(script))
    _configure(connection, recursive_triggers, foreign_keys)
    if traced:
        _trace(connection)
    return Sql(connection, clock)


def _configure(
    connection: apsw.Connection, recursive_triggers: bool, foreign_keys: bool
) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.pragma("recursive_triggers", recursive_triggers)
    connection.pragma("foreign_keys", foreign_keys)


def _trace(connection: apsw.Connection) -> None:
    connection.trace_v2(apsw.SQLITE_TRACE_STMT, _Watcher(connection))


@contextlib.contextmanager
def watched(db: Sql) -> Iterator[None]:
    """Within the block it is seen which triggers act in this one, too."""
    _trace(db.connection)
    yield
    db.connection.trace_v2(0, None)


class _Kind(NamedTuple):
    """What differs between databases that are lent."""

    recursive_triggers: bool
    foreign_keys: bool
    traced: bool
    image: bytes  # which is another one where the SQL has a mistake (tests.mutations)


class _Lender:
    """Databases of their own for tests that do nothing to them but write rows.

    A new one costs up to half a second, to prepare what is said to it. So one that is
    given back is lent again with another content, as `litejobs._storage.in_memory` does
    it, and what was prepared goes on. One whose schema or settings have changed, or
    that is in a transaction, is not.
    """

    def __init__(self) -> None:
        self._idle: dict[_Kind, list[tuple[_Connection, apsw.VFSFile]]] = {}
        self._lent: dict[Sql, tuple[_Kind, apsw.VFSFile]] = {}

    def lend(self, kind: _Kind, clock: Any) -> Sql:
        """One in which everything of ours is, and nothing else."""
        idle = self._idle.setdefault(kind, [])
        if idle:
            connection, file = idle.pop()
            in_memory._put(connection, file, kind.image)
            connection.set_last_insert_rowid(0)
        else:
            connection, file = in_memory._spare.open(
                _Connection, held=True, statements=PLACES
            )
            in_memory._begin(connection, file, kind.image)
            _configure(connection, kind.recursive_triggers, kind.foreign_keys)
            if kind.traced:
                _trace(connection)
        db = Sql(connection, clock)
        self._lent[db] = kind, file
        return db

    def take_back(self, db: Sql) -> bool:
        """It is not needed any more; False for one that is of somebody else."""
        if db not in self._lent:
            return False
        kind, file = self._lent.pop(db)
        connection = db.connection
        if _is_closed(connection):
            return True
        if not kind.traced:
            connection.trace_v2(0, None)
        connection.set_progress_handler(None)
        version = int.from_bytes(kind.image[40:44], "big")
        if (
            not connection.in_transaction
            and connection.pragma("schema_version") == version
            and connection.pragma("recursive_triggers") == kind.recursive_triggers
            and connection.pragma("foreign_keys") == kind.foreign_keys
            and not connection.pragma("ignore_check_constraints")
            and connection.pragma("database_list") == (0, "main", ":memory:")
        ):
            self._idle[kind].append((connection, file))
        else:
            connection.close()
        return True

    def take_all_back(self) -> None:
        """Those that nobody has given back."""
        for db in list(self._lent):
            self.take_back(db)

    def close(self) -> None:
        """None is left."""
        for idle in self._idle.values():
            while idle:
                idle.pop()[0].close()


def _is_closed(connection: apsw.Connection) -> bool:
    try:
        return not connection.db_names()
    except apsw.ConnectionClosedError:
        return True


_lender = _Lender()
atexit.register(_lender.close)


def lent(
    *,
    clock: Any = None,
    recursive_triggers: bool = False,
    foreign_keys: bool = True,
    traced: bool = False,
    script: str = "",
) -> Sql:
    """A database of its own until the end of the test, or until `given_back`.

    For what is done to rows, and to nothing else: a test that makes functions, say, or
    sets an authorizer, has a database `on_apsw`. What the *script* makes is in it.
    """
    kind = _Kind(recursive_triggers, foreign_keys, traced, _installed(script))
    return _lender.lend(kind, clock)


def given_back(db: Sql) -> None:
    """The test does not need this one any more."""
    if not _lender.take_back(db):
        db.connection.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """What was lent to the test is taken back, after all that it has set up is gone."""
    try:
        return (yield)
    finally:
        _lender.take_all_back()


def on_sqlite3() -> Sql:
    """A database of its own, through the standard library, on real time."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, cached_statements=PREPARED
    )
    connection.deserialize(_installed())
    return Sql(connection)


@functools.cache
def _installed(script: str = "") -> bytes:
    """A file in which everything of ours is, and what the *script* makes."""
    connection = apsw.Connection(":memory:")
    if script:
        connection.deserialize("main", _installed())
        connection.execute(script)
        return connection.serialize("main")
    _statements.create(connection)
    db = Sql(connection)
    db.query("record_install", version=_statements.current_version(), path=None)
    db.execute(FIX_SALT, {"salt": SALT})
    # Tests about other things hear nothing of it: sql/test_retention.py has it again.
    guard = (
        "select sql from sqlite_schema where name like 'litejobs_retaining_delete_%'"
    )
    text = db.value(guard)
    db.execute("drop trigger litejobs_retaining_delete_guard")
    db.execute("delete from litejobs_retaining")
    db.execute(text)
    return connection.serialize("main")


CLIENTS = {
    "apsw": on_apsw,
    # Not watched, which takes as long as what it does: the first one says the same.
    "apsw-recursive": functools.partial(on_apsw, recursive_triggers=True, traced=False),
    "sqlite3": on_sqlite3,
}
HELD = ("apsw", "apsw-recursive")


@pytest.fixture(scope="session")
def clients() -> Iterator[dict[str, Sql]]:
    """One database of each kind for the whole session.

    Most of a short test's time would go into preparing statements anew, with all the
    triggers that hang on them.
    """
    opened = {name: client() for name, client in CLIENTS.items()}
    yield opened
    for db in opened.values():
        db.connection.close()


@contextlib.contextmanager
def as_new(db: Sql) -> Iterator[Sql]:
    """What happens to the database within the block is undone at its end."""
    db.execute("savepoint as_new")
    with time_machine.travel(START, tick=False) as clock:
        yield Sql(db.connection, clock)
    db.execute("rollback to as_new")
    db.execute("release as_new")


@pytest.fixture
def held(held_by: str, clients: dict[str, Sql]) -> Iterator[Sql]:
    """A database whose clock stands still until the test moves it."""
    with as_new(clients[held_by]) as db:
        yield db


@pytest.fixture
def db(client_of_db: str, clients: dict[str, Sql]) -> Iterator[Sql]:
    """A database as each kind of client sees it."""
    with as_new(clients[client_of_db]) as db:
        yield db


def pytest_addoption(parser: pytest.Parser) -> None:
    """To be asked before a release, and where clients are what has changed."""
    parser.addoption(
        "--every-client",
        action="store_true",
        help="run every test of the SQL through all kinds of clients",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which clients the test speaks through."""
    every = metafunc.config.getoption("every_client")
    every = every or metafunc.definition.get_closest_marker("every_client")
    for name, kinds in (("held_by", HELD), ("client_of_db", tuple(CLIENTS))):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, kinds if every else kinds[:1])


# What was seen --------------------------------------------------------------------


class _Watcher:
    """Reads SQLite's trace: a trigger is named when it is asked, whether or not its
    `when` lets it act; each statement of its body is shown when it runs."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._bodies = _bodies(tuple(trigger_sources(connection).items()))
        self._asked: str | None = None
        # What has been judged is the same each time, and there are millions.
        self._judged: set[tuple[str, str, bool]] = set()

    def __call__(self, event: dict[str, Any]) -> None:
        text = event["sql"]
        asked, self._asked = self._asked, None
        in_trigger = event["trigger"]
        if in_trigger and text.startswith("TRIGGER "):
            self._asked = text
        if asked is not None and (asked, text, in_trigger) not in self._judged:
            self._judged.add((asked, text, in_trigger))
            self._judge(asked.removeprefix("TRIGGER "), text, in_trigger)

    def _judge(self, asked: str, text: str, in_trigger: bool) -> None:
        if in_trigger and " ".join(text.split()) in self._bodies.get(asked, ()):
            SEEN.acted.add(asked)
        else:
            SEEN.held_back.add(asked)


def trigger_sources(connection: Any) -> dict[str, str]:
    """Our triggers: their names and how they were created."""
    return dict(
        connection.execute(
            "select name, sql from sqlite_schema where type = 'trigger' "
            "and name glob 'litejobs_*' order by name"
        ).fetchall()
    )


@functools.cache
def _bodies(sources: tuple[tuple[str, str], ...]) -> dict[str, frozenset[str]]:
    return {name: frozenset(trigger_body(source)) for name, source in sources}


def trigger_when(source: str) -> str | None:
    """The condition of a trigger, None for one that always acts."""
    head = re.split(r"\nbegin\n", source, maxsplit=1)[0]
    parts = re.split(r"\nwhen ", head, maxsplit=1)
    return parts[1] if len(parts) > 1 else None


def trigger_body(source: str) -> list[str]:
    """The statements of a trigger, each on one line."""
    body = re.split(r"\nbegin\n", source, maxsplit=1)[1]
    body = body[: body.rindex("end")]
    # A semicolon inside a string belongs to the string.
    statements = re.findall(r"(?:'[^']*'|[^';])+", body)
    return [" ".join(each.split()) for each in statements if each.strip()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Who else speaks in the long form; what the whole suite has seen comes last.

    What is said here takes long to be prepared, by each client anew.
    """
    if not config.getoption("every_client"):
        for item in items:
            if not _is_for_any_run(item):
                item.add_marker(pytest.mark.torture)
    items.sort(key=lambda item: item.path.name == "test_whole.py")


DIFFERENT = {f"test_{name}.py" for name in ("enqueue", "claim", "settle", "guard")}
"""Where clients differ most, all three of them speak by default."""


def _is_for_any_run(item: pytest.Item) -> bool:
    """Whether this client says it in the short form, too: elsewhere the first one."""
    if item.path.name in DIFFERENT:
        return True
    first = next(iter(CLIENTS))
    found = getattr(item, "callspec", None)
    return found is None or found.params.get("client_of_db", first) == first
