"""A policy becomes rows: its rules, their conditions and what they remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from litejobs._definitions.columns import folded
from litejobs._storage.statements import queries

if TYPE_CHECKING:
    import apsw


class PolicyRows(Protocol):
    """What is stored of a `Policy`."""

    @property
    def otherwise(self) -> str:
        """What happens if no rule fits."""

    def source(self) -> str:
        """The whole policy as text; two are the same if this is."""

    def rows(self) -> list[dict[str, Any]]:
        """Its rules in order, each with its conditions and changes."""


def record_policy(
    db: apsw.Connection,
    task: str,
    step: str,
    policy: PolicyRows,
    *,
    purpose: str = "retry",
) -> int:
    """The policy is in force for the task, or for its *step* if that is not ""; its id.

    The one that was in force before for this *purpose* (retry or circuit) is replaced.
    """
    known = queries()
    policy_id: int = db.execute(
        known["record_policy"],
        {
            "task": task,
            "step": step,
            "otherwise": policy.otherwise,
            "source": policy.source(),
            "purpose": purpose,
        },
    ).get
    for rule in policy.rows():
        parent = {"policy_id": policy_id}
        row = folded(rule) | parent
        rule_id: int = db.execute(known["record_rule"], row).get
        owner = {"rule_id": rule_id}
        db.executemany(
            known["record_condition"], [each | owner for each in rule["conditions"]]
        )
        db.executemany(
            known["record_change"],
            [
                each | owner | {"position": position}
                for position, each in enumerate(rule["changes"], 1)
            ],
        )
    return policy_id
