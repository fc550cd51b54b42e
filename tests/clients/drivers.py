"""The clients that are tried, and what is known of each.

A client says where it is found, how its program is started, and what differs from what
most have: what is seen, and why. A run that sees anything else fails.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.clients.acts import FACTS, WORKS

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples" / "sql"
PLACE = "LITEJOBS_CLIENTS"
"""An environment variable: the folder where packages of npm and pip were installed."""
OF_NPM = ("better-sqlite3", "bun", "deno", "libsql", "node@22", "sql.js")
OF_PIP = (
    *("adbc-driver-sqlite", "duckdb", "duckdb-extension-sqlite-scanner", "libsql"),
    *("pyarrow", "pyodbc", "pyturso"),
)

USUAL = {
    "waits for a lock": "no",
    "7, ms, true, a date": "integer, integer, integer, text",
    "rows of one insert": "1",
    "last id": "the job's",
    "synchronous": "full",
    "an open row": "lets go",
}
"""What most drivers do."""

Command = Callable[[], "list[str] | None"]


class Differs(NamedTuple):
    """What is seen that is not as usual, or a part of its words, and why."""

    seen: str
    because: str = ""


class Client(NamedTuple):
    """A driver, and what is known of it."""

    name: str
    command: Command
    package: str  # what brings it, for the one who has not got it
    differs: Mapping[str, Differs] = {}
    opens: Differs | None = None  # what is seen if it cannot open the file
    note: str = ""  # how it has to be opened
    example: str = ""  # a whole program in its language
    always: bool = False  # part of each run of the tests, where it is found
    numbers_alone: bool = False  # truths and dates are not tried

    def expected(self, name: str) -> Differs:
        """What is seen of an act or a fact."""
        usual = USUAL[name] if name in FACTS else WORKS
        return self.opens or self.differs.get(name, Differs(usual))

    @property
    def waits(self) -> bool:
        """Whether it waits when the file is locked."""
        return not self.expected("waits for a lock").seen.startswith("no")


# Where they are found --------------------------------------------------------------


def place() -> Path:
    """Where packages of npm and pip were installed for this."""
    return Path(os.environ.get(PLACE, PROGRAMS))


def program(name: str, *around: str, after: tuple[str, ...] = ()) -> Command:
    """A program of an interpreter, if that is there."""

    def command() -> list[str] | None:
        found = shutil.which(around[0])
        return found and [found, *around[1:], str(PROGRAMS / name), *after]

    return command


def when(*ask: str, then: Command) -> Command:
    """The same, if the interpreter says that it has what it needs."""
    return lambda: then() if shutil.which(ask[0]) and _has(*ask) else None


def python(module: str, name: str = "dbapi.py") -> Command:
    """A module of this Python, or of the one in the place."""

    def command() -> list[str] | None:
        with_module = [str(PROGRAMS / name), module]
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            return [sys.executable, *with_module]
        other = place() / "python" / "bin" / "python"
        if other.exists() and _has(str(other), "-c", f"import {module}"):
            return [str(other), *with_module]
        return None

    return command


def of_npm(runs: str, name: str, module: str) -> Command:
    """A module of npm in the place; *runs* is there, too, or in the path."""

    def command() -> list[str] | None:
        modules = place() / "node_modules"
        found = shutil.which(runs) or shutil.which(str(modules / runs))
        if found is None or not (":" in module or (modules / module).is_dir()):
            return None
        given = module if ":" in module else str(modules / module)
        return [
            found,
            *(["run", "-A"] if "deno" in runs else []),
            *((str(PROGRAMS / name), given)),
        ]

    return command


def node_sqlite() -> list[str] | None:
    """Node from 22 on has SQLite itself; Node 20 has not."""
    for node in ("node", str(place() / "node_modules" / "node" / "bin" / "node")):
        if shutil.which(node) and _has(node, "-e", "require('node:sqlite')"):
            return [node, "--no-warnings", str(PROGRAMS / "node.cjs"), "node:sqlite"]
    return None


def shell() -> list[str] | None:
    """The sqlite3 shell."""
    found = shutil.which("sqlite3")
    return found and [sys.executable, str(PROGRAMS / "shell.py"), found]


def go() -> list[str] | None:
    """Go with the driver as Debian lays it, without modules."""
    if not shutil.which("go") or not Path(GO, "src/github.com/mattn").is_dir():
        return None
    around = ["env", "GO111MODULE=off", f"GOPATH={GO}", "go", "run"]
    return [*around, str(PROGRAMS / "client.go")]


def mono() -> list[str] | None:
    """C#, which is compiled first."""
    if not shutil.which("mcs"):
        return None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = str(Path(folder, "Client.exe"))
    needs = ["-r:Mono.Data.Sqlite.dll", "-r:System.Data.dll"]
    compiled = _has("mcs", *needs, f"-out:{made}", str(PROGRAMS / "Client.cs"))
    return ["mono", made] if compiled else None


def java() -> list[str] | None:
    """Java, which compiles its program itself."""
    if not shutil.which("java") or not Path(JAR).exists():
        return None
    return ["java", "-cp", JAR, str(PROGRAMS / "Client.java")]


def example(client: Client) -> list[str] | None:
    """How the whole program in its language is started, which docs/sql.md shows."""
    command = client.command()
    if command is None:
        return None
    words = [Path(each) for each in command]
    [number] = [n for n, each in enumerate(words) if each.parent == PROGRAMS]
    return [*command[:number], str(EXAMPLES / client.example)]


@functools.cache
def _has(*command: str) -> bool:
    """Whether a program says that something is there."""
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode == 0


GO = "/usr/share/gocode"
JAR = "/usr/share/java/sqlite-jdbc.jar"

# What is known of them -------------------------------------------------------------

KEEPS = Differs(
    "keeps the lock",
    "a row of `returning` that is read, and the rest not, keeps the write lock: read to"
    " the end, or finish the statement",
)
NORMAL = Differs(
    "normal",
    "a power cut may take the last commits (P1 does not hold): say"
    " `pragma synchronous = full`",
)
NOT_TOLD = Differs("not told", "select `last_insert_rowid()`, or the job by its key")
NODE_BINDS = Differs(
    "real, real, refused, null",
    "a number is a real; pass a truth as 0 or 1; a `Date` as the first parameter is"
    " taken for names, and NULL is bound without an error: pass milliseconds",
)
MEMORY = "it has a copy of the file in memory: nothing that it says reaches the file"

ITS_OWN = "DuckDB does it with its own parser, functions and settings"

CLIENTS = [
    Client(
        "Python sqlite3",
        python("sqlite3"),
        "Python's own",
        {"waits for a lock": Differs("5 s")},
        note="`isolation_level=None`, or each change needs a `commit()`",
        example="client.py",
        always=True,
    ),
    Client(
        "Python apsw",
        python("apsw"),
        "pip: apsw",
        {
            "7, ms, true, a date": Differs("integer, integer, integer, refused"),
            "an open row": KEEPS,
        },
        always=True,
    ),
    Client("sqlite3 shell", shell, "Debian: sqlite3", always=True),
    Client(
        "node:sqlite",
        node_sqlite,
        "Node 22 or newer, npm: node@22; Node 20 has no node:sqlite",
        {
            "7, ms, true, a date": NODE_BINDS,
            "an open row": KEEPS,
        },
        example="client.mjs",
        always=True,
    ),
    Client(
        "better-sqlite3",
        of_npm("node", "node.cjs", "better-sqlite3"),
        "npm: better-sqlite3",
        {
            "waits for a lock": Differs("5 s"),
            "7, ms, true, a date": Differs("real, real, refused, refused"),
            "synchronous": NORMAL,
            "an open row": KEEPS,
        },
        always=True,
    ),
    Client(
        "libsql (Node)",
        of_npm("node", "node.cjs", "libsql"),
        "npm: libsql",
        {
            "waits for a lock": Differs(
                "no, and then keeps it",
                "a statement that found the lock taken stays open, and what comes after"
                " it is not committed: set the timeout first",
            ),
            "7, ms, true, a date": Differs(
                "real, real", "it takes numbers: pass 0 or 1, and milliseconds"
            ),
        },
        numbers_alone=True,
    ),
    Client(
        "sql.js",
        of_npm("node", "sqljs.cjs", "sql.js"),
        "npm: sql.js",
        {
            "enqueue": Differs("no job", MEMORY),
            "enqueue 300": Differs("no jobs", MEMORY),
            "result": Differs("", MEMORY),
            "cancel": Differs("scheduled", MEMORY),
            "read on": Differs("no events", MEMORY),
            "pause": Differs("not paused", MEMORY),
            "be the runner": Differs("[]", MEMORY),
            "duplicate": Differs("job", MEMORY),
            "be the calendar": Differs("0 of 2", MEMORY),
            "waits for a lock": Differs("yes", MEMORY),
            "7, ms, true, a date": Differs("integer, real, integer, refused"),
            "last id": NOT_TOLD,
        },
    ),
    Client(
        "Deno node:sqlite",
        of_npm("deno/deno", "node.cjs", "node:sqlite"),
        "npm: deno",
        {
            "7, ms, true, a date": NODE_BINDS,
            "an open row": KEEPS,
        },
    ),
    Client(
        "bun:sqlite",
        of_npm("bun/bin/bun.exe", "node.cjs", "bun:sqlite"),
        "npm: bun",
        {
            "7, ms, true, a date": Differs("integer, integer, integer, refused"),
            "an open row": KEEPS,
        },
    ),
    Client(
        "libsql (Python)",
        python("libsql"),
        "pip: libsql",
        {
            "7, ms, true, a date": Differs("integer, real, integer, refused"),
            "an open row": KEEPS,
        },
    ),
    Client(
        "ADBC (Python)",
        python("adbc_driver_sqlite.dbapi"),
        "pip: adbc-driver-sqlite pyarrow",
        {"rows of one insert": Differs("not told"), "last id": NOT_TOLD},
    ),
    Client(
        "ODBC (pyodbc)",
        python("pyodbc"),
        "pip: pyodbc, Debian: libsqliteodbc",
        {
            "waits for a lock": Differs("yes"),
            "last id": NOT_TOLD,
            "synchronous": NORMAL,
        },
        note="`BigInt=yes`, or instants are cut to 32 bits when they are read",
    ),
    Client(
        "Perl DBD::SQLite",
        when("perl", "-MDBD::SQLite", "-e1", then=program("client.pl", "perl")),
        "Debian: libdbd-sqlite3-perl",
        {
            "waits for a lock": Differs("30 s"),
            "7, ms, true, a date": Differs("text, text, text, text"),
        },
        example="client.pl",
    ),
    Client(
        "PHP PDO",
        when(
            *("php", "-r", "exit((int) !extension_loaded('pdo_sqlite'));"),
            then=program("client.php", "php", after=("pdo",)),
        ),
        "Debian: php-cli php-sqlite3",
        {
            "waits for a lock": Differs("60 s"),
            "7, ms, true, a date": Differs("text, text, text, refused"),
            "an open row": KEEPS,
        },
        example="client.php",
    ),
    Client(
        "PHP SQLite3",
        when(
            *("php", "-r", "exit((int) !extension_loaded('sqlite3'));"),
            then=program("client.php", "php", after=("sqlite3",)),
        ),
        "Debian: php-cli php-sqlite3",
        {
            "7, ms, true, a date": Differs("integer, integer, integer, refused"),
            "an open row": KEEPS,
        },
    ),
    Client(
        "Ruby sqlite3",
        when("ruby", "-rsqlite3", "-e", "0", then=program("client.rb", "ruby")),
        "Debian: ruby-sqlite3",
        {
            "7, ms, true, a date": Differs("integer, integer, refused, refused"),
            "an open row": KEEPS,
        },
    ),
    Client(
        "R RSQLite",
        when(
            *("Rscript", "-e", "library(RSQLite)"),
            then=program("client.R", "Rscript"),
        ),
        "Debian: r-cran-rsqlite",
        {
            "7, ms, true, a date": Differs("real, real, integer, real"),
            "rows of one insert": Differs("triggers' rows too"),
            "synchronous": Differs(
                "off",
                "a power cut may damage the file: connect with"
                ' `dbConnect(…, synchronous = "full")`',
            ),
        },
        example="client.R",
    ),
    Client(
        "Lua DBI",
        when(*("lua5.4", "-e", "require('DBI')"), then=program("client.lua", "lua5.4")),
        "Debian: lua5.4 lua-dbi-sqlite3",
        {
            "be the calendar": Differs(
                "0 of 2", "instants are cut to 32 bits when they are read"
            ),
            "7, ms, true, a date": Differs("real, real, integer, text"),
        },
        note="`autocommit(true)`, and close each statement, one that failed above all:"
        " it keeps what comes after it from being committed",
    ),
    Client(
        "Tcl sqlite3",
        program("client.tcl", "tclsh"),
        "Debian: libsqlite3-tcl",
        {"7, ms, true, a date": Differs("integer, integer, text, text")},
    ),
    Client(
        "Go mattn/go-sqlite3",
        go,
        "Debian: golang-go golang-github-mattn-go-sqlite3-dev",
        {
            "waits for a lock": Differs("5 s"),
            "synchronous": NORMAL,
            "an open row": KEEPS,
        },
        example="client.go",
    ),
    Client(
        "JDBC Xerial",
        java,
        "Debian: default-jdk-headless libxerial-sqlite-jdbc-java",
        {
            "waits for a lock": Differs("3 s"),
            "7, ms, true, a date": Differs("integer, integer, integer, integer"),
            "an open row": KEEPS,
        },
        example="Client.java",
    ),
    Client(
        ".NET Mono.Data.Sqlite",
        mono,
        "Debian: mono-mcs libmono-sqlite4.0-cil",
        {
            "waits for a lock": Differs("yes"),
            "synchronous": NORMAL,
            "an open row": KEEPS,
        },
        note="it changes the journal of the file when it opens it, and is refused while"
        " a runner lives: say `Journal Mode=WAL`",
    ),
    Client(
        "DuckDB",
        python("duckdb", "duck.py"),
        "pip: duckdb duckdb-extension-sqlite-scanner",
        {
            "read on": Differs(
                "Cannot compare values of type VARCHAR",
                "what a view works out comes as text: `cast(id as bigint) > 7`",
            ),
            "be the runner": Differs("randomblob does not exist", ITS_OWN),
            "be the calendar": Differs("litejobs_plan is not an table", ITS_OWN),
            "7, ms, true, a date": Differs("INTEGER, BIGINT, BOOLEAN, TIMESTAMP"),
            "rows of one insert": Differs("not told"),
            "last id": Differs("not told"),
            "synchronous": Differs("not told", ITS_OWN),
            "an open row": Differs("refused", ITS_OWN),
        },
        note="it waits for no lock, also with `busy_timeout` in `attach`: try again",
    ),
    Client(
        "Turso (Python)",
        python("turso"),
        "pip: pyturso",
        opens=Differs(
            "locked by another process",
            "it takes the whole file for itself: no other process may have it open",
        ),
    ),
]
