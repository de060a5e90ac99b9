"""`barograph replay` and `barograph record`: scores recorded runs as if they ran now.

`trace` reads the file, `ring` presents it to the agent as a ring, `members` derives the work of each rank, `simulation`
passes both through log, modeler and alerts in simulated time, `record` writes traces of live jobs.
"""
