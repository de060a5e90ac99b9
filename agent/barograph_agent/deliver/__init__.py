"""Delivery of rows from this node to the collector: spool, link, keys and credentials."""
