"""The pipeline in one process: a virtual clock, a simulated network and simulated disks, all from one seed."""
