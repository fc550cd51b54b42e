"""What PyInstaller collects of litejobs, beside what is imported by statements."""

from __future__ import annotations

import os

from PyInstaller.utils.hooks import (
    can_import_module,
    collect_submodules,
    copy_metadata,
    get_package_paths,
    is_module_satisfies,
)

# Tests import pytest, and migrations Alembic: a program that uses them imports them.
_ASIDE = ("litejobs.testing", "litejobs.contrib")
_BY_NAME = ("inotify_simple", "tzdata", "yaml")

_parent, _package = get_package_paths("litejobs")
_inside = os.path.join(_package, "sql")

# In a checkout that is installed as it is, it lies beside the package.
_sql = _inside if os.path.isdir(_inside) else os.path.join(_parent, "sql")
datas = [(_sql, "litejobs/sql")]
hiddenimports = collect_submodules(
    "litejobs", filter=lambda name: not name.startswith(_ASIDE)
)
hiddenimports += [name for name in _BY_NAME if can_import_module(name)]
for _name in ("litejobs", "cronsim"):
    if is_module_satisfies(_name):
        datas += copy_metadata(_name)
