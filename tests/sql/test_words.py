"""Each word that the database uses is a row of one view, and each row is used."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from litejobs._storage import statements
from tests.sql.fixture import STATES, Sql, on_apsw, trigger_sources

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))
    for path in sorted(statements.directory().rglob("*.sql"))
    if path.parent.name not in {"words", "schema"}
]
WORDS = "\n".join(SCRIPTS)


@pytest.fixture(scope="module")
def db() -> Sql:
    return on_apsw(traced=False)


def pieces(text: str) -> list[str]:
    """What stands between the commas of a list, up to a `from` or a bracket."""
    found, depth = [""], 0
    for part in re.findall(r"'[^']*'|[(),]|[^'(),]+", text):
        depth += (part == "(") - (part == ")")
        if depth < 0:
            break
        if part == "," and depth == 0:
            found.append("")
        elif depth == 0 and (end := re.search(r"\b(?:from|where)\b", part)):
            found[-1] += part[: end.start()]
            break
        else:
            found[-1] += part
    return [" ".join(each.split()) for each in found]


def source(db: Sql, name: str) -> str:
    """How an object was created."""
    return str(db.value("select sql from sqlite_schema where name = ?", (name,)))


def results(expression: str) -> set[str]:
    """The words that an expression may be: itself, or what a `case` gives."""
    return set(
        re.findall(r"(?:^|\bthen |\belse )'(\w+)'", " ".join(expression.split()))
    )


# Events -------------------------------------------------------------------------------


def states_of(table: str, condition: str) -> set[str]:
    """Those that the condition of a trigger names, or else all of the table."""
    named = re.findall(r"new\.state = '(\w+)'", condition)
    schema = "".join(statements.schema())
    allowed = re.search(
        rf"constraint {table}_state_known\s+check \((.*?)\)", schema, re.DOTALL
    )
    assert allowed is not None, table
    return set(named or re.findall(r"'(\w+)'", allowed[1]))


def written() -> Iterator[dict[str, set[str]]]:
    """Of each statement that writes the log: the columns, and the words in them."""
    sources = [*trigger_sources(on_apsw(traced=False).connection).values()]
    sources += statements.queries().values()
    line = re.compile(
        r"insert into litejobs__transition \((?P<columns>[^)]*)\)\s*"
        r"(?:values \(|select\b)(?P<values>[^;]*)"
    )
    for source in sources:
        for found in line.finditer(source):
            columns, values = pieces(found["columns"]), pieces(found["values"])
            words = {
                name: results(value)
                for name, value in zip(columns, values, strict=True)
            }
            table = re.search(r"\son (litejobs_\w+)", source)
            value = dict(zip(columns, values, strict=True)).get("new_state", "")
            if value.startswith("new.state") and "job_id" not in columns:
                assert table is not None
                words["new_state"] = states_of(table[1], source)
            yield words


def test_each_event_that_can_be_written_is_a_row_and_each_row_can() -> None:
    db = on_apsw(traced=False)
    db.serve("a")
    for _ in range(2):
        db.enqueue("a")
    attempt, failed = db.claim(2)
    lines: set[tuple[str | None, ...]] = set()
    for words in written():
        if "job_id" not in words:
            notes = words.get("note") or {None}
            lines |= {
                (None, None, new, note) for new in words["new_state"] for note in notes
            }
        elif "new_state" not in words:
            lines |= {("1", None, None, note) for note in words["note"]}
    for old, new in itertools.product([None, *STATES], STATES):
        lines |= {("1", old, new, note) for note in (None, "by_hand", "undone")}
    for line in lines:
        for at in (attempt, None):
            db.execute(
                "insert into litejobs__transition "
                "(at, job_id, old_state, new_state, note, attempt_id, subject) "
                "values (0, ?, ?, ?, ?, ?, 's')",
                (*line, at),
            )
    assert len(lines) > 200
    names = set(db.column("select distinct name from litejobs_event"))
    db.settle(failed, "error")
    db.execute(
        "insert into litejobs_settle (attempt, outcome) values (?, ?)",
        (attempt, '{"status":"ok"}'),
    )
    names |= set(db.column("select distinct name from litejobs_event"))
    assert names == set(db.column("select name from litejobs__event_name"))


def test_the_command_line_offers_each_event(db: Sql) -> None:
    offered = db.query("offer_events", prefix="", limit=100)
    rows = db.rows("select name, about from litejobs__event_name")
    assert offered == rows
    assert all(each.about for each in rows)


# Why a job does not run ---------------------------------------------------------------


def gates() -> list[str]:
    """The codes that the views of the gates say, in their order."""
    text = (statements.directory() / "logic" / "gates" / "views.sql").read_text("utf-8")
    return re.findall(r"""(?:then|else) '"(\w+)":1,'""", text)


def test_each_reason_that_is_said_is_a_row_and_each_row_is_said(db: Sql) -> None:
    rows = db.column("select code from litejobs__reason")
    assert len(set(rows)) == len(rows)
    assert len(gates()) == len(set(gates())) >= 11
    said = {code for code in rows if re.search(rf"""'{code}'|'"{code}":1,'""", WORDS)}
    assert said == set(rows)
    own = re.findall(
        r"select\s+job\.id(?: as job_id)?,\s+'(\w+)'", source(db, "litejobs__block")
    )
    [code] = re.findall(
        r"case((?:(?!\bcase\b).)*)end as code",
        source(db, "litejobs__idle_reason"),
        re.DOTALL,
    )
    assert {*own, *results(code), *gates()} == {*rows} - {"no_runner", "runner_gone"}


def test_each_reason_says_all_of_itself(db: Sql) -> None:
    kinds = {"job", "queue", "task", "fact", "tier", "key", "circuit", "runner"}
    kinds.add("executor")
    for row in db.rows("select * from litejobs__reason"):
        assert row.detail, row
        assert row.remedy, row
        assert row.object in kinds | {"attempt"} or row.code in gates(), row


def test_the_table_of_gates_has_each_gate() -> None:
    text = (ROOT / "sql" / "DECISIONS.md").read_text(encoding="utf-8")
    [table] = re.findall(
        r"\n\| gate \| asked of .*?\n\|[- |]*\n(.*?)\n\n", text, re.DOTALL
    )
    first = [line.split("|")[1] for line in table.splitlines()]
    assert re.findall(r"`(\w+)`", " ".join(first)) == gates(), (
        "the table of gates in sql/DECISIONS.md (Who is next) has all of them, in the "
        "order of litejobs__reason"
    )


# What has stopped a job ---------------------------------------------------------------


def stops(db: Sql) -> set[str]:
    """The words that any statement may write into `stopped_by`."""
    text = " ".join(WORDS.split())
    verdict = source(db, "litejobs__verdict").split("select", 1)[1]
    cases = [each for each in pieces(verdict) if each.endswith("as stopped_by")]
    for found in re.finditer(r"\bset (?=[^;]*?\bstopped_by = )", text):
        cases += [
            each.removeprefix("stopped_by = ")
            for each in pieces(text[found.end() :].split(";")[0])
            if each.startswith("stopped_by = ")
        ]
    return set().union(*map(results, cases))


def test_each_reason_for_a_stop_is_a_row_and_each_row_is_written(db: Sql) -> None:
    rows = db.column("select stopped_by from litejobs__stop_reason")
    assert stops(db) == set(rows)
    assert len(rows) == len(set(rows))


def test_the_readme_names_what_stops_a_job(db: Sql) -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    [dead] = re.findall(r"`stopped_by` says what: (.*?)\. ", text)
    assert re.findall(r"`(\w+)`", dead) == db.column(
        "select stopped_by from litejobs__stop_reason where state = 'dead_lettered'"
    )
    for word in db.column(
        "select stopped_by from litejobs__stop_reason where state = 'cancelled'"
    ):
        assert f"`{word}`" in text


def test_a_dead_letter_is_explained_by_the_row_of_its_reason() -> None:
    db = on_apsw(traced=False)
    job = db.enqueue("a", max_attempts=1)
    for trigger in trigger_sources(db.connection):
        db.execute(f"drop trigger {trigger}")
    for row in db.rows("select * from litejobs__stop_reason"):
        db.execute(
            "update litejobs_job set state = ?, stopped_by = ?, finished_at = 1 "
            "where id = ?",
            (row.state, row.stopped_by, job),
        )
        [why] = db.rows("select * from litejobs_why where job_id = ?", (job,))
        assert why.code == "ended"
        assert why.detail.endswith(row.detail)
        assert why.detail == row.detail or row.state == "dead_lettered"
