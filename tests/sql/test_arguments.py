"""Jobs whose arguments do not fit the code: found, held with a reason, let go."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from litejobs._definitions.arguments import Binder, parted, with_id
from litejobs._definitions.callables import signatures_of
from tests.sql.fixture import SECOND, Sql

HELD = ("arguments_do_not_fit", "task a")
MISFIT = ',"error":{"type":"BadJob","code":"arguments_do_not_fit"}'


def takes(db: Sql, function: Any, task: str = "a") -> None:
    """A runner has this function as the task."""
    text = with_id(Binder(task, signatures_of(function)).signature())
    db.execute("update litejobs_task set signature = ? where name = ?", (text, task))


def old(to: Any) -> None: ...


def new(to: Any, subject: Any) -> None: ...


def problem(db: Sql, job: int) -> str | None:
    [found] = db.column("select problem from litejobs__misfit where job_id = ?", (job,))
    return None if found is None else str(found)


def codes(db: Sql, job: int) -> list[tuple[str, str]]:
    return [
        (row[0], row[1])
        for row in db.execute(
            "select code, object from litejobs_block where job_id = ?", (job,)
        )
    ]


@pytest.fixture
def a(held: Sql) -> Sql:
    """The task is served by code that takes `to`."""
    held.serve("a", jitter=0.0)
    takes(held, old)
    return held


def lanes(db: Sql) -> list[str]:
    return db.column("select misfit from litejobs_lane order by id")


# Found --------------------------------------------------------------------------------


def test_what_no_longer_fits_is_held_when_the_code_has_changed(a: Sql) -> None:
    jobs = [
        a.enqueue(args=args) for args in ('{"to":1}', "[1]", '{"to":1,"subject":2}')
    ]
    assert [codes(a, each) for each in jobs] == [[], [], []]
    takes(a, new)
    assert [codes(a, each) for each in jobs] == [[HELD], [HELD], []]
    assert a.column("select job_id from litejobs_misfit order by 1") == jobs[:2]
    assert a.claim(9) == [a.job(jobs[2]).attempt_id]
    [detail] = a.column(
        "select detail from litejobs_why where job_id = ? and code = ?",
        (jobs[0], HELD[0]),
    )
    assert detail == "its arguments do not fit its task: subject is missing"
    assert (a.job(jobs[0]).attempts, a.job(jobs[0]).starts) == (0, 0)


def test_the_doctor_counts_what_is_held(a: Sql) -> None:
    jobs = [a.enqueue(args="[1]") for _ in range(3)]
    takes(a, new)
    found = a.execute(
        "select code, sentence from litejobs_doctor where level = 'warning'"
    )
    assert found == [
        (
            "arguments_do_not_fit",
            "task a does not take the arguments of jobs that wait for it: 3",
        )
    ]
    takes(a, old)
    assert a.execute("select code from litejobs_doctor where level = 'warning'") == []
    assert len(a.claim(9)) == len(jobs)


def test_no_more_than_the_first_in_line_are_looked_at(a: Sql) -> None:
    a.execute(
        "insert into litejobs_job (task, args) select 'a', '[1]' from ("
        "with recursive n (n) as (select 1 union all select n + 1 from n where n < 502)"
        "select n from n)"
    )
    takes(a, new)
    assert a.value("select count(*) from litejobs_misfit") == 500
    # Whoever runs one of the others finds that out, and the rest are looked at.
    [attempt] = a.claim(1)
    a.settle(attempt, "interrupted", MISFIT)
    assert a.value("select count(*) from litejobs_misfit") == 501
    assert a.claim(9) == []
    assert a.value("select count(*) from litejobs_misfit") == 502
    assert a.value("select has_misfits from litejobs_task") == 0


def test_a_job_that_could_not_begin_has_lost_no_attempt(a: Sql) -> None:
    a.serve("b", max_attempts=1)
    job = a.enqueue("b", args="[1]")
    attempt = a.begin(job)
    a.settle(attempt, "interrupted", MISFIT)
    row = a.job(job)
    assert (row.state, row.attempts, row.starts) == ("pending", 0, 1)
    assert codes(a, job) == [("arguments_do_not_fit", "task b")]
    assert a.claim(9) == []
    takes(a, new, task="b")
    assert codes(a, job) == [("arguments_do_not_fit", "task b")]
    takes(a, old, task="b")
    assert len(a.claim(9)) == 1


def test_an_attempt_that_was_interrupted_otherwise_holds_nothing(a: Sql) -> None:
    job = a.enqueue()
    a.settle(a.begin(job), "interrupted", ',"error":{"type":"TaskStopped"}')
    a.settle(a.begin(job), "error", MISFIT)
    assert a.column("select job_id from litejobs_misfit") == []


# Let go -------------------------------------------------------------------------------


def test_code_that_takes_them_again_lets_all_go_at_once(a: Sql) -> None:
    jobs = [a.enqueue(args="[1]") for _ in range(3)]
    takes(a, new)
    assert a.claim(9) == []
    takes(a, lambda to, subject=None: None)
    assert [codes(a, each) for each in jobs] == [[], [], []]
    assert len(a.claim(9)) == len(jobs)


def test_what_fits_neither_is_held_for_the_new_reason(a: Sql) -> None:
    job = a.enqueue(args="[1]")
    takes(a, new)
    takes(a, lambda to, subject, cc: None)
    assert codes(a, job) == [HELD]
    assert a.value("select count(*) from litejobs_misfit") == 1
    takes(a, new)
    assert codes(a, job) == [HELD]
    a.execute("update litejobs_misfit set signature = signature")
    assert codes(a, job) == [HELD]


def test_other_arguments_let_a_job_go(a: Sql) -> None:
    job = a.enqueue(args="[1]")
    takes(a, new)
    a.execute("update litejobs_job set args = '[1]' where id = ?", (job,))
    assert codes(a, job) == [HELD]
    a.execute("update litejobs_job set args = '[1, 2]' where id = ?", (job,))
    assert (codes(a, job), len(a.claim(9))) == ([], 1)


def test_who_deletes_the_row_lets_a_job_go(a: Sql) -> None:
    job = a.enqueue(args="[1]")
    takes(a, new)
    a.execute("delete from litejobs_misfit")
    assert (codes(a, job), len(a.claim(9))) == ([], 1)


def test_a_job_that_is_held_can_be_cancelled_and_requeued(a: Sql) -> None:
    job = a.enqueue(args="[1]")
    takes(a, new)
    a.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    a.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    assert codes(a, job) == [HELD]


def test_a_job_with_a_key_is_held_with_its_key(a: Sql) -> None:
    held = a.enqueue(args="[1]", concurrency_key="k")
    takes(a, new)
    other = a.enqueue(args="[1, 2]", concurrency_key="k")
    assert (codes(a, held), codes(a, other)) == ([HELD], [])
    assert a.claim(9) == [a.job(other).attempt_id]
    a.settle(a.job(other).attempt_id)
    takes(a, old)
    assert a.claim(9) == [a.job(held).attempt_id]


def test_jobs_that_are_asked_for_meanwhile_are_in_the_open_lane(a: Sql) -> None:
    a.enqueue(args="[1]")
    takes(a, new)
    job = a.query("enqueue_job", **for_new(a))[0].id
    assert (codes(a, job), len(a.claim(9))) == ([], 1)


def for_new(db: Sql) -> dict[str, Any]:
    """What the statement is given that enqueues a job that fits."""
    import re

    from litejobs._storage import statements

    names = re.findall(r":(\w+)", statements.queries()["enqueue_job"])
    return dict.fromkeys(names) | {"task": "a", "args": "[1, 2]", "wait_ms": 0}


def test_lanes_of_the_held_go_with_the_last_of_them(a: Sql) -> None:
    plain = a.enqueue(args="[1]")
    keyed = a.enqueue(args="[1]", concurrency_key="k")
    takes(a, new)
    assert sum(each != "" for each in lanes(a)) == 2
    for job in (plain, keyed):
        a.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
        a.execute("delete from litejobs_job where id = ?", (job,))
    assert a.value("select count(*) from litejobs_misfit") == 0
    for _ in range(3):
        a.wait(2 * SECOND)
        a.execute("insert into litejobs__sweep (most) values (500)")
    assert lanes(a) == [""]


def test_a_lane_with_jobs_that_are_held_stays(a: Sql) -> None:
    a.enqueue(args="[1]")
    takes(a, new)
    [lane] = a.column("select id from litejobs_lane where misfit <> ''")
    a.execute("insert into litejobs__leave (kind, name) values ('lane', ?)", (lane,))
    a.execute("insert into litejobs__sweep (most) values (500)")
    assert a.column("select id from litejobs_lane where misfit <> ''") == [lane]
    assert "immutable_lane" in a.refused(
        "delete from litejobs_lane where id = ?", (lane,)
    )
    assert "immutable_lane" in a.refused(
        "update litejobs_lane set misfit = '' where id = ?", (lane,)
    )


def test_a_row_is_of_one_job_that_is_there(a: Sql) -> None:
    job, other = a.enqueue(args="[1]"), a.enqueue(args="[1, 2]")
    takes(a, new)
    assert "invalid_misfit" in a.refused("insert into litejobs_misfit values (77, 'x')")
    assert "invalid_misfit" in a.refused(
        "update litejobs_misfit set job_id = ? where job_id = ?", (other, job)
    )
    for text in ("", "x" * 101):
        assert "litejobs_misfit_signature_length" in a.refused(
            "update litejobs_misfit set signature = ?", (text,)
        )


def test_a_task_has_misfits_or_not(db: Sql) -> None:
    refused = db.refused(
        "insert into litejobs_task (name, has_misfits) values ('x', 2)"
    )
    assert "litejobs_task_has_misfits_is_flag" in refused


@pytest.mark.parametrize("text", ["x", "{}", '{"id":""}', '{"id":"' + "x" * 101 + '"}'])
def test_a_signature_is_json_with_an_id(db: Sql, text: str) -> None:
    statement = "insert into litejobs_task (name, signature) values ('x', ?)"
    assert "litejobs_task_signature_is_json" in db.refused(statement, (text,))


# What fits ----------------------------------------------------------------------------


def test_what_does_not_fit_is_said_in_words(a: Sql) -> None:
    takes(a, new)
    found = {
        args: problem(a, a.enqueue(args=args))
        for args in (
            '{"*":1}',
            '{"*":[1],"subject":2}',
            '{"*":[1],"to":2,"subject":3}',
            '{"*":[1,2],"cc":3}',
            '{"*":[1,2,3]}',
            '{"*":[],"to":1}',
            "[]",
            "[1]",
            "[1,2]",
            "[1,2,3]",
            "{}",
            '{"to":1,"subject":2,"cc":3}',
        )
    }
    assert found == {
        '{"*":1}': "* has no list",
        '{"*":[1],"subject":2}': None,
        '{"*":[1],"to":2,"subject":3}': "to is given twice",
        '{"*":[1,2],"cc":3}': "cc is not taken",
        '{"*":[1,2,3]}': "3 are given, and 2 are taken",
        '{"*":[],"to":1}': "subject is missing",
        "[]": "to is missing",
        "[1]": "subject is missing",
        "[1,2]": None,
        "[1,2,3]": "3 are given, and 2 are taken",
        "{}": "to is missing",
        '{"to":1,"subject":2,"cc":3}': "cc is not taken",
    }


def test_a_step_is_asked_for_what_it_requires(a: Sql) -> None:
    a.add_steps("one", "two")
    steps = {"one": ["url"], "two": ["size"]}
    text = json.dumps({"id": "f", "steps": steps})
    a.execute("update litejobs_task set signature = ?", (text,))
    first = a.enqueue(args='{"url":1,"more":2}')
    assert problem(a, first) is None
    assert problem(a, a.enqueue(args='{"size":1}')) == "url is missing"
    assert problem(a, a.enqueue(args="[1]")) is None
    assert problem(a, a.enqueue(args='{"url":1}', step="two")) == "size is missing"
    assert problem(a, a.enqueue(args='{"size":1}', step="two")) is None


def test_what_fits_is_what_python_takes(a: Sql) -> None:
    r = random.Random(20260105)
    fitting = 0
    for _ in range(400):
        function = drawn(r)
        takes(a, function)
        binder = Binder("a", signatures_of(function))
        names = ["a", "b", "c", "d", "prev"]
        places, named = (
            [0] * r.randint(0, 5),
            dict.fromkeys(r.sample(names, r.randint(0, 5)), 0),
        )
        args: Any = r.choice([places, named, {"*": places[:3], **named}])
        job = a.enqueue(args=json.dumps(args))
        found = binder.misfit(args)
        assert problem(a, job) == found
        told = f"{inspect.signature(function)} of {args}: {found}"
        assert (found is None) == is_taken(function, binder, args), told
        fitting += found is None
        a.execute("delete from litejobs_misfit")
        a.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    assert 40 < fitting < 360


def is_taken(function: Any, binder: Binder, args: Any) -> bool:
    """Whether the function can be called so, with `prev` as a runner adds it."""
    places, names = parted(args)
    if binder.takes_prev and binder.lacks_prev(places, names):
        names = {**names, "prev": 0}
    try:
        function(*places, **names)
    except TypeError:
        return False
    return True


def drawn(
    r: random.Random,
    *,
    kinds: Sequence[int] = (0, 1, 1, 1, 3, 3),
    names: Sequence[str] = ("a", "b", "c", "d", "prev"),
) -> Any:
    """A function with parameters of any kind; it returns what they are."""
    names = r.sample(names, r.randint(0, len(names)))
    kinds = sorted(r.choice(kinds) for _ in names)
    parameters, optional = [], False
    for name, kind in zip(names, kinds, strict=True):
        keyword = kind == inspect.Parameter.KEYWORD_ONLY
        has_default = r.random() < 0.4 or (optional and not keyword)
        optional = optional or (has_default and not keyword)
        default = None if has_default else inspect.Parameter.empty
        known = inspect._ParameterKind(kind)
        parameters.append(inspect.Parameter(name, known, default=default))
    for name, kind in (("args", 2), ("rest", 4)):
        if r.random() < 0.15:
            parameters.append(inspect.Parameter(name, inspect._ParameterKind(kind)))
    parameters.sort(key=lambda each: each.kind)
    text = str(inspect.Signature(parameters))
    return eval(f"lambda {text[1:-1]}: locals()")
