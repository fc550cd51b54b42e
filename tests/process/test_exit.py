"""However a program ends: in time, with its own exit code, and with nothing lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from litejobs import LiteJobs
from litejobs._process.program_end import starts_none_at_end
from tests.programs import Program

ROOT = Path(__file__).parents[2]
BOUND = 40  # seconds for a program to start, run and end; it takes less than one

PROLOGUE = """
    import os, signal, sys, threading, time
    from litejobs import LiteJobs, Retry, current
    from litejobs._process.timing import TIMES

    jobs = LiteJobs(sys.argv[1])
    running = threading.Event()

    @jobs.task(retry=Retry.constant("1h", max_attempts=3))
    def work(how):
        running.set()
        if how == "event":
            threading.Event().wait()
        elif how == "sleep":
            time.sleep(1000)
        elif how == "loop":
            while True:
                pass
        elif how == "transaction":
            TIMES.last_patience = 0.2
            with jobs.transaction():
                threading.Event().wait()
        elif how == "swallow":
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
        elif how == "ends":
            current().wait(1000)

    @jobs.task(name="async")
    async def in_a_coroutine():
        import asyncio
        running.set()
        await asyncio.sleep(1000)

    def begin(grace=0.1):
        jobs.start(threads=1, grace=grace)
        assert running.wait(30)
"""


@contextlib.contextmanager
def _program(text: str, path: Path | str) -> Iterator[subprocess.Popen[str]]:
    program = textwrap.dedent(PROLOGUE) + textwrap.dedent(text)
    with Program(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _run(text: str, path: Path | str) -> tuple[int, str]:
    """The exit code and what was said; an error if the program does not end."""
    with _program(text, path) as process:
        _, said = process.communicate(timeout=BOUND)
        return process.returncode, said


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


ENDS = {
    "return": ("", 0),
    "exit": ("sys.exit(3)", 3),
    "error": ("raise ValueError('nobody caught it')", 1),
    "thread": (
        "t = threading.Thread(target=lambda: sys.exit(4)); t.start(); t.join()",
        0,
    ),
}


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("return", "event"),
        pytest.param("return", "loop", marks=pytest.mark.torture),
        ("return", "swallow"),
        pytest.param("exit", "sleep", marks=pytest.mark.torture),
        ("exit", "loop"),
        ("error", "event"),
        ("thread", "sleep"),
    ],
)
def test_program_ends_although_a_job_never_does(
    file_jobs: LiteJobs, end: str, how: str
) -> None:
    """The runner was never stopped; its attempt is given back all the same."""
    job = file_jobs.enqueue("work", {"how": how})
    statement, code = ENDS[end]
    returned, said = _run(f"begin()\n{statement}", file_jobs.path)
    assert returned == code, said
    assert "Traceback" not in said or end == "error"
    assert job.state == "pending"
    assert [each.status for each in job.attempts] == ["interrupted"]
    assert job.snapshot().attempt_count == 0


def test_program_ends_although_a_coroutine_never_does(file_jobs: LiteJobs) -> None:
    job = file_jobs.enqueue("async")
    assert _run("begin()", file_jobs.path) == (0, "")
    assert job.state == "pending"
    assert [each.status for each in job.attempts] == ["interrupted"]


def test_job_that_ends_within_the_grace_period_is_completed_at_exit(
    file_jobs: LiteJobs,
) -> None:
    """The end of the program is not heard by the job; here a timer ends it."""
    job = file_jobs.enqueue("work", {"how": "ends"})
    program = """
        from litejobs._tasks.current import attempt_of_caller

        def kept(current, run):
            contexts.append(attempt_of_caller.get())
            return run()

        jobs.middleware(kept)
        contexts = []
        begin(grace=30)

        def end():
            while not jobs._service.runner._stopping.is_set():
                threading.Event().wait(0.01)
            contexts[0].cancel()

        threading.Thread(target=end, daemon=True).start()
    """
    assert _run(program, file_jobs.path) == (0, "")
    assert job.state == "completed"


def test_job_that_keeps_a_transaction_open_does_not_keep_the_program(
    file_jobs: LiteJobs,
) -> None:
    """What it had cannot be given back, so the next start finds it."""
    job = file_jobs.enqueue("work", {"how": "transaction"})
    code, said = _run("begin()", file_jobs.path)
    assert code == 0
    assert "the runner does not stop" in said
    assert job.state == "processing"
    assert _rescued(file_jobs, job.id) == ["crashed"]


def _rescued(jobs: LiteJobs, job_id: int) -> list[str | None]:
    """How the attempts of the job have ended, after the next start."""

    @jobs.task
    def other() -> None: ...

    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(BOUND)
    assert jobs.get(job_id).state == "failed"
    return [each.status for each in jobs.get(job_id).attempts]


@pytest.mark.parametrize("who", ["main", "thread", "job"])
def test_hard_exit_is_at_once_and_its_attempt_is_found_by_the_next_start(
    file_jobs: LiteJobs, who: str
) -> None:
    job = file_jobs.enqueue("work", {"how": "event"})
    statement = {
        "main": "os._exit(5)",
        "thread": """
threading.Thread(target=os._exit, args=(5,)).start()
threading.Event().wait()""",
        "job": """
threading.Thread(target=os._exit, args=(5,), daemon=True).start()""",
    }[who]
    code, _ = _run(f"begin(grace=1000)\n{statement}", file_jobs.path)
    assert code == 5
    assert job.state == "processing"
    assert _rescued(file_jobs, job.id) == ["crashed"]


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
starts_threads_late = pytest.mark.skipif(
    starts_none_at_end(),
    reason="CPython 3.12.0 and 3.12.1 start no thread when the main thread has ended",
)


@posix
def test_ctrl_c_in_a_block_ends_the_program_with_its_own_code(
    file_jobs: LiteJobs,
) -> None:
    job = file_jobs.enqueue("work", {"how": "event"})
    program = """
        with jobs.running(threads=1, grace=0.1):
            assert running.wait(30)
            print("ready", flush=True)
            threading.Event().wait()
    """
    with _program(program, file_jobs.path) as process:
        assert _read_line(process) == "ready"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=BOUND)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert job.state == "pending"
    assert [each.status for each in job.attempts] == ["interrupted"]


@posix
def test_signal_that_nobody_handles_kills_and_the_next_start_finds_the_attempt(
    file_jobs: LiteJobs,
) -> None:
    job = file_jobs.enqueue("work", {"how": "event"})
    program = "begin()\nprint('ready', flush=True)\nthreading.Event().wait()"
    with _program(program, file_jobs.path) as process:
        assert _read_line(process) == "ready"
        process.terminate()
        assert process.wait(BOUND) == -signal.SIGTERM
    assert job.state == "processing"
    assert _rescued(file_jobs, job.id) == ["crashed"]


FOREVER = """
    def ready():
        running.wait()
        print("ready", flush=True)

    threading.Thread(target=ready, daemon=True).start()
    jobs.run_forever(threads=1, grace={grace})
    print("after", flush=True)
    sys.exit(6)
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_run_forever_and_the_program_goes_on(
    file_jobs: LiteJobs, number: signal.Signals
) -> None:
    job = file_jobs.enqueue("work", {"how": "loop"})
    with _program(FOREVER.format(grace=0.1), file_jobs.path) as process:
        assert _read_line(process) == "ready"
        process.send_signal(number)
        assert process.communicate(timeout=BOUND) == ("after\n", "")
        assert process.returncode == 6
    assert job.state == "pending"
    assert [each.status for each in job.attempts] == ["interrupted"]


@posix
def test_when_the_stop_is_logged_no_further_job_can_start(file_jobs: LiteJobs) -> None:
    file_jobs.enqueue("work", {"how": "loop"})
    program = """
        import logging

        class Asked(logging.Handler):
            def emit(self, record):
                if "stopping" in record.getMessage():
                    print("no more is claimed:", runner._stopping.is_set(), flush=True)

        def ready():
            global runner
            running.wait()
            runner = jobs._service.runner
            print("ready", flush=True)

        logging.getLogger("litejobs").setLevel(logging.INFO)
        logging.getLogger("litejobs").addHandler(Asked())
        threading.Thread(target=ready, daemon=True).start()
        jobs.run_forever(threads=1, grace=0.1)
    """
    with _program(program, file_jobs.path) as process:
        assert _read_line(process) == "ready"
        process.terminate()
        assert process.communicate(timeout=BOUND)[0] == "no more is claimed: True\n"


@posix
def test_second_signal_ends_the_grace_period(file_jobs: LiteJobs) -> None:
    job = file_jobs.enqueue("work", {"how": "event"})
    program = """
        def tell():
            running.wait()
            runner = jobs._service.runner
            print("ready", flush=True)
            runner._stopping.wait()
            print("stopping", flush=True)

        threading.Thread(target=tell, daemon=True).start()
        jobs.run_forever(threads=1, grace=10_000)
        print("after", flush=True)
        sys.exit(6)
    """
    with _program(program, file_jobs.path) as process:
        assert _read_line(process) == "ready"
        process.terminate()
        assert _read_line(process) == "stopping"
        process.terminate()
        assert process.communicate(timeout=BOUND)[0] == "after\n"
        assert process.returncode == 6
    assert job.state == "pending"
    assert [each.status for each in job.attempts] == ["interrupted"]


SIGNALLED = """
    ledger = os.open(sys.argv[1] + ".ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = [0]

    @jobs.task
    def note(n):
        me = current()
        os.write(ledger, f"{me.job_id} {me.start_no}\\n".encode())
        if not running.is_set():
            running.set()
            print("ready", flush=True)
        if n % 50 == 0:
            me.wait(0.02)

    jobs.run_forever(threads=3, grace=5)
"""


def _check_signals(tmp_path: Path, rounds: int, seed: int, count: int = 3000) -> None:
    """Signals at random moments: no job is lost, and no attempt starts twice."""
    chance = random.Random(seed)
    for number in range(rounds):
        path = tmp_path / f"{number}.db"
        with LiteJobs(path, durability="fast") as jobs:
            jobs.enqueue_many(jobs.call("note", [n]) for n in range(count))
            with _program(SIGNALLED, path) as process:
                assert _read_line(process) == "ready"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, 0.4))
                process.send_signal(chance.choice([signal.SIGTERM, signal.SIGINT]))
                _, said = process.communicate(timeout=BOUND)
            where = f"round {number} with seed {seed}: {said}"
            assert process.returncode == 0, where
            assert said == "", where
            counts = jobs.counts()
            assert counts.keys() <= {"pending", "completed"}, where
            assert sum(counts.values()) == count, where
            started = Counter(Path(f"{path}.ledger").read_text().splitlines())
            assert set(started.values()) == {1}, where
            with jobs.reader() as db:
                ended = dict(
                    db.execute(
                        "select job_id || ' ' || start_no, status from litejobs_attempt"
                    )
                )
            assert set(ended.values()) <= {"ok", "interrupted"}, where
            # With time to end, whatever began was completed.
            assert {ended[each] for each in started} == {"ok"}, where
            assert len(started) == counts["completed"], where


@posix
def test_signals_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    _check_signals(tmp_path, rounds=2, seed=3, count=1000)  # one of each kind


@posix
@pytest.mark.torture
def test_two_hundred_signals_lose_nothing(tmp_path: Path) -> None:
    _check_signals(tmp_path, rounds=200, seed=random.randrange(1_000_000))


def test_nothing_of_ours_runs_after_close(tmp_path: Path) -> None:
    """Not even a thread that waits for the end of the program.

    While the file is open, callbacks are told of what other processes do, too.
    """
    program = textwrap.dedent("""
        import sys, threading
        from litejobs import LiteJobs

        OF_THE_FILE = {
            *("litejobs-async", "litejobs-callbacks", "litejobs-ear"),
            "litejobs-notify",
        }

        def threads():
            return [each.name for each in threading.enumerate()]

        jobs = LiteJobs(sys.argv[1])

        @jobs.task
        def plain(): ...

        @jobs.task
        async def coroutine(): ...

        jobs.on("*", lambda event: None)
        outbox = jobs.outbox(lambda: None, table="t")
        for _ in range(2):
            with jobs.running():
                for task in plain, coroutine:
                    task.enqueue().result(timeout=30)
            print([each for each in threads() if each not in OF_THE_FILE])
        with jobs.running():
            plain.enqueue().result(timeout=30)
            coroutine.enqueue().result(timeout=30)
            jobs.close()
            print(threads())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "jobs.db")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.stdout == "['MainThread']\n" * 3, done.stderr


@starts_threads_late
def test_program_ends_although_a_thread_of_its_own_runs_jobs(tmp_path: Path) -> None:
    """What runs meanwhile may still use the executors of the standard library."""
    program = textwrap.dedent("""
        import sys, threading
        from concurrent.futures import ThreadPoolExecutor
        from litejobs import LiteJobs, current

        jobs = LiteJobs(sys.argv[1])
        running = threading.Event()
        pool = ThreadPoolExecutor()

        @jobs.task
        def work():
            running.set()
            while not jobs._service.runner._stopping.wait(30):
                pass
            return pool.submit(abs, -7).result()

        job = work.enqueue()
        runs = threading.Thread(target=jobs.run_forever, kwargs={"grace": "30s"})
        runs.start()
        running.wait()
    """)
    path = tmp_path / "jobs.db"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0
    assert unexpected(done) == []
    with LiteJobs(path) as jobs:
        assert jobs.get(1).state == "completed"
        assert jobs.get(1).result() == 7


# The main thread ends, and the program lives on


def unexpected(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of its log but for the one that comes where a program lives on long."""
    said = "goes on: jobs are run until it ends"
    return [line for line in done.stderr.splitlines() if said not in line]


def _run_program(text: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def test_jobs_are_run_while_the_program_lives_on_in_a_thread(tmp_path: Path) -> None:
    """A server, a bot or a GUI in a thread, which the main thread has only started."""
    done = _run_program(
        """
        import sys, threading, time
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])
        jobs.task(name="work")(lambda: time.sleep(1.5))
        jobs.task(name="long")(lambda: time.sleep(1000))

        def serve():
            threading.main_thread().join()
            jobs.enqueue("work").result(timeout=30)
            print(jobs.health()["role"])
            jobs.enqueue("long")

        threading.Thread(target=serve, name="server").start()
        jobs.start(grace="100ms")
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, done.stdout) == (0, "runner\n")
    assert "thread 'server' goes on: jobs are run until it ends" in done.stderr
    assert "Traceback" not in done.stderr
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        assert jobs.get(1).state == "completed"
        assert jobs.counts()["pending"] == 1  # it was given back, or not begun


@starts_threads_late
def test_a_runner_can_be_started_when_the_main_thread_has_ended(
    tmp_path: Path,
) -> None:
    """It is stopped at the end of the program all the same."""
    done = _run_program(
        """
        import sys, threading
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])
        running = threading.Event()

        @jobs.task
        def work():
            running.set()
            threading.Event().wait()

        def serve():
            threading.main_thread().join()
            jobs.start(grace="100ms")
            work.enqueue()
            assert running.wait(30)

        threading.Thread(target=serve).start()
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, unexpected(done)) == (0, [])
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        assert [each.status for each in jobs.get(1).attempts] == ["interrupted"]


@pytest.mark.parametrize("which", ["waits", "of processes", "runs a job"])
def test_threads_of_executors_do_not_keep_the_runner(
    tmp_path: Path, which: str
) -> None:
    """They end with the main thread, and what the runner stops may still need them."""
    done = _run_program(
        f"""
        import sys, threading, time
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
        from litejobs import LiteJobs
        from litejobs.executors import Futures

        which = {which!r}
        pool = ThreadPoolExecutor(1)
        running = threading.Event()
        executors = {{}}
        if which == "runs a job":
            executors["pool"] = Futures(lambda: pool, slots=1)
        jobs = LiteJobs(sys.argv[1], executors=executors)

        def work():
            running.set()
            time.sleep(0.5)

        jobs.task(name="work", executor="pool" if executors else None)(work)
        jobs.start(grace="10s")
        pool.submit(abs, -7).result()
        if which == "of processes":
            processes = ProcessPoolExecutor(1)
            processes.submit(abs, -7).result()
        jobs.enqueue("work")
        jobs.enqueue("work")
        assert running.wait(30)
        from litejobs._process.program_end import threads_of_program
        print(threads_of_program())
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, unexpected(done), done.stdout) == (0, [], "[]\n")
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        assert jobs.counts()["completed"] >= 1


def test_run_forever_in_a_thread_ends_when_the_rest_of_the_program_has(
    tmp_path: Path,
) -> None:
    done = _run_program(
        """
        import sys, threading, time
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])
        jobs.task(name="work")(lambda: None)

        def serve():
            threading.main_thread().join()
            jobs.enqueue("work").result(timeout=30)

        threading.Thread(target=jobs.run_forever).start()
        threading.Thread(target=serve).start()
        while not jobs.health()["running"]:
            time.sleep(0.01)
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, unexpected(done)) == (0, [])
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        assert jobs.get(1).state == "completed"


def test_a_runner_that_has_ended_can_be_started_again(tmp_path: Path) -> None:
    """Nothing of this object has stopped it, so it is not to be stopped first."""
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        jobs.task(name="work")(lambda: "done")
        jobs.start().stop()
        assert jobs.health()["role"] == "stopped"
        jobs.start()
        assert jobs.enqueue("work").result(BOUND) == "done"


@starts_threads_late
def test_where_no_thread_can_be_started_any_more_the_runner_stops_and_says_so(
    tmp_path: Path,
) -> None:
    """As CPython 3.12.0 and 3.12.1 have it when the main thread has ended."""
    done = _run_program(
        """
        import sys, threading
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])
        main = threading.main_thread()
        start = threading.Thread.start

        def refuse(thread):
            if threading.current_thread() is main and thread.name == "litejobs-end":
                raise RuntimeError("can't create new thread at interpreter shutdown")
            start(thread)

        threading.Thread.start = refuse

        def serve():
            main.join()
            print(jobs.health()["role"])

        threading.Thread(target=serve, name="server").start()
        jobs.start()
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, done.stdout) == (0, "stopped\n")
    assert "thread 'server' goes on: no more jobs are run" in done.stderr


def test_where_threads_are_started_early_the_runner_goes_on_without_new_ones(
    tmp_path: Path,
) -> None:
    """As on CPython 3.12.0 and 3.12.1, which start none after the main thread's end."""
    done = _run_program(
        """
        import sys, threading
        from litejobs import LiteJobs
        from litejobs._process import program_end

        program_end.starts_none_at_end = lambda: True
        jobs = LiteJobs(sys.argv[1])
        jobs.task(name="work")(lambda: 7)
        main = threading.main_thread()
        start = threading.Thread.start

        def refuse(thread):
            if not main.is_alive() or ended.is_set():
                raise RuntimeError("can't create new thread at interpreter shutdown")
            start(thread)

        ended = threading.Event()
        threading._register_atexit(ended.set)
        threading.Thread.start = refuse

        def serve():
            main.join()
            print([jobs.enqueue("work").result(timeout=30) for _ in range(3)])

        threading.Thread(target=serve, name="server").start()
        jobs.start(threads=2)
        """,
        tmp_path / "jobs.db",
    )
    assert (done.returncode, done.stdout) == (0, "[7, 7, 7]\n"), done.stderr
