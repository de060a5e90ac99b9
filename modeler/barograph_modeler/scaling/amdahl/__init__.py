"""Amdahl's law: as a description of runs, as a model with overhead, and what replaces it where times do not fall."""
