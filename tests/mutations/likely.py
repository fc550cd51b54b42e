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
# The files that speak of those objects of which no test names the name.
ABOUT = {
    "act": ["test_sql_act", "test_undo", "test_undo_conflicts"],
    "choice": ["test_cli_steer", "test_cli_completion", "test_cli_look"],
    "circuit": ["test_sql_circuit"],
    "claim": ["test_sql_claim", "test_sql_gates", "test_sql_loop"],
    "clock": ["test_sql_eligibility"],
    "commands": ["test_sql_claim", "test_sql_settle"],
    "dependency": ["test_sql_dependency", "test_batch"],
    "doctor": ["test_doctor"],
    "eligibility": ["test_sql_eligibility", "test_sql_gates"],
    "enqueue": ["test_sql_enqueue", "test_sql_unique"],
    "guard": ["test_sql_guard", "test_log"],
    "lane": ["test_sql_gates", "test_sql_queues", "test_line_model"],
    "leftover": ["test_sql_leftover", "test_purge"],
    "line": ["test_sql_claim", "test_sql_queues", "test_sql_gates", "test_line_model"],
    "loop": ["test_sql_loop", "test_runner"],
    "people": ["test_sql_people", "test_log"],
    "retry": ["test_sql_retry", "test_sql_policy", "test_policy_decisions"],
    "schedule": ["test_sql_schedule", "test_schedules", "test_schedule_model"],
    "schema": ["test_sql_guard", "test_sql_task"],
    "settle": ["test_sql_settle", "test_sql_flow", "test_sql_policy"],
    "stats": ["test_sql_stats", "test_measures"],
    "task": ["test_sql_task", "test_sql_queues"],
    "tick": ["test_sql_tick"],
}
# These compare texts, plans or steps: they notice any change, and say nothing of it.
BLIND = {"test_tidy", "test_upgrade", "test_sql_whole", "test_sql_plans", "test_bench"}
BLIND.add("test_mutations")
OTHER_CLIENTS = re.compile(r"recursive|sqlite3|shell")
PIECE = 150  # tests that are watched in one go


@functools.cache
def _texts() -> dict[str, str]:
    return {x.stem: x.read_text(encoding="utf-8") for x in TESTS.glob("test_*.py")}


@functools.cache
def _about(name: str) -> set[str]:
    """The names of the files that speak of the object."""
    place = sources.place_of(name)
    spoken = {x for x, text in _texts().items() if re.search(rf"\b{name}\b", text)}
    return spoken | set(ABOUT.get(Path(place.file).stem, []))


def files_about(name: str) -> list[str]:
    """The files in which a test may notice a mistake in the object."""
    sql = {x for x in _texts() if x.startswith("test_sql_")}
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
            file = Path(test.partition("::")[0]).stem
            said = [
                case.search(test) is not None,
                name in self._words(test),
                file in about,
                file.startswith("test_sql_"),
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
