"""The log protocol: tables and messages."""
