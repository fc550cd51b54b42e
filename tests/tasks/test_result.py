"""A task that has returned has done its work, whatever it has returned."""

from __future__ import annotations

import array
import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import json
import logging
import math
import pathlib
import threading
import tracemalloc
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from litejobs import LiteJobs, Policy, Rule, current
from litejobs._definitions import json_codec
from litejobs._tasks import outcome
from litejobs._tasks.short_text import LENGTH, text_of
from litejobs.cli import main
from litejobs.errors import JobDeadLettered, ResultNotStored
from tests.definitions.test_json import nested
from tests.drawn import CHARACTERS


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 2


class Kind(enum.StrEnum):
    PAGE = "page"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Bill:
    number: int
    at: dt.date
    token: str = dataclasses.field(default="hunter2", repr=False)


@attrs.frozen
class Slotted:
    number: int
    token: str = attrs.field(default="hunter2", repr=False)


ASKED: list[str] = []
"""What code of results has been run."""


class Hostile:
    """Whatever is asked of it is noticed and fails; it could as well never end."""

    def __getattribute__(self, name: str) -> Any:
        ASKED.append(name)
        raise RuntimeError(name)

    def __repr__(self) -> str:
        ASKED.append("a method")
        raise RuntimeError

    __str__ = __bool__ = __len__ = __iter__ = __repr__  # type: ignore[assignment]


class HostileList(list[Any]):
    __repr__ = __iter__ = __len__ = Hostile.__repr__  # type: ignore[assignment]


class HostileDict(dict[Any, Any]):
    __repr__ = __iter__ = __len__ = items = Hostile.__repr__  # type: ignore[assignment]


class HostileError(Exception):
    __repr__ = __str__ = Hostile.__repr__


class HostileClass(type):
    def __repr__(cls) -> str:
        ASKED.append("a method of the class")
        raise RuntimeError

    __instancecheck__ = __subclasscheck__ = __hash__ = __repr__  # type: ignore[assignment]


class OfHostileClass(metaclass=HostileClass):
    pass


class HostileZone(dt.tzinfo):
    __repr__ = Hostile.__repr__

    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        ASKED.append("utcoffset")
        raise RuntimeError


@attrs.define
class HostileField:
    number: int

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        ASKED.append("__dict__")
        raise RuntimeError


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def returned(jobs: LiteJobs, *values: Any) -> list[Any]:
    """The jobs of a task that has returned these, all completed."""
    task = jobs.task(name="returns")(lambda place: values[place])
    made = [task.enqueue(place) for place in range(len(values))]
    jobs.drain()
    assert [(each.state, len(each.attempts)) for each in made] == [
        ("completed", 1)
    ] * len(values)
    return made


def lost(value: Any) -> dict[str, Any]:
    """What the document says of a result that is not stored."""
    document = json_codec.decode(outcome.of_result(value, 1))
    assert list(document) == ["status", "ran_ms", "result_not_stored"]
    assert document["status"] == "ok"
    found: dict[str, Any] = document["result_not_stored"]
    assert list(found) == ["type", "text", "reason"]
    return found


# --- what is stored in another form ------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ((), []),
        ((1, (2, [3])), [1, [2, [3]]]),
        ({"at": (1, 2)}, {"at": [1, 2]}),
        (Point(1, 2), [1, 2]),
        ({1: "a", -2: "b"}, {"1": "a", "-2": "b"}),
        ({True: 1, None: 2, False: 3}, {"true": 1, "null": 2, "false": 3}),
        ({1.5: 1, 1e300: 2}, {"1.5": 1, "1e+300": 2}),
        ({Level.HIGH: Level.HIGH, Kind.PAGE: Kind.PAGE}, {"2": 2, "page": "page"}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.defaultdict(list, {3: [1]}), {"3": [1]}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (type("Float", (float,), {})(1.5), 1.5),
        (HostileList([1, (2,)]), [1, [2]]),
        ([nested(63)], [nested(63)]),
    ],
    ids=lambda _: "",
)
def test_what_json_has_in_another_form_is_stored_in_that_form(
    jobs: LiteJobs, value: Any, stored: Any
) -> None:
    (job,) = returned(jobs, value)
    assert job.result() == stored
    assert job.snapshot().result_not_stored is None


def test_result_that_json_holds_as_it_is_comes_back_as_it_was(jobs: LiteJobs) -> None:
    values = [None, {"a": [1, 1.5, True, None, "é"]}, [], {}, "", 0, 2**63 - 1]
    assert [job.result() for job in returned(jobs, *values)] == values


# --- what is not stored ------------------------------------------------------------

DAY = dt.date(2026, 1, 2)


@pytest.mark.parametrize(
    ("value", "kind", "text", "reason"),
    [
        (
            *(DAY, "date", "datetime.date(2026, 1, 2)"),
            "result is of type date, which JSON cannot hold; pass value.isoformat()",
        ),
        (
            *({"days": [(DAY,)]}, "dict", "{'days': [(datetime.date(2026, 1, 2),)]}"),
            'result["days"][0][0] is of type date, which JSON cannot hold; '
            "pass value.isoformat()",
        ),
        (
            *(Colour.RED, "Colour", "Colour.RED"),
            "result is of type Colour, which JSON cannot hold; pass value.value",
        ),
        (
            *(math.nan, "float", "nan"),
            "result is nan, which JSON cannot hold; pass None or a text",
        ),
        (
            *(["\ud800"], "list", r"['\ud800']"),
            "result[0] holds the lone surrogate U+D800, which is not text; "
            'pass value.encode(errors="replace").decode()',
        ),
        (
            *("a\0b", "str", r"'a\x00b'"),
            "result holds a NUL character, where SQLite would cut it; "
            'pass value.replace("\\0", "")',
        ),
        (
            *({"\ud800": 1}, "dict", r"{'\ud800': 1}"),
            "result has a key that holds the lone surrogate U+D800, which is not text; "
            'pass value.encode(errors="replace").decode()',
        ),
        (
            *({1: "a", "1": "b"}, "dict", "{1: 'a', '1': 'b'}"),
            'result has two keys that are "1" as text, and keys in JSON are texts; '
            "pass keys of one type",
        ),
        (
            *({"at": {None: 1, "null": 2}}, "dict", "{'at': {None: 1, 'null': 2}}"),
            'result["at"] has two keys that are "null" as text, and keys in JSON are '
            "texts; pass keys of one type",
        ),
        (
            *({(1, 2): 3}, "dict", "{(1, 2): 3}"),
            "result has a key of type tuple, and keys in JSON are texts; pass a str",
        ),
        (
            *({math.inf: 3}, "dict", "{inf: 3}"),
            "result has the key inf, and keys in JSON are texts; pass a str",
        ),
        (
            *({2**63: 3}, "dict", "{9223372036854775808: 3}"),
            "result has the key 9223372036854775808, and keys in JSON are texts; "
            "pass a str",
        ),
        (
            *((2**63,), "tuple", "(9223372036854775808,)"),
            "result[0] is 9223372036854775808, an integer beyond signed 64 bits; "
            "pass it as text",
        ),
        (
            *(2**70_000, "int", "a number of 70,001 bits"),
            "result is a number of 70,001 bits, an integer beyond signed 64 bits; "
            "pass it as text",
        ),
        (
            *(b"abc", "bytes", "b'abc'"),
            "result is of type bytes, which JSON cannot hold; "
            "pass base64.b64encode(value).decode()",
        ),
        (
            *({3}, "set", "{3}"),
            "result is of type set, which JSON cannot hold; pass list(value)",
        ),
        (
            *(itself(), "list", "[" * 9 + "…" + "]" * 9),
            "result contains itself, so as JSON it has no end; pass ids instead",
        ),
        (
            *(nested(65), "list", "[" * 9 + "…" + "]" * 9),
            f"result{'[0]' * 5}…{'[0]' * 5} is nested deeper than 64 lists and "
            "dicts; flatten it, or store the data elsewhere and pass its id",
        ),
        (
            *(object(), "object", "<object>"),
            "result is of type object, which JSON cannot hold; "
            "pass its id or its fields, and build it again in the task",
        ),
    ],
    ids=lambda _: "",
)
def test_what_json_cannot_hold_is_described(
    value: Any, kind: str, text: str, reason: str
) -> None:
    assert lost(value) == {"type": kind, "text": text, "reason": reason}


def test_too_large_result_is_described_by_its_beginning() -> None:
    """Neither its text nor its JSON is made as a whole."""
    value = ("é" * 50_000_000,)
    tracemalloc.start()
    found = lost(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["text"] == "('" + "é" * (LENGTH - 2) + "…"
    assert found["reason"] == (
        "result takes more than 1,048,576 bytes as JSON; "
        "store the data in a file or table and pass its path or id"
    )
    assert peak < 1_000_000


@pytest.mark.parametrize("size", [1_048_574, 1_048_575])
def test_limit_is_one_mebibyte_in_either_form(size: int) -> None:
    text = "x" * (size - 2)
    for value in ([text], (text,)):
        stored = "result_not_stored" not in outcome.of_result(value, 1)
        assert stored == (size <= 1_048_574)
    letters = "é" * (size // 2)
    assert "result_not_stored" in outcome.of_result((letters,), 1)


def test_lists_that_hold_each_other_often_are_large_as_text_alone() -> None:
    value: Any = ()
    for _ in range(40):
        value = (value, value)
    assert "takes more than" in lost(value)["reason"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Hostile, "<Hostile>"),
        (lambda: [Hostile()], "[<Hostile>]"),
        (lambda: {"a": Hostile()}, "{'a': <Hostile>}"),
        (lambda: HostileList([Hostile()]), "HostileList([<Hostile>])"),
        (lambda: HostileDict(a=Hostile()), "HostileDict({'a': <Hostile>})"),
        (lambda: HostileError(Hostile()), "HostileError(<Hostile>)"),
        (lambda: HostileField(Hostile()), "HostileField(number=<Hostile>)"),
        (OfHostileClass, "<OfHostileClass>"),
        (lambda: OfHostileClass, "<class OfHostileClass>"),
        (lambda: {OfHostileClass(): 1}, "{<OfHostileClass>: 1}"),
        (lambda: dt.datetime(2026, 1, 1, tzinfo=HostileZone()), "<datetime>"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_no_code_of_the_result_is_run(make: Callable[[], Any], text: str) -> None:
    """What fails there, or never ends, would make the task's work be done again."""
    value = make()
    ASKED.clear()
    document = outcome.of_result(value, 1)
    asked, value = [*ASKED], None
    found = json_codec.decode(document)["result_not_stored"]
    assert found["text"] == text
    assert "which JSON cannot hold" in found["reason"] or "a key of" in found["reason"]
    assert asked == []


def test_result_that_another_thread_changes_is_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changing(*_: object, **__: object) -> str:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(json_codec, "encode", changing)
    assert lost({"a": 1}) == {
        "type": "dict",
        "text": "{'a': 1}",
        "reason": "result could not be read: RuntimeError: "
        "dictionary changed size during iteration",
    }


# --- its text ----------------------------------------------------------------------

TEXTS: list[tuple[Any, str]] = [
    (None, "None"),
    ([1, -1.5, True, 2j, ...], "[1, -1.5, True, 2j, Ellipsis]"),
    ([], "[]"),
    ((), "()"),
    ({}, "{}"),
    (set(), "set()"),
    (frozenset({1}), "frozenset({1})"),
    (frozenset(), "frozenset()"),
    ((1,), "(1,)"),
    (Point(1, 2), "Point((1, 2))"),
    (collections.Counter("a"), "Counter({'a': 1})"),
    (bytearray(b"a\0"), r"bytearray(b'a\x00')"),
    (range(3), "range(0, 3)"),
    (Level.HIGH, "Level.HIGH"),
    (enum.Flag("F", "A B")(3), "F.A|B"),
    (dt.timedelta(1), "datetime.timedelta(days=1)"),
    (dt.time(1, tzinfo=dt.UTC), "datetime.time(1, 0, tzinfo=datetime.timezone.utc)"),
    (
        dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        "datetime.datetime(2026, 1, 1, 0, 0, "
        "tzinfo=zoneinfo.ZoneInfo(key='Europe/Berlin'))",
    ),
    (dt.datetime(2026, 1, 1, tzinfo=HostileZone()), "<datetime>"),
    (decimal.Decimal("1.50"), "Decimal('1.50')"),
    (uuid.UUID(int=1), "UUID('00000000-0000-0000-0000-000000000001')"),
    (pathlib.PurePosixPath("/a"), "PurePosixPath('/a')"),
    (ipaddress.ip_address("::1"), "IPv6Address('::1')"),
    (fractions.Fraction(1, 3), "<Fraction>"),
    (array.array("b"), "<array>"),
    (ValueError("no", [1]), "ValueError('no', [1])"),
    (Bill(1, DAY), "Bill(number=1, at=datetime.date(2026, 1, 2))"),
    (Slotted(1), "Slotted(number=1)"),
    (Bill, "<class Bill>"),
    (len, "<builtin_function_or_method>"),
    (object(), "<object>"),
    ({"a": [{"b": {1, 2}}]}, "{'a': [{'b': {1, 2}}]}"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text_of_a_value_is_as_python_has_it_where_that_is_safe(
    value: Any, text: str
) -> None:
    assert text_of(value) == text


def test_text_is_short_and_is_not_made_any_longer() -> None:
    class Long(list[Any]):
        pass

    values = range(10**6)
    start = "Long([" + str([*range(1_000)])[1:]
    assert text_of(Long(values)) == start[:LENGTH] + "…"
    for value in (
        "x" * 10**8,
        b"x" * 10**8,
        decimal.Decimal("1" * 10**6),
        [[1] * 9**6],
    ):
        assert len(text_of(value)) == LENGTH + 1


# --- any value at all --------------------------------------------------------------

ODD = st.deferred(lambda: st.integers(0, 100).map(lambda n: odd()[n % len(odd())]))


def odd() -> list[Any]:
    return [
        *(DAY, Colour.RED, Level.HIGH, Kind.PAGE, Point(1, 2), Bill(1, DAY), object()),
        *(b"", {1}, 2**63, -(2**63) - 1, "\0", "\udfff", itself(), nested(70), 1j),
        *(OfHostileClass(), Hostile(), decimal.Decimal(1), len, HostileError()),
        *(range(3), iter(()), threading.Lock(), "x" * 1_100_000),
    ]


KEYS = st.one_of(
    st.text(CHARACTERS, max_size=5),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(["1", "true", "null", "0.5", 0.5, Level.HIGH, Kind.PAGE, "page"]),
    st.tuples(st.integers()),
    st.dates(),
)
VALUES = st.recursive(
    st.one_of(
        *(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(CHARACTERS),
            ODD,
        ),
        st.characters(categories=["Cs", "Cc"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=10,
)


class _None(Exception):
    """JSON has no form for it."""


def plain(value: Any, depth: int = 0) -> Any:
    """The form in which JSON has the value, said once more and in another way."""
    if value is None or type(value) is bool:
        return value
    if issubclass(type(value), bool | int) and abs(value + 0.5) < 2**63:
        return int(value)
    if (
        issubclass(type(value), float)
        and not math.isnan(value)
        and abs(value) != math.inf
    ):
        return float(value)
    if issubclass(type(value), str) and "\0" not in value and len(value) < 1_000_000:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _None from None
        return str(value)
    if issubclass(type(value), list | tuple) and depth < 64:
        return [plain(each, depth + 1) for each in value]
    if issubclass(type(value), dict) and depth < 64:
        keys = [key if issubclass(type(key), str) else json_key(key) for key in value]
        if len(set(keys)) < len(keys):
            raise _None
        return {
            plain(key): plain(each, depth + 1)
            for key, each in zip(keys, value.values(), strict=True)
        }
    raise _None


def json_key(key: Any) -> str:
    if issubclass(type(key), int | float | None):
        return json.dumps(plain(key))
    raise _None


@settings(max_examples=100)
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_job_is_completed_whatever_its_task_returns(values: list[Any]) -> None:
    """With the value in the form that JSON has, or with why there is none."""
    jobs = LiteJobs()
    for value, job in zip(values, returned(jobs, *values), strict=True):
        try:
            expected = plain(value)
        except _None:
            with pytest.raises(ResultNotStored) as caught:
                job.result()
            assert caught.value.type == type.__dict__["__name__"].__get__(type(value))
            assert len(caught.value.text) <= LENGTH + 1
            assert job.snapshot().result_not_stored["reason"] == caught.value.reason
        else:
            found = job.result()
            assert json.dumps(found) == json.dumps(expected)
            assert job.snapshot().result_not_stored is None
    jobs.close()


# --- work that is not done ---------------------------------------------------------


async def send() -> None: ...


def numbers() -> Iterator[int]:
    yield 1


async def waiting() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            send,
            "result is of type coroutine, whose work is not done; await it, and pass "
            "what it returns",
        ),
        (
            lambda: {"all": [send()]},
            'result["all"][0] is of type coroutine, whose work is not done; await it, '
            "and pass what it returns",
        ),
        (
            numbers,
            "result is of type generator, whose work is not done; pass list(value)",
        ),
        (
            waiting,
            "result is of type async_generator, whose work is not done; "
            "pass [each async for each in value]",
        ),
    ],
    ids=["coroutine", "inside", "generator", "async"],
)
def test_work_that_nobody_has_done_is_no_success(
    jobs: LiteJobs, value: Callable[[], Any], sentence: str
) -> None:
    """Nothing of it has run, and the same code would return the same again."""
    job = jobs.task(name="forgets")(lambda: [value()][0]).enqueue()
    jobs.drain()
    assert (job.state, len(job.attempts)) == ("dead_lettered", 1)
    with pytest.raises(JobDeadLettered) as caught:
        job.result()
    assert f"(not_retryable): ArgumentError: {sentence}; see job." in str(caught.value)


def test_generator_that_has_ended_is_a_result_like_others() -> None:
    ended = numbers()
    assert list(ended) == [1]
    assert lost(ended)["type"] == "generator"


# --- who asks for it ---------------------------------------------------------------

SENTENCE = (
    "job 1 (returns) is completed, but its result, {'at': datetime.date(2026, 1, 2)} "
    'of type dict, was not stored: result["at"] is of type date, which JSON cannot '
    "hold; pass value.isoformat(); correct what the task returns, and requeue the job "
    "if it may run again"
)


def test_who_asks_for_the_result_is_told_that_it_is_not_stored(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    jobs.on("completed", lambda event: told.append((event.job_id, event.state)))
    with caplog.at_level(logging.WARNING, "litejobs"):
        (job,) = returned(jobs, {"at": DAY})

    async def wait() -> Any:
        return await job

    for ask in (job.result, lambda: job.result(0), lambda: asyncio.run(wait())):
        with pytest.raises(ResultNotStored) as caught:
            ask()
        assert str(caught.value) == SENTENCE
    error = caught.value
    assert (error.job_id, error.type) == (1, "dict")
    assert error.text == "{'at': datetime.date(2026, 1, 2)}"
    assert error.reason.startswith('result["at"] is of type date')
    assert told == [(1, "completed")]
    assert [each.getMessage() for each in caplog.records] == [
        "the result of job 1 (returns) is not stored: " + error.reason
    ]


def test_log_that_fails_does_not_make_the_work_be_done_again(jobs: LiteJobs) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("no log")

    broken = Broken()
    logger = logging.getLogger("litejobs")
    logger.addFilter(broken)
    try:
        document = outcome.of_result(DAY, 1, lost=None)
        (job,) = returned(jobs, DAY)
    finally:
        logger.removeFilter(broken)
    assert "result_not_stored" in document
    assert job.state == "completed"


def test_long_text_is_short_in_the_message(jobs: LiteJobs) -> None:
    (job,) = returned(jobs, {"x" * 5_000})
    with pytest.raises(ResultNotStored) as caught:
        job.result()
    assert len(str(caught.value)) < 600
    assert len(caught.value.text) == LENGTH + 1


def test_requeued_job_that_returns_something_else_has_a_result(jobs: LiteJobs) -> None:
    values = [DAY, "2026-01-02"]
    job = jobs.task(name="mended")(lambda: values[current().start_no - 1]).enqueue()
    jobs.drain()
    assert job.snapshot().result_not_stored is not None
    job.requeue()
    assert job.snapshot().result_not_stored is None
    jobs.drain()
    assert job.result() == "2026-01-02"
    assert job.snapshot().result_not_stored is None


def test_batch_has_the_exception_in_the_place_of_a_lost_result(jobs: LiteJobs) -> None:
    values = [1, DAY, None]
    task = jobs.task(name="returns")(lambda place: values[place])
    with jobs.batch() as batch:
        batch.enqueue_many([task.call(place) for place in range(3)])
    jobs.drain()
    assert batch.state == "succeeded"
    found = batch.results()
    assert (found[1], found[3]) == (1, None)
    assert isinstance(found[2], ResultNotStored)
    assert (found[2].job_id, found[2].type) == (2, "date")


def test_result_in_the_tasks_own_transaction_is_described_too(jobs: LiteJobs) -> None:
    """Once and for all, with the rows of the task itself."""
    with jobs.transaction() as db:
        db.execute("create table bill (id integer)")

    @jobs.task
    def pay(lost: bool) -> None:
        with current().transaction(result=[(DAY if lost else 1,)]) as db:
            db.execute("insert into bill default values")

    lost_job, stored = pay.enqueue(True), pay.enqueue(False)
    jobs.drain()
    assert (lost_job.state, stored.result()) == ("completed", [[1]])
    with pytest.raises(ResultNotStored, match=r"of type date"):
        lost_job.result()
    with jobs.reader() as db:
        assert db.execute("select count(*) from bill").get == 2


def test_work_that_nobody_has_done_is_refused_by_the_tasks_own_transaction(
    jobs: LiteJobs,
) -> None:
    @jobs.task(max_attempts=1)
    def pay() -> None:
        with current().transaction(result=numbers()):
            raise AssertionError

    job = pay.enqueue()
    jobs.drain()
    assert job.snapshot().last_error_type == "ArgumentError"


def test_command_line_says_that_it_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        returned(jobs, DAY, 1)

    def said(*arguments: str) -> str:
        run = CliRunner().invoke(main, ["--db", str(path), *arguments])
        assert run.exit_code == 0, run.output
        return run.stdout

    assert "done, but its result is not stored" in said("list").splitlines()[2]
    assert "not stored: datetime.date(2026, 1, 2) (result is of" in said("show", "1")
    described = json.loads(said("list", "--json"))["jobs"][1]["result_not_stored"]
    assert described["text"] == "datetime.date(2026, 1, 2)"
    lost, stored = map(json.loads, said("export").splitlines())
    assert (lost["result"], lost["result_not_stored"]) == (None, described)
    assert (stored["result"], stored["result_not_stored"]) == (1, None)


# --- who needs it ------------------------------------------------------------------

NEEDED = (
    "job 1, whose result is prev here, is completed, but its result, "
    "datetime.date(2026, 1, 2) of type date, was not stored: result is of type date, "
    "which JSON cannot hold; pass value.isoformat(); correct what the task returns, "
    "and requeue the job if it may run again"
)


def test_child_that_needs_a_lost_result_fails_itself(jobs: LiteJobs) -> None:
    day = jobs.task(name="day")(lambda: DAY)
    seen: list[str] = []

    @jobs.task(max_attempts=5)
    def needs(prev: Any) -> None:
        seen.append("needs")

    @jobs.task(max_attempts=5)
    def may_need(*, prev: Any = None) -> None:
        seen.append("may_need")

    @jobs.task(max_attempts=5)
    def asks() -> None:
        seen.append("asks")
        current().prev  # noqa: B018 - that is what is tried

    @jobs.task
    def goes_on() -> str:
        seen.append("goes_on")
        return "done"

    parent = day.enqueue()
    children = [parent.then(each) for each in (needs, may_need, asks, goes_on)]
    jobs.drain()
    late = parent.then(needs)
    jobs.drain()
    assert parent.state == "completed"
    assert len(parent.attempts) == 1
    assert [each.state for each in (*children, late)] == [
        *("dead_lettered", "dead_lettered", "dead_lettered", "completed"),
        "dead_lettered",
    ]
    assert seen == ["asks", "goes_on"]
    for child in (*children[:3], late):
        shown = child.snapshot()
        assert (shown.starts, shown.stopped_by) == (1, "not_retryable")
        assert (shown.last_error_type, shown.last_error) == ("ResultNotStored", NEEDED)


def test_child_that_is_given_its_prev_needs_no_result(jobs: LiteJobs) -> None:
    day = jobs.task(name="day")(lambda: DAY)
    show = jobs.task(name="show")(lambda prev: prev)
    child = day.enqueue().then(show.call(prev="mine"))
    jobs.drain()
    assert child.result() == "mine"


def test_parent_that_ran_again_hands_on_its_new_result(jobs: LiteJobs) -> None:
    """Until the child has started; one that failed is requeued by hand."""
    values = [DAY, "2026-01-02", DAY]
    day = jobs.task(name="day")(lambda: values[current().start_no - 1])
    show = jobs.task(name="show")(lambda prev: prev)
    parent = day.enqueue()
    child = parent.then(show.using(delay="1h"))
    jobs.drain()
    parent.requeue()
    jobs.drain()
    child.run_now()
    jobs.drain()
    assert child.result() == "2026-01-02"
    other = parent.then(show.using(delay="1h"))
    parent.requeue()
    jobs.drain()
    other.run_now()
    jobs.drain()
    assert other.snapshot().last_error_type == "ResultNotStored"


def test_purged_parent_leaves_word_of_its_lost_result(jobs: LiteJobs) -> None:
    day = jobs.task(name="day")(lambda: DAY)
    show = jobs.task(name="show")(lambda prev: prev)
    parent = day.enqueue()
    child = parent.then(show.using(delay="1h"))
    jobs.drain()
    # A purge would leave it, as long as its child has not ended.
    assert jobs.purge(older_than=None) == 0
    with jobs.transaction() as db:
        db.execute("delete from litejobs_job where id = ?", (parent.id,))
    child.run_now()
    jobs.drain()
    assert child.snapshot().last_error == NEEDED


def test_step_that_needs_a_lost_result_fails_itself(jobs: LiteJobs) -> None:
    steps = [("day", lambda: DAY), ("use", lambda prev: prev)]
    job = jobs.flow("needs", steps, max_attempts=5).enqueue()
    jobs.drain()
    assert [(each.step, each.status) for each in job.attempts] == [
        *(("day", "ok"), ("use", "error"))
    ]
    shown = job.snapshot()
    assert (shown.state, shown.stopped_by) == ("dead_lettered", "not_retryable")
    assert shown.last_error is not None
    assert shown.last_error.startswith(
        "the step before 'use' of job 1 is done, but its result, "
        "datetime.date(2026, 1, 2) of type date, was not stored: "
    )


def test_step_that_does_not_need_it_goes_on(jobs: LiteJobs) -> None:
    steps = [("day", lambda: DAY), ("go", lambda: None), ("use", lambda prev: [prev])]
    job = jobs.flow("goes_on", steps).enqueue()
    jobs.drain()
    assert job.result() == [None]


def test_rule_sees_no_result_where_it_is_lost_and_may_ask_for_that(
    jobs: LiteJobs,
) -> None:
    policy = Policy(
        [
            Rule("outcome.result == 'never'", "fail"),
            Rule("outcome.result.day", "fail"),
            Rule(
                "outcome.result_not_stored.type == 'date'",
                "continue",
                set_ctx={
                    "why": "{{ outcome.result_not_stored.reason }}",
                    "day": "{{ outcome.result }}",
                },
            ),
        ],
        otherwise="fail",
    )
    job = jobs.task(name="day", policy=policy)(lambda: DAY).enqueue()
    jobs.drain()
    shown = job.snapshot()
    assert (shown.state, shown.starts) == ("completed", 1)
    assert shown.ctx == {
        "why": "result is of type date, which JSON cannot hold; pass value.isoformat()",
        "day": None,
    }


def test_what_another_client_says_of_a_result_is_believed(jobs: LiteJobs) -> None:
    """Whatever it writes there; null says nothing, and a name in the result neither."""
    words = [
        '{"status":"ok","result":{"result_not_stored":{"type":"x"}}}',
        '{"status":"ok","result":5,"result_not_stored":null}',
        '{"status":"ok","result_not_stored":{"type":"Frame","text":"3 rows"}}',
        '{"status":"ok","result_not_stored":"no"}',
    ]

    @jobs.task(max_attempts=1)
    def elsewhere(number: int) -> None:
        with jobs.transaction() as db:
            db.execute(
                "insert into litejobs_settle values (?, ?)",
                (current().attempt_id, words[number]),
            )

    show = jobs.task(name="show")(lambda prev: [prev])
    first, second, third, fourth = [elsewhere.enqueue(number) for number in range(4)]
    after = [each.then(show) for each in (first, second, third, fourth)]
    jobs.drain()
    assert first.result() == {"result_not_stored": {"type": "x"}}
    assert after[0].result() == [first.result()]
    assert (second.result(), after[1].result()) == (5, [5])
    with pytest.raises(ResultNotStored, match="3 rows of type Frame, was not stored"):
        third.result()
    with pytest.raises(ResultNotStored, match=r"job 4 .* its result,  of type , was"):
        fourth.result()
    assert [each.state for each in after[2:]] == ["dead_lettered"] * 2
