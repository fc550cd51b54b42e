"""What the code declares becomes rows: tasks with steps, policies, breakers, schedules.

Only what has changed is written; the caller has begun the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import apsw

from litejobs._definitions.policy_rows import record_policy
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.statements import queries

if TYPE_CHECKING:
    from litejobs._definitions.policy import Policy
    from litejobs._definitions.registration import Registration


def declare(db: apsw.Connection, declarations: Iterable[Registration]) -> None:
    """The tasks are in the file; only what has changed is written.

    Steps and policies first: jobs that have waited for their task are given its first
    step when it comes. A policy that another client has written for a task that has
    none in the code is left in force, and so is a breaker.
    """
    for each in declarations:
        _declare_steps(db, each)
        _declare_policies(db, each)
        _declare_breaker(db, each)
        db.execute(queries()["forget_rename"], {"name": each.name})
        if each.row["options"] is not None:
            db.execute(queries()["specify_task"], {"options": each.row["options"]})
        db.execute(queries()["declare_task"], each.row)
        _declare_retention(db, each)


def _declare_retention(db: apsw.Connection, task: Registration) -> None:
    """How long its jobs are kept is as the code says, if it has ever said so."""
    said = task.row["retention"] is not None
    if said or db.execute(queries()["tasks_have_retention"]).get:
        db.execute(queries()["declare_task_retention"], task.row)


def _declare_steps(db: apsw.Connection, task: Registration) -> None:
    name = {"task": task.name}
    known = tuple(
        row[0] for row in fetch_lossy(db, queries()["steps_of_task"], name)[1]
    )
    if known == task.steps:
        return
    db.execute(queries()["forget_steps"], name)
    for position, label in enumerate(task.steps, 1):
        step = {"position": position, "label": label}
        db.execute(queries()["record_step"], name | step)


def _declare_policies(db: apsw.Connection, task: Registration) -> None:
    name = {"task": task.name}
    rows = fetch_lossy(db, queries()["policies_in_force"], name)[1]
    in_force = {str(step): source for step, source in rows}
    for step, source in in_force.items():
        if step not in task.policies and source is not None:
            db.execute(queries()["drop_policy"], name | {"step": step})
    for step, policy in task.policies.items():
        if in_force.get(step) != policy.source():
            record_policy(db, task.name, step, policy)


def _declare_breaker(db: apsw.Connection, task: Registration) -> None:
    """When the circuit of the task opens is as the code says, if it has one."""
    name = {"task": task.name}
    if task.circuit is None:
        # Without a circuit in the file, too, the breaker is none that the code wrote.
        if db.execute(queries()["had_circuit"], name).get:
            db.execute(queries()["drop_breaker"], name)
            db.execute(queries()["drop_circuit_policy"], name)
        return
    policy_id = _declare_circuit_policy(db, task.name, task.circuit.policy)
    breaker = {**task.circuit.columns(), "policy_id": policy_id}
    db.execute(queries()["declare_breaker"], name | breaker)


def _declare_circuit_policy(
    db: apsw.Connection, task: str, policy: Policy | None
) -> int | None:
    """What counts as a failure is as the code says; the id of its rules, if any."""
    name = {"task": task}
    rows = fetch_lossy(db, queries()["circuit_policy_in_force"], name)[1]
    if policy is None:
        if rows:
            db.execute(queries()["drop_circuit_policy"], name)
        return None
    for policy_id, source in rows:
        if source == policy.source():
            return int(policy_id)
    return record_policy(db, task, "", policy, purpose="circuit")


def declare_schedules(
    db: apsw.Connection, declarations: Iterable[Registration], runner: int | None
) -> None:
    """The schedules of the tasks are in the file, as those of this *runner* if any.

    One that a person has made or changed is left as it is.
    """
    for task in declarations:
        for row in task.schedules:
            db.execute(queries()["declare_schedule"], {**row, "runner_id": runner})


def record_retention(
    db: apsw.Connection, retention: Mapping[str, Mapping[str, int | None]]
) -> None:
    """So long is kept what is of these kinds, unless a person says otherwise."""
    for kind, row in retention.items():
        db.execute(queries()["declare_retention"], {"kind": kind, **row})


def record_renames(db: apsw.Connection, renames: Mapping[str, str]) -> None:
    """Jobs of each old name are jobs of the new one, those that come later as well."""
    for old, new in renames.items():
        db.execute(queries()["record_rename"], {"old_name": old, "new_name": new})
