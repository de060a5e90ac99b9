"""Settings of the agent, and the declaration and resolution of settings of all daemons."""
