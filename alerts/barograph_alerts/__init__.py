"""The alerts daemon: tests running jobs against the history of their workload and their own past, and finds causes.

`detection` has the statistical tests of one job and combines them into evidence. `attribution` finds the nodes or ranks
that cause a slowdown, coincident changes, and patterns over the fleet. `job` monitors one job, and makes sentences and
rows of the log. `processor` monitors all jobs, `export` exposes metrics, `studies` back-tests.
"""
