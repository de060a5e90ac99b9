"""How daemons and commands use the log: queries, reads, and following it."""
