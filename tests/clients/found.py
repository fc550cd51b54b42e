"""Where programs for ORMs and migration tools find what they need."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import litejobs
from tests.clients.drivers import place

ROOT = Path(litejobs.__file__).parents[1]
MOST = 120.0  # seconds: how long a program may take

OF_NPM = (
    *("@prisma/adapter-better-sqlite3@6", "@prisma/client@6", "prisma@6"),
    *("better-sqlite3", "drizzle-kit", "drizzle-orm", "knex", "reflect-metadata"),
    *("sequelize", "sqlite3", "typeorm"),
)
OF_PIP = (
    *("alembic", "apsw", "attrs", "dataset", "datasette", "django", "peewee", "pony"),
    *("sqlalchemy", "sqlite-utils", "tortoise-orm"),
)
"""What these programs need; Alembic's imports litejobs."""


def command_of(program: Path, package: str) -> list[str] | None:
    """How a program is started; None where its package of pip or npm is not here."""
    if program.suffix == ".cjs":
        node = shutil.which("node")
        needed = (package, "better-sqlite3")
        if node is None or not all((modules() / each).exists() for each in needed):
            return None
        return [node, str(program)]
    for found in (sys.executable, str(place() / "python" / "bin" / "python")):
        if Path(found).exists() and _has(found, package):
            return [found, str(program)]
    return None


@functools.cache
def _has(python: str, package: str) -> bool:
    look = f"import importlib.metadata as of; of.version({package!r})"
    done = subprocess.run([python, "-c", look], capture_output=True, check=False)
    return done.returncode == 0


def modules() -> Path:
    """Where npm has put packages."""
    return place() / "node_modules"


def run(command: list[str], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program, which may import litejobs and what npm has put there."""
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "NODE_PATH": str(modules()), "PYTHONPATH": str(ROOT)},
        timeout=MOST,
        check=False,
    )
