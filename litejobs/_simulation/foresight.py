"""`LiteJobs.simulate`: what is loaded where nobody simulates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable

    from litejobs._definitions.policy import Duration, Policy
    from litejobs._simulation.attempts import Durations, Outcomes
    from litejobs._simulation.comparison import Comparison
    from litejobs._simulation.findings import Simulation
    from litejobs._storage.store import Store


class Foresight:
    """The part of `LiteJobs` that says what would happen."""

    _store: Store

    def simulate(
        self,
        until: dt.datetime | Duration = "7d",
        *,
        outcomes: Outcomes = "history",
        task_duration: Durations = "history",
        what_if: Policy | Mapping[str, Policy] | None = None,
        without: Mapping[str, str | Iterable[str]] | str | Iterable[str] | None = None,
        threads: int | None = None,
        seed: int = 0,
        part: Duration | None = None,
        limit: int = 1_000_000,
        events: bool = False,
        told: Callable[[float, int, int], None] | None = None,
    ) -> Simulation:
        """Find out what will happen in this file up to *until*, a duration or instant.

        A copy of the file, with a clock of its own, goes from instant to instant; what
        happens there is decided by the triggers that decide for the real jobs. The file
        is only read, no task is run, and nothing else of the process sees that clock.

        How attempts end is drawn from what was recorded of their task, the latest
        1,000 of each step, retries apart from first attempts, the same for the same
        *seed*: or all end "ok", or "fail" (as recorded failures, if there are any).
        *outcomes* can also be a function, which is given a `SimulatedAttempt` and
        returns one of these, "timeout", "crash", an exception that the task raises, or
        an outcome document; or a mapping of tasks to any of that ("*" is all others).
        *task_duration* says in the same way how long they run: "history", a duration,
        a function, or a mapping. Of a task without a past they end well after a second.

        *what_if* is a policy that all tasks would have, or policies by task, instead of
        theirs; *without* leaves out a queue, a task or a schedule, as
        `{"queue": "mail"}`. *threads* run at once: as many as the runner has that
        lives, or 8. The timeline has parts of one length, *part* if that is given. At
        most *limit* attempts begin. With *events* the log is returned as well. *told*
        is called now and then with which part of the time is over, how many attempts
        have begun, and how many are expected: at the beginning, too.

        A file of more than 256 MB is copied to the disk for temporary files, a smaller
        one into memory. Attempts that run now go on, if their runner lives.

        Raises:
            ConfigurationError: Something that is asked for cannot be.
            FileRefused: The file is not as litejobs made it.
            DatabaseFull: There is no room for the copy.
            LiteJobsError: It cannot go on: a trigger of the application refuses what
                is to happen, or there is no end of what happens at one instant.
        """
        from litejobs._simulation import simulate as _simulate

        [found] = _simulate.of_store(
            self._store,
            _simulate.Question(
                until=until,
                outcomes=outcomes,
                task_duration=task_duration,
                without=without,
                threads=threads,
                seed=seed,
                part=part,
                limit=limit,
                events=events,
            ),
            [_simulate.case_of(what_if)],
            told=told,
        )
        return found

    def simulate_cases(
        self,
        cases: Mapping[str, Policy | Mapping[str, Policy] | None],
        until: dt.datetime | Duration = "7d",
        *,
        outcomes: Outcomes = "history",
        task_duration: Durations = "history",
        without: Mapping[str, str | Iterable[str]] | str | Iterable[str] | None = None,
        threads: int | None = None,
        seed: int = 0,
        part: Duration | None = None,
        limit: int = 1_000_000,
        told: Callable[[float, int, int], None] | None = None,
    ) -> Comparison:
        """Find out what differs between *cases*, of the file at one moment.

        Each is what `simulate` is given as *what_if*, by a name: `{"as it is": None,
        "patient": policy}`. The other options are those of `simulate`, and hold for
        all of them.

        Raises:
            ConfigurationError: There is no case, or something else cannot be.
            LiteJobsError: As `simulate`.
        """
        from litejobs._simulation import simulate as _simulate

        if not cases or not isinstance(cases, Mapping):
            raise ConfigurationError(
                "cases names none; name some, as {'as it is': None, 'other': policy}"
            )
        first, *others = _simulate.of_store(
            self._store,
            _simulate.Question(
                until=until,
                outcomes=outcomes,
                task_duration=task_duration,
                without=without,
                threads=threads,
                seed=seed,
                part=part,
                limit=limit,
            ),
            [_simulate.case_of(each, str(label)) for label, each in cases.items()],
            told=told,
        )
        return first.compare(*others)
