"""Tests, run with a mistake in the SQL, each time in a process of its own.

Where a process can fork, pytest collects all tests once, and forks for each try: that
takes a tenth of a second. Elsewhere each try is a run of pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

import apsw
import pytest

from tests.mutations import plugin, seen
from tests.mutations.sources import Mistake

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds for one test: a mistake may be a loop without an end
RUN = 300.0  # where the tests of a try cannot be told apart
PYTEST = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
PYTEST += ["-p", "no:randomly", "--hypothesis-seed=1"]
# What the tests are about is imported before them.
PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]

T = TypeVar("T")


class Try(NamedTuple):
    """Tests to be run up to the first that fails; without a mistake all of them."""

    mistake: Mistake | None
    tests: Sequence[str]
    patience: float = PATIENCE


class Answer(NamedTuple):
    """Which test failed, or did not end, or none; what was said; what they saw."""

    test: str = ""
    said: str = ""
    ended: bool = True
    seen: Mapping[str, tuple[float, list[str]]] = MappingProxyType({})


Plan = Generator[Try, Answer, T]
"""What to try next, in the light of what was tried."""


class Tests:
    """Starts tries, and has them run beside each other."""

    items: dict[str, pytest.Item] | None = None

    def has(self, test: str) -> bool:
        """Whether there is such a test, as far as that is known."""
        return self.items is None or test in self.items

    def start(self, what: Try) -> _Running:
        raise NotImplementedError

    def together(self, jobs: int, plans: Iterable[Plan[T]]) -> Iterator[T]:
        """The results of the plans, as they come."""
        waiting = iter(plans)
        running: list[tuple[Plan[T], _Running]] = []
        try:
            while True:
                for plan in waiting if len(running) < jobs else ():
                    yield from self._go_on(plan, None, running)
                    if len(running) >= jobs:
                        break
                if not running:
                    return
                time.sleep(0.005)
                for plan, each in running[:]:
                    answer = each.answer()
                    if answer is not None:
                        running.remove((plan, each))
                        yield from self._go_on(plan, answer, running)
        finally:
            for _, each in running:
                each.stop()

    def _go_on(
        self, plan: Plan[T], answer: Answer | None, running: list[Any]
    ) -> Iterator[T]:
        try:
            what = plan.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            yield end.value
        else:
            running.append((plan, self.start(what)))


class _Running:
    """A try that has begun: what it writes goes with it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="litejobs-"))
        self._log = self._folder / "log"
        self._log.touch()
        # Where pytest makes the folders of tests.
        self._environment = {"PYTEST_DEBUG_TEMPROOT": str(self._folder)}

    def answer(self) -> Answer | None:
        """What there is to say, once it has ended."""
        raise NotImplementedError

    def stop(self) -> None:
        """At once, and nothing of it is left."""
        shutil.rmtree(self._folder, ignore_errors=True)


# By forking --------------------------------------------------------------------------


class ForkedTests(Tests):
    """A plugin of pytest that holds its session once the tests are collected."""

    def __init__(self, work: Callable[[Tests], int]) -> None:
        self._work = work
        self.result: int | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.result = self._work(self)
        return True

    def start(self, what: Try) -> _Running:
        items = self.items or {}
        return _Child(what, [items[each] for each in what.tests])


class _Child(_Running):
    def __init__(self, what: Try, items: list[pytest.Item]) -> None:
        super().__init__()
        self._patience = what.patience
        self._size, self._since = 0, time.monotonic()
        self._pid = os.fork()
        if not self._pid:
            os.environ.update(self._environment)
            _be_child(what, items, self._log)

    def answer(self) -> Answer | None:
        # It is waited for when it is stopped: until then the number is its own.
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        size = self._log.stat().st_size
        if size != self._size:
            self._size, self._since = size, time.monotonic()
        if not ended and time.monotonic() - self._since < self._patience:
            return None
        found = self._read(said="its process ended" if ended else "it did not end")
        self.stop()
        return found

    def stop(self) -> None:
        """With all that it has started."""
        for kill in (os.killpg, os.kill):  # it may not have its own group yet
            with contextlib.suppress(ProcessLookupError):
                kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        super().stop()

    def _read(self, said: str) -> Answer:
        found: dict[str, tuple[float, list[str]]] = {}
        running = ""
        for line in self._log.read_text(encoding="utf-8").splitlines():
            what, test, *more = json.loads(line)
            if what == "began":
                running = test
            elif what == "failed":
                return Answer(test, *more)
            elif what == "saw":
                found[test] = (more[0], more[1])
            else:
                return Answer(seen=found)
        return Answer(running, said, ended=False, seen=found)


def _be_child(what: Try, items: list[pytest.Item], log: Path) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with log.open("a", encoding="utf-8") as told:
            nothing = os.open(os.devnull, os.O_RDWR)
            for each in (0, 1, 2):
                os.dup2(nothing, each)
            _Teller(what, items, told).run()
        status = 0
    except BaseException:
        said = json.dumps(["failed", "", traceback.format_exc(), False])
        with log.open("a", encoding="utf-8") as told:
            told.write(f"{said}\n")
    finally:
        os._exit(status)


class _Teller:
    """Runs the tests in the child, and tells its parent of each."""

    def __init__(self, what: Try, items: list[pytest.Item], told: Any) -> None:
        self._what, self._items, self._told = what, items, told
        self._failed = ""

    def run(self) -> None:
        """Up to the first that fails, or all of them."""
        if self._what.mistake is None:
            seen.watch()
        else:
            plugin.make(self._what.mistake)
        config = self._items[0].config
        config.pluginmanager.register(self)
        for item, following in zip(self._items, [*self._items[1:], None], strict=True):
            self._tell("began", item.nodeid)
            seen.taken()
            began = time.perf_counter()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            took = time.perf_counter() - began
            if self._what.mistake is None:
                self._tell("saw", item.nodeid, took, seen.taken())
            elif self._failed:
                self._tell("failed", item.nodeid, self._failed)
                return
        self._tell("ended", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed = report.longreprtext

    def _tell(self, *what: Any) -> None:
        self._told.write(json.dumps(what) + "\n")
        self._told.flush()


# Without ------------------------------------------------------------------------------


class SeparateTests(Tests):
    def start(self, what: Try) -> _Running:
        return _Process(what)


class _Process(_Running):
    def __init__(self, what: Try) -> None:
        super().__init__()
        self._tests, self._began = what.tests, time.monotonic()
        mistake = {plugin.VARIABLE: json.dumps(what.mistake)}
        command = [sys.executable, "-m", "pytest", "-x", "-p", plugin.__name__, *PYTEST]
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*command, *what.tests],
                cwd=ROOT,
                env=os.environ | mistake | self._environment,
                stdout=log,
                stderr=log,
            )

    def answer(self) -> Answer | None:
        code = self._process.poll()
        if code is None and time.monotonic() - self._began < RUN:
            return None
        said = self._log.read_text(encoding="utf-8")
        self.stop()
        if code is None:
            return Answer(self._tests[0], "it did not end", ended=False)
        named = re.search(
            r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", said, re.MULTILINE
        )
        if code == 1 and named is not None:
            return Answer(named.group(1), said)
        return Answer(said=said)

    def stop(self) -> None:
        """The tests, if not what they have started."""
        self._process.kill()
        self._process.wait()
        super().stop()


def with_tests(files: Iterable[str], work: Callable[[Tests], int]) -> int:
    """What *work* makes of the tests of these files."""
    there = sorted(file for file in files if (ROOT / file).exists())
    with tempfile.TemporaryDirectory(prefix="litejobs-") as folder:
        # What fails with a mistake is not an example to try again.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        if not hasattr(os, "fork"):
            return work(SeparateTests())
        apsw.config(apsw.SQLITE_CONFIG_LOG, seen.log)
        forked = ForkedTests(work)
        with contextlib.chdir(ROOT):
            pytest.main([*PYTEST, "-s", *there], plugins=[forked])
    if forked.result is None:
        raise SystemExit("the tests could not be collected")
    return forked.result
