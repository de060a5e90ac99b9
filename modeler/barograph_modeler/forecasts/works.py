"""Which work of an application a run is, at any scale: the name of its problem where no parameter names it."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

from barograph_modeler.forecasts.history import Application
from barograph_modeler.recognition.family import Family, Relevance
from barograph_modeler.recognition.request import Asked
from barograph_modeler.state import lru

APPLICATIONS: Final = 10_000
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
        self._varied: OrderedDict[str, set[str]] = OrderedDict()
        """By work, numbers that differed within a group."""

    def label(self, application: Application, asked: Asked | None, *, learn: bool = True) -> str:
        """The label of a run's work; empty where nothing is known of any. learn: whether the run is remembered."""
        family = self._family(application)
        request = None if asked is None else asked.form
        group = family.decide(request).group
        if learn:
            family.add("", group, request)
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


def with_work(params: Params, label: str, asked: Asked | None) -> Params:
    """Parameters with the label of the work and the numbers that were found; parameters that were given come first."""
    found = dict(asked.numbers) if asked is not None else {}
    named = {WORK: label} if label else {}
    return tuple(sorted((found | named | dict(params)).items()))
