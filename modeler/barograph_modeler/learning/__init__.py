"""What is learned from healthy runs: jobs, workloads, and rows for the log."""
