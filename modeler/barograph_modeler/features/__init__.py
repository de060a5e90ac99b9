"""Runtime from features: values a program has early in its run, and how long such runs took."""
