"""Amdahl's law: as a description of runs, and with overhead as a model that predicts."""
