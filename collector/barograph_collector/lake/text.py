"""Texts as SQL."""

from __future__ import annotations


def literal(text: str) -> str:
    """A text as SQL.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"
