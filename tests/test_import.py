"""What an import brings along, and that the public names are there all the same."""

from __future__ import annotations

import importlib.util
import json
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import litejobs

# Large parts of the standard library and of others, for what only some programs do.
HEAVY = {
    "asyncio",
    "concurrent.futures.process",
    "cronsim",
    "ctypes",
    "difflib",
    "email",
    "fractions",
    "hashlib",
    "random",
    "secrets",
    "socket",
    "ssl",
    "subprocess",
    "zoneinfo",
}
# What the file system is, and how the computer is called, is asked for in other ways.
if sys.platform != "linux":
    HEAVY -= {"ctypes", "socket"}


def fresh(program: str, *arguments: str, cwd: Path | None = None) -> Any:
    """What *program*, run in a new interpreter, prints as JSON."""
    root = str(Path(litejobs.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r})\n{textwrap.dedent(program)}"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def modules_after(program: str, *arguments: str) -> set[str]:
    """The modules that *program* has brought in, beside those of apsw and attrs."""
    return set(
        fresh(
            "import json, apsw, attrs\nbefore = set(sys.modules)\n"
            + textwrap.dedent(program)
            + "\nprint(json.dumps(sorted(set(sys.modules) - before)))",
            *arguments,
        )
    )


VALUES = {"litejobs._values", "litejobs._values.text"}


def test_importing_the_package_imports_the_errors_alone() -> None:
    brought = modules_after("import litejobs")
    ours = {name for name in brought if name.startswith("litejobs")}
    assert ours == {*VALUES, "litejobs", "litejobs.errors"}


def test_importing_the_application_object_brings_nothing_heavy() -> None:
    brought = modules_after("from litejobs import LiteJobs")
    assert "litejobs._app" in brought
    assert not brought & HEAVY
    assert not brought & {
        "litejobs._definitions.conditions",
        "litejobs._schedules.cron",
        "litejobs._control.records",
        "litejobs._schedules.schedule",
        "litejobs._control.queues",
    }


def test_a_first_job_brings_nothing_heavy(tmp_path: Path) -> None:
    brought = modules_after(
        """
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])
        jobs.enqueue("greet", {"name": "Ann"})
        jobs.close()
        """,
        str(tmp_path / "jobs.db"),
    )
    assert not brought & HEAVY


def test_a_runner_of_plain_tasks_brings_nothing_heavy() -> None:
    brought = modules_after(
        """
        from litejobs import LiteJobs, Retry

        jobs = LiteJobs()

        @jobs.task(retry=Retry(max_attempts=3))
        def greet(name):
            return f"Hello {name}"

        with jobs.running(threads=2):
            assert greet.enqueue("Ann").result(30) == "Hello Ann"
        jobs.close()
        """
    )
    assert not brought & HEAVY


def test_a_runner_comes_with_the_first_coroutine_and_not_beside_its_loop() -> None:
    """Beside it an import would keep the loop from the interpreter for too long."""
    found = fresh(
        """
        import asyncio, json
        from litejobs import LiteJobs

        jobs = LiteJobs()

        @jobs.task
        def plain(): ...

        before = "litejobs._runner.runner" in sys.modules

        @jobs.task
        async def greet(name): ...

        known = set(sys.modules)

        async def main():
            async with jobs.arunning():
                await (await greet.aenqueue("Ann"))
            jobs.close()

        asyncio.run(main())
        runner = [name for name in sys.modules if name.startswith("litejobs._runner.")]
        print(json.dumps([before, sorted(set(runner) - known)]))
        """
    )
    assert found == [False, []]


def test_help_of_the_command_line_brings_no_jobs_file() -> None:
    brought = modules_after("import litejobs.cli")
    ours = {name for name in brought if name.startswith("litejobs._")}
    assert ours == VALUES  # which only escapes
    assert not brought & {"asyncio", "cronsim", "ssl", "zoneinfo"}


def test_every_public_name_is_there_in_a_new_interpreter() -> None:
    found = fresh(
        """
        import json, litejobs

        print(json.dumps({
            name: getattr(litejobs, name).__module__ for name in litejobs.__all__
        }))
        """
    )
    assert sorted(found) == sorted(litejobs.__all__)
    assert all(home.startswith("litejobs.") for home in found.values())


def test_a_star_import_brings_every_public_name() -> None:
    found = fresh(
        """
        import json

        space = {}
        exec("from litejobs import *", space)
        print(json.dumps(sorted(space)))
        """
    )
    assert set(litejobs.__all__) <= set(found)


def test_dir_names_every_public_name_before_any_was_asked_for() -> None:
    found = fresh("import json, litejobs; print(json.dumps(dir(litejobs)))")
    assert {*litejobs.__all__, "__version__", "errors"} <= set(found)


def test_a_name_is_the_same_object_each_time_and_in_its_module() -> None:
    from litejobs._definitions.policy import Retry

    assert litejobs.Retry is Retry is litejobs.Retry
    assert "Retry" in vars(litejobs)


@pytest.mark.parametrize("name", ["Retries", "_app_", "asyncio", "__path"])
def test_an_unknown_name_is_refused_as_in_any_module(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'litejobs' has no attribute '{name}'"):
        getattr(litejobs, name)
    assert not hasattr(litejobs, name)


def test_an_unknown_name_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Retries'"):
        exec("from litejobs import Retries")


def test_what_is_missing_is_told_when_the_package_is_imported() -> None:
    """A half-installed package fails at the import, not at the first job."""
    told = fresh(
        """
        import json

        sys.modules["apsw"] = None
        try:
            import litejobs
        except ImportError as error:
            print(json.dumps(str(error)))
        """
    )
    assert "apsw" in told


def test_what_a_module_of_ours_lacks_is_told_as_it_is() -> None:
    """It is not turned into "no such name", which would hide what to install."""
    told = fresh(
        """
        import json, litejobs

        sys.modules["cronsim"] = None
        try:
            litejobs.cron
        except ImportError as error:
            print(json.dumps(str(error)))
        """
    )
    assert "cronsim" in told


def test_threads_that_ask_at_the_same_time_get_the_same_objects() -> None:
    """From either end of the list, so that they come upon each other's imports."""
    agreed = fresh(
        """
        import json, threading
        import litejobs

        sys.setswitchinterval(1e-6)
        names = litejobs.__all__
        barrier = threading.Barrier(8)
        found = [None] * 8

        def ask(number):
            order = names[number:] + names[:number]
            order = order if number % 2 else order[::-1]
            barrier.wait()
            try:
                found[number] = {name: id(getattr(litejobs, name)) for name in order}
            except BaseException as error:
                found[number] = repr(error)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        print(json.dumps([each == found[0] for each in found] + [str(found[0])]))
        """
    )
    assert agreed[:8] == [True] * 8, agreed[8]
    assert agreed[8].startswith("{")


def test_values_are_pickled_by_their_names(tmp_path: Path) -> None:
    """In an interpreter that has imported nothing of ours before."""
    stored = tmp_path / "retry.pickle"
    stored.write_bytes(pickle.dumps(litejobs.Retry(max_attempts=5)))
    values = fresh(
        """
        import json, pathlib, pickle

        value = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
        print(json.dumps([type(value).__name__, value.max_attempts]))
        """,
        str(stored),
    )
    assert values == ["Retry", 5]


def test_documentation_shows_the_public_names() -> None:
    shown = fresh(
        """
        import json, litejobs, pydoc

        print(json.dumps(pydoc.plain(pydoc.render_doc(litejobs))))
        """
    )
    for name in ("class LiteJobs", "class Retry", "current(", "every("):
        assert name in shown


OF_DASK = {f"litejobs._executors.dask.{name}" for name in ("fence", "link")}
"""What is imported where there is `distributed`, and not before."""


def test_each_module_of_ours_can_be_imported_first(tmp_path: Path) -> None:
    """No import depends on another one that happened to come before."""
    package = Path(litejobs.__file__).parent
    names = [
        ".".join(("litejobs", *path.relative_to(package).with_suffix("").parts))
        for path in sorted(package.rglob("*.py"))
        if path.stem.isidentifier() and path.stem not in ("__init__", "__main__")
    ]
    if importlib.util.find_spec("distributed") is None:
        names = [each for each in names if each not in OF_DASK]
    failed = fresh(
        """
        import gc, importlib, json
        from importlib.machinery import SourceFileLoader

        # Some thousand times a module is run anew: its code is read once.
        gc.disable()
        codes, read = {}, SourceFileLoader.get_code

        def get_code(loader, name):
            if name not in codes:
                codes[name] = read(loader, name)
            return codes[name]

        SourceFileLoader.get_code = get_code
        failed = {}
        for name in sys.argv[1:]:
            for old in [each for each in sys.modules if each.startswith("litejobs")]:
                del sys.modules[old]
            try:
                importlib.import_module(name)
            except BaseException as error:
                failed[name] = repr(error)
        print(json.dumps(failed))
        """,
        *names,
        cwd=tmp_path,
    )
    assert failed == {}
