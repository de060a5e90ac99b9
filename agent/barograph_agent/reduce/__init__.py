"""Reduction of ring records to rows: intervals, blocks within a budget, and the work of each rank."""
