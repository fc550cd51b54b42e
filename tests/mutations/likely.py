"""Which tests may notice a mistake, the best first."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.mutations import seen, sources
from tests.mutations.tries import Plan, Tests, Try

TESTS = Path(__file__).parents[1]
# The files that speak of those objects of which no test names the name, by the folder
# of `sql/` that these are in.
ABOUT = {
    "arguments": ["sql/test_arguments", "runner/test_misfits"],
    "claim": [
        "sql/test_claim",
        "sql/test_gates",
        "sql/test_queues",
        "models/test_line",
    ],
    "clock": ["sql/test_eligibility"],
    "dependencies": ["sql/test_dependency", "control/test_batch"],
    "enqueue": ["sql/test_enqueue", "sql/test_unique"],
    "gates": ["sql/test_gates", "sql/test_circuit", "sql/test_eligibility"],
    "guards": ["sql/test_guard", "control/test_log"],
    "lanes": ["sql/test_gates", "sql/test_queues", "models/test_line"],
    "leftovers": ["sql/test_leftover", "control/test_purge"],
    "log": ["sql/test_people", "control/test_log"],
    "operations": [
        "sql/test_operations",
        "control/test_undo",
        "control/test_undo_conflicts",
    ],
    "options": ["sql/test_spec", "definitions/test_options"],
    "reports": [
        "sql/test_doctor",
        "sql/test_people",
        "sql/test_stats",
        "control/test_log",
        "control/test_measures",
        "cli/test_actions",
        "cli/test_completion",
        "cli/test_jobs",
    ],
    "retention": ["sql/test_retention", "runner/test_retention"],
    "schedules": [
        "sql/test_schedule",
        "schedules/test_schedules",
        "models/test_schedule",
    ],
    "schema": ["sql/test_guard", "sql/test_task"],
    "settle": [
        "sql/test_settle",
        "sql/test_flow",
        "sql/test_policy",
        "sql/test_retry",
        "models/test_policy_decisions",
    ],
    "space": ["sql/test_space", "sql/test_shrink", "storage/test_space"],
    "tasks": ["sql/test_task", "sql/test_queues"],
    "tick": ["sql/test_tick", "sql/test_loop", "runner/test_runner"],
    "words": ["sql/test_words"],
}
# These compare texts, plans or steps: they notice any change, and say nothing of it.
BLIND = {
    "test_tidy",
    "storage/test_upgrade",
    "sql/test_whole",
    "sql/test_plans",
    "bench/test_bench",
}
BLIND.add("mutations/test_list")
OTHER_CLIENTS = re.compile(r"recursive|sqlite3|shell")
PIECE = 150  # tests that are watched in one go


@functools.cache
def _texts() -> dict[str, str]:
    return {
        _name_of(x.relative_to(TESTS.parent).as_posix()): x.read_text(encoding="utf-8")
        for x in TESTS.rglob("test_*.py")
    }


def _name_of(file: str) -> str:
    return file.removeprefix("tests/").removesuffix(".py")


@functools.cache
def _about(name: str) -> set[str]:
    """The names of the files that speak of the object."""
    place = sources.place_of(name)
    spoken = {x for x, text in _texts().items() if re.search(rf"\b{name}\b", text)}
    return spoken | set(ABOUT.get(Path(place.file).parent.name, []))


def files_about(name: str) -> list[str]:
    """The files in which a test may notice a mistake in the object."""
    sql = {x for x in _texts() if x.startswith("sql/")}
    chosen = (_about(name) | sql) - BLIND
    return sorted(f"tests/{x}.py" for x in chosen if x in _texts())


class Likely:
    """Runs the tests, each once, to see what of the SQL is at work in which."""

    def __init__(self, tests: Tests, jobs: int) -> None:
        self.tests = tests
        self._seen: dict[str, tuple[float, set[str]]] = {}
        items: dict[str, Any] = tests.items or {}
        files: dict[str, list[str]] = {}
        for test in items:
            files.setdefault(test.partition("::")[0], []).append(test)
        plans = []
        for file, all_tests in files.items():
            kept = _kept(file)
            if kept.exists():
                self._take(json.loads(kept.read_text(encoding="utf-8")))
            else:
                plans.append(self._watch(kept, all_tests))
        for number, file in enumerate(tests.together(jobs, plans), 1):
            print(f"watched {number}/{len(plans)} {file}", flush=True)

    def _watch(self, kept: Path, tests: list[str]) -> Plan[str]:
        found: dict[str, tuple[float, list[str]]] = {}
        rest = tests
        while rest:
            piece = rest[:PIECE]
            answer = yield Try(None, piece)
            found |= answer.seen
            # A test that does not end is left out.
            done = len(piece) if answer.ended else piece.index(answer.test) + 1
            rest = rest[done:]
        kept.write_text(json.dumps(found), encoding="utf-8")
        self._take(found)
        return tests[0].partition("::")[0]

    def _take(self, found: dict[str, Any]) -> None:
        for test, (took, names) in found.items():
            if self.tests.has(test):
                self._seen[test] = took, set(names)

    def of(self, name: str) -> list[str]:
        """The tests in which the object is at work; stories that speak of it first."""
        near = _near(name)
        case = re.compile(rf"\[.*\b{name}\b")
        about = _about(name)
        ranks = []
        for test, (took, names) in self._seen.items():
            how_near = min((near[x] for x in names & near.keys()), default=None)
            if how_near is None:
                continue
            file = _name_of(test.partition("::")[0])
            said = [
                case.search(test) is not None,
                name in self._words(test),
                file in about,
                file.startswith("sql/"),
                True,
            ].index(True)
            other = bool(OTHER_CLIENTS.search(test.partition("[")[2]))
            ranks.append(((other, said, how_near, took > 1, len(names), took), test))
        ranks.sort()
        # Not all the cases of one function first.
        count: Counter[tuple[bool, str]] = Counter()
        turns = []
        for place, (rank, test) in enumerate(ranks):
            function = rank[0], test.partition("[")[0]
            turns.append((rank[0], count[function] // 3, place, test))
            count[function] += 1
        return [test for *_, test in sorted(turns)]

    def _words(self, test: str) -> frozenset[str]:
        item = (self.tests.items or {})[test]
        return _words_of(getattr(item, "function", None))


@functools.cache
def _words_of(function: Any) -> frozenset[str]:
    try:
        return frozenset(re.findall(r"\blitejobs_\w+", inspect.getsource(function)))
    except (OSError, TypeError):
        return frozenset()


@functools.cache
def _near(name: str) -> dict[str, int]:
    """What shows that it is at work, and how clearly: views that read it do, too."""
    found = {name: 0}
    place = sources.places().get(name)
    if place is None or place.kind != "view":
        return found | {f"{name}?": 1}
    todo = [name]
    while todo:
        below = todo.pop(0)
        for place in sources.places().values():
            if place.kind != "view" or place.name in found:
                continue
            if re.search(rf"\b{below}\b", sources.source(place)):
                found[place.name] = found[below] + 1
                todo.append(place.name)
    return found


def _kept(file: str) -> Path:
    """Where it is kept what was seen in these tests, until there are other objects."""
    paths = [TESTS.parent / file, Path(seen.__file__)]
    text = "\0".join(path.read_text(encoding="utf-8") for path in paths)
    digest = hashlib.sha256(f"{text}\0{sources.wanted()}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / "litejobs-mutations"
    folder.mkdir(exist_ok=True)
    return folder / f"{Path(file).stem}-{digest}.json"
