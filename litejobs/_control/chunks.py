"""Much work in many short transactions, so that others get their turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from litejobs._process.clock import RealTime

if TYPE_CHECKING:
    from litejobs._storage.database import Database

MOST = 500  # things in one transaction
FEWEST = 25
STEP_TIME = 0.008  # seconds that the work of a transaction should take
REST = 2.0  # how many times as long as a transaction the others have afterwards
LEAST_REST = 0.002  # seconds

Opened = TypeVar("Opened")
Thing = TypeVar("Thing")
Done = TypeVar("Done")


def paced(
    found: Iterable[list[Thing]],
    transaction: Callable[[], AbstractContextManager[Opened]],
    work: Callable[[Opened, list[Thing]], Done],
    crowded: Callable[[], bool] | None = None,
) -> Iterator[Done]:
    """The *work* is done on all that is *found*, some at a time, with rests between.

    Each time it is given what the *transaction* has opened, and some of them. What
    it returns is passed on after the transaction; the rest comes before the next one,
    a short one where it is not *crowded*. As many are taken at once as can be done in
    STEP_TIME; how long the disk takes to store them is not their doing. Whoever stops
    asking stops the work; what was passed on is stored.
    """
    most, rest = FEWEST, 0.0
    for some in found:
        left = some[::-1]
        while left:
            now = [left.pop() for _ in range(min(most, len(left)))]
            if rest:
                alone = crowded is not None and not crowded()
                RealTime.sleep(LEAST_REST if alone else rest)
            with transaction() as opened:
                # It may have waited long for its turn.
                began = RealTime.monotonic()
                done = work(opened, now)
                worked = RealTime.monotonic() - began
            rest = max(LEAST_REST, (RealTime.monotonic() - began) * REST)
            wanted = len(now) * STEP_TIME / max(worked, 0.0001)
            most = int(max(FEWEST, min(MOST, wanted, most * 2)))
            yield done


def crowding(database: Database) -> Callable[[], bool]:
    """Tells, each time it is asked, whether others need their turns.

    A runner does while it lives, and so do other processes that have written since the
    question before.
    """
    seen = database.data_version()

    def crowded() -> bool:
        nonlocal seen
        before, seen = seen, database.data_version()
        return seen != before or bool(database.run("a_runner_lives")[0][0])

    return crowded
