"""Interval maxima at larger scales than those observed."""
