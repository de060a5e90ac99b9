"""Properties of a piece of source, from clang's syntax tree, or from tokens where the tree lacks them."""

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


def call_of(cursor: Cursor) -> Cursor | None:
    """The call of a statement, whose result may be assigned; None for other statements."""
    if cursor.kind is CursorKind.CALL_EXPR:
        return cursor
    if is_assignment(cursor):
        return next((child for child in cursor.get_children() if child.kind is CursorKind.CALL_EXPR), None)
    return None


def is_assignment(cursor: Cursor) -> bool:
    """Whether a cursor is an assignment, plain or compound."""
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
    """Whether the declaration of a variable initialises it."""
    return any(child.kind.is_expression() for child in variable.get_children())


def is_number(cursor: Cursor) -> bool:
    """Whether a cursor is of an arithmetic or enumeration type that is not volatile."""
    kind = cursor.type.get_canonical()
    return kind.kind in NUMBERS and not kind.is_volatile_qualified()


def has_effects(cursor: Cursor) -> bool:
    """Whether evaluating an expression may have side effects."""
    for part in cursor.walk_preorder():
        if part.kind in EFFECTS or is_assignment(part):
            return True
        if part.kind is CursorKind.UNARY_OPERATOR and any(t.spelling in ("++", "--") for t in part.get_tokens()):
            return True
    return False


def outer_parentheses(tokens: list[Token]) -> list[tuple[int, int]]:
    """Positions of matching parentheses that are in no other parentheses."""
    pairs, opening, depth = [], 0, 0
    for at, token in enumerate(tokens):
        if token.spelling == "(":
            opening, depth = at if depth == 0 else opening, depth + 1
        elif token.spelling == ")":
            depth -= 1
            if depth == 0:
                pairs.append((opening, at))
    return pairs


def semicolons(tokens: list[Token]) -> list[Token]:
    """Semicolons that are in no brackets."""
    depth, found = 0, []
    for token in tokens:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.spelling, 0)
        if token.spelling == ";" and depth == 0:
            found.append(token)
    return found
