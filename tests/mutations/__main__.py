"""Try the mistakes of the list, or find some: see the package."""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutations import sources
from tests.mutations.sources import VARIABLE, Mistake

HERE = Path(__file__).parent
TESTS = HERE.parent
LIST = HERE / "list.jsonl"
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
    "line": ["test_sql_claim", "test_sql_queues", "test_sql_gates", "test_line_model"],
    "loop": ["test_sql_loop", "test_runner"],
    "people": ["test_sql_people", "test_log"],
    "retry": ["test_sql_retry", "test_sql_policy", "test_policy_decisions"],
    "schedule": ["test_sql_schedule", "test_schedules", "test_schedule_model"],
    "schema": ["test_sql_guard"],
    "settle": ["test_sql_settle", "test_sql_flow", "test_sql_policy"],
    "stats": ["test_sql_stats", "test_measures"],
    "task": ["test_sql_task", "test_sql_queues"],
    "tick": ["test_sql_tick"],
}
# These compare texts, plans or steps: they notice any change, and say nothing of it.
BLIND = {"test_tidy", "test_upgrade", "test_sql_whole", "test_sql_plans", "test_bench"}
ONE_CLIENT = ["-k", "not recursive and not sqlite3 and not shell"]
PATIENCE = 300  # seconds for one run; a mistake may be a loop without an end


class Known(NamedTuple):
    """A mistake of the list, and the test that notices it."""

    mistake: Mistake
    test: str


def listed() -> list[Known]:
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    found = []
    for line in lines:
        *mistake, test = json.loads(line)
        found.append(Known(Mistake(*mistake), test))
    return found


def write(known: Iterable[Known]) -> None:
    lines = sorted(json.dumps([*each.mistake, each.test]) for each in known)
    LIST.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(mistake: Mistake, tests: list[str], *more: str) -> tuple[str, str]:
    """The first of *tests* that fails with the *mistake*, and what was said."""
    environment = os.environ | {VARIABLE: json.dumps(mistake)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=line"]
    command += ["-p", "tests.mutations.plugin", "-p", "no:cacheprovider"]
    command += ["-p", "no:randomly", "--hypothesis-seed=1", *more, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=TESTS.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return tests[0] if len(tests) == 1 else "", "it did not end"
    named = re.search(
        r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", done.stdout, re.MULTILINE
    )
    if done.returncode == 1 and named is not None:
        return named.group(1), done.stdout
    if done.returncode in (0, 5):
        return "", done.stdout
    return "", done.stdout + done.stderr


def where(mistake: Mistake) -> list[str]:
    """The test files that may notice it, the likeliest first."""
    name = mistake.name
    table = sources.constraints().get(name)
    place = sources.places()[table or name]
    topic = Path(place.file).stem
    files = {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted(TESTS.glob("test_*.py"))
    }
    naming = [stem for stem, text in files.items() if re.search(rf"\b{name}\b", text)]
    about = [stem for stem in files if table and table in files[stem]]
    sql = [stem for stem in files if stem.startswith("test_sql_")]
    direct = [stem for stem in naming if stem in sql]
    likely = [*direct, *ABOUT.get(topic, []), *naming, *about, *sql]
    seen = dict.fromkeys(stem for stem in likely if stem in files)
    return [f"tests/{stem}.py" for stem in seen if stem not in BLIND]


def search(mistake: Mistake) -> Known:
    files = where(mistake)
    # First those of one client; what only another one notices comes last.
    for more in (ONE_CLIENT, []):
        for file in files:
            test, _ = run(mistake, [file], *more)
            if test:
                return Known(mistake, test)
    return Known(mistake, "")


def wanted() -> Iterator[list[Mistake]]:
    """For each object that has none: mistakes, of which one noticed is enough."""
    have = {each.mistake.name for each in listed() if each.test}
    skipped = sources.copies()
    for name in sources.constraints():
        if name not in have and name not in skipped:
            yield [sources.absent(name)]
    for place in sources.places().values():
        if place.kind in ("view", "trigger") and place.name not in have:
            for obvious in sources.obvious(place):
                yield [obvious]
            some = list(itertools.islice(sources.small(place), 4))
            if some:
                yield some


def find(jobs: int, names: set[str]) -> int:
    known = listed()
    asked = [each for each in wanted() if not names or each[0].name in names]
    missed = 0

    def one(mistakes: list[Mistake]) -> list[Known]:
        tried = []
        for mistake in mistakes:
            tried.append(search(mistake))
            if tried[-1].test:
                break
        return tried

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for number, tried in enumerate(pool.map(one, asked), 1):
            for each in tried:
                found = each.test or "MISSED"
                print(
                    f"{number}/{len(asked)} {each.mistake.label}: {found}", flush=True
                )
            missed += not tried[-1].test
            known += [each for each in tried if each.test]
            write(known)
    return missed


def try_all(jobs: int, names: set[str]) -> int:
    chosen = [each for each in listed() if not names or each.mistake.name in names]
    missed = 0

    def one(known: Known) -> tuple[bool, str]:
        try:
            test, said = run(known.mistake, [known.test])
        except LookupError as error:
            return False, str(error)
        return bool(test), said

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for each, (noticed, said) in zip(chosen, pool.map(one, chosen), strict=True):
            if not noticed:
                missed += 1
                print(
                    f"NOT NOTICED {each.mistake.label} by {each.test}\n{said[-600:]}",
                    flush=True,
                )
    print(f"{len(chosen)} mistakes, {missed} not noticed")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("names", nargs="*", help="objects, or the word find first")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = options.names
    if names[:1] == ["find"]:
        return bool(find(options.jobs, set(names[1:])))
    return bool(try_all(options.jobs, set(names)))


if __name__ == "__main__":
    sys.exit(main())
