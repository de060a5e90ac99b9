"""Fits of many classes at once, by other processes, here or on other machines."""
