"""Words that are slips: which of those that there are was meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(known: Iterable[str], name: str) -> str:
    """`; did you mean send?`, or nothing where *name* is like none of the *known*.

    It is for the end of a sentence; names of the file are escaped by who prints it.
    """
    like = similar(known, name)
    return f"; did you mean {like}?" if like else ""


def similar(known: Iterable[str], name: str) -> str | None:
    """The one of the *known* names that is most like *name*, if any is; not itself.

    A capital makes no difference, nor does what stands between words.
    """
    from difflib import get_close_matches

    plain = {_plain(each): each for each in known if each != name}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=0.65)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")[:64]
