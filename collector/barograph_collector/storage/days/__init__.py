"""The days of the log: partitions, which of them are in the lake, and how long they are kept."""
