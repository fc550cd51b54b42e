"""In a connection to Dask answers are told together where nothing waits for them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from litejobs._executors.dask import words
from litejobs._executors.dask.cluster import Cluster
from tests.libraries import needs
from tests.waiting import eventually

pytestmark = needs("distributed")

ANSWER = json.dumps(["{}", False, "a worker", None, None])


class Work:
    """What is told of an attempt."""

    def __init__(self, number: int, told: list[int]) -> None:
        self.number = number
        self.told = told

    def begun(self) -> None:
        """It is known by its answer."""

    def answer(self, _: Any) -> None:
        self.told.append(self.number)


def link(count: int, told: list[int]) -> Any:
    """A connection with so many attempts, to workers with one thread."""
    from litejobs._executors.dask.link import Link

    link = Link(Cluster("tcp://127.0.0.1:1"), {}, lambda _: None)
    link._works = {str(each): (Work(each, told), None) for each in range(count)}
    link._hear(["", words.THREADS, "1"])
    return link


def hear(link: Any, *numbers: int) -> None:
    for each in numbers:
        link._hear([str(each), words.ANSWER, ANSWER])


def test_answers_are_told_together_where_many_wait() -> None:
    async def story() -> None:
        told: list[int] = []
        one = link(20, told)
        hear(one, 0, 1)
        assert told == []
        # They are an eighth of what waits.
        hear(one, 2)
        assert told == [0, 1, 2]
        hear(one, 3)
        assert told == [0, 1, 2]
        # Nobody knows when the next one comes.
        await asyncio.to_thread(eventually, lambda: len(told) == 4)

    asyncio.run(story())


@pytest.mark.parametrize("what", ["few", "no threads"])
def test_an_answer_is_told_at_once_where_a_worker_may_wait(what: str) -> None:
    async def story() -> None:
        told: list[int] = []
        one = link(5 if what == "few" else 50, told)
        if what == "no threads":
            one._hear(["", words.THREADS, "0"])
        hear(one, 0)
        assert told == [0]

    asyncio.run(story())
