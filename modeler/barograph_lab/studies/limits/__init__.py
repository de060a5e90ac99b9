"""Runtimes and time limits back-tested on job logs."""
