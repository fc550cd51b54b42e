"""What tests of the runner have at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.waiting import Gate


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Opened at the end of the test, if it was not before."""
    gate = Gate()
    yield gate
    gate.go.set()
