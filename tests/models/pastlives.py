"""Lives of many jobs in which everything happens, told step by step.

What is drawn is said to one database in plain SQL, as any client says it; what is
refused is left. Whoever walks through a life looks at it after each step.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.sql.fixture import DAY, ERRORS, HOUR, MINUTE, SECOND, Sql, is_code, lent

GIVEN_BACK = ',"error":{"code":"given_back"}'
OUTCOMES = ("ok", "ok", "error", "error", "timeout", "crashed", "interrupted")
ENDED = "('completed', 'dead_lettered', 'cancelled')"


def begun(clock: Any) -> Sql:
    """A file with four tasks: one fails as rules say, one has steps, one a budget."""
    db = lent(clock=clock)
    db.serve("a", max_attempts=3, delay_ms=MINUTE)
    db.serve("ruled", max_attempts=9, jitter=0.0)
    db.serve("flow", max_attempts=4, delay_ms=5 * SECOND)
    db.serve("budget", max_attempts=9, retry_budget_ms=HOUR, delay_ms=MINUTE)
    db.add_policy(
        {"action": "snooze", "delay_ms": 3 * MINUTE, "when": [is_code(1)]},
        {"action": "retry", "queue": "slow", "priority": -3, "when": [is_code(2)]},
        {"action": "cancel", "when": [is_code(3)]},
        {"action": "fail", "when": [is_code(4)]},
        task="ruled",
        otherwise="continue",
    )
    db.add_steps("one", "two", "three", task="flow")
    db.add_policy(
        {
            "action": "jump",
            "next_step": "one",
            "delay_ms": MINUTE,
            "when": [is_code(1)],
        },
        {"action": "jump", "next_step": "three", "when": [is_code(2)]},
        {"action": "break", "when": [is_code(3)]},
        {"action": "retry", "when": [is_code(4)]},
        task="flow",
        otherwise="continue",
    )
    return db


class Life:
    """What happens to the jobs of one file; *seed* says what, and in which order.

    *clock* is held, and is put *back* at times where that is wanted.
    """

    def __init__(self, seed: int, clock: Any, *, back: bool = False) -> None:
        self.db = begun(clock)
        self.chosen = random.Random(seed)
        self.acts: list[Callable[[], object]] = [
            *(self.enqueue, self.enqueue, self.wait, self.tick, self.tick),
            *(self.work, self.work, self.work, self.work, self.steer, self.steer),
            *(self.change, self.depend, self.ask_again, self.operate, self.undo),
            *(self.runner, self.delete),
        ]
        if back:
            self.acts.append(self.go_back)

    def steps(self, count: int) -> Iterator[None]:
        """So many things happen, one after the other; some time passes before each."""
        for _ in range(count):
            self.db.wait(1)
            self.chosen.choice(self.acts)()
            yield

    def say(self, sql: str, *parameters: Any) -> None:
        """One statement; what is refused has not happened."""
        with contextlib.suppress(*ERRORS):
            self.db.execute(sql, parameters)

    def some_job(self, where: str = "true") -> int:
        found = self.db.column(
            f"select id from litejobs_job where {where} order by id desc limit 12"
        )
        return int(self.chosen.choice(found or [0]))

    # The application and its runner -------------------------------------------------

    def enqueue(self) -> None:
        task = self.chosen.choice(("a", "ruled", "flow", "budget", "nobody"))
        wait = self.chosen.choice((None, None, None, 0, MINUTE, HOUR, -HOUR))
        self.db.enqueue(
            task,
            run_at=None if wait is None else self.db.now + wait,
            priority=self.chosen.choice((None, 0, 3)),
            queue=self.chosen.choice((None, None, "mail")),
            expires_at=self.chosen.choice((None, None, None, self.db.now + 2 * HOUR)),
            concurrency_key=self.chosen.choice((None, None, None, "k")),
        )

    def ask_again(self) -> None:
        how = self.chosen.choice(("replace", "debounce", "ignore"))
        wait = self.chosen.choice((0, MINUTE, HOUR))
        self.say(
            "insert into litejobs_job (task, unique_key, on_conflict, run_at, priority)"
            " values ('a', ?, ?, ?, ?)",
            self.chosen.choice(("u1", "u2")),
            how,
            self.db.now + wait,
            self.chosen.choice((None, 1)),
        )
        # It is remembered once a minute, also by a clock that goes back.
        self.db.wait(3 * MINUTE)

    def depend(self) -> None:
        child = self.db.enqueue(
            "a", on_parent_failure=self.chosen.choice((None, "run"))
        )
        self.say(
            "insert into litejobs_dependency (job_id, parent_id) values (?, ?)",
            child,
            self.some_job(f"id <> {child}"),
        )

    def wait(self) -> None:
        steps = (SECOND, MINUTE, MINUTE, 10 * MINUTE, HOUR, 3 * HOUR, DAY)
        self.db.wait(self.chosen.choice(steps))

    def go_back(self) -> None:
        self.db.wait(-self.chosen.choice((SECOND // 2, MINUTE, 2 * HOUR)))
        self.tick()

    def tick(self) -> None:
        self.db.tick()

    def work(self) -> None:
        """Some begin; some of what is open ends."""
        self.db.claim(self.chosen.randint(0, 3))
        self.db.wait(1)
        opened = self.db.column(
            "select id from litejobs_attempt where finished_at is null"
        )
        for attempt in opened:
            if self.chosen.random() < 0.6:
                code = self.chosen.choice((None, 1, 2, 3, 4))
                more = f',"code":{code}' if code else ""
                more += ',"error":{"type":"Oops","message":"no"}'
                status = self.chosen.choice(OUTCOMES)
                if status == "interrupted" and self.chosen.random() < 0.7:
                    more = GIVEN_BACK
                self.db.settle(attempt, status, more)
                self.db.wait(1)

    def runner(self) -> None:
        if self.chosen.random() < 0.3:
            self.db.start_runner()
            self.db.tick()

    # People -------------------------------------------------------------------------

    def steer(self) -> None:
        sql = self.chosen.choice(
            (
                "update litejobs_job set state = 'cancelled' where id = ?",
                "update litejobs_job set cancel_requested_at = created_at where id = ? "
                f"and state not in {ENDED}",
                "update litejobs_job set state = 'pending' where id = ?",
                "update litejobs_job set state = 'pending' where id = ?",
            )
        )
        where = f"state in {ENDED}" if self.chosen.random() < 0.5 else "true"
        self.say(sql, self.some_job(where))

    def change(self) -> None:
        """One column of one job, or of all that wait."""
        column, value = self.chosen.choice(
            (
                ("queue", "mail"),
                ("queue", "new"),
                ("priority", 7),
                ("priority", 0),
                ("max_attempts", 6),
                ("max_attempts", None),
                ("retryable", 0),
                ("run_at", self.db.now + 2 * HOUR),
                ("run_at", self.db.now - HOUR),
                ("attempts", 0),
                ("crashes", 0),
                ("crashes = 1, delayed_ms", 5),
                ("jumps = 0, attempts = 0, delayed_ms", 0),
            )
        )
        more = ", state = 'scheduled'" if self.chosen.random() < 0.2 else ""
        self.say(
            f"update litejobs_job set {column} = ?{more} where id = ?",
            value,
            self.some_job(
                "attempts > 0 and state <> 'processing'"
                if column.startswith(("attempts", "crashes", "jumps"))
                else "true"
            ),
        )

    def operate(self) -> None:
        """Some of it in an operation, which can be taken back."""
        self.say("insert into litejobs_operation (name) values ('steer')")
        for _ in range(self.chosen.randint(1, 3)):
            self.steer()
        if self.chosen.random() < 0.3:
            self.enqueue()
        self.say("update litejobs_operation set state = 'done' where state = 'open'")

    def undo(self) -> None:
        done = self.db.column("select id from litejobs_operation where state = 'done'")
        if done:
            self.say(
                "insert into litejobs_undo (operation) values (?)",
                self.chosen.choice(done[-3:]),
            )

    def delete(self) -> None:
        if self.chosen.random() < 0.4:
            job = self.some_job(f"state in {ENDED}")
            self.say("delete from litejobs_job where id = ?", job)
