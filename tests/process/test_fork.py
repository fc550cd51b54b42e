"""A child that a task forks ends as any child does, and leaves its parent alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from litejobs import LiteJobs
from litejobs._process import role, uwsgi

ROOT = Path(__file__).parents[2]
BOUND = 240  # seconds for a program to start, run and end; it takes a few at most

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PROLOGUE = """
    import asyncio, atexit, contextlib, os, sys, threading, warnings
    warnings.simplefilter("ignore")
    from litejobs import LiteJobs, current
    from litejobs.errors import ForkedProcess, RunnerActive

    jobs = LiteJobs(sys.argv[1])
    parent = os.getpid()
    atexit.register(lambda: print("atexit", os.getpid() == parent))

    def ended(child):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def leave(how):
        if how == "return":
            return "a value of the child"
        if how == "raise":
            raise LookupError("of the child")
        if how == "text":
            sys.exit("a last word")
        sys.exit(None if how == "exit" else how)

    @jobs.task(max_attempts=1)
    def fork(how):
        child = os.fork()
        return ended(child) if child else leave(how)

    @jobs.task(max_attempts=1)
    async def fork_async(how):
        await asyncio.sleep(0)
        child = os.fork()
        return ended(child) if child else leave(how)

    def run(task, *given):
        with jobs.running(threads=2):
            return task.enqueue(*given).result(timeout=90)
"""


class Done(NamedTuple):
    """What the program has said."""

    stdout: str
    stderr: str


def run(path: Path | str, program: str, *, first: str = "", then: str = "") -> Done:
    """A program that runs jobs; if a child of its lives on, it never ends.

    Its output is not buffered: at a fork both would have what the buffer holds.
    """
    text = "".join(map(textwrap.dedent, (first, PROLOGUE, then, program)))
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", text, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        done = Done(*process.communicate(timeout=BOUND))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, done.stderr
    return done


WAYS: list[tuple[str | int, int, str]] = [
    ("return", 0, ""),
    ("exit", 0, ""),
    (7, 7, ""),
    (256 + 3, 3, ""),
    ("text", 1, "a last word\n"),
    ("raise", 1, "LookupError: of the child\n"),
]
EACH_WAY = f"""
    for how in {[how for how, _, _ in WAYS]}:
        show(how)
        print("next", file=sys.stderr, flush=True)
"""


def assert_all_ended(done: Done, shown: str) -> None:
    """Each of the ways; nothing of the parent's end is done by a child."""
    codes = [shown.format(code) for _, code, _ in WAYS]
    assert done.stdout.splitlines() == [*codes, "atexit True"]
    for text, (how, _, said) in zip(
        done.stderr.split("next\n"), [*WAYS, ("end", 0, "")], strict=True
    ):
        assert text.endswith(said), how
        assert text.startswith("Traceback" if how == "raise" else said), how
        assert bool(text) == bool(said), how


@pytest.mark.parametrize(
    ("path", "task"), [("jobs.db", "fork"), (":memory:", "fork_async")]
)
def test_child_ends_as_a_program_does_that_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, task: str
) -> None:
    monkeypatch.chdir(tmp_path)
    program = f"""
    running = jobs.start(threads=2)

    def show(how):
        print({task}.enqueue(how).result(timeout=90))
    """
    done = run(path, program + EACH_WAY)
    assert_all_ended(done, "{}")


def test_child_of_a_drained_task_does_not_drain() -> None:
    program = """
    def show(how):
        job = fork.enqueue(how)
        print(jobs.drain(), job.result())
    """
    done = run(":memory:", program + EACH_WAY)
    assert_all_ended(done, "1 {}")


def test_child_says_what_it_has_to_say_and_its_threads_end_first() -> None:
    done = run(
        ":memory:",
        """
        @jobs.task
        def talk():
            child = os.fork()
            if child:
                return ended(child)
            begun = threading.Event()
            def last():
                begun.wait()
                sys.stdout.write("from its thread\\n")
            threading.Thread(target=last, daemon=False).start()
            sys.stdout.write("from the child\\n")
            begun.set()
            sys.exit(4)

        print(run(talk))
        """,
    )
    assert done.stdout == "from the child\nfrom its thread\n4\natexit True\n"
    assert done.stderr == ""


def test_child_that_waits_for_a_thread_of_its_own_says_so() -> None:
    """As any program does it; what asks for its end says which thread that is."""
    done = run(
        ":memory:",
        """
        from litejobs._process.timing import TIMES

        TIMES.last_words_patience = 0.05
        reads, writes = os.pipe()
        said, told = os.pipe()

        @jobs.task
        def wait():
            child = os.fork()
            if child:
                assert b"waits for its thread 'slow'" in os.read(said, 1000)
                os.write(writes, b"x")
                return ended(child)
            sys.stderr = os.fdopen(told, "w")
            slow = threading.Thread(target=os.read, args=(reads, 1), name="slow")
            slow.daemon = False
            slow.start()

        print(run(wait))
        """,
    )
    assert done.stdout == "0\natexit True\n"


def test_child_does_not_wait_for_ever_for_the_lock_of_a_stream() -> None:
    """Another thread of the parent has it at the moment of the fork."""
    done = run(
        ":memory:",
        """
        from litejobs._process.timing import TIMES

        TIMES.last_words_patience = 0.1
        reads, writes = os.pipe()
        sys.stderr = os.fdopen(writes, "w")
        written = threading.Event()

        def fill():
            written.set()
            with contextlib.suppress(BrokenPipeError):
                sys.stderr.write("x" * 1_000_000)
                sys.stderr.flush()

        @jobs.task
        def crowded():
            filler = threading.Thread(target=fill)
            filler.start()
            written.wait()
            while not os.read(reads, 1):
                pass
            child = os.fork()
            if not child:
                raise LookupError("nobody will read this")
            code = ended(child)
            os.close(reads)
            filler.join()
            return code

        print(run(crowded))
        sys.stderr = sys.__stderr__
        """,
    )
    assert done.stdout == "1\natexit True\n"


def test_what_its_parent_wraps_around_the_task_is_not_the_childs() -> None:
    done = run(
        ":memory:",
        """
        @jobs.middleware
        def wrapped(context, task):
            try:
                return task()
            finally:
                print("after the task", os.getpid() == parent, flush=True)

        print(run(fork, 5))
        """,
    )
    assert done.stdout == "after the task True\n5\natexit True\n"


def test_child_of_other_code_that_is_called_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a thread of ours calls what the application has given."""
    monkeypatch.chdir(tmp_path)
    done = run(
        ":memory:",
        """
        import sqlite3
        place = ""
        forked = threading.Event()

        def here(where):
            if where == place and not forked.is_set():
                child = os.fork()
                if not child:
                    sys.exit(6)
                print(place, ended(child), flush=True)
                forked.set()

        @jobs.middleware
        def wrapped(context, task):
            here("middleware")
            return task()

        @jobs.extractor
        def extract(error):
            here("extractor")

        @jobs.task(max_attempts=1)
        def fails():
            raise LookupError

        def connect():
            here("outbox")
            return sqlite3.connect("app.db")

        jobs.on("dead_lettered", lambda event: here("callback"))
        outbox = jobs.outbox(connect, table="outbox")
        with sqlite3.connect("app.db") as app:
            app.execute(outbox.create_table_sql("sqlite"))
        for place in ["middleware", "extractor", "callback", "outbox"]:
            forked.clear()
            with jobs.running():
                fails.enqueue()
                assert forked.wait(60), place
        """,
    )
    places = ["middleware 6", "extractor 6", "callback 6", "outbox 6"]
    assert done.stdout.splitlines() == [*places, "atexit True"]


def test_processes_of_multiprocessing_end_as_they_always_do() -> None:
    done = run(
        ":memory:",
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        forks = multiprocessing.get_context("fork")

        def codes(leaving):
            found = []
            for how in leaving:
                process = forks.Process(target=leave, args=(how,))
                process.start()
                process.join()
                found.append(process.exitcode)
            return found

        def pooled():
            with ProcessPoolExecutor(2, mp_context=forks) as pool:
                return list(pool.map(abs, [-1, -2, -3]))

        @jobs.task
        def processes(leaving):
            return [codes(leaving), pooled()]

        @jobs.task
        async def processes_async(leaving):
            return [codes(leaving), pooled()]

        print(run(processes, ["return", 7]))
        print(run(processes_async, ["exit", "raise"]))
        """,
    )
    codes = "[[0, 7], [1, 2, 3]]\n[[0, 1], [1, 2, 3]]\n"
    assert done.stdout == codes + "atexit True\n"


def test_child_that_goes_on_cannot_speak_for_its_parent(tmp_path: Path) -> None:
    done = run(
        tmp_path / "jobs.db",
        """
        def operations():
            yield lambda: current().progress(0.5, "half of it")
            yield lambda: current().transaction().__enter__()

        @jobs.task
        def tries():
            child = os.fork()
            if child:
                return ended(child)
            refused = 0
            for operation in operations():
                try:
                    operation()
                except ForkedProcess as error:
                    refused += f"forked process {os.getpid()}" in str(error)
            sys.exit(refused)

        print(run(tries), len(list(operations())))
        print(jobs.get(1).progress)
        """,
    )
    told = done.stdout.splitlines()
    assert told[0].split()[0] == told[0].split()[1]
    assert told[1] == "None"


def test_child_that_goes_on_is_a_process_of_its_own(tmp_path: Path) -> None:
    """It reads, enqueues and registers, and waits as a standby for its parent's end."""
    done = run(
        tmp_path / "jobs.db",
        """
        @jobs.task
        def noted(by):
            return by

        @jobs.task
        def tries():
            child = os.fork()
            if child:
                return ended(child)
            jobs.task(lambda: None, name="late")
            noted.enqueue("child")
            assert jobs.get(1).state == "processing"
            try:
                jobs.drain()
            except RunnerActive:
                with jobs.running() as runner:
                    assert jobs.health()["role"] == "standby"
                sys.exit(42)

        print(run(tries))
        noted.enqueue("parent")
        print(jobs.drain(), len(jobs.list(task="noted", state="completed")))
        """,
    )
    ended, drained, _ = done.stdout.splitlines()
    assert ended == "42"
    # The runner may have run the child's already.
    assert drained in {"1 2", "2 2"}


@pytest.mark.parametrize("memory", [False, True], ids=["file", "memory"])
def test_transaction_in_which_the_parent_forked_is_the_parents(
    tmp_path: Path, memory: bool
) -> None:
    done = run(
        ":memory:" if memory else tmp_path / "jobs.db",
        """
        with jobs.transaction() as db:
            db.execute("create table t (x)")

        def meddle(how, db):
            if how == "enqueue":
                fork.enqueue("return")
            elif how == "read":
                jobs.get(1)
            elif how == "nested":
                with jobs.transaction():
                    pass
            elif how == "exit":
                sys.exit(9)
            elif how != "leave":
                db.execute(how)

        def within(how):
            with jobs.transaction() as db:
                db.execute("insert into t values (1)")
                code = divided(how, db)
            with jobs.transaction() as db, jobs.transaction():
                db.execute("insert into t values (1)")
                return [code, divided(how, db)]

        def divided(how, db):
            child = os.fork()
            if not child:
                return meddle(how, db)
            code = ended(child)
            db.execute("insert into t values (1)")
            return code

        @jobs.task(max_attempts=1)
        def works(how):
            return within(how)

        @jobs.task(max_attempts=1)
        async def works_async(how):
            return within(how)

        def drained(task, how):
            job = task.enqueue(how)
            jobs.drain()
            return job.result(timeout=0)

        operations = ["leave", "enqueue", "read", "nested", "exit"]
        # These are for SQLite, which may not be spoken to where another thread of the
        # parent was inside of it: a loop, for one.
        told = ["commit", "rollback", "insert into t values (2)", "savepoint s"]
        for task in works, works_async:
            codes = [run(task, how) for how in operations]
            print(codes + [drained(task, how) for how in told])
        with jobs.reader() as db:
            count = len(operations + told)
            print(db.execute("select sum(x) from t").get == 8 * count)
            print(db.execute("pragma integrity_check").get)
        """,
    )
    codes = [[code, code] for code in [1, 1, 1, 1, 9, 1, 1, 1, 1]]
    assert done.stdout == f"{codes}\n{codes}\nTrue\nok\natexit True\n"


@pytest.mark.parametrize("times", [1, pytest.param(12, marks=pytest.mark.torture)])
def test_many_children_end_while_others_run(tmp_path: Path, times: int) -> None:
    """At whatever moment the other threads are."""
    done = run(
        tmp_path / "jobs.db",
        """
        import collections, logging

        logging.basicConfig(stream=sys.stdout, level=logging.INFO)
        logging.getLogger().handlers[0].setStream(open(os.devnull, "w"))

        @jobs.task
        def busy(n):
            return [str(each) for each in range(n)] and None

        with jobs.running(threads=6):
            ways = ["return", "exit", 7, "raise", "text"] * times
            forked = [fork.enqueue(how) for how in ways]
            forked += [fork_async.enqueue(how) for how in ways]
            jobs.enqueue_many(busy.call(2_000) for _ in range(160 * times))
            codes = [job.result(timeout=240) for job in forked]
        print(sorted(collections.Counter(codes).items()))
        """,
        first=f"times = {times}\n",
    )
    many, few = 4 * times, 2 * times
    assert done.stdout == f"[(0, {many}), (1, {many}), (7, {few})]\natexit True\n"
    assert done.stderr.count("LookupError: of the child\n") == few


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.torture)])
def test_threads_that_fork_at_the_same_moment_leave_the_file_to_all(
    tmp_path: Path, times: int
) -> None:
    """One of them closes the file, the others lose patience; each undoes its own."""
    done = run(
        tmp_path / "jobs.db",
        """
        from litejobs._process.timing import other_times

        def forks():
            child = os.fork()
            if not child:
                os._exit(7)
            codes.append(ended(child))

        for _ in range(times):
            codes = []
            threads = [threading.Thread(target=forks) for _ in range(4)]
            with other_times(fork_patience=0.05):
                for each in threads:
                    each.start()
                for each in threads:
                    each.join()
            print(codes)
            print(run(fork, 7))
        with jobs.transaction() as db:
            print(db.execute("select count(*) from litejobs_job").get)
        """,
        # Of a fork those are told last who asked for it first: by then all have begun
        # to fork. But for logging and pools of threads, each of which keeps a lock.
        first=f"""
            times = {times}
            import concurrent.futures.thread, logging, os, threading
            together = threading.Barrier(4)
            os.register_at_fork(
                before=lambda: "forks" in threading.current_thread().name
                and together.wait(60)
            )
        """,
    )
    assert done.stderr == ""
    assert done.stdout == "[7, 7, 7, 7]\n7\n" * times + f"{times}\natexit True\n"


def test_child_may_run_jobs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file; they are not cut off where the child ends."""
    monkeypatch.chdir(tmp_path)
    done = run(
        ":memory:",
        """
        @jobs.task
        def starts_its_own():
            child = os.fork()
            if child:
                return ended(child)
            own = LiteJobs("own.db")
            running = threading.Event()

            @own.task
            def work():
                running.set()
                asked = runner._stopping.wait(60)
                print("ends in time", asked, flush=True)

            runner = own.start(grace="60s", threads=1)
            work.enqueue()
            running.wait()
            sys.exit(2)

        print(run(starts_its_own))
        print(LiteJobs("own.db").get(1).state)
        """,
    )
    assert done.stdout == "ends in time True\n2\ncompleted\natexit True\n"


def test_coroutine_that_exits_fails_alone() -> None:
    """It would end the loop, and all others that wait there with it."""
    done = run(
        ":memory:",
        """
        @jobs.task(max_attempts=1)
        async def exits(how):
            if how == "interrupt":
                raise KeyboardInterrupt
            if how == "a task of its own":
                await asyncio.gather(asyncio.create_task(leaving()))
            sys.exit(3)

        async def leaving():
            sys.exit(3)

        @jobs.task
        async def fine(seconds):
            await asyncio.sleep(seconds)
            return "fine"

        with jobs.running():
            other = fine.enqueue(0.2)
            for how in "exit", "interrupt", "a task of its own":
                job = exits.enqueue(how)
                with contextlib.suppress(Exception):
                    job.result(timeout=60)
                print(job.state, job.attempts[0].outcome)
            print(other.result(timeout=60), fine.enqueue(0).result(timeout=60))
        """,
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["dead_lettered"] * 3
    assert lines[3] == "fine fine"


def test_child_that_leaves_a_block_says_nothing_to_sqlite(tmp_path: Path) -> None:
    """It may have been forked while another thread had a lock of SQLite's."""
    done = run(
        tmp_path / "jobs.db",
        """
        said = []

        def refuse(*asked):
            said.append(asked)
            return 1

        def within(leave):
            with jobs.transaction() as db, jobs.transaction():
                child = os.fork()
                if child:
                    return ended(child)
                db.set_authorizer(refuse)
                leave()

        for leave in (lambda: None, lambda: 1 / 0):
            try:
                print(within(leave))
            except Exception:
                os._exit(70 if os.getpid() == parent else 80 if said else 90)
        """,
    )
    assert done.stdout.split()[:2] == ["90", "90"]


# A fork that Python does not make, as servers and libraries in C do it: no hook is
# called. The parent has one thread, as the master of such a server; with more, Python
# itself may wait for ever in the child.
FORKED_IN_C = """
    import ctypes

    fork_in_c = ctypes.PyDLL(None).fork

    def in_child(what):
        sys.stdout.flush()
        child = fork_in_c()
        if child:
            return ended(child)
        code = 99
        try:
            code = what()
        except ForkedProcess as error:
            code = 40 if f"forked process {os.getpid()}" in str(error) else 98
        finally:
            os._exit(code)

    @jobs.task(max_attempts=1)
    def add(one, other):
        return one + other
"""


def test_child_that_was_forked_in_c_is_a_process_of_its_own(tmp_path: Path) -> None:
    """It opens the file anew, and what it does drops no lock of its parent."""
    done = run(
        tmp_path / "jobs.db",
        """
        def descriptors():
            key = os.stat(jobs.path).st_ino
            for name in os.listdir("/dev/fd"):
                with contextlib.suppress(OSError):
                    if os.fstat(int(name)).st_ino == key:
                        yield int(name)

        def enqueue():
            add.enqueue(1, 2)
            # Where a descriptor stands is the same for both, and of no use to SQLite.
            places = [os.lseek(each, 0, os.SEEK_CUR) for each in descriptors()]
            return places.count(12345)

        def find():
            return jobs.get(1).result(timeout=0)

        def start():
            with jobs.running():
                return add.enqueue(20, 1).result(timeout=60)

        def write():
            with jobs.transaction() as db:
                return db.execute("update t set x = x + 1 returning x").get

        def close():
            jobs.close()
            return LiteJobs(jobs.path).get(1).result(timeout=0)

        def health():
            return ["none", "standby", "runner"].index(jobs.health()["role"])

        def nested():
            add.enqueue(1, 2)
            return in_child(enqueue) + in_child(find)

        add.enqueue(1, 2)
        with jobs.transaction() as db:
            db.execute("create table t as select 10 as x")
        jobs.drain()
        for each in descriptors():
            os.lseek(each, 12345, os.SEEK_SET)
        for what in enqueue, find, start, write, close, health, nested:
            print(what.__name__, in_child(what))

        child = fork_in_c()
        if not child:
            sys.exit(7)  # it ends as a program does
        print("exit", ended(child), jobs.counts())
        from litejobs._storage import process_guard
        process_guard.recheck(jobs.path)  # it says so if its locks are gone
        print(write(), jobs.drain())
        """,
        then=FORKED_IN_C,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        *("enqueue 0", "find 3", "start 21", "write 11", "close 3", "health 0"),
        *("nested 3", "atexit False", "exit 7 {'completed': 3, 'pending': 2}"),
        *("12 2", "atexit True"),
    ]


def test_child_that_was_forked_in_c_leaves_to_its_parent_what_that_is_at(
    tmp_path: Path,
) -> None:
    """A transaction, something that is read, a task, and what is in memory."""
    done = run(
        tmp_path / "jobs.db",
        """
        entries = [
            lambda: add.enqueue(1, 2),
            lambda: jobs.get(1),
            lambda: jobs.transaction().__enter__(),
            lambda: jobs.reader().__enter__(),
            lambda: jobs.drain(),
        ]
        memory = LiteJobs(":memory:")
        with jobs.transaction() as db:
            db.execute("create table t (x)")
            print(*map(in_child, entries))
            db.execute("insert into t values (1)")
        with jobs.reader() as db:
            print(*map(in_child, entries[:-1]), db.execute("select x from t").get)
        memory.task(add.function, name="add").enqueue(1, 2)
        print(in_child(lambda: memory.drain()), memory.drain())

        @jobs.task(max_attempts=1)
        def divide(how):
            child = fork_in_c()
            return ended(child) if child else leave(how)

        for how in "return", 7, "raise":
            job = divide.enqueue(how)
            print(jobs.drain(), job.result())
        child = 0
        try:
            with jobs.transaction() as db:
                db.execute("insert into t values (2)")
                child = fork_in_c()
        except ForkedProcess:
            os._exit(60 if child else 6)
        with jobs.reader() as db:
            print(ended(child), db.execute("select sum(x) from t").get)
            print(db.execute("pragma integrity_check").get)
        """,
        then=FORKED_IN_C,
    )
    assert done.stdout.splitlines() == [
        "40 40 40 40 40",
        "40 40 40 40 1",
        *("40 1", "1 0", "1 7", "1 1", "6 3", "ok", "atexit True"),
    ]
    assert done.stderr.count("Traceback") == 1


def test_child_begins_whatever_one_part_or_an_emulator_does(tmp_path: Path) -> None:
    """The page stays as it was there, though the system has promised to empty it."""
    done = run(
        tmp_path / "jobs.db",
        """
        from litejobs._process import fork_guard

        def broken():
            raise LookupError("of one part")

        fork_guard._in_children.insert(0, broken)
        fork_guard._here = bytearray([1])
        with jobs.transaction():
            child = os.fork()
            if not child:
                try:
                    jobs.counts()
                except ForkedProcess:
                    os._exit(40)
                os._exit(41)
        print(ended(child), jobs.counts())
        """,
    )
    assert done.stdout.startswith("40 ")
    assert done.stderr.count("\nExceptionGroup: litejobs could not begin") == 1


@pytest.mark.parametrize("set_at", ["never", "before", "later", "again"])
def test_hook_of_uwsgi_calls_ours_and_that_of_others(
    monkeypatch: pytest.MonkeyPatch, set_at: str
) -> None:
    """The name in its module is one for all; whoever sets it last has it."""
    module = types.ModuleType("uwsgi")
    monkeypatch.setitem(sys.modules, "uwsgi", module)
    called: list[str] = []

    def theirs() -> None:
        called.append("theirs")

    def ours() -> None:
        called.append("ours")
        raise LookupError

    if set_at == "before":
        module.post_fork_hook = theirs  # type: ignore[attr-defined]
    uwsgi.when_worker_begins(ours)
    for _ in range({"later": 1, "again": 2}.get(set_at, 0)):
        module.post_fork_hook = theirs  # type: ignore[attr-defined]
    vars(module)["post_fork_hook"]()  # as uWSGI looks it up
    assert called == (["ours"] if set_at == "never" else ["ours", "theirs"])


@pytest.mark.parametrize(("worker", "mule"), [(1, 0), (0, 1)])
def test_mule_of_uwsgi_runs_jobs_where_it_starts_a_runner(
    monkeypatch: pytest.MonkeyPatch, worker: int, mule: int
) -> None:
    """What its master has loaded and started is for the workers."""
    module: Any = types.ModuleType("uwsgi")
    module.opt = {"master": True}
    module.worker_id, module.mule_id = lambda: 0, lambda: 0
    monkeypatch.setitem(sys.modules, "uwsgi", module)
    later = Mock()
    monkeypatch.setattr(threading, "Timer", later)
    with LiteJobs(":memory:") as jobs:
        jobs.start()
        assert role.forks_workers()
        module.worker_id, module.mule_id = lambda: worker, lambda: mule
        jobs._service.after_fork()
        assert later.call_count == worker
        assert role.reason_not_to_run() is None
