"""Side files: the features that an instrumented program writes while it runs."""
