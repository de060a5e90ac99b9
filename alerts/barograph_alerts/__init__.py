"""The alerts daemon: judges running jobs by the history of their workload and by themselves, and says why.

One job: `sequential` is one test, `level`, `change` and `stall` ask three questions, `evidence` puts them together,
`cause` looks for who is to blame, `trial` is all of that, `verdict` puts it in words. All jobs: `scorer` keeps trials,
`fleet` looks at many, `daemon` connects them to the log and `exporter` to Prometheus.
"""
