"""What values that callers give may be: each rule once, each refusal one sentence."""

from __future__ import annotations

from litejobs.errors import ConfigurationError


def check_limit(limit: int) -> None:
    """Refuse what is no number of rows to list."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**63:
        raise ConfigurationError(f"limit={limit!r} is out of range; give 1 or more")
