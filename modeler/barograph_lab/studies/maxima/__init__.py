"""Interval maxima and runs at larger scales by the paper's models, and fits that only studies use."""
