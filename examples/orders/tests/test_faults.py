"""What the shop does when something goes wrong around it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from shop import app, charge, find, jobs

from litejobs.errors import DatabaseBusy, DatabaseFull
from litejobs.testing import all_enqueued, faults

ORDER = {"item": "chair", "email": "ann@example.com"}


@pytest.mark.parametrize("moment", ["claim", "settle"])
def test_an_order_is_paid_once_although_the_process_is_killed(
    client: TestClient, bank: Any, moment: Any
) -> None:
    client.post("/orders", params=ORDER)
    with faults(kill_at=moment):
        jobs.drain()
    jobs.advance("5s")
    assert find(1)["state"] == "paid"
    # Paid and done are one commit: only a kill before it has the bank asked again.
    assert len(bank.asked) == 1
    [job] = all_enqueued(charge)
    assert jobs.get(job.id).state == "completed"


@pytest.mark.litejobs_isolation("file")
def test_a_full_disk_takes_no_order_and_loses_none(client: TestClient) -> None:
    with faults(full=True) as told, pytest.raises(DatabaseFull):
        client.post("/orders", params=ORDER)
    assert told.struck["full"] > 0
    assert len(all_enqueued()) == 0
    assert client.post("/orders", params=ORDER).json()["id"] == 1


@pytest.mark.litejobs_isolation("file")
def test_a_file_that_is_busy_is_answered_with_an_error(client: TestClient) -> None:
    answers = TestClient(app, raise_server_exceptions=False)
    with faults(busy=True):
        assert answers.post("/orders", params=ORDER).status_code == 500
        with pytest.raises(DatabaseBusy):
            client.post("/orders", params=ORDER)
    assert client.post("/orders", params=ORDER).status_code == 202
