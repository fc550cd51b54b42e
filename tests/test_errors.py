"""Exceptions of ours go where exceptions go: into other processes, and copied."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import click
import pytest

import litejobs
from litejobs import LiteJobs, TaskError, errors
from litejobs.cli.file.reader import no_room
from tests.rows import for_each

ROOT = Path(__file__).parents[1]

SEEN = (
    *(errors.LiteJobsError, errors.TaskError, errors.TaskInterrupt),
    click.ClickException,
)

# What the constructors want beside a message.
MADE: dict[str, tuple[Any, ...]] = {
    "CursorInUse": ("why", 7),
    "Refused": ("why", "a_code"),
    "InvalidTransition": ("why", "invalid_transition"),
    "ConstraintViolated": ("why", "a_constraint"),
    "JobExists": ("why", 7),
    "JobNotCompleted": ("why", 7),
    "JobDeadLettered": ("why", 7),
    "JobCancelled": ("why", 7),
    "EventsLost": ("why", 7, 11, ("mail",)),
    "ResultNotStored": ("why", 7, "date", "datetime.date(2026, 1, 2)", "a reason"),
    "RunnerActive": ("why", 4711),
    "TaskError": ("A_CODE", "why", {"a": [1]}),
}


def classes() -> Iterator[type[BaseException]]:
    """Every exception of the package that a user or a task may see, once."""
    for module in pkgutil.walk_packages(litejobs.__path__, "litejobs."):
        if module.name == "litejobs.__main__":
            continue
        try:
            found = vars(importlib.import_module(module.name)).values()
        except ModuleNotFoundError as error:
            # It comes with an extra, or is what imports the module.
            assert error.name in {"distributed", "PyInstaller"}
            continue
        for each in found:
            if (
                inspect.isclass(each)
                and issubclass(each, SEEN)
                and each.__module__ == module.name
                and not each.__name__.startswith("_")
            ):
                yield each


def pickled(error: BaseException, protocol: int) -> BaseException:
    found: BaseException = pickle.loads(pickle.dumps(error, protocol))
    return found


WAYS: dict[str, Callable[[BaseException], BaseException]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {number}": lambda error, number=number: pickled(error, number)
        for number in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@for_each("way", WAYS)
@for_each("kind", [*classes()])
def test_exception_comes_back_as_it_was(kind: type[BaseException], way: str) -> None:
    error = kind(*MADE.get(kind.__name__, ("why",)))
    error.add_note("and a note")
    found = WAYS[way](error)
    assert type(found) is kind
    assert (str(found), found.args) == (str(error), error.args)
    assert vars(found) == vars(error)


def test_all_that_users_catch_is_among_them() -> None:
    public = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and each.__module__ == "litejobs.errors"
        if issubclass(each, BaseException)
    }
    assert public <= {each.__name__ for each in classes()}
    assert {"JobExists", "TaskError", "TaskStopped"} <= public


class Late(TaskError):
    """As an application may have it, with a constructor of its own."""

    def __init__(self, train: int, *, minutes: int) -> None:
        super().__init__("LATE", f"train {train}", retry_after="1m")
        self.minutes = minutes


class NotThere(errors.JobNotFound):
    def __init__(self, *, number: int) -> None:
        super().__init__(f"no {number}")


@pytest.mark.parametrize("way", WAYS)
def test_so_do_those_that_applications_derive(way: str) -> None:
    found = WAYS[way](Late(7, minutes=3))
    assert isinstance(found, Late)
    assert (found.code, found.message, found.data) == ("LATE", "train 7", None)
    assert (found.minutes, found.retry_after, found.retryable) == (3, 60, True)
    assert str(WAYS[way](NotThere(number=4))) == "no 4"


# --- what the file refuses ----------------------------------------------------------


def rules() -> list[str]:
    """What SQLite says of each named constraint, and of each unique index, of ours."""
    schema = "\n".join(
        each.read_text(encoding="utf-8")
        for each in sorted((ROOT / "sql" / "schema").glob("*.sql"))
    )
    checks = re.findall(r"constraint (litejobs_\w+)\s+check", schema)
    tables = re.findall(
        r"create table (litejobs_\w+) \((.*?)\n\) strict", schema, re.DOTALL
    )
    columns = [
        (table, column, kind)
        for table, body in tables
        for column, kind in re.findall(
            r"^    (\w+) (integer|text|real)\b", body, re.MULTILINE
        )
    ]
    assert len(checks) > 150
    assert len(columns) > 200
    said = [f"CHECK constraint failed: {name}" for name in checks]
    for table, column, kind in columns:
        said += [
            f"UNIQUE constraint failed: {table}.{column}",
            f"UNIQUE constraint failed: {table}.{column}, {table}.other",
            f"NOT NULL constraint failed: {table}.{column}",
            f"cannot store BLOB value in {kind.upper()} column {table}.{column}",
        ]
    return [*said, "FOREIGN KEY constraint failed"]


def test_no_rule_of_the_file_is_told_by_its_name_there() -> None:
    for said in rules():
        error = errors.translated(apsw.ConstraintError(said))
        assert type(error) is errors.ConstraintViolated
        text = str(error)
        assert not re.search(r"litejobs|constraint|sql|  ", text), text
        assert re.fullmatch(r"[^;]+; give .+", text), text
        if said.startswith("CHECK"):
            assert error.code == said.rpartition(" ")[2]


def test_rules_of_the_application_are_told_as_sqlite_says_them() -> None:
    for said in (
        "UNIQUE constraint failed: orders.id",
        "CHECK constraint failed: orders_total_positive",
        "cannot store TEXT value in INTEGER column orders.id",
    ):
        assert str(errors.translated(apsw.ConstraintError(said))) == said


def test_a_value_that_the_file_refuses_is_told_in_words() -> None:
    with LiteJobs() as jobs:
        for statement, words in (
            (
                "insert into litejobs_job (task, args) values ('a', '5')",
                "the file refused a value of a job, where this has to be so: args are "
                "json; give another value",
            ),
            (
                "insert into litejobs_job (task, priority) values ('a', 'high')",
                "priority of a job is of the wrong type; give a whole number",
            ),
        ):
            with pytest.raises(errors.ConstraintViolated) as caught:
                with jobs.transaction() as db:
                    db.execute(statement)
            assert str(caught.value) == words


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        ("WRITE FSYNC TRUNCATE SHMSIZE", errors.DatabaseFull, "is full or failing"),
        ("READ FSTAT ACCESS", errors.DiskFailed, "could not be read"),
        ("SHMMAP SHMOPEN", errors.FileRefused, "cannot be shared in memory where it"),
        ("LOCK RDLOCK SHMLOCK", errors.FileRefused, "cannot be locked where it lies"),
        ("NOMEM", errors.LiteJobsError, "no memory left"),
    ],
)
def test_only_what_a_lack_of_room_may_bring_about_is_told_as_a_full_disk(
    names: str, kind: type[Exception], words: str
) -> None:
    for name in names.split():
        found = apsw.exception_for(getattr(apsw, f"SQLITE_IOERR_{name}"))
        assert isinstance(found, apsw.Error)
        told = errors.translated(found)
        assert type(told) is kind
        assert words in str(told)
        assert type(no_room("a.db", found)) is kind
