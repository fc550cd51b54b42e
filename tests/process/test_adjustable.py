"""How long is waited and how much is done at once: tests ask for other values."""

from __future__ import annotations

import pytest

from litejobs._process.sizes import SIZES, other_sizes
from litejobs._process.timing import TIMES, other_times


def test_other_times_hold_within_the_block_alone() -> None:
    usual = TIMES.lock_pause, TIMES.late
    with other_times(lock_pause=0.5):
        with other_times(late=0.25, lock_pause=0.0):
            assert (TIMES.lock_pause, TIMES.late) == (0.0, 0.25)
        assert (TIMES.lock_pause, TIMES.late) == (0.5, usual[1])
    assert (TIMES.lock_pause, TIMES.late) == usual


def test_other_sizes_leave_the_times_as_they_are() -> None:
    usual, times = SIZES.most_at_once, dict(vars(TIMES))
    with other_sizes(most_at_once=5):
        assert SIZES.most_at_once == 5
        assert vars(TIMES) == times
    assert SIZES.most_at_once == usual


def test_a_value_that_there_is_not_is_refused() -> None:
    before = dict(vars(TIMES))
    for name in ("lock_puase", "instead", "__doc__", "most_at_once"):
        with (
            pytest.raises(TypeError, match=f"^there is no '{name}' in Times$"),
            other_times(late=0.0, **{name: 0.0}),
        ):
            pass
    assert vars(TIMES) == before
