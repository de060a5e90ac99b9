"""The measurement program of the maxima paper (section IV): intervals of a known workload between barriers.

`workloads` defines the work of a rank in an interval, `harness` runs it on all ranks, `report` summarises the times.
"""
