"""Laws of one size: Amdahl's, as a description of runs and as a model, a power law, and what replaces them where times
do not fall."""
