"""Snapshots of the modeler's state, written by a forked child."""
