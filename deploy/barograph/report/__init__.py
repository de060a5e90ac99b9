"""`barograph report`: a page about an application or a job that needs no other file."""

from barograph.report.command import main

__all__ = ["main"]
