"""Make a jobs file, and run the jobs of an application.

With `--json`:

    init                          {"file": {"path": …, "schema_version": …, "was": the
                                   version before, or null where it was made}}
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import USUALLY, Failure, WrongUse
from litejobs.cli.file.opening import AUTO, files_here, path_given
from litejobs.cli.input.types import Count, Duration

if TYPE_CHECKING:
    from litejobs import LiteJobs

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.2


class QueueNames(_ParamType):
    """`mail,bulk`: names of queues, separated by commas."""

    name = "name,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """The names, without blanks around them."""
        names = [each.strip() for each in value.split(",")]
        if not all(names):
            self.fail(
                f"{value!r} lacks a name; separate queues by commas, as mail,bulk",
                param,
                ctx,
            )
        return names


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db init""",
    help="""Create the jobs file, or bring an older one up to date.

    A file that holds the tables of an application keeps them. Where another program
    has dropped all tables of litejobs, they are made again, without jobs.
    """,
)
@printing.json_option
def init(*, as_json: bool) -> None:
    from litejobs import LiteJobs
    from litejobs._storage import files, statements

    path, version = path_given(), statements.current_version()
    was = _version_of(path)
    real = files.prepare(path)
    if was is None:
        _clear_remains(path, str(real))
    with LiteJobs(path):
        pass
    if as_json:
        file = {"path": path, "schema_version": version, "was": was}
        printing.document({"file": file})
    elif was is None:
        printing.say(f"{path} was made (schema version {version})")
    elif was == version:
        printing.say(f"{path} is ready as it was (schema version {version})")
    else:
        printing.say(f"{path} was upgraded (schema version {was} to {version})")


def _version_of(path: str) -> int | None:
    """The schema version of the file; None if it has none, or is not there."""
    import apsw

    from litejobs.cli.file.unchecked import open_unchecked
    from litejobs.errors import LiteJobsError

    # What is wrong with the file is said when it is opened.
    with contextlib.suppress(apsw.Error, LiteJobsError), open_unchecked(path) as file:
        if file.value("installed") and file.value("has_meta"):
            version: int | None = file.value("file_version")
            return version
    return None


def _clear_remains(path: str, real: str) -> None:
    """Views that are left without their tables are not in the way."""
    import apsw

    from litejobs._storage import process_guard, schema, schema_version, statements
    from litejobs.cli.file.unchecked import open_unchecked
    from litejobs.errors import LiteJobsError

    # What is wrong with the file is said when it is opened.
    with contextlib.suppress(apsw.Error, LiteJobsError), open_unchecked(path) as file:
        if not schema_version.are_all_dropped(statements.objects(file.connection)):
            return
        with process_guard.expected_open(real):
            connection = apsw.Connection(real, flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(connection):
            schema.clear_remains(connection)


@click.command(
    epilog="""\b
Examples:
  litejobs run app:jobs
  litejobs run app.background:jobs --threads 8 --grace 1m
  litejobs run app:jobs --queues mail,bulk
  litejobs run app:jobs --log-format json
  litejobs run app:jobs --standby
  litejobs run app:jobs --reload
  litejobs --db app.db run app:jobs --until-empty""",
    help="""Run the jobs of an application until SIGTERM or Ctrl-C.

    MODULE:OBJECT is where its LiteJobs object is; the module is looked for in the
    current folder first. The file is the one that the object names; one that --db or
    LITEJOBS_DB names has to be the same. On the first signal no further job is started
    and those that run have the grace period; a second signal ends that. What has not
    ended by then is run again later.

    With --until-empty the exit code is 0 when nothing is due and nothing runs, also if
    jobs have failed for good. Jobs that a rate or a tier holds back are waited for;
    those that wait for their time, a retry, an open circuit or others are left. With
    --reload the jobs run in a process of its own, which is stopped, with the grace
    period, and started anew when a file of the application's changes.

    The log goes to the error stream as text, unless the application has set up its
    logging.
    """,
)
@click.argument("target", metavar="MODULE:OBJECT")
@click.option(
    "--threads",
    type=Count(1),
    default=4,
    show_default=True,
    help="How many jobs run at once.",
)
@click.option(
    "--concurrency",
    type=Count(1),
    help="How many coroutines run beside them; 100, if the application does not say.",
)
@click.option(
    "--lend",
    type=Count(0),
    help="How many threads more run what waiting jobs wait for; as many, if not given.",
)
@click.option(
    "--grace",
    type=Duration(),
    default="10s",
    show_default=True,
    help="How long running jobs may go on after a stop.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="If another process runs the jobs, wait and take over when it ends.",
)
@click.option(
    "--queues",
    type=QueueNames(),
    multiple=True,
    help="Run the jobs of these queues alone; the others wait.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="End when nothing is due and nothing runs; what waits for its time is left.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Start anew when the application's code changes: for development.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Show the log so, whatever the application says; json is one object per line.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    target: str,
    *,
    threads: int,
    concurrency: int | None,
    lend: int | None,
    grace: Any,
    standby: bool,
    queues: tuple[list[str], ...],
    until_empty: bool,
    reload: bool,
    log_format: str | None,
) -> None:
    from litejobs._process import log as _log
    from litejobs._process import reloader
    from litejobs.cli.output.log_format import show_log
    from litejobs.errors import RunnerActive

    if reload and not reloader.is_child():
        show_log(log_format)
        context.exit(_watch())
    gc.set_threshold(*USUALLY)
    with reloader.reporting() as loaded:
        jobs = _load(target)
        loaded()
    _check_file(context, target, jobs.path)
    show_log(log_format)
    names = ", ".join(sorted(jobs.tasks)) or "none: nothing will be run"
    chosen = [name for given in queues for name in given] or None
    if chosen is not None:
        names += f"; only queues: {', '.join(chosen)}"
    try:
        jobs.open()
        _log.info("starting %s, whose file is %s; tasks: %s", target, jobs.path, names)
        jobs.run_forever(
            threads=threads,
            concurrency=concurrency,
            lend=lend,
            grace=grace,
            standby=standby,
            queues=chosen,
            until_empty=until_empty,
        )
    except RunnerActive as error:
        who = "another process" if error.pid is None else f"process {error.pid}"
        raise Failure(
            f"{who} already runs the jobs of {jobs.path}; stop it, or wait for its end "
            "with --standby"
        ) from error
    finally:
        jobs.close()
    _log.info("stopped")


def _watch() -> int:
    """The jobs run in a child, again and again; its last exit code."""
    from litejobs._process import reloader

    if sys.platform == "win32":  # pragma: no cover
        raise click.UsageError(
            "--reload is not there on Windows; start the command anew after a change"
        )
    return reloader.watch()


def _check_file(context: click.Context, target: str, path: str) -> None:
    """The file that was named, if one was, is that of the object.

    Raises:
        WrongUse: It is another one: what is enqueued into the one would not be run.
    """
    from litejobs._storage.files import MEMORY

    root = context.find_root()
    named: str | None = root.params["db"]
    if named is None:
        return
    given = root.get_parameter_source("db") is click.core.ParameterSource.COMMANDLINE
    by, without = (
        ("--db", "leave --db out")
        if given
        else ("LITEJOBS_DB", f"name the file of the object: --db {path}")
    )
    if named == AUTO:
        found = files_here()
        # None may be there yet, and of several none is meant.
        if len(found) != 1:
            return
        named = found[0]
    if path == MEMORY:
        raise WrongUse(
            f"{target} keeps its jobs in memory, and {by} names {named}, which it "
            f"would not run; give its LiteJobs object that path, or leave {by} out"
        )
    if os.path.realpath(path) != os.path.realpath(named):
        raise WrongUse(
            f"{target} keeps its jobs in {path}, and {by} names another file, {named}; "
            f"{without}, or give the LiteJobs object the other path"
        )


# Finding the object -------------------------------------------------------------------


def _load(target: str) -> LiteJobs:
    """The LiteJobs object that `module:object` names, its module imported.

    Raises:
        click.BadParameter: There is none; the message says what is missing.
    """
    from litejobs import LiteJobs

    name, _, path = target.partition(":")
    if not name or not path:
        raise _bad(
            f"{target!r} does not name an object; write MODULE:OBJECT, as app:jobs"
        )
    if name.endswith(".py") or "/" in name or "\\" in name:
        module = Path(name.replace("\\", "/")).stem
        raise _bad(
            f"{name!r} is a file; name the module in its folder, as {module}:{path}"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise _bad(f"{name!r} is not the name of a module; write it as app or app.jobs")
    module = _import(name)
    found: Any = module
    for step in path.split("."):
        try:
            found = getattr(found, step)
        except AttributeError:
            raise _bad(f"{name!r} has no {path!r}; {_candidates(module)}") from None
    if not isinstance(found, LiteJobs):
        kind = type(found).__name__
        raise _bad(f"{target!r} is of type {kind}, not LiteJobs; {_candidates(module)}")
    return found


def _import(name: str) -> Any:
    folder = str(Path.cwd())
    if sys.path[:1] != [folder]:
        # Asked for by whoever names the module; a file never chooses what is imported.
        sys.path.insert(0, folder)
    from litejobs._process.role import importing

    try:
        with importing("litejobs imports it to run its jobs"):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise _bad(
                f"there is no module {missing!r} in {folder} or where Python looks; "
                "run this where it lies, or install it"
            ) from None
        raise _not_importable(name, error) from error
    except SystemExit as error:
        raise _bad(
            f"{name!r} ends the process when it is imported; put what it starts under "
            'if __name__ == "__main__"'
        ) from error
    except Exception as error:
        raise _not_importable(name, error) from error


def _not_importable(name: str, error: Exception) -> Exception:
    context = click.get_current_context()
    if context.find_root().params["debug"]:
        return error
    return _bad(
        f"{name!r} cannot be imported: {type(error).__name__}: {error}; "
        "give --debug after litejobs to see where"
    )


def _candidates(module: Any) -> str:
    from litejobs import LiteJobs

    names = [
        name for name, value in vars(module).items() if isinstance(value, LiteJobs)
    ]
    if not names:
        return "no name in that module is a LiteJobs object"
    found = " or ".join(f"{module.__name__}:{name}" for name in names[:3])
    return f"did you mean {found}?"


def _bad(sentence: str) -> click.BadParameter:
    return click.BadParameter(printing.escaped(sentence), param_hint="MODULE:OBJECT")
