"""The modeler: learns from the log how long intervals and runs should take, and writes that back.

`maxima` fits intervals, `runtime` whole runs, `pace` how fast a workload goes; `learner` keeps what they need,
`daemon` connects it to the log, `exporter` to Prometheus.
"""
