"""A process of `Processes` and what is said to it, without a runner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs._executors import frames
from litejobs._executors.child import Child


class Talk:
    """What a test says to a process, and hears of it."""

    def __init__(self) -> None:
        self.child = Child()
        self.child.introduce()
        self._pieces = frames.Frames()
        self._heard = self._hear()

    def _hear(self) -> Iterator[tuple[bytes, Any]]:
        while piece := self.child.read():
            for kind, body in self._pieces.feed(piece):
                yield kind, json.loads(body or b"null")

    def wait_for(self, kind: bytes) -> Any:
        """Return the next message of this kind."""
        for each, body in self._heard:
            if each == kind:
                return body
        raise AssertionError(f"it has ended without saying {kind!r}")

    def run(self, task: str, module: str) -> None:
        """Have it run a task of a module."""
        fields: list[Any] = [1, 1, 1, 1, task, {"bytes": "[]"}, None]
        fields += [{"bytes": "default"}, 3, *[None] * 5]
        payload = json.dumps([task, [module], ":memory:", fields])
        body = frames.of_attempt(1, payload.encode())
        self.child.send(frames.packed(frames.RUN, body))

    def end(self, kind: str) -> None:
        """Have an interrupt raised in what runs."""
        body = frames.of_attempt(1, kind.encode())
        self.child.send(frames.packed(frames.END, body))

    def outcome(self) -> dict[str, Any]:
        """Return what came of the task."""
        document: dict[str, Any] = json.loads(self.wait_for(frames.ANSWER)[0])
        return document


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    """A process that finds modules in the folder of the test."""
    monkeypatch.syspath_prepend(tmp_path)
    talk = Talk()
    yield talk
    talk.child.kill()
    talk.child.reap()


def module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("TaskStopped", "interrupted"),
        ("TaskCancelled", "cancelled"),
        ("TaskTimeout", "timeout"),
    ],
)
def test_what_is_ended_while_its_module_is_imported_has_ended_so(
    talk: Talk, tmp_path: Path, kind: str, status: str
) -> None:
    text = "import logging\nlogging.warning('begins')\nwhile True: pass"
    module(tmp_path, "takes_long_to_import", text)
    talk.run("any", "takes_long_to_import")
    assert talk.wait_for(frames.RECORD)["msg"] == "begins"
    talk.end(kind)
    assert talk.outcome()["status"] == status


def test_a_module_that_fails_now_may_be_imported_another_time(
    talk: Talk, tmp_path: Path
) -> None:
    module(tmp_path, "fails_to_import", "raise ConnectionError('nobody answers')")
    talk.run("any", "fails_to_import")
    outcome = talk.outcome()
    assert outcome["error"]["type"] == "ConnectionError"
    assert "retryable" not in outcome
    module(tmp_path, "cannot_be_imported", "import nowhere_to_be_found")
    talk.run("any", "cannot_be_imported")
    outcome = talk.outcome()
    assert outcome["error"]["code"] == "executor_refused"
    assert outcome["retryable"] is False


def test_modules_where_it_is_started_are_not_those_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module(tmp_path, "json", "raise ValueError('this is not that of Python')")
    monkeypatch.chdir(tmp_path)
    talk = Talk()
    try:
        talk.wait_for(frames.READY)
    finally:
        talk.child.kill()
        talk.child.reap()
