"""The tour in sql/README.md: what it says that runs is what runs."""

from __future__ import annotations

import re
from typing import Any

import apsw

from litejobs._storage import statements
from tests.sql.fixture import Sql, on_apsw, trigger_body, trigger_sources

README = (statements.directory() / "README.md").read_text(encoding="utf-8")


class Chain:
    """Which triggers act while a statement runs, each below the one that fired it."""

    def __init__(self, db: Sql) -> None:
        self._bodies = {
            name: set(trigger_body(source))
            for name, source in trigger_sources(db.connection).items()
        }
        self._open: list[str] = []
        self._asked = ""
        self.lines: list[str] = []

    def __call__(self, event: dict[str, Any]) -> None:
        text = event["sql"]
        if not event["trigger"]:
            return
        if text.startswith("TRIGGER "):
            self._asked = text.removeprefix("TRIGGER ")
            return
        asked, self._asked = self._asked, ""
        text = " ".join(text.split())
        if asked and text in self._bodies[asked]:
            self._open.append(asked)
            self.lines.append("  " * len(self._open) + asked)
            return
        while self._open and text not in self._bodies[self._open[-1]]:
            self._open.pop()


def chain(db: Sql, statement: str) -> list[str]:
    """The triggers that act, each with two blanks more than the one that fired it."""
    found = Chain(db)
    db.connection.trace_v2(apsw.SQLITE_TRACE_STMT, found, id="tour")
    try:
        db.execute(statement)
    finally:
        db.connection.trace_v2(0, None, id="tour")
    return found.lines


def test_a_jobs_life_is_what_the_tour_says(held: Sql) -> None:
    """Copy what is seen into the block; behind a colon is what it means."""
    [text] = re.findall(r"\n## A job's life\n.*?\n```sql\n(.*?)```", README, re.DOTALL)
    said, seen = [], []
    for line in filter(None, text.splitlines()):
        if line.startswith("--   "):
            said.append(line.removeprefix("-- ").split(":")[0])
            continue
        said.append(line)
        seen.append(line)
        if later := re.fullmatch(r"-- (\d+) s later", line):
            held.wait(int(later[1]) * 1000)
        else:
            seen += chain(held, line)
    assert seen == said
    assert held.column("select state from litejobs_job") == ["completed", "pending"]


def listed(column: str) -> list[str]:
    """The names in the first column of the table that is headed so."""
    [table] = re.findall(
        rf"\n\| {column} \|.*?\n\|[- |]*\n(.*?)\n\n", README, re.DOTALL
    )
    return re.findall(r"`(\w+)`", " ".join(x.split("|")[1] for x in table.splitlines()))


def test_the_tour_lists_what_any_client_may_say_and_ask() -> None:
    views = dict(
        on_apsw(traced=False).execute(
            "select name, sql from sqlite_schema where type = 'view' "
            "and name glob 'litejobs_*' and name not glob 'litejobs__*'"
        )
    )
    commands = {name for name, text in views.items() if text.endswith("where 0")}
    assert sorted(listed("say")) == sorted(commands)
    assert sorted(listed("ask")) == sorted(views.keys() - commands)


def test_triggers_of_internal_commands_are_named_after_them() -> None:
    rows = on_apsw(traced=False).execute(
        "select name, tbl_name from sqlite_schema where type = 'trigger'"
    )
    assert len(rows) > 100
    for name, place in rows:
        internal = place.startswith("litejobs__")
        assert name.startswith("litejobs__") == internal, name
        assert not internal or name.startswith(f"{place}_"), name


def test_no_refusal_names_an_internal_command() -> None:
    for name, source in trigger_sources(on_apsw(traced=False).connection).items():
        said = re.findall(r"raise\s*\(\s*abort,\s*'([^']*)'", source)
        assert not [each for each in said if "litejobs__" in each], name


def test_the_tour_is_short() -> None:
    assert README.count("\n") <= 200


def test_links_lead_to_chapters() -> None:
    """Of the decisions, from the tour and from the list at their own top."""
    decisions = (statements.directory() / "DECISIONS.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", decisions, re.MULTILINE)
    anchors = [
        re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in titles
    ]
    assert re.findall(r"^- \[.*?\]\(#(.*?)\)$", decisions, re.MULTILINE) == anchors
    assert set(re.findall(r"\(DECISIONS\.md#(.*?)\)", README)) <= set(anchors)
