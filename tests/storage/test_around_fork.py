"""What a fork finds open is closed before, and both sides open it anew."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOUND = 120  # seconds; each takes a few at most

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PROLOGUE = """
    import os, sys, threading, warnings
    warnings.simplefilter("ignore")
    import apsw
    from litejobs import LiteJobs
    from litejobs.errors import ForkedProcess
    from pathlib import Path

    path = sys.argv[1]
    jobs = LiteJobs(path)

    @jobs.task
    def note(by, number):
        return by, number

    def another_file(number):
        # The same task, in a file of its own.
        path = sys.argv[1] + str(number)
        jobs = LiteJobs(path)
        return path, jobs, jobs.task(note.function)

    def in_child(action):
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = int(action() or 0)
            except ForkedProcess as error:
                print(error, file=sys.stderr)
                code = 98
            finally:
                os._exit(code)
        return child

    def ended(child):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def noted():
        return sorted((tuple(job.args), job.state) for job in jobs.list(limit=5000))
"""


def run(path: Path, program: str) -> list[str]:
    """What the program prints, by words."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(PROLOGUE) + textwrap.dedent(program),
            str(path),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_both_sides_go_on_with_the_same_object(tmp_path: Path) -> None:
    program = """
        note.enqueue("before", 1)
        child = in_child(lambda: note.enqueue("child", 2) and jobs.counts()["pending"])
        note.enqueue("parent", 3)
        pending = ended(child)
        print(2 <= pending <= 3, jobs.drain(), jobs.counts()["completed"])
    """
    assert run(tmp_path / "jobs.db", program) == ["True", "3", "3"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows its locks")
def test_kernel_knows_the_locks_of_both_sides(tmp_path: Path) -> None:
    """Not the absence of errors, but the locks themselves: SQLite keeps one on `-shm`
    for each process that has the file open."""
    program = """
        def owners():
            inode = f":{os.stat(path + '-shm').st_ino} "
            lines = Path("/proc/locks").read_text().splitlines()
            return {int(line.split()[4]) for line in lines if inode in line}

        note.enqueue("before", 1)
        go, tell = os.pipe()
        ready, told = os.pipe()

        def holds():
            note.enqueue("child", 2)
            os.write(told, b"x")
            os.read(go, 1)

        before = owners() == {os.getpid()}
        child = in_child(holds)
        os.read(ready, 1)
        note.enqueue("parent", 3)
        both = owners() == {os.getpid(), child}
        # While one of them writes, the other is kept waiting by the kernel.
        os.write(tell, b"x")
        ended(child)
        print(before, both, owners() == {os.getpid()})
    """
    assert run(tmp_path / "jobs.db", program) == ["True", "True", "True"]


def test_each_side_is_kept_waiting_while_the_other_writes(tmp_path: Path) -> None:
    program = """
        note.enqueue("before", 1)
        go, tell = os.pipe()
        ready, told = os.pipe()

        def holds():
            with jobs.transaction() as db:
                os.write(told, b"x")
                os.read(go, 1)
                note.enqueue("child", 2)

        child = in_child(holds)
        os.read(ready, 1)
        other = apsw.Connection(path)
        try:
            other.execute("begin immediate")
        except apsw.BusyError:
            print("kept")
        other.close()
        os.write(tell, b"x")
        print(ended(child), jobs.counts()["pending"])
    """
    assert run(tmp_path / "jobs.db", program) == ["kept", "0", "2"]


@pytest.mark.parametrize("count", [70, pytest.param(500, marks=pytest.mark.torture)])
def test_nothing_is_lost_or_doubled_under_a_load_of_two_processes(
    tmp_path: Path, count: int
) -> None:
    """With a ledger: each side notes what it was told is stored.

    Jobs that a busy runner claimed ahead, and gives back as it ends, start anew.
    """
    program = f"""
        ledger = Path(path + ".ledger")

        def load(name):
            with ledger.open("a") as file:
                for number in range({count}):
                    job = note.enqueue(name, number)
                    file.write(f"{{name}} {{number}} {{job.id}}\\n")
                    file.flush()

        note.enqueue("before", 0)
        with jobs.running(threads=2):
            children = [in_child(lambda: load("one")), in_child(lambda: load("two"))]
            load("parent")
            codes = [ended(child) for child in children]
        jobs.drain()
        lines = [line.split() for line in ledger.read_text().splitlines()]
        ids = {{int(line[2]) for line in lines}}
        print(codes == [0, 0], len(lines), len(ids), jobs.counts()["completed"])
        with jobs.reader() as db:
            query = (
                "select count(*), count(distinct job_id), sum(status = 'ok')"
                " from litejobs_attempt where started_at is not null"
            )
            print(*db.execute(query).fetchone(), db.execute("pragma quick_check").get)
    """
    told = run(tmp_path / "jobs.db", program)
    noted, in_all = str(3 * count), str(3 * count + 1)
    assert told == ["True", noted, noted, in_all, in_all, in_all, in_all, "ok"]


def test_fork_waits_for_what_other_threads_do(tmp_path: Path) -> None:
    """A thread that reads and one that writes come to their ends before."""
    program = """
        note.enqueue("before", 1)
        inside = threading.Semaphore(0)
        release = threading.Event()

        def reads():
            with jobs.reader() as db:
                inside.release()
                release.wait()
                db.execute("select 1").fetchall()

        def writes():
            with jobs.transaction():
                inside.release()
                release.wait()
                note.enqueue("thread", 2)

        threads = [threading.Thread(target=each) for each in (reads, writes)]
        for each in threads:
            each.start()
            inside.acquire()
        threading.Timer(0.05, release.set).start()
        child = in_child(lambda: jobs.counts()["pending"])
        print(ended(child))
        for each in threads:
            each.join()
        print(jobs.drain())
    """
    assert run(tmp_path / "jobs.db", program) == ["2", "2"]


KEEPS = [
    "with jobs.transaction(): fork()",
    "with jobs.reader(): fork()",
    "keep = apsw.Connection(path); fork()",
    "thread(jobs.transaction); fork(); release.set()",
    "thread(jobs.reader); fork(); release.set()",
]


def test_child_is_told_where_the_file_could_not_be_closed(tmp_path: Path) -> None:
    program = f"""
        def thread(block):
            def stays():
                with block():
                    inside.set()
                    release.wait()
            threading.Thread(target=stays).start()
            inside.wait()

        def fork():
            print(ended(in_child(lambda: note.enqueue("child", 2))))

        for number, keeps in enumerate({KEEPS}):
            path, jobs, note = another_file(number)
            note.enqueue("before", 1)
            inside, release = threading.Event(), threading.Event()
            keep = None
            exec(keeps)
            print(note.enqueue("parent", 3).id, jobs.drain())
            print(ended(in_child(lambda: LiteJobs(sys.argv[1]).enqueue("note").id)))
            jobs.close()
    """
    told = iter(run(tmp_path / "jobs.db", program))
    for number, keeps in enumerate(KEEPS, 1):
        expected = ["98", "2", "2", str(number)]
        assert [next(told) for _ in expected] == expected, keeps
    assert list(told) == []


def test_fork_waits_for_a_file_that_is_being_opened(tmp_path: Path) -> None:
    """A child could take what SQLite knows of it for its own."""
    program = """
        from litejobs._storage.database import OPEN

        def opens():
            with OPEN.lock:
                opening.set()
                release.wait()

        note.enqueue("before", 1)
        for other, ends in (path + "2", True), (path + "3", False):
            release, opening = threading.Event(), threading.Event()
            thread = threading.Thread(target=opens)
            thread.start()
            opening.wait()
            if ends:
                threading.Timer(0.05, release.set).start()
            child = in_child(lambda: LiteJobs(other).enqueue("note").id)
            release.set()
            thread.join()
            print(ended(child), LiteJobs(other).enqueue("note").id)
    """
    told = run(tmp_path / "jobs.db", program)
    assert told[:2] in (["1", "2"], ["1", "1"])
    assert told[2:] == ["98", "1"]


def test_file_that_is_being_opened_is_no_childs(tmp_path: Path) -> None:
    """In the child, SQLite would know the locks of a connection that is half made."""
    program = """
        def keep(_):
            apsw.connection_hooks.remove(keep)
            inside.set()
            release.wait()

        for waits in True, False:
            _, jobs, note = another_file(waits)
            inside, release = threading.Event(), threading.Event()
            apsw.connection_hooks.append(keep)
            thread = threading.Thread(target=note.enqueue, args=("thread", 1))
            thread.start()
            inside.wait()
            if waits:
                threading.Timer(0.05, release.set).start()
            print(ended(in_child(lambda: note.enqueue("child", 2) and 1)))
            release.set()
            thread.join()
            print(ended(in_child(lambda: note.enqueue("child", 3) and 0)))
            print(note.enqueue("parent", 4).id, jobs.drain())
            jobs.close()
    """
    told = run(tmp_path / "jobs.db", program)
    assert told[:4] == ["1", "0", "4", "4"]
    assert told[4:] == ["98", "0", "3", "3"]


def test_signal_handler_may_fork_in_the_middle_of_a_fork(tmp_path: Path) -> None:
    """Its child is refused, as one of any other open transaction."""
    program = """
        from litejobs._storage import database

        note.enqueue("before", 1)
        fall_asleep = database.Database.fall_asleep
        codes = []

        def interrupted(self, until):
            slept = fall_asleep(self, until)
            if not codes:
                codes.append(None)
                codes[0] = ended(in_child(lambda: note.enqueue("inner", 2)))
                codes.append(slept)
            return slept

        database.Database.fall_asleep = interrupted
        outer = ended(in_child(lambda: note.enqueue("outer", 3) and 0))
        print(*codes, outer, note.enqueue("parent", 4).id, jobs.drain())
    """
    assert run(tmp_path / "jobs.db", program) == ["98", "True", "0", "3", "3"]


@pytest.mark.parametrize("forks", [3, pytest.param(20, marks=pytest.mark.torture)])
def test_runner_goes_on_after_each_of_many_forks(tmp_path: Path, forks: int) -> None:
    program = f"""
        with jobs.running(threads=2) as runner:
            for number in range({forks}):
                note.enqueue("parent", number)
                if ended(in_child(lambda: note.enqueue("child", number) and 0)):
                    print("refused", number)
            runner.wait_idle(60)
        print(jobs.counts()["completed"])
    """
    assert run(tmp_path / "jobs.db", program) == [str(2 * forks)]


def test_processes_of_multiprocessing_enqueue(tmp_path: Path) -> None:
    module = tmp_path / "work.py"
    module.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing, sys, warnings
            warnings.simplefilter("ignore")
            from litejobs import LiteJobs

            jobs = LiteJobs({str(tmp_path / "jobs.db")!r})

            @jobs.task
            def note(number):
                return number

            def one(number):
                return note.enqueue(number).id

            if __name__ == "__main__":
                note.enqueue(0)
                for method in "fork", "forkserver", "spawn":
                    context = multiprocessing.get_context(method)
                    with context.Pool(2) as pool, jobs.running(threads=2) as runner:
                        ids = pool.map(one, range(20))
                        runner.wait_idle(60)
                    print(len(set(ids)), jobs.counts()["completed"])
                jobs.close()
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(module)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.stdout.split() == ["20", "21", "20", "41", "20", "61"], done.stderr
