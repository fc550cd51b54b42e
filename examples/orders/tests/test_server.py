"""The whole application, begun and ended as a server does, with its runner."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from shop import app, charge, confirm, create_tables, find, jobs

from litejobs.testing import all_enqueued, assert_enqueued, enqueued

ORDER = {"item": "chair", "email": "ann@example.com"}


@pytest.mark.parametrize("time", [1, 2, 3])
def test_an_order_is_paid_in_the_background(server: TestClient, time: int) -> None:
    number = server.post("/orders", params=ORDER).json()["id"]
    assert number == 1
    [job] = all_enqueued(charge)
    jobs.get(job.id).result(timeout=60)
    assert server.get(f"/orders/{number}").json() == {"id": 1, "state": "paid"}


def test_the_application_ends_and_begins_again() -> None:
    for number in (1, 2):
        with TestClient(app) as client:
            assert client.get("/health").status_code == 200
            assert client.post("/orders", params=ORDER).json()["id"] == number
    jobs.drain()  # what the runner has left
    assert find(1)["state"] == find(2)["state"] == "paid"


def test_a_day_with_its_runner(server: TestClient, bank: Any) -> None:
    bank.answer = ConnectionError("no answer")
    server.post("/orders", params=ORDER)
    jobs.advance("1d")  # leads the runner through it
    assert bank.asked == ["order 1"] * 5
    assert jobs.counts()["dead_lettered"] == 1


@pytest.mark.anyio
async def test_a_coroutine_asks_the_application(bank: Any) -> None:
    create_tables()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as to:
        with enqueued(charge, count=1):
            answer = await to.post("/orders", params=ORDER)
    await asyncio.to_thread(jobs.drain)
    job = await confirm.aenqueue(answer.json()["id"])
    await asyncio.to_thread(jobs.drain)
    assert await job == "To ann@example.com: your chair is paid"
    assert_enqueued(confirm, count=2)
    assert bank.asked == ["order 1"]
