"""What the hardware of a node counts: one source a file."""
