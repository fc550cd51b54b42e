"""What becomes of each instant of a schedule, worked out again: in Python, from the
words of the promises, without SQL.

The calendar knows intervals alone. A schedule is told each fact with the moment at
which it happened: what the calendar was asked and has answered, that a tick came, what
a person did. It keeps a ledger of its own, in which an instant has a row, or is within
a stretch. What is known of its jobs it is told as well.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from tests.models.kinds import Vocabulary
from tests.sql.fixture import MINUTE, SECOND

AHEAD = 16
LAST = 253_402_300_799_999
# Too little that is late for good to ask the calendar for it alone.
SLACK = 5 * SECOND


# The calendar -------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Every:
    """Instants `every_ms` apart; those up to `high_at` come `steps` ms later."""

    every_ms: int
    anchor_ms: int
    high_at: int = -1
    steps: int = 0

    def count(self, after: int, until: int) -> int:
        """How many lie after one moment and up to another."""
        if not self.steps:
            return self._count(after, until)
        again = self._count(after - self.steps, min(until - self.steps, self.high_at))
        return again + self._count(max(after, self.high_at), until)

    def next(self, after: int, n: int) -> list[int]:
        """The first *n* after a moment."""
        first = self._number(max(after - self.steps, -1)) + 1
        found = [self._moved(first + k) for k in range(n + 2)]
        found += [self._moved(self._number(self.high_at) + 1 + k) for k in range(n)]
        return sorted({at for at in found if at > after})[:n]

    def newest(self, after: int, until: int, n: int) -> list[int]:
        """The last *n* after one moment and up to another."""
        last = self._number(until)
        numbers = {last - k for k in range(n + 2)}
        if self.steps:
            numbers |= {self._number(self.high_at) - k for k in range(n + 2)}
        found = {self._moved(k) for k in numbers if self._at(k) >= 0}
        return sorted(at for at in found if max(after, -1) < at <= until)[-n or LAST :]

    def _at(self, number: int) -> int:
        return self.anchor_ms + number * self.every_ms

    def _moved(self, number: int) -> int:
        at = self._at(number)
        return at + self.steps if at <= self.high_at else at

    def _number(self, moment: int) -> int:
        """Which instant is the last one up to this moment?"""
        return (moment - self.anchor_ms) // self.every_ms

    def _count(self, after: int, until: int) -> int:
        return max(0, self._number(until) - self._number(max(after, -1)))


@attrs.frozen(kw_only=True)
class Question:
    """What the calendar is asked: a row of litejobs_planning."""

    schedule_id: int
    after_at: int
    to_at: int
    keep: int
    wanted: int
    fate: str


@attrs.frozen(kw_only=True)
class Answer:
    """What it says: instants that are kept or to come, and a stretch of others."""

    question: Question
    others: tuple[int, int, int] | None
    instants: list[int]

    def columns(self) -> dict[str, Any]:
        """Those of litejobs_plan, without the revision."""
        first, last, count = self.others or (None, None, None)
        question = attrs.asdict(self.question)
        return {
            **{name: question[name] for name in ("schedule_id", "after_at", "to_at")},
            "fate": self.question.fate,
            "missed_first": first,
            "missed_last": last,
            "missed_count": count,
            "instants": json.dumps(self.instants),
            "exhausted": 0,
            "sentence": "Now and then",
        }


def answer(every: Every, question: Question) -> Answer:
    """What the calendar says."""
    after, to, keep = question.after_at, question.to_at, question.keep
    missed = every.count(after, to)
    newest = every.newest(after, to, keep + 1)
    others = None
    if missed > keep:
        others = every.next(after, 1)[0], newest.pop(0), missed - keep
    return Answer(
        question=question,
        others=others,
        instants=newest + every.next(max(after, to), question.wanted),
    )


# The ledger ---------------------------------------------------------------------------

KNOWS = Vocabulary.of(
    "schedulemodel",
    {
        "schedule.misfire": "one all skip",
        "schedule.overlap": "allow skip queue cancel_running",
        "occurrence.state": "planned fired late coalesced skipped",
    },
)


@attrs.define
class Row:
    """What is known of one instant."""

    due_at: int
    state: str = "planned"
    reason: str | None = None
    into_at: int | None = None

    def become(self, state: str, reason: str | None = None) -> None:
        """It has been decided."""
        KNOWS.check("occurrence.state", state)
        self.state, self.reason = state, reason


@attrs.frozen
class Stretch:
    """Many instants that were decided at once."""

    first: int
    last: int
    count: int
    state: str
    reason: str | None
    into_at: int | None


@attrs.define
class Job:
    """A job of the schedule that has not ended."""

    at: int | None
    state: str
    told_to_stop: bool = False
    has_key: bool = False


@attrs.define(kw_only=True)
class Schedule:
    """Its definition, how far it has been planned, and its ledger."""

    id: int
    every_ms: int
    anchor_ms: int
    start_at: int | None
    end_at: int | None
    max_runs: int | None
    jitter_ms: int
    misfire: str
    misfire_grace_ms: int | None
    misfire_limit: int
    overlap: str
    max_waiting: int
    task: str
    unique_key: str | None
    planned_until: int = 0
    ask_at: int | None = 0
    resumed_at: int = -1
    paused: bool = False
    runs: int = 0
    revision: int = 0
    high_at: int = -1
    steps: int = 0
    rows: dict[int, Row] = attrs.Factory(dict)
    stretches: list[Stretch] = attrs.Factory(list)

    # Questions --------------------------------------------------------------------

    @property
    def calendar(self) -> Every:
        """Its instants."""
        return Every(
            every_ms=self.every_ms,
            anchor_ms=self.anchor_ms,
            high_at=self.high_at,
            steps=self.steps,
        )

    @property
    def grace_ms(self) -> int | None:
        """How late is not too late; None if nothing is."""
        if self.misfire_grace_ms is None and self.misfire == "skip":
            return MINUTE
        return self.misfire_grace_ms

    @property
    def most(self) -> int:
        """How many missed ones are made up for."""
        return self.misfire_limit if self.misfire == "all" else 1

    @property
    def worn_out(self) -> bool:
        """Whether it has run as often as it may."""
        return self.max_runs is not None and self.runs >= self.max_runs

    def planned(self) -> list[int]:
        """What has not been decided."""
        return sorted(at for at, row in self.rows.items() if row.state == "planned")

    def due(self, now: int) -> list[int]:
        """Of that, what is due."""
        return [at for at in self.planned() if self.rows[at].due_at <= now]

    def is_held(self, now: int, plans: bool) -> bool:
        """Whether the calendar is waited for, because all that was planned is over."""
        return plans and self.asks(now) and self.planned_until <= now

    def asks(self, now: int) -> bool:
        """Whether the calendar is to say something."""
        return not self.paused and self.ask_at is not None and self.ask_at <= now

    def question(self, now: int) -> Question | None:
        """What the calendar is asked: first what fell into a pause, then what is too
        late for good, then what was missed and what comes."""
        if not self.asks(now):
            return None
        after = self.planned_until
        if now > self.high_at:
            after = max(after, self.high_at)
        until = min(now, LAST if self.end_at is None else self.end_at)
        late = -1
        if self.grace_ms is not None:
            late = min(until, max(-1, now - 1 - self.jitter_ms - self.grace_ms))
        if after < min(self.resumed_at, until):
            return self._ask(after, min(self.resumed_at, until), 0, 0, "paused")
        if after < late - SLACK:
            return self._ask(after, late, 0, 0, "late")
        future = sum(at > now for at in self.planned())
        wanted = max(0, AHEAD - future)
        if self.end_at is not None and self.end_at <= now:
            wanted = 0
        return self._ask(after, until, self.most, wanted, "missed")

    def _ask(self, after: int, to: int, keep: int, wanted: int, fate: str) -> Question:
        return Question(
            schedule_id=self.id,
            after_at=after,
            to_at=to,
            keep=keep,
            wanted=wanted,
            fate=fate,
        )

    # The calendar and the tick ----------------------------------------------------

    def begin(self, now: int) -> None:
        """It is born."""
        KNOWS.check("schedule.misfire", self.misfire)
        KNOWS.check("schedule.overlap", self.overlap)
        self._plan_from(now)
        self.ask_at = now

    def _plan_from(self, now: int) -> None:
        self.planned_until = now
        if self.start_at is not None and self.start_at >= now:
            self.planned_until = self.start_at - 1

    def _plan_again_from(self, now: int) -> None:
        """No further back than its start."""
        earliest = -1 if self.start_at is None else self.start_at - 1
        self.planned_until = max(min(self.planned_until, now), earliest)

    def record(self, said: Answer, revision: int, now: int) -> list[int]:
        """The calendar has spoken; the instants that are planned now, and no jitter."""
        asked, wanted = said.question, self.question(now)
        if (
            wanted is None
            or revision != self.revision
            or (wanted.after_at, wanted.fate) != (asked.after_at, asked.fate)
        ):
            return []
        if said.others:
            first, last, count = said.others
            before = [at for at in self.planned() if at < first]
            state = {"paused": "skipped", "missed": "coalesced"}.get(asked.fate, "late")
            self.stretches.append(
                Stretch(
                    min([first, *before]),
                    last,
                    count + len(before),
                    state,
                    "paused" if state == "skipped" else None,
                    said.instants[0] if state == "coalesced" else None,
                )
            )
            for at in before:
                del self.rows[at]
        end = LAST if self.end_at is None else self.end_at
        given = [at for at in said.instants if at <= end]
        new = [at for at in given if at not in self.rows]
        self.rows |= {at: Row(at) for at in new}
        self.planned_until = max(asked.to_at, asked.after_at, *given[-1:])
        if asked.fate == "missed":
            planned = self.planned()
            if asked.to_at >= end or given != said.instants:
                self.ask_at = None
            elif len(said.instants) >= AHEAD // 2:
                self.ask_at = said.instants[-AHEAD // 2]
            elif len(planned) >= AHEAD // 2:
                self.ask_at = planned[-AHEAD // 2]
            else:
                self.ask_at = now + MINUTE
        return new

    def fire(
        self, now: int, jobs: list[Job], served: bool, crowded: str | None = None
    ) -> int:
        """What is due is decided; how many jobs were made.

        *crowded* is why no new job is taken, if none is.
        """
        for at in self.due(now):
            if self.paused or at <= self.resumed_at:
                self.rows[at].become("skipped", "paused")
        for at in self.due(now):
            if self.grace_ms is not None and self.rows[at].due_at < now - self.grace_ms:
                self.rows[at].become("late")
        due = self.due(now)
        chosen = due[-self.most :]
        for at in due[: -self.most]:
            self.rows[at].become("coalesced")
            self.rows[at].into_at = chosen[0]
        made = sum(self._fire(at, now, jobs, served, crowded) for at in chosen)
        if chosen:
            self._end(now)
        return made

    def _fire(
        self, at: int, now: int, jobs: list[Job], served: bool, crowded: str | None
    ) -> bool:
        """It is this one's turn; whether it became a job."""
        row = self.rows[at]
        if self.worn_out:
            row.become("skipped", "max_runs")
        elif crowded:
            row.become("skipped", crowded)
        elif jobs and self.overlap == "skip":
            row.become("skipped", "overlap")
        elif jobs and not served:
            row.become("skipped", "unknown_task")
        elif self.overlap == "queue" and len(jobs) > self.max_waiting:
            row.become("coalesced", "overlap")
            row.into_at = jobs[-1].at
        else:
            if self.overlap == "cancel_running":
                jobs[:] = [job for job in jobs if job.state == "processing"]
                for job in jobs:
                    job.told_to_stop = True
            return self._make(at, now, jobs, by_hand=False)
        return False

    def _make(self, at: int, now: int, jobs: list[Job], *, by_hand: bool) -> bool:
        """It becomes a job, unless one with its key has not ended."""
        row = self.rows[at]
        if self.unique_key and any(job.has_key for job in jobs):
            row.become("skipped", "unique_key")
            return False
        jobs.append(Job(at, "pending", has_key=bool(self.unique_key)))
        row.become("fired", row.reason)
        self.runs += not by_hand
        return True

    def _end(self, now: int) -> None:
        """It has run as often as it may: what is not due will not be."""
        if self.worn_out:
            self._forget(at for at in self.planned() if self.rows[at].due_at > now)
            self.ask_at = None

    def step_back(self, now: int, by_ms: int) -> None:
        """The clock has gone back."""
        self._forget(at for at in self.planned() if at > now)
        self._plan_again_from(now)
        self.ask_at = None if self.worn_out else now
        self.resumed_at = min(self.resumed_at, now)
        self.high_at = max(self.high_at, now + by_ms)
        self.steps += 1
        self.revision += 1

    def _forget(self, instants: Any) -> None:
        for at in list(instants):
            del self.rows[at]

    def is_refused(self, jobs: list[Job], crowded: str | None) -> bool:
        """Whether a person hears that no new job is taken, and nothing is changed."""
        has_key = self.unique_key and any(job.has_key for job in jobs)
        return crowded is not None and not has_key

    # People -----------------------------------------------------------------------

    def pause(self, now: int) -> None:
        """What is over and was not decided is skipped; nothing is planned any more."""
        for at in self.planned():
            if at <= now:
                self.rows[at].become("skipped", "paused")
        self._forget(self.planned())
        self._plan_again_from(now)
        self.paused = True
        self._ask_now(now)

    def resume(self, now: int) -> None:
        """What falls into the pause is skipped when the calendar has told it."""
        self.paused = False
        self.resumed_at = now
        self._ask_now(now)

    def _ask_now(self, now: int) -> None:
        self.revision += 1
        if self.ask_at is not None:
            self.ask_at = now

    def change(self, now: int, **columns: Any) -> None:
        """Another calendar makes other plans, from now on."""
        for name, value in columns.items():
            setattr(self, name, value)
        self._forget(at for at in self.planned() if at > now)
        self._plan_from(now)
        self.ask_at = None if self.worn_out else now
        self.revision += 1

    def change_max_runs(self, now: int, most: int | None) -> None:
        """It may run more often, or not any more; what was due is still decided."""
        self.max_runs = most
        if self.ask_at is not None and not self.worn_out:
            return
        self._forget(at for at in self.planned() if at > now)
        if self.ask_at is None:
            self._plan_from(now)
        else:
            self._plan_again_from(now)
        self.ask_at = None if self.worn_out else now
        self.revision += 1

    def run_now(self, now: int, jobs: list[Job]) -> int:
        """A person wants it now; the instant that it has."""
        at = now
        while at in self.rows:
            at += 1
        self.rows[at] = Row(at, reason="by_hand")
        self._make(at, now, jobs, by_hand=True)
        self._end(now)
        return at

    def backfill(self, at: int, now: int, jobs: list[Job]) -> None:
        """What was not fired at that instant of the past is fired now."""
        row = self.rows.get(at)
        if row and row.state == "fired":
            return
        due = row.due_at if row else at
        self.rows[at] = Row(due, reason="backfill")
        self._make(at, now, jobs, by_hand=True)
        self._end(now)
