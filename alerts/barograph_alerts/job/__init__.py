"""One watched job: its monitor, progress, verdict, and rows of `scores`."""
