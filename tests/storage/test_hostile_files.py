"""What the names and texts in a file say is never done, whoever made the file."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from litejobs import LiteJobs
from litejobs._storage import confinement, schema, statements
from litejobs.cli import main
from litejobs.errors import (
    CorruptDatabase,
    FileRefused,
    LiteJobsError,
    TamperedSchema,
    translated,
)
from tests.schemas import tomorrow

# The beginning of a name that is ours, and what a careless program would do then.
ATTACK = "commit; attach '{victim}' as v; delete from v.diary; --"
NAMES = [
    'litejobs_x"; ' + ATTACK,
    'litejobs_x"";' + ATTACK,
    "litejobs_x'; " + ATTACK,
    "litejobs_x]; " + ATTACK,
    "litejobs_x`; " + ATTACK,
    "litejobs_x; " + ATTACK,
    "litejobs_x)); " + ATTACK,
    "litejobs_x\n--\n; " + ATTACK,
    'LITEJOBS_x"; ' + ATTACK,
    "litejobs_x\x1b[2J\u202e" + ATTACK,
]
OBJECTS = {
    "view": "create view {name} as select 1 as one",
    "table": "create table {name} (x)",
    "table with a key": "create table {name} (x primary key references {name})",
    "index": "create index {name} on orders (id)",
    "trigger": "create trigger {name} after insert on orders begin select 1; end",
    "trigger on a view": (
        "create view v as select 1 as one; "
        "create trigger {name} instead of insert on v begin select 1; end"
    ),
    "trigger on ours": (
        "create trigger {name} after update on litejobs_meta begin select 1; end"
    ),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Another database of the same user."""
    path = tmp_path / "victim" / "diary.db"
    path.parent.mkdir()
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create table diary (day); insert into diary values ('today')")
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a file of today with a job in it, and the application's table."""
    found = tmp_path_factory.mktemp("made") / "jobs.db"
    with LiteJobs(found) as jobs:
        jobs.enqueue("send", delay="1d")
    with contextlib.closing(apsw.Connection(str(found))) as db:
        db.execute("create table orders (id)")
    return found.parent


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of that file, and of what lies beside it."""
    return Path(shutil.copytree(made, tmp_path / "jobs"), "jobs.db")


@pytest.fixture(params=["of today", "older"])
def state(request: pytest.FixtureRequest, path: Path, next_sql: Path) -> Iterator[str]:
    """Whether the file is as old as the code that opens it, or older."""
    if request.param == "older":
        with tomorrow.instead(next_sql):
            yield request.param
    else:
        yield request.param


of_both = pytest.mark.parametrize(
    ("state", "names"),
    [
        pytest.param("of today", NAMES[:3], id="of today-some"),
        pytest.param("older", NAMES[3:], id="older-others"),
        pytest.param(*("older", NAMES[:3]), id="older-some", marks=pytest.mark.torture),
        pytest.param(
            *("of today", NAMES[3:]), id="of today-others", marks=pytest.mark.torture
        ),
    ],
    indirect=["state"],
)


def half_of_each(name: str, rows: Sequence[Any]) -> pytest.MarkDecorator:
    """Half of the rows meet a file of today, and half an older one; in the long form
    all meet both."""
    return pytest.mark.parametrize(
        ("state", name),
        [
            pytest.param("of today", rows[::2], id="of today-some"),
            pytest.param("older", rows[1::2], id="older-others"),
            pytest.param(
                *("older", rows[::2]), id="older-some", marks=pytest.mark.torture
            ),
            pytest.param(
                *("of today", rows[1::2]),
                id="of today-others",
                marks=pytest.mark.torture,
            ),
        ],
        indirect=["state"],
    )


def files_of(folder: Path) -> dict[str, bytes]:
    """What is in each file of the folder."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file()
    }


def run(path: Path, *command: str) -> Any:
    return CliRunner().invoke(main, ["--db", str(path), *command])


def use_in_every_way(path: Path) -> None:
    """Whatever opens the file or looks at it."""
    with pytest.raises(FileRefused) as refused:
        LiteJobs(path).open()
    assert str(refused.value).isprintable()
    for command in (
        ["init"],
        ["doctor"],
        ["doctor", "--quick"],
        ["list"],
        ["schema"],
        ["schema", "--json"],
        ["stats"],
        ["enqueue", "send"],
        ["purge", "--older-than", "1d", "--yes"],
        ["undo"],
        ["backup", f"{path}.copy"],
    ):
        done = run(path, *command)
        assert "Traceback" not in done.output
        assert "unexpected" not in done.output, (command, done.output)
        assert "\x1b" not in done.output
        if command[0] in {"init", "doctor", "enqueue"}:
            assert done.exit_code == 3, (command, done.output)


@of_both
def test_names_of_objects_are_never_run(
    path: Path, victim: Path, state: str, names: list[str]
) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        for number, name in enumerate(names):
            for kind, statement in OBJECTS.items():
                own = f"{name.format(victim=victim)} {kind} {number}"
                made = statement.replace(" v ", f" v{number} ")
                db.execute(made.format(name=statements.quoted(own)))
    before = files_of(path.parent.parent)
    use_in_every_way(path)
    after = files_of(path.parent.parent)
    copy = after.pop("jobs/jobs.db.copy")
    assert len(copy) == len(after["jobs/jobs.db"])
    assert after == before


@half_of_each("kinds", list(OBJECTS))
def test_any_one_object_too_many_is_noticed(
    path: Path, victim: Path, state: str, kinds: list[str]
) -> None:
    hostile = statements.quoted(NAMES[0].format(victim=victim))
    for kind in kinds:
        one = Path(shutil.copytree(path.parent, path.parent.with_name(kind)), path.name)
        with contextlib.closing(apsw.Connection(str(one))) as db:
            db.execute(OBJECTS[kind].format(name=hostile))
        before = files_of(path.parent.parent)
        with pytest.raises(TamperedSchema):
            LiteJobs(one).open()
        assert files_of(path.parent.parent) == before, kind


@of_both
def test_names_of_the_application_are_its_own(
    path: Path, victim: Path, state: str, names: list[str]
) -> None:
    """They are no more than names, and the file is in order."""
    tables = []
    with contextlib.closing(apsw.Connection(str(path))) as db:
        for number, name in enumerate(names):
            own = name.format(victim=victim).replace("litejobs", f"orders{number}")
            own = own.replace("LITE", f"L{number}")
            hostile = statements.quoted(own)
            view, index, fast, tree, trigger = (
                statements.quoted(own + each) for each in "vifrt"
            )
            db.execute(
                f"create table {hostile} (id integer primary key, {hostile} text "
                "unique, job references litejobs_job (id), "
                f"constraint {hostile} check (id > 0));"
                f"create view {view} as select * from {hostile};"
                f"create index {index} on {hostile} (lower({hostile}));"
                f"create virtual table {fast} using fts5 (a);"
                f"create virtual table {tree} using rtree (a, b, c);"
                f"create trigger {trigger} after insert on litejobs_job "
                f"begin insert into {hostile} ({hostile}) values (new.id); end"
            )
            tables.append(hostile)
    others = files_of(victim.parent)
    with LiteJobs(path) as jobs:
        jobs.enqueue("send", delay="1d")
        assert len(jobs.list()) == 2
        with jobs.transaction() as db:
            for hostile in tables:
                assert db.execute(f"select count(*) from {hostile}").get == 1
    assert run(path, "init").exit_code == 0
    for command in (["doctor"], ["list"], ["schema"], ["backup", f"{path}.copy"]):
        done = run(path, *command)
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
    assert files_of(victim.parent) == others


def test_new_tables_in_a_file_with_such_names(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "application.db"
    others = files_of(victim.parent)
    with contextlib.closing(apsw.Connection(str(path))) as db:
        for number, name in enumerate(NAMES):
            own = name.format(victim=victim).lower().replace("litejobs", str(number))
            db.execute(f"create table {statements.quoted(own)} (x)")
    with LiteJobs(path) as jobs:
        jobs.enqueue("send", delay="1d")
    assert run(path, "doctor").exit_code == 0
    assert files_of(victim.parent) == others


def test_names_are_quoted_whatever_is_in_them() -> None:
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        for name in ["a", 'a"b', '"', '""', "a]b", "a'b", "ä\n", "select", "-- x", " "]:
            db.execute(f"create table {statements.quoted(name)} (x)")
            assert db.execute("select name from sqlite_schema").get == name
            db.execute(f"drop table {statements.quoted(name)}")
    with pytest.raises(ValueError, match="is not a name"):
        statements.quoted("a\0b")


# What the texts of objects say --------------------------------------------------------


def retold(path: Path, name: str, change: Callable[[str], str]) -> None:
    """The text of the object is another one, as nobody makes it by accident."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        asked = "select sql from sqlite_schema where name = ?"
        text = db.execute(asked, (name,)).get
        assert change(text) != text
        db.pragma("writable_schema", True)
        db.execute(
            "update sqlite_schema set sql = ? where name = ?", (change(text), name)
        )


def with_another(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


RETOLD: list[tuple[str, Callable[[str], str]]] = [
    # A comment inside a text is none: what comes behind it is run.
    ("litejobs__doctor", with_another("|| ' ", "|| '-- ' || x'00' || '\n ")),
    ("litejobs__doctor", with_another("|| ' ", "|| '/* ' || x'00' || ' */ ")),
    ("litejobs__doctor", with_another("|| ' ", "|| '\" ' || x'00' || '\" ")),
    # Blanks count there.
    ("litejobs__moved_follows", with_another("a state is", "a state  is")),
    ("litejobs__moved_follows", with_another("a state is", "a state\nis")),
    # To SQLite this is a letter, and no blank.
    ("litejobs_clock", with_another(" as ", " as\u00a0")),
    # Here the end of a name.
    ("litejobs__block", with_another("from litejobs_job", 'from "litejobs_"job')),
    # Behind it SQLite reads nothing.
    ("litejobs_clock", lambda text: text + "\0 and more"),
]


@half_of_each("retold_as", RETOLD)
def test_text_that_only_looks_the_same_is_another(
    path: Path, state: str, retold_as: list[tuple[str, Callable[[str], str]]]
) -> None:
    for number, (name, change) in enumerate(retold_as):
        other = Path(shutil.copy(path, path.with_name(f"{number}.db")))
        retold(other, name, change)
        before = other.read_bytes()
        with pytest.raises(FileRefused):
            LiteJobs(other).open()
        assert other.read_bytes() == before, number


def test_object_inside_the_text_of_another_is_missing(path: Path, state: str) -> None:
    """SQLite reads up to the end of the first, whatever comes behind it."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        (_, one, _), (kind, other, more) = db.execute(
            "select type, name, sql from sqlite_schema where type = 'trigger'"
            " and name glob 'litejobs_*' order by type, name limit 2"
        ).fetchall()
        db.execute(f"drop trigger {other}")
    retold(path, one, lambda text: f"{text}\0{kind}\0{other}\0{more}")
    with pytest.raises(TamperedSchema):
        LiteJobs(path).open()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("create view v as select 1", "create view v as select\r\n\t1 -- it's\n"),
        ("select 'a' , ( 1 )", "select 'a',(1)"),
        ("select 1 /* a ' b */ + 2", "select 1 + 2 /* to the end"),
        ('create table "litejobs_t" (a)', "create table litejobs_t(a)"),
        ("select 'it''s -- no', 1", "select 'it''s -- no' , 1"),
    ],
)
def test_layout_and_comments_do_not_count(one: str, other: str) -> None:
    assert statements.plain_text(one) == statements.plain_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("select 'a b'", "select 'a  b'"),
        ("select 'a -- b'", "select 'a '"),
        ("select 'a /* b */'", "select 'a '"),
        ("select ' a'", "select '--\n a'"),
        ("select a b", "select ab"),
        ("select - -1", "select --1"),
        ("select 'a' 'b'", "select 'a''b'"),
        ('select "a (b"', 'select "a(b"'),
        ('select "litejobs_a"b', "select litejobs_ab"),
        ('select a"litejobs_a"', "select alitejobs_a"),
        ('select "select"', "select select"),
        ('select "a"', "select 'a'"),
        ("select [a -- ]", "select [a -- ]]"),
        ("select `a '`, 'b'", "select `a '`, 'c'"),
        ("select a\u00a0b", "select a b"),
    ],
)
def test_what_is_another_statement_has_another_text(one: str, other: str) -> None:
    assert statements.plain_text(one) != statements.plain_text(other)


# What a connection may do while a file is opened --------------------------------------

REACHING = [
    "attach '{victim}' as v",
    "attach '{new}' as v",
    "vacuum",
    "vacuum into '{new}'",
    "delete from orders",
    "update orders set id = 1",
    "insert into orders values (1)",
    "drop table orders",
    "alter table orders add column more",
    "create table more (x)",
    "create view more as select 1",
    "create index more on orders (id)",
    "create trigger more after insert on orders begin select 1; end",
    "create temp table litejobs_more (x)",
    "create temp trigger litejobs_more after insert on orders begin select 1; end",
    "create virtual table litejobs_more using fts5 (a)",
    "create virtual table litejobs_more using rtree (a, b, c)",
    "pragma writable_schema = 1",
    "pragma user_version = 7",
    "pragma application_id = 7",
    "pragma trusted_schema = 1",
    "pragma table_info (orders)",
    "select load_extension('{victim}')",
    "analyze",
    "detach main",
]


@pytest.mark.parametrize(
    "reaching",
    [
        pytest.param(REACHING[::4], id="some"),
        pytest.param(REACHING, id="all", marks=pytest.mark.torture),
    ],
)
def test_upgrade_reaches_nothing_that_is_not_ours(
    path: Path, victim: Path, next_sql: Path, reaching: list[str]
) -> None:
    """Each is refused and changes nothing, so the next one meets the same file."""
    new = path.parent.parent / "new.db"
    before = files_of(path.parent.parent)
    with tomorrow.instead(next_sql), pytest.MonkeyPatch.context() as patch:
        real = statements.migrations(0)
        for statement in reaching:
            script = statement.format(victim=victim, new=new)
            found = [*real, (tomorrow.VERSION, script)]
            patch.setattr(statements, "migrations", lambda after, found=found: found)
            with pytest.raises(FileRefused) as refused:
                LiteJobs(path).open()
            # VACUUM is refused earlier, for there is a transaction.
            sentence = "cannot be upgraded .*(not authorized|from within a transaction)"
            assert re.search(sentence, str(refused.value)), statement
            assert files_of(path.parent.parent) == before, statement


def test_connection_that_is_confined_reaches_nothing_that_is_not_ours(
    path: Path, victim: Path
) -> None:
    """What may be said within an upgrade is refused to the connection."""
    new = path.parent.parent / "new.db"
    before = files_of(path.parent.parent)
    with contextlib.closing(apsw.Connection(str(path))) as db:
        with confinement.confined(db), db:
            for statement in REACHING:
                with pytest.raises(
                    (apsw.AuthError, apsw.SQLError),
                    match=r"not authorized|from within a transaction",
                ):
                    db.execute(statement.format(victim=victim, new=new))
    assert files_of(path.parent.parent) == before


def test_upgrade_may_delete_what_the_application_has_tied_to_it(
    path: Path, next_sql: Path
) -> None:
    """Not its rows: a foreign key that cascades is refused, whatever is deleted."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute(
            "create table tied (job references litejobs_job (id) on delete cascade);"
            "insert into tied select id from litejobs_job"
        )
    before = path.read_bytes()
    with tomorrow.instead(next_sql), pytest.MonkeyPatch.context() as patch:
        script = "delete from litejobs_job"
        patch.setattr(
            statements, "migrations", lambda after: [(tomorrow.VERSION, script)]
        )
        with pytest.raises(FileRefused, match="not authorized"):
            LiteJobs(path).open()
    assert path.read_bytes() == before


def test_file_that_is_open_is_confined_no_more(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with LiteJobs(path) as jobs:
        with jobs.transaction() as db:
            assert db.authorizer is None
            assert db.limit(apsw.SQLITE_LIMIT_ATTACHED) > 0
            db.execute("create table more (x); insert into orders values (1)")
            db.execute("create temp table mine (x); pragma user_version = 7")
        jobs.backup(copy)
        jobs.purge(older_than=0, vacuum=True)
        writer = jobs._store.database._writer
        writer.execute(f"vacuum into '{tmp_path / 'vacuumed.db'}'")
        writer.execute(f"attach '{copy}' as other; detach other")
    assert copy.exists()


def test_authorizer_that_the_application_has_set_is_there_again(path: Path) -> None:
    """By a hook of apsw, for each connection of the process."""
    asked = []

    def authorize(*question: object) -> int:
        asked.append(question)
        return apsw.SQLITE_OK

    def hook(connection: apsw.Connection) -> None:
        connection.authorizer = authorize
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apsw, "connection_hooks", [hook])
        with LiteJobs(path) as jobs:
            with jobs.transaction() as db:
                assert db.authorizer is authorize
                assert db.limit(apsw.SQLITE_LIMIT_ATTACHED) == 3
                asked.clear()
                db.execute("select * from orders").fetchall()
                assert asked


def test_connection_is_as_it_was_when_the_file_was_refused(path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("create table litejobs_more (x)")
        with pytest.raises(TamperedSchema):
            schema.prepare(db, str(path), "full")
        assert db.authorizer is None
        assert db.limit(apsw.SQLITE_LIMIT_ATTACHED) > 0
        with pytest.raises(LiteJobsError), confinement.confined(db):
            raise LiteJobsError
        assert db.authorizer is None
        with confinement.confined(db), pytest.raises(apsw.AuthError):
            db.execute("delete from orders")
        db.execute("delete from orders")


@pytest.mark.parametrize(
    "meta",
    [
        "create view litejobs_meta as select 1 as id, count(*) as schema_version from "
        "(with recursive n (i) as (select 1 union all select i + 1 from n) select i "
        "from n)",
        "create virtual table litejobs_meta using fts5 (id, schema_version)",
    ],
)
def test_version_is_read_from_a_table_alone(tmp_path: Path, meta: str) -> None:
    """A view, or a table that a module shows, could say anything, and for ever."""
    path = tmp_path / "jobs.db"
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute(meta)
    before = path.read_bytes()
    with pytest.raises(TamperedSchema, match="no version of them"):
        LiteJobs(path).open()
    assert path.read_bytes() == before


# Damaged files ------------------------------------------------------------------------


# Where the fields of the header begin; behind the last one it has ended.
FIELDS = [0, 16, *range(18, 24), *range(24, 76, 4), 92, 96, 100]
LASTS = {each - 1 for each in FIELDS}


@pytest.mark.parametrize(
    ("at", "values"),
    [
        pytest.param(at, values, id=f"{at}-{name}", marks=marks)
        for at in range(100)
        for name, values, marks in [
            ("next", (), () if at in LASTS else pytest.mark.torture),
            ("extremes", (0, 255), () if at in FIELDS else pytest.mark.torture),
            ("many", (*range(0, 256, 5), 127), pytest.mark.torture),
        ]
    ],
)
def test_any_byte_of_the_header_may_say_anything(
    path: Path, at: int, values: tuple[int, ...]
) -> None:
    """The file is opened, or refused in a sentence of ours."""
    whole = path.read_bytes()
    for value in {*values, whole[at] ^ 1} - {whole[at]}:
        damaged = bytearray(whole)
        damaged[at] = value
        path.write_bytes(damaged)
        try:
            LiteJobs(path).open().close()
        except FileRefused as error:
            assert str(error).isprintable()
            assert "; " in str(error)
            assert path.read_bytes() == damaged


def test_unknown_format_ends_each_command_with_3(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[47] = 5  # the number of the format; SQLite knows up to 4
    path.write_bytes(damaged)
    with pytest.raises(CorruptDatabase, match="its first page is damaged, or a newer"):
        LiteJobs(path).open()
    for command in (
        *(["init"], ["list"], ["show", "1"], ["stats"], ["events"], ["undo"]),
        *(["enqueue", "send"], ["schema"], ["doctor"], ["doctor", "--quick"]),
        *(["queues"], ["watch", "--once"], ["backup", f"{path}.copy"]),
        *(["purge", "--older-than", "1d", "--yes"], ["export"]),
    ):
        done = run(path, *command)
        assert done.exit_code == 3, (command, done.output)
        assert "its first page is damaged, or a newer SQLite made it" in done.output
    assert path.read_bytes() == damaged


def test_damage_is_told_on_one_line(path: Path) -> None:
    """SQLite breaks lines, and quotes names from the file."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute('create table "a\n\x1b[2J\u202e" (x text not null)')
        db.execute('create index "i\n\x1b[2J\u202e" on "a\n\x1b[2J\u202e" (x)')
        db.execute('insert into "a\n\x1b[2J\u202e" values (1)')
        db.pragma("wal_checkpoint(truncate)")
        db.pragma("journal_mode", "delete")
        pages = db.execute(
            "select rootpage from sqlite_schema where name glob '[ai]?*'"
            " and tbl_name glob 'a?*'"
        ).fetchall()
        size = db.pragma("page_size")
    whole = path.read_bytes()
    for (page,) in pages:
        for first, last in ((0, 100), (5, 7), (8, 12)):
            damaged = bytearray(whole)
            for at in range(first, last):
                damaged[(page - 1) * size + at] = 0xFE
            path.write_bytes(damaged)
            with pytest.raises(CorruptDatabase) as refused:
                LiteJobs(path).open()
            assert str(refused.value).isprintable()
            assert "***" not in str(refused.value)
            found = run(path, "doctor", "--json")
            assert found.exit_code == 3
            for each in json.loads(found.stdout)["checks"]:
                assert each["sentence"].isprintable()
            with pytest.raises(FileRefused) as refused:
                LiteJobs(path).backup(f"{path}.copy")
            assert str(refused.value).isprintable()
    error = apsw.CorruptError("CorruptError: malformed database schema (a\nb\x1b)")
    assert str(translated(error)).isprintable()
