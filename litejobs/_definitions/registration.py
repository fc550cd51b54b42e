"""A task as it is declared in code, and as the rows that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from litejobs._definitions import columns as _columns
from litejobs._definitions import options as _options
from litejobs._definitions.checks import check_name, name_text
from litejobs._definitions.gates import Circuit
from litejobs._definitions.policy import Policy, Retry, Rule
from litejobs.errors import ConfigurationError


@attrs.frozen(kw_only=True)
class Registration:
    """A task as rows: its own, the labels of its steps, its policies, its circuit.

    `policies` are those of single steps by label, that of the whole task under "".
    `schedules` are those that the code declares for it, as rows; `signature` says which
    arguments it takes.
    """

    row: dict[str, Any]
    steps: tuple[str, ...]
    policies: dict[str, Policy]
    circuit: Circuit | None = None
    schedules: tuple[dict[str, Any], ...] = ()
    signature: str | None = None

    @property
    def name(self) -> str:
        """The name of the task."""
        name: str = self.row["name"]
        return name


@attrs.frozen(kw_only=True)
class Declaration:
    """A task as it is registered, before it is written into the file."""

    name: str
    options: Mapping[str, Any] = attrs.field(factory=dict)
    steps: tuple[str, ...] = ()
    step_policies: Mapping[str, Policy] = attrs.field(factory=dict)
    schedules: tuple[dict[str, Any], ...] = ()
    signature: Callable[[], str] | None = None
    parameters: Callable[[], str] | None = None

    def registration(self) -> Registration:
        """The rows of the task, checked as `FlowOptions` say.

        Where rules say how often and nothing else does, the job's own limit is the
        most that one of them allows, so that each can be reached. A limit or a rate
        without a key is that of the task: its name is the key.
        """
        check_name("task", name_text("task", self.name))
        retry, policy = self.options.get("retry"), self.options.get("policy")
        columns = _columns.columns_of(_options.FLOW, self._with_limits(retry, policy))
        policies = self._policies(retry, policy)
        row = {"name": self.name} | _columns.NEW_TASK | columns
        if row["max_attempts"] is None and policies:
            allowed = [each.max_attempts for each in policies.values()]
            row["max_attempts"] = max(
                (each for each in allowed if each is not None), default=None
            )
        if retry is None and policy is not None and row["jitter"] is None:
            row["jitter"] = policy.default_jitter
        if row["concurrency_key"] is None:
            row["concurrency_key"] = self._own_key(row)
        circuit: Circuit | None = row["circuit"]
        row["circuit"] = None if circuit is None else circuit.key
        if self.parameters is not None:
            row["parameters"] = self.parameters()
        return Registration(
            row=_columns.folded(row),
            steps=self.steps,
            policies=policies,
            circuit=circuit,
            schedules=self.schedules,
            signature=None if self.signature is None else self.signature(),
        )

    def _own_key(self, row: Mapping[str, Any]) -> str | None:
        if row["concurrency_limit"] is None and row["rate_count"] is None:
            return None
        if "{" in self.name or "}" in self.name:
            raise ConfigurationError(
                f"task {self.name!r} has a limit or a rate but no key, and its name "
                "with braces cannot be one; give concurrency_key"
            )
        return self.name

    def _with_limits(self, retry: object, policy: object) -> Mapping[str, Any]:
        """The options, with what the policy says of limits as the retry."""
        limits = policy.limits if isinstance(policy, Policy) else None
        if limits is None:
            return self.options
        if retry is not None:
            raise ConfigurationError(
                f"task {self.name!r}: retry and the limits of its policy both say how "
                "often; give one of them"
            )
        return {**self.options, "retry": limits}

    def _policies(
        self, retry: Retry | None, policy: Policy | None
    ) -> dict[str, Policy]:
        triggered = None if retry is None else retry.policy()
        if None not in (triggered, policy):
            raise ConfigurationError(
                f"task {self.name!r}: retry with on= and policy are both rules; write "
                "what is in on as a rule of the policy"
            )
        whole = policy if triggered is None else triggered
        found = dict(self.step_policies)
        if whole is not None:
            found[""] = whole
        elif (
            found
            and self.options.get("max_attempts") is None
            and self.options.get("retries") is None
            and (retry is None or retry.max_attempts is None)
        ):
            # Else the most that one step allows would be allowed to all of them.
            found[""] = Policy([Rule(None, "retry", attempts=3)])
        return found
