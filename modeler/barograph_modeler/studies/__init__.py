"""How bands would have done on given measurements: `series` reads, `methods` fits, `tasks` tests, `score` counts."""
