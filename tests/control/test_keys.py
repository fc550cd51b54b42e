"""Keys are templates, and two spellings of one call have one key, wherever one asks."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

from litejobs import Circuit, LiteJobs, Task, every
from litejobs.errors import ConfigurationError, JobExists, LiteJobsError

KEY = "{host}:{port}"


class Unstorable:
    """A default that JSON cannot hold."""


@pytest.fixture
def probe(jobs: LiteJobs) -> Task[..., None]:
    @jobs.task(concurrency_key=f"k {KEY}", circuit=Circuit(f"c {KEY}"), rate="1/h")
    def probe(
        host: str, port: int = 80, how: object = Unstorable(), *, tls: bool = False
    ) -> None: ...

    return probe


def keys(jobs: LiteJobs) -> list[tuple[Any, ...]]:
    with jobs.reader() as db:
        return db.execute(
            "select unique_key, concurrency_key, circuit from litejobs_job order by id"
        ).fetchall()


# Each asks once for probe("a") and once for probe("a", port=80), in another spelling.
def by_using(jobs: LiteJobs, task: Task[..., None]) -> None:
    task.using(unique_key=KEY).enqueue("a")
    task.using(unique_key=KEY).enqueue(port=80, host="a", tls=False)


def by_name(jobs: LiteJobs, task: Task[..., None]) -> None:
    jobs.enqueue("probe", {"host": "a"}, unique_key=KEY)
    jobs.enqueue("probe", ["a", 80], unique_key=KEY)


def in_coroutines(jobs: LiteJobs, task: Task[..., None]) -> None:
    async def ask() -> None:
        using = task.using(unique_key=KEY)
        await asyncio.gather(using.aenqueue("a"), using.aenqueue("a", 80))
        await jobs.aenqueue("probe", ["a", 80], unique_key=KEY)

    asyncio.run(ask())


def many(jobs: LiteJobs, task: Task[..., None]) -> None:
    using = task.using(unique_key=KEY)
    ids = jobs.enqueue_many([using.call("a"), using.call("a", port=80)])
    assert ids.is_new == [True, False]


def in_a_chain(jobs: LiteJobs, task: Task[..., None]) -> None:
    jobs.enqueue_chain([task.using(unique_key=KEY).call("a")])
    jobs.enqueue_chain([task.using(unique_key=KEY).call("a", 80)])


def in_a_batch(jobs: LiteJobs, task: Task[..., None]) -> None:
    with jobs.batch() as batch:
        batch.enqueue(task.using(unique_key=KEY), "a")
        batch.enqueue(task.using(unique_key=KEY), "a", 80)


def by_schedules(jobs: LiteJobs, task: Task[..., None]) -> None:
    for name, args in (("s", ["a"]), ("t", ["a", 80])):
        jobs.schedules.create(name, task, every("1h"), args=args, unique_key=KEY)
        jobs.schedules.run_now(name)


def by_sql(jobs: LiteJobs, task: Task[..., None]) -> None:
    with jobs.transaction() as db:
        for args in ('{"host":"a"}', '["a",80]', '{"port":80,"host":"a"}', '["a"]'):
            db.execute(
                "insert into litejobs_job (task, args, unique_key, on_conflict) "
                "values (?, ?, ?, 'ignore')",
                (task.name, args, KEY),
            )


WAYS: list[Callable[[LiteJobs, Task[..., None]], None]] = [
    *(by_using, by_name, in_coroutines, many, in_a_chain, in_a_batch, by_schedules),
    by_sql,
]


@pytest.mark.parametrize("ask", WAYS)
def test_two_spellings_of_one_call_are_one_job(
    jobs: LiteJobs, probe: Task[..., None], ask: Callable[..., None]
) -> None:
    ask(jobs, probe)
    assert keys(jobs) == [("a:80", "k a:80", "c a:80")]


@pytest.mark.parametrize("key", ["concurrency_key", "circuit"])
def test_a_key_of_a_job_is_filled_in(
    jobs: LiteJobs, probe: Task[..., None], key: str
) -> None:
    """Also where a statement stores several that differ in their arguments alone."""
    own = probe.using(**{key: "own {port}"})
    jobs.enqueue_many([own.call("a"), own.call("b"), own.call("c", 443), own.call("d")])
    place = 1 if key == "concurrency_key" else 2
    assert [row[place] for row in keys(jobs)] == [
        *("own 80", "own 80", "own 443", "own 80")
    ]


def test_jobs_of_a_template_are_not_handed_the_first_one(jobs: LiteJobs) -> None:
    ran = []
    work = jobs.task(ran.append, name="work")
    for v in (1, 2, 1):
        work.using(unique_key="v:{0}").enqueue(v)
    jobs.drain()
    assert ran == [1, 2]
    with pytest.raises(JobExists, match="has the unique key 'v:3'"):
        for _ in range(2):
            work.using(unique_key="v:{0}", on_conflict="raise").enqueue(3)


def test_arguments_stay_stored_as_they_were_given(
    jobs: LiteJobs, probe: Task[..., None]
) -> None:
    assert probe.enqueue("a").args == {"host": "a"}
    assert probe.enqueue("a", port=80).args == {"host": "a", "port": 80}


def test_defaults_stand_in_the_row_of_the_task(
    jobs: LiteJobs, probe: Task[..., None]
) -> None:
    """What JSON cannot hold is null: it has one spelling, that it is left out."""

    @jobs.task
    def any_of(first: int, /, *more: int, own: str = "ö", **names: int) -> None: ...

    jobs.task(lambda prev, x=1: None, name="after")
    jobs.flow("steps", [("one", lambda page=1: None), ("two", lambda how=2: None)])
    with jobs.reader() as db:
        found = dict(db.execute("select name, parameters from litejobs_task"))
    assert json.loads(found["probe"]) == {
        "places": ["host", "port", "how"],
        "defaults": {"port": 80, "how": None, "tls": False},
    }
    assert json.loads(found["any_of"]) == {
        "places": ["first"],
        "defaults": {"own": "ö"},
    }
    assert json.loads(found["after"]) == {
        "places": ["prev", "x"],
        "defaults": {"x": 1},
    }
    assert json.loads(found["steps"]) == {
        "places": ["page"],
        "defaults": {"page": 1, "how": 2},
    }


def test_what_is_not_known_before_a_job_runs_is_no_part_of_its_unique_key(
    jobs: LiteJobs,
) -> None:
    first = jobs.task(lambda: 7, name="first")
    after = jobs.task(lambda prev, x=1: None, name="after").using(
        unique_key="{prev}:{x}"
    )
    with pytest.raises(LiteJobsError, match="names an argument that neither"):
        jobs.enqueue_chain([first.call(), after.call()])
    assert after.enqueue(5).snapshot().unique_key == "5:1"


def test_a_key_is_made_of_what_the_function_within_a_decorator_takes(
    jobs: LiteJobs,
) -> None:
    def probe(host: str, port: int = 80) -> None: ...

    @functools.wraps(probe)
    def logged(*args: Any, **kwargs: Any) -> None: ...

    @functools.wraps(probe)
    def labelled(label: str, *args: Any, **kwargs: Any) -> None: ...

    by_logged = jobs.task(logged, name="logged").using(unique_key=KEY)
    by_logged.enqueue("a")
    for args, more in ((("a", 80), {}), ((), {"host": "a"}), (("a",), {"port": 80})):
        assert not by_logged.enqueue(*args, **more).is_new
    by_label = jobs.task(labelled, name="labelled").using(unique_key=f"l {KEY}")
    by_label.enqueue("x", "a")
    assert not by_label.enqueue("y", host="a", port=80).is_new
    assert [each for each, _, _ in keys(jobs)] == ["a:80", "l a:80"]


def test_a_key_of_an_argument_that_a_decorator_puts_elsewhere_is_refused(
    jobs: LiteJobs,
) -> None:
    """It would be one for all hosts."""

    def probe(connection: object, host: str) -> None: ...

    @functools.wraps(probe)
    def connected(*args: Any, **kwargs: Any) -> None:
        probe(object(), *args, **kwargs)

    task = jobs.task(connected, name="connected").using(unique_key="{host}")
    with pytest.raises(LiteJobsError, match="names an argument that neither"):
        task.enqueue("a")
    assert task.enqueue(host="a").snapshot().unique_key == "a"


def test_a_template_of_a_task_that_is_not_here_is_filled_in(jobs: LiteJobs) -> None:
    assert jobs.enqueue("there", ["a"], unique_key="k:{0}").is_new
    assert not jobs.enqueue("there", ["a"], unique_key="k:{0}").is_new
    with pytest.raises(LiteJobsError, match="names an argument that neither"):
        jobs.enqueue("there", ["a"], unique_key="k:{host}")
    assert len(jobs.list()) == 1


@pytest.mark.parametrize("option", ["unique_key", "concurrency_key", "circuit"])
@pytest.mark.parametrize("key", ["k:{hsot}", "{", '{"a": 1}', "{0}"])
def test_a_brace_that_is_no_argument_of_the_task_is_asked_about(
    jobs: LiteJobs, probe: Task[..., None], option: str, key: str
) -> None:
    create = jobs.schedules.create
    for ask in (
        lambda: probe.using(**{option: key}),
        lambda: jobs.enqueue("probe", ["a"], **{option: key}),
        lambda: jobs.call("probe", ["a"], **{option: key}),
        lambda: jobs.schedule(every("1h"), args=["a"], **{option: key})(probe),
        lambda: create("s", probe, every("1h"), args=["a"], **{option: key}),
        lambda: create("s", "probe", every("1h"), args=["a"], **{option: key}),
    ):
        with pytest.raises(ConfigurationError, match=option):
            ask()
    create("s", probe, every("1h"), args=["a"])
    with pytest.raises(ConfigurationError, match=option):
        jobs.schedules.update("s", **{option: key})
    assert jobs.list() == []


def test_what_is_set_for_a_key_is_set_for_one_of_a_template(
    jobs: LiteJobs, probe: Task[..., None]
) -> None:
    """Nothing would have the template as its key, and so nothing would be held back."""
    probe.enqueue("a")
    jobs.keys["k a:80"].set(max_running=3)
    jobs.circuits["c a:80"].reset()
    for rows in (jobs.keys, jobs.circuits):
        for name in (f"k {KEY}", "{0}"):
            with pytest.raises(ConfigurationError, match="is a template, and stands"):
                rows[name]
        assert f"k {KEY}" not in rows
    assert "{{x}}" not in jobs.keys
    jobs.keys["{{x}}"].set(max_running=1)


def test_a_key_that_looks_like_a_template_can_be_set_where_there_is_one(
    jobs: LiteJobs, probe: Task[..., None]
) -> None:
    probe.using(concurrency_key="{host}").enqueue("{host}")
    jobs.keys["{host}"].set(max_running=3)
    assert jobs.keys["{host}"].max_running == 3
