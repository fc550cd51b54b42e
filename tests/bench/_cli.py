"""The command line beside a runner at full speed, and how long it takes to start.

The commands are given in a few processes, in each one after the other at a steady pace:
fifty interpreters a second would measure how Python starts, on more cores than there
are.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench._figures import Bar, Durability, Figure, Measured, Sizes, Workload
from tests.bench._processes import ROOT, ask_python
from tests.bench._subject import new_path, on_file

CLIENTS = 4
PACE = 50.0  # commands a second, of all of them
LEAST = 0.01  # ms; what waited less has not waited
PATIENCE = 60.0
LINE = 4_000  # jobs that are put in line when there are fewer than half

# Of ten commands two write. "{job}" is a job that was asked for before.
COMMANDS = (
    ["list"],
    ["enqueue", "later", "--delay", "1h", "--json"],
    ["why", "{job}"],
    ["queues"],
    ["list", "--state", "dead_lettered"],
    ["schedules"],
    ["cancel", "{job}"],
    ["list", "--state", "processing"],
    ["events", "{job}"],
    ["circuits"],
)
FINE = {0, 1}  # exit codes: done, and nothing matched

STARTED = """
import sys
from litejobs.cli import main
main(["--db", *sys.argv[1:]])
"""
EMPTY = """
import apsw, click

@click.command()
def main(): ...

main([])
"""


def beside_a_runner(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Fifty commands a second while another process runs jobs as fast as it can."""
    with new_path(folder) as path, _running(path, durability):
        return _commanded(path, sizes.commands)


def without_a_runner(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same commands, and nobody else has the file open."""
    with new_path(folder) as path:
        _ask(path, ["init"])
        return _commanded(path, min(sizes.commands, 500))


def _commanded(path: Path, count: int) -> Measured:
    """What commands took, and waited, in ms, and how many were told "locked"."""
    arguments = [sys.executable, "-m", "tests.bench._cli", "ask", str(path)]
    begun = time.perf_counter()
    clients = [
        subprocess.Popen(
            [*arguments, str(count // CLIENTS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(CLIENTS)
    ]
    said = [client.communicate()[0] for client in clients]
    seconds = time.perf_counter() - begun
    if any(client.returncode for client in clients):
        raise RuntimeError("a command has failed; its message is above")
    answers = [json.loads(text) for text in said]
    took = sorted(each for answer in answers for each in answer["took"])
    waited = sorted(each for answer in answers for each in answer["waited"])
    return {
        "pace": len(took) / seconds,
        "p50": took[len(took) // 2],
        "p99": took[int(len(took) * 0.99)],
        "wait p99": max(waited[int(len(waited) * 0.99)], LEAST),
        "wait max": max(waited[-1], LEAST),
        "locked": sum(answer["locked"] for answer in answers),
    }


def ask(name: str, count: str) -> None:
    """Give so many commands at a pace; print how long each took, and waited."""
    path, took, waited, locked, job = Path(name), [], [], 0, "1"
    turn = _turns_timed()
    begun = time.perf_counter()
    for number, command in enumerate(
        itertools.islice(itertools.cycle(COMMANDS), int(count))
    ):
        at = begun + number * CLIENTS / PACE
        time.sleep(max(0.0, at - time.perf_counter()))
        at, turn[0] = time.perf_counter(), 0.0
        code, out, err = _ask(path, [each.format(job=job) for each in command])
        took.append((time.perf_counter() - at) * 1000)
        waited.append(turn[0] * 1000)
        if "locked" in err or "busy" in err.lower():
            locked += 1
        elif code not in FINE:
            raise RuntimeError(f"{command} ended with {code}: {err}")
        if command[0] == "enqueue":
            job = str(json.loads(out)["job"]["id"])
    print(json.dumps({"took": took, "waited": waited, "locked": locked}))


def _turns_timed() -> list[float]:
    """In its one place: for how many seconds commands have waited for their turns."""
    from litejobs.cli.file import opening

    passed, plain = [0.0], opening.patiently

    def patiently(path: str) -> Callable[[int], bool]:
        go_on = plain(path)

        def timed(calls: int) -> bool:
            begun = time.perf_counter()
            again = go_on(calls)
            passed[0] += time.perf_counter() - begun
            return again

        return timed

    opening.patiently = patiently
    return passed


def _ask(path: Path, command: list[str]) -> tuple[int, str, str]:
    """The exit code and what was printed."""
    from litejobs.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["--db", str(path), *command])
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("a command ends with an exit code")


@contextlib.contextmanager
def _running(path: Path, durability: Durability) -> Iterator[None]:
    """Another process has a runner with more to do than it can."""
    arguments = ["tests.bench._cli", "run", str(path), durability, str(LINE)]
    runner = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdin is not None
    assert runner.stdout is not None
    try:
        if runner.stdout.readline() != "running\n":
            raise RuntimeError("the runner has not begun")
        yield
        said, _ = runner.communicate("stop\n", timeout=PATIENCE)
    finally:
        runner.kill()
        runner.wait()
    ended = json.loads(said)
    print(f"  beside it ran {ended['rate']:,.0f} jobs/s", file=sys.stderr)
    if ended["locked"]:
        raise RuntimeError(f"the runner was locked out: {ended['locked'][0]}")


def run(path: str, durability: Any, line: str) -> None:
    """Run no-op jobs, so many in line, until something comes from standard input."""
    import logging
    import threading

    from litejobs import LiteJobs

    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logging.getLogger("litejobs").addHandler(Ear())
    done = threading.Event()
    threading.Thread(
        target=lambda: (sys.stdin.readline(), done.set()), daemon=True
    ).start()
    jobs = LiteJobs(path, durability=durability)

    @jobs.task
    def nothing(number: int) -> None: ...

    count = int(line)
    with jobs.running(threads=4) as runner:
        jobs.enqueue_many(nothing.call(number) for number in range(count))
        print("running", flush=True)
        begun, asked = time.perf_counter(), count
        while not done.is_set():
            while not done.is_set() and jobs.queues["default"].waiting > count // 2:
                time.sleep(0.01)
            jobs.enqueue_many(nothing.call(number) for number in range(count))
            asked += count
        runner.wait_idle(PATIENCE)
        rate = asked / (time.perf_counter() - begun)
    jobs.close()
    locked = [line for line in heard if "locked" in line or "busy" in line.lower()]
    print(json.dumps({"rate": rate, "locked": locked}))


# The start ----------------------------------------------------------------------------


def starting(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A fresh interpreter lists the jobs of a small file, and ends."""
    with new_path(folder) as path:
        for command in (["init"], ["enqueue", "send"]):
            _ask(path, command)
        return {"start": _timed("-c", STARTED, str(path), "list")}


def probing(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A fresh interpreter asks whether jobs are run, and ends; they are."""
    with new_path(folder) as path, on_file(path, durability) as subject:
        with subject.jobs.running():
            command = ("doctor", "--probe")
            return {"start": _timed("-c", STARTED, str(path), *command)}


def bare_starting(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A click program with no options that imports apsw."""
    return {"start": _timed("-c", EMPTY)}


def _timed(*arguments: str) -> float:
    begun = time.perf_counter()
    ask_python(*arguments)
    return (time.perf_counter() - begun) * 1000


def compiled(folder: Path, sizes: Sizes) -> None:
    """The bytecode of all that is imported is there, wherever Python keeps it."""
    import compileall

    compileall.compile_dir(ROOT / "litejobs", quiet=2)


COMMAND_LINE = (
    Workload(
        name="cli",
        says="fifty commands a second beside a runner at full speed",
        figures=(
            Figure(name="pace", unit="commands/s"),
            Figure(name="p50", unit="ms"),
            Figure(name="p99", unit="ms"),
            Figure(name="wait p99", unit="ms", bars=(Bar(of="value", limit=100),)),
            Figure(name="wait max", unit="ms"),
            Figure(name="locked", unit="commands", bars=(Bar(of="value", limit=0),)),
        ),
        subject=beside_a_runner,
        reference=without_a_runner,
        reference_is="no runner",
        most_rounds=1,
        durabilities=("full",),
    ),
    Workload(
        name="cli-start",
        says="litejobs list from its start to its end",
        figures=(
            Figure(name="start", unit="ms", bars=(Bar(of="ratio", limit=1 / 1.5),)),
        ),
        subject=starting,
        reference=bare_starting,
        reference_is="empty click, apsw",
        pairs=10,
        durabilities=("full",),
        prepare=compiled,
    ),
    Workload(
        name="cli-probe",
        says="litejobs doctor --probe from its start to its end",
        figures=(
            Figure(name="start", unit="ms", bars=(Bar(of="ratio", limit=1 / 1.5),)),
        ),
        subject=probing,
        reference=bare_starting,
        reference_is="empty click, apsw",
        pairs=20,
        most_rounds=1,
        durabilities=("full",),
        prepare=compiled,
    ),
)

if __name__ == "__main__":
    {"run": run, "ask": ask}[sys.argv[1]](*sys.argv[2:])
