"""Runtime as a sum over phases, which are call-site classes: count times (slowest own work + exchange + collective)."""
