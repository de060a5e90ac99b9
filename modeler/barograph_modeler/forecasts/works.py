"""Which work of an application a run is, at any scale: the name of its problem where no parameter names it."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from barograph_modeler.forecasts.history import PER_NODE, Application
from barograph_modeler.recognition.family import Family, Relevance
from barograph_modeler.recognition.request import UNKNOWN, Asked
from barograph_modeler.state import lru

APPLICATIONS: Final = 10_000
MAX_REQUESTS: Final = 2_000
"""Requests kept per application, of some 6 kB each: those of the works that ran last."""
MAX_ALL_REQUESTS: Final = 20_000
"""Requests kept of all applications: those of the applications that ran last."""
WORK: Final = "work"
"""The parameter that holds the label of the work."""
Params = tuple[tuple[str, str], ...]
THREADS: Final = "threads"
FOUND: Final = re.compile(rf"((word|input)\d+|stdin)(\.\d+)?|{THREADS}")
"""Names of numbers that were found in what a run asked for."""


class WorkIndex:
    """The works of applications: groups of what runs asked for, with marks for numbers, whose differences do not
    matter."""

    def __init__(self) -> None:
        self._families: OrderedDict[str, Family] = OrderedDict()
        self._first: OrderedDict[str, str] = OrderedDict()
        """The labels of the first works, whose groups have none in their names."""
        self._requests = 0
        self._varied: OrderedDict[str, set[str]] = OrderedDict()
        """By work, numbers that differed within a group."""

    def label(self, application: Application, asked: Asked | None, *, learn: bool = True) -> str:
        """The label of a run's work; empty where nothing is known of any. learn: whether the run is remembered."""
        family = self._family(application)
        request = None if asked is None else asked.form
        group, before = family.decide(request).group, family.size
        if learn:
            family.add("", group, request)
            family.forget_oldest(MAX_REQUESTS)
            self._requests += family.size - before
            while self._requests > MAX_ALL_REQUESTS and len(self._families) > 1:
                self._requests -= self._families.popitem(last=False)[1].size
            if request is not None and group == family.name and family.name not in self._first:
                lru.store(self._first, family.name, request.label, APPLICATIONS)
        return self._label(family, group)

    def vary(self, application: Application, label: str, first: Params, other: Params) -> None:
        """Remember in which numbers the first and another run of a group differ: they do not matter."""
        known, texts = dict(first), dict(other)
        differ = {name for name in known.keys() & texts.keys() if FOUND.fullmatch(name) and known[name] != texts[name]}
        if differ:
            lru.get(self._varied, f"{application} {label}", set[str], APPLICATIONS).update(differ)

    def varied(self, application: Application, label: str) -> frozenset[str]:
        """The numbers of a work that have had several values in runs of one group, where they do not matter."""
        return frozenset(self._varied.get(f"{application} {label}", ()))

    def join(self, application: Application, gone: str, into: str) -> None:
        """Take two works for one: in whatever they differ, it does not matter."""
        family = self._family(application)
        names = {self._label(family, group): group for group in family.groups}
        if gone != into and gone in names and into in names:
            family.join(names[gone], names[into], "")

    def _family(self, application: Application) -> Family:
        name = str(application)
        return lru.get(self._families, name, lambda: Family(name, Relevance()), APPLICATIONS)

    def _label(self, family: Family, group: str) -> str:
        return self._first.get(group, "") if group == family.name else group.rpartition("+")[2]


def given_names(params: Mapping[str, str]) -> frozenset[str]:
    """The names of parameters that people have given: neither the work nor numbers that were found."""
    return frozenset(name for name in params if name not in (WORK, PER_NODE) and not FOUND.fullmatch(name))


def with_work(params: Params, label: str, asked: Asked | None) -> Params:
    """Parameters with the label of the work and the numbers that were found; parameters that were given come first.

    Given parameters name the work of a run of which no command is known: the label of what its scheduler has recorded
    would tell it from watched runs.
    """
    found = dict(asked.numbers) if asked is not None else {}
    is_named = bool(given_names(dict(params))) and (label == UNKNOWN or asked is None or asked.is_recorded)
    named = {WORK: label} if label and not is_named else {}
    return tuple(sorted((found | named | dict(params)).items()))


def without_work(params: Params, label: str, asked: Asked | None) -> Params:
    """What was given of the parameters of a run that moves to another work. label: as its traffic does not tell it."""
    found = {name for name, _ in asked.numbers} if asked is not None else set()
    return tuple(
        (name, text) for name, text in params if name not in found and (name != WORK or text.partition(".")[0] != label)
    )
