"""An expression becomes rows that mean the same; all else is refused with its place."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest

from litejobs._definitions.conditions import (
    Change,
    Condition,
    Operand,
    names_crash,
    parse,
    parse_changes,
)
from litejobs._storage import statements
from litejobs.errors import ConfigurationError


def shown(operand: Operand | None) -> str:
    if operand is None:
        return ""
    if operand.source == "literal":
        return str(operand.value)
    text = f"{operand.source}{operand.path[1:]}"
    return f"lower({text})" if operand.lowered else text


def read(expression: str | bool, **options: Any) -> str:
    """The terms in short: `not lt outcome.a 5 & in "x" ctx.b | truthy iter.c`."""
    terms: dict[int, list[str]] = {}
    for each in parse(expression, **options):
        words = ["not"] * each.negated + [each.op, shown(each.left), shown(each.right)]
        terms.setdefault(each.term, []).append(" ".join(words).strip())
    return " | ".join(" & ".join(term) for term in terms.values())


def refusal(expression: Any, **options: Any) -> list[str]:
    """The lines of the message."""
    with pytest.raises(ConfigurationError) as caught:
        parse(expression, **options)
    # The reader of a traceback sees our sentence alone.
    assert caught.value.__context__ is None
    return str(caught.value).split("\n")


# --- what can be said --------------------------------------------------------------


@pytest.mark.parametrize(
    "expression", [True, "true", "True", " {{ true }} ", "always", "{{always}}"]
)
def test_always_has_no_conditions(expression: str | bool) -> None:
    assert parse(expression) == ()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # comparisons
        ("ctx.a == 1", "eq ctx.a 1"),
        ("ctx.a != 'x'", 'not eq ctx.a "x"'),
        ("ctx.a < 1", "lt ctx.a 1"),
        ("ctx.a <= 1.5", "le ctx.a 1.5"),
        ("ctx.a > -1", "gt ctx.a -1"),
        ("ctx.a >= 'b'", 'ge ctx.a "b"'),
        ("ctx.a == ctx.b", "eq ctx.a ctx.b"),
        ("attempt < ctx.a", "lt attempt ctx.a"),
        ("step == 'fetch'", 'eq step "fetch"'),
        ("step is None", "eq step null"),
        # the literal on the left: mirrored, which is not negated
        ("1 == ctx.a", "eq ctx.a 1"),
        ("1 < ctx.a", "gt ctx.a 1"),
        ("1 <= ctx.a", "ge ctx.a 1"),
        ("1 > ctx.a", "lt ctx.a 1"),
        ("1 >= ctx.a", "le ctx.a 1"),
        # null and booleans, in the words of Python and of JSON
        ("ctx.a is None", "eq ctx.a null"),
        ("ctx.a is not none", "not eq ctx.a null"),
        ("ctx.a == null", "eq ctx.a null"),
        ("ctx.a == True", "eq ctx.a true"),
        ("ctx.a != false", "not eq ctx.a false"),
        # lists, keys and texts
        ("ctx.a in [1, 2.0, 'x', None, true]", 'in ctx.a [1,2.0,"x",null,true]'),
        ("ctx.a not in (1, -2)", "not in ctx.a [1,-2]"),
        ("'x' in ctx.a", 'in "x" ctx.a'),
        ("ctx.a in ctx.b", "in ctx.a ctx.b"),
        ("ctx.a in 'abc'", 'in ctx.a "abc"'),
        ("contains(ctx.a, 'x')", 'in "x" ctx.a'),
        ("ctx.a.contains('x')", 'in "x" ctx.a'),
        ("ctx.a contains 'x'", 'in "x" ctx.a'),
        ("ctx.a not contains 'x'", 'not in "x" ctx.a'),
        ("not ctx.a not contains 'x'", 'in "x" ctx.a'),
        ("not contains(ctx.a, 'x')", 'not in "x" ctx.a'),
        ("ctx.a contains ('x')", 'in "x" ctx.a'),
        ("'é' in ctx.b or ctx.a contains 'é'", 'in "é" ctx.b | in "é" ctx.a'),
        ("ctx.contains contains 'x'", 'in "x" ctx.contains'),
        ("ctx.contains and ctx.a", "truthy ctx.contains & truthy ctx.a"),
        ("ctx.a == ' contains '", 'eq ctx.a " contains "'),
        # lower case, which binds tighter than `in`
        ("lower(ctx.a) == 'x'", 'eq lower(ctx.a) "x"'),
        ("ctx.a.lower() == 'x'", 'eq lower(ctx.a) "x"'),
        ("ctx.a | lower == 'x'", 'eq lower(ctx.a) "x"'),
        ("ctx.a|lower|lower == 'x'", 'eq lower(ctx.a) "x"'),
        ("'x' in ctx.a|lower", 'in "x" lower(ctx.a)'),
        ("ctx.a|lower contains 'X'|lower", 'in "x" lower(ctx.a)'),
        ("ctx.a.lower().contains('x')", 'in "x" lower(ctx.a)'),
        ("ctx.a == 'ÀB'.lower()", 'eq ctx.a "Àb"'),
        ("ctx.a in ['A', 1, None]|lower", 'in ctx.a ["a",1,null]'),
        # paths
        ("ctx", "truthy ctx"),
        ("outcome.http.status", "truthy outcome.http.status"),
        ("not ctx['odd key']", 'not truthy ctx."odd key"'),
        ("ctx['a.b']['it\\'s'].c", 'truthy ctx."a.b"."it\'s".c'),
        ("ctx['plain']", "truthy ctx.plain"),
        ("ctx['0']", 'truthy ctx."0"'),
        ("ctx['']", 'truthy ctx.""'),
        ("ctx.日本", 'truthy ctx."日本"'),
        ("ctx.a[0]", "truthy ctx.a[0]"),
        ("ctx.a[-1].b", "truthy ctx.a[#-1].b"),
        ("ctx[-0]", "truthy ctx[0]"),
        ("ctx.in_x.lower", "truthy ctx.in_x.lower"),
        ("ctx.true", "truthy ctx.true"),
        # texts and numbers
        (r"ctx.a == 'tab\t\x41\u00e9'", r'eq ctx.a "tab\tAé"'),
        (r"ctx.a == r'\d'", r'eq ctx.a "\\d"'),
        ("ctx.a == u'x'", 'eq ctx.a "x"'),
        ("ctx.a == 0x1F", "eq ctx.a 31"),
        ("ctx.a == 1_000e-3", "eq ctx.a 1.0"),
        ("ctx.a == -9223372036854775808", "eq ctx.a -9223372036854775808"),
        # and, or, not
        ("ctx.a and ctx.b", "truthy ctx.a & truthy ctx.b"),
        ("ctx.a or ctx.b and ctx.c", "truthy ctx.a | truthy ctx.b & truthy ctx.c"),
        (
            "(ctx.a or ctx.b) and ctx.c",
            "truthy ctx.a & truthy ctx.c | truthy ctx.b & truthy ctx.c",
        ),
        ("not (ctx.a and ctx.b)", "not truthy ctx.a | not truthy ctx.b"),
        ("not (ctx.a or ctx.b)", "not truthy ctx.a & not truthy ctx.b"),
        ("not not ctx.a", "truthy ctx.a"),
        ("ctx.a and ctx.a", "truthy ctx.a"),
        ("ctx.a and ctx.b or ctx.b and ctx.a", "truthy ctx.a & truthy ctx.b"),
        ("100 <= ctx.a < 300", "ge ctx.a 100 & lt ctx.a 300"),
        ("not 100 <= ctx.a < 300", "not ge ctx.a 100 | not lt ctx.a 300"),
        ("ctx.a contains ctx.b == 1", "in ctx.b ctx.a & eq ctx.b 1"),
        # layout
        ("{{ctx.a}}", "truthy ctx.a"),
        ("\n  {{\n ctx.a\n}}\n", "truthy ctx.a"),
        ("ctx.a == '}}' ", 'eq ctx.a "}}"'),
        ("{{ ctx.a == '{{ }}' }}", 'eq ctx.a "{{ }}"'),
        ("ctx.a\r\n  and\rctx.b # why\n", "truthy ctx.a & truthy ctx.b"),
        ("ctx . a [ 0 ]", "truthy ctx.a[0]"),
    ],
)
def test_expression_becomes_conditions(expression: str, expected: str) -> None:
    assert read(expression) == expected


def test_negation_is_stored_and_operators_stay() -> None:
    """`not (x >= 500)` holds where x is missing, `x < 500` does not."""
    assert read("not (outcome.x >= 500)") == "not ge outcome.x 500"
    assert read("not (outcome.x < 500)") == "not lt outcome.x 500"


def test_conditions_are_numbered_from_one() -> None:
    found = parse("ctx.a and ctx.b or ctx.c")
    assert [(each.term, each.position) for each in found] == [(1, 1), (1, 2), (2, 1)]


def test_columns_are_those_of_the_table() -> None:
    both, alone = parse("lower(ctx.a) != 'x' and attempt")
    assert both.columns() == {
        "term": 1,
        "position": 1,
        "source": "ctx",
        "path": "$.a",
        "value": None,
        "lowered": 1,
        "op": "eq",
        "negated": 1,
        "other_source": "literal",
        "other_path": "$",
        "other_value": '"x"',
        "other_lowered": 0,
    }
    assert alone.columns()["other_source"] is None


def test_rows_fit_the_tables() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("".join(statements.schema()))
    connection.execute("pragma foreign_keys = off")
    written = parse_changes("ctx", {"a": 1, "b.c": "{{ iter.page - 1.5 }}"})
    for table, rows in (
        ("litejobs_condition", parse("lower(ctx.a[-1]) != 'x' and not attempt")),
        ("litejobs_rule_change", written),
    ):
        names = {
            name
            for (name,) in connection.execute(
                "select name from pragma_table_info(?)", (table,)
            )
        }
        for position, each in enumerate(rows, 1):
            row = {"rule_id": 1, "position": position, **each.columns()}
            assert row.keys() == names
            connection.execute(
                f"insert into {table} ({', '.join(row)}) "
                f"values ({', '.join(f':{name}' for name in row)})",
                row,
            )
        assert connection.execute(f"select count(*) from {table}").fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("outcome.status == 'crashed'", True),
        ("'crashed' == outcome['status']", True),
        ("lower(outcome.status) == 'CRASHED'.lower()", True),
        ("outcome.status in ['error', 'crashed']", True),
        ("not (outcome.status != 'crashed')", True),
        ("not (outcome.status not in ['crashed'] and ctx.a)", True),
        ("ctx.a or outcome.status == 'crashed' and ctx.b", True),
        ("outcome.status != 'crashed'", False),
        ("outcome.status not in ['crashed']", False),
        ("outcome.status == 'error'", False),
        ("outcome.status in ['error', '\"crashed\"']", False),
        ("outcome.status in 'crashed'", False),
        ("outcome.status > 'crashed'", False),
        ("'crashed' in outcome.status", False),
        ("outcome.error.status == 'crashed'", False),
        ("ctx.status == 'crashed'", False),
        ("outcome.status", False),
        ("outcome.status == ctx.a", False),
        (True, False),
    ],
)
def test_crashes_have_to_be_named(expression: str | bool, expected: bool) -> None:
    assert names_crash(parse(expression)) is expected


# --- what is refused, and where ----------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "place", "problem"),
    [
        # not finished, or nothing
        ("ctx.a and", 9, "the end is missing"),
        ("ctx.a ==", 8, "the end is missing"),
        ("(ctx.a", 0, "not closed; put ) after it"),
        ("ctx.a[0", 5, "not closed; put ] after it"),
        ("ctx.a)", 5, "closes nothing"),
        ("ctx.a) or (ctx.b", 5, "closes nothing"),
        ("(ctx.a]", 6, "closes nothing"),
        ("ctx.a == 'x", 9, "not closed; put the same quote"),
        ("{{ }}", 0, "is empty"),
        ("# why", 0, "is empty"),
        # braces
        ("{{ ctx.a", 0, "only surround the whole expression"),
        ("ctx.a }}", 6, "only surround the whole expression"),
        ("{{ ctx.a }} and {{ ctx.b }}", 9, "only surround the whole expression"),
        # something missing between
        ("ctx.a ctx.b", 6, "write an operator such as ==, or a comma"),
        ("ctx.a in ['40001' '40P01']", 18, "or a comma in a list"),
        ("ctx.a or or ctx.b", 9, "not an expression"),
        ("ctx...a", 0, "not an expression"),
        # other languages
        ("ctx.a && ctx.b", 6, "write and"),
        ("ctx.a || ctx.b", 6, "write or"),
        ("!ctx.a", 0, "write not"),
        ("ctx.a = 1", 6, "write =="),
        ("ctx.a === 1", 8, "write =="),
        ("ctx.a <> 1", 6, "write !="),
        ("ctx.a ~ 'x'", 6, "'~' is not known here"),
        ("ctx.a is defined", 9, "'defined' is not known"),
        ("{% ctx.a %}", 0, "only surround"),
        # more of Python than there is
        ("ctx.a if ctx.b else 1", 6, "if is not known here"),
        ("lambda: ctx.a", 0, "lambda is not known here"),
        ("[x for x in ctx.a]", 3, "for is not known here"),
        ("ctx.a == f'{ctx.b}'", 9, "a text cannot begin with f"),
        ("ctx.a == b'x'", 9, "a text cannot begin with b"),
        ("'''x' contains 'y'''", 0, "one quote on each side"),
        ("ctx.a[1:2]", 7, "name one element"),
        ("ctx.a is true", 9, "only None can follow is"),
        ("ctx.class", 4, 'write ["class"]'),
        ("ctx.None", 4, 'write ["None"]'),
        ("ctx.a * 2 > 1", 6, "'*' is not known"),
        ("ctx.a + 1 > 1", 0, "cannot calculate"),
        ("ctx.a|upper == 'X'", 6, "only lower can follow |"),
        ("ctx.a|lower('x')", 6, "only lower can follow |"),
        ("__import__('os')", 0, "only lower() and contains() can be called"),
        ("ctx.a and ctx.b.get('x')", 10, "only lower() and contains() can be called"),
        ("contains(ctx.a)", 0, "write contains(a, b)"),
        ("ctx.a.contains()", 0, "write a.contains(b)"),
        ("lower() == 'x'", 0, "write lower(a)"),
        ("ctx.a.lower(1) == 'x'", 0, "write a.lower()"),
        ("(ctx.a == 1) == ctx.b", 1, "the answer of a test"),
        ("ctx.a == (not ctx.b)", 10, "the answer of a test"),
        ("ctx.a in __ in ctx.b", 9, "'__' is not known"),
        # names
        ("foo == 1", 0, "begin a path with outcome, ctx, iter, attempt or step"),
        ("status == 'ok'", 0, "did you mean outcome.status?"),
        ("outcom.status == 'ok'", 0, "did you mean outcome?"),
        ("ctx.a == error", 9, "did you mean outcome.error?"),
        ("attempt.x", 0, "attempt has no members"),
        ("1 < step[0]", 4, "step has no members"),
        ("'a'.b == ctx.a", 0, "a path begins with a name"),
        ("ctx.ﬁ", 4, "would be read as fi"),
        # keys that no path can express
        ("ctx['a\"b']", 4, "the character '\"'"),
        ("ctx['a\\\\b']", 4, "the character '\\\\'"),
        ("ctx['a\\nb']", 4, "the character '\\n'"),
        ("ctx[1000000001]", 4, "no list is so long"),
        ("ctx[true]", 4, "this is not a key"),
        ("ctx[True]", 4, "this is not a key"),
        ("ctx[1.5]", 4, "this is not a key"),
        ("ctx[ctx.a]", 4, "this is not a key"),
        ("ctx[0, 1]", 4, "this is not a key"),
        # values
        ("ctx.a == 9223372036854775808", 9, "beyond signed 64 bits"),
        ("ctx.a in [1, -9223372036854775809]", 13, "beyond signed 64 bits"),
        ("ctx.a == 1e999", 9, "inf"),
        ("ctx.a == 1j", 9, "1j is not a number"),
        ("ctx.a == 1or ctx.b", 9, "1or is not a number"),
        ("ctx.a == 007", 9, "leading zeros"),
        (r"ctx.a == 'a\d'", 11, r"write \\d"),
        (r"ctx.a == 'a\0'", 11, "means nothing in a text"),
        (r"ctx.a == '\u12'", 9, "an escape that means nothing"),
        (r"ctx.a == '\ud800'", 9, "is not a text; take it out"),
        (r"ctx.a == '\x00'", 9, "is not a text; take it out"),
        ("ctx.a == [1]", 9, "a list cannot be compared"),
        ("(1, 2) == ctx.a", 0, "a list cannot be compared"),
        ("ctx.a in [[1]]", 10, "a list cannot hold lists"),
        ("ctx.a in [ctx.b]", 10, "this is not a value"),
        ("[1] in ctx.a", 0, "a list is never in another"),
        ("ctx.a in []", 9, "add an element"),
        ("ctx.a in (1)", 10, "nothing can be in a number"),
        ("'x' in attempt", 7, "nothing can be in a number"),
        ("attempt in 'abc'", 0, "only a text can be in a text"),
        ("ctx.a < None", 8, "only numbers and texts have an order"),
        ("ctx.a >= true", 9, "only numbers and texts have an order"),
        ("attempt == '1'", 11, "attempt is a number"),
        ("attempt is None", 11, "attempt is a number"),
        ("step == 1", 8, "step is a text"),
        ("lower(attempt) == 'x'", 6, "only texts have lower case"),
        ("ctx.a == lower(5)", 15, "only texts have lower case"),
        # always the same
        ("1 == 1", 0, "always the same"),
        ("ctx.a and 'a' in ['a']", 10, "always the same"),
        ("false", 0, "always the same"),
        ("ctx.a or true", 9, "always the same"),
        ("'x'", 0, "always the same"),
        ("ctx.a, ctx.b", 0, "this is not a value"),
        # places after letters of several bytes
        ("'é日本😀' in ctx.é and foo", 20, "'foo' is not known"),
        ("{{ 'é' in ctx.a == bad }}", 19, "'bad' is not known"),
    ],
)
def test_refusal_names_problem_and_place(
    expression: str, place: int, problem: str
) -> None:
    sentence, *lines = refusal(expression, name="rules[1].when")
    assert sentence.startswith("rules[1].when: ")
    assert problem in sentence
    assert "; " in sentence
    assert lines == [expression, " " * place + "^"]


@pytest.mark.parametrize("given", [False, None, 1, b"true", ["ctx.a"]])
def test_what_is_no_expression_is_refused(given: Any) -> None:
    (sentence,) = refusal(given)
    assert sentence.startswith(f"when={given!r} is not a condition; give an expression")


@pytest.mark.parametrize("given", ["", "  ", "\n\n"])
def test_empty_expression_is_refused_without_a_mark(given: str) -> None:
    (sentence,) = refusal(given)
    assert sentence == "when: the expression is empty; write one, or True for always"


def test_sources_can_be_restricted() -> None:
    assert read("ctx.a", sources=("outcome", "ctx")) == "truthy ctx.a"
    sentence, *_ = refusal("iter.a", sources=("outcome", "ctx"))
    assert "iter cannot be used here; begin a path with outcome or ctx" in sentence


def test_place_is_marked_in_the_line_where_it_is() -> None:
    lines = refusal("ctx.a == 1\n  and 'é' in foo\n  and ctx.c")[1:]
    assert lines == [
        "ctx.a == 1",
        "  and 'é' in foo",
        " " * 13 + "^",
        "  and ctx.c",
    ]


def test_tabs_stay_in_front_of_the_mark() -> None:
    assert refusal("\tctx.a ==\t=1")[1:] == ["\tctx.a ==\t=1", "\t        \t^"]


def test_control_characters_are_not_printed() -> None:
    assert refusal("ctx.a == '\x1b[31m' = 1")[1] == "ctx.a == '\ufffd[31m' = 1"


def test_of_a_long_expression_the_part_around_the_place_is_shown() -> None:
    many = " and ".join(["ctx.a"] * 400)
    _, line, mark = refusal(f"{many} and foo and {many}")
    assert line[mark.index("^") :].startswith("foo and")
    assert line.startswith("…")
    assert line.endswith("…")
    assert len(line) < 250
    _, line, mark = refusal("ctx.a and\n" * 500 + "foo")
    assert (line, mark) == ("foo", "^")


# --- hostile texts -----------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "not " * 2400 + "ctx.a",
        "(" * 4000 + "ctx.a" + ")" * 4000,
        "[" * 9999,
        "-" * 9000 + "1 < attempt",
        "(not " * 1600 + "ctx.a" + ")" * 1600,
        "ctx" + ".a" * 4000,
        "ctx" + "[0]" * 3000,
        "ctx.a" + "|lower" * 1500,
        "ctx.a" + ".lower()" * 1200,
        "lower(" * 1400 + "ctx.a" + ")" * 1400,
        "ctx.a" + " + 1" * 2000,
        "ctx.a == " + "9" * 9000,
        "ctx.a == 0x" + "f" * 9000,
        "ctx.a" + " or ctx.b" * 9 + "x" * 10_000,
        " or ".join(f"ctx.a{each}" for each in range(101)),
        " and ".join(f"(ctx.a{each} or ctx.b{each})" for each in range(7)),
        " and ".join(f"(ctx.a{each} or ctx.b{each})" for each in range(300)),
        f"not ({' or '.join(f'(ctx.a{each} and ctx.b)' for each in range(300))})",
        f"{'(ctx.a or ctx.b) and ' * 3}{' and '.join(f'iter.{each}' for each in 'ab')}"
        " and (" + " or ".join(f"ctx.c{each}" for each in range(99)) + ")",
        "ctx.a == '\ud800'",
        "\ud800",
        "ctx.a\0",
        "\0" * 100,
        "\N{RIGHT-TO-LEFT OVERRIDE}ctx.a",
        "\x0c\x0b\u2028ctx.a",
        "'" * 9999,
        "\\" * 9999,
        "{{" * 4000 + "}}" * 900,
        "#" * 9999,
        "._" * 2000,
    ],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)
def test_hostile_expression_is_refused_in_few_words(expression: str) -> None:
    sentence, *lines = refusal(expression)
    assert sentence.startswith("when")
    assert sum(map(len, [sentence, *lines])) < 1000


@pytest.mark.parametrize(
    "expression",
    [
        "not " * 99 + "ctx.a",
        "(" * 99 + "ctx.a" + ")" * 99,
        "- " * 98 + "1 < attempt",
        "ctx" + ".a" * 99,
        "lower(" * 98 + "ctx.a" + ")" * 98,
    ],
    ids=lambda text: text[:12],
)
def test_allowed_depth_fits_pythons_parser(expression: str) -> None:
    assert len(parse(expression)) == 1


def test_largest_forms_are_accepted() -> None:
    assert len(parse(" or ".join(f"ctx.a{each}" for each in range(100)))) == 100
    assert len(parse(" and ".join(f"ctx.a{each}" for each in range(700)))) == 700
    assert len(parse("(ctx.a or ctx.b)" + " and (ctx.a or ctx.b)" * 400)) == 4
    (found,) = parse(f"ctx.a in {list(range(1700))}")
    assert found.right == Operand(
        "literal", "$", json.dumps([*range(1700)]).replace(" ", "")
    )


PIECES = (
    "ctx.a outcome.http.status [ ] ( ) , . == != < >= in not and or is None true 'x' "
    "\"é\" 1 -1 1.5 | lower contains lower( .lower() .contains( {{ }} + \\ '\\d' ' # = "
    ": attempt step __ if \n é [0] ['k'] always 0x 1e5 1or r'' f''"
)


def test_random_texts_are_read_or_refused() -> None:
    """Nothing but ConfigurationError comes out, and no warning."""
    chance = random.Random(3)
    pieces = PIECES.split(" ")
    outcomes = {"read": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4000):
            text = chance.choice(["", " "]).join(
                chance.choices(pieces, k=chance.randint(1, 7))
            )
            try:
                parse(text)
            except ConfigurationError as error:
                assert str(error).startswith("when: ")
                outcomes["refused"] += 1
            else:
                outcomes["read"] += 1
    assert min(outcomes.values()) > 50


# --- what a rule writes ------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, ("literal", "$", "1", None)),
        (None, ("literal", "$", "null", None)),
        ([1, {"b": 2.5}], ("literal", "$", '[1,{"b":2.5}]', None)),
        ("plain é", ("literal", "$", '"plain é"', None)),
        ("iter.page + 1", ("literal", "$", '"iter.page + 1"', None)),
        ('{"a":{}}', ("literal", "$", '"{\\"a\\":{}}"', None)),
        ("{{ outcome.result.next }}", ("outcome", "$.result.next", None, None)),
        ("{{ctx['odd key'][-1]}}", ("ctx", '$."odd key"[#-1]', None, None)),
        ("{{ attempt }}", ("attempt", "$", None, None)),
        ("{{ iter.page + 1 }}", ("iter", "$.page", None, "1")),
        ("{{ 1 + iter.page }}", ("iter", "$.page", None, "1")),
        ("{{ -1 + iter.page }}", ("iter", "$.page", None, "-1")),
        ("{{ iter.page - 2.5 }}", ("iter", "$.page", None, "-2.5")),
        ("{{ attempt + -1 }}", ("attempt", "$", None, "-1")),
        (" {{\n (iter.page)\n + 1 }}\n", ("iter", "$.page", None, "1")),
    ],
)
def test_value_becomes_change(value: Any, expected: tuple[Any, ...]) -> None:
    source, path, text, plus = expected
    assert parse_changes("iter", {"page": value}) == (
        Change("iter", "$.page", source, path, text, plus),
    )


def test_changes_keep_their_order_and_levels() -> None:
    found = parse_changes("ctx", {"last.page": 1, "odd key": 2, "é": 3, "0": 4})
    assert [(each.target, each.path) for each in found] == [
        ("ctx", "$.last.page"),
        ("ctx", '$."odd key"'),
        ("ctx", '$."é"'),
        ("ctx", '$."0"'),
    ]
    assert parse_changes("ctx", {}) == ()


@pytest.mark.parametrize(
    ("value", "place", "problem"),
    [
        ("{{ outcome }}", 3, "the whole of outcome"),
        ("{{ ctx }}", 3, "the whole of ctx"),
        ("{{ iter + 1 }}", 3, "the whole of iter"),
        ("{{ step }}", 3, "step cannot be used here"),
        ("{{ foo.a }}", 3, "'foo' is not known"),
        ("{{ 5 }}", 3, "values without {{ }}"),
        ("{{ 'x' }}", 3, "values without {{ }}"),
        ("{{ true }}", 3, "'true' is not known"),
        ("{{ ctx.a|lower }}", 3, "only a path"),
        ("{{ ctx.a == 1 }}", 3, "only a path"),
        ("{{ ctx.a + 1 + 1 }}", 3, "only a path"),
        ("{{ 1 - ctx.a }}", 3, "only a path"),
        ("{{ ctx.a + ctx.b }}", 11, "this is not a value"),
        ("{{ ctx.a + 'x' }}", 11, "only a number can be added"),
        ("{{ ctx.a + True }}", 11, "only a number can be added"),
        ("{{ ctx.a * 2 }}", 9, "'*' is not known here"),
        ("{{ ctx.a - -9223372036854775808 }}", 11, "beyond signed 64 bits"),
        ("{{ ctx.a + 1e999 }}", 11, "inf"),
        ("{{ }}", 0, "is empty"),
        ("{{ ctx.a }} {{ ctx.b }}", 9, "only surround"),
    ],
)
def test_other_templates_are_refused(value: str, place: int, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_changes("iter", {"page": value})
    sentence, *lines = str(caught.value).split("\n")
    assert sentence.startswith("set_iter['page']: ")
    assert problem in sentence
    assert lines == [value, " " * place + "^"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([("a", 1)], "set_ctx=[('a', 1)] is not a mapping"),
        ({1: 1}, "set_ctx has the key 1, which is not a text"),
        ({"": 1}, "is not a name of a member"),
        ({"a..b": 1}, "is not a name of a member"),
        ({" a": 1}, "is not a name of a member"),
        ({"a[0]": 1}, "single elements of a list cannot be set"),
        ({'a"b': 1}, "holds the character '\"'"),
        ({"a\\b": 1}, "holds the character '\\\\'"),
        ({"a": {1, 2}}, "set_ctx['a'] is of type set, which JSON cannot hold"),
        ({"a": [2**63]}, "set_ctx['a'][0] is 9223372036854775808"),
        ({"a": float("nan")}, "set_ctx['a'] is nan"),
        ({"a": "page {{ iter.page }}"}, "let {{ }} surround a whole value"),
        ({"a": "{{ iter.page"}, "let {{ }} surround a whole value"),
        ({"a": {"b": ["{{ iter.page }}"]}}, "let {{ }} surround a whole value"),
        ({f"a{each}": 1 for each in range(101)}, "has 101 members"),
    ],
)
def test_impossible_changes_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_changes("ctx", given)
    assert problem in str(caught.value)
    assert "; " in str(caught.value)


# --- SQL and Python find the same --------------------------------------------------

TEST = """
with operand (side, document, path, lowered) as (
    values (1, :document, :path, :lowered),
        (2, :other_document, :other_path, :other_lowered)
),
found as (
    select
        side, document, path, lowered,
        coalesce(json_type(document, path), 'null') as kind,
        case
            when lowered and json_type(document, path) = 'text'
                then lower(document ->> path)
            else document ->> path
        end as value
    from operand
)
select :negated <> coalesce(
    case :op
        when 'eq' then one.value is other.value
            and (one.kind in ('array', 'object')) = (other.kind in ('array', 'object'))
        when 'truthy' then case one.kind
            when 'text' then one.value <> ''
            when 'array' then one.value <> '[]'
            when 'object' then one.value <> '{}'
            else one.value <> 0
        end
        when 'in' then case other.kind
            when 'array' then exists (
                select 1 from json_each(other.document, other.path) as each
                where case
                    when other.lowered and each.type = 'text' then lower(each.value)
                    else each.value
                end is one.value
                and (each.type in ('array', 'object'))
                    = (one.kind in ('array', 'object'))
            )
            when 'object' then exists (
                select 1 from json_each(other.document, other.path) as each
                where one.kind = 'text' and one.value
                    = case when other.lowered then lower(each.key) else each.key end
            )
            when 'text' then one.kind = 'text' and instr(other.value, one.value) > 0
        end
        when 'lt' then one.value < other.value
        when 'le' then one.value <= other.value
        when 'gt' then one.value > other.value
        when 'ge' then one.value >= other.value
    end
    and (
        :op in ('eq', 'truthy', 'in')
        or one.kind = 'text' and other.kind = 'text'
        or one.kind in ('integer', 'real', 'true', 'false')
            and other.kind in ('integer', 'real', 'true', 'false')
    ),
    0
)
from found as one
join found as other on other.side = 2
where one.side = 1
"""

Documents = dict[str, Any]
Node = tuple[Any, ...]
Query = Callable[[dict[str, Any]], Any]


def holds_in_sql(
    query: Query,
    conditions: tuple[Condition, ...],
    documents: Documents,
) -> bool:
    texts = {
        source: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for source, value in documents.items()
    }
    terms: dict[int, bool] = {}
    for each in conditions:
        row = each.columns()
        holds = query(
            {
                "op": row["op"],
                "negated": row["negated"],
                "document": row["value"] or texts.get(row["source"]),
                "path": row["path"],
                "lowered": row["lowered"],
                "other_document": row["other_value"] or texts.get(row["other_source"]),
                "other_path": row["other_path"],
                "other_lowered": row["other_lowered"],
            }
        )
        terms[each.term] = terms.get(each.term, True) and bool(holds)
    return any(terms.values())


def lowered(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(x.lower() if x.isascii() else x for x in value)
    return value


def number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def same(one: Any, other: Any) -> bool:
    if number(one) and number(other):
        return bool(one == other)
    return type(one) is type(other) and json.dumps(one) == json.dumps(other)


def valued(node: Node, documents: Documents) -> Any:
    match node:
        case ("literal", value):
            return value
        case ("lower", inner):
            return lowered(valued(inner, documents))
        case ("path", source, *steps):
            found = documents[source]
            for step in steps:
                if isinstance(found, dict) and isinstance(step, str):
                    found = found.get(step)
                elif isinstance(found, list) and isinstance(step, int):
                    fits = -len(found) <= step < len(found)
                    found = found[step] if fits else None
                else:
                    return None
            return found
    raise AssertionError(node)


def is_in(part: Any, whole: Any, lower: bool) -> bool:
    change = lowered if lower else lambda value: value
    if isinstance(whole, list):
        return any(same(part, change(each)) for each in whole)
    if not isinstance(part, str):
        return False
    if isinstance(whole, dict):
        return part in [change(each) for each in whole]
    return isinstance(whole, str) and part in whole


def holds(node: Node, documents: Documents) -> bool:
    """What the expression says, by the words of the documentation."""
    match node:
        case ("and", *parts):
            return all(holds(each, documents) for each in parts)
        case ("or", *parts):
            return any(holds(each, documents) for each in parts)
        case ("not", inner):
            return not holds(inner, documents)
        case ("truthy", operand):
            return bool(valued(operand, documents))
        case ("in" | "not in" | "contains" as op, part, whole):
            if op == "contains":
                part, whole = whole, part
            found = is_in(
                valued(part, documents), valued(whole, documents), whole[0] == "lower"
            )
            return found != (op == "not in")
        case ("chain", one, first, two, second, three):
            return holds((first, one, two), documents) and holds(
                (second, two, three), documents
            )
        case (op, left, right):
            one, other = valued(left, documents), valued(right, documents)
            if op in {"==", "!="}:
                return same(one, other) == (op == "==")
            texts = isinstance(one, str) and isinstance(other, str)
            if not texts and not (number(one) and number(other)):
                return False
            return bool(
                {
                    "<": one < other,
                    "<=": one <= other,
                    ">": one > other,
                    ">=": one >= other,
                }[op]
            )
    raise AssertionError(node)


SCALARS = [0, 1, 2, -1, 1.0, 2.5, 0.0, "", "a", "A", "ab", "É", "é", "1", True, False]
KEYS = ["a", "b", "A", "odd key", "é", "1"]


class Maker:
    """Makes documents, and expressions in many spellings."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pick = self.chance.choice

    def document(self, depth: int = 0) -> Any:
        kind = self.chance.random()
        if depth == 0 or (kind < 0.3 and depth < 3):
            keys = self.chance.sample(KEYS, self.chance.randint(0, 5))
            return {key: self.document(depth + 1) for key in keys}
        if kind < 0.55 and depth < 3:
            size = self.chance.randint(0, 3)
            return [self.document(depth + 1) for _ in range(size)]
        return self.pick([*SCALARS, None])

    def documents(self) -> Documents:
        made = {source: self.document() for source in ("outcome", "ctx", "iter")}
        return {**made, "attempt": self.chance.randint(1, 3), "step": self.pick("aB")}

    def path(self) -> Node:
        steps = [
            self.pick([*KEYS, *KEYS, 0, -1])
            for _ in range(self.pick([1, 1, 1, 2, 2, 3]))
        ]
        node: Node = ("path", self.pick(["outcome", "ctx", "iter"]), *steps)
        return ("lower", node) if self.chance.random() < 0.15 else node

    def literal(self, *, ordered: bool = False) -> Node:
        scalars = [each for each in SCALARS if not (ordered and isinstance(each, bool))]
        return ("literal", self.pick(scalars if ordered else [*scalars, None]))

    def comparison(self) -> Node:
        op = self.pick(["==", "==", "!=", "<", "<=", ">", ">="])
        left = self.path()
        ordered = op not in {"==", "!="}
        right = (
            self.literal(ordered=ordered) if self.chance.random() < 0.7 else self.path()
        )
        special = self.chance.random()
        if special < 0.08:
            left, right = ("path", "attempt"), ("literal", self.pick([1, 2, 2.0]))
        elif special < 0.12:
            left, right = ("path", "step"), ("literal", self.pick(["a", "b", "B"]))
        if self.chance.random() < 0.3:
            left, right = right, left
        return (op, left, right)

    def membership(self) -> Node:
        op = self.pick(["in", "not in", "contains"])
        if self.chance.random() < 0.5:
            size = self.chance.randint(1, 4)
            part = self.path()
            whole: Node = ("literal", [self.literal()[1] for _ in range(size)])
        else:
            part = self.literal() if self.chance.random() < 0.7 else self.path()
            whole = self.path()
        return (op, whole, part) if op == "contains" else (op, part, whole)

    def chain(self) -> Node:
        first, second = self.pick("<>"), self.pick(["<=", ">=", "=="])
        low, high = self.literal(ordered=True), self.literal(ordered=True)
        return ("chain", low, first, self.path(), second, high)

    def node(self, depth: int = 0) -> Node:
        kind = self.chance.random()
        if depth < 3 and kind < 0.45:
            size = self.chance.randint(2, 3)
            return (
                self.pick(["and", "or"]),
                *(self.node(depth + 1) for _ in range(size)),
            )
        if kind < 0.6:
            return ("not", self.node(depth + 1))
        if kind < 0.68:
            return ("truthy", self.path())
        if kind < 0.73:
            return self.chain()
        return self.membership() if kind < 0.85 else self.comparison()

    def spelled(self, node: Node) -> str:
        match node:
            case ("literal", value):
                return self.spelled_literal(value)
            case ("lower", inner):
                text = self.spelled(inner)
                return self.pick([f"lower({text})", f"{text}|lower", f"{text}.lower()"])
            case ("path", source, *steps):
                return source + "".join(map(self.spelled_step, steps))
            case ("truthy", operand):
                return self.spelled(operand)
            case ("not", inner):
                return f"not ({self.spelled(inner)})"
            case ("and" | "or" as op, *parts):
                return f" {op} ".join(f"({self.spelled(each)})" for each in parts)
            case ("contains", whole, part):
                one, other = self.spelled(whole), self.spelled(part)
                spellings = [f"{one} contains {other}", f"contains({one}, {other})"]
                return self.pick(spellings)
            case ("chain", *parts):
                words = [x if isinstance(x, str) else self.spelled(x) for x in parts]
                return " ".join(words)
            case (op, left, right):
                return f"{self.spelled(left)} {op} {self.spelled(right)}"
        raise AssertionError(node)

    def spelled_literal(self, value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(self.spelled_literal, value))}]"
        if value is None:
            return str(self.pick(["None", "null", "none"]))
        text = repr(value)
        return str(self.pick([text, text.lower()])) if isinstance(value, bool) else text

    def spelled_step(self, step: str | int) -> str:
        plain = isinstance(step, str) and step.isidentifier()
        return f".{step}" if plain and self.chance.random() < 0.8 else f"[{step!r}]"


@pytest.fixture(params=[apsw.Connection, sqlite3.connect], ids=["apsw", "sqlite3"])
def query(request: pytest.FixtureRequest) -> Iterator[Query]:
    """Our SQLite, and that of a foreign client, which is often much older."""
    with contextlib.closing(request.param(":memory:")) as connection:
        yield lambda row: connection.execute(TEST, row).fetchall()[0][0]


@pytest.mark.parametrize("count", [900, pytest.param(3000, marks=pytest.mark.torture)])
def test_sql_finds_what_python_finds(query: Query, count: int) -> None:
    maker = Maker(7)
    answers = {True: 0, False: 0}
    for _ in range(count):
        node, documents = maker.node(), maker.documents()
        text = maker.spelled(node)
        try:
            conditions = parse(text)
        except ConfigurationError as error:
            # The only honest way to fail: too many alternatives when written out.
            assert "written out, this is more than 100" in str(error)
            continue
        expected = holds(node, documents)
        assert holds_in_sql(query, conditions, documents) is expected, (text, documents)
        answers[expected] += 1
    assert min(answers.values()) > 0.3 * count


@pytest.mark.parametrize(
    ("comparison", "missing", "null", "one", "thousand", "text"),
    [
        ("outcome.x >= 500", False, False, False, True, False),
        ("outcome.x < 500", False, False, True, False, False),
        ("outcome.x == 1", False, False, True, False, False),
        ("outcome.x == 'x'", False, False, False, False, True),
        ("outcome.x is None", True, True, False, False, False),
        ("outcome.x in [1, 'x']", False, False, True, False, True),
        ("outcome.x in [null]", True, True, False, False, False),
        ("'x' in outcome.x", False, False, False, False, True),
        ("outcome.x", False, False, True, True, True),
        ("outcome.x < outcome.y", False, False, False, False, False),
    ],
)
def test_negation_holds_exactly_where_the_comparison_does_not(
    comparison: str,
    missing: bool,
    null: bool,
    one: bool,
    thousand: bool,
    text: bool,
    query: Query,
) -> None:
    for outcome, expected in (
        ({}, missing),
        ({"x": None}, null),
        ({"x": 1}, one),
        ({"x": 1000}, thousand),
        ({"x": "x"}, text),
    ):
        for expression, answer in (
            (comparison, expected),
            (f"not ({comparison})", not expected),
            (f"not (not ({comparison}))", expected),
        ):
            documents = {"outcome": outcome}
            assert holds_in_sql(query, parse(expression), documents) is answer
