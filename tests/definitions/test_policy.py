"""What is said about retries is checked, kept, and turned into columns and rows."""

from __future__ import annotations

import datetime as dt
import enum
import json
import warnings
from collections.abc import Callable
from typing import Any

import apsw
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litejobs import LiteJobs, TaskError
from litejobs._definitions.columns import folded
from litejobs._definitions.policy import ACTIONS, Policy, Retry, Rule
from litejobs._storage import statements
from litejobs.errors import ConfigurationError, TaskTimeout
from tests.drawn import CHARACTERS
from tests.models.backoffs import GROWTH

FAILS = "outcome.status == 'error'"


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make()
    return str(caught.value)


# --- limits ------------------------------------------------------------------------


def test_nothing_said_leaves_every_column_to_the_default() -> None:
    assert Retry().columns() == {
        "max_attempts": None,
        "retryable": None,
        "backoff": None,
        "delay_ms": None,
        "factor": None,
        "max_delay_ms": None,
        "jitter": None,
        "intervals": None,
        "retry_budget_ms": None,
    }


def test_retries_count_without_the_first_attempt() -> None:
    assert Retry.exponential(30, retries=5).max_attempts == 6
    assert Retry.exponential(30, max_attempts=5).max_attempts == 5
    assert Retry.linear(30, retries=0).max_attempts == 1
    assert Retry(retries=1) == Retry(max_attempts=2)


@pytest.mark.parametrize(
    "make",
    [Retry, Retry.exponential, Retry.linear, Retry.constant],
)
def test_retries_and_max_attempts_are_never_both_accepted(make: Any) -> None:
    message = refused(lambda: make(retries=2, max_attempts=3))

    assert message.startswith("retries=2 and max_attempts=3 both say how often")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2m30s", 150_000),
        (2.5, 2_500),
        (dt.timedelta(minutes=1), 60_000),
    ],
)
def test_every_duration_is_read_the_same_way(text: Any, ms: int) -> None:
    columns = Retry.exponential(text, max_delay=text, budget=text).columns()

    assert (columns["delay_ms"], columns["max_delay_ms"]) == (ms, ms)
    assert columns["retry_budget_ms"] == ms
    assert Retry(delay=text, max_delay=text) == Retry(delay_ms=ms, max_delay_ms=ms)
    assert Rule(True, "retry", delay=text).delay_ms == ms


def test_constructors_name_the_backoff() -> None:
    assert Retry.exponential(1, factor=3).columns()["factor"] == 3.0
    assert Retry.exponential().columns()["backoff"] == "exponential"
    assert Retry.linear().columns()["backoff"] == "linear"
    assert Retry.constant().columns()["backoff"] == "none"
    assert Retry(backoff="constant") == Retry(backoff="none")
    assert Retry.never().columns()["retryable"] is False


def test_a_list_of_intervals_has_one_for_each_retry() -> None:
    retry = Retry.fixed([60, "5m", dt.timedelta(minutes=15)], budget="1h", jitter=0)

    columns = retry.columns()
    assert columns["intervals"] == [60000, 300000, 900000]
    assert columns["max_attempts"] == 4
    assert columns["backoff"] is None, "the list takes its place"
    assert columns["retry_budget_ms"] == 3_600_000
    assert columns["jitter"] == 0
    assert retry == Retry.fixed([60, 300, 900], retries=3, budget=3600, jitter=0)
    assert retry == Retry.fixed([60, 300, 900], max_attempts=4, budget=3600, jitter=0)
    assert retry == Retry(intervals=(60, 300, 900), budget=3600, jitter=0)


def test_intervals_lie_between_a_second_and_a_day_and_are_twenty_at_most() -> None:
    assert Retry.fixed([1] * 20).max_attempts == 21
    assert Retry.fixed(["24h"]).intervals_ms == (86_400_000,)
    for bad, words in [
        ([], "intervals=0 of them"),
        ([1] * 21, "intervals=21 of them"),
        ([60, 0.999], "intervals[1]=0.999 is out of range; give 1 to 86,400 seconds"),
        ([60, 86_400.001], "intervals[1]=86400.001 is out of range"),
        ([60, None], "intervals[1]=None is out of range"),
        ([60, "soon"], "intervals[1]='soon' is not a duration"),
        ([True], "intervals[0]=True is not a duration"),
        ("60", "intervals='60' cannot be used; give a list of 1 to 20 delays"),
        (60, "intervals=60 cannot be used"),
        (None, "intervals=None cannot be used"),
    ]:
        assert words in refused(lambda bad=bad: Retry.fixed(bad))


def test_a_number_beside_intervals_has_to_agree_with_them() -> None:
    message = refused(lambda: Retry.fixed([60, 300], retries=3))

    assert message.startswith("2 intervals make 2 retries (max_attempts=3), but 3 ")
    assert "4" in refused(lambda: Retry.fixed([60, 300], max_attempts=4))


@pytest.mark.parametrize("make", [Retry.exponential, Retry.linear, Retry.constant])
def test_a_backoff_with_one_base_refuses_a_list_and_names_the_way_out(
    make: Any,
) -> None:
    for listed in ([30, 60], (30,), []):
        message = refused(lambda listed=listed: make(listed))
        assert "Retry.fixed([…])" in message
        assert f"delay={listed!r}" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 0}, "max_attempts=0 is out of range; give 1 (no retry)"),
        ({"max_attempts": -1}, "max_attempts=-1"),
        ({"max_attempts": 10**9 + 1}, "max_attempts=1000000001"),
        ({"max_attempts": 10**5000}, "max_attempts=<int>"),
        ({"max_attempts": True}, "max_attempts=True is not a whole number"),
        ({"max_attempts": 2.0}, "max_attempts=2.0 is not a whole number"),
        ({"retries": -1}, "retries=-1 is out of range; give 0 (no retry)"),
        ({"retries": 10**9}, "retries=1000000000"),
        ({"retries": "3"}, "retries='3'"),
        ({"retryable": 0}, "retryable=0 is neither True nor False"),
        ({"backoff": "exponental"}, "did you mean 'exponential'?"),
        ({"backoff": 2}, "backoff=2 is unknown"),
        ({"backoff": "fixed"}, "backoff='fixed' needs intervals"),
        ({"backoff": "linear", "factor": 2}, "factor=2 has no effect"),
        ({"backoff": "linear", "intervals": [1]}, "backoff='linear' takes one delay"),
        ({"intervals": [1], "delay": 1}, "delay has no effect beside intervals"),
        ({"intervals": [1], "factor": 2}, "factor has no effect beside intervals"),
        ({"intervals": [1], "max_delay": 2}, "max_delay has no effect beside"),
        ({"intervals": [1], "intervals_ms": [1000]}, "say the same"),
        ({"intervals_ms": [999]}, "intervals_ms[0]=999 is out of range"),
        ({"intervals_ms": [1000.0]}, "intervals_ms[0]=1000.0 is not a whole number"),
        ({"delay": 1, "delay_ms": 1000}, "delay=1 and delay_ms=1000 say the same"),
        ({"delay": -1}, "delay=-1 is negative"),
        ({"delay_ms": 1.5}, "delay_ms=1.5 is not a whole number"),
        ({"delay_ms": -1}, "delay_ms=-1 is out of range"),
        ({"max_delay": "1 moon"}, "max_delay='1 moon' is not a duration"),
        ({"budget": "often"}, "budget='often' is not a duration"),
        ({"budget": 1, "retry_budget_ms": 1}, "budget=1 and retry_budget_ms=1"),
        ({"factor": 0.5}, "factor=0.5 is out of range; give a number from 1 to 1000"),
        ({"factor": 1001}, "factor=1001"),
        ({"factor": float("nan")}, "factor=nan"),
        ({"factor": True}, "factor=True"),
        ({"factor": "2"}, "factor='2'"),
        ({"jitter": 1.1}, "jitter=1.1 is out of range; give a number from 0 to 1"),
        ({"jitter": -0.1}, "jitter=-0.1"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_by_name(
    options: dict[str, Any], words: str
) -> None:
    assert words in refused(lambda: Retry(**options))


@pytest.mark.parametrize("factor", [1, 1.5, 2, 10, 1000])
def test_any_factor_from_one_to_a_thousand_is_kept(factor: float) -> None:
    assert Retry.exponential(1, factor=factor).columns()["factor"] == factor


@pytest.mark.parametrize("options", [{"max_attempts": 2}, {"retries": 1}])
def test_retries_that_retryable_forbids_are_warned_about(
    options: dict[str, int],
) -> None:
    with pytest.warns(UserWarning, match="retryable=False allows one attempt") as seen:
        Retry(retryable=False, **options)  # type: ignore[arg-type]
    assert seen[0].filename == __file__


def test_one_attempt_that_is_not_retryable_is_no_contradiction() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Retry(retryable=False, max_attempts=1)
        Retry(retryable=False, retries=0)
        Retry(retryable=False)


@pytest.mark.parametrize(
    "retry",
    [
        Retry(),
        Retry.exponential(
            30, retries=5, max_delay="1h", budget="1d", on=("A", OSError)
        ),
        Retry.linear(),
        Retry.fixed([60, 300]),
        Retry.never(),
    ],
)
def test_a_copy_with_nothing_changed_is_equal(retry: Retry) -> None:
    assert attrs.evolve(retry) == retry
    assert hash(attrs.evolve(retry)) == hash(retry)


def test_limits_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Retry().max_attempts = 5  # type: ignore[misc]


# --- errors by class and code ------------------------------------------------------


def test_errors_that_are_named_are_retried_and_others_fail() -> None:
    retry = Retry.exponential(1, retries=4, on=(TimeoutError, "RATE_LIMITED", 503))

    policy = retry.policy()

    assert policy is not None
    assert policy.otherwise == "fail"
    (rule,) = policy.rules
    assert (rule.do, rule.attempts) == ("retry", None)
    assert rule.when == (
        "'TimeoutError' in outcome.error.types"
        " or outcome.error.code == 'RATE_LIMITED'"
        " or outcome.error.code == 503"
    )
    assert policy.max_attempts == retry.max_attempts == 5
    assert policy.limits == Retry.exponential(1, retries=4)
    assert "on" not in retry.columns()


def test_without_names_there_are_no_rules() -> None:
    assert Retry.exponential().policy() is None


def test_one_error_needs_no_tuple() -> None:
    assert Retry(on=TimeoutError) == Retry(on=(TimeoutError,))
    assert Retry(on="RATE_LIMITED") == Retry(on=["RATE_LIMITED"])
    assert Retry(on=429).on == (429,)


def test_order_and_repetition_of_errors_do_not_change_the_policy() -> None:
    one = Retry(on=(OSError, "A", "B", "A")).policy()
    other = Retry(on={"B", "A", OSError}).policy()

    assert one is not None
    assert other is not None
    assert one.source() == other.source()


class Code(str, enum.Enum):  # noqa: UP042  (it prints itself in another way)
    BUSY = "busy"


class Number(enum.IntEnum):
    BUSY = 503


def test_members_of_enums_are_the_codes_that_they_stand_for() -> None:
    by_member = Retry(on=(Code.BUSY, Number.BUSY)).policy()
    by_value = Retry(on=("busy", 503)).policy()

    assert by_member is not None
    assert by_value is not None
    assert by_member.source() == by_value.source()


@given(st.lists(st.text(CHARACTERS, min_size=1, max_size=50), min_size=1, max_size=20))
def test_every_code_comes_back_as_a_literal_or_is_refused(codes: list[str]) -> None:
    try:
        policy = Retry(on=codes).policy()
    except ConfigurationError as error:
        assert "names no error" in str(error)
        return
    assert policy is not None
    found = [each.right for each in policy.rules[0].conditions]
    assert {json.loads(each.value or "") for each in found if each} == set(codes)


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ((), "on has 0 entries"),
        ([], "on has 0 entries"),
        (["A"] * 101, "on has 101 entries; give 1 to 100"),
        ([f"{at:x>200}" for at in range(100)], "too long together"),
        (int, "on[0]=<class 'int'> names no error"),
        ((TimeoutError, object), "on[1]=<class 'object'>"),
        ((TimeoutError(),), "on[0]=TimeoutError()"),
        (("",), "on[0]=''"),
        (("x" * 201,), "on[0]='xxx"),
        (("a\0b",), "on[0]='a\\x00b'"),
        (("\ud800",), "on[0]="),
        ((True,), "on[0]=True"),
        ((2**63,), "on[0]=9223372036854775808"),
        ((None,), "on[0]=None"),
        ((1.5,), "on[0]=1.5"),
        ({"TimeoutError": 1}, "on={'TimeoutError': 1} names no error"),
    ],
)
def test_what_names_no_error_is_refused(on: Any, words: str) -> None:
    assert words in refused(lambda: Retry(on=on))


def test_classes_outside_exception_are_named_as_well() -> None:
    policy = Retry(on=(TaskTimeout, KeyboardInterrupt)).policy()

    assert policy is not None
    assert "'TaskTimeout' in outcome.error.types" in str(policy.rules[0].when)


class Slow(TimeoutError):
    """A subclass of what is named."""


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (TimeoutError("late"), 3),
        (Slow("late"), 3),
        (TaskError("RATE_LIMITED"), 3),
        (TaskError("QUOTA"), 1),
        (OSError("no route"), 1),
        (KeyError("RATE_LIMITED"), 1),
    ],
)
def test_a_job_is_tried_again_for_the_errors_that_are_named(
    error: Exception, attempts: int
) -> None:
    jobs = LiteJobs(":memory:")

    @jobs.task(retry=Retry.constant(0, retries=2, on=(TimeoutError, "RATE_LIMITED")))
    def work() -> None:
        raise error

    job = work.enqueue()
    jobs.drain()
    state, tried = job.state, len(job.attempts)
    jobs.close()

    assert (state, tried) == ("dead_lettered", attempts)


# --- rules -------------------------------------------------------------------------


def test_a_rule_counts_all_attempts() -> None:
    assert Rule(FAILS, "retry", attempts=5).attempts == 5
    assert Rule(FAILS, "retry", retries=5).attempts == 6
    message = refused(lambda: Rule(FAILS, "retry", attempts=5, retries=4))
    assert message.startswith("retries=4 and attempts=5 both say how often")


def test_an_exponential_rule_does_not_take_the_factor_of_the_task() -> None:
    assert Rule(FAILS, "retry", backoff="exponential").factor == 2.0
    assert Rule(FAILS, "retry", backoff="exponential", factor=3).factor == 3.0
    assert Rule(FAILS, "retry").factor is None
    assert Rule(FAILS, "retry", backoff="linear").factor is None


def test_a_list_of_delays_in_a_rule_makes_its_attempts() -> None:
    rule = Rule(FAILS, "retry", backoff="fixed", intervals=[60, "5m"])

    assert rule.attempts == 3
    assert rule.row()["intervals"] == [60000, 300000]
    assert rule.row()["backoff"] is None
    assert rule == Rule(FAILS, "retry", backoff="fixed", delay=[60, 300])
    assert rule == Rule(FAILS, "retry", delay=(60, 300), attempts=3)
    assert rule == Rule(FAILS, "retry", intervals=[60, 300], retries=2)
    assert "(attempts=3)" in refused(
        lambda: Rule(FAILS, "retry", intervals=[60, 300], attempts=2)
    )


@pytest.mark.parametrize("when", [None, True, "true", "always", "{{ true }}"])
def test_a_rule_without_condition_is_known_as_one(when: Any) -> None:
    assert Rule(when, "snooze", delay=1).unconditional
    assert Rule(when, "snooze", delay=1).conditions == ()
    assert Rule(when, "continue").row()["conditions"] == []


@pytest.mark.parametrize("do", ["retry", "fail"])
def test_retry_and_fail_without_condition_speak_of_what_did_not_succeed(
    do: str,
) -> None:
    row = Rule(None, do).row()

    assert row["condition"] is None
    (condition,) = row["conditions"]
    assert condition["source"] == "outcome"
    assert condition["path"] == "$.status"
    assert (condition["op"], condition["negated"]) == ("eq", 1)
    assert condition["other_value"] == '"ok"'
    assert row["on_crash"] == 0


@pytest.mark.parametrize(
    ("when", "named"),
    [
        ("outcome.status == 'crashed'", 1),
        ("outcome.status in ['error', 'crashed']", 1),
        ("outcome.status != 'crashed'", 0),
        ("outcome.status == 'error'", 0),
        (None, 0),
    ],
)
def test_only_rules_that_name_a_crash_are_put_before_one(when: Any, named: int) -> None:
    assert Rule(when, "retry").row()["on_crash"] == named


def test_a_rule_says_what_it_writes() -> None:
    rule = Rule(
        "outcome.result.next",
        "jump",
        to="fetch",
        set_iter={"page": "{{ iter.page + 1 }}"},
        set_ctx={"seen": True},
    )

    changes = rule.row()["changes"]
    assert [(each["target"], each["path"]) for each in changes] == [
        ("ctx", "$.seen"),
        ("iter", "$.page"),
    ]
    assert changes[1]["plus"] == "1"
    assert rule.row()["next_step"] == "fetch"


OPTIONS: dict[str, Any] = {
    "attempts": 2,
    "retries": 1,
    "backoff": "linear",
    "factor": 2.0,
    "intervals": [1],
    "delay": 1,
    "max_delay": 1,
    "jitter": 0.5,
    "to": "start",
    "queue": "slow",
    "priority": 5,
    "set_ctx": {"a": 1},
    "set_iter": {"a": 1},
}
FITTING = {
    "retry": set(OPTIONS) - {"to"},
    "fail": {"set_ctx", "set_iter"},
    "continue": {"queue", "priority", "set_ctx", "set_iter"},
    "break": {"set_ctx", "set_iter"},
    "cancel": {"set_ctx", "set_iter"},
    "jump": {"delay", "jitter", "to", "queue", "priority", "set_ctx", "set_iter"},
    "snooze": {
        "delay",
        "max_delay",
        "jitter",
        "queue",
        "priority",
        "set_ctx",
        "set_iter",
    },
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("do", ACTIONS)
def test_an_option_goes_only_with_actions_that_use_it(do: str, option: str) -> None:
    given = {option: OPTIONS[option]}
    if do == "jump":
        given["to"] = "start"
    if option in FITTING[do]:
        assert Rule(FAILS, do, **given).do == do
    else:
        message = refused(lambda: Rule(FAILS, do, **given))
        assert message.startswith(f"{option}={OPTIONS[option]!r} does not go with")
        assert f"do={do!r}" in message


@pytest.mark.parametrize(
    ("when", "do", "options", "words"),
    [
        (FAILS, "rety", {}, "do='rety' is unknown; did you mean 'retry'?"),
        ("retry", FAILS, {}, "is unknown"),
        (FAILS, None, {}, "do=None is unknown"),
        (False, "fail", {}, "when=False never holds"),
        (3, "fail", {}, "when=3 is not a condition"),
        ("outcome.status ==", "fail", {}, "when"),
        (FAILS, "jump", {}, "do='jump' needs to"),
        (FAILS, "jump", {"to": ""}, "to=''"),
        (FAILS, "jump", {"to": 3}, "to=3"),
        (FAILS, "snooze", {"delay": 0}, "delay=0 makes a snooze that never waits"),
        (FAILS, "retry", {"attempts": 0}, "attempts=0 is out of range"),
        (FAILS, "retry", {"attempts": 1.5}, "attempts=1.5"),
        (FAILS, "retry", {"retries": -1}, "retries=-1"),
        (FAILS, "retry", {"queue": "x" * 201}, "queue="),
        (FAILS, "retry", {"priority": 1.5}, "priority=1.5"),
        (FAILS, "retry", {"priority": 10**7}, "priority=10000000"),
        (FAILS, "retry", {"backoff": "fixed"}, "backoff='fixed' needs intervals"),
        (
            FAILS,
            "retry",
            {"backoff": "exponential", "delay": [1, 2]},
            "delay=[1, 2] is a list",
        ),
        (FAILS, "retry", {"delay": [1], "intervals": [1]}, "both list delays"),
        (FAILS, "retry", {"set_ctx": 5}, "set_ctx=5"),
        (FAILS, "retry", {"set_iter": {"page": object()}}, "set_iter"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(
    when: Any, do: Any, options: dict[str, Any], words: str
) -> None:
    assert words in refused(lambda: Rule(when, do, **options))


def test_a_bad_condition_is_shown_with_the_place_marked() -> None:
    lines = refused(lambda: Rule("outcome.status = 'error'", "fail")).splitlines()

    assert lines[0].startswith("when")
    assert lines[1] == "outcome.status = 'error'"
    assert lines[2].strip() == "^"


def test_short_constructors_make_the_same_rules() -> None:
    assert Rule.retry(FAILS, attempts=3) == Rule(FAILS, "retry", attempts=3)
    assert Rule.fail() == Rule(None, "fail")
    assert Rule.snooze(FAILS, delay=5) == Rule(FAILS, "snooze", delay=5)
    assert Rule.jump(FAILS, "first") == Rule(FAILS, "jump", to="first")


def test_rules_are_equal_if_they_do_the_same() -> None:
    one = Rule(FAILS, "retry", delay="1m", set_ctx={"tries": "{{ attempt }}"})
    other = Rule(FAILS, "retry", delay=60, set_ctx={"tries": "{{attempt}}"})

    assert one == other
    assert hash(one) == hash(other)
    assert attrs.evolve(one) == one
    assert attrs.evolve(one, do="snooze") != one


# --- policies ----------------------------------------------------------------------


def test_a_policy_that_leaves_errors_open_is_refused() -> None:
    message = refused(lambda: Policy([Rule(FAILS, "retry")]))

    assert "otherwise='fail'" in message
    assert "'continue'" in message
    assert Policy([Rule(FAILS, "retry")], otherwise="continue").rules
    assert Policy([Rule(FAILS, "retry"), Rule.fail()]).otherwise == "fail"


def test_a_policy_without_rules_leaves_everything_to_the_limits() -> None:
    policy = Policy(otherwise="retry", limits=Retry(max_attempts=7))

    assert policy.rows() == []
    for otherwise in (None, "fail", "continue"):
        message = refused(lambda otherwise=otherwise: Policy([], otherwise=otherwise))
        assert message.startswith("a policy needs at least one rule")


@pytest.mark.parametrize(
    ("rules", "options", "words"),
    [
        ([Rule.fail()] * 101, {}, "101 rules are too many; 100 are allowed"),
        ([{"when": FAILS}], {}, "rules[0]={'when'"),
        ([Rule.fail(), "fail"], {}, "rules[1]='fail' is not a Rule"),
        ("fail", {}, "rules='fail' is not a list of rules"),
        (Rule.fail(), {}, "is not a list of rules"),
        ({"rules": []}, {}, "Policy.from_dict"),
        (None, {}, "rules=None"),
        ([Rule.fail()], {"otherwise": "fial"}, "did you mean 'fail'?"),
        ([Rule.fail()], {"otherwise": "snooze"}, "give fail, continue or retry"),
        ([Rule.fail()], {"limits": 3}, "limits=3 is not a Retry"),
        ([Rule.fail()], {"limits": Retry(on="A")}, "on=('A',) in the limits"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(
    rules: Any, options: dict[str, Any], words: str
) -> None:
    assert words in refused(lambda: Policy(rules, **options))


@pytest.mark.parametrize(
    ("rules", "options", "most"),
    [
        ([Rule.fail()], {}, None),
        ([Rule.retry(attempts=10)], {}, 10),
        ([Rule.retry(FAILS, attempts=2), Rule.retry(attempts=5)], {}, 5),
        ([Rule.retry(FAILS, attempts=2), Rule.retry()], {}, 3),
        ([Rule.retry(FAILS, attempts=5), Rule.retry()], {}, 5),
        ([Rule.retry()], {"limits": Retry(max_attempts=8)}, 8),
        ([Rule.retry(attempts=2)], {"limits": Retry(max_attempts=8)}, 2),
        ([Rule.retry(delay=[1, 2, 3, 4])], {}, 5),
        ([Rule.retry(FAILS, attempts=2)], {"otherwise": "retry"}, 3),
        ([Rule(FAILS, "break")], {"otherwise": "retry"}, None),
        ([Rule.snooze(None, delay=1)], {}, None),
    ],
)
def test_a_rule_can_reach_the_attempts_that_it_names(
    rules: list[Rule], options: dict[str, Any], most: int | None
) -> None:
    assert Policy(rules, **options).max_attempts == most


def test_rows_are_numbered_and_name_their_columns() -> None:
    rows = Policy(
        [Rule.retry(FAILS, queue="slow", priority=-3), Rule.jump(None, "first")]
    ).rows()

    assert [each["position"] for each in rows] == [1, 2]
    assert list(rows[0]) == [
        "position",
        "action",
        "on_crash",
        "attempts",
        "backoff",
        "delay_ms",
        "factor",
        "max_delay_ms",
        "jitter",
        "intervals",
        "crash_delay_ms",
        "queue",
        "priority",
        "next_step",
        "condition",
        "conditions",
        "changes",
    ]
    assert rows[0]["condition"] == FAILS
    assert (rows[0]["queue"], rows[0]["priority"]) == ("slow", -3)
    assert rows[1]["next_step"] == "first"


def test_steps_that_rules_jump_to_are_named_once() -> None:
    policy = Policy(
        [
            Rule.jump("outcome.result.next", "fetch"),
            Rule.jump("ctx.again", "store"),
            Rule.jump(FAILS, "fetch"),
            Rule.fail(),
        ]
    )

    assert policy.steps_named == ("fetch", "store")


def test_the_source_tells_policies_apart_by_what_they_do() -> None:
    policy = Policy([Rule.retry(FAILS, delay="1m"), Rule.fail()])
    written_differently = Policy(
        [Rule.retry("{{outcome.status=='error'}}", delay=60), Rule.fail("true")],
        otherwise="fail",
        limits=Retry(max_attempts=9),
    )
    assert policy.source() == written_differently.source()
    others = [
        Policy([Rule.retry(FAILS, delay="2m"), Rule.fail()]),
        Policy([Rule.retry("outcome.status == 'timeout'", delay="1m"), Rule.fail()]),
        Policy([Rule.fail(), Rule.retry(FAILS, delay="1m")], otherwise="fail"),
        Policy([Rule.retry(FAILS, delay="1m")], otherwise="fail"),
        Policy([Rule.retry(FAILS, delay="1m")], otherwise="retry"),
        Policy([Rule.retry(FAILS, delay="1m", set_ctx={"a": 1}), Rule.fail()]),
    ]
    sources = {each.source() for each in [policy, *others]}
    assert len(sources) == 1 + len(others)
    assert json.loads(policy.source())["otherwise"] == "fail"


# --- the tables --------------------------------------------------------------------

DELAYS = st.integers(1, 86_400) | st.floats(1, 86_400).map(lambda each: round(each, 3))
WAITS = st.fixed_dictionaries(
    {},
    optional={
        "delay": DELAYS,
        "jitter": st.floats(0, 1),
        "queue": st.sampled_from(["mail", "slow"]),
        "priority": st.integers(-(10**6), 10**6),
    },
)
WHENS = st.sampled_from(
    [
        None,
        True,
        FAILS,
        "outcome.http.status in [429, 503] and attempt < 3",
        "not (outcome.http.status >= 500) or 'a' in lower(outcome.error.message)",
        "outcome.status == 'crashed'",
    ]
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "set_ctx": st.just({"last.page": "{{ outcome.result.page }}"}),
        "set_iter": st.just({"page": "{{ iter.page + 1 }}", "note": [1, None]}),
    },
)
RETRIES = st.one_of(
    st.fixed_dictionaries(
        {"backoff": st.sampled_from(["constant", *GROWTH])},
        optional={"attempts": st.integers(1, 10**9), "max_delay": DELAYS},
    ),
    st.fixed_dictionaries({}, optional={"factor": st.floats(1, 1000)}),
)
RULES = st.one_of(
    st.builds(
        lambda when, waits, more, changes: Rule(
            when, "retry", **waits, **more, **changes
        ),
        WHENS,
        WAITS,
        RETRIES,
        CHANGES,
    ),
    st.builds(
        lambda when, listed: Rule(when, "retry", intervals=listed),
        WHENS,
        st.lists(DELAYS, min_size=1, max_size=20),
    ),
    st.builds(
        lambda when, waits, changes: Rule(when, "jump", to="a", **waits, **changes),
        WHENS,
        WAITS,
        CHANGES,
    ),
    st.builds(lambda when, waits: Rule(when, "snooze", **waits), WHENS, WAITS),
    st.builds(Rule, WHENS, st.sampled_from(["fail", "continue", "break", "cancel"])),
)


@pytest.fixture(scope="module")
def tables() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for script in (*statements.schema(), *statements.logic()):
        connection.execute(script)
    return connection


def insert(connection: apsw.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join(f":{name}" for name in row)
    connection.execute(f"insert into {table} ({', '.join(row)}) values ({marks})", row)


@given(st.lists(RULES, max_size=5), st.sampled_from(["fail", "continue", "retry"]))
def test_every_policy_that_is_accepted_fits_the_tables(
    tables: apsw.Connection, rules: list[Rule], otherwise: str
) -> None:
    policy = Policy([*rules, Rule.fail(FAILS)], otherwise=otherwise)
    with tables:
        insert(
            tables,
            "litejobs_policy",
            {"task": "t", "otherwise": policy.otherwise, "source": policy.source()},
        )
        policy_id = tables.last_insert_rowid()
        for row in policy.rows():
            conditions, changes = row.pop("conditions"), row.pop("changes")
            insert(tables, "litejobs_rule", folded({"policy_id": policy_id, **row}))
            rule_id = tables.last_insert_rowid()
            for each in conditions:
                insert(tables, "litejobs_condition", {"rule_id": rule_id, **each})
            for at, each in enumerate(changes, 1):
                insert(
                    tables,
                    "litejobs_rule_change",
                    {"rule_id": rule_id, "position": at, **each},
                )
        tables.execute(
            "update litejobs_policy set replaced_at = 0 where replaced_at is null"
        )
    stored = tables.execute(
        "select count(*) from litejobs_rule where policy_id = ?", (policy_id,)
    ).fetchone()
    assert stored == (len(policy.rules),)


@given(
    st.one_of(
        st.builds(
            Retry.exponential,
            DELAYS,
            factor=st.floats(1, 1000),
            retries=st.none() | st.integers(0, 10**9 - 1),
            max_delay=st.none() | DELAYS,
            jitter=st.none() | st.floats(0, 1),
            budget=st.none() | DELAYS,
        ),
        st.builds(Retry.fixed, st.lists(DELAYS, min_size=1, max_size=20)),
        st.just(Retry.never()),
    )
)
def test_all_limits_that_are_accepted_fit_the_table(
    tables: apsw.Connection, retry: Retry
) -> None:
    with tables:
        insert(tables, "litejobs_task", folded({"name": "t", **retry.columns()}))
        kept = tables.execute(
            "select (select intervals from litejobs_spec where id = spec_id) "
            "from litejobs_task"
        ).get
        tables.execute("delete from litejobs_task")
    assert (kept and json.loads(kept)) == retry.columns()["intervals"]
