"""The alerts daemon: judges running jobs by the history of their workload and by themselves, and says why.

One job: `sequential` is one test, `level`, `change`, `foretold` and `stall` ask four questions, `evidence` puts them
together, `cause` looks for who is to blame and `coincidence` for what else changed, `trial` is all of that, `verdict`
puts it in words, `rows` into the log. All jobs: `scorer` keeps trials, `fleet` looks at many, `daemon` connects them to
the log and `exporter` to Prometheus. `backtest` measures how right all of this is.
"""
