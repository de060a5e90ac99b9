"""The measurement program of the maxima paper (section IV): intervals of a known workload, fenced by barriers.

`workloads` says what a rank does in an interval, `harness` runs it on all ranks, `report` says what came of it.
"""
