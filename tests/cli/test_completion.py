"""Completion: the scripts for shells, and what Tab offers from a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from litejobs import LiteJobs
from litejobs._storage import statements
from litejobs.cli import main
from litejobs.cli.commands import completion
from litejobs.cli.input import offers as _offers
from litejobs.cli.input import types
from tests.rows import for_each
from tests.waiting import LONG, Times

ROOT = Path(__file__).parents[2]
POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="shells")

pytestmark = pytest.mark.usefixtures("kept_open")

Offer = Callable[..., list[str]]

PROGRAM = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv[0] = 'litejobs'\n"
    "from litejobs.cli import main\n"
    "from litejobs._process.timing import other_times\n"
    f"with other_times(completion_patience={LONG}): main()\n"
)
"""A busy machine needs more than Tab waits for, as in `patient`."""


@pytest.fixture(autouse=True)
def patient(times: Times) -> None:
    """A busy machine needs more than Tab waits for, where no test says otherwise."""
    times(completion_patience=LONG)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch, path: Path) -> Offer:
    """What is offered after `litejobs --db PATH` and these words, of which the last
    is being typed."""
    monkeypatch.delenv("LITEJOBS_DB", raising=False)

    def offered(*words: str, db: Path | None = path) -> list[str]:
        *before, typed = words
        named = [] if db is None else ["--db", str(db)]
        return [each.value for each in found([*named, *before], typed)]

    return offered


def found(words: list[str], typed: str) -> list[Any]:
    shell = BashComplete(main, {}, "litejobs", completion.VARIABLE)
    return shell.get_completions(words, typed)


def nothing() -> None: ...


def fail() -> None:
    raise ValueError("no")


@pytest.fixture
def filled(file_of_everything: Path, path: Path) -> Path:
    """A file with a bit of everything: job 1 is completed, 2 given up, 3 waits.

    There was another, of a task that no program has registered.
    """
    return Path(shutil.copy(file_of_everything, path))


@pytest.fixture(scope="session")
def file_of_everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    path = tmp_path_factory.mktemp("everything") / "jobs.db"
    with LiteJobs(path) as jobs:
        jobs.task(name="get", queue="web")(nothing)
        jobs.task(name="put", max_attempts=1)(fail)
        jobs.flow("sync", [("first", nothing), ("second", nothing)])
        jobs.enqueue("get")
        jobs.enqueue("put")
        jobs.drain()
        jobs.enqueue("get", delay="7d", concurrency_key="host:a")
        jobs.enqueue("lost").cancel()
        jobs.purge(older_than=None, task="lost")
        with jobs.operation("pause", "queue web"):
            jobs.pause("web")
        with jobs.transaction() as db:
            db.execute("insert into litejobs_fact (name, value) values ('online', 1)")
            db.execute(
                "insert into litejobs_executor (name, slots, runner_id)"
                " values ('cpu', 2, 1)"
            )
            db.execute("insert into litejobs_circuit (name) values ('host:b')")
            db.execute(
                "insert into litejobs_schedule (name, task, every_ms) "
                "values ('hourly', 'get', 3600000)"
            )
    return path


# What is offered ----------------------------------------------------------------------


def test_unfinished_and_given_up_jobs_come_first(offer: Offer, filled: Path) -> None:
    assert offer("show", "") == ["3", "2", "1"]
    helps = [each.help for each in found(["--db", str(filled), "show"], "")]
    assert helps == ["get, scheduled", "put, dead_lettered", "get, completed"]


def test_ids_are_offered_by_how_they_begin(offer: Offer, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(name="get")(nothing)
        get = jobs.call("get")
        jobs.enqueue_many([get] * 1_250)
    assert offer("show", "12")[:3] == ["1250", "1249", "1248"]
    assert {"12", "120", "129", "1200"} <= set(offer("show", "12"))
    assert len(offer("show", "")) == _offers.MOST
    assert offer("show", "1250") == ["1250"]
    for typed in ("2000", "0", "x", "-1", "٣", "9" * 19, "9" * 40):
        assert offer("show", typed) == [], typed


@for_each(
    "type_, typed, names",
    [
        (types.QUEUE, "", ["default", "web"]),
        (types.QUEUE, "w", ["web"]),
        (types.TASK, "", ["get", "lost", "put", "sync"]),
        (types.REASON, "", ["max_attempts"]),
        (types.OBJECT, "litejobs_meas", ["litejobs_measures"]),
        (types.STEP, "s", ["second"]),
        (types.SCHEDULE, "", ["hourly"]),
        (types.KEY, "host:", ["host:a"]),
        (types.CIRCUIT, "", ["host:b"]),
        (types.FACT, "on", ["online"]),
        (types.EVENT, "task.attempt.d", ["task.attempt.done"]),
        (types.EVENT, "operation", ["operation.done", "operation.undone"]),
        (types.Setting(types.FACT), "", ["online", "none"]),
        (types.Setting(types.FACT, optional=False), "", ["online"]),
        (types.Setting(types.FACT), "n", ["none"]),
        (types.State(), "dead", ["dead_lettered"]),
        (types.State(("failed", "completed")), "", ["failed", "completed"]),
        (types.States(), "failed,pen", ["failed,pending"]),
    ],
)
def test_names_are_offered_by_how_they_begin(
    filled: Path, type_: Any, typed: str, names: list[str]
) -> None:
    parent = main.make_context("litejobs", ["--db", str(filled), "list"])
    parameter = click.Option(["--name"], type=type_)
    offered = [each.value for each in type_.shell_complete(parent, parameter, typed)]
    assert set(names) <= set(offered)
    assert all(each.startswith(typed) for each in offered)
    if not typed.startswith("task."):
        assert offered == names


def test_undo_is_offered_operations_that_can_be_undone(
    offer: Offer, path: Path
) -> None:
    with LiteJobs(path) as jobs:
        for name in ("mail", "web", "slow", "late"):
            with jobs.operation("pause", f"queue {name}"):
                jobs.pause(name)
        jobs.undo(2)
        jobs.resume("late")
        jobs.enqueue("send")
    assert offer("undo", "") == ["3", "1"]
    assert offer("undo", "3") == ["3"]
    assert offer("undo", "x") == []
    shown = found(["--db", str(path), "undo"], "")
    assert [each.help for each in shown] == ["pause: queue slow", "pause: queue mail"]


def test_file_can_be_named_after_the_command(filled: Path) -> None:
    named = ["--db", str(filled)]
    tasks = [each.value for each in found(["list", *named, "--task"], "")]
    assert tasks == ["get", "lost", "put", "sync"]
    queues = [each.value for each in found(["queues", "set", *named], "")]
    assert queues == ["default", "web"]
    assert "--db" not in [each.value for each in found(["list", *named], "--")]
    assert [each.type for each in found([*named, "backup"], "b")] == ["file"]


def test_percent_and_underscore_are_letters(offer: Offer, path: Path) -> None:
    with LiteJobs(path) as jobs:
        for name in ("a_b", "axb", "a%b"):
            jobs.enqueue("x", queue=name)
    assert offer("enqueue", "x", "--queue", "a_") == ["a_b"]
    assert offer("enqueue", "x", "--queue", "a%") == ["a%b"]


def test_what_a_shell_would_obey_is_not_offered(offer: Offer, path: Path) -> None:
    """What is offered is put on the line as it is, and then run."""
    names = (
        "ok",
        "日本",
        "$(reboot)",
        "`reboot`",
        "a b",
        "a;b",
        "*",
        "-x",
        "~",
        "a\nb",
    )
    names += ("a\tb", "\x1b[31m", "a\u202eb", "a'b", 'a"b', "a|b", "a>b", "!a", "=a")
    with LiteJobs(path) as jobs:
        for name in names:
            jobs.enqueue(name, queue=name)
    assert offer("enqueue", "x", "--queue", "") == ["ok", "日本"]
    for item in found(["--db", str(path), "show"], ""):
        assert item.help.isprintable()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_is_answered_by_its_protocol(filled: Path, shell: str) -> None:
    """With the file before the command, or in the environment."""
    line = f"litejobs --db {filled} show "
    named = protocol(shell, line, 4)
    environment = protocol(shell, "litejobs show ", 2, LITEJOBS_DB=str(filled))
    expected = {
        "bash": ["plain,3", "plain,2", "plain,1"],
        "zsh": [
            *("plain", "3", "get, scheduled"),
            *("plain", "2", "put, dead_lettered"),
            *("plain", "1", "get, completed"),
        ],
        "fish": [
            "plain,3\tget, scheduled",
            "plain,2\tput, dead_lettered",
            "plain,1\tget, completed",
        ],
    }[shell]
    assert named == environment == expected


def protocol(shell: str, line: str, place: int, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name != "LITEJOBS_DB"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **kept,
            completion.VARIABLE: f"{shell}_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": "" if shell == "fish" else str(place),
            **environment,
        },
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


# What goes wrong ----------------------------------------------------------------------


def test_nothing_is_offered_where_no_file_can_be_read(
    offer: Offer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn.db"
    torn.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    text = tmp_path / "text.db"
    text.write_text("no database", encoding="utf-8")
    empty = tmp_path / "empty.db"
    apsw.Connection(str(empty)).close()
    foreign = tmp_path / "foreign.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("create table litejobs_job (id)")
    connection.close()
    for db in (None, torn, text, empty, foreign, tmp_path, tmp_path / "none.db"):
        assert offer("show", "", db=db) == []
    assert not (tmp_path / "none.db").exists()
    assert capfd.readouterr() == ("", "")


def test_altered_file_is_read_without_a_word(
    offer: Offer, filled: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = apsw.Connection(str(filled))
    connection.execute("drop view litejobs_measures")
    connection.close()
    assert offer("show", "") == ["3", "2", "1"]
    assert capfd.readouterr() == ("", "")


def test_lock_on_the_whole_file_is_not_waited_for(
    offer: Offer, path: Path, times: Times
) -> None:
    times(completion_patience=0.05)
    connection = apsw.Connection(str(path))
    connection.pragma("locking_mode", "exclusive")
    connection.pragma("journal_mode", "delete")
    connection.execute("begin exclusive")
    assert offer("show", "") == []
    [waiting] = [each for each in threading.enumerate() if each.name == _offers.THREAD]
    connection.close()
    waiting.join()


def test_auto_and_the_environment_name_the_file(
    offer: Offer, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(filled.parent)
    assert offer("show", "", db=Path("auto")) == ["3", "2", "1"]
    monkeypatch.setenv("LITEJOBS_DB", str(filled))
    assert offer("show", "", db=None) == ["3", "2", "1"]


def test_completing_changes_nothing_in_the_file(offer: Offer, filled: Path) -> None:
    before = filled.read_bytes()
    offer("show", "")
    offer("enqueue", "")
    assert filled.read_bytes() == before


def test_every_completion_has_a_value_and_a_word(filled: Path) -> None:
    queries = [name for name in statements.queries() if name.startswith("offer_")]
    assert len(queries) == 13
    with LiteJobs(filled) as jobs:
        for query in queries:
            rows = jobs._store.rows(query, {"prefix": "", "limit": 5})
            assert rows, query
            assert all(len(row) == 2 for row in rows), query


# The scripts --------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_asks_this_program(shell: str) -> None:
    shown = CliRunner().invoke(main, ["completion", shell])
    assert shown.exit_code == 0
    assert f"{completion.VARIABLE}={shell}_complete" in shown.stdout


def test_other_shells_are_refused() -> None:
    refused = CliRunner().invoke(main, ["completion", "tcsh"])
    assert refused.exit_code == 2


@POSIX_ONLY
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_script_works_in_bash(filled: Path, tmp_path: Path) -> None:
    program = tmp_path / "litejobs"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}\n", encoding="utf-8")
    program.chmod(0o755)
    script = (
        'eval "$(litejobs completion bash)";'
        f"COMP_WORDS=(litejobs --db {filled} cancel 3); COMP_CWORD=4;"
        "_litejobs_completion litejobs; echo ${COMPREPLY[@]};"
        "COMPREPLY=(); COMP_WORDS=(litejobs comp); COMP_CWORD=1;"
        "_litejobs_completion litejobs; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert (done.stdout, done.stderr) == ("3\ncompletion\n", "")


@POSIX_ONLY
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_words_that_bash_cuts_are_completed(filled: Path, tmp_path: Path) -> None:
    """As bash cuts the line: at colons and equals signs, whether blanks are there."""
    lines = [
        (["keys ", "set ", "host", ":"], ["a"]),
        (["keys ", "set ", "host", ":", "a"], ["a"]),
        (["keys ", "set ", "ho"], ["host:a"]),
        (["keys ", "set ", ""], ["host:a"]),
        (["enqueue ", "x ", "--queue", "="], ["default", "web"]),
        (["enqueue ", "x ", "--queue", "=", "w"], ["web"]),
        (["enqueue ", "x ", "--concurrency-key", "=", "host", ":"], ["a"]),
        (["enqueue ", "x ", "--concurrency-key", "=", "h"], ["host:a"]),
        (["enqueue ", "x ", "--queue ", "=", "w"], []),
        (["show ", ""], ["3", "2", "1"]),
    ]
    program = tmp_path / "litejobs"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}\n", encoding="utf-8")
    program.chmod(0o755)
    script = """eval "$(litejobs completion bash)"; COMP_WORDBREAKS=$' \\n=:';"""
    for pieces, _ in lines:
        words = " ".join(f"'{each.strip()}'" for each in ["litejobs ", *pieces])
        script += (
            f"COMP_LINE='litejobs {''.join(pieces)}'; COMP_WORDS=({words});"
            f"COMP_CWORD={len(pieces)}; COMPREPLY=(); _litejobs_completion litejobs;"
            'echo "${COMPREPLY[@]}";'
        )
    done = subprocess.run(
        ["bash", "-c", script],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "LITEJOBS_DB": str(filled),
        },
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr == ""
    offered = [each.split() for each in done.stdout.splitlines()]
    assert offered == [offers for _, offers in lines]
