"""The modeler's state in memory and on disk: bounded dictionaries, and snapshots written by a forked child."""
