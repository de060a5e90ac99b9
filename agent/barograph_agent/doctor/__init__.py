"""The checks of `barograph doctor`."""
