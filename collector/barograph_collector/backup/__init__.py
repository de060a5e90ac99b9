"""Copies of a log that is in use, and their way back."""
