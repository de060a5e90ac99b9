"""The process that watches the programs of a job on one node."""
