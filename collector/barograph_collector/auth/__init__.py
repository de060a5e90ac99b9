"""Access control: keys, credentials, roles, rate limits, and viewers over HTTP."""
