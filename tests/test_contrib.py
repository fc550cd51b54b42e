"""What other libraries are given, without those; with them see tests/clients."""

from __future__ import annotations

import pytest

from litejobs.contrib import alembic
from tests.test_import import modules_after


@pytest.mark.parametrize(
    ("name", "kind", "is_included"),
    [
        ("litejobs_job", "table", False),
        ("LITEJOBS_JOB", "table", False),
        ("litejobs_outbox", "table", False),
        ("orders", "table", True),
        ("litejobs", "table", True),
        ("litejobs_id", "column", True),  # of a table of the application
        (None, "schema", True),
        (None, "unique_constraint", True),
    ],
)
def test_alembic_is_told_to_leave_out_the_tables_of_litejobs_alone(
    name: str | None, kind: str, is_included: bool
) -> None:
    parents = {"schema_name": None, "table_name": "orders"}
    assert alembic.include_name(name, kind, parents) is is_included
    for reflected in (True, False):
        answer = alembic.include_object(object(), name, kind, reflected, None)
        assert answer is is_included


def test_importing_a_filter_brings_neither_the_library_nor_the_jobs() -> None:
    brought = modules_after("import litejobs.contrib.alembic")
    assert not {"alembic", "litejobs._app", "litejobs._storage"} & brought
