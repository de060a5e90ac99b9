"""Studies of runtimes as sums of parts: regions from files, their rivals, and a simulator."""
