"""Keys, rates, circuits, facts and the rest, as tasks and jobs declare them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import Circuit, LiteJobs, Policy, Rate, Retry, Rule
from litejobs._definitions.columns import no_options, order, parameters_of, place
from litejobs._definitions.gates import direct_renames, facts_text
from litejobs.errors import ConfigurationError, ConstraintViolated, JobExists

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
GATES = (
    *("concurrency_key", "concurrency_limit", "rate_count", "rate_ms", "rate_burst"),
    *("circuit", "requires", "expires_in_ms"),
)


def rows(jobs: LiteJobs, sql: str, *values: Any) -> list[dict[str, Any]]:
    """What the file says, as dicts."""
    with jobs.open().reader() as db:
        cursor = db.execute(sql, values)
        return [
            dict(zip([each[0] for each in cursor.description], row, strict=True))
            for row in cursor
        ]


def task_row(jobs: LiteJobs, name: str) -> dict[str, Any]:
    [row] = rows(jobs, "select * from litejobs_task where name = ?", name)
    return row


def job_row(jobs: LiteJobs, job_id: int) -> dict[str, Any]:
    [row] = rows(jobs, "select * from litejobs_job where id = ?", job_id)
    return row


def breakers(jobs: LiteJobs) -> list[dict[str, Any]]:
    return rows(jobs, "select * from litejobs_breaker order by task")


def written(jobs: LiteJobs, sql: str, *values: Any) -> None:
    with jobs.transaction() as db:
        db.execute(sql, values)


def columns(**options: Any) -> dict[str, Any]:
    """The columns of a job with these options that are not left to others."""
    given, _ = parameters_of(options)
    return {k: v for k, v in zip(order(), given, strict=True) if v is not None}


# Rates --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count", "per_ms"),
    [
        ("10/1m", 10, 60_000),
        ("5/s", 5, 1_000),
        ("7/1s", 7, 1_000),
        (" 1 / 2h30m ", 1, 9_000_000),
        ("100/d", 100, DAY_MS),
        ("3/.5s", 3, None),
        ("3/0.5s", 3, 500),
        ("1/1ms", 1, 1),
    ],
)
def test_a_rate_is_written_as_starts_per_duration(
    text: str, count: int, per_ms: int | None
) -> None:
    if per_ms is None:
        with pytest.raises(ConfigurationError, match="is not a rate"):
            Rate.of(text)
        return
    assert Rate.of(text) == Rate(count, per_ms / 1000)
    assert (Rate.of(text).count, Rate.of(text).per_ms) == (count, per_ms)
    assert Rate.of(text).burst == 1


def test_a_rate_is_taken_as_it_is() -> None:
    rate = Rate(10, dt.timedelta(minutes=1), burst=3)
    assert Rate.of(rate) is rate
    assert (rate.count, rate.per_ms, rate.burst) == (10, 60_000, 3)


def test_a_large_count_is_reduced_until_it_fits() -> None:
    assert Rate(2_000_000_000, "1d") == Rate(625, "27ms")
    with pytest.raises(ConfigurationError, match="count=1000000007 is out of range"):
        Rate(1_000_000_007, "1d")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rate("10/1m", "1m"), "count='10/1m' is not a number of starts"),  # type: ignore[arg-type]
        (lambda: Rate(0, "1m"), "count=0 is not a number of starts; give 1 or more"),
        (lambda: Rate(True, "1m"), "count=True is not a number"),
        (lambda: Rate(1, 0), "per=0 is out of range; give 1 ms to 366 days"),
        (lambda: Rate(1, "367d"), "per='367d' is out of range"),
        (lambda: Rate(1, "soon"), "per='soon' is not a duration"),
        (lambda: Rate(1, "1s", 0), "burst=0 is out of range; give a whole number"),
        (lambda: Rate(1, "1s", 1_000_001), "burst=1000001 is out of range"),
        (lambda: Rate(1_001, "1ms"), "more than a million a second"),
        (
            lambda: Rate.of("10 a minute"),
            "rate='10 a minute' is not a rate; give a text",
        ),
        (
            lambda: Rate.of("10/mo"),
            "rate='10/mo' is not a rate: per='1mo' is not a dur",
        ),
        (lambda: Rate.of("0/1m"), "rate='0/1m' is not a rate: count=0"),
        (lambda: Rate.of("1/2/3s"), "rate='1/2/3s' is not a rate; give a text"),
        (lambda: Rate.of(10), "rate=10 is not a rate; give a text"),  # type: ignore[arg-type]
        (lambda: Rate.of("x", name="keys"), "keys='x' is not a rate"),
    ],
)
def test_what_is_no_rate_is_refused(make: Callable[[], Rate], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


# Circuits -----------------------------------------------------------------------------


def test_a_circuit_keeps_milliseconds() -> None:
    circuit = Circuit(
        "host:{host}", threshold=3, window="1m", cooldown=2, factor=3, max_cooldown="1d"
    )
    assert circuit.columns() == {
        "threshold": 3,
        "window_ms": 60_000,
        "cooldown_ms": 2_000,
        "factor": 3.0,
        "max_cooldown_ms": DAY_MS,
    }
    assert Circuit("x").columns() == {
        "threshold": 5,
        "window_ms": None,
        "cooldown_ms": 30_000,
        "factor": 2.0,
        "max_cooldown_ms": HOUR_MS,
    }
    assert Circuit.of("x") == Circuit("x")
    assert Circuit.of(circuit) is circuit


def test_the_longest_cooldown_is_at_least_the_first_one() -> None:
    assert Circuit("x", cooldown="2h").max_cooldown_ms == 2 * HOUR_MS


def test_failures_of_a_circuit_are_a_rule() -> None:
    circuit = Circuit("x", failure="outcome.http.status >= 500")
    assert circuit.policy == Policy(
        [Rule("outcome.http.status >= 500", "fail")], otherwise="continue"
    )
    assert Circuit("x").policy is None
    assert Circuit("x", failure=True).policy is not None


def test_a_crash_counts_only_where_it_is_named() -> None:
    assert [
        circuit.policy.rows()[0]["on_crash"]
        for circuit in (
            Circuit("x", failure=True),
            Circuit("x", failure="outcome.status == 'crashed'"),
        )
        if circuit.policy is not None
    ] == [0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Circuit(""), "circuit='' does not fit; give a text of 1 to 500"),
        (lambda: Circuit(None), "circuit=None names nothing"),  # type: ignore[arg-type]
        (lambda: Circuit("x{"), "circuit='x{' has a brace that belongs to no argument"),
        (lambda: Circuit("x", threshold=0), "threshold=0 is out of range"),
        (lambda: Circuit("x", cooldown=0), "cooldown=0 leaves no time"),
        (lambda: Circuit("x", window=0), "window=0 leaves no time"),
        (lambda: Circuit("x", factor=0.5), "factor=0.5 is out of range"),
        (lambda: Circuit("x", factor=None), "factor=None says nothing; give 1"),  # type: ignore[arg-type]
        (
            lambda: Circuit("x", cooldown="2m", max_cooldown="1m"),
            "max_cooldown='1m' is shorter than cooldown='2m'",
        ),
        (lambda: Circuit("x", failure="outcome.status =="), "failure: the end is"),
        (lambda: Circuit("x", failure=False), "failure=False is not a condition"),
        (lambda: Circuit.of(5), "circuit=5 is not one; give a name or template"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_circuit_is_refused(
    make: Callable[[], Circuit], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


# Templates of keys --------------------------------------------------------------------


def named(host: str, request: dict[str, Any] | None = None) -> None: ...
def listed(host: str, /, *more: str) -> None: ...
def listed_shortly(host: str, port: int, /) -> None: ...
def open_ended(host: str, **more: str) -> None: ...
def empty() -> None: ...


@pytest.mark.parametrize("option", ["concurrency_key", "circuit"])
@pytest.mark.parametrize(
    ("function", "template"),
    [
        (named, "gpu"),
        (named, "host:{host}"),
        (named, "{host}/{request.method}"),
        (listed, "host:{0}:{7}"),
        (listed_shortly, "{1}"),
        (open_ended, "{host}:{port}"),
        (empty, "x"),
    ],
)
def test_a_key_is_made_of_the_arguments_of_its_function(
    jobs: LiteJobs, option: str, function: Callable[..., None], template: str
) -> None:
    jobs.task(name="t", **{option: template})(function)
    assert task_row(jobs, "t")[option] == template


@pytest.mark.parametrize("option", ["concurrency_key", "circuit"])
@pytest.mark.parametrize(
    ("function", "template", "message"),
    [
        (named, "{hsot}", "has no parameter 'hsot'; give one of {host}, {request}"),
        (named, "{0}", "{0} is a position, but the arguments are stored by name"),
        (listed, "{host}", "{host} is a name, but the arguments of this function are"),
        (listed_shortly, "{2}", "has no argument at position 2; the first is {0}"),
        (open_ended, "{0}", "give one of {host}"),
        (empty, "{x}", "give one of a text without braces"),
        (named, "{host", "has a brace that belongs to no argument; write {name}"),
        (named, "host}", "has a brace"),
        (named, "{{host}", "has a brace"),
        (named, "{host!r}", "has a brace"),
        (named, "{host:>3}", "has a brace"),
        (named, "{request[0]}", "has a brace"),
        (listed, "{0.host}", "has a brace"),
        (named, "{}", "has a brace"),
        (named, "", "does not fit; give a text of 1 to 500 characters"),
        (named, "x" * 501, "does not fit"),
        (named, "\0", "has a NUL"),
    ],
)
def test_a_key_that_cannot_be_filled_is_refused(
    jobs: LiteJobs,
    option: str,
    function: Callable[..., None],
    template: str,
    message: str,
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        jobs.task(name="t", **{option: template})(function)
    assert message in str(caught.value)
    assert option in str(caught.value)
    assert jobs.tasks == {}


def test_the_key_of_a_flow_is_not_compared_with_its_steps(jobs: LiteJobs) -> None:
    jobs.flow("f", [("one", lambda: None)], concurrency_key="{anything}", rate="1/s")
    row = task_row(jobs, "f")
    assert (row["concurrency_key"], row["rate_count"]) == ("{anything}", 1)


# Tasks --------------------------------------------------------------------------------


def test_a_task_says_what_holds_its_jobs_back(jobs: LiteJobs) -> None:
    @jobs.task(
        concurrency_key="host:{host}",
        concurrency_limit=4,
        rate=Rate(10, "1m", burst=3),
        circuit="host:{host}",
        require=("on_mains", "online", "online"),
        expires_in="1h",
    )
    def fetch(host: str) -> None: ...

    row = task_row(jobs, "fetch")
    assert {name: row[name] for name in GATES} == {
        "concurrency_key": "host:{host}",
        "concurrency_limit": 4,
        "rate_count": 10,
        "rate_ms": 60_000,
        "rate_burst": 3,
        "circuit": "host:{host}",
        "requires": '["on_mains","online"]',
        "expires_in_ms": HOUR_MS,
    }


def test_a_task_without_any_has_none(jobs: LiteJobs) -> None:
    @jobs.task(require=[])
    def free() -> None: ...

    row = task_row(jobs, "free")
    assert [row[name] for name in GATES] == [None] * 8
    assert breakers(jobs) == []


@pytest.mark.parametrize("option", [{"concurrency_limit": 2}, {"rate": "5/s"}])
def test_a_limit_without_a_key_is_that_of_the_task(
    jobs: LiteJobs, option: dict[str, Any]
) -> None:
    jobs.task(name="t", **option)(lambda: None)
    assert task_row(jobs, "t")["concurrency_key"] == "t"
    with pytest.raises(ConfigurationError, match="and its name with braces"):
        jobs.task(name="t{x}", **option)(lambda: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency_limit": 0}, "concurrency_limit=0 is out of range; give a whole"),
        ({"concurrency_limit": 10**9 + 1}, "concurrency_limit=1000000001 is out of"),
        ({"concurrency_limit": True}, "concurrency_limit=True is out of range"),
        ({"rate": "often"}, "rate='often' is not a rate"),
        (
            {"require": "online"},
            "require='online' is not a list; give the names of facts",
        ),
        ({"require": [""]}, "require[0]='' does not fit"),
        ({"require": [None]}, "require[0] is None"),
        ({"require": 5}, "require=5 is not a list"),
        ({"require": [f"fact {n}" for n in range(101)]}, "require names 101 facts"),
        ({"expires_in": 0}, "expires_in=0 leaves no time; give more than 0"),
        ({"expires_in": "soon"}, "expires_in='soon' is not a duration"),
        ({"circuit": 7}, "circuit=7 is not one"),
    ],
)
def test_a_task_that_cannot_work_is_refused(
    jobs: LiteJobs, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        jobs.task(name="t", **options)(lambda: None)
    assert message in str(caught.value)
    with pytest.raises(ConfigurationError):
        jobs.flow("f", [("one", lambda: None)], **options)
    assert jobs.tasks == {}


def test_facts_are_one_text_whatever_their_order() -> None:
    assert facts_text(["b", "a", "b"]) == facts_text(("a", "b")) == '["a","b"]'
    assert json.loads(facts_text(['"', "é"])) == ['"', "é"]


# Breakers in the file -----------------------------------------------------------------


def declared(path: Path, **options: Any) -> LiteJobs:
    """The jobs of a program that has one task, with these options."""
    jobs = LiteJobs(path)
    jobs.task(name="t", **options)(lambda: None)
    return jobs.open()


def test_a_breaker_is_as_the_code_says_each_time(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    first = Circuit("x", threshold=2, cooldown="1s")
    for circuit, threshold in ((first, 2), (Circuit("x", threshold=9), 9), ("x", 5)):
        with declared(path, circuit=circuit) as jobs:
            [breaker] = breakers(jobs)
            assert (breaker["task"], breaker["threshold"]) == ("t", threshold)
            assert breaker["policy_id"] is None
    with declared(path) as jobs:
        assert breakers(jobs) == []


def test_declaring_the_same_circuit_again_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    options = {
        "circuit": Circuit("x", failure="outcome.http.status >= 500"),
        "rate": "10/1m",
        "require": ["online"],
    }
    seen = []
    for _ in range(2):
        with declared(path, **options) as jobs:
            seen.append(
                (
                    breakers(jobs),
                    rows(jobs, "select * from litejobs_policy"),
                    rows(jobs, "select * from litejobs_task"),
                )
            )
            with jobs.transaction() as db:
                before = db.total_changes()
                jobs._registry.unwritten.update(jobs._registry._declarations)
                _ = jobs._store.database
                assert db.total_changes() == before
    assert seen[0] == seen[1]
    assert len(seen[0][1]) == 1


def test_a_breaker_that_a_person_wrote_stays(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with declared(path) as jobs:
        written(jobs, "insert into litejobs_breaker (task, threshold) values ('t', 7)")
    with declared(path, queue="other") as jobs:
        assert [each["threshold"] for each in breakers(jobs)] == [7]


def test_what_counts_as_failure_is_no_rule_for_retries(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    policy = Policy([Rule("outcome.error.code == 'GONE'", "fail")], otherwise="retry")
    in_force = (
        "select purpose, id from litejobs_policy where replaced_at is null order by 1"
    )
    failure = "outcome.http.status >= 500"
    with declared(path, policy=policy, circuit=Circuit("x", failure=failure)) as jobs:
        circuit, retry = rows(jobs, in_force)
        assert (circuit["purpose"], retry["purpose"]) == ("circuit", "retry")
        assert [each["policy_id"] for each in breakers(jobs)] == [circuit["id"]]
    other = "outcome.http.status >= 400"
    with declared(path, policy=policy, circuit=Circuit("x", failure=other)) as jobs:
        changed, kept = rows(jobs, in_force)
        assert kept == retry
        assert changed["id"] > circuit["id"]
        assert [each["policy_id"] for each in breakers(jobs)] == [changed["id"]]
    with declared(path, policy=policy, circuit=Circuit("x")) as jobs:
        assert rows(jobs, in_force) == [retry]
        assert [each["policy_id"] for each in breakers(jobs)] == [None]
    with declared(path, policy=policy, circuit=Circuit("x", failure=other)) as jobs:
        assert len(rows(jobs, in_force)) == 2
    with declared(path) as jobs:
        assert rows(jobs, in_force) == []
        assert breakers(jobs) == []


# Options of single jobs ---------------------------------------------------------------


def test_a_plain_job_leaves_all_to_its_task() -> None:
    given = dict(zip(order(), no_options(), strict=True))
    assert given.pop("wait_ms") == 0
    assert set(given.values()) == {None}
    assert order()[-1] == "unique_key"  # Call.unique_key looks there


def test_options_of_a_job_are_columns() -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert columns(
        concurrency_key="host:x",
        concurrency_limit=3,
        circuit="host:x",
        require=["online"],
        expires_at=at,
        unique_key="k",
        on_conflict="debounce",
        unique_for="1h",
        after=[7],
        on_parent_failure="block",
    ) == {
        "wait_ms": 0,
        "concurrency_key": "host:x",
        "concurrency_limit": 3,
        "circuit": "host:x",
        "requires": '["online"]',
        "expires_at": int(at.timestamp() * 1000),
        "unique_key": "k",
        "on_conflict": "debounce",
        "unique_for_ms": HOUR_MS,
        "on_parent_failure": "block",
    }
    assert columns(expires_in="5s")["expires_in_ms"] == 5_000
    assert columns(require=[])["requires"] == "[]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency_key": ""}, "concurrency_key='' does not fit"),
        ({"concurrency_key": "h:{host}"}, "the function has no parameter 'host'"),
        ({"unique_key": "h:{host}"}, "unique_key='h:{host}': the function has no"),
        ({"unique_key": '{"a": 1}'}, "where a brace itself is meant, {{ or }}"),
        ({"concurrency_limit": 1.5}, "concurrency_limit=1.5 is out of range"),
        ({"circuit": "{0}"}, "circuit='{0}': {0} is a position, but the arguments"),
        ({"circuit": Circuit("x")}, "does not fit; give a text"),
        ({"require": "online"}, "is not a list"),
        ({"expires_in": -1}, "expires_in=-1 is negative"),
        ({"expires_at": dt.datetime(2026, 1, 1)}, "has no time zone"),
        (
            {"expires_in": 5, "expires_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
            "both say until when; give one of them",
        ),
        ({"on_conflict": "ignore"}, "on_conflict='ignore' has no effect without a"),
        ({"on_conflict": "drop", "unique_key": "k"}, "on_conflict='drop' is unknown"),
        ({"unique_for": "1h"}, "unique_for='1h' has no effect without a unique_key"),
        ({"unique_for": 0, "unique_key": "k"}, "unique_for=0 leaves no time"),
        ({"on_parent_failure": "run"}, "has no effect without after"),
        ({"on_parent_failure": "go", "after": [1]}, "on_parent_failure='go' is unkn"),
        ({"batch": 5}, "batch=5 is not one; give what jobs.batch(...) made"),
        ({"after": 5}, "after=5 is not a list"),
        ({"after": "5"}, "after='5' is not a list"),
        ({"after": [1, "2"]}, "after[1]='2' is nothing to wait for"),
        ({"after": [0]}, "after[0]=0 is nothing to wait for"),
        ({"after": [True]}, "after[0]=True is nothing to wait for"),
        ({"after": [2**63]}, "after[0]=9223372036854775808 is nothing to wait for"),
    ],
)
def test_a_job_that_cannot_work_is_refused(
    jobs: LiteJobs, options: dict[str, Any], message: str
) -> None:
    @jobs.task
    def note() -> None: ...

    for call in (note.using, lambda **given: jobs.enqueue("note", **given)):
        with pytest.raises(ConfigurationError) as caught:
            call(**options)
        assert message in str(caught.value)
    assert jobs.list() == []


@pytest.mark.parametrize("option", ["unique_key", "concurrency_key", "circuit"])
def test_a_brace_in_a_key_is_asked_about_unless_it_is_doubled(option: str) -> None:
    key = "{6f9619ff-8b86-d011-b42d-00cf4fc964ff}"
    with pytest.raises(ConfigurationError, match="a brace that belongs to no argument"):
        columns(**{option: key})
    assert columns(**{option: f"{{{key}}}"})[option] == f"{{{key}}}"


def test_parents_are_jobs_or_batches_each_once(jobs: LiteJobs) -> None:
    @jobs.task
    def note() -> None: ...

    first = note.enqueue()
    with jobs.batch() as batch:
        batch.enqueue(note)
    call = note.using(after=[first, batch, first.id, 7]).call()
    assert call.after == ((first.id, None), (None, batch.id), (7, None))
    assert note.call().after == ()
    assert note.using(batch=batch).call().options[place("batch_id")] == batch.id
    by_name = jobs.call("note", after=[first])
    assert by_name.after == ((first.id, None),)


def test_the_options_of_a_job_are_in_its_row(jobs: LiteJobs) -> None:
    @jobs.task(require=["online"], concurrency_key="of task", expires_in="1h")
    def note() -> None: ...

    with freeze_time("2026-01-01"):
        job = note.using(
            concurrency_key="k",
            concurrency_limit=2,
            circuit="c",
            require=[],
            expires_in="1m",
            unique_key="u",
            unique_for="1d",
            on_conflict="replace",
        ).enqueue()
        row = job_row(jobs, job.id)
    assert {
        name: row[name]
        for name in (
            *("concurrency_key", "concurrency_limit", "circuit", "requires"),
            *("unique_key", "unique_for_ms", "on_conflict"),
        )
    } == {
        "concurrency_key": "k",
        "concurrency_limit": 2,
        "circuit": "c",
        "requires": "[]",
        "unique_key": "u",
        "unique_for_ms": DAY_MS,
        "on_conflict": "replace",
    }
    assert row["expires_at"] == row["created_at"] + 60_000


# Renames ------------------------------------------------------------------------------


def test_renames_are_rows_and_lead_to_the_name_of_today(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    found = "select old_name, new_name from litejobs_rename order by 1"
    with LiteJobs(path, renames={"a": "b"}).open() as jobs:
        assert rows(jobs, found) == [{"old_name": "a", "new_name": "b"}]
    with LiteJobs(path, renames={"a": "b", "b": "c"}).open() as jobs:
        assert rows(jobs, found) == [
            {"old_name": "a", "new_name": "c"},
            {"old_name": "b", "new_name": "c"},
        ]
    with LiteJobs(path).open() as jobs:
        assert len(rows(jobs, found)) == 2


def test_renames_are_not_lost_with_a_transaction_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    found = "select old_name from litejobs_rename"
    renamed = LiteJobs(path, renames={"old": "new"})
    with LiteJobs(path) as jobs:
        with pytest.raises(ZeroDivisionError), jobs.transaction() as db:
            renamed.open()
            assert db.execute(found).get == "old"
            _ = 1 / 0
        assert rows(jobs, found) == []
        assert rows(renamed, found) == [{"old_name": "old"}]
    renamed.close()


@pytest.mark.parametrize(
    ("renames", "message"),
    [
        ({"": "b"}, "an old name in renames='' does not fit"),
        ({"a": ""}, "renames['a']='' does not fit"),
        ({"a": None}, "renames['a'] is None; give a text"),
        ({None: "a"}, "an old name in renames is None"),
        ({"a": "a"}, "renames['a']='a' leads back to 'a'"),
        ({"a": "b", "b": "a"}, "renames['a']='b' leads back to 'a'"),
        ({"a": "b", "b": "c", "c": "b"}, "leads back to 'b'"),
        (["a"], "renames=['a'] is not a mapping"),
    ],
)
def test_renames_that_lead_nowhere_are_refused(renames: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LiteJobs(renames=renames)
    assert message in str(caught.value)


def test_renames_are_followed_to_their_end() -> None:
    assert direct_renames({"a": "b", "b": "c", "x": "c"}) == dict.fromkeys("abx", "c")
    assert direct_renames(None) == {}


def test_an_old_name_cannot_be_registered(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db", renames={"old": "new"})
    with pytest.raises(ConfigurationError, match="'old' is registered, but renames"):
        jobs.task(name="old")(lambda: None)
    with pytest.raises(ConfigurationError, match="it is called 'new' now"):
        jobs.flow("old", [("one", lambda: None)])
    jobs.task(name="new")(lambda: None)
    assert list(jobs.tasks) == ["new"]


# Together with the database -----------------------------------------------------------


def test_jobs_of_an_old_name_are_run_by_the_new_task(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as old:
        early = old.enqueue("old", {"n": 1}).id
    ran = []
    with LiteJobs(path, renames={"old": "new"}) as jobs:

        @jobs.task(name="new", priority=3)
        def new(n: int) -> None:
            ran.append(n)

        late = jobs.enqueue("old", {"n": 2}).id
        seen = [jobs.get(each).snapshot() for each in (early, late)]
        assert [(each.task, each.priority) for each in seen] == [("new", 3)] * 2
        assert jobs.drain() == 2
    assert ran == [1, 2]


def test_a_taken_key_can_be_an_error_that_names_the_job(jobs: LiteJobs) -> None:
    @jobs.task
    def note(n: int) -> int:
        return n

    bound = note.using(unique_key="k", on_conflict="raise", unique_for="1h")
    with freeze_time("2026-01-01") as clock:
        first = bound.enqueue(1)
        for store in (
            lambda: bound.enqueue(2),
            lambda: jobs.enqueue_many([bound.call(2)]),
            lambda: jobs.enqueue("note", {"n": 2}, unique_key="k", on_conflict="raise"),
        ):
            with pytest.raises(JobExists) as caught:
                store()
            assert caught.value.job_id == first.id
            assert caught.value.code == "unique_key_taken"
            assert "has the unique key 'k'" in str(caught.value)
            assert isinstance(caught.value, ConstraintViolated)
        jobs.drain()
        clock.tick(3599)
        with pytest.raises(JobExists):
            bound.enqueue(2)
        assert note.using(unique_key="k").enqueue(3).id == first.id
        clock.tick(1)
        assert bound.enqueue(2).id > first.id


def test_a_refused_key_leaves_the_transaction_of_the_caller(jobs: LiteJobs) -> None:
    @jobs.task
    def note(n: int) -> int:
        return n

    bound = note.using(unique_key="k", on_conflict="raise")
    first = bound.enqueue(1)
    with jobs.transaction():
        other = note.enqueue(2)
        with pytest.raises(JobExists):
            bound.enqueue(3)
    assert {each.id for each in jobs.list()} == {first.id, other.id}


def test_a_job_not_started_is_replaced_or_put_off(jobs: LiteJobs) -> None:
    @jobs.task
    def note(n: int) -> int:
        return n

    with freeze_time("2026-01-01") as clock:
        first = note.using(unique_key="k", delay="1m").enqueue(1)
        replaced = note.using(
            unique_key="k", delay="2m", on_conflict="replace"
        ).enqueue(2)
        assert replaced.id == first.id
        clock.tick(60)
        assert jobs.drain() == 0
        put_off = note.using(
            unique_key="k", delay="5m", on_conflict="debounce"
        ).enqueue(3)
        assert put_off.id == first.id
        clock.tick(299)
        assert jobs.drain() == 0
        clock.tick(1)
        assert jobs.drain() == 1
        assert first.result() == 2


def test_a_job_that_is_replaced_is_what_was_asked_for_last(jobs: LiteJobs) -> None:
    ran: list[int] = []

    @jobs.task(queue="slow", timeout="1m", retry=Retry.constant("5s", max_attempts=7))
    def note(n: int) -> None:
        ran.append(n)

    first = note.using(
        unique_key="k", priority=-5, queue="later", max_attempts=1, require=("wifi",)
    ).enqueue(1)
    note.enqueue(2)
    again = note.using(unique_key="k", priority=3, on_conflict="replace").enqueue(3)
    assert again.id == first.id
    found = again.snapshot()
    assert (found.queue, found.priority, found.max_attempts) == ("slow", 3, 7)
    assert jobs.drain() == 2
    assert ran == [3, 2]


def test_what_a_job_waits_for_is_not_replaced(jobs: LiteJobs) -> None:
    @jobs.task
    def note(n: int) -> None: ...

    parent = note.enqueue(0)
    first = note.using(unique_key="k", after=[parent]).enqueue(1)
    replacing = note.using(unique_key="k", on_conflict="replace")
    assert replacing.enqueue(2).id == first.id
    assert (first.state, first.snapshot().args) == ("blocked", {"n": 2})
    behind = note.using(unique_key="k", on_conflict="replace", after=[parent])
    sentence = r"job 2 has the unique key 'k', and what it waits for, its batch and its"
    with pytest.raises(JobExists, match=sentence):
        behind.enqueue(3)
    with pytest.raises(JobExists, match=sentence):
        jobs.enqueue_many([behind.call(3)])
    with pytest.raises(JobExists, match=sentence):
        jobs.enqueue_chain([note.call(4), replacing.call(5)])
    assert first.snapshot().args == {"n": 2}
    assert len(jobs.list()) == 2
    assert jobs.drain() == 2


def test_a_rate_spaces_the_starts_of_a_task(jobs: LiteJobs) -> None:
    @jobs.task(rate=Rate(6, "1m", burst=2))
    def call_out() -> None: ...

    with freeze_time("2026-01-01") as clock:
        for _ in range(5):
            call_out.enqueue()
        started = [jobs.drain()]
        for _ in range(4):
            clock.tick(10)
            started.append(jobs.drain())
    assert started == [2, 1, 1, 1, 0]


def test_a_circuit_opens_after_failures_that_count(jobs: LiteJobs) -> None:
    failing = True

    @jobs.task(
        retry=Retry.never(),
        circuit=Circuit(
            "host:{host}", threshold=2, cooldown="1m", failure="outcome.error.code == 5"
        ),
    )
    def call_out(host: str, code: int) -> None:
        if failing:
            error = RuntimeError("down")
            error.code = code  # type: ignore[attr-defined]
            raise error

    with freeze_time("2026-01-01") as clock:
        for host, code in (("a", 4), ("a", 4), ("b", 5), ("b", 5)):
            call_out.enqueue(host, code)
        assert jobs.drain() == 4
        call_out.enqueue("a", 4)
        waiting = call_out.enqueue("b", 5)
        assert jobs.drain() == 1
        why = {each.code: each.object for each in waiting.why()}
        assert why["circuit_open"] == "circuit host:b"
        failing = False
        clock.tick(59)
        assert jobs.drain() == 0
        clock.tick(1)
        assert jobs.drain() == 1
        assert waiting.state == "completed"


def test_a_job_waits_for_its_facts(jobs: LiteJobs) -> None:
    @jobs.task(require=["online"])
    def call_out() -> None: ...

    job = call_out.enqueue()
    assert jobs.drain() == 0
    assert call_out.using(require=[]).enqueue().id != job.id
    assert jobs.drain() == 1
    jobs.facts["online"] = True
    assert jobs.drain() == 1


def test_a_job_that_expires_is_cancelled(jobs: LiteJobs) -> None:
    @jobs.task(expires_in="1m", require=["online"])
    def call_out() -> None: ...

    with freeze_time("2026-01-01") as clock:
        job = call_out.enqueue()
        longer = call_out.using(expires_in="2m").enqueue()
        clock.tick(60)
        assert jobs.drain() == 0
        assert (job.state, job.snapshot().stopped_by) == ("cancelled", "expired")
        assert longer.state == "pending"


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"concurrency_key": "mine", "concurrency_limit": 2},
        {"circuit": "mine"},
        {"require": ["b", "a"], "expires_in": "5m", "delay": "1m"},
        {"require": [], "on_parent_failure": "run", "after": []},
    ],
)
def test_many_jobs_are_stored_as_single_ones_are(
    jobs: LiteJobs, known: bool, options: dict[str, Any]
) -> None:
    if known:
        jobs.task(
            name="t",
            concurrency_key="host:{host}",
            circuit="at {host}",
            rate="1/s",
            require=["online"],
            expires_in="1h",
        )(named)
    with freeze_time("2026-01-01"):
        ids = [
            jobs.enqueue("t", {"host": host}, **options).id for host in ("x", "y", "y")
        ]
        ids += jobs.enqueue_many(
            [jobs.call("t", {"host": host}, **options) for host in ("x", "y", "y")]
        )
        many, _ = parameters_of(options)
        calls = [jobs.call("t", {"host": host}) for host in ("x", "y", "y")]
        for call in calls:
            call.options = many
        ids += jobs.enqueue_many(calls)
    jobs_seen = [job_row(jobs, each) for each in ids]
    for row in jobs_seen:
        del row["id"]
    assert jobs_seen[0:3] == jobs_seen[3:6] == jobs_seen[6:9]
    assert jobs_seen[1] == jobs_seen[2]
    if known and "concurrency_key" not in options:
        assert [row["concurrency_key"] for row in jobs_seen[:2]] == ["host:x", "host:y"]


def test_jobs_that_came_before_their_task_are_held_back_as_it_says(
    jobs: LiteJobs,
) -> None:
    with freeze_time("2026-01-01"):
        early = jobs.enqueue("t", {"host": "x"}, delay="1m")
        own = jobs.enqueue("t", {"host": "x"}, concurrency_key="mine", require=[])
        jobs.task(
            name="t",
            concurrency_key="host:{host}",
            circuit="at {host}",
            require=["online"],
            expires_in="1h",
        )(named)
        late = jobs.enqueue("t", {"host": "x"}, delay="1m")
        first, second = job_row(jobs, early.id), job_row(jobs, late.id)
    for name in ("concurrency_key", "circuit", "requires", "expires_at", "lane_id"):
        assert first[name] == second[name]
    assert first["concurrency_key"] == "host:x"
    assert job_row(jobs, own.id)["concurrency_key"] == "mine"
    assert job_row(jobs, own.id)["requires"] == "[]"


@pytest.mark.parametrize("on_conflict", ["ignore", "raise"])
def test_a_key_that_becomes_free_meanwhile_is_taken(
    jobs: LiteJobs, on_conflict: Any
) -> None:
    @jobs.task
    def note() -> None: ...

    bound = note.using(unique_key="k", unique_for="1h", on_conflict=on_conflict)
    with freeze_time("2026-01-01 00:00"):
        first = bound.enqueue()
        jobs.drain()
    # Each statement finds a later time: the insert is too early, the search too late.
    with freeze_time("2026-01-01 00:59:59.5", auto_tick_seconds=1):
        assert bound.enqueue().id > first.id
    assert len(jobs.list()) == 2


def test_a_job_that_a_foreign_trigger_drops_is_an_error(jobs: LiteJobs) -> None:
    written(
        jobs,
        "create trigger mine before insert on litejobs_job when new.task = 'no' "
        "begin select raise(ignore); end",
    )
    with pytest.raises(ConstraintViolated, match="a trigger of your own"):
        jobs.enqueue("no", unique_key="k")
    assert jobs.list() == []


def test_a_name_that_is_a_tasks_again_is_nobodys_old_name(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path, renames={"old": "new"}) as jobs:
        jobs.task(name="new")(lambda: "new")
        jobs.open()
    with LiteJobs(path) as jobs:
        old = jobs.task(name="old")(lambda: "old")
        job = old.enqueue()
        assert job.task == "old"
        jobs.drain()
        assert job.result(0) == "old"
