"""Runtime as a sum of parts: regions or call-site classes, each with a law of its own."""
