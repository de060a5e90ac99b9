"""The sidecar: the process that records and delivers the programs of a job on one node."""
