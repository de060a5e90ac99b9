"""Metrics of the modeler, and the page `/predict`."""
