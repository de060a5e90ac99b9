"""The log on disk: journal, DuckDB, partitions, migrations, retention."""
