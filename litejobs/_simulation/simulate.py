"""What is asked of a simulation, and how the answer comes about."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from litejobs._control.simulation import judge_by
from litejobs._definitions.checks import check_limit, did_you_mean, listed, shown, whole
from litejobs._definitions.milliseconds import duration_ms, from_ms, instant_ms
from litejobs._definitions.policy import Policy
from litejobs._process import log
from litejobs._process.sizes import SIZES
from litejobs._schedules import planner
from litejobs._simulation import engine
from litejobs._simulation.attempts import Endings
from litejobs._simulation.copies import Copy, Origin, copies
from litejobs._simulation.findings import Findings, Simulation, part_of
from litejobs._storage.files import MEMORY
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.runner_lock import runner_lives
from litejobs._storage.statements import queries
from litejobs._values.text import one_line
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from litejobs._definitions.policy import Duration
    from litejobs._storage.store import Store

SECONDS_PER_ATTEMPT = 0.0004
MOST_THREADS = 1_000_000
MOST_PARTS = 10_000
KINDS = ("queue", "task", "schedule")


@attrs.frozen(kw_only=True)
class WhatIf:
    """What would be otherwise: policies by task ("*" is every task), and threads."""

    label: str = ""
    policies: Mapping[str, Policy] = attrs.field(factory=dict)
    threads: int | None = None


@attrs.frozen(kw_only=True)
class Question:
    """What is simulated, as `LiteJobs.simulate` is asked for it."""

    until: Any = "7d"
    outcomes: Any = "history"
    task_duration: Any = "history"
    without: Any = None
    threads: int | None = None
    seed: int = 0
    part: Any = None
    limit: int = 1_000_000
    listed: int = 20
    events: bool = False


def of_store(
    store: Store,
    question: Question,
    cases: Sequence[WhatIf],
    *,
    told: Callable[[float, int, int], None] | None,
) -> list[Simulation]:
    """See `LiteJobs.simulate`."""
    database = store.database
    if database.in_transaction():
        raise LiteJobsError(
            "simulate() was called inside a transaction, which would last as long as "
            "that takes; call it after the block"
        )
    lives = (
        database.runs.locked()
        if store.path == MEMORY
        else runner_lives(store.path) is not False
    )
    origin = Origin(path=store.path, reading=store.reader)
    return simulated(origin, question, cases, runner_lives=lives, told=told)


def simulated(
    origin: Origin,
    question: Question,
    cases: Sequence[WhatIf] = (WhatIf(),),
    *,
    runner_lives: bool,
    told: Callable[[float, int, int], None] | None = None,
) -> list[Simulation]:
    """Simulate each of the *cases*, all on the same file at the same moment.

    Raises:
        ConfigurationError: Something that is asked for cannot be.
        FileRefused: The file is not as litejobs made it.
        LiteJobsError: It could not go on.
    """
    _check(question)
    without = _without(question.without)
    found = []
    with copies(origin, len(cases)) as made:
        for number, (copy, case) in enumerate(zip(made, cases, strict=True)):
            found.append(
                _simulated(
                    copy,
                    origin.path,
                    question,
                    case,
                    without,
                    runner_lives=runner_lives,
                    told=_share(told, number, len(cases)),
                )
            )
            # What it has taken is needed for the next one.
            copy.connection.close()
    return found


def _share(
    told: Callable[[float, int, int], None] | None, number: int, cases: int
) -> Callable[[float, int, int], None]:
    def tell(part: float, attempts: int, expected: int) -> None:
        if told is not None:
            told((number + part) / cases, attempts, expected * cases)

    return tell


def _simulated(
    copy: Copy,
    path: str,
    question: Question,
    case: WhatIf,
    without: Mapping[str, list[str]],
    *,
    runner_lives: bool,
    told: Callable[[float, int, int], None],
) -> Simulation:
    db = copy.connection
    until = _until(question.until, copy.began_ms)
    endings = Endings(
        db,
        outcomes=question.outcomes,
        durations=question.task_duration,
        seed=question.seed,
    )
    tasks = [
        str(name)
        for kind, name in db.execute(queries()["simulated_names"]).fetchall()
        if kind == "task"
    ]
    endings.check_names(tasks)
    _try_policies(db, case.policies, tasks)
    begun = engine.begin(
        copy,
        until=until,
        threads=case.threads or question.threads,
        runner_lives=runner_lives,
        without=without,
    )
    expected = _expected(db, begun)
    told(0.0, 0, expected)
    if expected > SIZES.simulated_untold:
        log.info(
            "simulating %s: about %d attempts are expected, which take about %d s",
            *(path, expected, expected * SECONDS_PER_ATTEMPT),
        )
    went = engine.Engine(copy, begun, endings).run(
        question.limit, lambda part, attempts: told(part, attempts, expected)
    )
    told(1.0, went.attempts, expected)
    part_ms = (
        part_of(until - begun.start)
        if question.part is None
        else _checked_part(question.part, until - begun.start)
    )
    findings = Findings(db, begun, went, part_ms, question.listed)
    return Simulation(
        path=path,
        label=case.label,
        seed=question.seed,
        threads=begun.threads,
        from_at=from_ms(begun.start),
        until_at=from_ms(until),
        reached_at=from_ms(went.reached),
        complete=went.reached >= until,
        part_ms=part_ms,
        **findings.all(),
        assumptions=endings.assumptions(),
        notes=[*begun.notes, *_never_due(db)],
        events=findings.events() if question.events else None,
    )


def _never_due(db: apsw.Connection) -> list[str]:
    """Schedules that nobody can plan: what they would bring is not there."""
    rows: list[Any] = fetch_lossy(db, queries()["schedules_invalid"], None)[1]
    return [
        f"the schedule {one_line(name)} cannot be planned, and brings nothing: "
        f"{one_line(reason)}"
        for name, reason in rows
    ]


def _expected(db: apsw.Connection, begun: engine.Begun) -> int:
    """How many attempts there may be: of jobs that are there, and of schedules."""
    load: Any = db.execute(queries()["simulated_load"]).fetchone()
    jobs, attempts_each = load
    times = {"start": begun.start, "until": begun.until}
    rows: list[Any] = db.execute(queries()["simulated_calendars"], times).fetchall()
    for _, expression, timezone, every_ms, anchor_ms, from_at, to_at, most in rows:
        occurrences = planner.occurrences(
            expression, timezone, every_ms, anchor_ms, after_at=from_at, to_at=to_at
        )
        jobs += occurrences if most is None else min(most, occurrences)
    expected: int = math.ceil(jobs * attempts_each)
    return expected


def _try_policies(
    db: apsw.Connection, policies: Mapping[str, Policy], tasks: list[str]
) -> None:
    """Each policy is in force for its task, as if its code said nothing else."""
    if not policies:
        return
    everywhere = policies.get("*")
    given = dict.fromkeys(tasks, everywhere) if everywhere is not None else {}
    for task, policy in {**given, **policies}.items():
        if task == "*" or policy is None:
            continue
        if task not in tasks:
            raise ConfigurationError(
                f"what_if names the task {shown(task)}, which the file does not know; "
                f"{did_you_mean(task, tasks)}see litejobs tasks"
            )
        judge_by(db, task, "", policy)


# What is asked ------------------------------------------------------------------------


def _check(question: Question) -> None:
    check_limit(question.limit)
    whole("seed", question.seed, -(2**63), 2**63 - 1)
    if question.threads is not None:
        whole("threads", question.threads, 1, MOST_THREADS)


def _until(until: dt.datetime | Duration, now_ms: int) -> int:
    if isinstance(until, dt.datetime):
        found = instant_ms(until, name="until")
    else:
        found = now_ms + duration_ms(until, name="until")
    if found <= now_ms:
        raise ConfigurationError(
            f"until={_instant(until)} is not in the future of this file, where it is "
            f"{from_ms(now_ms).isoformat(timespec='seconds')}; give a later instant, "
            "or a duration such as '7d'"
        )
    return found


def _instant(until: dt.datetime | Duration) -> str:
    return until.isoformat() if isinstance(until, dt.datetime) else shown(until)


def _checked_part(part: Any, span_ms: int) -> int:
    found = duration_ms(part, name="part")
    if not found or span_ms / found > MOST_PARTS:
        raise ConfigurationError(
            f"part={shown(part)} makes too many parts; give a duration of which "
            f"{MOST_PARTS} make up the time, or more"
        )
    return found


def _without(given: Any) -> dict[str, list[str]]:
    """Names by kind (`queues`, `tasks`, `schedules`)."""
    found: dict[str, list[str]] = {}
    for kind, names in _pairs(given):
        if kind not in KINDS:
            raise ConfigurationError(
                f"without names {shown(kind)}, which is none of {listed(KINDS)}; say "
                "without={'queue': 'mail'}"
            )
        several = [names] if isinstance(names, str) else names
        if not isinstance(several, Iterable) or isinstance(several, bytes):
            raise ConfigurationError(
                f"without={{{kind!r}: {shown(names)}}} is not a name; give one, or a "
                "list of them: without={'queue': 'mail'}"
            )
        found.setdefault(f"{kind}s", []).extend(several)
    return found


def _pairs(given: Any) -> Iterable[tuple[str, Any]]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return list(given.items())
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Iterable):
        raise ConfigurationError(
            f"without={shown(given)} says not what to leave out; give "
            "without={'queue': 'mail'}"
        )
    pairs = []
    for text in texts:
        kind, sign, name = str(text).partition("=")
        if not sign or not name:
            raise ConfigurationError(
                f"without={one_line(str(text))!r} says not what to leave out; give "
                "queue=NAME, task=NAME or schedule=NAME"
            )
        pairs.append((kind, name))
    return pairs


def case_of(what_if: Policy | Mapping[str, Policy] | None, label: str = "") -> WhatIf:
    """The case that is meant: policies of all tasks, or of those that are named."""
    if what_if is None:
        return WhatIf(label=label)
    if not isinstance(what_if, Policy | Mapping):
        raise ConfigurationError(
            f"what_if={shown(what_if)} is not a Policy; make one with Policy(…) or "
            "Policy.from_dict(…), or give some by task: {'send': Policy(…)}"
        )
    policies = {"*": what_if} if isinstance(what_if, Policy) else dict(what_if)
    for task, policy in policies.items():
        if not isinstance(policy, Policy):
            raise ConfigurationError(
                f"what_if={{{task!r}: {shown(policy)}}} is not a Policy; make one with "
                "Policy(…) or Policy.from_dict(…)"
            )
    return WhatIf(label=label, policies=policies)
