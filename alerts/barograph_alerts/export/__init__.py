"""Prometheus metrics of running jobs."""
