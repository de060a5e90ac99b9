"""Prediction of runtimes from features, values that a program has early in its run."""
