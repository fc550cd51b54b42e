"""What a person does, recorded so that it can be undone: operations.

What belongs to an operation, whether it can be undone and how, is decided in SQL.
Python says where it begins and ends, and tells a person what is in the way.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime as dt
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import apsw
import attrs

from litejobs._control.bulk import LEAST_REST, REST, contention_probe
from litejobs._definitions.checks import (
    LARGEST_ID,
    NAME_LENGTH,
    check_text,
    is_whole,
    shown,
)
from litejobs._definitions.milliseconds import read_instant
from litejobs._process.clock import RealTime
from litejobs._storage.statements import queries
from litejobs._values.blocks import block
from litejobs._values.text import sentence
from litejobs.errors import (
    ConfigurationError,
    ConstraintViolated,
    LiteJobsError,
    OperationNotFound,
    translated,
)

if TYPE_CHECKING:
    from litejobs._storage.database import Database
    from litejobs._storage.store import Source, Store

OperationState = Literal["open", "done", "undone", "lapsed"]

_DETAIL_LENGTH = 2_000
_MOST_NAMED = 3  # of the things that are in the way


@attrs.frozen(kw_only=True)
class Operation:
    """What a person did: its name, such as "pause", and what with, "queue mail".

    `origin` says how it was done ("api", "cli" or "sql"), `changes` how many things it
    changed. `in_the_way` says why it cannot be undone (any more), None if it can.
    Operations of one `command`, which is the id of the first that is left of them, are
    undone together.
    """

    id: int
    command: int
    name: str
    detail: str | None
    origin: str | None
    state: OperationState
    at: dt.datetime | None
    undone_at: dt.datetime | None
    changes: int
    in_the_way: str | None

    def __str__(self) -> str:
        return sentence(title(self.name, self.detail))

    @property
    def can_be_undone(self) -> bool:
        """Whether everything that it changed is still as it was left."""
        return self.in_the_way is None


@attrs.define(kw_only=True)
class OpenOperation:
    """An operation that is going on. Its `detail` may be set until it ends."""

    id: int = attrs.field(on_setattr=attrs.setters.frozen)
    name: str = attrs.field(on_setattr=attrs.setters.frozen)
    detail: str | None = None


# The operation in whose block this thread, or coroutine, is, and in which database.
_current: contextvars.ContextVar[tuple[Database, OpenOperation] | None] = (
    contextvars.ContextVar("litejobs_operation", default=None)
)


def current_operation(store: Store) -> OpenOperation | None:
    """The operation in whose block the caller is."""
    found = _current.get()
    if found is None or found[0] is not store.database:
        return None
    return found[1]


class _NothingChanged(Exception):
    """The transaction is rolled back, since there is nothing to store."""


@block
def opened_if_changed(
    store: Store,
    name: str,
    detail: str | None,
    *,
    undoable: bool,
    command: int | None = None,
) -> Iterator[OpenOperation]:
    """As `opened`; where the block has changed no row, nothing is written at all.

    For blocks of which it is known that they do nothing else than change rows.
    """
    with (
        contextlib.suppress(_NothingChanged),
        opened(store, name, detail, undoable=undoable, command=command) as operation,
        store.transaction() as db,
    ):
        before = db.total_changes()
        yield operation
        # How things were is recorded before it is known that they stay so.
        recorded = db.execute(queries()["count_changes"], {"id": operation.id}).get
        if undoable and db.total_changes() - before == recorded:
            raise _NothingChanged


@block
def opened(
    store: Store,
    name: str,
    detail: str | None,
    *,
    undoable: bool,
    command: int | None = None,
) -> Iterator[OpenOperation]:
    """See `LiteJobs.operation`."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"name={shown(name)} is not a name; give a text")
    check_text("name", name, NAME_LENGTH)
    check_text("detail", detail, _DETAIL_LENGTH)
    outer = current_operation(store)
    database = store.database
    with database.transaction() as db:
        if outer is not None:
            yield outer
            return
        parameters = {
            "name": name,
            "origin": store.origin,
            "undoable": int(undoable),
            "command": _number(command),
        }
        operation_id: int = db.execute(queries()["begin_operation"], parameters).get
        operation = OpenOperation(id=operation_id, name=name, detail=detail)
        before = _current.get()
        _current.set((database, operation))
        try:
            yield operation
        finally:
            _current.set(before)
        check_text("detail", operation.detail, _DETAIL_LENGTH)
        db.execute(
            queries()["end_operation"], {"id": operation.id, "detail": operation.detail}
        )


def listed(store: Store, limit: int) -> list[Operation]:
    """See `LiteJobs.operations`."""
    return [
        operation_of(row) for row in rows_of(store, "list_operations", {"limit": limit})
    ]


def rows_of(source: Source, query: str, parameters: Any) -> list[dict[str, Any]]:
    """Operations as a named query finds them, and what is `in_the_way` of undoing each.

    *source* reads rows as LiteJobs does. The obstacles are asked for operation by
    operation: asked for many, SQLite would work out all of each.
    """
    rows: list[dict[str, Any]] = source.rows(query, parameters)
    for row in rows:
        if row["in_the_way"] is None:
            for found in _obstacles(source, row["id"], None, limit=1):
                row["in_the_way"] = found["sentence"]
    return rows


def commands_of(source: Source, query: str, parameters: Any) -> list[dict[str, Any]]:
    """The same for commands: what is in the way of any of the operations that are left.

    And whether it is in the way of some of them only, so that they go back `in_part`.
    """
    rows: list[dict[str, Any]] = source.rows(query, parameters)
    for row in rows:
        first, possible = None, False
        for each in remaining_of(source, row["id"], limit=1):
            if each.obstacles:
                first = first or each.obstacles[0]["sentence"]
            else:
                possible = True
            if first and possible:
                break
        row["in_the_way"] = row["in_the_way"] or first
        row["in_part"] = first is not None and possible
    return rows


@attrs.frozen
class Remaining:
    """An operation that is not undone yet, and what is in the way of that."""

    id: int
    changes: int
    obstacles: list[dict[str, Any]]


def remaining_of(source: Source, operation_id: int, limit: int) -> Iterator[Remaining]:
    """The operations of the command of this one that are left, the last one first.

    What is in the way of each, so much at most, once those before are undone that can
    be.
    """
    undone: list[int] = []
    for row in source.rows("operations_to_undo", {"operation": operation_id}):
        if row["in_the_way"] is None:
            found = _obstacles(source, row["id"], undone, limit)
        else:
            # It is so of the operation, and of no thing.
            reason = row["in_the_way"]
            about = f"operation {row['id']}"
            found = [{"object": about, "reason": reason, "sentence": reason}]
        if not found:
            undone.append(row["id"])
        yield Remaining(row["id"], row["changes"], found)


def _obstacles(
    source: Source, operation_id: int, undone: list[int] | None, limit: int
) -> list[dict[str, Any]]:
    """What is in the way of an operation, once these later ones are *undone*.

    None means all of them.
    """
    rows: list[dict[str, Any]] = source.rows(
        "operation_obstacles",
        {
            "id": operation_id,
            "undone": None if undone is None else json.dumps(undone),
            "limit": limit,
        },
    )
    return rows


Plan = Callable[[apsw.Connection, int | None], None]
"""Makes the next instants of the schedules known that an operation has changed."""


def undone(store: Store, operation_id: int | None, plan: Plan) -> Operation:
    """See `LiteJobs.undo`."""
    for operation in undoing(store, operation_id, plan):  # noqa: B007 - the last is the first that was done
        pass
    return operation


def undoing(store: Store, operation_id: int | None, plan: Plan) -> Iterator[Operation]:
    """Each operation of the command, the last one first, when it has been taken back.

    Each is a transaction of its own, with a rest after it; those that are refused are
    left, and said in the end. If the caller is in a transaction, it is all or nothing.

    Raises:
        OperationNotFound, ConstraintViolated: As `LiteJobs.undo`.
    """
    if operation_id is not None and not _is_number(operation_id):
        raise OperationNotFound(
            f"there is no operation {shown(operation_id)} in {store.path}"
        )
    if current_operation(store) is not None:
        raise LiteJobsError(
            "an operation is going on here, and undoing is not part of it; undo "
            "before or after the block"
        )
    database = store.database
    if operation_id is None:
        [(operation_id,)] = database.run("last_operation", {})
    # Where there is none left, it is said of the one that was named.
    ids = [
        row["id"]
        for row in store.rows("operations_to_undo", {"operation": operation_id})
    ] or [operation_id]
    done: list[Operation] = []
    refused: list[_NotUndone] = []
    if database.in_transaction():
        try:
            with database.transaction():
                done = [_undone(store, each, plan) for each in ids]
        except _NotUndone as refusal:
            raise _refusal([refusal], [], _way_out(ids, True)) from refusal
        yield from done
        return
    rest, is_contended = 0.0, contention_probe(database)
    for each in ids:
        if rest:
            RealTime.sleep(rest if is_contended() else LEAST_REST)
        began = RealTime.monotonic()
        try:
            operation = _undone(store, each, plan)
        except _NotUndone as refusal:
            refused.append(refusal)
        else:
            done.append(operation)
            yield operation
        rest = max(LEAST_REST, (RealTime.monotonic() - began) * REST)
    # Somebody else may have undone, or forgotten, some of several at the same time.
    left = [each for each in refused if each.is_left]
    if left:
        raise _refusal(left, done, _way_out(ids, False)) from left[0]
    if not done:
        raise _refusal(refused[:1], [], _way_out(ids[:1], False)) from refused[0]


class _NotUndone(Exception):
    """This operation was not undone; it is None if it is not there, or not known."""

    def __init__(
        self, error: Exception, operation: Operation | None, reason: str
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.operation = operation
        self.reason = reason

    @property
    def code(self) -> str:
        return getattr(self.error, "code", "")

    @property
    def is_left(self) -> bool:
        """Whether it could be undone if nothing were in the way."""
        return self.operation is not None and self.code != "operation_undone"


def _undone(store: Store, operation_id: int | None, plan: Plan) -> Operation:
    """This operation, taken back in one transaction.

    Raises:
        _NotUndone: It is as it was.
    """
    with store.database.transaction() as db:
        try:
            db.execute(
                queries()["undo"], {"operation": operation_id, "origin": store.origin}
            )
        except apsw.ConstraintError as error:
            raise _why_not(store, operation_id, error) from error
        plan(db, operation_id)
        [row] = rows_of(store, "read_operation", {"id": operation_id})
        return operation_of(row)


def operations_shown(ids: Sequence[int]) -> str:
    """`operation 7`, `3 operations from 4 to 6`, `4 operations: 2, 4 to 6`."""
    runs: list[list[int]] = []
    for each in sorted(ids):
        if runs and runs[-1][1] == each - 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    if len(ids) == 1:
        return f"operation {ids[0]}"
    if len(runs) == 1:
        return f"{len(ids)} operations from {runs[0][0]} to {runs[0][1]}"
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    return f"{len(ids)} operations: {', '.join(texts)}"


def _is_number(operation_id: object) -> bool:
    return is_whole(operation_id, 1, LARGEST_ID)


def _number(command: object) -> object:
    """The id of an operation, if one is named."""
    if command is not None and not _is_number(command):
        raise ConfigurationError(
            f"command={shown(command)} is not an operation; give the id of the first "
            "of them"
        )
    return command


def title(name: str, detail: str | None) -> str:
    """`pause: queue mail`."""
    return name if detail is None else f"{name}: {detail}"


def operation_of(row: dict[str, Any]) -> Operation:
    """A row of `rows_of`."""
    return Operation(
        id=row["id"],
        command=row["command"],
        name=row["name"],
        detail=row["detail"],
        origin=row["origin"],
        state=row["state"],
        at=read_instant(row["at"]),
        undone_at=read_instant(row["undone_at"]),
        changes=row["changes"],
        in_the_way=row["in_the_way"],
    )


def obstacles_shown(obstacles: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    named = ", ".join(obstacles[:_MOST_NAMED])
    more = len(obstacles) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _why_not(store: Store, operation_id: int | None, error: apsw.Error) -> _NotUndone:
    """What the database said, with the names of what is in the way."""
    refused = translated(error)
    code = getattr(refused, "code", "")
    if code == "unknown_operation":
        text = (
            f"there is no operation {operation_id} in {store.path}; "
            "see the list of operations"
        )
        return _NotUndone(OperationNotFound(text), None, "")
    if code == "nothing_to_undo":
        text = (
            f"there is no operation to undo in {store.path}: none is done and not "
            "undone yet"
        )
        return _NotUndone(OperationNotFound(text), None, "")
    rows = store.rows("read_operation", {"id": operation_id})
    if not rows or code not in _CODES:
        raise refused
    operation = operation_of(rows[0])
    reason = operation.in_the_way or str(refused)
    if code == "moved_on":
        # Those of the same command that are later, and left, have been refused as well.
        found = _obstacles(store, operation.id, [], LARGEST_ID)
        reason = obstacles_shown([row["sentence"] for row in found])
    return _NotUndone(refused, operation, reason)


def _refusal(
    left: Sequence[_NotUndone], done: Sequence[Operation], way_out: str
) -> Exception:
    """Which operations of the command have been undone, which have not, and why."""
    operations = [each.operation for each in left if each.operation is not None]
    if not operations:
        return left[0].error
    ids = [operation.id for operation in operations]
    reason = left[0].reason
    if len(left) > 1:
        reason = obstacles_shown(
            [
                f"operation {each.operation.id}: {each.reason}"
                for each in left
                if each.operation
            ]
        )
    state = "nothing was changed"
    if done:
        changes = sum(operation.changes for operation in done)
        state = (
            "undone of the same command: "
            f"{operations_shown([operation.id for operation in done])} ({changes} "
            f"changes), not undone: {operations_shown(ids)}"
        )
    codes = [each.code for each in left]
    return ConstraintViolated(
        f"{operations_shown(ids)} ({operations[0]}) cannot be undone: {reason}; "
        f"{state}; put right by hand what should be otherwise{way_out}",
        "moved_on" if "moved_on" in codes else codes[0],
    )


def _way_out(ids: Sequence[int], at_once: bool) -> str:
    """What else can be done, where these were to be undone, perhaps all at once."""
    if len(ids) == 1:
        return ", or name another operation"
    if at_once:
        return ", or undo outside of a transaction, where the others go back"
    return f", and undo operation {ids[-1]} again, which tries those that are left"


_CODES = frozenset(
    {
        "operation_undone",
        "operation_open",
        "operation_not_recorded",
        "operation_is_final",
        "moved_on",
    }
)
