"""How long things are kept that have ended, as people say it and as rows have it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from litejobs._definitions.checks import did_you_mean, shown, whole
from litejobs._definitions.file_size import bytes_of
from litejobs._definitions.milliseconds import duration_ms
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._definitions.policy import Duration

KeptState = Literal["completed", "cancelled", "dead_lettered", "attempt"]
KeptKind = Literal[
    "completed", "cancelled", "dead_lettered", "attempt", "operation", "event", "file"
]

OF_JOBS: tuple[str, ...] = get_args(KeptState)
KINDS: tuple[str, ...] = get_args(KeptKind)
FILE = "file"
ATTEMPT = "attempt"


class Kept(TypedDict, total=False):
    """How long, and of how many at most the newest; None is without limit."""

    age: Duration | None
    most: int | None


def kept_rows(
    what: str, given: Any, kinds: Iterable[str] = KINDS
) -> dict[str, dict[str, int | None]]:
    """Return for each kind that is *given* its row (`kept_row`), checked.

    Raises:
        ConfigurationError: A kind or a value cannot work; the message says which.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f'{what}={shown(given)} is not a mapping; give {{"completed": "7d"}}, say'
        )
    known = tuple(kinds)
    rows = {}
    for kind, value in given.items():
        if kind not in known:
            raise ConfigurationError(
                f"{what}: {shown(kind)} is not kept by a rule; "
                f"{did_you_mean(kind, known)}there are {', '.join(known)}"
            )
        rows[kind] = kept_row(f"{what}[{kind!r}]", value, kind)
    return rows


def kept_row(what: str, value: Any, kind: str) -> dict[str, int | None]:
    """Return the `age_ms`, the `most` and the `bytes` of one *kind*, checked.

    Of the file *value* is a size, of attempts how many of a job that has not ended are
    kept, of all else how long it is kept.

    Raises:
        ConfigurationError: It cannot work.
    """
    if kind == FILE:
        return {"age_ms": None, "most": None, "bytes": size_of_file(what, value)}
    if kind == ATTEMPT:
        most = None if value is None else whole(what, value, 1)
        return {"age_ms": None, "most": most, "bytes": None}
    if not isinstance(value, Mapping):
        age = None if value is None else duration_ms(value, name=what)
        return {"age_ms": age, "most": None, "bytes": None}
    for name in value:
        if name not in Kept.__annotations__:
            raise ConfigurationError(
                f"{what}: {shown(name)} says nothing here; "
                f"{did_you_mean(name, Kept.__annotations__)}give age, most or both"
            )
    row = kept_row(f"{what}['age']", value.get("age"), kind)
    if value.get("most") is not None:
        if kind not in OF_JOBS:
            raise ConfigurationError(
                f"{what}['most'] is for jobs; of an {kind} give the age alone"
            )
        row["most"] = whole(f"{what}['most']", value["most"], 0)
    return row


def size_of_file(what: str, value: Any) -> int | None:
    """Return in bytes below which size a file is to be kept; None is without limit.

    Raises:
        ConfigurationError: It is not a size, or is 0.
    """
    size = None if value is None else bytes_of(value, name=what)
    if size == 0:
        raise ConfigurationError(
            f"{what}={shown(value)}: a file cannot be kept below nothing; give a size "
            'such as "400MB", or None'
        )
    return size


def kept_of_jobs(what: str, given: Any) -> dict[str, dict[str, int | None]]:
    """Return what is *given* of jobs by their state, each as its row, checked.

    A duration is for those that were completed or cancelled.

    Raises:
        ConfigurationError: It cannot work.
    """
    if isinstance(given, Mapping):
        return kept_rows(what, given, OF_JOBS)
    return {kind: kept_row(what, given, kind) for kind in OF_JOBS[:2]}


def kept_of_task(what: str, given: Any) -> str:
    """Return what a task says of its jobs, as the JSON object that the file is told.

    Raises:
        ConfigurationError: It cannot work.
    """
    rows = kept_of_jobs(what, given)
    told = {
        kind: {name: row[name] for name in ("age_ms", "most")}
        for kind, row in rows.items()
    }
    return json.dumps(told, separators=(",", ":"), sort_keys=True)
