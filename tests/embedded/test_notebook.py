"""A notebook whose cells are run again and again, in a real kernel."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.embedded.environments import python_with

pytestmark = pytest.mark.embedded

CELLS = """
from litejobs import LiteJobs
jobs = LiteJobs("jobs.db")

# %%
@jobs.task
def version() -> int:
    return NUMBER

@jobs.task
async def aversion() -> int:
    return NUMBER

# %%
jobs.start(threads=1)

# %%
print(version.enqueue().result(60), await aversion.enqueue())

# %%
import threading
print(jobs.health()["role"], jobs.health()["problems"])
print(sum(each.name == "litejobs-loop" for each in threading.enumerate()))
"""

DRIVER = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.v4.new_notebook()
client = NotebookClient(notebook, timeout=120)
text = open("cells.py").read()
with client.setup_kernel():
    for number in (1, 2, 2, 3):
        cells = text.replace("NUMBER", str(number)).split("# %%")
        notebook.cells = [nbformat.v4.new_code_cell(each) for each in cells]
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        said = [
            output["text"]
            for cell in notebook.cells
            for output in cell.outputs
            if output.get("name") == "stdout"
        ]
        print(" ".join("".join(said).split()))
"""


def test_run_all_runs_the_functions_of_its_cells(tmp_path: Path) -> None:
    python = python_with("nbclient==0.11.0", "ipykernel==7.4.0")
    (tmp_path / "cells.py").write_text(textwrap.dedent(CELLS))
    done = subprocess.run(
        [python, "-c", DRIVER],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{number} {number} runner [] 1" for number in (1, 2, 2, 3)
    ]
