"""Interval maxima at larger scales than those observed, and fits that only studies use."""
