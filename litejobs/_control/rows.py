"""What settings have in common: they are read and written by named statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litejobs._storage.store import Store


class Rows:
    """What speaks to the file by named statements."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def _is_of_file(self, other: Rows) -> bool:
        """Whether both speak to the same file."""
        return self._store == other._store

    def _read(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        return self._store.rows(query, parameters)

    def _write(self, query: str, **parameters: Any) -> bool:
        """The statement is committed; whether it returned a row."""
        return self._store.change(query, parameters)
