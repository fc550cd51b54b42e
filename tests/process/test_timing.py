"""How long runners wait: in one place, where tests ask for other times."""

from __future__ import annotations

import pytest

from litejobs._process.timing import TIMES, other_times


def test_other_times_hold_within_the_block_alone() -> None:
    usual = TIMES.lock_pause, TIMES.late
    with other_times(lock_pause=0.5):
        with other_times(late=0.25, lock_pause=0.0):
            assert (TIMES.lock_pause, TIMES.late) == (0.0, 0.25)
        assert (TIMES.lock_pause, TIMES.late) == (0.5, usual[1])
    assert (TIMES.lock_pause, TIMES.late) == usual


def test_a_time_that_there_is_not_is_refused() -> None:
    before = dict(vars(TIMES))
    with (
        pytest.raises(TypeError, match=r"a runner has no time 'lock_puase'; see "),
        other_times(late=0.0, lock_puase=0.0),
    ):
        pass
    assert vars(TIMES) == before
