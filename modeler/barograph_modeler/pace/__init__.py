"""The pace of a workload: windows of intervals, and how fast healthy runs get through them."""
