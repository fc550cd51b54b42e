"""When schedules fire next: what the calendar answers becomes rows.

The view `litejobs_planning` asks, `planner` answers, and the view `litejobs_plan`
takes the answer. No calendar is asked inside a transaction, except for one schedule
that a person has just changed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import apsw

from litejobs._storage.rows import fetch_lossy, savepoint
from litejobs._storage.statements import queries
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._definitions.registration import Registration
    from litejobs._storage.database import Database

PLANNED_AT_ONCE = 200
PLANNING_TIME = 0.02  # seconds
MOST_PLANS = 5  # one after the other for a schedule: one may ask for another

Rows = list[Any]


def answers(rows: Rows) -> list[dict[str, Any]]:
    """What the calendar answers to the first of these rows of litejobs_planning."""
    from litejobs._schedules import planner

    requests = [planner.Request._make(row) for row in rows]
    return [plan.parameters() for plan in planner.plans(requests, PLANNING_TIME)]


def record_plan(db: apsw.Connection, plan: dict[str, Any]) -> None:
    """The plan is in the file; a schedule whose plan is refused is paused for it."""
    try:
        with savepoint(db):
            db.execute(queries()["record_plan"], plan)
    except apsw.ConstraintError as error:
        problem = f"its plan was refused: {error}; change the schedule"
        db.execute(queries()["record_plan"], {**plan, "problem": problem})


def unplanned(db: apsw.Connection, declarations: Iterable[Registration]) -> Rows:
    """What the calendar is to be asked of these tasks' new and changed schedules.

    What has become of others since they were planned is left to the runner.
    """
    names = [row["name"] for task in declarations for row in task.schedules]
    if not names:
        return []
    which = {"names": json.dumps(names), "limit": PLANNED_AT_ONCE}
    return db.execute(queries()["planning_of_declared"], which).fetchall()


def plan_declared(
    database: Database, declarations: Iterable[Registration], rows: Rows
) -> None:
    """The next instants of *rows*, which are `unplanned`, are in the file.

    So they are known also while no runner runs. Others may write between a few and the
    next few, and no calendar is asked inside a transaction.
    """
    asked: dict[int, int] = {}
    while rows:
        plans = answers(rows)
        with database.transaction() as db:
            for plan in plans:
                record_plan(db, plan)
                asked[plan["schedule_id"]] = asked.get(plan["schedule_id"], 0) + 1
            rows = rows[len(plans) :] or unplanned(db, declarations)
        if max(asked.values()) >= MOST_PLANS:
            return


def replan_zones(db: apsw.Connection) -> None:
    """What was planned with another version of a zone's clock is planned anew."""
    zones = fetch_lossy(db, queries()["zones_in_use"], None)[1]
    if not zones:
        return
    from litejobs._schedules import planner

    for timezone, version in planner.outdated(zones):
        again = {"timezone": timezone, "tz_version": version}
        db.execute(queries()["replan_zone"], again)


def plan_now(db: apsw.Connection, schedule_id: int) -> None:
    """The next instants are rows; one plan may ask for another.

    Raises:
        ConfigurationError: It cannot be planned; the transaction is to be rolled back.
    """
    from litejobs._schedules import planner

    known = queries()
    parameters = {"schedule_id": schedule_id}
    for _ in range(MOST_PLANS):
        requests = db.execute(known["planning_of"], parameters).fetchall()
        if not requests:
            return
        answer = planner.plan(planner.Request._make(requests[0]))
        if answer.problem is not None:
            raise ConfigurationError(answer.problem)
        db.execute(known["record_plan"], answer.parameters())


def plan_changed(db: apsw.Connection, operation_id: int | None) -> None:
    """The next instants of schedules that this operation has changed are known."""
    found: list[Any] = db.execute(
        queries()["schedules_of_operation"], {"id": operation_id}
    ).fetchall()
    for (schedule_id,) in found:
        # One that can never be planned was so before; a runner says why.
        with contextlib.suppress(ConfigurationError):
            plan_now(db, schedule_id)
