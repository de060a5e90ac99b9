"""The loop of each rank without collectives: calls that end its iterations, and whether these are the intervals."""
