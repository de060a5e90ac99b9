"""Settings of the agent, and how settings are declared and resolved everywhere."""
