"""How long an attempt of a simulation runs, and how it ends.

That is the one thing that no trigger knows: it is drawn from what was recorded of the
task, or assumed, or said by whoever simulates. A draw depends on the seed and on which
attempt it is, and on nothing else: in two simulations that differ in a policy or in
the number of threads, the same attempt ends in the same way after the same time.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from litejobs._control.simulation import SOME_ERROR
from litejobs._definitions.checks import did_you_mean, shown
from litejobs._definitions.milliseconds import duration_ms, duration_text, from_ms
from litejobs._definitions.policy import Duration
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.statements import queries
from litejobs._tasks import outcome as outcomes
from litejobs._values.text import json_or_text
from litejobs.errors import ConfigurationError, TaskTimeout

if TYPE_CHECKING:
    import datetime as dt

    import apsw

WITHOUT_HISTORY_MS = 1_000
"""How long an attempt runs if nothing is known of its task."""

ENDS = ("ok", "fail", "history")
_DRAWN = {"ok": "ok", "fail": "fail", "timeout": "timeout", "crash": "crashed"}
_OK = '{"status":"ok"}'
_CRASHED = json.dumps(
    {
        "status": "crashed",
        "error": {
            "type": "ProcessDied",
            "types": ["ProcessDied"],
            "message": "the process died while running the job",
        },
    }
)


@attrs.frozen(kw_only=True)
class SimulatedAttempt:
    """An attempt that begins in a simulation, for whoever says how it will end.

    `attempt` counts as limits do, `start_no` the starts of the job's life. `args` are
    those of the job; `schedule_id` and `occurrence_at` say which instant of a schedule
    it comes from.
    """

    task: str
    queue: str
    job_id: int
    attempt: int
    start_no: int
    step: str | None
    at: dt.datetime
    schedule_id: int | None
    occurrence_at: dt.datetime | None
    args: Any = attrs.field(repr=False)


Outcome = str | Mapping[str, Any] | BaseException | type[BaseException] | None
"""How an attempt ends: "ok" (as None), "fail", "timeout", "crash", "history", an
exception that the task raises, or an outcome document, an object with a `status`."""

Outcomes = (
    str
    | Callable[[SimulatedAttempt], Outcome]
    | Mapping[str, str | Callable[[SimulatedAttempt], Outcome]]
)
Durations = (
    Duration
    | Callable[[SimulatedAttempt], Duration]
    | Mapping[str, Duration | Callable[[SimulatedAttempt], Duration]]
)


@attrs.frozen
class Ending:
    """How an attempt ends by itself, and after how long.

    `said` is its outcome. If `is_timed`, `ran_ms` is written into that: once, when it
    is known for how long it runs.
    """

    status: str
    ran_ms: int
    said: str
    is_timed: bool = False

    @property
    def document(self) -> str:
        """The outcome as it is settled with."""
        if not self.is_timed:
            return self.said
        before, after = _around_ran_ms(self.said)
        return f"{before}{self.ran_ms}{after}"


@attrs.frozen(kw_only=True)
class TaskAssumption:
    """Of what the attempts of a task were made.

    `attempts` began; `drawn_from` is the number of recorded attempts that they were
    drawn from, of which `failed` had not ended well, and `median_ms` is how long these
    had run: None where there were none. `says` is a sentence about it.
    """

    task: str
    attempts: int
    drawn_from: int
    failed: int
    median_ms: int | None
    says: str


class Endings:
    """Says of each attempt how it ends: *outcomes* and *durations* as in `simulate`."""

    def __init__(
        self,
        db: apsw.Connection,
        *,
        outcomes: Outcomes = "history",
        durations: Any = "history",
        seed: int = 0,
    ) -> None:
        self._how = _checked_outcomes(outcomes)
        self._how_long = _checked_durations(durations)
        self._seed = str(seed).encode()
        self._pools: dict[tuple[str, str | None, bool, str], list[Ending]] = {}
        self._of_task: dict[str, list[Ending]] = {}
        self._begun: dict[str, int] = {}
        rows = fetch_lossy(db, queries()["simulated_history"], None)[1]
        for task, step, is_later, status, ran_ms, document in rows:
            ending = Ending(status, ran_ms, document)
            self._of_task.setdefault(task, []).append(ending)
            for ends in ("history", "ok" if status == "ok" else "fail"):
                key = (task, step, bool(is_later), ends)
                self._pools.setdefault(key, []).append(ending)

    @property
    def wants_arguments(self) -> bool:
        """Whether anybody is asked who may look at the arguments of a job."""
        return any(map(callable, (*self._how.values(), *self._how_long.values())))

    def check_names(self, known: list[str]) -> None:
        """Raise ConfigurationError for a task that is named and does not exist."""
        for name, given in (("outcomes", self._how), ("task_duration", self._how_long)):
            for task in given:
                if task != "*" and task not in known:
                    raise ConfigurationError(
                        f"{name} names the task {shown(task)}, which the file does not "
                        f"know; {did_you_mean(task, known)}see litejobs tasks"
                    )

    def of(self, attempt: SimulatedAttempt, at_least_ms: int = 0) -> Ending:
        """How this one ends, which has run for *at_least_ms* already."""
        task = attempt.task
        self._begun[task] = self._begun.get(task, 0) + 1
        ending = self._outcome(attempt, at_least_ms)
        how_long = self._how_long.get(task, self._how_long["*"])
        if how_long == "history":
            return ending
        if callable(how_long):
            how_long = duration_ms(how_long(attempt), name="task_duration")
        ran_ms = max(how_long, at_least_ms)
        return Ending(ending.status, ran_ms, ending.said, is_timed=True)

    def assumptions(self) -> list[TaskAssumption]:
        """Of what the attempts that have begun were made, by task."""
        return [
            self._assumption(task, number)
            for task, number in sorted(self._begun.items())
        ]

    # Outcomes ---------------------------------------------------------------------

    def _outcome(self, attempt: SimulatedAttempt, at_least_ms: int) -> Ending:
        how = self._how.get(attempt.task, self._how["*"])
        said: Any = how(attempt) if callable(how) else how
        if said is None:
            said = "ok"
        if isinstance(said, str):
            if said in ENDS:
                return self._drawn(attempt, said, at_least_ms)
            if said not in _DRAWN:
                raise _unknown(attempt.task, said)
            return self._made(attempt, said, at_least_ms)
        if type(said) is dict or isinstance(said, Mapping):
            document = _document(attempt.task, said)
            status = said.get("status")
            if status not in ("error", *_DRAWN.values()):
                raise _unknown(attempt.task, said)
            ends = "ok" if status == "ok" else "fail"
            like = self._drawn(attempt, ends, at_least_ms)
            return Ending(str(status), like.ran_ms, document, is_timed=True)
        if isinstance(said, type) and issubclass(said, BaseException):
            said = _raised(attempt.task, said)
        if not isinstance(said, BaseException):
            raise _unknown(attempt.task, said)
        like = self._drawn(attempt, "fail", at_least_ms)
        document = outcomes.of_error(said, like.ran_ms)
        return Ending(json.loads(document)["status"], like.ran_ms, document)

    def _made(self, attempt: SimulatedAttempt, said: str, at_least_ms: int) -> Ending:
        like = self._drawn(attempt, "history", at_least_ms)
        if said == "crash":
            return Ending("crashed", like.ran_ms, _CRASHED)
        document = outcomes.of_error(TaskTimeout("the time limit has passed"), 0)
        return Ending("timeout", like.ran_ms, document, is_timed=True)

    def _drawn(self, attempt: SimulatedAttempt, ends: str, at_least_ms: int) -> Ending:
        """One of those that were recorded, or, where there are none, a plain one."""
        pool = self._pool(attempt, ends)
        if at_least_ms:
            pool = [each for each in pool if each.ran_ms >= at_least_ms]
        if pool:
            return pool[self._draw(attempt) % len(pool)]
        document = SOME_ERROR if ends == "fail" else _OK
        status = "error" if ends == "fail" else "ok"
        others = self._pool(attempt, "history")
        ran_ms = WITHOUT_HISTORY_MS
        if others:
            ran_ms = others[self._draw(attempt) % len(others)].ran_ms
        return Ending(status, max(ran_ms, at_least_ms), document, is_timed=True)

    def _pool(self, attempt: SimulatedAttempt, ends: str) -> list[Ending]:
        """What was recorded of the same: first attempts and retries differ."""
        later = attempt.attempt > 1
        for which in (later, not later):
            found = self._pools.get((attempt.task, attempt.step, which, ends))
            if found:
                return found
        return []

    def _draw(self, attempt: SimulatedAttempt) -> int:
        """A number that is another one for each attempt, and always the same for it."""
        which = (
            str(attempt.job_id)
            if attempt.schedule_id is None
            else f"{attempt.schedule_id}@{attempt.occurrence_at}"
        )
        text = f"{which}/{attempt.start_no}".encode()
        digest = hashlib.blake2b(text, digest_size=8, key=self._seed[:64]).digest()
        return int.from_bytes(digest, "big")

    def _assumption(self, task: str, begun: int) -> TaskAssumption:
        recorded = self._of_task.get(task, [])
        times = sorted(each.ran_ms for each in recorded)
        how = self._how.get(task, self._how["*"])
        how_long = self._how_long.get(task, self._how_long["*"])
        says = []
        if callable(how):
            says.append("they end as the caller says")
        elif how != "history":
            says.append("they all " + ("end well" if how == "ok" else "fail"))
        elif recorded:
            says.append(f"they end as {len(recorded):,} of the past")
        else:
            says.append("none has been recorded: they end well")
        if callable(how_long):
            says.append("after as long as the caller says")
        elif how_long != "history":
            says.append(f"after {duration_text(int(how_long))}")
        elif recorded:
            says.append("after as long as those")
        else:
            says.append(f"after {duration_text(WITHOUT_HISTORY_MS)}")
        return TaskAssumption(
            task=task,
            attempts=begun,
            drawn_from=len(recorded),
            failed=sum(each.status != "ok" for each in recorded),
            median_ms=times[len(times) // 2] if times else None,
            says=", ".join(says),
        )


@functools.lru_cache(maxsize=1_000)
def _around_ran_ms(document: str) -> tuple[str, str]:
    """The text of an outcome before and after its `ran_ms`; many are used again."""
    said = json.loads(document)
    names = list(said)
    place = names.index("ran_ms") if "ran_ms" in said else len(names)
    before = _members({name: said[name] for name in names[:place]})
    after = _members({name: said[name] for name in names[place + 1 :]})
    return (
        "{" + before + ("," if before else "") + '"ran_ms":',
        ("," if after else "") + after + "}",
    )


def _members(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))[1:-1]


def _arguments(stored: bytes) -> Any:
    """Mostly there are none, and each is given a document of its own."""
    none = _NO_ARGUMENTS.get(stored)
    return none() if none else json_or_text(stored.decode(errors="replace"))


_NO_ARGUMENTS: dict[bytes, type] = {b"{}": dict, b"[]": list}


def simulated_attempt(
    row: tuple[Any, ...], *, with_arguments: bool
) -> SimulatedAttempt:
    """What is told of a row of `simulated_assignments`."""
    at, occurrence_at = row[7], row[10]
    return SimulatedAttempt(
        job_id=row[1],
        start_no=row[2],
        attempt=row[3],
        task=row[4],
        queue=row[5],
        step=row[6],
        at=_instant(at),
        schedule_id=row[9],
        occurrence_at=None if occurrence_at is None else _instant(occurrence_at),
        args=_arguments(row[11]) if with_arguments else None,
    )


# Several begin at an instant, which is mostly that of their schedules as well.
_instant = functools.lru_cache(maxsize=16)(from_ms)


# What is said -------------------------------------------------------------------------


def _checked_outcomes(given: Any) -> dict[str, Any]:
    found = _by_task(given, "outcomes")
    for task, how in found.items():
        if not callable(how) and how not in ENDS:
            raise _unknown(task, how)
    return found


def _checked_durations(given: Any) -> dict[str, Any]:
    found = _by_task(given, "task_duration")
    return {
        task: each
        if callable(each) or each == "history"
        else duration_ms(each, name="task_duration")
        for task, each in found.items()
    }


def _by_task(given: Any, name: str) -> dict[str, Any]:
    """For each task, and for all others (`*`), which are as recorded."""
    if not isinstance(given, Mapping):
        return {"*": given}
    for task in given:
        if not isinstance(task, str):
            raise ConfigurationError(
                f"{name} has the key {shown(task)}, which is not a text; give names of "
                'tasks, and "*" for all others'
            )
    return {"*": "history", **given}


def _document(task: str, said: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(said), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"outcomes={shown(said)} of task {task!r} is a document that is not JSON: "
            f"{error}; give texts, numbers, lists and objects"
        ) from error


def _raised(task: str, kind: type[BaseException]) -> BaseException:
    try:
        return kind()
    except Exception as error:
        raise ConfigurationError(
            f"outcomes={shown(kind)} of task {task!r} cannot be made without "
            f"arguments: {error}; give an exception that is made, {kind.__name__}(…)"
        ) from error


def _unknown(task: str, said: object) -> ConfigurationError:
    of = "" if task == "*" else f" of task {task!r}"
    return ConfigurationError(
        f"outcomes={shown(said)}{of} is not how an attempt can end; give 'ok', 'fail' "
        "or 'history', or a function that is given the attempt and returns one of "
        "these, 'timeout', 'crash', an exception, or an outcome document with its "
        "status"
    )
