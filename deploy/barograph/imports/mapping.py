"""Files with a line of column names: columns of fields, by `--map` or by the format."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barograph.imports.record import ASKED, Bad, UnusedColumns
from barograph_agent.protocol.tables import IDENTIFIER

FIELDS: Final = ("app", "cluster", "id", "step", "restart", "user", "host", "ranks", "nodes", "seconds", "start", "end",
                 "state", *ASKED)  # fmt: skip
_PARAM: Final = "param:"
_NEXT: Final = re.compile(rf",(?=(?:{'|'.join(FIELDS)}|{_PARAM}[^=,]+)=)")


class BadMap(ValueError):
    """An invalid mapping. The text says what is wrong and what was expected."""


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


class Dialect(NamedTuple):
    """A format with a line of column names.

    columns: default columns of each field, of which the first non-empty one counts. needed: required fields. header,
    missing: what is expected where the column names or the column of a required field are missing; `{field}`,
    `{columns}` and `{header}` are replaced.
    """

    delimiter: str
    columns: Mapping[str, Sequence[str]]
    needed: Sequence[str]
    header: str
    missing: str


class FieldRow(NamedTuple):
    """The cells of a line, by field. places: positions of the columns of each field."""

    line: int
    cells: Sequence[str]
    places: Mapping[str, Sequence[int]]

    def get(self, field: str) -> str:
        """The first non-empty cell of a field; empty if there is none."""
        return next(filter(None, (self.cells[at].strip() for at in self.places.get(field, ()))), "")

    def asked(self) -> dict[str, str]:
        """What was asked for, by field, as far as there is something."""
        return {field: text for field in ASKED if (text := self.get(field))}

    def params(self) -> dict[str, str]:
        """The parameters of the run, empty ones too."""
        return {field.removeprefix(_PARAM): self.get(field) for field in self.places if field.startswith(_PARAM)}


def read_rows(
    lines: Iterable[str], dialect: Dialect, mapping: Mapping[str, str], app: str
) -> Iterator[FieldRow | Bad | UnusedColumns]:
    """The non-empty lines below the column names, after the columns that no field has. mapping: of the user; all its
    columns must exist.

    app: of rows that name none; no column needs to if it is given. Raises BadMap.
    """
    plain = dialect.delimiter == "|"
    reader = csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL)
    places: dict[str, list[int]] | None = None
    width = 0
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if places is None:
                break
            yield Bad(line, str(error))
            continue
        if cells is None:
            break
        if not any(cell.strip() for cell in cells):
            continue
        if places is None:
            places, width = _places(cells, dialect, mapping, app), len(cells)
            used = {at for some in places.values() for at in some}
            yield UnusedColumns([name.strip() for at, name in enumerate(cells) if at not in used])
        elif len(cells) != width:
            yield Bad(line, f"{len(cells)} cells, expected {width} as in the first line")
        else:
            yield FieldRow(line, cells, places)
    if places is None:
        raise BadMap(f"the file has no line of column names{dialect.header}")


def _places(header: list[str], dialect: Dialect, mapping: Mapping[str, str], app: str) -> dict[str, list[int]]:
    header[0] = header[0].removeprefix("\ufeff")
    known: dict[str, int] = {}
    for at, name in enumerate(header):
        known.setdefault(name.strip(), at)
    for field, column in mapping.items():
        if column not in known:
            raise BadMap(f"{field}={column}: there is no column {column!r}, expected one of {', '.join(known)}")
    places = {field: [known[column]] for field, column in mapping.items()}
    for column in [name for name in known if name.startswith(_PARAM)]:
        if not IDENTIFIER.fullmatch(column.removeprefix(_PARAM)):
            raise BadMap(f"column {column!r}, expected {_PARAM}NAME with a name of 1-128 characters")
        places.setdefault(column, [known[column]])
    for field, columns in dialect.columns.items():
        if found := [known[column] for column in columns if column in known]:
            places.setdefault(field, found)
        elif field in dialect.needed and field not in places and not (field == "app" and app):
            names = {"field": field, "columns": " or ".join(columns), "header": ", ".join(header)}
            raise BadMap(f"no column for {field}, expected {dialect.missing.format_map(names)}")
    return places
