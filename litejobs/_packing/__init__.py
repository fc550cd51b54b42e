"""How litejobs is put into programs that are packed or frozen; imports nothing of it.

`hook-litejobs.py` is what PyInstaller reads when it freezes a program that imports
litejobs: the entry point `hook-dirs` of the group `pyinstaller40` leads there.
"""

from __future__ import annotations

import os


def hook_dirs() -> list[str]:
    """Return the folders in which PyInstaller finds hooks of ours."""
    return [os.path.dirname(__file__)]
