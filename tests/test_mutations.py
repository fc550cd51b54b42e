"""Each mistake of the list in `tests/mutations` is noticed by the test beside it."""

from __future__ import annotations

import pytest

from tests.mutations import sources
from tests.mutations.__main__ import listed, try_all


def test_each_mistake_of_the_list_can_still_be_made() -> None:
    """Or the object has changed, and `find` has to look for others."""
    for known in listed():
        place = sources.place_of(known.mistake.name)
        text = sources.read(place.file)
        assert sources.mutated(place.file, text, known.mistake) != text


@pytest.mark.torture
def test_each_mistake_of_the_list_is_noticed() -> None:
    assert try_all(jobs=2, names=set()) == 0
