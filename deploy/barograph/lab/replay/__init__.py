"""`barograph replay` and `barograph record`: recorded runs, scored as if they ran now.

`trace` reads the file, `ring` presents it to the agent as a ring, `members` derives the work of each rank, `simulation`
passes all of it through log, modeler and alerts in simulated time, `record` writes such files from live jobs.
"""
