"""The places of probes in one source file or header, from a walk over the syntax tree.

Probes never change the meaning of a source. Conditions are wrapped as `(c) ? 1 : 0` with a count on each side, which
keeps side effects, order and contextual conversions; statements are added only between statements of a block. Places
where neither is safe get no probe and are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from clang.cindex import Cursor, CursorKind

from barograph.instrument.choices import (
    LABELS,
    choice_condition,
    is_constant,
    is_external_inline,
    label_place,
    statement_condition,
)
from barograph.instrument.syntax import (
    MESSAGES,
    PLAIN_NAMES,
    call_of,
    has_effects,
    is_assignment,
    is_initialised,
    is_number,
)

CONDITIONS: Final = {
    # statement: its keyword, the names of its slots, and the probes for a condition that holds and one that does not
    CursorKind.IF_STMT: ("if", ("taken", "passed"), "barograph_taken({})", "barograph_passed({})"),
    CursorKind.WHILE_STMT: ("while", ("iterations",), "barograph_loop({})", "0"),
    CursorKind.FOR_STMT: ("for", ("iterations",), "barograph_loop({})", "0"),
    CursorKind.DO_STMT: ("do", ("iterations",), "barograph_loop({})", "0"),
}
LOOPS: Final = (CursorKind.WHILE_STMT, CursorKind.FOR_STMT, CursorKind.DO_STMT, CursorKind.CXX_FOR_RANGE_STMT)
FUNCTIONS: Final = (
    CursorKind.FUNCTION_DECL,
    CursorKind.CXX_METHOD,
    CursorKind.CONSTRUCTOR,
    CursorKind.DESTRUCTOR,
    CursorKind.FUNCTION_TEMPLATE,
    CursorKind.CONVERSION_FUNCTION,
)
NOT_ORDINARY: Final = ("constexpr", "consteval", "__global__", "__device__")
_ASSIGNED: Final = re.compile(rb"(?:\s|/\*.*?\*/)*(?:[-+*/%&|^]|<<|>>)?=(?!=)", re.DOTALL)
"""What follows a variable that is assigned where it is written."""
_PRAGMA: Final = re.compile(rb"^[ \t]*(#)[ \t]*pragma(?:[^\n]*\\\r?\n)*[^\n]*(?=\s*(\S))", re.MULTILINE)
"""A pragma with its continuation lines. Groups: its first character, and the first character after it."""


class Edit(NamedTuple):
    """Text to insert before the byte at `offset`."""

    offset: int
    text: str


class ProbePlan:
    """The probes of one source. names: of features, one per slot. skipped: line and reason."""

    def __init__(self, source: bytes, path: str, kept: frozenset[str] | None = None, *, base: str = "") -> None:
        """path: of the source in names of features. kept: names of the wanted features; None for all.

        base: macro with the number of the first slot, for a header; its slots differ between the sources that include
        it. Each source that includes a header may walk it: a place gets its probe once.
        """
        self.base = base
        self.edits: list[Edit] = []
        self.names: list[str] = []
        self.skipped: list[tuple[int, str]] = []
        self._planned: set[str] = set()
        self._source = source
        self._path = path
        self._kept = kept
        self._pragmas = [(found.start(1), found.start(2)) for found in _PRAGMA.finditer(source)]

    def walk(self, declarations: Iterable[Cursor], file: str, *, cplusplus: bool) -> None:
        """Plan the probes of the functions among some declarations of one file. file: its name in the syntax tree."""
        self._file, self._cplusplus = file, cplusplus
        for cursor in declarations:
            self._declaration(cursor)

    def _declaration(self, cursor: Cursor) -> None:
        if cursor.location.file is None or cursor.location.file.name != self._file:
            return
        if cursor.kind not in FUNCTIONS:
            if cursor.kind not in (CursorKind.VAR_DECL, CursorKind.TYPEDEF_DECL):
                for child in cursor.get_children():
                    self._declaration(child)
            return
        body = next((child for child in cursor.get_children() if child.kind is CursorKind.COMPOUND_STMT), None)
        if body is None:
            return
        head = self._source[cursor.extent.start.offset : body.extent.start.offset].decode(errors="replace")
        if keyword := next((word for word in NOT_ORDINARY if word in head), None):
            self._skip(cursor, f"function {cursor.spelling} is {keyword}")
        elif not self._starts_with(body, "{"):
            self._skip(cursor, f"function {cursor.spelling} comes from a macro")
        elif is_external_inline(cursor, head, cplusplus=self._cplusplus):
            self._skip(cursor, f"function {cursor.spelling} is inline with external linkage")
        else:
            self._visit(body, cursor.kind)

    def _visit(self, cursor: Cursor, parent: CursorKind, in_loop: bool = False) -> None:
        offset, file = cursor.extent.start.offset, cursor.extent.start.file
        if file is not None and file.name != self._file:
            return
        if any(start < offset <= end for start, end in self._pragmas):
            self._skip(cursor, "under a #pragma")
            return
        if cursor.kind is CursorKind.StmtExpr:
            self._skip(cursor, "statement expression")
            return
        if parent is CursorKind.COMPOUND_STMT:
            self._statement(cursor, in_loop)
        if cursor.kind in CONDITIONS:
            self._condition(cursor)
        elif cursor.kind is CursorKind.CXX_FOR_RANGE_STMT:
            self._range_loop(cursor)
        elif cursor.kind is CursorKind.CONDITIONAL_OPERATOR:
            self._choice(cursor)
        elif cursor.kind in LABELS:
            self._label(cursor, parent)
        elif cursor.kind is CursorKind.DECL_STMT and is_constant(cursor):
            self._skip(cursor, "declaration that is decided by the compiler")
            return
        for child in cursor.get_children():
            # Of labels that follow each other the last one counts: a statement between them would fall through.
            of_label = cursor.kind in LABELS and child.kind in LABELS
            self._visit(child, parent if of_label else cursor.kind, in_loop or cursor.kind in LOOPS)

    def _choice(self, cursor: Cursor) -> None:
        """Wrap the condition of a conditional expression."""
        place = choice_condition(self._source, cursor)
        if isinstance(place, str):
            self._skip(cursor, place)
        elif (slot := self._slots(cursor, "taken", "passed")) is not None:
            counted = f") ? barograph_taken({self._at(slot)}) : barograph_passed({self._at(slot + 1)}))"
            self.edits += [Edit(place[0], "(("), Edit(place[1], counted)]

    def _label(self, cursor: Cursor, parent: CursorKind) -> None:
        """Count how often a label of a switch is reached, by a jump or from the label before it."""
        if any(child.kind in LABELS for child in cursor.get_children()):
            return
        place = label_place(self._source, cursor, parent)
        if isinstance(place, int) and any(start < place <= end for start, end in self._pragmas):
            place = "under a #pragma"
        if isinstance(place, str):
            self._skip(cursor, place)
        elif (slot := self._slots(cursor, "taken")) is not None:
            self.edits.append(Edit(place, f"(void)barograph_taken({self._at(slot)}); "))

    def _statement(self, cursor: Cursor, in_loop: bool) -> None:
        message = call_of(cursor)
        if message is not None and message.spelling in MESSAGES:
            self._message(cursor, message)
        if in_loop:
            return
        if cursor.kind is CursorKind.DECL_STMT:
            for variable in cursor.get_children():
                if variable.kind is CursorKind.VAR_DECL and is_initialised(variable) and is_number(variable):
                    written = self._source.startswith(variable.spelling.encode(), variable.location.offset)
                    self._value(cursor, variable.spelling if written else "")
        elif is_assignment(cursor):
            target = next(cursor.get_children())
            if is_number(target) and all(part.kind in PLAIN_NAMES for part in target.walk_preorder()):
                written = _ASSIGNED.match(self._source, target.extent.end.offset) is not None
                self._value(cursor, self._text(target).decode(errors="replace").strip() if written else "")

    def _value(self, cursor: Cursor, text: str) -> None:
        """Note a variable after the statement. text: how it is written there; empty if it comes from a macro."""
        if not text:
            self._skip(cursor, "assignment from a macro")
            return
        end = cursor.extent.end.offset
        if self._source[end - 1 : end] != b";":
            rest = self._source[end:].lstrip()
            if not rest.startswith(b";"):
                self._skip(cursor, f"assignment to {text} ends in a macro")
                return
            end = len(self._source) - len(rest) + 1
        if (slot := self._slots(cursor, f"value:{text}")) is not None:
            self.edits.append(Edit(end, f" barograph_value({self._at(slot)}, {text});"))

    def _message(self, statement: Cursor, call: Cursor) -> None:
        arguments = list(call.get_arguments())
        needed = [arguments[at] for at in MESSAGES[call.spelling] if at < len(arguments)]
        texts = [self._text(one).decode(errors="replace").strip() for one in needed]
        in_source = call.spelling.encode() in self._text(statement)
        if len(texts) < 3 or not all(texts) or any(map(has_effects, needed)) or not in_source:
            self._skip(statement, f"{call.spelling} with arguments that cannot be evaluated twice")
        elif (slot := self._slots(statement, f"bytes:{call.spelling}", f"ranks:{call.spelling}")) is not None:
            text = f"barograph_message({self._at(slot)}, {', '.join(texts)}); "
            self.edits.append(Edit(statement.extent.start.offset, text))

    def _range_loop(self, cursor: Cursor) -> None:
        body = list(cursor.get_children())[-1]
        if body.kind is not CursorKind.COMPOUND_STMT or not self._starts_with(body, "{"):
            self._skip(cursor, "range loop without a block")
        elif (slot := self._slots(cursor, "iterations")) is not None:
            self.edits.append(Edit(body.extent.start.offset + 1, f" (void)barograph_loop({self._at(slot)});"))

    def _condition(self, cursor: Cursor) -> None:
        """Wrap the condition of a branch or a loop."""
        keyword, names, holds, fails = CONDITIONS[cursor.kind]
        place = statement_condition(self._source, cursor, keyword)
        if isinstance(place, str):
            self._skip(cursor, f"{keyword} {place}")
            return
        if (slot := self._slots(cursor, *names)) is None:
            return
        yes, no = holds.format(self._at(slot)), fails.format(self._at(slot + 1))
        start, end = place
        written = self._source[start:end]
        if written.strip():
            start, end = start + len(written) - len(written.lstrip()), end - len(written) + len(written.rstrip())
            self.edits += [Edit(start, "("), Edit(end, f") ? {yes} : {no}")]
        else:
            self.edits.append(Edit(end, f" {yes}"))

    def _slots(self, cursor: Cursor, *kinds: str) -> int | None:
        """The first slot of these features, None where they are not kept or are there already."""
        line, column = cursor.extent.start.line, cursor.extent.start.column
        names = [f"{self._path}:{line}:{column}:{kind}" for kind in kinds]
        if self._kept is not None and not self._kept.intersection(names):
            return None
        if names[0] in self._planned:
            return None
        self._planned.update(names)
        self.names += names
        return len(self.names) - len(names)

    def _at(self, slot: int) -> str:
        """The number of a slot in the source."""
        return f"{self.base} + {slot}" if self.base else str(slot)

    def _skip(self, cursor: Cursor, why: str) -> None:
        place = (cursor.extent.start.line, why)
        if not self.base or place not in self.skipped:
            self.skipped.append(place)

    def _text(self, cursor: Cursor) -> bytes:
        """The source of a cursor; other text where the cursor comes from a macro."""
        return self._source[cursor.extent.start.offset : cursor.extent.end.offset]

    def _starts_with(self, cursor: Cursor, text: str) -> bool:
        return self._source.startswith(text.encode(), cursor.extent.start.offset)
