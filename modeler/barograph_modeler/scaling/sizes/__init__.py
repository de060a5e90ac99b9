"""Models of problems with several sizes, and their weights."""
