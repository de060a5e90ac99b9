"""Grafana dashboards as TOML: `python -m barograph_dashboards` writes the JSON in `deploy/grafana/dashboards`."""
