"""The collector's socket and the receive thread."""
