"""Code that runs again in one process: what it makes anew takes the place of before."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs._runner.service import living_services
from litejobs.errors import RunnerActive
from litejobs.testing import hold_clock, release_clock
from tests.waiting import LONG, eventually

SOURCE = """
import asyncio
import threading
from litejobs import LiteJobs

jobs = LiteJobs(path)
heard = []

@jobs.task
def version():
    return {number}

@jobs.task
async def aversion():
    await asyncio.sleep(0)
    return {number}

@jobs.on("completed")
def hear(event):
    heard.append(event.job_id)

jobs.start(threads=2, grace=grace)
"""

Names = dict[str, Any]


class Programs:
    """Runs the source in the ways in which others do, and remembers each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "jobs.db"
        self.runs: list[Names] = []
        self.kept = self.names()
        self.once: Any = None
        self.maker: Any = None

    def names(self, module: str = "__main__", **more: Any) -> Names:
        return {"__name__": module, "path": self.path, "grace": "10s", **more}

    def run(
        self,
        text: str | types.CodeType,
        names: Names | None = None,
        *,
        file: str = "<cell>",
        **given: Any,
    ) -> Names:
        """The text has run; what it has made."""
        names = self.names() if names is None else names
        names.update(given)
        code = compile(text, file, "exec") if isinstance(text, str) else text
        exec(code, names)
        self.runs.append(dict(names))
        return self.runs[-1]

    def version(self, number: int, **given: Any) -> Names:
        return self.run(SOURCE.format(number=number), **given)

    def close(self) -> None:
        for names in self.runs:
            for each in names.values():
                if isinstance(each, LiteJobs):
                    each.close()


@pytest.fixture
def programs(tmp_path: Path, empty_file: Path) -> Iterator[Programs]:
    shutil.copy(empty_file, tmp_path / "jobs.db")
    made = Programs(tmp_path)
    yield made
    made.close()


def role(jobs: LiteJobs) -> str:
    found: str = jobs.health()["role"]
    return found


# How programs run again


def as_script(programs: Programs, number: int) -> Names:
    """A script in globals of its own, as NiceGUI runs it for each client."""
    return programs.version(number)


def as_cell(programs: Programs, number: int) -> Names:
    """A cell of a notebook: the same globals, and another name of the code."""
    return programs.version(
        number, names=programs.kept, file=f"<ipython-input-{number}>"
    )


def as_script_compiled_once(programs: Programs, _: int) -> Names:
    """Streamlit: each run has a module of its own, and a thread."""
    code = programs.once = programs.once or compile(
        SOURCE.format(number=1), str(programs.folder / "app.py"), "exec"
    )
    run = threading.Thread(target=programs.run, args=(code,))
    run.start()
    run.join(LONG)
    return programs.runs[-1]


def as_cell_compiled_once(programs: Programs, _: int) -> Names:
    """A cell of marimo: what it defines is deleted before it runs again."""
    file = "/somewhere/__marimo__cell_Hbol_.py"
    code = programs.once = programs.once or compile(
        SOURCE.format(number=1), file, "exec"
    )
    programs.kept.pop("jobs", None)
    return programs.run(code, programs.kept)


def as_module_of_another_name(programs: Programs, number: int) -> Names:
    """Panel and Bokeh: each session has a module with a name of its own."""
    names = programs.names(f"bokeh_app_{number}")
    return programs.version(number, names=names, file=str(programs.folder / "app.py"))


def as_reloaded_module(programs: Programs, number: int) -> Names:
    source = programs.folder / "program_of_ours.py"
    given = f"path, grace = {str(programs.path)!r}, '10s'\n"
    source.write_text(given + SOURCE.format(number=number) + "#" * number)
    known = sys.modules.get("program_of_ours")
    module = (
        importlib.import_module("program_of_ours")
        if known is None
        else importlib.reload(known)
    )
    programs.runs.append(dict(vars(module)))
    return programs.runs[-1]


def by_a_module_that_stays(programs: Programs, number: int) -> Names:
    """The program calls a function of a module, which makes the object."""
    maker = programs.maker
    if maker is None:
        maker = programs.maker = types.ModuleType("maker_of_ours")
        made = f"def make(path, grace, number):\n{indented(SOURCE)}\n    return jobs, "
        made = made.replace("{number}", "number") + "version, aversion, heard"
        exec(compile(made, "/somewhere/maker.py", "exec"), vars(maker))
    text = f"jobs, version, aversion, heard = make(path, grace, {number})"
    return programs.run(text, make=vars(maker)["make"])


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


WAYS: list[Callable[[Programs, int], Names]] = [
    as_script,
    as_cell,
    as_script_compiled_once,
    as_cell_compiled_once,
    as_module_of_another_name,
    as_reloaded_module,
    by_a_module_that_stays,
]


@pytest.mark.parametrize("way", WAYS)
def test_newest_functions_run_and_nothing_is_left_of_the_run_before(
    programs: Programs,
    way: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(programs.folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "program_of_ours", raising=False)
    caplog.set_level(logging.INFO, "litejobs")
    most = 0
    for number in range(1, 4):
        before = programs.runs[-1] if programs.runs else None
        names = way(programs, number)
        jobs = names["jobs"]
        wanted = 1 if "compiled_once" in way.__name__ else number
        first, second = names["version"].enqueue(), names["aversion"].enqueue()
        assert [first.result(LONG), second.result(LONG)] == [wanted, wanted]
        assert role(jobs) == "runner"
        assert jobs.health()["problems"] == []
        if before is None:
            most = threading.active_count() + 1
            continue
        assert role(before["jobs"]) == "handed over"
        assert before["jobs"].health()["problem"] is None
        # Nor is it told twice.
        ours = {first.id, second.id}
        eventually(lambda names=names, ours=ours: ours <= set(names["heard"]))
        # In the same globals, the one before may have been told there of its own.
        heard = [*names["heard"], *before["heard"]]
        assert len(set(heard)) == len(heard)
        eventually(lambda most=most: threading.active_count() <= most)
    said = [each for each in caplog.messages if "the same code has made" in each]
    sentence = (
        f"the same code has made another LiteJobs for the jobs of {programs.path}, "
        "which runs them from now on; what runs here has 10 s to end"
    )
    assert said == [sentence, sentence]
    monkeypatch.delitem(sys.modules, "program_of_ours", raising=False)


def test_object_that_is_replaced_goes_once_nothing_leads_to_it(
    programs: Programs,
) -> None:
    """Its functions, and the globals of its module, go with it."""
    last = max((each.number for each in living_services()), default=-1)
    for number in range(1, 4):
        names = programs.version(number)
        assert names["version"].enqueue().result(LONG) == number
        programs.runs[:-1] = []
    del names

    def has_gone() -> bool:
        gc.collect()
        return sum(each.number > last for each in living_services()) == 1

    eventually(has_gone)


# What was made on purpose stays


PAIRS = {
    "in one module": "one = LiteJobs(path)\ntwo = LiteJobs(path)",
    "in a loop": (
        "kept = []\nfor _ in 'ab': kept.append(LiteJobs(path))\none, two = kept"
    ),
    "by a function": ("def make(): return LiteJobs(path)\none, two = make(), make()"),
    "by a function in a loop": (
        "def make(): return LiteJobs(path)\none, two = (make() for _ in 'ab')"
    ),
}


@pytest.mark.parametrize("how", PAIRS)
def test_two_objects_of_one_run_are_a_runner_and_a_standby(
    programs: Programs, how: str
) -> None:
    text = f"from litejobs import LiteJobs\n{PAIRS[how]}\none.start()\ntwo.start()"
    names = programs.run(text)
    assert [role(names["one"]), role(names["two"])] == ["runner", "standby"]


SEVERAL = """
import dataclasses
from litejobs import LiteJobs

def make():
    return LiteJobs(path)

class Holder:
    def __init__(self, jobs):
        self.jobs = jobs

made = [(lambda: LiteJobs(path))(), (lambda: LiteJobs(path))()]

class One:
    jobs = LiteJobs(path)

class Two:
    jobs = LiteJobs(path)

@dataclasses.dataclass
class Three:
    jobs: LiteJobs = dataclasses.field(default_factory=make)

@dataclasses.dataclass
class Four:
    jobs: LiteJobs = dataclasses.field(default_factory=make)

def kind():
    class Kind:
        jobs = LiteJobs(path)
    return Kind

holders = [One, Two, Three(), Four(), kind(), kind()]
for _ in "abc":
    holders.append(Holder(LiteJobs(path)))
made += [each.jobs for each in holders]
for each in made:
    each.start(threads=1)
"""


def test_objects_that_one_run_makes_in_whatever_way_are_left_alone(
    programs: Programs,
) -> None:
    """By code without a name of its own, in classes, or held by other objects."""
    made = programs.run(SEVERAL, file="program.py")["made"]
    # Two programs that have one name each.
    text = "from litejobs import LiteJobs\njobs = LiteJobs(path)\njobs.start()"
    for file in ("first.py", "second.py"):
        made.append(programs.run(text, file=file)["jobs"])
    roles = [role(each) for each in made]
    for each in reversed(made):
        each.close()
    assert roles == ["runner"] + ["standby"] * (len(made) - 1)


def test_objects_of_two_modules_and_of_two_threads_are_left_alone(
    programs: Programs,
) -> None:
    text = "from litejobs import LiteJobs\njobs = LiteJobs(path)\njobs.start()"
    first = programs.run(text, programs.names("first"), file="first.py")["jobs"]
    second = programs.run(text, programs.names("second"), file="second.py")["jobs"]
    made: list[LiteJobs] = []

    def make() -> None:
        made.append(LiteJobs(programs.path))
        made[-1].start()

    for _ in "ab":
        thread = threading.Thread(target=make)
        thread.start()
        thread.join(LONG)
    roles = [role(each) for each in (first, second, *made)]
    for each in made:
        each.close()
    assert roles == ["runner", "standby", "standby", "standby"]


def test_standby_says_that_another_object_here_runs_other_functions(
    programs: Programs,
) -> None:
    text = SOURCE.format(number=1)
    programs.run(text, programs.names("first"), file="first.py")
    alike = programs.run(text, programs.names("second"), file="second.py")["jobs"]
    assert (role(alike), alike.health()["problems"]) == ("standby", [])
    third = programs.run(
        text.replace("return 1", "return 2", 1), programs.names("third"), file="3.py"
    )
    assert third["jobs"].health()["problems"] == [
        "this object stands by, and another LiteJobs of this process runs other "
        "functions for its tasks version: make one for the file, or stop the other one"
    ]


def test_other_file_is_another_matter(programs: Programs) -> None:
    text = "from litejobs import LiteJobs\njobs = LiteJobs(path)\njobs.start()"
    first = programs.run(text)["jobs"]
    second = programs.run(text, path=programs.folder / "other.db")["jobs"]
    assert [role(first), role(second)] == ["runner", "runner"]


# What runs at that moment


SLOW = """
from litejobs import LiteJobs
jobs = LiteJobs(path)
@jobs.task
def slow():
    began.set()
    assert go.wait(LONG)
    return number
jobs.start(threads=1, grace=grace)
"""


def test_attempt_ends_within_the_grace_and_the_next_one_is_of_the_new_functions(
    programs: Programs,
) -> None:
    began, go = threading.Event(), threading.Event()
    given = {"began": began, "go": go, "LONG": LONG}
    first = programs.run(SLOW, number=1, **given)
    job = first["slow"].enqueue()
    assert began.wait(LONG)
    second = programs.run(SLOW, number=2, **given)
    assert role(second["jobs"]) == "standby"
    assert first["jobs"].health()["running"] is False
    later = first["slow"].enqueue()
    go.set()
    assert job.result(LONG) == 1
    assert later.result(LONG) == 2
    assert [len(each.attempts) for each in (job, later)] == [1, 1]


def test_attempt_beyond_the_grace_is_given_back_and_runs_anew(
    programs: Programs,
) -> None:
    began, go = threading.Event(), threading.Event()
    given = {"began": began, "go": go, "LONG": LONG, "grace": 0}
    job = programs.run(SLOW, number=1, **given)["slow"].enqueue()
    assert began.wait(LONG)
    programs.run(SLOW, number=2, **given)
    eventually(lambda: len(job.attempts) == 2)
    go.set()
    assert job.result(LONG) == 2
    assert job.attempts[0].status == "interrupted"


def test_task_that_runs_the_code_again_comes_to_its_end(programs: Programs) -> None:
    text = SOURCE + "\n@jobs.task\ndef again():\n    rerun()\n    return 'done'\n"
    names = programs.run(
        text.format(number=1), rerun=lambda: programs.version(2), grace="10s"
    )
    assert names["again"].enqueue().result(LONG) == "done"
    assert names["version"].enqueue().result(LONG) == 2


# When it takes place


def test_run_that_breaks_off_before_it_starts_changes_nothing(
    programs: Programs,
) -> None:
    first = programs.version(1)
    text = SOURCE.format(number=2).partition("jobs.start")[0]
    second = programs.run(text + "version.enqueue()")
    assert role(first["jobs"]) == "runner"
    assert second["version"].enqueue().result(LONG) == 1
    third = programs.version(3)
    assert third["version"].enqueue().result(LONG) == 3
    assert [role(each["jobs"]) for each in programs.runs] == [
        "handed over",
        "none",
        "runner",
    ]


def test_object_of_before_is_a_client_like_any(programs: Programs) -> None:
    first, second = programs.version(1), programs.version(2)
    old = first["jobs"]
    assert first["version"].enqueue().result(LONG) == 2
    old.start()
    assert role(old) == "handed over"
    with pytest.raises(RunnerActive):
        old.drain()
    old.stop()
    assert second["version"].enqueue().result(LONG) == 2
    second["jobs"].stop()
    old.start()
    assert second["version"].enqueue().result(LONG) == 1
    second["jobs"].start()
    assert second["version"].enqueue().result(LONG) == 2
    old.close()
    assert second["version"].enqueue().result(LONG) == 2


def test_of_many_threads_that_run_the_code_the_last_one_made_has_the_place(
    programs: Programs,
) -> None:
    """Two tabs of a browser, in each of which the program runs again and again."""
    code = compile(SOURCE.format(number=1), str(programs.folder / "app.py"), "exec")
    found: list[int] = []

    def run() -> None:
        for _ in range(3):
            names = programs.names()
            exec(code, names)
            programs.runs.append(names)
            found.append(names["version"].enqueue().result(LONG))

    tabs = [threading.Thread(target=run) for _ in range(3)]
    for each in tabs:
        each.start()
    for each in tabs:
        each.join(LONG)
    assert found == [1] * 9
    made = {each.number: each for each in living_services()}
    ours = [names["jobs"]._service.number for names in programs.runs]
    newest = made[max(ours)]
    eventually(newest.runs_here)
    others = {made[each].runner.role for each in ours if each != newest.number}
    assert others == {"handed over"}


def test_refusal_at_once_does_not_refuse_the_place_of_before(
    programs: Programs,
) -> None:
    text = "from litejobs import LiteJobs\njobs = LiteJobs(path)\n"
    programs.run(text + "jobs.start(standby=False)")
    second = programs.run(text + "jobs.start(standby=False)")
    eventually(lambda: role(second["jobs"]) == "runner")
    with pytest.raises(RunnerActive):
        LiteJobs(programs.path).start(standby=False)


def test_run_in_an_event_loop_waits_for_nothing(programs: Programs) -> None:
    """In which `arunning` runs the coroutines of the one before."""

    async def main() -> list[object]:
        text = SOURCE.format(number=1).partition("jobs.start")[0]
        first = programs.run(text)
        async with first["jobs"].arunning():
            found = [await first["aversion"].enqueue()]
            second = programs.version(2)
            found.append(await second["aversion"].enqueue())
        found.append(await second["version"].enqueue())
        return found

    assert asyncio.run(asyncio.wait_for(main(), LONG)) == [1, 2, 2]


def test_standby_of_before_ends_where_another_program_runs_the_jobs(
    programs: Programs,
) -> None:
    with LiteJobs(programs.path) as other, other.running():
        first, second = programs.version(1), programs.version(2)
        eventually(lambda: role(first["jobs"]) == "handed over")
        eventually(lambda: role(second["jobs"]) == "standby")
    assert second["version"].enqueue().result(LONG) == 2


# In memory


def test_runner_in_memory_ends_once_the_run_that_has_made_it_is_over() -> None:
    """Each has a file of its own, for which another thread may yet wait."""
    text = SOURCE.format(number=1)
    code = compile(text, "<cell>", "exec")
    given = {"__name__": "__main__", "path": ":memory:", "grace": 0}
    first, second, third = ({**given} for _ in "abc")
    exec(code, first)
    goes_on = threading.Event()

    def elsewhere() -> None:
        exec(code, second)
        assert goes_on.wait(LONG)
        second["found"] = second["version"].enqueue().result(LONG)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    eventually(lambda: "jobs" in second and role(second["jobs"]) == "runner")
    exec(code, third)
    assert role(first["jobs"]) == "handed over"
    goes_on.set()
    thread.join(LONG)
    assert second["found"] == 1
    exec(code, fourth := {**given})
    assert [role(each["jobs"]) for each in (second, third, fourth)] == [
        "handed over",
        "handed over",
        "runner",
    ]
    for each in (first, second, third, fourth):
        each["jobs"].close()


def test_two_cells_have_an_object_in_memory_each() -> None:
    """The first has its name yet, and its jobs are in no other file."""
    cell = "from litejobs import LiteJobs\n{0} = LiteJobs(':memory:')\n{0}.start()"
    names: Names = {"__name__": "__main__"}
    made = []
    for number, name in enumerate(["first", "second", "second"]):
        exec(compile(cell.format(name), f"<cell {number}>", "exec"), names)
        made.append(names[name])
    roles = [role(each) for each in made]
    for each in made:
        each.close()
    assert roles == ["runner", "handed over", "runner"]


# Without a runner


@pytest.fixture
def real_time() -> Iterator[None]:
    release_clock()
    yield
    hold_clock()


def test_callbacks_of_a_run_that_runs_no_jobs_end_with_the_next_run(
    programs: Programs, real_time: None
) -> None:
    text = SOURCE.format(number=1).partition("jobs.start")[0] + "jobs.open()"
    with LiteJobs(programs.path) as other:
        other.task(name="version")(lambda: 0)
        for _ in range(3):
            names = programs.run(text)
        threads = [each.name for each in threading.enumerate()]
        with other.running():
            assert names["version"].enqueue().result(LONG) == 0
            eventually(lambda: names["heard"])
    assert [len(each["heard"]) for each in programs.runs] == [0, 0, 1]
    assert threads.count("litejobs-callbacks") == 1


def test_opening_one_of_many_does_not_compare_the_code_of_all(
    programs: Programs,
) -> None:
    """A server may make one for each request."""
    compared: list[str] = []

    def note(frame: types.FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and Path(name).name == "redefinition.py":
            compared.append(frame.f_code.co_name)

    made = [LiteJobs(programs.path) for _ in range(3)]
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for each in made:
            each.open()
    finally:
        sys.setprofile(before)
    for each in made:
        each.close()
    assert compared == []


# A program that its parent watches


WATCHED = {
    "main.py": """
        import multiprocessing
        from litejobs import LiteJobs

        jobs = LiteJobs("jobs.db")

        @jobs.task
        def who() -> str:
            return __name__

        jobs.start()
        if __name__ == "__main__":
            import uvicorn
            import worker

            spawn = multiprocessing.get_context("spawn")
            for target in (worker.work, uvicorn.serve):
                child = spawn.Process(target=target)
                child.start()
                child.join()
            print(jobs.health()["role"])
    """,
    "worker.py": """
        import __main__ as main

        def work():
            print(main.who.enqueue().result(60), main.jobs.health()["role"])
    """,
    # As the real one does, which has its main module imported in a child.
    "uvicorn.py": """
        import time
        import __main__ as main

        def serve():
            until = time.monotonic() + 60
            while main.jobs.health()["role"] != "runner" and time.monotonic() < until:
                time.sleep(0.02)
            print(main.who.enqueue().result(60), main.jobs.health()["role"])
    """,
}


def test_child_that_is_the_program_runs_the_jobs_and_its_parent_only_watches(
    tmp_path: Path, empty_file: Path
) -> None:
    """NiceGUI reloads so, as it does when nothing else is said."""
    shutil.copy(empty_file, tmp_path / "jobs.db")
    for name, text in WATCHED.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=4 * LONG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "__main__ elsewhere",
        "__mp_main__ runner",
        "handed over",
    ]
