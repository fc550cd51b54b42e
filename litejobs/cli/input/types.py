"""What is written on a command line, as the values that `LiteJobs` takes."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from litejobs.cli.file.reader import Reader

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

DEFAULT_TIMEOUT = "5s"

# `int` and `float` also take `1_000`, blanks around, and the digits of all scripts, of
# which some look like others.
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
_AGO = re.compile(r"-[0-9.]")  # -2h
_DATE_OR_STAMP = re.compile(r"[0-9]{8,}(T.*)?$")  # 20260131, or seconds since 1970


class Whole(click.types.IntParamType):
    """A whole number, in the digits 0 to 9."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The number."""
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            self.fail(_no_number(value), param, ctx)
        return super().convert(value, param, ctx)


class Count(click.IntRange):
    """How many: a whole number in a range, in the digits 0 to 9."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The number."""
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            self.fail(_no_number(value), param, ctx)
        return super().convert(value, param, ctx)


def _no_number(value: str) -> str:
    return f"{value!r} is not a valid integer; write it in digits, as 1000"


class _Id(click.IntRange):
    """What SQLite numbers."""

    _otherwise: str  # what it is not, and the way out
    _query: str

    def __init__(self) -> None:
        super().__init__(1, 2**63 - 1)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number."""
        if isinstance(value, str):
            number = int(value) if _WHOLE.fullmatch(value) else 0
            if not 1 <= number < 2**63:
                self.fail(f"{value!r} is {self._otherwise}", param, ctx)
            return number
        return int(super().convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The newest that begin like this."""
        del param
        if incomplete and not (incomplete.isascii() and incomplete.isdecimal()):
            return []
        return _offered(ctx, self._query, incomplete)


class JobId(_Id):
    """The id of a job. Tab offers unfinished and dead-lettered ones first."""

    _otherwise = "not the id of a job; give a number that `litejobs list` shows"
    _query = "offer_jobs"


class OperationId(_Id):
    """The number of an operation. Tab offers those that can be undone."""

    _otherwise = (
        "not the number of an operation; give one that `litejobs undo --list` shows"
    )
    _query = "offer_operations"


class Name(click.types.StringParamType):
    """The name of something; Tab offers those in the file. New ones are names, too."""

    def __init__(self, query: str) -> None:
        """*query* names the statement that returns them, with a word about each."""
        self._query = query

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that begin like this."""
        del param
        return _offered(ctx, self._query, incomplete)


def _offered(ctx: click.Context, query: str, incomplete: str) -> list[CompletionItem]:
    from litejobs.cli.input.offers import offered

    return offered(ctx, query, incomplete)


WHOLE = Whole()
JOB_ID = JobId()
OPERATION_ID = OperationId()
QUEUE = Name("offer_queues")
TASK = Name("offer_tasks")
STEP = Name("offer_steps")
SCHEDULE = Name("offer_schedules")
KEY = Name("offer_keys")
CIRCUIT = Name("offer_circuits")
FACT = Name("offer_facts")
EXECUTOR = Name("offer_executors")
EVENT = Name("offer_events")
OBJECT = Name("offer_objects")
REASON = Name("offer_reasons")


class FileName(_ParamType):
    """The path of a file. `click.Path` is the same, and looks for translations."""

    name = "path"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that the shell finds."""
        del ctx, param
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Duration(_ParamType):
    """`90`, which is seconds, or `1h30m`; `LiteJobs` says what is not a duration."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Numbers as numbers; the rest as it was written."""
        del param, ctx
        if isinstance(value, str) and (not value.isascii() or "_" in value):
            return value
        try:
            number = float(value)
        except (TypeError, ValueError):
            return value
        return number if isinstance(value, float) or number - number == 0 else value


class Seconds(_ParamType):
    """A duration of more than nothing, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """`5s` is 5.0; plain numbers are seconds."""
        value = Duration().convert(value, param, ctx)
        if value == DEFAULT_TIMEOUT:
            return 5.0  # for a quick start, without the module that reads durations
        from litejobs._definitions.milliseconds import duration_ms
        from litejobs.errors import ConfigurationError

        name = "duration" if param is None else str(param.name)
        try:
            ms = duration_ms(value, name=name)
        except ConfigurationError as error:
            self.fail(str(error).removeprefix(f"{name}="), param, ctx)
        if ms == 0:
            self.fail(f"{value!r} is not any time at all; give more", param, ctx)
        return ms / 1000


class Size(_ParamType):
    """`500MB`, or a number of bytes."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """In bytes."""
        from litejobs._definitions.file_size import bytes_of
        from litejobs.errors import ConfigurationError

        try:
            return bytes_of(value, name="size")
        except ConfigurationError as error:
            self.fail(str(error).removeprefix("size="), param, ctx)


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

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What its own type offers, and `none`."""
        from click.shell_completion import CompletionItem

        found = self._value.shell_complete(ctx, param, incomplete)
        if self._optional and "none".startswith(incomplete):
            found = [*found, CompletionItem("none")]
        return found


class Instant(_ParamType):
    """`2026-01-31T09:00+01:00`, `23:30`, `tomorrow`, `+10m`.

    A time of day is the next one, or with *past* the last one.
    """

    name = "instant"

    def __init__(self, *, past: bool = False) -> None:
        self._past = past

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dt.datetime:
        """An aware datetime."""
        if isinstance(value, dt.datetime):
            return value
        from litejobs.cli.input.datetimes import read

        utc = ctx is not None and bool(ctx.find_root().params.get("utc"))
        try:
            return read(value, dt.datetime.now(dt.UTC), utc=utc, past=self._past)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Since(_ParamType):
    """`1h`, which is so long ago, or an instant; `in_ms` says which one that is."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bool, int]:
        """Whether it is relative, and the milliseconds."""
        if isinstance(value, tuple):
            return value
        from litejobs._definitions.milliseconds import duration_ms, instant_ms
        from litejobs.cli.input.datetimes import looks_like_one
        from litejobs.errors import ConfigurationError

        name = "since" if param is None else str(param.name)
        try:
            if looks_like_one(value):
                at = Instant(past=True).convert(value, param, ctx)
                return False, instant_ms(at, name=name)
            if _DATE_OR_STAMP.match(value):
                self.fail(
                    f"{value!r} would be very long ago; write a day as 2026-01-31, and "
                    "an age with its unit, as 90s or 7d",
                    param,
                    ctx,
                )
            ago = value.removesuffix(" ago")
            return True, duration_ms(Duration().convert(ago, param, ctx), name=name)
        except ConfigurationError as error:
            self.fail(str(error).removeprefix(f"{name}="), param, ctx)

    @staticmethod
    def in_ms(value: tuple[bool, int] | None, file: Reader) -> int | None:
        """The instant in ms, by the clock of the file; None if nothing was asked."""
        since: int | None = file.value("since", **Since.facts(value))
        return since

    @staticmethod
    def facts(value: tuple[bool, int] | None) -> dict[str, int | None]:
        """`since`, an instant in ms, or `ago`, an age in ms; both None if neither."""
        relative, ms = value or (False, None)
        return {"since": None, "ago": ms} if relative else {"since": ms, "ago": None}


class At(Since):
    """An instant that has passed, or `2h` or `-2h`, which is so long ago, or `now`."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bool, int]:
        """Whether it is relative, and the milliseconds."""
        if isinstance(value, str) and _AGO.match(value):
            value = value[1:]
        return super().convert(value, param, ctx)


class Cursor(_ParamType):
    """`1767268800000:42`: the key and the id of the last job of the page before."""

    name = "cursor"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Both as numbers."""
        if isinstance(value, tuple):
            return value
        sentence = f"{value!r} is not a place in a list; give what the last page said"
        parts = value.split(":")
        if len(parts) != 2 or not all(map(_WHOLE.fullmatch, parts)):  # noqa: PLR2004 - count and period
            self.fail(sentence, param, ctx)
        key, job_id = map(int, parts)
        if max(abs(key), job_id) >= 2**63 or job_id < 1:
            self.fail(sentence, param, ctx)
        return key, job_id


class State(_ParamType):
    """One of the states a job can be in, or *among* these; `Dead-Lettered`, too."""

    name = "state"

    def __init__(self, among: Sequence[str] | None = None) -> None:
        self._among = among

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The state, as it is written in the file."""
        return self._one(str(value), param, ctx)

    def _one(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        written = value.strip().casefold().replace("-", "_").replace(" ", "_")
        states = self._states()
        if written in states:
            return written
        from litejobs.cli.suggestions import did_you_mean

        meant = _OTHER_WORDS.get(written, written)
        note = (
            f"; did you mean {meant}?"
            if meant in states
            else did_you_mean(states, written)
        )
        kind = "no state of a job" if self._among is None else "none of the states here"
        rest = ", ".join(states)
        way = f"{note} There are {rest}" if note else f"; there are {rest}"
        raise click.BadParameter(f"{value!r} is {kind}{way}", ctx, param)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The states that begin like this."""
        del ctx, param
        from click.shell_completion import CompletionItem

        before, comma, typed = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{each}")
            for each in self._states()
            if each.startswith(typed)
        ]

    def _states(self) -> Sequence[str]:
        if self._among is not None:
            return self._among
        from litejobs._values.states import STATES

        return sorted(STATES)


class States(State):
    """One or more of them, with commas between; options of it have `flattened`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """All that are written, as a tuple."""
        if isinstance(value, tuple):
            return value
        return tuple(self._one(each, param, ctx) for each in str(value).split(","))


def flattened(
    ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    """The callback of an option that can be given several times, of several each."""
    del ctx, param
    return tuple(dict.fromkeys(each for some in value for each in some))


# What people call states, and what these are not nearly spelled like.
_OTHER_WORDS = {
    "dead": "dead_lettered",
    "dead_letter": "dead_lettered",
    "dlq": "dead_lettered",
    "done": "completed",
    "finished": "completed",
    "success": "completed",
    "succeeded": "completed",
    "running": "processing",
    "active": "processing",
    "queued": "pending",
    "ready": "pending",
    "waiting": "pending",
    "delayed": "scheduled",
    "retrying": "failed",
    "retry": "failed",
    "error": "failed",
}
