"""Side files: features written by an instrumented program while it runs."""
