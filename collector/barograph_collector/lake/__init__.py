"""The lake: sealed periods of the log as Parquet files, and a DuckLake catalog that lists them."""
