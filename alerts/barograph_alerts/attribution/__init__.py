"""Why a job is slow: which rank or node the others wait for, and what changed at that time."""
