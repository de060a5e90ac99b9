"""Who may use the log: keys, credentials, roles, rate limits, and access over HTTP."""
