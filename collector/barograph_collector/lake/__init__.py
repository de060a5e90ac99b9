"""The lake: the rows of the log as Parquet files that a DuckLake catalog lists, for history and for other programs."""
