"""A pool that is given functions one by one, and futures of what becomes of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from litejobs._runner.pool import DaemonPool, WorkItem


class Submitted(Future[Any]):
    """What becomes of an item, for which one can wait."""

    def __init__(self) -> None:
        super().__init__()
        self.item = WorkItem(tell, self)

    def cancel(self) -> bool:
        return self.item.cancel()


def tell(future: Submitted, item: WorkItem) -> None:
    """What becomes of the item becomes of the future."""
    error = item.exception()
    if item.cancelled():
        Future.cancel(future)
        future.set_running_or_notify_cancel()
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(item.result())


class Pool(DaemonPool):
    """One that is given functions one by one, with any arguments."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Submitted:
        future = Submitted()
        self.run_all(operator.call, [(future.item, partial(fn, *args, **kwargs))])
        return future
