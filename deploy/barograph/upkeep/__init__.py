"""Commands that care for the log: backups, and their way back."""
