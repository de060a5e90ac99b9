"""Causes of a slowdown: the rank or node that the others wait for, and coincident changes."""
