"""Where probes go: a walk over the syntax tree of one source file.

What is done to a source never changes what it means. Conditions are wrapped as they stand, `(c) ? 1 : 0` with a count
on each side, which keeps side effects, order and contextual conversions; statements are added only between statements
of a block. Wherever that is not safe, the place is left alone and listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clang.cindex import Cursor, CursorKind, TokenKind

from barograph.instrument.syntax import (
    PLAIN_NAMES,
    call_of,
    first_parentheses,
    has_effects,
    is_assignment,
    is_initialised,
    is_number,
    last_parentheses,
    semicolons,
)

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
MESSAGES: Final = {
    # function: positions of count, datatype and communicator
    **dict.fromkeys(
        ("MPI_Send", "MPI_Ssend", "MPI_Bsend", "MPI_Rsend", "MPI_Isend", "MPI_Recv", "MPI_Irecv"), (1, 2, 5)
    ),
    "MPI_Bcast": (1, 2, 4),
    "MPI_Reduce": (2, 3, 6),
    "MPI_Allreduce": (2, 3, 5),
    "MPI_Scan": (2, 3, 5),
    "MPI_Exscan": (2, 3, 5),
    **dict.fromkeys(("MPI_Gather", "MPI_Scatter"), (1, 2, 7)),
    **dict.fromkeys(("MPI_Allgather", "MPI_Alltoall"), (1, 2, 6)),
    "MPI_Sendrecv": (1, 2, 10),
}


class Edit(NamedTuple):
    """Text to insert before the byte at `offset`."""

    offset: int
    text: str


@dataclass
class ProbePlan:
    """What is to be done to one source. names: one per slot. skipped: line and reason."""

    edits: list[Edit] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)


class Around(NamedTuple):
    """What surrounds a cursor."""

    parent: CursorKind
    in_loop: bool = False


class Planner:
    """Plans the probes of one source.

    source: its bytes. path: what it is called in names. kept: names of the probes that are wanted; None for all.
    """

    def __init__(self, source: bytes, path: str, kept: frozenset[str] | None = None) -> None:
        self.plan = ProbePlan()
        self._source = source
        self._path = path
        self._kept = kept

    def walk(self, root: Cursor) -> None:
        """Plan all of a translation unit's own functions."""
        for cursor in root.get_children():
            if cursor.location.file is None or cursor.location.file.name != root.spelling:
                continue
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
        if odd := next((word for word in NOT_ORDINARY if word in head), None):
            self._skip(cursor, f"function {cursor.spelling} is {odd}")
        elif self._text(body.extent.start.offset, 1) != b"{":
            self._skip(cursor, f"function {cursor.spelling} comes from a macro")
        else:
            self._visit(body, Around(cursor.kind))

    def _visit(self, cursor: Cursor, around: Around) -> None:
        if self._follows_pragma(cursor):
            self._skip(cursor, "under a #pragma")
            return
        if cursor.kind is CursorKind.StmtExpr:
            self._skip(cursor, "statement expression")
            return
        if around.parent is CursorKind.COMPOUND_STMT:
            self._statement(cursor, around)
        if cursor.kind is CursorKind.IF_STMT:
            self._branch(cursor)
        elif cursor.kind in LOOPS:
            self._loop(cursor)
        elif cursor.kind is CursorKind.SWITCH_STMT:
            self._skip(cursor, "switch")
        elif cursor.kind is CursorKind.CONDITIONAL_OPERATOR:
            self._skip(cursor, "conditional expression")
        within = Around(cursor.kind, around.in_loop or cursor.kind in LOOPS)
        for child in cursor.get_children():
            self._visit(child, within)

    def _statement(self, cursor: Cursor, around: Around) -> None:
        message = call_of(cursor)
        if message is not None and message.spelling in MESSAGES:
            self._message(cursor, message)
        if around.in_loop:
            return
        if cursor.kind is CursorKind.DECL_STMT:
            for variable in cursor.get_children():
                if variable.kind is CursorKind.VAR_DECL and is_initialised(variable) and is_number(variable):
                    self._value(cursor, variable.spelling)
        elif is_assignment(cursor):
            target = next(cursor.get_children())
            if is_number(target) and all(part.kind in PLAIN_NAMES for part in target.walk_preorder()):
                self._value(cursor, self._source[target.extent.start.offset : target.extent.end.offset].decode())

    def _value(self, cursor: Cursor, text: str) -> None:
        end = cursor.extent.end.offset
        if self._source[end - 1 : end] != b";":
            gap = len(self._source[end:]) - len(self._source[end:].lstrip())
            if self._text(end + gap, 1) != b";":
                self._skip(cursor, f"assignment to {text} ends in a macro")
                return
            end += gap + 1
        if (slot := self._slots(cursor, f"value:{text}")) is not None:
            self.plan.edits.append(Edit(end, f" barograph_value({slot}, {text});"))

    def _message(self, statement: Cursor, call: Cursor) -> None:
        arguments = list(call.get_arguments())
        texts = [self._written(arguments[at]) for at in MESSAGES[call.spelling] if at < len(arguments)]
        pure = not any(has_effects(arguments[at]) for at in MESSAGES[call.spelling] if at < len(arguments))
        start = statement.extent.start.offset
        if len(texts) < 3 or None in texts or not pure or not self._is_at_line_of(statement, call):
            self._skip(statement, f"{call.spelling} with arguments that cannot be asked twice")
            return
        if (slot := self._slots(statement, f"bytes:{call.spelling}", f"ranks:{call.spelling}")) is not None:
            self.plan.edits.append(Edit(start, f"barograph_message({slot}, {', '.join(map(str, texts))}); "))

    def _branch(self, cursor: Cursor) -> None:
        place = self._condition(cursor, b"if")
        if place is None:
            return
        if (slot := self._slots(cursor, "taken", "passed")) is not None:
            self._wrap(place, f"barograph_taken({slot})", f"barograph_passed({slot + 1})")

    def _loop(self, cursor: Cursor) -> None:
        if cursor.kind is CursorKind.CXX_FOR_RANGE_STMT:
            body = list(cursor.get_children())[-1]
            if body.kind is not CursorKind.COMPOUND_STMT or self._text(body.extent.start.offset, 1) != b"{":
                self._skip(cursor, "range loop without a block")
            elif (slot := self._slots(cursor, "iterations")) is not None:
                self.plan.edits.append(Edit(body.extent.start.offset + 1, f" (void)barograph_loop({slot});"))
            return
        keyword = {CursorKind.WHILE_STMT: b"while", CursorKind.FOR_STMT: b"for"}.get(cursor.kind, b"do")
        place = self._condition(cursor, keyword)
        if place is not None and (slot := self._slots(cursor, "iterations")) is not None:
            self._wrap(place, f"barograph_loop({slot})", "0")

    def _condition(self, cursor: Cursor, keyword: bytes) -> tuple[int, int] | None:
        """Byte range of the condition between its parentheses; None, and listed, where it cannot be wrapped."""
        if self._text(cursor.extent.start.offset, len(keyword)) != keyword:
            self._skip(cursor, f"{keyword.decode()} from a macro")
            return None
        tokens = [token for token in cursor.get_tokens() if token.kind is not TokenKind.COMMENT]
        inside = last_parentheses(tokens) if keyword == b"do" else first_parentheses(tokens)
        if inside is None:
            self._skip(cursor, f"{keyword.decode()} without plain parentheses")
            return None
        opening, closing = inside
        parts = semicolons(tokens[opening + 1 : closing])
        start, end = tokens[opening].extent.end.offset, tokens[closing].extent.start.offset
        if keyword == b"for" and len(parts) == 2:
            start, end = parts[0].extent.end.offset, parts[1].extent.start.offset
        elif parts or keyword == b"for":
            self._skip(cursor, f"{keyword.decode()} with a statement in its condition")
            return None
        if any(
            child.kind in (CursorKind.DECL_STMT, CursorKind.VAR_DECL) for child in self._children_in(cursor, start, end)
        ):
            self._skip(cursor, f"{keyword.decode()} that declares in its condition")
            return None
        if b"constexpr" in self._source[cursor.extent.start.offset : start] or b"#" in self._source[start:end]:
            self._skip(cursor, f"{keyword.decode()} that is decided when compiled")
            return None
        return start, end

    def _wrap(self, place: tuple[int, int], yes: str, no: str) -> None:
        start, end = place
        written = self._source[start:end]
        if written.strip():
            start, end = start + len(written) - len(written.lstrip()), end - len(written) + len(written.rstrip())
            self.plan.edits += [Edit(start, "("), Edit(end, f") ? {yes} : {no}")]
        else:
            self.plan.edits.append(Edit(end, f" {yes}"))

    def _slots(self, cursor: Cursor, *kinds: str) -> int | None:
        """The first of the slots for these names, or None if they are not kept."""
        line, column = cursor.extent.start.line, cursor.extent.start.column
        names = [f"{self._path}:{line}:{column}:{kind}" for kind in kinds]
        if self._kept is not None and not self._kept.intersection(names):
            return None
        self.plan.names += names
        return len(self.plan.names) - len(names)

    def _skip(self, cursor: Cursor, why: str) -> None:
        self.plan.skipped.append((cursor.extent.start.line, why))

    def _text(self, offset: int, size: int) -> bytes:
        return self._source[offset : offset + size]

    def _written(self, cursor: Cursor) -> str | None:
        text = self._source[cursor.extent.start.offset : cursor.extent.end.offset].decode(errors="replace").strip()
        return text or None

    def _is_at_line_of(self, statement: Cursor, call: Cursor) -> bool:
        """Whether a call is written out where its statement is, not inside a macro."""
        written = self._source[statement.extent.start.offset : statement.extent.end.offset]
        return call.spelling.encode() in written

    def _children_in(self, cursor: Cursor, start: int, end: int) -> Iterator[Cursor]:
        return (child for child in cursor.get_children() if start <= child.extent.start.offset < end)

    def _follows_pragma(self, cursor: Cursor) -> bool:
        before = self._source[: cursor.extent.start.offset].rstrip()
        line = before[before.rfind(b"\n") + 1 :].lstrip()
        while before[: before.rfind(b"\n") + 1].rstrip(b"\n").endswith(b"\\"):
            before = before[: before.rfind(b"\n")]
            line = before[before.rfind(b"\n") + 1 :].lstrip()
        return line.startswith(b"#") and line[1:].lstrip().startswith(b"pragma")
