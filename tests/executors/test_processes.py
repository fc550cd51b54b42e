"""Tasks run in processes that can be ended, each alone."""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import spawn
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs._app import store_of
from litejobs._executors import child as pipes
from litejobs._executors import seat
from litejobs._executors.frames import END, HEARD, TELL, Frames, packed, write_all
from litejobs._executors.work import Answer
from litejobs._tasks.current import Assignment, AttemptContext
from litejobs.errors import ConfigurationError, JobDeadLettered, TaskCancelled
from litejobs.executors import Processes, Work
from tests.executors import process_tasks
from tests.programs import Program
from tests.waiting import LONG, MOST, Times, eventually

ROOT = Path(__file__).parents[2]

Make = Callable[..., LiteJobs]


@pytest.fixture
def make(times: Times) -> Iterator[Make]:
    """Make a started object with an executor `cpu` and the tasks of the module."""
    made = []
    times(cancel_patience=0.05, end_patience=0.2)

    def started(cpu: Processes) -> LiteJobs:
        jobs = LiteJobs(":memory:", executors={"cpu": cpu})
        for name, task in process_tasks.jobs.tasks.items():
            jobs.task(name=name, executor="cpu", max_attempts=1, max_crashes=1)(
                task.function
            )
        jobs.start(threads=1)
        made.append(jobs)
        return jobs

    yield started
    for jobs in made:
        jobs.stop(grace=0)
        jobs.close()


def result(jobs: LiteJobs, name: str, *args: Any) -> Any:
    return jobs.tasks[name].enqueue(*args).result(timeout=LONG)


def reason(job: Any) -> str:
    """Why it has failed for good."""
    with pytest.raises(JobDeadLettered):
        job.result(timeout=LONG)
    return str(job.attempts[-1].outcome["error"]["message"])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are looked at in /proc"
)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals here")
def test_signals_to_all_processes_of_the_program_are_for_its_runner(
    make: Make,
) -> None:
    """As systemd and pm2 send them; and what a task starts has the usual handlers."""
    assert result(make(Processes(1)), "told_to_end") == "SIG_DFL"


def test_a_task_runs_in_another_process_as_it_would_here(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("tests.of").setLevel(logging.WARNING)
    jobs = make(Processes(1))
    first = jobs.tasks["where"].enqueue(5)
    pid, number, job_id, attempt = first.result(timeout=LONG)
    assert pid != os.getpid()
    assert (number, job_id, attempt) == (5, first.id, 1)
    assert first.attempts[-1].worker == f"process {pid}"
    assert (first.attempts[-1].memory_bytes or 0) > 2**20
    text = "ä" * 200_000
    assert result(jobs, "echo", text) == text
    assert result(jobs, "begin") == "elsewhere"
    assert reason(jobs.tasks["write"].enqueue()) == (
        "current().transaction() is not for a task of Processes, which may be ended at "
        "any moment; return the result, and write in a task without executor"
    )
    with caplog.at_level(logging.DEBUG):
        assert result(jobs, "say") is None
    [record] = [each for each in caplog.records if each.name == "tests.of.processes"]
    assert record.getMessage() == "this is wanted"
    assert (record.process, record.levelname) == (pid, "WARNING")
    assert (record.number, record.funcName) == (7, "say")  # type: ignore[attr-defined]
    assert "ValueError: a reason" in str(record.exc_text)
    # All of that in one process.
    assert result(jobs, "where")[0] == pid


def test_what_dies_is_a_crash_of_its_job_alone(make: Make) -> None:
    jobs = make(Processes(2, memory="150MiB"))
    other = jobs.tasks["look"].enqueue()
    eventually(lambda: other.progress)
    left = jobs.tasks["leave"].enqueue(3)
    said = reason(left)
    assert left.attempts[-1].outcome["status"] == "crashed"
    assert said == f"{left.attempts[-1].worker} ended with exit code 3"
    fell = jobs.tasks["fall"].enqueue()
    said = reason(fell)
    assert said == f"{fell.attempts[-1].worker} was ended by SIGSEGV (signal 11)"
    ate = jobs.tasks["hog"].enqueue()
    assert reason(ate).startswith(f"out of memory: {ate.attempts[-1].worker} had ")
    assert "more than the 150 MiB that it may have" in reason(ate)
    assert (ate.attempts[-1].memory_bytes or 0) > 150 * 2**20
    assert result(jobs, "where")[1] == 0
    assert other.state == "processing"
    other.cancel()
    assert other.result(timeout=LONG) == [True, True]


@on_linux
def test_a_cancel_ends_whatever_the_task_does(make: Make) -> None:
    jobs = make(Processes(1))
    hung = jobs.tasks["hang"].enqueue()
    eventually(lambda: hung.progress)
    pids = [int(each) for each in str(hung.snapshot().progress_message).split()]
    assert [is_alive(each) for each in pids] == [True, True, True]
    assert hung.attempts[-1].worker == f"process {pids[0]}"
    hung.cancel()
    eventually(lambda: hung.state == "cancelled")
    eventually(lambda: not any(is_alive(each) for each in pids))
    assert result(jobs, "where")[0] not in pids


def test_a_task_that_can_be_interrupted_cleans_up_and_its_process_goes_on(
    make: Make, caplog: pytest.LogCaptureFixture, times: Times
) -> None:
    jobs = make(Processes(1))
    times(end_patience=LONG)
    pid = result(jobs, "where")[0]
    loops = jobs.tasks["clean_up"].enqueue()
    eventually(lambda: loops.progress)
    with caplog.at_level(logging.WARNING, logger="tests.of.processes"):
        loops.cancel()
        eventually(lambda: loops.state == "cancelled")
        assert result(jobs, "where")[0] == pid
    assert "cleaned up" in caplog.messages
    assert "loops" not in str(loops.attempts[-1].outcome["error"]["message"])


@on_linux
def test_what_an_interrupted_task_has_started_ends_with_it(
    make: Make, times: Times
) -> None:
    jobs = make(Processes(1))
    times(end_patience=LONG)
    pid = result(jobs, "where")[0]
    leaves = jobs.tasks["leave_child"].enqueue()
    eventually(lambda: leaves.progress)
    child = int(str(leaves.snapshot().progress_message))
    assert is_alive(child)
    leaves.cancel()
    eventually(lambda: leaves.state == "cancelled")
    eventually(lambda: not is_alive(child))
    # Its process has ended, too, since it may have relied on that.
    assert result(jobs, "where")[0] != pid


def test_fewer_slots_let_a_process_go(make: Make) -> None:
    cpu = Processes(2)
    jobs = make(cpu)
    pids = {result(jobs, "where")[0]}
    looks = [jobs.tasks["look"].enqueue() for _ in range(2)]
    eventually(lambda: all(each.progress for each in looks))
    pids |= {int(str(each.attempts[-1].worker).split()[-1]) for each in looks}
    assert len(pids) == 2
    cpu.slots = 1
    for each in looks:
        each.cancel()
        assert each.result(timeout=LONG) == [True, True]
    eventually(lambda: sum(is_alive(each) for each in pids) == 1)
    assert result(jobs, "where")[0] in pids


@on_linux
def test_a_time_limit_ends_it_too_and_each_process_has_its_number_of_tasks(
    make: Make,
) -> None:
    jobs = make(Processes(1, max_tasks_per_process=2))
    pids = [result(jobs, "where")[0] for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    hung = jobs.tasks["hang"].using(timeout="1ms").enqueue()
    assert reason(hung)
    assert hung.attempts[-1].status == "timeout"
    assert result(jobs, "where")[0] not in pids


@on_linux
def test_what_a_task_has_in_memory_is_shown_while_it_runs(make: Make) -> None:
    jobs = make(Processes(1, memory="1GiB"))
    hung = jobs.tasks["hang"].enqueue()
    eventually(lambda: [each for each in hung.attempts if each.memory_bytes])
    [attempt] = hung.attempts
    assert attempt.status is None
    assert attempt.memory_bytes > 2**22
    hung.cancel()


@on_linux
def test_a_process_that_does_not_end_by_itself_holds_nothing_up(make: Make) -> None:
    jobs = make(Processes(1, max_tasks_per_process=1))
    pids = [result(jobs, "leave_thread") for _ in range(3)]
    assert len(set(pids)) == 3
    # Its turn to leave comes when the next one leaves, or after a while.
    eventually(lambda: not is_alive(pids[0]))
    jobs.stop(grace=0)
    assert not any(is_alive(each) for each in pids)


def test_tasks_begin_with_an_empty_context(make: Make) -> None:
    """They find neither what their module has set nor what the task before has."""
    jobs = make(Processes(1))
    assert [result(jobs, "set_variable") for _ in range(2)] == [None, None]


@on_linux
def test_what_writes_to_the_pipe_by_mistake_is_ended(make: Make) -> None:
    jobs = make(Processes(1))
    for data in (b"\xff\xff\xff\xffA", b"\x01\0\0\0A{", b"\0\0\0\0?"):
        babbles = jobs.tasks["babble"].enqueue(list(data))
        assert "has said what cannot be read, and was ended" in reason(babbles), data
        assert babbles.attempts[-1].outcome["status"] == "crashed", data
        assert result(jobs, "where")[1] == 0, data


@on_linux
def test_what_closes_the_pipe_is_ended_and_writes_to_no_other_file(
    make: Make, tmp_path: Path
) -> None:
    jobs = make(Processes(1))
    file = tmp_path / "another"
    closes = jobs.tasks["close_all"].enqueue(str(file))
    assert "has closed its pipe to the runner, and was ended" in reason(closes)
    assert file.read_bytes() == b""
    assert result(jobs, "where")[1] == 0


@on_linux
@pytest.mark.parametrize("closing", ["close_all", "close_reader"])
def test_a_pipe_that_a_daemon_holds_open_may_be_closed_by_a_later_task(
    make: Make, tmp_path: Path, closing: str
) -> None:
    """Nobody hears that the pipe is closed, so the process says it by its end."""
    jobs = make(Processes(1))
    daemon = result(jobs, "begin_daemon")
    try:
        given = [str(tmp_path / "another")] if closing == "close_all" else []
        closes = jobs.tasks[closing].enqueue(*given)
        assert "has closed its pipe to the runner, and was ended" in reason(closes)
        assert closes.attempts[-1].outcome["status"] == "crashed"
        assert result(jobs, "where")[1] == 0
        assert is_alive(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_of_what_is_too_long_or_goes_in_circles_the_log_has_the_text(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = make(Processes(1))
    with caplog.at_level(logging.WARNING, logger="tests.of.processes"):
        assert result(jobs, "say_much") is None
    found = [each for each in caplog.records if each.name == "tests.of.processes"]
    assert [each.getMessage() for each in found] == ["a circle", "x" * 65_536]
    assert {each.funcName for each in found} == {"say_much"}


def attempt(number: int, task: str, *args: Any, heard: SimpleQueue[str]) -> Work:
    """An attempt of this number, the outcome of which is put there."""
    execution = store_of(process_tasks.jobs).execution
    assert execution is not None
    given = json.dumps(args).encode()
    assignment = Assignment(
        *(number, number, 1, 1, task, given, None, b"default", 3), *(None,) * 5
    )
    return Work(
        *("cpu", assignment, AttemptContext(assignment, execution, print), execution),
        on_begin=lambda _: None,
        on_news=lambda _: None,
        on_end=lambda _, outcome: heard.put(outcome),
    )


def test_what_is_told_before_a_process_has_begun_is_heard_there() -> None:
    cpu = Processes(1)
    cpu.start()
    heard: SimpleQueue[str] = SimpleQueue()
    for number in (1, 2):
        work = attempt(number, "look", heard=heard)
        cpu.submit(work).tell(TaskCancelled)
        assert json.loads(heard.get(timeout=LONG))["result"] == [True, True]
    cpu.close(0)


@pytest.mark.parametrize("is_ended", [False, True])
def test_what_is_told_while_something_else_is_sent_is_heard_after_it(
    monkeypatch: pytest.MonkeyPatch, times: Times, is_ended: bool
) -> None:
    """The runner's thread does not wait, and the process is not ended for that."""
    times(end_patience=LONG)
    cpu = Processes(1)
    cpu.start()
    heard: SimpleQueue[str] = SimpleQueue()
    work = attempt(1, "look", heard=heard)
    begun, told = threading.Event(), threading.Event()

    def write_slowly(descriptor: int, data: bytes) -> None:
        if data == packed(HEARD):
            begun.set()
            assert told.wait(LONG)
        write_all(descriptor, data)

    monkeypatch.setattr(pipes, "write_all", write_slowly)
    handle = cpu.submit(work)
    assert begun.wait(LONG)
    if is_ended:
        assert handle.end(TaskCancelled)
    else:
        handle.tell(TaskCancelled)
    told.set()
    outcome = json.loads(heard.get(timeout=LONG))
    if is_ended:
        assert outcome["status"] == "cancelled"
        assert outcome["error"]["type"] == "TaskCancelled"
        assert "was ended" not in outcome["error"]["message"]
    else:
        assert outcome["result"] == [True, True]
    cpu.close(0)


@pytest.mark.parametrize("is_ended", [False, True])
def test_what_was_told_of_one_that_has_ended_is_not_heard_by_the_next(
    monkeypatch: pytest.MonkeyPatch, times: Times, tmp_path: Path, is_ended: bool
) -> None:
    times(end_patience=LONG)
    cpu = Processes(1)
    cpu.start()
    heard: SimpleQueue[str] = SimpleQueue()
    begun, told, goes_on = threading.Event(), threading.Event(), threading.Event()
    send = seat._send

    def send_late(
        child: pipes.Child, kind: bytes, body: bytes = b"", *, wait: bool = True
    ) -> bool:
        if kind in (TELL, END):
            told.set()
            assert goes_on.wait(LONG)
        sent = send(child, kind, body, wait=wait)
        if kind == HEARD:
            begun.set()
        return sent

    monkeypatch.setattr(seat, "_send", send_late)
    first, second = tmp_path / "first", tmp_path / "second"
    handle = cpu.submit(attempt(1, "wait_for", str(first), heard=heard))
    assert begun.wait(LONG)
    says = handle.end if is_ended else handle.tell
    says_it = threading.Thread(target=says, args=(TaskCancelled,))
    says_it.start()
    assert told.wait(LONG)
    first.touch()
    assert json.loads(heard.get(timeout=LONG))["result"] == [False]
    begun.clear()
    cpu.submit(attempt(2, "wait_for", str(second), heard=heard))
    assert begun.wait(LONG)
    goes_on.set()
    says_it.join(LONG)
    # What is sent later is read later.
    second.touch()
    outcome = json.loads(heard.get(timeout=LONG))
    assert (outcome["status"], outcome.get("result")) == ("ok", [False])
    cpu.close(0)


def test_an_answer_after_the_end_is_news_that_no_end_follows() -> None:
    """A loop that waited for that end would hear of the news only when it looks."""
    execution = store_of(process_tasks.jobs).execution
    assert execution is not None
    assignment = Assignment(
        *(1, 1, 1, 1, "look", b"[]", None, b"default", 3), *(None,) * 5
    )
    followed, ends = [], []
    work = Work(
        *("cpu", assignment, AttemptContext(assignment, execution, print), execution),
        on_begin=lambda _: None,
        on_news=lambda each: followed.append(each.is_answering),
        on_end=lambda _, outcome: ends.append(outcome),
    )
    for worker in ("one", "another"):
        work.answer(Answer('{"status": "ok"}', False, worker, None))
    assert (followed, ends) == ([True, False], ['{"status": "ok"}'])


@on_linux
def test_a_stop_leaves_nothing_behind(make: Make) -> None:
    jobs = make(Processes(2))
    hung = jobs.tasks["hang"].enqueue()
    pids = [result(jobs, "where")[0]]
    eventually(lambda: hung.progress)
    pids += map(int, str(hung.snapshot().progress_message).split())
    jobs.stop(grace=0.01)
    assert hung.state == "pending"
    assert [each.status for each in hung.attempts] == ["interrupted"]
    eventually(lambda: not any(is_alive(each) for each in pids))
    hung.cancel()
    jobs.start(threads=1)
    assert result(jobs, "where")[0] not in pids


@on_linux
def test_a_stop_gives_what_runs_its_grace_period(make: Make, tmp_path: Path) -> None:
    jobs = make(Processes(1))
    file = tmp_path / "go"
    waits = jobs.tasks["wait_for"].enqueue(str(file))
    eventually(lambda: waits.progress)
    stops = threading.Thread(target=jobs.stop, args=(LONG,))
    stops.start()
    eventually(lambda: jobs.health()["running"] is False)
    file.touch()
    stops.join(LONG)
    assert waits.result() == [False]


@on_linux
def test_processes_end_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys, time
from litejobs import LiteJobs
from litejobs.executors import Processes
from tests.executors import process_tasks
jobs = LiteJobs({str(tmp_path / "app.db")!r}, executors={{"cpu": Processes(2)}})
hang = jobs.task(name="hang", executor="cpu")(process_tasks.hang.function)
where = jobs.task(name="where", executor="cpu")(process_tasks.where.function)
jobs.start(threads=1)
job = hang.enqueue()
pid = where.enqueue().result(timeout=60)[0]
while not job.progress and job.state in ("pending", "processing"):
    time.sleep(0.01)
print(pid, job.snapshot().progress_message, flush=True)
sys.stdin.read()
"""
    with Program(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as runner:
        assert runner.stdout is not None
        idle, busy, *children = map(int, runner.stdout.readline().split())
        assert is_alive(idle)
        assert is_alive(busy)
        runner.kill()
        runner.wait(LONG)
        eventually(lambda: not (is_alive(idle) or is_alive(busy)))
    for child in children:
        if is_alive(child):
            os.kill(child, signal.SIGKILL)


def test_where_no_process_can_begin_jobs_wait(
    make: Make, monkeypatch: pytest.MonkeyPatch, times: Times
) -> None:
    times(first_pause=0.05)
    jobs = make(Processes(1))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        job = jobs.tasks["where"].enqueue()
        eventually(lambda: "executor_away" in [each.code for each in job.why()])
    assert job.result(timeout=LONG)[3] == 1


def test_where_no_thread_can_be_started_jobs_wait(
    make: Make, monkeypatch: pytest.MonkeyPatch, times: Times
) -> None:
    times(first_pause=0.05)
    jobs = make(Processes(1, memory="1GiB"))
    start = threading.Thread.start
    refused: list[str] = []

    def refuses(thread: threading.Thread) -> None:
        if thread.name.startswith(("litejobs-memory", "litejobs-process")):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        job = jobs.tasks["where"].enqueue()
        eventually(lambda: "executor_away" in [each.code for each in job.why()])
        eventually(lambda: refused)
    assert job.result(timeout=LONG)[3] == 1


@pytest.mark.parametrize("name", ["/usr/bin/uwsgi", "pythonservice.exe", ""])
def test_where_there_is_no_interpreter_it_is_refused_with_the_way_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", name)
    monkeypatch.setattr(spawn, "_python_exe", name)
    with pytest.raises(
        ConfigurationError, match=re.escape(f"sys.executable is {name!r}; name one")
    ):
        Processes(1)
    multiprocessing.set_executable("/opt/python")
    Processes(1)


@pytest.mark.parametrize("name", ["mayapy.exe", "hython", "pvpython", "Python"])
def test_the_interpreter_within_another_program_is_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", f"/opt/{name}")
    monkeypatch.setattr(spawn, "_python_exe", f"/opt/{name}")
    Processes(1)


FROZEN = """\
import sys
sys.frozen, sys.executable, sys.orig_argv = True, __file__, sys.argv
sys.path.insert(0, {root!r})
import json, multiprocessing, os
from multiprocessing.spawn import freeze_support
import work
if {supported}:
    freeze_support()
print(json.dumps([os.getpid(), work.runner.health["role"]]), flush=True)
if {supported}:
    print(json.dumps(work.process.enqueue().result(timeout=60)), flush=True)
else:
    job = work.process.enqueue()
    while "executor_away" not in [each.code for each in job.why()]:
        pass
work.jobs.close()
"""
WORK = """\
import os
from litejobs import LiteJobs
from litejobs.executors import Processes
jobs = LiteJobs("app.db", executors={"cpu": Processes(1)})
@jobs.task(executor="cpu")
def process():
    return [os.getpid(), runner.health["role"]]
runner = jobs.start()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a script is not a program there")
@pytest.mark.parametrize("supported", [True, False])
def test_a_frozen_program_is_started_once_more_for_its_processes(
    supported: bool, tmp_path: Path
) -> None:
    """By its own name: what its modules start is not started there, and where its main
    module does not ask whether it is to run tasks, it does not get as far as a job."""
    text = FROZEN.format(root=str(ROOT), supported=supported)
    (tmp_path / "app").write_text(f"#!{sys.executable}\n{text}")
    (tmp_path / "app").chmod(0o755)
    (tmp_path / "work.py").write_text(WORK)
    done = subprocess.run(
        [tmp_path / "app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=MOST,
    )
    (main, role), *others = map(json.loads, done.stdout.splitlines())
    assert role == "runner"
    assert {role for pid, role in others if pid != main} == {"elsewhere"}
    assert ("freeze_support() before anything" in done.stderr) is not supported
    with LiteJobs(tmp_path / "app.db") as jobs:
        assert len(list(jobs.list())) == 1


def test_what_cannot_be_imported_is_refused_at_once(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "app.db", executors={"cpu": Processes(1)})
    with pytest.raises(ConfigurationError, match="at the top of a module"):
        jobs.task(name="inner", executor="cpu")(lambda: None)

    def in_program() -> None:
        pass

    in_program.__module__ = "__main__"
    with pytest.raises(ConfigurationError, match="move it to a module"):
        jobs.task(executor="cpu")(in_program)
    # It stands in a module, but nobody registers it there.
    with pytest.raises(
        ConfigurationError, match=r"'alive' is not registered by importing tests\.exec"
    ):
        jobs.task(name="alive", executor="cpu")(is_alive)


def test_nothing_lazy_in_the_module_of_a_task_is_asked_for_anything(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = make(Processes(1))
    monkeypatch.syspath_prepend(tmp_path)
    text = """
from litejobs import LiteJobs

class Lazy:
    def __getattr__(self, name):
        raise RuntimeError("working outside of a request")

request = Lazy()
jobs = LiteJobs()

@jobs.task
def asks_nothing():
    return 7
"""
    (tmp_path / "asks_nothing.py").write_text(text, encoding="utf-8")
    try:
        task = importlib.import_module("asks_nothing").asks_nothing
        jobs.task(name=task.name, executor="cpu", max_attempts=1)(task.function)
        assert result(jobs, task.name) == 7
    finally:
        sys.modules.pop("asks_nothing", None)


def test_what_is_registered_after_its_module_was_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = """
from litejobs import LiteJobs
from litejobs.executors import Processes

jobs = LiteJobs(executors={"cpu": Processes(1)})

@jobs.task(executor="cpu")
def within(): pass

def plain(): pass
"""
    (tmp_path / "registers_some.py").write_text(text, encoding="utf-8")
    try:
        module = importlib.import_module("registers_some")
        module.jobs.task(executor="cpu", priority=1)(module.within.function)
        with pytest.raises(
            ConfigurationError,
            match="'plain' is not registered by importing registers_some",
        ):
            module.jobs.task(executor="cpu")(module.plain)
        # All of it runs again.
        before = module.within
        assert importlib.reload(module).within is not before
    finally:
        sys.modules.pop("registers_some", None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"processes": 0}, "slots=0 run nothing"),
        ({"memory": "1MiB"}, "memory='1MiB' is less than Python needs"),
        ({"memory": "much"}, "memory='much' is not a size"),
        ({"max_tasks_per_process": 0}, "max_tasks_per_process=0 is not a number"),
    ],
)
def test_numbers_that_cannot_work_are_refused(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Processes(**{"processes": 1, **options})


def test_messages_are_put_together_from_any_pieces() -> None:
    sent = [(b"A", b""), (b"B", b"x" * 300), (b"C", b"y")]
    data = b"".join(packed(kind, body) for kind, body in sent)
    for size in (1, 2, 7, 300, 1000):
        frames = Frames()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [each for piece in pieces for each in frames.feed(piece)] == sent
