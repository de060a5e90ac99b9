"""Queries, state and wording shared by page, report and commands."""
