"""What is written on a command line, as the values that `LiteJobs` takes."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

DEFAULT_TIMEOUT = "5s"

JOB_ID = click.IntRange(1, 2**63 - 1)


class Duration(_ParamType):
    """`90`, which is seconds, or `1h30m`; `LiteJobs` says what is no duration."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Numbers as numbers; the rest as it was written."""
        del param, ctx
        try:
            return float(value)
        except (TypeError, ValueError):
            return value


class Seconds(_ParamType):
    """A duration of more than nothing, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """`5s` is 5.0; plain numbers are seconds."""
        with contextlib.suppress(TypeError, ValueError):
            value = float(value)
        if value == DEFAULT_TIMEOUT:
            return 5.0  # for a quick start, without the module that reads durations
        from litejobs._time import duration_ms  # noqa: PLC0415 - heavy
        from litejobs.errors import ConfigurationError  # noqa: PLC0415

        name = "duration" if param is None else str(param.name)
        try:
            ms = duration_ms(value, name=name)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        if ms == 0:
            self.fail(f"{value!r} is no time at all; give more", param, ctx)
        return ms / 1000


class Setting(_ParamType):
    """A new value for a setting, or `none`; `...`, as the default, leaves it alone."""

    name = "setting"

    def __init__(self, value: _ParamType, *, optional: bool = True) -> None:
        self._value = value
        self._optional = optional

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """`...`, None, or the value as its own type has it."""
        if value is ...:
            return value
        if self._optional and value == "none":
            return None
        return self._value.convert(value, param, ctx)


class Instant(_ParamType):
    """`2026-01-31T09:00+01:00`: ISO 8601 with a zone."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dt.datetime:
        """An aware datetime."""
        try:
            at = dt.datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no instant; write 2026-01-31T09:00Z", param, ctx)
        if at.tzinfo is None:
            self.fail(f"{value!r} has no zone; end it in Z or +01:00", param, ctx)
        return at


class State(_ParamType):
    """One of the states a job can be in."""

    name = "state"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The state, as it is written in the file."""
        return str(self._choice().convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The states that begin like this."""
        return self._choice().shell_complete(ctx, param, incomplete)

    def _choice(self) -> click.Choice[str]:
        from litejobs._dispatch import STATES  # noqa: PLC0415 - heavy; seldom needed

        return click.Choice(sorted(STATES))
