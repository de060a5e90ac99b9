"""Commands for studies and measurements: back-tests, benchmarks, replays, the BSP program. No daemon imports them."""
