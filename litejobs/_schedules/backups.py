"""Scheduled backups: what the code says of them, and the task that makes them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from litejobs._definitions.checks import RESERVED, check_name, name_text, shown
from litejobs._storage import files
from litejobs._storage.rotation import back_up
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._storage.store import Store

MOST = 10_000  # that are kept


class Backup(NamedTuple):
    """Where backups of a schedule go, how they are called, and how many are kept."""

    name: str
    folder: str
    keep: int

    @classmethod
    def of(cls, folder: str | os.PathLike[str], keep: int, name: str) -> Self:
        """The same, checked.

        Raises:
            ConfigurationError: A value cannot work.
        """
        check_name("schedule", name_text("schedule", name))
        if re.fullmatch(r"[A-Za-z0-9._-]+", name) is None or not name.strip("."):
            raise ConfigurationError(
                f"name={shown(name)} is a part of the names of files; use letters, "
                "digits, '.', '_' and '-'"
            )
        if isinstance(keep, bool) or not isinstance(keep, int) or not 0 < keep <= MOST:
            raise ConfigurationError(
                f"keep={keep!r} backups cannot be kept; give a number from 1 to "
                f"{MOST:,}"
            )
        return cls(name, os.path.abspath(files.plain_name(folder)), keep)

    @property
    def label(self) -> str:
        """What stands in the names of its files."""
        return self.name.removeprefix(RESERVED)

    def arguments(self) -> dict[str, Any]:
        """What its jobs are called with: for people, since the code is believed."""
        return self._asdict()


class Backups:
    """What the code of one `LiteJobs` object says of backups."""

    def __init__(self, store: Store) -> None:
        self.known: dict[str, Backup] = {}
        self._store = store

    def make(self, name: str, folder: str, keep: int) -> dict[str, object]:  # noqa: ARG002 - for people
        """Make one. Whoever writes to the file cannot say where files are deleted."""
        known = self.known.get(name)
        if known is None or known.folder != folder:
            raise ConfigurationError(
                f"no schedule_backup() of this program has the name {shown(name)} and "
                f"the folder {shown(folder)}; declare it, or remove the schedule"
            )
        return back_up(self._store.database, folder, known.label, known.keep)
