"""Texts and files as SQL."""

from __future__ import annotations

from collections.abc import Iterable


def literal(text: str) -> str:
    """A text as SQL.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def parquet(files: Iterable[str], *options: str) -> str:
    """Parquet files as what to select from, without columns that their directories name.

    >>> print(parquet(["/lake/a.parquet"], "filename => true"))
    read_parquet(['/lake/a.parquet'], hive_partitioning => false, filename => true)
    """
    listed = ", ".join(map(literal, files))
    return f"read_parquet({', '.join([f'[{listed}]', 'hive_partitioning => false', *options])})"
