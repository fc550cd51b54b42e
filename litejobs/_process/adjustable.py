"""Values that modules read when they need them, so that others can hold for a while."""

from __future__ import annotations

from collections.abc import Iterator

from litejobs._values.blocks import block


class Adjustable:
    """Named values; a class of them says what they usually are."""

    @block
    def instead(self, **values: float) -> Iterator[None]:
        """Have other values within the block, as tests ask for.

        Raises:
            TypeError: There is no value of this name.
        """
        usual = type(self)
        for name in values:
            if name.startswith("_") or name not in vars(usual):
                raise TypeError(f"there is no {name!r} in {usual.__qualname__}")
        own = vars(self)
        before = dict(own)
        own.update(values)
        try:
            yield
        finally:
            own.clear()
            own.update(before)
