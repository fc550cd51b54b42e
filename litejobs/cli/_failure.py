"""An error is one sentence and an exit code; a traceback only with `--debug`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli._output import escaped

if TYPE_CHECKING:
    from types import TracebackType

REFUSED = 1


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

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The commands in the order in which people need them, not of the alphabet."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name, from its module."""
        where = self._modules.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        found: click.Command = getattr(
            importlib.import_module(f"litejobs.cli.{module}"), name
        )
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; every error of ours and of Python is one of the failures."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            raise  # click ends quietly when a reader such as `head` has gone
        except Exception as error:
            if ctx.params["debug"]:
                sys.excepthook = _show_traceback
                raise
            raise _failure_of(error, ctx.params["db"]) from error


def _show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """As Python does, but for what a terminal would obey: it may quote the file."""
    from traceback import format_exception  # noqa: PLC0415 - seldom

    for part in format_exception(kind, error, trace):
        for line in part.rstrip("\n").split("\n"):
            click.echo(escaped(line), err=True)


def _failure_of(error: Exception, path: str | None) -> Failure:
    from litejobs.errors import (  # noqa: PLC0415 - needed only here
        ArgumentError,
        ConfigurationError,
        FileRefused,
        LiteJobsError,
    )

    if isinstance(error, FileRefused):
        return UnusableFile(str(error))
    if isinstance(error, (ConfigurationError, ArgumentError)):
        return WrongUse(str(error))
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
