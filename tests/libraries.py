"""Libraries that applications use, which a test may need, and `[test]` does without."""

from __future__ import annotations

import functools
import importlib.util

import pytest


def needs(name: str) -> pytest.MarkDecorator:
    """Skips the test, or the case, where the library is not installed."""
    return pytest.mark.needs(name)


def skip_where_missing(items: list[pytest.Item]) -> None:
    """Tests that need what is not installed are skipped, and say so."""
    for item in items:
        for mark in item.iter_markers("needs"):
            [name] = mark.args
            if not _is_there(name):
                reason = f"{name} comes with the extra test-all"
                item.add_marker(pytest.mark.skip(reason=reason))


@functools.cache
def _is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
