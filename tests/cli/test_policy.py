"""Policies by command line: what counts, what a file means, what it would change."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from freezegun import freeze_time

from litejobs import Circuit, LiteJobs, Policy, Retry, Rule
from litejobs._control.simulation import backtest_from, forecast_from
from litejobs._process import clock as _clock
from litejobs._storage import statements
from litejobs.cli.input.policy_file import LARGEST
from litejobs.errors import ConfigurationError, JobNotFound
from tests.cli.calls import Cli, document
from tests.sql.fixture import FIX_SALT
from tests.waiting import Sizes

pytestmark = pytest.mark.usefixtures("kept_open")

START = "2026-01-01T12:00:00Z"

TOML = """\
otherwise = "fail"

[[rules]]
when = "outcome.status == 'error' and outcome.http.status in [429, 503]"

[rules.then]
do = "retry"
attempts = 5
backoff = "exponential"
delay = 2.0
max_delay = "1m"
jitter = 0
queue = "slow"
priority = -1

[rules.then.set_ctx]
"seen.at" = "{{ iter.page + 1 }}"
mark = {a = 1}

[[rules]]
when = "always"
then = "break"

[[rules]]
when = "outcome.status == 'timeout'"
then = "retry"
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    """A file with this text."""

    def write(name: str, text: str) -> Path:
        found = tmp_path / name
        found.write_text(text, encoding="utf-8")
        return found

    return write


Written = Callable[[str, str], Path]


def fail() -> None:
    raise ValueError("no")


def execute(jobs: LiteJobs, sql: str, *values: object) -> int:
    with jobs.transaction() as connection:
        connection.execute(sql, values)
        return int(connection.last_insert_rowid())


# Showing ------------------------------------------------------------------------------


def test_show_lists_limits_and_rules_as_the_file_has_them(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(name="plain")(fail)
        retry = Retry(on=("RATE",), max_attempts=4, budget="10m", jitter=0)
        jobs.task(name="send", retry=retry, timeout="5m")(fail)
        jobs.task(name="never", retry=Retry.never())(fail)
        jobs.task(name="listed", retry=Retry.fixed([1, 90]))(fail)
        jobs.open()
    shown = db("policy", "show")
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = [line.split("  ") for line in shown.stdout.splitlines()]
    found = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert found == [
        [
            "TASK",
            "ATTEMPTS",
            "BACKOFF",
            "BUDGET",
            "TIMEOUT",
            "CRASHES",
            "JUMPS",
            "NOTE",
        ],
        *(
            [
                *(task, attempts, backoff, budget, timeout, "3, the first after 1s"),
                *("10000", "no runner has it"),
            ]
            for task, attempts, backoff, budget, timeout in (
                ("listed", "3", "after 1s, 1m 30s, ±25%", "-", "-"),
                ("never", "1 (no retry)", DEFAULT, "-", "-"),
                ("plain", "3", DEFAULT, "-", "-"),
                ("send", "4", EXACT, "10m", "5m"),
            )
        ),
        [],
        ["TASK", "RULE", "DO", "WHEN"],
        ["send", "1", "retry", "outcome.error.code == 'RATE'"],
        ["send", "else", "fail", "it did not succeed"],
    ]


DEFAULT = "exponential from 1m by 2, at most 1d, ±25%"
EXACT = "exponential from 1m by 2, at most 1d, no jitter"


def test_show_of_one_task_is_of_that_task_alone(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(name="plain")(fail)
        jobs.task(name="send", retry=Retry(max_attempts=4))(fail)
        with jobs.running(threads=1):
            found = document(db("policy", "show", "send", "--json"))
            shown = db("policy", "show", "plain")
    [task] = found["tasks"]
    assert (task["name"], task["max_attempts"], task["backoff"]) == ("send", 4, None)
    assert (task["registered"], task["policies"]) == (True, [])
    assert found["defaults"]["backoff"] == "exponential"
    assert task["in_force"] == found["defaults"] | {"max_attempts": 4}
    assert "no runner has it" not in shown.stdout
    assert shown.stderr == "no rules: whatever fails is retried within the limits\n"


def test_show_of_an_unknown_task_is_refused(db: Cli, path: Path) -> None:
    LiteJobs(path).open().close()
    refused = db("policy", "show", "send")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"task 'send' is not known in {path}" in refused.stderr
    nothing = db("policy", "show")
    assert (nothing.exit_code, nothing.stderr) == (1, "no task is known\n")
    empty = db("policy", "show", "--json")
    assert (empty.exit_code, json.loads(empty.stdout)["tasks"]) == (1, [])


def test_show_says_which_policies_and_rules_decide_nothing(db: Cli, path: Path) -> None:
    """A step has gone, each step has its own, a rule stands behind one that is all."""
    always = Policy([Rule(None, "retry"), Rule(None, "fail")])
    with LiteJobs(path) as jobs:
        jobs.flow("sync", [("get", fail), ("put", fail)], policy=always)
        jobs.open()
        add = "insert into litejobs_policy (task, step) values ('sync', ?)"
        for step in ("get", "put", "gone"):
            number = execute(jobs, add, step)
        execute(
            jobs,
            "insert into litejobs_rule (policy_id, position, action, next_step) "
            "values (?, 1, 'jump', 'nowhere')",
            number,
        )
    [task] = document(db("policy", "show", "sync", "--json"))["tasks"]
    assert [(each["step"], each["idle"]) for each in task["policies"]] == [
        ("gone", "no_such_step"),
        ("", "each_step_has_its_own"),
        ("get", None),
        ("put", None),
    ]
    whole = task["policies"][1]["rules"]
    assert [each["idle"] for each in whole] == [None, "never_reached"]
    lines = db("policy", "show", "sync").stdout.partition("\n\n")[2].splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "TASK STEP RULE DO WHEN NOTE",
        "sync gone 1 jump to nowhere always not in force: no such step; no such step",
        "sync - 1 retry it did not succeed not in force: each step has its own",
        "sync - 2 fail it did not succeed "
        "not in force: each step has its own; never reached",
        "sync get else retry it did not succeed -",
        "sync put else retry it did not succeed -",
    ]


def test_rule_for_crashes_is_reached_behind_one_without_a_condition(
    db: Cli, path: Path
) -> None:
    crashed = Rule("outcome.status == 'crashed'", "fail")
    policy = Policy([Rule(None, "continue"), crashed, Rule(None, "retry")])
    with LiteJobs(path) as jobs:
        jobs.task(name="send", policy=policy)(fail)
        jobs.open()
    [task] = document(db("policy", "show", "send", "--json"))["tasks"]
    rules = task["policies"][0]["rules"]
    assert [each["idle"] for each in rules] == [None, None, "never_reached"]
    assert [each["on_crash"] for each in rules] == [False, True, False]


def test_show_has_replaced_policies_if_asked(db: Cli, path: Path) -> None:
    for code in ("OLD", "NEW"):
        with freeze_time(START), LiteJobs(path) as jobs:
            jobs.task(name="send", retry=Retry(on=code))(fail)
            jobs.open()
    [task] = document(db("policy", "show", "send", "--json"))["tasks"]
    assert len(task["policies"]) == 1
    [task] = document(db("policy", "show", "send", "--json", "--replaced"))["tasks"]
    now, before = task["policies"]
    assert (now["idle"], before["idle"]) == (None, "replaced")
    assert before["replaced_at"] == "2026-01-01T12:00:00.000Z"
    assert before["rules"][0]["condition"] == "outcome.error.code == 'OLD'"


def test_circuit_policy_is_marked_as_such(db: Cli, path: Path) -> None:
    circuit = Circuit("host", failure="outcome.http.status >= 500")
    with LiteJobs(path) as jobs:
        jobs.task(name="send", circuit=circuit)(fail)
        jobs.open()
        [policy] = document(db("policy", "show", "send", "--json"))["tasks"][0][
            "policies"
        ]
        assert (policy["purpose"], policy["idle"]) == ("circuit", None)
        assert "for the circuit" in db("policy", "show").stdout
        execute(jobs, "delete from litejobs_breaker")
    assert (
        "for the circuit; not in force: the circuit is gone"
        in db("policy", "show").stdout
    )


def test_condition_without_words_is_put_into_words(db: Cli, path: Path) -> None:
    """Another client wrote the rows that count, and not what people read."""
    when = (
        "not (outcome.http.status >= 500) and 'x' in lower(outcome.error.message)"
        " or ctx.a.b and attempt < 3"
    )
    with LiteJobs(path) as jobs:
        policy = Policy([Rule(when, "retry", attempts=7)], otherwise="fail")
        jobs.task(name="send", policy=policy)(fail)
        jobs.open()
        with jobs.transaction() as connection:
            connection.execute("drop trigger litejobs_rule_update_guard")
            connection.execute("update litejobs_rule set condition = null")
    shown = db("policy", "show", "send", "--json")
    [rule] = document(shown)["tasks"][0]["policies"][0]["rules"]
    assert rule["condition"] == when.replace("'x'", '"x"')


def test_hostile_text_reaches_no_terminal(db: Cli, path: Path) -> None:
    hostile = "\x1b[31m\n\u202e"
    with LiteJobs(path) as jobs:
        jobs.open()
        number = execute(
            jobs,
            "insert into litejobs_policy (task, step) values (?, ?)",
            *[hostile] * 2,
        )
        execute(
            jobs,
            "insert into litejobs_rule (policy_id, position, action, condition, queue, "
            "options, next_step) values (?, 1, 'jump', ?, ?, "
            '\'{"factor": 1e308, "backoff": "exponential"}\', ?)',
            *(number, hostile, hostile, hostile),
        )
        rule = "select id from litejobs_rule"
        execute(
            jobs,
            "insert into litejobs_rule_change (rule_id, position, target, path, "
            f"source, value) values (({rule}), 1, 'ctx', ?, 'literal', ?)",
            *(f'$."{hostile}"', json.dumps(hostile, ensure_ascii=False)),
        )
    shown = db("policy", "show")
    assert shown.exit_code == 0
    for line in shown.stdout.splitlines():
        assert line == "" or line.isprintable()
    assert "by 1e+308" in shown.stdout
    found = db("policy", "show", "--json").stdout
    assert found.isascii()
    assert json.loads(found)["tasks"][0]["name"] == hostile


def test_defaults_shown_are_those_that_decide() -> None:
    """Said, they change nothing: neither the attempts nor a wait."""

    def forecast(**limits: Any) -> Any:
        with freeze_time(START), LiteJobs(":memory:") as jobs:
            jobs.open()
            execute(jobs, FIX_SALT.replace(":salt", "7"))
            jobs.task(name="send", retry=Retry(**limits))(fail)
            return jobs.enqueue("send").forecast()

    with LiteJobs(":memory:") as jobs:
        [defaults] = jobs._store.rows("policy_tasks", {"task": None})
    said = {name: each for name, each in defaults.items() if each is not None}
    crashes, jumps = said.pop("max_crashes"), said.pop("max_jumps")
    crash_delay = said.pop("crash_delay_ms")
    said["retryable"] = bool(said["retryable"])
    assert forecast(**said) == forecast()
    logic = "\n".join(statements.logic())
    assert f"coalesce(spec.max_crashes, {crashes})" in logic
    assert f"coalesce(spec.max_jumps, {jumps})" in logic
    assert f"coalesce(crash_delay_ms, {crash_delay})" in logic
    most = f"coalesce(told.max_delay_ms, spec.max_delay_ms, {said['max_delay_ms']})"
    assert most in logic


# Checking -----------------------------------------------------------------------------


def test_check_shows_what_a_file_means(cli: Cli, written: Written) -> None:
    shown = cli("policy", "check", written("retry.toml", TOML))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [" ".join(line.split()) for line in shown.stdout.splitlines()] == [
        "ATTEMPTS BACKOFF BUDGET",
        f"5 {EXACT} -",
        "",
        "RULE DO WHEN HOW SETS NOTE",
        "1 retry outcome.status == 'error' and outcome.http.status in [429, 503] "
        "5 attempts, exponential from 2s by 2, at most 1m, no jitter, queue slow, "
        'priority -1 ctx.seen.at = iter.page + 1, ctx.mark = {"a":1} -',
        "2 break always - - -",
        "3 retry outcome.status == 'timeout' no jitter - never reached",
    ]


def test_check_reads_a_whole_document_and_an_older_form(
    cli: Cli, written: Written
) -> None:
    text = (
        '{"kind": "Task", "metadata": {"name": "fetch"}, "spec": {"timeout": "30s", '
        '"retry": {"max_attempts": 5, "retry_when": "{{ status_code >= 500 }}"}}}'
    )
    found = document(cli("policy", "check", written("whole.json", text), "--json"))
    [rule] = found["policy"]["rules"]
    assert (
        rule["condition"] == "outcome.status != 'ok' and (outcome.http.status >= 500)"
    )
    assert found["policy"]["limits"]["max_attempts"] == 5
    unread, older = found["warnings"]
    assert unread == "spec: beside retry this is not read: timeout"
    assert older.startswith("spec: retry_when is an older form, and is read as it is ")


def test_check_gives_the_same_as_a_document(cli: Cli, written: Written) -> None:
    found = document(cli("policy", "check", written("retry.toml", TOML), "--json"))
    assert found["warnings"] == []
    policy = found["policy"]
    assert policy["otherwise"] == "fail"
    assert policy["limits"]["max_attempts"] == 5
    first = policy["rules"][0]
    assert (first["action"], first["delay_ms"], first["jitter"]) == ("retry", 2000, 0.0)
    assert first["set_ctx"] == {"seen.at": "iter.page + 1", "mark": '{"a":1}'}


def test_check_warns_of_what_would_count_as_success(cli: Cli, written: Written) -> None:
    file = written(
        "p.json", '{"rules": [{"when": "attempt < 3", "then": {"do": "retry"}}]}'
    )
    shown = cli("policy", "check", file)
    assert shown.exit_code == 0
    assert "else  continue  it did not succeed" in shown.stdout
    assert shown.stderr.startswith("warning: errors that match none of the rules")
    [warning] = document(cli("policy", "check", file, "--json"))["warnings"]
    assert warning in shown.stderr


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("p.json", '{"rules": [{"when": "x", "then": "fail"}]}', "rules[0]: when: 'x'"),
        (
            "p.json",
            '{"rules": [{"when": "attempt > 1", "then": {"do": "retyr"}}]}',
            "rules[0].then: do='retyr' is unknown; did you mean 'retry'?",
        ),
        ("p.json", '{"rules": [}', "the text is not JSON: Expecting value: line 1"),
        ("p.json", "[" * 100_000, "the text is nested"),
        ("p.json", '{"rules": [], "rules": []}', 'has the key "rules" twice'),
        ("p.toml", "rules = [", "p.toml is not TOML: "),
        ("p.toml", "a = 1\nb = ?", "(at line 2, column 5)"),
        ("p.toml", "a = " + "[" * 100_000, "p.toml is not TOML"),
        ("p.json", "null", "the value=None does not fit"),
        ("p.json", " " * (LARGEST + 1), f"is larger than {LARGEST} bytes"),
        ("p.toml", "a = 2026-01-01\n[retry]", "a is unknown"),
    ],
)
def test_check_says_where_a_file_is_wrong(
    cli: Cli, written: Written, name: str, text: str, sentence: str
) -> None:
    refused = cli("policy", "check", written(name, text))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert sentence in refused.stderr
    assert "unexpected" not in refused.stderr


def test_mark_under_the_place_stays_under_it(cli: Cli, written: Written) -> None:
    text = '{"rules": [{"when": "outcome.status = 1 \\u001b", "then": "fail"}]}'
    refused = cli("policy", "check", written("p.json", text))
    shown = refused.stderr.splitlines()
    assert shown[1][shown[2].index("^")] == "="
    assert "\x1b" not in refused.stderr


def test_file_that_is_not_there_is_wrong_use(cli: Cli, tmp_path: Path) -> None:
    assert cli("policy", "check", tmp_path / "p.json").exit_code == 2
    assert cli("policy", "check", tmp_path).exit_code == 2


def test_file_that_is_no_text_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"a = '\xff'")
    refused = cli("policy", "check", tmp_path / "p.toml")
    assert refused.exit_code == 1
    assert "is not UTF-8 at byte 5; save it as UTF-8" in refused.stderr


def test_dash_is_json_from_the_input(cli: Cli) -> None:
    shown = cli("policy", "check", "-", input='{"retry": {"max_attempts": 9}}')
    assert shown.stdout.splitlines()[1].split()[0] == "9"
    refused = cli("policy", "check", "-", input="{")
    assert refused.stderr.startswith("Error: the input: the text is not JSON")


def test_yaml_is_read_where_it_can_be(
    cli: Cli, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written("p.yaml", '{"retry": {"max_attempts": 9}}')
    monkeypatch.setitem(sys.modules, "yaml", None)
    refused = cli("policy", "check", file)
    assert refused.exit_code == 1
    assert "install PyYAML, or write it as JSON or TOML" in refused.stderr
    yaml = types.ModuleType("yaml")
    vars(yaml).update(safe_load=json.loads, YAMLError=ValueError)
    monkeypatch.setitem(sys.modules, "yaml", yaml)
    limits = document(cli("policy", "check", file, "--json"))["policy"]["limits"]
    assert limits["max_attempts"] == 9
    refused = cli("policy", "check", written("q.yml", "{"))
    assert (refused.exit_code, "q.yml is not YAML: " in refused.stderr) == (1, True)


# Backtesting --------------------------------------------------------------------------

RETRY = '{"rules": [{"else": {"then": {"do": "retry", "attempts": 9}}}]}'


@pytest.fixture
def failed(path: Path) -> LiteJobs:
    """Three jobs of `send` have failed for good, each in its only attempt."""
    jobs = LiteJobs(path)
    jobs.task(name="send", retry=Retry(on="RATE"))(fail)
    with freeze_time(START):
        for _ in range(3):
            jobs.enqueue("send")
        jobs.drain()
    return jobs


def test_backtest_lists_what_would_be_decided_differently(
    db: Cli, failed: LiteJobs, written: Written
) -> None:
    failed.close()
    file = written("retry.json", RETRY)
    none = db("policy", "backtest", file, "--task", "send", "--step", "first")
    assert "warning: task send has no step first; it is not a flow\n" in none.stderr
    shown = db("policy", "backtest", file, "--task", "send")
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert lines[:3] == [
        "3 of 3 attempts would be decided differently",
        "",
        "WHAT ATTEMPTS JOBS BEFORE AFTER DELAY BEFORE DELAY AFTER",
    ]
    assert lines[3].startswith("decided differently 3 3 dead_letter (no_rule) retry - ")
    assert lines[4:6] == ["", "ATTEMPT JOB TRY BEFORE AFTER"]
    assert lines[6].startswith("1 1 1 dead_letter (no_rule) retry in ")
    assert len(lines) == 9
    few = db("policy", "backtest", file, "--task", "send", "--show", 0)
    assert len(few.stdout.splitlines()) == 4
    assert few.stderr == "and 3 more: --show 3, or --json\n"


def decided(path: Path, clock: Any, **declared: Any) -> list[tuple[str, int | None]]:
    """What was decided about the first attempts of a job that fails, and its waits."""
    with LiteJobs(path) as jobs:
        jobs.open()
        execute(jobs, FIX_SALT.replace(":salt", "7"))
        jobs.task(name="send", **declared)(fail)
        job = jobs.enqueue("send")
        for _ in range(3):
            jobs.drain()
            clock.tick(3600)
        return [(str(each.decision), each.delay_ms) for each in job.attempts]


def test_backtest_is_what_then_happens_with_the_policy_instead_of_a_retry(
    db: Cli, path: Path, tmp_path: Path, written: Written
) -> None:
    """Retry allows three attempts, and the file ten; the task has a new name since."""
    text = (
        '{"rules": [{"when": "outcome.error.type", "then": {"do": "retry", '
        '"attempts": 10, "delay": 10, "jitter": 0.25, '
        '"set_ctx": {"a": "{{ outcome.pg.cod }}"}}}, '
        '{"when": "outcome.eror.code == 5 and outcome.result.x[0]", "then": "fail"}], '
        '"otherwise": "fail"}'
    )
    policy = Policy.from_dict(json.loads(text))
    with freeze_time(START) as clock:
        past = decided(path, clock, retry=Retry.fixed([10, 10]))
        really = decided(tmp_path / "other.db", clock, policy=policy)
    assert [each for each, _ in past] == ["retry", "retry", "dead_letter"]
    assert [each for each, _ in really] == ["retry"] * 3
    with LiteJobs(path, renames={"send": "mail"}) as jobs:
        jobs.task(name="mail", retry=Retry.fixed([10, 10]))(fail)
        jobs.open()
    file = written("p.json", text)
    backtest = ("policy", "backtest", file, "--task", "mail")
    found = document(db(*backtest, "--json"))
    shown = found["backtest"]
    assert shown["attempts"] == 3
    after = dict(enumerate(past)) | {
        each["attempt"] - 1: (each["after"]["decision"], each["after"]["delay_ms"])
        for each in shown["differences"]
    }
    assert [*after.values()] == really
    assert [
        (each["kind"], each["decision_before"], each["decision_after"])
        for each in shown["summary"]
    ] == [("decision", "dead_letter", "retry"), ("longer", "retry", "retry")]
    assert shown["summary"][0]["delay_ms_after"] == really[2][1]
    assert shown["summary"][1]["delay_ms_before"] == past[1][1]
    assert found["warnings"] == [
        f"no outcome has outcome.{slip}, unless an extractor of yours adds it; did you "
        f"mean outcome.{meant}?"
        for slip, meant in (("eror.code", "error.code"), ("pg.cod", "pg.code"))
    ]
    said = "the limits that task 'mail' has do not count here"
    assert said in db(*backtest).stderr
    kept = db(*backtest, "--keep-limits")
    assert kept.stdout.startswith("1 of 3 attempts would be decided differently")
    assert said not in kept.stderr
    step = db(*backtest, "--step", "there-is-none")
    assert said not in step.stderr


def test_limits_for_a_step_are_said_to_have_no_effect(
    db: Cli, failed: LiteJobs, written: Written
) -> None:
    failed.close()
    file = written("p.json", '{"retry": {"max_attempts": 9}}')
    shown = db("policy", "backtest", file, "--task", "send", "--step", "x")
    assert "warning: limits in the policy of a step have no effect" in shown.stderr


def test_row_that_a_check_dislikes_is_forecast_all_the_same(
    db: Cli, path: Path
) -> None:
    """Another client had switched the checks off."""
    with LiteJobs(path) as jobs:
        jobs.task(name="send")(fail)
        jobs.enqueue("send")
        with jobs.transaction() as connection:
            connection.execute("pragma ignore_check_constraints = on")
            connection.execute("update litejobs_job set progress = 9e999")
            connection.execute("pragma ignore_check_constraints = off")
    shown = document(db("show", 1, "--json"))
    assert len(shown["forecast"]["attempts"]) == 3


def test_backtest_is_that_of_the_library(
    db: Cli, failed: LiteJobs, written: Written
) -> None:
    with failed:
        expected = Policy.from_dict(json.loads(RETRY)).backtest(failed, task="send")
    file = written("retry.json", RETRY)
    found = document(db("policy", "backtest", file, "--task", "send", "--json"))
    assert found["warnings"] == []
    shown = found["backtest"]
    assert (shown["task"], shown["step"], shown["attempts"]) == ("send", None, 3)
    assert [(each["job_id"], each["after"]) for each in shown["differences"]] == [
        (each.job_id, each.after) for each in expected.differences
    ]
    assert len(shown["differences"]) == 3


def test_backtest_looks_at_the_latest_and_since(
    db: Cli, failed: LiteJobs, written: Written
) -> None:
    failed.close()
    file = written("retry.json", RETRY)

    def attempts(*options: object) -> int:
        result = db("policy", "backtest", file, "--task", "send", "--json", *options)
        assert result.exit_code == (0 if json.loads(result.stdout) else 1)
        return int(json.loads(result.stdout)["backtest"]["attempts"])

    assert attempts("--limit", 2) == 2
    assert attempts("--since", START) == 3
    with freeze_time("2026-01-02T12:00:00Z"):
        assert attempts("--since", "1d") == 3


def test_backtest_of_nothing_is_said(
    db: Cli, failed: LiteJobs, written: Written
) -> None:
    failed.close()
    file = written("retry.json", RETRY)
    task = ("policy", "backtest", file, "--task")
    none = db(*task, "send", "--since", "2026-01-01T12:00:01Z")
    assert (none.exit_code, none.stdout) == (1, "")
    assert none.stderr == "no attempt of this task has ended in that time\n"
    unknown = db(*task, "sned")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "task='sned' is not known in" in unknown.stderr
    same = db(*task, "send", "--step", "there-is-none")
    assert same.stdout == "0 of 3 attempts would be decided differently\n"
    assert (
        db("policy", "backtest", written("p.json", "1"), "--task", "x").exit_code == 1
    )
    assert db("policy", "backtest", file).exit_code == 2


def test_backtest_neither_writes_nor_waits_for_who_does(
    db: Cli, failed: LiteJobs, written: Written, path: Path
) -> None:
    file = written("retry.json", RETRY)
    with failed, failed.transaction() as connection:
        before = connection.total_changes()
        shown = db("policy", "backtest", file, "--task", "send")
        limits = db("policy", "show", "send")
        assert connection.total_changes() == before
    assert shown.stdout.startswith("3 of 3 attempts")
    assert limits.exit_code == 0


def test_backtest_that_takes_too_long_is_given_up(
    db: Cli, failed: LiteJobs, written: Written, sizes: Sizes
) -> None:
    failed.close()
    sizes(steps=1)
    file = written("retry.json", RETRY)
    refused = db("--timeout", "1ms", "policy", "backtest", file, "--task", "send")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "took longer than 0.001 s and was given up" in refused.stderr


# On a connection that only reads ------------------------------------------------------


def read_only(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs=_clock.vfs_name())
    connection.pragma("query_only", True)

    def authorize(operation: int, *_: object) -> int:
        return (
            apsw.SQLITE_DENY
            if operation in {apsw.SQLITE_SAVEPOINT, apsw.SQLITE_UPDATE}
            else apsw.SQLITE_OK
        )

    connection.authorizer = authorize
    return connection


@freeze_time(START)
def test_forecast_and_backtest_need_no_more_than_to_read(path: Path) -> None:
    """And their clock is that of the connection."""
    policy = Policy([Rule(None, "retry", attempts=9)])
    with LiteJobs(path) as jobs:
        jobs.task(name="send", retry=Retry(max_attempts=2))(fail)
        job = jobs.enqueue("send")
        jobs.drain()
        expected = job.forecast(), policy.backtest(jobs, task="send")
        number = job.id
    connection = read_only(path)
    try:
        for began in (False, True):
            if began:
                connection.execute("begin")
            found = (
                forecast_from(connection, number, "here"),
                backtest_from(connection, "here", policy, task="send"),
            )
            assert found == expected
            assert found[0].ends == "dead_lettered"
            assert connection.in_transaction is began
        with pytest.raises(JobNotFound, match="there is no job 99 in here"):
            forecast_from(connection, 99, "here")
        with pytest.raises(ConfigurationError, match="task='x' is not known in here"):
            backtest_from(connection, "here", policy, task="x")
    finally:
        connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_pipe_that_nobody_writes_to_is_not_waited_for(cli: Cli, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    refused = cli("policy", "check", pipe)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{pipe} is not a regular file; give one, or -" in refused.stderr
