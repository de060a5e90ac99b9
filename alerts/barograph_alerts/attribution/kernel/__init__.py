"""What the kernels of a job's nodes show of the time that was lost."""
