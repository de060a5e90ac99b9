"""What runs here: the job's identity, its batch system, its processes, and the site's rules about applications."""
