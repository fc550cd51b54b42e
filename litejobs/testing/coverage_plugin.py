"""The part of the pytest plugin behind `--litejobs-coverage`."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import pytest

from litejobs.testing.coverage import Collector, Seen
from litejobs.testing.coverage_report import as_html, as_text

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_KEY = "litejobs_coverage"


class Coverage:
    """Collects in each process of a session, and tells at its end in the first one."""

    def __init__(self, page: str | None) -> None:
        """Begin at once.

        Raises:
            pytest.UsageError: The *page* is not the path of a file.
        """
        if page is not None and (not page or pathlib.Path(page).is_dir()):
            message = (
                f"--litejobs-coverage-html={page} is not the path of a file; give one, "
                "such as out/coverage.html"
            )
            raise pytest.UsageError(message)
        self._page = page
        self._collector = Collector()
        self._collector.start()
        self._others: list[dict[str, Any]] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over what a worker of pytest-xdist has seen; one that died says none."""
        del error
        if dumped := getattr(node, "workeroutput", {}).get(_KEY):
            self._others.append(dumped)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what this worker has seen, if it is one."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = self._collector.dump()

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the report, and write the page if one was asked for."""
        seen = Seen()
        for dumped in (self._collector.dump(), *self._others):
            seen.merge(dumped)
        terminalreporter.section("litejobs coverage")
        terminalreporter.write_line(as_text(seen))
        if self._page is not None:
            path = pathlib.Path(self._page)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(as_html(seen), encoding="utf-8")
            except OSError as error:
                # What pytest says of the tests comes after this.
                said = f"cannot be written to {path}: {error.strerror}"
                terminalreporter.write_line(said, red=True)
            else:
                terminalreporter.write_line(f"written to {path}")

    def pytest_unconfigure(self) -> None:
        """Look at nothing any more."""
        self._collector.stop()
