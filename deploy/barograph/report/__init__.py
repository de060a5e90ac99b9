"""`barograph report`: a self-contained page about an application or a job."""

from barograph.report.command import main

__all__ = ["main"]
