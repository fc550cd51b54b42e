"""How a process that runs tasks is started: with the interpreter, or without one.

A program that was frozen has its interpreter within. It is started once more, as
`multiprocessing` does it: its main module calls `multiprocessing.freeze_support()`,
which does in such a process what it was started for, and does not return.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from typing import Any

from litejobs._process import role
from litejobs._process.unpatched import unpatched
from litejobs.errors import ConfigurationError

# The last three are interpreters within Maya, Houdini and ParaView.
_LIKE_PYTHON = re.compile(
    r"(python|pypy|graalpy|mayapy|hython|pvpython)(?!service)", re.IGNORECASE
)

# Before anything is imported: modules in the working directory are not those of Python.
_BEGIN = (
    "import sys;sys.path[:]=[each for each in sys.path if each];"
    "import json;{open}"
    "t=json.loads(open(r,'rb',0,closefd=False).readline());"
    "sys.path[:]=t['path'];"
    "from litejobs._runner.in_process import main;main(r,w,t)"
)
_OPEN = "r,w={reader},{writer};"
_OPEN_ON_WINDOWS = (
    "import msvcrt;"
    "r,w=msvcrt.open_osfhandle({reader},0),msvcrt.open_osfhandle({writer},0);"
)


def check() -> None:
    """Refuse to start processes where there is nothing to start them with.

    Raises:
        ConfigurationError: So it is.
    """
    if not role.is_frozen() and _interpreter() is None:
        raise ConfigurationError(
            "Processes are started with the Python interpreter, and sys.executable is "
            f"{sys.executable!r}; name one with multiprocessing.set_executable(PATH) "
            "before, or let the tasks run in threads"
        )


def started(reader: int, writer: int) -> subprocess.Popen[bytes]:
    """Start a process that talks through these ends of two pipes.

    Raises:
        OSError: It cannot be started.
    """
    if not role.is_frozen():
        opened = _OPEN_ON_WINDOWS if sys.platform == "win32" else _OPEN
        command = [str(_interpreter()), *_flags(), "-c"]
        ours = _inherited(reader, writer)
        code = _BEGIN.format(
            open=opened.format(reader=ours[0], writer=ours[1]),
        )
        return _process([*command, code], ours)
    from multiprocessing.reduction import dump

    first, told = os.pipe()
    try:
        ours = _inherited(reader, writer, first)
        with open(told, "wb") as file:
            # What `multiprocessing` reads: how to prepare, and what to do.
            dump({}, file)
            dump(_Begin(ours[0], ours[1]), file)
        return _process([sys.executable, role.FORK, f"pipe_handle={ours[2]}"], ours)
    finally:
        os.close(first)


def _inherited(*descriptors: int) -> list[int]:
    """Their numbers in the process, which are those of handles on Windows."""
    if sys.platform != "win32":
        return list(descriptors)
    import msvcrt

    handles = [msvcrt.get_osfhandle(each) for each in descriptors]
    for handle in handles:
        os.set_handle_inheritable(handle, True)
    return handles


def _process(command: list[str], inherited: list[int]) -> subprocess.Popen[bytes]:
    popen: type[subprocess.Popen[bytes]] = unpatched(subprocess, "Popen")
    if sys.platform == "win32":
        return popen(
            command,
            stdin=subprocess.DEVNULL,
            startupinfo=subprocess.STARTUPINFO(
                lpAttributeList={"handle_list": inherited}
            ),
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
    return popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=inherited,
        start_new_session=True,
    )


class _Begin:
    """What `multiprocessing` takes for its process, and tells to begin."""

    def __init__(self, reader: int, writer: int) -> None:
        self._pipes = reader, writer

    def _bootstrap(self, parent: Any) -> int:
        reader, writer = self._pipes
        if sys.platform == "win32":
            import msvcrt

            reader, writer = (msvcrt.open_osfhandle(each, 0) for each in self._pipes)
        else:
            os.close(parent)  # another descriptor of the pipe that was read
        with open(reader, "rb", 0, closefd=False) as file:
            told = json.loads(file.readline())
        sys.path[:] = told["path"]
        import_module("litejobs._runner.in_process").main(reader, writer, told)
        return 0


def _interpreter() -> str | None:
    """The Python that is here; None in a program that has none, or only within."""
    if sys.executable and _LIKE_PYTHON.match(os.path.basename(sys.executable)):
        return sys.executable
    from multiprocessing.spawn import get_executable

    named = os.fsdecode(get_executable() or "")
    return named if named not in {"", sys.executable} else None


def _flags() -> list[str]:
    """How this interpreter was started, as far as it matters to tasks."""
    flags = sys.flags
    letters = {
        "-B": flags.dont_write_bytecode,
        "-I": flags.isolated,
        "-E": flags.ignore_environment,
        "-S": flags.no_site,
        "-s": flags.no_user_site,
        "-O": flags.optimize,
        "-b": flags.bytes_warning,
    }
    found = [letter for letter, times in letters.items() for _ in range(int(times))]
    found += [f"-W{each}" for each in sys.warnoptions]
    for name, value in getattr(sys, "_xoptions", {}).items():
        found += ["-X", name if value is True else f"{name}={value}"]
    return found
