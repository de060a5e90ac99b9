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


def names_as_rows(names: Iterable[str]) -> str:
    """Names of jobs or workloads as a column in SQL. One constant is parsed sooner than many.

    >>> print(names_as_rows(["hpc/1.0.0", "hpc/2.0.0"]))
    unnest(string_split('hpc/1.0.0,hpc/2.0.0', ','))
    """
    return f"unnest(string_split({literal(','.join(names))}, ','))"
