"""What the time of runs consists of: kept by workload, and fitted by problem."""
