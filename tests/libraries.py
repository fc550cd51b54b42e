"""Libraries that applications use, which a test may need, and `[test]` does without."""

from __future__ import annotations

import importlib.util

import pytest


def needs(name: str) -> pytest.MarkDecorator:
    """Skips the test, or the case, where the library is not installed."""
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None,
        reason=f"{name} comes with the extra test-all",
    )
