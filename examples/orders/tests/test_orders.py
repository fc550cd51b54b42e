"""What an order enqueues, and what becomes of it: each job is run by the test."""

from __future__ import annotations

from typing import Any

import pytest
import services
from fastapi.testclient import TestClient
from shop import charge, confirm, find, jobs, remind, remind_all

from litejobs.testing import (
    Clock,
    Isolation,
    all_enqueued,
    assert_enqueued,
    enqueued,
    perform,
    refute_enqueued,
    running_as,
)


def order(client: TestClient, item: str = "chair") -> int:
    answer = client.post("/orders", params={"item": item, "email": "ann@example.com"})
    assert answer.status_code == 202
    number: int = answer.json()["id"]
    return number


def state(client: TestClient, number: int) -> str:
    found: str = client.get(f"/orders/{number}").json()["state"]
    return found


# What is enqueued ---------------------------------------------------------------------


def test_an_order_and_its_job_are_stored_together(client: TestClient) -> None:
    number = order(client)
    assert state(client, number) == "placed"
    assert_enqueued(charge, args={"order_id": number}, queue="bank", count=1)
    refute_enqueued(confirm)


def test_of_what_is_not_in_stock_nothing_is_stored(client: TestClient) -> None:
    answer = client.post("/orders", params={"item": "lamp", "email": "a@example.com"})
    assert answer.status_code == 404
    assert len(all_enqueued()) == 0
    with pytest.raises(LookupError, match="there is no order 1"):
        find(1)


@pytest.mark.parametrize("item", services.STOCK)
def test_each_test_begins_with_an_empty_file(client: TestClient, item: str) -> None:
    assert order(client, item) == 1
    assert [job.id for job in all_enqueued()] == [1]


def test_a_second_order_is_charged_by_itself(client: TestClient) -> None:
    order(client)
    with enqueued(charge, args={"order_id": 2}, count=1):
        order(client, "table")
    with enqueued() as new:
        client.get("/orders/1")
    assert list(new) == []


# What jobs do -------------------------------------------------------------------------


def test_who_has_paid_is_told(client: TestClient, bank: Any) -> None:
    number = order(client)
    with enqueued(confirm, args=[number], queue="mail", count=1):
        perform(charge, number)
    assert bank.asked == ["order 1"]
    assert state(client, number) == "paid"
    assert perform(confirm, number) == "To ann@example.com: your chair is paid"


def test_everything_at_once(client: TestClient) -> None:
    with jobs.inline():
        number = order(client)
    assert state(client, number) == "paid"
    assert jobs.counts() == {"completed": 2}


def test_one_job_after_the_other(client: TestClient) -> None:
    order(client)
    for task in ("charge", "confirm"):
        job = jobs.step()
        assert job is not None
        assert job.task == task
    assert jobs.step() is None


def test_only_what_the_bank_is_asked(client: TestClient) -> None:
    number = order(client)
    assert jobs.drain(queue="bank", raising=True) == 1
    assert state(client, number) == "paid"
    assert jobs.counts() == {"completed": 1, "pending": 1}


def test_a_task_is_a_function_in_its_own_transaction(
    client: TestClient, bank: Any
) -> None:
    number = order(client)
    with running_as(task="charge", attempt=2, jobs=jobs) as stand_in:
        charge(number)
    assert stand_in.committed
    assert bank.asked == ["order 1"]
    assert state(client, number) == "paid"


# What time does -----------------------------------------------------------------------


def test_a_bank_that_does_not_answer_is_asked_again(
    client: TestClient, bank: Any
) -> None:
    number = order(client)
    bank.answer = ConnectionError("no answer")
    with pytest.raises(ConnectionError):
        jobs.drain(raising=True)
    jobs.advance("1m")
    assert len(bank.asked) == 2
    bank.answer = None
    jobs.advance("2m")
    assert state(client, number) == "paid"
    [job] = all_enqueued(charge)
    assert [each.status for each in jobs.get(job.id).attempts] == [
        *("error", "error", "ok")
    ]


def test_it_is_asked_five_times(client: TestClient, bank: Any) -> None:
    number = order(client)
    bank.answer = ConnectionError("no answer")
    jobs.advance("1h", task="charge")
    assert bank.asked == ["order 1"] * 5
    assert state(client, number) == "placed"
    [job] = all_enqueued(charge)
    assert job.stopped_by == "rule_attempts"


def test_a_card_that_is_declined_is_not_tried_again(
    client: TestClient, bank: Any
) -> None:
    order(client)
    bank.answer = services.Declined("no money")
    jobs.advance("1d")
    assert bank.asked == ["order 1"]
    [job] = all_enqueued(charge)
    assert (job.state, job.stopped_by) == ("dead_lettered", "no_rule")


def test_who_has_not_paid_for_a_day_is_reminded_once_at_nine(
    client: TestClient, bank: Any, litejobs_clock: Clock
) -> None:
    litejobs_clock.set("2026-03-02 12:00")
    bank.answer = services.Declined("no money")
    number = order(client)
    jobs.advance("1d")  # nine o'clock has passed, and the order is 21 hours old then
    assert_enqueued(remind_all, count=1)
    refute_enqueued(remind)
    jobs.advance("7d")
    [job] = assert_enqueued(remind, args={"order_id": number}, count=1)
    assert f"{job.created_at:%d %H:%M}" == "04 08:00"  # in Berlin it is nine
    assert jobs.get(job.id).result() == "To ann@example.com: your chair waits"


def test_the_file_is_in_memory(litejobs_db: Isolation) -> None:
    jobs.open()
    assert litejobs_db.mode == "memory"
