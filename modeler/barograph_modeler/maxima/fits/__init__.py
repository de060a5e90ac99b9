"""Fits of the generalized extreme value distribution, many samples at once."""
