"""For suites of the standard library's unittest."""

from __future__ import annotations

import contextlib
import sys
import unittest

from litejobs.errors import LiteJobsError
from litejobs.testing.isolation import Isolation, Mode, isolated


class LiteJobsTestCase(unittest.TestCase):
    """A `unittest.TestCase` of which each test is isolated, fixtures included.

    For coroutines it goes before the other one: `class T(LiteJobsTestCase,
    unittest.IsolatedAsyncioTestCase)`. The class says with `litejobs_isolation` whether
    files are in "memory" (the default) or each a "file".
    """

    litejobs_isolation: Mode = "memory"
    isolation: Isolation

    def run(
        self, result: unittest.TestResult | None = None
    ) -> unittest.TestResult | None:
        """Run the test within an isolation of its own."""
        try:
            ending = _begun(self)
        except LiteJobsError:
            if result is None:
                raise
            result.startTest(self)
            result.addError(self, sys.exc_info())
            result.stopTest(self)
            return result
        with ending:
            return super().run(result)

    def debug(self) -> None:
        """Run the test so, without collecting its result."""
        with _begun(self):
            super().debug()


def _begun(case: LiteJobsTestCase) -> contextlib.ExitStack:
    """The test is isolated, until what is returned is closed.

    That is a clean-up of the test as well, so that what is wrong then fails it; of one
    that is skipped there are none.
    """
    stack = contextlib.ExitStack()
    case.isolation = stack.enter_context(isolated(case.litejobs_isolation))
    case.addCleanup(stack.close)
    return stack
