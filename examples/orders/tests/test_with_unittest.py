"""The same with unittest, for suites that are written so."""

from __future__ import annotations

import unittest

from fastapi.testclient import TestClient
from shop import app, charge, confirm, create_tables, find, jobs

from litejobs.testing import LiteJobsTestCase, assert_enqueued, perform

ORDER = {"item": "table", "email": "bob@example.com"}


class Orders(LiteJobsTestCase):
    def setUp(self) -> None:
        create_tables()
        self.client = TestClient(app)

    def test_an_order_is_charged(self) -> None:
        self.client.post("/orders", params=ORDER)
        assert_enqueued(charge, args={"order_id": 1})
        self.assertEqual(jobs.drain(raising=True), 2)
        self.assertEqual(find(1)["state"], "paid")

    def test_the_file_is_a_new_one(self) -> None:
        self.assertEqual(jobs.counts(), {})


class Letters(LiteJobsTestCase, unittest.IsolatedAsyncioTestCase):
    async def test_a_letter_is_sent(self) -> None:
        create_tables()
        TestClient(app).post("/orders", params=ORDER)
        text = await confirm(1)
        self.assertEqual(text, "To bob@example.com: your table is paid")
        self.assertEqual(perform(confirm, 1), text)
