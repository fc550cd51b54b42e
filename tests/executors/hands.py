"""An executor that a test drives by hand, at the runner's side of the interface."""

from __future__ import annotations

from collections.abc import Callable

from litejobs.errors import TaskInterrupt
from litejobs.executors import Handle, TaskExecutor, Work


class Hand(Handle):
    """What is said to one work is written down; what can be done the executor says."""

    def __init__(self, hands: Hands, work: Work) -> None:
        self.hands = hands
        self.work = work
        self.said: list[tuple[str, str]] = []

    def tell(self, kind: type[TaskInterrupt]) -> None:
        self.said.append(("tell", kind.__name__))

    def end(self, kind: type[TaskInterrupt]) -> bool:
        self.said.append(("end", kind.__name__))
        return self.hands.can_end

    def kill(self, kind: type[TaskInterrupt]) -> bool:
        self.said.append(("kill", kind.__name__))
        if self.hands.can_kill and self.hands.kill_helps:
            self.work.failed(kind("its process was ended"))
        return self.hands.can_kill

    def drop(self) -> None:
        self.said.append(("drop", ""))
        if self.hands.drop_raises is not None:
            raise self.hands.drop_raises


class Hands(TaskExecutor):
    """Takes works; the test says when they begin and how they end."""

    def __init__(
        self, slots: int = 1, *, can_end: bool = False, can_kill: bool = False
    ) -> None:
        super().__init__(slots)
        self.can_end = can_end
        self.can_kill = can_kill
        self.kill_helps = True
        self.taken: list[Hand] = []
        self.log: list[str] = []
        self.away = False
        self.start_raises: BaseException | None = None
        self.close_raises: BaseException | None = None
        self.drop_raises: BaseException | None = None
        self.before_submit: Callable[[Work], object] = lambda work: None

    def start(self) -> None:
        if self.start_raises is not None:
            raise self.start_raises
        self.log.append("start")

    def submit(self, work: Work) -> Handle:
        self.before_submit(work)
        hand = Hand(self, work)
        self.taken.append(hand)
        return hand

    def close(self, grace: float) -> None:
        self.log.append("close")
        if self.close_raises is not None:
            raise self.close_raises

    @property
    def is_away(self) -> bool:
        return self.away

    def work(self, number: int = -1) -> Work:
        """The last one that was taken, or another."""
        return self.taken[number].work
