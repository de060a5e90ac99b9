"""The distribution of interval maxima: fits and bands."""
