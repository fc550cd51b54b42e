"""What becomes of each instant is what a model in Python says, whatever has happened.

Planning asks the calendar for no more than it needs, and writes down long stretches as
one row. Here Hypothesis chooses what happens: time passes, also ten years at once or
backwards, the calendar answers in part, or too late, jobs run or do not, people pause
and change things. After each step the ledger is that of the model; and what is promised
holds, counted from the calendar alone.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import time_machine
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.models import kinds
from tests.models.schedulemodel import (
    AHEAD,
    Answer,
    Every,
    Job,
    Question,
    Schedule,
    answer,
)
from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, START, START_MS, Sql, on_apsw

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
YEARS = 3652 * DAY
# How often the calendar may be asked about a schedule until there is nothing to ask.
ROUNDS = 4
# So many rows may be new besides those that are planned or made up for: one stretch for
# each fate, and one that begins anew.
FEW = 4

PICK = st.integers(0, 999)
INTERVALS = st.sampled_from([SECOND, 1500, 7 * SECOND, MINUTE, MINUTE, HOUR, DAY])
STARTS = st.sampled_from(
    [None, None, None, -90 * SECOND, 30 * SECOND, 90 * SECOND, 2 * HOUR]
)
ENDS = st.sampled_from([None, None, None, None, 5 * SECOND, 2 * MINUTE, 3 * HOUR, DAY])
MOST = st.sampled_from([None, None, None, None, 1, 3, 10])
JITTERS = st.sampled_from([0, 0, 0, 0, 999, 30 * SECOND])
NEW_SCHEDULES = st.fixed_dictionaries(
    {
        "every_ms": INTERVALS,
        "anchor_ms": st.sampled_from([None, None, 0, START_MS + 123]),
        "start": STARTS,
        "end": ENDS,
        "max_runs": MOST,
        "jitter_ms": JITTERS,
        "misfire": st.sampled_from([*kinds.words_of("schedule.misfire"), "one", "all"]),
        "misfire_grace_ms": st.sampled_from([None, None, 0, 5 * SECOND, MINUTE, HOUR]),
        "misfire_limit": st.sampled_from([1, 2, 5, 40]),
        "overlap": st.sampled_from(
            [*kinds.words_of("schedule.overlap"), "allow", "queue"]
        ),
        "max_waiting": st.sampled_from([1, 1, 2, 3]),
        "task": st.sampled_from(["a", "a", "a", "a", "a", "gone"]),
        "unique": st.sampled_from([False, False, False, True]),
        "max_attempts": st.sampled_from([1, 1, 2]),
    }
)
TIMES = st.sampled_from(
    [
        *(1, 999, SECOND, 1500, 7 * SECOND, 20 * SECOND, MINUTE, 61 * SECOND),
        *(20 * MINUTE, HOUR, 5 * HOUR, DAY, 40 * DAY, 366 * DAY, YEARS),
    ]
)
BACK = st.sampled_from([1, 900, SECOND, 1001, 5 * SECOND, MINUTE, HOUR, DAY, YEARS, 0])
STATUSES = st.sampled_from(["ok", "ok", "ok", "error", "error", "cancelled"])
WORK = st.tuples(st.sampled_from([0, 1, 1, 2, 50]), st.lists(STATUSES, max_size=3))
# What happens at every step, besides.
TURNS = st.fixed_dictionaries(
    {
        "ms": st.sampled_from(
            [0, 1, SECOND, SECOND, 3 * SECOND, 10 * SECOND, MINUTE, HOUR]
        ),
        "plans": st.sampled_from([True, True, True, True, False]),
        "ticks": st.sampled_from([True, True, True, True, False]),
        "work": WORK,
    }
)

# One that has its key may have taken the place of what was done by hand.
BY_HAND = ("by_hand", "backfill", "unique_key")
# What the model has under another name, or the same.
STORED = {
    "runs": "runs",
    "paused": "paused",
    "planned_until": "planned_until",
    "ask_at": "replan_at",
    "resumed_at": "skip_until",
    "high_at": "high_at",
    "steps": "clock_steps",
}
UNFINISHED = "('scheduled', 'blocked', 'pending', 'processing', 'failed')"
JOBS = f"""
    select
        job.id, job.schedule_id, job.occurrence_at as at, job.state,
        job.cancel_requested_at is not null as told_to_stop,
        job.unique_key is not null as has_key,
        occurrence.reason is not null as by_hand,
        attempt.runner_id is not null
        and (job.starts >= job.max_attempts or job.cancel_requested_at is not null)
            as is_last,
        attempt.runner_id
    from litejobs_job as job
    left join litejobs_attempt as attempt
        on attempt.job_id = job.id and attempt.finished_at is null
    left join litejobs_occurrence as occurrence
        on occurrence.schedule_id = job.schedule_id
        and occurrence.at = job.occurrence_at and occurrence.is_range = 0
    where job.state in {UNFINISHED}
    order by job.id"""
ROWS = """
    select at, due_at, state, reason, into_at from litejobs_occurrence
    where schedule_id = ? and is_range = 0"""
STRETCHES = """
    select at, last_at, count, state, reason, into_at from litejobs_occurrence
    where schedule_id = ? and is_range = 1 order by at"""
LEDGERS = """
    select schedule_id, at, due_at, last_at, count, state, reason, into_at, is_range
    from litejobs_occurrence order by schedule_id, at"""
STORED_SCHEDULES = f"select id, {', '.join(STORED.values())} from litejobs_schedule"
MADE = """
    select job.schedule_id, job.occurrence_at as at, occurrence.due_at, occurrence.state
    from litejobs_job as job
    join litejobs_occurrence as occurrence
        on occurrence.schedule_id = job.schedule_id
        and occurrence.at = job.occurrence_at and occurrence.is_range = 0
    where job.id > ?"""
TWICE = """
    select schedule_id, occurrence_at from litejobs_job
    group by schedule_id, occurrence_at having count(*) > 1"""
OPEN_TWICE = """
    select job.schedule_id from litejobs_attempt as attempt
    join litejobs_job as job on job.id = attempt.job_id
    where attempt.finished_at is null
    group by job.schedule_id having count(*) > 1"""
# An instant has fired exactly if there is a job of it, and it is its.
FIRED = """
    select schedule_id, at from litejobs_occurrence as occurrence
    where (state = 'fired') <> exists (
        select 1 from litejobs_job
        where schedule_id = occurrence.schedule_id and occurrence_at = occurrence.at
        and is_range = 0 and id = occurrence.job_id
    ) and (state = 'fired' or job_id is null)"""


def step(**arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule: something happens, and then time goes on as it does all day."""

    def decorate(action: Callable[..., None]) -> Callable[..., None]:
        @rule(turn=TURNS, **arguments)
        @functools.wraps(action)
        def happen(self: Schedules, turn: dict[str, Any], **values: Any) -> None:
            action(self, **values)
            self.look()
            self.go_on(**turn)
            self.look()

        return happen

    return decorate


@functools.cache
def _database(recursive_triggers: bool) -> Sql:
    """One for all lives: most of a life would go into preparing statements anew."""
    return on_apsw(recursive_triggers=recursive_triggers, traced=False)


class Schedules(RuleBasedStateMachine):
    """Schedules, a runner with a calendar or without one, a clock, and people."""

    recursive_triggers = False

    def __init__(self) -> None:
        super().__init__()
        self.traveller = time_machine.travel(START, tick=False)
        self.clock = self.traveller.start()
        self.db = _database(self.recursive_triggers)
        self.db.execute("savepoint life")
        self.schedules: dict[int, Schedule] = {}
        # Since when their calendar has been what it is; and of which it has never
        # changed, nor has the clock gone back.
        self.since: dict[int, int] = {}
        self.untouched: set[int] = set()
        self.answers: list[tuple[Answer, int, int]] = []
        self.plans = self.serves = True
        self.crowded: str | None = None
        self.seen_at = START_MS

    def teardown(self) -> None:
        self.db.execute("rollback to life")
        self.db.execute("release life")
        self.traveller.stop()

    # Words ------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return (dt.datetime.now(dt.UTC) - EPOCH) // dt.timedelta(milliseconds=1)

    def pick(self, number: int) -> Schedule | None:
        """One of the schedules, if there is one."""
        found = list(self.schedules.values())
        return found[number % len(found)] if found else None

    def jobs(self, *, orphans_are_known: bool = False) -> dict[int, list[Job]]:
        """The jobs that have not ended, of each schedule, in their order; perhaps as
        they are when those that an earlier runner left open are known to be orphans."""
        found: dict[int, list[Job]] = {number: [] for number in self.schedules}
        for row in self.db.rows(JOBS):
            if orphans_are_known and row.runner_id not in (None, self.db.runner):
                if row.is_last:
                    continue
                row.state = "failed"
            job = Job(row.at, row.state, bool(row.told_to_stop), bool(row.has_key))
            found.setdefault(row.schedule_id, []).append(job)
        return found

    def count(self, table: str, where: str = "1") -> int:
        return int(self.db.value(f"select count(*) from {table} where {where}"))

    # The runner -------------------------------------------------------------------

    @initialize(
        new=st.lists(NEW_SCHEDULES, min_size=1, max_size=3),
        plans=st.sampled_from([True, True, False]),
    )
    def begin(self, new: list[dict[str, Any]], plans: bool) -> None:
        self.db.insert("litejobs_task", name="a")
        self.kill(plans, True)
        for each in new:
            self.create(each)
        self.look()

    def kill(self, plans: bool, serves: bool) -> None:
        """The process is gone, and another one comes."""
        self.db.insert("litejobs_runner", plans=int(plans))
        self.db.runner = self.db.value("select max(id) from litejobs_runner")
        self.db.execute(
            "update litejobs_task set runner_id = ?",
            (self.db.runner if serves else None,),
        )
        self.plans, self.serves = plans, serves

    @step(
        plans=st.sampled_from([True, True, False]),
        serves=st.sampled_from([True, True, True, False]),
    )
    def start_runner(self, plans: bool, serves: bool) -> None:
        self.kill(plans, serves)

    @step(crowded=st.sampled_from([None, None, "file_full", "disk_full"]))
    def room_comes_and_goes(self, crowded: str | None) -> None:
        """No new job is taken for want of room, or there is some again."""
        is_full = crowded == "disk_full"
        self.db.insert("litejobs__disk", is_full=int(is_full))
        self.db.insert("litejobs__limit_size", max_bytes=2)
        used = 1 + (crowded == "file_full")
        self.db.insert("litejobs__size", bytes=used, free_bytes=0)
        self.crowded = crowded
        assert self.db.column("select reason from litejobs__crowded") == (
            [] if crowded is None else [crowded]
        )

    @step(ms=TIMES)
    def time_passes(self, ms: int) -> None:
        self.clock.shift(dt.timedelta(milliseconds=ms))

    @step(ms=BACK, ticks=st.booleans())
    def clock_goes_back(self, ms: int, ticks: bool) -> None:
        """By so much, or to 1970; sometimes nobody sees it for a while."""
        by_ms = min(ms or self.now, self.now)
        self.clock.shift(dt.timedelta(milliseconds=-by_ms))
        self.untouched.clear()
        if ticks:
            self.tick()

    def ask(self) -> list[tuple[Answer, int, int]]:
        """What the calendar is asked now is what it should be; its answers, with the
        revision as the database and as the model says."""
        asked = self.db.rows("select * from litejobs_planning order by schedule_id")
        wanted = [
            question
            for _, each in sorted(self.schedules.items())
            if (question := each.question(self.now)) is not None
        ]
        names = [field.name for field in attrs.fields(Question)]
        found = [{name: getattr(each, name) for name in names} for each in asked]
        should = [attrs.asdict(each) for each in wanted]
        assert found == should, f"asked {found}, not {should}: {self.schedules}"
        for row in asked:
            assert calendar(row) == self.schedules[row.schedule_id].calendar
        return [
            (
                answer(calendar(row), question),
                row.revision,
                self.schedules[row.schedule_id].revision,
            )
            for row, question in zip(asked, wanted, strict=True)
        ]

    def record(self, said: Answer, revision: int, known: int) -> None:
        """The answer is written down."""
        self.db.insert("litejobs_plan", **said.columns(), revision=revision)
        schedule = self.schedules.get(said.question.schedule_id)
        if schedule is None:
            return
        new = schedule.record(said, known, self.now)
        rows = {row.at: row.due_at for row in self.db.rows(ROWS, (schedule.id,))}
        for at in new:
            assert at in rows, f"{schedule} has not planned {at}"
            assert at <= rows[at] <= at + schedule.jitter_ms
            schedule.rows[at].due_at = rows[at]

    def plan(self) -> None:
        """The calendar is asked until there is nothing to ask, and that is soon."""
        before = self.count("litejobs_occurrence")
        for _ in range(ROUNDS):
            answers = self.ask()
            for each in answers:
                self.record(*each)
            if not answers:
                break
        assert self.count("litejobs_planning") == 0
        most = sum(each.most + AHEAD + FEW for each in self.schedules.values())
        assert self.count("litejobs_occurrence") - before <= most

    @step(number=PICK, keeps=st.booleans())
    def answer_one(self, number: int, keeps: bool) -> None:
        """One of the questions is answered, or its answer is kept for later."""
        answers = self.ask()
        if answers:
            one = answers[number % len(answers)]
            if keeps:
                self.answers.append(one)
            else:
                self.record(*one)

    @precondition(lambda self: self.answers)
    @step(number=PICK)
    def answer_late(self, number: int) -> None:
        """Much may have happened since it was asked for."""
        self.record(*self.answers.pop(number % len(self.answers)))

    def tick(self) -> None:
        last = self.db.value("select coalesce(max(id), 0) from litejobs_job")
        jobs = self.jobs(orphans_are_known=True)
        self.db.tick()
        if self.now < self.seen_at - SECOND:
            for each in self.schedules.values():
                each.step_back(self.now, self.seen_at - self.now)
            self.untouched.clear()
        self.seen_at = self.now
        wanted = {
            each.id: made
            for each in self.schedules.values()
            if not each.is_held(self.now, self.plans)
            and (
                made := each.fire(
                    self.now, jobs[each.id], self.is_served(each), self.crowded
                )
            )
        }
        found: dict[int, int] = {}
        for row in self.db.rows(MADE, (last,)):
            found[row.schedule_id] = found.get(row.schedule_id, 0) + 1
            schedule = self.schedules[row.schedule_id]
            assert not schedule.paused
            grace = schedule.grace_ms
            assert grace is None or row.due_at >= self.now - grace
        assert found == wanted, f"made {found}, not {wanted}"
        for number, made in found.items():
            assert made <= self.schedules[number].most

    def is_served(self, schedule: Schedule) -> bool:
        return self.serves and schedule.task == "a"

    @step()
    def rest(self) -> None:
        """The loop has nothing more to do now, and the agenda says so."""
        self.tick()
        self.plan()
        self.tick()
        assert self.count("litejobs_planning") == 0
        due = f"state = 'planned' and due_at <= {self.now}"
        assert self.count("litejobs_occurrence", due) == 0
        self.everything_is_accounted_for()
        [agenda] = self.db.rows("select * from litejobs_agenda")
        for moment in (agenda.next_occurrence_at, agenda.next_plan_at):
            assert moment is None or moment > self.now

    def everything_is_accounted_for(self) -> None:
        """Each instant from the birth until now is fired, late, coalesced or skipped
        once, or still to come."""
        for schedule in self.schedules.values():
            if (
                schedule.id not in self.untouched
                or schedule.paused
                or schedule.worn_out
            ):
                continue
            until = min(self.now, schedule.end_at or self.now)
            since = self.lived_from(schedule)
            every = calendar(schedule)
            rows = self.db.rows(ROWS, (schedule.id,))
            by_hand = any(row.reason in BY_HAND for row in rows)
            if by_hand and schedule.jitter_ms >= schedule.every_ms:
                continue
            stretches = self.db.rows(STRETCHES, (schedule.id,))
            singly = sum(
                since < row.at <= until and every.count(row.at - 1, row.at)
                for row in rows
                if row.reason not in BY_HAND or not is_within(row.at, stretches)
            )
            counted = sum(row.count for row in stretches)
            assert singly + counted == every.count(since, until), schedule

    def lived_from(self, schedule: Schedule) -> int:
        """The moment after which its instants count: those at its start do."""
        since, start = self.since[schedule.id], schedule.start_at
        return since if start is None or start < since else start - 1

    def work(self, slots: int, statuses: list[str]) -> None:
        """Some jobs begin, some end."""
        self.db.claim(slots)
        self.seen_at = max(self.seen_at, self.now)
        running = self.db.column(
            "select id from litejobs_attempt where finished_at is null order by id"
        )
        for attempt, status in zip(running, statuses, strict=False):
            self.db.settle(attempt, status)

    def go_on(self, ms: int, plans: bool, ticks: bool, work: Any) -> None:
        """Time passes, the loop turns."""
        self.clock.shift(dt.timedelta(milliseconds=ms))
        if plans:
            self.plan()
        if ticks:
            self.tick()
        self.work(*work)

    # People -----------------------------------------------------------------------

    @precondition(lambda self: len(self.schedules) < 4)
    @step(columns=NEW_SCHEDULES, changed_to=st.one_of(st.none(), INTERVALS))
    def add(self, columns: dict[str, Any], changed_to: int | None) -> None:
        """What the calendar says of it comes too late if it is changed at once."""
        self.create(columns)
        if changed_to is None:
            return
        answers = self.ask()
        self.set_calendar(list(self.schedules.values())[-1], every_ms=changed_to)
        for each in answers:
            self.record(*each)

    def create(self, columns: dict[str, Any]) -> None:
        now, columns = self.now, {**columns}
        start, end, unique = (columns.pop(name) for name in ("start", "end", "unique"))
        most = columns.pop("max_attempts")
        name = f"s{self.db.value('select count(*) from litejobs__transition')}"
        unique = unique and columns["overlap"] in ("allow", "skip")
        columns |= {
            "start_at": None if start is None else max(0, now + start),
            "end_at": None if end is None else now + end,
            "unique_key": name if unique else None,
        }
        self.db.insert(
            "litejobs_schedule",
            **columns,
            name=name,
            max_attempts=most,
            backoff="none",
            delay_ms=0,
            jitter=0.0,
        )
        number = self.db.value("select max(id) from litejobs_schedule")
        if columns["anchor_ms"] is None:
            start_at = columns["start_at"]
            columns["anchor_ms"] = now if start_at is None else start_at
        schedule = Schedule(id=number, **columns)
        schedule.begin(now)
        self.schedules[number] = schedule
        self.since[number] = now
        self.untouched.add(number)

    @step(number=PICK)
    def delete(self, number: int) -> None:
        schedule = self.pick(number)
        if schedule is not None and number % 3 == 0:
            self.db.execute(
                "delete from litejobs_schedule where id = ?", (schedule.id,)
            )
            del self.schedules[schedule.id]
            self.untouched.discard(schedule.id)
            rows = self.count("litejobs_occurrence", f"schedule_id = {schedule.id}")
            assert rows == 0

    @step(number=PICK, paused=st.booleans())
    def pause(self, number: int, paused: bool) -> None:
        """Or resume."""
        schedule = self.pick(number)
        if schedule is None:
            return
        self.set(schedule, paused=int(paused))
        if paused and not schedule.paused:
            schedule.pause(self.now)
        elif schedule.paused and not paused:
            schedule.resume(self.now)

    def set(self, schedule: Schedule, **columns: Any) -> None:
        sets = ", ".join(f"{name} = ?" for name in columns)
        self.db.execute(
            f"update litejobs_schedule set {sets} where id = ?",
            (*columns.values(), schedule.id),
        )

    @step(
        number=PICK,
        name=st.sampled_from(["every_ms", "start_at", "end_at", "jitter_ms"]),
        every_ms=INTERVALS,
        anew=st.booleans(),
        start=STARTS,
        end=ENDS,
        jitter_ms=JITTERS,
    )
    def change(
        self,
        number: int,
        name: str,
        every_ms: int,
        anew: bool,
        start: int | None,
        end: int | None,
        jitter_ms: int,
    ) -> None:
        """The calendar is another one, perhaps with another anchor."""
        schedule = self.pick(number)
        if schedule is None:
            return
        values: dict[str, Any] = {
            "every_ms": every_ms,
            "start_at": None if start is None else max(0, self.now + start),
            "end_at": None if end is None else self.now + end,
            "jitter_ms": jitter_ms,
        }
        columns = {name: values[name]}
        if name == "every_ms" and anew:
            # Of the interval that it has it keeps the times.
            if every_ms == schedule.every_ms:
                self.set(schedule, every_ms=every_ms, anchor_ms=None)
                return
            columns["anchor_ms"] = None
        self.set_calendar(schedule, **columns)

    def set_calendar(self, schedule: Schedule, **columns: Any) -> None:
        changed = any(getattr(schedule, key) != columns[key] for key in columns)
        self.set(schedule, **columns)
        if not changed:
            return
        if "anchor_ms" in columns:
            columns["anchor_ms"] = (
                self.now if schedule.start_at is None else schedule.start_at
            )
        schedule.change(self.now, **columns)
        self.since[schedule.id] = self.now
        self.untouched.discard(schedule.id)

    @step(number=PICK, most=MOST)
    def change_max_runs(self, number: int, most: int | None) -> None:
        schedule = self.pick(number)
        if schedule is not None:
            self.set(schedule, max_runs=most)
            if most != schedule.max_runs:
                schedule.change_max_runs(self.now, most)
                self.untouched.discard(schedule.id)

    @step(number=PICK)
    def run_now(self, number: int) -> None:
        schedule = self.pick(number)
        if schedule is not None:
            jobs = self.jobs()[schedule.id]
            if schedule.is_refused(jobs, self.crowded):
                sql = "insert into litejobs_run_now (schedule_id) values (?)"
                assert self.db.refused(sql, (schedule.id,)).startswith(
                    f"{self.crowded}: "
                )
                return
            self.db.insert("litejobs_run_now", schedule_id=schedule.id)
            schedule.run_now(self.now, jobs)

    @step(
        number=PICK,
        past=st.sampled_from([0, 1, SECOND, 3 * SECOND, MINUTE, HOUR, DAY]),
        exactly=st.booleans(),
    )
    def backfill(self, number: int, past: int, exactly: bool) -> None:
        """Some instants of the past are made up for, or moments that are none."""
        schedule = self.pick(number)
        if schedule is None:
            return
        moment = max(0, self.now - past)
        found = schedule.calendar.newest(-1, moment, 3) if exactly else [moment]
        for at in found:
            jobs = self.jobs()[schedule.id]
            row = schedule.rows.get(at)
            fired = row is not None and row.state == "fired"
            if schedule.is_refused(jobs, self.crowded) and not fired:
                sql = "insert into litejobs_backfill (schedule_id, at) values (?, ?)"
                assert self.db.refused(sql, (schedule.id, at)).startswith(
                    f"{self.crowded}: "
                )
                return
            self.db.insert("litejobs_backfill", schedule_id=schedule.id, at=at)
            schedule.backfill(at, self.now, jobs)

    # What always holds ------------------------------------------------------------

    def look(self) -> None:
        """All at once: most of a life would go into asking for each schedule."""
        assert self.db.execute(TWICE) == []
        assert self.db.execute(FIRED) == []
        stored = {row.id: row for row in self.db.rows(STORED_SCHEDULES)}
        rows: dict[int, list[SimpleNamespace]] = {each: [] for each in stored}
        stretches: dict[int, list[SimpleNamespace]] = {each: [] for each in stored}
        for row in self.db.rows(LEDGERS):
            (stretches if row.is_range else rows)[row.schedule_id].append(row)
        self.no_two_jobs_of_a_schedule_run_if_it_says_so()
        for each in self.schedules.values():
            mine = rows[each.id], stretches[each.id]
            self.ledger_is_what_the_model_says(each, stored[each.id], *mine)
            self.stretches_are_apart_and_counted(each, *mine)
            self.nothing_is_planned_that_must_not_run(each, mine[0])

    def ledger_is_what_the_model_says(
        self,
        each: Schedule,
        stored: SimpleNamespace,
        rows: list[SimpleNamespace],
        stretches: list[SimpleNamespace],
    ) -> None:
        found = {
            row.at: (row.due_at, row.state, row.reason, row.into_at) for row in rows
        }
        wanted = {at: attrs.astuple(row) for at, row in each.rows.items()}
        wrong = {
            at: (found.get(at), wanted.get(at))
            for at in found.keys() | wanted.keys()
            if found.get(at) != wanted.get(at)
        }
        assert not wrong, f"(is, should be) at {self.now}: {wrong} of {each}"
        should = sorted(attrs.astuple(stretch) for stretch in each.stretches)
        assert [
            (row.at, row.last_at, row.count, row.state, row.reason, row.into_at)
            for row in stretches
        ] == should
        is_ = {name: getattr(stored, STORED[name]) for name in STORED}
        should_be = {name: getattr(each, name) for name in STORED}
        assert is_ == should_be, f"{is_}, not {should_be}: {each}"

    def no_two_jobs_of_a_schedule_run_if_it_says_so(self) -> None:
        twice = set(self.db.column(OPEN_TWICE))
        jobs: dict[int, int] = {}
        for row in self.db.rows(JOBS):
            if not row.by_hand:
                jobs[row.schedule_id] = jobs.get(row.schedule_id, 0) + 1
        for schedule in self.schedules.values():
            if schedule.overlap != "allow":
                assert schedule.id not in twice
            if schedule.overlap == "queue":
                assert jobs.get(schedule.id, 0) <= 1 + schedule.max_waiting
            if schedule.overlap == "skip":
                assert jobs.get(schedule.id, 0) <= 1

    def stretches_are_apart_and_counted(
        self,
        schedule: Schedule,
        rows: list[SimpleNamespace],
        stretches: list[SimpleNamespace],
    ) -> None:
        """Of one that has had one calendar: their instants are those of it, no other
        row has them, unless it was made by hand, or put off so far that others were
        decided before it."""
        if schedule.id not in self.untouched or schedule.jitter_ms >= schedule.every_ms:
            return
        every, last = calendar(schedule), self.lived_from(schedule)
        for row in stretches:
            assert row.at > last, f"{row} begins before {last}: {schedule}"
            assert row.count == every.count(row.at - 1, row.last_at), f"{row}"
            assert every.count(row.at - 1, row.at) == 1
            assert every.count(row.last_at - 1, row.last_at) == 1
            last = row.last_at
        for row in rows:
            if row.reason not in BY_HAND:
                assert every.count(row.at - 1, row.at) == 1
                assert not is_within(row.at, stretches)

    def nothing_is_planned_that_must_not_run(
        self, schedule: Schedule, rows: list[SimpleNamespace]
    ) -> None:
        """What was due when the calendar was changed may be."""
        planned = [
            row.at
            for row in rows
            if row.state == "planned" and row.at > self.since[schedule.id]
        ]
        assert not (schedule.paused and planned)
        for at in planned:
            assert schedule.start_at is None or at >= schedule.start_at
            assert schedule.end_at is None or at <= schedule.end_at
        fired = [row for row in rows if row.state == "fired" and row.reason is None]
        assert len(fired) == schedule.runs
        if schedule.id in self.untouched and schedule.max_runs is not None:
            assert schedule.runs <= schedule.max_runs


def calendar(row: Schedule | SimpleNamespace) -> Every:
    """That of a question, or of a schedule."""
    again = isinstance(row, SimpleNamespace)
    return Every(
        every_ms=row.every_ms,
        anchor_ms=row.anchor_ms,
        high_at=row.high_at,
        steps=row.clock_steps if again else row.steps,
    )


def is_within(at: int, stretches: list[SimpleNamespace]) -> bool:
    """What was done by hand may be."""
    return any(row.at <= at <= row.last_at for row in stretches)


class SchedulesWithRecursiveTriggers(Schedules):
    """The same, as a client that has recursive triggers on sees it."""

    recursive_triggers = True


MACHINES = pytest.mark.parametrize(
    "machine",
    [Schedules, SchedulesWithRecursiveTriggers],
    ids=["apsw", "apsw-recursive"],
)


def live(
    machine: type[Schedules], lives: int, steps: int, *, derandomize: bool = True
) -> None:
    """The few of each run are not made smaller when one fails: that takes minutes, and
    so the failure would be told as a test without an end."""
    phases = [each for each in Phase if each is not Phase.shrink or not derandomize]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=lives,
            stateful_step_count=steps,
            derandomize=derandomize,
            phases=phases,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@MACHINES
def test_the_ledger_is_what_the_model_says(machine: type[Schedules]) -> None:
    live(machine, lives=7, steps=30)


@pytest.mark.torture
@MACHINES
@pytest.mark.parametrize("round_", range(10))
def test_the_ledger_is_what_the_model_says_in_very_many_lives(
    machine: type[Schedules], round_: int
) -> None:
    live(machine, lives=500, steps=60, derandomize=False)
