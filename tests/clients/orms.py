"""ORMs on the tables of litejobs, what a user does by them, and what is known of each.

A program for each is in `programs/orms`, in its own language. It does all acts, which
are in `told.py` and `told.cjs` beside it, and says a line for each.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from litejobs import LiteJobs
from tests.clients import page
from tests.clients.acts import WORKS
from tests.clients.drivers import PROGRAMS, Differs
from tests.clients.found import command_of, run

FOLDER = PROGRAMS / "orms"

ACTS = {
    "enqueue": "enqueue",
    "last_id": "last id",
    "cancel": "cancel",
    "save_unchanged": "save unchanged",
    "save_running": "save what runs since",
    "save_stale": "save what has ended since",
    "duplicate": "a key that is taken",
    "pause": "pause a new queue",
    "read_on": "read on",
}
"""What the programs call an act, and the page."""

STALE = {"save_running", "save_stale"}
REFUSED = "refused: "


class Orm(NamedTuple):
    """An ORM, and what is known of it."""

    name: str
    program: str
    package: str  # what brings it: that of pip or npm
    differs: dict[str, Differs] = {}  # noqa: RUF012

    def expected(self, act: str) -> Differs:
        """What is seen of an act."""
        usual = Differs(REFUSED if act in STALE else WORKS)
        return self.differs.get(act, usual)

    def command(self) -> list[str] | None:
        """How its program is started; None where the ORM is not here."""
        return command_of(FOLDER / self.program, self.package)


UNKNOWN_WHY = Differs(
    f"{REFUSED}Foreign key constraint violated",
    "it takes what a trigger refuses for this, and drops the sentence",
)
CHANGED_ALONE = dict.fromkeys(STALE, Differs("stored", "it writes what was changed"))

ORMS = [
    Orm("Django", "django_models.py", "django"),
    Orm("SQLAlchemy", "sqlalchemy_written.py", "sqlalchemy", CHANGED_ALONE),
    Orm(
        "SQLAlchemy automap",
        "sqlalchemy_reflected.py",
        "sqlalchemy",
        CHANGED_ALONE,
    ),
    Orm("SQLAlchemy Core", "sqlalchemy_core.py", "sqlalchemy"),
    Orm("Peewee", "peewee_models.py", "peewee"),
    Orm("Pony", "pony_entities.py", "pony"),
    Orm("Tortoise", "tortoise_models.py", "tortoise-orm"),
    Orm("dataset", "dataset_tables.py", "dataset"),
    Orm("sqlite-utils", "sqlite_utils_tables.py", "sqlite-utils"),
    Orm("Datasette", "datasette_api.py", "datasette"),
    Orm("Knex", "knex_tables.cjs", "knex"),
    Orm("Sequelize", "sequelize_models.cjs", "sequelize"),
    Orm("TypeORM", "typeorm_entities.cjs", "typeorm"),
    Orm("Drizzle", "drizzle_tables.cjs", "drizzle-orm"),
    Orm(
        "Prisma",
        "prisma_client.cjs",
        "@prisma/adapter-better-sqlite3",
        dict.fromkeys(STALE, UNKNOWN_WHY),
    ),
]


class Told(NamedTuple):
    """What a program has said."""

    version: str
    acts: dict[str, str]


def tried(command: list[str], path: Path) -> Told:
    """What comes of the acts, beside a living runner."""
    with LiteJobs(path) as jobs:

        @jobs.task
        def double(number: int) -> int:
            return 2 * number

        @jobs.task
        def hold() -> None:
            while not Path(f"{path}.go").exists():
                time.sleep(0.02)

        with jobs.running(threads=1):
            done = run(command, path)
    said = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert set(said) == {"version", *ACTS}, done.stderr
    return Told(said.pop("version"), said)


# The page -------------------------------------------------------------------------


def row_of(orm: Orm, told: Told) -> str:
    """What the table of docs/sql.md says of an ORM."""
    cells = [
        page.YES if said == WORKS else said.partition(":")[0]
        for said in told.acts.values()
    ]
    return f"| {' | '.join((orm.name, told.version.split()[-1], *cells))} |"


def rows_in(text: str) -> dict[str, str]:
    """The rows of the table as they stand there, by the name of the ORM."""
    table = text.partition("<!-- orms -->")[2].partition("<!-- end -->")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line for line in lines}


def written(text: str, seen: dict[str, Told]) -> str:
    """The page, with what was seen now; ORMs that were not tried keep their rows."""
    before = rows_in(text)
    heads = ("ORM", "version", *ACTS.values())
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for orm in ORMS:
        if orm.name in seen:
            lines.append(row_of(orm, seen[orm.name]))
        elif orm.name in before:
            lines.append(before[orm.name])
    table = "\n".join(lines)
    return re.sub(
        r"(<!-- orms -->\n).*?(<!-- end -->)",
        lambda around: f"{around[1]}\n{table}\n\n{around[2]}",
        text,
        flags=re.DOTALL,
    )


def try_those_found(names: list[str]) -> tuple[dict[str, Told], int]:
    """What was seen of those of these names, or of all; and how much was not known."""
    seen, wrong = {}, 0
    for orm in ORMS:
        if names and orm.name not in names:
            continue
        command = orm.command()
        if command is None:
            print(f"{orm.name}: it is not here ({orm.package})")
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            told = seen[orm.name] = tried(command, Path(folder, "jobs.db"))
        print(told.version)
        for act, said in told.acts.items():
            known = orm.expected(act).seen
            wrong += not said.startswith(known)
            print(f"  {ACTS[act]}: {said[:150]}")
    return seen, wrong
