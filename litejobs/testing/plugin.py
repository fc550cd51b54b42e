"""The pytest plugin: the clock is held for the whole session.

pytest loads it by itself where litejobs is installed. From a plain checkout, a
`conftest.py` names it: `pytest_plugins = ["litejobs.testing.plugin"]`; where it is
loaded already, this does no harm.

The ini option `litejobs_clock = real` keeps SQLite on real time, and `-p no:litejobs`
leaves the plugin out.
"""

from __future__ import annotations

import sys

import pytest

from litejobs.testing import hold_clock, release_clock

_NAMES = ("litejobs", "litejobs.testing.plugin")

_holds_clock = pytest.StashKey[bool]()


class _OtherName:
    """Stands in pytest's list of plugins for the name the plugin was not loaded by."""


def pytest_plugin_registered(
    plugin: object, manager: pytest.PytestPluginManager
) -> None:
    """Register the plugin under both its names.

    pytest stops with an error when one plugin is loaded as an entry point and by the
    name of its module. With both names taken, the second load is passed over.
    """
    if plugin is sys.modules[__name__]:
        for name in _NAMES:
            if not manager.has_plugin(name):
                manager.register(_OtherName(), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the ini option `litejobs_clock`."""
    parser.addini(
        "litejobs_clock",
        "where SQLite takes the time from: 'held' asks Python, so that freezegun and "
        "time-machine move litejobs (default); 'real' asks the operating system",
        default="held",
    )


@pytest.hookimpl(tryfirst=True)  # before other plugins open a database
def pytest_configure(config: pytest.Config) -> None:
    """Hold the clock, unless the ini option says otherwise."""
    clock = config.getini("litejobs_clock")
    if clock not in ("held", "real"):
        message = (
            f"the ini option litejobs_clock is {clock!r}; "
            "write 'held' (SQLite asks Python for the time) or 'real'."
        )
        raise pytest.UsageError(message)
    if clock == "held":
        hold_clock()
        config.stash[_holds_clock] = True


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the hold of this session back."""
    if config.stash.get(_holds_clock, False):
        config.stash[_holds_clock] = False
        release_clock()


# Fixtures: what a test asks for by name.
