"""Weak scaling by log-bilinear models, and which runs to measure for them (Mokrov 2020)."""
