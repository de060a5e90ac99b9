"""The logs of several shards, asked as one: each has the jobs of its users and what was learned of them."""
