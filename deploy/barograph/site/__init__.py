"""`barograph page`: jobs, alarms, applications and predictions for people with a browser and no Grafana."""

from barograph.site.command import main

__all__ = ["main"]
