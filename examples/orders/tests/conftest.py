"""Two ways to have the shop in a test: without its runner, and with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import services
from fastapi.testclient import TestClient
from shop import app, create_tables


class Bank:
    """Takes the place of the bank: it has an answer, and counts who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Exception | None = None

    def charge(self, reference: str) -> None:
        self.asked.append(reference)
        if self.answer is not None:
            raise self.answer


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> Bank:
    bank = Bank()
    monkeypatch.setattr(services, "charge_card", bank.charge)
    return bank


@pytest.fixture
def client(bank: Bank) -> TestClient:
    """Requests without the lifespan: no job runs unless the test runs it."""
    create_tables()
    return TestClient(app)


@pytest.fixture
def server(bank: Bank) -> Iterator[TestClient]:
    """The whole application, with a runner in the background."""
    with TestClient(app) as client:
        yield client


@pytest.fixture
def anyio_backend() -> str:
    """Where coroutines among the tests run; pytest has this of FastAPI's anyio."""
    return "asyncio"
