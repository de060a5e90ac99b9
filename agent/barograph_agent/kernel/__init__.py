"""What the kernel of a node knows about the time that ranks lose: rows of `pressures`."""
