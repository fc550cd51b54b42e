"""uWSGI forks its workers in C, and calls no hook but one of its own.

The hook is a name in the module `uwsgi`, which anybody may set: the last one counts,
and `uwsgidecorators.postfork` sets it when it is imported. So what is set there, before
or later, is called behind ours.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from litejobs._process import log

_NAME = "post_fork_hook"


def when_worker_begins(begin: Callable[[], object]) -> None:
    """Call *begin* in each worker of uWSGI, if that runs this program."""
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is None:
        return

    class Chained(types.ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, _both(begin, value) if name == _NAME else value)

    earlier = getattr(uwsgi, _NAME, None)
    uwsgi.__class__ = Chained
    setattr(uwsgi, _NAME, earlier)


def _both(ours: Callable[[], object], theirs: Any) -> Callable[[], None]:
    def post_fork_hook() -> None:
        try:
            ours()
        except Exception:
            log.exception("litejobs could not begin in this worker of uWSGI")
        if callable(theirs):
            theirs()

    return post_fork_hook
