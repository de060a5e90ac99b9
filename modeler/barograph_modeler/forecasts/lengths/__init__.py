"""Runs of another length of like work."""
