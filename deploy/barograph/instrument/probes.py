"""The places of probes, from a walk over the syntax tree of one source file.

Probes never change the meaning of a source. Conditions are wrapped as `(c) ? 1 : 0` with a count on each side, which
keeps side effects, order and contextual conversions; statements are added only between statements of a block. Places
where neither is safe get no probe and are listed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from clang.cindex import Cursor, CursorKind, TokenKind

from barograph.instrument.syntax import (
    PLAIN_NAMES,
    call_of,
    has_effects,
    is_assignment,
    is_initialised,
    is_number,
    outer_parentheses,
    semicolons,
)

CONDITIONS: Final = {
    # statement: its keyword, the names of its slots, and the probes for a condition that holds and one that does not
    CursorKind.IF_STMT: ("if", ("taken", "passed"), "barograph_taken({})", "barograph_passed({})"),
    CursorKind.WHILE_STMT: ("while", ("iterations",), "barograph_loop({})", "0"),
    CursorKind.FOR_STMT: ("for", ("iterations",), "barograph_loop({})", "0"),
    CursorKind.DO_STMT: ("do", ("iterations",), "barograph_loop({})", "0"),
}
LOOPS: Final = (CursorKind.WHILE_STMT, CursorKind.FOR_STMT, CursorKind.DO_STMT, CursorKind.CXX_FOR_RANGE_STMT)
LEFT_ALONE: Final = {CursorKind.SWITCH_STMT: "switch", CursorKind.CONDITIONAL_OPERATOR: "conditional expression"}
FUNCTIONS: Final = (
    CursorKind.FUNCTION_DECL,
    CursorKind.CXX_METHOD,
    CursorKind.CONSTRUCTOR,
    CursorKind.DESTRUCTOR,
    CursorKind.FUNCTION_TEMPLATE,
    CursorKind.CONVERSION_FUNCTION,
)
NOT_ORDINARY: Final = ("constexpr", "consteval", "__global__", "__device__")
MESSAGES: Final = {
    # function: positions of count, datatype and communicator
    **dict.fromkeys(
        ("MPI_Send", "MPI_Ssend", "MPI_Bsend", "MPI_Rsend", "MPI_Isend", "MPI_Recv", "MPI_Irecv"), (1, 2, 5)
    ),
    "MPI_Bcast": (1, 2, 4),
    "MPI_Reduce": (2, 3, 6),
    **dict.fromkeys(("MPI_Allreduce", "MPI_Scan", "MPI_Exscan"), (2, 3, 5)),
    **dict.fromkeys(("MPI_Gather", "MPI_Scatter"), (1, 2, 7)),
    **dict.fromkeys(("MPI_Allgather", "MPI_Alltoall"), (1, 2, 6)),
    "MPI_Sendrecv": (1, 2, 10),
}
_PRAGMA: Final = re.compile(rb"^[ \t]*(#)[ \t]*pragma(?:[^\n]*\\\r?\n)*[^\n]*(?=\s*(\S))", re.MULTILINE)
"""A pragma with its continuation lines. Groups: its first character, and the first character after it."""


class Edit(NamedTuple):
    """Text to insert before the byte at `offset`."""

    offset: int
    text: str


class ProbePlan:
    """The probes of one source. names: of features, one per slot. skipped: line and reason."""

    def __init__(self, source: bytes, path: str, kept: frozenset[str] | None = None) -> None:
        """path: of the source in names of features. kept: names of the wanted features; None for all."""
        self.edits: list[Edit] = []
        self.names: list[str] = []
        self.skipped: list[tuple[int, str]] = []
        self._source = source
        self._path = path
        self._kept = kept
        self._pragmas = [(found.start(1), found.start(2)) for found in _PRAGMA.finditer(source)]

    def walk(self, root: Cursor) -> None:
        """Plan the probes of the functions defined in the source itself."""
        for cursor in root.get_children():
            if cursor.location.file is not None and cursor.location.file.name == root.spelling:
                self._declaration(cursor)

    def _declaration(self, cursor: Cursor) -> None:
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
        else:
            self._visit(body, cursor.kind)

    def _visit(self, cursor: Cursor, parent: CursorKind, in_loop: bool = False) -> None:
        offset = cursor.extent.start.offset
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
        elif cursor.kind in LEFT_ALONE:
            self._skip(cursor, LEFT_ALONE[cursor.kind])
        for child in cursor.get_children():
            self._visit(child, cursor.kind, in_loop or cursor.kind in LOOPS)

    def _statement(self, cursor: Cursor, in_loop: bool) -> None:
        message = call_of(cursor)
        if message is not None and message.spelling in MESSAGES:
            self._message(cursor, message)
        if in_loop:
            return
        if cursor.kind is CursorKind.DECL_STMT:
            for variable in cursor.get_children():
                if variable.kind is CursorKind.VAR_DECL and is_initialised(variable) and is_number(variable):
                    self._value(cursor, variable.spelling)
        elif is_assignment(cursor):
            target = next(cursor.get_children())
            if is_number(target) and all(part.kind in PLAIN_NAMES for part in target.walk_preorder()):
                self._value(cursor, self._text(target).decode())

    def _value(self, cursor: Cursor, text: str) -> None:
        end = cursor.extent.end.offset
        if self._source[end - 1 : end] != b";":
            rest = self._source[end:].lstrip()
            if not rest.startswith(b";"):
                self._skip(cursor, f"assignment to {text} ends in a macro")
                return
            end = len(self._source) - len(rest) + 1
        if (slot := self._slots(cursor, f"value:{text}")) is not None:
            self.edits.append(Edit(end, f" barograph_value({slot}, {text});"))

    def _message(self, statement: Cursor, call: Cursor) -> None:
        arguments = list(call.get_arguments())
        needed = [arguments[at] for at in MESSAGES[call.spelling] if at < len(arguments)]
        texts = [self._text(one).decode(errors="replace").strip() for one in needed]
        in_source = call.spelling.encode() in self._text(statement)
        if len(texts) < 3 or not all(texts) or any(map(has_effects, needed)) or not in_source:
            self._skip(statement, f"{call.spelling} with arguments that cannot be evaluated twice")
        elif (slot := self._slots(statement, f"bytes:{call.spelling}", f"ranks:{call.spelling}")) is not None:
            text = f"barograph_message({slot}, {', '.join(texts)}); "
            self.edits.append(Edit(statement.extent.start.offset, text))

    def _range_loop(self, cursor: Cursor) -> None:
        body = list(cursor.get_children())[-1]
        if body.kind is not CursorKind.COMPOUND_STMT or not self._starts_with(body, "{"):
            self._skip(cursor, "range loop without a block")
        elif (slot := self._slots(cursor, "iterations")) is not None:
            self.edits.append(Edit(body.extent.start.offset + 1, f" (void)barograph_loop({slot});"))

    def _condition(self, cursor: Cursor) -> None:
        """Wrap the condition of a branch or a loop."""
        keyword, names, holds, fails = CONDITIONS[cursor.kind]
        place = self._place(cursor, keyword)
        if isinstance(place, str):
            self._skip(cursor, f"{keyword} {place}")
            return
        if (slot := self._slots(cursor, *names)) is None:
            return
        yes, no = holds.format(slot), fails.format(slot + 1)
        start, end = place
        written = self._source[start:end]
        if written.strip():
            start, end = start + len(written) - len(written.lstrip()), end - len(written) + len(written.rstrip())
            self.edits += [Edit(start, "("), Edit(end, f") ? {yes} : {no}")]
        else:
            self.edits.append(Edit(end, f" {yes}"))

    def _place(self, cursor: Cursor, keyword: str) -> tuple[int, int] | str:
        """Byte range of the condition between its parentheses, or the reason why it cannot be wrapped."""
        if not self._starts_with(cursor, keyword):
            return "from a macro"
        tokens = [token for token in cursor.get_tokens() if token.kind is not TokenKind.COMMENT]
        # The condition of a do loop comes last, after `while`.
        at, before = (-1, "while") if keyword == "do" else (0, keyword)
        pairs = outer_parentheses(tokens)
        opening, closing = pairs[at] if pairs else (0, 0)
        if tokens[opening - 1].spelling != before:
            return "without plain parentheses"
        parts = semicolons(tokens[opening + 1 : closing])
        start, end = tokens[opening].extent.end.offset, tokens[closing].extent.start.offset
        if keyword == "for" and len(parts) == 2:
            start, end = parts[0].extent.end.offset, parts[1].extent.start.offset
        elif parts or keyword == "for":
            return "with a statement in its condition"
        within = (child for child in cursor.get_children() if start <= child.extent.start.offset < end)
        if any(child.kind in (CursorKind.DECL_STMT, CursorKind.VAR_DECL) for child in within):
            return "that declares in its condition"
        if b"constexpr" in self._source[cursor.extent.start.offset : start] or b"#" in self._source[start:end]:
            return "that is decided by the compiler"
        return start, end

    def _slots(self, cursor: Cursor, *kinds: str) -> int | None:
        """The first slot of these features, None where they are not kept."""
        line, column = cursor.extent.start.line, cursor.extent.start.column
        names = [f"{self._path}:{line}:{column}:{kind}" for kind in kinds]
        if self._kept is not None and not self._kept.intersection(names):
            return None
        self.names += names
        return len(self.names) - len(names)

    def _skip(self, cursor: Cursor, why: str) -> None:
        self.skipped.append((cursor.extent.start.line, why))

    def _text(self, cursor: Cursor) -> bytes:
        """The source of a cursor; other text where the cursor comes from a macro."""
        return self._source[cursor.extent.start.offset : cursor.extent.end.offset]

    def _starts_with(self, cursor: Cursor, text: str) -> bool:
        return self._source.startswith(text.encode(), cursor.extent.start.offset)
