"""Clients of the log: readers, followers and writers."""
