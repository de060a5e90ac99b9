"""Runtimes from the times of regions in files: disjoint parts, laws of each, weights by held-out scales, and rivals."""
