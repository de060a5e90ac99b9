"""Ingest: from accepted messages to durable rows, by streams, journal groups and database batches."""
