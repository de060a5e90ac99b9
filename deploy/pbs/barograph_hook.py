"""Hook of PBS for three events of MoM: execjob_begin and execjob_end (root, on each node of a job), execjob_launch.

For the installation see docs/operator/pbs-flux.md. Errors are logged and never affect the job.
"""

import os
import pwd
import resource
import subprocess
import tempfile

import pbs

HOOKS = "/etc/barograph/hooks"
SECONDS = 5
"""Timeout; exceeds the 1.5 s limit of `bounded`."""
MAX_BYTES = 2**16
"""Of what a hook prints."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(words, environment, user=None):
    """Run one of the hooks, as root or as a user; returns its output.

    environment: replaces that of this process. A user's own may only be given with the user: LD_PRELOAD, PATH and the
    like take effect in the first program that is executed, which has no rights of root any more then.
    """

    def drop_rights():
        # What a user's task says is in a file of this size at most. Not of root's: a sidecar would have the limit.
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
        # Not Popen(user=...), which Python has since 3.9: PBS is linked with that of the distribution.
        if os.getuid() != user.pw_uid:
            os.initgroups(user.pw_name, user.pw_gid)
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)

    with tempfile.TemporaryFile() as out:
        subprocess.run(
            ["/bin/sh", HOOKS + "/bounded", *words],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            timeout=SECONDS,
            check=False,
            preexec_fn=drop_rights if user is not None else None,
        )
        out.seek(0)
        return out.read(MAX_BYTES).decode()


def work(event):
    """Call the hook that corresponds to the event."""
    job = event.job
    owner = str(job.euser or job.Job_Owner).partition("@")[0]
    user = pwd.getpwnam(owner)
    name = f"pbs-{job.id}@{pbs.get_local_nodename()}".replace("[", "_").replace("]", "")
    uid, gid = str(user.pw_uid), str(user.pw_gid)
    facts = {"PATH": PATH, "PBS_JOBID": job.id, "PBS_ACCOUNT": str(job.Account_Name or "")}
    if event.type == pbs.EXECJOB_BEGIN:
        run(["job-begin", name, uid, gid, owner, facts["PBS_ACCOUNT"], str(job.queue or "")], facts)
    elif event.type == pbs.EXECJOB_END:
        run(["job-end", name, uid, gid], facts)
    elif event.type == pbs.EXECJOB_LAUNCH:
        restarts = str(max(int(job.run_count or 1) - 1, 0))
        for line in run(["task-begin", name, uid, restarts, "0"], dict(event.env), user).splitlines():
            variable, _, value = line.partition("=")
            event.env[variable] = value


try:
    work(pbs.event())
except Exception as error:
    pbs.logmsg(pbs.LOG_WARNING, f"barograph: {error}")
pbs.event().accept()
