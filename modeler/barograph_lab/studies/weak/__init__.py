"""Weak scaling by log-bilinear models, and the runs to measure for them (Mokrov 2020)."""
