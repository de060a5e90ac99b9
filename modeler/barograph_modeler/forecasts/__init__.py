"""Predictions of runtimes: histories of runs, published predictors, and the accuracy of predictions."""
