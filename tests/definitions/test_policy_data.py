"""Policies written as plain data become the same objects as those written in Python."""

from __future__ import annotations

import datetime as dt
import json
import tomllib
import warnings
from typing import Any

import attrs
import pytest
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs._definitions.policy import Policy, Retry, Rule
from litejobs.errors import ConfigurationError

FAILS = "outcome.status == 'error'"
THEN_FAIL = {"else": {"then": {"do": "fail"}}}

HTTP = {
    "rules": [
        {
            "when": "{{ outcome.status == 'error' and outcome.http.status in "
            "[429, 500, 502, 503, 504] }}",
            "then": {
                "do": "retry",
                "attempts": 10,
                "backoff": "exponential",
                "delay": 2.0,
            },
        },
        {
            "when": "{{ outcome.status == 'error' and outcome.http.status in "
            "[401, 403] }}",
            "then": {"do": "fail"},
        },
        {
            "when": "{{ outcome.status == 'error' }}",
            "then": {"do": "retry", "attempts": 3, "backoff": "linear", "delay": 1.0},
        },
        {"else": {"then": {"do": "continue"}}},
    ]
}
POSTGRESQL = {
    "rules": [
        {
            "when": "{{ outcome.status == 'error' and outcome.pg.code in "
            "['40001', '40P01'] }}",
            "then": {
                "do": "retry",
                "attempts": 5,
                "backoff": "exponential",
                "delay": 2.0,
            },
        },
        {"when": "{{ outcome.status == 'error' }}", "then": {"do": "fail"}},
        {"else": {"then": {"do": "continue"}}},
    ]
}
PYTHON = {
    "rules": [
        {
            "when": "{{ outcome.status == 'error' and 'timeout' in "
            "(outcome.error.message|lower) }}",
            "then": {"do": "retry", "attempts": 3, "backoff": "linear", "delay": 1.0},
        },
        {"when": "{{ outcome.status == 'error' }}", "then": {"do": "fail"}},
        {"else": {"then": {"do": "continue"}}},
    ]
}


def refused(data: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Policy.from_dict(data)
    return str(caught.value)


def decided(**then: Any) -> dict[str, Any]:
    """A document with one rule, and `fail` for the rest."""
    return {"rules": [{"when": FAILS, "then": then}, THEN_FAIL]}


# --- three documents ---------------------------------------------------------------


def test_the_document_for_http_becomes_its_rules() -> None:
    policy = Policy.from_dict(HTTP)

    assert policy == Policy(
        [
            Rule.retry(
                HTTP["rules"][0]["when"],  # type: ignore[arg-type]
                attempts=10,
                backoff="exponential",
                delay=2,
                factor=2,
                jitter=0,
            ),
            Rule.fail(HTTP["rules"][1]["when"]),  # type: ignore[arg-type]
            Rule.retry(
                "{{ " + FAILS + " }}", attempts=3, backoff="linear", delay=1, jitter=0
            ),
            Rule(True, "continue"),
        ]
    )
    assert policy.max_attempts == 10
    first = policy.rows()[0]["conditions"]
    assert [each["path"] for each in first] == ["$.status", "$.http.status"]
    assert json.loads(first[1]["other_value"]) == [429, 500, 502, 503, 504]


def test_the_document_for_postgresql_becomes_its_rules() -> None:
    policy = Policy.from_dict(POSTGRESQL)

    retry, fail, rest = policy.rows()
    assert (retry["action"], retry["attempts"], retry["delay_ms"]) == ("retry", 5, 2000)
    assert (retry["backoff"], retry["factor"]) == ("exponential", 2.0)
    assert retry["conditions"][1]["path"] == "$.pg.code"
    assert json.loads(retry["conditions"][1]["other_value"]) == ["40001", "40P01"]
    assert (fail["action"], rest["action"], rest["conditions"]) == (
        "fail",
        "continue",
        [],
    )
    assert policy.max_attempts == 5


def test_the_document_for_python_becomes_its_rules() -> None:
    policy = Policy.from_dict(PYTHON)

    retry, fail, rest = policy.rows()
    assert (retry["backoff"], retry["delay_ms"], retry["attempts"]) == (
        "linear",
        1000,
        3,
    )
    contains = retry["conditions"][1]
    assert (contains["op"], contains["value"]) == ("in", '"timeout"')
    assert (contains["other_path"], contains["other_lowered"]) == ("$.error.message", 1)
    assert [fail["action"], rest["action"]] == ["fail", "continue"]


@pytest.mark.parametrize("document", [HTTP, POSTGRESQL, PYTHON])
def test_a_document_survives_json_and_is_not_changed(document: dict[str, Any]) -> None:
    before = json.dumps(document)

    policy = Policy.from_dict(document)

    assert json.dumps(document) == before
    assert Policy.from_dict(json.loads(before)).source() == policy.source()


class HttpError(Exception):
    """Looks like the errors of libraries for HTTP."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = type("Response", (), {"status_code": status, "headers": {}})()


class PostgresError(Exception):
    """Looks like the errors of libraries for PostgreSQL."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


STORIES: list[Any] = [
    (HTTP, HttpError(503), [2, 4, 8, 16, 32, 64, 128, 256, 512], "dead_lettered"),
    (HTTP, HttpError(401), [], "dead_lettered"),
    (HTTP, HttpError(403), [], "dead_lettered"),
    (HTTP, HttpError(404), [1, 2], "dead_lettered"),
    (HTTP, None, [], "completed"),
    (POSTGRESQL, PostgresError("40001"), [2, 4, 8, 16], "dead_lettered"),
    (POSTGRESQL, PostgresError("40P01"), [2, 4, 8, 16], "dead_lettered"),
    (POSTGRESQL, PostgresError("23505"), [], "dead_lettered"),
    (POSTGRESQL, None, [], "completed"),
    (PYTHON, OSError("read TimeOut"), [1, 2], "dead_lettered"),
    (PYTHON, OSError("no route"), [], "dead_lettered"),
    (PYTHON, None, [], "completed"),
]


@pytest.mark.parametrize(("document", "error", "waits", "end"), STORIES)
def test_jobs_live_as_their_document_says(
    document: dict[str, Any], error: Exception | None, waits: list[int], end: str
) -> None:
    jobs = LiteJobs(":memory:")

    @jobs.task(policy=Policy.from_dict(document))
    def work() -> None:
        if error is not None:
            raise error

    with freeze_time("2026-01-01") as clock:
        job = work.enqueue()
        seen = []
        while jobs.drain() and job.next_retry_at is not None:
            wait = job.next_retry_at - dt.datetime.now(dt.UTC)
            seen.append(wait.total_seconds())
            clock.tick(wait)
        state, attempts = job.state, job.attempts
    jobs.close()

    assert seen == waits
    assert state == end
    assert len(attempts) == len(waits) + 1


def test_a_policy_can_stand_in_a_toml_file() -> None:
    data = tomllib.loads(
        """
        otherwise = "retry"
        [[rules]]
        when = "outcome.http.status == 404"
        then = "fail"
        [[rules]]
        when = "outcome.http.status == 503"
        then = {do = "retry", backoff = "fixed", delay = [60, "5m"], jitter = 0}
        """
    )

    assert Policy.from_dict(data) == Policy(
        [
            Rule.fail("outcome.http.status == 404"),
            Rule.retry("outcome.http.status == 503", intervals=[60, 300], jitter=0),
        ],
        otherwise="retry",
    )


# --- rules -------------------------------------------------------------------------


def test_every_option_of_a_rule_has_its_place() -> None:
    retry = decided(
        do="retry",
        retries=4,
        backoff="exponential",
        delay="2s",
        factor=3,
        max_delay="1m",
        jitter=0.5,
        queue="slow",
        priority=2,
        set_ctx={"a": 1},
        set_iter={"b": "{{ iter.b + 1 }}"},
    )
    jump = decided(do="jump", to="first", delay=5)

    assert Policy.from_dict(retry).rules[0] == Rule(
        FAILS,
        "retry",
        attempts=5,
        backoff="exponential",
        delay=2,
        factor=3,
        max_delay=60,
        jitter=0.5,
        queue="slow",
        priority=2,
        set_ctx={"a": 1},
        set_iter={"b": "{{ iter.b + 1 }}"},
    )
    assert Policy.from_dict(jump).rules[0] == Rule.jump(FAILS, "first", delay=5)


def test_an_option_without_value_is_not_given() -> None:
    policy = Policy.from_dict(decided(do="retry", attempts=None, delay=None))

    assert policy.rules[0] == Rule.retry(FAILS, jitter=0)


def test_an_action_alone_needs_no_mapping() -> None:
    data = {"rules": [{"when": FAILS, "then": "fail"}, {"else": {"then": "continue"}}]}

    assert Policy.from_dict(data) == Policy([Rule.fail(FAILS), Rule(True, "continue")])


def test_a_condition_that_always_holds_is_an_else() -> None:
    data = {"rules": [{"when": True, "then": {"do": "retry", "attempts": 2}}]}

    assert Policy.from_dict(data) == Policy([Rule.retry(attempts=2, jitter=0)])


# --- what would be swallowed -------------------------------------------------------


def test_errors_that_no_rule_names_would_count_as_success_and_are_warned_about() -> (
    None
):
    data = {"rules": [{"when": "outcome.http.status == 503", "then": "retry"}]}

    with pytest.warns(
        UserWarning,
        match="errors that match none of the rules would count as success: .*error or "
        "timeout.*outcome.http.status == 503",
    ) as seen:
        policy = Policy.from_dict(data)

    assert policy.otherwise == "continue"
    assert [each.filename for each in seen] == [__file__]


def test_the_warning_names_only_what_is_left() -> None:
    data = {"rules": [{"when": FAILS, "then": "fail"}]}

    with pytest.warns(UserWarning, match="the status timeout for which none"):
        Policy.from_dict(data)


@pytest.mark.parametrize(
    "data",
    [
        {"rules": [{"when": "outcome.a", "then": "fail"}], "otherwise": "continue"},
        {"rules": [{"when": "outcome.a", "then": "fail"}], "otherwise": "fail"},
        {"rules": [{"when": "outcome.a", "then": "fail"}, THEN_FAIL]},
        {"rules": [{"when": "outcome.status != 'ok'", "then": "fail"}]},
        {"rules": [{"when": "not outcome.status == 'ok'", "then": "fail"}]},
        {"rules": [{"when": "outcome.status not in ['ok']", "then": "fail"}]},
        {"rules": [{"when": "outcome.status in ['error', 'timeout']", "then": "fail"}]},
        {
            "rules": [
                {"when": f"outcome.a or {FAILS}", "then": "fail"},
                {"when": "outcome.status == 'timeout'", "then": "retry"},
            ]
        },
    ],
)
def test_nothing_is_warned_about_where_every_error_is_decided(
    data: dict[str, Any],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Policy.from_dict(data).rules


@pytest.mark.parametrize(
    "when",
    [
        f"{FAILS} and outcome.http.status == 503",
        "outcome.status == 'ok'",
        "outcome.status != 'error'",
        "outcome.status > 'a'",
        "outcome.status == ctx.expected",
        "'error' in outcome.status",
        "outcome.status",
    ],
)
def test_a_condition_that_may_miss_errors_is_not_taken_for_all_of_them(
    when: str,
) -> None:
    with pytest.warns(UserWarning, match="the status error"):
        Policy.from_dict({"rules": [{"when": when, "then": "fail"}]})


# --- the older shapes --------------------------------------------------------------


def test_limits_alone_leave_every_error_to_them() -> None:
    data = {
        "retry": {
            "retryable": True,
            "max_attempts": 5,
            "backoff": "exponential",
            "backoff_base_ms": 500,
            "max_backoff_ms": 60_000,
        }
    }

    assert Policy.from_dict(data) == Policy(
        otherwise="retry",
        limits=Retry(
            retryable=True,
            max_attempts=5,
            backoff="exponential",
            delay=0.5,
            max_delay=60,
            jitter=0,
        ),
    )


def test_limits_that_contradict_each_other_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="retryable=False allows one attempt"):
        Policy.from_dict({"retry": {"retryable": False, "max_attempts": 5}})


def test_a_condition_for_retries_lets_everything_else_fail() -> None:
    data = {"max_attempts": 4, "retry_when": "outcome.http.status >= 500"}

    policy = Policy.from_dict(data)

    assert policy == Policy(
        [Rule.retry("outcome.http.status >= 500")],
        otherwise="fail",
        limits=Retry(max_attempts=4, jitter=0),
    )
    assert policy.max_attempts == 4


def test_conditions_for_retries_hold_as_if_joined_by_or() -> None:
    data = {"retry_when": ["outcome.http.status >= 500", "outcome.error.code == 'A'"]}

    policy = Policy.from_dict(data)

    assert [each.do for each in policy.rules] == ["retry", "retry"]
    assert [each.when for each in policy.rules] == data["retry_when"]
    assert policy.otherwise == "fail"


def test_a_number_of_attempts_alone_is_a_limit() -> None:
    assert Policy.from_dict({"max_attempts": 4}) == Policy(
        otherwise="retry", limits=Retry(max_attempts=4, jitter=0)
    )


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        ({"attempts": 3}, Retry(max_attempts=3)),
        (
            {
                "attempts": 100,
                "retry_budget": "2m",
                "backoff": {"exponential": {"base": 2}},
                "initial_delay": "1s",
            },
            Retry.exponential("1s", factor=2, max_attempts=100, budget="2m"),
        ),
        (
            {
                "attempts": 3,
                "retry_budget": "10m",
                "backoff": "fixed",
                "initial_delay": "5s",
            },
            Retry.constant(5, max_attempts=3, budget=600),
        ),
        ({"backoff": {"fixed": "5s"}}, Retry.constant(5)),
        ({"backoff": {"fixed": 5}}, Retry.constant(5)),
        ({"backoff": {"fixed": {"delay": 5}}}, Retry.constant(5)),
        ({"backoff": {"fixed": None}, "initial_delay": 5}, Retry.constant(5)),
        ({"backoff": {"fixed": [60, 300]}}, Retry.fixed([60, 300])),
        (
            {"attempts": 3, "backoff": {"fixed": {"intervals": [60, 300]}}},
            Retry.fixed([60, 300]),
        ),
        ({"backoff": {"linear": {}}, "initial_delay": 2}, Retry.linear(2)),
        ({"backoff": {"linear": 2}}, Retry.linear(2)),
        ({"backoff": "linear", "initial_delay": 2}, Retry.linear(2)),
        ({"backoff": {"linear": {"delay": "2s"}}}, Retry.linear(2)),
        ({"backoff": "none", "initial_delay": 0}, Retry.constant(0)),
        ({"backoff": "exponential"}, Retry(backoff="exponential")),
        ({"backoff": {"exponential": None}}, Retry(backoff="exponential")),
        (
            {"backoff": {"exponential": {"base": 1.5, "delay": 4}}},
            Retry.exponential(4, factor=1.5),
        ),
        ({"backoff": None, "initial_delay": "1m"}, Retry(delay=60)),
    ],
)
def test_a_retry_config_becomes_limits(config: dict[str, Any], limits: Retry) -> None:
    policy = Policy.from_dict({"retry_config": config})

    exact = attrs.evolve(limits, jitter=0)
    assert policy == Policy(otherwise="retry", limits=exact)


# --- documents given whole -----------------------------------------------------------


def noted(data: Any) -> tuple[Policy, list[str]]:
    """The policy, and what is said about it."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        policy = Policy.from_dict(data)
    assert {each.filename for each in warned} <= {__file__}
    return policy, [str(each.message) for each in warned]


@pytest.mark.parametrize(
    "whole",
    [
        {"policy": HTTP},
        {"spec": HTTP},
        {"spec": {"policy": HTTP}},
        {"tool": {"kind": "http", "spec": {"policy": HTTP}}},
        {
            "apiVersion": "v1",
            "kind": "Task",
            "metadata": {"labels": {"policy": "x"}},
            "spec": {"policy": HTTP},
        },
        {"step": "fetch", "tool": "http", "spec": {"policy": HTTP}},
        {"name": "http", "description": "all that is busy", **HTTP},
    ],
)
def test_a_document_may_be_given_whole(whole: dict[str, Any]) -> None:
    policy, notes = noted(whole)

    assert policy == Policy.from_dict(HTTP)
    assert policy.default_jitter == 0
    assert notes == []


@pytest.mark.parametrize(
    ("whole", "note"),
    [
        (
            {"policy": HTTP, "timeout": 3, "name": "a", "queue": "b"},
            "beside policy this is not read: timeout, queue",
        ),
        (
            {"tool": {"kind": "http", "url": "x", "spec": {"policy": HTTP}}},
            "beside tool.spec this is not read: tool.url",
        ),
        (
            {"policy": HTTP, **{f"a{n}": n for n in range(7)}},
            "beside policy this is not read: a0, a1, a2, a3, a4 and 2 more",
        ),
        (
            {"step": "a", "url": "x", "retry": {"max_attempts": 2}},
            "beside retry this is not read: url",
        ),
    ],
)
def test_what_is_not_read_of_a_whole_document_is_said(
    whole: dict[str, Any], note: str
) -> None:
    assert noted(whole)[1] == [note]


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ({"polcy": HTTP}, "polcy is unknown; did you mean 'policy'?"),
        ({"policy": HTTP, "rules": []}, "policy and rules both are policies"),
        ({"policy": HTTP, "spec": HTTP}, "policy and spec both are policies"),
        ({"spec": {"policy": HTTP, "retry": {}}}, "spec.policy and spec.retry both"),
        ({"policy": None}, "policy: the value=None does not fit"),
        ({"policy": [HTTP]}, "policy: the value=[{'rules'"),
        ({"policy": {}}, "policy: a policy was given nothing"),
        ({"spec": {}}, "a policy was given spec; give one of"),
        ({"spec": {"policy": {"rules": [{"wen": 1}]}}}, "spec.policy: rules[0].wen is"),
        ({"default": "fail", **HTTP}, "default is unknown"),
        ({"name": "a", "otherwis": "fail", **HTTP}, "did you mean 'otherwise'?"),
        ({"url": "x", "retry": {}}, "url is unknown"),
        (
            {"name": "x", "retry": {}, "retry_confg": {}},
            "retry_confg is unknown; did you mean 'retry_config'?",
        ),
    ],
)
def test_a_whole_document_that_is_not_clear_is_refused(
    whole: dict[str, Any], words: str
) -> None:
    assert words in refused(whole)


def test_a_document_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["spec"] = endless
    assert "a policy was given spec" in refused(endless)
    endless["policy"] = endless
    assert "both are policies" in refused(endless)


def test_an_older_retry_says_how_it_is_written_today() -> None:
    data = {"retry": {"max_attempts": 5, "retry_when": "{{ status_code >= 500 }}"}}

    policy, [note] = noted(data)

    when = "outcome.status != 'ok' and (outcome.http.status >= 500)"
    assert policy == Policy(
        [Rule.retry(when)],
        otherwise="fail",
        limits=Retry(max_attempts=5, jitter=0),
    )
    before, _, today = note.partition(": ")
    assert before == "retry_when is an older form, and is read as it is written today"
    again, notes = noted(json.loads(today))
    assert notes == []
    assert again.rules[0].conditions == policy.rules[0].conditions
    assert (again.rules[0].attempts, again.rules[1].do) == (5, "fail")


def test_every_part_of_an_older_retry_is_read() -> None:
    older = {
        "max_attempts": 4,
        "initial_delay": 0.5,
        "backoff_multiplier": 3,
        "max_delay": "1m",
        "jitter": True,
        "retry_when": ["status_code == 429", "{{ 'status_code' in (error|lower) }}"],
    }

    policy, [note] = noted({"retry": older})

    waits = {"backoff": "exponential", "delay": 0.5, "factor": 3, "max_delay": 60}
    assert policy.limits == Retry(max_attempts=4, jitter=0.25, **waits)  # type: ignore[arg-type]
    assert [each.when for each in policy.rules] == [
        "outcome.status != 'ok' and (outcome.http.status == 429)",
        "outcome.status != 'ok' and ('status_code' in (outcome.error.message|lower))",
    ]
    again = Policy.from_dict(json.loads(note.partition(": ")[2]))
    assert again.rules[0] == Rule.retry(
        policy.rules[0].when,
        attempts=4,
        jitter=0.25,
        **waits,  # type: ignore[arg-type]
    )
    assert noted({"retry": older | {"jitter": False}})[0].limits == Retry(
        max_attempts=4,
        jitter=0,
        **waits,  # type: ignore[arg-type]
    )


def test_a_condition_of_today_in_an_older_retry_stays_as_it_is() -> None:
    when = "outcome.http.status >= 500 and outcome.status_code != 'status_code'"

    policy, [note] = noted({"retry": {"retry_when": when}})

    assert [each.when for each in policy.rules] == [when]
    assert "older form" in note
    assert noted({"retry_when": when})[1] == []
    assert "older form" in noted({"retry_when": "status_code > 1"})[1][0]


def test_what_stops_an_older_retry_stops_it_however_it_has_ended() -> None:
    older = {
        "max_attempts": 3,
        "retry_when": "{{ status_code >= 500 }}",
        "stop_when": ["{{ status_code == 501 }}", True],
    }

    policy, [note] = noted({"retry": older})

    assert [(each.when, each.do) for each in policy.rules] == [
        ("outcome.status == 'ok' and (outcome.http.status == 501)", "continue"),
        ("outcome.status != 'ok' and (outcome.http.status == 501)", "fail"),
        ("outcome.status == 'ok'", "continue"),
        ("outcome.status != 'ok'", "fail"),
        ("outcome.status != 'ok' and (outcome.http.status >= 500)", "retry"),
    ]
    before, _, today = note.partition(": ")
    assert before == (
        "retry_when and stop_when are older forms, and are read as it is written today"
    )
    again, notes = noted(json.loads(today))
    assert notes == []
    assert [(each.when, each.do) for each in again.rules[:-1]] == [
        (each.when, each.do) for each in policy.rules
    ]


@pytest.mark.parametrize(
    ("error", "waits"), [(HttpError(503), [60, 120]), (HttpError(501), []), (None, [])]
)
def test_jobs_stop_as_their_older_document_says(
    error: Exception | None, waits: list[int]
) -> None:
    older = {"max_attempts": 3, "retry_when": "status_code >= 500"}
    policy = noted({"retry": older | {"stop_when": "status_code in [200, 501]"}})[0]
    end = "completed" if error is None else "dead_lettered"
    assert lived(policy, error) == (waits, end)


def test_what_is_called_output_is_the_outcome() -> None:
    when = "{{ output.status == 'error' and output.error.message != 'output.x' }}"
    changes = {"at": "{{ output.ran_ms }}", "to": "output.csv"}
    then = {"do": "retry", "set_ctx": changes}
    last = {"else": {"then": {"do": "fail"}}}

    policy, [note] = noted({"rules": [{"when": when, "then": then}, last]})

    assert policy.rules[0].when == (
        "{{ outcome.status == 'error' and outcome.error.message != 'output.x' }}"
    )
    assert policy.rules[0].set_ctx == changes | {"at": "{{ outcome.ran_ms }}"}
    assert note == f"output is read as outcome, as it is called here, in {when}"
    older = {"retry_when": "output.status == 'timeout'", "max_attempts": 2}
    policy, [note] = noted(older)
    assert policy.rules[0].when == "outcome.status == 'timeout'"
    assert "output is read as outcome" in note


OLDER = {"retry": {"max_attempts": 3, "retry_when": "{{ status_code != 404 }}"}}


@pytest.mark.parametrize(
    ("error", "waits", "end"),
    [
        (HttpError(503), [60, 120], "dead_lettered"),
        (HttpError(404), [], "dead_lettered"),
        (None, [], "completed"),
    ],
)
def test_jobs_live_as_their_older_document_says(
    error: Exception | None, waits: list[int], end: str
) -> None:
    """A success has no status of HTTP, and is not tried again for that."""
    policy = noted(OLDER)[0]
    assert lived(policy, error) == (waits, end)


# --- times are those of the document -------------------------------------------------


def lived(
    policy: Policy, error: BaseException | None, retry: Retry | None = None
) -> tuple[list[float], str]:
    """The waits of a job of this policy, in seconds, and how it ended."""
    with LiteJobs(":memory:") as jobs, freeze_time("2026-01-01") as clock:

        @jobs.task(policy=policy, retry=retry)
        def work() -> None:
            if error is not None:
                raise error

        job = work.enqueue()
        seen = []
        while jobs.drain() and job.next_retry_at is not None:
            wait = job.next_retry_at - dt.datetime.now(dt.UTC)
            seen.append(wait.total_seconds())
            clock.tick(wait)
        return seen, str(job.state)


@pytest.mark.parametrize(
    ("data", "waits"),
    [
        (decided(do="retry", attempts=3), [60, 120]),
        (decided(do="retry", attempts=3, backoff="linear", delay=5), [5, 10]),
        (decided(do="retry", delay=[7, 9], backoff="fixed"), [7, 9]),
        (
            {"rules": [{"when": "attempt > 9", "then": "fail"}], "otherwise": "retry"},
            [60, 120],
        ),
        ({"max_attempts": 4}, [60, 120, 240]),
        ({"retry_when": "outcome.error.type == 'OSError'"}, [60, 120]),
        ({"retry": {"backoff": "none", "backoff_base_ms": 500}}, [0.5, 0.5]),
        ({"retry_config": {"attempts": 3, "backoff": {"fixed": 5}}}, [5, 5]),
    ],
)
def test_a_document_that_names_no_jitter_has_none(
    data: dict[str, Any], waits: list[float]
) -> None:
    assert lived(Policy.from_dict(data), OSError())[0] == waits


def test_what_a_document_says_of_jitter_counts() -> None:
    policy = Policy.from_dict(decided(do="retry", attempts=9, delay=100, jitter=0.5))
    waits = lived(policy, OSError())[0]
    assert len(waits) == 8
    assert waits != [100 * 2**n for n in range(8)]


def test_retry_in_python_keeps_its_jitter_beside_a_document() -> None:
    """The times of the rule are the document's, all others those of the code."""
    policy = Policy.from_dict(
        {
            "rules": [
                {
                    "when": "attempt < 3",
                    "then": {"do": "retry", "backoff": "constant", "delay": 10},
                }
            ],
            "otherwise": "retry",
        }
    )
    first, second, *others = lived(policy, OSError(), Retry.constant(100, retries=8))[0]
    assert [first, second] == [10, 10]
    assert len(others) == 6
    assert all(75 <= each <= 125 for each in others)
    assert len({*others}) > 1
    assert lived(policy, OSError())[0] == [10, 10]


# --- what is refused, and where ----------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "the value=None does not fit; give names and values: rules"),
        ([], "the value=[] does not fit"),
        ({}, "a policy was given nothing; give one of: rules"),
        ({"otherwise": "fail"}, "a policy was given otherwise"),
        ({"rules": [], "retry": {}}, "a policy was given rules, retry; give one of"),
        ({"max_attempts": 3, "retry_config": {}}, "was given max_attempts, retry_conf"),
        ({"rule": []}, "rule is unknown; did you mean 'rules'?"),
        ({3: []}, "3 is unknown"),
        ({"rules": []}, "rules=[] does not fit; give a list of at least one rule"),
        ({"rules": None}, "rules=None does not fit"),
        ({"rules": {"when": FAILS}}, "rules={'when'"),
        ({"rules": ["fail"]}, "rules[0]='fail' does not fit"),
        ({"rules": [{}]}, "rules[0] has no when"),
        ({"rules": [{"then": "fail"}]}, "rules[0] has no when"),
        ({"rules": [{"when": None, "then": "fail"}]}, "rules[0] has no when"),
        ({"rules": [{"when": FAILS}]}, "rules[0].then=None does not fit"),
        ({"rules": [{"wen": FAILS}]}, "rules[0].wen is unknown; did you mean 'when'?"),
        (
            {"rules": [{"when": 3, "then": "fail"}]},
            "rules[0]: when=3 is not a condition",
        ),
        ({"rules": [{"when": False, "then": "fail"}]}, "rules[0]: when=False"),
        ({"rules": [{"when": ["a"], "then": "fail"}]}, "rules[0]: when=['a']"),
        (
            {"rules": [THEN_FAIL, {"when": FAILS, "then": "fail"}]},
            "rules[0].else stands before other rules",
        ),
        ({"rules": [{"else": "fail"}]}, "rules[0].else='fail' does not fit"),
        ({"rules": [{"else": {}}]}, "rules[0].else.then=None"),
        ({"rules": [{"else": {"do": "fail"}}]}, "rules[0].else.do is unknown"),
        (
            {"rules": [{"else": {"then": "fail"}, "when": FAILS}]},
            "rules[0] has else beside when",
        ),
        (
            {"rules": [{"else": {"then": {"do": "fial"}}}]},
            "rules[0].else.then: do='fial' is unknown; did you mean 'fail'?",
        ),
        (
            {"rules": [THEN_FAIL], "otherwise": "fial"},
            "otherwise='fial' is unknown; did you mean 'fail'?",
        ),
        ({"rules": [THEN_FAIL], "otherwise": ["fail"]}, "otherwise=['fail']"),
    ],
)
def test_data_of_another_shape_are_refused_by_place(data: Any, words: str) -> None:
    assert words in refused(data)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ({"do": "retry", "dely": 3}, "rules[0].then.dely is unknown; did you mean "),
        ({"attempts": 3}, "rules[0].then has no do"),
        ({"do": 5}, "rules[0].then.do=5 does not fit; give a text"),
        ({"do": "retry", "backoff": True}, "rules[0].then.backoff=True does not fit"),
        ({"do": "retry", "queue": 7}, "rules[0].then.queue=7 does not fit"),
        ({"do": "jump", "to": 7}, "rules[0].then.to=7 does not fit"),
        ({"do": "jump"}, "rules[0].then: do='jump' needs to"),
        (
            {"do": "retry", "attempts": "3"},
            "rules[0].then: attempts='3' is not a whole",
        ),
        ({"do": "retry", "attempts": 0}, "rules[0].then: attempts=0"),
        ({"do": "retry", "attempts": 2, "retries": 1}, "both say how often"),
        ({"do": "retry", "delay": "soon"}, "rules[0].then: delay='soon' is not"),
        ({"do": "retry", "delay": True}, "rules[0].then: delay=True"),
        ({"do": "retry", "delay": {"s": 1}}, "rules[0].then: delay"),
        ({"do": "retry", "jitter": 2}, "rules[0].then: jitter=2"),
        ({"do": "retry", "intervals": [0]}, "rules[0].then: intervals[0]=0"),
        ({"do": "retry", "set_ctx": [1]}, "rules[0].then: set_ctx"),
        ({"do": "fail", "delay": 3}, "rules[0].then: delay=3 does not go with"),
        ({"do": "snooze", "delay": 0}, "rules[0].then: delay=0 makes a snooze"),
    ],
)
def test_an_unusable_option_is_refused_by_place(
    then: dict[str, Any], words: str
) -> None:
    assert words in refused(decided(**then))


def test_an_unusable_condition_is_shown_with_its_rule() -> None:
    data = {
        "rules": [
            {"when": FAILS, "then": "retry"},
            {"when": "outcome.http.status =< 3", "then": {"do": "retry"}},
        ]
    }

    lines = refused(data).splitlines()

    assert lines[0].startswith("rules[1]: when")
    assert lines[1] == "outcome.http.status =< 3"
    assert lines[2].strip() == "^"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"retry": None}, "retry=None does not fit"),
        (
            {"retry": True},
            "retry=True does not fit; give the number of attempts that is meant, such "
            "as {'max_attempts': 3}",
        ),
        ({"retry": False}, "retry=False does not fit; give {'max_attempts': 1}"),
        (
            {"retry": 5},
            "retry=5 does not fit; give {'max_attempts': 5} if so many attempts are "
            "meant in all, or {'max_attempts': 6} for so many retries after the first",
        ),
        ({"retry": 0}, "limits by name, such as {'max_attempts': 3}"),
        ({"retry": "5"}, "limits by name, such as {'max_attempts': 3}"),
        ({"retry": {"stop_when": "attempt > 2"}}, "stop_when stands without retry_wh"),
        (
            {"retry": {"retry_when": "attempt < 3", "stop_when": []}},
            "stop_when=[] does not fit; give a condition, or a list of them",
        ),
        (
            {"retry": {"retry_when": "attempt < 3", "stop_when": [None]}},
            "stop_when[0]=None does not fit; give a condition",
        ),
        (
            {"retry": {"retry_when": "attempt < 3", "stop_when": "attempt =< 3"}},
            "retry: stop_when: ",
        ),
        ({"retry": {"max_atempts": 3}}, "retry.max_atempts is unknown; did you mean "),
        ({"retry": {"max_attempts": 0}}, "retry: max_attempts=0"),
        ({"retry": {"retryable": "yes"}}, "retry: retryable='yes'"),
        ({"retry": {"backoff": "expo"}}, "retry: backoff='expo'"),
        ({"retry": {"backoff_base_ms": "1s"}}, "retry: backoff_base_ms='1s' is not a"),
        ({"retry": {"max_backoff_ms": -1}}, "retry: max_backoff_ms=-1"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"retry_when": []}, "retry_when=[] does not fit"),
        ({"retry_when": 3}, "retry_when: when=3"),
        ({"retry_when": ["outcome.a", 3]}, "retry_when[1]: when=3"),
        ({"retry_when": ["outcome.a", None]}, "retry_when[1]=None"),
        ({"retry_when": "outcome."}, "retry_when: when"),
        ({"retry_config": 3}, "retry_config=3 does not fit"),
        ({"retry_config": {"attempt": 3}}, "retry_config.attempt is unknown; did you "),
        ({"retry_config": {"attempts": 0}}, "retry_config: attempts=0"),
        ({"retry_config": {"retry_budget": "x"}}, "retry_config: retry_budget='x'"),
        ({"retry_config": {"initial_delay": "x"}}, "retry_config: initial_delay='x'"),
        ({"retry_config": {"backoff": "exp"}}, "retry_config: backoff='exp'"),
        ({"retry_config": {"backoff": {}}}, "retry_config: backoff={} does not fit"),
        ({"retry_config": {"backoff": 3}}, "retry_config: backoff=3 does not fit"),
        (
            {"retry_config": {"backoff": {"exponental": {}}}},
            "retry_config: backoff.exponental is unknown; did you mean 'exponential'?",
        ),
        (
            {"retry_config": {"backoff": {"exponential": {"bas": 2}}}},
            "retry_config: backoff.exponential: bas is unknown; did you mean 'base'?",
        ),
        (
            {"retry_config": {"backoff": {"exponential": {"base": 0}}}},
            "backoff.exponential: base=0 is out of range",
        ),
        (
            {"retry_config": {"backoff": {"exponential": [2, 3]}}},
            "backoff.exponential: the value=[2, 3] does not fit",
        ),
        (
            {"retry_config": {"backoff": {"linear": "x"}}},
            "retry_config: delay='x'",
        ),
        (
            {"retry_config": {"backoff": {"fixed": [0]}}},
            "retry_config: intervals[0]=0",
        ),
        (
            {"retry_config": {"backoff": {"fixed": 3}, "initial_delay": 3}},
            "initial_delay and the backoff both say how long",
        ),
        (
            {"retry_config": {"attempts": 5, "backoff": {"fixed": [60, 300]}}},
            "retry_config: 2 intervals make 2 retries",
        ),
        (
            {"retry_config": {"backoff": {"fixed": 3, "linear": 3}}},
            "retry_config: backoff={'fixed': 3, 'linear': 3} does not fit",
        ),
    ],
)
def test_an_unusable_part_of_an_older_shape_is_refused_by_place(
    data: Any, words: str
) -> None:
    assert words in refused(data)


def test_a_value_of_any_size_and_kind_is_refused_in_one_line() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for value in (10**5000, "x" * 100_000, nested, object(), float("nan"), b"x"):
        for data in (
            {"rules": value},
            {"rules": [value]},
            {"rules": [{"when": FAILS, "then": value}]},
            decided(do="retry", attempts=value),
            decided(do="retry", backoff=value),
            decided(do="retry", factor=value),
            {"retry": {"backoff_base_ms": value}},
            {"retry_config": {"backoff": value}},
        ):
            message = refused(data)
            assert len(message) < 500
            assert "\n" not in message
