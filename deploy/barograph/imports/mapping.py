"""Which column says what: `--map`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from barograph_agent.protocol.tables import IDENTIFIER

FIELDS: Final = (
    "app",
    "cluster",
    "id",
    "step",
    "restart",
    "user",
    "host",
    "ranks",
    "nodes",
    "seconds",
    "start",
    "end",
    "state",
)
_PARAM: Final = "param:"
_NEXT: Final = re.compile(rf",(?=(?:{'|'.join(FIELDS)}|{_PARAM}[^=,]+)=)")


class BadMap(ValueError):
    """A mapping that cannot be used. The text says what is wrong and what was expected."""


def parse_map(words: Sequence[str]) -> dict[str, str]:
    """Fields and their columns, from words such as `app=CODE,param:n=SIZE`. A column's name may hold commas.

    Raises BadMap.
    """
    found: dict[str, str] = {}
    for pair in (pair for word in words for pair in _NEXT.split(word)):
        name, equals, column = pair.partition("=")
        known = name in FIELDS or (name.startswith(_PARAM) and IDENTIFIER.fullmatch(name.removeprefix(_PARAM)))
        if not (equals and column and known):
            raise BadMap(f"{pair!r}, expected FIELD=COLUMN with FIELD one of {', '.join(FIELDS)}, {_PARAM}NAME")
        if name in found:
            raise BadMap(f"{name} is given twice: {found[name]!r} and {column!r}")
        found[name] = column
    return found


class FieldColumns:
    """Where in a row each field stands.

    header: the names of the columns. mapping: of the user; every column in it must be there. defaults: fields and the
    columns looked for, in turn, where the user says nothing. Raises BadMap for a column that is not there.
    """

    def __init__(
        self, header: Sequence[str], mapping: Mapping[str, str], defaults: Mapping[str, Sequence[str]]
    ) -> None:
        self._width = len(header)
        places: dict[str, int] = {}
        for place, name in enumerate(header):
            places.setdefault(name.strip(), place)
        for field, column in mapping.items():
            if column not in places:
                raise BadMap(f"{field}={column}: there is no column {column!r}, expected one of {', '.join(places)}")
        self._places = {field: places[column] for field, column in mapping.items()}
        for field, columns in defaults.items():
            at = next((places[column] for column in columns if column in places), None)
            if at is not None:
                self._places.setdefault(field, at)
        self._params = {
            field.removeprefix(_PARAM): at for field, at in self._places.items() if field.startswith(_PARAM)
        }

    def __contains__(self, field: str) -> bool:
        return field in self._places

    def fits(self, row: Sequence[str]) -> bool:
        """Whether a row has a value for every column."""
        return len(row) == self._width

    def get(self, row: Sequence[str], field: str) -> str:
        """What the row says; empty where no column does."""
        at = self._places.get(field)
        return "" if at is None else row[at].strip()

    def params(self, row: Sequence[str]) -> dict[str, str]:
        """The parameters in the row."""
        return {name: row[at].strip() for name, at in self._params.items()}

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._width
