"""Jobs and processes of a node: identity, batch system, processes, and the site's rules for applications."""
