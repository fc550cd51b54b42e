"""Keys are filled in with arguments: of jobs, tasks and schedules, by plain SQL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import HOUR, Sql

pytestmark = pytest.mark.every_client

KINDS = ("unique_key", "concurrency_key", "circuit")
# def probe(host, port=80, *, tls=False, meta={"zone": "a"})
PARAMETERS = {
    "places": ["host", "port"],
    "defaults": {"port": 80, "tls": False, "meta": {"zone": "a"}},
}


def serve(db: Sql, **columns: Any) -> None:
    db.serve("a", parameters=json.dumps(PARAMETERS), **columns)


# Two spellings of one call ------------------------------------------------------------

TEMPLATE = "{host}:{port}:{tls}:{meta.zone}"
SPELLINGS: list[Any] = [
    ["x"],
    ["x", 80],
    {"host": "x"},
    {"host": "x", "port": 80},
    {"port": 80, "host": "x", "tls": False},
    {"*": ["x"]},
    {"*": ["x", 80], "tls": False},
    {"*": ["x"], "port": 80, "meta": {"zone": "a"}},
    {"*": [], "host": "x"},
]


@for_each("template", [TEMPLATE, "{0}:{1}:{tls}:{meta.zone}"])
@for_each("args", SPELLINGS)
def test_spellings_of_one_call_have_one_key(db: Sql, args: Any, template: str) -> None:
    serve(db, concurrency_key=template, circuit=template)
    job = db.job(db.enqueue("a", args=json.dumps(args), unique_key=template))
    assert [vars(job)[kind] for kind in KINDS] == ["x:80:0:a"] * 3
    assert json.loads(job.args) == args
    again = {"task": "a", "args": '["x"]', "unique_key": template}
    db.insert("litejobs_job", **again, on_conflict="ignore")
    assert db.value("select count(*) from litejobs_job") == 1


@pytest.mark.parametrize(
    ("args", "key"),
    [
        (["x", None], "x::0:a"),
        ({"host": "x", "port": None}, "x::0:a"),
        ({"host": "x", "tls": True}, "x:80:1:a"),
        ({"host": "x", "meta": {"zone": "b"}}, "x:80:0:b"),
        ({"*": ["x", 81], "host": "y"}, "y:81:0:a"),
        (["x", 80, "more"], "x:80:0:a"),
        ([None], ":80:0:a"),
    ],
)
def test_what_is_given_comes_before_a_default(db: Sql, args: Any, key: str) -> None:
    serve(db, concurrency_key=TEMPLATE)
    job = db.job(db.enqueue("a", args=json.dumps(args), unique_key=TEMPLATE))
    assert (job.concurrency_key, job.unique_key) == (key, key)


def test_a_member_that_is_not_there_is_nothing_in_a_key_of_a_limit(db: Sql) -> None:
    serve(db, concurrency_key=TEMPLATE, circuit=TEMPLATE)
    job = db.job(db.enqueue("a", args='{"host":"x","meta":{}}'))
    assert (job.concurrency_key, job.circuit) == ("x:80:0:", "x:80:0:")


NUMBERS = ["1700000000.1234567", "0.30000000000000004", "1e+16", "100.0", "5e-324"]


@for_each("number", NUMBERS)
def test_a_number_is_in_a_key_as_json_has_it(db: Sql, number: str) -> None:
    """Not as this version of SQLite writes it: of 15 digits, or of 17."""
    serve(db, concurrency_key="{host}", circuit="{host.at}")
    db.execute(
        "update litejobs_task set parameters = ?",
        (f'{{"places": ["host"], "defaults": {{"host": {number}}}}}',),
    )
    key = {"task": "a", "unique_key": "u{host}", "on_conflict": "ignore"}
    for args in ("[]", f"[{number}]", f'{{"host":{number}}}'):
        db.insert("litejobs_job", args=args, **key)
    [job] = db.rows("select unique_key, concurrency_key from litejobs_job")
    assert (job.unique_key, job.concurrency_key) == (f"u{number}", number)
    nested = db.job(db.enqueue("a", args=f'[{{"at":{number}}}]'))
    assert nested.circuit == number


def test_a_waiting_job_keeps_the_key_that_it_was_born_with(db: Sql) -> None:
    serve(db, concurrency_key="{port}")
    job = db.enqueue("a", args='["x"]', unique_key="{port}")
    other = json.dumps({**PARAMETERS, "defaults": {"port": 443}})
    db.execute("update litejobs_task set parameters = ?", (other,))
    old = db.job(job)
    new = db.job(db.enqueue("a", args='["x"]', unique_key="{port}"))
    assert (old.concurrency_key, old.unique_key) == ("80", "80")
    assert (new.concurrency_key, new.unique_key) == ("443", "443")


def test_a_task_by_its_old_name_has_the_parameters_of_the_new_one(db: Sql) -> None:
    serve(db)
    db.insert("litejobs_rename", old_name="old", new_name="a")
    key = {"unique_key": "{host}:{port}", "on_conflict": "ignore"}
    job = db.enqueue("a", args='["x"]', **key)
    db.insert("litejobs_job", task="old", args='["x",80]', **key)
    assert db.column("select id from litejobs_job") == [job]


def test_parameters_are_an_object(db: Sql) -> None:
    for text in ("[]", "{", "1"):
        assert "litejobs_task_parameters_is_an_object" in db.refused(
            "insert into litejobs_task (name, parameters) values ('x', ?)", (text,)
        )


# A template wherever a key is ---------------------------------------------------------


@for_each("on_conflict", ["ignore", "replace", "debounce"])
def test_keys_of_a_job_are_filled_in(db: Sql, on_conflict: str) -> None:
    db.serve("a", concurrency_key="of the task", circuit="of the task")
    own = {kind: f"{kind} {{v}}" for kind in KINDS}
    for value in ("1", "2", "1"):
        db.insert(
            "litejobs_job",
            task="a",
            args=json.dumps({"v": value}),
            on_conflict=on_conflict,
            **own,
            run_at=db.now + HOUR,
        )
    rows = db.rows(f"select {', '.join(KINDS)} from litejobs_job order by id")
    assert [[*vars(row).values()] for row in rows] == [
        [f"{kind} {value}" for kind in KINDS] for value in ("1", "2")
    ]


def test_what_is_replaced_has_the_keys_of_the_new_arguments(db: Sql) -> None:
    serve(db, circuit="{host}", concurrency_key="of the task")
    asked = {"task": "a", "unique_key": "k", "concurrency_key": "p{port}"}
    job = db.enqueue(**asked, args='["x"]', run_at=db.now + HOUR)
    again = {**asked, "on_conflict": "replace", "args": '["y", 1]'}
    db.insert("litejobs_job", **again, run_at=db.now + HOUR)
    row = db.job(job)
    assert (row.concurrency_key, row.circuit) == ("p1", "y")


def test_braces_in_an_argument_are_no_template(db: Sql) -> None:
    db.serve("a")
    keys = dict.fromkeys(KINDS, "{v}")
    job = db.job(db.enqueue("a", args='{"v":"{v}}{"}', **keys))
    assert [vars(job)[kind] for kind in KINDS] == ["{v}}{"] * 3
    again = {"task": "a", "args": '{"v":"{v}}{"}', "on_conflict": "ignore"}
    db.insert("litejobs_job", **again, **keys)
    assert db.value("select count(*) from litejobs_job") == 1


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("{{v}}", "{v}"),
        ('{{"a": 1}}', '{"a": 1}'),
        ("{{{v}}}", "{7}"),
        ("}}{{", "}{"),
        ("{{", "{"),
    ],
)
def test_a_brace_itself_is_doubled(db: Sql, key: str, found: str) -> None:
    db.serve("a", concurrency_key=key)
    job = db.job(db.enqueue("a", args='{"v":7}', unique_key=key, circuit=key))
    assert [vars(job)[kind] for kind in KINDS] == [found] * 3


BAD = [
    *(
        "{",
        "}",
        "a{b",
        "a}b{",
        "{}",
        "{a}}",
        '{a"b}',
        "{a\\b}",
        "{a-b}",
        "{a.}",
        "{.a}",
    ),
    *("{a..b}", "{a.0}", "{0.a}", "{1a}", "{1000}", "{a b}", "{a!r}", "{a[0]}", "}{a}"),
]


@for_each("template", BAD)
@for_each("kind", KINDS)
def test_a_brace_that_belongs_to_no_argument_is_asked_about(
    db: Sql, kind: str, template: str
) -> None:
    """In jobs, tasks and schedules; nothing is stored."""
    db.serve("a")
    schedule = {"name": "s", "task": "a", "every_ms": HOUR, kind: "x"}
    db.insert("litejobs_schedule", **schedule)
    insert = (
        f"into litejobs_schedule (name, task, every_ms, {kind}) values ('t', 'a', 1"
    )
    statements = [
        f"insert into litejobs_job (task, args, {kind}) values ('a', '{{}}', ?)",
        f"insert {insert}000, ?)",
        f"update litejobs_schedule set {kind} = ?",
    ]
    if kind != "unique_key":
        statements += [
            f"insert into litejobs_task (name, {kind}) values ('x', ?)",
            f"update litejobs_task set {kind} = ?",
        ]
    for statement in statements:
        assert db.refused(statement, (template,)) == (
            "invalid_template: a key has {names} of arguments in it, and a brace "
            "itself twice; correct it"
        )
    assert db.value("select count(*) from litejobs_job") == 0


def test_a_unique_key_that_lacks_an_argument_is_refused(db: Sql) -> None:
    """It would be that of other jobs, which were lost."""
    serve(db)
    statement = "insert into litejobs_job (task, args, unique_key) values (?, ?, ?)"
    sentence = (
        "unknown_argument: the unique key names an argument that neither the job nor "
        "its task has, or a member that it lacks; correct it, or write a brace itself "
        "twice"
    )
    for task, args, key in [
        ("a", "[]", "x:{hsot}"),
        ("a", "[]", "x:{host}"),
        ("a", '{"host": 1}', "{host}{7}"),
        ("unknown", "[]", "x:{host}"),
        ("unknown", "[1]", "{1}"),
        ("a", '{"host": {"nmae": 1}}', "x:{host.name}"),
        ("a", '["x"]', "x:{host.name}"),
        ("a", '[[{"name": 1}]]', "x:{host.name}"),
        ("a", '{"host": {"at": null}}', "x:{host.at.name}"),
        ("a", '["x"]', "x:{meta.zoen}"),
        ("a", '{"host": "x", "meta": {}}', "x:{meta.zone}"),
    ]:
        assert db.refused(statement, (task, args, key)) == sentence
    for task, args, key in [
        ("a", "[]", "x:{port}"),
        ("unknown", '{"host": null}', "y:{host}"),
        ("unknown", "[1]", "{0}"),
        ("a", "[null]", "z:{host.name}"),
        ("a", '[{"name": null}]', "n:{host.name}"),
        ("a", '[{"at": {"name": 2}}]', "m:{host.at.name}"),
    ]:
        db.execute(statement, (task, args, key))
    assert db.column("select unique_key from litejobs_job order by id") == [
        *("x:80", "y:", "1", "z:", "n:", "m:2")
    ]


def test_a_unique_key_that_would_be_cut_off_is_refused(db: Sql) -> None:
    db.serve("a")
    statement = "insert into litejobs_job (task, args, unique_key) values ('a', ?, ?)"
    args = json.dumps([499 * "x"])
    db.execute(statement, (args, "u{0}"))
    for key in ("uu{0}", "{0}{0}"):
        assert db.refused(statement, (args, key)) == (
            "key_too_long: the unique key is longer than 500 characters with the "
            "arguments filled in; make it of shorter ones, or of a digest"
        )
    assert db.refused(statement, (json.dumps([501 * "x"]), "{0}")).startswith("key_too")
    job = db.job(db.enqueue("a", args=args, concurrency_key="uu{0}"))
    assert job.concurrency_key == "uu" + 498 * "x"


# Schedules ----------------------------------------------------------------------------


@for_each("by_hand", [True, False])
@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("[1]", "k:1:80:{"),
        ('["{v}"]', "k:{v}:80:{"),
        ("[]", "k::80:{"),
        (json.dumps([600 * "x"]), "k:" + 248 * "x"),
        (json.dumps([600 * "{"]), "k:" + 248 * "{"),
    ],
)
def test_keys_of_a_schedule_are_filled_in(
    held: Sql, args: str, found: str, by_hand: bool
) -> None:
    """Whatever there is: what is refused at an instant would hold up all others."""
    serve(held)
    schedule = {"name": "s", "task": "a", "every_ms": HOUR, "args": args}
    keys = dict.fromkeys(KINDS, "k:{host}:{port}:{{")
    held.insert("litejobs_schedule", **schedule, **keys)
    for _ in range(2):
        if by_hand:
            held.insert("litejobs_run_now", schedule_id=1)
        else:
            held.insert("litejobs_backfill", schedule_id=1, at=held.now)
        held.wait(1000)
    [job] = held.column("select id from litejobs_job")
    row = held.job(job)
    assert row.unique_key == found
    assert row.concurrency_key[:250] == row.circuit[:250] == found[:250]
    skipped = held.rows(
        "select reason, job_id from litejobs_occurrence where state = 'skipped'"
    )
    assert [(each.reason, each.job_id) for each in skipped] == [("unique_key", job)]


def test_a_schedule_goes_on_when_its_task_has_other_parameters(held: Sql) -> None:
    serve(held)
    schedule = {"name": "s", "task": "a", "every_ms": HOUR, "args": '["x"]'}
    held.insert("litejobs_schedule", **schedule, unique_key="k:{host}")
    held.execute("""update litejobs_task set parameters = '{"places":["url"]}'""")
    held.insert("litejobs_run_now", schedule_id=1)
    assert held.column("select unique_key from litejobs_job") == ["k:"]
