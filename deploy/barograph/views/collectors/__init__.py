"""Several collectors, asked as one: each has its jobs, and the first what is about no job."""
