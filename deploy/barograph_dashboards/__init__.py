"""Grafana's dashboards as code: `python -m barograph_dashboards` writes the JSON in `deploy/grafana/dashboards`."""
