"""Statistical tests of one job (level, change, stall, runtime), and their combination."""
