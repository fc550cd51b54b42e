"""A cell of a notebook is run again, a module is reloaded: functions are made anew."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs.errors import ConfigurationError

LONG = 30.0
"""Real seconds until a test gives up."""

TAKEN = "is registered already, as <function "


class Notebook:
    """Runs cells, each as a kernel does: compiled anew, with names that stay."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "jobs": jobs, "told": []}
        self.told: list[Any] = self.names["told"]
        exec("from litejobs import every, cron, Policy, Rule, TaskError", self.names)

    def run(self, cell: str, number: int = 1) -> None:
        exec(compile(cell, f"<cell {number}>", "exec"), self.names)

    def refuses(self, cell: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            self.run(cell)
        return str(caught.value)


@pytest.fixture
def notebook(jobs: LiteJobs) -> Notebook:
    return Notebook(jobs)


SEND = """
@jobs.task(queue="mail", max_attempts={attempts})
def send(to):
    told.append(("{body}", to))
"""


def cell(body: str, attempts: int = 3) -> str:
    return SEND.format(body=body, attempts=attempts)


# --- tasks -------------------------------------------------------------------------


def test_cell_that_is_run_again_takes_its_own_place(
    jobs: LiteJobs, notebook: Notebook, caplog: pytest.LogCaptureFixture
) -> None:
    notebook.run(cell("first"))
    before = notebook.names["send"]
    before.enqueue("a")
    with caplog.at_level(logging.INFO, "litejobs"):
        notebook.run(cell("second", 7))
    assert caplog.messages == ["task 'send' is registered anew, in place of before"]
    notebook.names["send"].enqueue("b")
    jobs.enqueue("send", {"to": "c"})
    before.enqueue("d")
    jobs.drain()
    assert notebook.told == [("second", each) for each in "abcd"]
    assert [jobs.get(number).snapshot().max_attempts for number in (1, 2)] == [3, 7]
    assert jobs.tasks == {"send": notebook.names["send"]}


def test_new_arguments_are_those_of_the_new_function(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    notebook.run("@jobs.task\ndef send(to): told.append(to)")
    notebook.run("@jobs.task\ndef send(to, cc=None): told.append((to, cc))")
    notebook.names["send"].enqueue("a", cc="b")
    jobs.enqueue("send", {"to": "c", "cc": "d"})
    jobs.drain()
    assert notebook.told == [("a", "b"), ("c", "d")]


def test_running_runner_runs_the_new_function_from_then_on(
    file_jobs: LiteJobs,
) -> None:
    """The old one comes to its end where it runs."""
    notebook = Notebook(file_jobs)
    began, go = threading.Event(), threading.Event()
    notebook.names |= {"began": began, "go": go, "LONG": LONG}
    notebook.run(
        "@jobs.task\n"
        "def work(n):\n"
        "    began.set()\n"
        "    assert go.wait(LONG)\n"
        "    return ['old', n]"
    )
    with file_jobs.running(threads=1) as runner:
        old = notebook.names["work"].enqueue(1)
        assert began.wait(LONG)
        notebook.run("@jobs.task\ndef work(n):\n    return ['new', n]")
        new = file_jobs.enqueue("work", {"n": 2})
        go.set()
        assert old.result(LONG) == ["old", 1]
        assert new.result(LONG) == ["new", 2]
        assert runner.health["problem"] is None


def test_options_and_policy_are_those_of_the_last_run(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    notebook.run(
        "@jobs.task(queue='slow', concurrency_key='k',\n"
        "    policy=Policy([Rule('true', 'fail')], otherwise='fail'))\n"
        "def work(): raise OSError"
    )
    first = notebook.names["work"].enqueue()
    notebook.run("@jobs.task(max_attempts=2)\ndef work(): raise OSError")
    second = notebook.names["work"].enqueue()
    jobs.drain()
    assert (first.snapshot().queue, first.state) == ("slow", "failed")
    assert (second.snapshot().queue, second.snapshot().max_attempts) == ("default", 2)


def test_reloaded_module_takes_its_own_place(
    jobs: LiteJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shared = types.ModuleType("shared_jobs")
    shared.jobs = jobs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shared_jobs", shared)
    source = tmp_path / "app_of_ours.py"
    text = "from shared_jobs import jobs\n\n@jobs.task\ndef work(): return {!r}\n"
    source.write_text(text.format("first"))
    module = importlib.import_module("app_of_ours")
    monkeypatch.setitem(sys.modules, "app_of_ours", module)
    source.write_text("# longer now\n" + text.format("second"))
    importlib.reload(module)
    job = module.work.enqueue()
    jobs.drain()
    assert job.result() == "second"
    source.write_text(
        text.format("x") + "@jobs.task\ndef work(): return 'other'\n\n#\n"
    )
    with pytest.raises(ConfigurationError, match=TAKEN):
        importlib.reload(module)


def test_one_function_may_be_registered_twice(jobs: LiteJobs) -> None:
    def work() -> str:
        return "done"

    class Worker:
        def run(self) -> str:
            return "done"

    jobs.task(work)
    job = jobs.task(queue="other")(work).enqueue()
    worker = Worker()
    jobs.task(worker.run)
    jobs.task(worker.run)
    jobs.drain()
    assert (job.snapshot().queue, job.result()) == ("other", "done")
    with pytest.raises(ConfigurationError, match="is registered already, as <bound"):
        jobs.task(Worker().run)


def test_function_that_registers_may_be_called_again(jobs: LiteJobs) -> None:
    """If what it registers is the same; with other values it is another function."""

    def declare() -> Any:
        @jobs.task
        def work(number: int = 5) -> int:
            return number

        return work

    def declare_for(host: str) -> Any:
        @jobs.task
        def fetch() -> str:
            return host

        return fetch

    declare()
    job = declare().enqueue()
    declare_for("one")
    declare_for("one")
    with pytest.raises(ConfigurationError, match="'fetch' " + TAKEN):
        declare_for("two")
    jobs.drain()
    assert job.result() == 5


@pytest.mark.parametrize(
    "other",
    [
        "@jobs.task(name='send')\ndef post(to): ...",
        "jobs.task(name='send')(lambda to: None)",
        "class Mail:\n    def send(self, to): ...\njobs.task(Mail().send)",
        "jobs.flow('send', [('only', print_it)])",
        "import functools\njobs.task(name='send')(functools.partial(print_it, 1))",
    ],
    ids=["function", "lambda", "method", "flow", "partial"],
)
def test_different_function_of_the_same_name_is_refused(
    jobs: LiteJobs, notebook: Notebook, other: str
) -> None:
    notebook.run("def print_it(to): told.append(to)\n" + cell("first"))
    for _ in range(2):
        sentence = notebook.refuses(other)
        assert sentence.startswith("task 'send' is registered already, as <function s")
        assert sentence.endswith("; give another name=")
    notebook.names["jobs"].enqueue("send", {"to": "a"})
    jobs.drain()
    assert notebook.told == [("first", "a")]


@pytest.mark.parametrize(
    "text",
    [
        cell("first") + cell("second"),
        "for body in 'ab':\n    @jobs.task\n    def send(to): told.append(body)",
        "def make():\n"
        "    @jobs.task\n"
        "    def send(): ...\n"
        "    @jobs.task\n"
        "    def send(): ...\n"
        "make()",
        "send = jobs.task(name='send')(lambda: 1)\njobs.task(name='send')(lambda: 2)",
    ],
    ids=["two", "loop", "inside", "lambdas"],
)
def test_two_definitions_in_one_place_are_a_mistake(
    notebook: Notebook, text: str
) -> None:
    assert TAKEN in notebook.refuses(text)


def test_lambdas_have_no_name_to_be_known_by(notebook: Notebook) -> None:
    notebook.run("jobs.task(name='send')(lambda: 1)")
    assert TAKEN in notebook.refuses("jobs.task(name='send')(lambda: 1)")


def test_function_of_another_module_is_another(notebook: Notebook) -> None:
    notebook.run(cell("first"))
    notebook.names["__name__"] = "elsewhere"
    assert TAKEN in notebook.refuses(cell("first"))


def test_mistake_leaves_what_was_registered(jobs: LiteJobs, notebook: Notebook) -> None:
    notebook.run(cell("first"))
    with pytest.raises(ConfigurationError):
        notebook.run(cell("second", -1))
    jobs.enqueue("send", {"to": "a"})
    jobs.drain()
    assert notebook.told == [("first", "a")]


# --- flows -------------------------------------------------------------------------

FLOW = """
def one(): return "{body}"
def two(prev): return [prev]
flow = jobs.flow("both", [("one", one), ("two", two)])
"""


def test_flow_is_declared_again(jobs: LiteJobs, notebook: Notebook) -> None:
    notebook.run(FLOW.format(body="first"))
    notebook.run(FLOW.format(body="second"))
    job = notebook.names["flow"].enqueue()
    notebook.run('jobs.flow("both", [("two", lambda prev: "third"), ("end", one)])')
    late = jobs.enqueue("both")
    jobs.drain()
    assert late.result() == "second"
    assert job.snapshot().last_error == "task 'both' has no step 'one' here"


def test_second_flow_of_the_same_name_is_refused(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    twice = 'jobs.flow("both", [("{}", one)])\n'
    assert TAKEN in notebook.refuses(FLOW.format(body="x") + twice.format("other"))
    notebook.run(
        FLOW.format(body="x") + 'jobs.flow("both", [("one", one), ("two", two)])'
    )
    notebook.names["__name__"] = "elsewhere"
    assert TAKEN in notebook.refuses(FLOW.format(body="x"))
    assert TAKEN in notebook.refuses("@jobs.task\ndef both(): ...")
    assert list(jobs.tasks) == ["both"]


# --- schedules ---------------------------------------------------------------------


def test_schedule_of_a_cell_is_declared_again(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    text = "@jobs.schedule(every('{}'))\ndef report(): told.append('{}')"
    with freeze_time("2026-01-01") as clock:
        notebook.run(text.format("1h", "first"))
        jobs.drain()
        notebook.run(text.format("2h", "second"))
        jobs.drain()
        clock.tick(3_600)
        jobs.drain()
        assert notebook.told == []
        clock.tick(3_600)
        jobs.drain()
        clock.tick(7_200)
        jobs.drain()
    assert notebook.told == ["second", "second"]
    assert list(jobs.schedules) == ["report"]


def test_task_that_is_registered_again_keeps_its_schedules(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    """Another cell has declared them, and has not been run again."""
    notebook.run("@jobs.task\ndef report(): told.append('first')")
    notebook.run("jobs.schedule(every('1h'))(report)", 2)
    notebook.run("jobs.schedule(every('3h'), name='seldom')(report)", 3)
    notebook.run("@jobs.task\ndef report(): told.append('second')")
    notebook.run("jobs.schedule(every('5h'), name='seldom')(report)", 3)
    with freeze_time("2026-01-01") as clock:
        with jobs.running(threads=1) as runner:
            assert runner.wait_idle(LONG)
            assert {each.name: each.vanished for each in jobs.schedules.values()} == {
                "report": False,
                "seldom": False,
            }
        clock.tick(3_600)
        jobs.drain()
    assert notebook.told == ["second"]


def test_second_schedule_in_one_place_still_needs_a_name(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    text = (
        "@jobs.schedule(every('{}'))\n"
        "@jobs.schedule(every('1h'))\n"
        "@jobs.task\n"
        "def report(): ..."
    )
    sentence = (
        "schedule 'report' is declared already, for task 'report'; give this one of "
        "task 'report' another name="
    )
    assert notebook.refuses(text.format("2h")) == sentence
    notebook.run(text.format("1h"))
    other = "@jobs.schedule(every('1h'), name='report')\ndef other(): ..."
    assert notebook.refuses(other).startswith("schedule 'report' is declared already")
    assert list(jobs.tasks) == ["report"]


# --- what is told, and what is around ----------------------------------------------

AROUND = """
@jobs.task(max_attempts=1)
def work(): raise OSError

@jobs.on("dead_lettered")
def tell(event): told.append("{body} told")

@jobs.middleware
def around(current, run):
    told.append("{body} around")
    return run()

@jobs.extractor
def found(error): told.append("{body} asked")
"""


def test_callbacks_and_what_is_around_tasks_are_replaced_too(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    """A cell that is run ten times would else be heard of ten times."""
    for body in ("first", "second"):
        notebook.run(AROUND.format(body=body))
    jobs.enqueue("work")
    jobs.drain()
    assert notebook.told == ["second around", "second asked", "second told"]


def test_callback_that_was_mended_is_no_problem_any_more(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    callback = """
@jobs.on("completed")
def tell(event): {body}
"""
    notebook.run(SEND.format(body="sent", attempts=1))
    notebook.run(callback.format(body="1 / 0"))
    jobs.enqueue("send", ["a@b"])
    jobs.drain()
    [problem] = jobs._companions.notifier.problems
    assert problem.endswith("when it was last called: ZeroDivisionError")
    notebook.run(callback.format(body="pass"))
    assert jobs._companions.notifier.problems == []
    jobs.enqueue("send", ["a@b"])
    jobs.drain()
    assert jobs._companions.notifier.problems == []


def test_what_functions_make_is_not_taken_for_the_same(
    jobs: LiteJobs, notebook: Notebook
) -> None:
    """Two cells that add two of a kind: all are asked, in their order."""
    notebook.run(
        "def telling(word):\n"
        "    def tell(event): told.append(word)\n"
        "    return tell\n"
        "class Teller:\n"
        "    def __init__(self, word): self.word = word\n"
        "    def tell(self, event): told.append(self.word)\n"
        "same = telling('same')\n"
    )
    for word in ("one", "two"):
        notebook.run(f"jobs.on('completed', telling('{word}'))")
        notebook.run(f"jobs.on('completed', Teller('{word}').tell)")
        notebook.run(f"jobs.on('completed', lambda event: told.append('{word} too'))")
        notebook.run("jobs.on('completed', same)")
    notebook.run("@jobs.task\ndef work(): ...\nwork.enqueue()")
    jobs.drain()
    assert notebook.told == ["one", "one", "one too", "same", "two", "two", "two too"]
