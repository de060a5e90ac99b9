"""The state of one watched job: monitor, progress, verdict, rows of `scores`."""
