"""Are jobs run, and in time? sql/logic/reports/views_health.sql."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sql.fixture import MINUTE, SECOND, STATES, Sql
from tests.sql.test_doctor import plan


def found(db: Sql) -> dict[str, str]:
    """What keeps jobs from being run: code to sentence; the doctor finds the same."""
    rows = db.rows("select * from litejobs_health")
    assert all(row.remedy and row.object for row in rows)
    by_code = {row.code: (row.level, row.sentence) for row in rows}
    doctor = {row.code: (row.level, row.sentence) for row in db.query("list_findings")}
    for code, said in by_code.items():
        assert doctor[code] == said
    return {code: sentence for code, (_, sentence) in by_code.items()}


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_found_while_a_runner_runs_whatever_state_a_job_is_in(
    db: Sql, state: str
) -> None:
    db.serve("a")
    db.job_in(state, concurrency_key="k", circuit="c")
    assert found(db) == {}


def test_a_runner_is_missed_when_a_job_has_been_due_for_ten_seconds(held: Sql) -> None:
    held.serve("a")
    held.execute("update litejobs_runner set stopped_at = 1")
    later = held.enqueue("a", run_at=held.now + MINUTE)
    held.wait(MINUTE)
    assert held.execute("select * from litejobs__oldest_due") == [
        (later, "a", "default", held.now)
    ]
    held.wait(10 * SECOND)
    assert found(held) == {}
    held.wait(1)
    assert found(held) == {
        "runner_missing": (
            f"the runner is missing, and job {later} has been due since "
            "2026-01-01T00:01:00Z"
        )
    }
    held.start_runner()
    held.tick()
    held.settle(*held.claim())
    assert found(held) == {}


@pytest.mark.parametrize("columns", [{}, {"concurrency_key": "k"}])
def test_a_runner_that_has_room_and_takes_nothing_is_found(
    held: Sql, columns: dict[str, str]
) -> None:
    held.serve("a")
    held.execute("update litejobs_runner set threads = 2")
    first = held.enqueue("a", **columns)
    second = held.enqueue("a", priority=1, **{**columns, **_other(columns)})
    held.wait(10 * SECOND)
    assert found(held) == {}
    held.wait(1)
    assert list(found(held)) == ["runner_takes_nothing"]
    # Both are due as long; it is the one that was asked for first, or has the right.
    assert any(f"job {each}," in str(found(held)) for each in (first, second))
    attempts = held.claim(2)
    assert found(held) == {}
    # Both threads work, and a third job waits, however long.
    third = held.enqueue("a")
    held.wait(MINUTE)
    assert found(held) == {}
    held.settle(attempts[0])
    # It has just said that one has ended.
    held.wait(10 * SECOND)
    assert found(held) == {}
    held.wait(1)
    assert f"job {third}, which could start" in found(held)["runner_takes_nothing"]
    # Where it may not start, nobody is to blame.
    held.execute("update litejobs_queue set paused = 1")
    assert found(held) == {}


def _other(columns: dict[str, str]) -> dict[str, str]:
    return dict.fromkeys(columns, "other")


def test_the_oldest_due_is_the_one_that_waits_longest_wherever_it_does(
    held: Sql,
) -> None:
    held.serve("a")
    assert held.execute("select * from litejobs__oldest_due") == []
    ids = [
        held.enqueue("a", run_at=held.now + SECOND),
        held.enqueue("a", run_at=held.now + 2 * SECOND, queue="q"),
        held.enqueue("a", run_at=held.now + 3 * SECOND, concurrency_key="k"),
        held.enqueue("a", run_at=held.now + 4 * SECOND, priority=5),
    ]
    held.wait(MINUTE)
    seen = []
    for _ in ids:
        job = held.value("select job_id from litejobs__oldest_due")
        seen.append(job)
        held.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
        # Those that wait for a tick and those in line are one as the other.
        held.tick()
    assert sorted(seen) == ids
    assert seen[0] == ids[0]
    assert held.execute("select * from litejobs__oldest_due") == []


@pytest.mark.parametrize("what", ["occurrence", "plan"])
def test_a_schedule_that_nobody_goes_on_with_is_found(held: Sql, what: str) -> None:
    held.serve("a")
    due_at = held.now + SECOND
    held.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)
    if what == "occurrence":
        plan(held, due_at)
    held.wait(due_at + 10 * SECOND - held.now + 1)
    assert list(found(held)) == ["runner_late"]


def test_a_job_that_is_given_back_again_and_again_is_found(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a")
    for _ in range(3):
        assert found(held) == {}
        held.settle(
            held.begin(job),
            "interrupted",
            ',"error":{"code":"given_back","message":"no room just now"}',
        )
    said = {
        "given_back": f"job {job} (a) is given back again and again, and waits longer "
        "each time: no room just now"
    }
    assert found(held) == said
    held.wait(SECOND)
    held.tick()
    assert found(held) == said
    held.claim()
    assert found(held) == {}


def test_a_job_that_stops_interrupt_again_and_again_is_found_until_its_end(
    held: Sql,
) -> None:
    """Also while it runs, for which it may need longer than its program does."""
    held.serve("a")
    job = held.enqueue("a")
    for _ in range(3):
        assert found(held) == {}
        held.settle(
            held.begin(job),
            "interrupted",
            ',"error":{"code":"stopped","message":"the runner stopped"}',
        )
    said = {
        "given_back": f"job {job} (a) is given back again and again, and waits longer "
        "each time: the runner stopped"
    }
    assert found(held) == said
    attempt = held.begin(job)
    assert found(held) == said
    held.settle(attempt)
    assert found(held) == {}


def test_the_docs_name_all_rows_that_there_can_be(db: Sql) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text("utf-8")
    [listed] = re.findall(
        r"rows of\s`litejobs_health`, for any client,(.*?)\.", page, re.DOTALL
    )
    parts = (
        "litejobs__health",
        "litejobs__lack_of_room",
        "litejobs__retention_finding",
    )
    views = "".join(
        db.value("select sql from sqlite_schema where name = ?", (name,))
        for name in parts
    )
    codes = set(re.findall(r"'(\w+)'(?: as code)?,\s+'(?:problem|warning)'", views))
    assert set(re.findall(r"`(\w+)`", listed)) == codes
    assert all(f"`{code}`" in page.partition("| --- |")[2] for code in codes)
