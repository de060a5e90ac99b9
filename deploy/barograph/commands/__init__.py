"""Commands for users and performance engineers."""
