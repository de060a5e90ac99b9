"""Learning from healthy runs: pending jobs, workloads, and rows for the log."""
