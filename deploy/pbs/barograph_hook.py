"""Hook of PBS for three events of MoM: execjob_begin and execjob_end (root, on each node of a job), execjob_launch.

For the installation see docs/operator/pbs-flux.md. Errors are logged and never affect the job.
"""

import pwd
import subprocess

import pbs

HOOKS = "/etc/barograph/hooks"
SECONDS = 5
"""Timeout; exceeds the 1.5 s limit of `bounded`."""


def run(words, environment, prefix=()):
    """Run one of the hooks; returns its output."""
    command = [*prefix, "/bin/sh", HOOKS + "/bounded", *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=SECONDS, check=False)
    return done.stdout.decode()


def work(event):
    """Call the hook that corresponds to the event."""
    job = event.job
    owner = str(job.euser or job.Job_Owner).partition("@")[0]
    user = pwd.getpwnam(owner)
    name = f"pbs-{job.id}@{pbs.get_local_nodename()}".replace("[", "_").replace("]", "")
    uid, gid = str(user.pw_uid), str(user.pw_gid)
    facts = {"PBS_JOBID": job.id, "PBS_ACCOUNT": str(job.Account_Name or "")}
    if event.type == pbs.EXECJOB_BEGIN:
        run(["job-begin", name, uid, gid, owner, facts["PBS_ACCOUNT"], str(job.queue or "")], facts)
    elif event.type == pbs.EXECJOB_END:
        run(["job-end", name, uid, gid], facts)
    elif event.type == pbs.EXECJOB_LAUNCH:
        as_user = ["/bin/sh", HOOKS + "/as-user", uid, gid]
        restarts = str(max(int(job.run_count or 1) - 1, 0))
        for line in run(["task-begin", name, uid, restarts, "0"], dict(event.env), as_user).splitlines():
            variable, _, value = line.partition("=")
            event.env[variable] = value


try:
    work(pbs.event())
except Exception as error:
    pbs.logmsg(pbs.LOG_WARNING, f"barograph: {error}")
pbs.event().accept()
