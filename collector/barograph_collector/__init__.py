"""The log: one process that owns one DuckDB file and offers two verbs, append and read, over ZeroMQ.

`server` receives, `store` keeps, `exporter` shows, `daemon` wires; `client` is how everybody else reads.
`service` is what the collector shares with the daemons built on it: shutdown, logging, metrics, exit statuses.
"""
