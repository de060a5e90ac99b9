"""Properties of a piece of source, from clang's syntax tree, or from its tokens where the tree lacks them."""

from __future__ import annotations

from typing import Final

from clang.cindex import Cursor, CursorKind, Token, TypeKind

NUMBERS: Final = (
    *(getattr(TypeKind, name) for name in ("BOOL", "CHAR_U", "UCHAR", "CHAR_S", "SCHAR", "SHORT", "USHORT", "INT")),
    *(getattr(TypeKind, name) for name in ("UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG", "ENUM")),
    *(getattr(TypeKind, name) for name in ("FLOAT", "DOUBLE", "LONGDOUBLE")),
)
ASSIGNMENTS: Final = ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=")
PLAIN_NAMES: Final = (CursorKind.DECL_REF_EXPR, CursorKind.MEMBER_REF_EXPR, CursorKind.CXX_THIS_EXPR)
EFFECTS: Final = (CursorKind.CALL_EXPR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR, CursorKind.CXX_NEW_EXPR)


def call_of(cursor: Cursor) -> Cursor | None:
    """The call that a statement consists of, or whose result it assigns."""
    if cursor.kind is CursorKind.CALL_EXPR:
        return cursor
    if is_assignment(cursor):
        return next((child for child in cursor.get_children() if child.kind is CursorKind.CALL_EXPR), None)
    return None


def is_assignment(cursor: Cursor) -> bool:
    """Whether a cursor is an assignment, `=` or one that computes."""
    if cursor.kind is CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
        return True
    if cursor.kind is not CursorKind.BINARY_OPERATOR:
        return False
    target = next(cursor.get_children(), None)
    if target is None:
        return False
    end = target.extent.end.offset
    operator = next((token.spelling for token in cursor.get_tokens() if token.extent.start.offset >= end), "")
    return operator in ASSIGNMENTS


def is_initialised(variable: Cursor) -> bool:
    """Whether a declared variable is given a value where it is declared."""
    return any(child.kind.is_expression() for child in variable.get_children())


def is_number(cursor: Cursor) -> bool:
    """Whether a cursor is of an arithmetic or enumeration type that is not volatile."""
    kind = cursor.type.get_canonical()
    return kind.kind in NUMBERS and not kind.is_volatile_qualified()


def has_effects(cursor: Cursor) -> bool:
    """Whether evaluating an expression twice may differ from evaluating it once."""
    for part in cursor.walk_preorder():
        if part.kind in EFFECTS or is_assignment(part):
            return True
        if part.kind is CursorKind.UNARY_OPERATOR and any(t.spelling in ("++", "--") for t in part.get_tokens()):
            return True
    return False


def first_parentheses(tokens: list[Token]) -> tuple[int, int] | None:
    """Positions of the parentheses behind the first token, None where there are none."""
    if len(tokens) < 2 or tokens[1].spelling != "(":
        return None
    depth = 0
    for at, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.spelling, 0)
        if token.spelling == ")" and depth == 0:
            return 1, at
    return None


def last_parentheses(tokens: list[Token]) -> tuple[int, int] | None:
    """Positions of the last pair of parentheses, None where no `while` stands before it."""
    depth = 0
    for at in range(len(tokens) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(tokens[at].spelling, 0)
        if tokens[at].spelling == "(" and depth == 0:
            last = max(i for i, token in enumerate(tokens) if token.spelling == ")")
            return (at, last) if tokens[at - 1].spelling == "while" else None
    return None


def semicolons(tokens: list[Token]) -> list[Token]:
    """Semicolons that stand in no further brackets."""
    depth, found = 0, []
    for token in tokens:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.spelling, 0)
        if token.spelling == ";" and depth == 0:
            found.append(token)
    return found
