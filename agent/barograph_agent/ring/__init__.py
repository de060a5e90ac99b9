"""Reader and writer of rings, the files between shim and sidecar."""
