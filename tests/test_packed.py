"""The package in an archive, and what is said where a part of it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import apsw
import attr
import click
import cronsim
import pytest

from litejobs._storage import statements

ROOT = Path(__file__).parents[1]
NEEDED = [Path(each.__file__).parents[1] for each in (apsw, attr, click, cronsim)]

PROGRAM = """
import sys
from litejobs import LiteJobs, cron

jobs = LiteJobs("app.db")
jobs.task(name="double")(lambda number: 2 * number)
job = jobs.enqueue("double", {"number": 21})
with jobs.running():
    print(job.result(timeout=60), sys.modules["litejobs"].__file__)
from litejobs.cli import main
main(["--db", "app.db", "list"])
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, as in a wheel, in an archive from which Python imports."""
    found = tmp_path_factory.mktemp("packed") / "litejobs.zip"
    with zipfile.ZipFile(found, "w") as file:
        for folder, name in ((ROOT / "litejobs", "litejobs"), (SQL, "litejobs/sql")):
            for each in folder.rglob("*.*"):
                if each.suffix in {".py", ".sql", ".txt"}:
                    file.write(each, f"{name}/{each.relative_to(folder).as_posix()}")
    return found


SQL = statements.directory()


def run(
    program: str, path: list[Path], cwd: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """A program of a new interpreter that imports from these places first."""
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_job_and_a_command_run_from_an_archive(archive: Path, tmp_path: Path) -> None:
    """Where its files are not files, they are read by who has imported the package."""
    done = run(PROGRAM, [archive, *NEEDED], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"42 {archive}")
    assert "completed" in done.stdout


def test_an_archive_without_the_sql_is_told_so(archive: Path, tmp_path: Path) -> None:
    less = tmp_path / "less.zip"
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(less, "w") as file:
        for name in whole.namelist():
            if name.endswith(".py"):
                file.writestr(name, whole.read(name))
    done = run("from litejobs import LiteJobs", [less, *NEEDED], tmp_path)
    assert "packed without litejobs/sql/versions.txt; collect" in done.stderr


@pytest.mark.parametrize("folders", [True, False])
def test_an_archive_with_apsw_in_it_is_told_so(folders: bool, tmp_path: Path) -> None:
    """Its compiled part is not found there, and what is left is an empty package."""
    place = tmp_path / "app.pyz"
    with zipfile.ZipFile(place, "w") as file:
        if folders:
            file.writestr("apsw/", "")
        file.writestr("apsw/shell.py", "")
    last = run("from litejobs import LiteJobs", [place, ROOT], tmp_path, "-S").stderr
    assert last.splitlines()[-1].startswith("ImportError: litejobs needs apsw, a part")
    assert f"within an archive ({place}); build the program with shiv or pex" in last


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version = 3", "AttributeError: module 'apsw' has no attribute"),
        ("raise ImportError('no libz.so', name='apsw')", "ImportError: no libz.so"),
    ],
)
def test_what_is_wrong_with_apsw_is_told_with_the_way_out(
    text: str, told: str, tmp_path: Path
) -> None:
    """It is not turned into "cannot import name", which says nothing of it."""
    (tmp_path / "apsw").mkdir()
    (tmp_path / "apsw" / "__init__.py").write_text(text)
    done = run("from litejobs import LiteJobs", [tmp_path, ROOT], tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: litejobs needs apsw 3.53 or newer")
    assert told in last
    assert last.endswith("; pip install --upgrade --force-reinstall apsw")


@pytest.mark.parametrize("package", ["litejobs", "litejobs.testing"])
def test_what_goes_wrong_in_a_module_of_ours_is_told_as_it_is(
    package: str, tmp_path: Path
) -> None:
    """Another library that lacks something, say, is an AttributeError in there."""
    program = f"""
import importlib
from litejobs import _app
def broken(name):
    import os
    return os.nothing_of_this_name
importlib.import_module = broken
from {package} import {"Job" if package == "litejobs" else "Clock"}
"""
    done = run(program, [ROOT], tmp_path)
    [last] = done.stderr.splitlines()[-1:]
    assert last.startswith(f"ImportError: {package}.")
    assert "has no attribute 'nothing_of_this_name'" in last
