"""Programs in which eventlet has replaced threads, or what goes with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded.environments import python_with
from tests.embedded.greenlets import check_each_way

pytestmark = pytest.mark.embedded

PACKAGES = ("eventlet==0.41.3",)


def test_jobs_run_whichever_parts_were_replaced(tmp_path: Path) -> None:
    check_each_way(python_with(*PACKAGES), tmp_path, "eventlet")
