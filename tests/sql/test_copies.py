"""What SQL says more than once, since it has no macros, is said in the same words.

Each condition and formula has one home. A condition of a partial index and a check are
literal, an `update` cannot go through a view, and `indexed by` needs the table: there
the words of the home stand again, and a test names each place that says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from litejobs._definitions.options import IN_SPEC
from litejobs._definitions.policy import BACKOFFS, Retry
from litejobs._storage import statements
from tests.models.backoffs import GROWTH
from tests.sql.fixture import SECOND, Sql, lent, on_apsw, with_options

HOME = {
    "limits": "litejobs__eligibility",
    "every": "litejobs__moved_follows",
    "ended": "litejobs_job_delete_guard",
    "rate": "litejobs__queue_gate",
}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Each object of the schema and each named query, without comments and layout."""
    db = on_apsw(traced=False)
    found = dict(
        db.execute("select name, sql from sqlite_schema where sql is not null")
    )
    found |= statements.queries()
    return {name: plain(text) for name, text in found.items()}


def plain(text: str) -> str:
    """Without comments and layout, and without the names of tables before columns."""
    text = " ".join(re.sub(r"--[^\n]*", "", text).split())
    text = re.sub(r"\( ", "(", re.sub(r" \)", ")", text))
    return re.sub(r"\b[a-z_]+\.(?=[a-z_])", "", text)


def otherwise(texts: dict[str, str], home: str, like: str) -> tuple[int, list[str]]:
    """How often the words of the home stand somewhere, and who has others like them."""
    left = {name: text.replace(home, "") for name, text in texts.items()}
    differ = [name for name, text in left.items() if re.search(like, text)]
    return sum(text.count(home) for text in texts.values()), differ


# Conditions ---------------------------------------------------------------------------


def test_whether_limits_allow_an_attempt_is_asked_in_the_same_words(
    texts: dict[str, str],
) -> None:
    [home] = re.findall(r"\((attempts = 0 or .*)\) as eligible", texts[HOME["limits"]])
    copies, differ = otherwise(texts, home, r"attempts = 0 or|attempts < coalesce\(")
    assert differ == []
    assert 1 < copies <= 7


def lists(text: str) -> Iterator[tuple[str, ...]]:
    """The states that are listed somewhere, three or more at a time."""
    for listed in re.findall(r"\b\w*state in \(([^()]*)\)", text):
        yield tuple(re.findall(r"'(\w+)'", listed))
    for listed in re.findall(
        r"\b(?:old_|new_)?state = '\w+'(?: or (?:old_|new_)?state = '\w+')+", text
    ):
        yield tuple(re.findall(r"'(\w+)'", listed))


# Lists that are neither: of an object, which have no other name.
OTHER_LISTS = {
    "litejobs__moved_follows": {
        ("completed", "failed", "dead_lettered", "cancelled", "pending", "scheduled"),
        ("completed", "failed", "dead_lettered"),
    },
    "litejobs_dependency_insert_guard": {("scheduled", "pending", "blocked")},
    "litejobs__doctor": {("pending", "processing", "blocked")},
    "litejobs_job_end_tells_others": {
        ("processing", "pending", "scheduled", "failed", "blocked")
    },
    "litejobs__allowed_action": {("dead_lettered", "cancelled", "completed")},
    "find_jobs": {("blocked", "pending", "completed")},
    "requeue_job": {("completed", "dead_lettered", "cancelled", "processing")},
}


def test_states_are_listed_in_the_same_words(texts: dict[str, str]) -> None:
    """A state that is added to the home of a list names all that lack it."""
    every = max(lists(texts[HOME["every"]]), key=len)
    [ended] = set(lists(texts[HOME["ended"]]))
    unfinished = tuple(state for state in every if state not in ended)
    waiting = tuple(state for state in unfinished if state != "processing")
    ended_badly = (*(state for state in ended if state != "completed"), "failed")
    known = {every, unfinished, waiting, ended, ended_badly}
    differ = [
        (name, listed)
        for name, text in texts.items()
        for listed in lists(text)
        if len(listed) > 2
        and set(listed) <= set(every)
        and listed not in known | OTHER_LISTS.get(name, set())
    ]
    assert differ == []
    for name, others in OTHER_LISTS.items():
        assert others <= set(lists(texts[name])), name
    # `finished_at is null` says it.
    assert [name for name, text in texts.items() if unfinished in lists(text)] == []


# Numbers and formulas -----------------------------------------------------------------


def test_the_starts_of_a_rate_are_as_far_apart_everywhere(
    texts: dict[str, str],
) -> None:
    [home] = re.findall(
        r"(\(coalesce\(rate_ms[^,]*, \d+\).*?) as interval_us", texts[HOME["rate"]]
    )
    copies, differ = otherwise(texts, home, r"rate_count - 1|rate_ms, \d+\) \*")
    assert differ == []
    assert 1 < copies <= 11


LAST = 253_402_300_799_999
"""The last millisecond of the year 9999."""

LARGE = {
    LAST,
    LAST * 1000,  # in microseconds
    LAST + 31_622_400_000,  # with the longest jitter
    LAST + 3_155_760_000_000,  # with the longest time that a key holds
    3_155_760_000_000,  # a hundred years
    2**52,
    2**53,
    2**54,
    2**60,  # the last place in the log
    2**62,  # and four times that, as a job has it
    2**63 - 1,
    900_000_000_000_000_000,
}


def test_large_numbers_are_those_that_have_a_meaning(texts: dict[str, str]) -> None:
    assert datetime.fromtimestamp(LAST / 1000, tz=UTC).year == 9999
    assert (
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000 == LAST - 999
    )
    differ = [
        (name, number)
        for name, text in texts.items()
        for number in re.findall(r"\b\d{13,}\b", text)
        if int(number) not in LARGE
    ]
    assert differ == []


def test_a_default_is_the_same_everywhere(texts: dict[str, str]) -> None:
    """That holds for what a job says nothing about."""
    of = (
        "retryable",
        "max_attempts",
        "rate_ms",
        "rate_burst",
        "factor",
        "on_parent_failure",
        "queue",
        "priority",
    )
    found: dict[str, dict[str, list[str]]] = {}
    for name, text in texts.items():
        for column, value in re.findall(
            r"coalesce\((?:[^(),]*, )*(\w+), (\d[\d.]*|'\w+')\)", text
        ):
            found.setdefault(column, {}).setdefault(value, []).append(name)
    assert {column: list(found[column]) for column in of} == {
        "retryable": ["1"],
        "max_attempts": ["3"],
        "rate_ms": ["1000"],
        "rate_burst": ["1"],
        "factor": ["2.0"],
        "on_parent_failure": ["'cancel'"],
        "queue": ["'default'"],
        "priority": ["0"],
    }, {column: found[column] for column in of if len(found[column]) > 1}


# What a job has from its task ---------------------------------------------------------

# What a task and a job may name, one value for each.
VALUES: dict[str, tuple[Any, Any]] = {
    "queue": ("mail", "sms"),
    "priority": (7, 8),
    "max_attempts": (9, 10),
    "retryable": (0, 1),
    "backoff": ("linear", "none"),
    "delay_ms": (1_000, 2_000),
    "factor": (3.0, 4.0),
    "max_delay_ms": (50_000, 60_000),
    "jitter": (0.5, 0.0),
    "timeout_ms": (3_000, 4_000),
    "max_crashes": (2, 5),
    "intervals": ("[1000,2000]", "[3000]"),
    "retry_budget_ms": (60_000, 70_000),
    "max_jumps": (4, 5),
    "crash_delay_ms": (5_000, 6_000),
    "concurrency_key": ("k{0}", "own"),
    "circuit": ("c{0}", "breaker"),
    "requires": ('["x"]', '["y"]'),
    # It is asked of the task, as long as the job does not name one.
    "concurrency_limit": (3, 4),
}
ARGS = '["1"]'


def columns(db: Sql, table: str) -> set[str]:
    return set(db.column("select name from pragma_table_info(?)", (table,)))


def by_query(name: str) -> Callable[[Sql, dict[str, Any]], int]:
    def ask(db: Sql, named: dict[str, Any]) -> int:
        text = statements.queries()[name]
        given = dict.fromkeys(re.findall(r":(\w+)", text))
        args = json.dumps([ARGS]) if name == "enqueue_alike" else ARGS
        given |= {"task": "a", "args": args, "wait_ms": 0, **with_options(named)}
        [[job]] = db.execute(text, given)
        return int(job)

    return ask


def by_insert(db: Sql, named: dict[str, Any]) -> int:
    return db.enqueue("a", args=ARGS, **named)


def by_a_schedule(db: Sql, named: dict[str, Any]) -> int:
    db.insert(
        "litejobs_schedule", name="s", task="a", args=ARGS, every_ms=SECOND, **named
    )
    db.execute("insert into litejobs_run_now (schedule_id) values (1)")
    return int(db.value("select max(id) from litejobs_job"))


WAYS = {
    "enqueue_job": by_query("enqueue_job"),
    "enqueue_alike": by_query("enqueue_alike"),
    "litejobs__apply_defaults_writes_row": by_insert,
    "litejobs__fire_one_makes_job": by_a_schedule,
}


def of_task() -> dict[str, Any]:
    return {name: own for name, (own, _) in VALUES.items()}


def asked(way: str, named: dict[str, Any], *, first: bool) -> dict[str, Any]:
    """The job that one way makes, of a task that is declared before it or after it."""
    db = lent()
    db.start_runner()
    task = {"runner_id": db.runner, "expires_in_ms": 5_000, **of_task()}
    if first:
        db.insert("litejobs_task", name="a", **task)
    job = WAYS[way](db, named)
    if not first:
        db.insert("litejobs_task", name="a", **task)
    row = vars(db.job(job))
    row["expires_at"] -= row["created_at"]
    return {name: row[name] for name in (*VALUES, "expires_at", "step", "given")}


def expected(named: dict[str, Any]) -> dict[str, Any]:
    filled = {**of_task(), "concurrency_key": "k1", "circuit": "c1"}
    return {
        **filled,
        "concurrency_limit": None,
        **named,
        "expires_at": 5_000,
        "step": None,
        "given": None,
    }


def test_the_columns_of_a_task_that_jobs_have_are_tried_here() -> None:
    db = on_apsw(traced=False)
    own = columns(db, "litejobs_task") & columns(db, "litejobs_job")
    assert own - {"options", "spec_id"} | IN_SPEC == set(VALUES)
    given = columns(db, "litejobs_schedule") & columns(db, "litejobs_job")
    apart = {"id", "task", "args", "origin", "created_at"}
    of_key = {"unique_key", "on_conflict", "unique_for_ms"}
    assert given - apart - of_key == own


@pytest.mark.parametrize("first", [True, False], ids=["known", "adopted"])
@pytest.mark.parametrize("way", WAYS)
def test_a_job_has_what_its_task_says_whichever_way_it_came(
    way: str, *, first: bool
) -> None:
    """A column that one of the statements lacks is what differs."""
    assert asked(way, {}, first=first) == expected({})


@pytest.mark.parametrize("first", [True, False], ids=["known", "adopted"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_job_names_itself_goes_first_whichever_way_it_came(
    way: str, *, first: bool
) -> None:
    named = {name: value for name, (_, value) in VALUES.items()}
    assert asked(way, named, first=first) == expected(named)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["backoff", "delay_ms"])
def test_intervals_of_the_task_are_not_for_a_job_with_a_wait_of_its_own(
    way: str, name: str
) -> None:
    named = {name: VALUES[name][1]}
    assert asked(way, named, first=True) == {**expected(named), "intervals": None}


# Kinds of backoff ---------------------------------------------------------------------


def test_each_kind_of_backoff_is_known_everywhere(texts: dict[str, str]) -> None:
    """A check, the values that code gives, and the tests that try them."""
    tables = [name for name, text in texts.items() if "_backoff_known" in text]
    checks = {
        name: re.findall(r"_backoff_known check \((.*?)\)", texts[name])
        for name in tables
    }
    home = [" or ".join(f"backoff = '{kind}'" for kind in GROWTH)]
    assert checks == {"litejobs_spec": home}
    assert {*BACKOFFS.values()} == {*GROWTH, "fixed"}
    readme = (statements.directory().parent / "README.md").read_text(encoding="utf-8")
    for word in BACKOFFS.keys() - {"none"}:  # it is called constant
        assert (
            getattr(Retry, word)(*[[5]] * (word == "fixed")).backoff == BACKOFFS[word]
        )
        assert f"`Retry.{word}" in readme
