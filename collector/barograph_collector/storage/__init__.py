"""The log on disk: journal, DuckDB, partitions, retention."""
