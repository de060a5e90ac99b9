"""Runtimes and time limits of jobs at their submission, from jobs that have ended."""
