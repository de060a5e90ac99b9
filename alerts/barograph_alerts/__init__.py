"""The alerts daemon: judges running jobs against the pace of their workload and says which are slow.

`evidence` is the mathematics for one job, `scorer` keeps it for all jobs, `daemon` connects it to the log,
`exporter` to Prometheus.
"""
