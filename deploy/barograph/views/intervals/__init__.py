"""Answers of the modeler about intervals, for people."""
