"""The benchmarks run, and say what they measured; how fast is not asserted."""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
from click.testing import CliRunner

from litejobs import LiteJobs
from tests.bench import __main__ as command
from tests.bench import _cli, _executors, _large, _line, _schedules
from tests.bench._figures import (
    Bar,
    Durability,
    Figure,
    Measured,
    Result,
    Sizes,
    Workload,
    measure,
    report,
)
from tests.bench._statements import HOT, profile
from tests.bench._subject import on_file
from tests.waiting import Times

TINY = Sizes(
    single=3,
    threads=32,
    bulk=20,
    drain=20,
    keyed=20,
    keys=4,
    retries=4,
    rules=2,
    flow=4,
    latency=2,
    other=1,
    other_seconds=0.01,
    sleeps=2,
    idle=0.05,
    wear=2,
    memory=20,
    finished=30,
    huge=40,
    future=30,
    behind=30,
    large_single=3,
    large_drain=10,
    large_claim=2,
    large_latency=2,
    profile=20,
    line=40,
    lanes=30,
    line_batches=1,
    line_singles=2,
    line_urgent=2,
    schedules=20,
    often=4,
    often_seconds=1,
    idle_seconds=0.01,
    probes=2,
    commands=8,
    tests=2,
    placed=4,
    burned=2,
    cancelled=1,
    simulated_minutes=15,
)


# Nothing of these is as it should be; a disk in memory is worn by nothing, too.
NOTHING = {"writes", "written", "locked", "alone", "together"}


@pytest.fixture(autouse=True)
def few_jobs_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_large, "WARM", 2)
    monkeypatch.setattr(_line, "WARM", 1)
    monkeypatch.setattr(_line, "BATCH", 4)
    monkeypatch.setattr(_schedules, "LOOKS", 20)
    monkeypatch.setattr(_cli, "CLIENTS", 2)
    monkeypatch.setattr(_cli, "LINE", 40)


# The same as others with more processes, of which each takes a while to begin; and what
# `memory-drain` finds out too.
MORE = {
    *("processes", "processes-sixteen", "processes-eight", "processes-pool"),
    *("processes-burn", "processes-burn-three", "processes-burn-two", "memory"),
}


def usual() -> Iterator[Any]:
    """Each once, with one durability and the fewest processes; and as it is."""
    for each in command.USUAL:
        if each not in MORE:
            yield pytest.param(each, False, id=each)
        whole = f"{each}-whole"
        yield pytest.param(each, True, id=whole, marks=pytest.mark.torture)


def in_one_process(measures: Any) -> Any:
    if "slots" not in getattr(measures, "keywords", {}):
        return measures
    return functools.partial(measures.func, slots=1)


def shortened(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """One pair of it, in one process where it is about those."""
    monkeypatch.setattr(_cli, "CLIENTS", 1)
    monkeypatch.setattr(_executors, "TWICE", 1)
    subject, reference = map(in_one_process, (workload.subject, workload.reference))
    return attrs.evolve(
        workload,
        subject=subject,
        reference=reference,
        pairs=1,
        durabilities=workload.durabilities[-1:],
    )


@pytest.mark.parametrize(("name", "whole"), [*usual()])
def test_every_workload_measures_all_its_figures(
    name: str,
    whole: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: Times,
) -> None:
    workload, sizes = command.ALL[name], TINY
    if whole:
        workload = attrs.evolve(workload, pairs=min(workload.pairs, 2))
    else:
        times(end_patience=0.05)  # for a process in a loop of C
        sizes = attrs.evolve(sizes, commands=4)
        workload = shortened(workload, monkeypatch)
    results = measure([workload], tmp_path, sizes, 1)
    assert [(each.figure.name, each.durability) for each in results] == [
        (figure.name, durability)
        for figure in workload.figures
        for durability in workload.durabilities
    ]
    for result in results:
        assert len(result.subject) == len(result.reference) == workload.pairs
        least = min(*result.subject, *result.reference)
        if result.figure.name == "locked":
            assert (result.subject, result.reference) == ([0], [0])
        assert least > 0 or (least == 0 and result.figure.name in NOTHING)


def result(
    figure: Figure, pairs: list[tuple[float, float]], durability: Any = "full"
) -> Result:
    workload = Workload(
        name="example",
        says="",
        figures=(figure,),
        subject=lambda *_: {},
        reference=lambda *_: {},
    )
    subject = [pair[0] for pair in pairs]
    reference = [pair[1] for pair in pairs]
    return Result(workload, figure, durability, subject, reference)


def test_the_ratio_is_taken_within_pairs() -> None:
    # By medians alone it would be 2: a slow moment hit two references and one subject.
    pairs = [(10.0, 20.0), (20.0, 10.0), (20.0, 40.0)]
    rate = result(Figure(name="rate", unit="jobs/s"), pairs)
    assert (rate.value, rate.reference_value, rate.ratio) == (20.0, 20.0, 0.5)


def test_a_time_is_better_when_it_is_less() -> None:
    time = result(Figure(name="p50", unit="ms"), [(10.0, 5.0)])
    assert time.ratio == 0.5


@pytest.mark.parametrize(
    ("bar", "unit", "pair", "reached"),
    [
        (Bar(of="value", limit=5_000), "jobs/s", (5_000, 9_999), True),
        (Bar(of="value", limit=5_000), "jobs/s", (4_999, 1), False),
        (Bar(of="value", limit=2), "ms", (2.0, 1.0), True),
        (Bar(of="value", limit=2), "ms", (2.1, 9.0), False),
        (Bar(of="value", limit=0), "signs", (0, 0), True),
        (Bar(of="value", limit=0), "signs", (1, 0), False),
        (Bar(of="ratio", limit=0.8), "jobs/s", (80, 100), True),
        (Bar(of="ratio", limit=0.8), "ms", (100, 79), False),
    ],
)
def test_a_bar_is_reached_or_missed(
    bar: Bar, unit: str, pair: tuple[float, float], reached: bool
) -> None:
    figure = Figure(name="figure", unit=unit, bars=(bar,))
    assert result(figure, [pair]).reached is reached
    assert result(figure, [pair], "fast").reached is None


def test_a_figure_has_to_reach_all_bars_of_its_durability() -> None:
    bars = (
        Bar(of="value", limit=100),
        Bar(of="ratio", limit=0.5),
        Bar(of="value", limit=300, durability="fast"),
    )
    figure = Figure(name="rate", unit="jobs/s", bars=bars)
    full, fast = (result(figure, [(200, 1000)], each) for each in ("full", "fast"))
    assert full.bars == [("≥ 100 jobs/s", True), ("ratio ≥ 0.5", False)]
    assert fast.bars == [("≥ 300 jobs/s", False)]
    assert (full.reached, fast.reached) == (False, False)
    assert "≥ 100 jobs/s: reached; ratio ≥ 0.5: MISSED" in report([full, fast])
    assert full.document()["bars"] == [
        {"bar": "≥ 100 jobs/s", "reached": True},
        {"bar": "ratio ≥ 0.5", "reached": False},
    ]


def test_nothing_beside_something_is_no_number_in_json() -> None:
    endless = result(Figure(name="writes", unit="signs"), [(0, 2)])
    assert endless.ratio == math.inf
    assert endless.document()["ratio"] is None


def test_a_long_workload_runs_less_often_and_with_what_it_tells_apart(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def measures(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
        asked.append(durability)
        return {"rate": 1.0}

    workload = Workload(
        name="long",
        says="",
        figures=(Figure(name="rate", unit="jobs/s"),),
        subject=measures,
        reference=measures,
        most_rounds=2,
        durabilities=("fast",),
    )
    (measured,) = measure([workload], tmp_path, TINY, 5)
    assert asked == ["fast"] * 4
    assert measured.subject == [1.0, 1.0]


def test_the_command_prints_a_table_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)
    file = tmp_path / "figures.json"
    options = ["bulk", "threads-bare", "--quick", "--rounds", "2", "--json", str(file)]
    shown = CliRunner().invoke(command.main, options, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "Medians of 2 rounds." in shown.output
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["rounds"] == 2
    assert document["sizes"]["bulk"] == 20
    assert [
        (each["workload"], each["figure"], each["unit"], each["durability"])
        for each in document["figures"]
    ] == [
        (workload, figure, unit, durability)
        for workload in ("bulk", "threads-bare")
        for figure, unit in (("rate", "jobs/s"), ("cpu", "µs/job"))
        for durability in ("full", "fast")
    ]
    assert all(len(each["rounds"]) == 2 for each in document["figures"])


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    shown = CliRunner().invoke(command.main, ["speed"])
    assert shown.exit_code == 2
    assert all(name in shown.output for name in command.NAMES)


def test_the_profile_names_the_statements(tmp_path: Path) -> None:
    text = profile(tmp_path, "full", TINY)
    alone, beside = text.split("\n\n")
    for part, title in ((alone, "alone, full: 20 jobs"), (beside, "beside 4 threads")):
        assert part.startswith(title)
        calls = {line.split()[0]: line.split()[1] for line in part.splitlines()[2:]}
        assert calls.keys() & {"settle", "settle_many"}
        assert {"claim", "assignments", "agenda", "commit", "other"} <= calls.keys()


def test_profiles_are_written_as_texts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)
    folder = tmp_path / "texts"
    options = ["profile", "--quick", "--profiles", str(folder)]
    shown = CliRunner().invoke(command.main, options, catch_exceptions=False)
    assert shown.exit_code == 0
    texts = {
        each.stem: each.read_text(encoding="utf-8") for each in folder.glob("*.txt")
    }
    assert {"drain-full", "drain-fast", "single-full", "single-fast"} <= texts.keys()
    assert "enqueue_job" in texts["single-full"]
    assert "execution.py" in texts["python-drain"]
    assert "enqueue" in texts["python-single"]
    parts = texts["plans"].split("\n\n")
    assert [part.splitlines()[0] for part in parts[1:]] == list(HOT)
    assert "INDEX litejobs_attempt_one_open" in texts["plans"]
    assert "litejobs_claim_opens_attempts" in texts["plans"]


def filled(connection: apsw.Connection, statement: str) -> list[Any]:
    """Which columns of each row have a value; words are kept as they are."""
    cursor = connection.execute(statement)
    return [
        [
            (column[0], value if isinstance(value, str) else value is not None)
            for column, value in zip(cursor.description, row, strict=True)
            if column[0] not in {"args", "outcome"}
        ]
        for row in cursor
    ]


def test_the_large_file_is_as_real_jobs_would_have_left_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_large, "CHUNK", 20)
    large = _large.Large("large", lambda sizes: sizes.finished)
    large.build(tmp_path, TINY)
    path = large.path(tmp_path)
    with on_file(path, "full") as subject:
        behind = _large.Behind(subject)
        assert subject.jobs.counts() == {
            "completed": 30,
            "scheduled": 30,
            "pending": 30,
        }
        subject.enqueue(1)
        behind.drain(90, 1)
        subject.nothing.using(delay="1h").enqueue(1)
        behind.enqueue()
        assert subject.jobs.counts()["pending"] == 31
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.pragma("integrity_check") == "ok"
        assert not connection.execute("pragma foreign_key_check").fetchall()
        for job, real in ((1, 91), (31, 92), (90, 93)):
            for statement in (
                "select * from litejobs_job where id = ?",
                "select * from litejobs_attempt where job_id = ?",
                "select * from litejobs__transition where job_id = ? order by id",
            ):
                made = filled(connection, statement.replace("?", str(job)))
                assert made or "attempt" in statement
                assert made == filled(connection, statement.replace("?", str(real)))


def test_the_large_file_needs_no_upgrade(tmp_path: Path) -> None:
    large = _large.Large("large", lambda sizes: sizes.finished)
    large.build(tmp_path, TINY)
    with LiteJobs(large.path(tmp_path)) as jobs:
        assert jobs.list(state="scheduled", limit=1)[0].task == "nothing"


WRONG_LANES = """
select lane.*
from litejobs_lane as lane
left join litejobs__head as head on head.lane_id = lane.id
join litejobs__own_gate as gate on gate.lane_id = lane.id
where base_id is not null
and (
    (lane.head_id, lane.head_priority, lane.head_at)
        is not (head.head_id, head.head_priority, head.head_at)
    or lane.head_id is not null and parked <> (replace(closed, 'key_full ', '') <> '')
)
"""


# One of each way to build a file and of each thing that is measured in it.
EACH_KIND = {
    *("line-key", "line-keys", "line-keys-alone", "line-circuit-moves", "line-due"),
}


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(
            each,
            id=each.name,
            marks=[] if each.name in EACH_KIND else pytest.mark.torture,
        )
        for each in _line.LINE
    ],
)
def test_every_line_is_measured_and_in_order_afterwards(
    workload: Workload, tmp_path: Path
) -> None:
    workload = attrs.evolve(workload, pairs=1)
    results = measure([workload], tmp_path, TINY, 1, durabilities=["full"])
    assert [each.figure for each in results] == list(workload.figures)
    for each in results:
        assert min(*each.subject, *each.reference) > 0
    (path,) = tmp_path.glob("line-*.db")
    with contextlib.closing(apsw.Connection(str(path))) as file:
        assert file.pragma("integrity_check") == "ok"
        assert not file.execute(WRONG_LANES).fetchall()


ONE_LANE = {
    workload.name: workload
    for workload in _line.LINE
    if workload.name in {"line-key", "line-circuit", "line-paused", "line-due"}
}


@pytest.mark.parametrize("name", sorted(ONE_LANE))
def test_the_jobs_of_a_line_are_as_real_ones_would_have_been(
    name: str, tmp_path: Path
) -> None:
    prepare = ONE_LANE[name].prepare
    assert prepare is not None
    prepare(tmp_path, TINY)
    with contextlib.closing(apsw.Connection(str(tmp_path / f"{name}.db"))) as file:
        assert file.pragma("integrity_check") == "ok"
        assert not file.execute("pragma foreign_key_check").fetchall()
        model, made = file.execute(
            "select id, count(*) over () from litejobs_job order by id"
        ).fetchone()
        assert (model, made) == (1, TINY.line)
        file.execute(
            "insert into litejobs_job (task, queue, run_at, concurrency_key, "
            "concurrency_limit, circuit, args) "
            "select task, queue, created_at + iif(state = 'pending', 0, 3600000), "
            "concurrency_key, concurrency_limit, circuit, args "
            "from litejobs_job where id = 1"
        )
        real = file.last_insert_rowid()
        for statement in (
            "select * from litejobs_job where id = ?",
            "select * from litejobs__transition where job_id = ?",
        ):
            assert filled(file, statement.replace("?", "1")) == filled(
                file, statement.replace("?", str(real))
            )
        lanes = "select count(distinct lane_id) from litejobs_job"
        assert file.execute(lanes).fetchall() == [(1,)]


QUICKEST = ("idle", "plan", "fire", "on-10y")  # the others wait for whole seconds


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(
            each,
            id=each.name,
            marks=[] if each.name.endswith(QUICKEST) else pytest.mark.torture,
        )
        for each in _schedules.SCHEDULES
    ],
)
def test_schedules_are_measured_and_all_come(
    workload: Workload, tmp_path: Path
) -> None:
    workload = attrs.evolve(workload, pairs=1)
    results = measure([workload], tmp_path, TINY, 1, durabilities=["fast"])
    assert [each.figure for each in results] == list(workload.figures)
    for each in results:
        assert min(*each.subject, *each.reference) > 0


def test_the_line_is_as_long_as_it_is_asked_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)
    file = tmp_path / "figures.json"
    options = ["line-due", "--quick", "--size", "1000", "--rounds", "1"]
    options += ["--json", str(file)]
    shown = CliRunner().invoke(command.main, options, catch_exceptions=False)
    assert shown.exit_code == 0
    sizes = json.loads(file.read_text(encoding="utf-8"))["sizes"]
    assert (sizes["line"], sizes["lanes"]) == (1000, 100)
