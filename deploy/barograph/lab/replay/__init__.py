"""`barograph replay` and `barograph record`: what ranks recorded, judged as if it happened now.

`trace` is the file, `ring` shows it to the agent as a ring, `members` says what each rank did, `simulation` moves all
of it through log, modeler and alerts in simulated time, `record` makes such files from live jobs.
"""
