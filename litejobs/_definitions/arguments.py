"""The arguments of a task as JSON, bound against its signature where it is called."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from litejobs._definitions import json_codec
from litejobs._definitions.gates import check_placeholders
from litejobs._definitions.other_words import option_here
from litejobs.errors import ArgumentError, ConfigurationError

_MISSING = object()
_Parameter = inspect.Parameter


class Binder:
    """Turns a call's arguments into JSON: an object of names wherever that is possible.

    The arguments are bound against the signature first, so a wrong call fails where it
    is made. Functions with positional-only or `*args` parameters are stored as a list.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._what = f"arguments of task {name!r}"
        self._name = name
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"task {name!r}: the signature of {function!r} cannot be read; wrap it "
                "in a function of your own"
            ) from error
        kinds = {each.kind for each in self._signature.parameters.values()}
        self._by_name = not kinds & {
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.VAR_POSITIONAL,
        }
        # The usual case, decided once: plain parameters, all given, needs no binding.
        plain = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._names = tuple(self._signature.parameters)
        self._all = len(self._names) if plain else -1
        self._before = json_codec.opening(self._names)
        prev = self._signature.parameters.get("prev")
        self._prev_place = -1
        if prev is not None and prev.kind is inspect.Parameter.KEYWORD_ONLY:
            self._prev_place = len(self._names)
        elif prev is not None and self._by_name:
            self._prev_place = self._names.index("prev")
        self.takes_prev = self._prev_place >= 0
        self.needs_prev = prev is not None and prev.default is prev.empty
        self._sort_parameters()

    def _sort_parameters(self) -> None:
        """Which parameters take what is stored: asked of each job that is run."""
        parameters = self._signature.parameters.values()
        kinds = {each.kind for each in parameters}
        by_place = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
        by_name = (_Parameter.POSITIONAL_OR_KEYWORD, _Parameter.KEYWORD_ONLY)
        self._positional = [each.name for each in parameters if each.kind in by_place]
        self._named = [each.name for each in parameters if each.kind in by_name]
        self._takes_more = _Parameter.VAR_POSITIONAL in kinds
        self._takes_any = _Parameter.VAR_KEYWORD in kinds
        self._required = [
            each.name
            for each in parameters
            if each.default is each.empty
            and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
            and not (self.takes_prev and each.name == "prev")
        ]
        # All of them, given by name: nothing else has to be asked.
        self._usual = set(self._named) if self._all >= 0 else None

    def signature(self) -> dict[str, Any]:
        """Which arguments are taken, as the file is told it (`litejobs__misfit`)."""
        return {
            "positional": self._positional,
            "named": self._named,
            "required": self._required,
            "more": self._takes_more,
            "any": self._takes_any,
        }

    def misfit(self, arguments: Any) -> str | None:
        """What of stored arguments does not fit the function, if anything.

        In the words of `litejobs__misfit`, which knows the same of the signature.
        """
        if type(arguments) is dict:
            if arguments.keys() == self._usual:
                return None
            for name in self._required:
                if name not in arguments or name not in self._named:
                    return f"{name} is missing"
            if not self._takes_any:
                for name in arguments:
                    if name not in self._named:
                        return f"{name} is not taken"
            return None
        given, taken = len(arguments), len(self._positional)
        if given > taken and not self._takes_more:
            return f"{given} are given, and {taken} are taken"
        for name in self._required:
            if name not in self._positional[:given]:
                return f"{name} is missing"
        return None

    def lacks_prev(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the function has a parameter `prev` that these do not fill."""
        return len(args) <= self._prev_place and "prev" not in kwargs

    def check_template(self, what: str, template: str | None) -> None:
        """Refuse a template that asks for arguments which the function does not have.

        Raises:
            ConfigurationError: The message names the placeholder and what there is.
        """
        check_placeholders(what, template, self._signature, by_name=self._by_name)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of this call as JSON.

        Raises:
            ArgumentError: They do not fit the function or are not JSON.
        """
        if len(args) + len(kwargs) == self._all:
            values = self._in_order(args, kwargs) if kwargs else args
            text = json_codec.encode_plain(self._before, values)
            if text is not None:
                return text
        return self._bind_any(args, kwargs)

    def _in_order(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """As many values as parameters; a missing one is not JSON, so it is noticed."""
        names = self._names[len(args) :]
        return args + tuple([kwargs.get(name, _MISSING) for name in names])

    def _bind_any(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        without_prev = self.lacks_prev(args, kwargs)
        if without_prev:
            # It is filled when the job runs, so here it counts as given.
            kwargs = {**kwargs, "prev": None}
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"task {self._name!r} cannot be called like this: {error}; its "
                f"signature is {self._signature}{self._options_among(kwargs)}"
            ) from None
        if without_prev:
            del bound.arguments["prev"]
        if self._by_name:
            named: dict[str, Any] = {}
            for name, value in bound.arguments.items():
                kind = self._signature.parameters[name].kind
                if kind is inspect.Parameter.VAR_KEYWORD:
                    named.update(value)
                else:
                    named[name] = value
            return json_codec.encode(named, what=self._what)
        if bound.kwargs:
            raise ArgumentError(
                f"task {self._name!r} takes positional-only or *args parameters, so "
                f"its arguments are stored as a list; {', '.join(bound.kwargs)} cannot "
                "be given by keyword"
            )
        return json_codec.encode(list(bound.args), what=self._what)

    def _options_among(self, kwargs: Mapping[str, Any]) -> str:
        """Where options go, if there are some among the arguments, in any words."""
        from litejobs._definitions.options import JOB

        for name in kwargs:
            if name not in self._signature.parameters:
                meant = f"{name}=" if name in JOB else option_here(name, JOB)
                if meant is not None:
                    return f"; options go before: using({meant}…).enqueue(…)"
        return ""


def with_id(signature: Mapping[str, Any]) -> str:
    """The signature as JSON, with an `id` that others do not have."""
    text = json.dumps(signature)
    data = text.encode()
    # Two sums, so that no two signatures that a task had are taken for one.
    number = f"{zlib.crc32(data):08x}{zlib.adler32(data):08x}{len(data):x}"
    return json.dumps({"id": number, **signature})


def encode_arguments(name: str, arguments: object) -> str:
    """The stored form of arguments given as a mapping (keywords) or a list.

    Raises:
        ArgumentError: They are neither, or no JSON.
    """
    if isinstance(arguments, Mapping):
        arguments = dict(arguments)
    elif isinstance(arguments, (list, tuple)):
        arguments = list(arguments)
    else:
        raise ArgumentError(
            f"arguments of task {name!r} are a {type(arguments).__name__}; give a dict "
            "(keywords) or a list (positional)"
        )
    return json_codec.encode(arguments, what=f"arguments of task {name!r}")
