"""The arguments of a task as JSON, bound against its signature where it is called."""

from __future__ import annotations

import inspect
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from litejobs._definitions import json_codec
from litejobs._definitions.callables import Signatures
from litejobs._definitions.gates import check_placeholders
from litejobs._definitions.other_words import option_here, unit_here
from litejobs._process import log
from litejobs.errors import ArgumentError

_MISSING = object()
_Parameter = inspect.Parameter

PLACES = "*"
"""Under this name stored arguments have those without a name, where others have one."""


def parted(arguments: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Stored arguments as those that are given by place, and those by name."""
    if type(arguments) is not dict:
        return arguments, {}
    if PLACES not in arguments:
        return (), arguments
    named = dict(arguments)
    return named.pop(PLACES), named


def together(args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Arguments by place, and by name, as they are stored."""
    if not kwargs:
        return list(args)
    return {PLACES: list(args), **kwargs} if args else dict(kwargs)


class Binder:
    """Turns a call's arguments into JSON: an object of names wherever that is possible.

    They are bound against the parameters of what is called, so a wrong call fails where
    it is made. Of functions with positional-only or `*args` parameters, what is given
    by place is stored as a list: alone, or under "*" beside what has a name.

    What takes `*args` or `**kwargs` for something that it wraps may add to them, so it
    alone decides. What does not fit that is stored, too, and logged once.
    """

    def __init__(
        self,
        name: str,
        signatures: Signatures,
    ) -> None:
        self._what = f"arguments of task {name!r}"
        self._name = name
        self._signature, self.told = signatures
        self._wraps = self.told != self._signature
        self._is_said = False
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
        self._by_place_alone = {
            each.name for each in parameters if each.kind is each.POSITIONAL_ONLY
        }
        self._find_prev()
        self._required = [
            each.name
            for each in parameters
            if each.default is each.empty
            and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
            and not (self.takes_prev and each.name == "prev")
        ]
        # All of them, given by name: nothing else has to be asked.
        self._usual = set(self._named) if self._all >= 0 else None

    def _find_prev(self) -> None:
        """Whether it has a parameter `prev` that can be given by name, and where.

        One of what is wrapped counts where names are taken for it; whether it lacks
        that, is known only if there is a result to hand on.
        """
        has = self._signature
        self.is_prev_within = (
            self._wraps and self._takes_any and "prev" not in has.parameters
        )
        if self.is_prev_within:
            has = self.told
        prev = has.parameters.get("prev")
        self.takes_prev = prev is not None and prev.kind in {
            prev.POSITIONAL_OR_KEYWORD,
            prev.KEYWORD_ONLY,
        }
        self.needs_prev = prev is not None and prev.default is prev.empty
        self._prev_place = 0.0
        if prev is not None and prev.kind is prev.KEYWORD_ONLY:
            self._prev_place = math.inf
        elif self.takes_prev:
            self._prev_place = list(has.parameters).index("prev")

    def signature(self) -> dict[str, Any]:
        """Which arguments are taken, as the file is told it (`litejobs__misfit`)."""
        return {
            "positional": self._positional,
            "named": self._named,
            "required": self._required,
            "more": self._takes_more,
            "any": self._takes_any,
        }

    def parameters_text(self) -> str:
        """What keys are filled in with beside the arguments (`litejobs__filled`).

        The names of those by place, and the defaults. One that JSON cannot hold is
        null: it cannot be given, so there is one spelling of it alone. What `prev` will
        be is not known yet. Of what is wrapped it is taken that it is given the rest.
        """
        parameters = [*self._signature.parameters.values()]
        places = list(self._positional)
        if self._wraps:
            within = self.told.parameters.values()
            parameters = [*within, *parameters]
            if self._takes_more:
                kinds = {_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD}
                places += [each.name for each in within if each.kind in kinds]
        defaults = {}
        for each in parameters:
            if each.default is not each.empty and each.name != "prev":
                defaults[each.name] = self._stored(each.default)
        known = {"places": places, "defaults": defaults}
        return json.dumps(known, ensure_ascii=False)

    def _stored(self, default: object) -> Any:
        """As it would be stored if it were given, if it can be."""
        try:
            return json.loads(json_codec.encode(default, what=self._what))
        except ArgumentError:
            return None

    def misfit(self, arguments: Any) -> str | None:
        """What of stored arguments does not fit the function, if anything.

        In the words of `litejobs__misfit`, which knows the same of the signature.
        """
        if type(arguments) is dict and arguments.keys() == self._usual:
            return None
        args, kwargs = parted(arguments)
        if type(args) not in {list, tuple}:
            return f"{PLACES} has no list"
        given, taken = len(args), len(self._positional)
        if given > taken and not self._takes_more:
            return f"{given} are given, and {taken} are taken"
        by_place = self._positional[:given]
        for name in self._required:
            if name not in by_place and (name not in kwargs or name not in self._named):
                return f"{name} is missing"
        for name in kwargs:
            if name in self._named:
                if name in by_place:
                    return f"{name} is given twice"
            elif not self._takes_any:
                return f"{name} is not taken"
        return None

    def lacks_prev(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the function has a parameter `prev` that these do not fill."""
        return (
            self.takes_prev and len(args) <= self._prev_place and "prev" not in kwargs
        )

    def check_template(self, what: str, template: str | None) -> None:
        """Refuse a template that asks for arguments which the function does not have.

        Raises:
            ConfigurationError: The message names the placeholder and what there is.
        """
        by_name = self._by_name or self._wraps
        check_placeholders(what, template, self.told, by_name=by_name)

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
        if PLACES in kwargs:
            raise ArgumentError(
                f"task {self._name!r} cannot be given {PLACES!r} as a name: under that "
                "what has no name is stored; give another one"
            )
        without_prev = not self.is_prev_within and self.lacks_prev(args, kwargs)
        if without_prev:
            # It is filled when the job runs, so here it counts as given.
            kwargs = {**kwargs, "prev": None}
        # What is given by place alone may have its name among `**kwargs`, too; `bind`
        # refuses some of these, and takes some others that do not fit.
        shadowed = {each: kwargs[each] for each in self._by_place_alone & kwargs.keys()}
        if shadowed:
            kwargs = {key: kwargs[key] for key in kwargs if key not in shadowed}
        try:
            if shadowed and not self._takes_any:
                raise TypeError(
                    f"{', '.join(sorted(shadowed))} can be given by place alone"
                )
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"task {self._name!r} cannot be called like this: {error}; its "
                f"signature is {self._signature}{self._options_among(kwargs)}"
            ) from None
        if self._wraps and not self._is_said:
            self._look_within(args, kwargs | shadowed)
        if without_prev:
            del bound.arguments["prev"]
        if not self._by_name:
            stored = together(bound.args, bound.kwargs | shadowed)
            return json_codec.encode(stored, what=self._what)
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = value
        return json_codec.encode(named, what=self._what)

    def _look_within(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Say, once, that they do not fit what is wrapped: by mistake, perhaps."""
        if self.lacks_prev(args, kwargs):
            kwargs = {**kwargs, "prev": None}
        try:
            self.told.bind(*args, **kwargs)
        except TypeError as error:
            self._is_said = True
            log.warning(
                "task %r was given what does not fit the function within its "
                "decorator, %s: %s; it is stored, for the decorator takes anything, "
                "and this is said once",
                *(self._name, self.told, error),
            )

    def _options_among(self, kwargs: Mapping[str, Any]) -> str:
        """Where options go, if there are some among the arguments, in any words."""
        from litejobs._definitions.options import JOB

        for name in kwargs:
            if name not in self._signature.parameters:
                meant = f"{name}=" if name in JOB else option_here(name, JOB)
                if meant is not None:
                    return (
                        f"; options go before: using({meant}…).enqueue(…)"
                        f"{unit_here(name)}"
                    )
        return ""


def with_id(signature: Mapping[str, Any]) -> str:
    """The signature as JSON, with an `id` that others do not have."""
    text = json.dumps(signature)
    data = text.encode()
    # Two sums, so that no two signatures that a task had are taken for one.
    number = f"{zlib.crc32(data):08x}{zlib.adler32(data):08x}{len(data):x}"
    return json.dumps({"id": number, **signature})


def given_arguments(name: str, arguments: object) -> dict[str, Any] | list[Any]:
    """Arguments given as a mapping (keywords) or a list, perhaps as "*" of a mapping.

    Raises:
        ArgumentError: They are neither.
    """
    if isinstance(arguments, Mapping):
        named = dict(arguments)
        if not isinstance(named.get(PLACES, []), (list, tuple)):
            raise ArgumentError(
                f"arguments of task {name!r}: {PLACES!r} has to be a list, of the "
                "positional ones"
            )
        return named
    if isinstance(arguments, (list, tuple)):
        return list(arguments)
    raise ArgumentError(
        f"arguments of task {name!r} are {arguments!r:.80}; give a dict (keywords) or "
        "a list (positional)"
    )


def encode_arguments(name: str, arguments: object) -> str:
    """The stored form of arguments given as a mapping (keywords) or a list.

    Raises:
        ArgumentError: They are neither, or no JSON.
    """
    given = given_arguments(name, arguments)
    return json_codec.encode(given, what=f"arguments of task {name!r}")
