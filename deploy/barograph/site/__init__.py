"""`barograph page`: a web site of jobs, alarms, applications and predictions, without Grafana."""

from barograph.site.command import main

__all__ = ["main"]
