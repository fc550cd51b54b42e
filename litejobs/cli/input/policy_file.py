"""A policy that a file describes, and what there is to say about it."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import Failure

if TYPE_CHECKING:
    from litejobs._definitions.policy import Policy

Policies = dict[str, "Policy"]

LARGEST = 2**20  # bytes of a file that describes a policy


def policy_in(path: str) -> tuple[Policy, list[str]]:
    """The policy that a file describes, and what there is to say about it.

    Raises:
        Failure: It is none; the sentence names the place.
    """
    return _policy(path, _decoded(path))


def cases_in(path: str) -> tuple[Policies, int | None, list[str]]:
    """What a file says would be otherwise: policies by task, and a number of threads.

    It describes one policy, which all tasks would have (`*`), or it has a table
    `tasks` with a policy for each, and may say `threads`. With what there is to say
    about the policies.

    Raises:
        Failure: It is neither; the sentence names the place.
    """
    from litejobs._definitions.checks import is_whole
    from litejobs._simulation.simulate import MOST_THREADS

    data = _decoded(path)
    if not isinstance(data, dict) or not data.keys() & {"tasks", "threads"}:
        policy, said = _policy(path, data)
        return {"*": policy}, None, said
    others = data.keys() - {"tasks", "threads"}
    if others:
        raise Failure(
            f"{_named(path)}: {min(map(str, others))!r:.80} stands beside tasks and "
            "threads; put each policy into a table of its own: [tasks.NAME]"
        )
    threads = data.get("threads")
    if threads is not None and not is_whole(threads, 1, MOST_THREADS):
        raise Failure(
            f"{_named(path)}: threads is {threads!r:.80}; give a number from 1 to "
            f"{MOST_THREADS:,}"
        )
    tasks = data.get("tasks", {})
    if not isinstance(tasks, dict):
        raise Failure(f"{_named(path)}: tasks is not a table; write [tasks.NAME]")
    found, said = {}, []
    for task, policy in tasks.items():
        found[task], more = _policy(f"{path}: tasks.{task}", policy)
        said += more
    return found, threads, said


def _decoded(path: str) -> Any:
    from litejobs.errors import LiteJobsError

    try:
        return _data_in(path)
    except LiteJobsError as error:
        raise _Unfit(f"{_named(path)}: {error}") from error


def _policy(path: str, data: Any) -> tuple[Policy, list[str]]:
    from litejobs import Policy
    from litejobs._definitions.conditions import unknown_paths
    from litejobs.errors import LiteJobsError

    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = Policy.from_dict(data)
    except LiteJobsError as error:
        raise _Unfit(f"{_named(path)}: {error}") from error
    said = [str(each.message) for each in warned]
    conditions = [each for rule in found.rules for each in rule.conditions]
    changes = [each for rule in found.rules for each in rule.changes]
    return found, [*said, *unknown_paths(conditions, changes)]


class _Unfit(Failure):
    """A file describes no policy; a condition is shown with a mark under the place."""

    def format_message(self) -> str:
        return "\n".join(map(printing.escaped, self.message.split("\n")))


def _named(path: str) -> str:
    return "the input" if path == "-" else path


def _data_in(path: str) -> Any:
    text = _text_of(path)
    kind = os.path.splitext(path)[1].lower()
    if kind == ".toml":
        return _toml(path, text)
    if kind in {".yaml", ".yml"}:
        return _yaml(path, text)
    from litejobs._definitions import json_codec

    return json_codec.decode(text, what="the text")


def _text_of(path: str) -> str:
    # A pipe that nobody writes to would be waited for, for ever.
    if path != "-" and not os.path.isfile(path):
        raise Failure(
            f"{path} is not a regular file; give one, or - to read the standard input"
        )
    try:
        with click.open_file(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Failure(f"{_named(path)} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise Failure(
            f"{_named(path)} is larger than {LARGEST} bytes, and so is not a policy"
        )
    try:
        return bytes(data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(
            f"{_named(path)} is not UTF-8 at byte {error.start}; save it as UTF-8"
        ) from error


def _toml(path: str, text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Failure(f"{path} is not TOML: {error}; correct the text") from error


def _yaml(path: str, text: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise Failure(
            f"{path} is YAML, and nothing here can read that; install PyYAML, or write "
            "it as JSON or TOML"
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        sentence = " ".join(str(error).split())
        raise Failure(f"{path} is not YAML: {sentence}; correct the text") from error
