"""Any SQLite client is a full client: the shell, other drivers, a trigger.

The clients run in processes of their own, because two SQLite libraries in one process
must not open the same file.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_machine

import litejobs
from litejobs import LiteJobs
from tests.sql.fixture import START

SHELL = shutil.which("sqlite3")

# What a client may have switched on or off.
SETTINGS: dict[str, dict[str, int]] = {
    "as it comes": {},
    "recursive triggers, foreign keys": {"recursive_triggers": 1, "foreign_keys": 1},
}

Client = Callable[[str], list[list[Any]]]
Speak = Callable[[Path, dict[str, int], str], list[list[Any]]]


def in_shell(path: Path, settings: dict[str, int], sql: str) -> list[list[Any]]:
    """The rows of a script in the sqlite3 shell."""
    script = [
        ".bail on",
        ".timeout 5000",
        ".mode json",
        *(f"pragma {name} = {value};" for name, value in settings.items()),
        f"{sql};",
    ]
    done = _shell(path, script)
    if done.returncode or done.stderr:
        raise AssertionError(done.stderr)
    return [list(row.values()) for row in json.loads(done.stdout or "[]")]


def _shell(path: Path, script: list[str]) -> subprocess.CompletedProcess[str]:
    assert SHELL is not None
    return subprocess.run(
        [SHELL, "-batch", str(path)],
        input="\n".join(script),
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def refused_in_shell(path: Path, statements: list[str]) -> list[str]:
    """What the sqlite3 shell says of each, none of which is done."""
    script = [".bail off", ".timeout 5000", *(f"{sql};" for sql in statements)]
    # It says in which line of the script the statement was that it could not do.
    said = _shell(path, script).stderr
    found = dict(re.findall(r"near line (\d+): (.*)", said))
    return [found.get(str(3 + number), "") for number in range(len(statements))]


LIBRARY = """
import json, sqlite3, sys

path, settings, sql = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
for name, value in json.loads(settings).items():
    db.execute(f"pragma {name} = {value}")
for statement in sql.split(";"):
    rows = db.execute(statement).fetchall()
db.close()
print(json.dumps(rows))
"""

REFUSALS = """
import json, sqlite3, sys

path, *statements = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
said = []
for statement in statements:
    try:
        db.execute(statement)
    except sqlite3.Error as error:
        said.append(str(error))
    else:
        said.append("")
db.close()
print(json.dumps(said))
"""


def in_library(path: Path, settings: dict[str, int], sql: str) -> list[list[Any]]:
    """The rows of a script in another process, through the standard library."""
    rows = _library(LIBRARY, str(path), json.dumps(settings), sql)
    return [list(row) for row in rows]


def _library(program: str, *arguments: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    found: list[Any] = json.loads(done.stdout)
    return found


def refused_in_library(path: Path, statements: list[str]) -> list[str]:
    """What the standard library says of each, none of which is done."""
    return _library(REFUSALS, str(path), *statements)


@pytest.fixture(params=["shell", "library"])
def speak(request: pytest.FixtureRequest) -> Speak:
    """A way to run SQL in another process."""
    return speaking(request.param)


def speaking(way: str) -> Speak:
    if way == "shell" and SHELL is None:
        pytest.skip("there is no sqlite3 shell here")
    return in_shell if way == "shell" else in_library


PAIRS = [
    *[("shell", "recursive triggers, foreign keys"), ("library", "as it comes")],
    *[("shell", "as it comes"), ("library", "recursive triggers, foreign keys")],
]


@pytest.fixture(
    params=[
        pytest.param(each, id="-".join(each), marks=marks)
        for number, each in enumerate(PAIRS)
        for marks in [pytest.mark.torture if number > 1 else []]
    ]
)
def client(request: pytest.FixtureRequest, file_jobs: LiteJobs) -> Client:
    """Another process that speaks SQL to the jobs file."""
    way, settings = request.param
    speak = speaking(way)
    return lambda sql: speak(Path(file_jobs.path), SETTINGS[settings], sql)


@pytest.fixture
def sent(file_jobs: LiteJobs) -> list[str]:
    """What the task `send` was called with."""
    calls: list[str] = []

    @file_jobs.task(queue="mail", max_attempts=2, priority=3)
    def send(to: str) -> str:
        calls.append(to)
        if to == "nobody":
            raise LookupError(to)
        return to.upper()

    file_jobs.open()
    return calls


# Enqueueing ---------------------------------------------------------------------------


def test_a_plain_insert_is_a_job_like_any_other(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    client("""insert into litejobs_job (task, args) values ('send', '{"to": "x"}')""")
    [job] = file_jobs.list()
    assert (job.state, job.queue, job.max_attempts, job.priority) == (
        "pending",
        "mail",
        2,
        3,
    )
    assert job.args == {"to": "x"}
    assert file_jobs.drain() == 1
    assert sent == ["x"]
    assert file_jobs.get(job.id).result() == "X"
    assert client("select name from litejobs_event order by id") == [
        ["task.enqueued"],
        ["task.attempt.started"],
        ["task.attempt.done"],
        ["policy.task.evaluated"],
        ["task.done"],
    ]


def test_a_row_of_another_client_equals_one_of_the_api(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    file_jobs.enqueue("send", {"to": "x"})
    client("""insert into litejobs_job (task, args) values ('send', '{"to":"x"}')""")
    of_api, of_client = (
        {
            name: value
            for name, value in row.items()
            if name not in ("id", "created_at", "run_at")
        }
        for row in file_jobs._store.rows("job_columns", {"id": 1})
        + file_jobs._store.rows("job_columns", {"id": 2})
    )
    assert of_api == of_client
    assert len(of_api) > 20


def test_arguments_by_position_run_too(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    client("""insert into litejobs_job (task, args) values ('send', '["y"]')""")
    file_jobs.drain()
    assert sent == ["y"]


REFUSED = {
    "insert into litejobs_job (task, args) values ('send', 'x')": (
        "litejobs_job_args_are_json"
    ),
    "insert into litejobs_job (task, args) values ('send', '1')": (
        "litejobs_job_args_are_json"
    ),
    "insert into litejobs_job (task) values ('')": "litejobs_job_task_length",
    "insert into litejobs_job (task, state) values ('send', 'completed')": (
        "invalid_birth: "
    ),
    "insert or replace into litejobs_job (id, task) values (1, 'send')": (
        "duplicate_job: "
    ),
    "insert or ignore into litejobs_job (id, task) values (1, 'send')": (
        "duplicate_job: "
    ),
    "update litejobs_job set state = 'completed'": "invalid_transition: ",
    "update or replace litejobs_job set state = 'failed'": "invalid_transition: ",
    "update or ignore litejobs_job set state = 'lost'": "unknown_state: ",
    "delete from litejobs_job": "unfinished_job: ",
    "delete from litejobs__transition": "immutable_log: ",
}


def test_nonsense_is_refused_in_words(
    file_jobs: LiteJobs, speak: Speak, sent: list[str]
) -> None:
    job = file_jobs.enqueue("send", {"to": "x"})
    ask = refused_in_shell if speak is in_shell else refused_in_library
    said = ask(Path(file_jobs.path), list(REFUSED))
    for (sql, words), sentence in zip(REFUSED.items(), said, strict=True):
        assert words in sentence, sql
    assert [each.id for each in file_jobs.list()] == [job.id]
    assert file_jobs.drain() == 1


def test_a_client_that_trusts_no_schema_is_a_full_client_from_sqlite_3_41_on(
    file_jobs: LiteJobs, speak: Speak, sent: list[str]
) -> None:
    """SQLite 3.38 to 3.40 counts its own JSON functions as unsafe."""
    path, distrust = Path(file_jobs.path), {"trusted_schema": 0}
    insert = """insert into litejobs_job (task, args) values ('send', '["x"]')"""
    [[version]] = speak(path, {}, "select sqlite_version()")
    if tuple(map(int, version.split("."))) < (3, 41):
        with pytest.raises(AssertionError, match=r"unsafe use of json_valid\(\)"):
            speak(path, distrust, insert)
        assert file_jobs.list() == []
    else:
        speak(path, distrust, insert)
        assert file_jobs.drain() == 1


def test_a_second_job_of_a_unique_key_is_dropped(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    for how in ("insert", "insert or replace", "insert or ignore"):
        client(
            f"{how} into litejobs_job (task, unique_key, on_conflict) "
            "values ('send', 'k', 'ignore')"
        )
    assert [job.id for job in file_jobs.list()] == [1]
    assert file_jobs.enqueue("send", {"to": "x"}, unique_key="k").id == 1


# Steering -----------------------------------------------------------------------------


def test_cancelling_is_an_update(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    first, second = (file_jobs.enqueue("send", {"to": "x"}) for _ in range(2))
    client(f"update litejobs_job set state = 'cancelled' where id = {first.id}")
    client(f"update litejobs_job set cancel_requested_at = 1 where id = {second.id}")
    assert [job.state for job in file_jobs.list()] == ["cancelled", "cancelled"]
    assert file_jobs.drain() == 0


def test_requeueing_is_an_update(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    job = file_jobs.enqueue("send", {"to": "nobody"}, max_attempts=1)
    file_jobs.drain()
    assert file_jobs.list()[0].state == "dead_lettered"
    client("update litejobs_job set state = 'pending'")
    assert file_jobs.list()[0].attempt_count == 0
    file_jobs.drain()
    assert sent == ["nobody", "nobody"]
    assert [each.attempt for each in job.attempts] == [1, 1]
    assert [each.start_no for each in job.attempts] == [1, 2]


def test_running_now_is_an_update(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    file_jobs.enqueue("send", {"to": "x"}, delay="1h")
    assert file_jobs.drain() == 0
    client("update litejobs_job set state = 'pending'")
    assert file_jobs.drain() == 1


def test_pausing_is_an_update(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    file_jobs.enqueue("send", {"to": "x"})
    client("update litejobs_queue set paused = 1 where name = 'mail'")
    assert file_jobs.drain() == 0
    assert client("select job_id, code, object from litejobs_block") == [
        [1, "queue_paused", "queue mail"],
        [1, "unknown_task", "task send"],
    ]
    client("update litejobs_queue set paused = 0 where name = 'mail'")
    assert file_jobs.drain() == 1


# From the application's own tables ----------------------------------------------------


def test_a_trigger_of_the_application_enqueues(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    with file_jobs.transaction() as db:
        db.execute("create table orders (id integer primary key, mail text unique)")
        db.execute(
            "create trigger order_is_confirmed after insert on orders begin "
            "insert into litejobs_job (task, args) "
            "values ('send', json_object('to', new.mail)); end"
        )
        db.execute("insert into orders (mail) values ('a')")
    for how in ("insert", "insert or replace", "insert or ignore"):
        client(f"{how} into orders (mail) values ('{how[-4:]}')")
    # Replaces the order, and so fires the trigger again.
    client("insert or replace into orders (mail) values ('a')")
    # Ignored, and so does not.
    client("insert or ignore into orders (mail) values ('a')")
    assert file_jobs.drain() == 5
    assert sent == ["a", "sert", "lace", "nore", "a"]


def test_what_the_application_rolls_back_was_never_asked_for(
    file_jobs: LiteJobs, client: Client, sent: list[str]
) -> None:
    insert = """insert into litejobs_job (task, args) values ('send', '["x"]')"""
    client(f"begin; {insert}; {insert}; rollback")
    assert file_jobs.list() == []
    client(f"begin; {insert}; {insert}; commit")
    assert file_jobs.drain() == 2


# Another loop -------------------------------------------------------------------------

# A loop in plain SQL that knows nothing of litejobs: it states facts and reads answers.
LOOP = """
import json, sqlite3, sys

db = sqlite3.connect(sys.argv[1], isolation_level=None)
outcome = {
    "good": lambda job: {"status": "ok"},
    "bad": lambda job: {"status": "error"},
    "flaky": lambda job: {"status": "ok" if job["attempt"] == 3 else "error"},
    "doomed": lambda job: cancel(job["job_id"]) or {"status": "error"},
}

def cancel(job):
    db.execute("update litejobs_job set cancel_requested_at = 1 where id = ?", (job,))

def run():
    runner = db.execute(
        "insert into litejobs_runner default values returning id").fetchone()[0]
    db.execute("update litejobs_task set runner_id = ?", (runner,))
    db.execute("insert into litejobs_tick (runner) values (?)", (runner,))
    finished = []
    while True:
        for report in finished:
            db.execute("insert into litejobs_settle values (?, ?)", report)
        # A retry that waits for no time is due now, before other jobs are claimed.
        now, *instants = db.execute("select * from litejobs_agenda").fetchone()
        due = any(each is not None and each <= now for each in instants)
        if due:
            db.execute("insert into litejobs_tick (runner) values (?)", (runner,))
        db.execute("insert into litejobs_claim values (?, 1)", (runner,))
        cursor = db.execute("select * from litejobs_assignment")
        names = [each[0] for each in cursor.description]
        jobs = [dict(zip(names, row)) for row in cursor]
        if not (jobs or finished or due):
            db.execute("update litejobs_runner set stopped_at = 1")
            return
        finished = [
            (job["attempt_id"], json.dumps(outcome[job["task"]](job))) for job in jobs
        ]

for step in json.load(sys.stdin):
    if step == "run":
        run()
    else:
        db.execute(step)
"""

# Where jobs fail, they have priorities: one of the two clocks stands still, and which
# of two retries is due first must not depend on it.
A_DAY = [
    (
        "insert into litejobs_job (task, priority)"
        " values ('good', 0), ('bad', 2), ('flaky', 1)"
    ),
    "run",
    "insert into litejobs_job (task, priority) values ('good', 1), ('good', 2)",
    "insert into litejobs_job (task, run_at) values ('good', 9999999999999)",
    "insert into litejobs_job (task, queue) values ('good', 'mail')",
    "update litejobs_queue set paused = 1 where name = 'mail'",
    (
        "insert into litejobs_job (task, unique_key, on_conflict)"
        " values ('bad', 'k', 'ignore'), ('bad', 'k', 'ignore')"
    ),
    "run",
    "update litejobs_queue set paused = 0 where name = 'mail'",
    "run",
    "insert into litejobs_job (task) values ('doomed')",
    "run",
    "update litejobs_job set state = 'pending' where run_at = 9999999999999",
    "run",
    "update litejobs_job set state = 'pending' where id = 2",
    "run",
    "insert into litejobs_job (task, max_attempts, priority) values ('flaky', 2, 1)",
    "insert into litejobs_job (task, retryable) values ('bad', 0)",
    "insert into litejobs_job (task) values ('good')",
    "update litejobs_job set state = 'cancelled' where id = 12",
    "run",
    # An attempt whose process is gone, and one that is overdue and reports too late.
    "insert into litejobs_job (task, options) values ('good', '{\"max_crashes\": 2}')",
    "insert into litejobs_job (task, max_attempts, options)"
    " values ('good', 1, '{\"timeout_ms\": 99}')",
    "insert into litejobs_runner default values",
    "update litejobs_task set runner_id = (select max(id) from litejobs_runner)",
    "insert into litejobs_claim select max(id), 2 from litejobs_runner",
    (
        "update litejobs_attempt set deadline_at = 0"
        " where finished_at is null and deadline_at is not null"
    ),
    "insert into litejobs_tick (runner) select max(id) from litejobs_runner",
    (
        'insert into litejobs_settle select max(id), \'{"status":"ok"}\''
        " from litejobs_attempt"
    ),
    "run",
    "delete from litejobs_job where id = 1",
]


def declared(path: Path) -> LiteJobs:
    """A file with the tasks of the day, as a program declares them."""
    jobs = LiteJobs(path)
    retry = litejobs.Retry.constant(0, jitter=0)

    @jobs.task(retry=retry, crash_delay=0)
    def good() -> None: ...

    @jobs.task(retry=retry, crash_delay=0)
    def bad() -> None:
        raise ValueError

    @jobs.task(retry=retry, crash_delay=0)
    def flaky() -> None:
        if litejobs.current().attempt < 3:
            raise ValueError

    @jobs.task(retry=retry, crash_delay=0)
    def doomed() -> None:
        jobs.get(litejobs.current().job_id).cancel()
        raise ValueError

    return jobs.open()


def diary(jobs: LiteJobs) -> list[tuple[Any, ...]]:
    """The log without its instants."""
    with jobs.transaction() as db:
        return db.execute(
            "select id, name, job_id, attempt_id, old_state, new_state, decision,"
            " subject, note from litejobs_event order by id"
        ).fetchall()


def test_a_loop_in_plain_sql_writes_the_same_log_as_the_runner(tmp_path: Path) -> None:
    held = time_machine.travel(START, tick=False)
    with held as clock, declared(tmp_path / "runner.db") as jobs:
        for step in A_DAY:
            clock.shift(1)
            if step == "run":
                jobs.drain()
            else:
                with jobs.transaction() as db:
                    db.execute(step)
        of_runner = diary(jobs)
        states = {job.id: job.state for job in jobs.list()}
        attempts = {job.id: job.starts for job in jobs.list()}

    path = tmp_path / "loop.db"
    declared(path).close()
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOOP, str(path)],
        input=json.dumps(A_DAY),
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    with declared(path) as jobs:
        assert diary(jobs) == of_runner
        assert {job.id: job.state for job in jobs.list()} == states
        assert {job.id: job.starts for job in jobs.list()} == attempts

    # The day was a full one.
    names = {row[1] for row in of_runner}
    assert names == {
        "policy.task.evaluated",
        "queue.open",
        "queue.paused",
        "task.attempt.done",
        "task.attempt.failed",
        "task.attempt.started",
        "task.cancel_requested",
        "task.cancelled",
        "task.done",
        "task.enqueued",
        "task.failed",
        "task.late_report",
        "task.pending",
        "task.requeued",
        "task.run_now",
    }
    assert set(states.values()) == {"completed", "dead_lettered", "cancelled"}
    assert attempts[3] == 3
    assert attempts[2] == 6
