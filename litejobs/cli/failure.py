"""An error is one sentence and an exit code; a traceback only with `--debug`."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli.printing import escaped

if TYPE_CHECKING:
    from types import TracebackType

REFUSED = 1
USUALLY = gc.get_threshold()  # how often Python looks for garbage
SELDOM = (100_000, 50, 50)  # the same in the process of a short command

_alone = False


def is_alone() -> bool:
    """Whether this command is all that the process does, which may end with it."""
    return _alone


class Failure(click.ClickException):
    """The command ends with this sentence on the error stream: nothing was changed.

    Nothing matched, or the change was refused.
    """

    exit_code = REFUSED

    def format_message(self) -> str:
        """The sentence as a terminal may have it: it may quote the file."""
        return escaped(self.message)


class WrongUse(Failure):
    """What was asked for makes no sense."""

    exit_code = 2


class UnusableFile(Failure):
    """The file that `--db` names cannot be used."""

    exit_code = 3


class Commands(click.Group):
    """A group whose commands fail in one sentence, unless `--debug` was given.

    *modules* says in which module of this package, and under which name there, each
    command is made; it is imported when it is asked for.
    """

    def __init__(self, *args: Any, modules: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._modules = modules
        self._everywhere: list[click.Option] = []

    def main(self, *args: Any, **options: Any) -> Any:
        """As click does; called like this, it is all that this process does.

        What was imported stays to the end, so it is not searched for garbage, which
        was a tenth of the time of a short command; `run`, whose process is that of an
        application, undoes the rest of it.
        """
        if not args and not options:
            global _alone  # noqa: PLW0603 - there is one process
            _alone = True
            gc.freeze()
            gc.set_threshold(*SELDOM)
        return super().main(*args, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The commands in the order in which people need them, not of the alphabet."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """The command of this name, from its module."""
        where = self._modules.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        found: click.Command = getattr(
            importlib.import_module(f"litejobs.cli.commands.{module}"), name
        )
        self._take_everywhere(found)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; of a name that is none, it is said which one may be meant."""
        name = args[0]
        if not (name in self._modules or ctx.resilient_parsing or name[:1] == "-"):
            raise click.UsageError(escaped(_no_command(name, self._modules)), ctx)
        return super().resolve_command(ctx, args)

    def _take_everywhere(self, command: click.Command) -> None:
        """The options of this group can be given after the command, too.

        They are not in its help. Where a command has an option of that name itself,
        that one is meant.
        """
        if not self._everywhere:
            self._everywhere = [
                _elsewhere(each)
                for each in self.params
                if isinstance(each, click.Option) and each.expose_value
            ]
        own = {name for each in command.params for name in each.opts}
        command.params += [
            each for each in self._everywhere if own.isdisjoint(each.opts)
        ]
        if isinstance(command, click.Group):
            for each in command.commands.values():
                self._take_everywhere(each)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; every error of ours and of Python is one of the failures."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _named_argument(error) or error from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            raise  # click ends quietly when a reader such as `head` has gone
        except Exception as error:
            if ctx.params["debug"]:
                sys.excepthook = _show_traceback
                raise
            raise _failure_of(error, ctx.params["db"]) from error


# Words of other programs, and what does the same here.
_SYNONYMS = {
    "retry": "requeue, for a job that has ended, or run-now, for one that waits",
    "restart": "requeue",
    "delete": "purge, which deletes jobs that have ended, or cancel",
    "remove": "purge, which deletes jobs that have ended, or cancel",
    "rm": "purge, which deletes jobs that have ended, or cancel",
    "kill": "cancel",
    "stop": "cancel, for a job, or pause, for a queue",
    "status": "stats, or watch",
    "top": "watch",
    "ps": "list",
    "ls": "list",
    "jobs": "list",
    "info": "show",
    "get": "show",
    "tail": "events --follow",
    "log": "events",
    "logs": "events",
    "history": "events",
    "trigger": "run-now, or schedules run",
    "start": "run",
    "work": "run",
    "worker": "run",
    "add": "enqueue",
    "push": "enqueue",
    "submit": "enqueue",
    "cron": "schedules",
    "check": "doctor",
    "dump": "export, or backup",
}


def _no_command(name: str, commands: Iterable[str]) -> str:
    """That there is no such command, and which may be meant."""
    from litejobs.cli.suggestions import did_you_mean

    word = name.casefold()
    meant = _SYNONYMS.get(word)
    note = f"; did you mean {meant}?" if meant else did_you_mean(commands, word)
    return f"there is no command {name:.80}{note or '; see litejobs --help'}"


def _elsewhere(option: click.Option) -> click.Option:
    """The option of the group, as one that any command takes on its behalf."""
    name = option.name

    def hand_on(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        source = ctx.get_parameter_source(str(param.name))
        if name is not None and source is click.core.ParameterSource.COMMANDLINE:
            root = ctx.find_root()
            root.params[name] = value
            root.set_parameter_source(name, source)

    made = click.Option.__new__(type(option))
    made.__dict__.update(option.__dict__)
    made.name = f"everywhere_{name}"
    made.expose_value, made.hidden = False, True
    made.is_eager = True  # known before the values of others are read
    made.envvar, made.default = None, None
    made.callback = hand_on
    return made


def _named_argument(error: click.NoSuchOption) -> click.UsageError | None:
    """What to say of `enqueue --task send`, where TASK is not an option."""
    context = error.ctx
    wanted = error.option_name.lstrip("-").casefold()
    for each in [] if context is None else context.command.params:
        shown = each.human_readable_name.strip("[]…")
        if isinstance(each, click.Argument) and wanted in {each.name, shown.casefold()}:
            return click.UsageError(
                f"{shown.upper()} is given without {error.option_name}; see the usage",
                context,
            )
    return None


def _show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """As Python does, but for what a terminal would obey: it may quote the file."""
    from traceback import format_exception

    for part in format_exception(kind, error, trace):
        for line in part.rstrip("\n").split("\n"):
            click.echo(escaped(line), err=True)


def _failure_of(error: Exception, path: str | None) -> Failure:
    from litejobs.errors import (
        ArgumentError,
        ConfigurationError,
        FileRefused,
        LiteJobsError,
        Refused,
    )

    if isinstance(error, FileRefused):
        return UnusableFile(str(error))
    if isinstance(error, (ConfigurationError, ArgumentError)):
        return WrongUse(str(error))
    if isinstance(error, Refused):
        return Failure(str(error).removeprefix(f"{error.code}: "))
    if isinstance(error, LiteJobsError):
        return Failure(str(error))
    if isinstance(error, UnicodeDecodeError):
        sentence = f"{path} holds text that is not UTF-8 ({error.object!r:.60})"
        return UnusableFile(f"{sentence}; correct that row with the sqlite3 shell")
    if isinstance(error, UnicodeEncodeError):
        sentence = f"{error.object!r:.80} is not UTF-8 text"
        return WrongUse(f"{sentence}; write it in the encoding of this terminal")
    sentence = f"unexpected {type(error).__name__}: {error}"
    return Failure(f"{sentence}; give --debug after litejobs to see where")
