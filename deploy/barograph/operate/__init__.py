"""Commands for operators: the service, its configuration and its keys."""
