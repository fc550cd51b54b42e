"""Try the mistakes of the list, or find some: see the package."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutations import sources
from tests.mutations.likely import Likely, files_about
from tests.mutations.sources import SAME, Mistake
from tests.mutations.tries import Plan, Tests, Try, with_tests

LIST = Path(__file__).parent / "list.jsonl"
HASTE = 10.0  # seconds: what does not end by then is not a good test to have
SOME = 8  # small mistakes of one object, of which one noticed is enough


class Known(NamedTuple):
    """A mistake, and the test that notices it; none yet, if that is empty."""

    mistake: Mistake
    test: str

    @property
    def file(self) -> str:
        """Where the test is."""
        return self.test.partition("::")[0]

    @property
    def function(self) -> str:
        """What it is called there, without its class and its case."""
        return self.test.partition("[")[0].rpartition("::")[2]


def listed() -> list[Known]:
    """What the list says."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    found = []
    for line in lines:
        *mistake, test = json.loads(line)
        found.append(Known(Mistake(*mistake), test))
    return found


def write(known: Iterable[Known]) -> None:
    """What the list says from now on."""
    lines = sorted({json.dumps([*each.mistake, each.test]) for each in known})
    LIST.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def missing() -> list[str]:
    """Objects of which the list has no mistake."""
    have = {each.mistake.name for each in listed()}
    return [name for name in sources.wanted() if name not in have]


# Trying -------------------------------------------------------------------------------


def try_all(jobs: int, names: set[str]) -> int:
    """How many mistakes of the list are not noticed by the tests beside them."""
    chosen = [each for each in listed() if not names or each.mistake.name in names]
    unknown = names - {each.mistake.name for each in chosen}
    if unknown:
        raise SystemExit(f"not in the list: {', '.join(sorted(unknown))}; run find")

    def work(tests: Tests) -> int:
        missed = 0
        for noticed in tests.together(jobs, (_again(tests, each) for each in chosen)):
            missed += not noticed
        return missed

    missed = with_tests({each.file for each in chosen}, work) if chosen else 0
    print(f"{len(chosen)} mistakes, {missed} not noticed")
    return missed


def _again(tests: Tests, known: Known) -> Plan[bool]:
    said = ""
    if not sources.exists(known.mistake):
        said = "there is no such place any more; find looks for another one"
    elif not tests.has(known.test):
        said = "there is no such test any more; find looks for another one"
    else:
        answer = yield Try(known.mistake, [known.test])
        if answer.test and answer.ended:
            return True
        said = answer.said[-600:]
    print(f"NOT NOTICED {known.mistake.label}\n    by {known.test}\n{said}", flush=True)
    return False


# Finding ------------------------------------------------------------------------------


class Search:
    """For what the list lacks: of some objects, or of all."""

    def __init__(self, names: set[str], *, small: bool) -> None:
        before = listed()
        self._names = names
        self._known = {each for each in before if sources.exists(each.mistake)}
        # What cannot be made any more stays until its object was looked at.
        wanted = set(sources.wanted())
        self._stale = {each for each in before if each.mistake.name in wanted}
        self._stale -= self._known
        self._small = set(sources.places()) if small else set()
        self._small |= {each.mistake.name for each in before if each.mistake.old}
        unknown = names - wanted
        if unknown:
            raise SystemExit(f"no trigger, view or constraint: {', '.join(unknown)}")

    def run(self, jobs: int) -> int:
        """How many objects are left of which no mistake was noticed."""
        asked = self._asked()

        def work(tests: Tests) -> int:
            likely = Likely(tests, jobs)
            plans = [self._look(name, likely) for name in asked]
            missed = 0
            for number, found in enumerate(tests.together(jobs, plans), 1):
                missed += not found
                print(f"{number}/{len(plans)}", flush=True)
                write(self._known | self._stale)
            return missed

        files = {file for name in asked for file in files_about(name)}
        files |= {each.file for name in asked for each in self._of(name)}
        missed = with_tests(files, work) if asked else 0
        write(self._known | self._stale)
        return missed

    def _asked(self) -> list[str]:
        return [
            name
            for name in sources.wanted()
            if name in self._names
            or (not self._names and (not self._of(name) or self._lacks_small(name)))
        ]

    def _of(self, name: str) -> list[Known]:
        return sorted(each for each in self._known if each.mistake.name == name)

    def _lacks_small(self, name: str) -> bool:
        if name not in self._small or name not in sources.places():
            return False
        return not any(each.mistake.old for each in self._of(name))

    def _look(self, name: str, likely: Likely) -> Plan[bool]:
        """Try what there is of a named object, and find what it lacks."""
        for each in self._of(name) if self._names else ():
            test = yield from _noticed(each.mistake, [each.test], likely.tests)
            if not test:
                print(f"gone {each.mistake.label}: {each.test}", flush=True)
                self._known.discard(each)
        if not self._of(name):
            yield from self._try([sources.obvious(name)], likely)
        place = sources.places().get(name)
        if place and (not self._of(name) or self._lacks_small(name)):
            some = itertools.islice(sources.small(place), SOME)
            yield from self._try(some, likely)
        self._stale -= {each for each in self._stale if each.mistake.name == name}
        return bool(self._of(name))

    def _try(self, mistakes: Iterable[Mistake], likely: Likely) -> Plan[None]:
        for mistake in mistakes:
            before = [each.test for each in self._of(mistake.name)]
            tests = list(dict.fromkeys([*before, *likely.of(mistake.name)]))
            test = yield from _noticed(mistake, tests, likely.tests)
            print(f"{mistake.label}: {test or 'MISSED'}", flush=True)
            if test:
                self._known.add(Known(mistake, test))
                return


def _noticed(mistake: Mistake, likely: list[str], tests: Tests) -> Plan[str]:
    """The first of the tests that notices what the mistake does, and nothing else."""
    # What only a far one notices, of a small mistake, says little of the object.
    most = 400 if not mistake.old else 100
    for start, end in itertools.pairwise((0, 5, 25, 100, most)):
        rest = [test for test in likely[start:end] if tests.has(test)]
        while rest:
            answer = yield Try(mistake, rest, HASTE)
            if answer.test not in rest:
                break
            if answer.ended:
                same = yield Try(Mistake(mistake.name, "", SAME), [answer.test])
                if not same.test:
                    return answer.test
            rest = rest[rest.index(answer.test) + 1 :]
    return ""


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("names", nargs="*", help="objects, or the word find first")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--small", action="store_true", help="find small ones too")
    # What was started has to be ended: it may be a loop without an end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = parser.parse_intermixed_args()
    names = options.names
    if names[:1] == ["find"]:
        if not hasattr(os, "fork"):
            parser.error("find needs a system on which a process can fork")
        return bool(Search(set(names[1:]), small=options.small).run(options.jobs))
    return bool(try_all(options.jobs, set(names)))


if __name__ == "__main__":
    sys.exit(main())
