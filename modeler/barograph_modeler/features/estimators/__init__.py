"""Estimators that learn runtimes from features."""
