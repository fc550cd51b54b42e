"""The pytest plugin: a held clock, and jobs files of their own for tests that ask.

pytest loads it by itself where litejobs is installed. From a plain checkout, a
`conftest.py` names it: `pytest_plugins = ["litejobs.testing.plugin"]`; where it is
loaded already, this does no harm.

The ini option `litejobs_clock = real` keeps SQLite on real time, and `-p no:litejobs`
leaves the plugin out. `litejobs_isolation = memory` (or `file`) gives every test fresh
files, and the marker `litejobs_isolation` says otherwise for one test. That is not so
by default, since a suite may well share a file on purpose: with a program that it
starts, or from a test to the next.

`--litejobs-coverage` tells at the end what of the schedule logic the tests exercised,
`--litejobs-coverage-html=FILE` writes that as a page, too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from litejobs._values.blocks import block

if TYPE_CHECKING:
    from litejobs.testing.clocks import Clock
    from litejobs.testing.isolation import Isolation

_NAMES = ("litejobs", "litejobs.testing.plugin")
_MODES = ("off", "memory", "file")
_OPTION = "litejobs_isolation"

_has_begun = pytest.StashKey[bool]()
_holds_clock = pytest.StashKey[bool]()
_whole_run = pytest.StashKey[contextlib.ExitStack]()
_of_test = pytest.StashKey["Isolation"]()


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
    """Register the ini options, and the options of coverage."""
    group = parser.getgroup("litejobs", "jobs of litejobs")
    group.addoption(
        "--litejobs-coverage",
        action="store_true",
        help="tell which states, moves, rules, reasons and triggers were exercised",
    )
    group.addoption(
        "--litejobs-coverage-html",
        metavar="FILE",
        help="write that as a page to FILE, too",
    )
    parser.addini(
        "litejobs_clock",
        "where SQLite takes the time from: 'held' asks Python, so that freezegun and "
        "time-machine move litejobs (default); 'real' asks the operating system",
        default="held",
    )
    parser.addini(
        _OPTION,
        "which jobs files a test has: 'memory' or 'file' gives every LiteJobs object a "
        "fresh one for each test, whatever its path; 'off' leaves them as they are "
        "(default)",
        default="off",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before a conftest or another plugin imports the application."""
    _begin(early_config)


@pytest.hookimpl(tryfirst=True)  # before other plugins open a database
def pytest_configure(config: pytest.Config) -> None:
    """Begin now, where a conftest has named the plugin, and describe the marker."""
    _begin(config)
    config.addinivalue_line(
        "markers",
        f"{_OPTION}(mode): the jobs files of this test: 'memory', 'file', or 'off' to "
        "share those of the run",
    )
    page = config.getoption("--litejobs-coverage-html")
    if page is not None or config.getoption("--litejobs-coverage"):
        from litejobs.testing.coverage_plugin import Coverage

        config.pluginmanager.register(Coverage(page), "litejobs-coverage")


def _begin(config: pytest.Config) -> None:
    """The clock is held, and the whole run isolated, as the ini options say."""
    if config.stash.get(_has_begun, False):
        return
    config.stash[_has_begun] = True
    clock = config.getini("litejobs_clock")
    if clock not in ("held", "real"):
        message = (
            f"the ini option litejobs_clock is {clock!r}; "
            "write 'held' (SQLite asks Python for the time) or 'real'."
        )
        raise pytest.UsageError(message)
    mode = config.getini(_OPTION)
    if mode not in _MODES:
        message = (
            f"the ini option {_OPTION} is {mode!r}; write 'memory' or 'file' (fresh "
            "jobs files for each test) or 'off'."
        )
        raise pytest.UsageError(message)
    if clock == "held":
        from litejobs._process.clock import hold_clock

        hold_clock()
        config.stash[_holds_clock] = True
    if mode != "off":
        from litejobs.testing.isolation import isolated

        # What is opened outside of tests, by fixtures of a module, say, is not a file
        # of the application either.
        stack = config.stash[_whole_run] = contextlib.ExitStack()
        from litejobs.errors import LiteJobsError

        try:
            stack.enter_context(isolated(mode, clock=clock))
        except LiteJobsError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(_EveryTest(), "litejobs-every-test")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the hold of this session back."""
    stack = config.stash.get(_whole_run, None)
    if stack is not None:
        stack.close()
    if config.stash.get(_holds_clock, False):
        from litejobs._process.clock import release_clock

        config.stash[_holds_clock] = False
        release_clock()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Isolate the tests that say so by their marker, where not all are."""
    for item in items:
        marker = item.get_closest_marker(_OPTION)
        names = getattr(item, "fixturenames", None)
        if marker is not None and marker.args != ("off",) and names is not None:
            names.insert(0, "litejobs_db")


# Fixtures: what a test asks for by name.


@block
def _isolated_test(request: pytest.FixtureRequest) -> Iterator[Isolation | None]:
    """The test has files of its own, unless its marker says that it has not."""
    node = request.node
    known = node.stash.get(_of_test, None)
    if known is not None:
        yield known
        return
    mode = _mode_of(request)
    if mode == "off":
        yield None
        return
    from litejobs.testing.isolation import isolated

    clock = request.config.getini("litejobs_clock")
    with isolated(mode, clock=clock) as isolation:
        node.stash[_of_test] = isolation
        try:
            yield isolation
        finally:
            del node.stash[_of_test]


def _mode_of(request: pytest.FixtureRequest) -> Any:
    mode = request.config.getini(_OPTION)
    marker = request.node.get_closest_marker(_OPTION)
    if marker is None:
        return mode
    if len(marker.args) != 1 or marker.kwargs or marker.args[0] not in _MODES:
        message = (
            f"the marker {_OPTION} of {request.node.nodeid} has no mode; write "
            f"@pytest.mark.{_OPTION}('memory'), or 'file' or 'off'"
        )
        raise pytest.UsageError(message)
    return marker.args[0]


class _EveryTest:
    """The plugin's part for suites that want each test isolated."""

    @pytest.fixture(autouse=True)
    def _litejobs_isolation(
        self, request: pytest.FixtureRequest
    ) -> Iterator[Isolation | None]:
        with _isolated_test(request) as isolation:
            yield isolation


@pytest.fixture
def litejobs_db(request: pytest.FixtureRequest) -> Iterator[Isolation]:
    """Give this test jobs files of its own; see `litejobs.testing.isolated`.

    In memory, unless the ini option or the marker `litejobs_isolation` says "file".
    """
    from litejobs.testing.isolation import isolated

    with _isolated_test(request) as isolation:
        if isolation is not None:
            yield isolation
            return
        clock = request.config.getini("litejobs_clock")
        with isolated("memory", clock=clock) as own:
            yield own


@pytest.fixture
def litejobs_clock(request: pytest.FixtureRequest) -> Iterator[Clock]:
    """Stop the clock of litejobs for this test, which may `move` and `set` it.

    freezegun and time-machine go before it: where one of them holds Python's clock, it
    is theirs that is shown and moved.
    """
    if request.config.getini("litejobs_clock") == "real":
        message = (
            "litejobs_clock cannot be moved, since the ini option litejobs_clock is "
            "'real'; leave that out"
        )
        raise pytest.UsageError(message)
    from litejobs.testing.clocks import standing_clock

    with standing_clock() as clock:
        yield clock
