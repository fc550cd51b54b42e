"""The log is one: births, claims and ends from their rows, and lines, in one order.

Beside each random life a table hears of everything at the moment at which it happens,
as a log that is written line by line would. The view tells the same in the same order;
and one who reads on from where they were, some at a time, hears of each line once.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from tests.models.test_random_lives import Lives
from tests.sql.fixture import ERRORS, START, Sql, lent, on_apsw

# What a log would be in which every trigger writes a line of its own.
HEARD = """
create table heard (
    n integer primary key autoincrement, line, at, job_id, attempt_id, old_state,
    new_state, subject, note, origin
);
create trigger heard_of_whole after insert on litejobs_job
when new.created_at is not null and new.birth & 2 = 0
begin
    insert into heard (at, job_id, new_state)
    values (new.created_at, new.id, new.state);
end;
create trigger heard_of_bare after update of birth on litejobs_job
when old.birth is null and new.birth & 2 = 0
begin
    insert into heard (at, job_id, new_state)
    values (new.created_at, new.id, new.state);
end;
create trigger heard_of_attempt after update of state on litejobs_job
when (old.state = 'processing') <> (new.state = 'processing')
begin
    insert into heard (at, job_id, attempt_id, old_state, new_state)
    select now, new.id, new.attempt_id, old.state, new.state from litejobs_clock;
end;
create trigger heard_of_line after insert on litejobs_line
begin
    insert into heard (
        line, at, job_id, attempt_id, old_state, new_state, subject, note, origin
    )
    values (
        new.id, new.at, new.job_id, new.attempt_id, new.old_state, new.new_state,
        new.subject, new.note, new.origin
    );
end;
create trigger heard_is_forgotten after delete on litejobs_job
begin
    delete from heard where job_id = old.id;
end;
create trigger heard_line_is_forgotten after delete on litejobs_line
begin
    delete from heard where line = old.id;
end;
"""
COLUMNS = "at, job_id, attempt_id, old_state, new_state, subject, note, origin"

Row = tuple[Any, ...]


def heard(db: Sql, after: int = 0) -> list[Row]:
    return db.execute(
        f"select n, {COLUMNS} from heard where n > ? order by n", (after,)
    )


def told(db: Sql) -> list[Row]:
    return db.execute(f"select id, {COLUMNS} from litejobs__transition order by id")


def same(db: Sql) -> None:
    """What is told is what was heard, each by a higher number, up to the mark."""
    lines = told(db)
    assert [line[1:] for line in lines] == [line[1:] for line in heard(db)]
    numbers = [line[0] for line in lines]
    assert all(one < other for one, other in itertools.pairwise(numbers))
    assert not numbers or numbers[-1] <= last(db)


def last(db: Sql) -> int:
    number: int = db.value("select births + claims + others from litejobs__mark")
    return number


class Follower:
    """One who reads on from the last number they know, and remembers nothing else."""

    def __init__(self) -> None:
        self.number = 0
        self.n = 0  # of the last one that was heard until then

    def read(self, db: Sql, limit: int) -> bool:
        """Some more of it; whether there was any."""
        [span] = db.query("log_span", after=self.number, last=None, limit=limit)
        rows = db.execute(
            f"select {COLUMNS} from litejobs__logged "
            "where place > case stream when 'job' then :after_job "
            "when 'attempt' then :after_attempt else :after_id end "
            "and place <= case stream when 'job' then :last_job "
            "when 'attempt' then :last_attempt else :last_id end order by id",
            vars(span),
        )
        news = heard(db, self.n)
        assert rows == [line[1:] for line in news[: len(rows)]]
        assert len(rows) <= limit
        if rows:
            self.n = news[len(rows) - 1][0]
        there_was_more = span.last_id != self.number
        assert there_was_more or not news[len(rows) :]
        self.number = span.last_id
        return there_was_more


class Told(Lives):
    """Random lives, with one who hears of everything, and one who reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.followers = [Follower() for _ in self.dbs]
        self.mark = 0

    def database(self, strict: bool) -> Sql:
        """One of its own: `vacuum` makes another schema of it."""
        return on_apsw(
            recursive_triggers=strict, foreign_keys=strict, traced=False, script=HEARD
        )

    @rule(limit=st.sampled_from([1, 2, 7]), times=st.integers(1, 4))
    def read_on(self, limit: int, times: int) -> None:
        for follower, db in zip(self.followers, self.dbs, strict=True):
            for _ in range(times):
                follower.read(db, limit)

    @rule()
    def purge(self) -> None:
        """The newest ones as well, of which the highest numbers are."""
        jobs = [job for job in self.model.jobs.values() if job.state in ENDED]
        for job in jobs:
            del self.model.jobs[job.id]
        assert self.do(f"delete from litejobs_job where state in {ENDED}") is None

    @rule()
    def tidy_up(self) -> None:
        self.do("vacuum")

    @invariant()
    def the_log_is_what_was_heard(self) -> None:
        for db in self.dbs:
            same(db)
        assert last(self.db) >= self.mark
        self.mark = last(self.db)

    def teardown(self) -> None:
        for follower, db in zip(self.followers, self.dbs, strict=True):
            while follower.read(db, 3):
                pass
            assert not heard(db, follower.n)
        super().teardown()


ENDED = ("completed", "dead_lettered", "cancelled")


@pytest.mark.parametrize("lives", [3, pytest.param(40, marks=pytest.mark.torture)])
def test_the_log_is_one_in_every_random_life(lives: int) -> None:
    run_state_machine_as_test(
        Told,
        settings=settings(
            max_examples=lives,
            stateful_step_count=30,
            derandomize=True,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_log_is_one_whatever_follows_from_what(seed: int) -> None:
    """Of parents and children, batches, circuits, steps, keys, operations and
    schedules."""
    chance = random.Random(seed)
    with time_machine.travel(START, tick=False) as clock:
        db = lent(
            clock=clock,
            recursive_triggers=bool(seed % 2),
            foreign_keys=bool(seed % 2),
            script=HEARD,
        )
        db.serve("a", jitter=0.0, delay_ms=500)
        db.serve("b", jitter=0.0, delay_ms=500, max_attempts=2, circuit="c")
        db.serve("f", jitter=0.0, delay_ms=500, retry_budget_ms=5000)
        db.add_steps("one", "two", task="f")
        db.insert("litejobs_breaker", task="b", threshold=2, cooldown_ms=3000)
        db.insert("litejobs_schedule", name="s", task="a", every_ms=2000)
        follower = Follower()
        for _ in range(150):
            something_happens(db, chance)
            same(db)
            if chance.random() < 0.3:
                follower.read(db, chance.randint(1, 5))
        while follower.read(db, 3):
            pass
        assert not heard(db, follower.n)


def something_happens(db: Sql, chance: random.Random) -> None:
    jobs = db.column("select id from litejobs_job") or [1]
    job, other = chance.choice(jobs), chance.choice(jobs)
    open_ones = db.column("select id from litejobs_attempt where finished_at is null")
    status = chance.choice(["ok", "ok", "error", "crashed", "interrupted", "timeout"])
    waits = chance.choice([None, None, db.now + 1000])
    operation = "insert into litejobs_operation (name) values ('operation')"
    some: list[list[tuple[str, tuple[Any, ...]]]] = [
        [
            (
                "insert into litejobs_job (task, run_at) values (?, ?)",
                (chance.choice("abfz"), waits),
            )
        ],
        [
            (
                "insert into litejobs_job (task, unique_key, on_conflict) "
                "values ('a', 'u', ?)",
                (chance.choice([None, "replace", "debounce"]),),
            )
        ],
        [
            ("insert into litejobs_batch (name) values ('x')", ()),
            (
                "insert into litejobs_job (task, batch_id) select ?, max(id) "
                "from litejobs_batch union all select 'a', max(id) from litejobs_batch",
                (chance.choice("ab"),),
            ),
            ("update litejobs_batch set state = 'sealed' where state = 'open'", ()),
        ],
        [
            (
                "insert into litejobs_dependency (job_id, parent_id) values (?, ?)",
                (job, other),
            )
        ],
        [("insert into litejobs_claim (runner, slots) values (?, 3)", (db.runner,))],
        [("insert into litejobs_claim (runner, slots) values (?, 3)", (db.runner,))],
        [
            (
                "insert into litejobs_settle (attempt, outcome) select value, ? "
                "from json_each(?)",
                (f'{{"status":"{status}"}}', str(open_ones)),
            )
        ],
        [
            (
                "insert into litejobs_settle (attempt, outcome) values (?, ?)",
                (chance.choice([1, *open_ones]), f'{{"status":"{status}"}}'),
            )
        ],
        [("insert into litejobs_tick (runner) values (?)", (db.runner,))],
        [("update litejobs_job set cancel_requested_at = 1 where id = ?", (job,))],
        [("update litejobs_job set state = 'pending' where id = ?", (job,))],
        [
            ("insert into litejobs_job (id, task) values (?, 'a')", (max(jobs) + 3,)),
            ("insert into litejobs_job (id, task) values (?, 'a')", (max(jobs) + 1,)),
        ],
        [(f"delete from litejobs_job where state in {ENDED}", ())],
        [("delete from litejobs_job where id = ?", (max(jobs),))],
        [("update litejobs_queue set paused = 1 - paused", ())],
        [
            ("begin", ()),
            (operation, ()),
            ("update litejobs_job set state = 'cancelled' where id = ?", (job,)),
            ("insert into litejobs_job (task) values ('a')", ()),
            ("update litejobs_operation set state = 'done' where state = 'open'", ()),
            ("commit", ()),
        ],
        [("insert into litejobs_undo (operation) values (null)", ())],
        [("delete from litejobs_schedule", ())],
    ]
    db.wait(chance.choice([0, 100, 1000, 3000]))
    for sql, parameters in chance.choice(some):
        with contextlib.suppress(*ERRORS):
            db.execute(sql, parameters)


# Its numbers --------------------------------------------------------------------------

LOG = "immutable_log: what happened is never changed"


@pytest.fixture
def lived() -> Iterator[Sql]:
    """One job has been done, another waits, and a queue has been paused."""
    with time_machine.travel(START, tick=False) as clock:
        db = lent(clock=clock)
        db.serve("a")
        db.job_in("completed")
        db.enqueue("a")
        db.execute("update litejobs_queue set paused = 1")
        yield db


@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
def test_a_number_is_kept(lived: Sql, how: str) -> None:
    before = told(lived)
    for change in (
        "litejobs_job set birth = birth + 4",
        "litejobs_job set birth = null",
        "litejobs_attempt set claimed_after = claimed_after + 1",
        "litejobs_attempt set ended = ended + 1",
        "litejobs_line set id = id + 1",
        "litejobs_line set note = 'another'",
        "litejobs_meta set logged = logged - 1",
    ):
        assert lived.refused(f"{how} {change}").startswith("immutable_")
    assert told(lived) == before


def test_what_is_counted_grows_by_one(lived: Sql) -> None:
    mark = last(lived)
    lived.execute("update litejobs_meta set logged = logged")
    assert last(lived) == mark
    lived.execute("update litejobs_queue set paused = 0")
    lived.enqueue("a")
    lived.begin(2)
    assert last(lived) == mark + 3


def test_a_line_comes_last_or_not_at_all(lived: Sql) -> None:
    mark = last(lived)
    for number in (1, mark, mark + 2, "null"):
        sql = f"insert into litejobs_line (id, at) values ({number}, 0)"
        assert lived.refused(sql) == LOG
    lived.execute("insert into litejobs__transition (at, note) values (0, 'mine')")
    assert told(lived)[-1][0] == mark + 1
    sentence = lived.refused("delete from litejobs_line")
    assert sentence == "immutable_log: lines of the log go only with their job"
    assert len(told(lived)) == 6


def test_the_row_that_counts_is_one(lived: Sql) -> None:
    mark = last(lived)
    for how in ("insert", "insert or replace", "insert or ignore"):
        sql = "into litejobs_meta (id, schema_version, installed_at) values (1, 1, 0)"
        sentence = lived.refused(f"{how} {sql}")
        assert sentence.startswith("immutable_meta: ")
    assert last(lived) == mark


@pytest.mark.parametrize("birth", [0, 4, 2**62 + 4])
def test_a_place_in_the_log_is_not_asked_for(lived: Sql, birth: int) -> None:
    mark = last(lived)
    sql = f"insert into litejobs_job (task, birth) values ('a', {birth})"
    assert lived.refused(sql).startswith("invalid_birth: ")
    lived.execute("insert into litejobs_job (task) values ('a')")
    assert told(lived)[-1][:1] == (mark + 1,)
    assert told(lived)[-1][2] == lived.value("select max(id) from litejobs_job")


def test_an_attempt_that_somebody_else_opens_comes_last(lived: Sql) -> None:
    mark = last(lived)
    lived.execute(
        "insert into litejobs_attempt "
        "(job_id, start_no, attempt, runner_id, claimed_at) values (2, 1, 1, ?, 0)",
        (lived.runner,),
    )
    assert told(lived)[-1][0] == mark + 1
    assert told(lived)[-1][2:6] == (2, 2, "pending", "processing")


def test_a_job_with_a_lower_id_is_told_where_it_came(lived: Sql) -> None:
    lived.execute("insert into litejobs_job (id, task) values (40, 'a')")
    lived.execute("insert into litejobs_job (id, task) values (30, 'a')")
    lived.enqueue("a")
    assert [line[2] for line in told(lived)[-3:]] == [40, 30, 41]
    [span] = lived.query("log_span", after=told(lived)[-3][0], last=None, limit=9)
    assert (span.after_job, span.last_job) == (40, 41)
    assert span.last_id == last(lived)


def test_read_one_by_one_the_log_is_whole_where_a_job_has_a_lower_id() -> None:
    """Its own id and place would make the number of the attempt."""
    db = lent()
    db.serve("a")
    db.enqueue("a")
    db.claim(1)
    db.execute("insert into litejobs_job (id, task) values (5, 'a')")
    db.execute("insert into litejobs_job (id, task) values (2, 'a')")
    read, after = [], 0
    while after < last(db):
        [span] = db.query("log_span", after=after, last=None, limit=1)
        assert span.last_id > after
        begins = [span.after_job, span.after_attempt, span.after_id]
        read += db.column(
            "select id from litejobs__logged where place > case stream "
            "when 'job' then ? when 'attempt' then ? else ? end and place <= "
            "case stream when 'job' then ? when 'attempt' then ? else ? end "
            "order by id",
            (*begins, span.last_job, span.last_attempt, span.last_id),
        )
        after = span.last_id
    assert read == [line[0] for line in told(db)]


def test_a_place_beyond_all_numbers_is_refused(lived: Sql) -> None:
    sentence = lived.refused(
        "insert into litejobs_attempt "
        "(job_id, start_no, attempt, runner_id, claimed_at, claimed_after) "
        "values (2, 1, 1, 1, 0, 1 << 61)"
    )
    assert sentence == "CHECK constraint failed: litejobs_attempt_logged_in_range"
