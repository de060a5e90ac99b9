"""Where a condition can be wrapped and a statement be added after a label of a switch, and why elsewhere not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from clang.cindex import Cursor, CursorKind, StorageClass, TokenKind, TypeKind

from barograph.instrument.syntax import outer_parentheses, semicolons

_SPACE: Final = rb"(?:\s|/\*.*?\*/|//[^\n]*\n)*"
_QUESTION: Final = re.compile(_SPACE + rb"\?" + _SPACE, re.DOTALL)
_COLON: Final = re.compile(_SPACE + rb":" + _SPACE, re.DOTALL)
_VECTORS: Final = (TypeKind.VECTOR, TypeKind.DEPENDENT)
LABELS: Final = {CursorKind.CASE_STMT: b"case", CursorKind.DEFAULT_STMT: b"default"}
VARIABLES: Final = (CursorKind.VAR_DECL, CursorKind.PARM_DECL)


def statement_condition(source: bytes, cursor: Cursor, keyword: str) -> tuple[int, int] | str:
    """Byte range of the condition of a branch or loop, between its parentheses, or why it cannot be wrapped."""
    if not source.startswith(keyword.encode(), cursor.extent.start.offset):
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
    if b"constexpr" in source[cursor.extent.start.offset : start] or b"#" in source[start:end]:
        return "that is decided by the compiler"
    return start, end


def choice_condition(source: bytes, cursor: Cursor) -> tuple[int, int] | str:
    """Byte range of the condition of a conditional expression, or the reason why it cannot be wrapped."""
    parts = list(cursor.get_children())
    if len(parts) != 3:
        return "conditional expression without a middle"
    condition, first, second = parts
    start, end = condition.extent.start.offset, condition.extent.end.offset
    written = (
        start == cursor.extent.start.offset
        and _QUESTION.fullmatch(source, end, first.extent.start.offset)
        and _COLON.fullmatch(source, first.extent.end.offset, second.extent.start.offset)
    )
    if not written or b"#" in source[start:end]:
        return "conditional expression from a macro"
    if condition.type.get_canonical().kind in _VECTORS:
        return "conditional expression of a vector or an unknown type"
    if not any(_is_variable(part) for part in _evaluated(condition)):
        return "conditional expression that is decided by the compiler"
    return start, end


def _evaluated(cursor: Cursor) -> Iterator[Cursor]:
    """The parts of an expression that are computed when it is: not those of sizeof."""
    if cursor.kind is CursorKind.CXX_UNARY_EXPR:
        return
    yield cursor
    for child in cursor.get_children():
        yield from _evaluated(child)


def _is_variable(cursor: Cursor) -> bool:
    """Whether a cursor refers to something that varies at run time, so that no constant expression can contain it."""
    if cursor.kind is CursorKind.MEMBER_REF_EXPR:
        return cursor.referenced is not None and cursor.referenced.kind is CursorKind.FIELD_DECL
    if cursor.kind is not CursorKind.DECL_REF_EXPR or cursor.referenced is None:
        return False
    named = cursor.referenced
    return named.kind in VARIABLES and not named.type.get_canonical().is_const_qualified()


def is_constant(cursor: Cursor) -> bool:
    """Whether a declaration is of a constant expression, in which nothing can be counted."""
    words = (token.spelling for token in cursor.get_tokens())
    return any(word in ("constexpr", "constinit") for word in takewhile(lambda word: word not in "=({;", words))


def label_place(source: bytes, label: Cursor, parent: CursorKind) -> int | str:
    """Byte offset after a label of a switch at which a statement can stand, or the reason why none can."""
    last = list(label.get_children())[-1:]
    offset = last[0].extent.start.offset if last else 0
    word = LABELS[label.kind]
    if not source.startswith(word, label.extent.start.offset):
        return "switch label from a macro"
    # Without a block the statement would take the place of the labelled one.
    if parent is not CursorKind.COMPOUND_STMT:
        return "switch label outside a block"
    before = re.sub(rb"/\*.*?\*/|//[^\n]*", b"", source[label.extent.start.offset : offset], flags=re.DOTALL).rstrip()
    if not before.endswith(b":"):
        return "switch label before a macro or the end of its block"
    return offset


def is_external_inline(cursor: Cursor, head: str, *, cplusplus: bool) -> bool:
    """Whether a function may not refer to the counters: in C, inline with external linkage. head: up to its body."""
    return not cplusplus and "inline" in head and cursor.storage_class is not StorageClass.STATIC
