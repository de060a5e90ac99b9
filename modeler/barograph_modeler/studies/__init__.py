"""Back-tests on given measurements: `series` reads, `methods` fits, `tasks` tests, `score` counts."""
