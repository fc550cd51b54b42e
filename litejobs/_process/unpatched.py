"""What fits the threads of this process, also where gevent has replaced some of Python.

`monkey.patch_all()` makes each thread a greenlet, and all that waits lets others run.
With `thread=False` threads stay threads, but what gevent has put in the place of
queues, selectors and subprocesses, which fits greenlets alone, is there all the same.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


def unpatched(module: ModuleType, name: str) -> Any:
    """Return what the module has under this name, of Python where threads are its."""
    monkey = _monkey_among_threads()
    if monkey is None or not monkey.is_object_patched(module.__name__, name):
        return getattr(module, name)
    found = monkey.get_original(module.__name__, name)
    source = getattr(found, "__module__", None)
    # What is written in Python calls what stands beside it, which was replaced, too.
    return getattr(_anew(source), name) if source == module.__name__ else found


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new one, to be run in a thread."""
    import asyncio
    import select
    import selectors

    monkey = _monkey_among_threads()
    if monkey is None or not monkey.is_object_patched("select", "poll"):
        return asyncio.new_event_loop()
    kind: Any = _anew(selectors.__name__).PollSelector
    poll = unpatched(select, "poll")
    selector: Any = type("Selector", (kind,), {"_selector_cls": poll})
    return asyncio.SelectorEventLoop(selector())


def _monkey_among_threads() -> Any:
    """What has replaced some of Python, and no threads, if that is there."""
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is None or monkey.is_module_patched("threading"):
        return None
    return monkey


@functools.cache
def _anew(name: str) -> ModuleType:
    """A copy of the module, of which nothing was replaced."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
