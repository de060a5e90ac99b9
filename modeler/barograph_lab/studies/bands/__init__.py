"""Back-test of bands: methods, tasks, scores."""
