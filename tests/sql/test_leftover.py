"""What goes with the last job that needed it: sql/logic/leftovers."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest
import time_machine

from litejobs._storage import statements as _statements
from tests.sql.fixture import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Sql,
    lent,
    on_apsw,
    steps_of,
    tables,
)

pytestmark = pytest.mark.every_client

NAME = "ada.lovelace@example.com"
ENDED = "('completed', 'dead_lettered', 'cancelled')"


def end(db: Sql, *, status: str = "ok") -> None:
    """All that can start is run, and ends like this."""
    while attempts := db.claim(10):
        for each in attempts:
            db.settle(each, status)


def purge(db: Sql) -> None:
    """As any client does it: by deleting jobs. A runner ticks."""
    db.execute(f"delete from litejobs_job where state in {ENDED}")
    sweep(db)


def sweep(db: Sql) -> None:
    """The runner ticks until nothing is left to be looked at now."""
    while db.query("count_leftovers")[0].count:
        db.tick()


def left(db: Sql) -> dict[str, int]:
    """How many lanes, keys, circuits … there are, of which there are any."""
    names = (
        "lane",
        "key",
        "circuit",
        "circuit_failure",
        "batch",
        "operation",
        "leftover",
    )
    counts = {name: db.value(f"select count(*) from litejobs_{name}") for name in names}
    return {name: count for name, count in counts.items() if count}


def mentions(db: Sql, text: str) -> list[str]:
    """The tables of which a row has this text somewhere."""
    found = []
    for table in tables(db):
        rows = db.execute(f"select * from {table}")
        if any(text in str(value) for row in rows for value in row):
            found.append(table)
    return found


# Lanes, keys and circuits ----------------------------------------------------------


def test_lane_key_and_circuit_go_with_the_last_job_that_needs_them(db: Sql) -> None:
    db.serve("a", concurrency_key="user:{0}", circuit="host:{0}")
    first, second = (db.enqueue(args=json.dumps([NAME])) for _ in range(2))
    other = db.enqueue(args='["other"]')
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (first,))
    purge(db)
    assert left(db) == {"lane": 3, "key": 2, "circuit": 2}
    end(db)
    assert left(db) == {"lane": 3, "key": 2, "circuit": 2}
    db.execute("delete from litejobs_job where id = ?", (second,))
    assert db.execute("select kind from litejobs_leftover") == [("lane",)]
    sweep(db)
    assert left(db) == {"lane": 2, "key": 1, "circuit": 1}
    assert mentions(db, NAME) == []
    assert db.job(other).state == "completed"
    purge(db)
    # That of the queue and the task stays.
    assert left(db) == {"lane": 1}
    job = db.enqueue(args=json.dumps([NAME]))
    end(db)
    assert db.job(job).state == "completed"


def test_what_has_no_key_circuit_or_facts_leaves_nothing_to_look_at(db: Sql) -> None:
    db.serve("a")
    db.enqueue()
    end(db)
    db.execute("delete from litejobs_job")
    assert left(db) == {"lane": 1}


def test_what_is_needed_again_by_the_time_it_is_looked_at_stays(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}", circuit="{0}")
    db.enqueue(args='["x"]')
    end(db)
    db.execute("delete from litejobs_job")
    job = db.enqueue(args='["x"]')
    sweep(db)
    assert left(db) == {"lane": 2, "key": 1, "circuit": 1}
    end(db)
    assert db.job(job).state == "completed"


def test_one_key_in_two_lanes_stays_with_the_other(db: Sql) -> None:
    db.serve("a", concurrency_key="k", circuit="{0}")
    db.enqueue(args='["x"]')
    end(db)
    waiting = db.enqueue(args='["y"]', run_at=db.now + HOUR)
    purge(db)
    assert left(db) == {"lane": 2, "key": 1, "circuit": 1}
    assert db.column("select name from litejobs_circuit") == ["y"]
    assert db.job(waiting).state == "scheduled"


def test_lanes_of_facts_go_and_the_base_lane_after_those_below(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}")
    db.insert("litejobs_fact", name="online", value=1)
    db.enqueue(args='["x"]', requires='["online"]')
    db.enqueue(requires='["online"]', concurrency_key=None, args="{}")
    end(db)
    assert left(db)["lane"] == 3
    db.execute("delete from litejobs_job where id = 1")
    sweep(db)
    assert left(db)["lane"] == 2
    purge(db)
    assert left(db) == {}


def test_a_base_lane_goes_also_if_it_was_noted_before_the_one_below_it(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_fact", name="online", value=1)
    db.enqueue(requires='["online"]', concurrency_key="x")
    last = db.enqueue(requires='["online"]')
    end(db)
    db.execute("delete from litejobs_job where id = ?", (last,))
    db.execute("delete from litejobs_job")
    assert db.column("select name from litejobs_leftover") == ["1", "2"]
    sweep(db)
    assert left(db) == {}


def test_a_lane_of_retries_goes_with_the_one_of_first_attempts(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}", delay_ms=0, backoff="none")
    db.execute("update litejobs_queue set retries = 'after_new'")
    job = db.enqueue(args='["x"]')
    db.fail(job)
    db.tick()
    end(db)
    assert db.job(job).state == "completed"
    assert left(db)["lane"] == 4
    purge(db)
    assert left(db) == {"lane": 2}


def test_a_key_goes_that_its_last_job_was_taken_from(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}", circuit="{0}")
    job = db.enqueue(args='["x"]', run_at=db.now + HOUR)
    db.execute("update litejobs_job set concurrency_key = 'y' where id = ?", (job,))
    sweep(db)
    assert db.column("select key from litejobs_key") == ["y"]
    assert left(db) == {"lane": 2, "key": 1, "circuit": 1}
    db.execute("update litejobs_job set circuit = null where id = ?", (job,))
    sweep(db)
    assert left(db) == {"lane": 2, "key": 1}


@pytest.mark.parametrize(
    "setting",
    [{"max_running": 0}, {"rate_count": 5}, {"rate_ms": 1000}, {"rate_burst": 2}],
    ids=str,
)
def test_what_a_person_has_said_of_a_key_stays(
    db: Sql, setting: dict[str, int]
) -> None:
    db.serve("a", concurrency_key="{0}")
    job = db.enqueue(args='["x"]')
    [(name, value)] = setting.items()
    db.execute(f"update litejobs_key set {name} = ?", (value,))
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    purge(db)
    assert left(db) == {"lane": 1, "key": 1}
    assert db.value(f"select {name} from litejobs_key") == value


# What still binds ------------------------------------------------------------------


def test_a_key_that_has_used_its_rate_is_kept_until_that_has_passed(
    held: Sql,
) -> None:
    held.serve("a", concurrency_key="{0}", rate_count=1, rate_ms=HOUR, rate_burst=2)
    for _ in range(2):
        held.enqueue(args='["x"]')
    end(held)
    purge(held)
    assert left(held) == {"lane": 2, "key": 1, "leftover": 1}
    late = held.enqueue(args='["x"]')
    assert held.claim() == []
    held.wait(HOUR)
    held.tick()
    [attempt] = held.claim()
    held.settle(attempt)
    assert held.job(late).state == "completed"
    purge(held)
    # Three starts, an hour apart each, from the first one on; and a second.
    held.wait(2 * HOUR + SECOND - 1)
    held.tick()
    assert left(held)["key"] == 1
    held.wait(1)
    sweep(held)
    assert left(held) == {"lane": 1}


def test_a_key_without_jobs_that_was_put_off_by_hand_is_kept_until_then(
    held: Sql,
) -> None:
    held.start_runner()
    due = (held.now + HOUR) * 1000
    held.insert("litejobs_key", key="k", rate_next_us=due)
    held.insert("litejobs__leave", kind="key", name="k")
    held.wait(HOUR)
    held.tick()
    assert left(held) == {"key": 1, "leftover": 1}
    held.wait(SECOND)
    held.tick()
    assert left(held) == {}


def test_another_rate_of_its_task_counts_for_a_key_whose_jobs_have_gone(
    held: Sql,
) -> None:
    held.serve("a", concurrency_key="{0}", rate_count=1, rate_ms=30 * DAY)
    held.enqueue(args='["x"]')
    end(held)
    purge(held)
    held.execute("update litejobs_task set rate_ms = ?", (SECOND,))
    held.enqueue(args='["x"]')
    held.wait(SECOND)
    held.tick()
    assert len(held.claim()) == 1


def test_a_clock_that_goes_back_makes_nothing_stay_longer(held: Sql) -> None:
    held.serve("a", concurrency_key="{0}", rate_count=1, rate_ms=HOUR)
    held.enqueue(args='["x"]')
    end(held)
    purge(held)
    held.wait(-365 * DAY)
    held.tick()
    held.wait(HOUR + SECOND)
    assert held.query("count_leftovers")[0].count == 1
    sweep(held)
    assert left(held) == {"lane": 1}


@pytest.mark.parametrize(
    ("breaker", "kept_ms"),
    [
        ({}, HOUR),
        ({"max_cooldown_ms": MINUTE}, HOUR),
        ({"max_cooldown_ms": 2 * HOUR}, 2 * HOUR),
        ({"window_ms": DAY, "max_cooldown_ms": 2 * HOUR}, DAY),
    ],
    ids=str,
)
def test_failures_are_remembered_as_long_as_breakers_look_back(
    held: Sql, breaker: dict[str, int], kept_ms: int
) -> None:
    held.serve("a", concurrency_key="{0}", circuit="{0}", max_attempts=1)
    held.insert("litejobs_breaker", task="a", cooldown_ms=SECOND, **breaker)
    held.enqueue(args='["x"]')
    end(held, status="error")
    purge(held)
    assert left(held) == {"lane": 1, "circuit": 1, "circuit_failure": 1, "leftover": 1}
    held.wait(kept_ms - 1)
    held.tick()
    assert left(held)["circuit_failure"] == 1
    held.wait(1)
    sweep(held)
    assert left(held) == {"lane": 1}


def test_a_circuit_that_waits_for_a_probe_is_kept_for_an_hour(held: Sql) -> None:
    held.serve("a", circuit="{0}", max_attempts=1)
    held.insert("litejobs_breaker", task="a", threshold=1, cooldown_ms=MINUTE)
    held.enqueue(args=json.dumps([NAME]))
    end(held, status="error")
    purge(held)
    held.wait(MINUTE)
    held.tick()
    assert held.column("select state from litejobs_circuit") == ["half_open"]
    held.enqueue(args=json.dumps([NAME]))
    held.enqueue(args=json.dumps([NAME]))
    assert len(held.claim(5)) == 1
    held.execute("update litejobs_job set state = 'cancelled' where state = 'pending'")
    held.settle(held.value("select max(id) from litejobs_attempt"), "error")
    purge(held)
    held.wait(2 * MINUTE + HOUR - 1)
    held.tick()
    assert held.column("select state from litejobs_circuit") == ["half_open"]
    held.wait(1)
    sweep(held)
    assert left(held) == {"lane": 1}
    assert mentions(held, NAME) == []


def test_a_circuit_that_was_opened_by_hand_stays(held: Sql) -> None:
    held.serve("a", circuit="c")
    job = held.enqueue()
    held.execute("update litejobs_circuit set state = 'open'")
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    purge(held)
    held.wait(365 * DAY)
    held.tick()
    assert left(held) == {"lane": 1, "circuit": 1}
    assert held.claim(1) == []
    held.enqueue()
    assert held.claim(1) == []


def test_a_circuit_goes_after_its_lines_in_the_log_some_at_a_time(held: Sql) -> None:
    held.serve("a", circuit="c")
    job = held.enqueue()
    for _ in range(300):
        for state in ("open", "closed"):
            held.execute("update litejobs_circuit set state = ?", (state,))
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    held.execute("delete from litejobs_job")
    lines = "select count(*) from litejobs__transition where subject = 'circuit c'"
    counts = []
    while held.query("count_leftovers")[0].count:
        held.tick()
        counts.append((held.value(lines), left(held).get("circuit")))
    assert counts[-2:] == [(100, 1), (0, None)]
    assert held.column("select distinct subject from litejobs__transition") == []


@pytest.mark.parametrize("name", ["c", "c: d", "c\0d", "circuit c"], ids=repr)
def test_a_circuit_takes_its_own_lines_alone_whatever_it_and_operations_are_called(
    db: Sql, name: str
) -> None:
    """What the log says of operations has the same words."""
    db.serve("a")
    job = db.enqueue(circuit=name)
    db.execute("update litejobs_circuit set state = 'open'")
    db.execute("update litejobs_circuit set state = 'closed'")
    pauses = ("update litejobs_queue set paused = 1",)
    operation(db, *pauses, name=f"circuit {name}", detail=None)
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    db.execute("delete from litejobs_job")
    sweep(db)
    assert left(db) == {"lane": 1, "operation": 1}
    notes = (
        "select note from litejobs__transition where note in ('operation', 'circuit')"
    )
    assert db.column(notes) == ["operation"]


# Batches and operations ---------------------------------------------------------------


def test_a_batch_goes_with_the_last_of_its_jobs_and_of_who_waited_for_it(
    db: Sql,
) -> None:
    db.serve("a")
    db.insert("litejobs_batch", name=NAME)
    jobs = [db.enqueue(batch_id=1) for _ in range(2)]
    callback = db.enqueue()
    db.insert("litejobs_dependency", job_id=callback, batch_id=1)
    end(db)
    db.execute("delete from litejobs_job where id = ?", (jobs[0],))
    db.execute("update litejobs_batch set state = 'sealed'")
    end(db)
    assert db.job(callback).state == "completed"
    db.execute("delete from litejobs_job where id = ?", (jobs[1],))
    sweep(db)
    assert left(db)["batch"] == 1
    db.execute("delete from litejobs_job where id = ?", (callback,))
    sweep(db)
    assert left(db) == {"lane": 1}
    assert mentions(db, NAME) == []


def test_a_batch_that_has_not_ended_stays(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_batch", name=NAME)
    db.enqueue(batch_id=1)
    end(db)
    purge(db)
    assert left(db) == {"lane": 1, "batch": 1}
    db.enqueue(batch_id=1)
    db.execute("update litejobs_batch set state = 'sealed'")
    end(db)
    purge(db)
    assert left(db) == {"lane": 1}


def operation(
    db: Sql, *statements: str, name: str = "cancel", detail: str = NAME
) -> int:
    """A person does this, and says so."""
    db.insert("litejobs_operation", name=name, detail=detail)
    for each in statements:
        db.execute(each)
    db.execute("update litejobs_operation set state = 'done' where state = 'open'")
    return int(db.value("select max(id) from litejobs_operation"))


def test_an_operation_goes_with_the_last_job_that_it_speaks_of(db: Sql) -> None:
    db.serve("a")
    one, two = db.enqueue(), db.enqueue()
    cancel = "update litejobs_job set state = 'cancelled'"
    first = operation(db, cancel)
    more = operation(
        db,
        f"update litejobs_job set state = 'pending' where id = {two}",
        "update litejobs_queue set paused = 1",
    )
    undone = operation(db, f"{cancel} where id = {two}")
    db.insert("litejobs_undo", operation=undone)
    db.execute(f"{cancel} where id = {two}")
    db.execute("delete from litejobs_job where id = ?", (one,))
    sweep(db)
    assert db.column("select id from litejobs_operation") == [first, more, undone]
    db.execute("delete from litejobs_job where id = ?", (two,))
    sweep(db)
    assert db.column("select id from litejobs_operation") == [more]
    # The other one has paused a queue as well.
    assert db.execute(
        "select subject, new_state from litejobs__transition where note = 'operation'"
    ) == [(f"cancel: {NAME}", "done")]
    db.execute("delete from litejobs_operation")
    sweep(db)
    assert mentions(db, NAME) == []


def test_an_operation_that_deleted_jobs_itself_stays(db: Sql) -> None:
    db.serve("a")
    db.enqueue()
    end(db)
    operation(db, "delete from litejobs_job", name="tidy", detail="all of it")
    sweep(db)
    assert db.column("select name from litejobs_operation") == ["tidy"]


def test_a_forgotten_operation_takes_its_own_line_of_several_that_are_alike(
    db: Sql,
) -> None:
    db.insert("litejobs_queue", name="mail")
    db.start_runner()
    operations = [
        operation(db, f"update litejobs_queue set paused = {paused}")
        for paused in (1, 0, 1)
    ]
    lines = "select id from litejobs__transition where note = 'operation' order by id"
    first, _, third = db.column(lines)
    db.execute("delete from litejobs_operation where id = ?", (operations[1],))
    sweep(db)
    assert db.column(lines) == [first, third]


def test_an_undone_setting_leaves_no_row_of_a_key_or_circuit_that_has_gone(
    db: Sql,
) -> None:
    db.serve("a", concurrency_key="{0}", circuit="{0}")
    db.enqueue(args=json.dumps([NAME]))
    end(db)
    done = operation(
        db,
        "update litejobs_key set max_running = 5",
        "update litejobs_circuit set state = 'open'",
    )
    purge(db)
    assert left(db) == {"lane": 1, "key": 1, "circuit": 1, "operation": 1}
    db.insert("litejobs_undo", operation=done)
    sweep(db)
    assert left(db) == {"lane": 1, "operation": 1}


# What is refused, and what it costs ------------------------------------------------


def test_lines_that_are_noted_go_but_not_those_of_jobs(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue()
    db.execute("update litejobs_queue set paused = 1")
    for line in db.column("select id from litejobs__transition"):
        db.insert("litejobs__leave", kind="line", name=line)
    sweep(db)
    assert db.column("select job_id from litejobs__transition") == [job]


def test_other_rows_in_the_list_do_no_harm(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    db.enqueue()
    before = {table: db.execute(f"select * from {table}") for table in tables(db)}
    for kind in ("lane", "key", "circuit", "batch", "operation", "line"):
        for name in ("1", "k", "", "nobody's", "-1", "9" * 30):
            due = random.Random(name).choice([-(2**63), -1, 0, 2**63 - 1])
            db.insert("litejobs_leftover", kind=kind, name=name, due_at=due)
    sweep(db)
    db.execute("delete from litejobs_leftover")
    after = {table: db.execute(f"select * from {table}") for table in tables(db)}
    del before["litejobs_runner"], after["litejobs_runner"]
    assert after == before


def test_a_number_is_noted_as_the_database_writes_it(db: Sql) -> None:
    """Another spelling names no line, and does not stop the tick."""
    db.start_runner()
    db.insert("litejobs_queue", name="mail")
    db.execute("update litejobs_queue set paused = 1")
    line = db.value("select max(id) from litejobs__transition")
    for name in (f"0{line}", f" {line}", f"{line}.0", f"{line}x", f"+{line}"):
        db.insert("litejobs__leave", kind="line", name=name)
    sweep(db)
    assert left(db) == {}
    assert db.column("select max(id) from litejobs__transition") == [line]


def test_only_what_can_be_left_over_is_noted(db: Sql) -> None:
    assert "litejobs_leftover_kind_known" in db.refused(
        "insert into litejobs_leftover values ('job', '1', 0)"
    )


def test_a_tick_forgets_500_at_most(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}")
    db.execute(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 510)"
        " insert into litejobs_job (task, args) select 'a', '[' || i || ']' from n"
    )
    db.execute("update litejobs_job set state = 'cancelled'")
    db.execute("delete from litejobs_job")
    assert left(db) == {"lane": 511, "key": 510, "leftover": 510}
    db.tick()
    assert left(db) == {"lane": 11, "key": 510, "leftover": 510}
    sweep(db)
    assert left(db) == {"lane": 1}


def test_a_tick_with_nothing_to_forget_writes_nothing_of_it(held: Sql) -> None:
    held.serve("a", concurrency_key="{0}", rate_count=1, rate_ms=HOUR)
    held.enqueue(args='["x"]')
    end(held)
    purge(held)
    changes: list[str] = []
    assert isinstance(held.connection, apsw.Connection)
    held.connection.set_update_hook(lambda *row: changes.append(row[2]))
    held.tick()
    held.connection.set_update_hook(None)
    assert left(held)["leftover"] == 1
    assert set(changes) == {"litejobs_runner"}


@pytest.mark.parametrize("shared", ["", "concurrency_key", "circuit"])
def test_deleting_one_job_costs_the_same_however_many_lanes_there_are(
    shared: str,
) -> None:
    """Also where all have one key, or one circuit."""

    def fifth(db: Sql) -> Callable[[], object]:
        return lambda: db.execute("delete from litejobs_job where id = 5")

    costs = []
    for lanes in (10, 300):
        db = lent()
        columns = {"concurrency_key": "{0}", "circuit": "{0}", shared: "one"}
        db.serve("a", **{each: columns[each] for each in columns if each})
        db.execute(
            "with recursive n (i) as "
            "(select 1 union all select i + 1 from n where i < ?) "
            "insert into litejobs_job (task, args) select 'a', '[' || i || ']' from n",
            (lanes,),
        )
        db.execute("update litejobs_job set state = 'cancelled'")
        db.tick()  # prepared in both, which counts as steps, too
        db.execute("delete from litejobs_job where id = 1")
        costs.append([steps_of(db, each) for each in (fifth(db), db.tick)])
        assert left(db)["lane"] == lanes - 1
    assert costs[1][0] <= costs[0][0] + 1
    assert costs[1][1] <= costs[0][1] + 3


# It changes nothing for those that are there --------------------------------------


class Twin:
    """Two files with the same jobs; in one of them those that have ended go."""

    def __init__(self) -> None:
        self.kept, self.purged = (lent() for _ in range(2))

    def __iter__(self) -> Iterator[Sql]:
        return iter((self.kept, self.purged))

    def execute(self, sql: str, parameters: Any = ()) -> None:
        for db in self:
            db.execute(sql, parameters)


TASKS: tuple[dict[str, Any], ...] = (
    {"task": "one", "concurrency_key": "{0}"},
    {"task": "paced", "concurrency_key": "{0}", "rate_count": 2, "rate_ms": 7 * SECOND},
    {
        "task": "burst",
        "concurrency_key": "{0}",
        "rate_count": 1,
        "rate_ms": 5 * SECOND,
        "rate_burst": 3,
    },
    {"task": "guarded", "circuit": "{0}"},
    {"task": "both", "concurrency_key": "{0}", "circuit": "all", "requires": '["f"]'},
)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(each, marks=[] if each == 2 else pytest.mark.torture)
        for each in range(6)
    ],
)
def test_who_starts_is_the_same_whether_or_not_jobs_are_deleted(seed: int) -> None:
    """No limit is forgotten that still binds, and none stays that does not."""
    chosen = random.Random(seed)
    twin = Twin()
    swept = 0
    with time_machine.travel(START, tick=False) as clock:
        for db in twin:
            for task in TASKS:
                columns = {**task}
                db.serve(
                    columns.pop("task"),
                    **columns,
                    max_attempts=2,
                    backoff="none",
                    delay_ms=3 * SECOND,
                )
            db.insert("litejobs_fact", name="f", value=1)
            db.insert(
                "litejobs_breaker", task="guarded", threshold=2, cooldown_ms=4 * SECOND
            )
            db.insert("litejobs_queue", name="late", retries="after_new")
        for _ in range(150):
            job = (
                chosen.choice(TASKS)["task"],
                json.dumps([chosen.choice("xyz")]),
                chosen.choice(["default", "late"]),
                chosen.choice([0, 0, 1]),
            )
            for _ in range(chosen.choice([0, 0, 1, 3])):
                twin.execute(
                    "insert into litejobs_job (task, args, queue, priority) "
                    "values (?, ?, ?, ?)",
                    job,
                )
            slots = chosen.choice([1, 2, 5])
            attempts, others = (db.claim(slots) for db in twin)
            assert attempts == others
            started = "select job_id from litejobs_attempt where id >= ? order by id"
            first = min(attempts, default=0)
            if attempts:
                assert twin.kept.column(started, (first,)) == twin.purged.column(
                    started, (first,)
                )
            open_ones = "select id from litejobs_attempt where finished_at is null"
            for attempt in twin.kept.column(open_ones):
                status = chosen.choice(["", "ok", "ok", "error", "error"])
                if status:
                    for db in twin:
                        db.settle(attempt, status)
            clock.shift(dt.timedelta(seconds=chosen.choice([0, 0.4, 1, 2, 6])))
            for db in twin:
                db.tick()
            doomed = twin.purged.column(
                f"select id from litejobs_job where state in {ENDED}"
            )
            for job in doomed:
                if chosen.random() < 0.8:
                    twin.purged.execute("delete from litejobs_job where id = ?", (job,))
            swept += twin.purged.query("count_leftovers")[0].count
    lanes = [db.value("select count(*) from litejobs_lane") for db in twin]
    assert swept > 20
    assert lanes[1] < lanes[0]


def test_it_is_written_of_each_table_when_its_rows_go() -> None:
    text = (_statements.directory() / "DECISIONS.md").read_text(encoding="utf-8")
    section = text.split("## What goes, and when")[1].split("\n## ")[0]
    said = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    names = [name for each in said for name in re.findall(r"`(\w+)`", each)]
    assert sorted(f"litejobs_{each}" for each in names) == sorted(
        tables(on_apsw(traced=False))
    )


def test_the_queries_are_for_any_client(db: Sql) -> None:
    """What a purge finds besides: a lane that all jobs were moved out of by a tier."""
    db.serve("a", concurrency_key="{0}")
    db.insert("litejobs_tier", min_priority=-5, every_ms=SECOND)
    job = db.enqueue(args='["x"]')
    db.execute("delete from litejobs_tier")
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    purge(db)
    given = {"before_at": None, "last_line": 0, "task": None, "queue": None}
    found = db.query("find_leftovers", **given)
    assert [each.kind for each in found] == ["lane"]
    for each in found:
        db.query("note_leftover", kind=each.kind, name=each.name)
    while db.query("count_leftovers")[0].count:
        db.execute(_statements.queries()["sweep"], {"most": 1})
    assert db.column("select concurrency_key from litejobs_lane") == ["", ""]
    assert left(db) == {"lane": 2}
