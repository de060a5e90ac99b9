"""Metrics of running jobs."""
