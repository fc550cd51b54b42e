"""docs/tutorial.md, followed step by step: each output is what stands there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from litejobs import LiteJobs
from tests.documents import Block, blocks_of
from tests.libraries import needs
from tests.servers.serving import ON_LINUX, UVICORN, Server
from tests.waiting import LONG, eventually

ROOT = Path(__file__).parents[2]
BLOCKS = blocks_of("tutorial.md")
SERVER = "9. In a web server"
# Whoever runs the tests has these, or something in their place.
INSTALLED = {
    "python3 -m venv .venv",
    ". .venv/bin/activate",
    "pip install litejobs",
    "pip install pytest",
    "pip install fastapi uvicorn",
}
PROGRAMS = {
    "python": "",
    "litejobs": " -m litejobs",
    # The plugin comes by itself where litejobs is installed.
    "pytest": " -m pytest -p litejobs.testing.plugin -p no:cacheprovider",
}
Done = list[tuple[str, str, str]]
"""Commands, with what is shown and what they printed."""

FOLDER = "/home/ann/letters"  # as it is in the tutorial

DURATION = r"\d+(ms|s|m)( \d+(ms|s|m))*\b"
# What differs from one time to the next, in the order in which it is looked for.
VARYING = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(,\d{3}|Z|[+-]\d\d:\d\d)?", "INSTANT"),
    (r"\b\d\d:\d\d:\d\d\b", "INSTANT"),
    (r"\(?\bin( \d+ (ms|s|min|h|d)\b)+\)?", "LATER"),
    (r"\b(\d+ (ms|s|min|h|d) )+ago\b|\bnow\b", "BEFORE"),
    (rf"\bafter {DURATION}", "after SOME TIME"),
    (r"\bpassed in [\d.]+s", "passed in SOME TIME"),
    # Jitter.
    (rf"\bnext attempt in {DURATION}", "next attempt in SOME TIME"),
]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a shell and a terminal")


def write(folder: Path, block: Block) -> None:
    assert block.file is not None
    (folder / block.file).write_text(block.text, encoding="utf-8")


class Reader:
    """Follows the tutorial in a folder, at a terminal of 100 columns."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._env = {
            **{name: each for name, each in os.environ.items() if "PYTEST" not in name},
            "PYTHONPATH": str(ROOT),
            # Those that happen to be installed take most of the time.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "TMPDIR": str(programs),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TZ": "UTC",
        }
        for name, options in PROGRAMS.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable}{options} "$@"\n')
            program.chmod(0o755)

    def run(self, line: str) -> str:
        """What the command prints, or the setting of a variable."""
        if line.startswith("export "):
            [setting] = shlex.split(line.removeprefix("export "))
            name, _, value = setting.partition("=")
            self._env[name] = value
            return ""
        import pty

        ours, theirs = pty.openpty()
        with contextlib.closing(os.fdopen(ours, "rb", 0)) as screen:
            process = subprocess.Popen(
                line,
                shell=True,
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
            )
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # Linux: the other side is closed
                while more := screen.read(4096):
                    shown += more
            process.wait(LONG)
        text = shown.decode().replace("\r\n", "\n")
        return text.replace(str(self.folder.resolve()), FOLDER)


def comparable(text: str) -> str:
    """The text without what is different each time."""
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return "\n".join(
        re.sub(r" +", " ", line).strip() for line in text.strip().split("\n")
    )


def followed(reader: Reader) -> Done:
    """The commands before the chapter about servers, and what they gave."""
    done = []
    for block in BLOCKS:
        if block.section == SERVER:
            break
        if block.language != "console":
            write(reader.folder, block)
            continue
        for command in block.commands:
            if command.line in INSTALLED:
                assert command.output == ""
            else:
                done.append((command.line, command.output, reader.run(command.line)))
    return done


def test_each_command_prints_what_is_shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("letters")
    done = followed(Reader(folder, tmp_path_factory.mktemp("programs")))
    assert len(done) > 20
    for line, shown, printed in done:
        assert comparable(printed) == comparable(shown), f"$ {line}\n{printed}"


def met(folder: Path) -> None:
    """There are as many jobs as were shown to the reader, and Ann's mailbox."""
    (folder / "mailboxes" / "ann").mkdir(parents=True)
    shown = "".join(
        each.output
        for block in BLOCKS
        if block.language == "console" and block.section != SERVER
        for each in block.commands
    )
    last = max(int(number) for number in re.findall(r"\bjob (\d+)\b", shown))
    with LiteJobs(folder / "letters.db") as jobs:
        for _ in range(last):
            jobs.enqueue("welcome", {"name": "ann"}).cancel()


@ON_LINUX
@needs("fastapi")
@needs("uvicorn")
def test_the_server_answers_what_is_shown(tmp_path: Path) -> None:
    commands = []
    for block in BLOCKS:
        if block.language != "console":
            write(tmp_path, block)
        elif block.section == SERVER:
            commands += [each for each in block.commands if each.line not in INSTALLED]
    met(tmp_path)
    assert commands.pop(0) == ("uvicorn server:app", "")
    with Server(tmp_path, "server", *UVICORN, "--port={port}", "server:app") as it:
        for line, shown in commands:
            program, *options, address = shlex.split(line)
            path = address.removeprefix("localhost:8000")
            assert (program, path[0]) == ("curl", "/")
            method = "POST" if options == ["-X", "POST"] else "GET"
            assert answers(it, method, path, shown), line
        it.end()


def answers(server: Server, method: str, path: str, shown: str) -> bool:
    """The server says so, at once or, of what runs in the background, soon."""

    def says_so() -> bool:
        status, document = server.ask(method, path)
        assert status < 300, document
        return bool(document == json.loads(shown))

    if method == "POST":
        return says_so()
    eventually(says_so)
    return True


def test_each_block_is_a_file_or_commands() -> None:
    for block in BLOCKS:
        assert (block.language == "console") == (block.file is None), block
    assert [each.section for each in BLOCKS][-1] == SERVER


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("due 2026-11-23T09:35:30Z (in 56 s)", "due 2027-01-02T00:00:00Z (in 1 min)"),
        ("next attempt in 45s 16ms", "next attempt in 1m 13s 393ms"),
        ("next attempt in 51s", "next attempt in 1m 2ms"),
        ("completed in attempt 1 after 0s", "completed in attempt 1 after 1s 203ms"),
        ("completed  now    -", "completed  2 s ago  -"),
        ("report  in 21 h 30 min  -", "report  in 59 s  -"),
        ("09:34:33  task.enqueued ", "23:59:59  task.enqueued"),
        ("4 passed in 2.28s", "4 passed in 12.00s"),
    ],
)
def test_what_varies_is_left_out(one: str, other: str) -> None:
    assert comparable(one) == comparable(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("job 2 (welcome) is pending", "job 3 (welcome) is pending"),
        ("attempt 1 of 3 failed", "attempt 1 of 5 failed"),
        ("completed in attempt 1 after 0s", "completed in attempt 2 after 0s"),
        ("At 08:00 every day", "At 09:00 every day"),
    ],
)
def test_what_does_not_vary_is_compared(one: str, other: str) -> None:
    assert comparable(one) != comparable(other)


def test_no_output_is_compared_that_says_nothing() -> None:
    """What is left out of a comparison is not what the tutorial is about."""
    shown = [
        comparable(each.output)
        for block in BLOCKS
        if block.language == "console"
        for each in block.commands
    ]
    text = "\n".join(shown)
    for told in ["job 1 is pending", "bob has no mailbox", "dead_lettered", "4 passed"]:
        assert told in text
