"""The data of each page."""
