"""From accepted messages to durable rows: streams, journal groups, database batches."""
