"""A program that is packed in the other ways of docs/freeze.md, as it says there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from tests.embedded.environments import ROOT, python_with
from tests.embedded.programs import ALL_WORKS, by_pyinstaller, sources_in, steps

pytestmark = pytest.mark.embedded

WITH_TZDATA = [*ALL_WORKS, "extra tzdata"]
TZDATA = "tzdata==2026.6"
NO_ZONES = {"PYTHONTZPATH": ""}


def test_a_single_file_of_pyinstaller_does_all_that_the_program_did(
    tmp_path: Path,
) -> None:
    program = by_pyinstaller(tmp_path, "--onefile")
    found = steps([program], tmp_path / "run", **NO_ZONES)
    assert found[: len(ALL_WORKS)] == ALL_WORKS
    # Its own folder is gone after this.
    assert found[-1] == "beside refused"


def test_so_does_one_of_cx_freeze(tmp_path: Path) -> None:
    python = python_with("cx_Freeze==8.7.3", TZDATA)
    command = [python.with_name("cxfreeze"), "build_exe", "--script=app.py"]
    command += ["--build-exe=dist", "--packages=litejobs,tzdata", "--silent"]
    command += ["--excludes=litejobs.testing,PyInstaller"]
    sources = sources_in(tmp_path)
    subprocess.run(command, cwd=sources, check=True)
    program = sources / "dist" / "app"
    assert steps([program], tmp_path / "run", **NO_ZONES) == WITH_TZDATA


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("shiv==1.0.8", ["shiv", "-q", "-c", "app", "-o", "packed"]),
        ("pex==2.105.2", ["pex", "-c", "app", "-o", "packed"]),
    ],
)
def test_so_do_those_of_shiv_and_pex(
    tool: str, command: list[str], tmp_path: Path
) -> None:
    program, *options = command
    packer = python_with(tool).with_name(program)
    sources = sources_in(tmp_path)
    subprocess.run([packer, *options, ".", ROOT, TZDATA], cwd=sources, check=True)
    kept = {name: str(tmp_path / "kept") for name in ("SHIV_ROOT", "PEX_ROOT")}
    found = steps([sources / "packed"], tmp_path / "run", **NO_ZONES, **kept)
    assert found == WITH_TZDATA


@pytest.mark.torture  # a compiler takes minutes for all modules
@pytest.mark.parametrize("mode", ["standalone", "onefile"])
def test_so_does_one_that_nuitka_compiles(mode: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here")
    python = python_with("nuitka==4.3.3", TZDATA)
    command = [python, "-m", "nuitka", f"--mode={mode}", "--assume-yes-for-downloads"]
    command += ["--include-package=litejobs", "--include-package-data=litejobs"]
    aside = "litejobs.testing,litejobs.contrib,litejobs._packing.hook-litejobs"
    command += [f"--nofollow-import-to={aside}"]
    command += ["--include-distribution-metadata=litejobs,cronsim", "--quiet"]
    command += ["--include-package=tzdata", "--include-package-data=tzdata"]
    command += ["--output-filename=packed"]
    sources = sources_in(tmp_path)
    subprocess.run([*command, "app.py"], cwd=sources, check=True)
    program = sources / ("app.dist/packed" if mode == "standalone" else "packed")
    assert steps([program], tmp_path / "run", **NO_ZONES) == WITH_TZDATA


def test_a_zipapp_with_apsw_in_it_is_told_what_to_do(tmp_path: Path) -> None:
    sources = sources_in(tmp_path)
    python = python_with("shiv==1.0.8")
    install = [python, "-m", "pip", "install", "-q", "--target", sources, ROOT]
    subprocess.run(install, check=True)
    zipapp.create_archive(sources, tmp_path / "app.pyz", main="app:main")
    done = subprocess.run(
        [sys.executable, "-S", tmp_path / "app.pyz"],
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert "apsw" in last
    assert last.endswith(
        "shiv or pex, which unpack theirs, or install apsw outside of the archive"
    )


# Its stub has the interpreter within, and puts these two folders on the path.
STUB = """
import multiprocessing, runpy, sys
sys.path[:0] = sys.argv[1:3]
sys.executable = sys.argv[3]
multiprocessing.set_executable(sys.argv[4])
runpy.run_module("app", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("named", [True, False])
def test_the_layout_of_briefcase_runs_all_with_an_interpreter(
    named: bool, tmp_path: Path
) -> None:
    """Without one it is refused, for its stub would open the program once more."""
    python = python_with("shiv==1.0.8")
    packages, stub = tmp_path / "app_packages", tmp_path / "stub"
    install = [python, "-m", "pip", "install", "-q", "--target", packages, ROOT, TZDATA]
    subprocess.run(install, check=True)
    given = [sources_in(tmp_path), packages, stub, sys.executable if named else stub]
    command = [sys.executable, "-S", "-c", STUB, *map(str, given)]
    if named:
        assert steps(command, tmp_path / "run", **NO_ZONES) == WITH_TZDATA
    else:
        with pytest.raises(AssertionError, match=r"stub'; name one with multiprocess"):
            steps(command, tmp_path / "run")
