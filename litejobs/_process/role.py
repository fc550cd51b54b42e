"""What a process is for: to run the program, or only to import, manage or watch it.

Servers import an application in processes that never serve: the parent of a reloader,
the master that forks its workers, a command that migrates tables. What such a process
starts would be stopped with it, or run old code while its children have the new. The
known ones are told apart here, by what they say of themselves in the environment, on
their stack and in their modules; anything else counts as the program.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._values.blocks import block
from litejobs.errors import ConfigurationError

VARIABLE = "LITEJOBS_START"
"""The environment may say it: "always", "never", or "auto" to find it out."""

# Commands of Django that serve; a parent that watches the code starts them again.
_SERVING = {"runserver", "runserver_plus", "testserver"}
_RELOADED = ("RUN_MAIN", "WERKZEUG_RUN_MAIN")
_MULTIPROCESSING = "multiprocessing.spawn"
# Their children serve, and they watch or count.
_SERVERS = {"uvicorn", "hypercorn", "watchfiles"}
_SPAWN = {"_fixup_main_from_name", "_fixup_main_from_path"}

FORK = "--multiprocessing-fork"
"""What a frozen program is given that is started once more, to run something."""

_importing: list[str] = []


@block
def importing(why: str) -> Iterator[None]:
    """Nothing is started by what is imported in the block, for this reason."""
    _importing.append(why)
    try:
        yield
    finally:
        _importing.pop()


def reason_not_to_run() -> str | None:
    """Return why jobs should not be run in this process; None where they should.

    Raises:
        ConfigurationError: The environment has another word than is known.
    """
    if _importing:
        return _importing[-1]
    if _is_started_again():
        return "the program has started this process to run its tasks"
    wish = os.environ.get(VARIABLE, "auto")
    if wish not in {"always", "never", "auto"}:
        raise ConfigurationError(
            f"{VARIABLE}={wish!r} in the environment is unknown; set it to 'always', "
            "'never' or 'auto'"
        )
    if wish != "auto":
        return None if wish == "always" else f"{VARIABLE} is 'never'"
    stack = list(_stack())
    return (
        _spawned(stack)
        or _gunicorn(stack)
        or _uwsgi()
        or _flask(stack)
        or _django(stack)
    )


def is_frozen() -> bool:
    """Whether the program has its interpreter within itself."""
    if getattr(sys, "frozen", False):
        return True
    # What Nuitka has compiled says so of itself, in each of its modules.
    return bool(getattr(globals().get("__compiled__"), "standalone", False))


def check_begun() -> None:
    """Refuse to go on with the program where it was only started to run something.

    It would do once more all that it does: enqueue the same jobs, open its windows.

    Raises:
        ConfigurationError: So it is.
    """
    if not _is_started_again() or _importing:
        return
    processes: Any = sys.modules.get("multiprocessing.process")
    is_child = processes is not None and processes.parent_process() is not None
    if not is_child and all(module != _MULTIPROCESSING for module, *_ in _stack()):
        raise ConfigurationError(
            "this process was started to run tasks, and goes on with the program "
            "instead; let its main module call multiprocessing.freeze_support() before "
            "anything else, and before it imports modules that open the jobs file"
        )


def _is_started_again() -> bool:
    # Not `argv`, from which Nuitka takes it out.
    return is_frozen() and sys.orig_argv[1:2] == [FORK]


def forks_workers() -> bool:
    """Whether this is a master that loads the program and then forks its workers."""
    return bool(not _importing and (_gunicorn(list(_stack())) or _uwsgi()))


def begin_if_program(begin: Callable[[], object]) -> None:
    """Call *begin* when a child that is spawned turns out to be the program itself.

    So it is where a server with a reloader serves in a child and has the main module
    imported there (NiceGUI): the parent only watches. What a child is for is known once
    it has imported that module; workers of a pool import it, too.
    """
    if _importing or os.environ.get(VARIABLE, "auto") != "auto":
        return
    if _spawned(list(_stack())) is None:
        return
    from multiprocessing import process

    importing_main = process.current_process()

    def look() -> None:
        while process.current_process() is importing_main:
            RealTime.sleep(TIMES.poll)
        target = vars(process.current_process()).get("_target")
        module = str(getattr(target, "__module__", ""))
        if module.partition(".")[0] in _SERVERS:
            begin()

    threading.Thread(target=look, name="litejobs-main", daemon=True).start()


def is_parent_supervisor() -> bool:
    """Whether the parent of this process only watches or counts its children.

    It may have imported the program before, in which case it is not to run jobs.
    """
    if any(os.environ.get(name) == "true" for name in _RELOADED):
        return True
    processes: Any = sys.modules.get("multiprocessing.process")
    is_child = processes is not None and processes.parent_process() is not None
    return is_child and bool(_SERVERS & sys.modules.keys())


def _stack() -> Iterator[tuple[str, str, FrameType]]:
    """Module, function and frame of each caller, the innermost first."""
    frame = inspect.currentframe()
    while frame is not None:
        yield str(frame.f_globals.get("__name__")), frame.f_code.co_name, frame
        frame = frame.f_back


def _spawned(stack: list[tuple[str, str, FrameType]]) -> str | None:
    if any(module == _MULTIPROCESSING and name in _SPAWN for module, name, _ in stack):
        return "a child of multiprocessing imports the main module again"
    return None


def _gunicorn(stack: list[tuple[str, str, FrameType]]) -> str | None:
    arbiter = [
        (name, frame) for module, name, frame in stack if module == "gunicorn.arbiter"
    ]
    if not arbiter or any(
        module.startswith("gunicorn.workers.") for module, *_ in stack
    ):
        return None
    if any(n == "spawn_worker" and f.f_locals.get("pid") == 0 for n, f in arbiter):
        return None  # in a worker, before it has begun
    return "it is the master of gunicorn, whose workers serve"


def is_mule() -> bool:
    """Whether this is a mule of uWSGI: no worker, and what it starts itself is its own.

    The program that its master has loaded is for the workers.
    """
    uwsgi: Any = sys.modules.get("uwsgi")
    return uwsgi is not None and bool(uwsgi.mule_id())


def _uwsgi() -> str | None:
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is None or uwsgi.worker_id() != 0 or is_mule():
        return None
    if "master" not in uwsgi.opt and getattr(uwsgi, "numproc", 1) < 2:  # noqa: PLR2004 - two processes
        return None
    return "it is the master of uWSGI, whose workers serve"


def _flask(stack: list[tuple[str, str, FrameType]]) -> str | None:
    if not any(module == "flask.cli" for module, *_ in stack):
        return None
    import click

    context = click.get_current_context(silent=True)
    if context is None:
        return None
    if context.parent is None or context.info_name != "run":
        name = context.info_name if context.parent is not None else None
        return f"it runs the command flask {name or '…'}, which does not serve"
    reloads = context.params.get("reload")
    if reloads is None:
        from flask.helpers import get_debug_flag  # type: ignore[import-not-found, unused-ignore]

        reloads = get_debug_flag()
    if reloads and os.environ.get("WERKZEUG_RUN_MAIN") != "true":
        return "it only watches for changes of the code (flask run with the reloader)"
    return None


def _django(stack: list[tuple[str, str, FrameType]]) -> str | None:
    arguments = _arguments_of_django(stack)
    if len(arguments) < 2:  # noqa: PLR2004 - a command
        return None
    program, command = os.path.basename(arguments[0]), arguments[1]
    if program == "__main__.py":
        program = "django"
    if command not in _SERVING:
        return f"it runs the command {program} {command}, which does not serve"
    reloads = command != "testserver" and "--noreload" not in arguments
    if reloads and not any(os.environ.get(name) == "true" for name in _RELOADED):
        return f"it only watches for changes of the code ({program} {command})"
    return None


def _arguments_of_django(stack: list[tuple[str, str, FrameType]]) -> list[str]:
    """What was given to its command line; nothing where that is not what runs."""
    management: Any = sys.modules.get("django.core.management")
    if management is None:
        return []
    for module, name, frame in stack:
        if module == "django.core.management" and name == "execute":
            return list(getattr(frame.f_locals.get("self"), "argv", ()))
    program = os.path.basename(sys.argv[0])
    if program == "__main__.py":
        package = os.path.basename(os.path.dirname(sys.argv[0]))
        return sys.argv if package == "django" else []
    if program in {"manage.py", "django-admin", "django-admin.py"}:
        return sys.argv
    # A program of another name that is about to run a command.
    run = getattr(management, "execute_from_command_line", None)
    main = vars(sys.modules["__main__"])
    is_one = run is not None and any(each is run for each in tuple(main.values()))
    return sys.argv if is_one else []


def is_in_event_loop() -> bool:
    """Whether an event loop of asyncio runs in this thread, which must not wait."""
    asyncio: Any = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)
    return running is not None and running() is not None
