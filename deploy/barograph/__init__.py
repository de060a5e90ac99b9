"""The umbrella: the `barograph` command, and what starts and shows the whole service on one host."""
