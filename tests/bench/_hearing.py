"""How a runner hears of the commits of other processes, as far as it is measured."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from unittest import mock

from litejobs._storage import change_hints

# Whether what tells of changed files is installed; else runners poll.
NOTIFIED = importlib.util.find_spec(change_hints.LIBRARY) is not None


@contextlib.contextmanager
def polling_alone() -> Iterator[None]:
    """Runners that start in this block look for commits of others by themselves."""
    with mock.patch.dict(sys.modules, {change_hints.LIBRARY: None}):
        yield
