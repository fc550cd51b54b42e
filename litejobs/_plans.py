"""Plan a schedule within a transaction: the calendar's answers become rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs import _planner
from litejobs._sql import queries
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    import apsw

_MOST_PLANS = 5


def plan_now(db: apsw.Connection, schedule_id: int) -> None:
    """The next instants are rows; one plan may ask for another.

    Raises:
        ConfigurationError: It cannot be planned; the transaction is to be rolled back.
    """
    known = queries()
    parameters = {"schedule_id": schedule_id}
    for _ in range(_MOST_PLANS):
        requests = db.execute(known["planning_of"], parameters).fetchall()
        if not requests:
            return
        answer = _planner.plan(_planner.Request._make(requests[0]))
        if answer.problem is not None:
            raise ConfigurationError(answer.problem)
        db.execute(known["record_plan"], answer.parameters())
