"""Draws a dashboard as a picture without Grafana: a tool for whoever changes one, no copy of what Grafana does."""
