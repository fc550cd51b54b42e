"""Where the scheduler of a cluster is."""

from __future__ import annotations

import contextlib
from typing import Any

from litejobs._definitions.checks import shown
from litejobs.errors import ConfigurationError


class Cluster:
    """Finds the scheduler: by *given*, an address, a cluster or a client of Dask.

    Raises:
        ConfigurationError: It is something else.
    """

    def __init__(self, given: object, security: Any = None) -> None:
        self._given: Any = given
        self._security = security
        self._last = given if isinstance(given, str) else None
        if isinstance(given, str):
            if not given.strip() or given != given.strip():
                raise ConfigurationError(_refusal(given))
        elif not (
            hasattr(given, "scheduler_address")
            or (hasattr(given, "submit") and hasattr(given, "scheduler"))
        ):
            raise ConfigurationError(_refusal(given))
        # A client that is closed later does not know it any more.
        with contextlib.suppress(OSError):
            self.address()

    def __repr__(self) -> str:
        return repr(self._given)

    def __str__(self) -> str:
        return self._last or f"{self._given!r:.200}"

    def address(self) -> str:
        """Return the address of its scheduler, as it is now or was last.

        Raises:
            OSError: It has none yet.
        """
        found = getattr(self._given, "scheduler_address", None)
        if found is None:
            found = getattr(getattr(self._given, "scheduler", None), "address", None)
        if isinstance(found, str) and found and "Not Connected" not in found:
            self._last = found
        if self._last is None:
            raise OSError(f"{self._given!r:.200} has no scheduler")
        return self._last

    @property
    def security(self) -> Any:
        """What Dask is to encrypt with; None for nothing, or as it is configured."""
        if self._security is not None:
            return self._security
        return getattr(self._given, "security", None)


def _refusal(given: object) -> str:
    return (
        f"Dask({shown(given)}) names no cluster; give the address of its scheduler, "
        '"tls://10.0.0.1:8786" say, or a cluster or a client of Dask'
    )
