"""`barograph bench`: the throughput of a collector."""
