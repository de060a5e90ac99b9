"""The ring file between the shim and the sidecar: reader and writer."""
