"""What no linter knows: how the files of sql/ and litejobs/ are kept."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import litejobs
from litejobs._storage import statements
from tests.rows import for_each
from tests.schemas import tomorrow
from tests.sql.fixture import on_apsw, trigger_sources

ROOT = Path(__file__).parent.parent
SQL = statements.directory()
SQL_FILES = sorted(SQL.rglob("*.sql"))
# The files that make the schema; the others hold statements.
SCHEMA_FILES = [*SQL.glob("schema/*.sql"), *SQL.glob("logic/*/*.sql")]
PACKAGE = Path(statements.__file__).parents[1]
PYTHON_FILES = sorted(PACKAGE.rglob("*.py"))

CREATE = re.compile(
    r"^create (?P<kind>table|view|trigger|index|unique index)"
    r"(?: if not exists)? (?P<name>\w+)",
    re.MULTILINE,
)

# Built into every SQLite from 3.38 on, whatever it was compiled with.
# In statements that never are in a file, or not in one of SQLite's.
ELSEWHERE = {
    "outbox.sql": {"gen_random_uuid"},
    "queries/cli/doctor.sql": {"pragma_table_xinfo"},
    "queries/simulate.sql": {"pragma_table_info"},
}
FUNCTIONS = {
    "abs",
    "cast",
    "coalesce",
    "count",
    "hex",
    "avg",
    "changes",
    "last_insert_rowid",
    "group_concat",
    "json",
    "json_array",
    "json_array_length",
    "json_patch",
    "json_remove",
    "json_each",
    "json_group_array",
    "json_group_object",
    "json_quote",
    "nullif",
    "substr",
    "sum",
    "char",
    "instr",
    "typeof",
    "json_object",
    "json_set",
    "json_type",
    "json_valid",
    "julianday",
    "length",
    "lower",
    "max",
    "min",
    "raise",
    "random",
    "randomblob",
    "round",
    "row_number",
    "ltrim",
    "replace",
    "zeroblob",
    "strftime",
}
# Followed by a parenthesis, but no functions.
WORDS = {
    "and",
    "as",
    "by",
    "case",
    "check",
    "conflict",
    "default",
    "else",
    "exists",
    "filter",
    "from",
    "in",
    "join",
    "key",
    "limit",
    "materialized",
    "not",
    "on",
    "or",
    "over",
    "references",
    "returning",
    "select",
    "set",
    "then",
    "unique",
    "values",
    "when",
    "where",
}

# Triggers that share a table, an event and a timing, because their `when`s exclude each
# other.
SAME_MOMENT = {
    # It comes last in the log, whether its job is told first or not.
    ("litejobs_attempt_insert_is_numbered", "litejobs_attempt_insert_starts_job"),
    # Lanes of a key are looked at again, or those of a circuit, or both.
    ("litejobs__reopen_parks", "litejobs__reopen_parks_behind_circuit"),
    # Jobs are looked at, or lanes.
    ("litejobs__claim_line_looks_at_jobs", "litejobs__claim_line_looks_at_lanes"),
    # Of a claim a job of an executor may start, or another one, or none.
    ("litejobs__claim_told_claims", "litejobs__claim_told_goes_one_by_one"),
    ("litejobs__claim_told_claims", "litejobs__claim_told_closes_tiers"),
    ("litejobs__claim_told_closes_tiers", "litejobs__claim_told_goes_one_by_one"),
    # Guards of a lane only refuse.
    ("litejobs_lane_update_guard", "litejobs_lane_update_of_executor_guard"),
    # Asked to end, a job either waits or runs.
    ("litejobs_job_cancel_request", "litejobs_job_cancel_request_is_logged"),
    # Guards only refuse: in which order they are asked makes no difference.
    ("litejobs_job_lane_guard", "litejobs_job_update_changes_head"),
    ("litejobs_attempt_close_moves_job", "litejobs_attempt_status_decides"),
    # What is refused is not recorded either.
    ("litejobs_queue_delete_guard", "litejobs_queue_delete_is_recorded"),
    ("litejobs_circuit_update_guard", "litejobs_circuit_update_is_recorded"),
    ("litejobs_schedule_update_guard", "litejobs_schedule_update_is_recorded"),
    # Nor is it looked up.
    ("litejobs_schedule_update_finds_options", "litejobs_schedule_update_guard"),
    ("litejobs_tier_update_guard", "litejobs_tier_update_is_recorded"),
    # A move is made by hand, or part of an undo.
    ("litejobs__by_hand_does_the_rest", "litejobs__by_hand_is_undone"),
    # A move is judged, or goes without saying; then in a lane of its own, or not.
    ("litejobs__moved_finds_head", "litejobs__moved_follows"),
    ("litejobs__moved_finds_head", "litejobs__moved_in_line"),
    ("litejobs__moved_follows", "litejobs__moved_in_line"),
    # A batch ends, or is sealed, or goes on.
    ("litejobs_batch_ends", "litejobs_batch_is_sealed"),
    ("litejobs_batch_ends", "litejobs_batch_goes_on"),
    ("litejobs_batch_goes_on", "litejobs_batch_is_sealed"),
    # What is waited for again was put back in line, or an undo has done that.
    ("litejobs__wait_again_begins", "litejobs__wait_again_is_undone"),
    # Each of them gives the anchor back, whichever comes first.
    ("litejobs_schedule_update_follows", "litejobs_schedule_update_keeps_anchor"),
    # A job with a unique key is replaced, or put off.
    ("litejobs__replace_changes_job", "litejobs__replace_puts_off"),
}
# What the core says, for wings to do what is theirs. None of them depends on what
# another does; sql/test_gates.py tells its story for these, too.
ANNOUNCED = {
    "litejobs__clock_set_back",
    "litejobs__runner_started",
    "litejobs__ticked",
}
# What follows a job and is kept elsewhere: the first job of its lane, in which lane it
# is, whether others go on. Each of them reads the rows as they are, whoever was first;
# sql/test_gates.py tells a story with all triggers made in one order and in the other.
FOLLOWERS = {
    *("litejobs_job_update_changes_head", "litejobs_job_update_changes_lane"),
    *("litejobs_job_end_tells_others", "litejobs_job_settings_are_logged"),
}


def name_of(path: Path) -> str:
    """What a failing test calls the file."""
    root = SQL if path.is_relative_to(SQL) else PACKAGE
    return path.relative_to(root).as_posix()


def without_comments(text: str) -> str:
    """The statements alone."""
    return re.sub(r"--[^\n]*", "", text)


def without_strings(text: str) -> str:
    """The statements, with their strings empty."""
    return re.sub(r"'(?:[^']|'')*'", "''", without_comments(text))


# The files of sql/ --------------------------------------------------------------------


def test_every_object_has_our_prefix() -> None:
    names = on_apsw(traced=False).column(
        "select name from sqlite_schema where name not glob 'sqlite_*'"
    )
    assert [name for name in names if not name.startswith("litejobs_")] == []
    assert len(names) > 40


def test_a_comment_stands_above_each_object() -> None:
    bare = []
    for path in SCHEMA_FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        bare += [
            f"{path.name}: {line}"
            for before, line in itertools.pairwise(["", *lines])
            if CREATE.match(line) and not before.startswith("-- ")
        ]
    assert bare == []


@for_each("path", SQL_FILES)
def test_a_file_opens_with_what_it_is_about(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.match(r"-- [A-Z].+[?.,:]$", first), first


def test_no_file_is_long() -> None:
    lines = {
        name_of(path): path.read_text(encoding="utf-8").count("\n")
        for path in SQL_FILES
    }
    assert {name: count for name, count in lines.items() if count > 600} == {}


def test_each_file_has_its_place_in_the_order() -> None:
    lines = (SQL / "order.txt").read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    assert sorted(listed) == sorted(map(name_of, SCHEMA_FILES))


@pytest.mark.parametrize("path", SCHEMA_FILES, ids=name_of)
def test_a_file_holds_what_its_name_says(path: Path) -> None:
    """Of a moment: what can be asked, what can be said, and what happens then."""
    text = path.read_text(encoding="utf-8")
    kinds = {match["kind"] for match in CREATE.finditer(text)}
    if path.parent.name == "schema":
        assert kinds <= {"table", "index", "unique index"}
        return
    kind, *_ = path.stem.split("_")
    assert kinds == {"trigger" if kind == "triggers" else "view"}
    views = re.findall(r"^create view.*?;$", text, re.MULTILINE | re.DOTALL)
    commands = [each for each in views if re.search(r"\bwhere 0;$", each)]
    assert commands == {"views": [], "commands": views, "triggers": []}[kind]


def test_a_statement_has_one_name() -> None:
    texts = [path.read_text("utf-8") for path in SQL.rglob("queries/**/*.sql")]
    names = re.findall(r"^-- name: (\w+)$", "".join(texts), re.MULTILINE)
    assert sorted(names) == sorted(statements.queries())


def test_no_text_in_a_query_needs_its_layout() -> None:
    """A long query is run with one blank for each run of them."""
    written = "".join(path.read_text("utf-8") for path in SQL.rglob("queries/**/*.sql"))
    texts = re.findall(r"'(?:[^']|'')*'", without_comments(written))
    assert len(texts) > 100
    assert [text for text in texts if "\n" in text or "  " in text] == []


def test_lines_are_short() -> None:
    # One literal cannot be broken into lines.
    literal = re.compile(r"\s*'.*'[,)]*")
    assert [
        f"{path.name}:{number}"
        for path in SQL_FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 88 and not literal.fullmatch(line)
    ] == []


@for_each("path", SQL_FILES)
def test_lines_are_plain(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "\t" not in text
    assert without_comments(text).isascii()
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert re.findall(r"[ \r]\n", text) == []


@for_each("path", SCHEMA_FILES)
def test_refusals_are_a_code_and_a_sentence_in_one_literal(path: Path) -> None:
    """SQLite before 3.47 cannot read a file in which it is anything else."""
    text = without_comments(path.read_text(encoding="utf-8"))
    arguments = re.findall(r"\braise\s*\(([^()]*(?:'[^']*'[^()]*)*)\)", text)
    plain_text = without_strings(path.read_text(encoding="utf-8"))
    assert len(arguments) == len(re.findall(r"\braise\b", plain_text))
    for argument in arguments:
        plain = " ".join(argument.split())
        assert plain == "ignore" or re.fullmatch(
            r"abort, '[a-z_]+: [a-z][^']+[a-z]'", plain
        ), plain


@for_each("path", SQL_FILES)
def test_only_functions_that_every_sqlite_has_are_called(path: Path) -> None:
    text = without_strings(path.read_text(encoding="utf-8")).lower()
    own = set(re.findall(r"create (?:table|view)(?: if not exists)? (\w+)", text))
    own |= set(re.findall(r"\b(\w+) \([\w, ]+\) as (?:materialized )?\(", text))
    own |= set(re.findall(r"(?:insert into|references|on) (\w+)", text))
    called = set(re.findall(r"\b([a-z_]\w*)\s*\(", text)) - WORDS - own
    assert sorted(called - FUNCTIONS - ELSEWHERE.get(name_of(path), set())) == []


@for_each("path", SQL_FILES)
def test_having_stands_behind_group_by(path: Path) -> None:
    """SQLite before 3.39 compiles nothing else, nor any trigger that it is part of."""
    text = without_strings(path.read_text(encoding="utf-8")).lower()
    parts = re.split(r"\bhaving\b", text)
    for before in parts[:-1]:
        assert "group by" in before[before.rfind("select") :], before[-200:]


@for_each("path", SCHEMA_FILES)
def test_keywords_are_written_small(path: Path) -> None:
    text = without_strings(path.read_text(encoding="utf-8"))
    assert re.findall(r"\b[A-Z]{2,}\b", text) == []


def test_tables_are_strict_and_their_checks_have_names() -> None:
    db = on_apsw(traced=False)
    tables = dict(
        db.execute(
            "select name, sql from sqlite_schema where type = 'table' "
            "and name glob 'litejobs_*'"
        )
    )
    assert len(tables) >= 7
    for name, text in tables.items():
        plain = without_strings(text)
        assert re.search(r"\) strict(, without rowid)?$", plain), name
        checks = len(re.findall(r"\bcheck\b", plain))
        named = re.findall(r"constraint (\w+)\s+check\b", plain)
        assert len(named) == checks, name
        assert [each for each in named if not each.startswith(f"{name}_")] == []


def test_instants_and_durations_are_named_for_what_they_are() -> None:
    db = on_apsw(traced=False)
    names = db.execute(
        "select entry.name, column.name, column.type from sqlite_schema as entry, "
        "pragma_table_info(entry.name) as column where entry.type = 'table' "
        "and entry.name glob 'litejobs_*'"
    )
    timed = [row for row in names if row[1].endswith(("_at", "_ms")) or row[1] == "at"]
    assert len(timed) > 15
    assert [row for row in timed if row[2].lower() != "integer"] == []
    assert [
        row[:2]
        for row in names
        if re.search(r"time|date|second|duration|delay", row[1])
        and not row[1].endswith("_ms")
        and row[1] != "timezone"
    ] == []


def test_one_trigger_at_a_moment() -> None:
    """SQLite promises no order between two triggers of one table, event and timing."""
    moments: dict[tuple[str, str, str], list[tuple[str, set[str]]]] = defaultdict(list)
    for name, source in trigger_sources(on_apsw(traced=False).connection).items():
        found = re.search(
            r"(?P<timing>before|after|instead of)\s+(?P<event>insert|update|delete)"
            r"(?:\s+of\s+(?P<columns>[\w,\s]+?))?\s+on\s+(?P<table>\w+)",
            source,
        )
        assert found is not None, name
        columns = set(re.findall(r"\w+", found["columns"] or ""))
        moments[found["table"], found["event"], found["timing"]].append((name, columns))
    pairs = set()
    for (table, *_), triggers in moments.items():
        if table in ANNOUNCED:
            assert len(triggers) > 1, table
            continue
        for (one, its), (other, theirs) in itertools.combinations(sorted(triggers), 2):
            if not its or not theirs or its & theirs:
                pairs.add((one, other))
    assert {pair for pair in pairs if not FOLLOWERS & {*pair}} <= SAME_MOMENT
    assert pairs >= SAME_MOMENT


def test_triggers_that_share_a_moment_exclude_each_other() -> None:
    """Of each such pair, one has the condition of the other, negated."""
    sources = trigger_sources(on_apsw(traced=False).connection)
    plain = {name: " ".join(text.split()) for name, text in sources.items()}
    assert "when coalesce(new.in_line, 0) = 0 begin" in plain["litejobs__moved_follows"]
    own = "when new.in_line > 0 and new.has_own_lane begin"
    assert own in plain["litejobs__moved_finds_head"]
    plain_way = "when new.in_line = 2 and not new.has_own_lane begin"
    assert plain_way in plain["litejobs__moved_in_line"]
    request = re.search(
        r"is not null and \((.*)\) begin ", plain["litejobs_job_cancel_request"]
    )
    assert request is not None
    assert re.findall(r"new\.state = '(\w+)'", request[1]) == [
        "scheduled",
        "blocked",
        "pending",
        "failed",
    ]
    assert (
        "is not null and new.state = 'processing' begin"
        in plain["litejobs_job_cancel_request_is_logged"]
    )
    undoing = "exists (select 1 from litejobs_undoing)"
    assert f"when not {undoing} and" in plain["litejobs__by_hand_does_the_rest"]
    assert f"when {undoing} begin" in plain["litejobs__by_hand_is_undone"]
    assert f"when not {undoing} begin" in plain["litejobs__wait_again_begins"]
    assert f"when {undoing} begin" in plain["litejobs__wait_again_is_undone"]


def test_no_text_of_the_sql_has_four_blanks() -> None:
    """They are layout, and stored as one blank; also within a text of many lines."""
    for script in (*statements.schema(), *statements.logic()):
        for text in re.findall(r"--[^\n]*|('(?:[^']|'')*')", script):
            assert "    " not in re.sub(r"\n +", " ", text)


def test_migrations_change_tables_and_indexes_only() -> None:
    migrations = [text for _, text in statements.migrations(0)]
    for text in (*migrations, tomorrow.MIGRATION):
        assert not re.search(r"\b(?:view|trigger)\b", without_strings(text)), text


def test_every_query_is_asked() -> None:
    """By the package: one that only tests ask is theirs."""
    named = {each for path in PYTHON_FILES for each in strings_of(path)}
    dead = sorted(statements.queries().keys() - named)
    assert not dead, f"nothing in litejobs/ runs {', '.join(dead)}"


# The files of litejobs/ ---------------------------------------------------------------

# Statements that are not about our tables: transactions, and the schema itself.
PLAIN_SQL = {
    "pragma data_version",
    "pragma writable_schema = reset",
    "insert into sqlite_schema values (?, ?, ?, 0, ?)",
    "begin",
    "begin exclusive",
    "begin immediate",
    "commit",
    "rollback",
    "select count(*) from sqlite_schema",
    "pragma database_list",
    "release litejobs_block",
    "rollback to litejobs_block",
    "savepoint litejobs_block",
    "pragma quick_check(1)",
    "pragma main.quick_check(1)",
    "insert into ",
    "drop trigger ",
    "drop view ",
}

LOOKS_LIKE_SQL = re.compile(
    r"\s*(?:select\s.+\sfrom|insert\s+(?:or\s+\w+\s+)?into|update\s+\w+\s+set"
    r"|delete\s+from|create\s+(?:table|view|trigger|index|temp)|alter\s+table|drop\s"
    r"|(?:begin|commit|rollback)(?:\s+\w+)?\s*;?\s*$|savepoint\b|release\s|pragma\s|attach\s|vacuum\b"
    r"|analyze\b|reindex\b|with\s+\w+\s+as\s*\()",
    re.IGNORECASE | re.DOTALL,
)


def walked(tree: ast.AST) -> list[ast.AST]:
    """As `ast.walk` does it, in half of the time."""
    nodes = [tree]
    for node in nodes:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
    return nodes


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All that a module is made of, itself first."""
    return walked(ast.parse(path.read_text(encoding="utf-8")))


@pytest.fixture(autouse=True, scope="module")
def nodes_are_forgotten() -> Iterator[None]:
    yield
    nodes_of.cache_clear()


def strings_of(path: Path) -> list[str]:
    """The string constants of a module, without its docstrings."""
    nodes = nodes_of(path)
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


@for_each("path", PYTHON_FILES)
def test_no_sql_is_written_in_python(path: Path) -> None:
    found = [text for text in strings_of(path) if LOOKS_LIKE_SQL.match(text)]
    assert [text for text in found if text not in PLAIN_SQL] == []


# What becomes a part of statements and is not a name: marks for values, texts of ours.
PARTS = {
    ("rows.py", "', '.join(columns)"),  # each of them is quoted
    ("rows.py", "texts"),  # made of the same
    ("rows.py", "each"),
    ("rows.py", "sql"),  # a named query
    ("schema.py", "_DROP[str(kind)]"),  # one of two texts of ours
    ("simulation.py", "marks"),  # as many as there are values
}
BEGINS_LIKE_SQL = re.compile(
    r"\s*(?:with \w+ \(|case \w+\(|(?:drop|create|alter|attach|insert|delete|pragma) )"
)


def parts_of(node: ast.expr) -> tuple[str, list[ast.expr]] | None:
    """The fixed text of a text that is put together, and what is put into it."""
    if isinstance(node, ast.JoinedStr):
        fixed = [each.value for each in node.values if isinstance(each, ast.Constant)]
        parts = [
            each.value for each in node.values if isinstance(each, ast.FormattedValue)
        ]
        return "x".join(map(str, fixed)), parts
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        sides = [node.left, node.right]
        fixed = [
            each.value
            for each in sides
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        parts = [each for each in sides if not isinstance(each, ast.Constant)]
        return "x".join(fixed), parts
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"format", "join", "replace", "format_map"}
    ):
        fixed = [node.func.value] if isinstance(node.func.value, ast.Constant) else []
        return "x".join(str(each.value) for each in fixed), list(node.args)
    return None


def executed(function: ast.AST) -> list[ast.expr]:
    """What a function hands to SQLite, and what it calls by that name."""
    nodes = walked(function)
    given = [
        node.args[0]
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"execute", "executemany", "pragma", "_execute"}
        and node.args
    ]
    names = {each.id for each in given if isinstance(each, ast.Name)}
    called = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(
            isinstance(each, ast.Name) and each.id in names for each in node.targets
        )
    ]
    return [*given, *called]


def pasted(nodes: list[ast.AST], name: str) -> list[str]:
    """What is put into statements without being quoted."""
    told = {
        id(each)
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        for each in executed(node)
    }
    found = []
    for node in nodes:
        if not isinstance(node, ast.expr) or (made := parts_of(node)) is None:
            continue
        text, parts = made
        if (
            id(node) in told
            or BEGINS_LIKE_SQL.match(text)
            or LOOKS_LIKE_SQL.match(text)
        ):
            found += [
                ast.unparse(each)
                for each in parts
                if not re.match(r"(?:statements\.)?quoted\(", ast.unparse(each))
                and (name, ast.unparse(each)) not in PARTS
            ]
    return found


@for_each("path", PYTHON_FILES)
def test_nothing_is_pasted_into_statements_but_quoted_names(path: Path) -> None:
    """A name that a file holds could say anything; values are bound.

    An outbox has the name that the code gives it, which is refused unless it is plain.
    """
    assert pasted(nodes_of(path), path.name) == []


def test_names_are_quoted_in_one_place() -> None:
    quoting = re.compile(r"""replace\(\s*(['"])"\1|replace\(\s*'"',""")
    assert {
        path.name for path in PYTHON_FILES if quoting.search(path.read_text("utf-8"))
    } == {"statements.py", "export.py"}, "there cells of CSV are quoted"


@for_each("path", PYTHON_FILES)
def test_nothing_from_a_file_is_ever_executed(path: Path) -> None:
    """Jobs name registered tasks and carry JSON; nothing else is read from a file."""
    nodes = nodes_of(path)
    imported = {
        name.split(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert (
        imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
        == set()
    )
    called = {
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & {"eval", "exec", "compile", "__import__"} == set()


@for_each("path", PYTHON_FILES)
def test_the_clock_is_not_read_with_time_time(path: Path) -> None:
    """freezegun lets time.time run on in other threads."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\btime\.time(?:_ns)?\(|datetime\.utcnow\(", text) == []


def test_the_patterns_of_this_file_find_what_they_are_for() -> None:
    for text in ("select 1 from x", "BEGIN", "  insert or replace into t", "pragma x"):
        assert LOOKS_LIKE_SQL.match(text), text
    for text in ("select one of them", "update it", "beginning", "drop-in"):
        assert not LOOKS_LIKE_SQL.match(text), text
    assert CREATE.match("create unique index litejobs_x")
    for text in (
        "db.execute(f'drop view {name}')",
        "db.execute('drop view ' + name)",
        "db.execute(DROP + name)",
        "db.execute('drop view %s' % name)",
        "db.execute('drop view {}'.format(name))",
        "db.execute(text.replace('x', name))",
        "sql = f'{kind} {name}'; db.execute(sql)",
        "db.executemany(f'insert into {name} values (1)', rows)",
        "db.pragma(f'table_info({name})')",
        "return f'delete from {name}'",
        "return f'with x ({name}) as (select 1) select 1'",
    ):
        nodes = walked(ast.parse(f"def f():\n    {text}"))
        assert "name" in pasted(nodes, "any.py"), text
        quoted = ast.parse(f"def f():\n    {text.replace('name', 'quoted(name)')}")
        assert "quoted(name)" not in pasted(walked(quoted), "any.py"), text
    asked = "def f():\n    db.execute(queries()['x'], y)"
    assert pasted(walked(ast.parse(asked)), "any.py") == []
    assert without_strings("select 'it''s' -- no\n") == "select '' \n"


# Names that begin with an underscore and are public where they come from.
PUBLIC_ALL_THE_SAME = {
    *("_asdict", "_make", "_replace"),  # of named tuples
    *(
        "_exit",
        "_current_frames",
        "_is_gil_enabled",
        "_is_owned",
    ),  # of the standard library
    "_MEIPASS",  # documented by PyInstaller
    *("_get_running_loop", "_register_atexit", "_xoptions", "_processes"),
}
# What asks for an attribute by its name, as a text.
BY_NAME = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller"}


def called_name(call: ast.Call) -> str:
    """The name of what is called, without that of its module."""
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


@for_each("path", PYTHON_FILES)
def test_private_names_are_used_in_their_own_module_only(path: Path) -> None:
    nodes = nodes_of(path)
    own = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    } | {
        name
        for node in nodes
        for name in [getattr(node, "name", None), getattr(node, "id", None)]
        if isinstance(name, str)
    }
    modules = {each.stem for each in PYTHON_FILES}
    for node in nodes:
        names = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("litej"):
            names = [each.name for each in node.names if each.name not in modules]
        elif isinstance(node, ast.Attribute):
            of_this_object = getattr(node.value, "id", "") in {"self", "cls"}
            names = [] if of_this_object or node.attr in own else [node.attr]
        elif isinstance(node, ast.Call) and called_name(node) in BY_NAME:
            names = [
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
        for name in names:
            private = name.startswith("_") and not name.startswith("__")
            assert not private or name in PUBLIC_ALL_THE_SAME, (
                f"{path.name}:{node.lineno} uses {name}, which is another module's own"
            )


# Words with which a sentence on a call begins that does not say what the call does.
NO_VERBS = {
    *("A", "All", "An", "Another", "As", "At", "Each", "Every", "From", "How", "If"),
    *("In", "It", "Its", "No", "Nobody", "Nothing", "Of", "One", "So", "Somebody"),
    *("That", "The", "There", "These", "They", "This", "Those", "What", "When"),
    *("Where", "Whether", "Which", "Who", "Whose", "Why"),
}


def test_what_help_says_of_a_public_call_begins_with_a_verb() -> None:
    """Of values and properties it names the thing."""
    things = [
        getattr(importlib.import_module(home), name)
        for home in ("litejobs", "litejobs.executors", "litejobs.testing")
        for name in importlib.import_module(home).__all__
    ]
    calls = [each for each in things if inspect.isfunction(each)]
    for each in things:
        for kind in each.__mro__ if inspect.isclass(each) else ():
            for name, value in vars(kind).items():
                call = getattr(value, "__func__", value)
                if kind.__module__.startswith("litejobs") and inspect.isfunction(call):
                    calls += [call] * (not name.startswith("_"))
    assert len(calls) > 200
    for call in calls:
        said = inspect.getdoc(call) or "Nothing"
        assert said.split()[0].strip(".:;,") not in NO_VERBS, call.__qualname__


# Modules that are imported by a text, which no contract sees: others' than ours, but
# where a name that a user wrote leads to what has it, the package's or the commands'.
IMPORTED_BY_TEXT = {
    # The module of a task, in another process.
    "worker.py: module",
    # What runs in a worker of Dask, and in a process of a frozen program, which stands
    # above who sends it there.
    "remote.py: 'litejobs._runner.in_dask'",
    "starting.py: 'litejobs._runner.in_process'",
    "__init__.py: home",
    "failure.py: f'litejobs.cli.commands.{module}'",
    "change_hints.py: LIBRARY",
    "picture.py: 'matplotlib'",
    "picture.py: 'matplotlib.dates'",
    "picture.py: 'matplotlib.figure'",
    "policy_file.py: 'yaml'",
    "statements.py: name",
    "zones.py: 'tzdata'",
    "run.py: name",
}


def test_modules_of_ours_are_imported_by_statements() -> None:
    assert {
        f"{path.name}: {ast.unparse(node.args[0])}"
        for path in PYTHON_FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and called_name(node) in {"import_module", "__import__"}
    } == IMPORTED_BY_TEXT


def test_rooms_are_kept() -> None:
    """The contracts of pyproject.toml: what may import what, and no circles."""
    pytest.importorskip("importlinter", reason="import-linter comes with the dev extra")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The tests ----------------------------------------------------------------------------

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
# Without one after a dot or a quotation mark, nothing can be set.
ATTRIBUTE = re.compile(rf"""[.'"]\s*{CONSTANT.pattern}\b""")
# How a test sets an attribute by its name.
SETTING = {"setattr", "delattr", "object"}


def ours(nodes: list[ast.AST]) -> dict[str, Any]:
    """What comes from the package, by the name that it has in a test."""
    found: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == "litejobs":
                    module = importlib.import_module(each.name)
                    name = each.asname or "litejobs"
                    found[name] = module if each.asname else litejobs
        elif isinstance(node, ast.ImportFrom):
            home = f"{node.module}."
            for each in node.names if home.startswith("litejobs.") else ():
                with contextlib.suppress(ImportError, AttributeError):
                    value = pkgutil.resolve_name(f"{home}{each.name}")
                    found[each.asname or each.name] = value
    return found


def is_ours(node: ast.expr, known: dict[str, Any]) -> bool:
    """Whether that is a module or a class of the package, or the text of one."""
    if isinstance(node, ast.Constant):
        return str(node.value).startswith("litejobs.")
    name, *rest = ast.unparse(node).split(".")
    thing = known.get(name)
    for each in rest:
        thing = getattr(thing, each, None)
    home = getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
    return str(home).split(".")[0] == "litejobs"


def constants_set(text: str) -> list[str]:
    """The constants of the package that a test sets, or a program within it."""
    if "litejobs" not in text or not ATTRIBUTE.search(text):
        return []
    try:
        nodes = walked(ast.parse(textwrap.dedent(text)))
    except SyntaxError:
        return []
    candidates: list[tuple[ast.expr, str]] = []
    found = []
    for node in nodes:
        pairs: list[tuple[ast.expr, str]] = []
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            pairs = [(node.value, node.attr)]
        elif isinstance(node, ast.Call) and called_name(node) in {*SETTING, "patch"}:
            texts = [str(getattr(each, "value", "")) for each in node.args[:2]]
            if called_name(node) in SETTING and len(texts) > 1:
                pairs = [(node.args[0], texts[1])]
            if texts and isinstance(node.args[0], ast.Constant):
                pairs.append((node.args[0], texts[0].rpartition(".")[2]))
        elif isinstance(node, ast.Constant) and "\n" in str(node.value):
            found += constants_set(str(node.value))
        candidates += [each for each in pairs if CONSTANT.fullmatch(each[1])]
    known = ours(nodes) if candidates else {}
    return found + [
        f"{ast.unparse(owner)}: {name}"
        for owner, name in candidates
        if is_ours(owner, known)
    ]


@for_each("path", sorted((ROOT / "tests").rglob("*.py")))
def test_no_constant_of_the_package_is_set(path: Path) -> None:
    """What tests need otherwise is asked for with the fixtures `times` and `sizes`.

    What the system can do is what the system says: `sys.platform`, or its functions.
    """
    if path != Path(__file__):
        assert constants_set(path.read_text(encoding="utf-8")) == []


def test_constants_that_are_set_are_found() -> None:
    begin = "from litejobs._storage import statements as s, wal\nimport litejobs\n"
    for text in (
        "m.setattr(s, 'ANY', 1)",
        "def f():\n    with m.context() as c:\n        c.setattr(s, '_ANY_2', 1)",
        "m.setattr('litejobs._control.bulk.REST', 1)",
        "setattr(litejobs.LiteJobs, 'MOST', 1)",
        "mock.patch.object(s, 'ANY', 1)",
        "mock.patch('litejobs._control.bulk.REST', 1)",
        "s.ANY = 1",
        "litejobs._storage.wal.ANY += 1",
        "del wal.ANY",
        'run("""\n    from litejobs._control import bulk\n    bulk.REST = 0\n""")',
    ):
        assert len(constants_set(begin + text)) == 1, text
    for text in (
        "m.setattr(s, 'any', 1)",
        "m.setattr(s.apsw, 'SQLITE_ANY', 1)",
        "m.setattr(others, 'ANY', 1)",
        "m.setattr('os.ANY', 1)",
        "assert s.ANY == 1",
        "from litejobs._process.timing import TIMES\nTIMES.late = 1",
    ):
        assert constants_set(begin + text) == [], text
