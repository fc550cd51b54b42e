"""`pytest --litejobs-coverage`: what of the schedule logic a suite has exercised."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import freezegun
import pytest

import litejobs
from litejobs import Rule
from litejobs.testing import coverage_report, held_clock
from litejobs.testing.coverage import ENDS, Collector, Seen
from tests.process.test_clock import LOAD

pytest_plugins = ["pytester"]

SUITE = """
import datetime as dt
import freezegun
import litejobs
import pytest

@pytest.mark.parametrize("path", [":memory:", "jobs.db"])
def test_mail(path, tmp_path):
    with freezegun.freeze_time("2026-01-01") as clock:
        jobs = litejobs.LiteJobs(path if path == ":memory:" else tmp_path / path)

        @jobs.task(max_attempts=2)
        def mail(to):
            if to == "nobody":
                raise LookupError(to)

        mail.enqueue("ann")
        mail.enqueue("nobody")
        jobs.drain()
        clock.tick(dt.timedelta(hours=1))
        jobs.drain()
        jobs.close()

def test_nothing_of_ours():
    pass
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    yield collector
    collector.stop()


def seen_by(collector: Collector) -> Seen:
    seen = Seen()
    seen.merge(collector.dump())
    return seen


def test_each_kind_is_seen_and_what_was_not_is_known(collector: Collector) -> None:
    with held_clock(), freezegun.freeze_time("2026-01-01 00:00:30") as clock:
        jobs = litejobs.LiteJobs(":memory:")

        @jobs.task(
            policy=litejobs.Policy(
                [
                    Rule("outcome.error.type == 'LookupError'", "fail"),
                    Rule("outcome.error.type == 'OSError'", "retry"),
                ],
                otherwise="fail",
            )
        )
        def fetch(name: str) -> None:
            raise LookupError(name)

        @jobs.schedule(litejobs.every("1m"), name="tidied")
        def tidy() -> None:
            pass

        fetch.enqueue("a")
        jobs.pause("default")
        jobs.drain()
        jobs.resume("default")
        jobs.drain()
        clock.tick(dt.timedelta(minutes=1))
        jobs.drain()
        jobs.close()
    seen = seen_by(collector)
    assert seen.times["stop"] == {"rule_fail": seen.times["stop"]["rule_fail"]}
    assert set(seen.times["reason"]) >= {"queue_paused"}
    assert seen.times["end"] == {
        "fetch: dead-lettered": 1,
        f"{tidy.name}: done": 1,
    }
    assert [*seen.times["schedule"]] == ["tidied: fired"]
    assert seen.times["rule"] == {
        "fetch rule 1: fail if outcome.error.type == 'LookupError'": 1
    }
    assert coverage_report.missed(seen, "rule") == [
        "fetch rule 2: retry if outcome.error.type == 'OSError'"
    ]
    assert seen.times["move"]["processing -> dead_lettered"] == 1
    assert "blocked -> pending" in coverage_report.missed(seen, "move")
    assert seen.times["trigger"]["litejobs__apply_policy_decides"] == 1
    assert "litejobs_undoing_takes_back" in coverage_report.missed(seen, "trigger")


def test_what_was_rolled_back_was_not_seen(collector: Collector) -> None:
    with held_clock():
        jobs = litejobs.LiteJobs(":memory:")

        @jobs.task
        def work() -> None:
            pass

        with pytest.raises(ZeroDivisionError), jobs.transaction():
            work.using(delay="1h").enqueue()
            raise ZeroDivisionError
        work.enqueue()
        jobs.close()
    assert seen_by(collector).times["move"] == {"enqueued -> pending": 1}


def test_log_of_before_counts_for_nothing(collector: Collector, tmp_path: Any) -> None:
    collector.stop()
    with held_clock():
        jobs = litejobs.LiteJobs(tmp_path / "jobs.db")

        @jobs.task
        def work() -> None:
            pass

        work.enqueue()
        jobs.close()
        collector.start()
        jobs = litejobs.LiteJobs(tmp_path / "jobs.db")
        jobs.get(1).cancel()
        jobs.close()
    assert seen_by(collector).times["move"] == {"pending -> cancelled": 1}


def test_names_that_are_not_text_are_counted_all_the_same(collector: Collector) -> None:
    with held_clock():
        jobs = litejobs.LiteJobs(":memory:")
        with jobs.transaction() as connection:
            connection.execute(
                "insert into litejobs_task (name) values (cast(x'62ff' as text))"
            )
        with jobs.transaction() as connection:
            connection.execute(
                "insert into litejobs_job (task) values (cast(x'62ff' as text))"
            )
        jobs.close()
    seen = seen_by(collector)
    assert seen.times["move"] == {"enqueued -> pending": 1}
    assert "\ufffd" in coverage_report.as_text(seen)


@pytest.mark.parametrize(
    "workers", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "workers"]
)
def test_option_tells_at_the_end(pytester: pytest.Pytester, workers: Any) -> None:
    if workers:
        pytest.importorskip("xdist", reason="workers need pytest-xdist")
    pytester.makepyfile(SUITE)
    # Workers are not started from here: this process may be one.
    begin = pytester.runpytest_subprocess if workers else pytester.runpytest_inprocess
    run = begin(*LOAD, *workers, "--litejobs-coverage-html=out/page.html")
    run.assert_outcomes(passed=3)
    run.stdout.fnmatch_lines(
        [
            "*= litejobs coverage =*",
            "states * 5 of 8",
            "    never: scheduled, blocked, cancelled",
            "moves *",
            "triggers * of *",
            "task mail: done 2, retried 2, dead-lettered 2",
            "    never: cancelled, timed out, crashed",
            "written to out?page.html",
        ]
    )
    page = (pytester.path / "out" / "page.html").read_text(encoding="utf-8")
    assert re.search(r"<tr><td>mail<td class='times seen'>2<td", page)


@pytest.mark.parametrize("page", ["", "."])
def test_a_page_that_cannot_be_is_refused_at_once(
    pytester: pytest.Pytester, page: str
) -> None:
    pytester.makepyfile("def test_other(): pass")
    run = pytester.runpytest_inprocess(*LOAD, f"--litejobs-coverage-html={page}")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["ERROR: --litejobs-coverage-html=* is not the path of*"])


def test_a_page_that_cannot_be_written_takes_nothing_from_the_report(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(page="", test_other="def test_other(): pass")
    run = pytester.runpytest_inprocess(*LOAD, "--litejobs-coverage-html=page.py/a")
    run.assert_outcomes(passed=1)
    run.stdout.fnmatch_lines(["cannot be written to page.py?a: *"])


def test_without_the_option_nothing_is_looked_at(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SUITE
        + """
def test_it_is_not_imported():
    import sys
    assert "litejobs.testing.coverage" not in sys.modules
"""
    )
    run = pytester.runpytest_subprocess(*LOAD, "-k", "memory or imported")
    run.assert_outcomes(passed=2, deselected=2)
    run.stdout.no_fnmatch_line("*litejobs coverage*")


def test_suite_that_opens_no_file_is_told_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): pass")
    run = pytester.runpytest_inprocess(*LOAD, "--litejobs-coverage")
    run.stdout.fnmatch_lines(["No file of litejobs was opened."])


class Page(HTMLParser):
    """Says what it reads, and whether each attribute was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_names_are_shown_as_they_are_and_are_no_markup() -> None:
    seen = Seen()
    name = "<script>alert('1')</script>"
    seen.know("task", name)
    seen.know("schedule_name", name)
    seen.add("end", f"{name}: {ENDS[0]}", 3)
    seen.know("rule", name)
    page = Page()
    page.feed(coverage_report.as_html(seen))
    assert "script" not in page.tags
    assert page.text.count(name) == 3
    assert f"task {name}: done 3" in coverage_report.as_text(seen)


def test_a_schedule_is_not_taken_for_one_whose_name_goes_on() -> None:
    seen = Seen()
    for name in ("backup", "backup: weekly"):
        seen.know("schedule_name", name)
    seen.add("schedule", "backup: weekly: done")
    assert "never came: backup" in coverage_report.as_text(seen).splitlines()[-1]
    page = Page()
    page.feed(coverage_report.as_html(seen))
    text = "".join(page.text)
    assert "backupnever came\nbackup: weeklydone\n" in text


def test_long_lists_are_cut_in_a_terminal_alone() -> None:
    seen = Seen()
    for number in range(100):
        seen.know("schedule_name", f"s{number}")
    text = coverage_report.as_text(seen)
    assert "s39, and 60 more" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 88
    assert "s99" in coverage_report.as_html(seen)
