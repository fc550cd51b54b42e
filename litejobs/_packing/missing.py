"""What is said where a part of litejobs cannot be imported."""

from __future__ import annotations

import os
import sys
from typing import Any


def cannot_import(what: str, error: Exception) -> ImportError:
    """Return an error that names the reason, where it would be lost or hard to read."""
    apsw: Any = sys.modules.get("apsw")
    if isinstance(error, ImportError):
        is_apsw = error.name == "apsw" or str(error.name).startswith("apsw.")
    else:
        is_apsw = getattr(error, "obj", None) is apsw or not hasattr(apsw, "Connection")
    told = f"{type(error).__name__}: {error}"
    if not is_apsw:
        return ImportError(f"{what} cannot be imported: {told}", name=what)
    places = [*getattr(apsw, "__path__", ())]
    archive = next(filter(None, map(_archive_with_apsw, [*places, *sys.path])), None)
    if archive is not None:
        sentence = (
            "litejobs needs apsw, a part of which is compiled, and Python loads no "
            f"such part from within an archive ({archive}); build the program with "
            "shiv or pex, which unpack theirs, or install apsw outside of the archive"
        )
    elif isinstance(error, ModuleNotFoundError):
        sentence = f"litejobs needs apsw ({told}); pip install apsw"
    else:
        place = f" in {places[0]}" if places else ""
        sentence = (
            f"litejobs needs apsw 3.53 or newer, and what is installed{place} cannot "
            f"be used ({told}); pip install --upgrade --force-reinstall apsw"
        )
    return ImportError(sentence, name="apsw")


def _archive_with_apsw(path: str) -> str | None:
    """The archive that this path is, or leads into, if it has files of apsw."""
    import zipfile

    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    if not os.path.isfile(path) or not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return path if any(f"/{each}".count("/apsw/") for each in names) else None
