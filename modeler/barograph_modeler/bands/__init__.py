"""Bands of call-site classes: moments, regimes and the out-of-sample coverage of bands."""
