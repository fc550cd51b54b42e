"""Tasks that processes of `Processes` import."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from litejobs import LiteJobs, current

jobs = LiteJobs()
logger = logging.getLogger("tests.of.processes")


@jobs.task
def where(number: int = 0) -> list[int]:
    """In which process it runs, and as which attempt of which job."""
    return [os.getpid(), number, current().job_id, current().attempt]


@jobs.task
def echo(text: str) -> str:
    """Take much, and give it back."""
    return text


@jobs.task
def say() -> None:
    """Speak to the log, of which not all is wanted."""
    logger.info("%s is not wanted", "this")
    try:
        raise ValueError("a reason")
    except ValueError:
        logger.warning("%s is wanted", "this", exc_info=True, extra={"number": 7})


@jobs.task
def begin() -> str:
    """Start a runner, which does nothing here."""
    jobs.start()
    try:
        return str(jobs.health()["role"])
    finally:
        jobs.stop()


@jobs.task
def write() -> None:
    """Ask for what there is not."""
    with current().transaction():
        pass


@jobs.task
def leave(code: int) -> None:
    """Take the process along."""
    os._exit(code)


@jobs.task
def fall() -> None:
    """End by a signal."""
    os.kill(os.getpid(), signal.SIGSEGV)


@jobs.task
def hog() -> None:
    """Eat memory until something stops it."""
    eaten = []
    while True:
        eaten.append(b"x" * 2**20)


@jobs.task
def told_to_end() -> str:
    """Get the signals that service managers send to all processes of a program."""
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    program = "import signal; print(signal.getsignal(signal.SIGTERM).name)"
    return subprocess.check_output([sys.executable, "-c", program], text=True).strip()


@jobs.task
def hang() -> None:
    """Listen to nothing: not to SIGTERM, nor to an exception, and with children."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = ""
    for what in ("", "os.setpgrp();"):
        program = f"import os,time;{what}print(flush=True);time.sleep(600)"
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        child.stdout.readline()
        pids += f" {child.pid}"
    current().progress(0.5, f"{os.getpid()}{pids}")
    while True:
        sum(range(10**12))


@jobs.task
def look() -> list[Any]:
    """Report, and end as soon as that is asked for."""
    current().progress(0.25, "looks")
    was_told = current().wait(1000)
    return [was_told, current().cancelled]


@jobs.task
def wait_for(path: str) -> list[bool]:
    """End when there is a file."""
    current().progress(0.1)
    while not Path(path).exists():
        current().wait(0.01)
    return [current().cancelled]


@jobs.task
def leave_child() -> None:
    """Start another process, and loop until an exception comes."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(command)
    current().progress(0.5, str(child.pid))
    while True:
        pass


@jobs.task
def clean_up() -> None:
    """Loop until an exception comes."""
    try:
        current().progress(0.75, "loops")
        number = 0
        while True:
            number += 1
    finally:
        logger.warning("cleaned up")


@jobs.task
def babble(data: list[int]) -> None:
    """Write to descriptors of others."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, bytes(data))


@jobs.task
def close_all(path: str) -> None:
    """Close what others have opened, and open a file in each place."""
    os.closerange(3, 64)
    for _ in range(32):
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)


found_in: contextvars.ContextVar[str] = contextvars.ContextVar("found_in")
found_in.set("the module")


@jobs.task
def set_variable() -> str | None:
    """What a variable has, and has something else from then on."""
    found = found_in.get(None)
    found_in.set("another task")
    return found


@jobs.task
def begin_daemon() -> int:
    """Begin a process of a session of its own, which has the descriptors of this."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        threading.Event().wait(600)
        os._exit(0)
    return pid


@jobs.task
def close_reader() -> None:
    """Close alone what the runner writes to."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                return


@jobs.task
def say_much() -> None:
    """Speak to the log, of what cannot be told as it is."""
    circle: list[Any] = []
    circle.append(circle)
    logger.warning("a circle", extra={"circle": circle})
    logger.warning("x" * 20_000_000)


@jobs.task
def leave_thread() -> int:
    """Leave a thread behind that does not end."""
    threading.Thread(target=threading.Event().wait).start()
    return os.getpid()


@jobs.task
def nested(path: str, depth: int) -> int:
    """Wait for a job like this one, so deep."""
    if not depth:
        return 0
    with contextlib.closing(LiteJobs(path)) as file:
        job = file.enqueue("nested", {"path": path, "depth": depth - 1})
        return 1 + int(job.result())
