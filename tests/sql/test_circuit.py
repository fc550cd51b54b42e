"""When something outside is broken: circuits open, are probed, and close."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from litejobs._storage.statements import queries
from tests.sql.fixture import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Sql,
    at,
    condition,
    is_code,
    literal,
)
from tests.sql.test_gates import assert_taken_in_a_minute, claimed


def serve(db: Sql, task: str = "a", **breaker: Any) -> None:
    """The task's jobs share the circuit c; `breaker` is when that opens."""
    db.serve(task, circuit="c", delay_ms=DAY, max_attempts=9)
    if breaker:
        db.insert("litejobs_breaker", task=task, **breaker)


def circuit(db: Sql, name: str = "c") -> SimpleNamespace:
    """The row of the circuit."""
    return db.rows("select * from litejobs_circuit where name = ?", (name,))[0]


def start(db: Sql, task: str = "a") -> int:
    """A new job of the task is claimed before all others; the id of its attempt."""
    priority = db.value("select coalesce(max(priority), 0) + 1 from litejobs_job")
    return db.begin(db.enqueue(task, priority=priority))


def end(db: Sql, *statuses: str, task: str = "a", more: str = "") -> None:
    """New jobs of the task end like this, one after the other."""
    for status in statuses:
        db.settle(start(db, task), status, more)


def waiting(db: Sql, count: int = 10) -> list[int]:
    """So many jobs are in line."""
    return [db.enqueue(priority=-1) for _ in range(count)]


def why(db: Sql, job: int) -> list[tuple[Any, ...]]:
    """The blocks of a job: code, object, until when."""
    return db.execute(
        "select code, object, until_at from litejobs_block where job_id = ?", (job,)
    )


def set_state(db: Sql, state: str, name: str = "c") -> None:
    """A person says what is believed of the circuit."""
    db.execute("update litejobs_circuit set state = ? where name = ?", (state, name))


# Closed -------------------------------------------------------------------------------


def test_a_circuit_opens_after_failures_in_a_row(held: Sql) -> None:
    serve(held, threshold=3, cooldown_ms=MINUTE)
    jobs = waiting(held)
    end(held, "error", "timeout", "ok", "error", "error")
    assert circuit(held).state == "closed"
    assert why(held, jobs[0]) == []
    now = held.now
    end(held, "timeout")
    row = circuit(held)
    assert (row.state, row.opened_at, row.opens) == ("open", now, 1)
    assert (row.open_until, row.cooldown_ms) == (now + MINUTE, MINUTE)
    assert why(held, jobs[0]) == [("circuit_open", "circuit c", now + MINUTE)]
    assert held.rows("select * from litejobs_agenda")[0].next_probe_at == now + MINUTE
    assert claimed(held) == []
    assert held.content("litejobs_circuit_failure") == []


def test_what_waits_for_an_open_circuit_is_left_by_who_waits_for_the_rest(
    held: Sql,
) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    waiting(held, 2)
    [idle] = held.execute(queries()["idle"], {"stands": 0})
    assert idle == (1,)


def test_five_failures_and_half_a_minute_are_the_default(held: Sql) -> None:
    serve(held)
    end(held, *["error"] * 4)
    assert circuit(held).state == "closed"
    end(held, "error")
    assert circuit(held).open_until == held.now + 30 * SECOND


@pytest.mark.parametrize("status", ["interrupted", "cancelled", "crashed"])
def test_what_says_nothing_of_the_outside_does_not_count(db: Sql, status: str) -> None:
    serve(db, threshold=2)
    end(db, "error", status)
    assert circuit(db).state == "closed"
    db.execute("update litejobs_job set state = 'cancelled' where state = 'pending'")
    end(db, "error")
    assert circuit(db).state == "open"


def test_a_job_that_could_not_even_begin_does_not_count(db: Sql) -> None:
    serve(db, threshold=1)
    end(db, "error", more=',"retryable":false,"error":{"type":"BadJob"}')
    assert circuit(db).state == "closed"
    end(db, "error", more=',"error":{"type":"OSError"}')
    assert circuit(db).state == "open"


def test_failures_within_a_time_open_a_circuit_whatever_succeeds_between(
    held: Sql,
) -> None:
    serve(held, threshold=3, window_ms=MINUTE)
    end(held, "error", "ok")
    held.wait(30 * SECOND)
    end(held, "error", "ok")
    held.wait(30 * SECOND)
    end(held, "ok", "error")
    # The first was a whole minute ago.
    assert circuit(held).state == "closed"
    held.wait(30 * SECOND - 1)
    end(held, "ok", "error")
    assert circuit(held).state == "open"


def test_failures_are_as_old_as_before_when_the_clock_is_put_back(held: Sql) -> None:
    serve(held, threshold=2, window_ms=MINUTE)
    end(held, "error")
    held.wait(30 * SECOND)
    held.tick()
    held.wait(-HOUR)
    held.tick()
    held.wait(30 * SECOND)
    end(held, "error")
    assert circuit(held).state == "closed"
    held.wait(59 * SECOND)
    end(held, "error")
    assert circuit(held).state == "open"


def test_what_ends_while_the_circuit_is_open_does_not_count(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    first, second, third = start(held), start(held), start(held)
    held.settle(first, "error")
    before = circuit(held)
    held.wait(SECOND)
    held.settle(second, "error")
    held.settle(third, "ok")
    assert circuit(held) == before


def test_two_tasks_share_a_circuit_each_with_its_own_numbers(held: Sql) -> None:
    serve(held, "a", threshold=3, cooldown_ms=MINUTE)
    serve(held, "b", threshold=2, cooldown_ms=HOUR)
    end(held, "error", "error", task="a")
    assert circuit(held).state == "closed"
    end(held, "error", task="b")
    assert circuit(held).open_until == held.now + HOUR
    job = held.enqueue("a")
    assert [code for code, _, _ in why(held, job)] == ["circuit_open"]


def test_other_circuits_of_a_template_stay_closed(db: Sql) -> None:
    db.serve("a", circuit="host:{host}", max_attempts=1)
    db.insert("litejobs_breaker", task="a", threshold=1)
    x = [db.enqueue(args='{"host":"x"}') for _ in range(2)]
    y = db.enqueue(args='{"host":"y"}', priority=-1)
    [attempt] = db.claim(1)
    db.settle(attempt, "error")
    assert why(db, x[1])[0][:2] == ("circuit_open", "circuit host:x")
    assert claimed(db) == [y]


# Which outcomes count -----------------------------------------------------------------


def add_rules(db: Sql, *rules: dict[str, Any], task: str = "a") -> None:
    """What counts is what a policy of that purpose says."""
    db.insert("litejobs_policy", task=task, otherwise="continue", purpose="circuit")
    policy = db.value("select max(id) from litejobs_policy")
    for number, each in enumerate(rules, 1):
        db.add_rule(policy, position=number, **each)
    db.execute(
        "update litejobs_breaker set policy_id = ? where task = ?", (policy, task)
    )


def test_rules_say_which_outcomes_count(db: Sql) -> None:
    serve(db, threshold=2)
    add_rules(db, {"action": "fail", "when": [is_code(503)]})
    end(db, "error", "timeout", "error", more=',"code":404')
    assert circuit(db).state == "closed"
    end(db, "error", more=',"code":503')
    # An error that does not count is success to the circuit.
    end(db, "error", more=',"code":404')
    end(db, "ok", more=',"code":503')
    assert circuit(db).state == "closed"
    end(db, "error", more=',"code":503')
    assert circuit(db).state == "open"
    assert db.value("select count(*) from litejobs_job where state = 'failed'") == 6


def test_a_crash_counts_only_where_a_rule_names_it(db: Sql) -> None:
    crash = condition(at("outcome.status"), "eq", literal("crashed"))
    serve(db, threshold=1)
    add_rules(db, {"action": "fail", "when": [crash], "on_crash": 1})
    end(db, "error", "timeout")
    assert circuit(db).state == "closed"
    start(db)
    db.start_runner()
    db.tick()
    assert circuit(db).state == "open"


def test_rules_for_retries_do_not_speak_of_the_circuit(db: Sql) -> None:
    serve(db, threshold=1)
    db.add_policy({"action": "continue", "when": [is_code(7)]})
    end(db, "error", more=',"code":7')
    assert circuit(db).state == "open"
    assert db.value("select state from litejobs_job") == "completed"


# Open, half open ----------------------------------------------------------------------


def test_exactly_one_job_probes_the_circuit_and_its_success_closes_it(
    held: Sql,
) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held)
    held.wait(MINUTE - 1)
    held.tick()
    assert (circuit(held).state, claimed(held)) == ("open", [])
    held.wait(1)
    held.tick()
    assert circuit(held).state == "half_open"
    assert why(held, jobs[0]) == []
    [probe] = held.claim(10)
    assert held.attempt(probe).job_id == jobs[0]
    assert circuit(held).probe_attempt_id == probe
    assert why(held, jobs[1]) == [("circuit_probing", "circuit c", None)]
    assert claimed(held) == []
    held.settle(probe)
    row = circuit(held)
    assert (row.state, row.opened_at, row.open_until) == ("closed", None, None)
    assert (row.cooldown_ms, row.opens, row.probe_attempt_id) == (None, 0, None)
    assert claimed(held) == jobs[1:]


def test_the_claim_finds_out_that_the_time_has_passed(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held)
    held.wait(MINUTE)
    assert claimed(held) == jobs[:1]


def test_a_probe_that_fails_opens_it_for_longer_up_to_a_bound(held: Sql) -> None:
    serve(
        held, threshold=1, cooldown_ms=SECOND, factor=3.0, max_cooldown_ms=10 * SECOND
    )
    waiting(held)
    end(held, "error")
    cooldowns = []
    for _ in range(5):
        row = circuit(held)
        assert row.state == "open"
        assert row.opened_at == held.now
        cooldowns.append(row.open_until - held.now)
        held.wait(row.open_until - held.now)
        [probe] = held.claim(10)
        held.settle(probe, "error")
    assert cooldowns == [SECOND, 3 * SECOND, 9 * SECOND, 10 * SECOND, 10 * SECOND]
    assert circuit(held).opens == 6
    held.wait(10 * SECOND)
    [probe] = held.claim(10)
    held.settle(probe)
    end(held, "error")
    assert circuit(held).open_until == held.now + SECOND


@pytest.mark.parametrize("status", ["interrupted", "cancelled"])
def test_after_a_probe_that_says_nothing_another_one_is_made(
    held: Sql, status: str
) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    waiting(held)
    held.wait(MINUTE)
    [probe] = held.claim(10)
    held.settle(probe, status)
    assert circuit(held).state == "half_open"
    [again] = held.claim(10)
    assert circuit(held).probe_attempt_id == again
    held.settle(again)
    assert circuit(held).state == "closed"


def test_after_a_probe_whose_process_died_another_one_is_made(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held)
    held.wait(MINUTE)
    assert claimed(held) == jobs[:1]
    held.start_runner()
    assert why(held, jobs[1]) == [("circuit_probing", "circuit c", None)]
    held.tick()
    assert circuit(held).state == "half_open"
    assert claimed(held) == jobs[1:2]


def test_a_probe_that_takes_too_long_has_failed(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    job = held.enqueue(timeout_ms=SECOND)
    held.wait(MINUTE)
    assert claimed(held) == [job]
    held.wait(SECOND)
    held.tick()
    row = circuit(held)
    assert (row.state, row.cooldown_ms) == ("open", 2 * MINUTE)


def test_a_circuit_is_open_as_long_as_before_when_the_clock_is_put_back(
    held: Sql,
) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held)
    held.wait(-HOUR)
    assert claimed(held) == []
    held.tick()
    assert why(held, jobs[0]) == [("circuit_open", "circuit c", held.now + MINUTE)]
    held.start_runner()
    held.wait(MINUTE)
    held.tick()
    assert claimed(held) == jobs[:1]


def test_many_circuits_are_tried_again_at_once(held: Sql) -> None:
    held.serve("a", circuit="{0}", max_attempts=1)
    held.insert("litejobs_breaker", task="a", threshold=1, cooldown_ms=MINUTE)
    for number in range(20):
        held.enqueue(args=f'["{number}"]')
    for attempt in held.claim(20):
        held.settle(attempt, "error")
    jobs = [held.enqueue(args=f'["{number % 20}"]') for number in range(40)]
    assert claimed(held, 40) == []
    held.wait(MINUTE)
    held.tick()
    assert claimed(held, 40) == jobs[:20]


# By hand ------------------------------------------------------------------------------


def test_a_reset_forgets_everything(db: Sql) -> None:
    serve(db, threshold=2, cooldown_ms=MINUTE)
    end(db, "error", "error")
    jobs = waiting(db)
    set_state(db, "closed")
    row = circuit(db)
    assert (row.state, row.open_until, row.opens) == ("closed", None, 0)
    assert claimed(db, 3) == jobs[:3]
    end(db, "error")
    assert circuit(db).state == "closed"
    end(db, "error")
    assert circuit(db).state == "open"


def test_a_reset_while_it_is_probed_lets_the_others_run(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held, 3)
    held.wait(MINUTE)
    [probe] = held.claim(10)
    set_state(held, "closed")
    assert circuit(held).probe_attempt_id is None
    assert claimed(held) == jobs[1:]
    held.settle(probe, "ok")
    assert circuit(held).state == "closed"


def test_a_circuit_opened_by_hand_stays_open_until_it_is_reset(held: Sql) -> None:
    serve(held, threshold=1)
    jobs = waiting(held, 2)
    running = start(held)
    set_state(held, "open")
    row = circuit(held)
    assert (row.opened_at, row.open_until) == (held.now, None)
    assert why(held, jobs[0]) == [("circuit_open", "circuit c", None)]
    held.settle(running)
    held.wait(DAY)
    held.tick()
    assert (circuit(held).state, claimed(held)) == ("open", [])
    set_state(held, "closed")
    assert claimed(held) == jobs


def test_an_open_circuit_can_be_kept_open(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held, 2)
    held.execute("update litejobs_circuit set open_until = null")
    held.wait(HOUR)
    held.tick()
    assert why(held, jobs[0]) == [("circuit_open", "circuit c", None)]
    held.execute("update litejobs_circuit set open_until = ?", (held.now + 5,))
    held.wait(5)
    assert claimed(held) == jobs[:1]


def test_a_circuit_opened_by_hand_while_it_is_probed_stays_open(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    waiting(held, 2)
    held.wait(MINUTE)
    [probe] = held.claim(10)
    set_state(held, "open")
    assert circuit(held).open_until is None
    held.settle(probe)
    assert circuit(held).state == "open"
    assert claimed(held) == []


@pytest.mark.parametrize("circuit_of_probe", [None, "other"])
def test_a_probe_that_leaves_its_circuit_makes_room_for_another(
    held: Sql, circuit_of_probe: str | None
) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    jobs = waiting(held, 3)
    held.wait(MINUTE)
    assert claimed(held) == jobs[:1]
    held.execute(
        "update litejobs_job set circuit = ? where id = ?", (circuit_of_probe, jobs[0])
    )
    assert claimed(held) == jobs[1:2]
    held.settle(held.job(jobs[0]).attempt_id)
    assert circuit(held).state == "half_open"
    assert claimed(held) == []
    held.settle(held.job(jobs[1]).attempt_id)
    assert circuit(held).state == "closed"


@pytest.mark.parametrize("state", ["open", "half_open"])
def test_a_circuit_can_be_there_before_its_jobs(db: Sql, state: str) -> None:
    db.insert("litejobs_circuit", name="c", state=state, origin="me")
    serve(db)
    jobs = waiting(db, 3)
    assert claimed(db) == ([] if state == "open" else jobs[:1])
    assert circuit(db).origin is None
    [line] = db.rows(
        "select * from litejobs_event where subject = 'circuit c' and origin = 'me'"
    )
    assert line.name == f"circuit.{state}"


def test_a_lane_that_was_empty_when_its_circuit_opened_opens_with_it(db: Sql) -> None:
    serve(db)
    end(db, "ok")
    set_state(db, "open")
    jobs = waiting(db, 2)
    assert db.value("select parked from litejobs_lane where circuit = 'c'") == 1
    assert claimed(db) == []
    set_state(db, "closed")
    assert claimed(db) == jobs


@pytest.mark.parametrize("recursive", [False, True])
def test_a_circuit_that_is_written_anew_has_counted_nothing(
    held: Sql, recursive: bool
) -> None:
    held.connection.pragma("recursive_triggers", recursive)
    serve(held, threshold=2)
    end(held, "error")
    counted = "select count(*) from litejobs_circuit_failure"
    assert held.value(counted) == 1
    held.execute("insert or replace into litejobs_circuit (name) values ('c')")
    assert held.value(counted) == 0
    end(held, "error")
    assert circuit(held).state == "closed"


def test_what_its_rate_holds_back_behind_a_circuit_is_looked_at_in_time(
    held: Sql,
) -> None:
    """Though nobody has known of it, since the rate was closed by hand."""
    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=MINUTE, circuit="c")
    job = held.enqueue()
    held.execute(
        "update litejobs_key set rate_next_us = ?", ((held.now + MINUTE) * 1000,)
    )
    set_state(held, "open")
    set_state(held, "closed")
    assert_taken_in_a_minute(held, job)


def test_a_lane_that_is_emptied_while_its_circuit_is_open_opens_with_it(
    db: Sql,
) -> None:
    serve(db)
    [job] = waiting(db, 1)
    set_state(db, "open")
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    set_state(db, "closed")
    jobs = waiting(db, 2)
    assert claimed(db) == jobs


def test_a_lane_that_is_made_while_its_circuit_is_open_opens_with_it(db: Sql) -> None:
    db.insert("litejobs_circuit", name="c", state="open")
    serve(db)
    jobs = waiting(db, 2)
    assert db.value("select parked from litejobs_lane where circuit = 'c'") == 1
    assert claimed(db) == []
    set_state(db, "closed")
    assert claimed(db) == jobs


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["insert or replace", "delete"])
def test_a_circuit_written_anew_does_not_leave_its_jobs_behind(
    held: Sql, how: str
) -> None:
    serve(held, threshold=2, cooldown_ms=HOUR)
    jobs = waiting(held, 3)
    end(held, "error", "error")
    assert claimed(held) == []
    if how == "delete":
        held.execute("delete from litejobs_circuit")
    else:
        held.insert("litejobs_circuit", how, name="c")
    [first, second] = held.claim(2)
    held.settle(first, "error")
    assert circuit(held).state == "closed"
    held.settle(second, "error")
    assert circuit(held).state == "open"
    assert why(held, jobs[2]) == [("circuit_open", "circuit c", held.now + HOUR)]


def test_what_happens_to_a_circuit_is_logged(held: Sql) -> None:
    serve(held, threshold=1, cooldown_ms=MINUTE)
    end(held, "error")
    waiting(held, 1)
    held.wait(MINUTE)
    [probe] = held.claim(1)
    held.settle(probe)
    held.execute("update litejobs_circuit set state = 'open', origin = 'me'")
    assert held.execute(
        "select old_state, new_state, origin from litejobs_event "
        "where subject = 'circuit c' order by id"
    ) == [
        ("closed", "open", None),
        ("open", "half_open", None),
        ("half_open", "closed", None),
        ("closed", "open", "me"),
    ]
    assert circuit(held).origin is None


# Growing for ever, and what is refused ------------------------------------------------


def test_a_cooldown_saturates(held: Sql) -> None:
    longest = 3_155_760_000_000
    serve(
        held,
        threshold=1,
        cooldown_ms=longest,
        factor=1000.0,
        max_cooldown_ms=longest,
    )
    end(held, "error")
    held.execute(
        "update litejobs_circuit set open_until = 0, cooldown_ms = ?", (2**62,)
    )
    held.enqueue()
    [probe] = held.claim(1)
    held.settle(probe, "error")
    assert circuit(held).cooldown_ms == longest
    assert circuit(held).open_until == held.now + longest


@pytest.mark.parametrize(
    ("table", "columns", "constraint"),
    [
        ("breaker", {"task": ""}, "task_length"),
        ("breaker", {"threshold": 0}, "threshold_in_range"),
        ("breaker", {"window_ms": 0}, "window_in_range"),
        ("breaker", {"cooldown_ms": 0}, "cooldown_in_range"),
        ("breaker", {"factor": 0.5}, "factor_in_range"),
        ("breaker", {"max_cooldown_ms": 1}, "max_cooldown_in_range"),
        ("circuit", {"name": ""}, "name_length"),
        ("circuit", {"state": "ajar"}, "state_known"),
        ("circuit", {"open_until": -1}, "instants_in_range"),
        ("circuit", {"origin": ""}, "origin_length"),
        ("policy", {"purpose": "both"}, "purpose_known"),
    ],
)
def test_what_a_circuit_cannot_be_is_refused(
    db: Sql, table: str, columns: dict[str, Any], constraint: str
) -> None:
    row = {"name" if table == "circuit" else "task": "x", **columns}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    assert db.refused(
        f"insert into litejobs_{table} ({names}) values ({marks})", tuple(row.values())
    ) == (f"CHECK constraint failed: litejobs_{table}_{constraint}")
