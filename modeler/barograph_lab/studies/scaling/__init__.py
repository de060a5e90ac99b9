"""Back-test of scaling models: workloads, models, accuracy."""
