"""Bands for interval maxima: GEV fits, distribution-free bands, and the band for whole runs."""
