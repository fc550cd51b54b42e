"""What a condition costs, whatever its operands: sql/logic/settle.

It is asked while everybody waits to write, of documents that a task, a server or
another client has filled.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from litejobs import Rule
from litejobs._definitions import conditions
from litejobs.cli.file.untrusted import LINEAR
from tests.models.policymodel import MOST_COMPARED, MOST_ELEMENTS, holds
from tests.rows import for_each
from tests.sql.fixture import (
    Operand,
    Sql,
    as_new,
    at,
    condition,
    literal,
    on_apsw,
    steps_of,
)

# What each operator costs. `in` alone compares more than once: it looks at each element
# or key, or at each place of a text.
COSTS = {
    "eq": "one comparison",
    "lt": "one comparison",
    "le": "one comparison",
    "gt": "one comparison",
    "ge": "one comparison",
    "truthy": "one comparison",
    "in": "bounded",
}
STEPS_OF_ONE = 300  # of SQLite's machine, for a condition that compares once
STEPS_OF_IN = 60 * MOST_ELEMENTS


def ended(db: Sql, **outcome: Any) -> Any:
    """The attempt of a new job, which has ended so."""
    attempt = db.begin(db.enqueue("a"))
    more = "".join(
        f",{json.dumps(name)}:{json.dumps(each, ensure_ascii=False)}"
        for name, each in outcome.items()
    )
    db.settle(attempt, "error", more)
    return db.attempt(attempt)


# How far a condition looks ------------------------------------------------------------

LONG = "x" * 2_000


@for_each("negated", [0, 1])
@for_each("lowered", [0, 1])
@for_each(
    "sought, other",
    [
        (7, 1),
        (7, "some text"),
        ("Sought", 1),
        ("Sought", "t" * 50),
        (LONG, "t"),
        (None, 0),
        (None, "t" * 50),
        (1.5, True),
        ("Sought", ["t" * 50]),
        ("Sought", {"a": "b"}),
    ],
)
def test_so_many_elements_are_looked_at(
    db: Sql, sought: Any, other: Any, lowered: int, negated: int
) -> None:
    db.serve("a")
    whole = at("outcome.result").lowered if lowered else at("outcome.result")
    lower = conditions._lowered(json.dumps(sought)) if lowered else json.dumps(sought)
    when = condition(Operand("literal", value=lower), "in", whole, negated)
    db.add_policy({"action": "cancel", "when": [when]})
    text = f"{json.loads(lower)!r} {'not ' if negated else ''}in outcome.result"
    text += "|lower" if lowered else ""
    for before in (MOST_ELEMENTS - 1, MOST_ELEMENTS):
        found = ended(db, result=[other] * before + [sought])
        expected = (before < MOST_ELEMENTS) != bool(negated)
        assert (found.action == "cancel") == expected
        scope = {"outcome": {"result": [other] * before + [sought]}}
        assert holds(text, scope) == expected


@pytest.mark.parametrize("lowered", [0, 1])
def test_so_many_keys_are_looked_at(db: Sql, lowered: int) -> None:
    db.serve("a")
    whole = at("outcome.result").lowered if lowered else at("outcome.result")
    sought = "key" if lowered else "Key"
    db.add_policy(
        {"action": "cancel", "when": [condition(literal(sought), "in", whole)]}
    )
    for before in (MOST_ELEMENTS - 1, MOST_ELEMENTS):
        keys = [*(f"other {number}" for number in range(before)), "Key"]
        result = dict.fromkeys(keys, 0)
        assert (ended(db, result=result).action == "cancel") == (before < MOST_ELEMENTS)
        text = f"{sought!r} in outcome.result" + ("|lower" if lowered else "")
        scope = {"outcome": {"result": result}}
        assert holds(text, scope) == (before < MOST_ELEMENTS)


@for_each("negated", [0, 1])
@for_each("size", [64, 65, 1_000, 8_192, 8_193])
@for_each("letter", ["a", "ü", "漢"])
def test_so_far_a_text_is_looked_through(
    db: Sql, letter: str, size: int, negated: int
) -> None:
    """As far as so many bytes would be compared, if each place were tried in full."""
    db.serve("a")
    part = letter * ((size - 1) // len(letter.encode())) + "!"
    part += "." * (size - len(part.encode()))
    when = condition(at("outcome.part"), "in", at("outcome.whole"), negated)
    db.add_policy({"action": "cancel", "when": [when]})
    text = f"outcome.part {'not ' if negated else ''}in outcome.whole"
    end = MOST_COMPARED // size
    for further in (0, 1):
        before = end - size + further
        # Behind it is more than is looked at in any case.
        whole = "-" * before + part + "-" * 100_000
        expected = (not further and before >= 0) != bool(negated)
        found = ended(db, part=part, whole=whole)
        assert (found.action == "cancel") == expected
        assert holds(text, {"outcome": {"part": part, "whole": whole}}) == expected


def test_a_megabyte_is_looked_through_for_what_people_write(db: Sql) -> None:
    db.serve("a")
    rule = Rule("'connection reset by peer' in lower(outcome.result)", "cancel")
    columns = [
        {
            name: each
            for name, each in test.columns().items()
            if name not in {"term", "position"}
        }
        for test in rule.conditions
    ]
    db.add_policy({"action": "cancel", "when": columns})
    page = "connection reset by pear " * 40_000 + "Connection reset by PEER"
    assert ended(db, result=page).action == "cancel"


# What that costs ----------------------------------------------------------------------


def test_the_cost_of_every_operator_is_known() -> None:
    """One that is new has to be thought of here, and below."""
    schema = on_apsw(traced=False).value(
        "select sql from sqlite_schema where name = 'litejobs_condition'"
    )
    known = re.search(r"op_known check \((.*?)\n +\)", schema, re.DOTALL)
    assert known is not None
    assert set(re.findall(r"op = '(\w+)'", known[1])) == COSTS.keys()
    assert {word for word, _ in conditions._OPS.values()} | {"truthy"} == COSTS.keys()


def test_conditions_call_nothing_else_that_is_not_linear() -> None:
    db = on_apsw(traced=False)
    called = set()

    def note(operation: int, _: object, name: Any, __: object, place: Any) -> int:
        if operation == apsw.SQLITE_FUNCTION and place == "litejobs__match":
            called.add(str(name))
        return apsw.SQLITE_OK

    db.connection.authorizer = note
    db.execute("select rule_id from litejobs__match limit 0")
    assert called - LINEAR == {"instr"}


def operands(elements: int) -> dict[str, Any]:
    """Values that are as bad as values of this size can be, by what they are."""
    text = "a" * (10 * elements)
    return {
        "text": text,
        "part": text[: 5 * elements] + "b",
        "letter": "b",
        "number": 1,
        "texts": ["aa"] * elements,
        "long_texts": [text[: 2 * elements]] * 2,
        "numbers": [0] * elements,
        "keys": {f"a{number}": 0 for number in range(elements)},
        "nothing": None,
    }


SOURCES = (("outcome.result.", "iter."), ("ctx.", "iter."), ("ctx.", None))
"""Where the two operands of a condition are; None is for a literal."""


def pairs(
    op: str, values: dict[str, Any], *, each: bool
) -> Iterator[tuple[Operand, Operand | None]]:
    """The operands that this operator is asked of, in the order of the values.

    Unless it is each pair from *each* source: one source for each pair, and of those
    that cost as much a third, so that each value is once on each side from each.
    """
    if op == "truthy":
        for name in values:
            yield at(f"outcome.result.{name}"), None
            yield at(f"ctx.{name}"), None
        return
    shift = list(COSTS).index(op)
    for (i, one), (j, other) in itertools.product(enumerate(values), repeat=2):
        if not each and COSTS[op] != "bounded" and (i + j + shift) % 3:
            continue
        for number, (left, right) in enumerate(SOURCES):
            if each or number == (i // 3 + j // 3) % 3:
                said = literal(values[other]) if right is None else at(right + other)
                yield at(left + one), said


class Counted:
    """A database that says how much SQLite compares."""

    def __init__(self) -> None:
        self.db = on_apsw(traced=False)
        self.compared = 0
        self.db.connection.create_scalar_function(
            "instr", self._instr, 2, deterministic=True, flags=apsw.SQLITE_INNOCUOUS
        )

    def _instr(self, whole: Any, part: Any) -> int | None:
        if not isinstance(whole, str) or not isinstance(part, str):
            return None if whole is None or part is None else 0
        compared = len(whole.encode()) * len(part.encode())
        self.compared = max(self.compared, compared)
        return whole.find(part) + 1


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    """One for all operators, which leave nothing there."""
    counted = Counted()
    yield counted
    counted.db.connection.close()


class Cost:
    """Settling an attempt under conditions with this operator, on two operands."""

    def __init__(self, counted: Counted, op: str, elements: int, *, each: bool) -> None:
        values = operands(elements)
        document = json.dumps(values)
        # None of the rules holds, so that all are asked.
        never = condition(literal(1), "eq", literal(2))
        rules: list[dict[str, Any]] = []
        for left, right in pairs(op, values, each=each):
            lowered = left.lowered, None if right is None else right.lowered
            for one, other in ((left, right), lowered):
                asked = condition(one, op, other)
                rules.append({"action": "break", "when": [asked, never]})
        self.conditions = 2 * len(rules)
        with as_new(counted.db) as db:
            db.serve("a")
            db.add_policy(*rules, otherwise="fail")
            attempt = db.begin(db.enqueue("a", ctx=document, iter=document))
            counted.compared = 0
            self.steps = 100 * steps_of(
                db, lambda: db.settle(attempt, "error", f',"result":{document}')
            )
            self.compared = counted.compared
            assert db.attempt(attempt).stopped_by == "no_rule"


@pytest.mark.parametrize(
    "each", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["some", "each"]
)
@pytest.mark.parametrize("op", COSTS)
def test_a_condition_costs_no_more_than_to_read_its_operands(
    op: str, each: bool, counted: Counted
) -> None:
    """Much more of everything makes no more steps, and no larger comparison."""
    # What is bounded has reached its bound in both; to read the documents is what
    # takes the time.
    sizes = (11_000, 22_000) if COSTS[op] == "bounded" else (1_000, 11_000)
    some, more = (Cost(counted, op, size, each=each) for size in sizes)
    most = STEPS_OF_IN if COSTS[op] == "bounded" else STEPS_OF_ONE
    for cost in (some, more):
        assert cost.steps < most * cost.conditions
        assert cost.compared <= MOST_COMPARED
    assert more.steps < 1.1 * some.steps
    assert (more.compared > MOST_COMPARED // 2) == (op == "in")


# What is looked at --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        (8_388_608, None),
        (8_388_609, "CHECK constraint failed: litejobs_attempt_outcome_size"),
    ],
)
def test_an_outcome_is_so_large_at_most(
    db: Sql, size: int, sentence: str | None
) -> None:
    db.serve("a")
    attempt = db.begin(db.enqueue("a"))
    document = '{"status":"error","x":"é"}'
    document = document.replace("é", "é" + "x" * (size - len(document.encode())))
    sql = "insert into litejobs_settle (attempt, outcome) values (?, ?)"
    if sentence is None:
        db.execute(sql, (attempt, document))
        assert db.attempt(attempt).status == "error"
    else:
        assert db.refused(sql, (attempt, document)) == sentence


@pytest.mark.parametrize("column", ["ctx", "iter"])
def test_what_a_job_remembers_is_so_large_at_most(db: Sql, column: str) -> None:
    largest = json.dumps({"x": "é" * 524_283}, ensure_ascii=False)
    assert len(largest.encode()) == 1_048_575
    sql = f"insert into litejobs_job (task, {column}) values ('a', ?)"
    db.execute(sql, (largest + " ",))
    assert db.refused(sql, (largest + "  ",)) == (
        f"CHECK constraint failed: litejobs_job_{column}_size"
    )


def test_a_key_takes_of_an_argument_what_it_can_have(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}" * 100 + "{1}")
    job = db.enqueue("a", args=json.dumps(["x" * 300, "y"]))
    assert db.job(job).concurrency_key == "x" * 500
    job = db.enqueue("a", args=json.dumps(["", "y" * 700]))
    assert db.job(job).concurrency_key == "y" * 500
    job = db.enqueue("a", args=json.dumps([1.5, True]))
    assert db.job(job).concurrency_key == "1.5" * 100 + "1"
