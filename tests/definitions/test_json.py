"""What can be stored comes back equal; everything else is refused with a way out."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import sqlite3
import tracemalloc
import uuid
import weakref
from typing import Any, NamedTuple

import apsw
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litejobs._definitions.json_codec import (
    MAX_BYTES,
    MAX_DEPTH,
    bounded_text,
    decode,
    encode,
    encode_plain,
    opening,
)
from litejobs.errors import ArgumentError
from tests.drawn import CHARACTERS


def refusal(value: Any, limit: int = MAX_BYTES) -> str:
    with pytest.raises(ArgumentError) as caught:
        encode(value, what="args", limit=limit)
    return str(caught.value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def same(one: Any, other: Any) -> bool:
    """Equal, of equal types, in equal order, with equal signs of zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(
            same(one[key], other[key]) for key in one
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return bool(one == other)


# --- what goes through -------------------------------------------------------------


def test_text_is_compact_keeps_key_order_and_leaves_letters_alone():
    value = {"to": "Jürgen 😀", "b": [1, 2.5, None, True, False], "a": {}}

    text = encode(value, what="args")

    assert text == '{"to":"Jürgen 😀","b":[1,2.5,null,true,false],"a":{}}'


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -0.0,
        2**63 - 1,
        -(2**63),
        5e-324,
        1.7976931348623157e308,
        "",
        "\x01\x1f\x7f\u2028\ufeff\uffff\U0010ffff",
        'quote " backslash \\ \\u0000',
        {"": ""},
        [],
        {},
        nested(MAX_DEPTH),
    ],
    ids=lambda value: repr(value)[:20].replace("\\", "/"),
)
def test_value_comes_back_equal_and_of_equal_types(value):
    assert same(decode(encode(value, what="args")), value)


def test_same_list_may_stand_in_two_places():
    shared = [1]

    assert decode(encode([shared, shared], what="args")) == [[1], [1]]


storable_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text,
    lambda inner: st.lists(inner) | st.dictionaries(storable_text, inner),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_round_trips(value):
    assert same(decode(encode(value, what="args")), value)


@given(json_values, st.integers(1, 400))
def test_limit_is_exactly_the_bytes_of_the_text(value, limit):
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    if size <= limit:
        assert len(encode(value, what="args", limit=limit).encode()) == size
    else:
        assert f"takes more than {limit} bytes" in refusal(value, limit)


names = st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True, alphabet=CHARACTERS).filter(
    str.isidentifier
)
any_text = st.text(st.characters() | st.sampled_from('\0\x1f"\\\ud800é😀'))
near_the_ends = st.sampled_from([-(2**63), 2**63 - 1]).flatmap(
    lambda end: st.integers(end - 2, end + 2)
)
plain_values = (
    st.none() | st.booleans() | st.integers() | near_the_ends | st.floats() | any_text
)


@given(st.dictionaries(names, plain_values, max_size=6))
def test_plain_object_is_written_as_any_other_is_or_left_to_be_judged(value):
    text = encode_plain(opening(value), value.values())

    try:
        expected = encode(value, what="args")
    except ArgumentError:
        expected = None
    assert text == expected


@given(st.dictionaries(names, plain_values | json_values, max_size=4))
def test_what_is_not_plain_is_left_to_be_judged(value):
    text = encode_plain(opening(value), value.values())

    if any(type(item) in {list, dict} for item in value.values()):
        assert text is None
    else:
        assert text is None or text == encode(value, what="args")


def test_types_of_their_own_are_left_to_be_judged():
    class Text(str):
        __slots__ = ()

    for value in (
        Text("a"),
        enum.IntEnum("Number", "one").one,
        (1,),
        {1},
        b"a",
        object,
    ):
        assert encode_plain(opening("a"), [value]) is None


def test_large_values_are_left_to_be_judged_before_they_are_copied():
    text = "x" * 20_000_000
    tracemalloc.start()
    try:
        assert encode_plain(opening("a"), [text]) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    many = ["é" * 4_000] * 100
    before = opening(f"a{number}" for number in range(100))
    assert encode_plain(before[:50], many) == encode(
        {f"a{number}": many[0] for number in range(50)}, what="args"
    )
    assert encode_plain(before, many) is None


@given(json_values)
def test_sqlite_reads_what_python_wrote(value):
    text = encode([value], what="args")

    ((valid, again),) = apsw.Connection(":memory:").execute(
        "select json_valid(?1), json_set(?1, '$[1]', 1)", (text,)
    )

    assert valid == 1
    assert same(decode(again), [value, 1])


strange_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.complex_numbers()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.datetimes()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.frozensets(st.integers())
)
strange_values = st.recursive(
    strange_leaves,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(strange_leaves, inner)
        | st.dictionaries(st.text(CHARACTERS), inner).map(collections.OrderedDict)
    ),
    max_leaves=10,
)


@given(strange_values)
def test_any_python_value_round_trips_or_is_refused(value):
    try:
        text = encode(value, what="args")
    except ArgumentError as error:
        message = str(error)
        message.encode()  # can be printed and stored
        assert message.startswith("args")
        assert "; " in message
    else:
        assert same(decode(text), value)


# --- what is refused, and what is said ---------------------------------------------


class Colour(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


@dataclasses.dataclass
class Mail:
    to: str


@attrs.frozen
class Letter:
    to: str


class Name(str):
    pass


class Count(int):
    pass


class Weight(float):
    pass


class Anything:
    def __repr__(self) -> str:
        raise AssertionError("a refused value is not asked to print itself")

    __str__ = __hash__ = __eq__ = __repr__  # type: ignore[assignment]


class Hashable:
    def __repr__(self) -> str:
        raise AssertionError("a refused key is not asked to print itself")


class Matrix:
    def tolist(self) -> list[Any]:
        raise AssertionError("a refused value is not touched")


async def answer() -> int:
    return 42


@pytest.mark.parametrize(
    ("value", "named", "way_out"),
    [
        (dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "datetime", "value.isoformat()"),
        (dt.date(2025, 1, 1), "date", "value.isoformat()"),
        (dt.time(9), "time", "value.isoformat()"),
        (dt.timedelta(1), "timedelta", "value.total_seconds()"),
        (b"x", "bytes", "base64.b64encode(value).decode()"),
        (Colour.RED, "Colour", "value.value"),
        (Point(1), "Point", "value._asdict()"),
        (Mail("a"), "Mail", "dataclasses.asdict(value)"),
        (Letter("a"), "Letter", "attrs.asdict(value)"),
        (Matrix(), "Matrix", "value.tolist()"),
        (Name("a"), "Name", "str(value)"),
        (Count(1), "Count", "int(value)"),
        (Weight(1), "Weight", "float(value)"),
        (1j, "complex", "[value.real, value.imag]"),
        ((1, 2), "tuple", "list(value)"),
        ({1}, "set", "list(value)"),
        (iter([1]), "list_iterator", "list(value)"),
        (collections.OrderedDict(a=1), "OrderedDict", "dict(value)"),
        (decimal.Decimal(1), "Decimal", "str(value)"),
        (fractions.Fraction(1), "Fraction", "str(value)"),
        (uuid.UUID(int=1), "UUID", "str(value)"),
        (ipaddress.ip_address("::1"), "IPv6Address", "str(value)"),
        (pathlib.PurePosixPath("a"), "PurePosixPath", "str(value)"),
        (ValueError("a"), "ValueError", "str(value)"),
        (Anything(), "Anything", "its id or its fields"),
        (Anything, "type", "its id or its fields"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_refusal_names_place_type_and_way_out(value, named, way_out):
    message = refusal([{"to": value}])

    assert message.startswith(
        f'args[0]["to"] is of type {named}, which JSON cannot hold; '
    )
    assert way_out in message


def test_forgotten_await_is_named():
    waiting = answer()

    assert "await it, and pass what it returns" in refusal([waiting])

    waiting.close()


def test_value_that_does_not_fit_is_named_itself_when_it_is_the_whole():
    assert (
        refusal((1,))
        == "args is of type tuple, which JSON cannot hold; pass list(value)"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_float_that_is_no_number_is_refused(value):
    assert refusal([1, value]) == (
        f"args[1] is {value}, which JSON cannot hold; pass None or a text"
    )


def test_integers_end_at_signed_64_bits():
    """SQLite would turn a larger one into a float."""
    assert refusal([2**63]) == (
        "args[0] is 9223372036854775808, an integer beyond signed 64 bits; "
        "pass it as text"
    )
    assert "args[0] is -9223372036854775809, an integer" in refusal([-(2**63) - 1])


def test_integer_of_five_thousand_digits_is_refused_without_printing_it():
    assert "args[0] is a number of 16,610 bits, an integer" in refusal([10**5000])


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (1, "the key 1"),
        (10**5000, "the key a number of 16,610 bits"),
        (None, "the key None"),
        (True, "the key True"),
        (1.5, "the key 1.5"),
        (b"a", "a key of type bytes"),
        (Name("a"), "a key of type Name"),
        (Hashable(), "a key of type Hashable"),
    ],
    ids=["int", "long", "none", "bool", "float", "bytes", "str-subclass", "other"],
)
def test_key_other_than_str_is_refused(key, named):
    """JSON would write it as text, and the text would come back."""
    message = refusal([{"a": {"b": 1, key: 2}}])

    assert message == (
        f'args[0]["a"] has {named}, and keys in JSON are texts; pass a str'
    )


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00"], ids=ascii)
def test_lone_surrogate_is_refused_as_value_and_as_key(text):
    assert "args[0] holds the lone surrogate U+D" in refusal([text])
    assert "args[0] has a key that holds the lone surrogate" in refusal([{text: 1}])


def test_nul_is_refused_as_value_and_as_key():
    assert refusal(["a\0b"]) == (
        "args[0] holds a NUL character, where SQLite would cut it; "
        'pass value.replace("\\0", "")'
    )
    assert "args[0] has a key that holds a NUL character" in refusal([{"a\0b": 1}])


def test_sqlite_reads_another_value_where_text_holds_nul():
    """Why NUL is refused: "host:{host}" would name another host than the task sees."""
    document = json.dumps({"a\0b": "c\0d"})
    question = """
        select json_extract(document, '$.a'), (select value from json_each(document))
        from (select ? as document)
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        answers = db.execute(question, (document,)).fetchall()
    answers += apsw.Connection(":memory:").execute(question, (document,))

    assert any(by_key is not None or text != "c\0d" for by_key, text in answers)


def test_nesting_ends_at_64():
    assert decode(encode(nested(64), what="args")) == nested(64)
    assert "is nested deeper than 64 lists and dicts" in refusal(nested(65))
    assert "is nested deeper than 64 lists and dicts" in refusal({"a": nested(64)})


def test_million_nested_lists_are_refused_and_harm_nothing():
    value = nested(10**6)

    message = refusal([0, {"here": value}])

    assert message.startswith('args[1]["here"][0][0][0]…[0]')
    while value:  # taken apart by hand: the test is about encode alone
        value = value.pop()


@pytest.mark.parametrize("kind", ["list", "dict", "long way"])
def test_value_that_contains_itself_is_refused(kind):
    value: Any = []
    value.append({"list": value, "dict": {"up": value}, "long way": [[[value]]]}[kind])

    assert refusal({"a": value}) == (
        "args contains itself, so as JSON it has no end; pass ids instead"
    )


def test_refusal_does_not_keep_the_value_alive():
    class Large:
        pass

    value = Large()
    gone = weakref.ref(value)
    try:
        encode([value], what="args")
    except ArgumentError as error:
        kept = error.with_traceback(None)
    del value

    assert str(kept).startswith("args[0] is of type Large")
    assert gone() is None


def test_value_that_contains_itself_many_times_is_refused_as_soon():
    value: list[Any] = []
    value += [value] * 1000

    assert "contains itself" in refusal(value)


def test_value_small_in_memory_and_endless_as_text_is_refused_soon():
    value: Any = "x"
    for _ in range(60):
        value = [value, value]

    assert "takes more than 1,048,576 bytes" in refusal(value)


@pytest.mark.parametrize(
    "value",
    [
        ["x" * 2_000_000],
        [1] * 600_000,
        ["x" * 1_048_560, *[1] * 10],
        {"x" * 2_000_000: 1},
        ["ü" * 600_000],
    ],
    ids=["text", "items", "text and items", "key", "bytes and not characters"],
)
def test_value_over_the_limit_is_refused(value):
    assert refusal(value) == (
        "args takes more than 1,048,576 bytes as JSON; "
        "store the data in a file or table and pass its path or id"
    )


def test_escapes_count_as_bytes():
    assert "takes more than 10 bytes" in refusal("\x01\x01", limit=10)


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_huge_text_is_refused_without_a_copy(letter):
    value = [letter * 50_000_000, letter * 10]

    tracemalloc.start()
    try:
        message = refusal({"file": value})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert "takes more than" in message
    assert peak < 100_000


def test_many_names_of_one_large_text_are_refused_without_a_copy():
    tracemalloc.start()
    try:
        message = refusal(["x" * 1_000_000] * 100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert "takes more than" in message
    assert peak < 5_000_000


def test_long_or_unprintable_keys_are_shortened_in_the_path():
    assert refusal({"k" * 100: ()}).startswith(f'args["{"k" * 40}…"] is of type tuple')
    assert refusal({"\x1b[31m": ()}).startswith('args["\\u001b[31m"] is of type tuple')
    assert refusal({"Müller": ()}).startswith('args["Müller"] is of type tuple')


# --- reading text from elsewhere ---------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON: Expecting value"),
        ("{'a': 1}", "is not JSON: "),
        ('["a', "is not JSON: "),
        ("[1] 2", "is not JSON: Extra data"),
        ('["\x01"]', "is not JSON: Invalid control character"),
        ("\ufeff[]", "is not JSON: "),
        ("NaN", "holds NaN, which JSON does not know"),
        ("[-Infinity]", "holds -Infinity, which JSON does not know"),
        ("[1e400]", "[0] is inf, which JSON cannot hold"),
        ("[9223372036854775808]", "[0] is 9223372036854775808, an integer beyond"),
        (f"[{'9' * 5000}]", "holds an integer beyond signed 64 bits"),
        ('{"a":{"\\ud800":1}}', '["a"] has a key that holds the lone surrogate'),
        ('["\\u0000"]', "[0] holds a NUL character"),
        ('[{"a":1,"b":2,"a":1}]', 'has the key "a" twice in one object; keep one'),
        ("[" * 67 + "]" * 67, "is nested deeper than 64"),
        ("[" * 10**6, "is nested deeper than 64"),
        ('{"a":' * 10**5, "is nested deeper than 64"),
    ],
    ids=lambda part: ascii(part)[:24],
)
def test_text_that_two_readers_could_read_differently_is_refused(text, reason):
    with pytest.raises(ArgumentError) as caught:
        decode(text, what="args of job 7")

    assert str(caught.value).startswith("args of job 7")
    assert reason in str(caught.value)


def test_text_of_any_size_is_read():
    assert decode(f'["{"x" * 2_000_000}"]') == ["x" * 2_000_000]


def test_deepest_data_is_read_from_within_an_outcome_document():
    deepest = encode(nested(64), what="data")

    assert decode(f'{{"error":{{"data":{deepest}}}}}')["error"]["data"] == nested(64)


def test_spaces_and_escapes_of_other_writers_are_read():
    assert decode(' { "a" : "\\u00fc\\ud83d\\ude00" } ') == {"a": "ü😀"}


@given(st.text(st.sampled_from('[]{}":,\\u0123456789eE+-.truefalsn \0\ud800')))
def test_any_text_is_read_as_something_storable_or_refused(text):
    try:
        value = decode(text)
    except ArgumentError as error:
        assert str(error).startswith("the stored JSON ")
    else:
        assert same(decode(encode(value, what="value")), value)


# --- bounded text ------------------------------------------------------------------


def test_short_text_stays_as_it_is():
    assert bounded_text("Jürgen: 404") == "Jürgen: 404"
    assert bounded_text("x" * 65_536) == "x" * 65_536


def test_long_text_is_cut_with_a_mark_that_states_its_size():
    cut = bounded_text("x" * 100_000)

    assert cut.startswith("xxx")
    assert cut.endswith("x… [cut: 100000 bytes in all]")
    assert len(cut.encode()) == 65_536


def test_text_is_cut_between_characters():
    cut = bounded_text("😀" * 100, limit=60)

    assert cut == "😀" * 8 + "… [cut: 400 bytes in all]"


def test_size_of_a_large_text_is_counted_in_bytes():
    assert bounded_text("aü\ud800" * 100_000).endswith("… [cut: 600000 bytes in all]")


def test_what_cannot_be_stored_is_replaced():
    assert bounded_text("a\ud800b\0c") == "a\ufffdb\ufffdc"


def test_subclass_of_str_becomes_str():
    assert type(bounded_text(Name("a"))) is str


@given(st.text(st.characters()), st.integers(-5, 80))
def test_bounded_text_never_raises_and_can_always_be_stored(text, limit):
    cut = bounded_text(text, limit)

    assert len(cut.encode()) <= max(limit, 0)
    assert decode(encode(cut, what="text")) == cut
