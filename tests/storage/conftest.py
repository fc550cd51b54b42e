"""What tests of files have at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schemas import tomorrow


@pytest.fixture(scope="session")
def next_sql(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the schema that comes next."""
    return tomorrow.make(tmp_path_factory.mktemp("next"))
