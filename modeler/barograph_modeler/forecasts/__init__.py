"""Predictions of whole runs: history, published predictors, and how good their predictions were."""
